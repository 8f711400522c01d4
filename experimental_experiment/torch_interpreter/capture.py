"""From what the user gives to a program: the call of torch.export and the kinds of models."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.export_options import ExportOptions, stage
from experimental_experiment.torch_interpreter.signature import (
    Program,
    program_of,
    program_of_graph_module,
    user_dims,
)
from experimental_experiment.torch_interpreter.storage import mutated_storages, storage_of


class FunctionModule(torch.nn.Module):
    """A plain function as a module: same call, same signature."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function
        self.__signature__ = inspect.signature(function)

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def capture(
    mod: Any, args: Any, kwargs: dict[str, Any], dynamic_shapes: Any, options: ExportOptions
) -> Program:
    """The program to translate.

    Raises:
        TypeError: *mod* is nothing that can be exported, or *args* is not a tuple.
        CaptureError: torch.export refused the model.
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is a tuple of arguments, not {type(args).__name__}")
    if isinstance(mod, torch.export.ExportedProgram):
        program = options.decomposed(mod)
        restore_storages(program)
        return program_of(program)
    if isinstance(mod, torch.fx.GraphModule) and carries_values(mod) and not args and not kwargs:
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
    exported = options.capture(module, tuple(args), kwargs, shapes, has_small_sizes)
    return program_of(exported, in_order_of_placeholders(exported, args, kwargs, dims))


def function_module(function: Callable) -> torch.nn.Module:
    """A module whose forward is *function*, with its parameters by name."""
    module = FunctionModule(function)
    module.forward = function
    return module


def carries_values(module: torch.fx.GraphModule) -> bool:
    """Whether the nodes of a GraphModule know their fake values."""
    return all("val" in node.meta for node in module.graph.find_nodes(op="placeholder"))


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


def lost_storages(graph: torch.fx.Graph) -> bool:
    """Whether an in-place operator no longer shares the storage of what it writes."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if (
            schema is None
            or not schema.is_mutable
            or not node.args
            or not isinstance(node.meta.get("val"), torch.Tensor)
        ):
            continue
        written = node.args[0]
        if isinstance(written, torch.fx.Node) and schema.arguments[0].alias_info is not None:
            if storage_of(written.meta.get("val")) != storage_of(node.meta["val"]):
                return True
    return False
