"""Sizes that the data decide and that are one: how many elements of the same mask are true, where the model computes it twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch

from experimental_experiment.torch_interpreter.writes import mutated_storages, storages

aten = torch.ops.aten

STEPS = 50
"""Masks that more operators compute are not compared."""


def leave_out_same_counts(module: torch.fx.GraphModule, repeated: dict[sympy.Basic, Any]) -> None:
    """Leave out of the equations of sizes those between the numbers of true elements of masks that are computed alike.

    ``x[x > 0] * y[x > 0]`` has two, of which torch asserts that they are equal.
    """
    masks = {symbol: mask for symbol, mask in counted(module.graph)} if repeated else {}
    written = mutated_storages(module.graph) if masks else set()
    for equation in list(repeated):
        pair = [masks.get(side) for side in equation.args]
        if None not in pair and are_alike(*pair, written):
            del repeated[equation]


def counted(graph: torch.fx.Graph) -> Iterator[tuple[sympy.Symbol, torch.fx.Node]]:
    """Each size that is the number of true elements of a mask, and the mask."""
    for node in graph.nodes:
        symbols = node.meta.get("unbacked_bindings") or {}
        if len(symbols) != 1:
            continue
        if node.target is aten.nonzero.default:
            yield *symbols, node.args[0]
        if node.target is aten.index.Tensor:
            indices = [index for index in node.args[1] if index is not None]
            if len(indices) == 1 and indices[0].meta["val"].dtype is torch.bool:
                yield *symbols, indices[0]


def are_alike(left: torch.fx.Node, right: torch.fx.Node, written: set[int]) -> bool:
    """Whether two nodes are computed by the same operators of the same nodes, of which nothing is *written*: the storages that are."""
    open_pairs: list[tuple[Any, Any]] = [(left, right)]
    for _ in range(STEPS):
        if not open_pairs:
            return True
        one, other = open_pairs.pop()
        if not isinstance(one, torch.fx.Node) or not isinstance(other, torch.fx.Node):
            if type(one) is not type(other) or one != other:
                return False
            continue
        if not written.isdisjoint(storages(one.meta.get("val")) + storages(other.meta.get("val"))):
            return False
        if one is other:
            continue
        is_operator = isinstance(one.target, torch._ops.OpOverload) and one.target is other.target
        if not is_operator or torch.Tag.nondeterministic_seeded in one.target.tags:
            return False
        (given, spec), (others, other_spec) = (
            torch.utils._pytree.tree_flatten((node.args, node.kwargs)) for node in (one, other)
        )
        if spec != other_spec:
            return False
        open_pairs += zip(given, others)
    return False
