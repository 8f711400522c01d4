"""Views of tensors whose sizes are symbols, as what is asked for.

Source of semantics: ``aten.view``, which gives the sizes that are asked for whatever those before are, if there are as many elements;
``at::detail::computeStride``, which says when a reshape copies.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from experimental_experiment.torch_interpreter.errors import CaptureError, Source
from experimental_experiment.torch_interpreter.frames import BODIES, line_around
from experimental_experiment.torch_interpreter.patches.patch import (
    patch,
    replaced,
    wrapped,
)
from experimental_experiment.torch_interpreter.patches.whole_numbers import captures_begin

VIEW = "torch._refs._reshape_view_helper"


@patch(
    "torch", replaces=(VIEW, "torch.reshape", "torch.Tensor.reshape", "torch.Tensor.reshape_as"), default=True
)
def views_of_sizes() -> Iterator[None]:
    """``x.reshape(width, height)`` of a square example makes both sizes one: torch.export asks whether an axis stays as it is.

    A tensor whose elements lie in order takes any sizes. Nor are they quotients of quotients then, which take minutes: ``rows // 2`` by 2
    instead of ``rows // (rows // 2)``, as the decoder of Stable Video Diffusion views its frames. A reshape that is a view for the
    example's sizes and a copy for others is a copy; it is refused where the model writes to either, which eager shows in both or in one.
    """
    importlib.import_module(VIEW.rpartition(".")[0])
    copies: list[Copy] = []
    with (
        wrapped({VIEW: as_asked}),
        replaced(torch, "reshape", copied_if_needed(torch.reshape, copies)),
        replaced(torch.Tensor, "reshape", copied_if_needed(torch.Tensor.reshape, copies)),
        replaced(torch.Tensor, "reshape_as", reshape_as),
        captures_begin(functools.partial(watch, copies)),
    ):
        yield


class Copy(NamedTuple):
    """A reshape that is a copy, and would be a view of the example.

    Attributes:
        tensors: what is reshaped, and the result.
        versions: how often they had been written to then.
        source: the line of the model.
    """

    tensors: tuple[torch.Tensor, torch.Tensor]
    versions: tuple[int, int]
    source: Source | None


def watch(copies: list[Copy], model: torch.nn.Module, stack: contextlib.ExitStack) -> None:
    """Refuse what the capture that begins has copied and then written to, when *stack* is closed and nothing else was raised."""
    first = len(copies)

    def refuse(kind: type | None, *_: object) -> None:
        made = copies[first:]
        del copies[first:]
        for copy in made if kind is None else ():
            if copy.versions != versions_of(copy.tensors):
                raise CaptureError(
                    "a reshape is a view for some sizes, as those of the example, and a copy for others, and what is written to one would "
                    "be seen in the other or not",
                    hint="call contiguous() before the reshape, which then shares no memory for any size",
                    source=copy.source,
                )

    stack.push(refuse)


def versions_of(tensors: tuple[torch.Tensor, torch.Tensor]) -> tuple[int, int]:
    """How often each of two tensors, or another one of its memory, has been written to."""
    x, y = tensors
    return x._version, y._version


def as_asked(view: Callable) -> Callable:
    """torch's function of views and reshapes, that asks nothing about the sizes where it is known how the elements lie."""
    common = importlib.import_module("torch._prims_common")

    @functools.wraps(view)
    def _reshape_view_helper(a: torch.Tensor, *shape: Any, allow_copy: bool) -> torch.Tensor:
        sizes = common.extract_shape_from_varargs(shape, validate=False)
        is_symbolic = any(isinstance(size, torch.SymInt) for size in (*a.shape, *sizes))
        if not is_symbolic or not a.ndim or not sizes or is_in_a_body():
            return view(a, *shape, allow_copy=allow_copy)
        sizes = common.infer_size(sizes, a.numel())
        strides = (
            strides_in_order(sizes) if common.is_contiguous_or_false(a) else strides_of_view(a, sizes, [])
        )
        if strides is None:
            return view(a, *shape, allow_copy=allow_copy)
        views_of_sizes.used()
        torch._check(
            a.numel() == functools.reduce(operator.mul, sizes, 1),
            lambda: f"shape '{list(sizes)}' is invalid for input of size {a.numel()}",
        )
        return torch.as_strided(a, sizes, strides)

    return _reshape_view_helper


def is_in_a_body() -> bool:
    """Whether TorchDynamo runs a body of a loop or of a branch, which saves other sizes for its gradients then: it takes tensors alone."""
    tracer = sys.modules.get("torch._dynamo.symbolic_convert")
    if tracer is None or getattr(tracer.tls, "current_tx", None) is None:
        return False
    frame = sys._getframe(1)
    while frame.f_back is not None and not frame.f_code.co_filename.startswith(BODIES):
        frame = frame.f_back
    return frame.f_back is not None


def copied_if_needed(of_numbers: Callable, copies: list[Copy]) -> Callable:
    """`torch.reshape` that copies what is no view for all sizes: the example's may be equal, so that it is a view of this one alone.

    What it copies is added to *copies*.
    """

    @functools.wraps(of_numbers)
    def reshape(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        shape = kwargs.get("shape", args[0] if len(args) == 1 else args)
        if is_copied(self, shape):
            views_of_sizes.used()
            source, _ = line_around(sys._getframe(1))
            tensors = self, self.clone(memory_format=torch.contiguous_format).view(shape)
            copies.append(Copy(tensors, versions_of(tensors), source))
            return tensors[1]
        return of_numbers(self, *args, **kwargs)

    return reshape


def is_copied(x: Any, shape: Any) -> bool:
    """Whether a reshape of a tensor of a capture is a view for some sizes alone, as those of the example may be."""
    if not isinstance(x, FakeTensor) or not isinstance(shape, (tuple, list)) or not x.ndim or not shape:
        return False
    if not all(isinstance(size, (int, torch.SymInt)) for size in shape):  # a tensor may be a size
        return False
    if not any(isinstance(size, torch.SymInt) for size in (*x.shape, *shape)):
        return False
    if x.is_inference():  # nothing counts what is written to it
        return False
    common = importlib.import_module("torch._prims_common")
    equal: list[Any] = []
    with disable_proxy_modes_tracing():  # what is computed here is no part of the program
        if common.is_contiguous_or_false(x):
            return False
        strides = strides_of_view(x, common.infer_size(shape, x.numel()), equal)
    return strides is None and bool(equal)


def reshape_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.Tensor.reshape_as`."""
    return self.reshape(other.shape)


def strides_in_order(sizes: Sequence[Any]) -> list[Any]:
    """The strides of a tensor of these sizes whose elements lie in order."""
    strides = itertools.accumulate(reversed(sizes[1:]), operator.mul, initial=1)
    return [*strides][::-1]


def strides_of_view(x: torch.Tensor, sizes: Sequence[Any], equal: list[Any]) -> list[Any] | None:
    """The strides of a view of *x* that has these sizes; None where it is not known that there is one, whatever the symbols are.

    From the last axis on, axes whose elements follow one another are one: each of these has to be some of the new axes. *equal* gets the
    numbers that are equal in the example alone.
    """
    new, strides = list(sizes), []
    elements: Any = 1
    stride = step = x.stride(-1)
    for axis in reversed(range(x.ndim)):
        elements = elements * x.shape[axis]
        before = (x.shape[axis - 1], x.stride(axis - 1)) if axis else (0, 0)
        if axis and (is_equal(before[0], 1, equal) or is_equal(before[1], elements * step, equal)):
            continue
        found: Any = 1
        while new and not is_equal(found, elements, equal):
            size = new.pop()
            strides.append(stride)
            found, stride = found * size, stride * size
        if not is_equal(found, elements, equal):
            return None
        elements = 1
        stride = step = before[1]
    if not all(is_equal(size, 1, equal) for size in new):
        return None
    return [*[stride] * len(new), *reversed(strides)]


def is_equal(a: Any, b: Any, equal: list[Any]) -> bool:
    """Whether two numbers are equal, whatever their symbols are, or made of the same ones, ``height // 2 * 2`` and ``height``, in the example.

    Others that are so in the example are added to *equal*.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if statically_known_true(a == b):
        return True
    if in_the_example(a) is None or in_the_example(a) != in_the_example(b):
        return False
    symbols = [x.node.expr.free_symbols if isinstance(x, torch.SymInt) else set() for x in (a, b)]
    if symbols[0] and symbols[0] == symbols[1]:
        return bool(a == b)
    equal.append(a)
    return False


def in_the_example(number: int | torch.SymInt) -> int | None:
    """What a number is in the example, None when the data decide it."""
    if isinstance(number, int):
        return number
    return number.node.hint if number.node.has_hint() else None
