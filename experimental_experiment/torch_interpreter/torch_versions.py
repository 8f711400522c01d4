"""What other versions of torch, from 2.9 to 2.15, lack or spell otherwise."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from experimental_experiment.versions import numbers


def installed(*names: str) -> list[torch._ops.OpOverload]:
    """The overloads of ATen of these names, as ``"_scaled_mm_v2.default"``, without those that the installed torch lacks."""
    found = []
    for name in names:
        packet, _, overload = name.partition(".")
        operator = getattr(torch.ops.aten, packet, None)
        if operator is not None and overload in operator.overloads():
            found.append(getattr(operator, overload))
    return found


def source_name(source: Any) -> str:
    """The name of a ``torch._guards.Source``, ``L['x'].size()[0]``: an attribute, before torch 2.10 a method."""
    name = source.name
    return name() if callable(name) else name


def keywords_in(spec: pytree.TreeSpec) -> list[str]:
    """The names of the keyword arguments of a call, in order, from the TreeSpec of its arguments: ``child`` is younger than torch 2.9."""
    return (spec.child(1) if hasattr(spec, "child") else spec.children_specs[1]).context


def compilers_of_bodies() -> tuple[str, ...]:
    """The functions by which scan and map have their bodies compiled: in torch 2.9 each module holds an older one."""
    rooms = "torch._higher_order_ops."
    if hasattr(importlib.import_module(f"{rooms}utils"), "_hop_compile_and_call"):
        return (f"{rooms}utils._hop_compile_and_call",)
    return tuple(f"{rooms}{room}._maybe_compile_and_run_fn" for room in ("utils", "scan", "associative_scan"))


def given_translator(given: Sequence[Any]) -> Any:
    """The translator that TorchDynamo gives a method of its variables; torch 2.9 lets some ask for it."""
    if given:
        return given[0]
    return importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslator.current_tx()


def follows_tensors_that_select() -> bool:
    """Whether torch.export reads ``x[i]`` and ``x[i, :j]`` at tensors of one number by itself, as from torch 2.13 on."""
    return numbers(torch.__version__) >= numbers("2.13")


def states_of_lstm_have_an_axis_too_many() -> bool:
    """Whether the fake tensors of an LSTM's last states are of rank 4, as torch says before 2.13 where oneDNN computes it."""
    return numbers(torch.__version__) < numbers("2.13")


def scans_forget_gradients_of_rows() -> bool:
    """Whether a carry of a scan has no gradient where what it starts from has none, as in torch 2.9: it is 0 then, for the rows too."""
    return numbers(torch.__version__) < numbers("2.13")


@functools.cache
def factors_of_solve_are_transposed() -> bool:
    """Whether ``_linalg_solve_ex`` gives the factors of the transpose of a matrix that lies row after row, as torch 2.9 does."""
    matrix = torch.tensor([[1.0, 2.0], [0.5, 3.0]])
    _, factors, *_ = torch.ops.aten._linalg_solve_ex.default(matrix, torch.ones(2))
    return not torch.equal(factors, torch.linalg.lu_factor(matrix)[0])


@functools.cache
def float8_saturates() -> bool:
    """Whether a number beyond those of float8 E4M3FN becomes the largest one; before torch 2.13 it becomes NaN."""
    return bool(torch.tensor(1e6).to(torch.float8_e4m3fn).float().isfinite())
