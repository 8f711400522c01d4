"""Branches that resize an image to whole patches: the model always does."""

import math
import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

SHAPES = (1, 2, 12, 8), (2, 2, 9, 10), (1, 2, 4, 7), (3, 2, 5, 3)
"""One that has whole patches, and others that do not."""

DYNAMIC = ({0: "batch", 2: "height", 3: "width"},)


def patches(x):
    """The sum of each patch of two rows and two columns, repeated over it."""
    parts = x.reshape(x.shape[0], x.shape[1], x.shape[2] // 2, 2, x.shape[3] // 2, 2)
    return (parts + parts.sum((3, 5), keepdim=True)).reshape(x.shape)


def whole(x):
    """As MobileViT v2 does."""
    height, width = x.shape[-2:]
    new_h, new_w = math.ceil(height / 2) * 2, math.ceil(width / 2) * 2
    if new_h != height or new_w != width:
        x = F.interpolate(x, size=(new_h, new_w), mode="bilinear", align_corners=True)
    return patches(x)


def there_and_back(x):
    """As MobileViT does."""
    height, width = x.shape[-2:]
    new_h, new_w = math.ceil(height / 2) * 2, math.ceil(width / 2) * 2
    is_resized = False
    if new_h != height or new_w != width:
        x = F.interpolate(x, size=(new_h, new_w), mode="bilinear", align_corners=False)
        is_resized = True
    x = patches(x)
    if is_resized:
        x = F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)
    return x * 2


def nearest(x):
    width = x.shape[3]
    even = (width + 1) // 2 * 2
    if even != width:
        x = torch.nn.functional.interpolate(x, [x.shape[2], even])
    return x.unflatten(3, (-1, 2)).sum(3)


def named(x):
    height, width = x.shape[-2:]
    even = (width + 1) // 2 * 2
    if even != width:
        x = torch.nn.functional.interpolate(x, [height, even])
    return x.unflatten(3, (-1, 2)).sum(3)


def to_another_size(x):
    width = x.shape[3]
    even = (width + 1) // 2 * 2
    if even != width:  # branch
        x = F.interpolate(x, size=(even, even))
    return x * 2


def with_another_step(x):
    height, width = x.shape[-2:]
    even = (width + 1) // 2 * 2
    if even != width:  # branch
        x = F.interpolate(x, size=(height, even)) + 1
    return x * 2


def flag_that_is_read(x):
    height, width = x.shape[-2:]
    even, is_resized = (width + 1) // 2 * 2, False
    if even != width:  # branch
        x = F.interpolate(x, size=(height, even))
        is_resized = True
    return x * (2 if is_resized else 3)


def written_then(x):
    height, width = x.shape[-2:]
    x = x * 2
    y = x
    even = (width + 1) // 2 * 2
    if even != width:  # branch
        x = F.interpolate(x, size=(height, even))
    x += 1
    return x[..., :width] + y


def back_from_another_size(x):
    height, width = x.shape[-2:]
    even = (width + 1) // 2 * 2
    is_resized = False
    if even != width:
        x = F.interpolate(x, size=(height, even))
        is_resized = True
    x = F.avg_pool2d(x, 2)
    if is_resized:
        x = F.interpolate(x, size=(height, width))  # line
    return x


class TestOptionalResizes(ExporterTestCase):
    def test_any_size(self):
        others = [(torch.randn(*shape),) for shape in SHAPES]
        for function in (whole, there_and_back, named):
            for example in others[:2]:
                with self.subTest(function.__name__, shape=example[0].shape):
                    with self.assertLogs("experimental_experiment", "INFO") as logs:
                        self.export_and_compare(function, example, others=others, dynamic_shapes=DYNAMIC)
                    self.assertIn("patch optional_resizes was used", "".join(logs.output))
                    warned = [record.getMessage() for record in logs.records if record.levelname == "WARNING"]
                    self.assertEqual([], warned)

    def test_branches_that_stay(self):
        stay = (nearest, to_another_size, with_another_step, flag_that_is_read, written_then)
        for function in stay:
            for shape in ((1, 2, 12, 8), (2, 2, 9, 7)):
                with self.subTest(function.__name__, shape=shape):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        model = to_onnx(function, (torch.randn(*shape),), dynamic_shapes=DYNAMIC)
                    self.assertIn("the branches that the example took", "".join(logs.output))
                    self.assert_matches(model, function, (torch.randn(*shape),))

    def test_a_flag_for_another_image(self):
        with self.assertRaises(CaptureError) as caught:
            to_onnx(back_from_another_size, (torch.randn(1, 2, 8, 8),), dynamic_shapes=DYNAMIC)
        text = str(caught.exception)
        self.assertIn("an image is resized where another one has been, whatever its size is", text)
        self.assertIn("resize without asking whether the sizes differ", text)
        self.assertIn("# line", text)

    def test_what_torch_dynamo_follows(self):
        def doubled(x):
            return F.interpolate(x, size=(x.shape[2] * 2, x.shape[3]))

        others = [(torch.randn(*shape),) for shape in SHAPES]
        self.export_and_compare(
            doubled,
            others[0],
            others=others,
            dynamic_shapes=DYNAMIC,
            export_options=ExportOptions(strict=True),
        )

    def test_the_example_decides_without_it(self):
        options = ExportOptions(patches=False)
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            model = to_onnx(whole, (torch.randn(*SHAPES[0]),), dynamic_shapes=DYNAMIC, export_options=options)
        self.assertIn("if new_h != height or new_w != width", "".join(logs.output))
        self.assertNotIn("Resize", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
