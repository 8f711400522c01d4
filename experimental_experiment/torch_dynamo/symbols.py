"""Sizes as functions of the inputs of a graph, computed in Python at each call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._sympy.printers import PythonPrinter

from experimental_experiment.torch_dynamo.interface import TENSOR, Entry
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.signature import symbol_of

NAMES = {"math": math, "torch": torch}
"""The modules that torch's code of expressions names."""


def evaluation(node: torch.fx.Node, sizes: Sequence[Any], inputs: Sequence[Entry], form: str) -> Callable:
    """A function that computes sizes from the inputs of the graph, the expressions of torch as Python code."""
    places = places_of_symbols(inputs)
    texts = []
    for size in sizes:
        if isinstance(size, (torch.SymInt, torch.SymFloat)):
            expression = size.node.expr
            unknown = expression.free_symbols - set(places)
            if unknown:
                raise ExportError(f"the inputs do not decide the size {expression} of a random tensor", node)
            texts.append(PythonPrinter().doprint(expression))
        else:
            texts.append(repr(size))
    names, read = (", ".join(map(str, part)) for part in (places, places.values()))
    return eval(f"lambda args: (lambda {names}: {form.format(', '.join(texts))})({read})", dict(NAMES))


def places_of_symbols(inputs: Sequence[Entry]) -> dict[Any, str]:
    """Where each symbol is read in ``args``, the inputs of the graph."""
    places: dict[Any, str] = {}
    for position, entry in enumerate(inputs):
        for axis in range(entry.fake.dim()) if entry.kind == TENSOR else [None]:
            symbol = symbol_of(entry.fake, axis)
            if symbol is not None:
                text = f"args[{position}]" if axis is None else f"args[{position}].shape[{axis}]"
                places.setdefault(symbol, text)
    return places
