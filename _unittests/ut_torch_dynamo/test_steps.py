"""The second step of a training and those after it, which go around aot_autograd's function; what the forward graph keeps."""

from __future__ import annotations

import unittest

import torch

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from _unittests.ut_torch_dynamo.gradient_case import normal
from experimental_experiment.torch_dynamo.corrections import drops_attention


def two_layers():
    """Two linear layers."""
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


class TestSteps(BackendTestCase):
    def test_views_of_weights_are_not_kept(self):
        self.assert_same_gradients(two_layers(), [(normal(5, 3),)] * 3)
        forward, backward = (instance["onnx"].graph for instance in self.instances)
        self.assertEqual([node.op_type for node in forward.node], ["Gemm", "Relu", "Gemm", *["Identity"] * 3])
        self.assertEqual([len(forward.output), len(backward.input)], [5, 5])
        transposed = {node.input[0] for node in backward.node if node.op_type == "Transpose"}
        self.assertFalse(transposed & {value.name for value in backward.input[:-1]})

    def test_outputs_without_gradients(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(3, 4)

            def forward(self, x):
                y = self.linear(x)
                return y.relu(), y.argmax(1), y.exp()

        for dynamic in (False, True):
            with self.subTest(dynamic=dynamic):
                torch._dynamo.reset()
                self.assert_same_gradients(Model(), [(normal(5, 3),), (normal(5, 3),)], dynamic)
                compiled = self.compiled(Model(), dynamic)
                for _ in range(2):  # nobody asks for the gradients of the third output
                    first, largest, _ = compiled(normal(5, 3))
                    first.sum().backward()
                self.assertFalse(largest.requires_grad)

    def test_two_backward_passes(self):
        model = two_layers()
        compiled, x = self.compiled(model), normal(5, 3)
        for _ in range(3):
            loss = compiled(x).square().sum()
            once = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            again = torch.autograd.grad(loss, list(model.parameters()))
            self.assertEqual([a.tolist() for a in once], [b.tolist() for b in again])
            with self.assertRaisesRegex(RuntimeError, "backward through the graph a second time"):
                loss.backward()

    def test_second_derivatives_are_refused(self):
        model = two_layers()
        compiled, x = self.compiled(model), normal(5, 3).requires_grad_()
        messages = ("does not currently support double backward", "but none of its gradients: leave out of")
        for message in messages:  # the first step is aot_autograd's
            (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, message):
                gradient.sum().backward()

    def test_a_penalty_of_gradients_is_refused(self):
        """It depends on the weights, of which the loss that is differentiated first shows nothing."""
        model = two_layers()
        compiled, x = self.compiled(model), normal(5, 3).requires_grad_()
        compiled(x).sum().backward()
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        penalty = compiled(x).mean() + (gradient.norm(dim=1) - 1).square().mean()
        with self.assertRaisesRegex(
            RuntimeError, "a graph on onnx_custom_backend has gradients, but none of its"
        ):
            penalty.backward()

    def test_a_weight_changed_before_the_backward_pass_is_refused(self):
        model = two_layers()
        compiled = self.compiled(model)
        x = normal(5, 3).requires_grad_()
        for _ in range(2):
            compiled(x).sum().backward()
        loss = compiled(x).sum()
        with torch.no_grad():
            model[2].weight.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_inputs_that_are_written(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(3, 4))
                self.weight = torch.nn.Parameter(normal(2, 3))

            def forward(self, x):
                y = self.weight @ self.mean.t().reshape(3, 4)  # keeps what the buffer was
                with torch.no_grad():
                    self.mean.add_(x)
                return y * x.sum()

        self.assert_same_gradients(Model(), [(normal(3, 4),)] * 3)

    def test_no_gradients(self):
        model = two_layers()
        compiled = self.compiled(model)
        with torch.no_grad():
            for x in (normal(5, 3), normal(5, 3)):
                self.assert_close(compiled(x), model(x), "results")
                self.assertFalse(compiled(x).requires_grad)

    def test_gradients_that_are_one_tensor(self):
        """autograd adds the gradients of the next step to them in place: each parameter has its own memory."""

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = torch.nn.LSTMCell(3, 3)
                self.first, self.second = (torch.nn.Parameter(normal(3)) for _ in range(2))

            def forward(self, x):
                return self.cell(x * (self.first + self.second))[0]

        for dynamic in (False, True):
            with self.subTest(dynamic=dynamic):
                torch._dynamo.reset()
                self.assert_same_gradients(Model(), [(normal(5, 3),)] * 3, dynamic)

    def test_which_attention_drops(self):
        def graph_of(function, *args):
            graphs = []
            torch._dynamo.reset()
            torch.compile(function, backend=lambda module, inputs: graphs.append(module) or module)(*args)
            return graphs[0]

        def attention(dropout):
            return lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)

        def layer(dropout):
            return torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=True)

        x = normal(2, 5, 4)
        for dropout in (0.0, 0.1):
            for function in (attention(dropout), layer(dropout)):
                self.assertEqual(dropout > 0, drops_attention(graph_of(function, x)), dropout)


if __name__ == "__main__":
    unittest.main()
