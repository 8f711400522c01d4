"""`discrepancies`: a planted fault is named, ties and rounding are told apart from errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import onnx
import torch
from onnx import TensorProto, helper

from _unittests.ut_investigate.holder import Deep
from experimental_experiment.investigate import discrepancies
from experimental_experiment.investigate.fusions import TRANSFORMERS, blame
from experimental_experiment.investigate.replay import Beside
from experimental_experiment.investigate.results import shortened
from experimental_experiment.investigate.side_by_side import Comparison
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import EagerError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.capture import capture
from experimental_experiment.xoptim import OptimizationOptions, P, rule, var

aten = torch.ops.aten


def wrong_softmax(op, self, dim):
    """A softmax that is a little too flat."""
    return op.Softmax(op.Mul(self, 0.9), axis=dim)


def half_layer_norm(op, input, normalized_shape, weight, bias, eps):
    """A normalization that squares in float16: beyond 256 it overflows."""
    centered = op.Sub(input, op.ReduceMean(input, [-1], keepdims=1))
    squares = op.Mul(centered, centered)
    # where onnxruntime stays in float16
    squares = op.Transpose(op.Concat(squares, squares, axis=-1), perm=[1, 0])
    variance = op.Transpose(op.ReduceMean(squares, [0], keepdims=1), perm=[1, 0])
    scaled = op.Div(centered, op.Sqrt(op.Add(variance, eps)))
    return op.Add(op.Mul(scaled, weight), bias)


class Normalized(torch.nn.Module):
    """Large values, normalized."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.first(x) * 400).relu()


class TestPlantedFaults(ExporterTestCase):
    def test_wrong_translation_is_named_with_module_and_line(self):
        x = torch.randn(2, 4)
        wrong = {"investigate_test::unknown": lambda op, x: op.Mul(x, 2.001)}
        found = discrepancies(Deep(), (x,), translations=wrong)
        self.assertEqual(found.verdict, "error")
        first = found.first
        self.assertEqual((first.name, first.operator), ("unknown", "investigate_test.unknown.default"))
        self.assertEqual((first.module, first.written), ("layers.1.attention", "Mul"))
        self.assertIn("torch.ops.investigate_test.unknown(y)", first.source[3])
        self.assertEqual(first.note, "onnx.reference agrees with onnxruntime: the translation is wrong")
        self.assertEqual((first.suspects.onnx, first.suspects.are_several), (["Mul 'unknown'"], False))
        self.assertNotIn("wrong between", str(first))
        statuses = {result.name: result.status for result in found.results}
        self.assertEqual((statuses["softmax_1"], statuses["add_1"]), ("ok", "follows"))
        self.assertIn(found.worst(1)[0].status, ("error", "follows"))
        text = str(found)
        self.assertIn(
            "the first wrong result:\n%unknown = investigate_test.unknown.default, written as Mul", text
        )
        self.assertIn("14 results compared with eager, 14 nodes", text)

    def test_the_first_fault_is_named_by_every_way_to_write_the_model(self):
        x = torch.randn(2, 4)
        wrong = {aten.softmax.int: wrong_softmax}
        ways = {
            "optimized": {},
            "as translated": {"optimize": False},
            "functions": {"modules_as_functions": True},
            "bisection": {"at_once": 3},
            "dynamic": {"dynamic_shapes": ({0: "batch"},)},
        }
        for way, options in ways.items():
            with self.subTest(way):
                found = discrepancies(Deep(broken=False), (x,), translations=wrong, **options)
                self.assertEqual((found.verdict, found.first.name), ("error", "softmax"))
                self.assertLessEqual(len(found.results), options.get("at_once", 13))

    def test_float8_beside_a_difference(self):
        """Also what is not finite is looked for among them."""

        def eighths(x):
            return x.to(torch.float8_e4m3fn), (x * 3).sin()

        wrong = {aten.sin.default: lambda op, self: op.Mul(self, 2.0)}
        found = discrepancies(eighths, (torch.ones(2, 4),), translations=wrong)
        self.assertEqual((found.verdict, found.first.name), ("error", "sin"))
        self.assertEqual(len(found.results), 3)

    def test_float64_beyond_float32_is_finite(self):
        wrong = {aten.sin.default: lambda op, self: op.Mul(self, 2.0)}
        args = (torch.full((2, 4), 1e300, dtype=torch.float64),)
        found = discrepancies(lambda x: (x * 3, (x / 1e300).sin()), args, translations=wrong)
        self.assertEqual((found.verdict, found.first.name), ("error", "sin"))
        self.assertIsNone(found.overflow)

    def test_fault_deep_inside_by_bisection(self):
        model = Deep()
        wrong = {"investigate_test::unknown": lambda op, x: op.Mul(x, 2.1)}
        for at_once in (2, 5, 100):
            found = discrepancies(model, (torch.randn(2, 4),), translations=wrong, at_once=at_once)
            self.assertEqual(found.first.name, "unknown")

    def test_model_that_is_given(self):
        x, other = torch.randn(2, 4), torch.randn(3, 4)
        model = Deep(broken=False)
        proto = to_onnx(
            model, (x,), dynamic_shapes=({0: "batch"},), translations={aten.softmax.int: wrong_softmax}
        )
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(proto, path)
            for source, given in ((model, path), (model, proto), (program, proto)):
                found = discrepancies(source, (other,), onnx=given, dynamic_shapes=({0: "batch"},))
                self.assertEqual(found.first.name, "softmax")
                self.assertEqual(found.first.gap.got, "float32[3, 4]")

    def test_fused_node_is_among_the_suspects(self):
        """The Reshape after it, whose result is the next one with a name, was blamed alone."""

        def normalized(x):
            x = x.sin()
            centered = x - x.mean(-1, keepdim=True)
            y = centered / torch.sqrt((centered * centered).mean(-1, keepdim=True) + 1e-5)
            return y.reshape(4, 4).abs() + 1

        def gelu(x):
            x = x.sin()
            return x * 0.5 * (1.0 + torch.erf(x / 2**0.5))

        x = torch.randn(2, 8)
        model = to_onnx(normalized, (x,))
        (fused,) = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
        (epsilon,) = [attribute for attribute in fused.attribute if attribute.name == "epsilon"]
        epsilon.f = 0.5
        for at_once in (None, 2):
            first = discrepancies(normalized, (x,), onnx=model, at_once=at_once).first
            self.assertEqual((first.name, first.suspects.after), ("reshape", ["%sin"]))
            self.assertEqual(
                first.suspects.onnx, [f"LayerNormalization {fused.output[0]!r}", "Reshape 'reshape'"]
            )
            lines = str(first).splitlines()
            self.assertEqual(
                lines[1],
                f"  wrong between %sin and %reshape: LayerNormalization {fused.output[0]!r} or Reshape 'reshape', "
                "which stand for %mean, %sub, %mul, %mean_1, %add, %sqrt, %div, %reshape",
            )
            self.assertEqual(
                lines[2], "  onnx.reference agrees with onnxruntime: what is written there is wrong"
            )
        model = to_onnx(gelu, (x,))
        (fused,) = [node for node in model.graph.node if node.op_type == "Gelu"]
        fused.op_type = "Elu"
        del fused.attribute[:]
        told = str(discrepancies(gelu, (x,), onnx=model).first)
        self.assertIn("wrong between %sin and %mul_1: Elu 'output', which stands for %mul, %div, %erf,", told)

    def test_names_of_many_suspects(self):
        self.assertEqual(shortened([*"abcdefgh"]), "a, b, c, d, e, f, g, h")
        self.assertEqual(
            shortened([*"abcdefghi"], " or "), "a or b or c or d or e or f or ... 2 more ... or i"
        )

    def test_body_of_control_flow_is_named_by_its_operator(self):
        def branches(x):
            first, _ = torch.cond(
                x.sum() > 0, lambda x: (x.softmax(-1), x + 1), lambda x: (x.cos(), x - 1), (x.sin(),)
            )
            return first * 2

        found = discrepancies(branches, (torch.rand(2, 3),), translations={aten.softmax.int: wrong_softmax})
        self.assertEqual((found.first.operator, found.first.written), ("higher_order.cond", "If"))
        self.assertIn("torch.cond(", found.first.source[3])
        self.assertIn("or that of a node in its bodies, whose results are not compared", found.first.note)

    def test_wrong_rule_of_the_optimizer(self):
        @rule(P.Sin(var("x")))
        def sin_as_tan(op, x):
            """A wrong rule."""
            return op.Tan(x)

        options = OptimizationOptions([*OptimizationOptions().rules, sin_as_tan])
        found = discrepancies(lambda x: (x * 2).sin().abs() + 1, (torch.rand(2, 3),), optimize=options)
        self.assertEqual(found.verdict, "error")
        self.assertEqual(
            found.first.note,
            "right before optimization: the rule SinAsTan of the optimizer is wrong, at node_sin_Sin",
        )

    def test_what_torch_refuses_after_a_wrong_result(self):
        """The error of torch was raised, and the wrong result not named."""

        def factor(x):
            return torch.linalg.cholesky(x * 2) + 1

        x = torch.eye(3)
        found = discrepancies(
            factor, (x,), translations={aten.mul.Tensor: lambda op, self, other: op.Neg(self)}
        )
        self.assertEqual((found.verdict, found.first.name, found.agrees), ("error", "mul", False))
        self.assertEqual([result.name for result in found.results], ["mul"])
        program = capture(factor, (x,), {}, None, ExportOptions())
        mul = next(node for node in program.module.graph.nodes if node.op == "call_function")
        message = r"eager PyTorch itself fails on the results of ONNX with _?LinAlgError: (?s:.*)torch.linalg"
        with self.assertRaisesRegex(EagerError, message):
            Beside(program, {(mul, 0): -x}, lambda node, tensors: None).start([x])

    def test_overflow_of_float16(self):
        x = 2 * torch.randn(2, 4).half()
        options = {
            "translations": {aten.layer_norm.default: half_layer_norm},
            "optimize": False,
            "runtime": "onnx",
        }
        found = discrepancies(Normalized().half(), (x,), **options)
        self.assertEqual(
            (found.verdict, found.first.name, found.first.module), ("error", "layer_norm", "norm")
        )
        self.assertIsNone(found.overflow)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            found = discrepancies(Normalized().to(dtype), (x.to(dtype),))
            self.assertEqual(found.verdict, "agreement")

    def test_overflow_of_eager_itself_is_told(self):
        found = discrepancies(lambda x: (x * x).sum(-1) * 0.5, (torch.full((2, 4), 300.0).half(),))
        self.assertEqual((found.verdict, found.overflow.name), ("agreement", "mul"))
        self.assertIn("eager itself is not finite from %mul = aten.mul.Tensor on", str(found))

    def test_overflow_that_onnxruntime_does_not_have(self):
        found = discrepancies(lambda x: (x.half() * 300 * 2).float(), (torch.full((2, 4), 200.0),))
        self.assertEqual((found.verdict, found.first), ("rounding", None))
        self.assertIn(
            "the outputs differ from eager, which overflows where ONNX does not, no node is wrong:\n",
            str(found),
        )
        self.assertIn("eager is not finite here, float64 is: ONNX keeps more digits before", str(found))

    def test_infinities_and_nan_are_counted(self):
        def division(op, self, other):
            return op.Div(self, op.Sub(other, other))

        found = discrepancies(
            lambda x, y: (x / y).exp(),
            (torch.tensor([1.0, 0, -1]), torch.ones(3)),
            translations={aten.div.Tensor: division},
        )
        self.assertEqual(
            (found.first.name, found.first.gap.nan, found.first.gap.inf), ("div", (0, 1), (0, 2))
        )
        self.assertIn("1 NaN instead of 0, 2 inf instead of 0", str(found.first.gap))

    def test_wrong_type_is_an_error(self):
        model = to_onnx(lambda x: x.sin().cos(), (torch.rand(3),))
        found = discrepancies(lambda x: x.sin().cos(), (torch.rand(3).double(),), onnx=in_double(model))
        self.assertEqual(found.verdict, "agreement")
        found = discrepancies(lambda x: x.sin().cos()[None], (torch.rand(3),), onnx=model)
        self.assertIn("float32[3] instead of float32[1, 3]", str(found.first))


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model for float64."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in [*result.graph.input, *result.graph.output, *result.graph.value_info]:
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return result


class TestNoErrors(ExporterTestCase):
    def test_agreement(self):
        def writes(x):
            y = x.clone()
            z = y[0]
            z.add_(1)
            y[1] = z * 2
            return y, z, y.t().relu()

        cases = {
            "writes through views": (writes, torch.rand(2, 3)),
            "complex numbers": (lambda x: (torch.view_as_complex(x) * (1 + 2j)).abs(), torch.rand(2, 3, 2)),
            "integers": (lambda x: (x // 3, x % 3 == 1, x.sum()), torch.arange(12).reshape(3, 4)),
            "numbers among the outputs": (lambda x: (x.sum(), x.shape[0], x), torch.rand(2, 3)),
            "an empty tensor": (lambda x: (x[:0].exp(), x), torch.rand(2, 3)),
            "equal elements, in the order of the standard": (lambda x: x.argmax(-1), torch.ones(3, 4)),
        }
        for promise, (function, x) in cases.items():
            with self.subTest(promise):
                for options in ({}, {"optimize": False}):
                    found = discrepancies(function, (x,), **options)
                    self.assertEqual(found.verdict, "agreement", str(found))
                    self.assertGreater(len(found.results), 0)

    def test_write_of_a_wrong_value_is_named_where_it_is_computed(self):
        def writes(x):
            y = x.clone()
            y[1] = y[0] * 2
            return y, y.t().relu()

        wrong = {aten.mul.Tensor: lambda op, self, other: op.Mul(self, 2.5)}
        found = discrepancies(writes, (torch.rand(2, 3),), translations=wrong)
        self.assertEqual(found.first.name, "mul")

    def test_ties_are_no_errors(self):
        def experts(scores):
            return (scores * 2).topk(4).indices + 1

        scores = torch.zeros(2, 8)
        scores[:, 3] = 1
        found = discrepancies(experts, (scores,))
        self.assertEqual((found.verdict, found.first), ("tie", None))
        self.assertEqual(found.ties[0].operator, "aten.topk.default")
        self.assertRegex(found.ties[0].note, r"\d indices name other elements, which are equal")
        self.assertIn("the outputs differ from eager by a tie, no node is wrong", str(found))
        self.assertEqual(discrepancies(experts, (torch.randn(2, 8),)).verdict, "agreement")

    def test_another_element_is_no_tie(self):
        def last(op, self, dim, keepdim):
            return op.Sub(op.ArgMax(self, axis=dim, keepdims=0), 1)

        x = torch.arange(12.0).reshape(3, 4)
        found = discrepancies(lambda x: x.sin().argmax(-1), (x,), translations={aten.argmax.default: last})
        self.assertEqual((found.verdict, found.first.operator), ("error", "aten.argmax.default"))
        self.assertEqual(
            discrepancies(lambda x: x.argmin(-1), (torch.ones(3, 4),), translations={
                aten.argmin.default: lambda op, self, dim, keepdim: op.ArgMin(self, axis=dim, keepdims=0, select_last_index=1)
            }).verdict, "tie",
        )  # fmt: skip

    def test_rounding_that_grows(self):
        found = discrepancies(lambda x: ((x + 1000).sum(-1) - 1000 * 5000) * 100, (torch.rand(4, 5000),))
        self.assertEqual((found.verdict, found.first), ("rounding", None))
        told = "the outputs differ from eager by rounding that grows from node to node, each node alone is right; "
        self.assertRegex(str(found), f"{told}beyond the tolerance first in:\n%(sum_1|sub|mul) = ")

    def test_what_torch_calls_random_without_dropout(self):
        """An attention or a recurrent layer that draws nothing is compared as any other."""
        attend = lambda q, k: torch.nn.functional.scaled_dot_product_attention(q, k, k).tanh()
        cases = (
            (torch.nn.LSTM(4, 6), "LSTM", torch.ones(5, 2, 4)),
            (torch.nn.GRU(4, 6), "GRU", torch.ones(5, 2, 4)),
        )
        for layer, operator, x in cases:
            with self.subTest(operator):
                model = to_onnx(layer, (x,))
                (node,) = [node for node in model.graph.node if node.op_type == operator]
                node.input[1], weights = (
                    "doubled",
                    next(
                        onnx.numpy_helper.to_array(item)
                        for item in model.graph.initializer
                        if item.name == node.input[1]
                    ),
                )
                model.graph.initializer.append(onnx.numpy_helper.from_array(weights * 2, "doubled"))
                found = discrepancies(layer, (x,), onnx=model)
                self.assertEqual(found.verdict, "error")
        q, k = torch.randn(2, 3, 5, 8)
        model = to_onnx(attend, (q, k))
        (node,) = [node for node in model.graph.node if node.op_type == "Softmax"]
        node.op_type = "LogSoftmax"
        found = discrepancies(attend, (q, k), onnx=model)
        self.assertIn("scaled_dot_product_attention", str(found.first))

    def test_random_numbers(self):
        with self.assertLogs("experimental_experiment", "WARNING"):
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).train()
            found = discrepancies(model, (torch.rand(8, 4),))
        self.assertEqual(found.verdict, "random")
        self.assertIn("the outputs differ from eager by random numbers, no node is wrong", str(found))


def transposed_times_vector() -> onnx.ModelProto:
    """A model that onnxruntime's fusion of MatMul and Transpose makes wrong."""
    nodes = [
        helper.make_node("Transpose", ["matrix"], ["transposed"], perm=[1, 0]),
        helper.make_node("MatMul", ["transposed", "vector"], ["product"]),
    ]
    return handmade(nodes, {"matrix": [3, 4], "vector": [3]}, {"product": [4]})


def padded_after_transpose() -> onnx.ModelProto:
    """A model that onnxruntime stops running once it has moved a Transpose behind a Pad with axes."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["transposed"], perm=[0, 2, 1]),
        helper.make_node("Pad", ["transposed", "amounts", "", "axes"], ["padded"]),
        helper.make_node("Transpose", ["padded"], ["y"], perm=[0, 2, 1]),
    ]
    constants = [
        helper.make_tensor("amounts", TensorProto.INT64, [2], [1, 2]),
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
    ]
    return handmade(nodes, {"x": [2, 3, 4]}, {"y": [2, 3, 7]}, constants)


def handmade(nodes, inputs, outputs, constants=()) -> onnx.ModelProto:
    """A model of float32 tensors."""
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        for shapes in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "handmade", *values, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


class TestRuntime(ExporterTestCase):
    def test_fusion_that_computes_garbage_is_named(self):
        def product(matrix, vector):
            return (matrix.sin().t() @ vector).relu()

        call = (torch.randn(3, 4), torch.randn(3))
        found = discrepancies(product, call, runtime="onnx")
        self.assertEqual((found.verdict, found.runtime.optimizers), ("runtime", ("MatmulTransposeFusion",)))
        self.assertIn("FusedMatMul", found.runtime.nodes[0])
        self.assertIn(
            "every node is right, onnxruntime's MatmulTransposeFusion changes the results", str(found)
        )
        self.assertEqual(discrepancies(product, call).verdict, "agreement")

    def test_handmade_models(self):
        matrix, vector = torch.randn(3, 4), torch.randn(3)
        self.assertEqual(
            blame(transposed_times_vector(), (matrix, vector)).optimizers, ("MatmulTransposeFusion",)
        )
        found = blame(padded_after_transpose(), (torch.randn(2, 3, 4),))
        self.assertEqual(
            set(found.optimizers), {"TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"}
        )
        self.assertIn("indices element out of data bounds", found.difference)

    def test_every_optimizer_of_the_installed_onnxruntime_is_known(self):
        script = """
        import onnxruntime, sys
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 1
        onnxruntime.InferenceSession(sys.stdin.buffer.read(), options, providers=["CPUExecutionProvider"])
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run(
            command, input=transposed_times_vector().SerializeToString(), capture_output=True
        )
        applied = set(re.findall(r"GraphTransformer (\w+) modified", done.stderr.decode()))
        self.assertIn("MatmulTransposeFusion", applied)
        self.assertEqual(applied - set(TRANSFORMERS), set())

    def test_runtime_that_rounds_otherwise_is_not_to_blame(self):
        def rounded(plain, optimized):
            return bool((plain[0] - optimized[0]).abs().max() < 0.1)

        matrix, vector = torch.randn(3, 4), torch.randn(3)
        found = blame(transposed_times_vector(), (matrix, vector), rounds=lambda plain, optimized: True)
        self.assertTrue(found.rounds)
        self.assertIn("onnxruntime's optimization rounds otherwise (float32[4]", str(found))
        self.assertFalse(blame(transposed_times_vector(), (matrix, vector), rounds=rounded).rounds)

    def test_as_near_to_float64(self):
        program = capture(lambda x: (x * 3).sum(), (torch.rand(5),), {}, None, ExportOptions())
        x = torch.rand(5)
        comparison = Comparison(program, to_onnx(lambda x: (x * 3).sum(), (x,)), [x], 1.0)
        exact = (x.double() * 3).sum().float()
        near, far = exact * (1 + 1e-6), exact * 1.1
        self.assertTrue(comparison.runtime_rounds([exact], [near]))
        self.assertFalse(comparison.runtime_rounds([exact], [far]))
        self.assertTrue(comparison.runtime_rounds([far], [far * 1.2]))

    def test_kernel_that_is_wrong(self):
        empty = torch.ones(0, 3)
        found = discrepancies(lambda x: x.mean(0) + 1, (empty,), runtime="onnx")
        self.assertEqual((found.verdict, found.first.name), ("error", "mean"))
        self.assertEqual(
            found.first.note, "onnx.reference does not agree with onnxruntime: one of its kernels is wrong"
        )
        self.assertEqual(discrepancies(lambda x: x.mean(0) + 1, (empty,)).verdict, "agreement")

    def test_nothing_to_blame(self):
        model = to_onnx(Normalized(), (torch.randn(2, 4),))
        self.assertIsNone(blame(model, (torch.randn(2, 4),)))


class TestArguments(ExporterTestCase):
    def test_example_that_fails_in_eager(self):
        call = (torch.rand(2, 3), torch.tensor([9]))
        function = lambda x, i: x[i * 2] + 1
        message = "eager PyTorch itself fails with IndexError: index 18 is out of bounds"
        for at_once in (None, 2):
            with self.assertRaisesRegex(EagerError, message):
                discrepancies(function, call, at_once=at_once)
        with self.assertRaisesRegex(EagerError, message):
            to_onnx(function, call, verify=True)

    def test_outputs_that_are_inputs(self):
        found = discrepancies(torch.nn.Identity(), (torch.rand(2, 3),))
        self.assertEqual((found.verdict, found.results), ("agreement", []))

    def test_what_does_not_fit(self):
        x = torch.rand(2, 3)
        model = to_onnx(lambda x, y: x + y, (x, x))
        cases = {
            "the model takes 2 inputs (x, y), the program 1": lambda: discrepancies(
                lambda x: x * 2, (x,), onnx=model
            ),
            "scale is a positive number, not -1": lambda: discrepancies(torch.sin, (x,), scale=-1),
            "at_once is 2 at least, not 1": lambda: discrepancies(torch.sin, (x,), at_once=1),
            "the program takes 1 arguments (x), 2 are given": lambda: discrepancies(
                torch.export.export(torch.nn.ReLU(), (x,)), (x, x)
            ),
        }
        for message, call in cases.items():
            with self.subTest(message), self.assertRaises(ValueError) as caught:
                call()
            self.assertIn(message.replace("(x), 2", "(input), 2"), str(caught.exception))
        for message, options in {
            "export_options is an ExportOptions, not a dict: write ExportOptions(strict=True)": {
                "export_options": {"strict": True}
            },
            "kwargs is a dict of keyword arguments, not tuple": {"kwargs": (x,)},
            "progress is a function of a stage and its number of steps, not True": {"progress": True},
            "at_once is a whole number, not 'all'": {"at_once": "all"},
        }.items():
            with self.subTest(message), self.assertRaises(TypeError) as wrong:
                discrepancies(torch.sin, (x,), **options)
            self.assertEqual(message, str(wrong.exception))
        with self.assertRaisesRegex(TypeError, "takes no 'optimize' for a model that is given"):
            discrepancies(lambda x, y: x + y, (x, x), onnx=model, optimize=False)

    def test_keyword_arguments_and_options(self):
        def model(x, *, scale, shift):
            return x * scale + shift.sin()

        kwargs = {"shift": torch.rand(2, 3), "scale": torch.full((2, 3), 5.0)}
        found = discrepancies(
            model, (torch.rand(2, 3),), kwargs, export_options=ExportOptions(strict=True), target_opset=18
        )
        self.assertEqual(found.verdict, "agreement", str(found))
        found = discrepancies(model, kwargs={"x": torch.rand(2, 3), **kwargs})
        self.assertEqual((found.verdict, len(found.results)), ("agreement", 3))


if __name__ == "__main__":
    unittest.main()
