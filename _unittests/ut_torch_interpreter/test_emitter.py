"""The emitter: nodes with the right dtypes, constants folded and stored once, sizes, subgraphs."""

import dataclasses
import inspect
import re
import unittest

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.dtypes import torch_dtype
from experimental_experiment.torch_interpreter.emitter import Context, Emitter, Names, Origin, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable

FLOAT, DOUBLE, INT64, BOOL = (
    ir.DataType.FLOAT,
    ir.DataType.DOUBLE,
    ir.DataType.INT64,
    ir.DataType.BOOL,
)


class EmitterTestCase(unittest.TestCase):
    def setUp(self):
        self.graph = ir.Graph([], [], nodes=[], name="test", opset_imports={"": 20})
        self.op = Emitter(self.graph, Context(self.graph, 20))

    def value(self, *sizes, dtype=FLOAT, name="x"):
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(sizes))
        self.graph.inputs.append(value)
        return value

    def kinds(self):
        return [node.op_type for node in self.graph]


class TestNodes(EmitterTestCase):
    def test_one_value_or_a_tuple(self):
        x = self.value("n", 4)
        self.assertIsInstance(self.op.Relu(x), ir.Value)
        first, second = self.op.Split(x, num_outputs=2, axis=1, outputs=2)
        self.assertEqual((2, 2), (first.shape[1], second.shape[1]))
        self.assertIsInstance(self.op.Relu(x, outputs=1), tuple)

    def test_dtype_and_shape_are_inferred(self):
        x = self.value("n", 4)
        y = self.op.MatMul(x, self.value(4, 5, name="w"))
        self.assertEqual((FLOAT, ["n", 5]), (y.dtype, list(y.shape)))
        self.assertEqual(INT64, self.op.ArgMax(x).dtype)

    def test_axes_that_a_slice_takes_whole(self):
        """They keep their size and its name, whatever bounds are computed for the other ones, also the second time."""
        x, end = self.value("n", "m", 4), self.value(1, dtype=INT64, name="end")
        for _ in range(2):
            for axes, expected in (([1], ["n", None, 4]), ([-1], ["n", "m", None])):
                y = self.op.Slice(x, [0], end, axes)
                named = [
                    None if str(size).startswith("unk") or size == ir.SymbolicDim(None) else size
                    for size in y.shape
                ]
                self.assertEqual(expected, named)
        unknown = self.op.Slice(x, [0], end, self.value(1, dtype=INT64, name="axes"))
        self.assertNotIn(4, list(unknown.shape))

    def test_numbers_take_the_dtype_beside_them(self):
        for dtype in (FLOAT, DOUBLE, ir.DataType.FLOAT16, INT64, ir.DataType.INT32):
            with self.subTest(dtype.name):
                x = self.value(3, dtype=dtype, name=dtype.name)
                self.assertEqual(dtype, self.op.Mul(x, 2).dtype)
                self.assertEqual(dtype, self.op.Add(1, x).dtype)

    def test_a_number_that_does_not_fit(self):
        with self.assertRaisesRegex(Untranslatable, "0.5 does not fit INT64"):
            self.op.Mul(self.value(3, dtype=INT64), 0.5)

    def test_absent_inputs(self):
        x = self.value(3, 4, dtype=INT64)
        node = self.op.Clip(x, None, 6).producer()
        self.assertIsNone(node.inputs[1])
        self.assertEqual(1, len(self.op.Clip(x, None, None).producer().inputs))

    def test_absent_attributes_are_left_out(self):
        node = self.op.Softmax(self.value(3, 4), axis=None).producer()
        self.assertEqual({}, dict(node.attributes))

    def test_names_are_unique(self):
        x = self.value(3)
        names = [self.op.Relu(x).name for _ in range(5)]
        self.assertEqual(5, len(set(names)))

    def test_unknown_operators(self):
        with self.assertRaisesRegex(
            Untranslatable, "ONNX Swish does not exist in opset 20: raise target_opset"
        ):
            self.op.Swish(self.value(3))
        with self.assertRaisesRegex(AttributeError, "ONNX operators start with a capital"):
            self.op.relu(self.value(3))
        self.assertTrue(self.op.has("Gelu"))
        self.assertFalse(self.op.has("Attention"))

    def test_another_domain(self):
        self.op.FusedGelu(self.value(3), domain="my.domain", alpha=1.0)
        self.assertEqual(1, self.op.context.domains["my.domain"])

    def test_casts_where_onnxruntime_has_no_kernel(self):
        x = self.value(3, dtype=ir.DataType.BFLOAT16)
        y = self.op.Exp(x)
        self.assertEqual(ir.DataType.BFLOAT16, y.dtype)
        self.assertEqual(["Cast", "Exp", "Cast"], self.kinds())

    def test_int64_is_never_widened_to_a_float(self):
        with self.assertRaisesRegex(Untranslatable, "computes INT64|does not accept"):
            self.op.Exp(self.value(3, dtype=INT64))


class TestContext(EmitterTestCase):
    def test_each_attribute_is_described(self):
        described = re.findall(r"^    (\w+): ", inspect.getdoc(Context), re.MULTILINE)
        described.remove("rows")  # made of the others
        self.assertEqual([field.name for field in dataclasses.fields(Context)], described)

    def test_the_origin_and_the_region_are_restored_after_an_error(self):
        context, x = self.op.context, self.value(3)
        origin = Origin(prefix="sine", provenance={"from": "a line"}, modules=(("", "Model", "lib"),))
        with (
            self.assertRaisesRegex(Untranslatable, "no such sine"),
            context.at(origin),
            context.inside("region"),
        ):
            self.assertEqual((origin, "region"), (context.origin, context.region))
            node = self.op.Sin(x).producer()
            raise Untranslatable("no such sine")
        self.assertEqual(("node_sine_Sin", {"from": "a line"}), (node.name, dict(node.metadata_props)))
        self.assertEqual((Origin(), None), (context.origin, context.region))

    def test_a_dtype_that_nothing_computes(self):
        message = "neither ONNX Sin nor a cast around it computes UINT64"
        with self.assertRaisesRegex(Untranslatable, message):
            self.op.Sin(self.value(3, dtype=ir.DataType.UINT64))


class TestConstants(EmitterTestCase):
    def test_dtypes(self):
        cases = [(1, INT64), (1.5, FLOAT), (True, BOOL), ([1, 2], INT64), ([1.5, 2], FLOAT), ([], INT64)]
        for number, dtype in cases:
            with self.subTest(number):
                self.assertEqual(dtype, self.op.constant(number).dtype)
        self.assertEqual(DOUBLE, self.op.constant(1, DOUBLE).dtype)
        self.assertEqual(ir.DataType.INT32, self.op.constant(np.array([1], dtype=np.int32)).dtype)

    def test_stored_once(self):
        self.assertIs(self.op.constant([1, 2]), self.op.constant([1, 2]))
        self.assertIsNot(self.op.constant(0), self.op.constant([0]))
        self.assertIsNot(self.op.constant(0.0), self.op.constant(-0.0))
        self.assertEqual(5, len(self.graph.initializers))

    def test_folded(self):
        y = self.op.Mul(self.op.Add([1, 2], [3, 4]), 2)
        self.assertEqual([8, 12], y.const_value.numpy().tolist())
        z = self.op.CumSum(self.op.Relu([-1.0, 2.0, 3.0]), 0, reverse=1)
        self.assertEqual([5.0, 5.0, 3.0], z.const_value.numpy().tolist())
        w = self.op.ScatterND([[1, 2], [3, 4]], [[-1]], [[7, 8]])
        self.assertEqual([[1, 2], [7, 8]], w.const_value.numpy().tolist())
        w = self.op.ScatterND([[1, 2], [3, 4]], [[0], [0]], [[1, 1], [2, 2]], reduction="add")
        self.assertEqual([[4, 5], [3, 4]], w.const_value.numpy().tolist())
        self.assertEqual([], self.kinds())

    def test_elements_that_are_not_there_are_left_to_the_runtime(self):
        self.op.Gather([1.0, 2.0], [7])
        self.op.GatherElements([1.0, 2.0], [-3])
        self.op.GatherND([[1.0, 2.0]], [[0, 2]])
        self.op.ScatterND([1.0, 2.0], [[7]], [3.0])
        self.assertEqual(["Gather", "GatherElements", "GatherND", "ScatterND"], self.kinds())

    def test_functions_are_rounded_as_torch_rounds_them(self):
        """Frequencies that numpy computes differ in their last bit; times a position of 1000 that is seen in the sine."""
        x = torch.linspace(-9, 9, 1000)
        for dtype in (torch.float32, torch.float64):
            steps = x.to(dtype)
            unit, positive = steps / 10, steps.abs() + 1
            cases = {
                "Acos": ([unit], torch.acos(unit)),
                "Acosh": ([positive], torch.acosh(positive)),
                "Asin": ([unit], torch.asin(unit)),
                "Asinh": ([steps], torch.asinh(steps)),
                "Atan": ([steps], torch.atan(steps)),
                "Atanh": ([unit], torch.atanh(unit)),
                "Cos": ([steps], torch.cos(steps)),
                "Cosh": ([steps], torch.cosh(steps)),
                "Exp": ([steps], torch.exp(steps)),
                "Log": ([positive], torch.log(positive)),
                "Pow": ([torch.tensor(10000.0, dtype=dtype), steps], torch.pow(10000.0, steps)),
                "Sin": ([steps], torch.sin(steps)),
                "Sinh": ([steps], torch.sinh(steps)),
                "Tan": ([steps], torch.tan(steps)),
                "Tanh": ([steps], torch.tanh(steps)),
            }
            for kind, (inputs, expected) in cases.items():
                if dtype == torch.float64 and kind not in ("Cos", "Exp", "Log", "Pow", "Sin", "Tanh"):
                    continue  # onnxruntime has no kernel, the runtime table casts the operands before
                with self.subTest(kind, dtype=dtype):
                    y = getattr(self.op, kind)(*(self.op.constant(each.numpy()) for each in inputs))
                    self.assertTrue(torch.equal(expected, torch.tensor(y.const_value.numpy())))
        whole = self.op.Pow([1.5, 2.0], [2, 3])  # of two dtypes
        self.assertEqual([2.25, 8.0], whole.const_value.numpy().tolist())
        with torch.device("meta"):
            one = self.op.Exp([0.0])
        self.assertEqual([1.0], one.const_value.numpy().tolist())
        self.assertEqual([], self.kinds())

    def test_halves_are_moved_and_cast(self):
        """They are not computed with: onnxruntime rounds a chain of them once."""
        for dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
            with self.subTest(dtype.name):
                y = self.op.Expand(self.op.Cast([1 / 3, 1e38], to=dtype), [3, 2])
                expected = torch.tensor([1 / 3, 1e38]).to(torch_dtype(dtype)).float().expand(3, 2)
                self.assertEqual(expected.tolist(), y.const_value.numpy().astype(np.float32).tolist())
                self.assertEqual([], self.kinds())
        half = self.op.constant([1 / 3, 3.0], ir.DataType.FLOAT16)
        self.op.Mul(half, half)
        self.assertEqual(["Mul"], self.kinds())

    def test_a_large_constant_is_not_folded(self):
        self.op.Add(np.ones(5000, dtype=np.float32), 1.0)
        self.assertEqual(["Add"], self.kinds())

    def test_a_division_by_zero_is_left_to_the_model(self):
        self.op.Div(self.op.constant([1]), self.op.constant([0]))
        self.assertEqual(["Div"], self.kinds())

    def test_roundings_bounds_paddings_and_elements_are_computed(self):
        x = self.op.constant(np.array([[-2.5, -1.5, 0.5, 1.5, 2.5, np.inf, np.nan]], dtype=np.float32))
        expected = {
            "Round": [[-2.0, -2.0, 0.0, 2.0, 2.0, np.inf, np.nan]],
            "Clip": [[-2.0, -1.5, 0.5, 1.5, 2.0, 2.0, np.nan]],
            "Sign": [[-1.0, -1.0, 1.0, 1.0, 1.0, 1.0, np.nan]],
            "Pad": [[7.0, -2.5, -1.5, 0.5, 1.5, 2.5, np.inf, np.nan, 7.0]],
            "GatherElements": [[np.nan, -2.5]],
        }
        given = {
            "Round": self.op.Round(x),
            "Clip": self.op.Clip(x, -2.0, 2.0),
            "Sign": self.op.Sign(x),
            "Pad": self.op.Pad(x, [0, 1, 0, 1], 7.0),
            "GatherElements": self.op.GatherElements(x, [[-1, 0]], axis=1),
        }
        for kind, values in expected.items():
            with self.subTest(kind):
                np.testing.assert_array_equal(values, given[kind].const_value.numpy())
        self.assertEqual([], self.kinds())

    def test_what_numpy_computes_otherwise_is_left_to_the_model(self):
        x = self.op.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
        self.op.Pad(x, [0, -1, 0, 1])
        self.assertEqual(["Pad"], self.kinds())

    def test_nothing_in_rows(self):
        x = self.op.constant(np.zeros((2, 0, 3), np.float32))
        for axis, shape in {0: (1, 0), 1: (2, 0), 2: (0, 3), 3: (0, 1), -1: (0, 3)}.items():
            with self.subTest(axis):
                self.assertEqual(shape, self.op.Flatten(x, axis=axis).const_value.numpy().shape)
        y = self.op.Flatten(self.op.constant(np.arange(12, dtype=np.float32).reshape(2, 2, 3)), axis=-1)
        self.assertEqual([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], y.const_value.numpy().tolist())

    def test_elements_at_constant_positions(self):
        """Many along the axis, many positions, negative ones, fewer of the other axes."""
        for shape, indices, axis in (
            ((1, 512), np.arange(-64, 64)[None], 1),
            ((512, 1), np.arange(64)[::-1, None], -2),
            ((3, 4), np.array([[0, 1], [2, -1]]), 0),
            ((2, 100, 3), np.full((2, 5, 3), 99), 1),
            ((4, 5), np.zeros((0, 5), np.int64), -2),
        ):
            with self.subTest(shape=shape, axis=axis):
                x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
                got = self.op.GatherElements(x, indices, axis=axis).const_value.numpy()
                wanted = torch.gather(torch.from_numpy(x), axis, torch.from_numpy(indices % shape[axis]))
                np.testing.assert_array_equal(got, wanted.numpy())
        self.assertEqual([], self.kinds())

    def test_every_float(self):
        for dtype in (DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
            with self.subTest(dtype.name):
                value = self.op.constant([1.5, float("inf")], dtype)
                self.assertEqual(dtype, value.dtype)
                self.assertEqual(1.5, float(value.const_value.numpy()[0]))


class TestSizes(EmitterTestCase):
    def test_static_and_dynamic(self):
        x = self.value("n", 4)
        self.assertEqual(4, self.op.size(x, 1))
        self.assertEqual(4, self.op.size(x, -1))
        n = self.op.size(x, 0)
        self.assertEqual((INT64, 0), (n.dtype, rank(n)))
        self.assertIs(n, self.op.size(x, -2))
        self.assertEqual([], self.kinds())
        self.op.Add(n, self.op.Mul(n, 2))
        self.assertEqual(["Shape", "Squeeze", "Mul", "Add"], self.kinds())

    def test_shape_of_lists(self):
        x = self.value("n", 4)
        self.assertEqual([2, 3], self.op.shape([2, 3]).const_value.numpy().tolist())
        self.assertEqual([], self.op.shape([]).const_value.numpy().tolist())
        mixed = self.op.shape([2, self.op.size(x, 0), -1, 5])
        self.assertEqual((INT64, [4]), (mixed.dtype, list(mixed.shape)))
        self.assertEqual([4], self.op.shape_of(x, 1).const_value.numpy().tolist())

    def test_lists_among_the_inputs(self):
        x = self.value("n", 4)
        y = self.op.Reshape(x, [self.op.size(x, 0), 2, 2])
        self.assertEqual(3, rank(y))

    def test_an_unknown_rank(self):
        with self.assertRaisesRegex(Untranslatable, "the rank of x is unknown"):
            rank(ir.Value(name="x"))


class TestSimplifications(EmitterTestCase):
    """Nodes that change nothing are not written."""

    def test_nothing_is_written(self):
        x = self.value("n", 4)
        for promise, result in {
            "a cast to the same dtype": self.op.Cast(x, to=FLOAT),
            "an identity": self.op.Identity(x),
            "a permutation that moves nothing": self.op.Transpose(x, perm=[0, 1]),
            "a concatenation of one": self.op.Concat(x, axis=0),
            "an unsqueeze of no axis": self.op.Unsqueeze(x, []),
            "a sum with 0": self.op.Add(0, x),
            "a difference to 0": self.op.Sub(x, 0.0),
            "a product with 1, of the same rank": self.op.Mul(x, [[1.0]]),
            "a quotient by 1": self.op.Div(x, 1.0),
            "the first power": self.op.Pow(x, 1.0),
        }.items():
            with self.subTest(promise):
                self.assertIs(x, result)
        truth = self.value(3, dtype=BOOL, name="truth")
        self.assertIs(truth, self.op.And(True, truth))
        self.assertIs(truth, self.op.Or(truth, False))
        number = self.value(name="number")
        self.assertIs(number, self.op.ReduceSum(number, keepdims=0))
        self.assertEqual([], self.kinds())

    def test_a_number_that_changes_something(self):
        x, count = self.value("n", 4), self.value(3, dtype=INT64, name="count")
        self.op.Sub(0, x)
        self.op.Div(1.0, x)
        self.assertEqual(3, rank(self.op.Add(x, [[[0.0]]])))
        self.assertEqual(["n", 4], list(self.op.Mul(x, [[1.0]] * 2 if x.shape[0] == 2 else [1.0] * 4).shape))
        self.op.Pow(count, 1.0)
        self.op.context.special_values = True
        self.op.Add(x, 0.0)
        self.assertEqual(["Sub", "Div", "Add", "Mul", "Pow", "Add"], self.kinds())
        self.assertIs(count, self.op.Add(count, 0))

    def test_a_square_is_a_product(self):
        x = self.value("n", 4)
        self.assertEqual([x, x], list(self.op.Pow(x, 2.0).producer().inputs))
        self.assertEqual(["Mul"], self.kinds())

    def test_a_constant_half_is_cast_at_once(self):
        half = self.op.constant(0.1, ir.DataType.FLOAT16)
        self.assertEqual(0.0999755859375, self.op.Cast(half, to=FLOAT).const_value.numpy().item())

    def test_one_unsqueeze_for_two(self):
        x = self.value("n", 4)
        for first, second, axes in (([0], [0], [0, 1]), ([1], [0, -1], [0, 2, 4]), ([-1], [1], [1, 3])):
            node = self.op.Unsqueeze(self.op.Unsqueeze(x, first), second).producer()
            self.assertIs(x, node.inputs[0])
            self.assertEqual(axes, node.inputs[1].const_value.numpy().tolist())

    def test_one_transposition_for_two(self):
        x = self.value(2, 3, 4)
        y = self.op.Transpose(self.op.Transpose(x, perm=[1, 0, 2]), perm=[2, 0, 1])
        self.assertIs(x, y.producer().inputs[0])
        self.assertEqual([4, 3, 2], list(y.shape))

    def test_one_reshape_for_two(self):
        x = self.value(2, 6)
        y = self.op.Reshape(self.op.Reshape(x, [12]), [3, 4])
        self.assertIs(x, y.producer().inputs[0])
        self.assertIs(x, self.op.Reshape(x, [2, 6]))


class TestSubgraphs(EmitterTestCase):
    def test_outputs_are_values_of_their_own(self):
        x = self.value(3)
        graph = self.op.subgraph(lambda inner, a: [a, a, x, inner.Relu(a)], [x])
        self.assertEqual(4, len({id(value) for value in graph.outputs}))
        self.assertTrue(all(value.producer().op_type == "Identity" for value in graph.outputs))
        self.assertEqual(len({value.name for value in graph.outputs}), 4)

    def test_names_and_sizes_are_shared_with_the_outer_graph(self):
        x = self.value("n", 3)
        n = self.op.size(x, 0)
        seen = []
        self.op.subgraph(lambda inner: seen.append(inner.size(x, 0)) or [inner.Relu(x)])
        self.assertIs(n, seen[0])

    def test_sizes_of_a_subgraph_stay_there(self):
        x = self.value("n", 3)
        inside = []
        self.op.subgraph(lambda inner: inside.append(inner.size(x, 0)) or [inside[0]])
        self.assertIsNot(inside[0], self.op.size(x, 0))

    def test_constants_are_seen_from_everywhere(self):
        inside = []
        self.op.subgraph(lambda inner: inside.append(inner.constant(3)) or [inside[0]])
        self.assertIs(inside[0], self.op.constant(3))


class TestNames(unittest.TestCase):
    def test_unique(self):
        names = Names()
        self.assertEqual(["x", "x_1", "x_2"], [names.unique("x") for _ in range(3)])
        self.assertEqual("x_1_1", names.unique("x_1"))
        names.reserve("y")
        self.assertEqual("y_1", names.unique("y"))
        with self.assertRaisesRegex(ValueError, "'y' is used twice"):
            names.reserve("y")


if __name__ == "__main__":
    unittest.main()
