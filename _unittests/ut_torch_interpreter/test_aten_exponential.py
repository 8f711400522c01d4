"""Exponentials and logarithms: digits near 0, infinities, float64, integers, as eager."""

import unittest

import torch

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase, each, of_each_float
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.5, -1.5, 88.0, -88.0, 1e-6, -1e-6, 0.3, -0.99, -1.0])
OTHERS = torch.tensor([1.0, NAN, INF, 0.0, -0.0, 2.5, 0.3, 88.0, 7.0, -1e-6, 1e-6, 1e30, -INF, 0.0])
FAMILY = each(
    aten.exp.default,
    aten.exp2.default,
    aten.expm1.default,
    aten.log.default,
    aten.log10.default,
    aten.log1p.default,
    aten.log2.default,
    aten.rsqrt.default,
    aten.sqrt.default,
)
SUMS = each(aten.logaddexp.default, aten.logaddexp2.default)


class TestExponential(ExporterTestCase):
    CASES = {
        **of_each_float(FAMILY, EDGES),
        **of_each_float(SUMS, EDGES, OTHERS, of="sums of exponentials of"),
        "integers give floats": (FAMILY, torch.tensor([0, 1, 2, -3])),
        "booleans give floats": (FAMILY, torch.tensor([True, False])),
        "empty": (FAMILY, EDGES[:0]),
        "equal infinities": (SUMS, EDGES, EDGES),
        "logit": (aten.logit.default, EDGES),
        "logit with eps": (aten.logit.default, EDGES, 0.1),
        "logit with an eps above the half": (aten.logit.default, EDGES, 0.6),
        "logit of float16 with an eps that it rounds": (aten.logit.default, EDGES.half(), 1e-6),
        "0 log 0 is 0": (aten.xlogy.Tensor, EDGES, OTHERS),
        "x log of a number": (aten.xlogy.Scalar_Other, EDGES, 3.0),
        "a number log x": (aten.xlogy.Scalar_Self, 0, OTHERS),
        "x log y of integers": (aten.xlogy.Tensor, torch.tensor([0, 2]), torch.tensor([0, 3])),
        "xlog1py": (
            aten.special_xlog1py.default,
            torch.tensor([0.0, 0.0, 1.0, 2.0]),
            torch.tensor([-1.0, NAN, 1e-6, -2]),
        ),
        "xlog1py with a number": (aten.special_xlog1py.other_scalar, torch.tensor([0, 1, 2]), 0.5),
        "xlog1py of a number": (aten.special_xlog1py.self_scalar, 2, torch.tensor([0.5, 1e-5])),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_small_numbers_keep_their_digits(self):
        tiny = torch.tensor([1e-7, -1e-7, 3e-6, 1e-20])
        ratios = each(lambda x: torch.log1p(x) / x, lambda x: torch.expm1(x) / x)
        self.assert_same_as_eager(ratios, tiny)

    def test_four_units_in_the_last_place(self):
        x = torch.cat([sign * torch.logspace(-30, 0.4, 5001, dtype=torch.float64) for sign in (1, -1)])
        x = x[x > -1]
        for function, written in ((torch.expm1, 7), (torch.log1p, 7)):
            for dtype in (torch.float32, torch.float64):
                with self.subTest(f"{function.__name__} {dtype}"):
                    given = x.to(dtype)
                    model = to_onnx(function, (given,))
                    (found,) = session(model).run(None, {model.graph.input[0].name: given.numpy()})
                    self.assertLessEqual(units_between(function(given), torch.from_numpy(found)), 4)
                    self.assertEqual(written, len(model.graph.node))


def units_between(expected, found):
    """The largest distance of two tensors in units of the last place."""
    integer = torch.int32 if expected.dtype == torch.float32 else torch.int64
    return (expected.view(integer) - found.view(integer)).abs().max().item()


POWERS_OF_TWO, POWERS_OF_TEN = 2.0 ** torch.arange(-60, 61), 10.0 ** torch.arange(-10, 20)
CUT = {
    "a floor": lambda x: (torch.log2(x).floor(), torch.log10(x).floor()),
    "a floor in place, behind an offset": lambda x: torch.log2(x).add_(4.0).floor_(),
    "integers behind bounds": lambda x: torch.log2(x).clamp(min=-20).to(torch.int32),
    "a condition": lambda x: torch.log2(x) % 1 == 0,
}


class TestCutLogarithms(ExporterTestCase):
    def test_that_of_a_power_is_whole(self):
        for promise, function in CUT.items():
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                with self.subTest(promise, dtype=dtype):
                    self.assert_same_as_eager(function, POWERS_OF_TWO.to(dtype))
        for dtype in (torch.float32, torch.float64):
            self.assert_same_as_eager(lambda x: torch.log10(x).floor(), POWERS_OF_TEN.to(dtype))
        self.assert_same_as_eager(lambda x: torch.log2(x).long(), 2 ** torch.arange(40))

    def test_edges(self):
        for dtype in (torch.float32, torch.float64):
            self.assert_same_as_eager(lambda x: torch.log2(x).ceil(), EDGES.to(dtype))

    def test_others_have_no_more_nodes(self):
        model = to_onnx(lambda x: torch.log10(x).clamp(min=-8) / 4, (EDGES,), optimize=False)
        self.assertEqual(["Log", "Mul", "Clip", "Div"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
