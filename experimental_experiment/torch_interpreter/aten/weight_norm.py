"""Weight normalization: a weight as a direction times its norm.

Source of semantics: ``torch.nn.utils.parametrizations.weight_norm`` and ATen's WeightNorm.cpp.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.vector_norm import vector_norm
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import raised, rounded, wide
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten._weight_norm.default)
def weight_norm(op, v, g, dim):
    """``v * g / norm(v)``, the norm being taken over all axes but *dim*."""
    return op.Mul(v, op.Div(g, norm_except_dim(op, v, 2, dim)))


@translates(aten._weight_norm_interface.default)
def weight_norm_interface(op, v, g, dim):
    """The weight and the norm it was divided by, which is float32 beside bfloat16; torch.export says float16 beside float16.

    In training, torch tells a wrong shape for the norms of a vector.
    """
    if rank(v) == 1:
        raise Untranslatable("the norms of a vector, which torch takes for one number")
    wide_v, wide_g = raised(op, v), raised(op, g)
    norms = norm_except_dim(op, wide_v, 2, dim)
    weight = rounded(op, op.Mul(wide_v, op.Div(wide_g, norms)), v.dtype)
    return weight, rounded(op, norms, v.dtype) if v.dtype == ir.DataType.FLOAT16 else norms


@translates(aten._weight_norm_interface_backward.default)
def weight_norm_interface_backward(op, grad_w, saved_v, saved_g, saved_norms, dim):
    """The gradients of *v*, without its part along *v*, and of *g*."""
    dtypes = saved_v.dtype, saved_g.dtype
    grad, v, g, norms = (op.Cast(x, to=wide(x.dtype)) for x in (grad_w, saved_v, saved_g, saved_norms))
    others = [axis for axis in range(rank(v)) if axis != dim % rank(v)]
    along = op.Mul(grad, v)
    if others:  # no axis would be all of them
        along = op.ReduceSum(along, others, keepdims=1)
    of_g = op.Div(along, norms)
    of_v = op.Mul(op.Div(g, norms), op.Sub(grad, op.Mul(v, op.Div(of_g, norms))))
    return tuple(op.Cast(gradient, to=dtype) for gradient, dtype in zip((of_v, of_g), dtypes))


@translates(aten.norm_except_dim.default)
def norm_except_dim(op, v, pow, dim):
    """The norm over all axes but *dim*, which stay with size 1; over all axes, without them, for -1."""
    if dim == -1:
        return vector_norm(op, v, pow, None, False, None)
    if rank(v) == 1 and pow:
        return op.Abs(v)
    if rank(v) == 1:  # counted; no other axis would be all of them
        return vector_norm(op, op.Unsqueeze(v, [1]), pow, [1], False, None)
    others = [axis for axis in range(rank(v)) if axis != dim % rank(v)]
    return vector_norm(op, v, pow, others, True, None)
