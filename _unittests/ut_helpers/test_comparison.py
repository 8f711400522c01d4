"""Comparison with eager: which leaves of a call are inputs, the dtypes that numpy lacks."""

import enum
import unittest

import numpy
import torch
from torch.export import Dim

from experimental_experiment.comparison import (
    CARRIERS,
    array_from_ort,
    array_to_ort,
    compare,
    difference,
    differences,
    from_ort,
    session,
    to_ort,
)
from experimental_experiment.investigate.gaps import gap
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.dtypes import FLOAT8, onnx_dtype
from experimental_experiment.xoptim.bisection import gap as gap_of_arrays

DYNAMIC = Dim.DYNAMIC


class Level(enum.IntEnum):
    LOW = 1


class TestNumbers(ExporterTestCase):
    """Some of the numbers of a container are inputs, the others constants."""

    def test_a_list_of_sizes(self):
        def forward(x, sizes):
            return x.reshape(sizes)

        shapes = ({0: "rows"}, [DYNAMIC, None])
        proto = to_onnx(forward, (torch.randn(4, 6), [8, 3]), dynamic_shapes=shapes, verify=True)
        self.assertEqual(["x", "sizes_0"], [value.name for value in proto.graph.input])
        for call in ((torch.randn(4, 6), [8, 3]), (torch.randn(8, 6), [16, 3])):
            (found,) = compare(forward, session(proto), call)
            self.assertTrue(found.within, found)

    def test_containers_keywords_and_an_enum(self):
        def forward(x, sizes, level, *, factors=None):
            return x.reshape(sizes["of"]) * factors[0] + factors[1] * level

        shapes = {
            "x": {0: "rows"},
            "sizes": {"of": [DYNAMIC, None]},
            "level": None,
            "factors": (DYNAMIC, None),
        }
        args, kwargs = (torch.randn(4, 6), {"of": [8, 3]}, Level.LOW), {"factors": (2, 5)}
        proto = to_onnx(forward, args, kwargs, dynamic_shapes=shapes, verify=True)
        self.assertEqual(["x", "sizes_of_0", "factors_0"], [value.name for value in proto.graph.input])
        others = torch.randn(8, 6), {"of": [16, 3]}, Level.LOW
        (found,) = compare(forward, session(proto), others, {"factors": (7, 5)})
        self.assertTrue(found.within, found)


class Written(torch.nn.Module):
    """Writes a buffer, puts another tensor in the place of one, and writes an argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x, factor, state):
        self.total.add_(x.sum(0) * factor)
        self.calls = self.calls + 1
        state.mul_(2)
        return x + self.total


class TestNewValues(ExporterTestCase):
    """What a model writes is compared when the ONNX model returns it."""

    def test_buffers_and_arguments(self):
        for names in (None, ["first", "second"]):
            with self.subTest(names):
                model, call = Written(), (torch.randn(2, 3), 2, torch.ones(3))
                proto = to_onnx(model, call, mutated_buffers="outputs", input_names=names)
                self.assertEqual(4, len(proto.graph.output))
                for _ in range(2):
                    found = compare(model, session(proto), (torch.randn(2, 3), 2, torch.randn(3)))
                    self.assertEqual([True] * 4, [item.within for item in found])
                self.assertEqual(2, model.calls)

    def test_weights(self):
        """Those of a layer that keeps its rows small, too."""
        model = torch.nn.Embedding(5, 3, max_norm=0.1)
        proto = to_onnx(model, (torch.tensor([1, 2]),), mutated_buffers="outputs")
        found = compare(model, session(proto), (torch.tensor([3, 4]),))
        self.assertEqual(
            [("output", True), ("weight_out", True)], [(item.name, item.within) for item in found]
        )

    def test_names_that_clash(self):
        """A buffer with the name of an argument, which is written too or not, and a result with the name of a new value."""

        class Held(torch.nn.Module):
            def __init__(self, name, forward):
                super().__init__()
                self.register_buffer(name, torch.zeros(3))
                self.of = forward

            def forward(self, x):
                return self.of(self, x)

        def both(module, x):
            module.x.add_(x)
            x.mul_(2)
            return x + module.x

        def same(module, x):
            return x + module.x.add_(x).exp()

        def result(module, x):
            module.mean.mul_(0.9).add_(x * 0.1)
            return {"mean_out": x - module.mean, "mean": x + 1}

        for name, forward, outputs in (
            ("x", both, ["output_0", "x_1_out", "x_out"]),
            ("x", same, ["output_0", "x_1_out"]),
            ("mean", result, ["mean_out", "mean_out_out", "mean_out_1"]),
        ):
            with self.subTest(forward.__name__):
                model = Held(name, forward)
                proto = to_onnx(model, (torch.randn(3),), mutated_buffers="outputs", verify=True)
                self.assertEqual(outputs[1:], [value.name for value in proto.graph.output][1:])
                for _ in range(2):
                    found = compare(model, session(proto), (torch.randn(3),))
                    self.assertEqual([True] * len(outputs), [item.within for item in found])
                self.assertGreater(float(getattr(model, name).abs().sum()), 0)

    def test_a_new_value_that_differs(self):
        class Twice(Written):
            def forward(self, x, factor, state):
                result = super().forward(x, factor, state)
                self.calls = self.calls + 1
                return result

        call = (torch.randn(2, 3), 2, torch.ones(3))
        proto = to_onnx(Written(), call, mutated_buffers="outputs")
        wrong = [item.name for item in compare(Twice(), session(proto), call) if not item.within]
        self.assertEqual(["calls_out"], wrong)

    def test_results_that_are_one_beside_a_buffer(self):
        """Whatever their number is: as many as the buffers, too."""
        rows, number = torch.ones(2, 3), torch.tensor(3.0)
        names = ["first", "state_all", "total_out", "calls_out"]
        for count in (1, 2, 3, 5):
            with self.subTest(count):
                expected, got = [number, *[rows] * count], [number, torch.ones(2 * count, 3), rows, number]
                found = differences(names, expected, {"total_out": rows, "calls_out": number}, got)
                self.assertEqual(
                    [(name, True) for name in names], [(item.name, item.within) for item in found]
                )

    def test_a_number_of_the_name_of_joined_results(self):
        number = torch.tensor(3.0)
        found = differences(["output_0", "x_out"], [number, number], {"x_out": number}, [number, number])
        self.assertEqual([True, True], [item.within for item in found])


class TestElements(ExporterTestCase):
    """What ``verify``, ``discrepancies`` and the commands say of two tensors: all within the tolerance, or not."""

    def test_all_say_the_same(self):
        inf, nan = float("inf"), float("nan")
        cases = {
            "a float of 8 bits": (torch.float8_e4m3fn, 1.0, 1.25, False),
            "the same one": (torch.float8_e5m2, 1.5, 1.5, True),
            "a float within": (torch.float32, 1.0, 1.00005, True),
            "a float beyond": (torch.float64, 1.0, 1.00005, False),
            "an integer": (torch.int64, 10**6, 10**6 + 1, False),
            "an integer that float64 rounds": (torch.int64, 2**53, 2**53 + 1, False),
            "a boolean": (torch.bool, True, False, False),
            "infinity": (torch.float32, inf, inf, True),
            "another infinity": (torch.float32, inf, -inf, False),
            "NaN": (torch.float16, nan, nan, True),
            "NaN for a number": (torch.float32, nan, 1.0, False),
        }
        for promise, (dtype, first, second, within) in cases.items():
            with self.subTest(promise):
                a, b = (torch.tensor([0, value]).to(dtype) for value in (first, second))
                arrays = (array_from_ort(to_ort(tensor)) for tensor in (a, b))
                found = difference("y", a, b).within, gap(a, b).within, gap_of_arrays(*arrays)[1]
                self.assertEqual((within, within, within), found)

    def test_numbers_of_maps(self):
        """Are float32 in the model, whatever Python makes of them."""
        self.assertTrue(gap_of_arrays({4: 0.5}, {4: 0.50001})[1])
        self.assertFalse(gap_of_arrays({4: 0.5}, {4: 0.51})[1])


class TestDtypes(ExporterTestCase):
    def test_as_onnxruntime_has_them(self):
        for dtype in CARRIERS:
            values = torch.tensor([[1.0, -2.5, 0.25], [0.0, 96.0, float("nan")]])
            for tensor in (values, values[0, 0], values[:, :0], values.t()):
                with self.subTest(dtype=dtype, shape=tensor.shape):
                    tensor = tensor.to(dtype)
                    value = to_ort(tensor)
                    self.assertEqual(value.element_type(), onnx_dtype(dtype))
                    found = from_ort(value)
                    self.assertEqual((found.dtype, found.shape), (dtype, tensor.shape))
                    torch.testing.assert_close(found.double(), tensor.double(), equal_nan=True)
                    array = array_from_ort(value)
                    again = array_from_ort(array_to_ort(array))
                    self.assertEqual((again.dtype, again.shape), (array.dtype, tuple(tensor.shape)))
                    numpy.testing.assert_array_equal(again.astype("f4"), tensor.float().numpy())

    def test_models_of_eight_bits(self):
        x = torch.tensor([1.0, 0.3, -7.0])
        for dtype in (dtype for dtype in CARRIERS if onnx_dtype(dtype) in FLOAT8):
            with self.subTest(dtype):
                to_onnx(lambda x: x.to(dtype), (x,), verify=True)  # noqa: B023
                to_onnx(lambda x: x.to(torch.float32) * 2, (x.to(dtype),), verify=True)


if __name__ == "__main__":
    unittest.main()
