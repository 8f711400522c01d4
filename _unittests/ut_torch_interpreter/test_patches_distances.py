"""Distances of dynamic numbers of rows: of the differences up to 25 of them, from a matrix product above, as torch computes them."""

import unittest

import torch
from torch.export import Dim

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx


def rows(*counts):
    """Matrices of three columns."""
    torch.manual_seed(sum(counts))
    return tuple(torch.randn(count, 3) for count in counts)


class TestDistancesOfAnySize(ExporterTestCase):
    """Few and many rows with the same model, whatever the example has."""

    DYNAMIC = ({0: "left"}, {0: "right"})

    def test_rows_above_and_below_the_threshold(self):
        for example in ((20, 9), (40, 9)):
            with self.subTest(example):
                self.export_and_compare(
                    torch.cdist,
                    rows(*example),
                    others=[rows(30, 30), rows(2, 3), rows(7, 60)],
                    dynamic_shapes=self.DYNAMIC,
                )

    def test_the_distance_to_itself_of_few_rows_is_zero(self):
        def forward(x):
            return torch.cdist(x + 100, x + 100).diagonal()

        model = to_onnx(forward, rows(30), dynamic_shapes=({0: "rows"},))
        (few,) = run(session(model), [*rows(20)])
        self.assertEqual(few.tolist(), [0] * 20)

    def test_nearest_neighbours(self):
        def forward(x):
            return torch.cdist(x, x + 1).topk(3, largest=False)[1]

        points = [(torch.rand(count, 3),) for count in (20, 50, 5)]
        self.export_and_compare(
            forward, points[0], others=points[1:], dynamic_shapes=({0: Dim("rows", min=4)},)
        )

    def test_rows_that_the_data_decide(self):
        class Kept(torch.nn.Module):
            def forward(self, x, y):
                return torch.cdist(x[x[:, 0] > 0], y)

        others = [rows(40, 30), rows(40, 9)]
        self.export_and_compare(Kept(), rows(40, 5), others=others, dynamic_shapes=(None, {0: "rows"}))

    def test_mapped(self):
        def forward(x, y):
            return torch.vmap(torch.cdist, in_dims=(None, 0))(x, y)

        calls = [(rows(count)[0], torch.stack(rows(9, 9))) for count in (20, 30)]
        self.export_and_compare(
            forward, calls[0], others=calls[1:], dynamic_shapes=({0: "left"}, None), target_opset=20
        )

    def test_other_norms_and_other_modes(self):
        def forward(x, y):
            modes = ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
            return [
                torch.cdist(x, y, p=1.0),
                torch.cdist(x, y, p=float("inf")),
                *(torch.cdist(x, y, compute_mode=mode) for mode in modes),
            ]

        others = [rows(30, 30), rows(2, 3)]
        self.export_and_compare(forward, rows(20, 9), others=others, dynamic_shapes=self.DYNAMIC)

    def test_without_it_torch_decides_by_the_rows_of_the_example(self):
        """The model is one of all sizes there too, after a second capture: the operator is the same."""

        class Distances(torch.nn.Module):
            def forward(self, x, y):
                return torch.cdist(x, y)

        shapes = ({0: Dim("left")}, {0: Dim("right")})
        with self.assertRaisesRegex(Exception, "Constraints violated"):
            torch.export.export(Distances(), rows(20, 9), dynamic_shapes=shapes)
        self.export_and_compare(
            Distances(),
            rows(20, 9),
            others=[rows(30, 30), rows(2, 3)],
            dynamic_shapes=shapes,
            export_options=ExportOptions(patches=False),
        )


if __name__ == "__main__":
    unittest.main()
