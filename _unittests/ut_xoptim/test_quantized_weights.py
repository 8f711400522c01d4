"""Weights in 4 and 8 bits: their error, both spellings in onnxruntime, what is refused or kept."""

from __future__ import annotations

import itertools
import os
import tempfile
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime

from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.xoptim import QuantizationReport, quantize_weights
from experimental_experiment.xoptim.blocks import quantize_blocks

HEADER = '<ir_version: 10, opset_import: ["" : {opset}]>\n'


def drawn(*shape, seed=0, dtype=np.float32):
    """A random matrix."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def built(text: str, opset: int = 21, **weights: np.ndarray) -> onnx.ModelProto:
    """A model from the text of its graph and its weights."""
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    onnx.checker.check_model(model)
    return model


def run(model: onnx.ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    """Its results; the other operand of the products keeps its digits."""
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    runner = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in runner.get_inputs()]
    return runner.run(None, dict(zip(names, inputs, strict=True)))


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session without options."""
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def operators(model: onnx.ModelProto) -> list[str]:
    """The operators of the main graph."""
    return [node.op_type for node in model.graph.node]


def rounded(matrix: np.ndarray, bits: int = 4, symmetric: bool = True, block_size: int = 32) -> np.ndarray:
    """What an [N, K] matrix is after quantization."""
    return quantize_blocks(matrix, bits, block_size, symmetric).dequantized()


MATMUL = "agraph (float[2,70] x) => (float[2,48] y) { y = MatMul(x, W) }"
TIED = """agraph (int64[2,3] i) => (float[2,3,50] y) {
    x = Gather(W, i)
    t = Transpose<perm=[1, 0]>(W)
    y = MatMul(x, t)
}"""


class TestBlocks(unittest.TestCase):
    def test_the_error_is_half_a_step(self):
        for shape in ((5, 64), (3, 70), (1, 1), (4, 31)):
            for bits in (4, 8):
                for block_size in (16, 32, 256):
                    for dtype in (np.float32, np.float16):
                        for symmetric in (True, False):
                            with self.subTest(
                                shape=shape,
                                bits=bits,
                                block_size=block_size,
                                dtype=dtype,
                                symmetric=symmetric,
                            ):
                                self.assert_half_a_step(
                                    drawn(*shape, dtype=dtype), bits, block_size, symmetric
                                )

    def assert_half_a_step(self, matrix, bits, block_size, symmetric):
        blocks = quantize_blocks(matrix, bits, block_size, symmetric)
        exact = matrix.astype(np.float32)
        step = np.abs(blocks.spread(blocks.scales))
        lost = np.abs(blocks.dequantized() - exact)
        # the scale is rounded to the dtype of the matrix
        slack = 0.04 if matrix.dtype == np.float16 else 1e-4
        opposite = blocks.codes() == 2**bits - 1  # of the largest magnitude: it has one code less
        bound = np.where(opposite & symmetric, 1.0, 0.5)
        self.assertTrue((lost <= (bound + slack * 2**bits / 16) * step + 1e-6).all())
        self.assertEqual(
            blocks.packed.shape, (len(matrix), -(-matrix.shape[1] // block_size), block_size * bits // 8)
        )

    def test_the_error_is_relative_to_the_norm(self):
        matrix = drawn(3000, 40)
        blocks = quantize_blocks(matrix, 4, 32, True)
        expected = np.linalg.norm(blocks.dequantized() - matrix) / np.linalg.norm(matrix)
        self.assertAlmostEqual(blocks.error(matrix), expected, places=6)
        self.assertEqual(
            quantize_blocks(np.zeros((2, 16), np.float32), 8, 16, True).error(np.zeros((2, 16))), 0
        )


class TestQuantizeWeights(unittest.TestCase):
    def assert_quantized(self, model, inputs, expected, bits=4, tolerance=2e-5, **more):
        """Both spellings give *expected*, computed from the rounded weights."""
        found = {}
        for domain in ("com.microsoft", ""):
            report = QuantizationReport()
            done = quantize_weights(model, bits, domain=domain, accuracy_level=0, report=report, **more)
            self.assertNotIn("W", dict(report.kept))
            (got,) = run(done, *inputs)
            self.assertEqual(got.dtype, expected.dtype)
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
            domains = {item.domain for item in done.opset_import}
            self.assertEqual("com.microsoft" in domains, domain == "com.microsoft")
            found[domain] = operators(done)
            again = QuantizationReport()
            quantize_weights(done, bits, domain=domain, report=again, **more)
            self.assertEqual(again.weights, [])
        return found

    def test_products(self):
        x, weight = drawn(2, 70, seed=1), drawn(70, 48)
        for bits in (4, 8):
            for symmetric in (True, False):
                with self.subTest(bits=bits, symmetric=symmetric):
                    expected = x @ rounded(np.ascontiguousarray(weight.T), bits, symmetric).T
                    found = self.assert_quantized(
                        built(MATMUL, W=weight), [x], expected, bits, symmetric=symmetric
                    )
                    self.assertEqual(found["com.microsoft"], ["MatMulNBits"])
                    self.assertEqual(found[""], ["DequantizeLinear", "MatMul"])

    def test_a_transposed_weight(self):
        text = "agraph (float[2,70] x) => (float[2,48] y) { t = Transpose(W) y = MatMul(x, t) }"
        x, weight = drawn(2, 70, seed=1), drawn(48, 70)
        found = self.assert_quantized(built(text, W=weight), [x], x @ rounded(weight).T)
        self.assertEqual(found["com.microsoft"], ["MatMulNBits"])
        self.assertEqual(found[""], ["DequantizeLinear", "MatMul"])

    def test_gemm(self):
        x, weight = drawn(2, 70, seed=1), drawn(48, 70)
        product = x @ rounded(weight).T
        for bias in (drawn(48, seed=2), drawn(2, 1, seed=3)):
            model = built(
                "agraph (float[2,70] x) => (float[2,48] y) { y = Gemm<transB=1>(x, W, C) }", W=weight, C=bias
            )
            with self.subTest(bias=bias.shape):
                found = self.assert_quantized(model, [x], product + bias)
                added = ["Add"] if bias.ndim == 2 else []
                self.assertEqual(found["com.microsoft"], ["MatMulNBits", *added])
                self.assertEqual(found[""], ["DequantizeLinear", "Gemm"])
        model = built(
            "agraph (float[2,70] x) => (float[2,48] y) { y = Gemm(x, W) }", W=np.ascontiguousarray(weight.T)
        )
        self.assert_quantized(model, [x], product)

    def test_a_bias_behind_a_product(self):
        """MatMulNBits adds it, when it is known to be a row, and nothing else reads the product."""
        x, weight, bias = drawn(2, 3, 70, seed=1), drawn(70, 48), drawn(48, seed=2)
        product = x @ rounded(np.ascontiguousarray(weight.T)).T
        for nodes, more, expected, operators in (
            ("p = MatMul(x, W) y = Add(p, B)", "", [product + bias], ["MatMulNBits"]),
            (
                "p = MatMul(x, W) b = Abs(B) y = Add(b, p)",
                "",
                [product + abs(bias)],
                ["MatMulNBits", "Abs", "Add"],  # its shape is not known
            ),
            (
                "p = MatMul(x, W) y = Add(p, B)",
                ", float[2,3,48] p",
                [product + bias, product],
                ["MatMulNBits", "Add"],
            ),
            (
                "p = MatMul(x, W) s = Relu(p) y = Add(p, s)",
                "",
                [product + product.clip(0)],
                ["MatMulNBits", "Relu", "Add"],
            ),
            (
                "p = MatMul(x, W) c = ReduceMax<keepdims=1>(x) y = Add(p, c)",
                "",
                [product + x.max()],
                ["MatMulNBits", "ReduceMax", "Add"],
            ),
        ):
            with self.subTest(nodes, more=more):
                used = {"B": bias} if "B)" in nodes else {}
                model = built(
                    f"agraph (float[2,3,70] x) => (float[2,3,48] y{more}) {{ {nodes} }}", W=weight, **used
                )
                quantized = quantize_weights(model, accuracy_level=0)
                self.assertEqual(operators, [node.op_type for node in quantized.graph.node])
                for wanted, got in zip(expected, run(quantized, x), strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)

    def test_a_bias_behind_the_product_of_a_vector(self):
        """The product is known to be a row too, and is not its own bias."""
        x, weight, bias = drawn(70, seed=1), drawn(70, 48), drawn(48, seed=2)
        for nodes in ("y = Add(p, B)", "y = Add(B, p)"):
            text = f"agraph (float[70] x) => (float[48] y) <float[48] p> {{ p = MatMul(x, W) {nodes} }}"
            with self.subTest(nodes):
                expected = x @ rounded(np.ascontiguousarray(weight.T)).T + bias
                found = self.assert_quantized(built(text, W=weight, B=bias), [x], expected)
                self.assertEqual(found["com.microsoft"], ["MatMulNBits"])

    def test_fused_products(self):
        text = "agraph (float[2,70] x) => (float[2,48] y) { y = com.microsoft.FusedMatMul<transB=1>(x, W) }"
        model = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n' + text
        )
        x, weight = drawn(2, 70, seed=1), drawn(48, 70)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W"))
        (got,) = run(quantize_weights(model, accuracy_level=0), x)
        np.testing.assert_allclose(got, x @ rounded(weight).T, rtol=2e-5, atol=2e-5)

    def test_embeddings(self):
        text = "agraph (int64[2,2] i) => (float[2,2,70] y) { y = Gather(W, i) }"
        weight, indices = drawn(50, 70), np.array([[3, 0], [49, -1]])
        for symmetric in (True, False):
            with self.subTest(symmetric=symmetric):
                expected = rounded(weight, 8, symmetric)[indices]
                found = self.assert_quantized(
                    built(text, W=weight), [indices], expected, 8, symmetric=symmetric
                )
                self.assertEqual(found["com.microsoft"], ["GatherBlockQuantized"])
                dequantized = (
                    ["Gather", "Gather", "DequantizeLinear"]
                    if symmetric
                    else ["Unsqueeze", "Gather", "Gather", "Gather", "DequantizeLinear", "Squeeze"]
                )
                self.assertEqual(found[""], dequantized)
                (got,) = run(quantize_weights(built(text, W=weight), symmetric=symmetric), indices)
                np.testing.assert_allclose(got, rounded(weight, 4, symmetric)[indices], rtol=1e-5, atol=1e-5)

    def test_one_row_in_one_block(self):
        """onnxruntime 1.31 takes it for a tensor of one scale; where the rank of the position is known or not."""
        weight = drawn(64, 48)
        known = "agraph (int64 i) => (float[48] y) { y = Gather(W, i) }"
        cases = {
            known: np.array(3),
            known.replace("int64 i", "int64[1] j").replace("{", "{ i = Squeeze(j)"): [3],
        }
        for text, position in cases.items():
            for symmetric in (True, False):
                with self.subTest(text, symmetric=symmetric):
                    found = self.assert_quantized(
                        built(text, W=weight),
                        [np.array(position)],
                        rounded(weight, 8, symmetric, 128)[3],
                        8,
                        block_size=128,
                        symmetric=symmetric,
                    )
                    self.assertEqual(found[""][-2:], ["DequantizeLinear", "Squeeze"])

    def test_products_of_embeddings(self):
        """onnxruntime 1.31 makes those of rows with zero points products of integers, and refuses to compute them."""
        weight, indices = drawn(50, 64), np.array([[3, 0, 1], [49, 2, 7]])
        same, text = (
            rounded(weight, 8, False),
            TIED.replace("x = Gather(W, i)", "g = Gather(W, i) x = Identity(g)"),
        )
        for nodes in (TIED, text):
            with self.subTest(nodes):
                self.assert_quantized(
                    built(nodes, W=weight), [indices], same[indices] @ same.T, 8, symmetric=False
                )

    def test_embeddings_of_the_standard_keep_8_bits(self):
        text = "agraph (int64[2,2] i) => (float[2,2,70] y) { y = Gather(W, i) }"
        report = QuantizationReport()
        quantize_weights(built(text, W=drawn(50, 70)), 4, domain="", report=report)
        self.assertEqual([line.bits for line in report.weights], [8])

    def test_tied_weights_are_quantized_once(self):
        for columns in (64, 70):
            weight, indices = drawn(50, columns), np.array([[3, 0, 1], [49, 2, 7]])
            same = rounded(weight, 8)
            found = self.assert_quantized(built(TIED, W=weight), [indices], same[indices] @ same.T, 8)
            reshape = ["Reshape"] if columns == 64 else []  # one tensor in the file where the blocks are full
            self.assertEqual(found["com.microsoft"], ["GatherBlockQuantized", *reshape, "MatMulNBits"])
            report = QuantizationReport()
            quantize_weights(built(TIED, W=weight), 4, report=report)
            self.assertEqual([line.nodes for line in report.weights], [("Gather", "MatMul")])

    def test_a_weight_read_both_ways_is_quantized_twice(self):
        text = """agraph (float[2,64] x) => (float[2,64] y) {
            a = MatMul(x, W)
            t = Transpose(W)
            y = MatMul(a, t)
        }"""
        x, weight = drawn(2, 64, seed=1), drawn(64, 64)
        by_column = rounded(np.ascontiguousarray(weight.T)).T
        expected = x @ by_column @ rounded(weight).T
        model = built(text, W=weight)
        self.assert_quantized(model, [x], expected, tolerance=2e-4)
        report = QuantizationReport()
        quantize_weights(model, report=report)
        first, second = report.weights
        self.assertEqual((first.bytes_before, second.bytes_before), (weight.nbytes, 0))
        self.assertIn(f"{weight.nbytes} bytes became {first.bytes_after + second.bytes_after}\n", str(report))

    def test_a_weight_that_grows_by_all_the_ways_it_is_read_is_kept(self):
        """Twice 8 bits and a scale are more than 16; a body has codes of its own in the standard."""
        turned = "a = MatMul(x, W) t = Transpose(W) y = MatMul(a, t)"
        branches = " ".join(
            f"""y{i} = If(c) <
                then_branch = one{i} () => (float[2,64] a{i}) {{ a{i} = MatMul(x, W) }},
                else_branch = two{i} () => (float[2,64] b{i}) {{ b{i} = MatMul(x, W) }}
            >"""
            for i in range(4)
        )
        for text, dtype, bits, domain in (
            (
                f"agraph (float16[2,64] x) => (float16[2,64] y) {{ {turned} }}",
                np.float16,
                8,
                "com.microsoft",
            ),
            (
                f"agraph (float[2,64] x, bool c) => (float[2,64] y0, float[2,64] y3) {{ {branches} }}",
                np.float32,
                4,
                "",
            ),
        ):
            with self.subTest(domain=domain):
                report = QuantizationReport()
                model = built(text, W=drawn(64, 64, dtype=dtype))
                quantize_weights(model, bits, domain=domain, report=report)
                self.assertEqual([("W", "it would not be smaller")], report.kept)

    def test_float16(self):
        text = MATMUL.replace("float[", "float16[")
        x, weight = drawn(2, 70, seed=1, dtype=np.float16), drawn(70, 48, dtype=np.float16)
        expected = (x.astype(np.float32) @ rounded(np.ascontiguousarray(weight.T)).T).astype(np.float16)
        self.assert_quantized(built(text, W=weight), [x], expected, tolerance=2e-2)

    def test_float16_between_nodes_of_float32(self):
        """onnxruntime computes these in float32, with zeros for scales that it casts at each run."""
        twice = "s = Add(x, x) a = MatMul(s, W) r = Relu(a) b = MatMul(r, W) y = Add(b, x)"
        body = "y = If(c) <then_branch = one() => (float16[2,64] p) { s = Add(x, x) a = MatMul(s, W) p = Add(a, x) }, "
        body += "else_branch = two() => (float16[2,64] q) { q = Identity(x) }>"
        x, weight = drawn(2, 64, seed=1, dtype=np.float16), drawn(64, 64, dtype=np.float16)
        feeds = {"x": x, "c": np.array(True)}
        for text, kept in ((twice, ()), (body, ("", "com.microsoft"))):
            model = built(f"agraph (float16[2,64] x, bool c) => (float16[2,64] y) {{ {text} }}", W=weight)
            (expected,) = session_of(model).run(None, feeds)
            for domain, level in (("", 4), ("com.microsoft", 4), ("com.microsoft", 0)):
                report = QuantizationReport()
                small = quantize_weights(model, domain=domain, accuracy_level=level, report=report)
                reason = "onnxruntime may lose float16 scales in a body; accuracy_level=0 of com.microsoft does not"
                with self.subTest(text=text, domain=domain, level=level):
                    is_kept = domain in kept and level == 4
                    self.assertEqual([("W", reason)] if is_kept else [], report.kept)
                    (found,) = session_of(small).run(None, feeds)
                    self.assertLess(np.linalg.norm(found - expected), 0.2 * np.linalg.norm(expected))

    def test_bodies(self):
        text = """agraph (float[2,70] x, bool c) => (float[2,48] y) {
            y = If(c) <
                then_branch = one () => (float[2,48] a) { a = MatMul(x, W) },
                else_branch = two () => (float[2,48] b) { n = Neg(x) b = MatMul(n, W) }
            >
        }"""
        x, weight = drawn(2, 70, seed=1), drawn(70, 48)
        expected = x @ rounded(np.ascontiguousarray(weight.T)).T
        for flag, sign in ((True, 1), (False, -1)):
            self.assert_quantized(built(text, W=weight), [x, np.array(flag)], sign * expected)

    def test_constant_nodes_are_weights_too(self):
        text = "agraph (float[2,64] x) => (float[2,1] y) { w = Constant<value = float[64, 1] {%s}>() y = MatMul(x, w) }"
        weight = drawn(64, 1)
        model = built(text % ", ".join(str(value) for value in weight.ravel()))
        x = drawn(2, 64, seed=1)
        self.assert_quantized(model, [x], x @ rounded(np.ascontiguousarray(weight.T)).T)

    def test_the_other_operand_is_rounded_to_8_bits_by_default(self):
        x, weight = drawn(2, 64, seed=1), drawn(64, 48)
        model = built(MATMUL.replace("70", "64"), W=weight)
        exact = x @ rounded(np.ascontiguousarray(weight.T)).T
        (got,) = run(quantize_weights(model), x)
        self.assertLess(np.abs(got - exact).max(), 0.02 * np.abs(exact).max())
        self.assertEqual(quantize_weights(model).graph.node[0].attribute[-1].i, 4)

    def test_exclude(self):
        text = """agraph (float[2,64] x) => (float[2,64] z) {
            [first] y = MatMul(x, A)
            [turned] t = Transpose(B)
            [second] z = MatMul(y, t)
        }"""
        model = built(text, A=drawn(64, 64), B=drawn(64, 64))
        model.graph.initializer[0].name = model.graph.node[0].input[1] = "layers[0].A"
        for pattern, expected in (
            ("layers[0].A", "B"),
            ("*.A", "B"),
            ("second", "layers[0].A"),
            ("turned", "layers[0].A"),
            ("f*", "B"),
        ):
            with self.subTest(pattern):
                report = QuantizationReport()
                quantize_weights(model, exclude=[pattern], report=report)
                self.assertEqual([line.name for line in report.weights], [expected])
                self.assertEqual([reason for _, reason in report.kept], ["it is excluded"])

    def test_what_is_kept(self):
        cases = {
            "Add reads it": (
                "agraph (float[64,64] x) => (float[64,64] z) { y = MatMul(x, W) z = Add(y, W) }",
                {},
            ),
            "MatMul reads it": ("agraph (float[64,64] x) => (float[64,64] y) { y = MatMul(W, x) }", {}),
            "Gemm reads it": (
                "agraph (float[64,64] x) => (float[64,64] y) { y = Gemm<alpha=2.0>(x, W) }",
                {},
            ),
            "Gather reads it": ("agraph (int64[2] i) => (float[64,2] y) { y = Gather<axis=1>(W, i) }", {}),
            "it is an output": (
                "agraph (float[64,64] x) => (float[64,64] y, float[64,64] W) { y = MatMul(x, W) }",
                {},
            ),
            "it is an input": (
                "agraph (float[64,64] x, float[64,64] W) => (float[64,64] y) { y = MatMul(x, W) }",
                {},
            ),
            "nothing reads it": ("agraph (float[64,64] x) => (float[64,64] y) { y = Neg(x) }", {}),
            "it would not be smaller": (
                "agraph (float[64,1] x) => (float[64,64] y) { y = MatMul(x, W) }",
                {"W": drawn(1, 64)},
            ),
            "rows of 63 elements of 4 bits do not fill bytes": (
                "agraph (int64[2] i) => (float[2,63] y) { y = Gather(W, i) }",
                {"W": drawn(64, 63)},
            ),
            "onnxruntime multiplies no blocks of BFLOAT16": (
                "agraph (bfloat16[64,64] x) => (bfloat16[64,64] y) { y = MatMul(x, W) }",
                {"W": drawn(64, 64).astype(ml_dtypes.bfloat16)},
            ),
        }
        for reason, (text, weights) in cases.items():
            with self.subTest(reason):
                model = onnx.parser.parse_model(HEADER.format(opset=21) + text)
                (name, weight), *_ = (weights or {"W": drawn(64, 64)}).items()
                model.graph.initializer.append(ir.to_proto(ir.Tensor(weight, name=name)))
                report = QuantizationReport()
                done = quantize_weights(model, report=report)
                self.assertEqual(report.kept, [("W", reason)])
                self.assertEqual(operators(done), operators(model))

    def test_weights_that_blocks_do_not_hold_are_kept(self):
        """Each was lost in silence: NaN was a number, the others NaN, infinite or 0."""
        text, halves = MATMUL, MATMUL.replace("float[", "float16[")
        nan, infinite, near, far = (drawn(70, 48) for _ in range(4))
        nan[3, 4], infinite[5, 6] = np.nan, -np.inf
        near[:32, 0] *= 1e-42  # one block of one column
        far[:2, 3] = 3e38, -3e38
        half = drawn(70, 48).astype(np.float16)
        half[:2, 3] = 65504, -1
        cases = {
            "NaN": (text, nan, (4, 8), (True, False), "an element is not finite"),
            "infinity": (text, infinite, (4, 8), (True, False), "an element is not finite"),
            "near zero": (text, near, (4, 8), (True, False), "one of its blocks has no scale in float32"),
            "too wide": (text, far, (4, 8), (False,), "one of its blocks has no scale in float32"),
            "near zero in float16": (
                halves,
                (drawn(70, 48) * 1e-6).astype(np.float16),
                (8,),
                (True, False),
                "one of its blocks has no scale in float16",
            ),
            "at the end of float16": (halves, half, (8,), (False,), "its error would be inf"),
        }
        for promise, (model_text, weight, every_bits, symmetries, reason) in cases.items():
            model = built(model_text, W=weight)
            for bits, symmetric in itertools.product(every_bits, symmetries):
                with self.subTest(promise, bits=bits, symmetric=symmetric):
                    report = QuantizationReport()
                    done = quantize_weights(model, bits, symmetric=symmetric, report=report)
                    self.assertEqual(report.kept, [("W", reason)])
                    self.assertEqual(operators(done), operators(model))

    def test_small_weights_and_zeros_are_quantized(self):
        for dtype, scale in ((np.float32, 1e-30), (np.float16, 1e-3)):
            for bits, symmetric in itertools.product((4, 8), (True, False)):
                with self.subTest(dtype.__name__, bits=bits, symmetric=symmetric):
                    weight = (drawn(70, 48) * scale).astype(dtype)
                    weight[:, 2] = 0
                    report = QuantizationReport()
                    name = "float16[" if dtype == np.float16 else "float["
                    model = built(MATMUL.replace("float[", name), W=weight)
                    quantize_weights(model, bits, symmetric=symmetric, report=report)
                    self.assertLess(report.weights[0].error, 0.12 if bits == 4 else 0.01)

    def test_wrong_arguments(self):
        model = built(MATMUL, W=drawn(70, 48))
        for arguments, message in (
            ({"bits": 3}, "bits is one of (4, 8), not 3"),
            ({"block_size": 20}, "block_size is one of (16, 32, 64, 128, 256), not 20"),
            ({"domain": "com.example"}, "domain is one of ('com.microsoft', ''), not 'com.example'"),
            ({"accuracy_level": 5}, "accuracy_level is one of (0, 1, 2, 3, 4), not 5"),
            ({"accuracy_level": True}, "accuracy_level is one of (0, 1, 2, 3, 4), not True"),
            ({"exclude": ["V"]}, "exclude: no weight and no node is called 'V'"),
            ({"exclude": ["WW"]}, "exclude: no weight and no node is called 'WW', did you mean W?"),
        ):
            with self.subTest(message), self.assertRaises(ValueError) as caught:
                quantize_weights(model, **arguments)
            self.assertEqual(str(caught.exception), message)
        for exclude in ("W", 3, [3]):
            with self.assertRaises(TypeError) as caught:
                quantize_weights(model, exclude=exclude)
            self.assertEqual(str(caught.exception), f"exclude is a list of names, not {exclude!r}")
        given = ir.from_proto(model)
        for arguments, message in (
            ({"symmetric": "no"}, "symmetric is True or False, not 'no'"),
            ({"report": 3}, "report is a QuantizationReport, which is filled, not 3"),
            ({"progress": None}, "progress is a function of a stage and its number of steps, not None"),
        ):
            with self.subTest(message), self.assertRaises(TypeError) as caught:
                quantize_weights(given, **arguments)
            self.assertEqual(str(caught.exception), message)
        self.assertEqual(["MatMul"], [node.op_type for node in given.graph])
        with self.assertRaises(ValueError) as caught:
            quantize_weights(built(MATMUL, opset=20, W=drawn(70, 48)), domain="")
        self.assertEqual(
            str(caught.exception),
            "DequantizeLinear has blocks from opset 21 on, the model is of opset 20: export it with target_opset=21, "
            "or allow the domain com.microsoft",
        )

    def test_files(self):
        weight, x = drawn(4096, 1536), drawn(2, 4096, seed=1)
        model = built("agraph (float[2,4096] x) => (float[2,1536] y) { y = MatMul(x, W) }", W=weight)
        with tempfile.TemporaryDirectory() as folder:
            path, small = (os.path.join(folder, name) for name in ("float.onnx", "small.onnx"))
            save(ir.from_proto(model), path)
            self.assertTrue(os.path.exists(path + ".data"))
            report = QuantizationReport()
            done = quantize_weights(path, accuracy_level=0, report=report)
            save(done, small)
            self.assertLess(os.path.getsize(small), 0.16 * os.path.getsize(path + ".data"))
            (got,) = run(onnx.load(small), x)
            expected = x @ rounded(np.ascontiguousarray(weight.T)).T
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
        (line,) = report.weights
        self.assertEqual((line.bytes_before, line.bytes_after), (4096 * 1536 * 4, 4096 * 1536 * 5 // 8))

    def test_the_report_is_a_table(self):
        report = QuantizationReport()
        model = built(MATMUL, W=drawn(70, 48))
        quantize_weights(model, report=report)
        quantize_weights(model, exclude=["W"], report=report)
        lines = str(report).splitlines()
        self.assertEqual(lines[0], "1 weights quantized, 13440 bytes became 2880")
        self.assertEqual(lines[2].split("  ")[0], "weight")
        self.assertIn("MatMul", lines[4])
        self.assertEqual(lines[-1].split(), ["W", "it", "is", "excluded"])
        self.assertEqual(model.graph.initializer[0].name, "W")


if __name__ == "__main__":
    unittest.main()
