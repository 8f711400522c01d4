"""Associative scans whose elements a function of PyTorch combines: torch halves their number in Python, that of the example.

Source of semantics: torch/_higher_order_ops/associative_scan.py.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._higher_order_ops import scan
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

MODULE = "torch._higher_order_ops.associative_scan"
GENERIC = f"{MODULE}.generic_associative_scan"


@patch("torch", replaces=(GENERIC,), default=True)
def associative_scans() -> Iterator[None]:
    """``associative_scan(..., combine_mode="generic")`` holds the halvings of the example's number of elements, and refuses a dynamic batch.

    Where a size is not known it is a scan, one element after the other.
    """
    importlib.import_module(MODULE)
    with wrapped({GENERIC: of_any_size}):
        yield


def of_any_size(generic: Callable) -> Callable:
    """`generic_associative_scan`, or a scan of the same elements."""

    @functools.wraps(generic)
    def scanned(
        operator: Callable,
        leaves: Sequence[torch.Tensor],
        dim: int = 0,
        additional_inputs: Sequence[torch.Tensor] = (),
    ) -> list[torch.Tensor]:
        if (
            torch.compiler.is_dynamo_compiling()
        ):  # TorchDynamo looks into it: the halvings are those of the example
            static_number_of_elements(leaves[0].shape[dim])
            return generic(operator, leaves, dim, additional_inputs)
        combine = mapped(operator)
        sizes = [size for leaf in leaves for size in leaf.shape]
        if combine is None or dim or not any([isinstance(size, torch.SymInt) for size in sizes]):
            return generic(operator, leaves, dim, additional_inputs)
        associative_scans.used()
        combine_flat = functools.partial(operator, combine_fn=combine)

        def step(
            carried: list[torch.Tensor], element: list[torch.Tensor]
        ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            combined = pytree.tree_leaves(combine_flat(*carried, *element))
            # a scan refuses results that are its operands, or each other
            return [leaf.clone() for leaf in combined], [leaf.clone() for leaf in combined]

        first = [leaf[0].clone() for leaf in leaves]
        _, others = scan(step, first, [leaf[1:] for leaf in leaves])
        return [torch.cat([leaf[:1], other]) for leaf, other in zip(leaves, others, strict=True)]

    return scanned


def static_number_of_elements(size: int) -> int:
    """*size*, which TorchDynamo refuses when it is dynamic: the branches in torch's function would hold for few others."""
    return size


# what torch.compiler.assume_constant_result does, which loads TorchDynamo
static_number_of_elements._dynamo_marked_constant = True


def mapped(operator: Callable) -> Callable | None:
    """The user's function of one element, which ``torch.vmap`` maps over those that *operator* combines; None when it holds none."""
    batched = getattr(operator, "keywords", {}).get("combine_fn")
    return inspect.getclosurevars(batched).nonlocals.get("func") if inspect.isfunction(batched) else None
