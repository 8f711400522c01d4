"""Masks that let the own position of each query through, or the first key: no guard is needed there."""

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


TRIANGLE = torch.ones(64, 64, dtype=torch.bool).tril()


def full(sizes, number):
    """A matrix of one number."""
    return torch.full(sizes, number)


OPEN_AFTER_A_PAST = {
    "a triangle that begins further on": lambda new, past: full((new, past + new), True).tril(past),
    "rows of a triangle": lambda new, past: full((past + new, past + new), True).tril()[past:],
    "the last rows of a triangle": lambda new, past: full((past + new, past + new), True).tril()[-new:],
    "a part of a table": lambda new, past: TRIANGLE[past : past + new, : past + new],
    "a triangle that is added": lambda new, past: full((new, past + new), -INFINITY).triu(past + 1),
    "a triangle behind zeros": lambda new, past: torch.hstack(
        [torch.zeros(new, past), full((new, new), -INFINITY).triu(1)]
    ),
    "a triangle behind what is open": lambda new, past: torch.cat(
        [full((new, past), True), full((new, new), True).tril()], -1
    ),
}
"""What is let through, or added, for so many new queries behind so many keys."""

CLOSED_AFTER_A_PAST = {
    "a triangle before the own position": lambda new, past: full((new, past + new), True).tril(past - 1),
    "a triangle that is added from the first key on": lambda new, past: full(
        (new, past + new), -INFINITY
    ).triu(past),
    "a triangle behind what is closed": lambda new, past: torch.cat(
        [full((new, past), False), full((new, new), True).tril()], -1
    ),
    "other columns of a table": lambda new, past: TRIANGLE[past : past + new, 1 : past + new + 1],
    "columns of a table from its end": lambda new, past: TRIANGLE[:new].flip(1)[:, : past + new],
}
"""The same with rows that may let nothing through."""


class TestDiagonals(ExporterTestCase):
    def attention(self, mask) -> list[str]:
        """The operators of an attention behind its Softmax, exported for all sizes."""

        def call(batch, length):
            return torch.randn(batch, 2, length, 8), torch.randint(0, 3, (batch, length))

        def forward(x, texts):
            return torch.nn.functional.scaled_dot_product_attention(x, x * 0.5, x + 1, mask(x, texts))

        return self.behind_softmax(
            forward,
            [call(2, 12), call(3, 20), call(1, 1)],
            ({0: "batch", 2: "length"}, {0: "batch", 1: "length"}),
        )

    def after_a_past(self, mask) -> list[str]:
        """The same of new tokens and a past."""

        def call(batch, new, past):
            return torch.randn(batch, 2, new, 8), torch.randn(batch, 2, past, 8)

        def forward(x, past):
            keys, sizes = torch.cat([past, x], 2), (x.shape[2], past.shape[2])
            return torch.nn.functional.scaled_dot_product_attention(x, keys * 0.5, keys + 1, mask(*sizes))

        return self.behind_softmax(
            forward,
            [call(2, 5, 7), call(3, 12, 3), call(1, 1, 20)],
            ({0: "batch", 2: "new"}, {0: "batch", 2: "past"}),
        )

    def behind_softmax(self, forward, calls, dynamic_shapes) -> list[str]:
        """The operators of a function behind its Softmax."""
        model = self.export_and_compare(forward, calls[0], dynamic_shapes=dynamic_shapes, others=calls[1:])
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

    def test_masks_that_open_the_first_key(self):
        for name, mask in OPEN_AFTER_A_PAST.items():
            with self.subTest(name):
                self.assertEqual(["Softmax", "MatMul"], self.after_a_past(mask))

    def test_masks_that_may_close_the_first_key(self):
        for name, mask in CLOSED_AFTER_A_PAST.items():
            with self.subTest(name):
                self.assertIn("Where", self.after_a_past(mask))


if __name__ == "__main__":
    unittest.main()
