"""The signs of results that have the elements of their arguments in other places: transposed, parted, joined, in another order."""

from __future__ import annotations

import dataclasses

from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.vector_signs.factors import (
    ALL,
    Signs,
    SignsMatter,
    at,
    axis_of,
    is_same,
    moved,
    product,
    shape_of,
    sum_of,
)
from experimental_experiment.torch_interpreter.vector_signs.flow import MATRIX_TRANSPOSES, aligned, rule

ANY_STOP = 2**31
"""Slices to here or further end with their axis."""


@rule(*MATRIX_TRANSPOSES)
def last_two(flow, node, given):
    """The last two axes change their places; ``x.T`` of any rank reverses all."""
    value = node.args[0]
    rank = len(shape_of(value))
    axes = list(range(rank))
    axes = axes[::-1] if "numpy_T" in str(node.target) or rank < 2 else [*axes[:-2], rank - 1, rank - 2]
    return moved(flow.of(value), {axis: place for place, axis in enumerate(axes)})


@rule("transpose", "swapaxes", "swapdims")
def transpose(flow, node, given):
    """Two axes change their places."""
    value, *axes = given.values()
    one, other = (axis_of(value, axis) for axis in axes)
    places = {axis: axis for axis in range(len(shape_of(value)))}
    return moved(flow.of(value), places | {one: other, other: one})


@rule("permute")
def permute(flow, node, given):
    """All axes change their places."""
    value = given["self"]
    return moved(flow.of(value), {axis_of(value, axis): place for place, axis in enumerate(given["dims"])})


@rule("unsqueeze")
def unsqueeze(flow, node, given):
    """One more axis."""
    new = given["dim"] % len(shape_of(node))
    return moved(
        flow.of(given["self"]), {axis: axis + (axis >= new) for axis in range(len(shape_of(node)) - 1)}
    )


@rule("expand")
def expand(flow, node, given):
    """Axes are repeated."""
    return aligned(flow, given["self"], node)


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "view_as", "reshape_as")
def reshape(flow, node, given):
    """The axes that stay before and behind those that are joined or parted."""
    if "dtype" in given:
        raise SignsMatter
    before, after = shape_of(given["self"]), shape_of(node)
    places: dict[int, int] = {}
    for axis, (size, other) in enumerate(zip(before, after)):
        if not is_same(size, other):
            break
        places[axis] = axis
    for behind, (size, other) in enumerate(zip(reversed(before), reversed(after)), 1):
        axis, place = len(before) - behind, len(after) - behind
        if not is_same(size, other) or axis in places or place in places.values():
            break
        places[axis] = place
    return moved(flow.of(given["self"]), places)


@rule("select")
def select(flow, node, given):
    """One vector, or one of the batch."""
    value, index = given["self"], given["index"]
    axis = axis_of(value, given["dim"])
    rest = {other: other - (other > axis) for other in range(len(shape_of(value))) if other != axis}
    if not isinstance(index, int):
        return moved(flow.of(value), rest)
    index = index if index >= 0 else index + expression_of(shape_of(value)[axis])
    factors = []
    for signs in flow.of(value):
        if signs.places[-1] == axis:
            signs = dataclasses.replace(signs, places=(*signs.places[:-1], at(signs.start + index)), start=0)
        factors.append(moved(frozenset((signs,)), rest | {axis: at(index)}))
    return product(factors)


@rule("slice")
def slices(flow, node, given):
    """Vectors side by side, or a part of another axis that is none of the batch's."""
    value = given["self"]
    axis = axis_of(value, given["dim"])
    size, start, stop = shape_of(value)[axis], given["start"] or 0, given["end"]
    is_whole = (
        start == 0 and (stop is None or (isinstance(stop, int) and stop >= ANY_STOP)) and given["step"] == 1
    )
    factors = flow.of(value)
    if is_whole or not any(axis in signs.places for signs in factors):
        return factors
    if given["step"] != 1 or not isinstance(start, int):
        raise SignsMatter
    if start < 0:
        start = max(0, start + size) if isinstance(size, int) else start + expression_of(size)
    if any(axis in signs.places[:-1] for signs in factors):
        raise SignsMatter
    return frozenset(
        dataclasses.replace(signs, start=signs.start + start) if signs.places[-1] == axis else signs
        for signs in factors
    )


@rule("narrow")
def narrow(flow, node, given):
    """A slice by its length."""
    return slices(flow, node, given | {"end": None, "step": 1})


@rule("diag_embed", "diag")
def diagonal_matrices(flow, node, given):
    """Vectors on the diagonal, of which rows and columns have the signs."""
    value = node.args[0]
    rank = len(shape_of(value))
    if node not in flow.diagonal or rank >= len(shape_of(node)):
        raise SignsMatter
    return moved(flow.of(value), {axis: axis for axis in range(rank)})


@rule("index", "flip")
def reordered(flow, node, given):
    """Vectors in another order, which no other tensor has unless it was made with the same indices."""
    value = given["self"]
    if "dims" in given:
        positions, order = [axis_of(value, axis) for axis in given["dims"]], "flip"
    else:
        found = [(axis, index) for axis, index in enumerate(given["indices"]) if index is not None]
        if len(found) != 1 or len(shape_of(found[0][1])) != 1 or flow.of(found[0][1]):
            raise SignsMatter
        positions, order = [found[0][0]], found[0][1]
    factors = flow.of(value)
    if any(axis in signs.places[:-1] for signs in factors for axis in positions):
        raise SignsMatter
    reordered_signs = []
    for signs in factors:
        if signs.places[-1] in positions:
            many = expression_of(
                shape_of(value)[signs.places[-1]]
            )  # the first of a flip is the last of so many
            signs = Signs((signs.vectors, signs.start, many, order), signs.places)
        reordered_signs.append(signs)
    return frozenset(reordered_signs)


@rule("gather", "take_along_dim")
def gather(flow, node, given):
    """Elements along an axis that is none of vectors or their batch."""
    value, dim, index = given["self"], given["dim"], given.get("index", given.get("indices"))
    if flow.of(index) or dim is None:
        raise SignsMatter
    axis = axis_of(value, dim)
    sizes = zip(shape_of(value), shape_of(index))
    kept = [other for other, pair in enumerate(sizes) if other != axis and is_same(*pair)]
    return moved(flow.of(value), {other: other for other in kept})


@rule("cat", "concat", "concatenate")
def cat(flow, node, given):
    """Tensors with the same signs one behind the other, or vectors that stood side by side."""
    values, axis = given["tensors"], axis_of(node, given["dim"])
    terms = [flow.of(value) for value in values]
    start = 0
    counted = []
    for value, term in zip(values, terms):
        # each begins where the one before it ends
        counted.append(
            frozenset(
                dataclasses.replace(signs, start=signs.start - start) if signs.places[-1] == axis else signs
                for signs in term
            )
        )
        if any(axis in signs.places[:-1] for signs in term):
            raise SignsMatter
        if any(signs.places[-1] == axis for signs in term):
            start += expression_of(shape_of(value)[axis])
    return sum_of(counted)


@rule("stack")
def stack(flow, node, given):
    """Tensors with the same signs, or vectors one by one."""
    values, axis = given["tensors"], axis_of(node, given["dim"])
    rest = {other: other + (other >= axis) for other in range(len(shape_of(node)) - 1)}
    terms = [moved(flow.of(value), rest) for value in values]
    if len(terms) > 1 and all(len(term) == 1 for term in terms):
        rows = [next(iter(term)) for term in terms]
        first = rows[0].places[-1]
        if isinstance(first, tuple) and first != ALL:
            along = [dataclasses.replace(signs, places=(*signs.places[:-1], axis)) for signs in rows]
            if all(signs.places[-1] == at(first[1] + position) for position, signs in enumerate(rows)):
                return sum_of([frozenset((dataclasses.replace(signs, start=first[1]),)) for signs in along])
    return sum_of(terms)
