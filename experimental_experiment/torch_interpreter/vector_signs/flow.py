"""The signs of what a program computes, node by node, and its diagonal matrices; the rules of operators stand in `axes` and `products`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.vector_signs.factors import (
    NONE,
    Arguments,
    Factors,
    SignsMatter,
    axis_of,
    is_same,
    moved,
    same_sizes,
    shape_of,
)

Rule = Callable[["Flow", torch.fx.Node, Arguments], Any]

RULES: dict[str, Rule] = {}
"""How the signs of results follow from those of arguments, by the names of operators."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Have a function tell the signs of the results of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


SAME = frozenset(
    "alias clone contiguous detach lift lift_fresh lift_fresh_copy positive to _to_copy type_as".split()
)
"""Operators whose result has the elements of their input."""

UNSIGNED = frozenset(
    """
    abs square cos cosh linalg_vector_norm norm frobenius_norm sym_size sym_numel sym_stride
    _assert_tensor_metadata empty_like full_like ones_like zeros_like rand_like randn_like new_empty new_full new_ones new_zeros
    """.split()
)
"""Operators whose result does not depend on signs."""


class Flow:
    """The signs of what a program computes, node by node.

    Attributes:
        factors: of the results that have signs; for several results a list.
        diagonal: the matrices whose elements beside the diagonal are zero.
        roots: what views share their memory with.
        rows: views that are one row of matrices, with its index.
        elements: views of elements of a diagonal.
    """

    def __init__(self) -> None:
        self.factors: dict[torch.fx.Node, Any] = {}
        self.diagonal: set[torch.fx.Node] = set()
        self.roots: dict[torch.fx.Node, torch.fx.Node] = {}
        self.rows: dict[torch.fx.Node, int] = {}
        self.elements: set[torch.fx.Node] = set()

    def of(self, value: Any) -> Factors:
        """The factors of an argument. Raises SignsMatter for several results that have some."""
        found = self.factors.get(value, NONE) if isinstance(value, torch.fx.Node) else NONE
        if isinstance(found, list):
            raise SignsMatter
        return found

    def follow(self, node: torch.fx.Node) -> None:
        """What is known of one more node. Raises SignsMatter when its result is not the same up to signs for other signs."""
        if node.target is operator.getitem:
            found = self.factors.get(node.args[0])
            factors = found[node.args[1]] if isinstance(found, list) else self.of(node.args[0])
            if factors:
                self.factors[node] = factors
            if node.args[0] in self.roots:  # one of several views
                self.roots[node] = self.roots[node.args[0]]
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            if any(self.factors.get(value) for value in node.all_input_nodes):
                raise SignsMatter
            return
        schema = node.target._schema
        name = schema.name.removeprefix("aten::")
        given = {known.name: known.default_value for known in schema.arguments}
        given.update(zip(given, node.args))
        given.update(node.kwargs)
        targets = [
            given[known.name] for known in schema.arguments if known.alias_info and known.alias_info.is_write
        ]
        written = [
            item for value in targets for item in (value if isinstance(value, (list, tuple)) else (value,))
        ]
        if written:
            self.write(node, name.removesuffix("_"), written)
        elif any(returned.alias_info for returned in schema.returns) and node.all_input_nodes:
            self.roots[node] = self.root_of(node.all_input_nodes[0])
            self.look_at_view(node, name, given)
        if is_diagonal(self, node, name, given):
            self.diagonal.add(node)
        if any(self.factors.get(value) for value in node.all_input_nodes):
            factors = self.result(node, name.removesuffix("_") if written else name, given)
            for target in written:
                if factors != self.of(target):
                    if not self.is_alone(target, node):
                        raise SignsMatter
                    self.factors[target] = factors
            if factors:
                self.factors[node] = factors

    def result(self, node: torch.fx.Node, name: str, given: Arguments) -> Any:
        """The factors of what an operator gives."""
        if name in UNSIGNED:
            return NONE
        known = RULES.get(name)
        if known is None:
            raise SignsMatter
        return known(self, node, given)

    def root_of(self, node: torch.fx.Node) -> torch.fx.Node:
        """What has the memory of a node."""
        return self.roots.get(node, node)

    def is_alone(self, target: torch.fx.Node, writer: torch.fx.Node) -> bool:
        """Whether no other node sees what is written to *target*: no view of it, none that it is of, and no caller."""
        others = [view for view, root in self.roots.items() if target in (view, root) and view is not writer]
        return target.op == "call_function" and not others

    def look_at_view(self, node: torch.fx.Node, name: str, given: Arguments) -> None:
        """Whether a view is a row of matrices, or a part of their diagonal."""
        source = node.all_input_nodes[0]
        rank = len(shape_of(source))
        ends = rank - 2, rank - 1
        if source in self.elements:
            self.elements.add(node)
        elif source not in self.rows and source not in self.diagonal:
            return  # a part of matrices counts its rows from elsewhere
        elif name == "diagonal" and (axis_of(source, given["dim1"]), axis_of(source, given["dim2"])) == ends:
            self.elements.update(() if given["offset"] else (node,))
        elif name == "slice" and source in self.rows and same_sizes(shape_of(source), shape_of(node)):
            self.rows[node] = self.rows[source]
        elif name == "select" and axis_of(source, given["dim"]) == ends[source in self.rows]:
            if source not in self.rows:
                self.rows[node] = given["index"]
            elif self.rows[source] == given["index"]:
                self.elements.add(node)

    def write(self, node: torch.fx.Node, name: str, targets: Sequence[Any]) -> None:
        """Matrices that are written are diagonal no more, but those that are multiplied, and those that get other elements of their diagonal."""
        for target in targets:
            self.roots[node] = root = self.root_of(target)
            if target not in self.elements and not (name in ("mul", "div") and target in self.diagonal):
                self.diagonal = {other for other in self.diagonal if self.root_of(other) is not root}


# ---- diagonal matrices

MATRIX_TRANSPOSES = frozenset("t numpy_T mT mH adjoint matrix_H".split())

MADE_DIAGONAL = frozenset("eye zeros zeros_like new_zeros".split())
"""Operators that give zeros, but for a diagonal."""

KEPT_DIAGONAL = frozenset("div expand neg repeat slice unsqueeze".split()) | SAME
"""Operators whose first argument keeps its zeros, where its matrices keep their places."""


def is_diagonal(flow: Flow, node: torch.fx.Node, name: str, given: Arguments) -> bool:
    """Whether a result is matrices with zeros beside their diagonal."""
    values = [value for value in given.values() if isinstance(value, torch.fx.Node)]
    rank = len(shape_of(node))
    if name in MADE_DIAGONAL:
        return rank > 1
    if name in ("diag", "diag_embed"):
        is_main = not (given.get("diagonal") or given.get("offset"))
        is_last = (given.get("dim1", -2), given.get("dim2", -1)) == (-2, -1)
        return len(shape_of(values[0])) < rank and is_main and is_last
    known = [value in flow.diagonal and keeps_matrices(value, node) for value in values]
    if name in ("matmul", "mm", "bmm", "add", "sub"):
        return len(known) > 1 and all(known)
    if name == "mul":
        return any(known)
    if name == "unsqueeze" and given["dim"] % rank >= rank - 2:
        return False
    return known[:1] == [True] and (name in KEPT_DIAGONAL or name in MATRIX_TRANSPOSES)


def keeps_matrices(value: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether matrices have the sizes of others."""
    return same_sizes(shape_of(value)[-2:], shape_of(node)[-2:])


def aligned(flow: Flow, value: Any, node: torch.fx.Node) -> Factors:
    """The factors of an operand along the axes of a result, which it is broadcast to. Raises SignsMatter when vectors are repeated."""
    shape, target = shape_of(value), shape_of(node)
    ahead = len(target) - len(shape)
    return moved(
        flow.of(value),
        {axis: axis + ahead for axis, size in enumerate(shape) if is_same(size, target[axis + ahead])},
    )
