"""Views of tensors whose sizes are symbols."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


def turned(x):
    height, width = x.shape
    return torch.arange(height * width).view(height, width).reshape(width, height) + x.sum()


def turned_inside(x):
    height, width = x.shape
    return x[None, :, :, None].repeat(2, 1, 1, 3).view(2, width, height, 3).sum(2)


def doubled(x):
    height, width = x.shape
    return (x * 2).reshape(width * 2, height // 2)


def as_the_other(x, y):
    return x.reshape(y.shape[0], -1) * 2


def regrouped(x, y):
    return x.flatten(0, 1).unflatten(0, (y.shape[0], -1)) + 1


def frames(x):
    """Frames by twos and back again, as often as the blocks of a decoder of videos do it."""
    count, width = x.shape
    for _ in range(8):
        pairs = (x * 2).reshape(count // 2, 2, width).permute(1, 0, 2) + 1
        x = pairs.permute(1, 0, 2).reshape(count, width)
    return x


def across(x):
    """Of transposed, expanded and cut tensors: some reshapes copy, others are views."""
    height, width = x.shape
    wide = x[None].expand(2, -1, -1)
    return (
        x.t().reshape(height, width),
        x.t().reshape(height * 2, -1),
        x.t().reshape_as(x) + x,
        torch.reshape(x.t(), (1, width, height)),
        x.t().reshape(shape=(width, height, 1)),
        wide.reshape(2, width, height),
        wide[..., None].expand(-1, -1, -1, 3).permute(3, 1, 2, 0).reshape(3, width, height, 2),
        x[1:, 1:].reshape(width - 1, height - 1),
        x[:, None].transpose(0, 1).view(width, height),
        x.reshape(2, height // 2, width).transpose(0, 1).reshape(width, height),
        torch.stack([x, x + 1], -1)[..., 1].reshape(width, height),
        x[:, :, None].expand(-1, -1, 4).movedim(2, 0).reshape(width, 4, -1),
        x.reshape(-1)[::2].reshape(height // 2, width),
    )


def written_through(x):
    """A reshape that is a view, of a slice: what is written into it is written into the tensor."""
    height, width = x.shape
    x = x + 0.0
    x[2:].reshape(1, height - 2, width)[:, 1].zero_()
    x[:, 1:].reshape(height, 1, width - 1).add_(1)
    x[:, 1:].reshape(height // 2, 2, width - 1)[:, 0].mul_(2)
    return x


def scripted(x):
    return torch.reshape(x, (3, 2)) * torch.rand(3, 2) + torch.diag_embed(x).sum()


SQUARE = torch.randn(8, 8)


class TestReshapes(ExporterTestCase):
    SHAPES = ({0: "height", 1: "width"},)

    def test_sizes_that_are_equal_in_the_example(self):
        sizes = ((9, 10), (10, 9), (4, 7), (1, 3))
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            for function in (turned, turned_inside):
                with self.subTest(function.__name__):
                    written = self.export_and_compare(
                        function,
                        (SQUARE,),
                        others=[(torch.randn(*size),) for size in sizes],
                        dynamic_shapes=self.SHAPES,
                    )
                    dims = written.graph.input[0].type.tensor_type.shape.dim
                    self.assertEqual(["height", "width"], [dim.dim_param for dim in dims])

    def test_tensors_whose_elements_are_not_in_order(self):
        for function in (across, written_through):
            with self.subTest(function.__name__), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(
                    function,
                    (SQUARE,),
                    others=[(torch.randn(*size),) for size in ((10, 6), (4, 10), (6, 8))],
                    dynamic_shapes=self.SHAPES,
                )

    def test_what_is_written_to_a_view_of_the_example(self):
        """For a square it is seen in both, otherwise in one."""

        def into_the_result(x):
            x = x + 0.0
            x.t().reshape(*x.shape)[1:].add_(1)  # the reshape
            return x

        def into_the_tensor(x):
            x = x + 0.0
            y = torch.reshape(x.t(), x.shape)  # the reshape
            x[0].zero_()
            return y

        def before(x):
            x = x + 0.0
            x.add_(1)
            return x.t().reshape(*x.shape) * 2

        def as_the_hint_says(x):
            x = x + 0.0
            y = x.t().contiguous().reshape(*x.shape).add_(1)
            x[0].zero_()
            return x, y

        for tracing in ("export", "make_fx"):
            options = ExportOptions(tracing=tracing)
            for function in (into_the_result, into_the_tensor):
                with (
                    self.subTest(function.__name__, tracing=tracing),
                    self.assertRaisesRegex(
                        CaptureError, "a view for some sizes(.|\n)*# the reshape\n  hint   call"
                    ),
                ):
                    to_onnx(function, (SQUARE,), dynamic_shapes=self.SHAPES, export_options=options)
        for function in (before, as_the_hint_says):
            with self.subTest(function.__name__):
                self.export_and_compare(
                    function, (SQUARE,), others=[(torch.randn(4, 6),)], dynamic_shapes=self.SHAPES
                )

    def test_a_number_of_elements_that_does_not_fit(self):
        for function in (lambda x: x.reshape(x.shape[0], 3), lambda x: x.t().reshape(x.shape[0], 3)):
            with self.assertRaisesRegex(CaptureError, "invalid for input of size|Could not reshape|numel"):
                to_onnx(function, (SQUARE,), dynamic_shapes=({0: "height"},))

    def test_what_torchscript_compiles_meanwhile(self):
        """Functions of torch are its operators there."""
        compiled = []

        def forward(x):
            compiled.append(torch.jit.script(scripted))
            return x + 1

        to_onnx(forward, (SQUARE,))
        (function,) = compiled
        self.assertEqual((3, 2), function(torch.ones(2, 3)).shape)

    def test_a_size_that_is_twice_the_other_in_the_example(self):
        self.export_and_compare(
            doubled,
            (torch.randn(8, 4),),
            others=[(torch.randn(10, 6),), (torch.randn(4, 9),)],
            dynamic_shapes=self.SHAPES,
        )

    def test_the_size_of_another_input(self):
        for function in (as_the_other, regrouped):
            with self.subTest(function.__name__):
                self.export_and_compare(
                    function,
                    (torch.randn(4, 6), torch.randn(4, 3)),
                    others=[(torch.randn(4, 6), torch.randn(8, 3)), (torch.randn(10, 6), torch.randn(5, 3))],
                    dynamic_shapes=({0: "rows"}, {0: "others"}),
                )

    def test_frames_by_twos(self):
        """Without the patch each block takes 2.7 times as long as the one before."""
        written = self.export_and_compare(
            frames,
            (torch.randn(6, 3),),
            others=[(torch.randn(2, 3),), (torch.randn(14, 3),)],
            dynamic_shapes=({0: "frames"},),
        )
        self.assertEqual("frames", written.graph.output[0].type.tensor_type.shape.dim[0].dim_param)

    def test_wrong_without_the_patch(self):
        options = ExportOptions(patches=False)
        for function in (turned_inside, lambda x: x.t().reshape(*x.shape)):
            written = to_onnx(function, (SQUARE,), dynamic_shapes=self.SHAPES, export_options=options)
            with self.assertRaises(AssertionError):
                self.assert_matches(written, function, (torch.randn(9, 10),))


if __name__ == "__main__":
    unittest.main()
