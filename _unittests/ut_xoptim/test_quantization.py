"""Rules of quantize and dequantize."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize

NUMBERS = "s = Constant<value=float{0.037}>() z = Constant<value=uint8{3}>() k = Constant<value=uint8{4}>() n = Constant<value=uint8{0}>() "
BOTH = "v = Constant<value=float[2]{0.037,0.5}>() w = Constant<value=uint8[2]{3,4}>() "


class TestQuantization(RuleTestCase):
    BECOME = {
        "QuantizeDequantized": [
            ("uint8", "d = DequantizeLinear(x, s, z) q = QuantizeLinear(d, s, z) y = Identity(q)", ["Identity"]),
            ("uint8", "d = DequantizeLinear<axis=1>(x, v, w) q = QuantizeLinear<axis=1>(d, v, w) y = Identity(q)", ["Identity"]),
            ("uint8", "d = DequantizeLinear(x, s) q = QuantizeLinear(d, s) y = Identity(q)", ["Identity"]),
            ("uint8", "d = DequantizeLinear(x, s) q = QuantizeLinear(d, s, n) y = Identity(q)", ["Identity"]),
            ("uint8", "d = DequantizeLinear(x, s, n) q = QuantizeLinear(d, s) y = Identity(q)", ["Identity"]),
        ],
        "QuantizeMoved": [
            ("uint8", "d = DequantizeLinear(x, s, z) t = Transpose(d) u = Transpose(t) y = QuantizeLinear(u, s, z)", ["Transpose", "Transpose"]),
        ],
    }  # fmt: skip
    STAY = {
        "QuantizeDequantized": [
            ("uint8", "d = DequantizeLinear(x, s, z) y = QuantizeLinear(d, s, k)"),
            ("uint8", "d = DequantizeLinear<axis=1>(x, v, w) y = QuantizeLinear<axis=0>(d, v, w)"),
            ("uint8", "d = DequantizeLinear(x, s) y = QuantizeLinear(d, s, z)"),
            ("uint8", "d = DequantizeLinear(x, s, z) y = QuantizeLinear(d, s)"),
            ("uint8", "a = Max(x, z) c = ReduceMax<keepdims=0>(a) d = DequantizeLinear(x, s) y = QuantizeLinear(d, s, c)"),
            ("uint8", "d = DequantizeLinear(x, s, z) y = QuantizeLinear(d, s, z) f = Neg(d)", "float[2,2] f"),
            ("uint8", "t = Constant<value=float{0.000000000000000000000000000000000000001}>() d = DequantizeLinear(x, t, z) y = QuantizeLinear(d, t, z)"),
            ("float", "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"),
        ],
        "QuantizeMoved": [
            ("uint8", "d = DequantizeLinear<axis=1>(x, v, w) t = Transpose(d) y = QuantizeLinear<axis=1>(t, v, w)"),
            ("uint8", "d = DequantizeLinear(x, s, z) t = Transpose(d) y = QuantizeLinear(t, s)"),
            ("uint8", "d = DequantizeLinear(x, s) t = Transpose(d) y = QuantizeLinear(t, s, z)"),
            ("int8", "i = Constant<value=int8{3}>() d = DequantizeLinear(x, s, i) t = Transpose(d) y = QuantizeLinear(t, s, i)"),
        ],
    }  # fmt: skip

    def test_scales_of_bfloat16(self):
        """A product of 8 bits and its quotient are other integers: 23 of 256 with this scale."""
        text = "f = Constant<value=float{0.1}>() s = Cast<to=16>(f) d = DequantizeLinear(x, s) q = QuantizeLinear(d, s) y = Identity(q)"
        model = parsed(f"agraph (uint8[N] x) => (uint8[N] y) {{ {text} }}", opset=21)
        self.assertEqual(["DequantizeLinear", "QuantizeLinear"], operators(optimize(model)))
        halves = parsed(
            f"agraph (uint8[N] x) => (uint8[N] y) {{ {text.replace('to=16', 'to=10')} }}", opset=21
        )
        self.assertEqual(["Identity"], operators(optimize(halves)))

    def test_they_fire(self):
        for rule, cases in self.BECOME.items():
            for dtype, nodes, expected in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    text = f"agraph ({dtype}[2,2] x) => ({dtype}[2,2] y) {{ {NUMBERS} {BOTH} {nodes} }}"
                    self.assert_becomes(text, expected, rule=rule)

    def test_they_do_not_fire(self):
        for rule, cases in self.STAY.items():
            for dtype, nodes, *more in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    results = ", ".join([f"{dtype}[2,2] y", *more])
                    text = f"agraph ({dtype}[2,2] x) => ({results}) {{ {NUMBERS} {BOTH} {nodes} }}"
                    self.assert_stays(text, rule=rule)

    def test_sizes_of_what_is_dequantized(self):
        """onnxruntime knows these Gathers of a Shape: it asks for no shape of floats, and multiplies integers."""
        scales = "s = Constant<value=float{0.037}>() z = Constant<value=uint8{3}>() first = Constant<value=int64{0}>() last = Constant<value=int64[1]{8}>()"
        nodes = """q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) sizes = Shape(d) n = Gather(sizes, first)
            axis = Constant<value=int64[1]{0}>() one = Unsqueeze(n, axis) second = Constant<value=int64[1]{1}>() m = Gather(sizes, second)
            joined = Concat<axis=0>(one, m, last) y = Reshape(d, joined)"""
        text = f"agraph (float[A,B,4,2] x) => (float[A,B,8] y) {{ {scales} {nodes} }}"
        plain = text.replace("d = DequantizeLinear(q, s, z)", "d = Relu(x)")
        plain = plain.replace("q = QuantizeLinear(x, s, z)", "")
        for rule, expected in {
            "UnsqueezedGather": "Relu Shape Gather Gather Concat Reshape",
            "GatherOfNeighbours": "Relu Shape Gather Unsqueeze Slice Concat Reshape",
        }.items():
            self.assert_stays(text, rule=rule)
            self.assert_becomes(plain, expected.split(), rule=rule)
            written = operators(optimize(parsed(text), OptimizationOptions([rule]), runtime="onnx"))
            self.assertEqual(["QuantizeLinear", "DequantizeLinear", *expected.split()[1:]], written)

    def test_signed_integers_for_another_runtime(self):
        nodes = "i = Constant<value=int8{3}>() d = DequantizeLinear(x, s, i) t = Transpose(d) y = QuantizeLinear(t, s, i)"
        model = parsed(f"agraph (int8[2,2] x) => (int8[2,2] y) {{ {NUMBERS} {nodes} }}")
        for runtime, expected in (
            ("onnxruntime", ["DequantizeLinear", "Transpose", "QuantizeLinear"]),
            ("onnx", ["Transpose"]),
        ):
            optimized = optimize(model, OptimizationOptions(["QuantizeMoved"]), runtime=runtime)
            self.assertEqual(expected, operators(optimized))

    def test_all_bytes_come_back(self):
        """Also for scales whose products round."""
        everything = np.arange(256, dtype=np.uint8)
        for scale in (0.037, 1 / 255, 3.3e-7, 12345.678, 1e-29):
            with self.subTest(scale):
                model = parsed(
                    f"""agraph (uint8[N] x) => (uint8[N] y) {{ s = Constant<value=float{{{scale:.40f}}}>() {NUMBERS[NUMBERS.index("z") :]}
                    d = DequantizeLinear(x, s, z) q = QuantizeLinear(d, s, z) y = Identity(q) }}"""
                )
                self.assertEqual(["Identity"], [node.op_type for node in optimize(model).graph.node])
                np.testing.assert_array_equal(everything, session(model).run(None, {"x": everything})[0])


if __name__ == "__main__":
    unittest.main()
