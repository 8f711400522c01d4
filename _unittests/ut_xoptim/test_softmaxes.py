"""Rules of Softmax by hand."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize

LAST = "axes = Constant <value = int64[1] {-1}> ()"
MOST = "most = ReduceMax <keepdims=1> (x, axes)"
SHIFTED = f"{LAST} {MOST} s = Sub (x, most)"
POWERS = f"{SHIFTED} e = Exp (s)"
TOTAL = "t = ReduceSum <keepdims=1> (e, axes)"
SOFTMAX = f"{POWERS} {TOTAL} y = Div (e, t)"
LOG_SOFTMAX = f"{POWERS} {TOTAL} l = Log (t) y = Sub (s, l)"


def row(nodes, kind="float[N,3,M]"):
    """The inputs, the results and the nodes of a model."""
    return f"{kind} x", kind, nodes


class TestSoftmaxes(RuleTestCase):
    BECOME = {
        "SoftmaxOfShifted": [
            (*row(f"{SHIFTED} y = Softmax <axis=-1> (s)"), ["Softmax"]),
            (*row(f"{SHIFTED} y = Softmax (s)"), ["Softmax"]),
            (*row(f"{SHIFTED} y = LogSoftmax <axis=2> (s)"), ["LogSoftmax"]),
            (*row(f"{SHIFTED.replace('{-1}', '{1}')} y = Softmax <axis=-2> (s)"), ["Softmax"]),
            (*row(f"{SHIFTED} y = Softmax <axis=-1> (s)", "double[N,3,M]"), ["Softmax"]),
        ],
        "SoftmaxOfPowers": [
            (*row(SOFTMAX), ["Softmax"]),
            (*row(SOFTMAX.replace("{-1}", "{2}"), "double[N,3,M]"), ["Softmax"]),
        ],
        "LogSoftmaxOfPowers": [(*row(LOG_SOFTMAX), ["LogSoftmax"])],
    }
    STAY = {
        "SoftmaxOfShifted": [
            row(f"{SHIFTED.replace('{-1}', '{1}')} y = Softmax <axis=-1> (s)"),
            row(f"{SHIFTED.replace('[1] {-1}', '[2] {1, 2}')} y = Softmax <axis=-1> (s)"),
            row(f"{SHIFTED.replace('(x, axes)', '(x)')} y = Softmax <axis=-1> (s)"),
            row(f"{SHIFTED.replace('ReduceMax', 'ReduceMin')} y = Softmax <axis=-1> (s)"),
            row(f"{SHIFTED.replace('keepdims=1', 'keepdims=0')} y = Softmax <axis=-1> (s)", "float[3,3]"),
            row(f"{SHIFTED.replace('Sub (x, most)', 'Sub (most, x)')} y = Softmax <axis=-1> (s)"),
        ],
        "SoftmaxOfPowers": [
            row(SOFTMAX.replace("{-1}", "{1}")),
            row(SOFTMAX.replace("(e, axes)", "(e)")),
            row(SOFTMAX.replace("Div (e, t)", "Div (t, e)")),
            row(SOFTMAX.replace(TOTAL, "q = Mul (e, e) t = ReduceSum <keepdims=1> (q, axes)")),
            (*row(f"{SOFTMAX} z = Neg (e)"), "float[N,3,M] z"),
        ],
        "LogSoftmaxOfPowers": [
            row(LOG_SOFTMAX.replace("{-1}", "{1}")),
            row(LOG_SOFTMAX.replace("Sub (s, l)", "Sub (l, s)")),
            row(LOG_SOFTMAX.replace("Sub (s, l)", "Sub (x, l)")),
        ],
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_infinities(self):
        """Rows of infinities, of NaN, of numbers whose powers are not finite: the same as by hand."""
        infinite, huge = np.inf, 3e38
        rows = [
            [-infinite, -infinite, -infinite],
            [infinite, 1, 2],
            [np.nan, 1, 2],
            [-infinite, 1, 2],
            [huge, -huge, 0],
            [88, 89, -100],
        ]
        x = np.array([rows], np.float32)
        for nodes in (f"{SHIFTED} y = Softmax <axis=-1> (s)", SOFTMAX, LOG_SOFTMAX):
            with self.subTest(nodes):
                model = parsed(f"agraph (float[N,R,C] x) => (float[N,R,C] y) {{ {nodes} }}")
                optimized = optimize(model)
                self.assertEqual(1, len(optimized.graph.node))
                wanted, got = (session(each).run(None, {"x": x})[0] for each in (model, optimized))
                np.testing.assert_allclose(got, wanted, rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
