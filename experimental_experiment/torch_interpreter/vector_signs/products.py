"""The signs of sums, products and powers, element by element and of matrices."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.vector_signs.factors import (
    ALL,
    NONE,
    Factors,
    Signs,
    SignsMatter,
    axis_of,
    expression,
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
    """f(-x) = -f(x)."""
    return flow.of(node.args[0])


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


def contracted(flow: Flow, operands: Sequence[tuple[Any, str]], result: str) -> Factors:
    """The factors of the sum of the products of elements that have the same letters.

    In a diagonal matrix both letters are one. Raises SignsMatter when the sum is over vectors whose signs do not cancel.
    """
    factors = []
    letters: dict[str, str] = {}
    for value, own in operands:
        factors.append(moved(flow.of(value), dict(enumerate(own))))
        if value in flow.diagonal:
            one, other = own[-2:]
            one, other = letters.get(one, one), letters.get(other, other)
            kept, gone = (one, other) if one in result else (other, one)
            letters = {letter: kept if now == gone else now for letter, now in letters.items()} | {gone: kept}
    whole = product(factors)
    whole = moved(whole, {letter: letters.get(letter, letter) for letter in string.ascii_letters})
    return moved(whole, {letter: axis for axis, letter in enumerate(result)})


def batched(flow: Flow, one: Any, other: Any, result: torch.fx.Node) -> Factors:
    """The factors of a product of matrices, or of vectors, with batches that are broadcast."""
    ranks = [len(shape_of(value)) for value in (one, other)]
    batch = string.ascii_lowercase[: max(0, max(ranks) - 2)]
    sizes = {axis: shape_of(result)[axis] for axis in range(len(batch))}
    for value, rank in zip((one, other), ranks):
        ahead = len(batch) - (rank - 2)
        repeated = {
            axis for axis in range(rank - 2) if not is_same(shape_of(value)[axis], sizes[axis + ahead])
        }
        if any(repeated.intersection(signs.places) for signs in flow.of(value)):
            raise SignsMatter
    first = (batch[len(batch) - ranks[0] + 2 :] + "X" if ranks[0] > 1 else "") + "Y"
    second = "Y" if ranks[1] == 1 else batch[len(batch) - ranks[1] + 2 :] + "YZ"
    outer = batch + ("X" if ranks[0] > 1 else "") + ("Z" if ranks[1] > 1 else "")
    return contracted(flow, [(one, first), (other, second)], outer)


@rule("matmul", "mm", "bmm", "mv", "dot", "linalg_matmul")
def matmul(flow, node, given):
    """A product of matrices or vectors."""
    return batched(flow, *node.args[:2], node)


@rule("outer", "ger")
def outer(flow, node, given):
    """The products of the elements of two vectors."""
    return contracted(flow, [(node.args[0], "X"), (node.args[1], "Y")], "XY")


@rule("linalg_multi_dot", "chain_matmul")
def multi_dot(flow, node, given):
    """A product of several matrices, of which the first and the last may be vectors."""
    (values,) = (given[name] for name in ("tensors", "matrices") if name in given)
    letters = string.ascii_letters
    operands = [(value, letters[place : place + 2]) for place, value in enumerate(values)]
    ranks = [len(shape_of(value)) for value in values]
    operands[0] = values[0], operands[0][1][2 - ranks[0] :]
    operands[-1] = values[-1], operands[-1][1][: ranks[-1]]
    ends = (letters[0] if ranks[0] > 1 else "") + (letters[len(values)] if ranks[-1] > 1 else "")
    return contracted(flow, operands, ends)


@rule("einsum")
def einsum(flow, node, given):
    """An equation without dots, with an arrow."""
    inputs, arrow, result = given["equation"].replace(" ", "").partition("->")
    if "." in inputs or not arrow or any(len({*own}) < len(own) for own in inputs.split(",")):
        raise SignsMatter
    return contracted(flow, list(zip(given["tensors"], inputs.split(","))), result)


@rule("linalg_cross", "cross")
def cross(flow, node, given):
    """Products of the elements of two tensors along an axis."""
    factors = product(aligned(flow, given[name], node) for name in ("self", "other"))
    dim = given["dim"]
    if dim is None or any(axis_of(node, dim) in signs.places for signs in factors):
        raise SignsMatter
    return factors


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
                frozenset((Signs((signs.vectors, signs.start, expression(size)), (*signs.places[:-1], ALL)),))
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
