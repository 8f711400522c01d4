"""Whether fake tensors are contiguous: torch asks it of every operand and every result, once for each layout is enough.

Source of semantics: ``is_contiguous`` and what stands around it in ``torch._prims_common``. With symbolic sizes each question takes
several comparisons of symbols. The answer depends on the sizes, the strides and what the ShapeEnv has decided so far.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import replaced

OF_TENSORS = {"is_contiguous": 0, "is_channels_last_contiguous_2d": 4, "is_channels_last_contiguous_3d": 5}
"""Questions about a tensor, with the rank whose sizes they compare, 0 for any."""

OF_SIZES = ("are_strides_like_channels_last", "are_strides_like_channels_last_or_false")
"""Questions about sizes and strides of rank 4 or 5; a version of torch has one of them."""


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """Let torch.export ask once of tensors of the same symbolic sizes and strides, as long as it decides nothing new."""
    # imported here: it brings sympy, as torch.export does when it is called
    environments = importlib.import_module("torch.fx.experimental.symbolic_shapes").ShapeEnv
    common = importlib.import_module("torch._prims_common")
    answers = Answers(environments._suppress_guards_tls)
    with contextlib.ExitStack() as stack:
        for name, rank in OF_TENSORS.items():
            once = answers.of_tensors(getattr(common, name), rank)
            stack.enter_context(replaced(common, name, once))
        for name in OF_SIZES:
            if hasattr(common, name):
                stack.enter_context(replaced(common, name, answers.of_sizes(getattr(common, name))))
        yield


class Answers:
    """The answers of one capture.

    Attributes:
        known: them, by what they depend on.
    """

    def __init__(self, is_deciding_nothing: Callable[[], bool]):
        self.known: dict[tuple, bool] = {}
        self.is_deciding_nothing = is_deciding_nothing

    def of_tensors(self, question: Callable, rank: int) -> Callable:
        """A question about a tensor; *false_if_dde*: whether it is no where the data decide."""

        @functools.wraps(question)
        def called(a: Any, false_if_dde: bool = False) -> bool:
            if rank not in (0, a.ndim) or not getattr(a, "_has_symbolic_sizes_strides", False):
                return question(a, false_if_dde)
            ask = functools.partial(question, a, false_if_dde)
            return self.answer((question, false_if_dde), ask, a.shape, a.stride())

        return called

    def of_sizes(self, question: Callable) -> Callable:
        """A question about sizes and strides."""

        @functools.wraps(question)
        def called(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
            ask = functools.partial(question, shape, strides)
            return self.answer((question,), ask, shape, strides) if len(shape) in (4, 5) else ask()

        return called

    def answer(self, question: tuple, ask: Callable[[], bool], *sizes: Sequence[Any]) -> bool:
        """The answer to a question; it is asked where an answer is not known, or nothing symbolic stands in it.

        What is said of sizes that the data decide is not kept: torch may learn more of them at any time.
        """
        environment, values = None, []
        for size in (size for group in sizes for size in group):
            if isinstance(size, torch.SymInt):
                expression = getattr(size.node, "_expr", None)
                if expression is None:  # a size of a nested tensor
                    return ask()
                environment, size = size.node.shape_env, expression
            values.append(size)
        if environment is None:
            return ask()
        known = self.known.get((*question, *self.state_of(environment), *values))
        if known is None:
            known = ask()
            symbols = set().union(*(getattr(value, "free_symbols", ()) for value in values))
            if not any(map(environment.is_unbacked_symint, symbols)):
                # the question itself may have decided something
                self.known[(*question, *self.state_of(environment), *values)] = known
        return known

    def state_of(self, environment: Any) -> tuple:
        """What a ShapeEnv has decided: itself, as its identity alone may be given again, the guards and replacements so far."""
        return environment, len(environment.guards), *environment._get_key(), self.is_deciding_nothing()
