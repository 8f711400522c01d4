"""Comparison: NaN, infinities, promotion and booleans, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.5, -1.5, 100.0, 1e-6, 2.0])
OTHERS = torch.tensor([1.0, NAN, -INF, 0.0, -0.0, 1.5, 0.3, -0.3, NAN, -2.0])
INTS = torch.tensor([7, -7, 0, 2**53 + 1, 3])
OTHER_INTS = torch.tensor([7, 2, -1, 2**53, -3])
BYTES = torch.tensor([200, 1, 0], dtype=torch.uint8)
BOOLS = torch.tensor([True, False, True, False])
OTHER_BOOLS = torch.tensor([True, True, False, False])
OF_TENSORS = each(
    aten.eq.Tensor,
    aten.ne.Tensor,
    aten.not_equal.Tensor,
    aten.lt.Tensor,
    aten.less.Tensor,
    aten.le.Tensor,
    aten.less_equal.Tensor,
    aten.gt.Tensor,
    aten.greater.Tensor,
    aten.ge.Tensor,
    aten.greater_equal.Tensor,
)
OF_NUMBERS = each(
    aten.eq.Scalar,
    aten.ne.Scalar,
    aten.not_equal.Scalar,
    aten.lt.Scalar,
    aten.less.Scalar,
    aten.le.Scalar,
    aten.less_equal.Scalar,
    aten.gt.Scalar,
    aten.greater.Scalar,
    aten.ge.Scalar,
    aten.greater_equal.Scalar,
)
LOGICAL = each(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default)
EXTREMES = each(aten.maximum.default, aten.minimum.default, aten.fmax.default, aten.fmin.default)
KINDS = each(
    aten.isnan.default,
    aten.isinf.default,
    aten.isposinf.default,
    aten.isneginf.default,
    aten.isfinite.default,
    aten.isreal.default,
)


def clamps(x):
    """clamp between several bounds."""
    bounds = [(-1, 2), (None, 2), (-1, None), (3, 1), (-INF, INF), (-1.5, 0)]
    return [clamp(x, low, high) for clamp in (aten.clamp.default, aten.clip.default) for low, high in bounds]


class TestComparison(ExporterTestCase):
    COMPARISONS = {
        "NaN, infinities and zeros": (OF_TENSORS, EDGES, OTHERS),
        "bfloat16": (OF_TENSORS, EDGES.bfloat16(), OTHERS.bfloat16()),
        "large integers differ": (OF_TENSORS, INTS, OTHER_INTS),
        "booleans": (OF_TENSORS, BOOLS, OTHER_BOOLS),
        "integers and floats": (OF_TENSORS, INTS, OTHERS[:5]),
        "a number": (OF_NUMBERS, EDGES, 1.5),
        "a number that float16 rounds": (OF_NUMBERS, EDGES.half(), 1e-8),
        "integers and a float number": (OF_NUMBERS, INTS, 2.5),
        "bytes and a number wrap": (OF_NUMBERS, BYTES, -56),
        "booleans and a number": (OF_NUMBERS, BOOLS, 1),
        "a 0-d tensor": (OF_TENSORS, EDGES, torch.tensor(1.5, dtype=torch.float64)),
        "empty": (OF_TENSORS, EDGES[:0], OTHERS[:0]),
    }
    LOGIC = {
        "NaN is true": (LOGICAL, EDGES, OTHERS),
        "integers": (LOGICAL, INTS, OTHER_INTS),
        "booleans": (LOGICAL, BOOLS, OTHER_BOOLS),
        "not": (aten.logical_not.default, EDGES),
        "not of bytes": (aten.logical_not.default, BYTES),
    }
    BOUNDS = {
        "NaN spreads through maximum, not through fmax": (EXTREMES, EDGES, OTHERS),
        "float16": (EXTREMES, EDGES.half(), OTHERS.half()),
        "integers": (EXTREMES, INTS, OTHER_INTS),
        "int16": (EXTREMES, INTS.to(torch.int16), OTHER_INTS.to(torch.int16)),
        "booleans": (EXTREMES, BOOLS, OTHER_BOOLS),
        "max of two promotes": (aten.max.other, INTS, OTHERS[:5]),
        "min of two promotes": (aten.min.other, BYTES, torch.tensor([7, -1, 3])),
        "min of two booleans": (aten.min.other, BOOLS, BOOLS[0]),
        "clamp": (clamps, EDGES),
        "clamp of float64": (clamps, EDGES.double()),
        "clamp of integers": (clamps, INTS),
        "clamp of bytes to floats": (aten.clamp.default, BYTES, 0.5, 100),
        "clamp to tensors": (each(aten.clamp.Tensor, aten.clip.Tensor), EDGES, OTHERS, torch.tensor(2.0)),
        "clamp from below to a tensor": (aten.clamp_min.Tensor, EDGES, OTHERS),
        "clamp from above to a tensor": (aten.clamp_max.Tensor, EDGES, OTHERS),
        "clamp on one side keeps infinity": (
            each(aten.clamp_min.default, aten.clamp_max.default),
            EDGES,
            0.5,
        ),
        "heaviside": (aten.heaviside.default, EDGES, OTHERS),
    }
    KINDS_OF_ELEMENTS = {
        "floats": (KINDS, EDGES),
        "float16": (KINDS, EDGES.half()),
        "integers": (KINDS, INTS),
        "booleans": (KINDS, BOOLS),
        "NaN and infinities become numbers": (aten.nan_to_num.default, EDGES),
        "NaN becomes an infinity that stays": (aten.nan_to_num.default, EDGES, INF, 2.0, -3.0),
        "nan_to_num of float16": (aten.nan_to_num.default, EDGES.half()),
        "nan_to_num of integers": (aten.nan_to_num.default, INTS),
        "close": (aten.isclose.default, EDGES, OTHERS, 0.1, 0.1),
        "NaN is close when asked": (aten.isclose.default, EDGES, EDGES, {"equal_nan": True}),
        "integers are close": (aten.isclose.default, INTS, OTHER_INTS),
        "integers that float32 rounds to the same are close": (
            aten.isclose.default,
            INTS,
            OTHER_INTS,
            0.0,
            1.0,
        ),
        "integers are close without tolerance": (aten.isclose.default, INTS, OTHER_INTS, 0.0, 0.0),
        "floats are close without tolerance": (aten.isclose.default, EDGES, EDGES, 0.0, 0.0, True),
        "among": (aten.isin.Tensor_Tensor, EDGES, OTHERS),
        "not among": (aten.isin.Tensor_Tensor, INTS, OTHER_INTS, {"invert": True}),
        "among nothing": (aten.isin.Tensor_Tensor, INTS, OTHER_INTS[:0]),
        "uniqueness changes nothing": (aten.isin.Tensor_Tensor, INTS, INTS[:2], {"assume_unique": True}),
        "equal to a number": (aten.isin.Tensor_Scalar, INTS, 7),
        "a number among": (aten.isin.Scalar_Tensor, 7, INTS),
    }

    def test_among_is_an_extremum(self):
        model = self.assert_same_as_eager(aten.isin.Tensor_Tensor, INTS, OTHER_INTS, dynamic=False)
        self.assertEqual("ReduceMax", model.graph.node[-1].op_type)
        self.assertLessEqual(len(model.graph.node), 4)

    def test_comparisons(self):
        self.assert_cases(self.COMPARISONS)

    def test_logic(self):
        self.assert_cases(self.LOGIC)

    def test_bounds(self):
        self.assert_cases(self.BOUNDS)

    def test_kinds_of_elements(self):
        self.assert_cases(self.KINDS_OF_ELEMENTS)


if __name__ == "__main__":
    unittest.main()
