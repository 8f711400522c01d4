"""Rules of convolutions along one axis."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase


def filters(channels: int, length: int, inputs: int = 1) -> str:
    """The constant w: *channels* filters of so many elements of *inputs* channels."""
    numbers = ",".join(str(index % 7 - 3) for index in range(channels * inputs * length))
    return f"w = Constant <value=float[{channels},{inputs},{length}]{{{numbers}}}> ()"


RESULT = "float[N,4,M]"
BIAS = "b = Constant <value=float[4]{1,-2,3,0.5}> ()"
IMAGE = ["Unsqueeze", "Conv", "Squeeze"]


class TestLongDepthwiseOfOneAxis(RuleTestCase):
    BECOME = {
        "LongDepthwiseOfOneAxis": [
            ("float[N,4,40] x", RESULT, f"{filters(4, 15)} y = Conv<group=4>(x, w)", IMAGE),
            (
                "float[N,4,40] x",
                RESULT,
                f"{filters(4, 16)} {BIAS} y = Conv<group=4, kernel_shape=[16], pads=[20,3], strides=[2], dilations=[3]>(x, w, b)",
                IMAGE,
            ),
            (
                "float[N,4,40] x",
                RESULT,
                f'{filters(4, 15)} y = Conv<group=4, strides=[3], auto_pad="SAME_LOWER">(x, w)',
                IMAGE,
            ),
            (
                "float[N,4,L] x",
                RESULT,
                f"{filters(4, 15)} p = Conv<group=4, pads=[14,14]>(x, w) y = Relu(p)",
                [*IMAGE, "Relu"],
            ),
        ]
    }
    STAY = {
        "LongDepthwiseOfOneAxis": [
            ("float[N,4,40] x", RESULT, f"{filters(4, 14)} y = Conv<group=4>(x, w)"),
            ("float[N,6,40] x", "float[N,6,M]", f"{filters(6, 15)} y = Conv<group=6>(x, w)"),
            ("float[N,4,40] x", "float[N,8,M]", f"{filters(8, 15)} y = Conv<group=4>(x, w)"),
            ("float[N,8,40] x", RESULT, f"{filters(4, 15, 2)} y = Conv<group=4>(x, w)"),
            (
                "float[N,1,40] x",
                RESULT,
                f"{filters(4, 15)} y = Conv(x, w)",
            ),
            (
                "float[N,4,40] x, float[4,1,15] w",
                RESULT,
                "y = Conv<group=4>(x, w)",
            ),
            (  # a rule of Slice may take what is cut
                "float[N,4,40] x",
                "float[N,4,26]",
                f"{filters(4, 15)} z = Constant <value_ints=[0]> () e = Constant <value_ints=[26]> () a = Constant <value_ints=[2]> () "
                "p = Conv<group=4, pads=[14,14]>(x, w) y = Slice(p, z, e, a)",
            ),
        ]
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_what_is_padded_and_cut_goes_into_it_before(self):
        nodes = f"""{filters(4, 15)} pads = Constant <value_ints=[0,0,14,0,0,2]> () z = Constant <value_ints=[0]> () e = Constant <value_ints=[-2]> ()
            a = Constant <value_ints=[2]> () p = Pad(x, pads) c = Conv<group=4>(p, w) y = Slice(c, z, e, a)"""
        text = f"agraph (float[N,4,40] x) => ({RESULT} y) {{ {nodes} }}"
        self.assert_becomes(text, IMAGE, rule="default")


if __name__ == "__main__":
    unittest.main()
