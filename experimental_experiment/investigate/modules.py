"""The nodes of a model as the tree of modules that they come from; equal neighbours folded."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

NAMESPACE = "namespace"


@dataclasses.dataclass
class Scope:
    """One module: ``items`` are its nodes and the scopes in it, in order."""

    name: str
    kind: str
    items: list[Any] = dataclasses.field(default_factory=list)
    scopes: dict[str, Scope] = dataclasses.field(default_factory=dict)

    def inside(self, level: str) -> Scope:
        """The scope of a level of a namespace, ``"layers.0: package.Layer"``."""
        if level not in self.scopes:
            name, _, kind = level.partition(": ")
            self.scopes[level] = Scope(name, kind.rpartition(".")[2])
            self.items.append(self.scopes[level])
        return self.scopes[level]


def module_tree(model: ir.Model) -> dict[str, Any]:
    """The tree of modules as plain values.

    A module: ``{name, kind, count, items}``; a node: ``[operator, results, type]``; equal neighbours: ``{times, items}`` with all of
    them among the items.
    """
    root = Scope("", model.graph.name or "model")
    for node in model.graph:
        levels = node.metadata_props.get(NAMESPACE, "").split("/")[:-1]
        scope = root
        for level in levels:
            if not level.startswith(": "):  # the model itself
                scope = scope.inside(level)
        scope.items.append(node)
    return plain(root)[0]


def plain(scope: Scope) -> tuple[dict[str, Any], tuple]:
    """A scope as plain values, and what equal scopes have in common."""
    items: list[Any] = []
    shapes: list[tuple] = []
    count = 0
    for item in scope.items:
        if isinstance(item, Scope):
            value, shape = plain(item)
            count += value["count"]
        else:
            value, shape = node_text(item), (item.op_type,)
            count += 1
        items.append(value)
        shapes.append(shape)
    told = {"name": scope.name, "kind": scope.kind, "count": count, "items": folded(items, shapes)}
    return told, (scope.kind, *shapes)


def folded(items: list[Any], shapes: list[tuple]) -> list[Any]:
    """Neighbouring modules of one shape as one item, when there are three of them or more."""
    result: list[Any] = []
    start = 0
    while start < len(items):
        end = start + 1
        while end < len(items) and isinstance(items[start], dict) and shapes[end] == shapes[start]:
            end += 1
        if end - start >= 3:
            result.append({"times": end - start, "items": items[start:end]})
        else:
            result += items[start:end]
        start = end
    return result


def node_text(node: ir.Node) -> list[str]:
    """Operator, results and type of a node."""
    value = node.outputs[0] if node.outputs else None
    shape = (
        "" if value is None or value.shape is None else f"[{', '.join(str(size) for size in value.shape)}]"
    )
    kind = "" if value is None or value.dtype is None else value.dtype.name.lower()
    return [node.op_type, ", ".join(item.name for item in node.outputs if item.name), f"{kind}{shape}"]
