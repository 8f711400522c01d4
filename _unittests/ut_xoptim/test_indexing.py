"""Rules of indexing."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize

SIZES = """
zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () last = Constant <value=int64[1]{-1}> ()
bs = Shape <start=0, end=1> (x) b = Squeeze (bs) ks = Shape <start=1, end=2> (x) k = Squeeze (ks)
first = Constant <value=int64[3]{0,1,2}> () behind = Constant <value=int64[3]{1,2,3}> () ones = Constant <value=int64[3]{1,1,1}> ()
"""
ALL_ROWS = "r = Range (zero, b, one) ra = Unsqueeze (r, behind)"
ALL_COLUMNS = "c = Range (zero, k, one) ca = Unsqueeze (c, first)"
SOME_COLUMNS = "ms = Shape (z) m = Squeeze (ms) c = Range (zero, m, one) ca = Unsqueeze (c, first)"
SPREAD = "high = Shape (r) low = Shape (c) wide = Concat <axis=0> (high, ones) re = Expand (ra, low) ce = Expand (ca, wide)"
PAIRS = "ru = Unsqueeze (re, last) cu = Unsqueeze (ce, last) p = Concat <axis=-1> (ru, cu)"


def graph(
    rows=ALL_ROWS,
    columns=ALL_COLUMNS,
    pairs=SPREAD + PAIRS,
    x="float[B,K] x",
    result="float[B,1,1,K]",
    known="int64[B] r, int64[K] c",
    picked="GatherND (x, p)",
):
    """The text of a model that picks ``x[rows, columns]``, along the first and the last of four axes."""
    return f"agraph ({x}, float[M] z) => ({result} y) <{known}> {{ {SIZES} {rows} {columns} {pairs} y = {picked} }}"


class TestGatherOfGrid(RuleTestCase):
    RULE = "GatherOfGrid"

    def test_all_columns(self):
        self.assert_becomes(graph(), ["Unsqueeze"])

    def test_some_columns(self):
        text = graph(columns=SOME_COLUMNS, result="float[B,1,1,M]", known="int64[B] r, int64[M] c")
        self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Gather", "Unsqueeze"])

    def test_columns_in_another_order(self):
        text = graph(
            columns="zs = Sign (z) c = Cast <to=7> (zs) ca = Unsqueeze (c, first)",
            result="float[B,1,1,M]",
            known="int64[B] r, int64[M] c",
        )
        self.assert_becomes(text, ["Sign", "Cast", "Gather", "Unsqueeze"])

    def test_constant_columns(self):
        """All in order, some in another order, and those that vary along two axes."""
        for columns, x, expected in (
            ("0,1,2", "float[B,3] x", ["Unsqueeze"]),
            ("2,0,1", "float[B,3] x", ["Gather", "Unsqueeze"]),
            ("0,1,2", "float[B,7] x", ["Gather", "Unsqueeze"]),
        ):
            with self.subTest(columns=columns, x=x):
                text = graph(
                    columns=f"ca = Constant <value=int64[1,1,1,3]{{{columns}}}> ()",
                    pairs=SPREAD.replace("low = Shape (c) ", "").replace("(ra, low)", "(ra, three)")
                    + " "
                    + PAIRS,
                    x=x,
                    result="float[B,1,1,3]",
                    known="int64[B] r",
                )
                three = "three = Constant <value=int64[1]{3}> ()"
                self.assert_becomes(text.replace("{ \n", f"{{ {three}\n", 1), expected)
        self.assert_stays(
            f"""agraph (float[2,3] x) => (float[2,1,1,3] y) {{ last = Constant <value=int64[1]{{-1}}> ()
            re = Constant <value=int64[2,1,1,3]{{0,0,0,1,1,1}}> () ce = Constant <value=int64[2,1,1,3]{{0,1,2,2,1,0}}> ()
            {PAIRS} y = GatherND (x, p) }}"""
        )

    def test_one_row(self):
        """The number 0 tells the only row of a matrix."""
        text = graph(
            rows="r = Shape <start=0, end=1> (x) ra = Constant <value=int64[1,1,1,1]{0}> ()",
            x="float[1,K] x",
            result="float[1,1,1,K]",
            known="int64[K] c",
        )
        self.assert_becomes(text, ["Unsqueeze"])

    def test_a_matrix(self):
        """The rows along the first of two axes, the columns along the last."""
        rows = "r = Range (zero, b, one) at = Constant <value=int64[1]{1}> () ra = Unsqueeze (r, at)"
        columns = "ms = Shape (z) m = Squeeze (ms) c = Range (zero, m, one) to = Constant <value=int64[1]{0}> () ca = Unsqueeze (c, to)"
        pairs = SPREAD.replace("(high, ones)", "(high, at)") + PAIRS
        text = graph(rows, columns, pairs, result="float[B,M]", known="int64[B] r, int64[M] c")
        self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Gather"])

    def test_some_rows(self):
        """Each has a Gather: a matrix may have more rows than a Range counts."""
        rows = "shape = Shape <start=1, end=2> (w) n = Squeeze (shape) r = Range (zero, n, one) ra = Unsqueeze (r, behind)"
        some = graph(rows, SOME_COLUMNS, result="float[N,1,1,M]", known="int64[N] r, int64[M] c")
        some = some.replace("float[M] z", "float[M] z, float[1,N] w")
        computed = graph(rows="rr = Range (zero, b, one) r = Abs (rr) ra = Unsqueeze (r, behind)")
        second = graph(
            rows="r = Range (one, b, one) ra = Unsqueeze (r, behind)",
            result="float[C,1,1,K]",
            known="int64[C] r, int64[K] c",
        )
        counted = "Shape Squeeze Range".split()
        cases = {
            "as many as another value has": (some, [*counted, *counted, "Gather", "Gather", "Unsqueeze"]),
            "computed": (computed, [*counted, "Abs", "Gather", "Unsqueeze"]),
            "from the second one on": (second, [*counted, "Gather", "Unsqueeze"]),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_vectors_in_a_matrix(self):
        """All rows or all columns, or constant columns that are most of them."""
        self.assert_becomes(graph(x="float[B,K,2] x", result="float[B,1,1,K,2]"), ["Unsqueeze"])
        text = graph(
            columns=SOME_COLUMNS,
            x="float[B,K,2,5] x",
            result="float[B,1,1,M,2,5]",
            known="int64[B] r, int64[M] c",
        )
        self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Gather", "Unsqueeze"])
        columns = "shape = Shape <start=1, end=2> (w) n = Squeeze (shape) r = Range (zero, n, one) ra = Unsqueeze (r, behind)"
        for size in (4, 6, 7):
            text = graph(
                rows=f"three = Constant <value=int64[1]{{3}}> () {columns}",
                columns="ca = Constant <value=int64[1,1,1,3]{2,0,1}> ()",
                pairs=SPREAD.replace("low = Shape (c) ", "").replace("(ra, low)", "(ra, three)")
                + " "
                + PAIRS,
                x=f"float[1,N] w, float[B,{size},2] x",
                result="float[N,1,1,3,2]",
                known="int64[N] r",
            )
            with self.subTest(size=size):
                if size < 7:
                    self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Gather", "Gather", "Unsqueeze"])
                else:
                    self.assert_pairs_are_read(text)
        few = graph(
            rows=columns,
            columns=SOME_COLUMNS,
            x="float[1,N] w, float[B,K,2] x",
            result="float[N,1,1,M,2]",
            known="int64[N] r, int64[M] c",
        )
        self.assert_pairs_are_read(few)

    def assert_pairs_are_read(self, text):
        """The rule leaves the GatherND; what nothing reads goes."""
        model = optimize(parsed(text), OptimizationOptions(["GatherOfGrid"]))
        self.assertEqual("GatherND", operators(model)[-1])

    def test_constant_pairs(self):
        """Each list is repeated along the axis of the other."""
        numbers = {"re": [3, 3, 3, 0, 0, 0], "ce": [1, 0, 1, 1, 0, 1]}
        constants = " ".join(
            f"{name} = Constant <value=int64[2,3]{{{','.join(map(str, row))}}}> ()"
            for name, row in numbers.items()
        )
        last = "last = Constant <value=int64[1]{-1}> ()"
        text = f"agraph (float[5,2] x) => (float[2,3] y) {{ {last} {constants} {PAIRS} y = GatherND (x, p) }}"
        self.assert_becomes(text, ["Gather", "Gather"])

    def test_what_it_declines(self):
        cases = {
            "columns before rows": graph(
                rows="r = Range (zero, b, one) ra = Unsqueeze (r, first)",
                columns="c = Range (zero, k, one) ca = Unsqueeze (c, behind)",
                pairs=SPREAD.replace("(high, ones)", "(low, ones)")
                .replace("(ra, low)", "(ra, wide)")
                .replace("(ca, wide)", "(ca, high)")
                + PAIRS,
                result="float[K,1,1,B]",
            ),
            "pairs of columns and rows": graph(
                x="float[3,3] x",
                pairs=(SPREAD + PAIRS).replace("(ru, cu)", "(cu, ru)"),
                result="float[3,1,1,3]",
                known="int64[3] r, int64[3] c",
            ),
            "columns that differ between rows": graph(
                columns="c = Range (zero, k, one) cc = Unsqueeze (c, first) zeros = Sub (ra, ra) ca = Add (cc, zeros)",
                pairs="low = Shape (c) re = Expand (ra, low) ce = Identity (ca) " + PAIRS,
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


def repeated(
    x: str, z: str, shape: str, axis: int, result: str, kind: str = "Expand", added: str = "-1"
) -> str:
    """The text of a model that gathers elements at positions from z, which are repeated to a shape."""
    return f"""agraph (float[{x}] x, int64[{z}] z) => (float[{result}] y) <int64[{result}] many>
        {{ five = Constant <value=int64 {{5}}> () at = Constant <value=int64[{added.count(",") + 1}] {{{added}}}> () inside = Mod (z, five)
           i = Unsqueeze (inside, at) to = Constant <value=int64[{shape.count(",") + 1}] {{{shape}}}> ()
           many = {kind} (i, to) y = GatherElements <axis={axis}> (x, many) }}"""


class TestGatherOfWholeSlices(RuleTestCase):
    RULE = "GatherOfWholeSlices"

    def test_slices(self):
        """In samples, without them, of several later axes, and where the samples share the positions."""
        each = ["Mod", "Unsqueeze", "GatherND"]
        all_ = ["Mod", "Unsqueeze", "Reshape", "Gather"]
        cases = {
            "in samples": (repeated("2,5,7", "2,4", "2,4,7", 1, "2,4,7"), each),
            "in samples of any number": (repeated("B,5,7", "B,4", "1,1,7", 1, "B,4,7"), each),
            "by Tile": (repeated("B,5,7", "B,K", "1,1,7", 1, "B,K,7", kind="Tile"), each),
            "of two axes": (repeated("2,5,7,3", "2,4", "2,4,7,3", 1, "2,4,7,3", added="2,3"), [*each[:2], "Squeeze", each[2]]),
            "in samples of two axes": (repeated("2,3,5,7", "2,3,4", "2,3,4,7", -2, "2,3,4,7"), each),
            "in one sample that is not told": (repeated("1,2,5,7", "2,4", "1,2,4,7", 2, "1,2,4,7"), ["Mod", "Unsqueeze", "GatherND"]),
            "the same of two axes": (
                repeated("1,2,5,7,3", "2,4", "1,2,4,7,3", 2, "1,2,4,7,3", added="2,3"), ["Mod", "Unsqueeze", "Squeeze", "GatherND"]),
            "without samples": (repeated("5,7", "4", "4,7", 0, "4,7"), all_),
            "the same in all samples": (repeated("2,5,7", "4", "2,4,7", 1, "2,4,7"), all_),
            "columns": (repeated("2,5", "1", "2,1", -1, "2,1"), all_),
        }  # fmt: skip
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_indices_of_int32(self):
        text = repeated("2,5,7", "2,4", "2,4,7", 1, "2,4,7").replace("int64[2,4] z", "int32[2,4] z")
        text = text.replace("int64 {5}", "int32 {5}").replace("int64[2,4,7] many", "int32[2,4,7] many")
        self.assert_becomes(text, ["Mod", "Unsqueeze", "Cast", "GatherND"])

    def test_what_it_declines(self):
        cases = {
            "a part of the later axis": repeated("2,5,7", "2,4", "2,4,6", 1, "2,4,6"),
            "some of the samples": repeated("3,5,7", "2,4", "2,4,7", 1, "2,4,7"),
            "perhaps some of the samples": repeated("B,5,7", "A,4", "1,1,7", 1, "A,4,7"),
            "one position, repeated": repeated("2,5,7", "2,1", "2,4,7", 1, "2,4,7"),
            "of the last axis": repeated("2,7,5", "2,4", "2,7,4", 2, "2,7,4", added="1"),
            "samples of which one axis shares them": repeated("2,3,5,7", "2,4", "2,3,4,7", 2, "2,3,4,7", added="1,3"),
        }  # fmt: skip
        order = (
            "two = Constant <value=int64 {2}> () less = Mod (many, two) y = GatherElements <axis=0> (x, less)"
        )
        name = "positions that differ along a later axis"
        cases[name] = repeated("2,5,7", "2,4", "2,4,7", 0, "2,4,7").replace(
            "y = GatherElements <axis=0> (x, many)", order
        )
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


COUNTED = "bs = Shape <start=0, end=1> (x) b = Squeeze (bs) r = Range (zero, b, one) "


def of_samples(
    x: str = "float[B,5,7]",
    z: str = "B,4",
    result: str = "B,4,7",
    rows: str = COUNTED + "ru = Unsqueeze (r, tail) re = Expand (ru, to)",
    parts: str = "re, i",
    known: str = "int64[B] r, int64[B,4,1] re",
    picked: str = "GatherND (x, places)",
) -> str:
    """The text of a model that picks ``x[arange(B)[:, None], z]``."""
    return f"""agraph ({x} x, int64[{z}] z) => (float[{result}] y) <{known}> {{
        zero = Constant <value=int64 {{0}}> () one = Constant <value=int64 {{1}}> () five = Constant <value=int64 {{5}}> ()
        last = Constant <value=int64[1] {{-1}}> () tail = Constant <value=int64[2] {{1,2}}> () to = Constant <value=int64[3] {{1,4,1}}> ()
        {rows} inside = Mod (z, five) i = Unsqueeze (inside, last)
        places = Concat <axis=-1> ({parts}) y = {picked} }}"""


class TestGatherOfEachSample(RuleTestCase):
    RULE = "GatherOfEachSample"

    def test_samples(self):
        """Counted by a Range or a constant; one position each, or several, of one axis or two."""
        constant = "re = Constant <value=int64[2,4,1] {0,0,0,0,1,1,1,1}> ()"
        cases = {
            "several positions": (of_samples(), ["Mod", "Unsqueeze", "GatherND"]),
            "a constant": (of_samples("float[2,5,7]", "2,4", "2,4,7", constant, known="int64[2,4,1] re"), ["Mod", "Unsqueeze", "GatherND"]),
            "two axes": (
                of_samples("float[B,5,6,7]", "B,4", "B,4,7", parts="re, i, i"), ["Mod", "Unsqueeze", "Concat", "GatherND"]),
            "one position each": (
                of_samples("float[B,5]", "B", "B", COUNTED + "re = Unsqueeze (r, last)", known="int64[B] r, int64[B,1] re"),
                ["Mod", "Unsqueeze", "GatherND"]),
        }  # fmt: skip
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_what_it_declines(self):
        two = "re = Constant <value=int64[2,4,1] {0,0,0,0,1,1,1,1}> ()"
        cases = {
            "samples in another order": of_samples("float[2,5,7]", "2,4", "2,4,7", two.replace("0,0,0,0,1,1,1,1", "1,1,1,1,0,0,0,0"), known="int64[2,4,1] re"),
            "some of the samples": of_samples("float[3,5,7]", "2,4", "2,4,7", two, known="int64[2,4,1] re"),
            "samples along the second axis": of_samples("float[2,5,7]", "4,2", "4,2,7", "re = Constant <value=int64[4,2,1] {0,1,0,1,0,1,0,1}> ()", known="int64[4,2,1] re"),
            "perhaps some of the samples": of_samples("float[C,5,7]", rows="bz = Shape <start=0, end=1> (z) c = Squeeze (bz) r = Range (zero, c, one) ru = Unsqueeze (r, tail) re = Expand (ru, to)"),
            "positions before the samples": of_samples("float[2,5,7]", "2,4", "2,4,7", two, "i, re", "int64[2,4,1] re").replace("{5}", "{2}"),
            "one position": of_samples("float[2,5,7]", "1", "7", "re = Constant <value=int64[1] {0}> ()", "re, inside", "int64[1] re").replace("i = Unsqueeze (inside, last)", ""),
            "a mask": of_samples("float[2,5]", "2,4", "2,4", two, known="int64[2,4,1] re"),
        }  # fmt: skip
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestGatherOfAddedAxis(RuleTestCase):
    RULE = "GatherOfAddedAxis"

    def graph(self, axes="0", axis=1, index="int64[M] i", result="float[R,C] y", sizes="-1,2", then=""):
        """Rows that are picked where an axis was added, then seen as others."""
        count = axes.count(",") + 1
        return f"""agraph (float[3,2] x, {index.replace("[M] i", "[M] j")}) => ({result}) {{
            three = Constant <value=int64 {{3}}> () i = Mod (j, three)
            a = Constant <value=int64[{count}] {{{axes}}}> () s = Constant <value=int64[{sizes.count(",") + 1}] {{{sizes}}}> ()
            u = Unsqueeze (x, a) g = Gather <axis={axis}> (u, i) y = Reshape (g, s) {then} }}"""

    def test_what_it_becomes(self):
        cases = {
            "before": self.graph(),
            "from the end": self.graph("-3", -2),
            "behind": self.graph("2", 0),
            "before and behind": self.graph("0,3", 1),
            "the last axis": self.graph("0,1", 2),
            "positions of two axes": self.graph(index="int64[2,M] i").replace("[2,M] i", "[2,M] j"),
            "positions of two axes before": self.graph("2", 0, "int64[2,M] i").replace("[2,M] i", "[2,M] j"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["Mod", "Gather", "Unsqueeze", "Reshape"])

    def test_with_the_others(self):
        """The Reshape takes the axis up."""
        self.assert_becomes(self.graph(), ["Mod", "Gather"], rule="default")
        text = self.graph(result="float[M,1,2] y").replace("Reshape (g, s)", "Transpose <perm=[1, 0, 2]> (g)")
        self.assert_becomes(
            text, ["Mod", "Gather", "Reshape"], rule="default"
        )  # what it reads is one by then

    def test_what_it_declines(self):
        cases = {
            "the axis that was added": self.graph(axis=0).replace("int64 {3}", "int64 {1}"),
            "an output": self.graph().replace("y) {", "y, float[1,M,2] g) {"),
            "another reader": self.graph(then="z = Neg (g)").replace("y) {", "y, float[1,M,2] z) {"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestGatherFromTheEnd(RuleTestCase):
    SIZE = "z = Constant <value_ints=[0]> () one = Constant <value_int=1> () n = Shape <end=1> (x) l = Squeeze(n, z)"
    DOWN = "m = Constant <value_int=-1> () t = Sub(l, one) r = Range(t, m, m)"
    UP = "e = Constant <value_int=0> () k = Neg(l) r = Range(k, e, one)"
    SHOWN = "u = Unsqueeze(r, z) v = Squeeze(u, z) y = Gather(x, v)"

    def test_what_onnxruntime_slices(self):
        """Other rules bring the Range before the Gather."""
        for nodes, size in ((self.DOWN, "Sub"), (self.UP, "Neg")):
            with self.subTest(size):
                text = f"agraph (float[N,2] x) => (float[N,2] y) {{ {self.SIZE} {nodes} {self.SHOWN} }}"
                model, report, again = parsed(text), Report(), Report()
                optimized = optimize(model, report=report)
                self.assertIn("GatherFromTheEnd", [name for name, _ in report.applications])
                expected = ["Shape", "Squeeze", size, "Range", "Cast", "Gather"]
                self.assertEqual(expected, operators(optimized))
                optimize(optimized, report=again)
                self.assertEqual([], again.applications)
                feeds = drawn(model)
                (got,) = session(optimized).run(None, feeds)
                np.testing.assert_array_equal(got, feeds["x"][::-1] if size == "Sub" else feeds["x"])
                self.assertNotIn("Cast", operators(optimize(model, runtime="onnx")))

    def test_what_it_gathers(self):
        """Positions that are not known to be below 0, or that have been cast."""
        for nodes in (
            "k = Sub(l, one) r = Range(k, l, one) y = Gather(x, r)",
            f"{self.UP} c = Cast <to=6> (r) y = Gather(x, c)",
        ):
            text = f"agraph (float[N,2] x) => (float[M,2] y) {{ {self.SIZE} {nodes} }}"
            with self.subTest(nodes):
                self.assert_stays(text, rule="GatherFromTheEnd")


class TestGatherOfFirst(RuleTestCase):
    RULE = "GatherOfFirst"
    SIZE = """s = Shape <start=0, end=1> (p) zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> ()
    zeros = Constant <value=int64[1] {0}> () n = Squeeze (s, zeros)"""

    def test_a_size(self):
        self.assert_becomes(
            f"""agraph (float[B,P] x, float[P] p) => (float[B,P] y)
            {{ {self.SIZE} r = Range (zero, n, one) y = Gather <axis=1> (x, r) }}""",
            ["Shape", "Slice"],
        )

    def test_a_size_and_one(self):
        self.assert_becomes(
            f"""agraph (float[B,9] x, float[P] p) => (float[B,Q] y)
            {{ {self.SIZE} m = Add (n, one) r = Range (zero, m, one) y = Gather <axis=-1> (x, r) }}""",
            ["Shape", "Add", "Slice"],
        )

    def test_two_sizes(self):
        self.assert_becomes(
            f"""agraph (float[9] x, float[P] p) => (float[Q] y, int64[Q] r)
            {{ {self.SIZE} m = Mul (n, n) r = Range (zero, m, one) y = Gather (x, r) }}""",
            ["Shape", "Squeeze", "Mul", "Range", "Unsqueeze", "Slice"],
        )

    def test_what_it_declines(self):
        for name, count in {
            "data": "least = ReduceMin <keepdims=0> (p) m = Min (n, least)",
            "negative": "minus = Constant <value=int64 {-1}> () m = Add (n, minus)",
        }.items():
            with self.subTest(name):
                self.assert_stays(
                    f"""agraph (float[B,9] x, int64[P] p) => (float[B,Q] y)
                    {{ {self.SIZE} {count} r = Range (zero, m, one) y = Gather <axis=1> (x, r) }}"""
                )
        for name, (first, step) in {"first": ("one", "one"), "step": ("zero", "n")}.items():
            with self.subTest(name):
                self.assert_stays(
                    f"""agraph (float[B,9] x, int64[P] p) => (float[B,Q] y)
                    {{ {self.SIZE} r = Range ({first}, n, {step}) y = Gather <axis=1> (x, r) }}"""
                )


if __name__ == "__main__":
    unittest.main()
