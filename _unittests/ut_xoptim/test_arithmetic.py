"""Rules of arithmetic."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase


class TestArithmetic(RuleTestCase):
    BECOME = {
        "MulReciprocal": [
            ("float[N,3] x, float[3] w", "r = Reciprocal(w) y = Mul(r, x)", ["Div"]),
            ("float[3] x, float[3] w", "a = Abs(x) r = Reciprocal(a) y = Mul(w, r)", ["Abs", "Div"]),
        ],
        "DivOne": [("float[3] x", "one = Constant <value_float=1.0> () y = Div(one, x)", ["Reciprocal"])],
        "NegNeg": [("float[3] x", "a = Neg(x) b = Neg(a) y = Relu(b)", ["Relu"])],
        "NotNot": [("bool[3] x", "a = Not(x) b = Not(a) y = Cast<to=1>(b)", ["Cast"])],
        "AddNeg": [("float[3] x, float[3] w", "n = Neg(w) y = Add(n, x)", ["Sub"])],
        "SubNeg": [("float[3] x, float[3] w", "n = Neg(w) y = Sub(x, n)", ["Add"])],
        "NotWhere": [("bool[3] c, float[3] x", "n = Not(c) z = Neg(x) y = Where(n, x, z)", ["Neg", "Where"])],
        "FactorOne": [
            ("float[N,3] x", "one = Constant <value_float=1.0> () m = Mul(one, x) y = Relu(m)", ["Relu"]),
            ("float[N,3] x", "one = Constant <value_float=1.0> () m = Div(x, one) y = Relu(m)", ["Relu"]),
        ],
        "TermZero": [
            ("float[N,3] x", "zero = Constant <value_float=0.0> () m = Sub(x, zero) y = Relu(m)", ["Relu"]),
            ("float[N,3] x", "zero = Constant <value_float=0.0> () m = Add(zero, x) y = Relu(m)", ["Relu"]),
        ],
    }
    STAY = {
        "MulReciprocal": [
            (
                "float[3] x",
                "r = Reciprocal(x) m = Mul(r, x) y = Add(m, r)",
            ),  # another one reads the reciprocal
        ],
        "DivOne": [("float[3] x", "two = Constant <value_float=2.0> () y = Div(two, x)")],
        "NegNeg": [("float[3] x", "a = Neg(x) b = Abs(a) y = Neg(b)")],
        "FactorOne": [
            ("float[3] x", "one = Constant <value_float=1.0> () y = Div(one, x)"),
            ("float[3] x", "two = Constant <value_float=2.0> () y = Mul(two, x)"),
            ("float[N] x", "ones = Constant <value = float[1,1] {1}> () y = Mul(ones, x)", "float[1,N]"),
        ],
        "TermZero": [("float[3] x", "zero = Constant <value_float=0.0> () y = Sub(zero, x)")],
    }

    def test_they_fire(self):
        for rule, cases in self.BECOME.items():
            for inputs, nodes, expected in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    shape = "[N,3]" if "[N,3]" in inputs else "[3]"
                    self.assert_becomes(
                        f"agraph ({inputs}) => (float{shape} y) {{ {nodes} }}", expected, rule=rule
                    )

    def test_they_do_not_fire(self):
        for rule, cases in self.STAY.items():
            for inputs, nodes, *result in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    self.assert_stays(
                        f"agraph ({inputs}) => ({(result or ['float[3]'])[0]} y) {{ {nodes} }}", rule=rule
                    )


if __name__ == "__main__":
    unittest.main()
