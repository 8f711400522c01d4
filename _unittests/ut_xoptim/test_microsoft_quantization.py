"""Rules that write quantized weights in operators of onnxruntime."""

import random
import unittest
import unittest.mock
from collections.abc import Iterable

from _unittests.ut_xoptim.cases import RuleTestCase
from experimental_experiment.xoptim.patterns_ort import quantization

OUTPUT = "float[B,32] y"


def row(values: Iterable[object]) -> str:
    """The elements of a constant."""
    return f"{{{', '.join(map(str, values))}}}"


def graph(
    kind: str = "int4",
    zero: bool = False,
    size: int = 16,
    nodes: str = "",
    output: str = OUTPUT,
    more: str = "",
) -> str:
    """Rows of a table of 16 rows and 32 columns: its codes *q*, the scales *s* of its blocks of *size* and their zeros *z*.

    Two codes are one number of the text.
    """
    drawn, blocks = random.Random(0), 32 // size
    codes = row(drawn.randrange(256) for _ in range(16 * 16))
    scales = row(drawn.randrange(1, 9) / 4 for _ in range(16 * blocks))
    constants = f"{kind}[16,32] q = {codes}, float[16,{blocks}] s = {scales}"
    if zero:
        constants += f", {kind}[16,{blocks}] z = {row(drawn.randrange(256) for _ in range(8 * blocks))}"
    dequantized = f"d = DequantizeLinear <axis=1, block_size={size}> (q, s{', z' if zero else ''})"
    nodes = nodes or f"{dequantized} y = Gather (d, i)"
    return f"agraph (int64[B] i{more}) => ({output}) <{constants}> {{ {nodes} }}"


class TestGatherBlockQuantized(RuleTestCase):
    RULE = "GatherBlockQuantized"

    def test_forms(self):
        for kind in ("int4", "uint4"):
            for size in (16, 32):
                for zero in (False, True):
                    with self.subTest(kind, size=size, zero=zero):
                        self.assert_becomes(graph(kind, zero, size), ["GatherBlockQuantized"], opset=21)

    def test_what_it_declines(self):
        blocked = "DequantizeLinear <axis=1, block_size=16>"
        cases = {
            "another user of the table": graph(output=f"{OUTPUT}, float[16,32] d"),
            "columns": graph(
                nodes=f"d = {blocked} (q, s) y = Gather <axis=1> (d, i)", output="float[16,B] y"
            ),
            "one scale": graph(
                nodes="t = Constant <value = float {0.5}> () d = DequantizeLinear (q, t) y = Gather (d, i)"
            ),
            "eight bits": graph(nodes=f"q8 = Cast <to=3> (q) d = {blocked} (q8, s) y = Gather (d, i)"),
            "blocks of eight": graph(size=8),
            "codes that are computed": graph(
                nodes=f"a = Abs (w) c = Cast <to=21> (a) d = {blocked} (c, s) y = Gather (d, i)",
                more=", float[16,32] w",
            ),
            "scales that are computed": graph(
                nodes=f"d = {blocked} (q, w) y = Gather (d, i)", more=", float[16,2] w"
            ),
            "zeros that are computed": graph(
                nodes=f"a = Abs (w) z = Cast <to=22> (a) d = {blocked} (q, s, z) y = Gather (d, i)",
                more=", float[16,2] w",
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=21)


def layer(
    kind: str = "uint8", codes: str = "int8", bias: bool = True, scales: int = 1, zero: bool = True, gemm: str = "transB=1", after: str = "y = Identity(g)",
    computed: bool = False, more: str = "",
) -> str:  # fmt: skip
    """A linear layer of 6 inputs and 4 outputs whose input is quantized to *kind*, its weight to *codes* with so many *scales*."""
    drawn = random.Random(0)
    least = -128 if codes == "int8" else 0
    shape, axis = ("4,6", 0) if "transB=1" in gemm else ("6,4", 1)
    along = f"[{scales}]" if scales > 1 else ""
    constants = [
        f"{codes}[{shape}] w = {row(drawn.randrange(least, least + 256) for _ in range(24))}",
        f"float{along} s = {row(drawn.randrange(1, 9) / 64 for _ in range(scales))}",
        f"{codes}{along} z = {row(least + 100 + 3 * index for index in range(scales))}",
        "float t = {0.03125}",
        f"{kind} o = {{{7 if kind == 'int8' else 120}}}",
        "float[4] b = {0.5, -2, 3, 1}",
    ]
    given = "u, p" if computed else "t, o"
    nodes = "u = Abs(t0) p = Identity(o0)" if computed else ""
    inputs = f", float t0, {kind} o0" if computed else ""
    return (
        f"agraph (float[B,6] x{inputs}) => ({more}float[B,4] y) <{', '.join(constants)}> {{ {nodes} q = QuantizeLinear(x, {given}) l = DequantizeLinear(q, {given}) "
        f"r = DequantizeLinear<axis={axis}>(w, s{', z' if zero else ''}) g = Gemm<{gemm}>(l, r{', b' if bias else ''}) {after} }}"
    )


class TestProductOfIntegers(RuleTestCase):
    RULE = "ProductOfIntegers"
    PRODUCT = ["QuantizeLinear", "MatMulInteger", "Cast", "Mul"]

    def test_forms(self):
        for kind in ("uint8", "int8"):
            for codes in ("uint8", "int8"):
                for scales in (1, 4):
                    for zero in (False, True):
                        for gemm in ("transB=1", "transB=0"):
                            with self.subTest(kind, codes=codes, scales=scales, zero=zero, gemm=gemm):
                                text = layer(kind, codes, scales=scales, zero=zero, gemm=gemm)
                                self.assert_becomes(text, [*self.PRODUCT, "Add", "Identity"])
        self.assert_becomes(layer("int8", bias=False), [*self.PRODUCT, "Identity"])
        self.assert_becomes(layer(after="y = Relu(g)"), [*self.PRODUCT, "Add", "Relu"])

    def test_numbers_that_are_computed(self):
        expected = ["QuantizeLinear", "MatMulInteger", "Cast", "Mul", "Mul", "Add", "Identity"]
        self.assert_becomes(layer("uint8", computed=True), ["Abs", "Identity", *expected])
        moved = ["Cast", "Add", "Cast"]
        self.assert_becomes(layer("int8", computed=True), ["Abs", "Identity", *moved, *expected])

    def test_what_it_declines(self):
        cases = {
            "a quantized result": layer(after="k = QuantizeLinear(g, t, o) y = DequantizeLinear(k, t, o)"),
            "behind an activation": layer(
                after="a = Relu(g) k = QuantizeLinear(a, t, o) y = DequantizeLinear(k, t, o)"
            ),
            "no bias": layer(bias=False),
            "other zero points": layer("int8").replace(
                "l = DequantizeLinear(q, t, o)", "l = DequantizeLinear(q, t)"
            ),
            "other scales": layer("int8").replace(
                "l = DequantizeLinear(q, t, o)", "h = Mul(t, t) l = DequantizeLinear(q, h, o)"
            ),
            "a scaled product": layer(gemm="transB=1, alpha=0.5"),
            "another reader of what is multiplied": layer(more="float[B,6] l, "),
            "another reader of the weight": layer(more="float[4,6] r, "),
        }
        for name, text in cases.items():
            with self.subTest(name):
                self.assert_stays(text)


def blocks(
    codes: str = "int8", zeros: str = "", size: int = 16, top: int = 7, scales: str = "s", product: str = "y = Gemm<transB=1>(x, w)",
    inputs: str = "float[B,48] x", outputs: str = "float[B,3] y", point: float | None = None,
) -> str:  # fmt: skip
    """A layer of 48 inputs and 3 outputs: a weight of steps up to *top* in blocks of *size*, minus the zeros of a name, the last one *point*."""
    drawn, many = random.Random(0), 48 // size
    steps = [top - 15, top, *(drawn.randrange(top - 15, top + 1) for _ in range(142))]
    points = [drawn.randrange(top - 15, top + 1) for _ in range(3 * many)]
    points[-1] = points[-1] if point is None else point
    factors = row(drawn.randrange(1, 9) / 64 for _ in range(3 * many))
    constants = [
        f"{codes}[3,48] c = {row(steps)}",
        f"float[3,{many},1] s = {factors}",
        f"float[3,{many}] flat = {factors}",
        f"{codes}[3,{many}] p = {row(map(int, points))}",
        f"float[3,{many},1] z = {row(points)}",
        f"int64[3] apart = {{3, {many}, {size}}}",
        f"int64[3] each = {{3, {many}, 1}}",
        "int64[2] all = {3, 48}",
        "float[3] b = {1, -2, 4}",
        "float one = {2}",
        "float[1,3,1] few = {1, 2, 3}",
    ]
    shown = {"pr": "pf = Cast<to=1>(p) pr = Reshape(pf, each)", "sr": "sr = Reshape(flat, each)"}
    nodes = [
        "f = Cast<to=1>(c) h = Reshape(f, apart)",
        *(text for name, text in shown.items() if name in (zeros, scales)),
        f"v = Sub(h, {zeros})" if zeros else "",
        f"d = Mul({'v' if zeros else 'h'}, {scales}) w = Reshape(d, all) {product}",
    ]
    return f"agraph ({inputs}) => ({outputs}) <{', '.join(constants)}> {{ {' '.join(nodes)} }}"


@unittest.mock.patch.object(quantization, "FROM", 1)
class TestProductOfBlocks(RuleTestCase):
    RULE = "ProductOfBlocks"
    TURNED = "t = Transpose<perm=[1,0]>(w)"

    def test_steps_and_zeros(self):
        for codes, top in (("int8", 7), ("uint8", 15)):
            for zeros in ("", "z", "pr", "one"):
                for scales in ("s", "sr"):
                    with self.subTest(codes, zeros=zeros, scales=scales):
                        self.assert_becomes(blocks(codes, zeros, top=top, scales=scales), ["MatMulNBits"])

    def test_products(self):
        deep = {"inputs": "float[A,B,48] x", "outputs": "float[A,B,3] y"}
        cases = [
            (blocks(product="y = Gemm<transB=1>(x, w, b)"), []),
            (blocks(product="y = Gemm<transB=1>(x, w, one)"), ["Add"]),
            (blocks(product=f"{self.TURNED} y = MatMul(x, t)"), []),
            (blocks(product=f"{self.TURNED} m = MatMul(x, t) y = Add(m, b)", **deep), []),
            (blocks(product=f"{self.TURNED} m = MatMul(x, t) y = Add(b, m)", **deep), []),
            (blocks(product=f"{self.TURNED} m = MatMul(x, t) y = Add(m, one)", **deep), ["Add"]),
        ]
        for text, more in cases:
            with self.subTest(text):
                self.assert_becomes(text, ["MatMulNBits", *more])

    def test_what_it_declines(self):
        cases = {
            "steps of five bits": blocks(top=8),
            "a zero beyond four bits": blocks(zeros="z", point=8),
            "a zero that is no step": blocks(zeros="z", point=1.5),
            "blocks of eight": blocks(size=8),
            "blocks of three": blocks(size=3),
            "zeros of columns": blocks(zeros="few"),
            "scales of columns": blocks(scales="few"),
            "a scaled product": blocks(product="y = Gemm<transB=1, alpha=0.5>(x, w)"),
            "a scaled bias": blocks(product="y = Gemm<transB=1, beta=0.5>(x, w, b)"),
            "a transposed matrix": blocks(
                product="y = Gemm<transA=1, transB=1>(x, w)", inputs="float[48,B] x"
            ),
            "another reader of the weight": blocks(outputs="float[B,3] y, float[3,48] w"),
            "a row": blocks(product=f"{self.TURNED} y = MatMul(x, t)", inputs="float[48] x", outputs="float[3] y"),
            "a scale that is an input": blocks(scales="i", inputs="float[B,48] x, float[3,3,1] i"),
        }  # fmt: skip
        for name, text in cases.items():
            with self.subTest(name):
                self.assert_stays(text)

    def test_small_weights(self):
        with unittest.mock.patch.object(quantization, "FROM", 145):
            self.assert_stays(blocks())


if __name__ == "__main__":
    unittest.main()
