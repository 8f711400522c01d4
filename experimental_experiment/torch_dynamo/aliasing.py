"""Outputs that show a part of an input or of another output: views in eager, and the same views of what is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true

from experimental_experiment.torch_dynamo.interface import TENSOR, Entry
from experimental_experiment.torch_dynamo.symbols import evaluation, places_of_symbols
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.writes import storage_of


def with_bases(outputs: Sequence[Entry], inputs: Sequence[Entry], seen: int | None = None) -> list[Entry]:
    """The outputs, where views of an input or of another output know it.

    aot_autograd makes such an output again, of the input, with the strides and the offset that it is returned with. Raises ExportError
    where the inputs do not decide them. Only the first *seen* outputs (None: all) are returned to the user: what is kept for the
    gradients may be a copy.
    """
    given = {
        storage_of(entry.fake): position for position, entry in enumerate(inputs) if entry.kind == TENSOR
    }
    bases: dict[int, int] = {}
    for position, entry in enumerate(outputs):
        if has_memory(entry) and is_whole(entry.fake):
            bases.setdefault(storage_of(entry.fake), position)
    found = []
    for position, entry in enumerate(outputs):
        if not has_memory(entry):
            found.append(entry)
            continue
        source = given.get(storage_of(entry.fake))
        base = bases.get(storage_of(entry.fake), position)
        if source is not None:
            if not is_lazy(entry.fake) and is_decided(entry.fake, inputs):
                entry = dataclasses.replace(entry, shows=source)
            elif not is_decided(entry.fake, inputs) and (seen is None or position < seen):
                raise ExportError("a view of an input at places that the data decide is returned", entry.node)
        elif base != position and is_view(entry.fake, outputs[base].fake, inputs):
            entry = dataclasses.replace(entry, base=base)
        found.append(entry)
    return found


def has_memory(entry: Entry) -> bool:
    """Whether an output is a tensor that is neither an input nor an output before it."""
    return entry.kind == TENSOR and entry.source is None and entry.twin is None


def is_whole(fake: torch.Tensor) -> bool:
    """Whether a tensor fills its memory in the order of its axes, as what onnxruntime computes does."""
    filled = fake.numel() * fake.itemsize == fake.untyped_storage().nbytes()
    return not is_lazy(fake) and is_contiguous_or_false(fake) and statically_known_true(filled)


def is_view(fake: torch.Tensor, base: torch.Tensor, inputs: Sequence[Entry]) -> bool:
    """Whether a tensor shows elements of *base* at places that the inputs of the graph decide."""
    return fake.dtype == base.dtype and not is_lazy(fake) and is_decided(fake, inputs)


def is_decided(fake: torch.Tensor, inputs: Sequence[Entry]) -> bool:
    """Whether the inputs of the graph decide the geometry of a tensor."""
    sizes = [size for size in geometry(fake) if isinstance(size, torch.SymInt)]
    symbols = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
    return symbols <= set(places_of_symbols(inputs))


def is_lazy(fake: torch.Tensor) -> bool:
    """Whether the elements are not those in memory, but conjugate or negative."""
    return fake.is_conj() or fake.is_neg()


def geometry(fake: torch.Tensor) -> list[Any]:
    """Sizes, strides and offset."""
    return [*fake.shape, *fake.stride(), fake.storage_offset()]


def viewing(
    entry: Entry, base: Entry, inputs: Sequence[Entry]
) -> Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]:
    """A function of the base and the inputs of the graph that gives the view, in its own dtype."""
    count, dtype = entry.fake.dim(), entry.fake.dtype

    def counted(offset: Any) -> Any:
        """An offset in elements of the base, in elements of the view."""
        return offset * base.fake.dtype.itemsize // dtype.itemsize

    start = entry.fake.storage_offset() - counted(base.fake.storage_offset())
    sizes = evaluation(entry.node, [*entry.fake.shape, *entry.fake.stride(), start], inputs, "[{0}]")

    def view(memory: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        found = sizes(args)
        shape, strides, offset = found[:count], found[count:-1], counted(memory.storage_offset()) + found[-1]
        if memory.dtype == dtype:
            return memory.as_strided(shape, strides, offset)
        empty = torch.empty(0, dtype=dtype, device=memory.device)
        return empty.set_(memory.untyped_storage(), offset, shape, strides)

    return view
