"""Random operators to which onnxruntime gives the same numbers: it seeds each by its place among the nodes of its graph."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from experimental_experiment.logs import logger

SEEDED = frozenset(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
"""Operators that draw numbers."""

Draw = tuple[ir.Node, int, ir.Node]
"""The If, the Loop or the Scan in whose body a random operator stands, the place there, and the operator."""


def warn_of_equal_draws(graph: ir.Graph) -> None:
    """Warn, once, of random operators in the bodies of two nodes that draw the same numbers, as equal bodies do.

    Measured with onnxruntime 1.31: the noise of two ``torch.map`` of the same body is the same, in each run. The branches of one
    If are not told: one of them runs.
    """
    known: dict[tuple[str, int], Draw] = {}
    for draw in draws_in_bodies(graph):
        holder, place, node = draw
        first = known.setdefault((node.op_type, place), draw)
        if first[0] is not holder:
            logger.warning(
                "onnxruntime draws the same numbers for %r and %r, which have one place in two bodies: draw them before the %s, and give it them",
                first[2].name,
                node.name,
                holder.op_type,
            )
            return


def draws_in_bodies(graph: ir.Graph) -> Iterator[Draw]:
    """The random operators in the bodies of a graph, those of bodies in bodies too."""
    for holder in graph:
        for attribute in holder.attributes.data.values():
            if attribute.type is ir.AttributeType.GRAPH:
                for place, node in enumerate(attribute.value):
                    if node.op_type in SEEDED and "seed" not in node.attributes:
                        yield holder, place, node
                yield from draws_in_bodies(attribute.value)
