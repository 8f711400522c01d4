"""flex_attention: functions of scores and positions, masks, grouped heads."""

import unittest

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D

Q = torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(0))
WIDE = torch.randn(1, 4, 8, 16, generator=torch.Generator().manual_seed(1))


def causal(score, batch, head, row, column):
    return torch.where(row >= column, score, -float("inf"))


def masked(s, q):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 8, device="cpu")
    return flex_attention(q, q, q, block_mask=mask)


def nothing_visible(s, q):
    return flex_attention(q, q, q, score_mod=lambda sc, b, h, i, j: torch.where(i > j, sc, -float("inf")))


class TestFlexAttention(ControlFlowTestCase):
    CASES = {
        "no function": (lambda s, q: flex_attention(q, q, q), (Q,)),
        "float16": (lambda s, q: flex_attention(q, q, q), (Q.half(),)),
        "a causal score": (lambda s, q: flex_attention(q, q, q, score_mod=causal), (Q,)),
        "a row that sees nothing is 0": (nothing_visible, (Q,)),
        "any batch": (
            lambda s, q: flex_attention(q, q, q, score_mod=causal),
            (Q.expand(2, -1, -1, -1).clone(),),
            [(torch.randn(3, 2, 8, 16),)],
            ({0: D},),
        ),
        "any batch, one in the example": (
            lambda s, q: flex_attention(q, q, q, score_mod=causal),
            (Q,),
            [(torch.randn(3, 2, 8, 16),)],
            ({0: D},),
        ),
        "a tensor is read at the position": (
            lambda s, q: flex_attention(q, q, q, score_mod=lambda sc, b, h, i, j: sc + (i - j) * s.b[h]),
            (Q,),
        ),
        "a block mask": (masked, (Q,)),
        "grouped heads, a scale": (
            lambda s, q, k: flex_attention(q, k, k, enable_gqa=True, scale=0.5),
            (WIDE, Q),
        ),
        "the sum of exponentials": (lambda s, q: flex_attention(q, q, q, return_lse=True), (Q,)),
        "float64": (lambda s, q: flex_attention(q, q, q), (Q.double(),)),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_dynamic_sizes_after_fixed_ones(self):
        class Scores(torch.nn.Module):
            def forward(self, q):
                return flex_attention(q, q, q, score_mod=causal)

        batches = [torch.randn(batch, 2, 8, 16) for batch in (2, 3)]
        self.export_and_compare(Scores(), (batches[0],))
        self.export_and_compare(
            Scores(), (batches[0],), others=[(batches[1],)], dynamic_shapes=({0: "batch"},)
        )


if __name__ == "__main__":
    unittest.main()
