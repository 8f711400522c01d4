"""Short-time Fourier transforms: stft, istft, and the windows that frames are multiplied by.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.stft.html and istft.html.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch
import torch.nn.functional as F

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.complex import given, is_complex
from experimental_experiment.torch_interpreter.aten.convolution import conv_transpose
from experimental_experiment.torch_interpreter.aten.fourier import (
    complex_to_complex,
    complex_to_real,
    cut,
    fourier,
    has_matrix,
    real_to_complex,
    rotations,
    scaled_by_size,
)
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.promotion import cast, promote
from experimental_experiment.torch_interpreter.registry import (
    HARMLESS,
    schema_names,
    takes,
    translates,
    translates_complex,
)
from experimental_experiment.torch_interpreter.sizes import Size, is_static, minus, plus

aten = torch.ops.aten

MOST_PARTS = 16
"""The largest number of parts of a frame that are added one by one."""


@fourier(aten.stft.default)
def stft(op, self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex):
    """The transform of each frame times the window; the result is (batch, frequency, frame), real when *return_complex* is not.

    A complex result and a real one with a trailing dimension of 2 are held alike. The signal and the window are promoted.
    """
    held = is_complex(given(op, "self"))
    if is_complex(given(op, "window")):
        raise Untranslatable("a complex window")
    batched = rank(self) - held == 2
    if not batched:
        self = op.Unsqueeze(self, [0])
    self, weights = promote(op, self, whole_window(op, window, win_length, n_fft))
    half = not held if onesided is None else onesided
    power, hop = -0.5 if normalized else 0, hop_length or n_fft // 4
    if not held and is_fast(n_fft):
        result = op.STFT(op.Unsqueeze(self, [2]), hop, weights, n_fft, onesided=int(half))
        # inference knows nothing of it where the signal has any length
        result.shape = result.shape or ir.Shape([self.shape[0], None, n_fft // 2 + 1 if half else n_fft, 2])
        result = op.Transpose(scaled_by_size(op, result, n_fft, power), perm=[0, 2, 1, 3])
    elif not held and has_matrix(n_fft, 1):
        result = convolved(op, self, hop, weights, n_fft, half, power)
    else:
        result = transform_of_frames(op, self, held, hop, weights, n_fft, half, power)
        result = op.Transpose(result, perm=[0, 2, 1, 3])
    return result if batched else op.Squeeze(result, [0])


@fourier(aten.stft.center)
def stft_center(
    op, self, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided, return_complex
):
    """`stft` of the signal continued at both ends, so that frames are centered."""
    if center:
        if pad_mode not in ("constant", "reflect"):
            raise Untranslatable(f"pad_mode={pad_mode}")
        axis = rank(self) - 1 - is_complex(given(op, "self"))
        self = padded_along(op, self, [axis], [n_fft // 2], [n_fft // 2], mode=pad_mode)
    return stft(op, self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex)


@translates_complex(aten.istft.default)
def istft(
    op, self, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
):
    """The signal whose frames have these transforms: overlapping frames are added, then divided by the windows' squares.

    The squares of a window of floats are of its dtype up to the quotient, as eager adds them. torch refuses windows whose squares add up
    to nothing; nothing checks this here. A complex signal, of whole transforms, has a last axis of its parts all the way.
    """
    if is_complex(given(op, "window")):
        raise Untranslatable("a complex window")
    batched = rank(self) == 4
    if not batched:
        self = op.Unsqueeze(self, [0])
    hop = hop_length or n_fft // 4
    spectra, power = op.Transpose(self, perm=[0, 2, 1, 3]), -0.5 if normalized else -1
    if return_complex:
        signals = complex_to_complex(op, spectra, 2, n_fft, True, power)
    else:
        signals = complex_to_real(op, cut(op, spectra, [(2, n_fft, complex_to_real)]), 2, n_fft, True, power)
    weights = whole_window(op, window, win_length, n_fft)
    if weights is None:
        weights = op.Expand(op.CastLike(1, signals), [n_fft])
    signal = overlapped(
        op, op.Mul(*promote(op, signals, beside_parts(op, weights, return_complex))), n_fft, hop
    )
    # integers add to integers, which are as exact in the dtype of the signal
    added = weights if weights.dtype.is_floating_point() else cast(op, weights, signals.dtype)
    squares = beside_parts(op, envelope(op, added, op.size(signals, 1), hop), return_complex)
    whole = op.Div(*promote(op, signal, squares))
    result = trimmed(op, whole, n_fft // 2 if center else 0, length)
    return result if batched else op.Squeeze(result, [0])


def beside_parts(op, x: ir.Value, held: bool) -> ir.Value:
    """Real numbers that multiply or divide complex ones, *held* as their parts along a last axis, or real ones."""
    return op.Unsqueeze(x, [rank(x)]) if held else x


def envelope(op, weights: ir.Value, count: Size, hop: int) -> ir.Value:
    """The squares of the windows of *count* frames, added where they lie in the signal: (1, element)."""
    if is_static(count) and is_small(weights):
        window = torch.from_numpy(weights.const_value.numpy().astype(np.float64)).reshape(1, 1, -1)
        ones = torch.ones(1, 1, count, dtype=window.dtype)
        added = F.conv_transpose1d(ones, window * window, stride=hop)[0]
        return op.constant(added.numpy(), weights.dtype)
    squares = op.Reshape(op.Mul(weights, weights), [1, 1, -1])
    ones = op.Expand(op.CastLike(1, weights), op.shape([1, 1, count]))
    added = conv_transpose(op, ones, squares, None, [hop], [0], [0], 1, [1])
    return op.Squeeze(added, [1])


def trimmed(op, signal: ir.Value, first: int, length: Size | None) -> ir.Value:
    """*signal* without *first* elements at both ends, or *length* elements from there, zeros beyond the last frame."""
    if length is None:
        return op.Slice(signal, [first], [-first], [1]) if first else signal
    result = op.Slice(signal, [first], op.shape([plus(op, length, first)]), [1])
    return padded_along(op, result, [1], [0], [minus(op, length, op.size(result, 1))])


def window(target: torch._ops.OpOverload) -> None:
    """Register a function that makes a window: a constant that torch computes."""
    names = [name for name in schema_names(target) if name not in HARMLESS]

    def translation(op, **arguments):
        dtype = op.context.node.meta["val"].dtype
        return op.constant(target(**arguments | {"dtype": dtype}), dtype)

    translation.__name__ = target._schema.name.split("::")[1]
    translation.__doc__ = f"{target} as a constant."
    translates(target)(takes(translation, names))


window(aten.bartlett_window.default)
window(aten.bartlett_window.periodic)
window(aten.blackman_window.default)
window(aten.blackman_window.periodic)
window(aten.hamming_window.default)
window(aten.hamming_window.periodic)
window(aten.hamming_window.periodic_alpha)
window(aten.hamming_window.periodic_alpha_beta)
window(aten.hann_window.default)
window(aten.hann_window.periodic)
window(aten.kaiser_window.beta)
window(aten.kaiser_window.default)
window(aten.kaiser_window.periodic)


def convolved(op, signals, hop, weights, n_fft: int, half, power: float) -> ir.Value:
    """The transforms of frames of real signals (batch, element), as (batch, frequency, frame, part): each part of a frequency is a filter.

    onnxruntime 1.31.1, one thread, four signals of 64 000 elements, a quarter of a frame apart, time to that of frames that a Gather takes, times a
    matrix: 0.4 for 64 elements, 0.6 for 256, 0.7 for 512.
    """
    matrix = rotations(n_fft, n_fft, n_fft // 2 + 1 if half else n_fft, False, power)[:, 0]
    filters = op.constant(matrix.transpose(1, 2, 0).reshape(-1, 1, n_fft), signals.dtype)
    if weights is not None:
        filters = op.Mul(filters, weights)
    taken = op.Conv(op.Unsqueeze(signals, [1]), filters, strides=[hop], dilations=[1])
    parted = op.Reshape(taken, [0, matrix.shape[1], 2, -1])
    return op.Transpose(parted, perm=[0, 1, 3, 2])


def transform_of_frames(op, signals, held, hop, weights, n_fft, half, power=0) -> ir.Value:
    """What STFT of signals (batch, element) gives, *held* says that a last axis has parts: every frame times *weights*, transformed."""
    taken = op.Gather(signals, op.Add(*frames(op, op.size(signals, 1), n_fft, hop)), axis=1)
    if weights is not None:
        taken = op.Mul(taken, op.Unsqueeze(weights, [1]) if held else weights)
    transform = real_to_complex if half else complex_to_complex
    return transform(op, taken if held else op.Unsqueeze(taken, [3]), 2, n_fft, False, power)


def frames(op, size, n_fft: int, hop: int) -> tuple[ir.Value, ir.Value]:
    """The first index of each frame, as a column, and the indices inside one, as a row."""
    end = minus(op, size, minus(op, n_fft, 1))
    return op.Unsqueeze(op.Range(0, end, hop), [1]), op.Range(0, n_fft, 1)


def is_fast(n_fft: int) -> bool:
    """Whether ONNX STFT of frames of a size is as fast as filters, which take 4 MiB then: from the power of two 1024 on.

    onnxruntime 1.31.1, one thread, four signals of 64 000 elements, a quarter of a frame apart, time of the filters to that of STFT: 0.54 for 512,
    0.93 for 1024, 1.65 for 2048; of frames and DFT, which larger sizes take, 1.42 for 2048, 1.29 for 4096. Other sizes lose digits, see the
    rows of DFT.
    """
    return isinstance(n_fft, int) and n_fft >= 1024 and not n_fft & (n_fft - 1)


def whole_window(op, window, win_length: int | None, n_fft: int) -> ir.Value | None:
    """The window of *win_length* elements in the middle of *n_fft* ones; without a window its elements are 1."""
    win_length = win_length or n_fft
    left = (n_fft - win_length) // 2
    if window is None:
        if win_length == n_fft:
            return None
        dtype = dtypes.onnx_dtype(op.context.node.meta["val"].dtype)
        window = op.Expand(op.constant(1, dtype), [win_length])
    return padded_along(op, window, [0], [left], [n_fft - win_length - left])


def overlapped(op, signals, n_fft: int, hop: int) -> ir.Value:
    """The frames (batch, frame, element) added where they lie in the signal; elements may have two parts, along a last axis.

    Where frames are some hops long, part i of all of them is a signal that starts i hops later. onnxruntime 1.31.1, one thread, two signals of 200
    frames, time to that of ScatterElements: 0.21 for parts of half of 1024 elements, 0.36 for a quarter, 0.19 for an eighth of 512.
    """
    parts, rest = divmod(n_fft, hop)
    two = list(signals.shape[3:])
    if rest == 0 and parts <= MOST_PARTS:
        shifted = [
            padded_along(op, part, [1], [index], [parts - 1 - index])
            for index, part in enumerate(op.Split(signals, axis=2, num_outputs=parts, outputs=parts))
        ]
        return op.Reshape(op.Sum(*shifted), [0, -1, *two])
    batch, count = op.shape_of(signals, 0, 1), op.shape_of(signals, 1, 2)
    total = op.Add(op.Mul(op.Sub(count, 1), hop), n_fft)
    start = op.Unsqueeze(op.Mul(op.Range(0, op.Squeeze(count, [0]), 1), hop), [1])
    places = op.Reshape(op.Add(start, op.Range(0, n_fft, 1)), [1, -1, *[1] * len(two)])
    flat = op.Reshape(signals, op.shape([batch, -1, *two]))
    nothing = op.Expand(op.CastLike(0, signals), op.shape([batch, total, *two]))
    return op.ScatterElements(nothing, op.Expand(places, op.shape_of(flat)), flat, axis=1, reduction="add")
