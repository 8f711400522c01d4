"""Statistics: variance and standard deviation.

Source of semantics: torch.var; half precision is computed in float32 as torch does.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.reduction import axes_of, count, mean_dim, reduce
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import raised, rounded
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static

aten = torch.ops.aten


@translates(aten.std.default)
def std(op, self, unbiased):
    """Standard deviation of all elements."""
    return deviation(op, self, None, int(unbiased), False)[0]


@translates(aten.std.dim)
def std_dim(op, self, dim, unbiased, keepdim):
    """Standard deviation along axes."""
    return deviation(op, self, dim, int(unbiased), keepdim)[0]


@translates(aten.std.correction)
def std_correction(op, self, dim, correction, keepdim):
    """Standard deviation along axes, dividing by their size minus *correction* (1 when None)."""
    return deviation(op, self, dim, correction, keepdim)[0]


@translates(aten.std_mean.default)
def std_mean(op, self, unbiased):
    """Standard deviation and mean of all elements."""
    return deviation(op, self, None, int(unbiased), False)


@translates(aten.std_mean.dim)
def std_mean_dim(op, self, dim, unbiased, keepdim):
    """Standard deviation and mean along axes."""
    return deviation(op, self, dim, int(unbiased), keepdim)


@translates(aten.std_mean.correction)
def std_mean_correction(op, self, dim, correction, keepdim):
    """Standard deviation and mean along axes."""
    return deviation(op, self, dim, correction, keepdim)


@translates(aten.var.default)
def var(op, self, unbiased):
    """Variance of all elements."""
    return variance_and_mean(op, self, None, int(unbiased), False)[0]


@translates(aten.var.dim)
def var_dim(op, self, dim, unbiased, keepdim):
    """Variance along axes."""
    return variance_and_mean(op, self, dim, int(unbiased), keepdim)[0]


@translates(aten.var.correction)
def var_correction(op, self, dim, correction, keepdim):
    """Variance along axes, dividing by their size minus *correction* (1 when None)."""
    return variance_and_mean(op, self, dim, correction, keepdim)[0]


@translates(aten.var_mean.default)
def var_mean(op, self, unbiased):
    """Variance and mean of all elements."""
    return variance_and_mean(op, self, None, int(unbiased), False)


@translates(aten.var_mean.dim)
def var_mean_dim(op, self, dim, unbiased, keepdim):
    """Variance and mean along axes."""
    return variance_and_mean(op, self, dim, int(unbiased), keepdim)


@translates(aten.var_mean.correction)
def var_mean_correction(op, self, dim, correction, keepdim):
    """Variance and mean along axes."""
    return variance_and_mean(op, self, dim, correction, keepdim)


def deviation(op, self, dim, correction, keepdim) -> tuple[ir.Value, ir.Value]:
    """Standard deviation and mean, see `variance_and_mean`."""
    variance, mean = variance_and_mean(op, self, dim, correction, keepdim)
    return op.Sqrt(variance), mean


def variance_and_mean(op, self, dim, correction, keepdim) -> tuple[ir.Value, ir.Value]:
    """Variance and mean along axes: the squares over ``max(0, size - correction)``, NaN or inf when that is 0.

    Without correction it is written as the mean of the squares, which is what runtimes make a layer norm of. The mean of all elements has
    no axes, like the one that a model subtracts itself when it normalizes: they are computed once.
    """
    wide = raised(op, self)
    correction = 1 if correction is None else correction
    is_kept = keepdim or len(axes_of(self, dim)) < rank(self)
    mean = mean_dim(op, wide, dim, is_kept, None)
    distance = op.Sub(wide, mean)
    if is_kept and not keepdim:
        mean = op.Squeeze(mean, axes_of(self, dim))
    if correction == 0 and axes_of(self, dim):
        variance = mean_dim(op, op.Mul(distance, distance), dim, keepdim, None)
        return rounded(op, variance, self.dtype), rounded(op, mean, self.dtype)
    number = count(op, self, dim)
    if is_static(number, correction):
        divisor = op.CastLike(float(max(number - correction, 0)), wide)
    else:
        divisor = op.Max(op.Sub(op.CastLike(number, wide), op.CastLike(correction, wide)), 0.0)
    # ReduceSumSquare, a node less, takes two to ten times as long in onnxruntime along one of several axes
    squares = reduce(op, "ReduceSum", op.Mul(distance, distance), dim, keepdim)
    return rounded(op, op.Div(squares, divisor), self.dtype), rounded(op, mean, self.dtype)
