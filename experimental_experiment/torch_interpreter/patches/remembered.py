"""Functions that remember their results, ``@functools.lru_cache``, called with sizes and with tensors of a capture.

Source of semantics: ``functools.lru_cache``.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.frames import is_library_code
from experimental_experiment.torch_interpreter.memories import is_left
from experimental_experiment.torch_interpreter.patches.patch import entry, patch, replaced
from experimental_experiment.torch_interpreter.patches.whole_numbers import (
    BEGINNINGS,
    captures_begin,
    looked_into,
)
from experimental_experiment.torch_interpreter.symbols import SYMBOLS

Remembering = type(functools.lru_cache(lambda: None))
"""What ``functools.lru_cache`` and ``functools.cache`` make of a function."""


@patch(
    "torch",
    replaces=(*BEGINNINGS, "lru_cache, around the functions of the model"),
    default=True,
)
def remembered_results() -> Iterator[None]:
    """``@lru_cache`` around a function of sizes is a TypeError; around one of numbers it keeps a tensor of the capture, for later calls too.

    While a model is captured, the functions that it calls by a name of a module or of a class have a second memory: what is known for ``n``
    is found for ``n``, and forgotten at the end. What they knew before is taken.
    """
    with captures_begin(replace_memories):
        yield


def replace_memories(model: torch.nn.Module, stack: contextlib.ExitStack) -> None:
    """Let the functions of a model that remember their results forget those of the capture when it ends."""
    owners, reachable = looked_into(model)
    memories: dict[Any, Callable] = {}
    for owner in owners:
        for name, value in [*vars(owner).items()]:
            if isinstance(value, staticmethod) and remembers(value.__func__):
                again = staticmethod(apart(value.__func__, memories))
                stack.enter_context(replaced(owner, name, again))
            elif remembers(value):
                stack.enter_context(replaced(owner, name, apart(value, memories)))
    for function, names in reachable.items():
        for name in names & function.__globals__.keys():
            if remembers(function.__globals__[name]):
                value = apart(function.__globals__[name], memories)
                entry(stack, function.__globals__, name, value)


def remembers(value: Any) -> bool:
    """Whether a value is a function, of no library, that remembers its results."""
    function = value.__wrapped__ if type(value) is Remembering else None
    return isinstance(function, types.FunctionType) and not is_library_code(function.__code__)


def apart(function: Any, memories: dict[Any, Callable]) -> Callable:
    """The function with a second memory, the same one wherever it stands."""
    if function not in memories:
        memories[function] = with_memory(function)
    return memories[function]


def with_memory(function: Any) -> Callable:
    """What remembers results, by the expressions of sizes; what is known from before the capture is taken, what it computes is not left."""
    known: dict[tuple, Any] = {}

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # it knows functools.lru_cache
            return function(*args, **kwargs)
        key = expressions(args), *((name, expressions(value)) for name, value in sorted(kwargs.items()))
        if key not in known:
            if is_left((args, *kwargs.values())):
                known[key] = function.__wrapped__(*args, **kwargs)
            else:
                known[key] = function(*args, **kwargs)
                if is_left(known[key]):
                    function.cache_clear()
        return known[key]

    def cache_clear() -> None:
        """Forget what both memories hold."""
        known.clear()
        function.cache_clear()

    called.cache_clear = cache_clear
    called.cache_info, called.cache_parameters = function.cache_info, function.cache_parameters
    return called


def expressions(value: Any) -> Any:
    """An argument as it is looked up, beside its type, which may decide the result: the expression of a symbol in its place."""
    if isinstance(value, tuple):
        return tuple(map(expressions, value))
    if not isinstance(value, SYMBOLS):
        return type(value), value
    remembered_results.used()
    return type(value), value.node.expr
