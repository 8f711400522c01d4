"""Blt: hashes of groups of bytes, which are sums of int64 beyond their range.

Source of semantics: ``transformers.models.blt``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

BLT = "transformers.models.blt.modeling_blt"


@patch("transformers", replaces=(f"{BLT}.rolling_polynomial_hash",), since="5.0", default=True)
def hashes_of_bytes() -> Iterator[None]:
    """Blt's hashes are sums of int64 that wrap around, as onnxruntime's additions do, while its ReduceSum does not."""
    with wrapped({f"{BLT}.rolling_polynomial_hash": one_by_one}):
        yield


def one_by_one(original: Callable) -> Callable:
    """`rolling_polynomial_hash` that adds the bytes of a group one after the other."""

    @functools.wraps(original)
    def called(token_tensor: torch.Tensor, prime: int = 1000000007) -> torch.Tensor:
        if not isinstance(token_tensor, FakeTensor):
            return original(token_tensor, prime)
        hashes_of_bytes.used()
        *others, result = token_tensor.unbind(-1)  # Horner's scheme: the first byte has the power 0
        for token in reversed(others):
            result = result * prime + token
        return result

    return called
