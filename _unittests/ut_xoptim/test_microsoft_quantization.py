"""Rules that write quantized weights in operators of onnxruntime."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

KINDS = {"int4": 22, "uint4": 21}
SIGNS = {"int4": "Neg", "uint4": "Abs"}


def graph(kind: str = "int4", nodes: str = "", more: str = "", zero: bool = False, size: int = 16) -> str:
    """Rows of a table of sixteen rows and 32 columns: its codes are cast here, as random inputs have no four bits."""
    table = (
        f"a = {SIGNS[kind]} (w) s = Abs (f) limit = Constant <value=float{{7.0}}> () b = Min (a, limit) q = Cast <to={KINDS[kind]}> (b) "
        f"e = Min (g, limit) h = {SIGNS[kind]} (e) z = Cast <to={KINDS[kind]}> (h)"
    )
    nodes = (
        nodes
        or f"d = DequantizeLinear <axis=1, block_size={size}> (q, s{', z' if zero else ''}) y = Gather (d, i)"
    )
    blocks = 32 // size
    return (
        f"agraph (float[16,32] w, float[16,{blocks}] f, float[16,{blocks}] g, int64[B] i) => (float[B,32] y{more}) {{ {table} {nodes} }}"
        if zero
        else f"agraph (float[16,32] w, float[16,{blocks}] f, int64[B] i) => (float[B,32] y{more}) "
        f"{{ {table.partition(' e = ')[0]} {nodes} }}"
    )


class TestGatherBlockQuantized(RuleTestCase):
    RULE = "GatherBlockQuantized"

    def test_forms(self):
        codes = ["Abs", "Min", "Cast"]
        for kind, sign in SIGNS.items():
            for size in (16, 32):
                with self.subTest(kind, size=size):
                    self.assert_becomes(
                        graph(kind, size=size), [sign, *codes, "GatherBlockQuantized"], opset=21
                    )
            with self.subTest(kind, zero=True):
                expected = [sign, *codes, "Min", sign, "Cast", "GatherBlockQuantized"]
                self.assert_becomes(graph(kind, zero=True), expected, opset=21)

    def test_what_it_declines(self):
        cases = {
            "another user of the table": graph(more=", float[16,32] d"),
            "columns": graph(
                nodes="d = DequantizeLinear <axis=1, block_size=16> (q, s) y = Gather <axis=1> (d, i)"
            ).replace("float[B,32] y", "float[16,B] y"),
            "one scale": graph(
                nodes="t = ReduceMax <keepdims=0> (s) d = DequantizeLinear (q, t) y = Gather (d, i)"
            ),
            "eight bits": graph(
                nodes="q8 = Cast <to=3> (b) d = DequantizeLinear <axis=1, block_size=16> (q8, s) y = Gather (d, i)"
            ).replace("q = Cast <to=22> (b)", ""),
            "blocks of eight": graph(size=8),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=21)


if __name__ == "__main__":
    unittest.main()
