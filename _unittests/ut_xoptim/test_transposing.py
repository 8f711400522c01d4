"""Rules of transpositions."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase


class TestTransposeTranspose(RuleTestCase):
    RULE = "TransposeTranspose"

    def test_they_undo_each_other(self):
        self.assert_becomes(
            "agraph (float[N,3] x) => (float[N,3] y) { t = Transpose <perm=[1,0]> (x) u = Transpose (t) y = Relu(u) }",
            ["Relu"],
        )

    def test_they_are_one(self):
        self.assert_becomes(
            """agraph (float[2,3,4] x) => (float[3,4,2] y) {
            t = Transpose <perm=[0,2,1]> (x) y = Transpose <perm=[2,1,0]> (t) }""",
            ["Transpose"],
        )

    def test_an_output_keeps_its_name(self):
        self.assert_becomes(
            "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose (x) y = Transpose (t) }", ["Identity"]
        )

    def test_the_first_one_has_other_users(self):
        self.assert_becomes(
            "agraph (float[2,3] x) => (float[2,3] y, float[3,2] z) { t = Transpose (x) u = Transpose (t) z = Relu(t) y = Neg(u) }",
            ["Transpose", "Relu", "Neg"],
        )

    def test_something_between(self):
        self.assert_stays(
            "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose (x) r = Relu(t) y = Transpose (r) }"
        )

    def test_in_a_branch(self):
        self.assert_becomes(
            """agraph (bool c, float[2,3] x) => (float[2,3] y) {
            t = Transpose (x)
            y = If (c) <then_branch = a () => (float[2,3] z) { u = Transpose (t) z = Relu(u) },
                        else_branch = b () => (float[2,3] w) { w = Neg(x) }> }""",
            ["If"],
        )


class TestTransposeNothing(RuleTestCase):
    RULE = "TransposeNothing"

    def test_a_permutation_that_moves_nothing(self):
        self.assert_becomes(
            "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose <perm=[0,1]> (x) y = Relu(t) }", ["Relu"]
        )

    def test_a_permutation_that_moves(self):
        self.assert_stays("agraph (float[2,3] x) => (float[3,2] y) { t = Transpose (x) y = Relu(t) }")


if __name__ == "__main__":
    unittest.main()
