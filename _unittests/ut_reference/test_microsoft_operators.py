"""Operators of com.microsoft: the reference evaluator gives what onnxruntime gives."""

from __future__ import annotations

import pathlib
import re
import unittest

import numpy as np

from _unittests.ut_reference.cases import OperatorTestCase, numbers
from experimental_experiment.reference.registry import OPERATORS, computes
from experimental_experiment.xoptim.blocks import quantize_blocks

X, W, ROW = numbers(2, 3, 4), numbers(4, 5), numbers(4)
BATCHES, OTHERS = numbers(2, 3, 4, 5), numbers(2, 3, 5, 6)


class TestActivations(OperatorTestCase):
    CASES = {
        "Gelu": ("Gelu", 3 * X),
        "BiasGelu": ("BiasGelu", 3 * X, ROW),
        "FastGelu without a bias": ("FastGelu", 3 * X),
        "FastGelu with a bias": ("FastGelu", 3 * X, ROW),
        "QuickGelu": ("QuickGelu", 30 * X),
        "QuickGelu is Silu": ("QuickGelu", X, {"alpha": 1.0}),
    }

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)


class TestProducts(OperatorTestCase):
    CASES = {
        "FusedMatMul times a number": ("FusedMatMul", X, W, {"alpha": 0.25}),
        "FusedMatMul of turned matrices": ("FusedMatMul", W, X[0], {"transA": 1, "transB": 1}),
        "FusedMatMul of a vector": ("FusedMatMul", ROW, W, {"transA": 1}),
        "FusedMatMul with the batch in the middle": (
            "FusedMatMul", BATCHES.transpose(2, 0, 1, 3).copy(), OTHERS, {"transBatchA": 1}),
        "FusedMatMul with both in the middle": (
            "FusedMatMul", BATCHES.transpose(3, 0, 1, 2).copy(), OTHERS.transpose(3, 0, 1, 2).copy(),
            {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1}),
        "TransposeMatMul": ("TransposeMatMul", X, numbers(5, 4), {"transB": 1, "alpha": 2.0}),
        "FusedGemm with Relu": ("FusedGemm", X[0], W, numbers(5), {"activation": "Relu", "alpha": 0.5, "beta": 2.0}),
        "FusedGemm with LeakyRelu": ("FusedGemm", X[0], W, {"activation": "LeakyRelu", "activation_alpha": 0.3}),
        "FusedGemm with HardSigmoid": (
            "FusedGemm", X[0], W.T.copy(), {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4,
                                            "transB": 1}),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)

    def test_an_activation_that_nothing_fuses(self):
        with self.assertRaisesRegex(
            NotImplementedError, "the activation 'Selu' is not one that onnxruntime fuses"
        ):
            self.reference("FusedGemm", X[0], W, activation="Selu")

    def test_reordered_columns_are_refused(self):
        blocks = quantize_blocks(numbers(6, 40), 4, 16, True)
        with self.assertRaisesRegex(
            NotImplementedError, "MatMulNBits with g_idx or with prepacked weights is not handled"
        ):
            self.reference(
                "MatMulNBits", numbers(3, 40), blocks.packed, blocks.scales, None, np.zeros(40, np.int32),
                K=40, N=6, bits=4, block_size=16,
            )  # fmt: skip

    def test_weights_in_blocks(self):
        a, bias = numbers(3, 40), numbers(6)
        for bits in (4, 8):
            for symmetric in (True, False):
                blocks = quantize_blocks(numbers(6, 40), bits, 16, symmetric)
                with self.subTest(bits=bits, symmetric=symmetric):
                    self.assert_same(
                        "MatMulNBits", a, blocks.packed, blocks.scales, blocks.zero_points, None, bias,
                        K=40, N=6, bits=bits, block_size=16,
                    )  # fmt: skip

    def test_rows_in_blocks(self):
        indices = np.array([[3, 0], [5, 5]])
        for bits in (4, 8):
            for symmetric in (True, False):
                blocks = quantize_blocks(numbers(6, 40), bits, 16, symmetric)
                with self.subTest(bits=bits, symmetric=symmetric):
                    self.assert_same(
                        "GatherBlockQuantized", blocks.rows(), indices, blocks.scales, blocks.zero_points,
                        bits=bits, block_size=16, gather_axis=0, quantize_axis=1,
                    )  # fmt: skip


class TestNormalization(OperatorTestCase):
    TABLE, POSITIONS, SEGMENTS = numbers(10, 4), numbers(7, 4), numbers(2, 4)
    IDS = np.array([[1, 2, 9], [0, 3, 3]], np.int32)
    KINDS = np.array([[0, 0, 1], [1, 1, 0]], np.int32)
    CASES = {
        "without a mean": ("SimplifiedLayerNormalization", X, ROW, {"domain": "", "axis": -1, "epsilon": 1e-3}),
        "a sum": ("SkipLayerNormalization", X, X[::-1].copy(), ROW, {"epsilon": 1e-3}),
        "a sum with its biases": (
            "SkipLayerNormalization", X, X[::-1].copy(), ROW, numbers(4, seed=1), numbers(4, seed=2),
            {"epsilon": 1e-3}),
        "a sum that broadcasts": ("SkipLayerNormalization", X, X[:1].copy(), ROW, {"epsilon": 1e-3}),
        "a sum without a mean": ("SkipSimplifiedLayerNormalization", X, X[::-1].copy(), ROW, {"epsilon": 1e-3}),
        "words and positions": ("EmbedLayerNormalization", IDS, None, TABLE, POSITIONS, None, ROW, ROW, {"outputs": 2}),
        "segments and a mask": (
            "EmbedLayerNormalization", IDS, KINDS, TABLE, POSITIONS, SEGMENTS, ROW, ROW, 1 - KINDS, {"outputs": 3}),
        "given positions": (
            "EmbedLayerNormalization", IDS, None, TABLE, POSITIONS, None, ROW, ROW, None, IDS % 7, {"outputs": 2}),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)

    def test_the_sum_is_an_output(self):
        """onnxruntime's CPU kernels give no mean: the third output is compared by the model that asks for the fourth alone."""
        for op_type in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
            with self.subTest(op_type):
                self.assert_same(op_type, X, X[::-1].copy(), ROW, outputs=("y", "", "", "sum"), epsilon=1e-3)


class TestAttention(OperatorTestCase):
    Q, K, V = numbers(2, 3, 16), numbers(2, 5, 16, seed=1), numbers(2, 5, 16, seed=2)
    PAST = numbers(2, 2, 4, 8, seed=3), numbers(2, 2, 4, 8, seed=4)
    HEADS = {"num_heads": 2}
    LENGTHS = np.array([3, 5], np.int32)
    MASK = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], np.int32)
    CASES = {
        "as many keys as given": ("MultiHeadAttention", Q, K, V, HEADS),
        "a scale": ("MultiHeadAttention", Q, K, V, {**HEADS, "scale": 0.3}),
        "heads of keys apart": (
            "MultiHeadAttention", Q, K.reshape(2, 5, 2, 8).transpose(0, 2, 1, 3).copy(),
            V.reshape(2, 5, 2, 8).transpose(0, 2, 1, 3).copy(), HEADS),
        "biases": ("MultiHeadAttention", Q, K, V, numbers(48), HEADS),
        "values of another size": ("MultiHeadAttention", Q, K, numbers(2, 5, 12), numbers(44), HEADS),
        "lengths of samples": ("MultiHeadAttention", Q, K, V, None, LENGTHS, HEADS),
        "a mask of keys": ("MultiHeadAttention", Q, K, V, None, MASK, HEADS),
        "a mask of queries and keys": (
            "MultiHeadAttention", Q, K, V, None, np.stack([MASK, MASK[::-1], 1 - MASK], axis=1), HEADS),
        "what is added": ("MultiHeadAttention", Q, K, V, None, None, numbers(2, 2, 3, 5), HEADS),
        "what is added to all heads": ("MultiHeadAttention", Q, K, V, None, None, numbers(1, 1, 3, 5), HEADS),
        "with a past": (
            "MultiHeadAttention", Q, K, V, None, None, None, *PAST, {**HEADS, "outputs": 3}),
        "causal, with a past": (
            "MultiHeadAttention", Q, K[:, :3].copy(), V[:, :3].copy(), None, None, None, *PAST,
            {**HEADS, "outputs": 3, "unidirectional": 1}),
    }  # fmt: skip
    X, WEIGHTS, BIAS = numbers(2, 5, 6), numbers(6, 48), numbers(48)
    WITH_WEIGHTS = {
        "products and biases": ("Attention", X, WEIGHTS, BIAS, HEADS),
        "causal": ("Attention", X, WEIGHTS, BIAS, {**HEADS, "unidirectional": 1}),
        "lengths": ("Attention", X, WEIGHTS, BIAS, LENGTHS, HEADS),
        "begins and ends": ("Attention", X, WEIGHTS, BIAS, np.array([3, 5, 1, 0], np.int32), HEADS),
        "mask": ("Attention", X, WEIGHTS, BIAS, MASK, HEADS),
        "with a past": (
            "Attention", X, WEIGHTS, BIAS, None, np.stack(PAST), {**HEADS, "outputs": 2, "unidirectional": 1}),
        "other sizes of values": ("Attention", X, numbers(6, 40), numbers(40), {**HEADS, "qkv_hidden_sizes": [16, 16, 8]}),
    }  # fmt: skip

    def test_multi_head_attention(self):
        self.assert_cases(self.CASES)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(
            NotImplementedError,
            "MultiHeadAttention with queries, keys and values in one tensor is not handled",
        ):
            self.reference("MultiHeadAttention", numbers(2, 3, 2, 3, 8), **self.HEADS)
        length = np.array([3], np.int32)
        with self.assertRaisesRegex(
            NotImplementedError, "MultiHeadAttention with the cache of a beam search is not handled"
        ):
            self.reference(
                "MultiHeadAttention",
                self.Q,
                self.K,
                self.V,
                None,
                None,
                None,
                *self.PAST,
                length,
                **self.HEADS,
            )
        with self.assertRaisesRegex(
            NotImplementedError,
            "Attention with do_rotary or past_present_share_buffer is not handled",
        ):
            self.reference("Attention", self.X, self.WEIGHTS, self.BIAS, **self.HEADS, do_rotary=1)
        mask = np.ones((2, 1, 8, 8), np.int32)
        with self.assertRaisesRegex(NotImplementedError, r"a mask of shape \(2, 1, 8, 8\) is not handled"):
            self.reference("Attention", self.X, self.WEIGHTS, self.BIAS, mask, **self.HEADS)

    def test_attention(self):
        self.assert_cases(self.WITH_WEIGHTS)


class TestRotaryEmbedding(OperatorTestCase):
    COS, SIN = numbers(9, 4), numbers(9, 4, seed=1)
    ROWS, HEADS = numbers(2, 3, 16), numbers(2, 2, 3, 8)
    PLACES = np.array([[0, 1, 2], [4, 5, 8]])
    CASES = {
        "rows": ("RotaryEmbedding", ROWS, PLACES, COS, SIN),
        "heads apart": ("RotaryEmbedding", HEADS, PLACES, COS, SIN),
        "the first position": ("RotaryEmbedding", HEADS, np.array([5]), COS, SIN),
        "neighbours are pairs": ("RotaryEmbedding", HEADS, PLACES, COS, SIN, {"interleaved": 1}),
        "a part of each head": (
            "RotaryEmbedding", ROWS, PLACES, COS[:, :2].copy(), SIN[:, :2].copy(), {"rotary_embedding_dim": 4, "num_heads": 2}),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(
            NotImplementedError, "RotaryEmbedding with is_packed_batching is not handled"
        ):
            self.reference(
                "RotaryEmbedding", self.HEADS, self.PLACES, self.COS, self.SIN, is_packed_batching=1
            )


class TestGroupQueryAttention(OperatorTestCase):
    SIZES = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3}
    COS, SIN = numbers(20, 8), numbers(20, 8, seed=1)

    def arguments(self, rows: int, past: int, room: int = 0, lengths: tuple = ()) -> list:
        """Queries, keys, values, the past and the lengths."""
        total = rows + past
        lengths = np.array(lengths or [total, total], np.int32) - 1
        room = room or past
        cache = [numbers(2, 2, room, 16, seed=seed) if room else None for seed in (1, 2)]
        return [
            numbers(2, rows, 64), numbers(2, rows, 32, seed=3), numbers(2, rows, 32, seed=4), *cache,
            lengths, np.array(total, np.int32),
        ]  # fmt: skip

    def test_the_first_call(self):
        self.assert_same("GroupQueryAttention", *self.arguments(5, 0), **self.SIZES)

    def test_one_more_token(self):
        self.assert_same("GroupQueryAttention", *self.arguments(1, 6), **self.SIZES)

    def test_samples_of_different_lengths(self):
        self.assert_same("GroupQueryAttention", *self.arguments(1, 6, lengths=(4, 7)), **self.SIZES)

    def test_options(self):
        tables = {
            "halves are turned": ({"do_rotary": 1}, (self.COS, self.SIN)),
            "neighbours are turned": ({"do_rotary": 1, "rotary_interleaved": 1}, (self.COS, self.SIN)),
            "a window": ({"local_window_size": 3}, ()),
            "a cap": ({"softcap": 0.7}, ()),
            "a scale": ({"scale": 0.2}, ()),
            "a sink": ({"smooth_softmax": 1}, ()),
            "what is added": ({}, (None, None, None, numbers(2, 1, 1, 7))),
            "a sink for each head": ({}, (None, None, None, None, numbers(4))),
        }
        for promise, (attributes, more) in tables.items():
            with self.subTest(promise):
                self.assert_same(
                    "GroupQueryAttention", *self.arguments(1, 6), *more, **self.SIZES, **attributes
                )

    def test_what_is_refused(self):
        nothing = [None] * 5
        cases = [
            ((), {"qk_output": 1}),
            ((), {"causal": 0}),
            ((), {"sliding_window_cache": 1}),
            ((), {"v_quant_type": "PER_TENSOR"}),
            ((*nothing, None, numbers(1)), {}),
            ((*nothing, None, None, None, numbers(16)), {}),
        ]
        for more, attributes in cases:
            with (
                self.subTest(**attributes),
                self.assertRaisesRegex(
                    NotImplementedError,
                    "causal=0, sliding_window_cache, a quantized cache or norms is not handled",
                ),
            ):
                self.reference(
                    "GroupQueryAttention",
                    *self.arguments(1, 6),
                    *more,
                    num_heads=4,
                    kv_num_heads=2,
                    **attributes,
                )

    def test_what_is_harmless(self):
        harmless = {"k_quant_type": "NONE", "qk_norm_epsilon": 1e-5}
        self.assert_same("GroupQueryAttention", *self.arguments(1, 6), **self.SIZES, **harmless)

    def test_turned_at_given_positions(self):
        places = np.array([[3, 4, 5, 6, 9], [0, 2, 4, 6, 8]])
        for promise, rows, past in (("the first call", 5, 0), ("a later one", 1, 4)):
            with self.subTest(promise):
                more = self.COS, self.SIN, places[:, :rows].copy()
                given = self.arguments(rows, past)
                self.assert_same("GroupQueryAttention", *given, *more, **self.SIZES, do_rotary=1)

    def test_samples_of_different_lengths_are_turned(self):
        given = self.arguments(1, 6, lengths=(4, 7))
        self.assert_same("GroupQueryAttention", *given, self.COS, self.SIN, **self.SIZES, do_rotary=1)

    def test_all_in_one_tensor(self):
        given = self.arguments(5, 0)
        self.assert_same(
            "GroupQueryAttention", np.concatenate(given[:3], axis=-1), None, None, *given[3:], **self.SIZES
        )


class TestRegistry(unittest.TestCase):
    def test_an_operator_twice(self):
        with self.assertRaisesRegex(ValueError, "com.microsoft.Gelu is computed twice"):
            computes("Gelu")(abs)

    def test_each_operator_has_a_case(self):
        texts = [path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py")]
        missing = [
            operator.__name__
            for operator in OPERATORS
            if not any(re.search(rf"\b{operator.__name__}\b", text) for text in texts)
        ]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
