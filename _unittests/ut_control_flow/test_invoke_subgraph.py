"""torch.compiler.nested_compile_region: one local function, called many times."""

import unittest

import torch
from torch.compiler import nested_compile_region

from experimental_experiment.comparison import compare, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

DOMAIN = "nested_compile_region"
STRICT = ExportOptions(strict=True)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @nested_compile_region
    def forward(self, x):
        return self.linear(x).relu() + x


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@nested_compile_region
def wave(x, y):
    return (x * y).sin() + 1


class Waves(torch.nn.Module):
    def forward(self, x, y):
        return wave(x, y) + wave(y, x), wave(x + 1, y)


@nested_compile_region
def doubled_cosine(x):
    return x.cos() * 2


@nested_compile_region
def rows(x, n):
    first = doubled_cosine(x) + doubled_cosine(x + n).reshape(x.shape[0], -1)
    return first + torch.ones(x.shape[0], 1), x.shape[0] * 2


class Nested(torch.nn.Module):
    def forward(self, x):
        first, n = rows(x, 3)
        second, m = rows(first, 3)
        return first + second, n + m


class InBranches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        block = self.block
        return torch.cond(x.sum() > 0, lambda x: block(block(block(x))), lambda x: block(block(x)) - 1, (x,))


@nested_compile_region
def scaled_product(x, y):
    return (x @ y) * 0.3


class Products(torch.nn.Module):
    def forward(self, x, y):
        return scaled_product(x, y), scaled_product(y, x)


@nested_compile_region
def increment(x):
    x.add_(1)
    return x * 2


class Writing(torch.nn.Module):
    def forward(self, x):
        x = x.clone()
        first = increment(x)
        return x, first + increment(x)


class BesideBranches(torch.nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = doubled_cosine(x)
        return torch.cond(x.sum() > 0, lambda x: x.cos() * 2 - x.cos() * 3, lambda x: x.cos() * 4, (x,))


@nested_compile_region
def polar(x):
    turned = torch.view_as_complex(x) * 1j
    return torch.view_as_real(turned), turned.abs()


class Complex(torch.nn.Module):
    def forward(self, x):
        first, size = polar(x)
        second, _ = polar(first)
        return second, size


class TestInvokeSubgraph(ExporterTestCase):
    def calls(self, graph):
        return [node for node in graph.node if node.domain == DOMAIN]

    def exported(self, module, args, **options):
        model = self.export_and_compare(module, args, export_options=STRICT, **options)
        return model, {function.name: function for function in model.functions}

    def test_one_function_with_the_weights_as_inputs(self):
        for dynamic_shapes, others in ((None, ()), (({0: "batch"},), [(torch.randn(5, 4),)])):
            with self.subTest(dynamic_shapes):
                args = (torch.randn(2, 4),)
                model, functions = self.exported(
                    Blocks().eval(), args, dynamic_shapes=dynamic_shapes, others=others
                )
                calls = self.calls(model.graph)
                self.assertEqual(1, len(functions))
                self.assertGreaterEqual(len(calls), 3)  # torch.export inlines the first call of a method
                self.assertEqual({next(iter(functions))}, {node.op_type for node in calls})
                self.assertEqual({3}, {len(node.input) for node in calls})
                self.assertEqual(["Gemm", "Relu", "Add"], [n.op_type for n in model.functions[0].node])

    def test_operands_in_another_order(self):
        args, other = (tuple(torch.randn(shape) for _ in range(2)) for shape in ((2, 3), (4, 6)))
        model, functions = self.exported(Waves(), args)
        self.assertEqual(1, len(functions))
        self.assertEqual(3, len(self.calls(model.graph)))
        shapes = ({0: "rows", 1: "columns"},) * 2
        self.exported(Waves(), args, dynamic_shapes=shapes, others=[other])

    def test_source_lines_are_kept_inside(self):
        model, _ = self.exported(Waves(), (torch.randn(2, 3), torch.randn(2, 3)))
        for node in model.functions[0].node:
            if node.op_type != "Constant":
                traces = {prop.key: prop.value for prop in node.metadata_props}
                self.assertIn("in wave", traces["pkg.torch.onnx.stack_trace"])

    def test_nested_regions_with_numbers(self):
        args = (torch.randn(2, 3),)
        model, functions = self.exported(Nested(), args)
        self.assertEqual(2, len(functions))
        self.assertEqual(2, len(self.calls(model.graph)))
        shapes = ({0: "rows", 1: "columns"},)
        self.exported(Nested(), args, dynamic_shapes=shapes, others=[(torch.randn(4, 6),)])

    def test_inside_branches(self):
        args = (torch.rand(2, 4),)
        model, functions = self.exported(InBranches().eval(), args, others=[(-torch.rand(2, 4),)])
        self.assertTrue(functions)
        self.assertEqual(0, len(self.calls(model.graph)))

    def test_a_region_that_writes_its_operand_is_inlined(self):
        _, functions = self.exported(Writing(), (torch.randn(2, 3),))
        self.assertEqual({}, functions)

    def test_dtypes(self):
        self.exported(Complex(), (torch.randn(3, 2),))
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64):
            with self.subTest(dtype):
                tensors = tuple((torch.randn(2, 3) * 3).to(dtype) for _ in range(2))
                self.exported(Waves(), tensors)

    def test_float64_keeps_its_digits_beside_a_matrix_product(self):
        args = tuple(torch.randn(4, 4, dtype=torch.float64) for _ in range(2))
        for inline in (None, True):
            model = to_onnx(Products(), args, export_options=STRICT, inline=inline)
            self.assertEqual(0 if inline else 1, len(model.functions))
            for found in compare(Products(), session(model), args):
                self.assertLess(found.absolute, 1e-13)

    def test_inlined_on_request(self):
        model, functions = self.exported(Blocks().eval(), (torch.randn(2, 4),), inline=True)
        self.assertEqual({}, functions)
        self.assertEqual([], self.calls(model.graph))

    def test_inlined_beside_branches_that_have_the_same_names(self):
        for optimize in (True, False):
            args, others = (torch.rand(2, 4),), [(torch.rand(2, 4) + 2,)]
            self.exported(BesideBranches(), args, others=others, inline=True, optimize=optimize)

    def test_beside_modules_as_functions(self):
        model, _ = self.exported(Blocks().eval(), (torch.randn(2, 4),), modules_as_functions=True)
        domains = {function.domain for function in model.functions}
        self.assertIn(DOMAIN, domains)

    def test_not_strict_mode_keeps_no_region(self):
        """torch.export inlines the regions itself."""
        model = to_onnx(Waves(), (torch.randn(2, 3), torch.randn(2, 3)))
        self.assertEqual(0, len(model.functions))


if __name__ == "__main__":
    unittest.main()
