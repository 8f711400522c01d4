"""Slices of one element that are filled: ``x[-1:] = 0`` writes nothing where there are no rows, and the model has one row then.

Source of semantics: the sizes of ``aten.slice``, which torch computes for axes of at least 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch

from experimental_experiment.torch_interpreter.errors import Source, source_line
from experimental_experiment.torch_interpreter.writes import FILLS, storage_of

aten = torch.ops.aten


def written_slices(module: torch.fx.GraphModule) -> Iterator[tuple[Any, sympy.Symbol, Source]]:
    """The ShapeEnv and the size of an axis that a slice of one element is filled of, and the line.

    Others are told with the size that they need. What is computed from the slice, or is another slice, has the elements that there are.
    """
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            slices = inner.graph.find_nodes(op="call_function", target=aten.slice.Tensor)
            for node in slices:
                size, length = (
                    x.meta["val"].shape[node.args[1] if len(node.args) > 1 else 0]
                    for x in (node.args[0], node)
                )
                source = source_line(node)
                is_known = isinstance(size, torch.SymInt) and isinstance(length, int) and length == 1
                if is_known and source is not None and size.node.expr.is_Symbol and is_filled(node):
                    yield size.node.shape_env, size.node.expr, source


def is_filled(node: torch.fx.Node) -> bool:
    """Whether a tensor, or a view of it, is given numbers or what is no slice."""
    storage = storage_of(node.meta["val"])
    views = [node]
    for view in views:
        for user in view.users:
            if user.op != "call_function":
                continue
            if user.target in (*FILLS, aten.copy_.default) and user.args[0] is view and not is_slice(user):
                return True
            if storage_of(user.meta.get("val")) == storage and user not in views:
                views.append(user)
    return False


def is_slice(write: torch.fx.Node) -> bool:
    """Whether a slice is copied, or what was computed in place, as ``x[-1:] += 1`` does."""
    source = write.args[1] if len(write.args) > 1 else None
    if not isinstance(source, torch.fx.Node):
        return False
    places = {storage_of(node.meta["val"]) for node in (write.args[0], source)}
    return source.target is aten.slice.Tensor or len(places) == 1
