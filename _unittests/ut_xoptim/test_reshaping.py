"""Rules of reshapes, squeezes and expansions."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase


class TestReshaping(RuleTestCase):
    BECOME = {
        "ReshapeReshape": [
            ("float[N,6] x", "float[6,N]", "s = Constant<value=int64[2]{-1,3}>() t = Constant<value=int64[2]{6,-1}>() a = Reshape(x, s) y = Reshape(a, t)", ["Reshape"]),
            ("float[2,3] x", "float[6]", "o = Constant<value=int64[1]{0}>() t = Constant<value=int64[1]{6}>() a = Unsqueeze(x, o) y = Reshape(a, t)", ["Reshape"]),
        ],
        "ReshapeNothing": [
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{-1,6}>() a = Reshape(x, s) y = Neg(a)", ["Neg"]),
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{0,6}>() a = Reshape(x, s) y = Neg(a)", ["Neg"]),
        ],
        "SqueezeUnsqueeze": [
            ("float[N,6] x", "float[N,6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{-2}>() a = Unsqueeze(x, o) b = Squeeze(a, p) y = Neg(b)", ["Neg"]),
        ],
        "UnsqueezeSqueeze": [
            ("float[N,1,6] x", "float[N,1,6]", "o = Constant<value=int64[1]{1}>() a = Squeeze(x, o) b = Unsqueeze(a, o) y = Neg(b)", ["Neg"]),
        ],
        "UnsqueezeUnsqueeze": [
            ("float[N,6] x", "float[1,N,6,1]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{-1}>() a = Unsqueeze(x, o) y = Unsqueeze(a, p)", ["Unsqueeze"]),
            ("float[N,6] x", "float[1,1,N,6]", "o = Constant<value=int64[1]{0}>() a = Unsqueeze(x, o) y = Unsqueeze(a, o)", ["Unsqueeze"]),
            ("float[N,6] x", "float[1,N,1,1,6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[2]{0,2}>() a = Unsqueeze(x, o) y = Unsqueeze(a, p)", ["Unsqueeze"]),
        ],
        "ExpandNothing": [
            ("float[2,6] x", "float[2,6]", "s = Constant<value=int64[2]{1,6}>() a = Expand(x, s) y = Neg(a)", ["Neg"]),
        ],
    }  # fmt: skip
    STAY = {
        "ReshapeReshape": [
            ("float[4,6] x", "float[3,8]", "s = Constant<value=int64[2]{3,8}>() t = Constant<value=int64[2]{0,-1}>() a = Reshape(x, s) y = Reshape(a, t)"),
        ],
        "ReshapeNothing": [("float[2,6] x", "float[6,2]", "s = Constant<value=int64[2]{6,2}>() y = Reshape(x, s)")],
        "SqueezeUnsqueeze": [
            ("float[1,6] x", "float[1,6]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{1}>() a = Unsqueeze(x, o) b = Squeeze(a, p) y = Neg(b)"),
        ],
        "UnsqueezeSqueeze": [
            ("float[N,1,6] x", "float[1,N,6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{0}>() a = Squeeze(x, o) y = Unsqueeze(a, p)"),
        ],
        "ExpandNothing": [
            ("float[1,6] x", "float[2,6]", "s = Constant<value=int64[2]{2,6}>() y = Expand(x, s)"),
            ("float[1,6] x, float[4,6] w", "float[4,6]", "s = Shape(w) y = Expand(x, s)"),
        ],
    }  # fmt: skip

    def test_they_fire(self):
        for rule, cases in self.BECOME.items():
            for inputs, result, nodes, expected in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    self.assert_becomes(
                        f"agraph ({inputs}) => ({result} y) {{ {nodes} }}", expected, rule=rule
                    )

    def test_they_do_not_fire(self):
        for rule, cases in self.STAY.items():
            for inputs, result, nodes in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    self.assert_stays(f"agraph ({inputs}) => ({result} y) {{ {nodes} }}", rule=rule)


if __name__ == "__main__":
    unittest.main()
