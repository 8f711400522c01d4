"""Fourier transforms of one and several axes, shifts of their frequencies.

A transform of a known size is one matrix product; of a large or of a symbolic size, ONNX DFT. Every transform here is the unscaled
sum; the scale that *norm* asks for follows.
Source of semantics: https://pytorch.org/docs/stable/fft.html.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.complex import (
    component_dtype,
    given,
    is_complex,
    join,
    parts,
)
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import translates, translates_complex

aten = torch.ops.aten

LARGEST_MATRIX = 1024
"""The largest size that is transformed by a matrix: 8 MiB of float32."""

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
    x = op.Cast(self if held else op.Unsqueeze(self, [count]), to=component_dtype(op))
    if last is complex_to_real and not held:
        x = op.Concat(x, op.Expand(op.CastLike(0, x), op.shape_of(x)), axis=count)
    axes = [axis % count for axis in dims]
    steps = list(zip(axes, sizes, [complex_to_complex] * (len(axes) - 1) + [last]))
    if last is real_to_complex:
        steps.reverse()
    for axis, size, step in steps:
        if not isinstance(size, ir.Value) and size == -1:
            size = op.size(x, axis)
            if step is complex_to_real:
                size = 2 * (size - 1) if isinstance(size, int) else op.Mul(op.Sub(size, 1), 2)
        x = scaled_by_size(op, step(op, x, axis, size, inverse), size, power)
    return x


def complex_to_complex(op, x, axis, n, inverse) -> ir.Value:
    """The sums of ``x[j] exp(-2 pi i j k / n)`` for k below n; the sign is plus for the inverse."""
    if not inverse:
        return forward(op, x, axis, n, n)
    return conjugate(op, forward(op, conjugate(op, x), axis, n, n))


def real_to_complex(op, x, axis, n, inverse) -> ir.Value:
    """The first half of the sums of `complex_to_complex` for a real signal."""
    result = forward(op, x, axis, n, half_of(op, n))
    return conjugate(op, result) if inverse else result


def complex_to_real(op, x, axis, n, inverse) -> ir.Value:
    """The sums of `complex_to_complex`, which are real, for the Hermitian signal of size n that starts with *x*.

    Each term but the first and the middle one stands for two.
    """
    half = half_of(op, n)
    index = op.Range(0, half, 1)
    single = op.Or(op.Equal(index, 0), op.Equal(op.Mul(index, 2), n))
    weight = op.Unsqueeze(
        op.Where(single, op.CastLike(1, x), op.CastLike(2, x)), list(range(1, rank(x) - axis))
    )
    x = op.Mul(resized(op, x, axis, half), weight)
    return parts(op, forward(op, conjugate(op, x) if inverse else x, axis, n, n))[0]


def forward(op, x, axis, n, kept) -> ir.Value:
    """The first *kept* sums of ``x[j] exp(-2 pi i j k / n)``: all, or half of them for a real signal.

    *x* has a trailing dimension of 1 (real) or 2; it is cut, or continued with zeros, to the size n.
    """
    size = op.size(x, axis)
    if not (isinstance(size, int) and isinstance(n, int) and size <= n):
        x = op.Slice(x, [0], op.shape([n]), [axis])
    if isinstance(n, int) and n <= LARGEST_MATRIX:
        return by_matrix(op, x, axis, n, kept)
    return op.DFT(x, n, axis, onesided=int(kept is not n and kept != n))


def by_matrix(op, x, axis, n: int, kept: int) -> ir.Value:
    """`forward` as a product with the matrices of cosines and of sines."""
    angles = np.outer(np.arange(n), np.arange(kept)) % n * (2 * np.pi / n)
    cos, sin = (op.constant(table(angles), x.dtype) for table in (np.cos, np.sin))
    if x.shape[axis] != n:
        rows = op.shape_of(x, axis, axis + 1)
        cos, sin = (op.Slice(matrix, [0], rows, [0]) for matrix in (cos, sin))
    order = [other for other in range(rank(x) - 1) if other != axis] + [axis]
    back = [order.index(place) for place in range(rank(x) - 1)]

    def product(part, matrix):
        return op.Transpose(op.MatMul(op.Transpose(part, perm=order), matrix), perm=back)

    if x.shape[-1] == 1:
        real = op.Squeeze(x, [rank(x) - 1])
        return join(op, product(real, cos), op.Neg(product(real, sin)))
    real, imag = parts(op, x)
    return join(
        op,
        op.Add(product(real, cos), product(imag, sin)),
        op.Sub(product(imag, cos), product(real, sin)),
    )


def conjugate(op, x) -> ir.Value:
    """The conjugate of a complex value; a real one stays."""
    if x.shape[-1] == 1:
        return x
    real, imag = parts(op, x)
    return join(op, real, op.Neg(imag))


def half_of(op, n) -> int | ir.Value:
    """How many frequencies a real signal of size n has."""
    return n // 2 + 1 if isinstance(n, int) else op.Add(op.Div(n, 2), 1)


def resized(op, x, axis, n) -> ir.Value:
    """*x* cut, or continued with zeros, to the size n along an axis."""
    size = op.size(x, axis)
    if isinstance(size, int) and size == n:
        return x
    missing = op.Max(op.Sub(op.shape([n]), op.shape([size])), [0])
    return op.Slice(padded_along(op, x, [axis], [0], [missing]), [0], op.shape([n]), [axis])


def scaled_by_size(op, x, n, power: float) -> ir.Value:
    """``x * n ** power``."""
    if power == 0:
        return x
    if isinstance(n, int):
        return op.Mul(x, float(n) ** power)
    return op.Mul(x, op.Pow(op.Cast(n, to=x.dtype), power))
