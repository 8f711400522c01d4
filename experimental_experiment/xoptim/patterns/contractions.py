"""Einsum of two operands that is a product of matrices, once their axes stand in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, var
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import is_same

MOST_TRANSPOSES = 2
"""With which the product was measured to be faster."""


class Product(NamedTuple):
    """The letters of the axes of two operands and of their MatMul in its order."""

    left: str
    right: str
    result: str


@rule(P.Einsum(var("a"), var("b"), name="node"), set="default")
def einsum_of_matrices(op, a, b, node):
    """An Einsum of two operands is MatMul and at most two Transposes, which onnxruntime takes into the product or the nodes around move.

    Of a matrix and a tensor with several axes of rows or columns, only where no more than the last two axes of an operand or of the result are swapped.

    Measured with onnxruntime 1.31: ``bhid,bhjd->bhij`` 0.42 to 0.72 of the time, ``bihd,bjhd->bhij`` 0.46 to 0.89, ``bhij,bjhd->bihd`` 0.74 to
    0.87, ``bid,ed->bie`` 0.44 to 0.77, ``oc,bhwc->bhwo`` 0.55 to 0.84. Not of ``oc,bchw->bohw``, which took 0.97 to 1.80 of it.
    """
    terms, arrow, output = attribute_of(node, "equation").replace(" ", "").partition("->")
    letters = terms.split(",")
    if not arrow or "." in terms or len(letters) != 2 or may_broadcast(letters, (a, b), output):
        return no("axes without a letter, or that may broadcast")
    forms = [(letters, (a, b)), (letters[::-1], (b, a))]
    choices = [
        (count_of_transposes(given, product, output), given, product, operands)
        for given, operands in forms
        if (product := product_of(*given, output)) is not None and stays_in_place(given, product, output)
    ]
    if not choices:
        return no("no product of matrices")
    count, given, product, operands = min(choices, key=lambda choice: choice[0])
    if count > MOST_TRANSPOSES:
        return no("too many Transposes")
    left, right = (
        in_order(op, value, letters, wanted) for value, letters, wanted in zip(operands, given, product)
    )
    return in_order(op, op.MatMul(left, right), product.result, output)


def product_of(left: str, right: str, output: str) -> Product | None:
    """The order that MatMul asks for, None where letters are repeated, summed in one operand, or where more than one is summed."""
    summed = [letter for letter in left if letter in right and letter not in output]
    batch = "".join(letter for letter in output if letter in left and letter in right)
    rows = "".join(letter for letter in output if letter in left and letter not in right)
    columns = "".join(letter for letter in output if letter in right and letter not in left)
    if len(summed) != 1 or not rows or not columns:
        return None
    (middle,) = summed
    if sorted(left) != sorted(batch + rows + middle) or sorted(right) != sorted(batch + columns + middle):
        return None
    if len(rows) == len(columns) == 1:
        return Product(batch + rows + middle, batch + middle + columns, batch + rows + columns)
    if batch or min(len(rows), len(columns)) > 1:
        return None
    if len(columns) == 1:
        return Product(rows + middle, middle + columns, rows + columns)
    *others, last = columns
    lead = "".join(others)
    return Product(rows + middle, lead + middle + last, lead + rows + last)


def may_broadcast(letters: Sequence[str], operands: Sequence[ir.Value], output: str) -> bool:
    """Whether an axis may have one element in one operand and more in the other, or the ranks are not known.

    MatMul broadcasts those of the batch itself, which need only not be known to.
    """
    if any(value.shape is None or len(value.shape) != len(term) for term, value in zip(letters, operands)):
        return True
    left, right = (dict(zip(term, value.shape)) for term, value in zip(letters, operands))
    pairs = {letter: (left[letter], right[letter]) for letter in left.keys() & right.keys()}
    return any(
        (a == 1) != (b == 1) if letter in output else not is_same(a, b) for letter, (a, b) in pairs.items()
    )


def stays_in_place(given: Sequence[str], product: Product, output: str) -> bool:
    """Whether a product of a matrix and of more than two axes swaps the last two of an operand or of the result at most."""
    if min(map(len, given)) > 2:
        return True
    return all(wanted in (own, own[:-2] + own[:-3:-1]) for own, wanted in zip([*given, output], product))


def count_of_transposes(given: Sequence[str], product: Product, output: str) -> int:
    """How many of the operands and the result stand in another order."""
    return sum(a != b for a, b in zip([*given, output], product))


def in_order(op, value: ir.Value, letters: str, wanted: str) -> ir.Value:
    """A value whose axes have these letters, in another order."""
    if letters == wanted:
        return value
    return op.Transpose(value, perm=[letters.index(letter) for letter in wanted])
