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

    A module: ``{name, kind, count, items}``; a node: ``[operator, results, type]``; what comes again and again:
    ``{times, kind, first, last, count, items}`` with all of it among the items, and the nodes of one time counted.
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


LONGEST = 4
"""Items of a sequence that is looked for again and again: a layer and what stands behind it."""


def folded(items: list[Any], shapes: list[tuple]) -> list[Any]:
    """Sequences of modules and nodes that come three times or more, one behind the other, as one item."""
    result: list[Any] = []
    start = 0
    while start < len(items):
        length, times = repeated(items, shapes, start)
        end = start + length * times
        if times >= 3:
            first, last = items[start], items[end - length]
            count = sum(
                item["count"] if isinstance(item, dict) else 1 for item in items[start : start + length]
            )
            names = {"kind": first["kind"], "first": first["name"], "last": last["name"], "count": count}
            result.append({"times": times, "items": items[start:end], **names})
        else:
            end = start + 1
            result.append(items[start])
        start = end
    return result


def repeated(items: list[Any], shapes: list[tuple], start: int) -> tuple[int, int]:
    """Length of the sequence that begins with the module at *start*, and how often it comes in a row."""
    if not isinstance(items[start], dict):
        return 1, 1
    for length in range(1, LONGEST + 1):
        pattern, times = shapes[start : start + length], 1
        while shapes[start + times * length : start + (times + 1) * length] == pattern:
            times += 1
        if times >= 3:
            return length, times
    return 1, 1


def node_text(node: ir.Node) -> list[str]:
    """Operator, results and type of a node."""
    results = ", ".join(item.name for item in node.outputs if item.name)
    return [node.op_type, results, type_in_brief(node.outputs[0]) if node.outputs else ""]


def type_in_brief(value: ir.Value) -> str:
    """``float32[batch, 3]``, ``""`` for a value of unknown dtype."""
    if value.dtype is None:
        return ""
    shape = "" if value.shape is None else f"[{', '.join(str(size) for size in value.shape)}]"
    name = value.dtype.name.lower() if value.dtype == ir.DataType.STRING else value.dtype.numpy().name
    return f"{name}{shape}"
