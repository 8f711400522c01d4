"""Capture: the kinds of models that can be exported, and how torch.export is called."""

import functools
import os
import tempfile
import unittest

import onnx
import torch
from torch.export import Dim

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

torch.manual_seed(0)


class Model(torch.nn.Module):
    """A layer, a view that is written, a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x, scale=None):
        y = torch.nn.functional.gelu(self.linear(x)) + self.shift
        y[:, 0] = 0
        return y if scale is None else y * scale


def by_erf(x, approximate="none"):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


X = torch.randn(2, 3)
DYNAMIC = ({0: "batch"},)


class TestKinds(ExporterTestCase):
    def assert_runs_as(self, model, module, *tensors):
        expected = module(*(tensor.clone() for tensor in tensors))
        (got,) = run(session(model), tensors)
        torch.testing.assert_close(got, expected)

    def test_module(self):
        self.export_and_compare(Model(), (X,), dynamic_shapes=DYNAMIC, others=[(torch.randn(5, 3),)])

    def test_function(self):
        weight = torch.randn(3, 4)

        def function(x):
            return x @ weight

        self.assert_runs_as(to_onnx(function, (X,)), function, X)
        self.assert_runs_as(to_onnx(function, (X,), export_options=ExportOptions(strict=True)), function, X)
        self.assert_runs_as(to_onnx(torch.sin, (X,)), torch.sin, X)
        self.assert_runs_as(
            to_onnx(functools.partial(torch.add, alpha=2), (X, X)), lambda x, y: x + 2 * y, X, X
        )
        module = Model()
        self.assert_runs_as(to_onnx(module.forward, (X,), {"scale": X[:, :1]}), module, X, X[:, :1])

    def test_one_tensor_stands_for_a_tuple(self):
        module = Model()
        self.assert_runs_as(to_onnx(module, X), module, X)

    def test_exported_program(self):
        module = Model()
        program = torch.export.export(module, (X,), dynamic_shapes=({0: Dim("batch")},))
        model = to_onnx(program)
        self.assertEqual("batch", model.graph.input[0].type.tensor_type.shape.dim[0].dim_param)
        self.assert_runs_as(model, module, torch.randn(5, 3))

    def test_the_program_is_not_altered(self):
        program = torch.export.export(Model(), (X,))
        before = str(program.graph)
        to_onnx(program)
        self.assertEqual(before, str(program.graph))

    def test_program_loaded_from_a_file(self):
        """Its views have lost their storages: what is written through them is written all the same."""
        module = Model()
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.pt2")
            torch.export.save(torch.export.export(module, (X,), dynamic_shapes=({0: Dim("batch")},)), file)
            program = torch.export.load(file)
        model = to_onnx(program, dynamic_shapes=DYNAMIC)
        self.assertEqual("batch", model.graph.input[0].type.tensor_type.shape.dim[0].dim_param)
        self.assert_runs_as(model, module, torch.randn(5, 3))

    def test_a_program_keeps_its_dimensions(self):
        program = torch.export.export(Model(), (X,), dynamic_shapes=({0: Dim("batch")},))
        model = to_onnx(program, dynamic_shapes=({0: "rows"},))
        self.assertEqual("rows", model.graph.input[0].type.tensor_type.shape.dim[0].dim_param)
        with self.assertRaisesRegex(ValueError, "names axis 1 of x 'columns', but it is static"):
            to_onnx(program, dynamic_shapes=({0: "rows", 1: "columns"},))
        with self.assertRaisesRegex(CaptureError, "structure of the arguments"):
            to_onnx(program, dynamic_shapes=({0: "rows"}, {0: "rows"}, None))

    def test_decomposed_program(self):
        module = Model()
        program = torch.export.export(module, (X,), dynamic_shapes=({0: Dim.DYNAMIC},)).run_decompositions()
        self.assert_runs_as(to_onnx(program), module, torch.randn(5, 3))

    def test_graph_module_with_values(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        def function(x):
            y = x.sin()
            y[0] = 1
            return y @ x.T

        traced = make_fx(function, tracing_mode="fake")(X)
        self.assert_runs_as(to_onnx(traced), function, X)
        with self.assertRaisesRegex(ValueError, "those of its fake values"):
            to_onnx(traced, dynamic_shapes=DYNAMIC)

    def test_traced_graph_module_is_captured(self):
        module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()))
        self.assert_runs_as(to_onnx(module, (X,)), module, X)

    def test_graph_module_without_values(self):
        module = torch.fx.symbolic_trace(torch.nn.ReLU())
        with self.assertRaisesRegex(
            (ValueError, TypeError, CaptureError), r"meta\['val'\]|FakeTensorProp|argument"
        ):
            to_onnx(module)

    def test_anything_else(self):
        with self.assertRaisesRegex(TypeError, "can be exported, not int"):
            to_onnx(3)
        with self.assertRaisesRegex(TypeError, "args is a tuple of arguments, not dict"):
            to_onnx(Model(), {"x": X})

    def test_the_training_mode_is_kept(self):
        module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
        self.assertTrue(module.training)
        to_onnx(module.eval(), (X,))
        self.assertFalse(module[1].training)

    def test_weights_keep_their_gradients(self):
        module = Model()
        to_onnx(module, (X,))
        self.assertTrue(all(weight.requires_grad for weight in module.parameters()))


class TestOptions(ExporterTestCase):
    def test_strict_or_not(self):
        for strict in (True, False):
            with self.subTest(strict=strict):
                self.export_and_compare(
                    Model(),
                    (X,),
                    dynamic_shapes=DYNAMIC,
                    export_options=ExportOptions(strict=strict),
                    others=[(torch.randn(5, 3),)],
                )

    def test_decompositions(self):
        table = {torch.ops.aten.gelu.default: by_erf}
        for decomposition_table, has_gelu in ((None, True), ("default", False), (table, False)):
            with self.subTest(decomposition_table=decomposition_table):
                model = self.export_and_compare(
                    Model(), (X,), export_options=ExportOptions(decomposition_table=decomposition_table)
                )
                kinds = [node.op_type for node in model.graph.node]
                if decomposition_table != "default":
                    self.assertEqual(has_gelu, "Gelu" in kinds)

    def test_decompositions_of_a_given_program(self):
        program = torch.export.export(Model(), (X,))
        options = ExportOptions(decomposition_table="default")
        self.assertTrue(to_onnx(program, export_options=options).graph.node)

    def test_wrong_table(self):
        with self.assertRaisesRegex(ValueError, "decomposition_table is None, 'default' or a dict"):
            ExportOptions(decomposition_table="all")


class TestOpset(ExporterTestCase):
    def test_versions(self):
        for target, expected in ((None, 20), (18, 18), (26, 26), ({"": 21}, 21)):
            with self.subTest(target):
                model = self.export_and_compare(Model(), (X,), target_opset=target)
                versions = {entry.domain: entry.version for entry in model.opset_import}
                self.assertEqual(expected, versions[""])

    def test_versions_that_cannot_be_honoured(self):
        for target in (17, 27, 0, {"": 99}):
            with self.subTest(target):
                with self.assertRaisesRegex(ValueError, "is not between 18 and 26"):
                    to_onnx(Model(), (X,), target_opset=target)
        for target in ("20", 20.0, True):
            with self.subTest(target):
                with self.assertRaisesRegex(TypeError, "target_opset"):
                    to_onnx(Model(), (X,), target_opset=target)

    def test_the_model_is_valid(self):
        model = to_onnx(Model(), (X,), target_opset=18)
        onnx.checker.check_model(model, full_check=True)
        self.assertEqual("experimental_experiment", model.producer_name)


if __name__ == "__main__":
    unittest.main()
