"""Results of a node that only a gradient needs: whether the program reads them, and what stands in their place when it does not."""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.errors import Untranslatable


def reads_result(op, first: int) -> bool:
    """Whether the program reads a result from *first* on of the node that is translated."""
    return any(user.args[1] >= first and user.users for user in op.context.node.users)


def zeros_for_gradient(op, first: int = 1):
    """Zeros in the place of the results from *first* on; Untranslatable when the program reads them."""
    node = op.context.node
    if reads_result(op, first):
        raise Untranslatable("a result that only the gradient needs is read")
    for fake in node.meta["val"][first:]:
        yield unread(op, fake)


def unread(op, fake: torch.Tensor) -> ir.Value:
    """Zeros in the place of a result that nothing reads; a complex one has two parts."""
    # a symbol may be a number by now, which the shape of the result then is
    sizes = [size if isinstance(size, int) else size.node.maybe_as_int() or 0 for size in fake.shape]
    return op.Expand(op.constant(0, fake.dtype), op.shape([*sizes, 2] if fake.is_complex() else sizes))
