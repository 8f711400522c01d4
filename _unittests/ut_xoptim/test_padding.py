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


def whole(
    product: str = "y = Conv<strides=[2]>(p, w, b)", stride: int = 2, kernel: int = 4, before: str = "", missing: str = "need = Sub(u, l)", size: str = "l = Shape<start=2,end=3>(x)",
    pad: str = "p = Pad(x, pads)", sides: str = "zero, zero, e, zero, zero, f", inputs: str = "float[N,1,L] x", result: str = "float[N,1,M]",
) -> tuple[str, str, str]:  # fmt: skip
    """A row that is padded to a window of *kernel* elements for each *stride*: input, result, nodes; *before* computes ``e`` from ``need``."""
    numbers = {"one": 1, "less": stride - 1, "step": stride, "reach": kernel, "two": 2, "zero": 0}
    constants = " ".join(f"{name} = Constant <value_ints=[{number}]> ()" for name, number in numbers.items())
    needed = "a = Add(l, less) d = Div(a, step) c = Sub(d, one) t = Mul(c, step) u = Add(t, reach)"
    before = before or "r = Mod(need, two) g = Sub(need, r) e = Div(g, two)"
    padded = f"f = Sub(need, e) pads = Concat<axis=0>({sides}) {pad}"
    return inputs, result, f"{EVEN} {constants} {size} {needed} {missing} {before} {padded} {product}"


FILLED = "filling = Constant <value_float={}.0> () p = Pad(x, pads, filling)"
POOL = FILLED.replace("{}.0", "-inf")
MAXIMA = "y = MaxPool<kernel_shape=[3], strides=[2]>(p)"


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
        "PaddingToWholeStrides": [
            (*whole(), ["Conv"]),
            (
                *whole("y = Conv<strides=[2], pads=[0,0]>(p, w)", pad=FILLED.format(0)),
                ["Conv"],
            ),
            (*whole("y = Conv<strides=[3]>(p, w)", 3), ["Conv"]),
            (*whole("y = Conv(p, w)", 1), ["Conv"]),
            (*whole(before="e = Div(need, two)"), ["Conv"]),  # it is never negative
            (
                *whole(before="q = Identity(need) h = Squeeze(q) i = Unsqueeze(h, zero) e = Div(i, two)"),
                ["Conv"],
            ),
            # another form of what is missing; windows that leave gaps; a size of a name
            (
                *whole(
                    before="j = Sub(l, one) k = Mod(j, two) three = Constant <value_ints=[3]> () v = Sub(three, k) e = Div(v, two)"
                ),
                ["Conv"],
            ),
            (
                *whole("y = Conv<strides=[5]>(p, w)", 5, missing="raw = Sub(u, l) need = Max(raw, zero)"),
                ["Conv"],
            ),
            (*whole(inputs="float[N,1,L] x, float[L] other", size="l = Shape(other)"), ["Conv"]),
        ],
        "PaddingToWholeStridesOfMaxima": [(*whole(MAXIMA, kernel=3, pad=POOL), ["MaxPool"])],
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
        "PaddingToWholeStrides": [
            whole("y = Conv<strides=[3]>(p, w)"),  # for another stride, another kernel
            whole(kernel=5),
            whole("y = Conv<strides=[5]>(p, w)", 5),  # negative for some sizes
            whole(before="h = Add(need, one) e = Div(h, two)"),  # the larger half before
            whole(before="e = Sub(need, need)"),
            whole("y = Conv<strides=[2], pads=[1,1]>(p, w)"),
            whole(
                "y = Conv<strides=[2], dilations=[2]>(p, w)", kernel=7
            ),  # onnxruntime takes none with auto_pad
            whole('y = Conv<strides=[2], auto_pad="SAME_UPPER">(p, w)'),
            whole(pad=FILLED.format(1)),
            whole(pad='p = Pad<mode="edge">(x, pads)'),
            (*whole(), "float[N,1,K] p"),
            whole(sides="e, zero, zero, f, zero, zero", inputs="float[N,1,8] x", result="float[A,1,M]"),
            whole(inputs="float[N,1,L] x, float[K] other", size="l = Shape(other)"),  # of another size
            whole(before="o = Mul(need, l) e = Div(o, two)"),
            whole(before="e = Abs(need)"),
        ],
        "PaddingToWholeStridesOfMaxima": [
            whole(MAXIMA, kernel=3),
            whole(MAXIMA.replace("strides", "ceil_mode=1, strides"), kernel=3, pad=POOL),
            whole(MAXIMA.replace("y =", "y, i ="), kernel=3, pad=POOL) + ("int64[N,1,M] i",),
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
