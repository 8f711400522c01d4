"""The backend between torch.compile and onnxruntime: interfaces, dtypes, memory, errors."""

import functools
import threading
import unittest
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.exc import BackendCompilerFailed

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_dynamo import (
    OrtBackend,
    ProviderError,
    get_decomposition_table,
    onnx_custom_backend,
)
from experimental_experiment.torch_dynamo.compiled import session
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx


class Layers(torch.nn.Module):
    """The model of the document."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x)


class Normalized(torch.nn.Module):
    """Batch norm with its statistics."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


class TestInterface(BackendTestCase):
    def through_aot(self, model, dynamic):
        """The model compiled as the document does."""
        compiler = aot_autograd(
            fw_compiler=functools.partial(onnx_custom_backend, target_opset=18, storage=self.storage),
            decompositions=get_decomposition_table(),
        )
        return torch.compile(model, backend=compiler, fullgraph=True, dynamic=dynamic)

    def names(self):
        """Names of inputs and outputs of every model."""
        graphs = [instance["onnx"].graph for instance in self.instances]
        return [([i.name for i in graph.input], [o.name for o in graph.output]) for graph in graphs]

    def test_static_names(self):
        self.through_aot(Layers(), False)(torch.randn(5, 10)).sum().backward()
        forward, backward = self.names()
        self.assertEqual(forward[0], ["input0", "input1", "input2", "input3", "input4"])
        self.assertEqual(forward[1][:3], ["output_0", "output_1", "output_2"])
        self.assertEqual(backward[1], ["output_0", "output_1", "output_NONE_2", "output_3", "output_4"])
        for instance in self.instances:
            self.assertEqual(instance["providers"], ["CPUExecutionProvider"])
            self.assertEqual(instance["onnx"].opset_import[0].version, 18)
            self.assertIsInstance(instance["graph_module"], torch.fx.GraphModule)
        self.assertEqual(self.instances[1]["outputs"], ["tensor", "tensor", "NONE", "tensor", "tensor"])
        self.assertIn("-> output_NONE_2", pretty_onnx(self.instances[1]["onnx"]))

    def test_dynamic_names(self):
        compiled = self.through_aot(Layers(), True)
        for rows in (5, 3, 7):
            compiled(torch.randn(rows, 10)).sum().backward()
        forward, backward = self.names()
        self.assertEqual(forward[0], ["input0", "input1", "input_dim_2", "input3", "input4", "input5"])
        self.assertEqual(forward[1][-1], "output_dim_5")
        self.assertEqual(backward[0][0], "input_dim_0")
        text = pretty_onnx(self.instances[0]["onnx"])
        self.assertIn("input: name='input_dim_2' type=dtype('int64') shape=[1]", text)
        self.assertIn("input: name='input3' type=dtype('float32') shape=['s0', 10]", text)
        self.assertIn("output: name='output_dim_5' type=dtype('int64') shape=[1]", text)
        self.assertIn("Identity(input_dim_2) -> output_dim_5", text)

    def test_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.through_aot(Layers(), False)(torch.randn(5, 10)).sum().backward()
            self.compiled(Layers())(torch.randn(5, 10)).sum().backward()

    def test_decompositions_of_the_options(self):
        table = {torch.ops.aten.relu.default: lambda x: torch.where(x > 0, x, 0.0)}
        options = ExportOptions(decomposition_table=table)
        x = torch.randn(5, 10)
        model = Layers()
        for backend in (
            functools.partial(onnx_custom_backend, export_options=options, storage=self.storage),
            aot_autograd(
                fw_compiler=functools.partial(
                    onnx_custom_backend, export_options=options, storage=self.storage
                )
            ),
        ):
            torch._dynamo.reset()
            found = torch.compile(model, backend=backend, fullgraph=True)(x)
            self.assert_close(found, model(x), "result")
            operators = {node.op_type for node in self.instances[-1]["onnx"].graph.node}
            self.assertNotIn("Relu", operators)

    def test_a_call_without_a_list(self):
        module = torch.fx.experimental.proxy_tensor.make_fx(lambda x: x * 2, tracing_mode="fake")(
            torch.ones(3)
        )
        backend = onnx_custom_backend(module, [torch.ones(3)])
        self.assertIsInstance(backend, OrtBackend)
        (found,) = backend([torch.arange(3.0)])
        self.assert_close(found, torch.arange(3.0) * 2, "result")


class TestSameAsEager(BackendTestCase):
    def test_gradients(self):
        self.assert_same_gradients(Layers(), [(torch.randn(5, 10),), (torch.randn(5, 10),)])
        self.assertEqual(len(self.instances), 2)

    def test_gradients_of_dynamic_sizes(self):
        self.assert_same_gradients(Layers(), [(torch.randn(n, 10),) for n in (5, 3, 9)], dynamic=True)
        self.assertEqual(len(self.instances), 2)

    def test_statistics_of_batch_norm(self):
        calls = [(torch.randn(6, 4),) for _ in range(3)]
        self.assert_same_gradients(Normalized(), calls)
        torch._dynamo.reset()
        self.assert_same_gradients(Normalized(), [*calls, (torch.randn(3, 4),)], dynamic=True)
        self.assert_same_gradients(Normalized().eval(), calls)

    def test_functions_of_tensors(self):
        x = torch.randn(3, 4)
        functions = {
            "an output that is an input": (lambda x: (x, x + 1), x),
            "an output twice": (lambda x: (y := x + 1, y), x),
            "an output and a view of it": (lambda x: (y := x * 2, y.t(), y[1:]), x),
            "a view of an input": (lambda x: (x.t(), x[:, 1:], x.view(-1)), x),
            "a constant": (lambda x: (x + 1, torch.tensor([1.0, 2.0]), torch.ones(2, 2)), x),
            "numbers": (lambda x: (x + 1, x.shape[0], 3, None), x),
            "0-d": (lambda x: x.sum() + x, torch.tensor(1.5)),
            "nothing inside": (lambda x: (x * 2, x.sum(0)), torch.zeros(0, 3)),
            "a transposed input": (lambda x: x * 2 + x.sum(), x.t()),
            "a strided input": (lambda x: x * 2, x[:, ::2]),
            "an expanded input": (lambda x: x * 2, torch.ones(3, 1).expand(3, 4)),
            "bool": (lambda x: (x > 0, ~(x > 0)), x),
            "a mask": (lambda x, m: torch.where(m, x, 0), x, x > 0),
            "int64": (lambda x: (x * 2, x // 2), torch.arange(4)),
            "uint8": (lambda x: x + 1, torch.arange(4, dtype=torch.uint8)),
            "float16": (lambda x: x * 2, x.half()),
            "bfloat16": (lambda x: x * 2, x.bfloat16()),
            "float64": (lambda x: x * 2, x.double()),
            "complex": (lambda x: x * 2j, torch.complex(x, x)),
            "a conjugate": (lambda x: x * 2j, torch.complex(x, x).conj()),
            "an integer": (lambda x, n: x * n, x, 3),
            "a float": (lambda x, n: x * n, x, 0.5),
            "a bool": (lambda x, flag: x * 2 if flag else x, x, True),
            "a permuted result": (lambda x: (x * 2).permute(2, 0, 1), torch.randn(2, 3, 4)),
        }
        for promise, (function, *args) in functions.items():
            for dynamic in (False, True):
                with self.subTest(promise, dynamic=dynamic):
                    torch._dynamo.reset()
                    expected = function(*args)
                    found = self.compiled(function, dynamic)(*args)
                    self.assert_close(found, expected, promise)
                    leaves = zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)))
                    for ours, theirs in leaves:
                        if isinstance(theirs, torch.Tensor):
                            self.assertEqual(ours.stride(), theirs.stride())

    def test_scalars_that_change(self):
        compiled = self.compiled(lambda x, n, f: x * n + f, None)
        x = torch.randn(3)
        for n, f in ((2, 0.5), (3, 0.25), (5, 0.125), (7, 4.0)):
            self.assert_close(compiled(x, n, f), x * n + f, "result")
        self.assertLessEqual(len(self.instances), 3)

    def test_conditions_on_sizes_are_booleans(self):
        compiled = self.compiled(lambda x: (x.sum(0), x.shape[0] * 2.5, x.shape[0] > 2), dynamic=True)
        for rows, expected in ((3, True), (5, True), (2, False)):
            self.assertIs(compiled(torch.ones(rows, 2))[2], expected)

    def test_a_written_input(self):
        def function(x, y):
            x.add_(1)
            y[0] = x.sum()
            return x * 2

        for dynamic in (False, True):
            torch._dynamo.reset()
            ours, theirs = ([torch.ones(3), torch.zeros(2)] for _ in range(2))
            self.assert_close(self.compiled(function, dynamic)(*ours), function(*theirs), "result")
            self.assert_close(ours, theirs, "inputs")


class TestMemory(BackendTestCase):
    def test_results_are_not_overwritten_by_the_next_call(self):
        compiled = self.compiled(lambda x: (x + 1, x.sum()))
        first = compiled(torch.zeros(3))
        second = compiled(torch.ones(3))
        self.assert_close(first, (torch.ones(3), torch.tensor(0.0)), "the first")
        self.assert_close(second, (torch.ones(3) * 2, torch.tensor(3.0)), "the second")

    def test_results_outlive_the_session(self):
        compiled = self.compiled(lambda x: x + 1)
        found = compiled(torch.zeros(100))
        del compiled
        torch._dynamo.reset()
        self.storage.clear()
        self.assert_close(found, torch.ones(100), "result")

    def test_a_constant_result_is_not_shared_by_calls(self):
        compiled = self.compiled(lambda x: (x + 1, torch.ones(2, 2) * 3))
        compiled(torch.zeros(2))[1].zero_()
        self.assert_close(compiled(torch.zeros(2))[1], torch.full((2, 2), 3.0), "result")

    def test_no_copy_of_inputs_and_outputs(self):
        module = torch.fx.experimental.proxy_tensor.make_fx(lambda x: (x, x + 1), tracing_mode="fake")(
            torch.ones(3)
        )
        x = torch.ones(3)
        same, _ = onnx_custom_backend(module, [x])([x])
        self.assertIs(same, x)

    def test_a_detached_result_has_the_memory_of_the_result(self):
        module = torch.fx.experimental.proxy_tensor.make_fx(
            lambda x: ((y := x + 1), torch.ops.aten.detach.default(y), torch.ops.aten.detach.default(x)),
            tracing_mode="fake",
        )(torch.ones(3))
        x = torch.ones(3)
        backend = onnx_custom_backend(module, [x])
        result, detached, given = backend([x])
        self.assertEqual(detached.data_ptr(), result.data_ptr())
        self.assertEqual(given.data_ptr(), x.data_ptr())
        self.assertEqual(backend.output_names, ["output_0"])
        self.assertEqual([item.name for item in backend.model.graph.output][1:], ["output_1", "output_2"])
        version = detached._version
        result.add_(1)
        self.assertGreater(detached._version, version)

    def test_views_of_a_result_show_its_memory(self):
        def function(x):
            y = x * 2
            return y[1:], y, y.t()[:, ::2], y.view(-1)[3]

        for dynamic in (False, True):
            with self.subTest(dynamic=dynamic):
                torch._dynamo.reset()
                compiled, x = self.compiled(function, dynamic), torch.randn(3, 4)
                ours, theirs = compiled(x), function(x)
                self.assert_close(ours, theirs, "results")
                self.assertEqual([a.stride() for a in ours], [b.stride() for b in theirs])
                ours[1].fill_(7)
                self.assertEqual([bool((a == 7).all()) for a in ours], [True] * 4)
        self.assertEqual(len(self.instances[0]["onnx"].graph.output), 4)

    def test_a_graph_that_only_gives_its_inputs(self):
        module = torch.fx.experimental.proxy_tensor.make_fx(lambda x: (x, x), tracing_mode="fake")(
            torch.ones(3)
        )
        x = torch.ones(3)
        backend = onnx_custom_backend(module, [x])
        self.assertEqual(backend.providers, ["CPUExecutionProvider"])
        self.assertEqual([item is x for item in backend([x])], [True, True])

    def test_parameters_changed_in_place_are_seen(self):
        model = Layers()
        compiled = self.compiled(model)
        x = torch.randn(5, 10)
        with torch.no_grad():
            compiled(x)
            for parameter in model.parameters():
                parameter.mul_(0.5)
            self.assert_close(compiled(x), model(x), "result")
        self.assertEqual(len(self.instances), 1)
        self.assertFalse(
            [i for i in self.instances[0]["onnx"].graph.initializer if i.data_type == 1 and len(i.dims)]
        )

    def test_results_do_not_keep_the_buffers_of_earlier_ones(self):
        model = Layers()
        self.compiled(model)(torch.randn(5, 10))
        runner = session(self.instances[0]["onnx"].SerializeToString(), ["CPUExecutionProvider"])
        self.assertFalse(runner.get_session_options().enable_mem_reuse)

    def test_two_threads(self):
        model = Layers()
        compiled = self.compiled(model)
        inputs = [torch.randn(5, 10) for _ in range(2)]
        with torch.no_grad():
            expected = [model(x) for x in inputs]
            compiled(inputs[0])
        wrong = []

        def calls(position):
            with torch.no_grad():
                for _ in range(200):
                    if not torch.allclose(compiled(inputs[position]), expected[position], atol=1e-5):
                        wrong.append(position)

        threads = [threading.Thread(target=calls, args=(position,)) for position in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(self.instances), 1)


class TestCalls(BackendTestCase):
    """What surrounds a call: threads, modes, marks, breaks of the graph."""

    def test_threads_with_other_sizes_and_gradients(self):
        model = Layers()
        compiled = self.compiled(model, dynamic=True)
        wrong = []

        def gradient(function, x):
            x = x.clone().requires_grad_()
            return torch.autograd.grad(function(x).square().sum(), x)[0]

        gradient(compiled, torch.randn(3, 10))

        def calls(rows):
            x = torch.randn(rows, 10)
            expected = gradient(model, x)
            for _ in range(20):
                if not torch.allclose(gradient(compiled, x), expected, atol=1e-5):
                    wrong.append(rows)

        threads = [threading.Thread(target=calls, args=(rows,)) for rows in (5, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(self.instances), 2)

    def test_what_waits_while_torchdynamo_compiles(self):
        """The first backward pass and an export trace, too: TorchDynamo refused what it saw of it, or never ended."""
        model = Layers()
        y = self.compiled(model)(torch.randn(5, 10)).sum()
        program = torch.export.export(model, (torch.randn(5, 10),))
        for promise, act in {"backward": y.backward, "export": lambda: to_onnx(program)}.items():
            thread = threading.Thread(target=act)
            with self.subTest(promise):
                with compile_lock:
                    thread.start()
                    thread.join(3)
                    self.assertTrue(thread.is_alive())
                thread.join()
        self.assertIsNotNone(model.layers[0].weight.grad)

    def test_a_size_marked_dynamic(self):
        model = Layers()
        compiled, x = self.compiled(model, dynamic=None), torch.randn(5, 10)
        torch._dynamo.mark_dynamic(x, 0)
        for given in (x, torch.randn(8, 10)):
            self.assert_close(compiled(given), model(given), "result")
        self.assertEqual(len(self.instances), 2)  # torch compiles the gradients of dynamic sizes at once

    def test_a_break_of_the_graph(self):
        def function(x):
            y = x * 2
            torch._dynamo.graph_break()
            return y.sum() + x

        backend = functools.partial(onnx_custom_backend, storage=self.storage)
        ours, theirs = (torch.arange(3.0, requires_grad=True) for _ in range(2))
        found, expected = torch.compile(function, backend=backend)(ours), function(theirs)
        found.sum().backward()
        expected.sum().backward()
        self.assert_close((found, ours.grad), (expected, theirs.grad), "result and gradient")
        self.assertEqual(len(self.instances), 4)

    def test_inference_mode(self):
        model, x = Layers(), torch.randn(5, 10)
        compiled = self.compiled(model)
        for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
            with self.subTest(mode.__name__), mode():
                found, expected = compiled(x), model(x)
                self.assert_close(found, expected, "result")
                self.assertEqual(found.requires_grad, expected.requires_grad)

    def test_autocast(self):
        model, x = Layers(), torch.randn(5, 10)
        with torch.autocast("cpu", torch.bfloat16):
            self.assert_close(self.compiled(model)(x), model(x), "result")

    def test_written_inputs_that_share_memory(self):
        def function(x, y):
            x.add_(1)
            return y * 2

        ours, theirs = torch.zeros(4), torch.zeros(4)
        found, expected = self.compiled(function)(ours, ours[1:]), function(theirs, theirs[1:])
        self.assert_close((found, ours), (expected, theirs), "result and input")


@torch.library.custom_op("ut_torch_dynamo::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator without translation."""
    return x * 2


@unknown.register_fake
def unknown_fake(x):
    return torch.empty_like(x)


class TestErrors(BackendTestCase):
    def test_an_unknown_operator_names_the_line(self):
        def function(x):
            return unknown(x) + 1  # the line

        with self.assertRaises(BackendCompilerFailed) as caught:
            self.compiled(function)(torch.ones(3))
        text = str(caught.exception)
        self.assertIn("ut_torch_dynamo.unknown.default has no translation", text)
        self.assertIn("return unknown(x) + 1", text)
        self.assertIsInstance(caught.exception.inner_exception, ExportError)

    def test_a_translation_for_this_backend(self):
        translations = {torch.ops.ut_torch_dynamo.unknown.default: lambda op, x: op.Mul(x, 2.0)}
        compiled = self.compiled(lambda x: unknown(x) + 1, translations=translations)
        self.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0), "result")

    def test_a_provider_that_is_not_there(self):
        with self.assertRaises(BackendCompilerFailed) as caught:
            self.compiled(lambda x: x + 1, providers=["CUDAExecutionProvider"])(torch.ones(3))
        self.assertIsInstance(caught.exception.inner_exception, ProviderError)
        self.assertIn("has no CUDAExecutionProvider here, only", str(caught.exception))

    def test_a_dtype_that_onnxruntime_does_not_exchange(self):
        with self.assertRaises(BackendCompilerFailed) as caught:
            self.compiled(lambda x: x.float() * 2)(torch.ones(3).to(torch.float8_e4m3fn))
        self.assertIsInstance(caught.exception.inner_exception, ExportError)
        self.assertIn("onnxruntime takes and gives no torch.float8_e4m3fn by DLPack", str(caught.exception))

    def test_a_sparse_gradient(self):
        compiled = self.compiled(torch.nn.Embedding(10, 3, sparse=True))
        message = (
            "is a sparse tensor, as the gradient of nn.Embedding\\(sparse=True\\): a model gives dense ones"
        )
        with self.assertRaisesRegex(ExportError, message):
            compiled(torch.tensor([1, 2])).sum().backward()

    def test_a_wrong_target(self):
        with self.assertRaises(BackendCompilerFailed) as caught:
            self.compiled(lambda x: x + 1, target_opset=3)(torch.ones(3))
        self.assertIn("target_opset 3 is not between 13 and 26", str(caught.exception))

    def test_a_graph_that_writes_its_input(self):
        def function(x):
            x.add_(1)
            return x * 2

        module = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(torch.ones(3))
        with self.assertRaisesRegex(ExportError, "the graph writes its input x_1"):
            onnx_custom_backend(module, [torch.ones(3)])


if __name__ == "__main__":
    unittest.main()
