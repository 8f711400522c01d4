"""Capture: the kinds of models that can be exported, and how torch.export is called."""

import concurrent.futures
import functools
import importlib.util
import os
import tempfile
import threading
import unittest

import onnx
import torch
from torch.export import Dim

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.signature import program_of_graph_module

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

    def test_an_object_that_can_be_called(self):
        class Scaled:
            """Holds a layer."""

            def __init__(self):
                self.layer = torch.nn.Linear(3, 4)

            def __call__(self, x, factor=2):
                return self.layer(x) * factor

        model = to_onnx(Scaled(), (X,), dynamic_shapes=DYNAMIC)
        self.assertEqual(["x"], [info.name for info in model.graph.input])
        torch.manual_seed(0)
        scaled = Scaled()
        self.assert_runs_as(to_onnx(scaled, (X,), dynamic_shapes=DYNAMIC), scaled, torch.randn(5, 3))

    def test_a_method_has_the_weights_of_its_module(self):
        """Under their names, and no hooks, which the call of a method does not run."""

        class Coder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.coded, self.plain = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)

            def encode(self, x):
                return self.coded(x)

            def decode(self, x):
                return self.plain(x)

        module = Coder().eval()
        module.register_forward_hook(lambda *called: self.fail("a hook of the module"))
        for method, x, names in (
            (module.encode, X, ["coded.weight", "coded.bias"]),
            (module.decode, torch.randn(2, 4), ["plain.weight", "plain.bias"]),
        ):
            model = to_onnx(method, (x,))
            self.assertEqual(names, [weight.name for weight in model.graph.initializer])
            self.assert_runs_as(model, method, x)

    def test_a_module_whose_arguments_are_bound(self):
        """By ``functools.partial``: the weights keep their names, hooks run, what is written is compared."""

        class Counting(Model):
            def __init__(self):
                super().__init__()
                self.register_buffer("calls", torch.tensor(0))

            def forward(self, x, factor, as_tuple=True):
                self.calls.add_(1)
                y = super().forward(x) * factor
                return (y, y) if as_tuple else y

        module = Counting().eval()
        hook = module.register_forward_hook(lambda module, args, result: result * 3)
        weights = ["linear.weight", "linear.bias", "shift"]
        for bound in (
            functools.partial(module, as_tuple=False),
            functools.partial(module.forward, as_tuple=False),
        ):
            model = to_onnx(bound, (X, X[:, :1]), dynamic_shapes=({0: "batch"}, {0: "batch"}))
            self.assertEqual(["x", "factor"], [info.name for info in model.graph.input])
            self.assertEqual(weights, [weight.name for weight in model.graph.initializer][:3])
            x = torch.randn(5, 3)
            self.assert_runs_as(model, bound, x, x[:, 1:2])
            written = to_onnx(bound, (X, X[:, :1]), mutated_buffers="outputs", verify=True)
            self.assertEqual(["output", "calls_out"], [info.name for info in written.graph.output])
        hook.remove()

    def test_a_method_that_writes(self):
        """Attributes have their names, too, and are afterwards what they were."""

        class Coder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.calls, self.seen = torch.zeros(1), None
                self.register_buffer("total", torch.zeros(1))

            def encode(self, x):
                self.seen = x * 2
                return x * self.calls.add_(1) + self.total.add_(2)

        module = Coder()
        model = to_onnx(module.encode, (X,), mutated_buffers="outputs", verify=True)
        self.assertEqual({"x", "total", "calls"}, {value.name for value in model.graph.input})
        self.assertEqual(["output", "total_out", "calls_out"], [value.name for value in model.graph.output])
        self.assertEqual((0, 0, None), (int(module.total), int(module.calls), module.seen))

    def test_a_compiled_model_is_the_model(self):
        module, compiled = Model(), Model()
        compiled.compile()
        fresh = Model()
        fresh.load_state_dict(compiled.state_dict())
        for strict in (False, True):
            for promise, mod, expected in (
                ("module", torch.compile(module), module),
                ("method", module.forward, module),
                ("in place", compiled, fresh),
                ("inside", torch.nn.Sequential(torch.compile(module)), module),
                ("function", torch.compile(torch.sinh), torch.sinh),
                ("Python function", torch.compile(lambda x: x * 3), lambda x: x * 3),
            ):
                with self.subTest(promise, strict=strict):
                    model = to_onnx(mod, (X,), export_options=ExportOptions(strict=strict))
                    self.assert_runs_as(model, expected, X)
                    if promise in ("module", "method", "in place"):
                        names = {weight.name for weight in model.graph.initializer}
                        self.assertLessEqual({"linear.weight", "shift"}, names)
                        self.assertEqual("x", model.graph.input[0].name)

    def test_keywords_that_a_forward_gathers(self):
        class Gathering(torch.nn.Module):
            """*args and **kwargs."""

            def forward(self, *args, **kwargs):
                return args[0] * args[1] + kwargs["shift"]

        dims = {0: "batch"}
        for strict in (False, True):
            module = Gathering()
            for dynamic_shapes in ((dims,) * 3, {"args": (dims, dims), "kwargs": {"shift": dims}}):
                with self.subTest(strict=strict, dynamic_shapes=dynamic_shapes):
                    self.export_and_compare(
                        module,
                        (X, X + 1),
                        {"shift": X - 1},
                        dynamic_shapes=dynamic_shapes,
                        export_options=ExportOptions(strict=strict),
                        others=[((torch.randn(5, 3), torch.randn(5, 3)), {"shift": torch.randn(5, 3)})],
                    )
            self.assertNotIn("forward", vars(module))

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
        with self.assertRaisesRegex(CaptureError, "missing a required argument: 'input'"):
            to_onnx(module)
        with self.assertRaisesRegex(
            ValueError,
            r"placeholder input_1 has no meta\['val'\]: run FakeTensorProp on the GraphModule first",
        ):
            program_of_graph_module(module)

    def test_anything_else(self):
        with self.assertRaisesRegex(TypeError, "can be exported, not int"):
            to_onnx(3)
        with self.assertRaisesRegex(TypeError, "args is a tuple of arguments, not dict"):
            to_onnx(Model(), {"x": X})
        with self.assertRaisesRegex(
            TypeError, r"Linear is a class: export an instance of it, to_onnx\(Linear\(\.\.\.\), args\)"
        ):
            to_onnx(torch.nn.Linear, (X,))
        for scripted in (
            torch.jit.script(torch.nn.Linear(3, 4)),
            torch.jit.trace(torch.nn.Linear(3, 4), (X,)),
        ):
            with self.assertRaisesRegex(TypeError, "Linear is TorchScript, which torch.export does not take"):
                to_onnx(scripted, (X,))

    def test_a_program_without_its_example(self):
        program = torch.export.export(Model(), (X,), dynamic_shapes=({0: Dim("batch")},))
        program.example_inputs = None
        with self.assertRaisesRegex(
            ValueError, "dynamic_shapes cannot be read: the ExportedProgram has no example inputs"
        ):
            to_onnx(program, dynamic_shapes=DYNAMIC)
        self.assertTrue(to_onnx(program).graph.node)

    def test_training_mode_is_warned_about_where_it_matters(self):
        loud = (
            torch.nn.Dropout(0.5),
            torch.nn.BatchNorm1d(3),
            torch.nn.LSTM(3, 4, num_layers=2, dropout=0.5),
            lambda x: torch.nn.functional.dropout(x, 0.5),
        )
        for model in loud:
            with self.subTest(model), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(model, (X,))
            self.assertRegex(
                logs.records[0].getMessage(),
                r"the model is exported in training mode, where aten\.\w+\.\w+ is not what it is after model\.eval\(\)"
                r'\n  File ".*", line \d+, in ',
            )
        quiet = (
            torch.nn.Dropout(0.5).eval(),
            torch.nn.Dropout(0.0),
            torch.nn.Linear(3, 4),
            torch.nn.LSTM(3, 4),
            torch.nn.BatchNorm1d(3, track_running_stats=False),
            lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
        )
        for model in quiet:
            with self.subTest(model), self.assertNoLogs("experimental_experiment", "WARNING"):
                to_onnx(model, (X,))

    def test_the_training_mode_is_kept(self):
        module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
        self.assertTrue(module.training)
        to_onnx(module.eval(), (X,))
        self.assertFalse(module[1].training)

    def test_weights_keep_their_gradients(self):
        module = Model()
        to_onnx(module, (X,))
        self.assertTrue(all(weight.requires_grad for weight in module.parameters()))


class TestAutocast(ExporterTestCase):
    """``torch.autocast`` around the export: the ONNX model is that of eager under it."""

    def test_same_as_eager_in_the_region(self):
        class Mixed(torch.nn.Module):
            """What autocast casts, and what it leaves."""

            def __init__(self):
                super().__init__()
                self.linear, self.norm = torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)

            def forward(self, x):
                y = self.linear(x)
                with torch.autocast("cpu", enabled=False):
                    z = x @ self.linear.weight.T
                both = torch.cat([y, y])
                return (
                    self.norm(y).softmax(-1),
                    torch.einsum("ij,kj->ik", x, x),
                    both,
                    z,
                    x.double() @ x.double().T,
                )

        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype), torch.autocast("cpu", dtype):
                self.export_and_compare(Mixed(), (X,), dynamic_shapes=DYNAMIC, others=[(torch.randn(5, 3),)])

    def test_a_program_captured_outside_is_as_it_was(self):
        module = torch.nn.Linear(3, 4)
        program = torch.export.export(module, (X,))
        with torch.autocast("cpu", torch.bfloat16):
            model = to_onnx(program)
        self.assertEqual(onnx.TensorProto.FLOAT, model.graph.output[0].type.tensor_type.elem_type)
        (got,) = run(session(model), [X])
        torch.testing.assert_close(got, module(X))


class TestThreads(ExporterTestCase):
    def test_exports_of_several_threads_are_those_of_one(self):
        modules = [torch.nn.Sequential(Model(), torch.nn.Linear(4, width)) for width in (2, 3, 4, 5)]
        expected = [to_onnx(module, (X,), dynamic_shapes=DYNAMIC).SerializeToString() for module in modules]

        def export(module):
            return [to_onnx(module, (X,), dynamic_shapes=DYNAMIC).SerializeToString() for _ in range(3)]

        with concurrent.futures.ThreadPoolExecutor(len(modules)) as pool:
            found = list(pool.map(export, modules))
        self.assertEqual([[model] * 3 for model in expected], found)


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

    def test_a_lock_around_a_result(self):
        """TorchDynamo's text names functions of gradients, as an example."""
        lock = threading.RLock()

        def locked(x):
            with lock:
                return x * 2

        with self.assertRaisesRegex(
            CaptureError, r"hint   TorchDynamo enters few context managers.*ExportOptions\(strict=False\)"
        ):
            to_onnx(locked, (X,), export_options=ExportOptions(strict=True))
        self.assert_matches(to_onnx(locked, (X,)), locked, (X,))

    def test_the_type_of_a_tensor(self):
        """A capture without TorchDynamo runs forward with tensors of a class of its own."""

        def is_tensor(x, y):
            for value in (x, y):
                if type(value) is list:
                    raise TypeError("a list")
                elif type(value) is not torch.Tensor:
                    raise TypeError("no tensor")
            return x + y

        def other(x, y):
            if isinstance(x, torch.Tensor):
                raise TypeError("never a tensor")
            return x

        x = torch.randn(2, 3)
        hint = r"write isinstance\(x, torch.Tensor\), or capture with ExportOptions\(strict=True\)"
        with self.assertRaisesRegex(CaptureError, rf"no tensor(.|\n)*{hint}"):
            to_onnx(is_tensor, (x, x), export_options=ExportOptions(patches=False))
        for options in (None, ExportOptions(strict=True)):
            self.assert_matches(to_onnx(is_tensor, (x, x), export_options=options), is_tensor, (x, x))
        with self.assertRaises(CaptureError) as caught:
            to_onnx(other, (x, x))
        self.assertNotIn("isinstance(x", str(caught.exception).partition("hint")[2])

    def test_sizes_for_einx(self):
        """The function of einx that asks for them stands in its package, the one that calls it does not."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "einx", "torch.py")
            os.mkdir(os.path.dirname(file))
            with open(file, "w") as stream:
                stream.write("def get_shape(x):\n    return tuple(int(size) for size in x.shape)\n")
            spec = importlib.util.spec_from_file_location("stand_in_for_einx", file)
            einx = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(einx)
            for strict in (False, True):
                with (
                    self.subTest(strict=strict),
                    self.assertRaisesRegex(CaptureError, "write the call with einops"),
                ):
                    to_onnx(
                        lambda x: x.reshape(einx.get_shape(x)) + torch.ones(2, 1),
                        (torch.randn(2, 3),),
                        dynamic_shapes=({0: "rows", 1: "columns"},),
                        export_options=ExportOptions(strict=strict),
                    )

    def test_decompositions(self):
        table = {torch.ops.aten.gelu.default: by_erf}
        for decomposition_table, has_gelu in ((None, True), ("default", False), (table, False)):
            with self.subTest(decomposition_table=decomposition_table):
                options = ExportOptions(decomposition_table=decomposition_table)
                model = self.export_and_compare(Model(), (X,), export_options=options, optimize=False)
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
        for target, expected in (
            (None, 20),
            (13, 13),
            (18, 18),
            (26, 26),
            ({"": 21}, 21),
            ({"ai.onnx": 22}, 22),
            ({"": 22, "ai.onnx": 22}, 22),
        ):
            with self.subTest(target):
                model = self.export_and_compare(Model(), (X,), target_opset=target)
                versions = {entry.domain: entry.version for entry in model.opset_import}
                self.assertEqual(expected, versions[""])

    def test_versions_that_cannot_be_honoured(self):
        for target in (12, 27, 0, {"": 99}):
            with self.subTest(target):
                with self.assertRaisesRegex(ValueError, "is not between 13 and 26"):
                    to_onnx(Model(), (X,), target_opset=target)
        for target in ("20", 20.0, True):
            with self.subTest(target):
                with self.assertRaisesRegex(TypeError, "target_opset"):
                    to_onnx(Model(), (X,), target_opset=target)

        for target in ({"ai.onnx": 20.0}, {1: 20}, {"": 20, "com.microsoft": "1"}, {"": True}):
            with self.subTest(target):
                with self.assertRaisesRegex(
                    TypeError, "target_opset is an int or a dict of versions by domain, not"
                ):
                    to_onnx(Model(), (X,), target_opset=target)
        with self.assertRaisesRegex(ValueError, "target_opset names two versions of ai.onnx, 20 and 22"):
            to_onnx(Model(), (X,), target_opset={"": 20, "ai.onnx": 22})

    def test_the_model_is_valid(self):
        model = to_onnx(Model(), (X,), target_opset=18)
        onnx.checker.check_model(model, full_check=True)
        self.assertEqual("experimental_experiment", model.producer_name)


if __name__ == "__main__":
    unittest.main()
