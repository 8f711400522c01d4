"""Combining: cat, stack and their relatives, repeat, tile, meshgrid, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions

MAKE_FX = ExportOptions(tracing="make_fx")
aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


def joining(target, *arguments):
    """The operator as a function of its tensors, so that they are inputs of the model."""
    return lambda *tensors: target(list(tensors), *arguments)


class TestCombining(ExporterTestCase):
    CASES = {
        "cat": (joining(aten.cat.default), floats(2, 3), floats(4, 3)),
        "cat promotes": (joining(aten.cat.default, -1), floats(2, 3), torch.tensor([[1], [2]])),
        "cat of booleans and bytes": (
            joining(aten.cat.default),
            floats(2) > 0,
            torch.tensor([7], dtype=torch.uint8),
        ),
        "cat skips what torch once called empty": (joining(aten.cat.default), floats(0), floats(4, 3)),
        "cat of empty vectors": (joining(aten.cat.default), floats(0), floats(0)),
        "cat of float16": (joining(aten.cat.default, 1), floats(2, 3).half(), floats(2, 1).half()),
        "concat": (joining(aten.concat.default, 1), floats(2, 3), floats(2, 1)),
        "concatenate": (joining(aten.concatenate.default), floats(2), floats(3)),
        "_chunk_cat": (joining(aten._chunk_cat.default, 0, 2), floats(3, 4), floats(4, 2)),
        "stack": (joining(aten.stack.default, -1), floats(2, 3), -floats(2, 3)),
        "stack of 0-d tensors": (joining(aten.stack.default), floats(), torch.tensor(2)),
        "hstack": (joining(aten.hstack.default), floats(2, 3), floats(2, 1)),
        "hstack of vectors": (joining(aten.hstack.default), floats(2), floats()),
        "vstack": (joining(aten.vstack.default), floats(3), floats(2, 3)),
        "row_stack": (joining(aten.row_stack.default), floats(3), floats(3)),
        "dstack": (joining(aten.dstack.default), floats(2, 3), floats(2, 3)),
        "column_stack": (joining(aten.column_stack.default), floats(2), floats(2, 3)),
        "atleast_1d": (aten.atleast_1d.default, floats()),
        "atleast_2d": (aten.atleast_2d.default, floats(3)),
        "atleast_3d of a matrix": (aten.atleast_3d.default, floats(2, 3)),
        "atleast_3d of a vector": (aten.atleast_3d.default, floats(3)),
        "atleast_1d of each": (joining(aten.atleast_1d.Sequence), floats(), floats(2)),
        "atleast_2d of each": (joining(aten.atleast_2d.Sequence), floats(), floats(2, 3)),
        "atleast_3d of each": (joining(aten.atleast_3d.Sequence), floats(), floats(2, 3, 4, 5)),
        "meshgrid": (joining(aten.meshgrid.default), floats(2), floats(3)),
        "meshgrid by rows": (
            lambda *tensors: aten.meshgrid.indexing(tensors, indexing="ij"),
            floats(2),
            floats(),
        ),
        "meshgrid by columns": (
            lambda *tensors: aten.meshgrid.indexing(tensors, indexing="xy"),
            floats(2),
            floats(3),
            floats(4),
        ),
        "cartesian_prod": (joining(aten.cartesian_prod.default), floats(2), floats(3)),
        "cartesian_prod of one": (joining(aten.cartesian_prod.default), floats(2)),
        "combinations of one": (aten.combinations.default, floats(3), 1),
        "repeat": (aten.repeat.default, floats(2, 3), [2, 1, 2]),
        "repeat zero times": (aten.repeat.default, floats(2, 3), [0, 2]),
        "repeat booleans": (aten.repeat.default, floats(3) > 1, [2]),
        "tile": (aten.tile.default, floats(2, 3), [2]),
        "tile with new axes": (aten.tile.default, floats(3), [2, 2]),
        "repeat_interleave": (aten.repeat_interleave.self_int, floats(2, 3), 2, 1),
        "repeat_interleave in flat order": (aten.repeat_interleave.self_int, floats(2, 3), 2),
        "repeat_interleave of a 0-d tensor": (aten.repeat_interleave.self_int, floats(), 3),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_repeats_that_are_data(self):
        def repeated(x, repeats):
            return torch.repeat_interleave(x, repeats, 0)

        for repeats in ([1, 0, 2], [0, 0, 0], [3]):
            with self.subTest(repeats):
                self.assert_same_as_eager(repeated, floats(3, 2), torch.tensor(repeats), dynamic=False)
        flat = aten.repeat_interleave.self_Tensor
        self.assert_same_as_eager(flat, floats(3), torch.tensor([1, 0, 2]), None, dynamic=False)
        for dtype in (torch.int64, torch.int32):
            repeats = torch.tensor([2, 0, 3], dtype=dtype)
            self.assert_same_as_eager(aten.repeat_interleave.Tensor, repeats, dynamic=False)
            self.assert_same_as_eager(
                lambda x, n: x.repeat_interleave(n, 0), floats(3, 2), repeats, export_options=MAKE_FX
            )
        self.assert_same_as_eager(
            lambda x, n: torch.repeat_interleave(x, n, 1, output_size=4), floats(2, 2), torch.tensor([3, 1])
        )

    def test_other_sizes(self):
        def grown(x, y):
            return (
                torch.cat([x, y, x], 1),
                x.repeat(2, y.shape[1]),
                x.repeat_interleave(y.shape[1], 1),
                torch.meshgrid(x[0], y[0], indexing="xy"),
            )

        self.assert_same_as_eager(grown, floats(2, 3), floats(2, 4), others=[(floats(5, 2), floats(5, 7))])

    def test_chunks_of_any_size(self):
        for dim, chunks in ((0, 2), (-1, 5)):
            with self.subTest(dim=dim, chunks=chunks):
                sizes = ((4, 7), (4, 2)), ((5, 1), (5, 10)), ((1, 15), (1, 3))
                calls = [tuple(map(floats, *zip(*pair))) for pair in sizes]
                self.assert_same_as_eager(
                    joining(aten._chunk_cat.default, dim, chunks), *calls[0], others=calls[1:]
                )

    def test_elements_of_any_axis_are_repeated(self):
        def repeated(x):
            return [x.repeat_interleave(3, axis) for axis in range(3)]

        others = [(floats(1, 5, 2),), (floats(0, 3, 4),), (floats(4, 1, 0),)]
        self.assert_same_as_eager(repeated, floats(2, 3, 4), others=others)

    def test_copies_along_axes_of_one_element_are_broadcast(self):
        def copied(x):
            rows = x.shape[0]
            return x[:1].repeat(rows, 1), x[:, :1].tile(1, rows), x.repeat(3, 2, 1, 1), x[0].repeat(0, 1)

        others = [(floats(5, 4),), (floats(1, 2),)]
        model = self.assert_same_as_eager(copied, floats(2, 3), others=others)
        self.assertNotIn("Tile", [node.op_type for node in model.graph.node])
        model = self.assert_same_as_eager(lambda x: x.repeat(2, 3), floats(2, 3), others=others)
        self.assertEqual(["Tile"], [node.op_type for node in model.graph.node])

    def test_grids_of_any_size_share_a_shape(self):
        for nodes, sizes in ((5, (2, 3)), (9, (2, 3, 4))):
            for indexing in ("ij", "xy"):
                with self.subTest(indexing, vectors=len(sizes)):
                    model = self.assert_same_as_eager(
                        lambda *vectors, how=indexing: torch.meshgrid(*vectors, indexing=how),
                        *map(floats, sizes),
                        others=[
                            tuple(map(floats, (5, 1, 3)))[: len(sizes)],
                            tuple(map(floats, (0, 4, 2)))[: len(sizes)],
                        ],
                        target_opset=20,
                    )
                    self.assertEqual(nodes, len(model.graph.node))


if __name__ == "__main__":
    unittest.main()
