"""Maxima of several sizes, and of one and a number that it is never below, or never above.

Source of semantics: ``torch.sym_max``, which torch.export makes of ``max``; ``get_same_padding`` of timm.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped

QUOTIENTS = 20
"""How many quotients a bound looks at."""


BUILTINS = "torch._export.non_strict_utils._tensor_min_max"
"""What ``max`` and ``min`` of Python are while torch.export captures."""

KINDS = ((int, torch.SymInt), (float, torch.SymFloat))
"""Numbers whose largest is of one type, whichever it is."""


@patch("torch", replaces=(BUILTINS,), default=True)
def maxima_of_several_sizes() -> Iterator[None]:
    """``max(height, width, 4)`` is the example's size, as ``max(width / 2, 1.5)`` and ``max(sizes)`` are: torch.export knows two sizes."""
    importlib.import_module(BUILTINS.rpartition(".")[0])  # it brings TorchDynamo
    with wrapped({BUILTINS: of_several}):
        yield


def of_several(choose: Callable) -> Callable:
    """*choose*, the function of torch.export, that takes any number of sizes, also in a list, and fractions of sizes."""

    @functools.wraps(choose)
    def _tensor_min_max(*args: Any, real_callable: Callable, tensor_callable: Callable, **kwargs: Any) -> Any:
        values = args[0] if len(args) == 1 and type(args[0]) in (list, tuple) else args
        kinds = {*map(type, values)}
        if kwargs or not any(kinds <= {*kind} and kind[1] in kinds for kind in KINDS):
            return choose(*args, real_callable=real_callable, tensor_callable=tensor_callable, **kwargs)
        maxima_of_several_sizes.used()
        return functools.reduce(torch.sym_max if tensor_callable is torch.maximum else torch.sym_min, values)

    return _tensor_min_max


@patch("torch", replaces=(BUILTINS,), default=True)
def maxima_of_several_tensors() -> Iterator[None]:
    """``max(a, b, c)`` of tensors of one element, as in dynamic programming, ``max(lengths)`` and ``max(lengths.max(), x.shape[1])`` are refused."""
    importlib.import_module(BUILTINS.rpartition(".")[0])  # it brings TorchDynamo
    with wrapped({BUILTINS: of_several_tensors}):
        yield


def of_several_tensors(choose: Callable) -> Callable:
    """*choose*, the function of torch.export, that takes any number of tensors and numbers, symbols among them, and the elements of one tensor."""

    @functools.wraps(choose)
    def _tensor_min_max(*args: Any, real_callable: Callable, tensor_callable: Callable, **kwargs: Any) -> Any:
        def larger(one: Any, other: Any) -> Any:
            """The larger one of two, or the smaller one."""
            tensors = [value for value in (one, other) if isinstance(value, torch.Tensor)]
            if len(tensors) == 1 and isinstance(other if tensors[0] is one else one, SYMBOLS):
                maxima_of_several_tensors.used()
                one, other = (as_tensor(value, tensors[0]) for value in (one, other))
            return choose(one, other, real_callable=real_callable, tensor_callable=tensor_callable)

        if not kwargs and len(args) == 1 and isinstance(args[0], torch.Tensor) and args[0].dim() == 1:
            maxima_of_several_tensors.used()
            return args[0].amax() if tensor_callable is torch.maximum else args[0].amin()
        if not kwargs and len(args) > 1 and any(isinstance(value, torch.Tensor) for value in args):
            if len(args) > 2:
                maxima_of_several_tensors.used()
            return functools.reduce(larger, args)
        return choose(*args, real_callable=real_callable, tensor_callable=tensor_callable, **kwargs)

    return _tensor_min_max


SYMBOLS = (torch.SymInt, torch.SymFloat)


def as_tensor(number: Any, like: torch.Tensor) -> torch.Tensor:
    """A symbol as a tensor of the dtype that it and *like* have together; a tensor as it is."""
    if not isinstance(number, SYMBOLS):
        return number
    dtype = torch.result_type(like, 1 if isinstance(number, torch.SymInt) else 1.0)
    return torch.scalar_tensor(number, dtype=dtype, device=like.device)


COMPILED = "torch._dynamo.variables.builtin"
"""Where TorchDynamo follows the functions of Python that a body calls; it asks there which one is ``max``."""


@patch("torch", replaces=("what TorchDynamo takes for max",), default=True)
def maxima_in_bodies() -> Iterator[None]:
    """``max(a.shape[0], b.shape[0])`` in a branch or a body is their minimum in the program: torch.export replaces ``max`` meanwhile."""
    with replaced(importlib.import_module(COMPILED), "max", builtins.max):
        yield


@patch("torch", replaces=("torch.SymInt.__sym_max__",), default=True)
def known_maxima() -> Iterator[None]:
    """``max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0)``, as TensorFlow pads, is never the 0: torch.export needs minutes for what follows."""
    with replaced(torch.SymInt, "__sym_max__", without_the_less(torch.SymInt.__sym_max__)):
        yield


def without_the_less(maximum: Callable) -> Callable:
    """*maximum* that is one of both numbers where it is known which one is."""

    @functools.wraps(maximum)
    def called(self: torch.SymInt, other: Any) -> Any:
        # strides are products of max(size, 1), which torch compares as they are written
        if type(other) is int and other != 1 and self.node.expr.is_Add:
            if least(self) >= other:
                known_maxima.used()
                return self
            if -least(-self) <= other:
                known_maxima.used()
                return other
        return maximum(self, other)

    return called


def least(number: torch.SymInt | int) -> Any:
    """A number that another one is never below, whatever the sizes of inputs: quotients among its terms are rounded by less than 1."""
    if isinstance(number, int):
        return number
    # a SymInt has loaded them, importing this file has not
    import sympy
    from torch.utils._sympy.functions import FloorDiv
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.symbol import SymT, symbol_is_type
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    expression = found = number.node.expr
    for _ in range(QUOTIENTS):
        terms = {
            term: factor
            for term, factor in found.as_coefficients_dict().items()
            if isinstance(term, FloorDiv) and term.args[1].is_Integer and term.args[1] > 0
        }
        if not terms:
            break
        # the outermost first: what is left of it may cancel those inside
        quotient = max(terms, key=lambda term: len(term.atoms(FloorDiv)))
        dividend, divisor = quotient.args
        rounded = divisor - 1 if terms[quotient] > 0 else 0
        found = sympy.expand(found + terms[quotient] * ((dividend - rounded) / divisor - quotient))
    if found.is_number:
        return sympy.ceiling(found)
    # torch takes sizes for at least 2, and for what its operators found in the example
    known = number.node.shape_env.var_to_range
    ranges = {
        symbol: ValueRanges(0, int_oo) if symbol_is_type(symbol, SymT.SIZE) else known[symbol]
        for symbol in expression.free_symbols
    }
    return bound_sympy(expression, ranges).lower
