"""cond: what branches may return, read and hold; each case is captured once and takes other branches."""

import unittest

import torch

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D

N = torch.tensor
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs()
LONG = torch.ones(7, 4)
ROWS = ({0: D},)
OTHERS = [(-X,), (LONG,), (-LONG,), (X * 9,), (9 - X,)]


def positive(first, second):
    """One of two functions of the module and x, by the sign of the sum of x."""
    return lambda s, x: torch.cond(x.sum() > 0, lambda x: first(s, x), lambda x: second(s, x), (x,))


def three_deep(s, x):
    def innermost(x):
        return torch.cond(x.max() > 3, lambda x: s.lin(x), lambda x: x * s.b, (x,))

    def inner(x):
        return torch.cond(x.min() > 0.0, lambda x: innermost(x) + 1, lambda x: innermost(x * 2) - 1, (x,))

    return torch.cond(x.sum() > 0, lambda x: inner(x), lambda x: inner(-x) * 3, (x,))


def size_as_predicate(s, x):
    y = torch.cond(x.shape[0] > 3, lambda x: x[:2] + x.shape[0], lambda x: x[:2] - x.shape[0], (x,))
    return y, x.shape[0] + y


def no_operand(s, x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda: y + 1, lambda: s.lin(y))


def item_in_a_branch(s, x, n):
    def sliced(x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= 3)
        return x[:k].sum(0)

    return torch.cond(n > 1, sliced, lambda x, n: x.sum(0) * n, (x, n))


def complex_operands(s, x):
    z = torch.complex(x, x + 1)
    return torch.cond(x.sum() > 0, lambda z: z * z, lambda z: z.conj() * 1, (z,))


def in_a_python_loop(s, x):
    for i in range(3):
        x = torch.cond(x[0, 0] > i, lambda x: x - 1, lambda x: x * 2, (x,))
    return x


def predicates_of_results(s, x):
    p = (x > 1).any()
    a = torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,))
    q = torch.logical_and(~p, (a < 0).all())
    return torch.cond(q, lambda a, x: a * x, lambda a, x: a + x, (a, x))


def same_branches_twice(s, x):
    def first(x):
        return s.lin(x).relu()

    def second(x):
        return s.lin(x).tanh()

    y = torch.cond(x.sum() > 0, first, second, (x,))
    return torch.cond(y.sum() > 0, first, second, (y,))


def written_outside(s, x):
    y = x.clone()
    y[0] = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 0, (x[0],))
    y.add_(1)
    return y


class TestBranches(ControlFlowTestCase):
    CASES = {
        "three deep": (three_deep, (X,), OTHERS, ROWS),
        "the data tell the sizes": (
            positive(lambda s, x: x[x > 0.5], lambda s, x: x.flatten()[:2] * 1),
            (X,),
            OTHERS,
            ROWS,
        ),
        "other sizes along two axes": (
            positive(lambda s, x: x.new_zeros(x.shape[0], 2), lambda s, x: x[:, :2] * 1),
            (X,),
            OTHERS,
            ROWS,
        ),
        "a size is the predicate and is read": (size_as_predicate, (X,), OTHERS, ROWS),
        "two sizes are the predicate": (
            lambda s, x: torch.cond(
                (x.shape[0] > 3) | (x.shape[0] == 2), lambda x: x + 1, lambda x: x - 1, (x,)
            ),
            (X,),
            [(LONG,), (X[:2],)],
            ROWS,
        ),
        "the predicate is an input": (
            lambda s, x, p: torch.cond(p, lambda x: x + 1, lambda x: x.clone(), (x,)),
            (X, N(True)),
            [(X, N(False)), (LONG, N(False))],
            ({0: D}, None),
        ),
        "an integer is compared": (
            lambda s, x, n: torch.cond(n > 3, lambda x: x + 1, lambda x: x - 1, (x,)),
            (X, N(2)),
            [(X, N(5)), (LONG, N(3))],
            ({0: D}, None),
        ),
        "nested structures are returned": (
            positive(
                lambda s, x: {"a": x + 1, "b": [x * 2, (x.sum(),)]},
                lambda s, x: {"a": x - 1, "b": [x / 2, (x.max(),)]},
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "nested structures are operands": (
            lambda s, x: torch.cond(
                x.sum() > 0,
                lambda d: d["a"] + d["b"][0],
                lambda d: d["a"] - d["b"][0],
                ({"a": x, "b": [x * 2]},),
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "no operand": (no_operand, (X,), OTHERS, ROWS),
        "constants": (positive(lambda s, x: torch.ones(2), lambda s, x: torch.zeros(2)), (X,), OTHERS, ROWS),
        "an input is copied": (positive(lambda s, x: x.clone(), lambda s, x: x + 1), (X,), OTHERS, ROWS),
        "a buffer": (positive(lambda s, x: s.b.clone(), lambda s, x: s.b * 2), (X,), OTHERS, ROWS),
        "integers": (positive(lambda s, x: (x.sin(), 3), lambda s, x: (x.clone(), 5)), (X,), OTHERS, ROWS),
        "no dimension": (positive(lambda s, x: x.sum(), lambda s, x: x.max()), (X,), OTHERS, ROWS),
        "integers, booleans and float64": (
            positive(
                lambda s, x: (x.to(torch.int64), x > 1, x.double()),
                lambda s, x: (x.to(torch.int64) * 2, x < 1, x.double() * 2),
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "complex results": (
            positive(lambda s, x: torch.complex(x, x), lambda s, x: torch.complex(x, -x) * 2),
            (X,),
            OTHERS,
            ROWS,
        ),
        "complex operands": (complex_operands, (X,), OTHERS, ROWS),
        "transposed": (
            positive(lambda s, x: x.t().contiguous(), lambda s, x: (x * 2).t().contiguous()),
            (X,),
            OTHERS,
            ROWS,
        ),
        "expanded": (
            positive(lambda s, x: x[:1].expand(5, -1) * 1, lambda s, x: torch.zeros(5, 4)),
            (X,),
            OTHERS,
            ROWS,
        ),
        "an item bounds a slice": (
            item_in_a_branch,
            (X, N(2)),
            [(X, N(0)), (-X, N(3)), (LONG, N(3))],
            ({0: D}, None),
        ),
        "in a loop of Python": (in_a_python_loop, (X,), OTHERS, ROWS),
        "predicates of results": (predicates_of_results, (X,), OTHERS, ROWS),
        "the same branches twice": (same_branches_twice, (X,), OTHERS, ROWS),
        "the result is written into a tensor": (written_outside, (X,), OTHERS, ROWS),
    }

    COMPILED = ("nested structures are operands",)

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, self.COMPILED)

    def test_same_as_eager_strict(self):
        self.assert_strict_cases(self.CASES, self.COMPILED)


if __name__ == "__main__":
    unittest.main()
