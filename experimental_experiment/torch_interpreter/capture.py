"""From what the user gives to a program: the call of torch.export and the kinds of models."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.emitter import logger
from experimental_experiment.torch_interpreter.export_options import ExportOptions, stage
from experimental_experiment.torch_interpreter.signature import (
    Program,
    program_of,
    program_of_graph_module,
    recorded_dims,
    refuse_ambiguous_names,
    symbol_of,
    user_dims,
    user_placeholders,
)
from experimental_experiment.torch_interpreter.storage import mutated_storages, storage_of, written_nodes


class FunctionModule(torch.nn.Module):
    """A function without a signature as a module: ``torch.sin``."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def capture(
    mod: Any, args: Any, kwargs: dict[str, Any], dynamic_shapes: Any, options: ExportOptions
) -> Program:
    """The program to translate.

    Raises:
        TypeError: *mod* is nothing that can be exported, or *args* is not a tuple.
        ValueError: *dynamic_shapes* asks of a program what it does not have, or one name for two sizes.
        CaptureError: torch.export refused the model.
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is a tuple of arguments, not {type(args).__name__}")
    if isinstance(mod, torch.export.ExportedProgram):
        program = options.decomposed(mod)
        restore_storages(program)
        return program_of(program, dims_of_program(program, dynamic_shapes))
    if isinstance(mod, torch.fx.GraphModule) and carries_values(mod) and not args and not kwargs:
        if dynamic_shapes is not None:
            raise ValueError("dynamic_shapes: the dimensions of a GraphModule are those of its fake values")
        return program_of_graph_module(mod)
    if isinstance(mod, torch.nn.Module):
        module = mod
    elif callable(mod):
        module = function_module(mod)
    else:
        raise TypeError(
            f"an nn.Module, a function, an ExportedProgram or a GraphModule can be exported, not {type(mod).__name__}"
        )
    with stage("torch.export.export"):
        shapes, dims, has_small_sizes = user_dims(module, tuple(args), kwargs, dynamic_shapes)
    refuse_ambiguous_names(pytree.tree_leaves((tuple(args), kwargs)), dims)
    exported = options.capture(module, tuple(args), kwargs, shapes, has_small_sizes)
    warn_about_pinned_sizes(exported)
    return program_of(exported, in_order_of_placeholders(exported, args, kwargs, dims))


def dims_of_program(program: torch.export.ExportedProgram, dynamic_shapes: Any) -> list[dict]:
    """Names of the dimensions of a given program: those of *dynamic_shapes*, or those it was exported with.

    Raises ValueError when *dynamic_shapes* does not fit the program: it names dimensions, it cannot make them dynamic.
    """
    if dynamic_shapes is None:
        return recorded_dims(program)
    if program.example_inputs is None:
        raise ValueError("dynamic_shapes cannot be read: the ExportedProgram has no example inputs")
    args, kwargs = program.example_inputs
    with stage("reading dynamic_shapes"):
        _, dims, _ = user_dims(program.module(check_guards=False), args, kwargs, dynamic_shapes)
    refuse_ambiguous_names(pytree.tree_leaves((args, kwargs)), dims)
    dims = in_order_of_placeholders(program, args, kwargs, dims)
    for node, names in zip(user_placeholders(program), dims):
        for axis, name in names.items():
            if symbol_of(node.meta.get("val"), axis) is None:
                raise ValueError(
                    f"dynamic_shapes names axis {axis} of {node.name} {name!r}, but it is static in the ExportedProgram"
                )
    return dims


def function_module(function: Callable) -> torch.nn.Module:
    """A module whose forward is *function*, with its parameters by name."""
    module = FunctionModule(function)
    if has_signature(function):
        module.forward = called_forward(function)
    return module


def has_signature(function: Callable) -> bool:
    """Whether the parameters of a function have names: those of ``torch.sin`` do not."""
    try:
        inspect.signature(function)
    except ValueError:
        return False
    return True


def called_forward(function: Callable) -> Callable:
    """*function* under the name ``forward``: torch.export keeps the lines of no other function, and errors cite them."""
    if isinstance(function, types.MethodType):
        return types.MethodType(called_forward(function.__func__), function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    copied = types.FunctionType(
        code, function.__globals__, "forward", function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copied, function)


def carries_values(module: torch.fx.GraphModule) -> bool:
    """Whether the nodes of a GraphModule know their fake values."""
    return all("val" in node.meta for node in module.graph.find_nodes(op="placeholder"))


def warn_about_pinned_sizes(exported: torch.export.ExportedProgram) -> None:
    """Log the conditions of the example that torch.export kept on expressions of sizes called dynamic.

    A branch of the model on ``height // 16 * (width // 16) == 196`` leaves that equality: other sizes meet a program
    that was not traced for them. Divisibility is not reported: the model itself asks for it. Nor is a single size: it
    is static in the types of the model.
    """
    guards = getattr(exported, "_guards_code", None) or []
    pinned = [
        re.sub(r"L\['(\w+)'\]", r"\1", guard) for guard in guards if re.search(r"[^=!<>]== \d+$", guard)
    ]
    pinned = [guard for guard in pinned if "%" not in guard and guard.count(" ") > 2]
    if pinned:
        logger.warning(
            "the model is right only for sizes where %s: torch.export kept it of the example",
            " and ".join(pinned),
        )


def in_order_of_placeholders(
    exported: torch.export.ExportedProgram, args: Any, kwargs: dict[str, Any], dims: list[dict]
) -> list[dict]:
    """The names of dimensions in the order of the placeholders: torch.export may have reordered the keyword arguments."""
    if not dims or not kwargs:
        return dims
    order = exported.call_spec.in_spec.child(1).context
    counts = {name: len(pytree.tree_leaves(value)) for name, value in kwargs.items()}
    start = len(pytree.tree_leaves(tuple(args)))
    starts = {}
    for name, count in counts.items():
        starts[name] = start
        start += count
    positional = dims[: len(pytree.tree_leaves(tuple(args)))]
    return positional + [
        entry for name in order for entry in dims[starts[name] : starts[name] + counts[name]]
    ]


def restore_storages(program: torch.export.ExportedProgram) -> None:
    """Run the fake tensors through a program loaded from disk again: its views no longer share their storages.

    Only for a program that writes tensors; the others do not need it.
    """
    module = program.graph_module
    if not mutated_storages(module.graph) or not lost_storages(module.graph):
        return
    values = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    mode = next(
        (value.fake_mode for value in values if isinstance(value, torch._subclasses.FakeTensor)), None
    ) or FakeTensorMode(allow_non_fake_inputs=True)
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*copy.copy(values))


ALWAYS_VIEWS = frozenset(
    {
        torch.ops.aten.expand.default,
        torch.ops.aten.permute.default,
        torch.ops.aten.select.int,
        torch.ops.aten.slice.Tensor,
        torch.ops.aten.t.default,
        torch.ops.aten.transpose.int,
        torch.ops.aten.unsqueeze.default,
        torch.ops.aten.view.default,
    }
)
"""Operators whose result always shares the storage of their first argument."""


def lost_storages(graph: torch.fx.Graph) -> bool:
    """Whether the result of a view or of a write no longer shares the storage of its argument."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        shared = written_nodes(node) if registry.written_arguments(node.target) else []
        if node.target in ALWAYS_VIEWS:
            shared = [node.args[0]]
        if shared and storage_of(value) not in [storage_of(argument.meta.get("val")) for argument in shared]:
            return True
    return False
