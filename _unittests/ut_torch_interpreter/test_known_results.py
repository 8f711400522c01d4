"""Factorizations of weights and buffers are constants: torch computes them once, the model does not at every call."""

import unittest

import torch
from torch import nn

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase, nodes_of
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

torch.manual_seed(0)

aten = torch.ops.aten
W = torch.randn(6, 6)
WIDE = torch.randn(40, 40)
ROWS = ({0: torch.export.Dim.DYNAMIC},)


class Held(nn.Module):
    """A function of a buffer and of an input."""

    def __init__(self, function, w):
        super().__init__()
        self.function = function
        self.register_buffer("w", w.clone())

    def forward(self, x):
        return self.function(self.w, x)


def branches(w, x):
    """The inverse of what has none, in a branch that is not taken."""
    return torch.cond(x.sum() > 1e6, lambda w, x: x @ torch.inverse(w), lambda w, x: x + w.sum(), (w, x))


def written_before(w, x):
    w.add_(x.mean())
    return x @ torch.inverse(w)


def written_after(w, x):
    y = x @ torch.inverse(w)
    w.add_(x.mean())
    return y


def seen_through_a_view(w, x):
    """The transpose shows what is written after it was made."""
    shown = w.T
    w.add_(x.mean())
    return x @ torch.inverse(shown)


def orthogonalized(w, x):
    """The inverse of what many steps make of a weight, each of which reads the one before several times."""
    w = w / 9
    for _ in range(25):
        w = 1.5 * w - 0.5 * (w @ w.T @ w)
    return x @ torch.inverse(w + torch.eye(6))


class TestKnownResults(ExporterTestCase):
    KNOWN = {  # what the result is, how, of what
        "inverse": (lambda w, x: x @ torch.inverse(w), W),
        "inverse in another dtype": (lambda w, x: x @ torch.inverse(w.double()).float(), WIDE),
        "inverse of a transpose": (lambda w, x: x @ torch.inverse(w.T), WIDE),
        "inverse of one for each sample": (lambda w, x: (x @ torch.inverse(w.expand(2, 6, 6))).sum(0), W),
        "complex ones": (lambda w, x: x @ torch.inverse(w.expand(2, 6, 6))[1].imag, torch.complex(W, W.T)),
        "determinant": (lambda w, x: x + torch.slogdet(w)[1] + torch.linalg.det(w), W),
        "the factors of a determinant": (lambda w, x: x @ aten._linalg_det.default(w)[1], W),
        "those of the transpose": (lambda w, x: x @ aten._linalg_det.default(w.T)[1], W),
        "cholesky of a weight times itself": (
            lambda w, x: x @ torch.linalg.cholesky(w @ w.T + torch.eye(40)),
            WIDE,
        ),
        "qr": (lambda w, x: x @ torch.linalg.qr(w)[0], W),
        "lu": (lambda w, x: x @ torch.linalg.lu_factor(w)[0], W),
        "a system of constants": (lambda w, x: x @ torch.linalg.solve(w, w.T), W),
        "a triangular one": (lambda w, x: x @ torch.linalg.solve_triangular(w, w.T, upper=True), W),
        "pseudoinverse": (lambda w, x: x @ torch.linalg.pinv(w), W),
        "exponential": (lambda w, x: x @ torch.matrix_exp(w), W),
        "values": (lambda w, x: x * torch.linalg.svdvals(w) + torch.linalg.eigvalsh(w + w.T), W),
        "vectors, whose signs torch says": (lambda w, x: x @ torch.linalg.eigh(w + w.T)[1], W),
        "norm": (lambda w, x: x / torch.linalg.matrix_norm(w, 2), W),
        "the last of many steps": (orthogonalized, W),
        "complex numbers": (lambda w, x: x @ torch.linalg.inv(w).imag, torch.complex(W, W.T)),
    }

    UNKNOWN = {
        "noise": (lambda w, x: x @ torch.inverse(w + 0 * torch.rand_like(w)), WIDE),
        "an input": (lambda w, x: x @ torch.inverse(x.mT @ x + w), W),
        "no inverse, in a branch": (branches, torch.zeros(6, 6)),
        "much more than is read": (lambda w, x: x @ torch.linalg.qr(w, "complete")[0], torch.randn(40, 1)),
        "written before": (written_before, W),
        "written under another name": (seen_through_a_view, W),
    }  # fmt: skip

    def loops(self, model):
        return [node.op_type for node in nodes_of(model.graph)].count("Loop")

    def export(self, function, w, **options):
        module = Held(function, w)
        sizes = [torch.randn(rows, w.shape[0]) for rows in (3, 7)]
        return self.export_and_compare(
            module, (sizes[0],), others=[(sizes[1],)], dynamic_shapes=ROWS, **options
        )

    def test_known(self):
        for promise, (function, w) in self.KNOWN.items():
            with self.subTest(promise):
                model = self.export(function, w)
                self.assertEqual(self.loops(model), 0)
                self.assertNotIn("w", [tensor.name for tensor in model.graph.initializer])

    def test_unknown(self):
        for promise, (function, w) in self.UNKNOWN.items():
            with self.subTest(promise):
                self.assertGreater(self.loops(self.export(function, w)), 0)

    def test_one_that_is_written_after(self):
        """It is the buffer's first value, unless the model takes it."""
        self.assertEqual(self.loops(self.export(written_after, W)), 0)
        model = to_onnx(Held(written_after, W), (torch.randn(3, 6),), mutated_buffers="outputs")
        self.assertGreater(self.loops(model), 0)

    def test_functions_of_modules(self):
        """The function of a module takes the inverse as it takes weights."""
        module = nn.Sequential(Held(self.KNOWN["inverse"][0], W), Held(self.KNOWN["inverse"][0], W.T))
        model = self.export_and_compare(module, (torch.randn(3, 6),), modules_as_functions=True)
        (function,) = model.functions  # both are the same one
        self.assertEqual([node.op_type for node in function.node], ["MatMul"])
        self.assertEqual(len(function.input), 2)

    def test_under_autocast(self):
        """What is multiplied there is rounded, which the optimizer leaves out."""

        def inverse(w, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                inside = w @ w
            return x @ torch.inverse(inside.float())

        squares_are_rounded = torch.diag(1 + torch.arange(1, 41) / 2**12)
        for tracing in ("export", "make_fx"):
            with self.subTest(tracing):
                options = {"export_options": ExportOptions(tracing=tracing), "optimize": False}
                self.export(inverse, squares_are_rounded, **options)

    def test_the_users_own_translation(self):
        """It is asked."""
        model = to_onnx(
            Held(self.KNOWN["inverse"][0], W),
            (torch.randn(3, 6),),
            translations={"aten::inverse": lambda op, self: op.Neg(self)},
            optimize=False,
        )
        self.assertNotIn("Loop", [node.op_type for node in model.graph.node])
        x = torch.randn(3, 6)
        (found,) = run(session(model), (x,))
        torch.testing.assert_close(found, x @ -W)

    def test_the_users_own_translation_of_what_is_read(self):
        """What it gives is not what torch computes."""
        model = to_onnx(
            Held(lambda w, x: x @ torch.inverse(w.sin()), WIDE),
            (torch.randn(3, 40),),
            translations={"aten::sin": lambda op, self: op.Cos(self)},
        )
        self.assertGreater(self.loops(model), 0)

    def test_weights_given_apart(self):
        """Values of a model of the meta device."""
        with torch.device("meta"):
            module = Held(self.KNOWN["inverse"][0], torch.empty(6, 6))
        x = torch.randn(3, 6)
        model = to_onnx(module, (x,), weights={"w": W})
        self.assertEqual([node.op_type for node in model.graph.node], ["MatMul"])
        (found,) = run(session(model), (x,))
        torch.testing.assert_close(found, x @ torch.inverse(W))

    def test_traced(self):
        model = self.export(self.KNOWN["inverse"][0], W, export_options=ExportOptions(tracing="make_fx"))
        self.assertEqual(self.loops(model), 0)


if __name__ == "__main__":
    unittest.main()
