"""The interface of the model: names, types and order of inputs, outputs, dimensions and weights."""

import collections
import dataclasses
import importlib.util
import os
import subprocess
import sys
import textwrap
import unittest

import onnx
import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Result:
    """An output with two fields."""

    total: torch.Tensor
    parts: list


@dataclasses.dataclass
class Batch:
    """An input with two fields."""

    tokens: torch.Tensor
    weight: torch.Tensor


def setUpModule():
    for cls in (Result, Batch):
        torch.export.register_dataclass(cls, serialized_type_name=f"{__name__}.{cls.__name__}")


class Function(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def inputs(model):
    """Name, dtype and sizes of the inputs."""
    return described(model.graph.input)


def outputs(model):
    """Name, dtype and sizes of the outputs."""
    return described(model.graph.output)


def described(infos):
    return [
        (
            info.name,
            onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type),
            tuple(d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim),
        )
        for info in infos
    ]


def names(infos):
    return [info.name for info in infos]


def shapes(infos):
    return [sizes for _, _, sizes in described(infos)]


X, Y = torch.randn(2, 3), torch.randn(2, 3)


class TestForms(ExporterTestCase):
    """What forward takes and gives."""

    CASES = {
        "nested lists and dictionaries": (
            lambda items, table: [items[0] + table["b"], {"sum": items[1][0] * 2, "deep": (table["a"],)}],
            ([X, [Y]], {"a": X, "b": Y}),
            {},
            ["items_0", "items_1_0", "table_a", "table_b"],
            ["output_0", "output_1_sum", "output_1_deep_0"],
        ),
        "None vanishes from inputs and outputs": (
            lambda x, mask=None, *, y=None: (x + 1, None, x if y is None else x - y),
            (X, None),
            {"y": Y},
            ["x", "y"],
            ["output_0", "output_2"],
        ),
        "an unused input stays, in its place": (
            lambda a, unused, b: a + b,
            (X, torch.randn(4), Y),
            {},
            ["a", "unused", "b"],
            ["output"],
        ),
        "a constant, a repeated and a passed-through output": (
            lambda x: (x, (y := x + 1), y, torch.ones(2), x),
            (X,),
            {},
            ["x"],
            ["output_0", "output_1", "output_2", "output_3", "output_4"],
        ),
        "Python numbers among the outputs": (
            lambda x: (x * 2, 3, 2.5, True, x.shape[0]),
            (X,),
            {},
            ["x"],
            ["output_0", "output_1", "output_2", "output_3", "output_4"],
        ),
        "Python numbers among the inputs are constants": (
            lambda x, n, f, flag: x * n + f if flag else x,
            (X, 3, 0.5, True),
            {},
            ["x"],
            ["output"],
        ),
        "a string among the inputs": (
            lambda x, mode="add": x + 1 if mode == "add" else x - 1,
            (X, "sub"),
            {},
            ["x"],
            ["output"],
        ),
        "the same tensor given twice": (
            lambda a, b: (a + b, a * b),
            (X, X),
            {},
            ["a", "b"],
            ["output_0", "output_1"],
        ),
        "keyword-only arguments, in the order of the call": (
            lambda x, *, scale, bias: x * scale + bias,
            (X,),
            {"bias": Y, "scale": X},
            ["x", "bias", "scale"],
            ["output"],
        ),
        "*args": (
            lambda x, *rest: x + rest[0] * rest[1],
            (X, Y, X),
            {},
            ["x", "rest_0", "rest_1"],
            ["output"],
        ),
        "**kwargs": (
            lambda x, **more: x + more["b"] * more["a"],
            (X,),
            {"b": Y, "a": X},
            ["x", "b", "a"],
            ["output"],
        ),
        "a named tuple in and out": (
            lambda pair: Pair(pair.left + 1, pair.right),
            (Pair(X, Y),),
            {},
            ["pair_left", "pair_right"],
            ["left", "right"],
        ),
        "a dataclass in and out": (
            lambda batch: Result(batch.tokens + batch.weight, [batch.tokens, batch.weight]),
            (Batch(X, Y),),
            {},
            ["batch_tokens", "batch_weight"],
            ["total", "parts_0", "parts_1"],
        ),
        "a dictionary as the result": (
            lambda x: {"logits": x + 1, "hidden states": (x, x * 2)},
            (X,),
            {},
            ["x"],
            ["logits", "hidden_states_0", "hidden_states_1"],
        ),
        "keys that are no names": (
            lambda x: {"": x + 1, "a b": x + 2, "a_b": x + 3, "*": x + 4},
            (X,),
            {},
            ["x"],
            ["output", "a_b", "a_b_out", "_"],
        ),
        "a key that another one would be called": (
            lambda x: {"x": x + 1, "x_out": x + 2},
            (X,),
            {},
            ["x"],
            ["x_out_out", "x_out"],
        ),
        "no input": (lambda: torch.ones(2) * 3, (), {}, [], ["output"]),
        "a 0-d tensor": (lambda x: x + 1, (torch.tensor(2.0),), {}, ["x"], ["output"]),
    }

    def test_forms(self):
        for promise, (function, args, kwargs, given, results) in self.CASES.items():
            with self.subTest(promise):
                model = self.export_and_compare(Function(function), args, kwargs)
                self.assertEqual(given, names(model.graph.input))
                self.assertEqual(results, names(model.graph.output))

    def test_functions(self):
        """A plain function has the names of its parameters."""

        def scaled(x, factor=2.0, *, bias):
            return x * factor + bias

        model = to_onnx(scaled, (X,), {"bias": Y})
        self.assertEqual(["x", "bias"], names(model.graph.input))
        self.assert_matches(model, Function(scaled), (X,), {"bias": Y})

    def test_dynamic_integer(self):
        def grown(x, n):
            return x.repeat(n, 1), n + 1

        model = self.export_and_compare(
            Function(grown),
            (X, 3),
            dynamic_shapes=({0: "batch"}, Dim.DYNAMIC),
            others=[(torch.randn(4, 3), 5)],
        )
        self.assertEqual(("n", "INT64", ()), inputs(model)[1])
        self.assertEqual([("batch*n", 3), ()], shapes(model.graph.output))

    def test_types(self):
        def kinds(a, b, c, d):
            return a, b + 1, c, d

        args = (X.half(), X.bfloat16(), torch.tensor([1], dtype=torch.uint8), torch.tensor(True))
        model = self.export_and_compare(Function(kinds), args)
        expected = ["FLOAT16", "BFLOAT16", "UINT8", "BOOL"]
        self.assertEqual(expected, [dtype for _, dtype, _ in inputs(model)])
        self.assertEqual(expected, [dtype for _, dtype, _ in outputs(model)])

    def test_complex_inputs_and_outputs_end_with_two(self):
        model = self.export_and_compare(Function(lambda z: (z,)), (torch.randn(2, 3, dtype=torch.complex64),))
        self.assertEqual([("z", "FLOAT", (2, 3, 2))], inputs(model))
        self.assertEqual((2, 3, 2), outputs(model)[0][2])


class TestGivenNames(ExporterTestCase):
    def test_names_of_inputs_and_outputs(self):
        model = to_onnx(
            Function(lambda x, y: (x + y, x)), (X, Y), input_names=["a", "b"], output_names=["s", "t"]
        )
        self.assertEqual(["a", "b"], names(model.graph.input))
        self.assertEqual(["s", "t"], names(model.graph.output))

    def test_wrong_names(self):
        cases = {
            "input_names has 1 names for 2 inputs": {"input_names": ["a"]},
            "input_names holds a name twice": {"input_names": ["a", "a"]},
            "output_names has 3 names for 2 outputs": {"output_names": ["a", "b", "c"]},
            "output_names holds a name twice": {"output_names": ["a", "a"]},
            "or the name of an input": {"output_names": ["x", "b"]},
        }
        for message, options in cases.items():
            with self.subTest(message):
                with self.assertRaisesRegex(ValueError, message):
                    to_onnx(Function(lambda x, y: (x + y, x)), (X, Y), **options)
        linear = torch.nn.Linear(3, 2)
        for argument in ("input_names", "output_names"):
            with self.assertRaisesRegex(
                ValueError, f"{argument} holds 'bias', which is the name of a weight"
            ):
                to_onnx(linear, (torch.ones(2, 3),), **{argument: ["bias"]})
            for given in ("xy", {"x": "a", "y": "b"}, {"a", "b"}, 3):
                with self.assertRaisesRegex(TypeError, f"{argument} is a list of names, not {given!r}"):
                    to_onnx(Function(lambda x, y: (x + y, x)), (X, Y), **{argument: given})


class TestDimensions(ExporterTestCase):
    FORMS = {
        "a tuple of dictionaries": ({0: "batch"}, {0: "batch"}),
        "a list of dictionaries": [{0: "batch"}, {0: "batch"}],
        "by argument": {"x": {0: "batch"}, "y": {0: "batch"}},
        "by position of each axis": (("batch", None), ("batch", None)),
        "Dim": ({0: Dim("batch")}, {0: Dim("batch")}),
        "Dim with bounds": ({0: Dim("batch", min=1, max=64)}, {0: Dim("batch", min=1, max=64)}),
        "one Dim and AUTO": ({0: Dim("batch")}, {0: Dim.AUTO}),
        "one name and AUTO": ({0: Dim.AUTO}, {0: "batch"}),
        "an int and STATIC keep a size": ({0: "batch", 1: 3}, {0: "batch", 1: Dim.STATIC}),
    }

    def test_every_form(self):
        for promise, dynamic_shapes in self.FORMS.items():
            with self.subTest(promise):
                model = self.export_and_compare(
                    Function(lambda x, y: x + y),
                    (X, Y),
                    dynamic_shapes=dynamic_shapes,
                    others=[(torch.randn(5, 3), torch.randn(5, 3))],
                )
                self.assertEqual([("batch", 3)] * 2, shapes(model.graph.input))
                self.assertEqual([("batch", 3)], shapes(model.graph.output))

    def test_nested_form(self):
        def function(items, table, *, flag=None):
            return items[0] + table["a"]

        model = to_onnx(
            Function(function),
            ([X, torch.randn(2, 3)],),
            {"table": {"a": Y}},
            dynamic_shapes={"items": [{0: "batch"}, None], "table": {"a": {0: "batch"}}},
        )
        self.assertEqual([("batch", 3), (2, 3), ("batch", 3)], shapes(model.graph.input))

    def test_keyword_arguments_in_another_order(self):
        model = to_onnx(
            Function(lambda x, a, b: x + a + b),
            (X,),
            {"b": Y[:1], "a": X},
            dynamic_shapes={"x": {0: "batch"}, "a": {0: "batch"}, "b": None},
        )
        self.assertEqual(
            [("x", "FLOAT", ("batch", 3)), ("b", "FLOAT", (1, 3)), ("a", "FLOAT", ("batch", 3))],
            inputs(model),
        )

    def test_shapes_collection(self):
        shapes_of = torch.export.ShapesCollection()
        args = (X, torch.randn(5, 3))
        shapes_of[args[0]] = {0: Dim("batch")}
        shapes_of[args[1]] = {0: Dim("length")}
        model = to_onnx(Function(lambda x, y: x @ y.T), args, dynamic_shapes=shapes_of)
        self.assertEqual([("batch", 3), ("length", 3)], shapes(model.graph.input))
        self.assertEqual([("batch", "length")], shapes(model.graph.output))

    def test_derived_dimensions_are_expressions(self):
        batch = Dim("batch")
        model = to_onnx(
            Function(lambda x, y: (torch.cat([x, x]) + y, x.reshape(-1))),
            (X, torch.randn(4, 3)),
            dynamic_shapes=({0: batch}, {0: 2 * batch}),
        )
        self.assertEqual([("batch", 3), ("2*batch", 3)], shapes(model.graph.input))
        self.assertEqual([("2*batch", 3), ("3*batch",)], shapes(model.graph.output))

    def test_unnamed_dimensions_get_readable_names(self):
        model = self.export_and_compare(
            Function(lambda x, y: (x @ y, x + 1)),
            (X, torch.randn(3, 4)),
            dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.DYNAMIC}),
        )
        self.assertEqual([("x_dim_0", "x_dim_1"), ("x_dim_1", "y_dim_1")], shapes(model.graph.input))
        self.assertEqual([("x_dim_0", "y_dim_1"), ("x_dim_0", "x_dim_1")], shapes(model.graph.output))

    def test_data_dependent_dimensions_get_readable_names(self):
        model = self.export_and_compare(
            Function(lambda x: x[x[:, 0] > 0]), (X,), dynamic_shapes=({0: "batch"},)
        )
        ((rows, columns),) = shapes(model.graph.output)
        self.assertEqual(3, columns)
        self.assertNotRegex(rows, r"^[su]\d+$")

    def test_two_names_for_one_dimension(self):
        """Both are honoured at the interface, or one is: never a third."""
        model = to_onnx(Function(lambda x, y: x + y), (X, Y), dynamic_shapes=({0: "first"}, {0: "second"}))
        found = {size for sizes in shapes([*model.graph.input, *model.graph.output]) for size in sizes}
        self.assertLessEqual(found, {"first", "second", 3})

    def test_examples_of_size_zero_and_one(self):
        for size in (0, 1):
            with self.subTest(size):
                self.export_and_compare(
                    Function(lambda x: x * 2),
                    (torch.randn(size, 3),),
                    dynamic_shapes=({0: "batch"},),
                    others=[(torch.randn(4, 3),)],
                )

    def test_same_bytes_in_another_process(self):
        """Whatever the order of sets is, with each option."""
        script = """
            import hashlib, torch
            from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.heads = torch.nn.ModuleList([torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)])
                    self.register_buffer("seen", torch.zeros(4))

                def forward(self, x, scale):
                    parts = [torch.nn.functional.gelu(head(x)) for head in self.heads]
                    self.seen.add_(parts[0].sum((0, 1)))
                    z = torch.softmax(parts[0] @ parts[1].transpose(1, 2), -1)
                    return {"z": z * scale, "norm": torch.nn.functional.layer_norm(parts[0], (4,))}

            def exported(module, args, shapes, **options):
                for weight in module.requires_grad_(False).parameters():
                    weight.fill_(0.5)
                model = to_onnx(module, args, dynamic_shapes=shapes, **options)
                print(hashlib.sha256(model.SerializeToString()).hexdigest())

            x = torch.zeros(5, 2, 3)
            exported(torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True), (x,), ({1: "batch"},))
            module = Model()
            for options in (
                {"optimize": False},
                {"target_opset": {"": 23, "com.microsoft": 1}},
                {"modules_as_functions": True},
                {"modules_as_functions": {torch.nn.Linear}, "inline": True},
                {"mutated_buffers": "outputs"},
                {"runtime": "onnx"},
                {"special_values": True},
                {"input_names": ["a", "b"], "output_names": ["c", "d"], "target_opset": 15},
                {"weights": module.state_dict()},
                {"export_options": ExportOptions(strict=True)},
                {"export_options": ExportOptions(decomposition_table="default")},
                {"export_options": ExportOptions(tracing="make_fx")},
                {"export_options": ExportOptions(patches=True)},
                {"translations": {torch.ops.aten.softmax.int: lambda op, self, dim: op.Softmax(self, axis=dim)}},
            ):
                exported(module, (x, torch.ones(1)), ({1: "batch"}, None), **options)
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        found = {
            subprocess.run(
                command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
            ).stdout
            for seed in "12"
        }
        self.assertEqual(1, len(found))
        self.assertEqual(15, len(found.pop().split()))

    def test_same_bytes_twice(self):
        def build():
            torch.manual_seed(0)
            module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
            return to_onnx(module, (X,), dynamic_shapes=({0: "batch"},)).SerializeToString(deterministic=True)

        self.assertEqual(build(), build())


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class TestCaches(ExporterTestCase):
    """transformers' DynamicCache among the inputs and the outputs."""

    @classmethod
    def setUpClass(cls):
        from transformers.cache_utils import DynamicCache
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()
        cls.addClassCleanup(torch.utils._pytree._deregister_pytree_node, DynamicCache)

    def cache(self, batch, length, layers=2):
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer in range(layers):
            cache.update(torch.randn(batch, 2, length, 4), torch.randn(batch, 2, length, 4), layer)
        return cache

    def test_in_and_out(self):
        def grow(x, past_key_values):
            past_key_values.update(x, x + 1, 0)
            past_key_values.update(x * 2, x - 1, 1)
            return {"logits": x.sum(-1), "past_key_values": past_key_values}

        dims = {0: "batch", 2: "past"}
        model = self.export_and_compare(
            Function(grow),
            (torch.randn(2, 2, 1, 4), self.cache(2, 3)),
            dynamic_shapes=({0: "batch"}, [[dims] * 2, [dims] * 2]),
            others=[(torch.randn(3, 2, 1, 4), self.cache(3, 5))],
        )
        self.assertEqual(
            [
                "x",
                "past_key_values_0_key",
                "past_key_values_1_key",
                "past_key_values_0_value",
                "past_key_values_1_value",
            ],
            names(model.graph.input),
        )
        self.assertEqual(
            ["logits", "present_0_key", "present_1_key", "present_0_value", "present_1_value"],
            names(model.graph.output),
        )
        self.assertEqual(("batch", 2, "past", 4), shapes(model.graph.input)[1])
        self.assertEqual(("batch", 2, "past + 1", 4), shapes(model.graph.output)[1])


class TestWeights(ExporterTestCase):
    def test_state_dict_keys(self):
        module = torch.nn.Sequential(
            collections.OrderedDict(
                first=torch.nn.Linear(3, 4), second=torch.nn.Sequential(torch.nn.Linear(4, 2))
            )
        )
        model = to_onnx(module, (X,))
        self.assertEqual(set(module.state_dict()), set(names(model.graph.initializer)))

    def test_tied_weights_once(self):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(7, 3)
                self.head = torch.nn.Linear(3, 7, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, tokens):
                return self.head(self.embed(tokens))

        model = self.export_and_compare(Tied(), (torch.tensor([1, 2]),))
        self.assertEqual(["embed.weight"], [n for n in names(model.graph.initializer) if "weight" in n])

    def test_buffers_and_constants(self):
        class Held(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.arange(3.0))
                self.register_buffer("hidden", torch.ones(3), persistent=False)
                self.plain = torch.full((3,), 2.0)

            def forward(self, x):
                return (x + self.table) * self.hidden + self.plain

        model = self.export_and_compare(Held(), (X,))
        self.assertLessEqual({"table", "hidden", "plain"}, set(names(model.graph.initializer)))

    def test_nodes_say_where_they_come_from(self):
        model = to_onnx(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), (X,))
        for node in model.graph.node:
            keys = {entry.key for entry in node.metadata_props}
            self.assertLessEqual(
                {
                    "namespace",
                    "pkg.torch.onnx.class_hierarchy",
                    "pkg.torch.onnx.fx_node",
                    "pkg.torch.onnx.name_scopes",
                    "pkg.torch.onnx.stack_trace",
                },
                keys,
            )

    def test_two_exports_of_a_branch_are_the_same_bytes(self):
        """The graphs that torch makes of branches have a number of the process in their names."""

        class Branch(torch.nn.Module):
            def forward(self, x):
                return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))

        first, second = (to_onnx(Branch(), (X,)) for _ in range(2))
        self.assertEqual(
            first.SerializeToString(deterministic=True), second.SerializeToString(deterministic=True)
        )
        self.assertIn("in forward", str(first))


if __name__ == "__main__":
    unittest.main()
