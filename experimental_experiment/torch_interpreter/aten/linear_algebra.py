"""Linear algebra: linear, matmul, addmm and the other products of vectors, matrices and batches of matrices.

Source of semantics: https://pytorch.org/docs/stable/torch.html#blas-and-lapack-operations. Integers stay integers: ONNX MatMul
computes int32 and int64 exactly, and a product over no element is zero.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.spatial import in_rows
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import cast, promote
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.torch_versions import installed

aten = torch.ops.aten

MOST_GROUPS = 64
"""Groups whose products are written one by one, 0.4 to 0.9 of the time of a Loop, which copies the matrix of each (onnxruntime 1.31)."""


@translates(aten.addbmm.default)
def addbmm(op, self, batch1, batch2, beta, alpha):
    """``beta * self + alpha * sum over b of batch1[b] @ batch2[b]``."""
    return scaled_sum(op, self, op.Einsum(batch1, batch2, equation="bnm,bmp->np"), beta, alpha)


@translates(aten.addmm.default)
def addmm(op, self, mat1, mat2, beta, alpha):
    """``beta * self + alpha * mat1 @ mat2``: one Gemm when its float32 factors are exact; beta=0 ignores NaN in *self*."""
    if rank(self) <= 2 and fits_gemm(mat1.dtype, alpha, beta):
        added = None if beta == 0 else self
        return op.Gemm(mat1, mat2, added, alpha=float(alpha), beta=float(beta if beta else 1))
    return scaled_sum(op, self, op.MatMul(mat1, mat2), beta, alpha)


@translates(aten.addmm.dtype)
def addmm_dtype(op, self, mat1, mat2, out_dtype, beta, alpha):
    """`addmm` of halves in *out_dtype*, which their products are summed in."""
    self, mat1, mat2 = (cast(op, x, dtypes.onnx_dtype(out_dtype)) for x in (self, mat1, mat2))
    return addmm(op, self, mat1, mat2, beta, alpha)


@translates(aten.addmv.default)
def addmv(op, self, mat, vec, beta, alpha):
    """``beta * self + alpha * mat @ vec``."""
    return scaled_sum(op, self, op.MatMul(mat, vec), beta, alpha)


@translates(aten.addr.default)
def addr(op, self, vec1, vec2, beta, alpha):
    """``beta * self + alpha * outer(vec1, vec2)``; booleans add as a logical or."""
    self, vec1, vec2 = promote(op, self, vec1, vec2)
    return scaled_sum(op, self, outer(op, vec1, vec2), beta, alpha)


@translates(aten.baddbmm.default)
def baddbmm(op, self, batch1, batch2, beta, alpha):
    """``beta * self[b] + alpha * batch1[b] @ batch2[b]``."""
    return scaled_sum(op, self, op.MatMul(batch1, batch2), beta, alpha)


@translates(aten.chain_matmul.default)
def chain_matmul(op, matrices):
    """The product of matrices, from left to right."""
    product = matrices[0]
    for matrix in matrices[1:]:
        product = op.MatMul(product, matrix)
    return product


@translates(aten.cross.default)
def cross(op, self, other, dim):
    """The vector product along *dim*, by default the first axis of size 3."""
    if dim is None:
        dim = next(axis for axis in range(rank(self)) if self.shape[axis] == 3)
    return linalg_cross(op, self, other, dim)


@translates(aten.dot.default)
def dot(op, self, tensor):
    """The scalar product of two vectors."""
    return op.MatMul(self, tensor)


@translates(aten._grouped_mm.default)
def grouped_mm(op, self, mat2, offs, out_dtype):
    """One product for each group: of batches, or of what *offs* cuts out of the side that has two dimensions.

    Two matrices are cut along the axis that is summed, and give a batch.
    """
    ranks = rank(self), rank(mat2)
    if ranks == (3, 3):
        product = op.MatMul(self, mat2)
    elif ranks == (2, 3):
        product = grouped_rows(op, self, mat2, offs)
    elif ranks == (3, 2):
        columns, matrices = op.Transpose(mat2, perm=[1, 0]), op.Transpose(self, perm=[0, 2, 1])
        product = op.Transpose(grouped_rows(op, columns, matrices, offs), perm=[1, 0])
    else:
        product = grouped_sums(op, self, mat2, offs)
    return product if out_dtype is None else op.Cast(product, to=dtypes.onnx_dtype(out_dtype))


@translates("transformers::grouped_mm_fallback")
def grouped_mm_fallback(op, input, weight, offs):
    """Mixture of experts: rows of *input* up to ``offs[g]``, from the previous one, times ``weight[g]``."""
    return grouped_rows(op, input, weight, offs)


@translates("transformers::grouped_mm_fallback_backward")
def grouped_mm_fallback_backward(op, input, weight, offs, grad_output):
    """The gradients of the rows and of the matrix of each group; both are 0 where a group has no row."""
    of_input = grouped_rows(op, grad_output, op.Transpose(weight, perm=[0, 2, 1]), offs)
    return of_input, grouped_sums(op, op.Transpose(input, perm=[1, 0]), grad_output, offs)


@translates(aten._int_mm.default)
def int_mm(op, self, mat2):
    """int8 matrices, summed in int32."""
    return op.MatMulInteger(self, mat2)


@translates(aten.kron.default)
def kron(op, self, other):
    """The Kronecker product: sizes multiply, the smaller rank is padded in front."""
    dtype = dtypes.onnx_dtype(op.context.node.meta["val"].dtype)  # a 0-d tensor counts like the other
    self, other = op.Cast(self, to=dtype), op.Cast(other, to=dtype)
    dims = max(rank(self), rank(other))
    self = op.Unsqueeze(self, list(range(dims - rank(self))))
    other = op.Unsqueeze(other, list(range(dims - rank(other))))
    own = op.Unsqueeze(self, list(range(1, 2 * dims, 2)))
    repeated = op.Unsqueeze(other, list(range(0, 2 * dims, 2)))
    product = op.And(own, repeated) if self.dtype == ir.DataType.BOOL else op.Mul(own, repeated)
    return op.Reshape(product, op.Mul(op.shape_of(self), op.shape_of(other)), allowzero=1)


@translates(aten.linalg_cross.default)
def linalg_cross(op, self, other, dim):
    """The vector product along *dim*, the other axes broadcasting."""

    def product(self: ir.Value, other: ir.Value, axis: int) -> ir.Value:
        def turned(x: ir.Value) -> ir.Value:
            return op.Gather(x, [1, 2, 0], axis=axis)

        # element i of the difference is element i - 1 of the product
        return turned(op.Sub(op.Mul(self, turned(other)), op.Mul(turned(self), other)))

    return in_rows(op, promote(op, self, other), dim % rank(self), product)


@translates(aten.linalg_multi_dot.default)
def linalg_multi_dot(op, tensors):
    """The product of matrices in the order that multiplies least; the first and the last may be vectors."""
    sizes = [op.size(matrix, -2) if rank(matrix) > 1 else 1 for matrix in tensors]
    sizes.append(op.size(tensors[-1], -1) if rank(tensors[-1]) > 1 else 1)
    if not all(isinstance(size, int) for size in sizes):
        return chain_matmul(op, tensors)
    order = cheapest_splits(sizes)

    def product(first, last):
        if first == last:
            return tensors[first]
        middle = order[first, last]
        return op.MatMul(product(first, middle), product(middle + 1, last))

    return product(0, len(tensors) - 1)


@translates(aten.linalg_vecdot.default)
def linalg_vecdot(op, x, y, dim):
    """The scalar products of the vectors along *dim*."""
    x, y = promote(op, x, y)
    return dot(op, x, y) if rank(x) == rank(y) == 1 else op.ReduceSum(op.Mul(x, y), [dim], keepdims=0)


@translates(aten.linear.default)
def linear(op, input, weight, bias):
    """``input @ weight.T + bias``; one Gemm for a matrix or a row of floats, which keeps the weight as torch stores it."""
    if rank(input) <= 2 and rank(weight) == 2 and fits_gemm(input.dtype):
        rows = op.Unsqueeze(input, [0]) if rank(input) == 1 else input
        product = op.Gemm(rows, weight, bias, transB=1)
        return op.Squeeze(product, [0]) if rank(input) == 1 else product
    product = op.MatMul(input, op.Transpose(weight, perm=[1, 0]) if rank(weight) == 2 else weight)
    return product if bias is None else op.Add(product, bias)


@translates(aten.matmul.default, aten.linalg_matmul.default)
def matmul(op, self, other):
    """ONNX MatMul: vectors, matrices, batches that broadcast."""
    return op.MatMul(self, other)


@translates(aten.mm.default, aten.bmm.default)
def mm(op, self, mat2):
    """The product of two matrices, or of two batches of them."""
    return op.MatMul(self, mat2)


@translates(aten.mm.dtype, aten.bmm.dtype)
def mm_dtype(op, self, mat2, out_dtype):
    """`mm` of halves in *out_dtype*, which their products are summed in."""
    return op.MatMul(*(cast(op, x, dtypes.onnx_dtype(out_dtype)) for x in (self, mat2)))


@translates(aten.mv.default)
def mv(op, self, vec):
    """A matrix times a vector."""
    return op.MatMul(self, vec)


@translates(aten.outer.default, aten.ger.default)
def outer(op, self, vec2):
    """Every product of an element of *self* and one of *vec2*."""
    self, vec2 = promote(op, self, vec2)
    column = op.Unsqueeze(self, [1])
    return op.And(column, vec2) if self.dtype == ir.DataType.BOOL else op.Mul(column, vec2)


@translates(aten._scaled_mm.default)
def _scaled_mm(op, self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum):
    """The product of float8 matrices, scaled as a whole or row by row and column by column, summed in float32."""
    if scale_result is not None:
        raise Untranslatable("scale_result, which depends on the machine")
    if not (scales_lines(scale_a, self, 0) and scales_lines(scale_b, mat2, 1)):
        raise Untranslatable("scales of blocks")
    return scaled_product(op, self, mat2, scale_a, scale_b, bias, out_dtype)


def scaled_product(op, self, mat2, scale_a, scale_b, bias, out_dtype):
    """The product of float8 matrices, computed in float32, times scales that broadcast to it."""
    product = op.MatMul(*(op.Cast(matrix, to=ir.DataType.FLOAT) for matrix in (self, mat2)))
    product = op.Mul(op.Mul(product, scale_a), scale_b)
    if bias is not None:
        product = op.Add(product, op.Cast(bias, to=ir.DataType.FLOAT))
    return op.Cast(product, to=self.dtype if out_dtype is None else dtypes.onnx_dtype(out_dtype))


@translates(*installed("_scaled_mm_v2.default"))
def _scaled_mm_v2(
    op, self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, out_dtype, contraction_dim, use_fast_accum
):  # fmt: skip
    """`_scaled_mm` with recipes: 0 is one number, 1 a scale for each row of *self*, for each column of *mat2*."""
    if len(scale_a) > 1 or len(scale_b) > 1 or any(swizzle_a) or any(swizzle_b) or contraction_dim:
        raise Untranslatable("scales of scales, swizzled scales or other axes of contraction")
    if not {*recipe_a, *recipe_b} <= {0, 1}:
        raise Untranslatable("scales of blocks")
    return scaled_product(op, self, mat2, scale_a[0], scale_b[0], bias, out_dtype)


@translates(aten.vdot.default)
def vdot(op, self, other):
    """The scalar product of two real vectors."""
    return op.MatMul(self, other)


@translates(aten._weight_int8pack_mm.default)
def _weight_int8pack_mm(op, self, mat2, scales):
    """Rows times the rows of an int8 weight, which have a scale each, summed in float32."""
    rows, weight, wide = (op.Cast(x, to=ir.DataType.FLOAT) for x in (self, mat2, scales))
    return op.Cast(op.Mul(op.Gemm(rows, weight, transB=1), wide), to=self.dtype)


def fits_gemm(dtype: ir.DataType, *factors) -> bool:
    """Whether Gemm computes this dtype, its factors (float32 attributes) being exact."""
    if dtype not in dtypes.FLOATS or any(isinstance(factor, ir.Value) for factor in factors):
        return False
    return dtype != ir.DataType.DOUBLE or all(float(np.float32(factor)) == factor for factor in factors)


def scaled_sum(op, self, product, beta, alpha):
    """``beta * self + alpha * product``; beta=0 ignores NaN in *self*, booleans add as a logical or."""
    if product.dtype == ir.DataType.BOOL:
        product = product if alpha else op.And(product, False)
        return op.Or(product, self) if beta else product
    product = scaled(op, product, alpha)
    if not isinstance(beta, ir.Value) and beta == 0:
        return product
    return op.Add(scaled(op, self, beta), product)


def scaled(op, value, factor):
    """``factor * value`` in the dtype of *value*: an integer value takes the integer part of the factor."""
    if isinstance(factor, ir.Value):
        return op.Mul(value, op.CastLike(factor, value))
    factor = factor if value.dtype in dtypes.FLOATS else int(factor)
    return value if factor == 1 else op.Mul(value, factor)


def grouped_rows(op, rows, matrices, ends):
    """``rows[ends[g - 1] : ends[g]] @ matrices[g]``, one under the other, then zeros after the last end.

    A product for each group, or a Loop over those that have rows where there are many: without rows a group costs next to nothing,
    which is what makes a mixture of experts cheap.
    """
    groups = op.size(matrices, 0)
    ends = op.Cast(ends, to=ir.DataType.INT64)
    starts = op.Concat([0], op.Slice(ends, [0], [-1], [0]), axis=0)
    left = op.Sub(op.shape([op.size(rows, 0)]), op.Slice(ends, [-1], [INT64_MAX], [0]))
    is_unrolled = isinstance(groups, int) and groups <= MOST_GROUPS
    # ONNX has no sequence of bfloat16 tensors.
    held = ir.DataType.FLOAT if rows.dtype == ir.DataType.BFLOAT16 and not is_unrolled else rows.dtype
    zeros = op.Expand(op.constant(0, held), op.Concat(left, op.shape_of(matrices, 2), axis=0))
    if is_unrolled:
        pieces = op.Split(rows, op.Concat(op.Sub(ends, starts), left, axis=0), axis=0, outputs=groups + 1)
        products = [op.MatMul(piece, op.Gather(matrices, group)) for group, piece in enumerate(pieces[:-1])]
        return op.Concat(*products, zeros, axis=0)
    groups = op.Squeeze(op.NonZero(op.Less(starts, ends)), [0])

    def step(inner, iteration, go, products):
        group = inner.Gather(groups, inner.Unsqueeze(iteration, [0]))
        taken = inner.Slice(rows, inner.Gather(starts, group), inner.Gather(ends, group), [0])
        product = inner.MatMul(taken, inner.Squeeze(inner.Gather(matrices, group), [0]))
        return [go, inner.SequenceInsert(products, inner.Cast(product, to=held))]

    nothing = op.SequenceEmpty(dtype=held)
    body = op.subgraph(step, [op.constant(0), op.constant(True), nothing])
    products = op.Loop(op.Size(groups), True, nothing, body=body)
    return op.Cast(op.ConcatFromSequence(op.SequenceInsert(products, zeros), axis=0), to=rows.dtype)


def grouped_sums(op, self, mat2, ends):
    """``self[:, ends[g - 1] : ends[g]] @ mat2[ends[g - 1] : ends[g]]`` for each group."""
    ends = op.Cast(ends, to=ir.DataType.INT64)
    starts = op.Concat([0], op.Slice(ends, [0], [-1], [0]), axis=0)

    def step(inner, iteration, go):
        group = inner.Unsqueeze(iteration, [0])
        start, end = inner.Gather(starts, group), inner.Gather(ends, group)
        return [go, inner.MatMul(inner.Slice(self, start, end, [1]), inner.Slice(mat2, start, end, [0]))]

    body = op.subgraph(step, [op.constant(0), op.constant(True)])
    return op.Loop(op.Size(ends), True, body=body)


def scales_lines(scale, matrix, axis: int) -> bool:
    """Whether a scale is one number, or one for each row (axis 0) or each column (axis 1) of a matrix."""
    lines = [1, 1]
    lines[axis] = matrix.shape[axis]
    return all(size == 1 for size in scale.shape) or list(scale.shape) == lines


def cheapest_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each product of consecutive matrices of these sizes so that the fewest multiplications are made."""
    count = len(sizes) - 1
    cost = {(first, first): 0 for first in range(count)}
    cut = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length

            def price(middle, first=first, last=last):
                here = sizes[first] * sizes[middle + 1] * sizes[last + 1]
                return cost[first, middle] + cost[middle + 1, last] + here

            cut[first, last] = min(range(first, last), key=price)
            cost[first, last] = price(cut[first, last])
    return cut
