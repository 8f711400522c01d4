"""Embedding: rows of a table, read one by one or summed by bags."""

import itertools
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions

aten = torch.ops.aten


class TestEmbedding(ExporterTestCase):
    CASES = {
        "one row an index": (aten.embedding.default, torch.randn(5, 3), torch.tensor([[4, 0, 4], [1, 2, 3]])),
        "padding_idx changes no value": (aten.embedding.default, torch.randn(5, 3), torch.tensor([1, 2]), 2),
        "gradient flags change no value": (
            aten.embedding.default, torch.randn(5, 3), torch.tensor([1, 2]), -1, True, True,
        ),
        "a 0-d index gives a row": (aten.embedding.default, torch.randn(5, 3), torch.tensor(3)),
        "no index gives no row": (aten.embedding.default, torch.randn(5, 3), torch.zeros(0, dtype=torch.int64)),
        "int32 indices": (aten.embedding.default, torch.randn(5, 3), torch.tensor([4, 1], dtype=torch.int32)),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_every_float(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            with self.subTest(dtype):
                weight = torch.randn(5, 3).to(dtype)
                self.assert_same_as_eager(aten.embedding.default, weight, torch.tensor([[4, 0]]))


class TestEmbeddingBag(ExporterTestCase):
    WEIGHT = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    INDICES = torch.tensor([1, 2, 3, 3, 0, 5, 1])
    FORMS = {
        "bags, one of them empty": ([0, 2, 2, 5], {}),
        "an empty bag at the end": ([0, 2, 7], {}),
        "the end as last offset": ([0, 2, 2, 5, 7], {"include_last_offset": True}),
        "a padding index": ([0, 2, 4, 5], {"padding_idx": 3}),
        "a padding index from the end": ([0, 2, 4, 5], {"padding_idx": -3}),
    }

    def first(
        self, target, offsets, mode, weights=None, include_last_offset=False, dtype=torch.float32, **more
    ):
        """A function of the tensors that gives the first result, and these tensors."""
        tensors = [self.WEIGHT.to(dtype), self.INDICES, torch.tensor(offsets)]
        if weights is not None:
            tensors.append(weights.to(dtype))

        def function(weight, indices, offsets, weights=None):
            return target(weight, indices, offsets, False, mode, False, weights, include_last_offset, **more)[
                0
            ]

        return function, *tensors

    def test_same_as_eager(self):
        for promise, (offsets, options) in self.FORMS.items():
            for mode in (0, 1, 2):
                with self.subTest(promise, mode=mode):
                    given = {"padding_idx": None, **options}
                    self.assert_same_as_eager(
                        *self.first(aten.embedding_bag.padding_idx, offsets, mode, **given)
                    )

    def test_every_overload(self):
        overloads = (
            aten.embedding_bag.default,
            aten._embedding_bag.default,
            aten._embedding_bag_forward_only.default,
        )
        for target in overloads:
            with self.subTest(target):
                self.assert_same_as_eager(*self.first(target, [0, 2, 2, 5], 0, torch.rand(7)))

    def test_every_float(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            for mode in (0, 1, 2):
                with self.subTest(dtype, mode=mode):
                    self.assert_same_as_eager(
                        *self.first(aten.embedding_bag.default, [0, 2, 2, 5], mode, dtype=dtype)
                    )

    def test_modules(self):
        for mode in ("sum", "mean", "max"):
            with self.subTest(mode):
                module = torch.nn.EmbeddingBag(6, 3, mode=mode, padding_idx=1)
                self.export_and_compare(
                    module,
                    (torch.tensor([[0, 1, 5], [1, 1, 1]]),),
                    dynamic_shapes=({0: "batch", 1: "length"},),
                    others=[(torch.tensor([[3, 2], [1, 0], [4, 4]]),)],
                )

    def test_other_numbers_of_bags(self):
        """Bags and indices of any number, none of them too."""
        for mode, padding in itertools.product(("sum", "mean", "max"), (None, 1)):
            dtype = torch.int64 if padding is None else torch.int32
            bags = [
                (torch.tensor(indices, dtype=dtype), torch.tensor(starts, dtype=dtype))
                for indices, starts in (
                    ([1, 2, 3, 3, 0, 5, 1], [0, 2, 2, 5]),
                    ([4, 4, 1], [0, 0, 2, 3, 3]),
                    ([1], [0]),
                    ([], [0, 0, 0]),
                )
            ]
            with self.subTest(mode, padding=padding):
                self.export_and_compare(
                    torch.nn.EmbeddingBag(6, 3, mode=mode, padding_idx=padding),
                    bags[0],
                    dynamic_shapes=({0: "indices"}, {0: "bags"}),
                    others=bags[1:],
                )

    def test_rows_of_indices(self):
        indices = torch.tensor([[0, 1, 5], [1, 1, 1]])
        for mode, reduction in (("sum", "ReduceSum"), ("mean", "ReduceMean"), ("max", "ReduceMax")):
            for dynamic in (None, ({0: "batch", 1: "length"},)):
                with self.subTest(mode, dynamic=dynamic):
                    model = self.export_and_compare(
                        torch.nn.EmbeddingBag(6, 3, mode=mode),
                        (indices,),
                        dynamic_shapes=dynamic,
                        others=[(torch.tensor([[3], [1], [4]]),)] if dynamic else [],
                    )
                    self.assertEqual(["Gather", reduction], [node.op_type for node in model.graph.node])

    def test_other_bags_of_rows(self):
        def bags(weight, indices, start, step):
            offsets = torch.arange(start, indices.numel(), step)
            return aten.embedding_bag.default(weight, indices.reshape(-1), offsets)[0]

        indices = torch.tensor([[0, 1, 5], [1, 2, 1]])
        for start, step in ((0, 2), (0, 4), (0, 3)):
            with self.subTest(start=start, step=step):
                self.assert_same_as_eager(bags, self.WEIGHT, indices, start, step)

    def test_results_of_the_gradient(self):
        bags = self.WEIGHT, self.INDICES, torch.tensor([0, 2])
        for mode in (0, 1, 2):
            for padding in (-1, 2):
                with self.subTest(mode=mode, padding=padding):
                    function = lambda *bags, m=mode, p=padding: aten._embedding_bag.default(
                        *bags, False, m, False, None, False, p
                    )
                    self.assert_same_as_eager(function, *bags, dynamic=False)


class TestEmbeddingRenorm(ExporterTestCase):
    def test_long_rows_are_shortened(self):
        for norm_type in (1.0, 2.0, 3.0, float("inf")):
            with self.subTest(norm_type):
                module = torch.nn.Embedding(6, 3, max_norm=1.0, norm_type=norm_type)
                indices = torch.tensor([[0, 3, 3], [1, 0, 5]])
                self.export_and_compare(module, (indices,), dynamic_shapes=({0: "batch"},))

    def test_the_table_is_written(self):
        def function(weight, indices):
            weight = weight.clone()
            return aten.embedding_renorm_.default(weight, indices, 1.0, 2.0), weight

        self.assert_same_as_eager(function, torch.randn(6, 3), torch.tensor([1, 4, 1]))

    def test_a_new_table(self):
        options = ExportOptions(decomposition_table="default")
        for function in (
            lambda weight, indices: aten.embedding_renorm.default(weight, indices, 1.0, 2.0),
            lambda weight, indices: torch.nn.functional.embedding(indices, weight.clone(), max_norm=1.0),
        ):
            model = self.assert_same_as_eager(
                function, torch.randn(6, 3), torch.tensor([1, 4, 1]), export_options=options
            )
            self.assertIn("Unique", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
