"""Branches that pad, or cut off what was padded: the model always does."""

import unittest

import torch
import torch.nn.functional as F
from torch.nn.functional import pad

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

SHAPES = (1, 2, 12, 8), (2, 2, 9, 10), (1, 2, 16, 7)
"""One that has whole windows, and others that do not."""

DYNAMIC = ({0: "batch", 2: "height", 3: "width"},)


def windows(x):
    """Those of SwinIR."""
    _, _, height, width = x.size()
    pad_h, pad_w = (4 - height % 4) % 4, (4 - width % 4) % 4
    if pad_h or pad_w:
        x = F.pad(x, (0, pad_w, 0, pad_h), "reflect")
    return x.reshape(x.shape[0], x.shape[1], x.shape[2] // 4, 4, -1)


def cut_off(x):
    """Those of Swin in detectors, which cut the rest off again."""
    height, width = x.shape[2:]
    left = top = 0
    right, bottom = -width % 4, -height % 4
    if right > 0 or bottom > 0:
        x = torch.nn.functional.pad(x, [left, right, top, bottom])
    x = x.reshape(x.shape[0], 2, -1, 4, x.shape[3]).exp().reshape(x.shape)
    if right > 0 or bottom > 0:
        x = x[:, :, :height, :width].contiguous()
    return x


def returned(x):
    """One that a helper returns, half on each side."""

    def padded(x):
        amount = (8 - x.shape[2] % 8) % 8
        if amount != 0:
            return pad(x, (0, 0, amount // 2, amount - amount // 2))
        return x

    return padded(x).unflatten(2, (-1, 8))


def listed(x):
    amount = -x.shape[2] % 4
    amounts = (0, 0, 0, amount)
    if amount:
        x = F.pad(x, amounts)
        x = x[..., :]
    if not amount:
        x = x.neg().neg()
    return x + amount


def one_that_is_known(x):
    """The width always has to be padded, the height may have to."""
    bottom, right = -x.shape[2] % 4, 3
    if bottom > 0 or right > 0:
        x = F.pad(x, (0, right, 0, bottom))
    return x * 2


def negative(x):
    missing = 10 - x.shape[2]
    if missing > 0:  # branch
        x = F.pad(x, (0, 0, 0, missing))
    return x * 2


def changed(x):
    amount = -x.shape[2] % 4
    if amount:  # branch
        x = F.pad(x, (0, 0, 0, amount)) * 2
    return x * 2


def padded_always(x):
    amount = -x.shape[2] % 4
    if amount:  # branch
        x = F.pad(x, (0, 0, 1, amount))
    return x * 2


def written_then(x):
    amount, x = -x.shape[2] % 4, x * 2
    y = x
    if amount:  # branch
        x = F.pad(x, (0, 0, 0, amount))
    x += 1
    return x[:, :, : y.shape[2]] + y


def written_in_part(x):
    amount, x = -x.shape[2] % 4, x * 2
    y = x
    if amount:  # branch
        x = F.pad(x, (0, 0, 0, amount))
    x[:, 0].mul_(2)
    return x[:, :, : y.shape[2]] + y


def written_by_a_method(x):
    amount, x = -x.shape[2] % 4, x * 2
    y = x
    if amount:  # branch
        x = F.pad(x, (0, 0, 0, amount))
    x.relu_()
    return x[:, :, : y.shape[2]] + y


def another(x):
    amount, y = -x.shape[2] % 4, x
    if amount:  # branch
        y = F.pad(x * 2, (0, 0, 0, amount))
    return y * 2


def both(x):
    bottom, right = -x.shape[2] % 4, -x.shape[3] % 4
    if bottom > 0 and right > 0:  # branch
        x = F.pad(x, (0, right, 0, bottom))
    return x * 2


def otherwise(x):
    amount = -x.shape[2] % 4
    if amount:  # branch
        x = F.pad(x, (0, 0, 0, amount))
    else:
        x = x * 2
    return x


def cut_from_the_end(x):
    amount = -x.shape[2] % 4
    if amount:  # branch
        x = x[:, :, :-amount]
    return x * 2


def cut_to_a_half(x):
    amount, half = -x.shape[2] % 4, x.shape[2] // 2
    if amount:  # branch
        x = x[:, :, :half]
    return x * 2


def of_another_function(x):
    def pad(x, amounts):
        return x[:, :1]

    amount = -x.shape[2] % 4
    if amount:  # branch
        x = pad(x, (0, 0, 0, amount))
    return x * 2


def divided_by_a_size(x):
    amount = -x.shape[2] % 4
    if amount:  # branch
        x = F.pad(x, (0, 0, 0, amount // x.shape[3]))
    return x * 2


ALWAYS = (windows, cut_off, returned, listed, one_that_is_known)
STAY = (
    negative,
    changed,
    padded_always,
    another,
    both,
    otherwise,
    cut_from_the_end,
    cut_to_a_half,
    of_another_function,
    divided_by_a_size,
    written_then,
    written_in_part,
    written_by_a_method,
)


class TestOptionalPaddings(ExporterTestCase):
    def test_any_size(self):
        others = [(torch.randn(*shape),) for shape in SHAPES]
        for function in ALWAYS:
            for example in others[:2]:
                with self.subTest(function.__name__, shape=example[0].shape):
                    with self.assertLogs("experimental_experiment", "INFO") as logs:
                        self.export_and_compare(function, example, others=others, dynamic_shapes=DYNAMIC)
                    self.assertIn("patch optional_paddings was used", "".join(logs.output))
                    warned = [record.getMessage() for record in logs.records if record.levelname == "WARNING"]
                    # `listed` asks for it once more, with another side
                    self.assertEqual(function is listed, bool(warned), warned)

    def test_branches_that_stay(self):
        for function in STAY:
            for shape in SHAPES[:2]:
                with self.subTest(function.__name__, shape=shape):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        model = to_onnx(function, (torch.randn(*shape),), dynamic_shapes=DYNAMIC)
                    self.assertRegex(
                        "".join(logs.output), r"the branches that the example took(.|\n)*# branch"
                    )
                    self.assert_matches(model, function, (torch.randn(*shape),))

    def test_the_example_decides_without_it(self):
        options = ExportOptions(patches=False)
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            model = to_onnx(
                cut_off, (torch.randn(*SHAPES[0]),), dynamic_shapes=DYNAMIC, export_options=options
            )
        self.assertIn("if right > 0 or bottom > 0", "".join(logs.output))
        self.assertNotIn("Pad", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
