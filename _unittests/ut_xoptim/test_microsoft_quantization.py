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


if __name__ == "__main__":
    unittest.main()
