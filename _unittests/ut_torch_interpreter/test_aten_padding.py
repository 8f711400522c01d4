"""Padding: same values, shapes and dtypes as eager."""

import unittest

import torch
from torch.nn.utils.rnn import pad_sequence

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE = normal(2, 3, 5, 6)
INTS = torch.arange(24).reshape(2, 3, 4)


class TestPadding(ExporterTestCase):
    CASES = {
        "zeros around two axes": (aten.pad.default, IMAGE, [1, 2, 0, 3]),
        "one value": (aten.pad.default, IMAGE, [1, 2], "constant", -1.5),
        "infinity": (aten.constant_pad_nd.default, IMAGE, [1, 2], float("-inf")),
        "a negative amount crops": (aten.constant_pad_nd.default, IMAGE, [-1, 2, 3, -2], 7),
        "no amount": (aten.constant_pad_nd.default, IMAGE, [0, 0], 7),
        "integers stay integers": (aten.constant_pad_nd.default, INTS, [1, 1], 3.7),
        "booleans": (aten.constant_pad_nd.default, INTS > 5, [1, 1], True),
        "int16": (aten.constant_pad_nd.default, INTS.to(torch.int16), [1, 1], 3),
        "float16": (aten.constant_pad_nd.default, IMAGE.half(), [1, 1], 0.5),
        "bfloat16 mirrors": (aten.pad.default, IMAGE[0].bfloat16(), [1, 1], "reflect"),
        "mirror one axis": (aten.pad.default, IMAGE[0], [3, 2], "reflect"),
        "mirror three axes": (aten.pad.default, IMAGE[None], [1, 2, 0, 1, 2, 1], "reflect"),
        "mirror and crop": (aten.pad.default, IMAGE[0], [4, -3], "reflect"),
        "crop and mirror": (aten.pad.default, IMAGE, [-1, 2, -3, 2], "reflect"),
        "repeat edges": (aten.pad.default, IMAGE, [3, 7, 1, 0], "replicate"),
        "continue with the other end": (aten.pad.default, IMAGE, [3, 6, 1, 0], "circular"),
        "continue and crop": (aten.pad.default, IMAGE, [3, -2, -1, 4], "circular"),
        "continue an empty batch": (aten.pad.default, IMAGE[0, :0], [3, 2], "circular"),
        "the operator behind circular": (aten._pad_circular.default, IMAGE[0], [1, 2]),
        "a mode that is a number": (aten._pad_enum.default, IMAGE[0], [1, 2], 0),
        "reflection_pad1d": (aten.reflection_pad1d.default, IMAGE[0], [1, 2]),
        "reflection_pad2d": (aten.reflection_pad2d.default, IMAGE, [1, 2, 3, 4]),
        "reflection_pad3d": (aten.reflection_pad3d.default, IMAGE[None], [1, 2, 3, 4, 1, 0]),
        "replication_pad1d": (aten.replication_pad1d.default, IMAGE[0], [1, 2]),
        "replication_pad2d": (aten.replication_pad2d.default, IMAGE, [1, 2, 3, -4]),
        "replication_pad3d": (aten.replication_pad3d.default, IMAGE[None], [1, 2, 3, 4, 1, 0]),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_crops_at_every_opset(self):
        def pads(x):
            return [
                torch.nn.functional.pad(x, amounts, mode=mode)
                for mode in ("constant", "reflect", "replicate", "circular")
                for amounts in ([2, -3], [-3, 1], [-1, -1], [3, -2], [-2, 4])
            ]

        for opset in (18, 20, 26):
            with self.subTest(opset=opset):
                self.assert_same_as_eager(pads, IMAGE[0], others=[(normal(2, 5, 9),)], target_opset=opset)

    def test_symbolic_amounts(self):
        def pads(x, y):
            amounts = [0, y.shape[0], y.shape[0] - 1, 1]
            return [
                torch.nn.functional.pad(x, amounts, mode=mode)
                for mode in ("constant", "reflect", "replicate", "circular")
            ]

        self.assert_same_as_eager(pads, IMAGE, normal(3), others=[(normal(2, 3, 7, 8), normal(4))])

    def test_any_sequence_may_be_the_longest(self):
        def padded(*sequences):
            batches = [
                pad_sequence(sequences, batch_first=batch_first, padding_value=value, padding_side=side)
                for batch_first, value, side in ((False, 0, "right"), (True, -1.5, "left"))
            ]
            return *batches, pad_sequence([each.long() for each in sequences], padding_value=3)

        others = [(normal(2, 4), normal(3, 4), normal(7, 4)), (normal(9, 4), normal(1, 4), normal(1, 4))]
        self.assert_same_as_eager(padded, normal(3, 4), normal(5, 4), normal(2, 4), others=others)
        rows = normal(3), normal(5).double()
        self.assert_same_as_eager(lambda *rows: aten.pad_sequence.default(rows, True), *rows)

    def test_sequences_padded_at_their_start_decomposed(self):
        options = ExportOptions(decomposition_table="default")
        for batch_first in (False, True):
            self.assert_same_as_eager(
                lambda *rows, batch_first=batch_first: pad_sequence(rows, batch_first, -1.0, "left"),
                normal(3, 4),
                normal(5, 4),
                dynamic=False,
                export_options=options,
            )


if __name__ == "__main__":
    unittest.main()
