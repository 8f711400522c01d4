"""Attention: scaled_dot_product_attention in all its forms, and the fast path of nn.MultiheadAttention."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
sdpa = aten.scaled_dot_product_attention.default
OPSETS = (18, 20, 23, 26)


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def closed_row(*shape):
    """A boolean mask that lets most positions through, and none in row 1."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[..., 0] = True
    mask[..., 1, :] = False
    return mask


def as_bias(mask, low=-torch.inf):
    return torch.where(mask, 0.0, low)


LOWEST = torch.finfo(torch.float32).min
Q, K, V = randn(2, 4, 3, 8), randn(2, 4, 5, 8), randn(2, 4, 5, 6)


class TestScaledDotProductAttention(ExporterTestCase):
    CASES = {
        "no mask, values of another size": (sdpa, Q, K, V),
        "causal with more keys": (sdpa, Q, K, V, None, 0.0, True),
        "causal with more queries": (sdpa, K, Q, randn(2, 4, 3, 6), None, 0.0, True),
        "a mask over positions": (sdpa, Q, K, V, closed_row(3, 5)),
        "a mask by batch": (sdpa, Q, K, V, closed_row(2, 1, 3, 5)),
        "a mask by head": (sdpa, Q, K, V, closed_row(4, 3, 5)),
        "a mask by batch and head": (sdpa, Q, K, V, closed_row(2, 4, 3, 5)),
        "a padding mask": (sdpa, Q, K, V, torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()[:, None, None]),
        "a mask with one column": (sdpa, Q, K, V, closed_row(3, 1)),
        "a bias": (sdpa, Q, K, V, randn(3, 5)),
        "a bias by batch": (sdpa, Q, K, V, randn(2, 1, 1, 5)),
        "a bias of minus infinity everywhere in a row": (sdpa, Q, K, V, as_bias(closed_row(3, 5))),
        "a bias of the lowest float everywhere in a row": (sdpa, Q, K, V, as_bias(closed_row(3, 5), LOWEST)),
        "three dimensions": (sdpa, Q[0], K[0], V[0], closed_row(3, 5)),
        "five dimensions": (sdpa, Q[None], K[None], V[None], closed_row(1, 2, 1, 3, 5)),
        "two dimensions": (sdpa, Q[0, 0], K[0, 0], V[0, 0]),
        "a scale": (sdpa, Q, K, V, None, 0.0, False, {"scale": 0.3}),
        "a negative scale": (sdpa, Q, K, V, None, 0.0, False, {"scale": -0.3}),
        "grouped queries": (sdpa, Q, K[:, :2], V[:, :2], None, 0.0, False, {"enable_gqa": True}),
        "grouped queries under a mask": (
            sdpa, Q, K[:, :1], V[:, :2], closed_row(2, 4, 3, 5), 0.0, False, {"enable_gqa": True},
        ),
        "grouped causal queries": (sdpa, Q, K[:, :2], V[:, :2], None, 0.0, True, {"enable_gqa": True}),
        "a NaN among the keys": (sdpa, Q, torch.where(K > 1.5, torch.nan, K), V),
        "scores beyond what exp holds": (sdpa, Q * 100, K * 100, V),
        "a batch that broadcasts": (sdpa, Q, K[:1], V[:1]),
    }  # fmt: skip

    def test_same_as_eager(self):
        for promise, (target, *args) in self.CASES.items():
            kwargs = args.pop() if isinstance(args[-1], dict) else {}
            for opset in (20, 23):
                with self.subTest(promise, opset=opset):
                    self.assert_same_as_eager(
                        target, *args, kwargs=kwargs, target_opset=opset, dynamic=opset == 20
                    )


if __name__ == "__main__":
    unittest.main()
