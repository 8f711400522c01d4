"""Rules of writes."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

NUMBERS = "z = Constant<value=int64[1]{0}>() one = Constant<value=int64[1]{1}>() two = Constant<value=int64[1]{2}>() three = Constant<value=int64[1]{3}>() four = Constant<value=int64[1]{4}>() five = Constant<value=int64[1]{5}>() six = Constant<value=int64[1]{6}>() many = Constant<value=int64[1]{18}>() all = Constant<value=int64[1]{9223372036854775807}>()"
ROWS = "float[N,5] x, float[5] v", "float[N,5]"
COLUMNS = "float[4,16] x, float[4] v", "float[4,16]"


def written(
    axis: str = "z", first: str = "two", second: str = "three", order: str = "p, u, q", at: int = 0
) -> str:
    """Two parts of x, and v between them."""
    return (
        f"{NUMBERS} u = Unsqueeze(v, {axis}) p = Slice(x, z, {first}, {axis}) q = Slice(x, {second}, all, {axis}) "
        f"y = Concat<axis={at}>({order})"
    )


class TestWriteOfPositions(RuleTestCase):
    LAST = "m = Constant<value=int64[1]{-1}>()"
    BECOME = {
        "WriteOfPositions": [
            (*ROWS, written(), ["ScatterND"]),
            (*ROWS, written(at=-2), ["ScatterND"]),
            (*ROWS, f"{NUMBERS} u = Unsqueeze(v, z) q = Slice(x, one, all, z) y = Concat<axis=0>(u, q)", ["ScatterND"]),
            ("float[3,5] x, float[5] v", "float[3,5]", f"{NUMBERS} {LAST} u = Unsqueeze(v, z) p = Slice(x, z, m, z) y = Concat<axis=0>(p, u)", ["ScatterND"]),
            ("float[N,5] x, float[1,5] v", "float[N,5]", written().replace("u = Unsqueeze(v, z)", "u = Neg(v)"), ["Neg", "ScatterND"]),
            ("bool[N] x, bool v", "bool[N]", written(), ["ScatterND"]),
            ("float[7,5] x, float[3,5] v", "float[7,5]", written(second="five").replace("u = Unsqueeze(v, z)", "u = Neg(v)"), ["Neg", "ScatterND"]),
            (*COLUMNS, written("one", at=1), ["Unsqueeze", "ScatterElements"]),
            ("float[2,4,20] x, float[2,4] v", "float[2,4,20]", written("two", at=2), ["Unsqueeze", "ScatterElements"]),
            ("float[N,16] x, float[N] v", "float[N,16]", written("one", at=-1), ["Unsqueeze", "Shape", "Expand", "ScatterElements"]),
        ]
    }  # fmt: skip
    STAY = {
        "WriteOfPositions": [
            (*ROWS, written(second="two")),  # it adds a row
            ("float[N,5] x, float[5] v", "float[M,5]", written(first="one")),  # it leaves one out
            (*ROWS, written(order="q, u, p")),
            # sizes: inference follows a Concat
            ("float[A,B,C] x, float[D] v", "int64[3]", written().replace("u = Unsqueeze(v, z) p = Slice(x", "u = Shape(v) s = Shape(x) p = Slice(s").replace("q = Slice(x", "q = Slice(s").replace("two, z) q = Slice(s, three", "one, z) q = Slice(s, two")),
            ("float[N,5] x, float[5] v", "float[M,5]", written()),  # two rows become three
            ("float[N,5] x, float[2,5] v", "float[M,5]", written().replace("u = Unsqueeze(v, z)", "u = Neg(v)")),
            ("float[N,5] x, float[N,5] w, float[5] v", "float[N,5]", written().replace("q = Slice(x", "q = Slice(w")),
            (*ROWS, written() + " r = Slice(y, z, two, z)", "float[2,5] r"),
            (  # most of the rows
                "float[7,5] x, float[4,5] v",
                "float[7,5]",
                written(second="six").replace("u = Unsqueeze(v, z)", "u = Neg(v)"),
            ),
            (
                "float[N,5] x, float[17,5] v",
                "float[N,5]",
                written(first="one", second="many").replace("u = Unsqueeze(v, z)", "u = Neg(v)"),
            ),
            ("float[4,15] x, float[4] v", "float[4,15]", written("one", at=1)),
            ("float[4,N] x, float[4] v", "float[4,N]", written("one", at=1)),
            ("float[4,16,3] x, float[4,3] v", "float[4,16,3]", written("one", at=1)),
            ("float[4,16] x, float[4,2] v", "float[4,16]", written("one", second="four", at=1).replace("u = Unsqueeze(v, one)", "u = Neg(v)")),
            ("float[2,2,4,16] x, float[2,2,4] v", "float[2,2,4,16]", written("three", at=3)),
        ]
    }  # fmt: skip

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)


if __name__ == "__main__":
    unittest.main()
