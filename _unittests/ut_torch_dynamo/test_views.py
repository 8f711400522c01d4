"""Results that are views, of what is given or of each other, at places that sizes decide."""

import math
import unittest

import torch

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from _unittests.ut_torch_dynamo.gradient_case import normal
from experimental_experiment.torch_dynamo import onnx_custom_backend
from experimental_experiment.torch_interpreter import ExportError


def views(x):
    """Parts of a matrix of an even number of columns."""
    rows, columns = x.shape
    return (
        x[:, : columns // 2],
        x[:, columns // 2 :],
        x[rows - 1 :],
        *x.chunk(2, 1),
        x.t()[1 : columns - 1],
        x.unflatten(1, (columns // 2, 2))[:, :, 0],
        x.unfold(1, columns // 2, 1),
        x[:, :1].expand(rows, columns),
        x[:, ::2],
        x[: math.ceil(rows / 2)],
        x[:, math.floor(columns * 0.7) :],
        x[:, : int(columns**0.5)],
    )


FUNCTIONS = {
    "of what is given": views,
    "of a result that is not returned": lambda x: views(x * 2),
    "of a result": lambda x: (lambda y: (y, *views(y)))(x * 2),
    "of both": lambda x: (*views(x), *views(x + 1)),
}


class Rows(torch.nn.Module):
    """Views in a module, for its gradients."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class TestViews(BackendTestCase):
    def test_values(self):
        large = normal(9, 20)
        parts = large[:3, :12].clone(), large[2:6].reshape(-1)[5:61].view(4, 14), large[1::2, 3:19]
        for promise, function in FUNCTIONS.items():
            torch._dynamo.reset()
            compiled = self.compiled(function, dynamic=True)
            for x in parts:
                with self.subTest(promise, shape=x.shape):
                    self.assert_close(compiled(x), function(x), promise)

    def test_parts_of_complex_numbers(self):
        function = lambda z: (
            z.real[:, : z.shape[1] // 2],
            z.imag[:, z.shape[1] // 2 :],
            z[1:],
            (z * 2).imag[1:],
        )
        compiled = self.compiled(function, dynamic=True)
        large = torch.complex(normal(9, 20), normal(9, 20))
        for z in (large[:3, :12].clone(), large[1::2, 3:19], large.t()):
            with self.subTest(shape=z.shape):
                self.assert_close(compiled(z), function(z), "parts")

    def test_gradients(self):
        for promise in ("of what is given", "of both"):
            with self.subTest(promise):
                torch._dynamo.reset()
                self.assert_same_gradients(
                    Rows(FUNCTIONS[promise]), [(normal(3, 12),), (normal(5, 16),)], True
                )

    def test_they_are_in_the_memory_of_what_is_given(self):
        compiled = self.compiled(lambda x: (x[:, x.shape[1] // 2 :], x.sum()), dynamic=True)
        for shape in ((3, 12), (4, 10)):
            x = normal(*shape)
            compiled(x)[0].zero_()
            self.assertEqual([0.0, True], [x[:, shape[1] // 2 :].abs().sum().item(), bool(x.any())])

    def test_a_view_that_is_returned_twice(self):
        def function(x):
            y = x[:, x.shape[1] // 2 :]
            return y, y, torch.ops.aten.detach.default(y)

        def both(x):
            z = x * 2
            return *function(x), z, *function(z)

        for case in (function, both):
            module = torch.fx.experimental.proxy_tensor.make_fx(case, tracing_mode="symbolic")(normal(3, 12))
            x = normal(4, 10)
            with self.subTest(case.__name__):
                self.assert_close(list(onnx_custom_backend(module, [x])([x])), list(case(x)), "views")

    def test_places_that_data_decide_are_refused(self):
        function = lambda x, start: x[start.item() :]
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            with self.assertRaisesRegex(
                Exception, "a view of an input at places that the data decide"
            ) as caught:
                self.compiled(function)(normal(9), torch.tensor(2))
        self.assertIsInstance(caught.exception.inner_exception, ExportError)

    @torch._dynamo.config.patch(capture_scalar_outputs=True)
    def test_places_that_data_decide_are_kept_for_the_gradients(self):
        model = Rows(lambda x, start: x[start.item() :].sin())
        self.assert_same_gradients(model, [(normal(9), torch.tensor(2)), (normal(9), torch.tensor(4))])

    @torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    def test_the_order_in_memory_of_results_whose_sizes_data_decide(self):
        function = lambda x: ((x > 0).nonzero(), x[x > 0], (x > 9).nonzero() + 1)
        for dynamic in (False, True):
            torch._dynamo.reset()
            compiled = self.compiled(function, dynamic)
            for x in (normal(3, 4), normal(3, 4).abs(), -normal(3, 4).abs()):
                found, expected = compiled(x), function(x)
                self.assert_close(found, expected, "indices")
                if len(expected[0]):
                    self.assertEqual(found[0].stride(), expected[0].stride())

    def test_a_graph_of_nothing(self):
        """TorchDynamo makes one where it knows all that is returned."""
        graph = torch.fx.Graph()
        graph.output(())
        self.assertEqual([], list(onnx_custom_backend(torch.fx.GraphModule({}, graph), [])()))


if __name__ == "__main__":
    unittest.main()
