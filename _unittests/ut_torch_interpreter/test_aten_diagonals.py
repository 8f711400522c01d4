"""Diagonals: read, written and built, checked against eager."""

import collections
import unittest

import torch

from experimental_experiment.testing import Call, ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


class TestDiagonals(ExporterTestCase):
    CASES = {
        "diagonal": (aten.diagonal.default, floats(3, 4)),
        "diagonal above": (aten.diagonal.default, floats(3, 4), 2),
        "diagonal below": (aten.diagonal.default, floats(3, 4), -1),
        "diagonal outside": (aten.diagonal.default, floats(3, 4), 7),
        "diagonal of two axes": (aten.diagonal.default, floats(2, 3, 4), 1, -1, 0),
        "diagonal of an empty matrix": (aten.diagonal.default, floats(0, 3)),
        "diagonal of booleans": (aten.diagonal.default, floats(3, 3) > 3),
        "diagonal_copy": (aten.diagonal_copy.default, floats(3, 4), 1),
        "linalg_diagonal": (aten.linalg_diagonal.default, floats(2, 3, 4), {"offset": 1}),
        "diag of a matrix": (aten.diag.default, floats(3, 4), 1),
        "diag of a vector": (aten.diag.default, floats(3), -1),
        "diag_embed": (aten.diag_embed.default, floats(2, 3)),
        "diag_embed above": (aten.diag_embed.default, floats(2, 3), 1),
        "diag_embed below, elsewhere": (aten.diag_embed.default, floats(2, 3), -2, 0, 2),
        "diag_embed of nan": (aten.diag_embed.default, torch.tensor([float("nan"), float("inf")])),
        "diag_embed of ints": (aten.diag_embed.default, torch.tensor([1, 2], dtype=torch.int32)),
        "diagflat": (aten.diagflat.default, floats(2, 2), 1),
        "diagonal_scatter": (aten.diagonal_scatter.default, floats(3, 4), -floats(3), 1),
        "diagonal_scatter casts": (aten.diagonal_scatter.default, floats(3, 4).long(), -floats(3) - 0.7, 1),
        "diagonal_backward": (aten.diagonal_backward.default, floats(2, 3), [3, 2, 4], 0, 0, 2),
        "trace": (aten.trace.default, floats(3, 4)),
        "trace of ints": (aten.trace.default, torch.full((2, 2), 200, dtype=torch.uint8)),
        "block_diag": (lambda *x: aten.block_diag.default(x), floats(2, 3), floats(2), floats()),
        "block_diag promotes": (lambda *x: aten.block_diag.default(x), floats(2, 3), torch.tensor([[1, 2]])),
        "block_diag of a row": (lambda *x: aten.block_diag.default(x), floats(3)),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_fill_diagonal_(self):
        sizes = {"wide": (2, 5), "tall": (7, 2), "square": (3, 3), "cube": (3, 3, 3)}
        for promise, shape in sizes.items():
            for wrap in (False, True):
                with self.subTest(promise, wrap=wrap):
                    self.assert_same_as_eager(
                        lambda x, wrap=wrap: aten.fill_diagonal_.default(x.clone(), 9, wrap),
                        -floats(*shape),
                        dynamic=not (wrap and promise == "tall"),  # torch cannot capture it
                    )

    def test_other_sizes(self):
        def diagonals(x):
            return (
                x.diagonal(),
                x.diagonal(-1),
                x[0].diag_embed(1),
                x.diagonal(1, 1, 0),
                torch.block_diag(x, x[0]),
            )

        self.assert_same_as_eager(diagonals, floats(3, 4), others=[(floats(5, 2),), (floats(6, 7),)])

    def test_each_row_of_blocks_is_one_pad(self):
        def joined(x, y):
            return torch.block_diag(x, y, x)

        others = [(floats(1, 3), floats(2, 7)), (floats(5, 3), floats(2, 0)), (floats(0, 3), floats(2, 1))]
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
            with self.subTest(dtype=dtype):
                args, *rest = [
                    tuple((x + 1).to(dtype) for x in pair) for pair in [(floats(4, 3), floats(2, 5)), *others]
                ]
                model = self.export_and_compare(
                    Call(joined, args, {}), args, others=rest, dynamic_shapes=(({0: "rows"}, {1: "width"}),)
                )
                counts = collections.Counter(node.op_type for node in model.graph.node)
                self.assertEqual(counts["Pad"], 3)
                self.assertEqual(counts["Expand"], 0)

    def test_blocks_beside_nothing(self):
        others = [(floats(1, 1),), (floats(5, 2),)]
        for function in (
            lambda x: torch.block_diag(x, torch.ones(0), x[0]),
            lambda x: torch.block_diag(torch.ones(2, 0), x),
            lambda x: torch.block_diag(x, torch.eye(2), x.T),
        ):
            self.assert_same_as_eager(function, floats(3, 4), others=others)

    def test_the_diagonal_of_a_square_of_any_size_is_one_node(self):
        size = torch.export.Dim("size")
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
            with self.subTest(dtype=dtype):
                given = [((3 * floats(2, n, n)).to(dtype),) for n in (4, 1, 7, 0)]
                model = self.export_and_compare(
                    Call(lambda x: (x.diagonal(0, 1, 2), x.diagonal(0, 2, 1)), given[0], {}),
                    given[0],
                    others=given[1:],
                    dynamic_shapes=(({1: size, 2: size},),),
                )
                self.assertIn("Einsum", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
