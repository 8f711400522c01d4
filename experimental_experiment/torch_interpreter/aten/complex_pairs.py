"""Complex tensors through operators that leave the pair of parts together: their arguments for the real tensor of one axis more.

A complex tensor that comes whole goes on whole: one node, where its parts take seven. Read by `complex_structure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.marks import PARTS

aten = torch.ops.aten
Arguments = dict[str, Any]


def pair_arguments(
    op, target: torch._ops.OpOverload, tensors: Iterable[ir.Value], arguments: Arguments
) -> Arguments | None:
    """The arguments with which *target* is called on complex *tensors* as they are, pairs along a last axis.

    None when it is called on each part instead: *target* takes no pairs, or the parts are apart already.
    """
    tensors = list(tensors)
    if target not in PAIRS or all(PARTS in x.meta for x in tensors):
        return None
    if len({x.dtype for x in tensors}) > 1:
        return None  # a 0-d tensor takes the dtype of the others: its pair is none
    return PAIRS[target](op, arguments, rank(tensors[0]) - 1)


def as_they_are(op, arguments: Arguments, axes: int) -> Arguments:
    """Arguments that do not count axes from the end."""
    return arguments


def along(*names: str, added: int = 0) -> Callable:
    """Axes among *names* are counted from the front; the operator adds *added* axes first."""

    def mapped(op, arguments: Arguments, axes: int) -> Arguments | None:
        if not axes + added or any(arguments[name] in (None, []) for name in names):
            return None
        return arguments | {name: from_front(arguments[name], axes + added) for name in names}

    return mapped


def from_front(dim: int | list[int], axes: int) -> int | list[int]:
    """One axis or several, counted from the front."""
    return dim % axes if isinstance(dim, int) else [axis % axes for axis in dim]


def sized(name: str, size: int) -> Callable:
    """A size more: that of the pair."""
    return lambda op, arguments, axes: arguments | {name: [*arguments[name], size]}


def scattered(op, arguments: Arguments, axes: int) -> Arguments:
    """One axis of the tensor that a gradient is put into, and a size more."""
    sizes = arguments["input_sizes"]
    return arguments | {"input_sizes": [*sizes, 2], "dim": from_front(arguments["dim"], len(sizes))}


def permuted(op, arguments: Arguments, axes: int) -> Arguments:
    """The pair stays behind."""
    return arguments | {"dims": [*from_front(list(arguments["dims"]), axes), axes]}


def chosen(op, arguments: Arguments, axes: int) -> Arguments:
    """Both parts come from one side."""
    condition = arguments["condition"]
    return arguments | {"condition": op.Unsqueeze(condition, [rank(condition)])}


def padded(op, arguments: Arguments, axes: int) -> Arguments | None:
    """Zeros around the other axes."""
    if arguments.get("value") or arguments.get("mode", "constant") != "constant":
        return None
    return arguments | {"pad": [0, 0, *arguments["pad"]], "value": 0}


def complex_still(op, arguments: Arguments, axes: int) -> Arguments | None:
    """Zeros of both parts, where the result is complex, too."""
    return arguments if op.context.node.meta["val"].is_complex() else None


PAIRS: dict[torch._ops.OpOverload, Callable] = {
    aten.add.Tensor: as_they_are,
    aten.broadcast_to.default: sized("size", 2),
    aten.cat.default: along("dim"),
    aten.chunk.default: along("dim"),
    aten.concat.default: along("dim"),
    aten.concatenate.default: along("dim"),
    aten.constant_pad_nd.default: padded,
    aten.copy.default: as_they_are,
    aten.cumsum.default: along("dim"),
    aten.expand.default: sized("size", 2),
    aten.flatten.using_ints: along("start_dim", "end_dim"),
    aten.flip.default: along("dims"),
    aten.index.Tensor: as_they_are,
    aten.index_put.default: as_they_are,
    aten.index_select.default: along("dim"),
    aten.mean.dim: along("dim"),
    aten.moveaxis.int: along("source", "destination"),
    aten.moveaxis.intlist: along("source", "destination"),
    aten.movedim.int: along("source", "destination"),
    aten.movedim.intlist: along("source", "destination"),
    aten.narrow.default: along("dim"),
    aten.pad.default: padded,
    aten.permute.default: permuted,
    aten.repeat.default: sized("repeats", 1),
    aten.reshape.default: sized("shape", 2),
    aten.roll.default: along("dims"),
    aten.select.int: along("dim"),
    aten.select_backward.default: scattered,
    aten.slice.Tensor: along("dim"),
    aten.slice_backward.default: scattered,
    aten.split.Tensor: along("dim"),
    aten.split_with_sizes.default: along("dim"),
    aten.squeeze.dim: along("dim"),
    aten.squeeze.dims: along("dim"),
    aten.stack.default: along("dim", added=1),
    aten.sub.Tensor: as_they_are,
    aten.sum.dim_IntList: along("dim"),
    aten.swapaxes.default: along("axis0", "axis1"),
    aten.swapdims.default: along("dim0", "dim1"),
    aten.transpose.int: along("dim0", "dim1"),
    aten.unbind.int: along("dim"),
    aten.unflatten.int: along("dim"),
    aten._unsafe_view.default: sized("size", 2),
    aten.unsqueeze.default: along("dim", added=1),
    aten.view.default: sized("size", 2),
    aten.where.self: chosen,
    aten.zeros_like.default: complex_still,
}
"""The arguments of an operator for pairs, from those that it has and the number of axes; None when parts are needed."""
