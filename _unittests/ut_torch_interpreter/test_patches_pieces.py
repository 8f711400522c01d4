"""Features of images that a model splits and concatenates again: any number of images."""

import functools
import sys
import textwrap
import types
import unittest

import torch
import transformers  # noqa: F401 (its patches apply when it is imported)

from experimental_experiment.comparison import put_together
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.frames import is_library

NAME = "transformers.models.of_pieces.modeling_of_pieces"
FLATTENING = "transformers.models.idefics3.modeling_idefics3"
RETURNING = "transformers.models.smolvlm.modeling_smolvlm"
LISTING = "transformers.models.llava.modeling_llava"
MODEL = textwrap.dedent(
    """
    import torch


    class Model(torch.nn.Module):
        def __init__(self, use):
            super().__init__()
            self.use = use

        def get_image_features(self, features, grid):
            return torch.split(features * 2, grid.prod(-1).tolist())

        def get_rows(self, features, grid):
            pieces = (features * 2)[:, None].split(grid.prod(-1).tolist())
            return [piece.reshape(-1, piece.shape[-1]) for piece in pieces]

        def get_images(self, images):
            return list(images * 2)

        def forward(self, features, grid):
            if self.use == "images":
                return torch.cat(self.get_images(features), dim=0) + grid[0, 0]
            if self.use == "images beside each other":
                return torch.stack(self.get_images(features)[::-1]) + grid[0, 0]
            if self.use == "rows":
                return torch.cat(self.get_rows(features, grid), dim=0)
            if self.use == "rows returned":
                return self.get_rows(features, grid)
            pieces = self.get_image_features(features, grid)
            if self.use == "returned":
                return pieces
            if self.use == "joined":
                return torch.cat(pieces, dim=0) + 1, torch.cat(pieces)
            return torch.cat([piece.sum(0, keepdim=True) for piece in pieces])
    """
)


class OfRows(torch.nn.Module):
    """Sums that are computed in Python."""

    def forward(self, grid):
        return sum(torch.ones(size) for size in grid.prod(1).tolist())


def call(*sizes):
    """Features of images of these sizes."""
    grid = torch.tensor(sizes)
    return torch.randn(int(grid.prod(1).sum()), 3), grid


class TestPieces(ExporterTestCase):
    def setUp(self):
        super().setUp()
        self.model = self.model_of(NAME)

    def model_of(self, name):
        """The model, in a module of this name."""
        module = types.ModuleType(name)
        exec(MODEL, vars(module))
        before = sys.modules.get(name)
        sys.modules[name] = module
        if before is None:
            self.addCleanup(sys.modules.pop, name)
        else:
            self.addCleanup(sys.modules.update, {name: before})
        return module.Model

    def test_any_number_of_images(self):
        shapes = ({0: "features"}, {0: "images"})
        example, others = call((2, 3), (4, 2)), [call((1, 1)), call((2, 2), (5, 1), (3, 3))]
        self.export_and_compare(
            self.model("joined"), example, others=others, dynamic_shapes=shapes, target_opset=20
        )
        for patches, use in ((False, "joined"), (None, "joined beside each other")):
            with self.subTest(use), self.assertRaises(CaptureError):
                options = ExportOptions(patches=patches)
                to_onnx(self.model(use), example, dynamic_shapes=shapes, export_options=options)

    def test_rows_of_any_number_of_images(self):
        """Of a model that is known to make rows of the pieces, and to concatenate them."""
        shapes = ({0: "features"}, {0: "images"})
        example, others = call((2, 3), (4, 2)), [call((1, 1)), call((2, 2), (5, 1), (3, 3))]
        model = self.model_of(FLATTENING)("rows")
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))
        with self.assertRaises(CaptureError):
            to_onnx(self.model("rows"), example, dynamic_shapes=shapes)
        with self.assertRaises(CaptureError):
            to_onnx(self.model_of(RETURNING)("rows"), example, dynamic_shapes=shapes)

    def test_a_list_of_any_number_of_images(self):
        """Of LLaVA, which concatenates them."""
        shapes = ({0: "images"}, None)
        example = torch.randn(2, 4, 3), torch.ones(1, 2)
        others = [(torch.randn(count, 4, 3), torch.zeros(1, 2)) for count in (3, 1)]
        model = self.model_of(LISTING)
        self.export_and_compare(
            model("images"), example, others=others, dynamic_shapes=shapes, target_opset=20
        )
        for use, patches in (("images", False), ("images beside each other", None)):
            with self.subTest(use), self.assertRaises(CaptureError):
                options = ExportOptions(patches=patches)
                to_onnx(model(use), example, dynamic_shapes=shapes, export_options=options)
        self.export_and_compare(model("images beside each other"), example, target_opset=20)

    def test_an_output_for_each_image(self):
        """As many as the example has; one for all of a number that is not known, with a warning."""
        example = call((1, 2, 2), (1, 4, 2))
        other = call((1, 4, 4), (1, 2, 2))
        model, patches = self.model("returned"), ({0: "patches"}, None)
        self.export_and_compare(model, example, others=[other], dynamic_shapes=patches)
        shapes = ({0: "patches"}, {0: "images"})
        with self.assertLogs("experimental_experiment", "WARNING") as logged:
            written = to_onnx(model, example, dynamic_shapes=shapes, verify=True)
        self.assertIn("the ONNX model has one result for all, ..._all", "".join(logged.output))
        self.assertEqual(1, len(logged.output))
        self.assertEqual(["all"], [item.name for item in written.graph.output])
        for given in (example, other, call((1, 2, 2)), call((1, 4, 4), (1, 2, 2), (2, 2, 2))):
            self.assert_matches(written, model, given)

    def test_rows_that_are_returned_too(self):
        """As Idefics of transformers 5.24 does: a warning tells that there is one entry for all."""
        model, (example, other) = self.model_of(FLATTENING), (call((2, 3), (4, 2)), call((1, 1)))
        shapes = ({0: "features"}, {0: "images"})
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(model("rows"), example, dynamic_shapes=shapes)
        sys.modules[FLATTENING].MultimodalBaseModelOutputWithPast = object
        with self.assertLogs("experimental_experiment", "WARNING") as logged:
            written = to_onnx(model("rows returned"), example, dynamic_shapes=shapes)
        self.assertIn("(..._0 of Idefics)", "".join(logged.output))
        self.assertEqual(["output_0"], [item.name for item in written.graph.output])
        for given in (example, other):
            self.assert_matches(written, model("rows returned"), given)

    def test_results_that_are_missing(self):
        """Are no concatenation: of another name, or not as many rows."""
        parts = [torch.ones(2, 3), torch.zeros(1, 3)]
        self.assertEqual(1, len(put_together(parts, ["y_all"], [torch.cat(parts)])))
        for name, value in (("y", torch.cat(parts)), ("y_all", parts[0]), ("y_all", torch.ones(3, 4))):
            self.assertEqual(2, len(put_together(parts, [name], [value])))

    def test_the_line_that_fixes_the_number(self):
        """Of the model, also where a property of functools makes the list."""
        self.assertTrue(is_library(functools.cached_property.__get__.__code__.co_filename))
        example = call((1, 2, 2), (1, 4, 2))
        with self.assertRaisesRegex(CaptureError, "tolist\\(\\) makes a list") as caught:
            to_onnx(OfRows(), example[1:], dynamic_shapes=({0: "images"},))
        self.assertIn("test_patches_pieces.py", str(caught.exception))

    def test_the_number_of_the_example(self):
        shapes = ({0: "features"}, None)
        for use in ("joined", "joined beside each other", "rows"):
            with self.subTest(use):
                others = [call((2, 2), (3, 3))]
                self.export_and_compare(
                    self.model(use),
                    call((2, 3), (4, 2)),
                    others=others,
                    dynamic_shapes=shapes,
                    target_opset=20,
                )


if __name__ == "__main__":
    unittest.main()
