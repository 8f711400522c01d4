"""Paddings that the data or sizes decide: with a number of them, up to a multiple, to whole segments; those of MobileNet, as TensorFlow has them.

Source of semantics: ``torch.nn.functional.pad``, ``transformers.models.mobilenet_v1``, ``mobilenet_v2``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.memories import TRACED
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped
from experimental_experiment.torch_interpreter.symbols import SYMBOLS

FUNCTIONS = {
    "transformers.models.mobilenet_v1.modeling_mobilenet_v1.apply_tf_padding": False,
    "transformers.models.mobilenet_v2.modeling_mobilenet_v2.apply_tf_padding": True,
}
"""The functions, and whether the padding is multiplied by the dilation."""


@patch("torch", replaces=("torch.nn.functional.pad",), default=True)
def padding_values() -> Iterator[None]:
    """``F.pad(x, (0, 1), value=v)`` is refused where the data decide *v*, and fixes a size that does, as in TorchMetrics: torch takes a number of Python there."""
    pad = torch.nn.functional.pad
    with replaced(torch.nn.functional, "pad", functools.wraps(pad)(of_any_value(pad))):
        yield


def of_any_value(of_numbers: Callable) -> Callable:
    """`pad` whose value may be a symbol, as that of ``torch.constant_pad_nd`` may, or a tensor of a capture that holds a number."""

    def pad(
        input: torch.Tensor, pad: Any, mode: str = "constant", value: Any = None, **options: Any
    ) -> torch.Tensor:
        if mode == "constant" and not torch.compiler.is_dynamo_compiling():
            is_held = isinstance(value, TRACED) and not value.dim() and not value.requires_grad
            value = value.item() if is_held else value
            if isinstance(value, SYMBOLS):
                padding_values.used()
                return torch.constant_pad_nd(input, pad, value)
        return of_numbers(input, pad, mode, value, **options)

    return pad


@patch("torch", replaces=("torch.nn.functional.pad",), default=True)
def paddings_to_multiples() -> Iterator[None]:
    """A size that ``pad(x, (0, -n % 8))`` makes a multiple of 8 is none to torch.export: it needs minutes for what follows."""
    pad = torch.nn.functional.pad
    with replaced(torch.nn.functional, "pad", functools.wraps(pad)(to_multiples(pad))):
        yield


def to_multiples(of_sizes: Callable) -> Callable:
    """`pad` that adds what is missing to a multiple in a form whose sum with the size is one."""

    def pad(input: torch.Tensor, pad: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if any(isinstance(size, torch.SymInt) for size in pad):
            after = [missing(size, count) for size, count in zip(reversed(input.shape), pad[1::2])]
            pad = [entry for pair in zip(pad[::2], after) for entry in pair]
        return of_sizes(input, pad, *args, **kwargs)

    return pad


def missing(size: Any, count: Any) -> Any:
    """*count*, as ``(n + 7) // 8 * 8 - n`` where it is ``-n % 8`` or ``(8 - n % 8) % 8`` for a size *n*."""
    if not isinstance(count, torch.SymInt) or not isinstance(size, torch.SymInt):
        return count
    # a SymInt has loaded it, importing this file has not
    from torch.utils._sympy.functions import Mod, PythonMod

    rest = count.node.expr
    if not isinstance(rest, (Mod, PythonMod)) or not rest.args[1].is_Integer:
        return count
    less, side = rest.args
    if less not in (-size.node.expr, side - Mod(size.node.expr, side)):
        return count
    paddings_to_multiples.used()
    return to_multiple(size, int(side))


def to_multiple(size: Any, side: int) -> Any:
    """What *size* lacks to the next multiple of *side*, in the form whose sum with *size* torch writes as a multiple."""
    return (size + side - 1) // side * side - size


@patch("torch", replaces=("torch.SymInt.__mod__",), default=True)
def rests_of_rests() -> Iterator[None]:
    """A padding to whole segments that overlap, ``8 - (4 + n % 8) % 8``, is a rest of a rest: torch.export needs minutes for what follows."""
    with replaced(torch.SymInt, "__mod__", of_the_whole(torch.SymInt.__mod__)):
        yield


def of_the_whole(modulo: Callable) -> Callable:
    """*modulo* that takes ``(4 + n % 8) % 8`` for that of ``4 + n``, in a form without a rest, whose sums torch.export divides by 8."""
    known: dict[tuple, tuple[torch.SymInt, torch.SymInt]] = {}

    @functools.wraps(modulo)
    def called(self: torch.SymInt, side: Any) -> Any:
        if not isinstance(side, int) or side <= 0:
            return modulo(self, side)
        for term in self.node.expr.as_ordered_terms():
            size, rest = known.get((self.node.shape_env, side, term), (None, None))
            if size is not None and self.node.expr != term:
                rests_of_rests.used()
                whole = self - rest + size
                return whole - whole // side * side
        result = modulo(self, side)
        if isinstance(result, torch.SymInt):
            known[self.node.shape_env, side, result.node.expr] = (self, result)
        return result

    return called


@patch(
    "transformers",
    replaces=tuple(FUNCTIONS),
    since="5.0",
    default=True,
)
def tensorflow_paddings() -> Iterator[None]:
    """MobileNet v1 and v2 compute their paddings with Python's numbers: the size of an image is the example's."""
    with wrapped({path: functools.partial(for_symbols, dilated) for path, dilated in FUNCTIONS.items()}):
        yield


def for_symbols(is_dilated: bool, original: Callable) -> Callable:
    """`apply_tf_padding` for images whose sizes may be symbols."""

    @functools.wraps(original)
    def called(features: torch.Tensor, conv_layer: torch.nn.Conv2d) -> torch.Tensor:
        height, width = features.shape[-2:]
        if not isinstance(height, torch.SymInt) and not isinstance(width, torch.SymInt):
            return original(features, conv_layer)
        tensorflow_paddings.used()
        dilation = conv_layer.dilation if is_dilated else (1, 1)
        axes = zip((height, width), conv_layer.kernel_size, conv_layer.stride, dilation)
        rows, columns = (around(*axis) for axis in axes)
        return torch.nn.functional.pad(features, (*columns, *rows), "constant", 0.0)

    return called


def around(size: Any, kernel: int, stride: int, dilation: int) -> tuple[Any, Any]:
    """What is added before and after an axis: the last window begins at the last multiple of the stride.

    Windows that leave no gap need no maximum: the size of the result is ``(size - 1) // stride + 1``, and torch.export finds it at once.
    """
    missing = (size - 1) // stride * stride + kernel - size
    missing = missing if kernel >= stride else torch.sym_max(missing, 0)
    return missing // 2 * dilation, (missing - missing // 2) * dilation
