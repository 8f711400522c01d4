"""Rules of the padding of a Conv."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

WEIGHT = "w = Constant <value=float[1,1,3,2]{1,-2,3,-4,5,6}> ()"
IMAGE = "float[N,1,8,8] x", "float[N,1,A,B]"
PADS, CONV = "pads = Constant <value_ints=[0,0,1,2,0,0,0,3]> ()", "y = Conv(p, w)"
ZERO, ONE = (f"zero = Constant <value_float={number}> ()" for number in ("0.0", "1.0"))

EVEN = "w = Constant <value=float[1,1,4]{1,-2,3,-4}> () b = Constant <value=float[1]{0.5}> ()"
ROW, KNOWN = "float[N,1,L] x, float[N,4,L,2] other", "float[N,1,7] x"
FIRST = (
    "z = Constant <value_ints=[0]> () one = Constant <value_ints=[1]> () m = Constant <value_ints=[-1]> ()"
)
LAST = "t = Constant <value_ints=[2]> () two = Constant <value_ints=[-2]> () all = Constant <value_ints=[9223372036854775807]> ()"
NODES = f"{EVEN} {FIRST} {LAST} axis = Identity(t)".replace(
    "axis = Identity(t)", "axis = Constant <value_ints=[-1]> ()"
)
CAUSAL = f"{NODES} l = Shape<start=2>(x)"
SAME, WIDE = "p = Conv<pads=[2,2]>(x, w, b)", "p = Conv<pads=[3,3]>(x, w)"
BOTH = "z = Constant <value_ints=[0,0]> () e = Constant <value_ints=[-1,9223372036854775807]> () a = Constant <value_ints=[3,2]> ()"


class TestPadding(RuleTestCase):
    BECOME = {
        "PaddingOfProduct": [
            (*IMAGE, f"{WEIGHT} {ZERO} {PADS} p = Pad(x, pads, zero) {CONV}", ["Conv"]),
            (
                *IMAGE,
                f"{WEIGHT} {PADS} p = Pad(x, pads) y = Conv<pads=[1,0,1,2], strides=[2,1]>(p, w)",
                ["Conv"],
            ),
            (
                *IMAGE,
                f"{WEIGHT} pads = Constant <value_ints=[1,2]> () a = Constant <value_ints=[-2]> () p = Pad(x, pads, , a) {CONV}",
                ["Conv"],
            ),
            (  # two read the padded images
                *IMAGE,
                f"{WEIGHT} {PADS} p = Pad(x, pads) v = Neg(w) q = Conv(p, v) {CONV}",
                ["Neg", "Conv", "Conv"],
                "float[N,1,A,B] q",
            ),
        ],
        "PaddingOfCutProduct": [
            (ROW, "float[N,1,L]", f"{CAUSAL} {WIDE} y = Slice(p, z, l, axis)", ["Conv"]),
            (ROW, "float[N,1,L]", f"{CAUSAL} {WIDE} y = Slice(p, z, l, axis, one)", ["Conv"]),
            (  # of the name of the size
                ROW,
                "float[N,1,L]",
                f"{NODES} l = Shape<start=2,end=3>(other) {WIDE} y = Slice(p, z, l, axis, one)",
                ["Conv"],
            ),
            (ROW, "float[N,1,L]", f"{NODES} {SAME} y = Slice(p, z, m, axis)", ["Conv"]),
            (ROW, "float[N,1,L]", f"{NODES} {SAME} y = Slice(p, one, all, axis)", ["Conv"]),
            (ROW, "float[N,1,M]", f"{NODES} {WIDE} y = Slice(p, one, two, axis)", ["Conv"]),
            (
                ROW,
                "float[N,1,M]",
                f"{NODES} p = Conv<pads=[2,4],strides=[2]>(x, w) y = Slice(p, z, m, axis)",
                ["Conv"],
            ),
            (
                ROW,
                "float[N,1,L]",
                f"{CAUSAL} p = Conv<pads=[6,6],dilations=[2]>(x, w) y = Slice(p, z, l, axis)",
                ["Conv"],
            ),
            (
                KNOWN,
                "float[N,1,M]",
                f"{NODES} p = Conv<pads=[1,1]>(x, w) y = Slice(p, one, m, axis)",
                ["Conv"],
            ),
            (
                KNOWN,
                "float[N,1,M]",
                f"{NODES} p = Conv<pads=[3,4],strides=[3]>(x, w) y = Slice(p, one, m, axis)",
                ["Conv"],
            ),
            (
                "float[N,1,H,W] x",
                "float[N,1,A,B]",
                f"{WEIGHT} {BOTH} p = Conv<pads=[1,1,2,1]>(x, w) y = Slice(p, z, e, a)",
                ["Conv"],
            ),
        ],
    }
    STAY = {
        "PaddingOfProduct": [
            (*IMAGE, f"{WEIGHT} {ONE} {PADS} p = Pad(x, pads, zero) {CONV}"),
            (*IMAGE, f"{WEIGHT} {PADS} p = Pad(x, pads) q = Neg(p) {CONV}", "float[N,1,A,B] q"),
            (*IMAGE, f"{WEIGHT} {PADS} p = Pad(x, pads) {CONV}", "float[N,1,A,B] p"),
            (*IMAGE, f'{WEIGHT} {PADS} p = Pad<mode="edge">(x, pads) {CONV}'),
            (*IMAGE, f"{WEIGHT} pads = Constant <value_ints=[0,0,-1,0,0,0,0,1]> () p = Pad(x, pads) {CONV}"),
            (*IMAGE, f'{WEIGHT} {PADS} p = Pad(x, pads) y = Conv<auto_pad="SAME_UPPER">(p, w)'),
            (
                "float[N,1,8,8] x",
                "float[N,1,A,B]",
                f"w = Constant <value=float[1,2,1,2]{{1,-2,3,-4}}> () pads = Constant <value_ints=[0,1,0,0,0,0,0,0]> () p = Pad(x, pads) {CONV}",
            ),
        ],
        "PaddingOfCutProduct": [
            # another reader, an output
            (ROW, "float[N,1,L]", f"{NODES} {SAME} q = Neg(p) y = Slice(p, z, m, axis)", "float[N,1,M] q"),
            (ROW, "float[N,1,L]", f"{NODES} {SAME} y = Slice(p, z, m, axis)", "float[N,1,M] p"),
            # more than the padding, every second, samples, from the end
            (ROW, "float[N,1,M]", f"{NODES} p = Conv<pads=[4,1]>(x, w) y = Slice(p, z, two, axis)"),
            (ROW, "float[N,1,M]", f"{NODES} p = Conv<pads=[1,4]>(x, w) y = Slice(p, t, all, axis)"),
            (ROW, "float[N,1,M]", f"{NODES} {WIDE} y = Slice(p, z, m, axis, t)"),
            (ROW, "float[M,1,A]", f"{NODES} {SAME} y = Slice(p, z, m, z)"),
            (ROW, "float[N,1,M]", f"{NODES} {WIDE} y = Slice(p, two, all, axis)"),
            # nothing is left of a row of one element
            (ROW, "float[N,1,M]", f"{NODES} {SAME} y = Slice(p, one, m, axis)"),
            (ROW, "float[N,1,M]", f"{CAUSAL} {WIDE} y = Slice(p, one, l, axis)"),
            # fewer results than elements, strides, another size, a number of results
            (ROW, "float[N,1,M]", f"{CAUSAL} p = Conv<pads=[1,1]>(x, w) y = Slice(p, z, l, axis)"),
            (
                ROW,
                "float[N,1,M]",
                f"{CAUSAL} p = Conv<pads=[5,5],strides=[2]>(x, w) y = Slice(p, z, l, axis)",
            ),
            (ROW, "float[N,1,M]", f"{NODES} l = Shape<start=0,end=1>(x) {WIDE} y = Slice(p, z, l, axis)"),
            (ROW, "float[N,1,M]", f"{NODES} {WIDE} y = Slice(p, z, t, axis)"),
            (ROW, "float[N,1,M]", f'{NODES} p = Conv<auto_pad="SAME_UPPER">(x, w) y = Slice(p, z, m, axis)'),
            # of known sizes: more than the padding, all
            (KNOWN, "float[N,1,M]", f"{NODES} p = Conv<pads=[3,1]>(x, w) y = Slice(p, z, two, axis)"),
            (KNOWN, "float[N,1,0]", f"{NODES} {WIDE} y = Slice(p, two, one, axis)"),
            (
                f"{KNOWN}, float[M] other",
                "float[N,1,A]",
                f"{NODES} {WIDE} l = Shape(other) y = Slice(p, z, l, axis)",
            ),
        ],
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_rows_of_one_element(self):
        """No result is cut that is not there."""
        for inputs, result, nodes, expected in self.BECOME["PaddingOfCutProduct"]:
            with self.subTest(nodes):
                text = f"agraph ({inputs}) => ({result} y) {{ {nodes} }}"
                self.assert_becomes(text, expected, rule="PaddingOfCutProduct", sizes=1)


if __name__ == "__main__":
    unittest.main()
