"""Branches on whether there is anything at all: torch takes the sizes of inputs for positive, and decides ``x.shape[0] == 0`` without a question.

So does it ``max(x.shape[0], 1)``.

Source of semantics: the comparisons of torch.fx.experimental.sym_node, whose symbols sympy knows to be positive.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import sympy
import torch

from experimental_experiment.torch_interpreter.assumptions.operands import is_settled
from experimental_experiment.torch_interpreter.errors import Source
from experimental_experiment.torch_interpreter.frames import (
    HERE,
    TORCH,
    asking_frame,
    is_library_code,
    line_around,
)
from experimental_experiment.torch_interpreter.patches.checks import without_exception, without_telling
from experimental_experiment.torch_interpreter.patches.patch import replaced

RELATIONS = {
    "eq": sympy.Eq, "ne": sympy.Ne, "gt": sympy.Gt, "ge": sympy.Ge, "lt": sympy.Lt, "le": sympy.Le,
}  # fmt: skip
"""What the methods of a symbolic number compute."""

EXTREMA = {"sym_max": sympy.Max, "sym_min": sympy.Min}
"""What the methods of a symbolic number choose."""

CALLED = frozenset({torch.sym_max.__code__, torch.sym_min.__code__})
"""The functions that a model calls for them, also as ``max`` and ``min``; torch's C++ computes strides without."""

SIZE = "size_that_may_be_none"
"""On the result of a comparison that sympy decided: the size for which it is another one where that is 0."""

HARMLESS = frozenset({("transformers.cache_utils", "get_seq_length")})
"""Functions, behind their modules, that give 0 for a cache of no token, which its size is."""

Emptied = dict[tuple[Any, sympy.Symbol], Source]
"""The lines that first ask whether a size is 0, by the ShapeEnv and the size."""


@contextlib.contextmanager
def recorded(found: Emptied) -> Iterator[None]:
    """Write down the branches of the model that go the other way where a size is 0, and what is the larger or the smaller number there.

    Not what raises there, as ``assert len(x)`` does, or only warns; nor what TorchDynamo runs, which decides them without asking.
    """
    nodes = importlib.import_module("torch.fx.experimental.sym_node").SymNode
    with contextlib.ExitStack() as stack:
        for name, relation in RELATIONS.items():
            stack.enter_context(replaced(nodes, name, marked(getattr(nodes, name), relation)))
        for name, extremum in EXTREMA.items():
            stack.enter_context(replaced(nodes, name, chosen(getattr(nodes, name), extremum, found)))
        stack.enter_context(replaced(nodes, "bool_", noted(nodes.bool_, found)))
        yield


def marked(compare: Callable, relation: Callable) -> Callable:
    """*compare* whose result knows the size that matters."""

    @functools.wraps(compare)
    def called(self: Any, other: Any) -> Any:
        result = compare(self, other)
        if getattr(result, "_expr", None) in (sympy.true, sympy.false):
            size = size_that_matters(relation, self.expr, other.expr, result._expr)
            if size is not None:
                setattr(result, SIZE, size)
        return result

    return called


def chosen(choose: Callable, extremum: Callable, found: Emptied) -> Callable:
    """*choose*, the larger or the smaller of two numbers, which writes down who asks for what is the other one where a size is 0."""

    @functools.wraps(choose)
    def called(self: Any, other: Any) -> Any:
        result = choose(self, other)
        if result.expr in (self.expr, other.expr):
            frame = calling_frame(sys._getframe(1))
            if frame is not None and not is_library_code(frame.f_code):
                size = size_that_matters(extremum, self.expr, other.expr, result.expr)
                if size is not None:
                    note(self, size, frame, found)
        return result

    return called


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """The frame that calls the function that chooses; None where torch's C++ does, or what a frame of a model calls otherwise."""
    called = None
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, HERE)):
        called = frame if frame.f_code in CALLED else called
        frame = frame.f_back
    return None if called is None else asking_frame(called)


@functools.lru_cache(maxsize=4096)
def size_that_matters(
    function: Callable, left: sympy.Expr, right: sympy.Expr, result: sympy.Basic
) -> sympy.Symbol | None:
    """The only size of a function of multiples, when its result is another one where that is 0; layers ask the same."""
    symbols = left.free_symbols | right.free_symbols
    if len(symbols) != 1:
        return None
    (size,) = symbols
    if not size.is_positive or not left.is_polynomial(size) or not right.is_polynomial(size):
        return None
    none = function(left.subs(size, 0), right.subs(size, 0))
    is_known = none in (sympy.true, sympy.false) or none.is_number
    return size if is_known and none != result.subs(size, 0) else None


def noted(ask: Callable, found: Emptied) -> Callable:
    """*ask*, which writes down who asks about a size that matters."""

    @functools.wraps(ask)
    def called(self: Any) -> bool:
        size = getattr(self, SIZE, None)
        if size is not None:
            note(self, size, asking_frame(sys._getframe(1)), found)
        return ask(self)

    return called


def note(number: Any, size: sympy.Symbol, frame: FrameType, found: Emptied) -> None:
    """Write down the first line of the model that a size matters to, where *frame* asks for a symbolic number."""
    if (number.shape_env, size) in found:
        return
    source, is_branch = line_around(frame)
    if is_branch and source is not None and matters(frame):
        found[number.shape_env, size] = source


def matters(frame: Any) -> bool:
    """Whether what a frame asks decides what it computes."""
    is_harmless = (frame.f_globals.get("__name__"), frame.f_code.co_name) in HARMLESS
    return not (
        is_harmless
        or is_settled(frame)
        or without_exception(frame) is not None
        or without_telling(frame) is not None
    )
