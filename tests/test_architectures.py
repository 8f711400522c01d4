"""Real architectures: exported with dynamic dimensions, compared with eager on the example and on other sizes."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from tests import families, networks  # noqa: F401 (they register their builders)
from tests.architectures import BUILDERS, build

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


def add(name: str, dtype: torch.dtype | None = None) -> None:
    """Add the test of one architecture."""
    suffix = "" if dtype is None else f"_{str(dtype).removeprefix('torch.')}"
    setattr(
        TestArchitectures,
        f"test_{name}{suffix}",
        lambda self: self.check(name, dtype, SCALES.get((name, dtype), 1.0)),
    )


for _name in BUILDERS:
    add(_name)
for _dtype, _names in OTHER_DTYPES.items():
    for _name in _names:
        add(_name, _dtype)


if __name__ == "__main__":
    unittest.main()
