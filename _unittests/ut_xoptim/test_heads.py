"""Rules of grouped heads."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

REPEATED = """
axes = Constant <value=int64[1]{2}> ()
spread = Constant <value=int64[5]{1,1,AGAIN,1,1}> ()
heads = Constant <value=int64[4]{0,HEADS,-1,8}> ()
u = Unsqueeze (k, axes) e = Expand (u, spread) r = Reshape (e, heads)
"""


def repeated(again=3, heads=6):
    """Each head of k several times in a row, as ``r``."""
    return REPEATED.replace("AGAIN", str(again)).replace("HEADS", str(heads))


class TestGroupedHeads(RuleTestCase):
    def test_scores(self):
        self.assert_becomes(
            f"""agraph (float[B,6,S,8] q, float[B,2,3,8] k) => (float[B,6,S,3] y)
            {{ {repeated()} t = Transpose <perm=[0,1,3,2]> (r) y = MatMul (q, t) }}""",
            ["Transpose", "Reshape", "MatMul", "Reshape"],
            rule="ScoresOfGroupedHeads",
        )

    def test_values(self):
        self.assert_becomes(
            f"""agraph (float[B,6,S,3] q, float[B,2,3,8] k) => (float[B,6,S,8] y)
            {{ {repeated()} y = MatMul (q, r) }}""",
            ["Reshape", "MatMul", "Reshape"],
            rule="ValuesOfGroupedHeads",
        )

    def test_a_batch_that_broadcasts(self):
        for one, many in ((1, 4), (4, 1), (1, 1)):
            with self.subTest(queries=one, values=many):
                inputs = f"float[{one},6,S,3] q, float[{many},2,3,8] k"
                self.assert_becomes(
                    f"agraph ({inputs}) => (float[N,6,S,8] y) {{ {repeated()} y = MatMul (q, r) }}",
                    ["Reshape", "MatMul", "Reshape"],
                    rule="ValuesOfGroupedHeads",
                )

    def test_a_number_of_positions_that_is_not_known(self):
        self.assert_becomes(
            f"agraph (float[B,6,S,P] q, float[B,2,P,8] k) => (float[B,6,S,8] y) {{ {repeated()} y = MatMul (q, r) }}",
            ["Reshape", "MatMul", "Reshape"],
            rule="ValuesOfGroupedHeads",
        )

    def test_heads_that_go_round(self):
        """k of heads a, b as a, b, a, b: another order than a, a, b, b."""
        text = repeated().replace("int64[1]{2}", "int64[1]{1}").replace("{1,1,3,1,1}", "{1,3,1,1,1}")
        self.assert_stays(
            f"agraph (float[B,6,S,3] q, float[B,2,3,8] k) => (float[B,6,S,8] y) {{ {text} y = MatMul (q, r) }}",
            rule="ValuesOfGroupedHeads",
        )

    def test_another_user_of_the_repeated_heads(self):
        self.assert_stays(
            f"""agraph (float[B,6,S,3] q, float[B,2,3,8] k) => (float[B,6,S,8] y, float[B,6,3,8] z)
            {{ {repeated()} y = MatMul (q, r) z = Neg(r) }}""",
            rule="ValuesOfGroupedHeads",
        )

    def test_another_transposition(self):
        self.assert_stays(
            f"""agraph (float[B,3,S,8] q, float[B,2,3,8] k) => (float[B,3,S,6] y)
            {{ {repeated()} t = Transpose <perm=[0,2,3,1]> (r) y = MatMul (q, t) }}""",
            rule="ScoresOfGroupedHeads",
        )


if __name__ == "__main__":
    unittest.main()
