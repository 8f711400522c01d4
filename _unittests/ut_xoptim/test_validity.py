"""Nodes that contradict their operator: no runtime loads them, `optimize` says which one it is."""

import unittest

import numpy as np
import onnx
import onnx.helper as oh

from _unittests.ut_xoptim.cases import operators
from experimental_experiment.comparison import session
from experimental_experiment.decoding import in_place
from experimental_experiment.xoptim import (
    OptimizationError,
    OptimizationOptions,
    P,
    optimize,
    quantize_weights,
    rule,
    var,
)

x = var("x")
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def model_of(*nodes, opset=20, domain=""):
    """A model of these nodes, from x and the integers i to y; nothing is checked."""
    given = [oh.make_tensor_value_info("x", FLOAT, [2]), oh.make_tensor_value_info("i", INT64, [2])]
    graph = oh.make_graph(nodes, "g", given, [oh.make_tensor_value_info("y", FLOAT, None)])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid(domain, opset)], ir_version=9)


def branch(*nodes):
    """A body whose result is z."""
    return oh.make_graph(nodes, "body", [], [oh.make_tensor_value_info("z", FLOAT, None)])


class TestValidity(unittest.TestCase):
    REFUSED = {
        "the node 'sum' .Add. is invalid: B has inconsistent type": [("Add", "x i", {"name": "sum"})],
        "the node 'y' .Gather. is invalid: .*unsupported type": [("Gather", "x x", {})],
        "the node 'y' .Neg. has the attribute 'size', which ONNX does not know in opset 20": [("Neg", "x", {"size": 1})],
        "the node 'y' .Neg. has 2 inputs, and ONNX wants 1": [("Neg", "x x", {})],
        "the node 'y' .Add. has 1 inputs, and ONNX wants 2": [("Add", "x", {})],
        "the node 'y' .Concat. lacks the attribute 'axis'": [("Concat", "x x", {})],
        "'axis' of the type STRING, and ONNX wants INT": [("Concat", "x x", {"axis": "a"})],
        "the node 'y' .If. lacks the attribute 'else_branch'": [
            ("If", "x", {"then_branch": branch(oh.make_node("Neg", ["x"], ["z"]))})
        ],
        "the node 'z' .Neg. has 2 inputs": [
            ("If", "x", dict.fromkeys(("then_branch", "else_branch"), branch(oh.make_node("Neg", ["x", "x"], ["z"]))))
        ],
        "the node 'y' .Relu. gives 'y' a second time, which onnx-ir does not read": [("Neg", "x", {}), ("Relu", "x", {})],
    }  # fmt: skip

    def test_what_no_runtime_loads(self):
        for message, nodes in self.REFUSED.items():
            with self.subTest(message):
                model = model_of(
                    *(oh.make_node(name, given.split(), ["y"], **more) for name, given, more in nodes)
                )
                with self.assertRaisesRegex(ValueError, message):
                    optimize(model)

    def test_an_input_that_is_left_out(self):
        model = model_of(oh.make_node("Add", ["x", ""], ["y"]))
        with self.assertRaisesRegex(ValueError, "the node 'y' .Add. lacks the input 1, B"):
            optimize(model)

    def test_an_attribute_without_a_type(self):
        node = oh.make_node("Concat", ["x", "x"], ["y"])
        node.attribute.add(name="axis", i=0)
        with self.assertRaisesRegex(ValueError, "the attribute 'axis' of a node Concat has no type, which"):
            optimize(model_of(node))

    def test_a_constant_of_nothing(self):
        cases = {}, {"value_float": 2.0, "value_int": 1}, {"value_float": 2.0}
        for attributes in cases:
            constant = oh.make_node("Constant", [], ["c"], **attributes)
            model = model_of(constant, oh.make_node("Add", ["x", "c"], ["y"]))
            if len(attributes) == 1:
                self.assertEqual(["Add"], operators(optimize(model)))
                continue
            message = f"the node 'c' .Constant. has {len(attributes)} attributes, and ONNX wants one of them"
            with self.assertRaisesRegex(ValueError, message):
                optimize(model)

    def test_a_function(self):
        model = model_of(oh.make_node("f", ["x"], ["y"], domain="local"))
        model.opset_import.add(domain="local", version=1)
        twice = [oh.make_node("Neg", ["x"], ["y"]), oh.make_node("Neg", ["x"], ["y"])]
        model.functions.append(oh.make_function("local", "f", ["x"], ["y"], twice, [oh.make_opsetid("", 20)]))
        with self.assertRaisesRegex(ValueError, "gives 'y' a second time"):
            optimize(model)

    def test_rules_leave_dtypes_that_differ(self):
        """They decline where they would write such a node; what reads it stays too."""
        nodes = [("Add", ["x", "i"], "a"), ("Add", ["a", "i"], "b"), ("Mul", ["b", "x"], "c")]
        made = [oh.make_node(name, given, [result]) for name, given, result in nodes]
        optimized = optimize(model_of(*made, oh.make_node("Relu", ["c"], ["y"])))
        self.assertEqual(["Add", "Add", "Mul", "Relu"], operators(optimized))

    def test_what_onnx_does_not_describe(self):
        """Operators of others, and operator sets that are newer than onnx, may be anything."""
        for more in ({"opset": 1, "domain": "local"}, {"opset": 1000}):
            with self.subTest(**more):
                domain = more.get("domain", "")
                nodes = [oh.make_node("Neg", ["x", "x"], ["n"], domain=domain, size=1)]
                nodes.append(oh.make_node("Relu", ["n"], ["y"], domain=domain))
                self.assertEqual(["Neg", "Relu"], operators(optimize(model_of(*nodes, **more))))

    IMPOSSIBLE = {
        "another number of elements": ("r = Reshape(t, s)", "float[4,3] t = {1,2,3,4,5,6,7,8,9,10,11,12}, int64[2] s = {5,2}"),
        "no size for the rest": ("r = Reshape(t, s)", "float[4,3] t = {1,2,3,4,5,6,7,8,9,10,11,12}, int64[2] s = {5,-1}"),
        "an axis that is not there": ("r = Reshape(t, s)", "float[3] t = {1,2,3}, int64[2] s = {0,0}"),
        "sizes that do not broadcast": ("r = Expand(t, s)", "float[4,3] t = {1,2,3,4,5,6,7,8,9,10,11,12}, int64[2] s = {4,2}"),
        "summands that do not broadcast": ("r = Add(t, s)", "float[3] t = {1,2,3}, float[2] s = {5,2}"),
        "rows of another length": ("r = MatMul(t, s)", "float[1,3] t = {1,2,3}, float[2,1] s = {5,2}"),
        "an axis of two elements": ("r = Squeeze(t, s)", "float[2,3] t = {1,2,3,4,5,6}, int64[1] s = {0}"),
    }  # fmt: skip

    def test_what_a_branch_that_is_never_taken_computes(self):
        """It is left as it is: the model runs where the branch does not."""
        for promise, (node, constants) in self.IMPOSSIBLE.items():
            with self.subTest(promise):
                optimized = optimize(self.choosing(node, constants))
                (choice,) = optimized.graph.node
                bodies = {item.name: [inner.op_type for inner in item.g.node] for item in choice.attribute}
                expected = node.split()[2].partition("(")[0]
                self.assertEqual(
                    {"then_branch": [expected, "ReduceSum"], "else_branch": ["Identity"]}, bodies
                )
        model = self.choosing(*self.IMPOSSIBLE["another number of elements"])
        for size in (2, 3):
            feeds = {"c": np.array(False), "x": np.ones(size, np.float32)}
            for item in (model, optimize(model)):
                np.testing.assert_array_equal(session(item).run(None, feeds)[0], feeds["x"])

    def choosing(self, node, constants):
        """A model that computes this in one of two branches."""
        return onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 20]> agraph (bool c, float[N] x) => (float[M] y) <{constants}> {{
            y = If (c) <then_branch = one () => (float[A] a) {{ {node} f = Constant<value=int64[1]{{-1}}>() a = ReduceSum<keepdims=0>(r, f) }},
            else_branch = other () => (float[B] b) {{ n = Neg(x) b = Neg(n) }}> }}"""
        )

    def test_what_onnxruntime_takes(self):
        """The attributes that operators had, and their optional inputs."""
        texts = (
            "<axes = [0], keepdims = 1> (x)",
            "<keepdims = 1> (x)",
        )
        for text in texts:
            with self.subTest(text):
                model = onnx.parser.parse_model(
                    f'<ir_version: 8, opset_import: ["": 11]> agraph (float[2] x) => (float[1] y) {{ y = ReduceSum{text} }}'
                )
                session(model)
                self.assertEqual(["ReduceSum"], operators(optimize(model)))


def giving(result):
    """A rule that gives this for a Relu."""
    return rule(P.Relu(x))(lambda op, x: result)


class TestArguments(unittest.TestCase):
    """What the functions of the optimizer are given instead of a model, of options, of rules."""

    @staticmethod
    def model():
        return model_of(oh.make_node("Relu", ["x"], ["y"]))

    def test_what_is_no_model(self):
        message = "a model is an onnx.ModelProto or an onnx_ir.Model, not str: onnx.load reads a file"
        for function in (optimize, in_place):
            with self.assertRaisesRegex(TypeError, message):
                function("model.onnx")
        with self.assertRaisesRegex(TypeError, "an onnx_ir.Model or the path of a file, not int"):
            quantize_weights(3)

    def test_what_are_no_options(self):
        cases = (
            (TypeError, "options is an OptimizationOptions, not 'default': it takes the names", {"options": "default"}),
            (TypeError, "rules is a list of rules, not Rule", {"rules": giving(None)}),
            (TypeError, "is no rule: the decorator rule makes one of a function", {"rules": [lambda op, x: x]}),
            (TypeError, "report is a Report, which is filled, not \\[\\]", {"report": []}),
            (TypeError, "progress is a function of a stage and its number of steps, not 3", {"progress": 3}),
            (TypeError, "special_values is True or False, not 'no'", {"special_values": "no"}),
            (ValueError, "runtime is 'onnxruntime' or 'onnx', not 'x'", {"runtime": "x"}),
        )  # fmt: skip
        for kind, message, options in cases:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                optimize(self.model(), **options)
        for patterns in (3, [3], giving(None)):
            with self.assertRaisesRegex(TypeError, "patterns is a text of names, or a list of names and"):
                OptimizationOptions(patterns)
        for number in ("all", True, -1):
            with self.assertRaisesRegex(
                ValueError, f"stop_after is a number of rewritings or None, not {number!r}"
            ):
                OptimizationOptions(stop_after=number)
        for name in ("constant_folding", "common_subexpressions", "remove_unused"):
            with self.assertRaisesRegex(TypeError, f"{name} is True or False, not 3"):
                OptimizationOptions(**{name: 3})
        for name in ("bits", "block_size"):
            with self.assertRaisesRegex(ValueError, f"{name} is one of .*, not 32.0"):
                quantize_weights(self.model(), **{name: 32.0})

    def test_a_rule_that_gives_no_value(self):
        for result, message in (
            (3, "the rule .* gives 3, which is no value"),
            ([None], "the rule .* gives None, which is no value"),
            ({"y": 3}, "the rule .* replaces 'y', which is no value"),
        ):
            with self.subTest(message), self.assertRaisesRegex(OptimizationError, message):
                optimize(self.model(), rules=[giving(result)])

    def test_a_set_that_does_not_exist(self):
        with self.assertRaisesRegex(
            ValueError, "there is no set of rules 'mine': the sets are default, onnx"
        ):
            rule(P.Relu(x), set="mine")


if __name__ == "__main__":
    unittest.main()
