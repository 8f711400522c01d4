"""Transpositions."""

from __future__ import annotations

from experimental_experiment.xoptim.pattern import P, attribute_of, var
from experimental_experiment.xoptim.rules import no, rule

x = var("x")


def perm(node) -> list[int] | None:
    """The permutation of a Transpose, None when the rank is not known."""
    given = attribute_of(node, "perm")
    if given is None and node.inputs[0].shape is not None:
        return list(reversed(range(len(node.inputs[0].shape))))
    return given


@rule(P.Transpose(P.Transpose(x, name="inner", shared=True), name="outer"), set="default")
def transpose_transpose(op, x, inner, outer):
    """Transpose(Transpose(x, p), q) is Transpose(x, p[q]), or x when p[q] changes nothing."""
    first, second = perm(inner), perm(outer)
    if first is None or second is None:
        return no("the rank is unknown")
    both = [first[axis] for axis in second]
    return x if both == sorted(both) else op.Transpose(x, perm=both)


@rule(P.Transpose(x, name="root_node"), set="default")
def transpose_nothing(op, x, root_node):
    """A permutation that moves nothing is its input."""
    moved = perm(root_node)
    return x if moved is not None and moved == sorted(moved) else None
