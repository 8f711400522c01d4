"""Rules of what Expand repeats."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.xoptim import optimize

ROWS = "c = Constant <value=float[2,3]{1,-2,3,4,5,-6}> ()"
NUMBER, ZERO = "c = Constant <value_float=2.0> ()", "c = Constant <value_float=0.0> ()"
SQUARE = "w = Constant <value=float[3,3]{1,2,3,4,5,6,7,8,9}> ()"
NARROW = "w = Constant <value=float[3,2]{1,2,3,4,5,6}> ()"
STACK = "w = Constant <value=float[1,3,3]{1,2,3,4,5,6,7,8,9}> ()"
HALVES = "c = Constant <value=float16[3]{1,2,3}> () w = Constant <value=float16[3,1]{1,2,3}> ()"
WIDE = "w = Constant <value=float[1,24]{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}> ()"
VECTOR, TALL = "v = Constant <value=float[3]{0.5,2,3}> ()", "v = Constant <value=float[4,1,1]{1,2,3,4}> ()"
SCALE, BIAS = "g = Constant <value=float[3]{0.5,-2,3}> ()", "h = Constant <value=float[3]{1,2,3}> ()"

BATCH = "float[B,2,3] x, float[N,4] z"
OTHERS = "t = Constant <value_ints=[2,3]> () n = Shape<start=0,end=1>(x) s = Concat<axis=0>(n, t)"
SHAPE = "s = Shape(x)"
EACH = f"{OTHERS} e = Expand(c, s)"
ALL = f"{SHAPE} e = Expand(c, s)"

MEMORY = "float[1,2,4] q, float[B,3,4] x"
SIZES = "t = Constant <value_ints=[1,1]> () n = Shape<start=0,end=1>(x) s = Concat<axis=0>(n, t)"
TURNED = "k = Transpose<perm=[0,2,1]>(e)"


class TestRepeating(RuleTestCase):
    BECOME = {
        "ProductOfRepeated": [
            (
                BATCH,
                "float[B,2,3]",
                f"{ROWS} {SQUARE} {EACH} y = MatMul(e, w)",
                ["Shape", "Concat", "Expand"],
            ),
            (BATCH, "float[B,2,3]", f"{ROWS} {SQUARE} {ALL} y = MatMul(e, w)", ["Shape", "Expand"]),
            (BATCH, "float[B,2,3]", f"{NUMBER} {SQUARE} {ALL} y = MatMul(e, w)", ["Shape", "Expand"]),
            (  # others read what is repeated
                BATCH,
                "float[B,2,3]",
                f"{ROWS} {SQUARE} {ALL} a = Neg(e) y = MatMul(e, w)",
                ["Shape", "Expand", "Neg", "Expand"],
                "float[B,2,3] a",
            ),
            # of another size
            (
                BATCH,
                "float[B,2,2]",
                f"{ROWS} {NARROW} {EACH} y = MatMul(e, w)",
                ["Shape", "Concat", "Expand"],
            ),
            (
                BATCH,
                "float[B,2,2]",
                f"{ROWS} {NARROW} {ALL} y = MatMul(e, w)",
                ["Shape", "Slice", "Concat", "Expand"],
            ),
            (
                BATCH,
                "float[5,2,2]",
                f"{ROWS} {NARROW} s = Constant <value_ints=[5,1,1]> () e = Expand(c, s) y = MatMul(e, w)",
                ["Identity"],
            ),
            (  # a row
                "float[B,2,3] x",
                "float[B,2,24]",
                f"c = Constant <value=float[1]{{2}}> () {WIDE} n = Shape<start=0,end=2>(x) t = Constant <value_ints=[1]> () "
                "s = Concat<axis=0>(n, t) e = Expand(c, s) y = MatMul(e, w)",
                ["Shape", "Concat", "Expand"],
            ),
        ],
        "ConstantsBesideRepeated": [
            (BATCH, "float[B,2,3]", f"{ROWS} {VECTOR} {EACH} y = {name}(e, v)", ["Shape", "Concat", "Expand"])
            for name in ("Add", "Div", "Mul", "Sub")
        ]
        + [
            (BATCH, "float[B,2,3]", f"{ROWS} {VECTOR} {EACH} y = {name}(v, e)", ["Shape", "Concat", "Expand"])
            for name in ("Add", "Div", "Sub")
        ]
        + [
            (BATCH, "float[B,2,3]", f"{NUMBER} {VECTOR} {ALL} y = Add(e, v)", ["Shape", "Expand"]),
            (  # several equal elements beside one number, which the shape does not repeat
                BATCH,
                "float[B,4]",
                "c = Constant <value=float[4]{1,1,1,1}> () v = Constant <value=float {3}> () o = Constant <value_ints=[1]> () "
                "b = Shape<end=1>(x) s = Concat<axis=0>(b, o) e = Expand(c, s) y = Sub(v, e) k = Neg(e)",
                ["Shape", "Concat", "Expand", "Expand", "Neg"],
                "float[B,4] k",
            ),
            (  # the shape has fewer axes
                "float[B,2,3] x",
                "float[1,1,B]",
                "c = Constant <value=float[1,1,1]{2}> () v = Constant <value=float {3}> () s = Shape<end=1>(x) e = Expand(c, s) y = Mul(e, v)",
                ["Shape", "Expand"],
            ),
        ],
        "NormOfRepeated": [
            (
                BATCH,
                "float[B,2,3]",
                f"{ROWS} {SCALE} {BIAS} {EACH} y = LayerNormalization<epsilon=0.01>(e, g, h)",
                ["Shape", "Concat", "Expand"],
            ),
            (
                BATCH,
                "float[B,2,3]",
                f"{ROWS} {SCALE} {EACH} y = LayerNormalization<axis=1>(e, g)",
                ["Shape", "Concat", "Expand"],
            ),
        ],
        "ZerosAdded": [
            (BATCH, "float[B,2,3]", f"{ZERO} {ALL} a = Neg(x) y = Add(e, a)", ["Neg"]),
            (
                BATCH,
                "float[B,2,3]",
                f"{ZERO} {ALL} a = Neg(e) b = Neg(x) y = Sub(b, e)",
                ["Shape", "Expand", "Neg", "Neg"],
                "float[B,2,3] a",
            ),
        ],
        "ZerosSummed": [
            (BATCH, "float[B,2,3]", f"{ZERO} {ALL} a = Abs(x) y = Sum(e, a)", ["Abs"]),
            (BATCH, "float[B,2,3]", f"{ZERO} {ALL} a = Abs(x) y = Sum(x, e, a)", ["Abs", "Add"]),
            (BATCH, "float[B,2,3]", f"{ZERO} {ALL} a = Abs(x) y = Sum(x, e, a, x, e)", ["Abs", "Sum"]),
        ],
        "ProductThatRepeats": [
            (
                "float[4,2] q, float[B,3,4] x",
                "float[B,3,2]",
                f"{SIZES} e = Expand(q, s) y = MatMul(x, e)",
                ["MatMul"],
            ),
            (
                MEMORY,
                "float[B,3,2]",
                f"{SIZES} e = Expand(q, s) {TURNED} y = MatMul(x, k)",
                ["Transpose", "MatMul"],
            ),
            (
                MEMORY.replace("[1,2", "[2"),
                "float[B,3,2]",
                f"{SIZES} e = Expand(q, s) {TURNED} y = MatMul(x, k)",
                ["Transpose", "MatMul"],
            ),
            (  # others read what is repeated
                MEMORY,
                "float[B,3,4]",
                f"{SIZES} e = Expand(q, s) {TURNED} a = MatMul(x, k) y = MatMul(a, e)",
                ["Transpose", "MatMul", "MatMul"],
            ),
            (
                MEMORY,
                "float[B,3,2]",
                f"{SIZES} e = Expand(q, s) a = Neg(e) {TURNED} y = MatMul(x, k)",
                ["Shape", "Concat", "Expand", "Neg", "Transpose", "MatMul"],
                "float[B,2,4] a",
            ),
            # on the left, of a batch of known size
            (
                "float[1,2,4] q, float[5,4,3] x",
                "float[5,2,3]",
                "s = Constant <value_ints=[5,1,1]> () e = Expand(q, s) y = MatMul(e, x)",
                ["MatMul"],
            ),
        ],
    }
    STAY = {
        "ProductOfRepeated": [
            ("float[2,3] c, float[B,2,3] x", "float[B,2,3]", f"{SQUARE} {ALL} y = MatMul(e, w)"),
            (
                "float[B] x",
                "float[B,2,4]",
                f"{NUMBER} w = Constant <value=float[0,4]{{}}> () {OTHERS.replace('[2,3]', '[2,0]')} e = Expand(c, s) y = MatMul(e, w)",
            ),
            (BATCH, "float[B,2,3]", f"{ROWS} {STACK} {ALL} y = MatMul(e, w)"),
            (
                BATCH,
                "float[B,3,3]",
                f"w = Constant <value=float[3,2]{{1,2,3,4,5,6}}> () {ROWS} {ALL} y = MatMul(w, e)",
            ),
            ("float16[B,2,3] x", "float16[B,2,1]", f"{HALVES} {ALL} y = MatMul(e, w)"),
            (  # the product would be larger than both
                "float[B,2,3] x",
                "float[B,6,24]",
                f"c = Constant <value=float[6,1]{{1,2,3,4,5,6}}> () {WIDE} n = Shape<start=0,end=1>(x) "
                "t = Constant <value_ints=[1,1]> () s = Concat<axis=0>(n, t) e = Expand(c, s) y = MatMul(e, w)",
            ),
        ],
        "ConstantsBesideRepeated": [
            # the other one is repeated too, as it may be where a size is 1
            (
                BATCH,
                "float[4,2,3]",
                f"{ROWS} {TALL} t = Constant <value_ints=[1,1,1]> () e = Expand(c, t) y = Add(e, v)",
            ),
            ("float[B,C,D] x", "float[B,C,3]", f"{NUMBER} {VECTOR} {ALL} y = Add(e, v)"),
            (BATCH, "float[B,2,3]", f"{ROWS} {ALL} y = Add(e, x)"),
            (BATCH, "float[B,2,3]", f"{ROWS} {VECTOR} {ALL} y = Pow(e, v)"),
            (  # a table of both
                "float[B,3,6] x",
                "float[B,3,6]",
                f"c = Constant <value=float[3,1]{{1,2,3}}> () v = Constant <value=float[6]{{1,2,3,4,5,6}}> () {ALL} y = Add(e, v)",
            ),
            (
                "int64[B,2,3] x",
                "int64[B,2,3]",
                f"c = Constant <value=int64[3]{{1,2,3}}> () v = Constant <value=int64[3]{{1,2,4}}> () {ALL} y = Add(e, v)",
            ),
        ],
        "NormOfRepeated": [
            (BATCH, "float[B,2,3]", f"{NUMBER} {SCALE} {ALL} y = LayerNormalization(e, g)"),
            (
                "float[B,2,3] x, float[3] h",
                "float[B,2,3]",
                f"{ROWS} {SCALE} {ALL} y = LayerNormalization(e, g, h)",
            ),
            (
                BATCH,
                "float[B,2,3]",
                f"{ROWS} {SCALE} {ALL} y, m = LayerNormalization(e, g)",
                "float[B,2,1] m",
            ),
        ],
        "ZerosAdded": [
            (BATCH, "float[B,2,3]", f"{NUMBER} {ALL} y = Add(e, x)"),
            (BATCH, "float[B,2,3]", f"{ZERO} {ALL} y = Sub(e, x)"),
            ("float[B,2,3] x, float[2,3] b", "float[B,2,3]", f"{ZERO} {ALL} y = Add(e, b)"),
            ("float[B,2,3] x, float[N,2,3] b", "float[A,2,3]", f"{ZERO} {ALL} y = Add(e, b)"),
        ],
        "ZerosSummed": [
            (BATCH, "float[B,2,3]", f"{NUMBER} {ALL} a = Abs(x) y = Sum(e, a, x)"),
            ("float[B,2,3] x, float[2,3] b", "float[B,2,3]", f"{ZERO} {ALL} y = Sum(e, b, b)"),
            (BATCH, "float[B,2,3]", f"{ZERO} {ALL} y = Sum(e, e)"),
        ],
        "ProductThatRepeats": [
            # as many matrices as the Expand makes
            (
                "float[1,4,2] q, float[3,4] a, float[B] x",
                "float[B,3,2]",
                f"{SIZES} e = Expand(q, s) y = MatMul(a, e)",
            ),
            (
                "float[1,4,2] q, float[N,3,4] a, float[B] x",
                "float[A,3,2]",
                f"{SIZES} e = Expand(q, s) y = MatMul(a, e)",
            ),
            # rows, a vector, both
            (
                "float[1,1,4] q, float[B,3,4] x",
                "float[B,3,2]",
                "t = Constant <value_ints=[2,1]> () n = Shape<start=0,end=1>(x) s = Concat<axis=0>(n, t) e = Expand(q, s) "
                f"{TURNED} y = MatMul(x, k)",
            ),
            ("float[1] q, float[B,3,1] x", "float[B,3,1]", f"{SIZES} e = Expand(q, s) y = MatMul(x, e)"),
            ("float[1,4,4] q, float[B] x", "float[B,4,4]", f"{SIZES} e = Expand(q, s) y = MatMul(e, e)"),
            # the batch is transposed, too
            (
                "float[1,2,3] q, float[2,4,3] x",
                "float[2,4,5]",
                "s = Constant <value_ints=[5,1,1]> () e = Expand(q, s) k = Transpose<perm=[1,2,0]>(e) y = MatMul(x, k)",
            ),
            # on the left, of a batch that may be empty
            ("float[1,2,4] q, float[B,4,3] x", "float[B,2,3]", f"{SIZES} e = Expand(q, s) y = MatMul(e, x)"),
        ],
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_no_samples(self):
        for rule, cases in self.BECOME.items():
            for inputs, result, nodes, expected, *more in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    results = ", ".join([f"{result} y", *more])
                    text = f"agraph ({inputs}) => ({results}) {{ {nodes} }}"
                    self.assert_becomes(text, expected, rule=rule, sizes=0)

    def test_heads_are_left_to_attention(self):
        nodes = "t = Constant <value_ints=[1,1,1]> () n = Shape<start=0,end=1>(x) s = Concat<axis=0>(n, t) e = Expand(q, s) y = MatMul(x, e)"
        text = f"agraph (float[1,2,4,5] q, float[B,2,3,4] x) => (float[B,2,3,5] y) {{ {nodes} }}"
        self.assert_becomes(text, ["MatMul"], rule="ProductThatRepeats", opset=22)
        self.assert_stays(text, rule="ProductThatRepeats", opset=23)


CLASSES = "t = Constant <value_ints=[4]> () n = Shape<end=1>(x) s = Concat<axis=0>(n, t) e = Expand(x, s)"
"""A value, as the index of Categorical.log_prob, that is repeated for four classes."""

UNKNOWN = "n = Shape<end=1>(x) m = Shape(z) s = Concat<axis=0>(n, m) e = Expand(x, s)"
"""The same for an unknown number of classes."""


def repeated(*sizes: int) -> str:
    """An Expand ``e`` of ``x`` to these sizes."""
    return f"s = Constant <value_ints={[*sizes]}> () e = Expand(x, s)"


def cut(start: int, end: int, axis: int, step: int = 1) -> str:
    """A Slice ``y`` of ``e``."""
    named = {"b": start, "f": end, "a": axis, "k": step}
    vectors = " ".join(f"{name} = Constant <value_ints=[{value}]> ()" for name, value in named.items())
    return f"{vectors} y = Slice(e, b, f, a, k)"


class TestPartsOfRepeated(RuleTestCase):
    def test_unknown_rank(self):
        for nodes, written in (
            ("i = Constant <value_int=1> () y = Gather (e, i)", "Gather"),
            ("y, w = Split <num_outputs=2> (e)", "Split"),
        ):
            head = "g (float[N,M] u, int64[K] t) => (float[A,B,C] y)"
            model = parsed(f"{head} {{ x = Reshape (u, t) {repeated(2, 1, 1, 1)} {nodes} }}")
            self.assertEqual(["Reshape", "Expand", written], operators(optimize(model)))

    BECOME = {
        "SliceOfRepeated": [
            # one element
            ("int64[B,1] x", "int64[B,1]", f"{CLASSES} {cut(0, 1, 1)}", ["Identity"]),
            ("int64[1] x", "int64[1]", f"{repeated(4)} {cut(-1, 9, 0)}", ["Identity"]),
            ("int64[B,1] x", "int64[B,1]", f"{repeated(1, 1)} {cut(0, 9, 1)}", ["Identity"]),
            ("int64[B,1] x", "int64[B,1]", f"{repeated(1, 4)} {cut(-2, 1, 1, -1)}", ["Identity"]),
            ("int64[B,1] x", "int64[B,1]", f"{CLASSES} z = Abs(e) {cut(3, 4, 1)}", ["Shape", "Concat", "Expand", "Abs", "Identity"], "int64[B,4] z"),
            # an axis that the value does not have
            ("int64[B] x", "int64[1,B]", f"{repeated(4, 1)} {cut(0, 1, 0)}", ["Unsqueeze"]),
            # several elements, with steps and backwards
            ("int64[B,1] x", "int64[B,2]", f"{CLASSES} {cut(0, 4, 1, 3)}", ["Shape", "Concat", "Expand"]),
            ("int64[B,1] x", "int64[B,2]", f"{repeated(1, 4)} {cut(-1, -3, 1, -1)}", ["Expand"]),
            ("int64[B] x", "int64[2,B]", f"{repeated(4, 1)} {cut(2, 9, 0)}", ["Expand"]),
            # another axis is repeated, too, as often as nothing or unknown
            ("int64[1,1] x", "int64[5,1]", f"{repeated(5, 4)} {cut(0, 1, 1)}", ["Expand"]),
            ("int64[1,1] x", "int64[0,1]", f"{repeated(0, 4)} {cut(0, 1, 1)}", ["Expand"]),
            ("int64[1,1] x, float[B] z", "int64[B,1]", f"n = Shape(z) t = Constant <value_ints=[4]> () s = Concat<axis=0>(n, t) e = Expand(x, s) {cut(0, 1, 1)}", ["Shape", "Concat", "Expand"]),
            # the vector of sizes has fewer axes
            ("int64[1,B,1] x", "int64[1,B,1]", f"{repeated(1, 4)} {cut(0, 1, 2)}", ["Identity"]),
            ("int64[1,B,1] x", "int64[1,B,4]", f"{repeated(1, 4)} {cut(0, 1, 0)}", ["Expand"]),
        ],
        "GatherOfRepeated": [
            ("int64[B,1] x", "int64[B]", f"{CLASSES} i = Constant <value_int=-1> () y = Gather<axis=1>(e, i)", ["Squeeze"]),
            ("int64[B,1] x", "int64[B,1]", f"{CLASSES} i = Constant <value_ints=[2]> () y = Gather<axis=-1>(e, i)", ["Identity"]),
            ("int64[B,1] x", "int64[B,3]", f"{repeated(1, 4)} i = Constant <value_ints=[2,0,2]> () y = Gather<axis=1>(e, i)", ["Expand"]),
            ("int64[1,1] x", "int64[5]", f"{repeated(5, 4)} i = Constant <value_int=1> () y = Gather<axis=1>(e, i)", ["Expand", "Squeeze"]),
            ("int64[1,1] x", "int64[2,4]", f"{repeated(4)} i = Constant <value_ints=[0,-1]> () y = Gather<axis=0>(e, i)", ["Expand"]),
        ],
        "SplitOfRepeated": [
            ("int64[B,1] x", "int64[B,1]", f"{repeated(1, 2)} y, z = Split<axis=1,num_outputs=2>(e)", ["Identity", "Identity"], "int64[B,1] z"),
            ("int64[B,1] x", "int64[B,2]", f"{repeated(1, 4)} p = Constant <value_ints=[2,2]> () a, b = Split<axis=-1>(e, p) y = Neg(a) z = Abs(b)", ["Expand", "Neg", "Abs"], "int64[B,2] z"),
        ],
    }  # fmt: skip

    STAY = {
        "SliceOfRepeated": [
            # an axis that may be empty, or is
            ("int64[B,1] x, float[M] z", "int64[B,K]", f"{UNKNOWN} {cut(0, 1, 1)}"),
            ("int64[B,1] x", "int64[B,0]", f"{repeated(1, 0)} {cut(0, 1, 1)}"),
            # nothing is taken
            ("int64[B,1] x", "int64[B,0]", f"{repeated(1, 4)} {cut(4, 9, 1)}"),
            ("int64[B,1] x", "int64[B,0]", f"{repeated(1, 4)} {cut(2, 1, 1)}"),
            # elements that differ, or may
            ("int64[B,4] x", "int64[2,B,1]", f"{repeated(2, 1, 1)} {cut(0, 1, 2)}"),
            ("int64[3,A] x", "int64[3,1]", f"{repeated(3)} {cut(0, 1, 1)}"),
            ("int64[B,3] x", "int64[1,B,2]", f"{repeated(4, 1, 1)} b = Constant <value_ints=[0,0]> () f = Constant <value_ints=[1,2]> () a = Constant <value_ints=[0,2]> () y = Slice(e, b, f, a)"),
            # positions that are computed
            ("int64[B,1] x, int64[1] j", "int64[B,K]", f"{repeated(1, 4)} b = Sub(j, j) f = Constant <value_ints=[1]> () y = Slice(e, b, f, f)"),
            # all that is repeated is read, too, or its sizes are computed together
            ("int64[B,1] x", "int64[B,2]", f"{repeated(1, 4)} {cut(0, 2, 1)}", "int64[B,4] e"),
            ("int64[B,1] x", "int64[B,2]", f"{repeated(1, 4)} z = Abs(e) {cut(0, 2, 1)}", "int64[B,4] z"),
            ("int64[B,1] x, float[B,4] z", "int64[B,2]", f"s = Shape(z) e = Expand(x, s) {cut(0, 2, 1)}"),
        ],
        "GatherOfRepeated": [
            ("int64[B,1] x", "int64[B,2,1]", f"{repeated(1, 4)} i = Constant <value=int64[2,1]{{0,1}}> () y = Gather<axis=1>(e, i)"),
            ("int64[B,4] x", "int64[2,B]", f"{repeated(2, 1, 1)} i = Constant <value_int=0> () y = Gather<axis=2>(e, i)"),
            ("int64[B,1] x", "int64[B,0]", f"{repeated(1, 4)} i = Constant <value=int64[0]{{}}> () y = Gather<axis=1>(e, i)"),
            ("int64[B,1] x, float[M] z", "int64[B]", f"{UNKNOWN} i = Constant <value_int=0> () y = Gather<axis=1>(e, i)"),
            ("int64[B,1] x, int64 j", "int64[B]", f"{repeated(1, 4)} i = Sub(j, j) y = Gather<axis=1>(e, i)"),
        ],
        "SplitOfRepeated": [
            ("int64[B,1] x", "int64[B,1]", f"{repeated(1, 4)} p = Constant <value_ints=[1,3]> () y, z = Split<axis=1>(e, p)", "int64[B,3] z"),
            ("int64[4,B] x", "int64[2,B]", f"{repeated(4, 1)} y, z = Split<axis=0,num_outputs=2>(e)", "int64[2,B] z"),
            ("int64[B,1] x, float[M] z", "int64[B,K]", f"{UNKNOWN} y, w = Split<axis=1,num_outputs=2>(e)", "int64[B,L] w"),
        ],
    }  # fmt: skip

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_no_rows_or_one(self):
        for rule, cases in self.BECOME.items():
            for inputs, result, nodes, expected, *more in cases:
                for sizes in (0, 1):
                    with self.subTest(f"{rule}, {sizes}: {nodes}"):
                        results = ", ".join([f"{result} y", *more])
                        text = f"agraph ({inputs}) => ({results}) {{ {nodes} }}"
                        self.assert_becomes(text, expected, rule=rule, sizes=sizes)

    def test_an_index_outside_still_fails(self):
        nodes = f"{repeated(1, 4)} i = Constant <value_int=4> () y = Gather<axis=1>(e, i)"
        model = optimize(parsed(f"agraph (int64[B,1] x) => (int64[B] y) {{ {nodes} }}"))
        self.assertEqual(["Expand", "Gather"], operators(model))


if __name__ == "__main__":
    unittest.main()
