"""The signs of sums, products and powers, element by element and of matrices."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.vector_signs.factors import (
    ALL,
    NONE,
    Factors,
    Signs,
    SignsMatter,
    axis_of,
    is_same,
    moved,
    product,
    shape_of,
    sum_of,
)
from experimental_experiment.torch_interpreter.vector_signs.flow import SAME, Flow, aligned, rule

# ---- element by element


@rule(*SAME, *"neg negative sign sgn sin tan asin atan sinh asinh tanh erf".split())
def odd(flow, node, given):
    """f(-x) = -f(x), but for what has no sign any more."""
    dtype = node.meta["val"].dtype
    if dtype.is_signed or dtype is torch.bool:
        return flow.of(node.args[0]) if dtype.is_signed else NONE
    raise SignsMatter


@rule("pow")
def power(flow, node, given):
    """A whole power, odd or even."""
    exponent = given["exponent"]
    if not isinstance(exponent, (int, float)) or exponent % 1:
        raise SignsMatter
    return flow.of(given["self"]) if exponent % 2 else NONE


@rule("mul", "multiply", "div", "divide", "true_divide")
def quotient_or_product(flow, node, given):
    """A sign is its own reciprocal."""
    if given.get("rounding_mode"):
        raise SignsMatter
    return product(aligned(flow, given[name], node) for name in ("self", "other"))


@rule("add", "sub", "subtract")
def sum_or_difference(flow, node, given):
    """All terms have the same signs."""
    return sum_of([aligned(flow, given[name], node) for name in ("self", "other")])


@rule("copy")
def copy(flow, node, given):
    """What is written."""
    return aligned(flow, given["src"], node)


@rule("zero")
def zero(flow, node, given):
    """Zero has any sign."""
    return flow.of(given["self"])


@rule("fill")
def fill(flow, node, given):
    """A number has no sign, but zero has any."""
    return flow.of(given["self"]) if given["value"] == 0 else NONE


@rule("where")
def where(flow, node, given):
    """Both have the same signs."""
    if flow.of(given["condition"]):
        raise SignsMatter
    return sum_of([aligned(flow, given[name], node) for name in ("self", "other") if given[name] != 0])


# ---- sums of products


DOTS = "".join(map(chr, range(ord("α"), ord("ω"))))
"""Letters for the axes that dots stand for in an equation, the last ones for the last axes."""


def spelled(letters: str, rank: int) -> str:
    """The letters of all axes of a tensor."""
    before, dots, after = letters.partition("...")
    return before + (DOTS[len(DOTS) - (rank - len(before) - len(after)) :] if dots else "") + after


def contracted(flow: Flow, node: torch.fx.Node, values: Sequence[Any], equation: str) -> Factors:
    """The factors of the sum of the products of elements that have the same letters, as in `torch.einsum`.

    In a diagonal matrix both letters are one. Raises SignsMatter when the sum is over vectors whose signs do not cancel, or repeats them.
    """
    inputs, _, output = equation.partition("->")
    operands = [(value, spelled(own, len(shape_of(value)))) for value, own in zip(values, inputs.split(","))]
    result = spelled(output, len(shape_of(node)))
    sizes = [pair for value, own in operands for pair in zip(own, shape_of(value))]
    largest = dict(zip(result, shape_of(node)))
    uneven = {letter for letter, size in sizes if not is_same(size, largest.setdefault(letter, size))}
    factors = []
    same: dict[str, str] = {}
    for value, own in operands:
        axes = zip(own, shape_of(value))
        whole = [
            letter not in uneven or (letter in result and is_same(size, largest[letter]))
            for letter, size in axes
        ]
        factors.append(
            moved(flow.of(value), {axis: own[axis] for axis, is_whole in enumerate(whole) if is_whole})
        )
        if value in flow.diagonal:
            one, other = (same.get(letter, letter) for letter in own[-2:])
            kept, gone = (one, other) if one in result else (other, one)
            same = {letter: kept if now == gone else now for letter, now in same.items()} | {gone: kept}
    found = moved(product(factors), {letter: same.get(letter, letter) for letter in largest})
    return moved(found, {letter: axis for axis, letter in enumerate(result)})


@rule("matmul", "mm", "bmm", "mv", "dot", "linalg_matmul")
def matmul(flow, node, given):
    """A product of matrices or vectors, with batches that are broadcast."""
    values = node.args[:2]
    are_matrices = [len(shape_of(value)) > 1 for value in values]
    first, second = (
        letters[not is_matrix] for letters, is_matrix in zip((("...xy", "y"), ("...yz", "y")), are_matrices)
    )
    ends = "".join(letter for letter, is_matrix in zip("xz", are_matrices) if is_matrix)
    dots = "..." if any(are_matrices) else ""
    return contracted(flow, node, values, f"{first},{second}->{dots}{ends}")


@rule("outer", "ger")
def outer(flow, node, given):
    """The products of the elements of two vectors."""
    return contracted(flow, node, node.args, "x,y->xy")


@rule("linalg_multi_dot", "chain_matmul")
def multi_dot(flow, node, given):
    """A product of several matrices, of which the first and the last may be vectors."""
    (values,) = node.args
    letters = string.ascii_letters[: len(values) + 1]
    inputs = [letters[place : place + 2] for place in range(len(values))]
    output = letters[0] + letters[-1]
    if len(shape_of(values[0])) == 1:
        inputs[0], output = inputs[0][1:], output[1:]
    if len(shape_of(values[-1])) == 1:
        inputs[-1], output = inputs[-1][:1], output[:-1]
    return contracted(flow, node, values, f"{','.join(inputs)}->{output}")


@rule("einsum")
def einsum(flow, node, given):
    """An equation with an arrow, without a diagonal."""
    equation = given["equation"].replace(" ", "")
    if "->" not in equation or any(
        len({*own} - {"."}) + own.count(".") < len(own) for own in equation.partition("->")[0].split(",")
    ):
        raise SignsMatter
    return contracted(flow, node, given["tensors"], equation)


@rule("linalg_cross", "cross")
def cross(flow, node, given):
    """Products of the elements of two tensors along an axis."""
    factors = [aligned(flow, given[name], node) for name in ("self", "other")]
    dim = given["dim"]
    if dim is None or any(axis_of(node, dim) in signs.places for found in factors for signs in found):
        raise SignsMatter
    return product(factors)


@rule("sum", "mean", "nansum")
def total(flow, node, given):
    """A sum over axes that are none of vectors or their batch."""
    value, axes = given["self"], given.get("dim")
    shape = shape_of(value)
    gone = {axis_of(value, axis) for axis in ([axes] if isinstance(axes, int) else axes or range(len(shape)))}
    kept = [axis for axis in range(len(shape)) if axis not in gone]
    keeps = given.get("keepdim")
    return moved(flow.of(value), {axis: axis if keeps else place for place, axis in enumerate(kept)})


@rule("diagonal")
def diagonal(flow, node, given):
    """The elements of which two axes have the same index, along a last axis."""
    value = given["self"]
    rank = len(shape_of(value))
    pair = [axis_of(value, given[name]) for name in ("dim1", "dim2")]
    if given["offset"]:
        raise SignsMatter
    kept = [axis for axis in range(rank) if axis not in pair]
    return moved(
        flow.of(value), {axis: place for place, axis in enumerate(kept)} | dict.fromkeys(pair, rank - 2)
    )


@rule("trace")
def trace(flow, node, given):
    """The sum of the diagonal."""
    return moved(moved(flow.of(given["self"]), {0: 0, 1: 0}), {})


@rule("det", "linalg_det")
def determinant(flow, node, given):
    """All signs of the vectors, once."""
    value = node.args[0]
    rank = len(shape_of(value))
    ends, size = (rank - 1, rank - 2), shape_of(value)[-1]
    factors = []
    for signs in flow.of(value):
        if signs.places[-1] in ends and not {*signs.places[:-1]}.intersection(ends):
            factors.append(
                frozenset(
                    (Signs((signs.vectors, signs.start, expression_of(size)), (*signs.places[:-1], ALL)),)
                )
            )
        elif {*signs.places}.intersection(ends) or not isinstance(size, int):
            raise SignsMatter
        elif size % 2:
            factors.append(frozenset((signs,)))
    return product(factors)


@rule("slogdet", "linalg_slogdet")
def slogdet(flow, node, given):
    """The sign of a determinant, and its logarithm, which has none."""
    return [determinant(flow, node, given), NONE]


@rule("inverse", "linalg_inv")
def inverse(flow, node, given):
    """Columns with signs become rows with signs."""
    value = node.args[0]
    rank = len(shape_of(value))
    places = {axis: axis for axis in range(rank - 2)} | {rank - 1: rank - 2, rank - 2: rank - 1}
    return moved(flow.of(value), places)
