"""Functions that ask for sizes or values which their result does not need."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

ARGS = torch.randn(5, 4), torch.tensor([[2, 1]])
OTHERS = [
    (torch.randn(rows, columns), torch.tensor([[0, 1], [1, 1]])) for rows, columns in ((2, 6), (3, 3), (7, 2))
]
SHAPES = {0: "rows", 1: "columns"}, {0: "chosen"}


class Model(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


FUNCTIONS = {
    "taken": lambda x, k: (
        torch.take_along_dim(x, x.argsort(1), -1),
        torch.take_along_dim(x, x.argmax(0, keepdim=True), dim=0),
        x.take_along_dim(x[:1].argsort(1), 1),
        torch.take_along_dim(x[:, None], x.argsort(0)[None], 0),
        torch.take_along_dim(x, k),
    ),
    "positions": lambda x, k: (
        *torch.unravel_index(x.argmax(), x.shape),
        *torch.unravel_index(k.int() + 2, (x.shape[0], 3)),
        *torch.unravel_index(k, x.shape[1]),
        *torch.unravel_index(k, (3, 4)),
    ),
    "diagonal": lambda x, k: (x.clone().fill_diagonal_(3), x[:, :2].clone().t().fill_diagonal_(k[0, 0])),
    "covariances": lambda x, k: (torch.cov(x), x.T.cov(correction=0), torch.cov(x[0]), torch.cov(x[:1])),
    "norms of matrices": lambda x, k: (
        torch.linalg.norm(x, 1),
        torch.linalg.norm(x, -math.inf, keepdim=True),
        torch.linalg.norm(x[None], -1, (1, 2), dtype=torch.float64),
        torch.linalg.matrix_norm(x, math.inf),
        torch.linalg.matrix_norm(torch.stack([x, x - 1], 1), 1, (-1, 0), keepdim=True),
    ),
    "spectral norms": lambda x, k: (
        torch.linalg.norm(x, 2),
        torch.linalg.norm(x, -2, keepdim=True),
        torch.linalg.matrix_norm(torch.stack([x, x - 1], 1), 2, (-1, 0), keepdim=True),
        torch.linalg.matrix_norm(torch.stack([x, x - 1], 1), 2, dtype=torch.float64),
    ),
    "other norms": lambda x, k: (
        torch.linalg.norm(x),
        torch.linalg.norm(x[0], 1),
        torch.linalg.norm(x, 1, 0),
        torch.linalg.matrix_norm(x),
        torch.linalg.norm(x, 1),
    ),
    "chains": lambda x, k: (
        torch.linalg.multi_dot([x, x.T]),
        torch.linalg.multi_dot((x[:, 0], x, x.T, x[:, 0])),
        torch.chain_matmul(x, x.T, x),
    ),
    "correlations": lambda x, k: (torch.corrcoef(x), x.double().corrcoef(), torch.corrcoef(x[0])),
}


class TestAnySize(ExporterTestCase):
    def test_same_as_eager(self):
        for promise, function in FUNCTIONS.items():
            with self.subTest(promise):
                self.export_and_compare(Model(function), ARGS)
                self.export_and_compare(Model(function), ARGS, others=OTHERS, dynamic_shapes=SHAPES)

    def test_chains_of_other_tensors(self):
        """What eager refuses, and torch.matmul takes."""
        for function in (
            lambda x, k: torch.linalg.multi_dot([x[None], x.T]),
            lambda x, k: torch.linalg.multi_dot([x, x[0], x.T]),
            lambda x, k: torch.chain_matmul(x, x[0]),
        ):
            with self.assertRaises(CaptureError):
                to_onnx(Model(function), ARGS, dynamic_shapes=SHAPES)

    def test_axes_of_no_matrix(self):
        """What eager refuses: one axis twice, one that is not there."""
        for axes in ((0, 0), (1, -1), (0, 2)):
            with self.subTest(axes), self.assertRaises(CaptureError):
                to_onnx(
                    Model(lambda x, k, axes=axes: torch.linalg.matrix_norm(x, 1, axes)),
                    ARGS,
                    dynamic_shapes=SHAPES,
                )

    def test_without_the_patch(self):
        options = ExportOptions(patches=False)
        for promise, function in FUNCTIONS.items():
            with self.subTest(promise), self.assertRaises(CaptureError):
                to_onnx(Model(function), ARGS, dynamic_shapes=SHAPES, export_options=options)

    def test_one_row_is_warned_about(self):
        """Eager removes the axes of a covariance of one row."""
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Model(lambda x: torch.cov(x)), ARGS[:1], dynamic_shapes=({0: "rows"},))
        self.assertIn("rows != 1", "".join(logs.output))

    def test_covariances_of_no_observation(self):
        model, args = Model(lambda x: (torch.cov(x.T), torch.cov(x.half().T, correction=2))), ARGS[:1]
        others = [(torch.randn(n, args[0].shape[1]),) for n in (0, 1, 2)]
        self.export_and_compare(model, args, others=others, dynamic_shapes=({0: "rows"},))

    def test_norms_of_what_is_selected(self):
        class Norms(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.batch = torch.nn.BatchNorm1d(4)
                self.plain = torch.nn.BatchNorm1d(4, affine=False)
                self.instance = torch.nn.InstanceNorm1d(4, affine=True)
                for norm in (self.batch, self.plain):
                    norm.running_mean.uniform_()
                    norm.running_var.uniform_(1, 2)

            def forward(self, x, mask):
                selected = x[mask]
                result = torch.zeros_like(x)
                result[mask] = self.instance(self.batch(selected)) + self.plain(selected)
                return self.batch(x[..., 0][mask]), result

        x, norms = torch.randn(6, 4, 3), Norms().eval()
        others = [(torch.randn(rows, 4, 3), torch.arange(rows) < count) for rows, count in ((5, 1), (8, 8))]
        self.export_and_compare(
            norms,
            (x, x[:, 0, 0] > 0),
            others=others,
            dynamic_shapes=({0: "rows"}, {0: "rows"}),
        )

        batch = Model(lambda x, mask: norms.batch(x[mask]))  # eager refuses an instance norm of nothing
        self.export_and_compare(batch, (x, x[:, 0, 0] > 0), others=[(x, x[:, 0, 0] > 9)])

    def test_logsumexp_of_what_is_selected(self):
        def others_of_each(x):
            n = x.shape[0]
            return (x @ x.t())[~torch.eye(n, dtype=torch.bool)].view(n, -1).logsumexp(1)

        def several(x):
            selected = x[x[:, 0] > 0]
            return (
                selected.logsumexp(0),
                selected.logsumexp([0, 1], keepdim=True),
                (selected * 200).logsumexp(-1),
            )

        shapes = ({0: "rows"},)
        example, none = torch.randn(5, 3), -torch.rand(4, 3)
        cases = {others_of_each: [torch.randn(7, 3)], several: [torch.randn(9, 3), none]}
        for function, others in cases.items():
            for options in (ExportOptions(), ExportOptions(decomposition_table="default")):
                with self.subTest(function.__name__, decomposed=options.decomposition_table):
                    calls = [(other,) for other in others]
                    self.export_and_compare(
                        Model(function),
                        (example,),
                        others=calls,
                        dynamic_shapes=shapes,
                        export_options=options,
                    )
            with self.assertRaisesRegex(CaptureError, "data-dependent"):
                options = ExportOptions(patches=False)
                to_onnx(Model(function), (example,), dynamic_shapes=shapes, export_options=options)

    def test_undone(self):
        x, k = ARGS[0], ARGS[0].argsort(0)
        before = (
            torch.take_along_dim(x, k, 0),
            torch.cov(x),
            torch.corrcoef(x),
            x.clone().fill_diagonal_(2, True),
        )
        functions = torch.cov, torch.Tensor.take_along_dim, torch.Tensor.fill_diagonal_
        with bypass_export_some_errors():
            self.assertIsNot(torch.cov, functions[0])
            after = (
                torch.take_along_dim(x, k, 0),
                torch.cov(x),
                torch.corrcoef(x),
                x.clone().fill_diagonal_(2, True),
            )
            torch.testing.assert_close(after, before)
            weighted = torch.cov(x, aweights=x[0].abs())
        torch.testing.assert_close(weighted, torch.cov(x, aweights=x[0].abs()))
        self.assertEqual(functions, (torch.cov, torch.Tensor.take_along_dim, torch.Tensor.fill_diagonal_))


if __name__ == "__main__":
    unittest.main()
