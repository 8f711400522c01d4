"""Sizes, bounds and indices that only the data tell: each case is captured once and runs on other data."""

import unittest

import torch

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D

N = torch.tensor
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
LONG = torch.arange(28.0).reshape(7, 4) - 9
ROW = torch.tensor([[-1.0], [1.0], [-1.0]]) * torch.arange(1.0, 13).reshape(3, 4)
ROWS, TWO = ({0: D},), ({0: D}, None)
SIGNS = [(LONG,), (X * 0,), (-X,)]


def between(n, low, high):
    """The element of a tensor, checked."""
    k = n.item()
    torch._check(k >= low)
    torch._check(k <= high)
    return k


def bounds(s, x, v):
    a, b = v.tolist()
    torch._check(a >= 0)
    torch._check(b <= 3)
    torch._check(a <= b)
    return x[a:b] + 0, x[:, a:b].sum(1)


def slices(s, x, n):
    k = between(n, 0, 3)
    return x[:k], x[k:], x[:, k:], x.narrow(0, 0, k)


def repeats(s, x, n):
    a = between(n, 0, 10)
    return x.unsqueeze(0).repeat(a, 1, 1), x.repeat(a, 1) + a, x[:1].expand(a, -1)


def creations(s, x, n):
    a = between(n, 1, 8)
    return (
        torch.zeros(a),
        torch.arange(a),
        torch.full((a,), 3.5),
        torch.eye(a),
        torch.arange(a, 0, -1),
        x.new_ones(2, a),
    )


def row_of_an_item(s, x, n):
    a = n.item()
    torch._check(a >= 0)
    torch._check(a < x.shape[0])
    return x[a], x[a, 1]


def row_written(s, x, n):
    a = n.item()
    torch._check(a >= 0)
    torch._check(a < x.shape[0])
    y = x.clone()
    y[a] = 7
    return y


def where_positive(s, x):
    found = (x > 0).nonzero()
    n = found.shape[0]
    return found * n, x + n, torch.arange(n)


def masks_written(s, x):
    y = x.clone()
    y[y > 0] = 5
    y[y < -1] *= 2
    return y, x.masked_select(x > 0)


def pieces(s, x, v):
    a, b = v.tolist()
    torch._check(a >= 0)
    torch._check(b >= 0)
    torch._check(a + b == x.shape[0])
    first, second = torch.split(x, [a, b])
    return first.sum(0), second.sum(0)


def different(s, x):
    values = torch.unique(x.round())
    return values, values.shape[0] + x


def selected(x):
    return x[x[:, 0] > 0]


def repeated_selection(s, x):
    """What the data select is repeated where it is one row."""
    rows = selected(x)
    product = rows * torch.ones(3, 4)
    return rows.expand(3, 4), product.view(3, 2, 2), torch.zeros(3, 4).copy_(rows), product.softmax(0)


def branches(s, x, n):
    a = n.item()
    return torch.cond(n > 2, lambda x: x + 1, lambda x: x - 1, (x,)), x + a, torch.where(n > 2, x, -x)


def quotients(s, n, m):
    a, b = n.item(), m.item()
    torch._check(b != 0)
    return N(0) + a // b, N(0) + a % b, N(0.0) + a / b, N(0) + a // -3, N(0) + (-a) % 4


class TestDataDependent(ControlFlowTestCase):
    CASES = {
        "a slice between two items": (bounds, (X, N([1, 2])), [(X, N([0, 3])), (LONG, N([2, 2]))], TWO),
        "slices up to an item": (slices, (X, N(2)), [(X, N(0)), (LONG, N(3))], TWO),
        "repeats": (repeats, (X, N(2)), [(X, N(0)), (LONG, N(5)), (X, N(1))], TWO),
        "creations": (creations, (X, N(2)), [(X, N(1)), (X, N(7))]),
        "the row of an item": (row_of_an_item, (X, N(2)), [(X, N(0)), (LONG, N(6))], TWO),
        "the row of an item is written": (row_written, (X, N(2)), [(X, N(0)), (LONG, N(6))], TWO),
        "the places of positive values": (where_positive, (X,), SIGNS, ROWS),
        "masks": (
            lambda s, x: (
                x[x > 0],
                x[(x > 0).any(1)],
                torch.argwhere(x < 0),
                *(x > 0).nonzero(as_tuple=True),
            ),
            (X,),
            SIGNS,
            ROWS,
        ),
        "masks are written": (masks_written, (X,), SIGNS, ROWS),
        "pieces of the sizes of items": (pieces, (LONG, N([3, 4])), [(LONG, N([0, 7])), (LONG, N([6, 1]))]),
        "one row that is repeated": (repeated_selection, (ROW.abs(),), [(ROW,)]),
        "one row that is repeated as often as there are rows": (
            lambda s, x: (selected(x).expand(x.shape[0], -1), selected(x).expand_as(x).flatten()),
            (LONG.abs() + 1,),
            [(ROW,)],
            ROWS,
        ),
        "different values": (different, (X,), SIGNS[:2], ROWS),
        "a branch beside an item": (branches, (X, N(2)), [(X, N(5)), (LONG, N(-1))], TWO),
        "quotients of items": (
            quotients,
            (N(5), N(2)),
            [(N(-7), N(3)), (N(7), N(-3)), (N(0), N(5)), (N(-6), N(4)), (N(2**40), N(7))],
        ),
        "a boolean": (lambda s, x, b: x * b.item(), (X, N(True)), [(X, N(False))]),
        "padding": (
            lambda s, x, n: torch.nn.functional.pad(x, (between(n, 0, 5), 1)),
            (X, N(2)),
            [(X, N(0)), (LONG, N(5))],
            TWO,
        ),
        "a resized image": (
            lambda s, x, n: torch.nn.functional.interpolate(x[None, None], size=(between(n, 1, 6), 4)),
            (X, N(2)),
            [(X, N(1)), (LONG, N(5))],
            TWO,
        ),
        "the largest values": (
            lambda s, x, n: x.topk(between(n, 1, 3), dim=0)[0],
            (X, N(2)),
            [(X, N(1)), (LONG, N(3))],
            TWO,
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)


if __name__ == "__main__":
    unittest.main()
