"""Transposing: permutations of axes, flip, roll, rot90, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


class TestTransposing(ExporterTestCase):
    CASES = {
        "transpose": (aten.transpose.int, floats(2, 3, 4), -1, 0),
        "transpose_copy": (aten.transpose_copy.int, floats(2, 3, 4), 1, 2),
        "transpose of a 0-d tensor": (aten.transpose.int, floats(), 0, -1),
        "swapdims": (aten.swapdims.default, floats(2, 3), 0, 1),
        "swapaxes": (aten.swapaxes.default, floats(2, 3, 4), 0, 2),
        "t of a matrix": (aten.t.default, floats(2, 3)),
        "t of a vector": (aten.t.default, floats(3)),
        "t_copy": (aten.t_copy.default, floats(2, 3)),
        "permute": (aten.permute.default, floats(2, 3, 4), [2, -3, 1]),
        "permute of booleans": (aten.permute.default, floats(2, 3) > 1, [1, 0]),
        "permute_copy": (aten.permute_copy.default, floats(2, 3), [1, 0]),
        "movedim": (aten.movedim.int, floats(2, 3, 4), 0, -1),
        "movedim of axes": (aten.movedim.intlist, floats(2, 3, 4), [0, 1], [2, 0]),
        "moveaxis": (aten.moveaxis.int, floats(2, 3, 4), 2, 0),
        "moveaxis of axes": (aten.moveaxis.intlist, floats(2, 3, 4), [0, -1], [-1, 0]),
        "numpy_T": (aten.numpy_T.default, floats(2, 3)),
        "mT": (aten.mT.default, floats(2, 3, 4)),
        "mH": (aten.mH.default, floats(2, 3, 4)),
        "matrix_H": (aten.matrix_H.default, floats(2, 3)),
        "adjoint": (aten.adjoint.default, floats(2, 3, 4)),
        "flip": (aten.flip.default, floats(2, 3, 4), [0, -1]),
        "flip nothing": (aten.flip.default, floats(2, 3), []),
        "flip an empty axis": (aten.flip.default, floats(0, 3), [0]),
        "flip booleans": (aten.flip.default, floats(4) > 1, [0]),
        "flip float16": (aten.flip.default, floats(4).half(), [-1]),
        "fliplr": (aten.fliplr.default, floats(2, 3)),
        "flipud": (aten.flipud.default, floats(2, 3)),
        "roll in flat order": (aten.roll.default, floats(3, 4), [1]),
        "roll further than the size": (aten.roll.default, floats(3, 4), [5, -2], [0, 1]),
        "roll an axis twice": (aten.roll.default, floats(3, 4), [1, 1], [0, 0]),
        "roll an empty axis": (aten.roll.default, floats(0, 4), [5, -2], [0, 1]),
        "rot90 once": (aten.rot90.default, floats(2, 3)),
        "rot90 twice": (aten.rot90.default, floats(2, 3), 2),
        "rot90 backwards in other axes": (aten.rot90.default, floats(2, 3, 4), -1, [2, 1]),
        "rot90 full turn": (aten.rot90.default, floats(2, 3), 4),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_other_sizes(self):
        def moved(x):
            return x.roll((1, -3), (0, 1)), x.flip(0), x.roll(2), x.rot90(1, [1, 0])

        self.assert_same_as_eager(moved, floats(3, 4), others=[(floats(2, 7),), (floats(5, 2),)])

    def test_roll_by_one_over_any_size(self):
        others = [(floats(1, 7),), (floats(5, 1),)]
        self.assert_same_as_eager(lambda x: x.roll(1), floats(3, 4), others=others)
        self.assert_same_as_eager(
            lambda x: (x.roll((1, -1), (0, 1)), (x > 0).roll(-1, 0)),
            floats(3, 4),
            others=[*others, (floats(2, 0),)],
        )

    def test_roll_of_small_pieces(self):
        """Many of them are two slices, few or large ones one Gather."""
        for shape, dim, kinds in (
            ((16, 32), 1, ["Slice", "Slice", "Concat"]),
            ((16, 31), 1, ["Gather"]),
            ((40, 60, 16), 1, ["Slice", "Slice", "Concat"]),
            ((40, 60, 17), 1, ["Gather"]),
            ((2048, 2), -1, ["Slice", "Slice", "Concat"]),
            ((2, 2048), 0, ["Gather"]),
        ):
            for shift in (1, -1, 3, -700, 5000):
                with self.subTest(shape=shape, shift=shift):
                    model = self.export_and_compare(
                        lambda x, shift=shift, dim=dim: x.roll(shift, dim), (floats(*shape),)
                    )
                    moved = shift % shape[dim] != 0
                    expected = kinds if moved else ["Identity"]
                    self.assertEqual(expected, [node.op_type for node in model.graph.node])

    def test_roll_further_over_any_size(self):
        others = [(floats(2, 7),), (floats(5, 1),), (floats(0, 2),)]
        self.assert_same_as_eager(lambda x: x.roll((4, -3, 0), (0, 1, 1)), floats(3, 4), others=others)

    def test_a_transposition_undone_is_not_written(self):
        model = self.assert_same_as_eager(lambda x: x.transpose(0, 1).permute(1, 0, 2) + 1, floats(2, 3, 4))
        self.assertEqual([node.op_type for node in model.graph.node], ["Add"])


if __name__ == "__main__":
    unittest.main()
