"""Real architectures: exported with dynamic dimensions, compared with eager on the example and on other sizes.

CI leaves out those of `ALIKE`; ``ARCHITECTURES=all python -m unittest tests.test_architectures`` takes all.
"""

import os
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from tests import families, networks  # noqa: F401 (they register their builders)
from tests.architectures import BUILDERS, build

ALIKE = frozenset(
    """gpt2 llama mistral mistral_with_cache qwen2 qwen2_with_cache qwen3 gemma gemma_with_cache gemma2 gemma2_with_cache phi phi3
    phi3_with_cache opt mixtral deepseek_v3 gpt_oss roberta qwen2_5_vl gru rnn gpt2_float16 bert_float16 resnet_float16
    gpt2_bfloat16 bert_bfloat16 llama_bfloat16 vit_bfloat16 t5_bfloat16 gpt2_float64 vit_float64
    qwen3_with_cache phi_with_cache opt_with_cache mixtral_with_cache qwen2_vl vit_float16 bert_float64 nn_transformer_encoder
    multihead_attention resnet_bfloat16 opt_float64 t5_float16 hunyuan_vision clip mobilenet""".split()
)
"""What another one holds too: a decoder with or without its cache or of the same layers, a model in a half or a double."""

EVERY = os.environ.get("ARCHITECTURES") == "all"

OTHER_DTYPES = {
    torch.float16: ("llama", "gpt2", "bert", "vit", "resnet", "t5"),
    torch.bfloat16: ("llama", "gpt2", "bert", "vit", "resnet", "t5"),
    # T5 and Llama normalize in float32 whatever their weights: eager itself has float32's precision
    torch.float64: ("gpt2", "bert", "vit", "opt"),
}
"""Architectures that are also exported with weights of other dtypes."""


SCALES = {("t5", torch.float16): 4, ("t5", torch.bfloat16): 4}
"""Multiples of the tolerance. T5 does not scale its scores: its logits, up to 4, are off the float64 model's by 0.003 in eager
and 0.0025 in ONNX for float16, by 0.027 and 0.025 for bfloat16: one unit in the last place of the largest."""


class TestArchitectures(ExporterTestCase):
    """One test for each builder is added below."""

    def test_those_left_out_exist(self):
        self.assertEqual(ALIKE - FORMS.keys(), set())

    def check(self, name: str, dtype: torch.dtype | None = None, scale: float = 1.0):
        """Export one architecture, with floating tensors of *dtype*, and compare both calls."""
        found = build(name)
        calls = [found.kwargs, *found.others]
        if dtype is not None:
            found.model.to(dtype)
            calls = [
                torch.utils._pytree.tree_map_only(
                    torch.Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, call
                )
                for call in calls
            ]
        self.export_and_compare(
            found.model,
            (),
            calls[0],
            others=[((), other) for other in calls[1:]],
            dynamic_shapes=found.dynamic_shapes,
            scale=scale,
        )


def label(name: str, dtype: torch.dtype | None) -> str:
    """What the test of an architecture is called."""
    return name if dtype is None else f"{name}_{str(dtype).removeprefix('torch.')}"


def add(name: str, dtype: torch.dtype | None) -> None:
    """Add the test of one architecture."""
    scale = SCALES.get((name, dtype), 1.0)
    setattr(TestArchitectures, f"test_{label(name, dtype)}", lambda self: self.check(name, dtype, scale))


FORMS = {label(name, None): (name, None) for name in BUILDERS}
FORMS |= {label(name, dtype): (name, dtype) for dtype, names in OTHER_DTYPES.items() for name in names}
for _label, _form in FORMS.items():
    if EVERY or _label not in ALIKE:
        add(*_form)


if __name__ == "__main__":
    unittest.main()
