"""Values that many nodes read: rules that judge each reader take linear work, and still work for as many as models have."""

import collections
import functools
import unittest
from unittest import mock

import onnx_ir as ir

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.xoptim import OptimizationOptions, optimize
from experimental_experiment.xoptim.pattern import JUDGED
from experimental_experiment.xoptim.patterns import arithmetic, masks, padding, reshaping


def expanded(count: int, last: str) -> str:
    """An Expand that *count* sums read, and a last one, of *last*."""
    sums = " ".join(f"a{k} = Add(x{k}, e) x{k + 1} = Sin(a{k})" for k in range(count))
    return f"""agraph (float[1,512] x, float[4,512] x0, float[1,512] z) => (float[4,512] x{count}, float[4,512] y)
    {{ shape = Constant <value=int64[2]{{4,512}}> () e = Expand(x, shape) {sums} y = Add({last}, e) }}"""


def masked(count: int, last: str) -> str:
    """A mask that *count* sums read, and *last*."""
    sums = " ".join(f"a{k} = Add(x{k}, w) x{k + 1} = Sin(a{k})" for k in range(count))
    return f"""agraph (float[4,8] x0, bool[1,8] b) => (float[4,8] x{count}, float[4,8] y)
    {{ t = Constant <value=bool[4,1]{{1,1,1,1}}> () zero = Constant <value=float {{0.0}}> ()
       closed = Constant <value=float {{-inf}}> () m = And(t, b) w = Where(m, zero, closed) {sums} y = {last} }}"""


def negated(count: int, last: str) -> str:
    """A negation that *count* choices read, and *last*."""
    choices = " ".join(f"x{k + 1} = Where(n, x{k}, z)" for k in range(count))
    return f"""agraph (bool[4] c, float[4] x0, float[4] z) => (float[4] x{count}, float[4] y)
    {{ n = Not(c) {choices} y = {last} }}"""


def padded(count: int, last: str) -> str:
    """Padded images that *count* Convs read, and *last*."""
    convs = " ".join(
        f"c{k} = Conv(p, w{k}) w{k + 1} = Sin(w{k}) x{k + 1} = Add(x{k}, c{k})" for k in range(count)
    )
    return f"""agraph (float[1,1,4] x, float[1,1,4] x0, float[1,1,3] w0, float[1,1,3] v) => (float[1,1,4] x{count}, float[1,1,M] y)
    {{ pads = Constant <value=int64[6]{{0,0,1,0,0,1}}> () p = Pad(x, pads) {convs} y = {last} }}"""


CASES = {
    "ExpandedOperand": (expanded, reshaping, "broadcasts", "x0", "z", "Expand"),
    "AddWherePartlyTrue": (masked, masks, "is_added_or_guards", "Add(x0, w)", "Abs(w)", "And"),
    "NotWhere": (negated, arithmetic, "is_condition_of", "Where(n, x0, z)", "Cast<to=1>(n)", "Not"),
    "PaddingOfProduct": (padded, padding, "is_conv", "Conv(p, v)", "Sin(p)", "Pad"),
}
"""By rule: the model, where its judgement of a reader stands, a last reader that suits, one that does not, what goes when all do."""


class TestReaders(RuleTestCase):
    def optimized(self, rule: str, text: str) -> tuple[collections.Counter, int]:
        """The operators that are left, and how many readers were judged meanwhile."""
        _, room, name, *_ = CASES[rule]
        judge, judged = getattr(room, name), 0

        @functools.wraps(judge)
        def counting(*args):
            nonlocal judged
            judged += 1
            return judge(*args)

        with mock.patch.object(room, name, counting):
            model = optimize(parsed(text, 20), OptimizationOptions([rule]))
        return collections.Counter(operators(model)), judged

    def test_one_that_does_not_suit(self):
        """It is asked first at each reader: the work is linear."""
        for rule, (written, _, _, _, other, gone) in CASES.items():
            for count in (50, 200):
                with self.subTest(rule, count=count):
                    found, judged = self.optimized(rule, written(count, other))
                    self.assertEqual(1, found[gone])
                    self.assertLessEqual(judged, 5 * count)

    def test_all_suit(self):
        """As many as the deepest models have are judged and rewritten; of more, none is."""
        for rule, (written, _, _, last, _, gone) in CASES.items():
            with self.subTest(rule):
                found, judged = self.optimized(rule, written(130, last))
                self.assertEqual(0, found[gone])
                self.assertGreater(judged, 130)
                found, judged = self.optimized(rule, written(JUDGED + 1, last))
                self.assertEqual((1, 0), (found[gone], judged))

    def test_a_reader_that_suits_later(self):
        """What refused is judged again, not remembered: once a rule has changed it, all readers suit."""
        text = negated(3, "Where(d, x0, z)").replace("n = Not(c)", "n = Not(c) d = And(c, n)")
        self.assertEqual({"Where": 4, "And": 1, "Not": 1}, operators_of(text, "NotWhere"))
        both = negated(3, "Where(d, x0, z)").replace("n = Not(c)", "n = Not(c) d = Not(n)")
        self.assertEqual({"Where": 4}, operators_of(both, "NotWhere", "NotNot"))

    def test_a_weight_that_all_layers_no_longer_read(self):
        """Its readers are counted once for all of them: the work is linear."""
        seen = {count: readers_seen(reshaped(count)) for count in (50, 200)}
        self.assertLess(seen[200], 5 * seen[50], seen)


def reshaped(count: int) -> str:
    """A chain of Reshapes to two shapes, one of which nothing reads in the end."""
    chain = " ".join(
        f"a{k} = Reshape(x{k}, s) b{k} = Reshape(a{k}, t) x{k + 1} = Sin(b{k})" for k in range(count)
    )
    return f"""agraph (float[4] x0) => (float[2,2] x{count})
    {{ s = Constant <value=int64[2]{{4,1}}> () t = Constant <value=int64[2]{{2,2}}> () {chain} }}"""


def readers_seen(text: str) -> int:
    """How many readers of values are looked at, each as often as it is."""
    seen, uses = 0, ir.Value.uses

    def counted(value):
        nonlocal seen
        found = uses(value)
        seen += len(found)
        return found

    with mock.patch.object(ir.Value, "uses", counted):
        optimize(parsed(text, 20), OptimizationOptions(["ReshapeReshape"]))
    return seen


def operators_of(text: str, *rules: str) -> collections.Counter:
    """The operators that are left of a model."""
    return collections.Counter(operators(optimize(parsed(text, 20), OptimizationOptions(rules))))


if __name__ == "__main__":
    unittest.main()
