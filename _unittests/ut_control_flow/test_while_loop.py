"""while_loop: any number of turns, none included; carries of tensors and of Python integers."""

import unittest

import torch
from torch._higher_order_ops import while_loop

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
LONG = torch.ones(7, 4)
ROWS = ({0: D},)
N = torch.tensor


def times(s, x, n):
    return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, torch.tanh(s.lin(x))), (N(0), x))


def integer_carry(s, x):
    return while_loop(lambda i, a: i < x.shape[0], lambda i, a: (i + 1, a + x[i]), (0, torch.zeros(4)))


def until_small(s, x):
    return while_loop(lambda x: x.abs().max() > 0.1, lambda x: (x / 2,), (x,))


def swap(s, x, y):
    return while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, b.clone(), a + b), (N(0), x, y))


def nested(s, x, n):
    def body(i, x):
        return i + 1, while_loop(lambda j, x: j < i, lambda j, x: (j + 1, s.lin(x)), (N(0), x))[1]

    return while_loop(lambda i, x: i < n, body, (N(0), x))


def with_cond(s, x, n):
    def body(i, x):
        return i + 1, torch.cond(i % 2 == 0, lambda x: x + 1, lambda x: s.lin(x), (x,))

    return while_loop(lambda i, x: i < n, body, (N(0), x))


class TestWhileLoop(ControlFlowTestCase):
    CASES = {
        "weights are captured, no turn, more turns": (
            times,
            (X, N(3)),
            [(LONG, N(0)), (X, N(9)), (X, N(-1))],
            ({0: D}, None),
        ),
        "the number of turns is a size, a carry is an int": (integer_carry, (X,), [(LONG,)], ROWS),
        "the condition reads the data": (until_small, (X,), [(X * 0,), (X * 50,)]),
        "carries are exchanged": (swap, (X, X + 1), [(X * 2, X * 0)]),
        "nested, the inner one captures a carry": (nested, (X, N(3)), [(X, N(0)), (X, N(6))]),
        "cond inside": (with_cond, (X, N(3)), [(X, N(0)), (X, N(6))]),
        "the body writes its temporaries": (
            lambda s, x, n: while_loop(
                lambda i, x: i < n, lambda i, x: (i + 1, x.clone().add_(1).mul_(2)), (N(0), x)
            ),
            (X, N(3)),
            [(X, N(0))],
        ),
        "carries of other dtypes": (
            lambda s, x, n: while_loop(
                lambda i, a, b, c: i < n,
                lambda i, a, b, c: (i + 1, ~a, b * 2, c / 2),
                (N(0, dtype=torch.int32), x > 0, x.half(), x.double()),
            ),
            (X, N(3)),
            [(X, N(0))],
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_sizes_of_integer_carries_are_not_reused(self):
        """The size ``i + 2`` differs at each turn: it is computed in the body, never read from another turn."""

        def function(s, x):
            def body(i, total):
                return i + 1, total + x.new_ones(i + 2).sum()

            return while_loop(lambda i, total: i < x.shape[0], body, (0, torch.zeros(())))

        self.assert_cases({"sizes": (function, (X,), [(LONG,)], ROWS)})

    def test_a_growing_carry_is_refused_by_the_capture(self):
        def function(s, x):
            return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, torch.cat([y, y[:1]])), (N(0), x))

        with self.assertRaises(CaptureError):
            to_onnx(OneInput(function), (X,))


class Gradients(torch.nn.Module):
    """The gradients of three carries, one of whole numbers, and of a weight, after *n* turns."""

    def forward(self, x, n, w):
        def body(i, y, k):
            return i + 1, torch.tanh(y @ w) + k.to(y.dtype).mean(), k + 1

        x, w = (tensor.detach().requires_grad_(True) for tensor in (x, w))
        _, y, _ = while_loop(lambda i, y, k: i < n, body, (N(0), x, torch.arange(3)))
        return torch.autograd.grad((y.square() * torch.arange(1.0, 5.0)).sum(), (x, w))


class TestGradients(ControlFlowTestCase):
    def test_same_as_eager(self):
        """Of any number of turns; of none too, where torch takes one turn for its gradient."""
        w = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
        for shapes in (None, (None, None, None), ({0: D}, None, {})):
            others = [(X, N(n), w) for n in (0, 1, 6)]
            if shapes and shapes[0]:
                others += [(LONG, N(n), w) for n in (0, 4)]
            with self.subTest(shapes=shapes):
                self.export_and_compare(
                    Gradients(),
                    (X, N(3), w),
                    others=others,
                    dynamic_shapes=shapes,
                    export_options=ExportOptions(tracing="make_fx"),
                    scale=10,  # torch multiplies the turns in another order
                )


if __name__ == "__main__":
    unittest.main()
