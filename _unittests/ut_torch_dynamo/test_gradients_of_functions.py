"""Gradients of pointwise functions."""

import unittest

import torch
from torch.nn import functional as F

from _unittests.ut_torch_dynamo.gradient_case import (
    FLAT,
    POSITIVE,
    GradientTestCase,
    normal,
)


class TestPointwise(GradientTestCase):
    CASES = {
        "relu": (F.relu, FLAT),
        "gelu": (F.gelu, FLAT),
        "gelu, tanh": (lambda x: F.gelu(x, approximate="tanh"), FLAT),
        "silu": (F.silu, FLAT),
        "mish": (F.mish, FLAT),
        "elu": (F.elu, FLAT),
        "selu": (F.selu, FLAT),
        "celu": (F.celu, FLAT),
        "leaky_relu": (F.leaky_relu, FLAT),
        "prelu": (torch.nn.PReLU(5), FLAT),
        "hardswish": (F.hardswish, FLAT * 3),
        "hardsigmoid": (F.hardsigmoid, FLAT * 3),
        "hardtanh": (F.hardtanh, FLAT),
        "relu6": (F.relu6, FLAT * 4),
        "softplus": (F.softplus, FLAT),
        "softsign": (F.softsign, FLAT),
        "softshrink": (F.softshrink, FLAT),
        "logsigmoid": (F.logsigmoid, FLAT),
        "glu": (lambda x: F.glu(x, -1), normal(3, 4)),
        "sigmoid": (torch.sigmoid, FLAT),
        "tanh": (torch.tanh, FLAT),
        "exp, log, sqrt, rsqrt": (lambda x: (x.exp(), x.log(), x.sqrt(), x.rsqrt()), POSITIVE),
        "sin, cos, tan, atan": (lambda x: (x.sin(), x.cos(), x.tan(), x.atan()), FLAT),
        "erf, sinh, cosh, expm1, log1p": (
            lambda x: (x.erf(), x.sinh(), x.cosh(), x.expm1(), x.log1p()), POSITIVE),
        "abs, sign, floor, square, reciprocal": (
            lambda x: (x.abs(), x.sign() * x, x.floor() * x, x.square(), x.reciprocal()), FLAT),
        "pow": (lambda x, y: (x**2.5, x**y, 2**x), POSITIVE, FLAT),
        "arithmetic that broadcasts": (
            lambda x, y: (x + y, x - y, x * y, x / y, torch.atan2(x, y)), FLAT, POSITIVE[:, :1]),
        "where": (lambda x, y: torch.where(x > 0, x, y), FLAT, POSITIVE),
        "maximum, minimum, clamp": (
            lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(-0.5, 0.5)), FLAT, POSITIVE),
        "lerp, addcmul, addcdiv": (
            lambda x, y: (torch.lerp(x, y, 0.3), torch.addcmul(x, y, y), torch.addcdiv(x, y, y)),
            FLAT, POSITIVE),
        "sgn": (lambda x: torch.sgn(x) * x, FLAT),
        "a sum, whose gradients are given": (lambda x, y: x + y, FLAT, POSITIVE),
        "masked_fill": (lambda x: x.masked_fill(x > 0, 2.0), FLAT),
        "float16": (F.gelu, FLAT.half()),
        "bfloat16": (F.silu, FLAT.bfloat16()),
        "float64": (F.silu, FLAT.double()),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_functions(self.CASES)


if __name__ == "__main__":
    unittest.main()
