"""`pretty_onnx`: the form of the text, for models and their parts."""

from __future__ import annotations

import os
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser

from experimental_experiment.helpers import pretty_onnx

FORWARD = """
<ir_version: 8, opset_import: ["" : 18], doc_string: "large_model=False, inline=False, external_threshold=1024, more">
forward (float[32,10] input0, float[32] input1, float[s0,10] input2, float[1,32] input3, float[1] input4)
    => (float[s0,1] output_0, float[32,1] output_3)
{
    addmm = Gemm<transA=0, transB=1, alpha=1.0, beta=1.0>(input2, input0, input1)
    output_2 = Relu(addmm)
    output_0 = Gemm<transB=1>(output_2, input3, input4)
    output_3 = Transpose<perm=[1,0]>(input3)
}
"""

EXPECTED = """
opset: domain='' version=18
doc_string: large_model=False, inline=False, external_threshold=102...
input: name='input0' type=dtype('float32') shape=[32, 10]
input: name='input1' type=dtype('float32') shape=[32]
input: name='input2' type=dtype('float32') shape=['s0', 10]
input: name='input3' type=dtype('float32') shape=[1, 32]
input: name='input4' type=dtype('float32') shape=[1]
Gemm(input2, input0, input1, transA=0, transB=1, alpha=1.00, beta=1.00) -> addmm
  Relu(addmm) -> output_2
    Gemm(output_2, input3, input4, transB=1) -> output_0
Transpose(input3, perm=[1,0]) -> output_3
output: name='output_0' type=dtype('float32') shape=['s0', 1]
output: name='output_3' type=dtype('float32') shape=[32, 1]
"""

BACKWARD = """
<ir_version: 8, opset_import: ["" : 18]>
backward (int64[1] input_dim_0, float[s0,10] input1, float[s0,32] input2, float[32,1] input3, float[s0,1] input4)
    => (float[32,10] output_0, float output_NONE_2, float output_NONE_3, float[1,32] output_4, float[1] output_5)
<int64[1] axis = {0}, float[1] zero = {0}>
{
    output_NONE_2 = Constant<value_float=0.0>()
    output_NONE_3 = Identity(output_NONE_2)
    output_4 = Gemm<transA=1, transB=0>(input4, input2)
    mm = Gemm<transA=0, transB=1>(input4, input3)
    output_5 = ReduceSum<keepdims=0>(input4, axis)
    less = LessOrEqual(input2, zero)
    threshold = Where(less, zero, mm)
    output_0 = Gemm<transA=1, transB=0>(threshold, input1)
}
"""

BACKWARD_NODES = """
init: name='axis' type=dtype('int64') shape=(1,) -- array([0])
init: name='zero' type=dtype('float32') shape=(1,) -- array([0.], dtype=float32)
Constant(value_float=0.0) -> output_NONE_2
  Identity(output_NONE_2) -> output_NONE_3
Gemm(input4, input2, transA=1, transB=0) -> output_4
Gemm(input4, input3, transA=0, transB=1) -> mm
ReduceSum(input4, axis, keepdims=0) -> output_5
LessOrEqual(input2, zero) -> less
  Where(less, zero, mm) -> threshold
    Gemm(threshold, input1, transA=1, transB=0) -> output_0
"""

BRANCHES = """
<ir_version: 8, opset_import: ["" : 18]>
branches (bool c, float[n] x) => (float[n] y)
<float one = {1}>
{
    y = If(c) <then_branch = yes () => (float[n] a) { a = Add(x, one) },
               else_branch = no () => (float[n] b) { t = Neg(x) b = Abs(t) }>
}
"""

FUNCTIONS = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
main (float[2] x) => (float[2] y) { y = local.twice<by=2>(x) }
<domain: "local", opset_import: ["" : 18]>
twice <by> (x) => (y) { k = Constant<value_int=@by>() f = CastLike(k, x) y = Mul(x, f) }
"""


class TestPrettyOnnx(unittest.TestCase):
    def test_a_model_in_the_documented_form(self):
        self.assertEqual(pretty_onnx(onnx.parser.parse_model(FORWARD)), EXPECTED.strip())

    def test_constants_and_initializers(self):
        lines = pretty_onnx(onnx.parser.parse_model(BACKWARD)).splitlines()
        self.assertEqual(lines[6:-5], BACKWARD_NODES.strip().splitlines())

    def test_initializers_show_few_elements(self):
        model = onnx.parser.parse_model(FORWARD)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axis"))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((3, 4), np.float16), "w"))
        text = pretty_onnx(model)
        self.assertIn("init: name='axis' type=dtype('int64') shape=(1,) -- array([0])\n", text)
        self.assertIn("init: name='w' type=dtype('float16') shape=(3, 4)\n", text)

    def test_subgraphs_stand_under_their_node(self):
        lines = pretty_onnx(onnx.parser.parse_model(BRANCHES)).splitlines()
        start = lines.index("If(c, then_branch=graph yes, else_branch=graph no) -> y")
        self.assertIn("subgraph ---- If", lines[start + 1])
        self.assertEqual(lines[start + 2], "    Add(x, one) -> a")
        self.assertIn("      Abs(t) -> b", lines)

    def test_functions_follow_the_graph(self):
        text = pretty_onnx(onnx.parser.parse_model(FUNCTIONS))
        self.assertIn("twice[local](x, by=2) -> y", text)
        self.assertIn("----- function name=twice domain=local\nopset: domain='' version=18\ninput: 'x'", text)
        self.assertIn("Constant(value_int=@by) -> k", text)

    def test_parts_and_paths(self):
        model = onnx.parser.parse_model(FORWARD)
        node = model.graph.node[3]
        self.assertEqual(pretty_onnx(node), "Transpose(input3, perm=[1,0]) -> output_3")
        self.assertEqual(pretty_onnx(node, with_attributes=False), "Transpose(input3) -> output_3")
        self.assertEqual(
            pretty_onnx(node, highlight=["input3"]), "Transpose(**input3**, perm=[1,0]) -> output_3"
        )
        self.assertEqual(pretty_onnx(node.attribute[0]), "perm=[1,0]")
        with self.assertRaisesRegex(TypeError, "with_attributes is True or False, not 3"):
            pretty_onnx(model, with_attributes=3)
        for given in (True, "input3"):
            with self.assertRaisesRegex(TypeError, f"highlight is a list of names, not {given!r}"):
                pretty_onnx(model, True, given)
        self.assertEqual(pretty_onnx(model.graph.input[1]), "name='input1' type=dtype('float32') shape=[32]")
        self.assertEqual(pretty_onnx(model.graph).splitlines(), EXPECTED.strip().splitlines()[2:])
        function = onnx.parser.parse_model(FUNCTIONS).functions[0]
        self.assertIn("Mul(x, f) -> y", pretty_onnx(function))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.onnx")
            onnx.save(model, path)
            self.assertEqual(pretty_onnx(path), EXPECTED.strip())

    def test_other_types(self):
        sequence = onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.BFLOAT16, None)
        self.assertEqual(pretty_onnx(sequence), "name='s' type=sequence(dtype('bfloat16') shape=None)")
        strings = onnx.helper.make_tensor_value_info("t", onnx.TensorProto.STRING, [None, "n"])
        self.assertEqual(pretty_onnx(strings), "name='t' type=dtype('string') shape=[None, 'n']")
        tensor = onnx.numpy_helper.from_array(np.array(1.5, np.float32))
        node = onnx.helper.make_node("Constant", [], ["c"], value=tensor)
        self.assertEqual(pretty_onnx(node), "Constant(value=array(1.5, dtype=float32)) -> c")
        with self.assertRaisesRegex(TypeError, "not int"):
            pretty_onnx(3)

    def test_a_long_chain_keeps_a_readable_indentation(self):
        nodes = [onnx.helper.make_node("Relu", [f"x{k}"], [f"x{k + 1}"]) for k in range(500)]
        graph = onnx.helper.make_graph(nodes, "g", [], [])
        self.assertLess(max(len(line) for line in pretty_onnx(graph).splitlines()), 60)


if __name__ == "__main__":
    unittest.main()
