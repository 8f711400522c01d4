"""Rules that write quantized weights in operators of onnxruntime."""

import random
import unittest
from collections.abc import Iterable

from _unittests.ut_xoptim.cases import RuleTestCase

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


if __name__ == "__main__":
    unittest.main()
