"""Operators of 8-bit integers and fused convolutions: the reference evaluator gives what onnxruntime gives."""

from __future__ import annotations

import unittest

import numpy as np

from _unittests.ut_reference.cases import OperatorTestCase, numbers


def codes(*shape: int, dtype: type = np.uint8, seed: int = 0) -> np.ndarray:
    """Codes that spread over the whole range."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def seven_bits(*shape: int) -> np.ndarray:
    """Weights in the half of the codes that products of uint8 and int8 without overflow need on older processors."""
    return codes(*shape, dtype=np.int8) // 2


def step(value: float) -> np.ndarray:
    """A scale."""
    return np.array(value, np.float32)


def zero(value: int, dtype: type = np.uint8) -> np.ndarray:
    """A zero point."""
    return np.array(value, dtype)


X, Y = codes(2, 3, 8), codes(2, 3, 8, seed=1)
A = (X, step(0.0217), zero(120))
B = (Y, step(0.0513), zero(100))
C = (step(0.0731), zero(128))
SIGNED = (codes(2, 3, 8, dtype=np.int8), step(0.0307), zero(-3, np.int8))
IMAGE = (codes(2, 4, 6, 6), step(0.0217), zero(120))
NHWC = (codes(2, 6, 6, 4), step(0.0217), zero(120))
WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
FILTER = (seven_bits(5, 4, 3, 3), step(0.0103), zero(0, np.int8))
FILTERS = (FILTER[0], np.linspace(0.01, 0.02, 5, dtype=np.float32), np.zeros(5, np.int8))
LEFT, RIGHT = (codes(3, 8), step(0.0217), zero(120)), (seven_bits(8, 5), step(0.0103), zero(2, np.int8))
BIAS = np.arange(-300, 200, 100, dtype=np.int32)


class TestPointwise(OperatorTestCase):
    CASES = {
        "a sum": ("QLinearAdd", *A, *B, *C),
        "a sum of signed codes": ("QLinearAdd", *SIGNED, *SIGNED, step(0.0419), zero(5, np.int8)),
        "a product": ("QLinearMul", *A, *B, step(0.217), zero(128)),
        "a sigmoid": ("QLinearSigmoid", *A, step(1 / 256), zero(0)),
        "a sigmoid of signed codes": ("QLinearSigmoid", *SIGNED, step(1 / 256), zero(-128, np.int8)),
        "a leaky relu": ("QLinearLeakyRelu", *A, *C, {"alpha": 0.2}),
        "a softmax": ("QLinearSoftmax", *A, step(1 / 256), zero(0), {"axis": -1, "opset": 13}),
        "a softmax of more axes": ("QLinearSoftmax", *A, step(1 / 256), zero(0), {"axis": 1, "opset": 11}),
        "a choice": ("QLinearWhere", X > 100, *A, *B, *C),
        "a concatenation": ("QLinearConcat", *C, *A, *B, {"axis": 1}),
        "codes of 16 bits": ("QuantizeLinear", 30 * numbers(3, 4), step(0.0103), zero(30000, np.uint16)),
        "codes for each channel": (
            "QuantizeLinear", numbers(3, 4), FILTERS[1][:4].copy(), np.arange(4, dtype=np.int8), {"axis": 1}),
        "floats of 16 bits": ("DequantizeLinear", codes(3, 4, dtype=np.int16), step(0.0103), zero(7, np.int16)),
        "floats for each channel": (
            "DequantizeLinear", codes(3, 4), FILTERS[1][:3].copy(), np.arange(3, dtype=np.uint8), {"axis": 0}),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)


class TestProducts(OperatorTestCase):
    CASES = {
        "codes": ("QGemm", *LEFT, *RIGHT, BIAS, step(0.0513), zero(100)),
        "floats": ("QGemm", *LEFT, *RIGHT, BIAS),
        "turned, without a bias": (
            "QGemm", LEFT[0].T.copy(), *LEFT[1:], RIGHT[0].T.copy(), *RIGHT[1:], None, step(0.0513), zero(100),
            {"transA": 1, "transB": 1, "alpha": 0.5}),
        "a scale for each column": ("QGemm", *LEFT, RIGHT[0], FILTERS[1], FILTERS[2], BIAS),
        "integers to floats": (
            "MatMulIntegerToFloat", LEFT[0], RIGHT[0], LEFT[1], RIGHT[1], LEFT[2], RIGHT[2], numbers(5)),
        "columns of integers to floats": (
            "MatMulIntegerToFloat", LEFT[0], RIGHT[0], LEFT[1], FILTERS[1], LEFT[2], FILTERS[2]),
        "rounded while it runs": ("DynamicQuantizeMatMul", numbers(3, 8), RIGHT[0], RIGHT[1], RIGHT[2], numbers(5)),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)


class TestImages(OperatorTestCase):
    SUM = numbers(2, 5, 3, 3)
    PICTURE, KERNEL = numbers(2, 4, 6, 6), numbers(5, 4, 3, 3)
    CASES = {
        "QLinearConv": ("QLinearConv", *IMAGE, *FILTER, *C, BIAS, {**WINDOW, "channels_last": 0}),
        "QLinearConv with the channels last": ("QLinearConv", *NHWC, *FILTERS, *C, BIAS, {**WINDOW, "channels_last": 1}),
        "QLinearAveragePool": ("QLinearAveragePool", *IMAGE, *C, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        "QLinearAveragePool with the channels last": (
            "QLinearAveragePool", *NHWC, *C, {"kernel_shape": [2, 2], "channels_last": 1}),
        "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", *IMAGE, *C, {"channels_last": 0}),
        "QLinearGlobalAveragePool with the channels last": ("QLinearGlobalAveragePool", *NHWC, *C, {"channels_last": 1}),
        "NhwcMaxPool": ("NhwcMaxPool", NHWC[0], WINDOW),
        "FusedConv with Relu": ("FusedConv", PICTURE, KERNEL, numbers(5), {**WINDOW, "activation": "Relu"}),
        "FusedConv with Clip": (
            "FusedConv", PICTURE, KERNEL, {**WINDOW, "activation": "Clip", "activation_params": [-0.5, 0.5]}),
        "FusedConv with a sum": ("FusedConv", PICTURE, KERNEL, numbers(5), SUM, {**WINDOW, "activation": "Relu"}),
        "FusedConv with Tanh": ("FusedConv", PICTURE, KERNEL, {**WINDOW, "activation": "Tanh"}),
        "FusedConv with Sigmoid": ("FusedConv", PICTURE, KERNEL, {**WINDOW, "activation": "Sigmoid"}),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)


if __name__ == "__main__":
    unittest.main()
