"""The engine: patterns, the queue, the budget, reports, options."""

import collections
import gc
import re
import unittest

import numpy as np
import onnx
import onnx_ir as ir

from _unittests.ut_xoptim.cases import drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import (
    OptimizationError,
    OptimizationOptions,
    P,
    Report,
    const,
    no,
    optimize,
    optional,
    rule,
    var,
)
from experimental_experiment.xoptim.pattern import Kinds, finder_of, matches_of, may_match

x, y = var("x"), var("y")

CHAIN = "agraph (float[2,3] x) => (float[2,3] y) { a = Neg(x) b = Neg(a) c = Neg(b) d = Neg(c) y = Relu(d) }"


@rule(P.Neg(P.Neg(x, shared=True)))
def neg_neg(op, x):
    """A number is its opposite's opposite."""
    return x


def only(*rules):
    """The options and the rules of a test."""
    return {"options": OptimizationOptions(None, constant_folding=False), "rules": rules}


def given(found):
    """What is found, without what is absent."""
    return {name: value for name, value in found.items() if value is not None}


class TestPatterns(unittest.TestCase):
    def fired(self, text, made, expected, opset=20):
        """Apply one rule and compare the operators and the results."""
        model = parsed(text, opset)
        optimized = optimize(model, **only(made))
        onnx.checker.check_model(optimized, full_check=True)
        self.assertEqual(expected, operators(optimized))
        feeds = drawn(model)
        for a, b in zip(session(model).run(None, feeds), session(optimized).run(None, feeds)):
            np.testing.assert_allclose(a, b, rtol=1e-5)

    def test_both_orders_of_a_sum(self):
        @rule(P.Add(P.Neg(x), y))
        def add_of_neg(op, x, y):
            return op.Sub(y, x)

        for text in ("s = Add(n, w)", "s = Add(w, n)"):
            self.fired(
                "agraph (float[2] v, float[2] w) => (float[2] y) { n = Neg(v) " + text + " y = Relu(s) }",
                add_of_neg,
                ["Sub", "Relu"],
            )

    def test_a_number(self):
        @rule(P.Mul(x, 1.0))
        def times_one(op, x):
            return x

        self.fired(
            "agraph (float[2] v) => (float[2] y) <float[1] one = {1}> { m = Mul(v, one) y = Relu(m) }",
            times_one,
            ["Relu"],
        )
        self.fired(
            "agraph (float[2] v) => (float[2] y) <float[1] two = {2}> { m = Mul(v, two) y = Relu(m) }",
            times_one,
            ["Mul", "Relu"],
        )

    def test_a_constant_node(self):
        @rule(P.Add(P.Add(x, const("a")), const("b")))
        def add_add(op, x, a, b):
            return op.Add(x, op.Add(a, b))

        self.fired(
            """agraph (float[2] v) => (float[2] y) <float[1] a = {1}> {
            b = Constant <value = float[1] {2}> () s = Add(v, a) t = Add(s, b) y = Relu(t) }""",
            add_add,
            ["Add", "Relu"],
        )

    def test_the_same_value_twice(self):
        @rule(P.Mul(x, P.Sigmoid(x)))
        def silu(op, x):
            return op.Div(x, op.Add(op.Exp(op.Neg(x)), 1.0))

        text = "agraph (float[2] v, float[2] w) => (float[2] y) {{ s = Sigmoid(v) y = Mul({}, s) }}"
        self.fired(text.format("v"), silu, ["Neg", "Exp", "Add", "Div"])
        self.fired(text.format("w"), silu, ["Sigmoid", "Mul"])

    def test_the_same_node_twice(self):
        """A name stands for one node, also where the pattern asks nothing of its inputs."""
        for operand in (P.one_of("Neg", "Abs")(name="inner"), P.one_of("Neg", "Abs")(x, name="inner")):

            @rule(P.Mul(operand, P.Relu(operand)))
            def gate(op, inner):
                positive = op.Max(inner.outputs[0], 0.0)
                return op.Mul(positive, positive)

            graph = "agraph (float[2,3] x, float[2,3] z) => (float[2,3] y) {{ a = Neg(x) b = {}({}) r = Relu({}) y = Mul(a, r) }}"
            self.fired(graph.format("Abs", "a", "a"), gate, ["Neg", "Max", "Mul"])
            for other in (("Abs", "x"), ("Neg", "z")):
                self.fired(graph.format(*other, "b"), gate, ["Neg", other[0], "Relu", "Mul"])

    def test_an_optional_input(self):
        @rule(P.Relu(P.Clip(x, optional("low"), optional("high"))))
        def relu_of_clip(op, x, low, high):
            return op.Clip(x, 0.0, high) if low is None else no("there is a bound")

        self.fired("agraph (float[2] v) => (float[2] y) { c = Clip(v) y = Relu(c) }", relu_of_clip, ["Max"])

    def test_any_further_inputs(self):
        @rule(P.Neg(P.Clip(x, ..., name="clip")))
        def neg_of_clip(op, x, clip):
            return op.Neg(op.Relu(x)) if len(clip.inputs) < 3 else op.Neg(op.Abs(x))

        text = "agraph (float[2] v) => (float[2] y) <float low = {{0}}, float high = {{99}}> {{ c = Clip({}) y = Neg(c) }}"
        self.fired(text.format("v, low"), neg_of_clip, ["Relu", "Neg"])
        self.fired(
            text.format("v, low, high").replace("c = Clip(v", "u = Exp(v) c = Clip(u"),
            neg_of_clip,
            ["Exp", "Abs", "Neg"],
        )

    def test_one_of_the_inputs_comes_from_an_operator(self):
        seen = []

        @rule(P.Concat(name="node", reads=["Relu", "Exp"]))
        def seen_concat(op, node):
            seen.append(node.name)

        concat = "{0} = Concat <axis = 0> (v, {1}) n_{0} = Neg({0})"
        text = "agraph (float[2] v) => (float[4] y, float[4] z) {{ e = Exp(v) s = Sin(v) {} {} y = Abs(n_a) z = Abs(n_b) }}"
        model = ir.from_proto(parsed(text.format(concat.format("a", "s"), concat.format("b", "e"))))
        for node in model.graph:
            node.name = node.outputs[0].name
        optimize(model, **only(seen_concat))
        self.assertEqual(["b"], seen)

    def test_kinds_of_inputs_spare_looking_at_them(self):
        """A pattern finds the same where it is told the kinds of the inputs."""
        model = ir.from_proto(
            parsed(
                """agraph (float[2] v, float[2] w) => (float[2] y, float[2] z) <float[2] c = {2, 3}, float one = {1}> {
                a = Add(v, w) b = Add(c, a) d = Add(b, b) e = Add(one, d) f = Sub(e, one)
                g = Clip(f, , one) h = Clip(g, one) k = Clip(h) n = Neg(k) m = Mul(k, n) p = Exp(m) q = Neg(m)
                r = Mul(p, q) y = Softmax <axis = 0> (r) z = Mul(r, p) }"""
            )
        )
        low, high = optional("low"), optional("high")
        patterns = {
            "two values": (P.Add(x, y, name="sum"), 7),
            "a constant": (P.Add(x, const("a")), 2),
            "the same value": (P.Add(x, x), 1),
            "a number": (P.one_of("Add", "Sub")(x, 1.0), 2),
            "absent inputs": (P.Clip(x, low, high), 3),
            "an input that is absent": (P.Clip(x, None, high), 2),
            "any other inputs": (P.Clip(x, ...), 3),
            "any inputs": (P.Clip(name="clip"), 3),
            "one that stays": (P.Clip(x, low, shared=True), 2),
            "a node": (P.Add(P.Add(x, y, shared=True), const("a")), 3),
            "a node or another value": (P.Clip(P.Clip(x, low, high) | x, P.Neg(y) | low), 2),
            "a node of the same value": (P.Mul(P.Neg(x), x), 1),
            "an input that only one of two nodes has": (P.Clip(P.Clip(x, low, high), low, high), 0),
            "an input that both lack": (P.Clip(P.Clip(x, optional("other"), y), low, optional("other")), 1),
            "two nodes": (P.Mul(P.Neg(x), P.Exp(y, shared=True)), 1),
            "a node that another one reads": (P.Mul(P.Exp(y, name="exp"), x), 0),
            "an attribute": (P.Softmax(x, axis=0), 1),
            "one of two": (P.Mul(P.Neg(x), y) | P.Softmax(x), 3),
        }
        for promise, (pattern, count) in patterns.items():
            total = 0
            for node in model.graph:
                kinds = node.domain, node.op_type, *map(Kinds().__getitem__, node.inputs)
                if node.op_type not in pattern.operators:
                    continue
                expected = matches_of(pattern, node)
                found = finder_of(pattern, kinds)(node) if may_match(pattern, kinds) else ()
                with self.subTest(promise, node=node.outputs[0].name):
                    self.assertEqual([*map(given, expected)], [*map(given, found)])
                total += len(expected)
            self.assertEqual(count, total, promise)

    def test_nodes_with_other_users_are_not_replaced(self):
        @rule(P.Relu(P.Neg(x)))
        def relu_of_neg(op, x):
            return op.Neg(op.Min(x, 0.0))

        self.fired(
            "agraph (float[2] v) => (float[2] y, float[2] z) { n = Neg(v) y = Relu(n) z = Exp(n) }",
            relu_of_neg,
            ["Neg", "Relu", "Exp"],
        )

    def test_an_output_inside_a_pattern(self):
        @rule(P.Relu(P.Neg(x)))
        def relu_of_neg(op, x):
            return op.Neg(op.Min(x, 0.0))

        self.fired(
            "agraph (float[2] v) => (float[2] y, float[2] n) { n = Neg(v) y = Relu(n) }",
            relu_of_neg,
            ["Neg", "Relu"],
        )

    def test_another_result(self):
        @rule(P.Relu(P.Split(x, output=1, name="split", axis=0, shared=True)))
        def relu_of_second(op, x, split):
            return op.Relu(op.Relu(split.outputs[1]))

        model = parsed(
            "agraph (float[4] v) => (float[2] y, float[2] z) { a, b = Split <axis=0, num_outputs=2> (v) y = Relu(a) z = Relu(b) }"
        )
        report = Report()
        with self.assertRaisesRegex(OptimizationError, "the rule ReluOfSecond does not end"):
            optimize(model, **only(relu_of_second), report=report)

    def test_names_that_the_pattern_does_not_have(self):
        with self.assertRaisesRegex(TypeError, r"wrong: the pattern has no name \['z'\]"):

            @rule(P.Relu(x))
            def wrong(op, z):
                return z

    def test_names_by_keyword_only(self):
        with self.assertRaisesRegex(TypeError, "relu_of: the names are given by position"):

            @rule(P.Relu(x))
            def relu_of(op, *, x):
                return x

    def test_a_name_that_a_rule_of_another_set_has(self):
        with self.assertRaisesRegex(ValueError, "there are two rules MultiHeadAttention"):

            @rule(P.Relu(x), set="default")
            def multi_head_attention(op, x):
                return x

    def test_a_root_in_several_forms(self):
        """The rule is tried on nodes of any of its operators; names of other forms are None."""

        @rule(P.Mul(x, 2.0) | P.Add(x, x, name="sum"))
        def twice(op, x, sum):
            return op.Neg(x) if sum is None else op.Abs(x)

        model = parsed(
            """agraph (float[4] v) => (float[4] y) {
            two = Constant <value_float=2.0> () a = Mul(two, v) b = Add(a, a) c = Add(b, v) y = Mul(c, c) }"""
        )
        self.assertEqual(["Neg", "Abs", "Add", "Mul"], operators(optimize(model, **only(twice))))

    def test_what_a_rule_writes_in_vain(self):
        """It reads no value any more when other rules ask who does."""

        @rule(P.Neg(x))
        def magnitude(op, x):
            op.Exp(op.Sin(x))
            return op.Abs(x)

        @rule(P.Abs(P.Relu(x)))
        def never_negative(op, x):
            return op.Relu(x)

        model = parsed("agraph (float[4] v) => (float[4] y) { r = Relu(v) y = Neg(r) }")
        self.assertEqual(["Relu"], operators(optimize(model, **only(magnitude, never_negative))))

    def test_a_root_that_is_no_node(self):
        for root in (P.Relu(x) | x, P.Relu(x) | P.Relu(x, domain="com.microsoft")):
            with self.assertRaisesRegex(TypeError, "wrong: a rule replaces nodes of one domain"):

                @rule(root)
                def wrong(op, x):
                    return x

    def test_operators_start_with_a_capital(self):
        with self.assertRaisesRegex(AttributeError, "'relu' is no ONNX operator"):
            P.relu(x)


class TestEngine(unittest.TestCase):
    def test_a_fixed_point(self):
        report = Report()
        optimized = optimize(parsed(CHAIN), **only(neg_neg), report=report)
        self.assertEqual(["Relu"], operators(optimized))
        self.assertEqual(["NegNeg", "NegNeg"], [name for name, _ in report.applications])
        self.assertEqual((5, 1), (report.nodes_before, report.nodes_after))

    def test_versions(self):
        @rule(P.Neg(P.Neg(x, shared=True)), since=18, before=21)
        def newer(op, x):
            return x

        for opset, expected in ((17, 4), (18, 0), (20, 0), (21, 4)):
            optimized = optimize(parsed(CHAIN, opset), **only(newer))
            self.assertEqual(expected, operators(optimized).count("Neg"))

    def test_stop_after(self):
        for stop_after, expected in ((0, 4), (1, 2), (2, 0)):
            options = OptimizationOptions(None, stop_after=stop_after, constant_folding=False)
            optimized = optimize(parsed(CHAIN), options, rules=[neg_neg])
            self.assertEqual(expected, operators(optimized).count("Neg"))

    def test_the_model_that_is_given_stays(self):
        model = parsed(CHAIN)
        before = model.SerializeToString()
        optimize(model, **only(neg_neg))
        self.assertEqual(before, model.SerializeToString())

    def test_what_a_model_says_of_an_output_stays(self):
        """Its text and its quantization annotation, also where its node is replaced."""
        model = parsed("agraph (float[N] x) => (float[N] y) { w = Relu (x) y = Relu (w) }")
        model.graph.output[0].doc_string = "what y is"
        annotation = model.graph.quantization_annotation.add(tensor_name="y")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="x")
        optimized = optimize(model).graph
        self.assertEqual(1, len(optimized.node))
        self.assertEqual("what y is", optimized.output[0].doc_string)
        self.assertEqual([annotation], list(optimized.quantization_annotation))

    def test_what_a_model_says_of_an_output_that_is_like_another_stays(self):
        model = parsed("agraph (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Relu(x) }")
        for output in model.graph.output:
            output.doc_string = f"what {output.name} is"
        annotation = model.graph.quantization_annotation.add(tensor_name="z")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="x")
        optimized = optimize(model)
        self.assertEqual(["Relu", "Identity"], operators(optimized))
        self.assertEqual(["what y is", "what z is"], [item.doc_string for item in optimized.graph.output])
        self.assertEqual([annotation], list(optimized.graph.quantization_annotation))

    def test_a_scale_that_an_annotation_names_stays(self):
        """No node reads it; what nothing names goes."""
        model = parsed("agraph (float[N] x) => (float[N] y) { w = Relu (x) y = Relu (w) }")
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.array(0.5, np.float32), name) for name in ("scale", "other")
        )
        annotation = model.graph.quantization_annotation.add(tensor_name="y")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
        optimized = optimize(model).graph
        self.assertEqual([annotation], list(optimized.quantization_annotation))
        self.assertEqual(["scale"], [weight.name for weight in optimized.initializer])

    def test_constants_of_functions_keep_the_names_of_the_caller(self):
        text = """agraph (float[N] x) => (float[N] y) { y = local.f (x) }
            <domain: "local", opset_import: ["" : 18]> f (x) => (y) {
                a = Constant <value=int64[1]{-1}> () b = Constant <value=int64[1]{9223372036854775807}> ()
                t = Shape (x) s = Slice (t, a, b) r = ReduceSum (s) c = Cast <to=1> (r) y = Mul (x, c) }"""
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18, "local" : 1]> {text}')
        for node in model.functions[0].node:
            for attribute in node.attribute:
                attribute.t.ClearField("name")
        before = model.SerializeToString(deterministic=True)
        optimize(model)
        self.assertEqual(before, model.SerializeToString(deterministic=True))

    def test_a_wrong_dtype_of_a_file(self):
        model = parsed("agraph (float[N] x) => (float[N] y) { w = Identity (x) y = Relu (w) }")
        model.graph.value_info.append(
            onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT16, ["N"])
        )
        message = "replaces FLOAT16 by FLOAT, or the model tells another dtype of 'w' than its node gives"
        with self.assertRaisesRegex(OptimizationError, message):
            optimize(model)

    def test_another_type(self):
        @rule(P.Relu(x))
        def relu_as_int(op, x):
            return op.Cast(x, to=7)

        with self.assertRaisesRegex(OptimizationError, "the rule ReluAsInt replaces FLOAT by INT64"):
            optimize(parsed(CHAIN), **only(relu_as_int))

    def test_the_search_for_cycles_goes_on(self):
        @rule(P.Relu(x))
        def relu(op, x):
            enabled.append(gc.isenabled())
            return op.Cast(x, to=onnx.TensorProto.DOUBLE)

        enabled = []
        with self.assertRaises(OptimizationError):
            optimize(parsed(CHAIN), **only(relu))
        self.assertEqual([False, True], [*enabled, gc.isenabled()])
        gc.disable()
        self.addCleanup(gc.enable)
        optimize(parsed(CHAIN), **only(neg_neg))
        self.assertFalse(gc.isenabled())

    def test_another_rank(self):
        @rule(P.Relu(x))
        def relu_as_row(op, x):
            return op.Unsqueeze(x, [0])

        with self.assertRaisesRegex(OptimizationError, r"the rule ReluAsRow replaces \[2,3\] by \[1,2,3\]"):
            optimize(parsed(CHAIN), **only(relu_as_row))

    def test_another_number_of_results(self):
        @rule(P.Relu(x))
        def relu_twice(op, x):
            return op.Relu(x), op.Relu(x)

        with self.assertRaisesRegex(OptimizationError, "the rule ReluTwice gives 2 values for 1"):
            optimize(parsed(CHAIN), **only(relu_twice))

    def test_results_of_nodes_before_the_root(self):
        """An output inside a pattern keeps its name when one node computes both."""

        @rule(P.Relu(P.TopK(x, var("k"), name="first", shared=True), name="last"))
        def relu_of_largest(op, x, k, first, last):
            values, indices = op.TopK(op.Relu(x), k, outputs=2)
            return {last.outputs[0]: values, first.outputs[1]: indices}

        text = """agraph (float[2,3] x) => (float[2,1] y, int64[2,1] i)
        { k = Constant <value=int64[1]{1}> () v, i = TopK (x, k) y = Relu (v) }"""
        model = parsed(text)
        feeds = {"x": np.array([[1, 3, 2], [0, 1, 5]], np.float32)}
        optimized = optimize(model, **only(relu_of_largest))
        self.assertEqual(["Relu", "TopK"], operators(optimized))
        self.assertEqual(["y", "i"], [output.name for output in optimized.graph.output])
        for a, b in zip(session(model).run(None, feeds), session(optimized).run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_what_a_rule_wrote_before_it_declined_goes(self):
        @rule(P.Relu(x))
        def undecided(op, x):
            op.Exp(x)
            return no("it changed its mind")

        report = Report()
        optimized = optimize(parsed(CHAIN), **only(undecided), report=report)
        self.assertEqual(["Neg"] * 4 + ["Relu"], operators(optimized))
        self.assertEqual({("Undecided", "it changed its mind"): 1}, dict(report.declined))
        self.assertIn("it changed its mind", str(report))

    def test_inside_a_local_function(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
            agraph (float[2] x) => (float[2] y) { y = local.twice(x) }
            <opset_import: ["" : 20], domain: "local"> twice (a) => (c) { b = Neg(a) d = Neg(b) e = Relu(d) c = Add(e, e) }"""
        )

        @rule(P.Relu(x))
        def relu_as_max(op, x):
            return op.Max(x, op.CastLike(0.0, x))

        optimized = optimize(model, **only(neg_neg, relu_as_max))
        self.assertEqual(
            ["Constant", "CastLike", "Max", "Add"], [n.op_type for n in optimized.functions[0].node]
        )
        feeds = {"x": np.array([-1, 2], np.float32)}
        np.testing.assert_equal(session(model).run(None, feeds), session(optimized).run(None, feeds))

    def test_constants_of_a_local_function_stand_where_they_are_read(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
            agraph (float[2] x) => (float[2] y) { y = local.twice(x) }
            <opset_import: ["" : 20], domain: "local"> twice (a) => (c) { b = Neg(a) d = Relu(b) e = Exp(d) c = Neg(e) }"""
        )

        @rule(P.Neg(x, name="node"))
        def neg_as_product(op, x, node):
            product = op.Mul(op.CastLike(-1.0, x), x)
            return product if x.producer() is not None else no("it has written the constant")

        @rule(P.Relu(x))
        def relu_as_max(op, x):
            return op.Max(x, op.CastLike(op.Neg(op.constant(-1.0)), x))

        optimized = optimize(model, **only(neg_as_product, relu_as_max))
        onnx.checker.check_model(optimized, full_check=True)
        self.assertIn("Mul", [node.op_type for node in optimized.functions[0].node])
        feeds = {"x": np.array([-1, 2], np.float32)}
        expected = np.exp(np.maximum(-feeds["x"], 1))
        np.testing.assert_allclose(-expected, session(optimized).run(None, feeds)[0], rtol=1e-6)

    def test_the_origin_of_nodes(self):
        model = parsed("agraph (float[2] x) => (float[2] y) { n = Neg(x) y = Relu(n) }")
        model.graph.node[1].metadata_props.add(key="namespace", value="here")

        @rule(P.Relu(P.Neg(x)))
        def relu_of_neg(op, x):
            return op.Neg(op.Min(x, 0.0))

        optimized = optimize(model, **only(relu_of_neg))
        self.assertEqual([{"namespace": "here"}] * 2, [
            {entry.key: entry.value for entry in node.metadata_props} for node in optimized.graph.node
        ])  # fmt: skip

    def test_a_sequence_keeps_its_type(self):
        """onnx-ir infers a tensor for a sequence whose type the file does not tell."""
        model = parsed(
            "agraph (float[N,4] x) => (float[M,P] y) { s = SplitToSequence<axis=1>(x) t = Identity(s) i = Constant<value_int=1>() y = SequenceAt(t, i) }"
        )
        optimized = optimize(model)
        feeds = drawn(model)
        self.assertEqual(
            session(model).run(None, feeds)[0].tolist(), session(optimized).run(None, feeds)[0].tolist()
        )

    def test_a_sequence_out_of_a_body_keeps_its_type(self):
        full, empty = "r = SequenceConstruct(x)", "s = SequenceEmpty<dtype=1>()"
        body = f"then_branch = t () => (seq(float[2]) r) {{ {full} }}, else_branch = o () => (seq(float[2]) s) {{ {empty} }}"
        model = parsed(
            f"agraph (float[2] x, bool c) => (seq(float[2]) y, float[2] z) {{ q = If (c) <{body}> y = SequenceInsert(q, x) z = Neg(x) }}"
        )
        optimized = optimize(model)
        self.assertEqual(model.graph.output[0], optimized.graph.output[0])
        self.assertNotIn("q", [info.name for info in optimized.graph.value_info])
        (node,) = (item for item in optimized.graph.node if item.op_type == "If")
        self.assertTrue(all(item.g.output[0].type.HasField("sequence_type") for item in node.attribute))
        feeds = {"x": np.ones(2, np.float32), "c": np.array(True)}
        np.testing.assert_equal(session(model).run(None, feeds), session(optimized).run(None, feeds))

    def test_shapes_that_constants_tell_are_known_at_once(self):
        values = "int64 i = {-2}, int64 zero = {0}, int64 one = {1}"
        text = "n = Neg(i) axes = Range(zero, n, one) y = ReduceSum<keepdims=0>(x, axes)"
        model = parsed(f"agraph (float[2,3,4] x) => (float[4] y) <{values}> {{ {text} }}")
        report = Report()
        optimized = optimize(model, report=report)
        self.assertEqual((["ReduceSum"], 3), (operators(optimized), report.nodes_before))
        for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        report = Report()
        self.assertEqual(optimized, optimize(optimized, report=report))
        self.assertEqual([], report.applications)

    def test_constants_have_the_shape_of_their_elements(self):
        """A file that tells another one, as the fused export of transformers 5.23 does, lets inference learn nothing at all."""
        text = "agraph (float[3] x) => (float[3] y) <float[1] c = {2}> { a = Mul (x, c) b = Neg (a) y = Relu (b) }"
        model = parsed(text)
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, []))
        target = ir.from_proto(model)
        with self.assertNoLogs("onnx_ir"):
            optimize(target, OptimizationOptions(None))
        self.assertEqual([[3], [3], [3]], [list(node.outputs[0].shape) for node in target.graph])

    def test_a_number_that_a_rule_tells_is_kept(self):
        """The name that it has as a size of the input says less: another rule asks for the number."""
        model = parsed(
            """agraph (float[M,2,N,M] x) => (float[A,B,C,D] y) {
            flat = Constant <value=int64[3]{10,3,5}> () one = Constant <value=int64[1]{1}> () ten = Constant <value=int64[1]{10}> ()
            five = Constant <value=int64[1]{5}> () two = Constant <value=int64[1]{2}> ()
            r = Reshape (x, flat) t = Transpose <perm=[0,2,1]> (r) s = Shape (x) n = Gather (s, two)
            shape = Concat <axis=0> (one, ten, five, n) y = Reshape (t, shape) }"""
        )
        optimized, again = optimize(model), Report()
        self.assertEqual(["Reshape", "Transpose"], operators(optimized))
        optimize(optimized, report=again)
        self.assertEqual([], again.applications)
        feeds = {"x": np.arange(150, dtype=np.float32).reshape(5, 2, 3, 5)}
        for a, b in zip(*(session(item).run(None, feeds) for item in (model, optimized))):
            np.testing.assert_array_equal(a, b)

    def test_a_node_whose_result_becomes_an_output_has_its_shape(self):
        text = """n = Reshape(x, d) t = Transpose<perm=[0, 2, 1]>(n) l = LogSoftmax<axis=2>(t) r = Transpose<perm=[0, 2, 1]>(l)
            s = Shape(x) b = Reshape(r, s) y = Identity(b)"""
        model = parsed(
            f"agraph (float[3,5,6] x) => (float[3,5,6] y) <int64[3] d = {{0, 0, -1}}> {{ {text} }}", opset=13
        )
        optimized = optimize(model)
        self.assertEqual(["LogSoftmax"], operators(optimized))
        for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
            np.testing.assert_allclose(a, b, rtol=1e-5)

    def test_a_rule_that_looks_further_is_asked_again(self):
        """What changes seven nodes before it, after it declined, is no part of its pattern."""

        @rule(P.Relu(P.Neg(x)))
        def relu_of_neg(op, x):
            return op.Abs(x)

        @rule(P.Exp(P.Neg(x, shared=True)))
        def exp_of_neg(op, x):
            return op.Reciprocal(op.Exp(x))

        def last(op, x):
            node = x.producer()
            while node.op_type == "Tanh":
                node = node.inputs[0].producer()
            return op.Ceil(x) if node.op_type == "Abs" else no("no Abs")

        model = parsed(
            """agraph (float[2] v) => (float[2] y, float[2] z) { n = Neg(v) r = Relu(n) a = Tanh(r) b = Tanh(a) c = Tanh(b)
            d = Tanh(c) e = Tanh(d) f = Tanh(e) y = Floor(f) z = Exp(n) }"""
        )
        for looks_further, expected in ((True, "Ceil"), (False, "Floor")):
            made = rule(P.Floor(x), looks_further=looks_further)(last)
            optimized = optimize(model, **only(relu_of_neg, exp_of_neg, made))
            self.assertEqual(["Abs", *["Tanh"] * 6, expected, "Exp", "Reciprocal"], operators(optimized))

    def test_only_a_rule_that_looks_further_is_asked_again(self):
        asked = collections.Counter()

        def counted(name):
            def asks(op, x):
                asked[name] += 1

            return asks

        @rule(P.Exp(P.Neg(x)))
        def exp_of_neg(op, x):
            return op.Reciprocal(op.Exp(x))

        model = parsed(
            "agraph (float[2] v) => (float[2] y, float[2] z) { y = Floor(v) n = Neg(v) z = Exp(n) }"
        )
        near, far = (rule(P.Floor(x), looks_further=far)(counted(far)) for far in (False, True))
        optimize(model, **only(near, far, exp_of_neg))
        self.assertEqual({False: 1, True: 2}, asked)

    def test_a_weight_that_one_node_is_left_to_read(self):
        """The other one is computed when the product with a scale, which goes into the weight, has been looked at."""
        text = """agraph (float[N,2] x) => (float[N,2] y, float[2,2] z) <float[2,2] w = {1,2,3,4}, float[2] c = {5,6}>
            { p = MatMul(x, w) y = Mul(p, c) z = Neg(w) }"""
        report = Report()
        optimized = optimize(parsed(text), OptimizationOptions(["ScaleOfLinear"]), report=report)
        self.assertEqual(["MatMul"], [item for item in operators(optimized) if item != "Identity"])
        self.assertEqual(["ConstantFolding", "ScaleOfLinear"], [name for name, _ in report.applications])

    def test_constants_of_rules_that_decline_are_not_kept(self):
        @rule(P.Relu(x))
        def relu_of_less(op, x):
            return no("it is but a try") if op.constant([1.0, 2.0]) is not None else x

        model = parsed("agraph (float[2] v) => (float[2] y) { y = Relu(v) }")
        optimized = optimize(model, **only(relu_of_less))
        self.assertEqual([], [item.name for item in optimized.graph.initializer])


class TestSharing(unittest.TestCase):
    def shared(self, nodes: str, outputs: str = "float[2] y, float[2] z") -> list[str]:
        """The operators after expressions are shared; the same results."""
        model = parsed(f"agraph (float[2] x) => ({outputs}) {{ {nodes} }}")
        options = OptimizationOptions(None, constant_folding=False)
        optimized = optimize(model, options)
        onnx.checker.check_model(optimized, full_check=True)
        for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
            np.testing.assert_equal(a, b)
        return operators(optimized)

    def test_outputs_keep_their_names(self):
        self.assertEqual(["Exp", "Identity"], self.shared("y = Exp(x) z = Exp(x)"))
        self.assertEqual(["Exp", "Identity", "Neg"], self.shared("a = Exp(x) y = Exp(x) z = Neg(a)"))

    def test_statistics_that_training_overwrites(self):
        """onnxruntime writes the new ones in their place: what holds the same is no less their own."""
        constants = ", ".join(f"float[3] {name} = {{1,2,3}}" for name in "sbmv")
        model = parsed(
            f"""agraph (float[N,3,4] x) => (float[N,3,4] y, float[N,3,4] z, float[3] w) <{constants}> {{
            y, a, w = BatchNormalization<training_mode=1>(x, s, b, m, v) z = BatchNormalization(x, s, b, b, s) }}"""
        )
        optimized = optimize(model, OptimizationOptions(None))
        self.assertEqual(["s", "m", "v"], [item.name for item in optimized.graph.initializer])
        for seed in range(2):
            feeds = drawn(model, seed, sizes=2 + seed)
            for a, b in zip(*(session(item).run(None, feeds) for item in (model, optimized))):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    def test_nodes_of_several_outputs(self):
        split = "y, z = Split<axis=0, num_outputs=2>(x) v, w = Split<axis=0, num_outputs=2>(x)"
        outputs = ", ".join(f"float[1] {name}" for name in "yzvw")
        self.assertEqual(["Split", "Identity", "Identity"], self.shared(split, outputs))

    def test_attributes_decide(self):
        self.assertEqual(["Elu", "Elu"], self.shared("y = Elu<alpha=0.5>(x) z = Elu<alpha=0.25>(x)"))
        self.assertEqual(["Elu", "Identity"], self.shared("y = Elu<alpha=0.5>(x) z = Elu<alpha=0.5>(x)"))

    def test_random_numbers_are_not_shared(self):
        model = parsed(
            "agraph (float[2] x) => (float[2] y) { a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b) }"
        )
        self.assertEqual(3, len(optimize(model, OptimizationOptions(None)).graph.node))

    def test_calls_of_functions_are_not_shared(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
            agraph (float[2] x) => (float[2] y) { a = local.noise(x) b = local.noise(x) y = Sub(a, b) }
            <opset_import: ["" : 20], domain: "local"> noise (a) => (c) { c = RandomNormalLike(a) }"""
        )
        self.assertEqual(["noise", "noise", "Sub"], operators(optimize(model, OptimizationOptions(None))))

    def test_a_result_that_the_first_node_does_not_name(self):
        model = parsed(
            """agraph (float[3,1,2] x, float[1,4,2] w, float[1,4,1] r) => (float[1,1,1] y, float[3,1,1,1] z, float[1,1,1] u) {
            a, b = LSTM<hidden_size=1>(x, w, r) c, d = LSTM<hidden_size=1>(x, w, r) y = Neg(b) z = Neg(c) u = Exp(d) }"""
        )
        optimized = optimize(model, OptimizationOptions(None))
        self.assertEqual(["LSTM", "Neg", "Neg", "Exp"], operators(optimized))
        for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
            np.testing.assert_equal(a, b)

    def test_bodies_see_what_stands_before_them(self):
        body = "then_branch = t () => (float[2] r) { r = Exp(x) }, else_branch = o () => (float[2] s) { b = Neg(x) e = Neg(x) s = Add(b, e) }"
        text = f"a = Exp(x) c = ReduceMax<keepdims=0>(x) d = Cast<to=9>(c) z = If (d) <{body}> y = Neg(a)"
        self.assertEqual(["Exp", "ReduceMax", "Cast", "If", "Neg"], self.shared(text))
        model = optimize(
            parsed(f"agraph (float[2] x) => (float[2] y, float[2] z) {{ {text} }}"), OptimizationOptions(None)
        )
        (node,) = (item for item in model.graph.node if item.op_type == "If")
        found = {item.name: [inner.op_type for inner in item.g.node] for item in node.attribute}
        self.assertEqual({"then_branch": ["Identity"], "else_branch": ["Neg", "Add"]}, found)

    def test_bodies_that_compute_the_same(self):
        def choice(number: int, then: str = "t = Exp(x) r = Neg(t)", otherwise: str = "r = Abs(x)") -> str:
            """An If whose values have names of their own."""
            named = [re.sub(r"\bt\b", f"t{number}", part) for part in (then, otherwise)]
            named = [re.sub(r"\br\b", f"r{place}{number}", part) for place, part in enumerate(named)]
            graphs = [
                f"g{place} () => (float[2] r{place}{number}) {{ {part} }}" for place, part in enumerate(named)
            ]
            return f"v{number} = If (d) <then_branch = {graphs[0]}, else_branch = {graphs[1]}>"

        def turns(number: int, after: str) -> str:
            """A Loop of three turns."""
            body = f"go{number} = Identity(q{number}) e{number} = {after}(a{number})"
            carried = f"int64 i{number}, bool q{number}, float[2] a{number}"
            return f"v{number} = Loop (n, d, x) <body = b ({carried}) => (bool go{number}, float[2] e{number}) {{ {body} }}>"

        c, ends = (
            "n = Constant<value_int=3>() m = ReduceMax<keepdims=0>(x) d = Cast<to=9>(m)",
            "y = Neg(v1) z = Exp(v2)",
        )
        nested = f"{choice(8)} r = Sin(v8)", f"{choice(9)} r = Sin(v9)"
        noise = "t = RandomUniformLike(x) r = Neg(t)"
        for count, first, second in (
            (1, choice(1), choice(2)),
            (2, choice(1), choice(2, otherwise="r = Relu(x)")),
            (2, choice(1), choice(2, "t = Exp(x) r = Neg(x)")),
            (2, choice(1), choice(2, "t = Exp(m) r = Add(t, x)")),
            (2, choice(1, noise), choice(2, noise)),
            (1, choice(1, nested[0]), choice(2, nested[1])),
            (1, turns(1, "Sin"), turns(2, "Sin")),
            (2, turns(1, "Sin"), turns(2, "Cos")),
        ):
            with self.subTest(first=first, second=second):
                model = parsed(
                    f"agraph (float[2] x) => (float[2] y, float[2] z) {{ {c} {first} {second} {ends} }}"
                )
                optimized = optimize(model, OptimizationOptions(None))
                onnx.checker.check_model(optimized, full_check=True)
                kinds = operators(optimized)
                self.assertEqual(count, kinds.count("If") + kinds.count("Loop"))
                if "Random" not in first:
                    for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
                        np.testing.assert_equal(a, b)

    def test_results_that_nothing_reads(self):
        model = parsed(
            "agraph (float[1,1,4] x) => (float[1,1,2] y) { y, i = MaxPool<kernel_shape=[2], strides=[2]>(x) }"
        )
        self.assertEqual(["y"], list(optimize(model, OptimizationOptions(None)).graph.node[0].output))


class TestOptions(unittest.TestCase):
    def test_sets_and_names(self):
        names = {member.name for member in OptimizationOptions().rules}
        self.assertIn("TransposeTranspose", names)
        fewer = {member.name for member in OptimizationOptions("default-TransposeTranspose").rules}
        self.assertEqual({"TransposeTranspose"}, names - fewer)
        self.assertEqual([], OptimizationOptions(None).rules)
        self.assertEqual(
            ["TransposeTranspose"], [r.name for r in OptimizationOptions("TransposeTranspose").rules]
        )

    def test_unknown_names(self):
        with self.assertRaisesRegex(ValueError, "'TransposeTranspos', did you mean .*TransposeTranspose"):
            OptimizationOptions("default+TransposeTranspos")
        with self.assertRaisesRegex(ValueError, "no rule '%%': the sets are default, onnxruntime"):
            OptimizationOptions(["%%"])

    def test_stop_after_is_a_number(self):
        with self.assertRaisesRegex(ValueError, "stop_after is a number of rewritings or None, not -1"):
            OptimizationOptions(stop_after=-1)

    def test_constants_are_folded(self):
        model = parsed(
            "agraph (float[2] x) => (float[2] y) <float[1] a = {1}, float[1] b = {2}> { c = Add(a, b) y = Mul(x, c) }"
        )
        self.assertEqual(["Mul"], operators(optimize(model, OptimizationOptions(None))))
        self.assertEqual(
            ["Add", "Mul"], operators(optimize(model, OptimizationOptions(None, constant_folding=False)))
        )

    def test_constants_that_a_rule_makes_are_folded(self):
        """Reciprocal is the root of no rule, and its input becomes a constant when the queue has left it behind."""
        model = parsed(
            """agraph (float[2] x) => (float[2] y)
            { m = Abs(x) n = Neg(m) r = Reciprocal(n) c = Ceil(m) p = Mul(x, r) y = Add(p, c) }"""
        )

        @rule(P.Ceil(x))
        def three(op, x):
            return op.constant([3.0, 3.0])

        @rule(P.Neg(P.Abs(x)))
        def two_when_nothing_else_reads_the_abs(op, x):
            return op.constant([2.0, 2.0])

        rules = [three, two_when_nothing_else_reads_the_abs]
        self.assertEqual(["Mul", "Add"], operators(optimize(model, OptimizationOptions(rules))))

    def test_unused_nodes(self):
        model = parsed("agraph (float[2] x) => (float[2] y) { z = Neg(x) y = Relu(x) }")
        self.assertEqual(["Relu"], operators(optimize(model, OptimizationOptions(None))))
        self.assertEqual(
            ["Neg", "Relu"], operators(optimize(model, OptimizationOptions(None, remove_unused=False)))
        )

    def test_what_only_the_bodies_of_unused_nodes_read(self):
        body = "then_branch = t () => (float[2] r) { r = Neg(a) }, else_branch = o () => (float[2] s) { s = Abs(a) }"
        text = f"a = Exp(x) c = ReduceMax<keepdims=0>(x) d = Cast<to=9>(c) z = If (d) <{body}> y = Relu(x)"
        model = parsed(f"agraph (float[2] x) => (float[2] y) {{ {text} }}")
        self.assertEqual(["Relu"], operators(optimize(model, OptimizationOptions(None))))

    def test_the_bodies_of_removed_nodes_are_not_looked_at_again(self):
        read = []

        @rule(P.Neg(name="node"), looks_further=True)
        def asks(op, node):
            read.append(node.inputs[0].name)

        @rule(P.Relu(P.Tanh(x)))
        def without_tanh(op, x):
            return op.constant(np.zeros(2, dtype=np.float32))

        body = "then_branch = t () => (float[2] r) { r = Neg(x) }, else_branch = o () => (float[2] s) { s = Abs(x) }"
        text = f"c = ReduceMax<keepdims=0>(x) d = Cast<to=9>(c) z = If (d) <{body}> u = Tanh(z) y = Relu(u) w = Neg(x)"
        model = parsed(f"agraph (float[2] x) => (float[2] y, float[2] w) {{ {text} }}")
        optimized = optimize(model, **only(asks, without_tanh))
        self.assertEqual(["Neg"], [item for item in operators(optimized) if item != "Identity"])
        self.assertEqual({"x"}, set(read))


if __name__ == "__main__":
    unittest.main()
