"""Rules of patches of images."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase
from _unittests.ut_xoptim.test_slicing import ALL, constants

NUMBERS = constants(zero=[0], one=[1], two=[2], e=[ALL], h=[1], w=[2])
EVEN = "a = Slice(x, zero, e, h, two) "
ROWS = EVEN + "b = Slice(x, one, e, h, two) "
QUARTERS = (
    NUMBERS + ROWS + "aa = Slice(a, zero, e, w, two) ba = Slice(b, zero, e, w, two) "
    "ab = Slice(a, one, e, w, two) bb = Slice(b, one, e, w, two) "
)
BOTH = constants(
    z=[0, 0], o=[1, 0], p=[0, 1], q=[1, 1], e=[ALL, ALL], a=[1, 2], n=[-3, -2], s=[2, 2], g=[6, 8]
)
ALONE = (
    "i = Slice(x, z, e, a, s) j = Slice(x, o, e, a, s) k = Slice(x, p, e, n, s) l = Slice(x, q, {0}, a, s) "
)
MOVED = ["Reshape", "Transpose", "Reshape"]


class TestPatches(RuleTestCase):
    RULE = "ConcatOfInterleaved"

    BECOME = {
        "ConcatOfInterleaved": [
            ("float[N,6,8,3] x", "float[N,3,4,12]", QUARTERS + "y = Concat<axis=-1>(aa, ba, ab, bb)", MOVED),
            ("float[2,6,W,3] x", "float[2,2,V,9]", NUMBERS + "three = Constant<value=int64[1]{3}>() " + ROWS.replace("two", "three")
             + "c = Slice(x, two, e, h, three) y = Concat<axis=3>(a, b, c)", MOVED),
            ("float[2,4,4,3] x", "float[2,2,2,12]", QUARTERS + "y = Concat<axis=3>(aa, ab, ba, bb)", MOVED),
            ("int64[2,6,8,1] x", "int64[2,3,4,4]", BOTH + ALONE.format("e") + "y = Concat<axis=3>(i, j, k, l)", MOVED),
            ("float[2,6,8,1] x", "float[2,3,4,4]", BOTH + ALONE.format("g") + "y = Concat<axis=3>(i, j, k, l)", MOVED),
            ("float[8,W,3] x", "float[2,W,12]", constants(a=[0], b=[1], c=[2], d=[3], s=[4], e=[ALL])
             + "i = Slice(x, a, e, a, s) j = Slice(x, b, e, a, s) k = Slice(x, c, e, a, s) l = Slice(x, d, e, a, s) y = Concat<axis=2>(i, j, k, l)", MOVED),
            ("float[2,6,8,3] x", "float[2,3,4,12]", QUARTERS + "y = Concat<axis=-1>(aa, ba, ab, bb) t = Neg(a)",
             ["Slice", "Reshape", "Transpose", "Reshape", "Neg"], "float[2,3,8,3] t"),
        ],
        "SliceOfEverySecond": [
            ("float[N,H,W,3] x", "float[N,L,M,3]", QUARTERS + "y = Sub(aa, ab)", ["Slice", "Slice", "Sub"]),
            ("float[N,H,8,3] x", "float[N,L,2,3]", NUMBERS + EVEN + "y = Slice(a, zero, two, w) z = Slice(a, two, e, w, two)", ["Slice", "Slice"], "float[N,L,3,3] z"),
        ],
    }  # fmt: skip

    STAY = {
        "ConcatOfInterleaved": [
            ("float[2,5,8,3] x", "float[2,L,4,12]", constants(zero=[0], one=[1], two=[2], e=[4], f=[ALL], h=[1], w=[2])
             + (QUARTERS.removeprefix(NUMBERS)).replace("e, w", "f, w") + "y = Concat<axis=-1>(aa, ba, ab, bb)"),
            ("float[N,H,8,3] x", "float[N,L,4,12]", constants(zero=[0], one=[1], two=[2], e=[2], f=[ALL], h=[1], w=[2])
             + (QUARTERS.removeprefix(NUMBERS)).replace("e, w", "f, w") + "y = Concat<axis=-1>(aa, ba, ab, bb)"),
            ("float[N,6,8,3] x", "float[N,12,4,3]", QUARTERS + "y = Concat<axis=1>(aa, ba, ab, bb)"),
            ("float[N,6,8,3] x", "float[N,3,4,12]", QUARTERS + "y = Concat<axis=-1>(aa, aa, ab, bb) z = Neg(ba)", "float[N,3,4,3] z"),
            ("float[N,6,8,3] x", "float[N,3,4,12]", QUARTERS + "y = Concat<axis=-1>(aa, bb, ab, ba)"),
            ("float[N,6,8,3] x", "float[N,3,4,9]", QUARTERS + "y = Concat<axis=-1>(aa, ba, ab) z = Neg(bb)", "float[N,3,4,3] z"),
            ("float[N,6,8,3] x", "float[N,3,4,12]", QUARTERS + "y = Concat<axis=-1>(aa, ba, ab, bb) z = Neg(ab)", "float[N,3,4,3] z"),
            ("float[N,6,8,3] x", "float[N,3,8,6]", NUMBERS + ROWS + "y = Concat<axis=-1>(a, b)"),
            ("float[2,6,8,1] x", "float[2,3,4,4]", BOTH + ALONE.format("e").replace("l = Slice(x", "l = Slice(v").replace("i =", "v = Neg(x) i =") + "y = Concat<axis=3>(i, j, k, l)"),
        ],
        "SliceOfEverySecond": [
            ("float[N,H,8,3] x", "float[N,L,4,3]", NUMBERS + EVEN + "c = Slice(a, zero, e, w, two) d = Slice(a, one, e, w, two) y = Sub(c, d)", "float[N,L,8,3] a"),
            ("float[N,H,8,3] x", "float[N,L,4,3]", NUMBERS + EVEN + "c = Slice(a, zero, e, w, two) d = Slice(a, one, e, w, two) y = Sub(c, d) z = Neg(a)", "float[N,L,8,3] z"),
            ("float[N,H,8,3] x", "float[N,L,4,3]", NUMBERS + EVEN + "y = Slice(a, zero, e, w, two) z = Slice(a, one, e, h)", "float[N,K,8,3] z"),
            ("float[N,H,8,3] x, int64[1] f", "float[N,L,4,3]", NUMBERS + EVEN + "y = Slice(a, zero, e, w, two) z = Slice(a, zero, f, w)", "float[N,L,K,3] z"),
            ("float[N,H,8,3] x", "float[N,L,4,3]", NUMBERS + "a = Slice(x, one, e, h) y = Slice(a, zero, e, w, two) z = Slice(a, one, e, w, two)", "float[N,L,4,3] z"),
        ],
    }  # fmt: skip

    def test_patches_are_moved(self):
        self.assert_table(self.BECOME, self.STAY)


if __name__ == "__main__":
    unittest.main()
