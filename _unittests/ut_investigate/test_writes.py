"""`discrepancies` of programs that write tensors, and of results that a node gives among several: the right node is named."""

from __future__ import annotations

import unittest

import onnx
import torch

from experimental_experiment.investigate import discrepancies
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

aten = torch.ops.aten


def times_more(op, self, other):
    """A product that is a little too large."""
    return op.Mul(op.Mul(self, other), 1.25)


class Columns(torch.nn.Module):
    """Writes all columns but the first through a transposed view."""

    def forward(self, x):
        y = x.clone()
        z = y.t()[1:]
        z.mul_(2).add_(1)
        return y.sin()


class Between(torch.nn.Module):
    """`Columns` between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.columns, self.last = torch.nn.Linear(4, 4), Columns(), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.columns(self.first(x)))


class Counter(torch.nn.Module):
    """Counts in a buffer, reads it, and writes it again."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.ones(3))

    def forward(self, x):
        self.count.add_(x.sum(0))
        y = x.exp() + self.count
        self.count.mul_(2)
        return y


class Replaced(torch.nn.Module):
    """A buffer that is assigned."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.ones(3))

    def forward(self, x):
        y = x + self.last
        self.last = x[0] * 3
        return y


class TestWrites(ExporterTestCase):
    def test_wrong_write_through_a_view_is_named(self):
        wrong = {
            "mul_": {aten.mul.Tensor: times_more},
            "add_": {aten.add.Tensor: lambda op, self, other, alpha: op.Add(self, 1.5)},
        }
        ways = {"optimized": {}, "as translated": {"optimize": False}, "bisection": {"at_once": 2}}
        x = torch.rand(4, 4)
        for name, translations in wrong.items():
            for way, options in ways.items():
                with self.subTest(f"{name}, {way}"):
                    found = discrepancies(Between(), (x,), translations=translations, **options)
                    self.assertEqual((found.first.name, found.first.module), (name, "columns"))
                    self.assertIn("z.mul_(2).add_(1)", found.first.source[3])
        self.assertEqual(discrepancies(Between(), (x,)).verdict, "agreement")

    def test_what_was_written_before_is_told(self):
        module, x = Between(), torch.rand(4, 4)
        model = to_onnx(module, (x,), optimize=False)
        for node in model.graph.node:  # the base forgets what the last write put into it
            if node.op_type == "Concat" and "add_" in node.input:
                node.input[list(node.input).index("add_")] = "mul_"
        found = discrepancies(module, (x,), onnx=model)
        self.assertEqual(found.first.operator, "aten.sin.default")
        self.assertEqual(
            found.first.note,
            "onnx.reference agrees with onnxruntime: what is written there is wrong, or how %add_ writes what it reads",
        )
        self.assertIn("Concat 'add__concat'", found.first.suspects.onnx)
        self.assertEqual(found.first.suspects.fx[-2:], ["%add_", "%sin"])

    def test_new_values_of_buffers_are_compared(self):
        x = torch.rand(4, 3)
        for strict, model, output in (
            (False, Counter(), "count_out"),
            (True, Counter(), "count_out"),
            (False, Replaced(), "last_out"),
        ):
            with self.subTest(f"{output}, {strict=}"):
                options = {"mutated_buffers": "outputs", "export_options": ExportOptions(strict=strict)}
                found = discrepancies(model, (x,), **options)
                self.assertEqual(found.verdict, "agreement", str(found))
                outputs = [result.output for result in found.results if result.output]
                self.assertEqual(outputs, ["output", output])
                found = discrepancies(model, (x,), translations={aten.mul.Tensor: times_more}, **options)
                self.assertIn(found.first.name, ("mul", "mul_"))
                self.assertEqual((found.verdict, found.results[-1].output), ("error", output))

    def test_dropped_update_of_a_buffer(self):
        x, model = torch.rand(4, 3), Counter()
        proto = to_onnx(model, (x,), mutated_buffers="outputs", optimize=False)
        (last,) = [node for node in proto.graph.node if node.output[0] == "count_out"]
        last.op_type = "Identity"
        del last.input[1:]
        found = discrepancies(model, (x,), onnx=proto)
        self.assertEqual((found.first.name, found.first.written), ("mul_", "Identity"))
        model = Replaced()
        proto = to_onnx(model, (x,), mutated_buffers="outputs", optimize=False)
        (last,) = [node for node in proto.graph.node if node.output[0] == "last_out"]
        last.CopyFrom(onnx.helper.make_node("Identity", ["last"], ["last_out"]))
        found = discrepancies(model, (x,), onnx=proto)
        self.assertEqual((found.first.output, found.first.written), ("last_out", "Identity"))


class Router(torch.nn.Module):
    """The gate of a mixture of experts, all of which score alike but one."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(4, 8, bias=False)
        with torch.no_grad():
            self.gate.weight[1:] = self.gate.weight[:1]

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        return weights / weights.sum(-1, keepdim=True), chosen


class TestOneOfSeveralResults(ExporterTestCase):
    def test_tie_among_the_outputs(self):
        found = discrepancies(Router(), (torch.randn(64, 4),))
        self.assertEqual((found.verdict, found.first), ("tie", None))
        (tie,) = found.ties
        self.assertEqual((tie.name, tie.operator, tie.output), ("topk[1]", "aten.topk.default", "output_1"))

    def test_wrong_result_that_is_an_output(self):
        def shifted(op, self, dim, keepdim):
            return op.ReduceMax(self, [dim], keepdims=0), op.Add(op.ArgMax(self, axis=dim, keepdims=0), 1)

        found = discrepancies(lambda x: x.max(1), (torch.rand(3, 4),), translations={aten.max.dim: shifted})
        self.assertEqual((found.first.name, found.first.output), ("max_1[1]", "output_1"))


if __name__ == "__main__":
    unittest.main()
