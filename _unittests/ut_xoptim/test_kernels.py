"""Rules of operators of many elements, whose kernels are slow."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize


def slopes(*numbers, shape=None):
    """A Constant of these slopes."""
    return f"w = Constant <value = float[{shape or len(numbers)}] {{{', '.join(map(str, numbers))}}}> ()"


FAST = OptimizationOptions("default+onnxruntime")
AXIS = "a = Constant <value = int64[1] {-1}> ()"
LOG_SUM_EXP = ["ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add"]


class TestManyElements(RuleTestCase):
    """Activations whose kernels take element by element."""

    BECOME = {
        "PreluOfMany": [
            (
                "float[2,2048] x",
                "float[2,2048]",
                f"{slopes(1, -0.5, shape='2,1')} y = PRelu(x, w)",
                ["Mul", "Max"],
            ),
            (
                "float[B,2,128,128] x",
                "float[B,2,128,128]",
                f"{slopes(0.1, 1.5, shape='2,1,1')} y = PRelu(x, w)",
                ["Relu", "Min", "Mul", "Add"],
            ),
            (
                "float[2,128,128] x",
                "float[2,128,128]",
                f"{slopes(0.1, 0, shape='2,1,1')} y = PRelu(x, w)",
                ["Relu", "Min", "Mul", "Add"],
            ),
        ],
        "MishOfMany": [
            (
                "float[N,128,128] x",
                "float[N,128,128]",
                nodes,
                [*before, "Min", "Exp", "Add", "Mul", "Add", "Div", "Mul"],
            )
            for before, nodes in (
                ([], "y = Mish(x)"),
                (["Mul"], "ten = Constant <value_float=30.0> () z = Mul(x, ten) y = Mish(z)"),
                ([], "s = Softplus(x) t = Tanh(s) y = Mul(x, t)"),
            )
        ],
        "SoftplusOfMany": [
            (
                "float[N,256,256] x",
                "float[N,256,256]",
                nodes,
                [*before, "Abs", "Neg", "Exp", "Add", "Sub", "Sub", "Relu", "Log", "Sub", "Add"],
            )
            for before, nodes in (
                ([], "y = Softplus(x)"),
                (["Mul"], "ten = Constant <value_float=30.0> () z = Mul(x, ten) y = Softplus(z)"),
            )
        ],
        "SoftmaxOfChannels": [
            (f"{dtype}[{shape}] x", f"{dtype}[{shape}]", nodes, ["Reshape", operator, "Reshape"])
            for operator in ("Softmax", "LogSoftmax")
            for dtype, shape, nodes in (
                ("float", "N,6,4,5", f"y = {operator}<axis=1>(x)"),
                ("float", "N,6,4,5", f"y = {operator}<axis=-3>(x)"),
                ("float", "2,N,6,2,4,5", f"y = {operator}<axis=2>(x)"),
                ("float", "N,M,4,5", f"y = {operator}<axis=1>(x)"),
                ("float", "N,M,20,50", f"y = {operator}<axis=1>(x)"),
                ("float16", "N,6,20,50", f"y = {operator}<axis=1>(x)"),
            )
        ]
        + [
            (f"float[{shape}] x", f"float[{shape}]", nodes, ["ReduceMax", "Sub", "Exp", "ReduceSum", *after])
            for shape, nodes, after in (
                ("N,6,20,50", "y = Softmax<axis=1>(x)", ["Div"]),
                ("N,6,H,W", "y = Softmax<axis=-3>(x)", ["Div"]),
                ("6,H,W", "y = LogSoftmax<axis=0>(x)", ["Log", "Sub"]),
            )
        ],
        "LogSumExpOfMany": [
            ("float[64,300] x", f"float[{result}]", nodes, [*LOG_SUM_EXP, *after])
            for result, nodes, after in (
                ("64,1", f"{AXIS} y = ReduceLogSumExp(x, a)", []),
                ("64", f"{AXIS} y = ReduceLogSumExp<keepdims=0>(x, a)", ["Squeeze"]),
                ("1,1", "y = ReduceLogSumExp(x)", []),
            )
        ],
    }
    STAY = {
        "SoftmaxOfChannels": [
            ("float[N,6,4,5] x", "float[N,6,4,5]", "y = Softmax<axis=2>(x)"),
            ("float[N,6,4,5] x", "float[N,6,4,5]", "y = LogSoftmax(x)"),
            ("double[N,6,H,5] x", "double[N,6,H,5]", "y = Softmax<axis=1>(x)"),
            ("float[N,C,H,5] x", "float[N,C,H,5]", "y = Softmax<axis=1>(x)"),
            ("float[N,6,3,5] x", "float[N,6,3,5]", "y = Softmax<axis=1>(x)"),
        ],
        "LogSumExpOfMany": [
            ("float[64,200] x", "float[64,1]", f"{AXIS} y = ReduceLogSumExp(x, a)"),
            ("float[N,64,300] x, int64[1] i", "float[N,64,1]", "a = Sub(i, i) y = ReduceLogSumExp(x, a)"),
            ("float[16384,N] x", "float[16384,1]", f"{AXIS} y = ReduceLogSumExp(x, a)"),
            ("float[8192,4] x", "float[8192,1]", f"{AXIS} y = ReduceLogSumExp(x, a)"),
            ("float[64,300] x", "float[64,300]", "y = ReduceLogSumExp<noop_with_empty_axes=1>(x)"),
        ],
        "PreluOfMany": [
            ("float[N,2] x", "float[N,2]", f"{slopes(0.25, 0.5)} y = PRelu(x, w)"),
            ("float[2,2048] x", "float[2,2048]", f"{slopes(0.25, 1.5, shape='2,1')} y = PRelu(x, w)"),
            ("float[2,2048] x, float[2048] w", "float[2,2048]", "y = PRelu(x, w)"),
            (
                "float16[N,3] x",
                "float16[N,3]",
                "w = Constant <value = float16[1] {13312}> () y = PRelu(x, w)",
            ),
        ],
        "MishOfMany": [
            ("float[N,128,64] x", "float[N,128,64]", "y = Mish(x)"),
            (
                "float[128,128] x",
                "float[128,128]",
                "s = Softplus(x) t = Tanh(s) y = Mul(x, t)",
                "float[128,128] s",
            ),
        ],
        "SoftplusOfMany": [
            ("float[N,128,256] x", "float[N,128,256]", "y = Softplus(x)"),
            ("float[256,256] x", "float[256,256]", "s = Softplus(x) y = Tanh(s)"),
        ],
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_infinite_exponents(self):
        """Rows of them, and one beside numbers."""
        x = np.zeros((4, 5000), np.float32)
        x[0] = -np.inf
        x[1, 7], x[2, 3], x[3, 4] = np.inf, -np.inf, np.nan
        text = f"agraph (float[4,5000] x) => (float[4] y) {{ {AXIS} y = ReduceLogSumExp<keepdims=0>(x, a) }}"
        optimized = optimize(parsed(text), FAST)
        self.assertEqual([*LOG_SUM_EXP, "Squeeze"], [node.op_type for node in optimized.graph.node])
        got = session(optimized).run(None, {"x": x})[0]
        np.testing.assert_allclose(got, [-np.inf, np.inf, np.log(4999), np.nan], rtol=1e-6)

    def test_edges(self):
        """Infinity, NaN, numbers so large or so small that a power overflows or is 0."""
        edges = np.array(
            [-np.inf, -104, -90, -20, -1e-8, 0, 1e-8, 19.9, 20.1, 90, np.inf, np.nan], np.float32
        )
        x = np.resize(edges, (256, 256))
        for nodes, wanted in (
            ("y = Mish(x)", [np.nan, -104 * np.exp(-104), -90 * np.exp(-90)]),
            ("y = Softplus(x)", [0, np.exp(-104), np.exp(-90)]),
            (f"{slopes(*[0.5, -1] * 128)} y = PRelu(x, w)", [-np.inf, 104, -45]),
            (f"{slopes(*[0.5, 2] * 128)} y = PRelu(x, w)", [-np.inf, -208, -45]),
        ):
            model = parsed(f"agraph (float[256,256] x) => (float[256,256] y) {{ {nodes} }}")
            optimized = optimize(model, FAST)
            self.assertLess(1, len(optimized.graph.node))
            before, after = (session(item).run(None, {"x": x})[0] for item in (model, optimized))
            np.testing.assert_allclose(before, after, rtol=1e-6, atol=1e-36)
            np.testing.assert_allclose(after[0, :3], wanted, rtol=1e-5, atol=1e-41)


if __name__ == "__main__":
    unittest.main()
