"""Rules of rotary embeddings."""

import math
import re
import unittest

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.torch_interpreter.inference import LIMIT
from experimental_experiment.xoptim import OptimizationOptions, optimize

BOUNDS = """
zero = Constant <value=int64[1]{0}> () half = Constant <value=int64[1]{2}> () end = Constant <value=int64[1]{9223372036854775807}> ()
last = Constant <value=int64[1]{3}> () one = Constant <value=int64[1]{1}> ()
"""
TABLES = """
a = Concat <axis=-1> (f, f) c = Cos (a) s = Sin (a) cos = Unsqueeze (c, one) sin = Unsqueeze (s, one)
"""
TURN = """
first = Slice (x, zero, half, last, one) second = Slice (x, half, end, last, one) n = Neg (second)
turned = Concat <axis=-1> (n, first) p = Mul (x, cos) q = Mul (turned, sin) y = Add (p, q)
"""
NEIGHBOURS = """
pairs = Constant <value=int64[5]{0,0,0,2,2}> () joined = Constant <value=int64[4]{0,0,0,4}> ()
z = Reshape (x, pairs) first, second = Split <axis=-1, num_outputs=2> (z) turned = Concat <axis=-1> (second, first)
r = Reshape (turned, joined) p = Mul (x, cos) q = Mul (r, signed) y = Add (p, q)
"""
DOUBLED = """
wide = Constant <value=int64[3]{0,0,4}> () g = Unsqueeze (f, last) h = Concat <axis=-1> (g, g) a = Reshape (h, wide)
c = Cos (a) s = Sin (a) cos = Unsqueeze (c, one) sin = Unsqueeze (s, one)
signs = Constant <value=float[4]{-1,1,-1,1}> () signed = Mul (sin, signs)
"""
GRAPH = "agraph (float[B,2,S,4] x, float[1,S,2] f) => (float[B,2,S,4] y)"


def graph(text: str = TURN, tables: str = TABLES, inputs: str = GRAPH) -> str:
    """A rotary embedding of x by the angles f."""
    return f"{inputs} {{ {BOUNDS} {tables} {text} }}"


def of_another_value(text: str) -> str:
    """The rotation v of w by the same tables."""
    renamed = re.sub(r"\b(first|second|n|turned|p|q|r|z|pairs|joined)\b", r"\1_2", text)
    return re.sub(r"\by\b", "v", re.sub(r"\bx\b", "w", renamed))


class TestRotationWithoutNeg(RuleTestCase):
    RULE = "RotationWithoutNeg"
    ROTATED = [
        "Concat",
        "Cos",
        "Sin",
        "Unsqueeze",
        "Unsqueeze",
        "Mul",
        "Mul",
        "Split",
        "Concat",
        "Mul",
        "Add",
    ]

    def test_two_slices(self):
        report = self.assert_optimized(graph(), self.ROTATED, fires=True)
        self.assertEqual(1, len(report.applications))

    def test_a_split(self):
        split = TURN.replace(
            "first = Slice (x, zero, half, last, one)", "first, second = Split <axis=3, num_outputs=2> (x)"
        )
        split = split.replace("second = Slice (x, half, end, last, one)", "")
        self.assert_optimized(graph(split), self.ROTATED, fires=True)

    def test_tables_of_other_angles(self):
        """Any table will do, also one that has other numbers in its second half, with operands in other orders."""
        text = TURN.replace("Mul (x, cos)", "Mul (cos, x)").replace("Add (p, q)", "Add (q, p)")
        inputs = "agraph (float[B,2,S,4] x, float[S,4] cos, float[S,4] sin) => (float[B,2,S,4] y)"
        self.assert_optimized(
            graph(text, "", inputs), ["Mul", "Mul", "Split", "Concat", "Mul", "Add"], fires=True
        )

    def test_one_angle_for_all(self):
        """A sine without axes has no sign for each half."""
        inputs = "agraph (float[B,2,S,4] x, float cos, float sin) => (float[B,2,S,4] y)"
        rotated = ["Slice", "Slice", "Neg", "Concat", "Mul", "Mul", "Add"]
        self.assert_optimized(graph(TURN, "", inputs), rotated, fires=False)

    def test_constant_tables(self):
        """The signed table is a constant then, no node."""
        numbers = ", ".join(f"0.{digit}" for digit in range(4))
        tables = "".join(f"{name} = Constant <value=float[1,4]{{{numbers}}}> () " for name in ("cos", "sin"))
        inputs = "agraph (float[B,2,S,4] x) => (float[B,2,S,4] y)"
        self.assert_optimized(
            graph(TURN, tables, inputs), ["Mul", "Split", "Concat", "Mul", "Add"], fires=True
        )

    def test_two_values_share_the_signed_table(self):
        """It is written once, right behind the table, without the help of common subexpressions."""
        inputs = "agraph (float[B,2,S,4] x, float[B,2,S,4] w, float[1,S,2] f) => (float[B,2,S,4] y, float[B,2,S,4] v)"
        report = self.assert_optimized(
            graph(TURN + of_another_value(TURN), inputs=inputs),
            [*self.ROTATED, *self.ROTATED[6:]],
            fires=True,
        )
        self.assertEqual(2, len(report.applications))

    def test_in_a_body(self):
        """A body reads a table of the graph around it: what is made of the table stays in the body."""
        body = TURN.replace("first = Slice (x", "first = Slice (u").replace(
            "Slice (x, half", "Slice (u, half"
        )
        body = body.replace("Mul (x, cos)", "Mul (u, cos)").replace("y = Add", "v = Add")
        body = (
            "g (int64 i, bool c, float[B,2,S,4] u) => (bool d, float[B,2,S,4] v) { d = Identity (c) "
            + body
            + " }"
        )
        text = f"trip = Constant <value=int64 {{2}}> () y = Loop <body = {body}> (trip, , x)"
        report = self.assert_optimized(graph(text), [*self.ROTATED[:5], "Loop"], fires=True)
        self.assertEqual(1, len(report.applications))

    def test_before_opset_18(self):
        self.assert_optimized(graph(), self.ROTATED, fires=True, opset=13)

    def test_halves(self):
        cases = {
            "the halves in order": TURN.replace("(n, first)", "(first, n)"),
            "another width": TURN.replace("(x, zero, half, last", "(x, zero, one, last").replace(
                "(x, half, end", "(x, one, end"
            ),
            "a half that ends early": TURN.replace("(x, half, end", "(x, one, last"),
            "every second element": TURN.replace("(x, zero, half, last, one)", "(x, zero, end, last, half)"),
            "another axis": TURN.replace("last, one)", "half, one)").replace("<axis=-1> (n", "<axis=2> (n"),
            "another value": TURN.replace("second = Slice (x", "z = Abs (x) second = Slice (z"),
            "a half that is used again": TURN.replace(
                "y = Add (p, q)", "r = Add (p, q) m = ReduceMax (second) y = Add (r, m)"
            ),
        }
        inputs = GRAPH.replace("[B,2,S,4]", "[2,2,4,4]").replace("[1,S,2]", "[1,4,2]")
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(graph(text, inputs=inputs))

    def test_a_size_that_is_not_known(self):
        inputs = "agraph (float[2,4,D] x, float[D] cos, float[D] sin) => (float[2,4,D] y)"
        text = graph(TURN, "", inputs).replace(
            "last = Constant <value=int64[1]{3}>", "last = Constant <value=int64[1]{2}>"
        )
        self.assert_stays(text, sizes=4)


class TestRotaryEmbedding(RuleTestCase):
    RULE = "RotaryEmbedding"
    TABLES = ["Cos", "Sin"]

    def assert_rotary(self, text: str, before, **more):
        """One RotaryEmbedding is left of the graph."""
        self.assert_optimized(text, [*before, "RotaryEmbedding"], fires=True, opset=23, **more)

    def test_one_sample(self):
        inputs = GRAPH.replace("[B,2,S,4]", "[1,2,S,4]")
        self.assert_rotary(
            graph(inputs=inputs), ["Cos", "Unsqueeze", "Squeeze", "Sin", "Unsqueeze", "Squeeze"]
        )

    def test_a_batch_shares_the_tables(self):
        tables = ["Cos", "Unsqueeze", "Squeeze", "Sin", "Unsqueeze", "Squeeze"]
        self.assert_rotary(graph(), [*tables, "Shape", "Concat", "Expand", "Expand"])

    def test_angles_of_each_sample(self):
        inputs = GRAPH.replace("[1,S,2]", "[B,S,2]")
        self.assert_rotary(
            graph(inputs=inputs), ["Cos", "Unsqueeze", "Squeeze", "Sin", "Unsqueeze", "Squeeze"]
        )

    def test_constant_tables(self):
        cos = "cos = Constant <value=float[1,1,2,4]{1,2,1,2,3,4,3,4}> () sin = Constant <value=float[1,1,2,4]{5,6,5,6,7,8,7,8}> ()"
        inputs = "agraph (float[1,2,2,4] x) => (float[1,2,2,4] y)"
        self.assert_rotary(graph(TURN, cos, inputs), [])
        other = cos.replace("3,4,3,4", "3,4,4,3")
        self.assert_stays(graph(TURN, other, inputs), opset=23)

    def test_large_constants_are_stored_once(self):
        """More than `LIMIT` elements are not compared with those of other constants."""
        angles = [index % 7 for index in range(2 * LIMIT + 2)]
        pairs, halves = ([f"{a},{a}" for a in angles], [f"{a},{a + 1},{a},{a + 1}" for a in angles])
        signed = [f"{-a},{a}" for a in angles]
        inputs = "agraph (float[1,2,{0},4] x, float[1,2,{0},4] w) => (float[1,2,{0},4] y, float[1,2,{0},4] v)"
        cases = (
            (TURN, halves, halves, "sin", len(halves)),
            (NEIGHBOURS, pairs, signed, "signed", len(pairs) // 2),
        )
        for turn, cos, sin, last, rows in cases:
            with self.subTest(turn):
                tables = "".join(
                    f"{name} = Constant <value=float[{rows},4]{{{','.join(numbers)}}}> () "
                    for name, numbers in (("cos", cos), (last, sin))
                )
                text = graph(turn + of_another_value(turn), tables, inputs.format(rows))
                shown = ["Unsqueeze", "Unsqueeze"]
                self.assert_rotary(text, [*shown, "RotaryEmbedding"])
                model = optimize(parsed(text, 23), OptimizationOptions([self.RULE]))
                large = [item.name for item in model.graph.initializer if math.prod(item.dims) > LIMIT]
                self.assertEqual(2, len(large), large)

    def test_neighbours(self):
        inputs = GRAPH.replace("[B,2,S,4]", "[1,2,S,4]")
        angles = ["Unsqueeze", "Squeeze", "Cos", "Unsqueeze", "Squeeze"]
        self.assert_rotary(graph(NEIGHBOURS, DOUBLED, inputs), [*angles, "Sin", "Unsqueeze", "Squeeze"])

    def test_neighbours_of_a_constant(self):
        """Also where the sign is in the constant, or all turn the other way."""
        tables = """cos = Constant <value=float[2,4]{1,1,2,2,3,3,4,4}> () sin = Constant <value=float[2,4]{5,5,6,6,7,7,8,8}> ()
        signs = Constant <value=float[4]{-1,1,-1,1}> () signed = Mul (sin, signs)"""
        inputs = "agraph (float[1,2,2,4] x) => (float[1,2,2,4] y)"
        self.assert_rotary(graph(NEIGHBOURS, tables, inputs), [])
        other = tables.replace("{-1,1,-1,1}", "{1,-1,1,-1}")
        self.assert_rotary(graph(NEIGHBOURS, other, inputs), [])
        signed = (
            tables[: tables.index("sin =")] + "signed = Constant <value=float[2,4]{-5,5,-6,6,-7,7,-8,8}> ()"
        )
        self.assert_rotary(graph(NEIGHBOURS, signed, inputs), [])
        for wrong in (signed.replace("-6,6", "-6,-6"), signed.replace("3,3", "3,4")):
            self.assert_stays(graph(NEIGHBOURS, wrong, inputs), opset=23)

    def test_heads_in_tokens(self):
        tables = TABLES.replace("Unsqueeze (c, one)", "Unsqueeze (c, half)").replace("(s, one)", "(s, half)")
        inputs = GRAPH.replace("[B,2,S,4]", "[1,S,2,4]")
        before = ["Cos", "Unsqueeze", "Squeeze", "Sin", "Unsqueeze", "Squeeze", "Reshape"]
        self.assert_optimized(
            graph(tables=tables, inputs=inputs), [*before, "RotaryEmbedding", "Reshape"], fires=True, opset=23
        )

    def test_neighbours_of_heads_in_tokens(self):
        """The Reshape that joins the pairs of the tables adds the axis of the heads, too."""
        wide = "wide = Constant <value=int64[4]{0,0,1,4}> ()"
        tables = f"""{wide} g = Unsqueeze (f, last) h = Concat <axis=-1> (g, g) a = Reshape (h, wide) cos = Cos (a) sin = Sin (a)
        signs = Constant <value=float[4]{{-1,1,-1,1}}> () signed = Mul (sin, signs)"""
        text = graph(NEIGHBOURS, tables, GRAPH.replace("[B,2,S,4]", "[1,S,2,4]"))
        before = [
            "Unsqueeze",
            "Reshape",
            "Cos",
            "Squeeze",
            "Sin",
            "Squeeze",
            "Reshape",
        ]
        for sizes in (1, 3):
            self.assert_optimized(
                text, [*before, "RotaryEmbedding", "Reshape"], fires=True, opset=23, sizes=sizes
            )
        computed = tables.replace(wide, "t = Shape (x) wide = Where (l, t, t)")
        self.assert_stays(
            graph(
                NEIGHBOURS,
                computed,
                GRAPH.replace("[B,2,S,4]", "[1,S,1,4]").replace(") =>", ", bool[4] l) =>"),
            ),
            opset=23,
        )

    def test_tables_of_one_token(self):
        """Positions that a table has no axis for, in heads and in tokens."""
        for sizes, shape in (("1,2,1,4", "4"), ("1,2,1,4", "1,4"), ("1,1,2,4", "4"), ("1,1,2,4", "1,4")):
            with self.subTest(sizes, shape=shape):
                tables = "".join(
                    f"{name} = Constant <value=float[{shape}]{{{angles}}}> () "
                    for name, angles in (("cos", "1,2,1,2"), ("sin", "3,4,3,4"))
                )
                inputs = f"agraph (float[{sizes}] x) => (float[{sizes}] y)"
                rows = ["Reshape"] if sizes == "1,1,2,4" else []
                expected = [*rows, "RotaryEmbedding", *rows]
                self.assert_optimized(graph(TURN, tables, inputs), expected, fires=True, opset=23)

    def test_the_first_positions_of_a_constant(self):
        tables = """t = Constant <value=float[3,4]{1,2,1,2,3,4,3,4,5,6,5,6}> () size = Shape <start=2, end=3> (x)
        cos = Slice (t, zero, size, zero) big = Constant <value=float {2.0}> () sin = Mul (cos, big)"""
        inputs = "agraph (float[1,2,S,4] x) => (float[1,2,S,4] y) <float[S,4] cos>"
        self.assert_rotary(graph(TURN, tables, inputs), ["Shape", "Slice", "Unsqueeze", "Mul", "Unsqueeze"])

    def test_tables_by_position(self):
        tables = """three = Constant <value=int64 {3}> () row = Mod (at, three)
        t = Constant <value=float[3,4]{1,2,1,2,3,4,3,4,5,6,5,6}> () g = Gather (t, row) cos = Unsqueeze (g, one)
        big = Constant <value=float {2.0}> () h = Mul (g, big) sin = Unsqueeze (h, one)"""
        inputs = "agraph (float[B,2,S,4] x, int64[B,S] at) => (float[B,2,S,4] y)"
        before = ["Gather", "Unsqueeze", "Squeeze", "Mul", "Unsqueeze", "Squeeze"]
        text = graph(TURN, tables, inputs)
        self.assert_rotary(text, ["Mod", *before])

    def test_signs_and_neighbours_that_stand_otherwise(self):
        """Signs of positions, signs with one more axis, pairs that are joined to other heads than those of the value."""
        swapped = TURN.replace("n = Neg (second)", "").replace("(n, first)", "(second, first)")
        swapped = swapped.replace("(turned, sin)", "(turned, signed)")
        inputs = "agraph (float[1,2,4,4] x, float[1,4,2] f) => (float[{}] y)"

        def signs(shape: str) -> str:
            return (
                f"{TABLES} signs = Constant <value=float[{shape}]{{-1,-1,1,1}}> () signed = Mul (sin, signs)"
            )

        before = ["Cos", "Unsqueeze", "Squeeze", "Sin", "Unsqueeze", "Squeeze"]
        self.assert_rotary(graph(swapped, signs("1,1,1,4"), inputs.format("1,2,4,4")), before)
        for shape, result in (("4,1", "1,2,4,4"), ("1,1,1,1,4", "1,1,2,4,4")):
            with self.subTest(signs=shape):
                self.assert_stays(graph(swapped, signs(shape), inputs.format(result)), opset=23)
        for shape, result in (("2,1,4,4", "2,2,4,4"), ("1,1,2,4,4", "1,1,2,4,4")):
            with self.subTest(joined=shape):
                rank = len(shape.split(","))
                joined = NEIGHBOURS.replace("int64[4]{0,0,0,4}", f"int64[{rank}]{{{shape}}}")
                self.assert_stays(graph(joined, DOUBLED, inputs.format(result)), opset=23)

    def test_what_it_declines(self):
        cases = {
            "opset 22": (graph(), 22),
            "two angles": (
                graph(tables=TABLES.replace("(f, f)", "(f, g) ").replace("a =", "g = Neg (f) a =")),
                23,
            ),
            "a table by head": (
                graph(
                    TURN,
                    "",
                    "agraph (float[B,2,S,4] x, float[1,2,S,4] cos, float[1,2,S,4] sin) => (float[B,2,S,4] y)",
                ),
                23,
            ),
            "pairs of another value": (
                graph(NEIGHBOURS.replace("(x, pairs)", "(o, pairs)"), "o = Neg (x) " + DOUBLED),
                23,
            ),
            "pairs and tables of halves": (graph(NEIGHBOURS, TABLES + DOUBLED[DOUBLED.index("signs") :]), 23),
            "halves and tables of pairs": (graph(TURN, DOUBLED[: DOUBLED.index("signs")]), 23),
            "float16": (
                graph(inputs="agraph (float16[B,2,S,4] x, float16[1,S,2] f) => (float16[B,2,S,4] y)"),
                23,
            ),
        }
        for promise, (text, opset) in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=opset)


if __name__ == "__main__":
    unittest.main()
