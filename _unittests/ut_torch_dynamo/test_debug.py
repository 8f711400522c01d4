"""The debug backend: onnx's reference evaluator, every result at hand."""

import unittest

import torch

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from experimental_experiment.torch_dynamo import (
    filter_decomposition_table,
    onnx_custom_backend,
    onnx_debug_backend,
)


class TestDebugBackend(BackendTestCase):
    def backend(self, *args, **options):
        """The backend under test."""
        return onnx_debug_backend(*args, storage=self.storage, **options)

    def debugged(self, model, **options):
        """A model on the backend."""
        return torch.compile(model, backend=lambda *args: self.backend(*args, **options), fullgraph=True)

    def test_gradients(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 1))
        x = torch.randn(5, 4)
        model(x).sum().backward()
        expected = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        self.debugged(model)(x).sum().backward()
        self.assert_close([parameter.grad for parameter in model.parameters()], expected, "gradients")
        self.assertEqual([instance["providers"] for instance in self.instances], [["ReferenceEvaluator"]] * 2)

    def test_dtypes(self):
        x = torch.randn(3)
        function = lambda x, b, e, m: (x * 2, b * 2, e.float() * 2, b.to(e.dtype), ~m, x.sum())
        args = x, x.bfloat16(), x.to(torch.float8_e5m2), x > 0
        self.assert_close(self.debugged(function)(*args), function(*args), "results")

    def test_every_result_is_collected(self):
        compiled = self.debugged(lambda x: (x * 2).exp().sum(), collect=True)
        for factor in (1.0, 0.5):
            compiled(torch.ones(3) * factor)
        (instance,) = self.instances
        nodes = {name for node in instance["onnx"].graph.node for name in node.output}
        self.assertEqual(len(instance["results"]), 2)
        for results, factor in zip(instance["results"], (1.0, 0.5)):
            self.assertTrue(nodes.issubset(results))
            self.assertIn("Exp", {node.op_type for node in instance["onnx"].graph.node})
            exp = next(node.output[0] for node in instance["onnx"].graph.node if node.op_type == "Exp")
            self.assert_close(torch.from_numpy(results[exp]), (torch.ones(3) * factor * 2).exp(), "exp")

    def test_every_result_is_logged(self):
        with self.assertLogs("experimental_experiment", "INFO") as logs:
            self.debugged(lambda x: (x * 2).exp(), verbose=1)(torch.ones(3))
        self.assertIn("Exp", "\n".join(logs.output))

    def test_results_have_a_place(self):
        module = torch.fx.GraphModule({}, torch.fx.Graph())
        with self.assertRaisesRegex(ValueError, "collect=True keeps the results in storage: give storage"):
            onnx_debug_backend(module, [], collect=True)

    def test_what_is_no_argument_of_a_backend(self):
        module = torch.fx.GraphModule({}, torch.fx.Graph())
        cases = {
            "a backend compiles a graph of torch.compile(model, backend=...), not Linear": (
                torch.nn.Linear(2, 2),
                {},
            ),
            "storage is a dict, which is filled, not 3": (module, {"storage": 3}),
            "export_options is an ExportOptions, not str": (module, {"export_options": "default"}),
        }
        for message, (graph, options) in cases.items():
            for backend in (onnx_custom_backend, onnx_debug_backend):
                with self.subTest(message), self.assertRaises(TypeError) as caught:
                    backend(graph, [], **options)
                self.assertEqual(message, str(caught.exception))
        for arguments in ((3,), ({}, 3), ({}, "aten.gelu.default"), ({}, [torch.ops.aten.gelu])):
            with self.assertRaises(TypeError):
                filter_decomposition_table(*arguments)


if __name__ == "__main__":
    unittest.main()
