"""Rules of what is the same everywhere: conditions, zeros beside a mask, masks of ones, tokens of one type."""

from __future__ import annotations

import unittest

import torch

from _unittests.ut_xoptim.cases import RuleTestCase, operators
from experimental_experiment.testing import ExporterTestCase

NUMBERS = """
zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () at0 = Constant <value=int64[1]{0}> ()
lowest = Constant <value_float=-1000.0> () none = Constant <value_float=0.0> () ones = Constant <value=int64[2]{1,1}> ()
at12 = Constant <value=int64[2]{1,2}> () yes = Constant <value=bool {1}> () never = Constant <value=bool {0}> ()
"""
SEEN = f"{NUMBERS} k = Constant <value=int64[1]{{1}}> () l = Shape<start=2, end=3>(w) t = Concat<axis=0>(ones, l, k) seen = Expand(yes, t)"
CLOSED = f"{NUMBERS} l = Shape(w) nothing = Expand(never, l)"
MASKED = "bool[N,1,1,S] m, float[N,2,S,S] w"
FULL = "float[N,2,S,S]"
ZEROS = f"{NUMBERS} l = Shape<start=1>(w) k = Constant <value=int64[1]{{1}}> () t = Concat<axis=0>(k, l) z = Expand(none, t)"
TYPES = f"{NUMBERS} l = Shape<end=2>(w) p = Expand(one, l)"


class TestConditions(RuleTestCase):
    BECOME = {
        "WhereDecided": [
            ("float[N,6] w, float[N,6] v", "float[N,6]", f"{CLOSED} y = Where(nothing, v, w)", ["Identity"]),
            ("float[N,6] w, float[N,6] v", "float[N,6]", f"{NUMBERS} l = Shape(w) o = Expand(one, l) e = Less(o, zero) f = Greater(w, v) g = And(f, e) y = Where(g, v, w)", ["Identity"]),
            ("float[N,6] w, float[N,6] v", "float[N,6]", f"{NUMBERS} l = Shape(w) e = Expand(yes, l) y = Where(e, v, w)", ["Identity"]),
        ],
        "NeutralCondition": [
            ("bool[N,6] w", "bool[N,6]", f"{CLOSED} o = Or(w, nothing) y = Not(o)", ["Not"]),
            ("bool[N,6] w", "bool[N,6]", f"{CLOSED} o = Or(nothing, w) y = Not(o)", ["Not"]),
        ],
        "SmallerCondition": [
            (MASKED, FULL, f"{SEEN} both = And(seen, m) y = Where(both, w, lowest)", ["Where"]),
            (f"{MASKED}, bool[N,2,S,S] v", "bool[N,2,S,S]", f"{SEEN} both = And(m, seen) y = Or(v, both)", ["Or"]),
            (f"{MASKED}, bool[1,1,S,S] v", "bool[N,1,S,S]", f"{NUMBERS} n = Shape<end=1>(w) k = Constant <value=int64[3]{{1,1,1}}> () t = Concat<axis=0>(n, k) nothing = Expand(never, t) o = Or(v, nothing) y = And(o, m)", ["And"]),
        ],
        "ConditionOfBoth": [
            ("bool[S,S] window, bool[S,S] causal, bool[N,1,S] m", "bool[N,S,S]", "f = And(window, causal) y = And(f, m) z = And(causal, m) v = Not(z)", ["And", "And", "Not"], "bool[N,S,S] v"),
            ("bool[S,S] window, bool[S,S] causal, bool[N,1,S] m", "bool[N,S,S]", "z = And(m, causal) v = Not(z) f = And(causal, window) y = And(f, m)", ["And", "Not", "And"], "bool[N,S,S] v"),
            ("bool[S,S] a, bool[S,S] b, bool[S,S] c", "bool[S,S]", "f = And(a, b) y = And(f, c) g = And(b, c) v = Not(g) h = And(a, c) u = Not(h)", ["And", "And", "Not", "And", "Not"], "bool[S,S] v, bool[S,S] u"),
        ],
        "AddOfFilled": [
            (MASKED, FULL, f"{ZEROS} b = Where(m, z, lowest) y = Add(w, b)", ["Where", "Add"]),
            (MASKED, FULL, f"{ZEROS} b = Where(m, lowest, z) y = Add(b, w)", ["Where", "Add"]),
            (MASKED, "float[N2,2,S2,S2]", f"{ZEROS} b = Where(m, z, lowest) y = Add(w, b)", ["Where", "Add"]),  # sizes of other names
            (MASKED, FULL, f"{ZEROS} c = Where(m, none, lowest) b = Add(z, c) y = Add(w, b)", ["Where", "Add", "Add"]),
            (MASKED, FULL, f"{ZEROS} b = Where(m, z, lowest) v = Add(w, b) y = Add(v, b)", ["Where", "Add", "Add"]),
        ],
        "AddOfOneNumber": [
            ("float[N,6] w", "float[N,6]", f"{NUMBERS} l = Shape(w) o = Expand(one, l) c = Concat<axis=0>(o) f = Cast<to=1>(c) u = Constant <value_float=1.0> () d = Sub(u, f) b = Mul(d, lowest) a = Add(w, b) y = Neg(a)", ["Neg"]),
            ("float[N,6] w", "float[N,6]", f"{NUMBERS} l = Shape(w) o = Expand(one, l) f = Cast<to=1>(o) b = Mul(f, lowest) y = Add(w, b)", ["Add"]),
        ],
        "AddOfOneRow": [
            ("float[N,S,6] w, float[4,6] table", "float[N,S,6]", f"{TYPES} g = Gather(table, p) y = Add(w, g)", ["Gather", "Add"]),
            ("float[N,S,6] w, float[4,6] table", "float[N,S,6]", f"{TYPES} k = Constant <value=int64[1]{{-1}}> () v = Reshape(p, k) g = Gather(table, v) h = Shape(w) e = Reshape(g, h) y = Add(e, w)", ["Gather", "Add"]),
        ],
    }  # fmt: skip
    STAY = {
        "WhereDecided": [
            ("bool[N,6] c, float[N,6] w, float[N,6] v", "float[N,6]", "y = Where(c, v, w)"),
            ("float[N,6] w, float[1,6] v", "float[N,6]", f"{CLOSED} y = Where(nothing, w, v)"),
        ],
        "NeutralCondition": [
            ("bool[N,6] w, bool[1,6] v", "bool[N,6]", f"{CLOSED} y = Or(v, nothing)"),
            ("bool[N,6] w", "bool[N,6]", f"{NUMBERS} l = Shape(w) e = Expand(yes, l) y = Or(w, e)"),
        ],
        "SmallerCondition": [
            (f"{MASKED}, float[1,2,1,S] v", FULL, f"{SEEN} both = And(seen, m) y = Where(both, v, lowest)"),
            (MASKED, FULL, f"{SEEN} both = And(seen, m) y = Where(both, w, lowest) z = Not(both)", "bool[N,1,S,S] z"),
            (MASKED, FULL, f"{SEEN} both = And(seen, m) y = Where(both, w, lowest)", "bool[N,1,S,S] both"),
            (MASKED, FULL, f"{SEEN.replace('yes, t', 'never, t')} both = And(seen, m) y = Where(both, w, lowest)"),
            (MASKED, FULL, f"{SEEN} both = Or(seen, m) y = Where(both, w, lowest)"),
        ],
        "ConditionOfBoth": [
            ("bool[S,S] window, bool[S,S] causal, bool[N,1,S] m", "bool[N,S,S]", "f = And(window, causal) y = And(f, m) v = Or(causal, m)", "bool[N,S,S] v"),
            ("bool[N,S] a, bool[N,S] b", "bool[N,S]", "f = And(a, b) y = And(f, b)"),
            ("bool[N,S] a, bool[N,S] b", "bool[N,S]", "f = And(b, a) y = And(b, f)"),
            ("bool[S,S] window, bool[S,S] causal, bool[N,1,S] m", "bool[N,S,S]", "f = And(window, causal) y = And(f, m) z = And(causal, m) v = Not(z)", "bool[N,S,S] v, bool[S,S] f"),
        ],
        "AddOfFilled": [
            (f"{MASKED}, float[1,2,1,S] v", FULL, f"{ZEROS} b = Where(m, z, lowest) y = Add(v, b)"),
            (MASKED, FULL, f"{ZEROS} b = Where(m, z, lowest) y = Add(w, b)", f"{FULL} b"),
            (MASKED, FULL, f"{ZEROS} b = Where(m, z, lowest) y = Add(w, b) v = Neg(b)", f"{FULL} v"),
            ("bool[16,1,16] m, float[16,16,16] w", "float[16,16,16]", f"{NUMBERS} l = Shape(w) z = Expand(none, l) b = Where(m, z, lowest) y = Add(w, b)"),
        ],
        "AddOfOneNumber": [
            ("float[N,6] w, float[N,6] v", "float[N,6]", f"{NUMBERS} b = Mul(v, lowest) y = Add(w, b)"),
            ("float[N,6] w, float[1,6] v", "float[N,6]", f"{NUMBERS} l = Shape(w) o = Expand(one, l) f = Cast<to=1>(o) b = Mul(f, lowest) y = Add(v, b)"),
        ],
        "AddOfOneRow": [
            ("float[N,S,6] w, float[40,6] table, int64[N,S] p", "float[N,S,6]", "g = Gather(table, p) y = Add(w, g)"),
            ("float[N,S,6] w, float[1,1,6] v, float[4,6] table", "float[N,S,6]", f"{TYPES} g = Gather(table, p) y = Add(v, g)"),
            ("float[6,N,S] w, float[6,4] table", "float[6,N,S]", f"{NUMBERS} l = Shape<start=1>(w) p = Expand(one, l) g = Gather<axis=1>(table, p) y = Add(w, g)"),
            ("float[N,S,6] w, float[4,6] table", "float[N,S,6]", f"{NUMBERS} g = Gather(table, one) y = Add(w, g)"),
        ],
    }  # fmt: skip

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)


def seen_and_masked(x, mask):
    """transformers' mask of an encoder."""
    places = torch.arange(x.shape[1])
    keep = (places[None, None, :, None] >= 0) & mask.bool()[:, None, None, :]
    scores = (x @ x.transpose(1, 2))[:, None]
    return torch.softmax(torch.where(keep, scores, -1e9), -1)


def groups_of_images(x, mask):
    """Gemma's mask of a text: images that see each other have a number, text has -1."""
    group, places = torch.full(x.shape[:2], -1), torch.arange(x.shape[1])
    causal = places[None, None, None, :] <= places[None, None, :, None]
    same = (group[:, None, :, None] == group[:, None, None, :]) & (group[:, None, :, None] >= 0)
    scores = (x @ x.transpose(1, 2))[:, None]
    return torch.softmax(torch.where((causal | same) & mask.bool()[:, None, None, :], scores, -1e9), -1)


def mask_of_ones(x, mask):
    """InstructBLIP's Q-Former."""
    both = torch.cat([torch.ones(x.shape[:2], dtype=torch.long), torch.ones_like(mask)], 1)
    y = torch.cat([x, x[:, :1].expand(-1, mask.shape[1], -1)], 1)
    return torch.softmax(y @ y.transpose(1, 2) + (1.0 - both[:, None, :].float()) * -10000.0, -1) @ y


class TestModels(ExporterTestCase):
    GONE = {
        "positions that are not negative": (seen_and_masked, {"And", "Range"}),
        "no images": (groups_of_images, {"Expand", "Or", "Equal"}),
        "a mask of ones": (mask_of_ones, {"Sub", "Mul", "Cast"}),
    }

    def test_a_condition_twice_beside_ones_with_more_axes(self):
        """Rules that undo each other would not end."""
        ones = torch.ones(1, 1, 1, 5, dtype=torch.bool)

        class Model(torch.nn.Module):
            def forward(self, x, c):
                return torch.where(ones & c & c, x, -1e4)

        def given(rows):
            return torch.randn(1, 2, rows, 5), torch.rand(rows, 5) > 0.5

        self.export_and_compare(
            Model(), given(3), others=[given(7)], dynamic_shapes=({2: "rows"}, {0: "rows"})
        )

    def test_same_as_eager(self):
        def given(batch, size):
            mask = torch.ones(batch, size, dtype=torch.int64)
            mask[0, 1:3] = 0
            return torch.randn(batch, size, 16), mask

        for promise, (function, gone) in self.GONE.items():
            with self.subTest(promise):

                class Model(torch.nn.Module):
                    def forward(self, x, mask, function=function):
                        return function(x, mask)

                model = self.export_and_compare(
                    Model(),
                    given(2, 9),
                    others=[given(3, 12), given(1, 4)],
                    dynamic_shapes=({0: "batch", 1: "size"}, {0: "batch", 1: "size"}),
                )
                self.assertTrue(gone.isdisjoint(operators(model)), operators(model))


if __name__ == "__main__":
    unittest.main()
