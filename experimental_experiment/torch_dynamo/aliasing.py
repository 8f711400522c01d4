"""Outputs that show a part of another one: views in eager, and the same views of what onnxruntime computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true

from experimental_experiment.torch_dynamo.interface import TENSOR, Entry
from experimental_experiment.torch_dynamo.symbols import evaluation, places_of_symbols


def with_bases(outputs: Sequence[Entry], inputs: Sequence[Entry]) -> list[Entry]:
    """The outputs, where views of another output know it as their base."""
    bases: dict[int, int] = {}
    for position, entry in enumerate(outputs):
        if has_memory(entry) and is_whole(entry.fake):
            bases.setdefault(storage_of(entry.fake), position)
    found = []
    for position, entry in enumerate(outputs):
        base = bases.get(storage_of(entry.fake), position) if has_memory(entry) else position
        if base != position and is_view(entry.fake, outputs[base].fake, inputs):
            entry = dataclasses.replace(entry, base=base)
        found.append(entry)
    return found


def has_memory(entry: Entry) -> bool:
    """Whether an output is a tensor that is neither an input nor an output before it."""
    return entry.kind == TENSOR and entry.source is None and entry.twin is None


def storage_of(fake: torch.Tensor) -> int:
    """What identifies the memory of a tensor."""
    return fake.untyped_storage()._cdata


def is_whole(fake: torch.Tensor) -> bool:
    """Whether a tensor fills its memory in the order of its axes, as what onnxruntime computes does."""
    filled = fake.numel() * fake.itemsize == fake.untyped_storage().nbytes()
    return not is_lazy(fake) and is_contiguous_or_false(fake) and statically_known_true(filled)


def is_view(fake: torch.Tensor, base: torch.Tensor, inputs: Sequence[Entry]) -> bool:
    """Whether a tensor shows elements of *base* at places that the inputs of the graph decide."""
    sizes = [size for size in geometry(fake) if isinstance(size, torch.SymInt)]
    symbols = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
    return fake.dtype == base.dtype and not is_lazy(fake) and symbols <= set(places_of_symbols(inputs))


def is_lazy(fake: torch.Tensor) -> bool:
    """Whether the elements are not those in memory, but conjugate or negative."""
    return fake.is_conj() or fake.is_neg()


def geometry(fake: torch.Tensor) -> list[Any]:
    """Sizes, strides and offset."""
    return [*fake.shape, *fake.stride(), fake.storage_offset()]


def viewing(entry: Entry, inputs: Sequence[Entry]) -> Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]:
    """A function of the base and the inputs of the graph that gives the view."""
    count = entry.fake.dim()
    sizes = evaluation(entry.node, geometry(entry.fake), inputs, "[{0}]")

    def view(base: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        found = sizes(args)
        return base.as_strided(found[:count], found[count:-1], found[-1])

    return view
