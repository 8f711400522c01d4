"""What an export was given is free once its caller lets go of it: no table of the process keeps a model."""

import gc
import unittest
import weakref
from typing import Any

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

X = torch.randn(3, 4)


class Product(torch.nn.Module):
    """A class of the process: what holds it holds no weights."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.sin(x) * self.weight


class UnderAutocast(torch.nn.Module):
    """An operator with a kernel of autocast's, and one whose decomposition is traced for its casts."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum("ij,kj->ik", self.linear(x), x)


class TestKeptAlive(ExporterTestCase):
    def assert_free(self, *kept: weakref.ref) -> None:
        """What these references are to is gone when nothing but a table can hold it."""
        gc.collect()
        self.assertEqual([None] * len(kept), [reference() for reference in kept])

    def test_a_model_that_a_translation_names(self):
        def exported():
            model = Product()

            def sine(op, self):
                return op.Sin(self) if model.weight is not None else None

            to_onnx(model, (X,), translations={torch.ops.aten.sin.default: sine})
            return weakref.ref(model), weakref.ref(model.weight), weakref.ref(sine)

        self.assert_free(*exported())

    def test_the_graphs_of_an_autocast(self):
        def graphs() -> int:
            """How many graphs of torch.fx are alive."""
            gc.collect()
            return sum(type(value) is torch.fx.Graph for value in gc.get_objects())

        to_onnx(UnderAutocast(), (X,))
        before = graphs()
        to_onnx(UnderAutocast(), (X,))
        self.assertEqual(before, graphs())

    def test_a_class_of_a_function(self):
        def exported(weight: torch.Tensor) -> tuple[weakref.ref, Any]:
            class Scaled(torch.nn.Module):
                def __init__(self):
                    super().__init__()  # the function holds the class
                    self.factor = int(2.5)

                def forward(self, x):
                    return x * float(self.factor) + weight

            to_onnx(Scaled(), (X,))
            return weakref.ref(Scaled), weakref.ref(Scaled.forward)

        self.assert_free(*exported(torch.ones(4)))


if __name__ == "__main__":
    unittest.main()
