"""Complex tensors through operators that move, pick or add elements, and through products that are linear in each operand.

Each is the real translation applied to the real and to the imaginary parts, or to the whole pairs, see `complex_pairs`.
Source of semantics: https://pytorch.org/docs/stable/complex_numbers.html.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.aten.bounds import is_finite
from experimental_experiment.torch_interpreter.aten.complex import (
    BOOL,
    Parts,
    broadcast,
    component_dtype,
    given,
    is_complex,
    is_real,
    join,
    multiply_parts,
    parts,
    parts_of,
    truth,
)
from experimental_experiment.torch_interpreter.aten.complex_pairs import pair_arguments
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates_complex
from experimental_experiment.torch_interpreter.simplify import holds_only
from experimental_experiment.torch_interpreter.sizes import sizes_of, volume

aten = torch.ops.aten


@translates_complex(aten.sym_size.int)
def sym_size(op, self, dim):
    """The size of one dimension; that of the parts is none."""
    return op.size(self, dim % (rank(self) - 1))


@translates_complex(aten.sym_numel.default)
def sym_numel(op, self):
    """The number of elements, of two parts each."""
    return volume(op, sizes_of(op, self)[:-1])


def part_of(op, item: Any, value: Any, position: int) -> Any:
    """The real (0) or imaginary (1) part of an argument: *item* is what the node gives, *value* what was read.

    What becomes booleans has one part, where it is not zero.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [part_of(op, a, b, position) for a, b in zip(item, value)]
    if component_dtype(op) == BOOL and isinstance(value, complex):
        return bool(value)
    if component_dtype(op) == BOOL and is_complex(item):
        return truth(op, value)
    if not isinstance(value, ir.Value):
        return complex(value).imag if position else complex(value).real
    if is_complex(item):
        return parts(op, value)[position]
    return op.Expand(op.CastLike(0, value), op.shape_of(value)) if position else value


def is_pair(item: Any) -> bool:
    """Whether what a node gives is a complex tensor."""
    return isinstance(item, torch.fx.Node) and is_complex(item)


def as_complex(op, name: str, value: ir.Value) -> ir.Value:
    """The argument *name*, real or complex, as a complex value in the dtype of the result."""
    item, dtype = given(op, name), component_dtype(op)
    if is_complex(item) and value.dtype == dtype:
        return value
    return join(op, *(op.Cast(part_of(op, item, value, position), to=dtype) for position in (0, 1)))


def real_call(op, target, arguments: dict[str, Any]) -> Any:
    """The translation of *target* for real tensors, called with these arguments."""
    if any(isinstance(value, complex) for value in arguments.values()):
        raise Untranslatable("a complex number is given for an argument that is expected to be real")
    dtype = arguments.get("dtype")
    if isinstance(dtype, torch.dtype) and dtype.is_complex:
        arguments = arguments | {"dtype": dtype.to_real()}
    translation = registry.TRANSLATIONS[target]
    return translation.function(op, **registry.bind(target, translation, [], arguments))


SUMS = frozenset(
    (
        aten.add.Scalar,
        aten.add.Tensor,
        aten.rsub.Scalar,
        aten.rsub.Tensor,
        aten.sub.Tensor,
    )
)
"""Operators of which a real operand leaves the imaginary part of the other one."""


def unless_zero(op, part: Any, parts: Mapping[str, Any]) -> Any:
    """A part, or the number 0 for a product of 0 and finite numbers: the real part of ``1j * x.sin()`` is one.

    A number has no shape: the other part has to have that of this one.
    """
    node = op.producer(part) if isinstance(part, ir.Value) else None
    if node is None or node.op_type != "Mul" or not is_finite(op, part):
        return part
    if not any(holds_only(factor, 0) for factor in node.inputs):
        return part
    others = [other for other in parts.values() if isinstance(other, ir.Value) and other is not part]
    is_same = [has_named_shape(other) and other.shape == part.shape for other in others]
    return 0 if is_same == [True] else part


def has_named_shape(x: ir.Value) -> bool:
    """Whether all sizes are numbers, or have names."""
    return x.shape is not None and all(isinstance(size, int) or size.value is not None for size in x.shape)


def by_parts(target: torch._ops.OpOverload, *names: str) -> None:
    """Register *target* as applied to the real and to the imaginary parts of the arguments *names*, by default the first.

    Where the pairs may stay together, they do, unless they are apart already. A view is written in the same way.
    """
    schema = registry.schema_names(target)
    names = names or (schema[0],)

    def translation(op, **arguments):
        for name in schema:
            if name not in names and any(map(is_pair, listed(given(op, name)))):
                raise Untranslatable(f"a complex {name}")
        items = [item for name in names for item in listed(given(op, name)) if item is not None]
        if all(map(is_pair, items)):
            values = (value for name in names for value in listed(arguments[name]))
            tensors = [value for value in values if isinstance(value, ir.Value)]
            pairs = pair_arguments(op, target, tensors, arguments)
            if pairs is not None:
                return real_call(op, target, pairs)
        results = []
        for position in (0, 1):
            taken = {name: part_of(op, given(op, name), arguments[name], position) for name in names}
            if position and target in SUMS:  # nothing is added to an imaginary part
                real = {name: value for name, value in taken.items() if is_real(op, name, arguments[name])}
                taken |= {
                    name: op.CastLike(0, value) if isinstance(value, ir.Value) else 0
                    for name, value in real.items()
                }
            elif target in SUMS and not op.context.special_values:
                taken = {name: unless_zero(op, value, taken) for name, value in taken.items()}
            results.append(real_call(op, target, arguments | taken))
        if target in SUMS:
            results = broadcast(op, *(op.Cast(part, to=component_dtype(op)) for part in results))
        fake = op.context.node.meta["val"]
        if isinstance(fake, (list, tuple)):
            return [join(op, *pair) if told.is_complex() else pair[0] for told, *pair in zip(fake, *results)]
        return join(op, *results) if is_complex(op.context.node) else results[0]

    def put(op, base, new, **arguments):
        function = registry.PUTS.get(target)
        if function is None:
            raise Untranslatable(f"a write through the view {target} is not handled")
        pairs = pair_arguments(op, target, (base, new), arguments)
        taken = arguments if pairs is None else pairs
        known = {name: value for name, value in taken.items() if name in registry.parameters(function)}
        if pairs is not None:
            return function(op, base, new, **known)
        return join(op, *(function(op, a, b, **known) for a, b in zip(parts(op, base), parts(op, new))))

    complex_translation(target, translation, f"{target} of the real and of the imaginary parts.")
    registry.writes_complex_through(target)(registry.takes(put, ["base", "new", *schema[1:], "position"]))


def multilinear(target: torch._ops.OpOverload, *names: str) -> None:
    """Register *target*, linear in each of the tensors *names*, as a sum over their parts; i^2 is -1."""

    def translation(op, **arguments):
        return join(op, *sum_of_products(op, target, arguments, names))

    complex_translation(target, translation, f"{target}: a sum of products of parts.")


def sum_of_products(
    op, target: torch._ops.OpOverload, arguments: dict[str, Any], names: Sequence[str]
) -> Parts:
    """The parts of an operator that is linear in each of the tensors *names*: one real call for each choice of parts."""
    items = [tensor for name in names for tensor in listed(given(op, name))]
    sums: list[ir.Value | None] = [None, None]
    for choice in itertools.product(*((0, 1) if is_complex(item) else (0,) for item in items)):
        chosen = iter(choice)
        taken = {name: picked(op, given(op, name), arguments[name], chosen) for name in names}
        term = real_call(op, target, arguments | taken)
        power, total = sum(choice), sums[sum(choice) % 2]
        if total is None:
            sums[power % 2] = term if power % 4 < 2 else op.Neg(term)
        else:
            sums[power % 2] = op.Add(total, term) if power % 4 < 2 else op.Sub(total, term)
    return sums[0], sums[1]


def picked(op, item: Any, value: Any, chosen) -> Any:
    """An argument of `multilinear` with each tensor replaced by its part of the next choice."""
    if isinstance(value, (list, tuple)):
        return [picked(op, a, b, chosen) for a, b in zip(item, value)]
    return part_of(op, item, value, next(chosen))


def listed(item: Any) -> list[Any]:
    """The tensors of an argument."""
    return list(item) if isinstance(item, (list, tuple)) else [item]


def complex_translation(target: torch._ops.OpOverload, function: Callable, promise: str) -> None:
    """Register a function that takes all the arguments of *target* by name."""
    function.__name__ = target._schema.name.split("::")[1]
    function.__doc__ = promise
    translates_complex(target)(registry.takes(function, target))


for _target in (
    aten.alias_copy.default,
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.atleast_1d.default,
    aten.atleast_1d.Sequence,
    aten.atleast_2d.default,
    aten.atleast_2d.Sequence,
    aten.atleast_3d.default,
    aten.atleast_3d.Sequence,
    aten.broadcast_to.default,
    aten.channel_shuffle.default,
    aten.chunk.default,
    aten.col2im.default,
    aten.combinations.default,
    aten.cumsum.default,
    aten.detach_copy.default,
    aten.diag.default,
    aten.diag_embed.default,
    aten.diagflat.default,
    aten.diagonal.default,
    aten.diagonal_copy.default,
    aten.dsplit.array,
    aten.dsplit.int,
    aten.empty_like.default,
    aten.expand.default,
    aten.expand_copy.default,
    aten.flatten.using_ints,
    aten.flip.default,
    aten.fliplr.default,
    aten.flipud.default,
    aten.gather.default,
    aten.hsplit.array,
    aten.hsplit.int,
    aten.im2col.default,
    aten.index.Tensor,
    aten.index_select.default,
    aten.linalg_diagonal.default,
    aten.masked_select.default,
    aten.mean.default,
    aten.mean.dim,
    aten.ldexp.Tensor,
    aten.moveaxis.int,
    aten.moveaxis.intlist,
    aten.movedim.int,
    aten.movedim.intlist,
    aten.mT.default,
    aten.nan_to_num.default,
    aten.narrow.default,
    aten.narrow_copy.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.new_zeros.default,
    aten.numpy_T.default,
    aten._pad_circular.default,
    aten.permute.default,
    aten.permute_copy.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.ravel.default,
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    aten.repeat.default,
    aten.repeat_interleave.self_int,
    aten.repeat_interleave.self_Tensor,
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    aten.reshape.default,
    aten._reshape_alias.default,
    aten._reshape_copy.default,
    aten.resize.default,
    aten.roll.default,
    aten.rot90.default,
    aten.select.int,
    aten.select_copy.int,
    aten.slice.Tensor,
    aten.slice_copy.Tensor,
    aten.split.Tensor,
    aten.split_copy.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze_copy.default,
    aten.squeeze_copy.dim,
    aten.squeeze_copy.dims,
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.sum_to_size.default,
    aten.swapaxes.default,
    aten.swapdims.default,
    aten.t.default,
    aten.take.default,
    aten.take_along_dim.default,
    aten.t_copy.default,
    aten.tensor_split.indices,
    aten.tensor_split.sections,
    aten.tensor_split.tensor_indices_or_sections,
    aten.tile.default,
    aten.trace.default,
    aten.transpose.int,
    aten.transpose_copy.int,
    aten.tril.default,
    aten.triu.default,
    aten.unbind.int,
    aten.unbind_copy.int,
    aten.unflatten.int,
    aten.unfold.default,
    aten.unfold_copy.default,
    aten.unsafe_chunk.default,
    aten._unsafe_index.Tensor,
    aten.unsafe_split.Tensor,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.unsqueeze_copy.default,
    aten.view.default,
    aten.view_copy.default,
    aten.vsplit.array,
    aten.vsplit.int,
    aten.zero.default,
    aten.zeros_like.default,
):
    by_parts(_target)

by_parts(aten.add.Scalar, "self", "other")
by_parts(aten.add.Tensor, "self", "other")
by_parts(aten.as_strided_scatter.default, "self", "src")
by_parts(aten.block_diag.default, "tensors")
by_parts(aten.broadcast_tensors.default, "tensors")
by_parts(aten.cartesian_prod.default, "tensors")
by_parts(aten.cat.default, "tensors")
by_parts(aten.column_stack.default, "tensors")
by_parts(aten.concat.default, "tensors")
by_parts(aten.concatenate.default, "tensors")
by_parts(aten.constant_pad_nd.default, "self", "value")
by_parts(aten.copy.default, "self", "src")
by_parts(aten.diagonal_backward.default, "grad_output")
by_parts(aten.diagonal_scatter.default, "self", "src")
by_parts(aten.diff.default, "self", "prepend", "append")
by_parts(aten.dstack.default, "tensors")
by_parts(aten.embedding.default, "weight")
by_parts(aten.expand_as.default, "self", "other")
by_parts(aten.fill.Scalar, "self", "value")
by_parts(aten.fill.Tensor, "self", "value")
by_parts(aten.fill_diagonal_.default, "self", "fill_value")
by_parts(aten.full.default, "fill_value")
by_parts(aten.full_like.default, "self", "fill_value")
by_parts(aten.hstack.default, "tensors")
by_parts(aten.index_add.default, "self", "source")
by_parts(aten.index_copy.default, "self", "source")
by_parts(aten.index_fill.int_Scalar, "self", "value")
by_parts(aten.index_fill.int_Tensor, "self", "value")
by_parts(aten.index_put.default, "self", "values")
by_parts(aten.masked_fill.Scalar, "self", "value")
by_parts(aten.masked_fill.Tensor, "self", "value")
by_parts(aten.masked_scatter.default, "self", "source")
by_parts(aten.masked_scatter_backward.default, "grad_output")
by_parts(aten.meshgrid.default, "tensors")
by_parts(aten.meshgrid.indexing, "tensors")
by_parts(aten.new_full.default, "self", "fill_value")
by_parts(aten.pad.default, "self", "value")
by_parts(aten.pad_sequence.default, "sequences", "padding_value")
by_parts(aten.put.default, "self", "source")
by_parts(aten.reflection_pad1d_backward.default, "grad_output", "self")
by_parts(aten.reflection_pad2d_backward.default, "grad_output", "self")
by_parts(aten.reflection_pad3d_backward.default, "grad_output", "self")
by_parts(aten.replication_pad1d_backward.default, "grad_output", "self")
by_parts(aten.replication_pad2d_backward.default, "grad_output", "self")
by_parts(aten.replication_pad3d_backward.default, "grad_output", "self")
by_parts(aten.reshape_as.default, "self", "other")
by_parts(aten.resize_as.default, "self", "the_template")
by_parts(aten.row_stack.default, "tensors")
by_parts(aten.rsub.Scalar, "self", "other")
by_parts(aten.rsub.Tensor, "self", "other")
by_parts(aten.scalar_tensor.default, "s")
by_parts(aten.scatter.src, "self", "src")
by_parts(aten.scatter.value, "self", "value")
by_parts(aten.scatter_add.default, "self", "src")
by_parts(aten.select_backward.default, "grad_output")
by_parts(aten.select_scatter.default, "self", "src")
by_parts(aten.slice_backward.default, "grad_output")
by_parts(aten.slice_scatter.default, "self", "src")
by_parts(aten.stack.default, "tensors")
by_parts(aten.sub.Scalar, "self", "other")
by_parts(aten.sub.Tensor, "self", "other")
by_parts(aten.subtract.Scalar, "self", "other")
by_parts(aten.subtract.Tensor, "self", "other")
by_parts(aten.unfold_backward.default, "grad_in")
by_parts(aten._unsafe_index_put.default, "self", "values")
by_parts(aten._unsafe_masked_index.default, "self", "fill")
by_parts(aten._unsafe_masked_index_put_accumulate.default, "self", "values")
by_parts(aten.view_as.default, "self", "other")
by_parts(aten.vstack.default, "tensors")
by_parts(aten.where.Scalar, "self", "other")
by_parts(aten.where.ScalarOther, "self", "other")
by_parts(aten.where.ScalarSelf, "self", "other")
by_parts(aten.where.self, "self", "other")


@translates_complex(aten.scatter.reduce)
def scatter_with(op, self, dim, index, src, reduce):
    """Add to what is there; ONNX multiplies parts, not complex numbers."""
    if reduce != "add":
        raise Untranslatable("complex numbers that are scattered are only added")
    return registry.COMPLEX[aten.scatter_add.default].function(op, self=self, dim=dim, index=index, src=src)


multilinear(aten.bmm.default, "self", "mat2")
multilinear(aten.chain_matmul.default, "matrices")
multilinear(aten.cross.default, "self", "other")
multilinear(aten.dot.default, "self", "tensor")
multilinear(aten.einsum.default, "tensors")
multilinear(aten.inner.default, "self", "other")
multilinear(aten.kron.default, "self", "other")
multilinear(aten.linalg_cross.default, "self", "other")
multilinear(aten.linalg_matmul.default, "self", "other")
multilinear(aten.linalg_multi_dot.default, "tensors")
multilinear(aten.matmul.default, "self", "other")
multilinear(aten.mm.default, "self", "mat2")
multilinear(aten.mv.default, "self", "vec")
multilinear(aten.outer.default, "self", "vec2")
multilinear(aten.tensordot.default, "self", "other")


@translates_complex(aten.addmm.default)
def addmm(op, self, mat1, mat2, beta, alpha):
    """``beta * self + alpha * mat1 @ mat2``."""
    return scaled_sum(op, self, mat1, mat2, beta, alpha)


@translates_complex(aten.addbmm.default)
def addbmm(op, self, batch1, batch2, beta, alpha):
    """``beta * self + alpha * sum(batch1[b] @ batch2[b])``: one product of matrices that stand side by side."""
    batches, rows, inner = op.size(batch1, 0), op.size(batch1, 1), op.size(batch1, 2)
    width = op.ReduceProd(op.shape([batches, inner]))
    left = (op.Transpose(part, perm=[1, 0, 2]) for part in parts(op, batch1))
    left = join(op, *(op.Reshape(part, op.Concat(op.shape([rows]), width, axis=0)) for part in left))
    right = op.Concat(width, op.shape([op.size(batch2, 2)]), axis=0)
    right = join(op, *(op.Reshape(part, right) for part in parts(op, batch2)))
    return scaled_sum(op, self, left, right, beta, alpha)


@translates_complex(aten.addr.default)
def addr(op, self, vec1, vec2, beta, alpha):
    """``beta * self + alpha * outer(vec1, vec2)``; some of the three may be real."""
    given_as = {"self": self, "vec1": vec1, "vec2": vec2}
    self, vec1, vec2 = (as_complex(op, name, value) for name, value in given_as.items())
    left, right = (
        join(op, *(op.Unsqueeze(part, [axis]) for part in parts(op, z))) for z, axis in ((vec1, 1), (vec2, 0))
    )
    return scaled_sum(op, self, left, right, beta, alpha)


@translates_complex(aten.addmv.default)
def addmv(op, self, mat, vec, beta, alpha):
    """``beta * self + alpha * mat @ vec``."""
    return scaled_sum(op, self, mat, vec, beta, alpha)


@translates_complex(aten.baddbmm.default)
def baddbmm(op, self, batch1, batch2, beta, alpha):
    """``beta * self[b] + alpha * batch1[b] @ batch2[b]``."""
    return scaled_sum(op, self, batch1, batch2, beta, alpha)


def scaled_sum(op, self, left, right, beta, alpha) -> ir.Value:
    """``beta * self + alpha * left @ right``; beta=0 ignores NaN in *self*."""
    (a, b), (c, d) = parts(op, left), parts(op, right)
    matrices = op.Sub(op.MatMul(a, c), op.MatMul(b, d)), op.Add(op.MatMul(a, d), op.MatMul(b, c))
    result = multiply_parts(op, parts_of(op, "alpha", alpha), matrices)
    if beta == 0:
        return join(op, *result)
    added = multiply_parts(op, parts_of(op, "beta", beta), parts(op, self))
    return join(op, *(op.Add(x, y) for x, y in zip(result, added)))


@translates_complex(aten.linear.default)
def linear(op, input, weight, bias):
    """``input @ weight.T + bias``."""
    arguments = {"input": input, "weight": weight, "bias": None}
    terms = sum_of_products(op, aten.linear.default, arguments, ["input", "weight"])
    if bias is None:
        return join(op, *terms)
    return join(op, *(op.Add(term, part) for term, part in zip(terms, parts(op, bias))))


def convolution(target: torch._ops.OpOverload) -> None:
    """Register a convolution as ATen computes it, rounding included: by three real ones."""

    def translation(op, input, weight, bias, **others):
        (a, b), (c, d) = parts(op, input), parts(op, weight)
        real_bias, imag_bias = (None, None) if bias is None else parts(op, bias)
        both = None if bias is None else op.Add(real_bias, imag_bias)
        first, second, third = (
            real_call(op, target, others | {"input": x, "weight": w, "bias": added})
            for x, w, added in ((a, c, real_bias), (b, d, None), (op.Add(a, b), op.Add(c, d), both))
        )
        for value in (first, second, third):
            value.shape = value.shape or ir.Shape([None] * rank(a))
        return join(op, op.Sub(first, second), op.Sub(op.Sub(third, first), second))

    complex_translation(target, translation, f"{target}: three convolutions of real tensors.")


convolution(aten.conv1d.default)
convolution(aten.conv1d.padding)
convolution(aten.conv2d.default)
convolution(aten.conv2d.padding)
convolution(aten.conv3d.default)
convolution(aten.conv3d.padding)
convolution(aten.conv_transpose1d.default)
convolution(aten.conv_transpose2d.input)
convolution(aten.conv_transpose3d.input)


@translates_complex(aten.vdot.default)
def vdot(op, self, other):
    """The scalar product of the conjugate of the first vector with the second."""
    return join(op, *conjugate_product(op, self, other, lambda a, b: op.MatMul(a, b)))


@translates_complex(aten.linalg_vecdot.default)
def linalg_vecdot(op, x, y, dim):
    """The scalar products of the conjugates of the vectors of *x* with those of *y*."""
    dim = dim % (max(rank(x), rank(y)) - 1)
    return join(op, *conjugate_product(op, x, y, lambda a, b: op.ReduceSum(op.Mul(a, b), [dim], keepdims=0)))


def conjugate_product(op, left, right, multiplied: Callable) -> Parts:
    """The parts of a product, linear in both, of the conjugate of the left with the right."""
    (a, b), (c, d) = parts(op, left), parts(op, right)
    return op.Add(multiplied(a, c), multiplied(b, d)), op.Sub(multiplied(a, d), multiplied(b, c))


@translates_complex(aten.adjoint.default, aten.mH.default, aten.matrix_H.default)
def adjoint(op, self):
    """The conjugate of the transposed matrices."""
    real, imag = (real_call(op, aten.mH.default, {"self": part}) for part in parts(op, self))
    return join(op, real, op.Neg(imag))


@registry.writes_complex_through(aten.adjoint.default, aten.mH.default, aten.matrix_H.default)
def put_adjoint(op, base, new):
    """Doing it twice changes nothing."""
    return adjoint(op, new)


def ones(target: torch._ops.OpOverload) -> None:
    """Register an operator that gives ones: their imaginary part is zero."""

    def translation(op, **arguments):
        real = real_call(
            op, target, arguments | {"self": part_of(op, given(op, "self"), arguments["self"], 0)}
        )
        return join(op, real, op.Mul(real, 0)) if is_complex(op.context.node) else real

    complex_translation(target, translation, f"{target}, without imaginary part.")


ones(aten.new_ones.default)
ones(aten.ones_like.default)
