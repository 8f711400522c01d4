"""Views and mutation: a cell, a path of lenses, two folds.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html. Which nodes alias is read from the storages of the
fake tensors in ``meta["val"]``, never from names.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.aten.striding import put_at
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.marks import STAMPED


@dataclasses.dataclass(frozen=True)
class Lens:
    """One view operator: ``get(op, base)`` reads the view, ``put(op, base, new)`` is the base after writing it.

    ``pick(op, positions)`` is the view of the positions of the elements of the base. *repeats*: the view may show an
    element of the memory twice.
    """

    get: Callable[[Any, ir.Value], ir.Value]
    put: Callable[[Any, ir.Value, ir.Value], ir.Value]
    pick: Callable[[Any, ir.Value], ir.Value]
    repeats: bool = False


@dataclasses.dataclass(eq=False)
class Cell:
    """One storage: the value it holds now, and how often it was written."""

    value: ir.Value
    version: int = 0


@dataclasses.dataclass(eq=False)
class View:
    """One FX tensor: a storage cell seen through lenses. Reading is a fold, writing the reverse fold."""

    cell: Cell
    path: tuple[Lens, ...] = ()
    seen: int | None = None
    value: ir.Value | None = None

    def read(self, op) -> ir.Value:
        """The value of the view now; a stale view re-derives itself."""
        if self.seen != self.cell.version:
            self.value = reduce(lambda base, lens: lens.get(op, base), self.path, self.cell.value)
            self.seen = self.cell.version
        return self.value

    @property
    def repeats(self) -> bool:
        """Whether the view may show an element of the storage twice."""
        return bool(self.path) and self.path[-1].repeats

    def write(self, op, new: ir.Value, is_uniform: bool = False) -> None:
        """Replace the viewed elements of the storage by *new*, which has the view's shape and dtype.

        *is_uniform*: all elements of *new* are the same. Raises Untranslatable when they may not be and the view shows an
        element of the storage twice: which of the two stays is not defined.
        """
        if self.repeats and not is_uniform:
            raise Untranslatable(
                "it writes a view that shows an element of the memory twice: clone it before"
            )
        path = once(self.path)
        bases = list(accumulate(path[:-1], lambda base, lens: lens.get(op, base), initial=self.cell.value))
        written = new
        for lens, base in zip(reversed(path), reversed(bases)):
            written = lens.put(op, base, written)
        self.cell.value = written
        self.cell.version += 1

    def through(self, lens: Lens) -> View:
        """A view of this view."""
        return View(self.cell, (*self.path, lens))

    def reshape_in_place(self, lens: Lens) -> None:
        """What ``squeeze_``, ``t_``, ... do: every name of this tensor sees it through one more lens."""
        self.path = (*self.path, lens)
        self.seen = None


def once(path: tuple[Lens, ...]) -> tuple[Lens, ...]:
    """A path for a write that may not go through a view that shows an element twice: the old one would be written back.

    From the first such view on, the elements are written at their positions, which the views tell.
    """
    first = next((k for k, lens in enumerate(path) if lens.repeats), None)
    if first is None:
        return path

    def pick(op, base):
        return reduce(lambda positions, lens: lens.pick(op, positions), path[first:], base)

    def put(op, base, new):
        return like(base, put_at(op, base, new, lambda positions: pick(op, positions)))

    return (*path[:first], Lens(pick, put, pick))


@dataclasses.dataclass(frozen=True)
class Viewed:
    """The argument that a view operator views: its node, its name, and its index when the argument is a list of tensors."""

    node: torch.fx.Node
    name: str
    index: int | None = None

    @property
    def fake(self) -> torch.Tensor:
        """What torch knows of the viewed tensor."""
        return self.node.meta["val"]

    def replaced(self, base: ir.Value, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the operator with *base* as the viewed tensor."""
        if self.index is None:
            return {**arguments, self.name: base}
        tensors = list(arguments[self.name])
        tensors[self.index] = base
        return {**arguments, self.name: tensors}


def lens_of(
    translation: registry.Translation,
    node: torch.fx.Node,
    target: Any,
    arguments: dict[str, Any],
    viewed: Viewed,
    stamp: Callable[[ir.Value], ir.Value] = lambda value: value,
    position: int | None = None,
) -> Lens:
    """The lens of a view operator: its translation reads; its registered put writes, or else the positions that it shows.

    *node* is the node that made the view, *target* the view operator, *arguments* those that its translation lists;
    *stamp* checks what is read and gives it torch's sizes; *position* is the index of the result for an operator that has
    several. A view that reads as its base (a dropout that drops nothing) is written as its base.
    Raises Untranslatable, when written, if nothing says how to write through *target*.
    """
    puts = registry.COMPLEX_PUTS if viewed.fake.dtype.is_complex else registry.PUTS
    fake = node.meta["val"] if position is None else node.meta["val"][position]

    def read(op, base):
        with translating(op, node):
            result = translation.function(op, **viewed.replaced(base, arguments))
        return result if position is None else result[position]

    def pick(op, positions):
        picked = read(op, positions) if keeps_elements(viewed.fake, fake) else None
        if picked is None or picked.dtype != positions.dtype:
            raise Untranslatable(f"a write through the view {target} is not handled")
        return picked

    def put(op, base, new):
        function = puts.get(target)
        if function is None:
            if read(op, base) is base:
                return new
            return like(base, put_at(op, base, new, lambda positions: pick(op, positions)))
        extra = {} if position is None else {"position": position}
        listed = registry.parameters(function)[2:]
        known = {name: value for name, value in (arguments | extra).items() if name in listed}
        with translating(op, node):
            return like(base, function(op, base, new, **known))

    return Lens(lambda op, base: stamp(read(op, base)), put, pick)


def keeps_elements(viewed: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether a view shows elements as they are held: real, in the same dtype, none of them negated."""
    is_real = not (viewed.dtype.is_complex or view.dtype.is_complex)
    return is_real and viewed.dtype == view.dtype and viewed.is_neg() == view.is_neg()


def like(base: ir.Value, written: ir.Value) -> ir.Value:
    """*written* with the sizes of *base*, some of which ONNX may not know."""
    if written.producer() is not None and STAMPED not in written.meta:
        assert written.shape is None or len(written.shape) == len(base.shape), "a put changed the rank"
        written.shape = base.shape
    return written


def translating(op, node: torch.fx.Node) -> contextlib.AbstractContextManager[None]:
    """While a lens is used, the node translated is the one that made the view, not the one that reads or writes."""
    return op.context.at(dataclasses.replace(op.context.origin, node=node))
