"""Rules of convolutions along one axis and of pools."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize


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
        model = parsed(f"agraph (float[N,4,40] x) => ({RESULT} y) {{ {nodes} }}")
        optimized = optimize(model, OptimizationOptions("default+onnxruntime"))
        self.assertEqual(IMAGE, operators(optimized))
        (wanted,), (got,) = (session(item).run(None, drawn(model)) for item in (model, optimized))
        np.testing.assert_allclose(wanted, got, rtol=1e-5, atol=1e-5)  # sums of 15 products in another order


def window(name, attributes, shape="N,2,H,W", result="N,2,P,Q"):
    """A row of the table: a pool of an image."""
    return f"float[{shape}] x", f"float[{result}]", f"y = {name} <{attributes}> (x)"


class TestPools(RuleTestCase):
    MEANS, MORE = "kernel_shape=[10, 11]", "pads=[5, 4, 5, 6]"
    BLOCKS, WIDE = ("N,16,H,W", "N,16,P,Q"), "kernel_shape=[7, 8]"
    LINE = "N,3,L", "N,3,M"
    BECOME = {
        "PoolOfRowsAndColumns": [
            (*window("AveragePool", MEANS, "N,2,12,12"), ["AveragePool"] * 2),
            (*window("AveragePool", f"{MEANS}, {MORE}, strides=[1, 1]"), ["AveragePool"] * 2),
            (
                *window("AveragePool", f"{MEANS}, {MORE}, count_include_pad=1, dilations=[1, 2]", "N,2,9,24"),
                ["AveragePool"] * 2,
            ),
            (*window("AveragePool", f"{WIDE}, pads=[3, 3, 3, 4]", *BLOCKS), ["AveragePool"] * 2),
            (
                *window("MaxPool", f"{WIDE}, pads=[3, 3, 3, 4], dilations=[2, 1]", "N,16,9,9", "N,16,P,Q"),
                ["MaxPool"] * 2,
            ),
        ],
        "AverageByFilters": [
            (*window("AveragePool", "kernel_shape=[2, 3], strides=[2, 1]", "N,2,9,9"), ["Conv"]),
            (
                *window(
                    "AveragePool",
                    "kernel_shape=[3, 3], pads=[1, 0, 1, 2], count_include_pad=1, dilations=[1, 2]",
                    "N,3,H,9",
                    "N,3,P,Q",
                ),
                ["Conv"],
            ),
            (*window("AveragePool", "kernel_shape=[5], pads=[2, 3], count_include_pad=1", *LINE), ["Conv"]),
            (*window("AveragePool", "kernel_shape=[2], strides=[2]", "N,16,8", "N,16,4"), ["Conv"]),
        ],
    }
    STAY = {
        "PoolOfRowsAndColumns": [
            window("AveragePool", f"kernel_shape=[9, 11], {MORE}"),
            window("AveragePool", "kernel_shape=[1, 100], pads=[0, 50, 0, 50]"),
            window("AveragePool", f"{MEANS}, {MORE}, strides=[1, 2]"),
            window("AveragePool", f"{MEANS}, {MORE}, ceil_mode=1"),
            window("AveragePool", f'{MEANS}, auto_pad="SAME_UPPER"'),
            window("AveragePool", "kernel_shape=[6, 6], pads=[3, 3, 3, 3]", *BLOCKS),
            window("AveragePool", "kernel_shape=[100], pads=[50, 50]", *LINE),
            window("MaxPool", f"{MEANS}, {MORE}"),
            window("MaxPool", "kernel_shape=[6, 7], pads=[3, 3, 3, 3]", *BLOCKS),
            ("double[N,16,9,9] x", "double[N,16,P,Q]", f"y = MaxPool <{WIDE}> (x)"),
            ("float[N,C,9,9] x", "float[N,C,P,Q]", f"y = MaxPool <{WIDE}> (x)"),
            (
                "float[N,16,9,9] x",
                "float[N,16,3,2]",
                f"y, i = MaxPool <{WIDE}> (x)",
                "int64[N,16,3,2] i",
            ),
        ],
        "AverageByFilters": [
            window("AveragePool", "kernel_shape=[2, 2]", "N,16,9,9", "N,16,P,Q"),
            window("AveragePool", "kernel_shape=[2, 2]", "N,C,9,9", "N,C,P,Q"),
            window("AveragePool", "kernel_shape=[3, 3], pads=[1, 0, 1, 2]", "N,3,9,9", "N,3,P,Q"),
            window("AveragePool", "kernel_shape=[3, 3], ceil_mode=1, strides=[2, 2]", "N,3,9,9", "N,3,P,Q"),
            window("AveragePool", 'kernel_shape=[3, 3], auto_pad="SAME_UPPER"', "N,3,9,9", "N,3,P,Q"),
            window("AveragePool", "kernel_shape=[300, 300]", "N,1,300,301", "N,1,P,Q"),
            # larger than the image
            window("AveragePool", "kernel_shape=[3, 3], strides=[2, 2]", "N,3,9,2", "N,3,P,Q"),
            window("AveragePool", "kernel_shape=[2, 2, 2]", "N,3,4,4,4", "N,3,P,Q,R"),
        ],
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_large_windows_are_filters_of_rows_and_columns(self):
        text = "agraph (float[N,3,32,40] x) => (float[N,3,P,Q] y) { y = AveragePool <kernel_shape=[11, 12]> (x) }"
        self.assert_becomes(text, ["Conv", "Conv"], rule="onnxruntime")

    def test_nan_stays_where_it_is(self):
        """With `special_values`, in which case no element is compared with NaN in another order."""
        model = parsed(
            f"agraph (float[1,16,9,9] x) => (float[1,16,3,2] y) {{ y = MaxPool <{self.WIDE}> (x) }}"
        )
        options = OptimizationOptions(["PoolOfRowsAndColumns"])
        for special_values, count in (True, 1), (False, 2):
            self.assertEqual(
                ["MaxPool"] * count, operators(optimize(model, options, special_values=special_values))
            )


if __name__ == "__main__":
    unittest.main()
