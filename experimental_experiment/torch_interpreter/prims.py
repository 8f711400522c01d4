"""Prims: the operators of ``torch._prims`` that decompositions may leave. Each is an operator of ATen under another name.

Source of semantics: the ``impl_aten`` of each prim in ``torch/_prims/__init__.py``. Not here: ``xor_sum``, which eager does not
compute, ``item``, which torch.export does not capture, ``signbit``, which declares a float, ``as_strided`` and ``resize``, which say
that they write what they only view.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from experimental_experiment.torch_interpreter.aten.conversion import copy
from experimental_experiment.torch_interpreter.aten.random import (
    blank,
    normal_of_numbers,
    uniform_between,
)
from experimental_experiment.torch_interpreter.composite import composite, decomposed
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.promotion import cast, rounded_operands, wide
from experimental_experiment.torch_interpreter.registry import (
    COMPLEX,
    TRANSLATIONS,
    Translation,
    bind,
    schema_names,
    takes,
    translates,
    translates_complex,
)

aten, prims = torch.ops.aten, torch.ops.prims

SAME = {
    prims.abs.default: aten.abs.default,
    prims.acos.default: aten.acos.default,
    prims.acosh.default: aten.acosh.default,
    prims.add.default: aten.add.Tensor,
    prims.as_strided_scatter.default: aten.as_strided_scatter.default,
    prims.asin.default: aten.asin.default,
    prims.asinh.default: aten.asinh.default,
    prims.atan.default: aten.atan.default,
    prims.atan2.default: aten.atan2.default,
    prims.atanh.default: aten.atanh.default,
    prims.bessel_i0.default: aten.i0.default,
    prims.bessel_i0e.default: aten.special_i0e.default,
    prims.bessel_i1.default: aten.special_i1.default,
    prims.bessel_i1e.default: aten.special_i1e.default,
    prims.bessel_j0.default: aten.special_bessel_j0.default,
    prims.bessel_j1.default: aten.special_bessel_j1.default,
    prims.bitwise_and.default: aten.bitwise_and.Tensor,
    prims.bitwise_not.default: aten.bitwise_not.default,
    prims.bitwise_or.default: aten.bitwise_or.Tensor,
    prims.bitwise_xor.default: aten.bitwise_xor.Tensor,
    prims.cat.default: aten.cat.default,
    prims.ceil.default: aten.ceil.default,
    prims.clone.default: aten.clone.default,
    prims.conj_physical.default: aten.conj_physical.default,
    prims.cos.default: aten.cos.default,
    prims.cosh.default: aten.cosh.default,
    prims.digamma.default: aten.digamma.default,
    prims.empty.default: aten.empty.memory_format,
    prims.empty_permuted.default: aten.empty_permuted.default,
    prims.empty_strided.default: aten.empty_strided.default,
    prims.eq.default: aten.eq.Tensor,
    prims.erf.default: aten.erf.default,
    prims.erf_inv.default: aten.erfinv.default,
    prims.erfc.default: aten.erfc.default,
    prims.erfcx.default: aten.special_erfcx.default,
    prims.exp.default: aten.exp.default,
    prims.exp2.default: aten.exp2.default,
    prims.expm1.default: aten.expm1.default,
    prims.fill.default: aten.fill.Scalar,
    prims.floor.default: aten.floor.default,
    prims.fmax.default: aten.fmax.default,
    prims.fmin.default: aten.fmin.default,
    prims.fmod.default: aten.fmod.Tensor,
    prims.frexp.default: aten.frexp.Tensor,
    prims.full.default: aten.full.default,
    prims.gcd.default: aten.gcd.default,
    prims.ge.default: aten.ge.Tensor,
    prims.gt.default: aten.gt.Tensor,
    prims.hypot.default: aten.hypot.default,
    prims.igamma.default: aten.igamma.default,
    prims.igammac.default: aten.igammac.default,
    prims.imag.default: aten.imag.default,
    prims.isfinite.default: aten.isfinite.default,
    prims.le.default: aten.le.Tensor,
    prims.lgamma.default: aten.lgamma.default,
    prims.log.default: aten.log.default,
    prims.log10.default: aten.log10.default,
    prims.log1p.default: aten.log1p.default,
    prims.log2.default: aten.log2.default,
    prims.lt.default: aten.lt.Tensor,
    prims.maximum.default: aten.maximum.default,
    prims.minimum.default: aten.minimum.default,
    prims.mul.default: aten.mul.Tensor,
    prims.ndtri.default: aten.special_ndtri.default,
    prims.ne.default: aten.ne.Tensor,
    prims.neg.default: aten.neg.default,
    prims.nextafter.default: aten.nextafter.default,
    prims.real.default: aten.real.default,
    prims.reciprocal.default: aten.reciprocal.default,
    prims.remainder.default: aten.remainder.Tensor,
    prims.round.default: aten.round.default,
    prims.rsqrt.default: aten.rsqrt.default,
    prims.scalar_tensor.default: aten.scalar_tensor.default,
    prims.shift_left.default: aten.bitwise_left_shift.Tensor,
    prims.shift_right_arithmetic.default: aten.bitwise_right_shift.Tensor,
    prims.sign.default: aten.sign.default,
    prims.sin.default: aten.sin.default,
    prims.sinh.default: aten.sinh.default,
    prims.spherical_bessel_j0.default: aten.special_spherical_bessel_j0.default,
    prims.sqrt.default: aten.sqrt.default,
    prims.sub.default: aten.sub.Tensor,
    prims.svd.default: aten.linalg_svd.default,
    prims.tan.default: aten.tan.default,
    prims.tanh.default: aten.tanh.default,
    prims.trunc.default: aten.trunc.default,
    prims.zeta.default: aten.special_zeta.default,
}
"""The operator of ATen that takes the arguments of a prim in their order."""


def called(prim: torch._ops.OpOverload, translation: Translation) -> Callable:
    """The function of a translation, called with the arguments of *prim*; ``requires_grad``, which ATen lacks, is for the gradient."""
    target, function = translation.target, translation.function
    positional = [argument.name for argument in prim._schema.arguments if not argument.kwarg_only]

    def renamed(op, **arguments):
        args = [arguments.pop(name) for name in positional]
        return function(op, **bind(target, translation, args, arguments))

    renamed.__name__, renamed.__doc__ = function.__name__, function.__doc__
    return takes(renamed, prim)


for _prim, _operator in SAME.items():
    for _table in (TRANSLATIONS, COMPLEX):
        if _operator in _table:
            translates(_prim, table=_table)(called(_prim, _table[_operator]))


# ---- those whose arguments are others: one call of torch, translated in their place


def broadcast_in_dim(a, shape, broadcast_dimensions):
    """The axes of *a* are *broadcast_dimensions* of the result."""
    new = [axis for axis in range(len(shape)) if axis not in broadcast_dimensions]
    for axis in new:
        a = a.unsqueeze(axis)
    return a.expand(shape)


def split_dim(a, dim, outer_length):
    """One axis becomes two."""
    return a.unflatten(dim, (outer_length, a.shape[dim] // outer_length))


def quotient(self, other):
    """Integers are truncated."""
    is_exact = self.is_floating_point() or self.is_complex()
    return torch.div(self, other) if is_exact else torch.div(self, other, rounding_mode="trunc")


def reduced(function: Callable) -> Callable:
    """A reduction over *dims* into *output_dtype*, that of its argument without."""

    def reduction(inp, dims, *, output_dtype=None):
        return function(inp, dims, output_dtype or inp.dtype)

    return reduction


def product(inp, dims, dtype):
    """The product along several axes, which ATen's prod does not take."""
    for axis in sorted(dims, reverse=True):
        inp = torch.prod(inp, axis, dtype=dtype)
    return inp.to(dtype)


TORCH = {
    prims.amax.default: reduced(lambda inp, dims, dtype: torch.amax(inp, dims).to(dtype)),
    prims.amin.default: reduced(lambda inp, dims, dtype: torch.amin(inp, dims).to(dtype)),
    prims.broadcast_in_dim.default: broadcast_in_dim,
    prims.cbrt.default: lambda self: torch.copysign(torch.pow(self.abs(), 1 / 3), self),
    prims.collapse.default: lambda a, start, end: a.flatten(start, end),
    prims.collapse_view.default: lambda a, start, end: a.flatten(start, end),
    prims.conj.default: lambda a: torch.conj(a),
    prims.convert_element_type.default: lambda a, dtype: a.to(dtype),
    prims.copy_strided.default: lambda a, stride: a.clone(),
    prims.device_put.default: lambda a, device, non_blocking=False: a.clone(),
    prims.div.default: quotient,
    prims.fft_c2c.default: lambda self, *, dim, forward: torch._fft_c2c(self, dim, 0, forward),
    prims.fft_c2r.default: lambda self, *, dim, last_dim_size: torch._fft_c2r(self, dim, 0, last_dim_size),
    prims.fft_r2c.default: lambda self, *, dim, onesided: torch._fft_r2c(self, dim, 0, onesided),
    prims.full_like.default: lambda a, value, *, dtype, device, requires_grad: torch.full_like(
        a, value, dtype=dtype
    ),
    prims.pow.default: lambda self, other: torch.pow(self, other),
    prims.prod.default: reduced(product),
    prims.reshape.default: lambda a, shape: a.reshape(shape),
    prims.rev.default: lambda a, dims: a.flip(dims),
    prims.split_dim.default: split_dim,
    prims.squeeze.default: lambda a, dimensions: a.squeeze(dimensions),
    prims.sum.default: reduced(lambda inp, dims, dtype: torch.sum(inp, dims, dtype=dtype)),
    prims.transpose.default: lambda a, permutation: a.permute(permutation),
    prims.var.default: lambda inp, dims, correction: torch.var(inp, dims, correction=correction),
    prims.view_of.default: lambda a: a.view(a.shape),
    prims.view_of_dtype.default: lambda a, dtype: a.view(dtype),
    prims.where.default: lambda pred, a, b: torch.where(pred, a, b),
}
"""What computes a prim."""

for _prim, _function in TORCH.items():
    composite(_prim, function=_function)
    composite(_prim, function=_function, table=COMPLEX)


# ---- the one of TorchDynamo, which torch defines when it first compiles: what addcmul_ and addcdiv_ with a value become


@translates("prims::fma")
def fma(op, a, b, c):
    """``a * b + c``, rounded once in float16 and bfloat16."""
    dtype = onnx_dtype(op.context.node.meta["val"].dtype)  # that of a sum with what the product is
    a, b, c = (cast(op, x, wide(dtype)) for x in rounded_operands(op, dtype, a, b, c))
    return cast(op, op.Add(op.Mul(a, b), c), dtype)


@translates_complex("prims::fma")
def fma_of_complex(op, a, b, c):
    """``a * b + c``."""
    return decomposed(op.context.node.target, lambda a, b, c: a * b + c)(op, a=a, b=b, c=c)


# ---- those that take no tensor, or that write


@translates(prims.copy_to.default)
def copy_to(op, a, b):
    """The new values of *a*, which are the result as well."""
    new = copy(op, a, b)
    return new, new


@translates(prims.iota.default)
def iota(op, length, start, step, dtype, requires_grad):
    """*length* integers from *start* on."""
    return op.Cast(op.Add(op.Mul(op.Range(0, length, 1), step), start), to=onnx_dtype(dtype))


@translates(prims.normal.default)
def normal(op, shape, mean, std, dtype, requires_grad):
    """The normal distribution of one mean and one deviation."""
    return normal_of_numbers(op, mean, std, shape, dtype)


def uniform(op, shape, low, high, dtype, stride=None):
    """Uniform between *low* and *high*, excluded."""
    like = op.Cast(blank(op, shape), to=onnx_dtype(dtype))
    return uniform_between(op, **{"self": like, "from": low, "to": high})


# torch 2.9 has no strides there
STRIDES = [name for name in schema_names(prims.uniform.default) if name == "stride"]
translates(prims.uniform.default)(takes(uniform, ["shape", "low", "high", "dtype", *STRIDES]))
