"""Fake results that torch makes a second time, for its cache: once for each kind is enough.

Source of semantics: ``FakeTensorMode._get_output_info_for_cache_entry`` of torch. Before it keeps what an operator gave it makes a tensor
of what it would keep, and asks whether that one is dispatched as the result is. The answer does not depend on sizes, and to make a
tensor of symbolic sizes is among the slowest things that torch.export does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment.torch_interpreter.patches.patch import replaced

ALIKE: set[tuple] = set()
"""The kinds of results of which one was found to be dispatched as the tensor that torch made of it."""


@contextlib.contextmanager
def made_once() -> Iterator[None]:
    """Let torch.export make the results of operators once, where one of the same kind was compared with its second."""
    # imported here: it brings sympy, as torch.export does when it is called
    from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

    describe = FakeTensorMode._get_output_info_for_cache_entry
    alone = without_seconds(describe, has_free_unbacked_symbols)
    with replaced(FakeTensorMode, describe.__name__, alone):
        yield


def without_seconds(describe: Callable, depends_on_data: Callable) -> Callable:
    """*describe*, which says what the cache keeps of a result, without a second result of a known kind.

    Sizes that depend on data are left to torch: to make the second one is how it learns that it cannot. An argument that was written
    in place has no second.
    """

    @functools.wraps(describe)
    def called(
        self: FakeTensorMode, state: Any, key: Any, func: Any, args: Any, kwargs: Any, output: Any
    ) -> Any:
        is_new = isinstance(output, torch.Tensor) and not any(arg is output for arg in args)
        if not is_new or depends_on_data(output):
            return describe(self, state, key, func, args, kwargs, output)
        kind = kind_of(func, output)
        if kind in ALIKE:
            with replaced(self, "_output_from_cache_entry", lambda *_: output):
                return describe(self, state, key, func, args, kwargs, output)
        described = describe(self, state, key, func, args, kwargs, output)  # raises where they are not alike
        ALIKE.add(kind)
        return described

    return called


def kind_of(func: Any, output: torch.Tensor) -> tuple:
    """What the dispatch of a result, and of the tensor that is made of it, depends on."""
    return (
        getattr(func, "is_view", False),
        output.dtype,
        output.device,
        output.layout,
        output.requires_grad,
        output.is_conj(),
        output.is_neg(),
        torch.is_inference_mode_enabled(),
        str(torch._C._dispatch_key_set(output)),
    )
