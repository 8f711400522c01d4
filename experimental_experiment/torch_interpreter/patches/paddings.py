"""MobileNet: paddings as TensorFlow has them, which depend on the size of an image.

Source of semantics: ``transformers.models.mobilenet_v1``, ``mobilenet_v2``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

MODULES = {
    "transformers.models.mobilenet_v1.modeling_mobilenet_v1": False,
    "transformers.models.mobilenet_v2.modeling_mobilenet_v2": True,
}
"""The modules, and whether the padding is multiplied by the dilation."""


@patch(
    "transformers",
    replaces=tuple(f"{module}.apply_tf_padding" for module in MODULES),
    since="5.0",
    default=True,
)
def tensorflow_paddings() -> Iterator[None]:
    """MobileNet v1 and v2 compute their paddings with Python's numbers: the size of an image is the example's."""
    with contextlib.ExitStack() as stack:
        for name, is_dilated in MODULES.items():
            module = sys.modules.get(name)
            if module is not None:
                padded = for_symbols(module.apply_tf_padding, is_dilated)
                stack.enter_context(replaced(module, "apply_tf_padding", padded))
        yield


def for_symbols(original: Callable, is_dilated: bool) -> Callable:
    """`apply_tf_padding` for images whose sizes may be symbols."""

    @functools.wraps(original)
    def called(features: torch.Tensor, conv_layer: torch.nn.Conv2d) -> torch.Tensor:
        height, width = features.shape[-2:]
        if not isinstance(height, torch.SymInt) and not isinstance(width, torch.SymInt):
            return original(features, conv_layer)
        tensorflow_paddings.used()
        dilation = conv_layer.dilation if is_dilated else (1, 1)
        axes = zip((height, width), conv_layer.kernel_size, conv_layer.stride, dilation)
        rows, columns = (around(*axis) for axis in axes)
        return torch.nn.functional.pad(features, (*columns, *rows), "constant", 0.0)

    return called


def around(size: Any, kernel: int, stride: int, dilation: int) -> tuple[Any, Any]:
    """What is added before and after an axis: the last window begins at the last multiple of the stride."""
    covered = (size - 1) % stride + 1
    missing = torch.sym_max(kernel - covered, 0)
    return missing // 2 * dilation, (missing - missing // 2) * dilation
