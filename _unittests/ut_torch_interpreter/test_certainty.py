"""Conditions on sizes: what is proven holds for every size, what does not hold for one is never proven."""

import itertools
import random
import unittest

import sympy
from sympy import And, Eq, Ne, Or
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from experimental_experiment.torch_interpreter.certainty import Known, is_proven

S, T, U = (sympy.Symbol(name, integer=True, positive=True) for name in "stu")
HALF = FloorDiv(S + 1, 2)
UNSHUFFLED = Eq(3 * S * T * U, 12 * U * FloorDiv(S, 2) * FloorDiv(T, 2))


def ranges(**bounds):
    """Where the sizes are: from 1 on, or between what is given."""
    given = {symbol: bounds.get(symbol.name, (1,)) for symbol in (S, T, U)}
    return {symbol: ValueRanges(*bound, *[int_oo][len(bound) - 1 :]) for symbol, bound in given.items()}


class TestHolds(unittest.TestCase):
    PROVEN = {
        "padded to a multiple": (Eq(Mod(S + PythonMod(-S, 512), 512), 0), {}),
        "the padded size": (Eq(S + PythonMod(-S, 512), 512 * FloorDiv(S + 511, 512)), {}),
        "both halves": (Eq(FloorDiv(S, 2) + HALF, S), {}),
        "two chunks": (Eq(FloorDiv(S + HALF - 1, HALF), 2), {"s": (2,)}),
        "quotients of quotients": (Eq(FloorDiv(FloorDiv(S, 3), 5), FloorDiv(S, 15)), {}),
        "a fraction that is reduced": (Eq(FloorDiv(6 * S + 5, 4), FloorDiv(3 * S + 2, 2)), {}),
        "a product of neighbours": (Eq(Mod(S * (S + 1), 2), 0), {}),
        "a product of quotients": (FloorDiv(FloorDiv(S + 1, 2) + 1, 2) * FloorDiv(T, 6) > 1, {"s": (5,), "t": (6,)}),
        "a part": (S - FloorDiv(S, 2) >= 2, {"s": (3,)}),
        "a divisor that is not 0": (Eq(FloorDiv(HALF - 2, HALF - 1), 0), {"s": (3,)}),
        "the least": (Eq(Min(FloorDiv(S, 2), S), FloorDiv(S, 2)), {}),
        "one of the largest": (S <= Max(S, T), {}),
        "the largest of several": (Max(S, FloorDiv(T, 2)) <= Max(S, T, U), {}),
        "above the least": (S + 1 > Min(S, T), {}),
        "in one block": (Eq((FloorDiv(S - 1, 48) + 1) * (FloorDiv(T - 1, 48) + 1), 1), {"s": (1, 48), "t": (3, 48)}),
        "both": (And(Eq(FloorDiv(S, 2) + HALF, S), S * S >= S), {}),
        "one of both": (Or(Eq(FloorDiv(S, 2), 7), S * S >= S), {}),
    }  # fmt: skip
    NOT_PROVEN = {
        "padded to another multiple": (Eq(S + PythonMod(-S, 512), 512 * FloorDiv(S + 510, 512)), {}),
        "the padding of another": (Eq(S + PythonMod(-T, 512), 512 * FloorDiv(T + 511, 512)), {}),
        "two chunks of one": (Eq(FloorDiv(S + HALF - 1, HALF), 2), {}),
        "one that another is larger than": (Max(S, T) <= Max(S, U), {}),
        "above the largest": (S + 1 > Max(S, T), {}),
        "smaller": (FloorDiv(FloorDiv(S + 1, 2) + 1, 2) * FloorDiv(T, 6) > 1, {"s": (4,), "t": (6,)}),
        "a smaller part": (S - FloorDiv(S, 2) >= 2, {"s": (2,)}),
        "beyond the block": (Eq((FloorDiv(S - 1, 48) + 1) * (FloorDiv(T - 1, 48) + 1), 1), {"s": (1, 48), "t": (3, 49)}),
        "a divisor that is 0": (Eq(FloorDiv(HALF - 2, HALF - 1), 0), {}),
        "a root": (S**sympy.Rational(1, 2) >= 1, {}),
    }  # fmt: skip
    GIVEN = {
        "rows of four": (Eq(32 * FloorDiv(S, FloorDiv(S, 4)), 128), Eq(Mod(32 * S, 128), 0)),
        "a rest": (Eq(FloorDiv(S, 4) * 4 + 3, S), Eq(Mod(S, 4), 3)),
        "a rest of a multiple": (Eq(FloorDiv(S, 4) * 4 + 3, S), Eq(Mod(3 * S + 1, 4), 2)),
        "squares": (Eq(FloorDiv(S, FloorDiv(S, 2)), 2), UNSHUFFLED),
        "pixels": (Eq(3 * FloorDiv(S, FloorDiv(S, 2)) * FloorDiv(T, FloorDiv(T, 2)), 12), UNSHUFFLED),
    }
    """Conditions that only hold together with another one."""

    def test_proven(self):
        for promise, (condition, bounds) in self.PROVEN.items():
            with self.subTest(promise):
                self.assertTrue(is_proven(condition, ranges(**bounds)))

    def test_not_proven(self):
        for promise, (condition, bounds) in self.NOT_PROVEN.items():
            with self.subTest(promise):
                self.assertFalse(is_proven(condition, ranges(**bounds)))

    def test_given(self):
        for promise, (condition, given) in self.GIVEN.items():
            with self.subTest(promise):
                self.assertTrue(is_proven(condition, ranges(), [given]))
                self.assertFalse(is_proven(condition, ranges()))

    def test_given_of_sizes_that_may_be_0(self):
        """Where ``u`` is 0, nothing is known of the others."""
        self.assertFalse(is_proven(Eq(FloorDiv(S, FloorDiv(S, 2)), 2), ranges(u=(0,)), [UNSHUFFLED]))

    def test_nothing_is_proven_of_what_cannot_be(self):
        self.assertFalse(is_proven(Eq(T, 2), ranges(t=(2, 3)), [Eq(Mod(T, 4), 0)]))
        self.assertFalse(is_proven(Eq(S + T, 2 * S), ranges(t=(2, 3)), [Eq(Mod(T, 4), 0)]))

    def test_what_is_learned_of_a_range(self):
        known = Known(ranges())
        for condition, lower, upper in (
            (FloorDiv(S, 4) >= 2, 8, int_oo),
            (S > 9, 10, int_oo),
            (S < 30, 10, 29),
            (2 * S <= 40, 10, 20),
            (Ne(S, 15), 10, 20),
            (S + T <= 12, 10, 20),
        ):
            known = known.learn(condition)
            self.assertEqual(ValueRanges(lower, upper), known.ranges[S], condition)
        self.assertEqual(ValueRanges(1, int_oo), known.ranges[T])


class TestSoundness(unittest.TestCase):
    """Random conditions, about half of them true for all sizes: those that are proven are."""

    LARGEST = 30

    def term(self, draw, depth):
        """A random term, and what is equal to it."""
        if depth == 0:
            size = draw.choice((S, T))
            return size, size
        (left, left_too), (right, right_too) = self.term(draw, depth - 1), self.term(draw, depth - 1)
        number = sympy.Integer(draw.randint(1, 6))
        return draw.choice(
            (
                (left + right, right_too + left_too),
                (left * right, right_too * left_too),
                (number * left - 2, left_too * number - 2),
                (FloorDiv(left, number), FloorDiv(left_too + number - 1, number) - FloorDiv(PythonMod(left, number) + number - 1, number)),
                (FloorDiv(left + number, number + 1), FloorDiv(2 * left_too + 2 * number + 1, 2 * number + 2)),
                (PythonMod(left, number), left_too - number * FloorDiv(left_too, number)),
                (Max(left, 3), left_too + Max(3 - left_too, 0)),
                (FloorDiv(left + right, Max(right, 1)), FloorDiv(left_too + right, Max(right, 1))),
            )
        )  # fmt: skip

    def test_random_conditions(self):
        draw = random.Random(0)
        proven = refuted = 0
        sizes = [sympy.Integer(size) for size in (1, 2, 3, 4, 5, 7, 11, 12, 24, self.LARGEST)]
        for _ in range(150):
            (left, same), (other, _) = self.term(draw, draw.randint(1, 3)), self.term(draw, 1)
            right = draw.choice((same, other, same + draw.randint(-1, 1)))
            condition = draw.choice((Eq, Ne, sympy.Ge, sympy.Lt))(left, right)
            if (
                isinstance(condition, bool)
                or not condition.free_symbols
                or not is_proven(condition, ranges())
            ):
                refuted += 1
                continue
            proven += 1
            for s, t in itertools.product(sizes, sizes):
                self.assertEqual(sympy.true, condition.xreplace({S: s, T: t}), (condition, s, t))
        self.assertGreater(proven, 10)
        self.assertGreater(refuted, 20)


if __name__ == "__main__":
    unittest.main()
