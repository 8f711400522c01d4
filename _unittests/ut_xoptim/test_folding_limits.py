"""Constants that would make weights or biases infinite, or rob them of digits, stay beside the products."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

ROWS = "float[N,2] x", "float[N,2]"
LAYERS = "float[N,5,2] x", "float[N,5,2]"
IMAGE = "float[N,1,3,3] x", "float[N,2,2,2]"


def vector(name, *values):
    """A Constant node of these numbers."""
    return f"{name} = Constant <value=float[{len(values)}]{{{','.join(map(str, values))}}}> ()"


def square(value):
    """A weight of two rows, with one large number."""
    return f"w = Constant <value=float[2,2]{{{value},1,2,3}}> ()"


def planes(value):
    """A weight of two channels, with one large number."""
    return f"w = Constant <value=float[2,1,2,2]{{{value},1,2,3,4,5,6,7}}> ()"


def norm(scale, shift=0):
    """The constants of a BatchNormalization of two channels."""
    numbers = {"g": (scale, 1), "h": (shift, 1), "m": (0, 0), "v": (1, 1)}
    return " ".join(vector(name, *values) for name, values in numbers.items())


FACTORS, BIAS = vector("c", "1e30", 1), vector("b", "3e38", 1)
NORM = "BatchNormalization(p, g, h, m, v)"


class TestFoldingLimits(RuleTestCase):
    BECOME = {
        "ScaleOfProduct": [
            (*ROWS, f"{square('1e10')} {vector('c', '1e5', 0)} p = Gemm(x, w) y = Mul(p, c)", ["Gemm"]),
            (*ROWS, f"{square('1e10')} {vector('c', '1e-5', 2)} p = Gemm(x, w) y = Div(p, c)", ["Gemm"]),
        ],
        "ScaleOfLinear": [
            (*LAYERS, f"{square('1')} {vector('c', '1e-12', 0)} p = MatMul(x, w) y = Mul(p, c)", ["MatMul"]),
        ],
        "BiasOfProduct": [
            (*ROWS, f"{square('1')} {BIAS} p = Gemm(x, w) y = Add(p, b)", ["Gemm"]),
            (*ROWS, f"{square('1')} {vector('b', '-inf', 1)} {vector('c', 1, 2)} p = Gemm(x, w, b) y = Add(p, c)",
             ["Gemm"]),
        ],
        "BatchNormOfProduct": [(*IMAGE, f"{planes('1e3')} {norm('1e-30')} p = Conv(x, w) y = {NORM}", ["Conv"])],
    }  # fmt: skip
    STAY = {
        "ScaleOfProduct": [
            (*ROWS, f"{square('1e10')} {FACTORS} p = Gemm(x, w) y = Mul(p, c)"),
            (*ROWS, f"{square('1e35')} {vector('c', '1e5', 1)} p = Gemm(x, w) y = Mul(p, c)"),
            (*ROWS, f"{square('-1e35')} {vector('c', '1e5', 1)} p = Gemm(x, w) y = Mul(p, c)"),
            (*ROWS, f"{square('1')} {vector('c', '1e-30', 1)} p = Gemm(x, w) y = Mul(p, c)"),
            (*ROWS, f"{square('1')} {vector('c', '1e-30', 1)} p = Gemm(x, w) y = Div(p, c)"),
            (*ROWS, f"{square('1')} {BIAS} {vector('c', 2, 1)} p = Gemm(x, w, b) y = Mul(p, c)"),
            (*IMAGE, f"{planes('1e35')} c = Constant <value_float=10000.0> () p = Conv(x, w) y = Mul(p, c)"),
        ],
        "ScaleOfLinear": [
            (*LAYERS, f"{square('1e10')} {FACTORS} p = MatMul(x, w) y = Mul(p, c)"),
            (*LAYERS, f"{square('1e35')} c = Constant <value_float=10000.0> () p = MatMul(x, w) y = Mul(p, c)"),
            (*LAYERS, f"{square('1')} {BIAS} {vector('c', 2, 1)} p = MatMul(x, w) q = Add(p, b) y = Mul(q, c)"),
        ],
        "ScaleOfHeads": [
            (*LAYERS, f"{square('1e35')} c = Constant <value_float=1e-4> () p = MatMul(x, w) y = Div(p, c)"),
        ],
        "BiasOfProduct": [(*ROWS, f"{square('1')} {BIAS} p = Gemm(x, w, b) y = Add(p, b)")],
        "BatchNormOfProduct": [
            (*IMAGE, f"{planes('1e10')} {norm('1e30')} p = Conv(x, w) y = {NORM}"),
            (*IMAGE, f"{planes('1')} {BIAS} {norm('2')} p = Conv(x, w, b) y = {NORM}"),
            (*IMAGE, f"{planes('1')} {BIAS} {norm('1', '3e38')} p = Conv(x, w, b) y = {NORM}"),
        ],
        "BatchNormOfLinear": [(*ROWS, f"{square('1e10')} {norm('1e30')} p = MatMul(x, w) y = {NORM}")],
        "ProductOfBatchNorm": [
            (*ROWS, f"{square('1e10')} {norm('1e30')} p = Identity(x) q = {NORM} y = Gemm(q, w)"),
            (*ROWS, f"{square('1e10')} {norm('1', '1e30')} p = Identity(x) q = {NORM} y = Gemm(q, w)"),
        ],
    }  # fmt: skip

    def test_rules(self):
        self.assert_table(self.BECOME, self.STAY)


if __name__ == "__main__":
    unittest.main()
