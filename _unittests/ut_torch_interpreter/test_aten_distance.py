"""Distances: same values, shapes and dtypes as eager."""

import itertools
import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
NAN = torch.tensor([[1.0, math.nan, 3.0], [2.0, -1.0, math.inf]])

EQUAL_ROWS = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.5, -1.0, 2.5], [0.25, -1.0, 0.0]])


def randn(*shape, dtype=torch.float32):
    """A tensor of random numbers."""
    return torch.randn(*shape).to(dtype)


class TestDistance(ExporterTestCase):
    CASES = {
        "cosine_similarity": (aten.cosine_similarity.default, randn(4, 5), randn(4, 5)),
        "cosine_similarity along another axis": (aten.cosine_similarity.default, randn(4, 5, 2), randn(4, 5, 2), -3),
        "cosine_similarity broadcasts along dim": (aten.cosine_similarity.default, randn(4, 1), randn(5), 1),
        "cosine_similarity of each pair": (aten.cosine_similarity.default, randn(3, 1, 4, 5), randn(3, 2, 1, 5), -1),
        "cosine_similarity of each pair along a middle axis": (aten.cosine_similarity.default, randn(3, 5, 1), randn(5, 2), 1),
        "cosine_similarity along an axis that one lacks": (aten.cosine_similarity.default, randn(3, 2, 5), randn(2, 5), 0),
        "cosine_similarity of a number and a vector": (aten.cosine_similarity.default, torch.tensor(2.0), randn(5), 0),
        "cosine_similarity of vectors of one": (aten.cosine_similarity.default, randn(4, 1), randn(3, 1, 1), -1),
        "the norm is at least eps": (aten.cosine_similarity.default, randn(4, 5) * 0.1, randn(4, 5), 0, 0.5),
        "a zero vector is orthogonal": (aten.cosine_similarity.default, torch.zeros(2, 3), randn(2, 3)),
        "cosine_similarity of NaN": (aten.cosine_similarity.default, NAN, randn(2, 3)),
        "cosine_similarity of numbers": (aten.cosine_similarity.default, torch.tensor(-2.0), torch.tensor(3.0), 0),
        "cosine_similarity promotes": (aten.cosine_similarity.default, torch.tensor([4.0, 0.0]).half(), randn(4, 2)),
        "cosine_similarity of integers": (aten.cosine_similarity.default, torch.arange(20).reshape(4, 5), randn(4, 5)),
        "cosine_similarity in float16": (aten.cosine_similarity.default, randn(4, 5).half(), randn(4, 5).half()),
        "dist": (aten.dist.default, randn(4, 5), randn(5)),
        "dist of order 3": (aten.dist.default, randn(4, 5), randn(4, 5), 3),
        "dist of order 0": (aten.dist.default, torch.arange(4.0), torch.tensor([0.0, 2, 2, 4]), 0),
        "dist of order inf": (aten.dist.default, randn(4, 5), randn(4, 5), math.inf),
        "dist of order -inf": (aten.dist.default, randn(4, 5), randn(4, 5), -math.inf),
        "dist promotes": (aten.dist.default, torch.arange(4), randn(4)),
        "pairwise_distance": (aten.pairwise_distance.default, randn(4, 5), randn(4, 5)),
        "pairwise_distance broadcasts": (aten.pairwise_distance.default, randn(5), randn(3, 4, 1), 1.5, 0.1, True),
        "pairwise_distance of order inf": (aten.pairwise_distance.default, randn(4, 5), randn(5), math.inf),
        "pairwise_distance of a vector": (aten.pairwise_distance.default, randn(5), randn(5), 1.0),
        "pairwise_distance of integers": (aten.pairwise_distance.default, torch.arange(3), torch.tensor([3, 0, 2])),
        "pairwise_distance of NaN": (aten.pairwise_distance.default, NAN, randn(2, 3)),
        "pdist": (aten.pdist.default, randn(5, 3)),
        "pdist of order 1": (aten.pdist.default, randn(4, 3), 1.0),
        "pdist of order inf": (aten._pdist_forward.default, randn(4, 3), math.inf),
        "the largest difference that is a number": (
            aten.cdist.default,
            torch.tensor([[1.0, math.nan], [math.inf, 2.0]]),
            torch.tensor([[math.inf, 3.0], [0.5, math.nan]]),
            math.inf,
        ),
        "_cdist_forward": (aten._cdist_forward.default, randn(4, 3), randn(5, 3), 2.0, None),
        "_euclidean_dist": (aten._euclidean_dist.default, randn(4, 3), randn(5, 3)),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_gradients_of_pdist(self):
        gradient = randn(6)
        for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf):
            with self.subTest(p=p):
                distances = torch.pdist(EQUAL_ROWS, p)
                args = gradient, EQUAL_ROWS, p, distances
                # no dynamic sizes: the number of pairs is not one of the rows' number
                self.assert_same_as_eager(aten._pdist_backward.default, *args, dynamic=False)

    def test_cdist(self):
        x1, x2 = randn(2, 1, 4, 3), randn(5, 6, 3)
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, math.inf):
            with self.subTest(p=p):
                self.assert_same_as_eager(aten.cdist.default, x1, x2, p)

    def test_cdist_follows_torch_to_the_matrix_product(self):
        small, large = (randn(4, 3), randn(5, 3)), (randn(4, 3), randn(26, 3))
        for mode, tensors in itertools.product((None, 0, 1, 2), (small, large)):
            with self.subTest(mode=mode, rows=tensors[1].shape[0]):
                others = [(*reversed(small), 2.0), (*large, 2.0)]
                self.assert_same_as_eager(aten.cdist.default, *tensors, 2.0, mode, others=others)

    def test_cdist_without_elements(self):
        for p, (x1, x2) in itertools.product(
            (1.0, 2.0, math.inf), [(randn(4, 0), randn(5, 0)), (randn(0, 3), randn(5, 3))]
        ):
            with self.subTest(p=p, shape=x1.shape):
                self.assert_same_as_eager(aten.cdist.default, x1, x2, p)

    def test_rows_that_have_no_element_later(self):
        for p in (1.0, 2.0, math.inf):
            with self.subTest(p=p):
                others = [(randn(4, 0), randn(5, 0), p), (randn(0, 3), randn(5, 3), p)]
                self.assert_same_as_eager(aten.cdist.default, randn(4, 3), randn(5, 3), p, others=others)
                self.assert_same_as_eager(
                    aten._pdist_forward.default, randn(4, 3), p, others=[(randn(4, 0), p)]
                )


if __name__ == "__main__":
    unittest.main()
