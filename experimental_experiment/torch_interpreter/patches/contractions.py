"""Products of many tensors, whose order opt_einsum chooses by comparing what the orders cost.

Source of semantics: the documentation of torch.einsum, torch.backends.opt_einsum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.backends.opt_einsum

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

SHAPE = "opt_einsum.parser.get_shape"

UNKNOWN = 1024
"""A size that the data decide, in a comparison of costs."""


@patch("torch", replaces=("get_shape of opt_einsum",), default=True)
def orders_of_contractions() -> Iterator[None]:
    """``torch.einsum`` of three tensors or more is kept at the example's sizes where opt_einsum is installed.

    Its costs are compared as those of the example's sizes: every order gives the same result.
    """
    with wrapped({SHAPE: of_numbers} if torch.backends.opt_einsum.is_available() else {}):
        yield


def of_numbers(get_shape: Callable) -> Callable:
    """The shape of an operand, the example's sizes in the place of symbols."""

    def numbers_of_shape(operand: Any) -> tuple[int, ...]:
        return tuple(size if isinstance(size, int) else number(size) for size in get_shape(operand))

    return numbers_of_shape


def number(size: torch.SymInt) -> int:
    """The example's size of a symbol."""
    orders_of_contractions.used()
    return size.node.hint if size.node.has_hint() else UNKNOWN
