"""Bodies that write tensors from outside: torch.export captures cond and while_loop that do, without gradients."""

import unittest

import torch
from torch._higher_order_ops import while_loop

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput
from experimental_experiment.torch_interpreter import ExportError, to_onnx

N = torch.tensor
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs()
ROWS = ({0: D},)
OTHERS = [(-X,), (torch.ones(7, 4),), (X * 9,)]


def written(y, change):
    """Change a tensor and give its sum."""
    change(y)
    return y.sum()


def in_a_branch(s, x):
    y = x.clone()
    z = torch.cond(x.sum() > 0, lambda y: written(y, lambda y: y.add_(1)), lambda y: y.sum(), (y,))
    return z, y


def in_both_branches_through_views(s, x):
    y = x.clone()
    first, second = lambda y: written(y, lambda y: y[0].add_(1)), lambda y: written(y, lambda y: y[1].mul_(2))
    return torch.cond(x.sum() > 0, first, second, (y,)), y


def a_view_is_given(s, x):
    y = x.clone()
    z = torch.cond(x.sum() > 0, lambda r: written(r, lambda r: r.add_(5)), lambda r: r.max(), (y[0],))
    return z, y


def a_buffer(s, x):
    def true(x):
        s.b.add_(1)
        return x + s.b

    return torch.cond(x.sum() > 0, true, lambda x: x - s.b, (x,)), s.b + 1


def nested(s, x):
    y = x.clone()

    def true(y):
        y.add_(1)
        return torch.cond(y.sum() > 20, lambda y: written(y, lambda y: y.mul_(2)), lambda y: y.sum(), (y,))

    return torch.cond(x.sum() > 0, true, lambda y: y.sum() * 3, (y,)), y, y[0]


def at_each_turn(s, x):
    y = x.clone()

    def body(i, a):
        y.add_(1)
        return i + 1, a + y

    return while_loop(lambda i, a: i < 3, body, (N(0), x))[1], y


def the_condition_reads_it(s, x):
    y = x.clone()

    def body(i, a):
        y.add_(i)
        return i + 1, a + y

    total = while_loop(lambda i, a: y.sum() < 300, body, (N(1), x))[1]
    y.mul_(2)
    return total, y


def a_cache(s, x):
    def body(i, a):
        s.b.index_copy_(0, i.reshape(1), a[0, :1])
        return i + 1, a * 0.5 + s.b.sum()

    return while_loop(lambda i, a: i < 3, body, (N(0), x))[1], s.b * 1


def a_branch_in_a_loop(s, x):
    y = x.clone()
    row = y[0]

    def body(i, a):
        first, second = lambda y: written(y, lambda y: y.add_(1)), lambda y: written(y, lambda y: y.mul_(2))
        return i + 1, a + torch.cond(i % 2 == 0, first, second, (y,))

    return while_loop(lambda i, a: (i < 4) & (y.sum() < 500), body, (N(0), torch.zeros(())))[1], y, row


def a_known_predicate(s, x):
    y = x.clone()
    z = torch.cond(x.shape[1] > 2, lambda y: written(y, lambda y: y.add_(1)), lambda y: y.sum(), (y,))
    return z, y


class Statistics(torch.nn.Module):
    """The running statistics of a normalization, written in a branch."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.norm(x), lambda x: self.linear(x), (x,))
        return y, self.norm.running_mean * 1, self.norm.num_batches_tracked * 1


def shared_memory(s, x):
    y = x.clone()

    def true(y, row):
        y.add_(1)
        return y.sum() + row.sum()

    return torch.cond(x.sum() > 0, true, lambda y, row: y.sum() * row.sum(), (y, y[0])), y


def a_carry(s, x):
    y = x.clone()
    body = lambda i, y: (i + 1, y.add_(1).clone())
    return while_loop(lambda i, y: i < 3, body, (N(0), y))[1], y


class TestWrittenOperands(ControlFlowTestCase):
    CASES = {
        function.__name__.replace("_", " "): (function, (X,), OTHERS, ROWS)
        for function in (
            in_a_branch,
            in_both_branches_through_views,
            a_view_is_given,
            a_buffer,
            nested,
            at_each_turn,
            the_condition_reads_it,
            a_cache,
            a_branch_in_a_loop,
            a_known_predicate,
        )
    }

    def test_same_as_eager(self):
        with torch.no_grad():
            self.assert_cases(self.CASES)

    def test_statistics(self):
        with torch.no_grad():
            self.export_and_compare(Statistics(), (X,), others=OTHERS, dynamic_shapes=ROWS)

    def test_refusals(self):
        for function, message in (
            (shared_memory, "writes an operand that shares its memory with another one"),
            (a_carry, "writes one of its carries"),
        ):
            with self.subTest(message), torch.no_grad(), self.assertRaisesRegex(ExportError, message):
                to_onnx(OneInput(function), (X,))


if __name__ == "__main__":
    unittest.main()
