"""Sizes: read once for each name, shapes with 0 and -1, numbers that are not tensors."""

import collections
import math
import unittest

import onnx
import onnx_ir as ir
import sympy
import torch
import torch.nn.functional as F
from torch.utils._sympy.functions import CeilToInt, FloorToInt, RoundToInt, ToFloat, TruncToInt

from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.dimensions import with_whole_products
from experimental_experiment.torch_interpreter.emitter import Context, Emitter
from experimental_experiment.torch_interpreter.promotion import result_dtype
from experimental_experiment.torch_interpreter.sizes import Number, plain

INT64, INT32, FLOAT = ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT


def operators(model: onnx.ModelProto) -> collections.Counter:
    """How often each operator is in a model, bodies included."""
    return collections.Counter(node.op_type for node in ir.from_proto(model).graph.all_nodes())


class CausalBlocks(torch.nn.Module):
    """Blocks of causal attention, of linear layers of their own."""

    def __init__(self, layers):
        super().__init__()
        self.projections = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(layers)])

    def forward(self, x):
        for projection in self.projections:
            heads = projection(x).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
            attended = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            x = x + attended.transpose(1, 2).reshape(x.shape[0], x.shape[1], 8)
        return x


class Filled(torch.nn.Module):
    """A block that needs the sizes of its input."""

    def forward(self, x):
        return x + torch.full_like(x, 2.0).cumsum(0)


class Twice(torch.nn.Module):
    """Two equal blocks."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Filled(), Filled()

    def forward(self, x):
        return self.second(self.first(x) * 2)


class Calls(torch.nn.Module):
    """A function of two tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


class TestNames(ExporterTestCase):
    def test_all_layers_share_the_mask(self):
        counts = []
        for layers in (1, 3):
            model = self.export_and_compare(
                CausalBlocks(layers).eval(),
                (torch.randn(2, 5, 8),),
                dynamic_shapes=({0: "batch", 1: "sequence"},),
                others=[(torch.randn(3, 7, 8),), (torch.randn(1, 1, 8),), (torch.randn(0, 4, 8),)],
                target_opset=20,
            )
            counts.append(operators(model))
        added = counts[1] - counts[0]
        self.assertEqual({"Trilu", "Shape", "Expand"}, {"Trilu", "Shape", "Expand"} - set(added))
        self.assertEqual(26, sum(added.values()))
        self.assertEqual((1, 1), (counts[1]["Trilu"], counts[1]["Shape"]))

    def test_one_shape_a_name(self):
        def function(x, y):
            z = (x + y).relu()
            return z * x.shape[0], torch.arange(z.shape[0]), torch.zeros(y.shape[0], 2)

        x, y = torch.randn(4, 3), torch.randn(4, 3)
        model = self.export_and_compare(
            Calls(function),
            (x, y),
            dynamic_shapes=({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}),
            others=[(torch.randn(6, 3), torch.randn(6, 3))],
        )
        self.assertEqual(1, operators(model)["Shape"])

    def test_dimensions_of_one_name_are_equal(self):
        """The user calls two sizes alike that torch keeps apart: the caches of all layers have one length."""

        def function(x, y):
            return torch.arange(x.shape[0] + 1), torch.arange(y.shape[0] + 1)

        for names, count in (("nn", 1), ("nm", 2)):
            with self.subTest(names):
                model = to_onnx(
                    Calls(function),
                    (torch.randn(4), torch.randn(4)),
                    dynamic_shapes=tuple({0: n} for n in names),
                )
                self.assertEqual(
                    {"Shape": count, "Range": count}, {k: operators(model)[k] for k in ("Shape", "Range")}
                )

    def test_products_that_are_whole_are_named_without_their_rounding(self):
        rows = sympy.Symbol("rows", integer=True, positive=True)
        for factor, size, becomes in (
            (2.0, rows, 2 * rows),
            (0.5, 2 * rows, rows),
            (0.75, 4 * rows + 8, 3 * rows + 6),
            (-0.5, 2 * rows, -rows),
            (0.5, rows, None),
            (0.5, 2 * rows + 1, None),
            (0.1, 10 * rows, None),
        ):
            for rounding in (CeilToInt, FloorToInt, RoundToInt, TruncToInt):
                with self.subTest(factor=factor, size=size, rounding=rounding):
                    product = rounding(factor * ToFloat(size))
                    self.assertEqual(
                        (product if becomes is None else becomes) + 1, with_whole_products(product + 1)
                    )

    def test_a_doubled_image_has_twice_its_size(self):
        double = lambda x: F.interpolate(x, scale_factor=2, mode="bicubic")
        model = self.export_and_compare(
            lambda x: (double(x), torch.arange(math.floor(x.shape[2] * 2.0))),
            (torch.randn(1, 2, 5, 3),),
            dynamic_shapes=({2: "rows"},),
            others=[(torch.randn(1, 2, 4, 3),)],
        )
        image, numbers = (output.type.tensor_type.shape.dim for output in model.graph.output)
        self.assertEqual(["2*rows", "2*rows"], [image[2].dim_param, numbers[0].dim_param])

    def test_a_size_that_a_result_shows_is_read_from_it(self):
        """From the last one: the first convolution stays one node with its Relu."""

        class Enlarged(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.Conv2d(4, 4, 3, 2, 1)

            def forward(self, x):
                shown = torch.relu(self.first(x))
                return F.interpolate(self.second(shown), size=shown.shape[2:], mode="bilinear")

        axes = {axis: torch.export.Dim.DYNAMIC for axis in (0, 2, 3)}
        others = [(torch.randn(1, 3, *size),) for size in ((1, 1), (5, 3), (33, 8))]
        model = self.export_and_compare(
            Enlarged(), (torch.randn(2, 3, 20, 24),), others=others, dynamic_shapes=(axes,)
        )
        found = collections.Counter(node.op_type for node in model.graph.node)
        self.assertEqual({"Conv": 2, "Relu": 1, "Shape": 2, "Concat": 1, "Resize": 1}, dict(found))
        read = [node.input[0] for node in model.graph.node if node.op_type == "Shape"]
        self.assertIn(next(node.output[0] for node in model.graph.node if node.op_type == "Relu"), read)

    def test_bodies_see_the_sizes_around_them_and_keep_their_own(self):
        def function(x, y):
            def then(x):
                return x * x.shape[0] + torch.arange(x.shape[0])

            def otherwise(x):
                return x - x.shape[0]

            chosen = torch.cond(y.sum() > 0, then, otherwise, (x,))
            return chosen, torch.arange(x.shape[0]) + x.shape[0]

        others = [(torch.randn(7), torch.ones(1)), (torch.randn(7), -torch.ones(1))]
        model = self.export_and_compare(
            Calls(function), (torch.randn(4), torch.ones(1)), dynamic_shapes=({0: "n"}, None), others=others
        )
        self.assertEqual(1, operators(model)["Shape"])

    def test_a_local_function_reads_its_own_sizes(self):
        model = self.export_and_compare(
            Twice(),
            (torch.randn(4, 3),),
            dynamic_shapes=({0: "n"},),
            others=[(torch.randn(6, 3),)],
            modules_as_functions=True,
        )
        self.assertEqual(["Filled"], [function.name for function in model.functions])
        self.assertEqual(1, len(model.functions[0].input))


class TestShapes(ExporterTestCase):
    """The operators that a change of shape with dynamic sizes is written to; right for empty tensors too."""

    CASES = {
        "split heads": (lambda x: x.view(x.shape[0], x.shape[1], 8, 2), ["Reshape"]),
        "merge two axes": (lambda x: x.view(x.shape[0] * x.shape[1], 16), ["Reshape"]),
        "the caller's -1": (lambda x: x.view(x.shape[0], x.shape[1], -1, 2), ["Reshape"]),
        "keep all": (lambda x: x.reshape(x.shape), []),
        "keep all with -1": (lambda x: x.reshape(x.shape[0], -1, 16), []),
        "flatten": (lambda x: x.flatten(), ["Reshape"]),
        "flatten the last": (lambda x: x.flatten(1), ["Flatten"]),
        "two axes more": (lambda x: x.unsqueeze(0).unsqueeze(-1), ["Unsqueeze"]),
        "zeros": (torch.zeros_like, ["Shape", "Expand"]),
    }

    def test_operators(self):
        x, empty = torch.randn(3, 4, 16), [(0, 4, 16), (2, 0, 16)]
        for promise, (function, expected) in self.CASES.items():
            with self.subTest(promise):
                model = self.export_and_compare(
                    Call(function, (x,), {}),
                    (x,),
                    dynamic_shapes=(({0: "batch", 1: "sequence"},),),
                    others=[
                        (torch.randn(sizes),) for sizes in ((5, 1, 16), *([] if "-1" in promise else empty))
                    ],
                )
                found = [node.op_type for node in model.graph.node if node.op_type != "Identity"]
                self.assertEqual(expected, found)

    def test_axes_of_unsqueezes_add_up(self):
        cases = {
            "in front twice": lambda x: x[None][None],
            "around": lambda x: x.unsqueeze(1).unsqueeze(0).unsqueeze(-1),
            "between": lambda x: x.unsqueeze(2).unsqueeze(1).unsqueeze(1),
        }
        for promise, function in cases.items():
            with self.subTest(promise):
                model = self.assert_same_as_eager(function, torch.randn(3, 4))
                self.assertEqual(1, operators(model)["Unsqueeze"])


class TestNormalizations(ExporterTestCase):
    """With dynamic sizes as with static ones."""

    def test_operators(self):
        weight, bias = torch.randn(4), torch.randn(4)
        cases = {
            "group_norm, batch": (lambda x: F.group_norm(x, 2, weight, bias), {0}, 4),
            "group_norm, all": (lambda x: F.group_norm(x, 2, weight, bias), {0, 2, 3}, 4),
            "instance_norm": (lambda x: F.instance_norm(x), {0, 2, 3}, 1),
            "instance_norm with weights": (
                lambda x: F.instance_norm(x, weight=weight, bias=bias),
                {0, 2, 3},
                1,
            ),
            "pixel_unshuffle, batch": (lambda x: F.pixel_unshuffle(x, 2), {0}, 3),
            "pixel_unshuffle, all": (lambda x: F.pixel_unshuffle(x, 2), {0, 2, 3}, 2),
        }
        x = torch.randn(3, 4, 6, 8)
        for promise, (function, axes, count) in cases.items():
            with self.subTest(promise):
                sizes = [5 if axis in axes else size for axis, size in enumerate(x.shape)]
                more = [2 * size if axis in axes and axis > 1 else size for axis, size in enumerate(sizes)]
                empty = [0 if axis == 0 else size for axis, size in enumerate(more)]
                model = self.export_and_compare(
                    Call(function, (x,), {}),
                    (x,),
                    dynamic_shapes=(({axis: torch.export.Dim.AUTO for axis in axes},),),
                    others=[
                        (torch.randn(more),),
                        *(
                            []
                            if promise.startswith(("pixel", "instance_norm with"))
                            else [(torch.randn(empty),)]
                        ),
                    ],
                    target_opset=20,
                )
                self.assertEqual(count, len(model.graph.node))


class TestNumbers(ExporterTestCase):
    def test_an_element_is_a_number_and_its_tensor_stays_a_tensor(self):
        def integers(x, y):
            n = x.item()
            torch._check(n >= 0)
            return x + y, torch.arange(n), y + n, n + 1

        def floats(x, y):
            return x + y, y + x.item()

        pairs = [(torch.int64, torch.int32), (torch.int64, torch.int16)]
        cases = [(integers, *pair) for pair in pairs]
        cases += [
            (floats, *pair)
            for pair in [*pairs, (torch.float64, torch.float32), (torch.float64, torch.float16)]
        ]
        for function, wide, narrow in cases:
            for y in (torch.ones(3, dtype=narrow), torch.tensor(2, dtype=narrow)):
                with self.subTest(f"{function.__name__} {wide} {narrow} {y.dim()}"):
                    others = [(torch.tensor(7).to(wide), y * 3)]
                    self.export_and_compare(Calls(function), (torch.tensor(5).to(wide), y), others=others)

    def test_a_tensor_made_of_a_size_is_a_tensor(self):
        def function(x, y):
            size = x.shape[0]
            tensor = torch.scalar_tensor(size, dtype=torch.int64)
            return tensor + y, size + y, tensor * size

        for y in (torch.ones(3, dtype=torch.int32), torch.tensor(3, dtype=torch.int32)):
            self.export_and_compare(
                Calls(function),
                (torch.ones(4), y),
                others=[(torch.ones(6), y)],
                dynamic_shapes=({0: "n"}, None),
            )

    def test_one_value_two_meanings(self):
        value = ir.Value(name="n", type=ir.TensorType(INT64), shape=ir.Shape([]))
        other = ir.Value(name="x", type=ir.TensorType(INT32), shape=ir.Shape([]))
        self.assertEqual(INT64, result_dtype(value, other))
        self.assertEqual(INT32, result_dtype(Number(value), other))
        self.assertIs(value, plain(Number(Number(value))))

    def test_the_emitter_reads_numbers(self):
        graph = ir.Graph([], [], nodes=[])
        op = Emitter(graph, Context(graph, 20))
        value = ir.Value(name="n", type=ir.TensorType(INT64), shape=ir.Shape([]))
        number = Number(value)
        self.assertIs(value, op.Add(number, 1).producer().inputs[0])
        self.assertIs(value, op.append("Identity", [number], {}, 1).inputs[0])
        self.assertEqual([2], list(op.shape([3, number]).shape))


if __name__ == "__main__":
    unittest.main()
