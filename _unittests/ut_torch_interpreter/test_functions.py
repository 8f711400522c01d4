"""Modules as local functions: shared by equal modules, nested, with their weights as inputs."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx


class Block(torch.nn.Module):
    """A linear layer, a constant and a shortcut."""

    def __init__(self, scale: float = 2.0):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.scale = scale

    def forward(self, x):
        return self.linear(x) * self.scale + x


class Splits(torch.nn.Module):
    """Several results, one of them not used."""

    def forward(self, x):
        return x[:, :1], x[:, 1:], x + 1


class Signals(torch.nn.Module):
    """A recurrent layer that transposes and needs the number of signals."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(3, 3, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Turned(torch.nn.Module):
    """A linear layer over the other axis, in the rows that the batch gives."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2).reshape(-1, 3).reshape(-1, 4, 3).unsqueeze(0)[0]


class Model(torch.nn.Module):
    """Equal blocks, one called twice, one with another constant."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block(), Block(), Block(3.0)])
        self.splits = Splits()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        left, right, _ = self.splits(self.blocks[0](x))
        return left, right, torch.cat([left, right], dim=1)


class HandWrittenNorm(torch.nn.Module):
    """A norm of what it computes itself."""

    def forward(self, x):
        doubled = x * 2
        return doubled / torch.sqrt((doubled**2).mean(-1, keepdim=True) + 1e-5)


class Doubled(torch.nn.Module):
    """A module that reads no size."""

    def forward(self, x):
        return x * 2


class Positions(torch.nn.Module):
    """A cache in front of the input, and a position for each column."""

    def forward(self, x, cache):
        both = torch.cat([cache, x], 1)
        return both + torch.arange(both.shape[1])


class SizeBetweenCalls(torch.nn.Module):
    """The main graph reads a size of an input as a vector between two calls, the second call needs the number."""

    def __init__(self):
        super().__init__()
        self.doubled = Doubled()
        self.positions = Positions()

    def forward(self, x, cache):
        doubled = self.doubled(x)
        zeros = torch.zeros(x.shape[1], 1)
        return self.positions(doubled, cache), zeros


class ReLU(torch.nn.Module):
    """A module with the name of one of torch, and the nodes of another one."""

    def forward(self, x):
        return x.sigmoid()


class Packages(torch.nn.Module):
    """Modules of two packages: one name for different nodes, two names for equal ones."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.ReLU(), ReLU(), torch.nn.Sigmoid()])

    def forward(self, x):
        return [part(x) for part in self.parts]


class Applied(torch.nn.Module):
    """One submodule, called with each argument."""

    def __init__(self, function):
        super().__init__()
        self.part = Part(function)

    def forward(self, *args):
        return [self.part(x) for x in args]


class Part(torch.nn.Module):
    """A function that is a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Sub(torch.nn.Module):
    """A module of one input with the name of an operator of two."""

    def forward(self, x):
        return x.sin() - 1


def sized(*sizes):
    """Random tensors of these sizes."""
    return [torch.randn(size) for size in sizes]


ARGS = (torch.randn(2, 3),)
SHAPES = ({0: "batch"},)


class TestFunctions(ExporterTestCase):
    def export(self, **options):
        return self.export_and_compare(
            Model(), ARGS, dynamic_shapes=SHAPES, others=[(torch.randn(5, 3),)], **options
        )

    def test_equal_modules_share_a_function(self):
        model = self.export(modules_as_functions=True)
        names = sorted(function.name for function in model.functions)
        self.assertEqual(names, ["Block", "Block_1", "Linear", "Splits"])
        self.assertEqual([node.op_type for node in model.graph.node].count("Block"), 4)
        self.assertEqual({f.domain for f in model.functions if f.name == "Linear"}, {"torch"})

    def test_equal_modules_of_two_packages_have_a_function_each(self):
        model = self.export_and_compare(Packages(), ARGS, modules_as_functions=True)
        here = ReLU.__module__.split(".")[0]
        expected = [("torch", "ReLU"), (here, "ReLU"), ("torch", "Sigmoid")]
        self.assertEqual([(node.domain, node.op_type) for node in model.graph.node], expected)

    def test_weights_are_inputs_and_constants_stay_inside(self):
        model = self.export(modules_as_functions=True)
        self.assertEqual(
            sorted(init.name for init in model.graph.initializer), sorted(dict(Model().named_parameters()))
        )

    def test_equal_layers_share_a_function_whatever_is_computed_of_their_weights(self):
        layers = {
            "a transposed matrix": (lambda: torch.nn.Linear(3, 3), torch.randn(2, 4, 3)),
            "a reshaped slope": (torch.nn.PReLU, torch.randn(2, 4)),
            "a norm cast to float32": (lambda: torch.nn.GroupNorm(3, 3), torch.randn(2, 3, 4).half()),
            "a deviation": (lambda: torch.nn.BatchNorm1d(3), torch.randn(2, 3).half()),
            "many": (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16), torch.randn(2, 4, 8)),
        }
        for promise, (make, x) in layers.items():
            with self.subTest(promise):
                stack = torch.nn.Sequential(make(), make(), make()).to(x.dtype).eval()
                with torch.no_grad():
                    for position, weight in enumerate((*stack.parameters(), *stack.buffers())):
                        if weight.is_floating_point():
                            weight.copy_(
                                (torch.arange(weight.numel()).view(weight.shape) % 5 + 1 + position % 7) / 8
                            )
                model = self.export_and_compare(stack, (x,), modules_as_functions=True)
                called = {node.op_type for node in model.graph.node}
                self.assertEqual({type(stack[0]).__name__}, called)

    def test_equal_layers_share_a_function_whatever_is_written_between_them(self):
        """Transpositions that meet between two layers, a size that all read, casts of halves."""
        half = lambda: torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()).bfloat16()
        for make in (Signals, Turned, half):
            stack = torch.nn.Sequential(make(), make(), make()).eval()
            kind = type(stack[0])
            with self.subTest(make):
                x, other = (torch.randn(n, 4, 3).to(next(stack.parameters()).dtype) for n in (2, 5))
                model = self.export_and_compare(
                    stack,
                    (x,),
                    dynamic_shapes=({0: "batch"},),
                    others=[(other,)],
                    modules_as_functions={kind},
                )
                kinds = [node.op_type for node in model.graph.node if node.op_type != "Shape"]
                self.assertEqual([kind.__name__] * 3, kinds)
                self.assertEqual([kind.__name__], [function.name for function in model.functions])

    def test_norms_inside_are_no_operator_that_onnxruntime_crashes_on(self):
        for layer, opset in ((torch.nn.LayerNorm(8), 15), (HandWrittenNorm(), 18)):
            with self.subTest(layer=layer):
                options = {"modules_as_functions": True, "target_opset": {"": opset, "com.microsoft": 1}}
                stack, x = torch.nn.Sequential(layer), torch.randn(2, 8)
                (function,) = to_onnx(stack, (x,), **options).functions
                self.assertNotIn("SimplifiedLayerNormalization", [node.op_type for node in function.node])
                self.export_and_compare(stack, (x,), **options)

    def test_no_function_has_the_name_of_an_operator_that_onnxruntime_takes_it_for(self):
        stack = torch.nn.Sequential(Sub(), Sub())
        (function,) = to_onnx(stack, ARGS, modules_as_functions=True).functions
        self.assertEqual(function.name, "Sub_1")
        self.export_and_compare(stack, ARGS, modules_as_functions=True)

    def test_no_function_has_the_name_of_an_operator_of_its_domain(self):
        """It would call itself; the version of the domain stays the one that was asked for."""
        here = Doubled.__module__.split(".")[0]
        twice = {torch.ops.aten.mul.Tensor: lambda op, self, other: op.Doubled(self, domain=here)}
        model = to_onnx(
            torch.nn.Sequential(Doubled(), Doubled()),
            ARGS,
            modules_as_functions=True,
            translations=twice,
            target_opset={"": 20, here: 3},
        )
        (function,) = model.functions
        called = [(node.domain, node.op_type) for node in (*model.graph.node, *function.node)]
        self.assertEqual([(here, "Doubled_1"), (here, "Doubled_1"), (here, "Doubled")], called)
        for holder in (model, function):
            self.assertIn((here, 3), [(entry.domain, entry.version) for entry in holder.opset_import])

    def test_module_called_with_other_dtypes_and_sizes(self):
        whole, halves = torch.arange(4, dtype=torch.int32), torch.tensor([1.5, -2.5])
        cases = {
            "a cast that truncates only one of them": (lambda x: x.long().double(), whole, halves),
            "zeros that repeat the second one": (
                lambda x: x * 2 + torch.zeros(4, 3),
                *sized((4, 3), (1, 3), (3,)),
            ),
            "a slice that takes all of the first one": (lambda x: (x * 2)[-4:].exp(), *sized((4, 3), (6, 3))),
            "a matrix that is a row": (lambda x: (x * 2) @ (x + 1).T, *sized((1, 3), (6, 3))),
        }
        for promise, (function, *args) in cases.items():
            with self.subTest(promise):
                self.export_and_compare(Applied(function), tuple(args), modules_as_functions=True)

    def test_size_that_the_main_graph_read_between_two_calls(self):
        for options in ({}, {"optimize": False}, {"runtime": "onnx"}):
            with self.subTest(options):
                self.export_and_compare(
                    SizeBetweenCalls(),
                    (torch.randn(2, 5), torch.randn(2, 3)),
                    dynamic_shapes=({1: "length"}, {1: "past"}),
                    others=[(torch.randn(2, 4), torch.randn(2, 7))],
                    modules_as_functions=True,
                    **options,
                )

    def test_chosen_classes_only(self):
        model = self.export(modules_as_functions={torch.nn.Linear})
        self.assertEqual([function.name for function in model.functions], ["Linear"])

    def test_source_lines_are_kept_inside(self):
        model = self.export(modules_as_functions=True)
        block = next(function for function in model.functions if function.name == "Block")
        origins = [
            p.value for node in block.node for p in node.metadata_props if p.key.endswith("stack_trace")
        ]
        self.assertTrue(any("self.linear(x) * self.scale" in origin for origin in origins))

    def test_inline_gives_the_nodes_back(self):
        model = self.export(modules_as_functions=True, inline=True)
        self.assertEqual(len(model.functions), 0)

    def test_layers_of_a_decoder_hold_the_nodes_of_one(self):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        counts = []
        for layers in (2, 5):
            stack = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
            model = self.export_and_compare(
                stack, (torch.randn(2, 4, 8),), modules_as_functions={torch.nn.TransformerEncoderLayer}
            )
            counts.append([len(function.node) for function in model.functions])
        self.assertEqual(counts[0], counts[1])
        self.assertEqual(len(counts[0]), 1)

    def test_something_else_than_classes_is_refused(self):
        for wrong in ({"Block"}, "Block", 3):
            with self.subTest(wrong), self.assertRaises(TypeError):
                to_onnx(Model(), ARGS, modules_as_functions=wrong)


if __name__ == "__main__":
    unittest.main()
