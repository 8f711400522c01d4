"""Rows of quantization."""

import unittest

import onnx_ir as ir
import torch
import torch.ao.quantization.fx._decomposed

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.emitter import Context, Emitter

X = torch.arange(-24.0, 24).reshape(6, 8)


def turned(x):
    """Signed steps of 8 bits, moved."""
    return torch.fake_quantize_per_tensor_affine(x, 0.125, 3, -128, 127).T.relu()


def rows_of_steps(steps, index):
    """Rows of an embedding in steps of 8 bits, with another axis."""
    rows = torch.ops.quantized_decomposed.dequantize_per_tensor(steps[index], 0.125, 0, -128, 127, torch.int8)
    return rows[:, None].relu()


ROWS = {
    "DequantizeLinear.of_unsigned_steps": (turned, X, {"target_opset": 21}),
    "DequantizeLinear.without_zero_point": (
        rows_of_steps,
        X.to(torch.int8),
        torch.tensor([3, 1]),
        {"target_opset": 21},
    ),
}


class TestQuantization(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)
        self.assert_rows_needed({"DequantizeLinear.of_unsigned_steps": (turned, X, {"target_opset": 26})})

    def test_other_attributes_stay(self):
        """Steps in blocks, a dtype of the result: the row leaves them as they are."""
        for attributes in ({"axis": 1, "block_size": 2}, {"output_dtype": ir.DataType.FLOAT}):
            graph = ir.Graph([], [], nodes=[], opset_imports={"": 23})
            op = Emitter(graph, Context(graph, 23))
            x, scale = (
                ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(shape))
                for name, kind, shape in (("x", ir.DataType.INT8, [2, 4]), ("scale", ir.DataType.FLOAT, []))
            )
            op.DequantizeLinear(x, scale, op.constant(0, ir.DataType.INT8), **attributes)
            (node,) = graph
            self.assertEqual({*attributes}, {*node.attributes})
            self.assertEqual(3, len(node.inputs))

    def test_no_more_nodes(self):
        class Turned(torch.nn.Module):
            def forward(self, x):
                return turned(x)

        for opset in (20, 21):
            nodes = [node.op_type for node in to_onnx(Turned(), (X,), target_opset=opset).graph.node]
            self.assertEqual(["QuantizeLinear", "DequantizeLinear", "Transpose", "Relu"], nodes)


if __name__ == "__main__":
    unittest.main()
