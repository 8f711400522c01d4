"""Gradients of attention, traced gradients: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR)


QUERY, KEY, VALUE = normal(2, 4, 5, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8)
GROUPED = normal(2, 2, 6, 8), normal(2, 2, 6, 8)
GRADIENT = normal(2, 4, 5, 8)
MASK = normal(5, 6)
X, Y = normal(4, 3), normal(5, 3)


def attention(query, key, value, is_causal=False, mask=None, scale=None):
    """The arguments of the backward operator."""
    results = aten._scaled_dot_product_flash_attention_for_cpu.default(
        query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale
    )
    given = (GRADIENT.to(query.dtype), query, key, value, *results, 0.0, is_causal)
    return (
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        *given,
        {"attn_mask": mask, "scale": scale},
    )


def distance(p):
    """The arguments of the backward operator of cdist."""
    return aten._cdist_backward.default, normal(4, 5), X, Y, p, torch.cdist(X, Y, p)


class TestBackward(ExporterTestCase):
    CASES = {
        "attention": attention(QUERY, KEY, VALUE),
        "causal attention": attention(QUERY, KEY, VALUE, True),
        "masked attention": attention(QUERY, KEY, VALUE, mask=MASK, scale=0.3),
        "grouped heads": attention(QUERY, *GROUPED),
        "attention, float64": attention(QUERY.double(), KEY.double(), VALUE.double()),
        "Euclidean distance": distance(2.0),
        "distance of absolute values": distance(1.0),
        "largest difference": distance(float("inf")),
        "distance of power 3": distance(3.0),
        "no distance": distance(0.0),
        "sampled images": (
            aten.grid_sampler_2d_backward.default, normal(2, 3, 4, 5), normal(2, 3, 6, 7),
            normal(2, 4, 5, 2).clamp(-1, 1), 0, 0, False, [True, True]),
        "gradient of samples of bags": (
            aten._embedding_bag_per_sample_weights_backward.default, normal(3, 4), normal(7, 4),
            torch.tensor([1, 2, 0, 6, 2]), torch.tensor([0, 2, 2]), torch.tensor([0, 0, 2, 2, 2]), 0, 2),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_logarithm_of_sums(self):
        def sums(query, key, value):
            return aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value)

        self.assert_same_as_eager(sums, QUERY, KEY, VALUE)

    def test_dropout_is_refused(self):
        target, *args, options = attention(QUERY, KEY, VALUE)
        args[6] = 0.1
        with self.assertRaisesRegex(ExportError, "dropout_p=0.1 is not handled"):
            self.export_and_compare(Call(target, args, options), Call(target, args, options).tensors())


if __name__ == "__main__":
    unittest.main()
