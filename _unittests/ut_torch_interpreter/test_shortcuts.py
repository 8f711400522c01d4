"""Branches for masks without a hole and for nothing at all."""

import unittest

import torch
from transformers.models.fsmt.modeling_fsmt import make_padding_mask

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X, MASK = torch.randn(4, 3), torch.tensor([True, False, True, False])
ROWS = {"dynamic_shapes": ({0: "rows"}, {0: "rows"})}
OTHERS = [
    (torch.randn(6, 3), torch.tensor([True, True, False, True, False, False])),
    (torch.randn(3, 3), torch.tensor([True, True, True])),
]


class Call(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def skipped_when_all_ones(x, mask):
    if not mask.all():
        x = x.masked_fill(~mask[:, None], 0.0)
    return x * 2


def returned_early(x, mask):
    if torch.all(mask):
        return x + 1
    return (x * mask[:, None]).where(mask[:, None], -1.0) + 1


def holes(x, mask):
    if (~mask).any():
        x = x * mask[:, None]
    return x.sum(0)


def nothing_found(x, mask):
    found = x[mask]
    if found.numel() == 0:
        return torch.zeros(3)
    return found.sum(0) if found.shape[0] > 0 else found[0]


def something_marked(x, mask):
    if mask.sum() > 0:
        x = x.masked_fill(mask[:, None], 0.0)
    if torch.count_nonzero(mask) == 0:
        return x * 0
    return x * 2


def with_a_factor(x, mask):
    """As GPyTorch asks for a factor: where a matrix has none, it adds to its diagonal."""
    matrix = x.T @ x + torch.eye(3)
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not torch.any(info) or (info == 0).all():
        return factor
    return torch.linalg.cholesky(matrix + 1e-6 * torch.eye(3))


class TestShortcuts(ExporterTestCase):
    CASES = {
        "something marked": (something_marked, r"sum\(\) > 0 is True"),
        "with a factor": (with_a_factor, "info == 0 is True"),
        "skipped when all ones": (skipped_when_all_ones, r"all\(\) is False"),
        "returned early": (returned_early, r"all\(\) is False"),
        "holes": (holes, r"any\(\) is True"),
        "nothing found": (nothing_found, r"Eq\(3\*u0, 0\) is False"),
    }

    def test_the_general_branch(self):
        for promise, (function, _) in self.CASES.items():
            with self.subTest(promise):
                self.export_and_compare(
                    Call(function),
                    (X, MASK),
                    others=OTHERS,
                    export_options=ExportOptions(patches=["shortcuts"]),
                    target_opset=20,
                    **ROWS,
                )

    def test_a_warning_names_the_line(self):
        for promise, (function, condition) in self.CASES.items():
            with self.subTest(promise), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(
                    Call(function), (X, MASK), export_options=ExportOptions(patches=["shortcuts"]), **ROWS
                )
                text = (
                    f"the model holds the branch where {condition}, for all data\n" + r'  File ".*", line \d+'
                )
                self.assertRegex(logs.output[0], text)

    def test_a_line_is_told_of_once(self):
        def forward(x, mask):
            for _ in range(3):
                if not mask.all():
                    x = x * mask[:, None]
            return x

        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Call(forward), (X, MASK), export_options=ExportOptions(patches=["shortcuts"]), **ROWS)
        self.assertEqual(len(logs.output), 1)

    def test_only_when_it_is_named(self):
        for patches in (None, True):
            for promise, (function, _) in self.CASES.items():
                with self.subTest(promise), self.assertRaisesRegex(CaptureError, "data-dependent"):
                    to_onnx(Call(function), (X, MASK), export_options=ExportOptions(patches=patches), **ROWS)

    def test_the_hint_of_a_condition_with_a_name(self):
        def on_equal(x, mask):
            same = torch.equal(x, x.abs())
            if same:
                return x
            return -x

        def on_allclose(x, mask):
            if torch.allclose(x, x.abs()):
                return x
            return -x

        def on_marks(x, mask):
            marked = mask.any()
            x = x * 2
            if not marked:
                x = x * mask[:, None]
            return x

        for function in (on_equal, on_allclose, on_marks):
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, r"\{'shortcuts'\}"):
                to_onnx(Call(function), (X, MASK), **ROWS)

        def on_a_sum(x, mask):
            positive = x.sum() > 0
            if positive:
                return x
            return -x

        with self.assertRaisesRegex(CaptureError, r"\{'branches_of_data'\}") as caught:
            to_onnx(Call(on_a_sum), (X, MASK), **ROWS)
        self.assertNotIn("{'shortcuts'}", str(caught.exception))

    def test_other_branches_stay_refused(self):
        def on_a_sum(x, mask):
            return x if x.sum() > 0 else -x

        def on_a_count(x, mask):
            found = x[mask]
            return found.sum(0) if found.shape[0] > 2 else found[0]

        def on_a_count_of_marks(x, mask):
            return x if mask.sum() > 2 else -x

        for function in (on_a_sum, on_a_count, on_a_count_of_marks):
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(
                    Call(function), (X, MASK), export_options=ExportOptions(patches=["shortcuts"]), **ROWS
                )

    def test_a_loop_that_the_data_end_stays_refused(self):
        def while_some_are_left(x, mask):
            x = x[mask]
            while x.shape[0] > 0:
                x = x[1:][mask[: x.shape[0] - 1]]
            return x.sum(0)

        def until_all_are_left(x, mask):
            while True:
                if mask.all():
                    break
                mask = mask | ~mask
            return x * mask[:, None]

        for function in (while_some_are_left, until_all_are_left):
            for patches in (None, ["shortcuts"]):
                with self.subTest(function.__name__, patches=patches):
                    with self.assertRaisesRegex(
                        CaptureError, r"torch\._higher_order_ops\.while_loop, "
                    ) as caught:
                        to_onnx(
                            Call(function), (X, MASK), export_options=ExportOptions(patches=patches), **ROWS
                        )
                    self.assertNotIn("{'shortcuts'}", str(caught.exception))

    def test_a_branch_in_a_loop_that_ends(self):
        def forward(x, mask):
            turns = 0
            while turns < 3:
                if not mask.all():
                    x = x * mask[:, None]
                turns += 1
            return x

        options = ExportOptions(patches=["shortcuts"])
        self.export_and_compare(Call(forward), (X, MASK), others=OTHERS, export_options=options, **ROWS)

    def test_a_check_stays_a_check(self):
        def forward(x, mask):
            assert mask.all()
            return x * 2

        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Call(forward), (X, MASK), export_options=ExportOptions(patches=["shortcuts"]), **ROWS)


class TestHarmlessShortcuts(ExporterTestCase):
    def test_padding_of_fsmt(self):
        def padded(ids, x):
            mask = make_padding_mask(ids)
            return x if mask is None else x.masked_fill(mask, -1.0)

        ids = torch.tensor([[1, 1, 5], [1, 2, 3]])
        example, others = (ids, torch.randn(2, 3)), [(ids[:, 1:] + 1, torch.randn(2, 2)), (ids[:1], X[:1])]
        shapes = ({0: "batch", 1: "length"},) * 2
        self.export_and_compare(Call(padded), example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(Call(padded), example, export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
