"""Who gives a value, and with which attributes: nodes of ONNX. A local function or a custom operator may have the name of one, and is another."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir


def is_of(node: ir.Node | None, *operators: str) -> bool:
    """Whether a node is one of these operators of ONNX."""
    return node is not None and node.op_type in operators and not node.domain


def producer_of(value: ir.Value | None, *operators: str) -> ir.Node | None:
    """The node of ONNX that gives a value, where *operators* are named one of these; None of any other one."""
    node = None if value is None else value.producer()
    if node is None or node.domain or (operators and node.op_type not in operators):
        return None
    return node


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """The values of the attributes of a node by name, in a dict of their own: it may be changed."""
    return {name: attribute.value for name, attribute in node.attributes.items()}
