"""Fourier transforms of one and several axes, shifts of their frequencies.

A transform of a known size is one product with a matrix, which holds the scale that *norm* asks for; of a large or of a symbolic
size, ONNX DFT, and the scale follows.
Source of semantics: https://pytorch.org/docs/stable/fft.html.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from experimental_experiment.torch_interpreter.aten.complex import (
    component_dtype,
    conj,
    given,
    is_complex,
)
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.aten.transposing import inverse as inverse_of
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import translates, translates_complex
from experimental_experiment.torch_interpreter.sizes import (
    Size,
    is_static,
    label,
    minus,
    named,
    plus,
    quotient,
    times,
)

aten = torch.ops.aten

LARGEST_MATRIX = 1024, 2**21
"""The largest size that is transformed by a matrix, and the elements that this may have: 8 MiB of float32."""

FORWARD = {"backward": 0, "ortho": -0.5, "forward": -1}
"""The power of the size that scales a forward transform."""

INVERSE = {"backward": -1, "ortho": -0.5, "forward": 0}
"""The power of the size that scales an inverse transform."""

NORMALIZATIONS = (0, -0.5, -1)
"""The power of the size that scales what the other transforms are made of, by the number of ATen's ``fft_norm_mode``."""


def fourier(*targets):
    """Register what gives a real tensor for a real one too. A complex result is looked up among the complex ones alone."""

    def register(function):
        return translates(*targets)(translates_complex(*targets)(function))

    return register


# ---- one axis


@translates_complex(aten.fft_fft.default)
def fft_fft(op, self, n, dim, norm):
    """The discrete Fourier transform."""
    return transforms(op, self, n, dim, norm, complex_to_complex)


@translates_complex(aten.fft_ifft.default)
def fft_ifft(op, self, n, dim, norm):
    """The inverse transform."""
    return transforms(op, self, n, dim, norm, complex_to_complex, inverse=True)


@translates_complex(aten.fft_rfft.default)
def fft_rfft(op, self, n, dim, norm):
    """The first half of the transform of a real signal."""
    return transforms(op, self, n, dim, norm, real_to_complex)


@fourier(aten.fft_irfft.default)
def fft_irfft(op, self, n, dim, norm):
    """The real signal whose transform starts with *self*."""
    return transforms(op, self, n, dim, norm, complex_to_real, inverse=True)


@fourier(aten.fft_hfft.default)
def fft_hfft(op, self, n, dim, norm):
    """The transform, which is real, of the Hermitian signal that starts with *self*."""
    return transforms(op, self, n, dim, norm, complex_to_real)


@translates_complex(aten.fft_ihfft.default)
def fft_ihfft(op, self, n, dim, norm):
    """The first half of the inverse transform of a real signal."""
    return transforms(op, self, n, dim, norm, real_to_complex, inverse=True)


# ---- several axes


@translates_complex(aten.fft_fft2.default, aten.fft_fftn.default)
def fft_fftn(op, self, s, dim, norm):
    """`fft_fft` along several axes."""
    return transforms(op, self, s, dim, norm, complex_to_complex)


@translates_complex(aten.fft_ifft2.default, aten.fft_ifftn.default)
def fft_ifftn(op, self, s, dim, norm):
    """`fft_ifft` along several axes."""
    return transforms(op, self, s, dim, norm, complex_to_complex, inverse=True)


@translates_complex(aten.fft_rfft2.default, aten.fft_rfftn.default)
def fft_rfftn(op, self, s, dim, norm):
    """`fft_rfft` along the last axis, `fft_fft` along the others."""
    return transforms(op, self, s, dim, norm, real_to_complex)


@fourier(aten.fft_irfft2.default, aten.fft_irfftn.default)
def fft_irfftn(op, self, s, dim, norm):
    """`fft_ifft` along all axes but the last, then `fft_irfft`."""
    return transforms(op, self, s, dim, norm, complex_to_real, inverse=True)


@fourier(aten.fft_hfft2.default, aten.fft_hfftn.default)
def fft_hfftn(op, self, s, dim, norm):
    """`fft_fft` along all axes but the last, then `fft_hfft`."""
    return transforms(op, self, s, dim, norm, complex_to_real)


@translates_complex(aten.fft_ihfft2.default, aten.fft_ihfftn.default)
def fft_ihfftn(op, self, s, dim, norm):
    """`fft_ihfft` along the last axis, `fft_ifft` along the others."""
    return transforms(op, self, s, dim, norm, real_to_complex, inverse=True)


# ---- what the others are made of, once they are decomposed


@translates_complex(aten._fft_c2c.default)
def _fft_c2c(op, self, dim, normalization, forward):
    """Complex to complex."""
    power = NORMALIZATIONS[normalization]
    return transform(op, self, dim, [-1] * len(dim), complex_to_complex, not forward, power)


@translates_complex(aten._fft_c2r.default)
def _fft_c2r(op, self, dim, normalization, last_dim_size):
    """Complex to real: the inverse, whose signal has the size *last_dim_size* along the last of the axes."""
    sizes = [-1] * (len(dim) - 1) + [last_dim_size]
    return transform(op, self, dim, sizes, complex_to_real, True, NORMALIZATIONS[normalization])


@translates_complex(aten._fft_r2c.default)
def _fft_r2c(op, self, dim, normalization, onesided):
    """Real to complex; *onesided* along the last of the axes."""
    last = real_to_complex if onesided else complex_to_complex
    return transform(op, self, dim, [-1] * len(dim), last, False, NORMALIZATIONS[normalization])


# ---- frequencies


@translates(aten.fft_fftfreq.default)
def fft_fftfreq(op, n, d, dtype):
    """The frequencies of the transform of *n* samples, a constant."""
    return op.constant(torch.fft.fftfreq(n, d, dtype=dtype))


@translates(aten.fft_rfftfreq.default)
def fft_rfftfreq(op, n, d, dtype):
    """The frequencies of the first half of the transform of *n* samples, a constant."""
    return op.constant(torch.fft.rfftfreq(n, d, dtype=dtype))


@fourier(aten.fft_fftshift.default)
def fft_fftshift(op, self, dim):
    """Move the zero frequency to the middle."""
    return shifted(op, self, dim, lambda size: op.Div(op.Add(size, 1), 2))


@fourier(aten.fft_ifftshift.default)
def fft_ifftshift(op, self, dim):
    """Move the zero frequency back to the start."""
    return shifted(op, self, dim, lambda size: op.Div(size, 2))


def shifted(op, self, dim, start) -> ir.Value:
    """The axes *dim*, by default all, read from the index ``start(size)`` on, then from zero."""
    dims = rank(self) - is_complex(given(op, "self"))
    listed = [dim] if isinstance(dim, int) else range(dims) if dim is None else dim
    for axis in (axis % dims for axis in listed):
        cut = start(op.shape_of(self, axis, axis + 1))
        self = op.Concat(
            op.Slice(self, cut, [INT64_MAX], [axis]), op.Slice(self, [0], cut, [axis]), axis=axis
        )
    return self


# ---- transforms


def transforms(op, self, sizes, dims, norm, last, inverse=False) -> ir.Value:
    """Transform *self* along *dims*: *last*, which may be real on one side, is for the last of them.

    *sizes* are those of the signals, None for all of them or -1 for the size of *self*.
    """
    if isinstance(dims, int):
        sizes, dims = [-1 if sizes is None else sizes], [dims]
    count = rank(self) - is_complex(given(op, "self"))
    if dims is None:
        dims = range(count) if sizes is None else range(count - len(sizes), count)
    sizes = [-1] * len(dims) if sizes is None else sizes
    power = (INVERSE if inverse else FORWARD)[norm or "backward"]
    return transform(op, self, dims, sizes, last, inverse, power)


def transform(op, self, dims, sizes, last, inverse: bool, power: float) -> ir.Value:
    """`transforms` along listed axes, each scaled by its size to a *power*."""
    held = is_complex(given(op, "self"))
    count = rank(self) - held
    axes = [axis % count for axis in dims]
    sizes = [None if not isinstance(size, ir.Value) and size == -1 else size for size in sizes]
    steps = list(zip(axes, sizes, [complex_to_complex] * (len(axes) - 1) + [last]))
    x = cut(op, self, steps)
    x = op.Cast(x if held else op.Unsqueeze(x, [count]), to=component_dtype(op))
    if last is not complex_to_real:
        steps.reverse()  # a real signal stays real up to its last axis, whose transform needs no transposition
    for axis, size, step in steps:
        if size is None and step is not complex_to_real:
            size = op.size(x, axis)
        x = step(op, x, axis, size, inverse, power)
    if not steps and not held:  # along no axis: a real signal becomes complex all the same
        x = padded_along(op, x, [count], [0], [1])
    return x


def cut(op, x, steps) -> ir.Value:
    """*x* without what lies behind the elements of each axis that its transform takes."""
    ends = {}
    for axis, n, step in steps:
        if step is complex_to_real:  # a DFT of half a signal is cut, or continued, there
            n = half_of(op, n) if n is not None and has_matrix(n, 1) else None
        size = op.size(x, axis)
        if n is None or size is n or (isinstance(size, int) and isinstance(n, int) and size <= n):
            continue
        ends[axis] = n
    if not ends:
        return x
    return op.Slice(x, [0] * len(ends), op.shape(list(ends.values())), list(ends))


def complex_to_complex(op, x, axis, n, inverse, power=0) -> ir.Value:
    """The sums of ``x[j] exp(-2 pi i j k / n)`` for k below n, times ``n ** power``; the sign is plus for the inverse."""
    if has_matrix(n, 2 * x.shape[-1]):
        return by_matrix(op, x, axis, rotations(n, n, n, inverse, power)[:, : x.shape[-1]])
    return scaled_by_size(op, dft(op, x, n, axis, inverse=int(inverse)), n, power + inverse)


def real_to_complex(op, x, axis, n, inverse, power=0) -> ir.Value:
    """The first half of the sums of `complex_to_complex` for a real signal."""
    if has_matrix(n, 1):
        return by_matrix(op, x, axis, rotations(n, n, half_of(op, n), inverse, power)[:, :1])
    result = dft(op, x, n, axis, onesided=1)
    return scaled_by_size(op, conjugate(op, result) if inverse else result, n, power)


def complex_to_real(op, x, axis, n, inverse, power=0) -> ir.Value:
    """The sums of `complex_to_complex`, which are real, for the Hermitian signal of size n that starts with *x*.

    *n*: None for the even size of which *x* is the first half.
    """
    size = op.size(x, axis)
    even = n is None or is_whole_signal(op, n, size)
    half = size if even else half_of(op, n)
    n = times(op, minus(op, half, 1), 2) if n is None else n
    if has_matrix(n, 1):
        index = np.arange(half)
        weight = np.where((index == 0) | (2 * index == n), 1, 2).reshape(-1, 1, 1, 1)
        matrix = weight * rotations(n, half, n, inverse, power)[:, : x.shape[-1], :, :1]
        return by_matrix(op, x, axis, matrix)
    if x.shape[-1] == 1:  # DFT knows halves of complex signals alone
        x = padded_along(op, x, [rank(x) - 1], [0], [1])
    x = resized(op, x, axis, half)
    x = x if inverse else conj(op, x)
    x = dft(op, x, None if even else n, axis, inverse=1, onesided=1)
    return scaled_by_size(op, op.Squeeze(x, [rank(x) - 1]), n, power + 1)


def dft(op, x, n, axis, **attributes) -> ir.Value:
    """ONNX DFT of size n."""
    length = None if not isinstance(n, int) and op.size(x, axis) is n else n
    return op.DFT(x, length, axis, **attributes)


def has_matrix(n, blocks: int) -> bool:
    """Whether a transform of size n is a product with a matrix of so many times n * n elements."""
    size, elements = LARGEST_MATRIX
    return isinstance(n, int) and n <= size and blocks * n * n <= elements


def rotations(n: int, rows: int, columns: int, inverse: bool, power: float) -> np.ndarray:
    """What both parts of x[j] add to both parts of sum k: (rows j, part, columns k, part), see `complex_to_complex`."""
    angles = np.outer(np.arange(rows), np.arange(columns)) % n * (2 * np.pi / n)
    cos, sin = np.cos(angles) * float(n) ** power, np.sin(angles) * float(n) ** power
    sin = sin if inverse else -sin
    return np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)


def by_matrix(op, x, axis, matrix: np.ndarray) -> ir.Value:
    """A transform as a product with a matrix, real when this gives one part: the parts stand beside the elements of the axis."""
    _, held, kept, results = matrix.shape
    count, size = rank(x) - 1, op.size(x, axis)
    weights = op.constant(matrix.reshape(-1, kept * results), x.dtype)
    if size != matrix.shape[0]:  # zeros behind the signal need no rows
        weights = op.Slice(weights, [0], op.shape([times(op, size, held)]), [0])
    order = [*(place for place in range(count) if place != axis), axis]
    if count == 1:
        rows = op.Reshape(x, op.shape([1, times(op, size, held)]))
    elif held == 1:
        rows = op.Transpose(op.Squeeze(x, [count]), perm=order)
    else:
        rows = op.Reshape(
            op.Transpose(x, perm=[*order, count]), op.shape([*[0] * (count - 1), times(op, size, held)])
        )
    product = op.MatMul(rows, weights)
    if results == 2:
        product = op.Reshape(product, [*[0] * (count - 1), kept, results])
        return op.Transpose(product, perm=inverse_of([*order, count]))
    return op.Squeeze(product, [0]) if count == 1 else op.Transpose(product, perm=inverse_of(order))


def conjugate(op, x: ir.Value) -> ir.Value:
    """The conjugate of a complex value; a real one, of one part along the last axis, stays."""
    return x if x.shape[-1] == 1 else conj(op, x)


def half_of(op, n: Size) -> Size:
    """How many frequencies a real signal of size n has: read from a tensor that has as many, if there is one."""
    expression = None if is_static(n) else expression_of(op, n)
    found = None if expression is None else named(op, str(FloorDiv(expression, 2) + 1))
    return plus(op, quotient(op, n, 2), 1) if found is None else found


def is_whole_signal(op, n: Size, half: Size) -> bool:
    """Whether a symbolic n is known to be even: DFT, which gets *half* of the signal, takes an even size for granted."""
    if is_static(n):
        return False
    whole, part = expression_of(op, n), expression_of(op, half)
    return whole is not None and part is not None and whole == 2 * (part - 1)


def expression_of(op, size: Size) -> int | sympy.Expr | None:
    """What is known of a size: the int, the expression of one that the inputs decide, None for any other."""
    if is_static(size):
        return size
    dimensions = op.context.dimensions
    return dimensions.expressions.get(label(size)) if label(size) in dimensions.shared else None


def resized(op, x, axis, n) -> ir.Value:
    """*x* cut, or continued with zeros, to the size n along an axis."""
    size = op.size(x, axis)
    if size is n or (isinstance(size, int) and size == n):
        return x
    return padded_along(op, x, [axis], [0], [minus(op, n, size)])  # fewer than zero are taken away


def scaled_by_size(op, x, n, power: float) -> ir.Value:
    """``x * n ** power``."""
    if power == 0:
        return x
    if isinstance(n, int):
        return op.Mul(x, float(n) ** power)
    return op.Mul(x, op.Pow(op.Cast(n, to=x.dtype), power))
