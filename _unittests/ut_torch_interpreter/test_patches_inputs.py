"""Dataclasses among the arguments and the results: exported, compared, investigated."""

import dataclasses
import os
import tempfile
import unittest

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from experimental_experiment.comparison import compare, session
from experimental_experiment.investigate import discrepancies, piece_by_piece
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import (
    CaptureError,
    ExportOptions,
    guess_dynamic_shapes,
    to_onnx,
)


@dataclasses.dataclass
class Given:
    """Tensors, one of which may be missing, and a number."""

    left: torch.Tensor
    right: torch.Tensor | None = None
    scale: int = 3


@dataclasses.dataclass
class Nested:
    """A dataclass in one."""

    given: Given
    shift: torch.Tensor


@dataclasses.dataclass
class Result:
    """What a model returns."""

    total: torch.Tensor
    half: torch.Tensor


class Sum(torch.nn.Module):
    """Takes a dataclass."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, given):
        total = self.layer(given.left) * given.scale
        return total if given.right is None else total + given.right


class Shifted(torch.nn.Module):
    """Takes one in another, and has a submodule that takes one."""

    def __init__(self):
        super().__init__()
        self.sum = Sum()

    def forward(self, x, nested):
        return self.sum(nested.given) + nested.shift * x


class Returning(torch.nn.Module):
    """Returns a dataclass."""

    def __init__(self):
        super().__init__()
        self.sum = Sum()

    def forward(self, given):
        total = self.sum(given)
        return Result(total, total / 2)


def given(rows=2):
    return Given(torch.randn(rows, 3), torch.randn(rows, 3))


MODELS = {
    "a dataclass": (Sum, lambda rows=2: (given(rows),)),
    "one with a missing tensor": (Sum, lambda rows=2: (Given(torch.randn(rows, 3)),)),
    "one in another": (Shifted, lambda rows=2: (torch.randn(rows, 3), Nested(given(rows), torch.randn(3)))),
    "one among the results": (Returning, lambda rows=2: (given(rows),)),
}


class TestDataclasses(ExporterTestCase):
    def tearDown(self):
        for cls in (Given, Nested, Result):
            self.assertNotIn(cls, pytree.SUPPORTED_NODES)

    def test_exported_verified_and_compared(self):
        for promise, (kind, call) in MODELS.items():
            for options in (ExportOptions(), ExportOptions(tracing="make_fx")):
                with self.subTest(promise, options=options), tempfile.TemporaryDirectory() as folder:
                    model, args = kind(), call()
                    report = os.path.join(folder, "report.md")
                    proto = to_onnx(model, args, export_options=options, verify=True, report=report)
                    for found in compare(model, session(proto), call()):
                        self.assertTrue(found.within, found)

    def test_names_of_inputs_and_results(self):
        proto = to_onnx(Returning(), (given(),))
        self.assertEqual(["given_left", "given_right"], [value.name for value in proto.graph.input])
        self.assertEqual(["total", "half"], [value.name for value in proto.graph.output])

    def test_investigated(self):
        for promise, (kind, call) in MODELS.items():
            with self.subTest(promise):
                model = kind()
                self.assertTrue(discrepancies(model, call()).agrees)
                self.assertEqual([], piece_by_piece(model, [call(2), call(4)]).failures)

    def test_guessed_sizes(self):
        shapes = guess_dynamic_shapes([(given(2), torch.ones(2)), (given(4), torch.ones(2))])
        self.assertEqual(([{0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}, None], None), shapes)
        for promise, (kind, call) in MODELS.items():
            with self.subTest(promise):
                others = [call(5)]
                self.export_and_compare(
                    kind(), call(), others=others, dynamic_shapes=guess_dynamic_shapes([call(), call(4)])
                )

    def test_dynamic_sizes_by_keyword(self):
        model = Sum()
        shapes = {"given": {"left": {0: "rows"}, "right": {0: "rows"}, "scale": None}}
        proto = to_onnx(model, (), {"given": given()}, dynamic_shapes=shapes, verify=True)
        (found,) = compare(model, session(proto), (), {"given": given(5)})
        self.assertTrue(found.within, found)

    def test_with_torch_dynamo(self):
        strict = ExportOptions(strict=True)
        to_onnx(Sum(), (given(),), export_options=strict, verify=True)
        with self.assertRaisesRegex(
            CaptureError, "a class among the outputs is unknown|one of the outputs with type"
        ):
            to_onnx(Returning(), (given(),), export_options=strict)

    def test_refused_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "Result"):
            to_onnx(lambda x: Result(x + 1, x), (torch.ones(2),), export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
