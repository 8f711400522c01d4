"""Capture: arguments that torch.export would not keep apart from each other, or from the model."""

import enum
import unittest

import torch

from experimental_experiment.comparison import compare, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.versions import numbers

X = torch.randn(2, 3)
FACTOR = torch.ones(3)


class Scaled(torch.nn.Module):
    """Multiplies by what it holds, and adds an argument."""

    def __init__(self, kind):
        super().__init__()
        if kind == "buffer":
            self.register_buffer("factor", torch.ones(3))
        else:
            self.factor = torch.nn.Parameter(torch.ones(3)) if kind == "parameter" else torch.ones(3)

    def forward(self, x, start):
        return x * self.factor + start


class Written(Scaled):
    """Writes the argument."""

    def forward(self, x, start):
        start.add_(1)
        return x * self.factor + start


class Nested(Scaled):
    """Takes it in containers."""

    def forward(self, x, starts):
        return x * self.factor + starts["all"][0] - starts["all"][1]


CAPTURES = (ExportOptions(), ExportOptions(strict=True), ExportOptions(tracing="make_fx"))


class TestHeldByTheModel(ExporterTestCase):
    """An argument that is a tensor of the model is an input, and the model keeps its own."""

    def assert_other_arguments(self, model, args, kwargs, others, other_kwargs=None):
        for options in CAPTURES:
            with self.subTest(options):
                proto = to_onnx(model, args, kwargs, export_options=options)
                for found in compare(model, session(proto), others, other_kwargs):
                    self.assertTrue(found.within, found)

    def test_a_weight_given_as_an_argument(self):
        for kind in ("buffer", "parameter", "attribute"):
            with self.subTest(kind):
                model = Scaled(kind)
                others = torch.randn(2, 3), torch.randn(3)
                self.assert_other_arguments(model, (X, model.factor), {}, others)
                self.assert_other_arguments(
                    model, (X,), {"start": model.factor}, others[:1], {"start": others[1]}
                )
                self.assertEqual(model.factor.tolist(), [1.0, 1.0, 1.0])
                self.assertEqual(model.factor.requires_grad, kind == "parameter")

    def test_in_containers_and_twice(self):
        model = Nested("parameter")
        others = torch.randn(2, 3), {"all": [torch.randn(3), torch.randn(3)]}
        self.assert_other_arguments(model, (X, {"all": [model.factor, model.factor]}), {}, others)

    def test_the_argument_is_written(self):
        model = Written("buffer")
        self.assert_other_arguments(model, (X, model.factor), {}, (torch.randn(2, 3), torch.randn(3)))
        self.assertEqual(model.factor.tolist(), [1.0, 1.0, 1.0])

    @unittest.skipIf(numbers(torch.__version__) < numbers("2.10"), "torch 2.9 refuses them with strict=True")
    def test_a_tensor_of_a_closure_or_a_global(self):
        factor = torch.ones(3)
        others = torch.randn(2, 3), torch.randn(3)
        self.assert_other_arguments(lambda x, start: x * factor + start, (X, factor), {}, others)
        self.assert_other_arguments(lambda x, start: x * FACTOR + start, (X, FACTOR), {}, others)

    def test_the_marks_of_dynamic_sizes_are_kept(self):
        x = torch.randn(2, 3)
        torch._dynamo.mark_dynamic(x, 0)
        proto = to_onnx(lambda x: x + 1, (x,))
        self.assertEqual(proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param, "x_dim_0")


class Mode(enum.Enum):
    TWICE = "twice"
    ONCE = "once"


class Level(enum.IntEnum):
    TWICE = 1
    ONCE = 2


class Name(str, enum.Enum):
    TWICE = "twice"
    ONCE = "once"


class Parts(enum.Flag):
    TWICE = 1
    ONCE = 2


@unittest.skipIf(numbers(torch.__version__) < numbers("2.13"), "torch 2.13 is the first that takes an Enum")
class TestEnums(ExporterTestCase):
    """An Enum is a constant of the model, not an input."""

    def test_no_input(self):
        for kind in (Mode, Level, Name, Parts):

            def forward(x, mode, y):
                return x * 2 + y if mode is kind.TWICE else x  # noqa: B023

            for options in CAPTURES:
                for mode in kind:
                    with self.subTest(mode=mode, options=options):
                        proto = to_onnx(
                            forward,
                            (X, mode, X + 1),
                            dynamic_shapes=({0: "rows"}, None, {0: "rows"}),
                            export_options=options,
                            verify=True,
                        )
                        self.assertEqual(["x", "y"], [value.name for value in proto.graph.input])
                        others = torch.randn(5, 3), mode, torch.randn(5, 3)
                        (found,) = compare(forward, session(proto), others)
                        self.assertTrue(found.within, found)

    def test_a_program_with_one(self):
        class Model(torch.nn.Module):
            def forward(self, x, mode):
                return x * 2 if mode is Mode.TWICE else x

        program = torch.export.export(Model(), (X, Mode.TWICE))
        proto = to_onnx(program, verify=True)
        self.assertEqual(["x"], [value.name for value in proto.graph.input])

    def test_refused_without_the_patch(self):
        for mode in (Mode.TWICE, Parts.TWICE):
            with self.assertRaises(CaptureError):
                to_onnx(
                    lambda x, mode: x * 2,
                    (X, mode),
                    dynamic_shapes=({0: "rows"}, None),
                    export_options=ExportOptions(patches=False),
                )

    def test_an_object_that_nothing_reads(self):
        proto = to_onnx(lambda x, generator: x * 2, (X, torch.Generator()))
        self.assertEqual(["x"], [value.name for value in proto.graph.input])


if __name__ == "__main__":
    unittest.main()
