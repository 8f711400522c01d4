"""Masks that let the own position of each query through: no guard is needed there."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

INFINITY = float("inf")
SLOPES = torch.tensor([0.5, 0.25])[:, None, None]


def rows(x):
    """Positions of queries, which are those of keys."""
    return torch.arange(x.shape[2])[:, None]


def columns(x):
    """Positions of keys."""
    return torch.arange(x.shape[2])[None]


def ones(x):
    """A matrix of positions."""
    return torch.ones(x.shape[2], x.shape[2], dtype=torch.bool)


def behind(x):
    """How far keys are behind the query."""
    return rows(x) - columns(x)


OPEN = {
    "a window behind": lambda x, s: (behind(x) >= 0) & (behind(x) < 8),
    "a window behind, by comparisons": lambda x, s: (columns(x) <= rows(x)) & (rows(x) - columns(x) < 8),
    "a window on both sides": lambda x, s: behind(x).abs() <= 4,
    "every fourth one, and the last four": lambda x, s: (
        (behind(x) >= 0) & ((behind(x) < 4) | (behind(x) % 4 == 0))
    ),
    "a band of triangles": lambda x, s: ones(x).tril(3).triu(-3),
    "a prefix, and what is behind": lambda x, s: (columns(x) <= rows(x)) | (columns(x) < 5),
    "blocks": lambda x, s: rows(x) // 4 == columns(x) // 4,
    "views of positions": lambda x, s: torch.arange(x.shape[2]).view(1, -1) <= rows(x).view(-1, 1),
    "the other way round": lambda x, s: (behind(x) <= 0).T,
    "texts in a row": lambda x, s: s[:, None, :, None] == s[:, None, None, :],
    "texts in a row, behind": lambda x, s: (
        (s[:, None, :, None] == s[:, None, None, :]) & (columns(x) <= rows(x))
    ),
    "slopes in a window": lambda x, s: (behind(x).abs().float() * -SLOPES).masked_fill(
        behind(x).abs() > 3, -INFINITY
    ),
    "numbers of halves": lambda x, s: torch.where(-behind(x) // 2 > 0, -INFINITY, 1.5),
}
"""What is let through, or added, of what has a position as its third axis and numbers of texts."""

CLOSED = {
    "what is before": lambda x, s: behind(x) > 0,
    "what is far away": lambda x, s: behind(x).abs() > 2,
    "all others": lambda x, s: ~(rows(x) == columns(x)),
    "what a text has": lambda x, s: (behind(x) >= 0) & (s > 0)[:, None, None, :],
    "a band beside": lambda x, s: ones(x).tril(3).triu(1),
    "texts that have numbers": lambda x, s: s[:, None, :, None] == s[:, None, None, :] * 2,
    "shifted blocks": lambda x, s: rows(x) // 4 == (columns(x) + 4) // 4,
    "positions of another count": lambda x, s: rows(x) == torch.arange(2 * x.shape[2])[::2][None] + 1,
}
"""The same with rows that let nothing through."""


class TestDiagonals(ExporterTestCase):
    def attention(self, mask) -> list[str]:
        """The operators of an attention behind its Softmax, exported for all sizes."""

        def call(batch, length):
            return torch.randn(batch, 2, length, 8), torch.randint(0, 3, (batch, length))

        def forward(x, texts):
            return torch.nn.functional.scaled_dot_product_attention(x, x * 0.5, x + 1, mask(x, texts))

        model = self.export_and_compare(
            forward,
            call(2, 12),
            dynamic_shapes=({0: "batch", 2: "length"}, {0: "batch", 1: "length"}),
            others=[call(3, 20), call(1, 1)],
        )
        operators = [node.op_type for node in model.graph.node]
        return operators[operators.index("Softmax") :]

    def test_masks_that_open_the_diagonal(self):
        for name, mask in OPEN.items():
            with self.subTest(name):
                self.assertEqual(["Softmax", "MatMul"], self.attention(mask))

    def test_masks_that_may_close_it(self):
        for name, mask in CLOSED.items():
            with self.subTest(name):
                self.assertIn("Where", self.attention(mask))


if __name__ == "__main__":
    unittest.main()
