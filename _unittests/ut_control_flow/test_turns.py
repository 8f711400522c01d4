"""while_loop: conditions and carries of all kinds; each case is captured once and takes other turns."""

import unittest

import torch
from torch._higher_order_ops import while_loop

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D

N = torch.tensor
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs()
LONG = torch.ones(7, 4)
ROWS = ({0: D},)
TWO = ({0: D}, None)
TURNS = [(X, N(0)), (LONG, N(5)), (-X, N(1)), (X, N(-3))]
OTHERS = [(-X,), (LONG,), (X * 50,), (X * 0,)]


def repeated(step):
    """Apply a function of the module, the turn and x, n times."""
    return lambda s, x, n: while_loop(lambda i, x: i < n, lambda i, x: (i + 1, step(s, i, x)), (N(0), x))


def nested(s, x, n):
    def innermost(k, x):
        return k + 1, s.lin(x)

    def inner(j, x):
        return j + 1, while_loop(lambda k, x: k < j, innermost, (N(0), x))[1] + 1

    def outer(i, x):
        return i + 1, while_loop(lambda j, x: j <= i, inner, (N(0), x))[1] * 0.5

    return while_loop(lambda i, x: i < n, outer, (N(0), x))


def row_of_an_item(s, x, n):
    def body(i, total):
        k = i.item()
        torch._check(k >= 0)
        torch._check(k < x.shape[0])
        return i + 1, total + x[k]

    return while_loop(lambda i, total: i < n, body, (N(0), torch.zeros(4)))


def without_gradients(s, i, x):
    with torch.no_grad():
        return s.lin(x)


def complex_carry(s, x, n):
    z = torch.complex(x, x)
    body = lambda i, z: (i + 1, z * z * 0.5)
    return torch.view_as_real(while_loop(lambda i, z: i < n, body, (N(0), z))[1])


def in_cond(s, x, n):
    def looped(x, n):
        return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2), (N(0), x))[1]

    return torch.cond(x.sum() > 0, looped, lambda x, n: x * 1, (x, n))


def square_root(s, x):
    def body(guess, error):
        better = (guess + x / guess) / 2
        return better, (better - guess).abs()

    return while_loop(lambda guess, error: error.max() > 1e-4, body, (x + 1, x + 1))


def collatz(s, n):
    def body(n, count):
        return torch.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return while_loop(lambda n, count: n != 1, body, (n, N(0)))


def integers_behind_the_loop(s, x):
    i, y = while_loop(lambda i, y: i < x.shape[0], lambda i, y: (i + 1, y + 1), (0, x))
    return y * i, y.new_ones(i + 1)


class TestTurns(ControlFlowTestCase):
    CASES = {
        "the turn is read": (repeated(lambda s, i, x: x * 2 + i), (X, N(3)), TURNS, TWO),
        "nested three deep": (nested, (X, N(3)), TURNS, TWO),
        "weights and buffers": (repeated(lambda s, i, x: s.lin(x) + s.b), (X, N(3)), TURNS, TWO),
        "no gradient": (repeated(without_gradients), (X, N(3)), TURNS, TWO),
        "cond inside": (
            repeated(
                lambda s, i, x: torch.cond(x.sum() > 10, lambda x: x * 0.5, lambda x: s.lin(x) + i, (x,))
            ),
            (X, N(3)),
            TURNS,
            TWO,
        ),
        "inside cond": (in_cond, (X, N(3)), TURNS, TWO),
        "a carry that stays": (
            lambda s, x, n: while_loop(
                lambda i, x, y: i < n, lambda i, x, y: (i + 1, x + y, y.clone()), (N(0), x, x * 2)
            ),
            (X, N(3)),
            TURNS,
            TWO,
        ),
        "rows move": (repeated(lambda s, i, x: torch.cat([x, x[-1:]])[1:]), (X, N(3)), TURNS, TWO),
        "the data told the size": (
            lambda s, x, n: while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), (N(0), x[x > 0.5])),
            (X, N(3)),
            TURNS,
            TWO,
        ),
        "float16 and bfloat16": (
            lambda s, x, n: while_loop(
                lambda i, x, y: i < n, lambda i, x, y: (i + 1, x * 2, y + 1), (N(0), x.half(), x.bfloat16())
            ),
            (X, N(3)),
            TURNS,
            TWO,
        ),
        "unsigned integers that overflow": (
            lambda s, x, n: while_loop(
                lambda i, x: i < n,
                lambda i, x: (i + 1, x * 3),
                (N(0, dtype=torch.int32), x.to(torch.uint8)),
            ),
            (X * 5, N(3)),
            [(X, N(0)), (LONG * 9, N(6))],
            TWO,
        ),
        "complex": (complex_carry, (X, N(3)), TURNS, TWO),
        "the operator itself, additional inputs": (
            lambda s, x, n: torch.ops.higher_order.while_loop(
                lambda i, x, n: i < n, lambda i, x, n: (i + 1, x * 2 + n), (N(0), x), (n,)
            ),
            (X, N(3)),
            TURNS,
            TWO,
        ),
        "an item picks a row": (row_of_an_item, (X, N(3)), [(X, N(0)), (LONG, N(5))], TWO),
        "an integer that goes up by two": (
            lambda s, x: while_loop(
                lambda i, a: i < 5, lambda i, a: (i + 2, a + x.sum() * i), (0, torch.zeros(()))
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "an integer that goes down from a size": (
            lambda s, x: while_loop(
                lambda i, a: i > 0, lambda i, a: (i - 1, a * 0.5 + x[i - 1]), (x.shape[0], torch.zeros(4))
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "two integers": (
            lambda s, x: while_loop(
                lambda i, j, a: i + j < 10,
                lambda i, j, a: (i + 1, j * 2 + 1, a + x.sum() * j),
                (0, 1, torch.zeros(())),
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "an integer bounds a slice": (
            lambda s, x: while_loop(
                lambda i, total: i < 3, lambda i, total: (i + 1, total + x[i:].sum(0)), (0, torch.zeros(4))
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "integers are read behind the loop": (integers_behind_the_loop, (X,), OTHERS, ROWS),
        "nested structures": (
            lambda s, x: while_loop(
                lambda d: d["i"] < 3,
                lambda d: ({"i": d["i"] + 1, "x": [d["x"][0] * 2]},),
                ({"i": N(0), "x": [x]},),
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "no row": (
            lambda s, x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + 1), (N(0), x[:0])),
            (X,),
            OTHERS,
            ROWS,
        ),
        "until all are small": (
            lambda s, x: while_loop(
                lambda x: (x.abs() > 1).any(), lambda x: (torch.where(x.abs() > 1, x / 2, x),), (x,)
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "the condition has weights": (
            lambda s, x: while_loop(lambda x: s.lin(x).sum().abs() < 20, lambda x: (x * 1.5 + 1,), (x,)),
            (X,),
            [(LONG,), (X * 9,)],
            ROWS,
        ),
        "a square root": (square_root, (X,), [(LONG,), (X * 9,)], ROWS),
        "integers only": (collatz, (N(6),), [(N(1),), (N(27),)]),
    }

    COMPILED = ("nested structures",)

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, self.COMPILED)

    def test_same_as_eager_strict(self):
        self.assert_strict_cases(self.CASES, self.COMPILED)


if __name__ == "__main__":
    unittest.main()
