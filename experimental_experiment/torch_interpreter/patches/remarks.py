"""What torch.export remarks about tensors beside what they are: remarks that nothing reads must not decide sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch(
    "torch",
    replaces=("torch.fx.experimental.proxy_tensor._extract_tensor_metadata",),
    default=True,
)
def single_elements() -> Iterator[None]:
    """``x[:-1]`` of two rows has one: torch.export remarks that one element is contiguous, and fixes the number of rows."""
    before = proxy_tensor._extract_tensor_metadata
    with replaced(proxy_tensor, "_extract_tensor_metadata", without_layout(before)):
        yield


def without_layout(extract: Callable) -> Callable:
    """*extract* that does not ask whether a tensor is contiguous when the example alone makes it a single element."""

    def called(result: torch.Tensor, include_contiguity: bool = True) -> Any:
        if include_contiguity and is_single_by_example(result):
            single_elements.used()
            include_contiguity = False
        return extract(result, include_contiguity)

    return called


def is_single_by_example(tensor: torch.Tensor) -> bool:
    """Whether a tensor has less than two elements, for the sizes of the example."""
    count = tensor.numel()
    return isinstance(count, torch.SymInt) and count.node.has_hint() and count.node.hint < 2
