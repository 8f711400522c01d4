"""Products with what onnxruntime fuses into them, and products with quantized weights."""

from __future__ import annotations

import numpy as np

from experimental_experiment.reference.operators.activations import activated
from experimental_experiment.reference.registry import computes


@computes("FusedMatMul")
def fused_matmul(a, b, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """alpha * a @ b. *transBatchA*: the first axis of the matrices of *a* stands before those of the batch."""
    return (np.matmul(turned(a, transA, transBatchA), turned(b, transB, transBatchB)) * alpha).astype(a.dtype)


@computes("TransposeMatMul")
def transpose_matmul(a, b, *, alpha=1.0, transA=0, transB=0):
    """The former name of FusedMatMul."""
    return fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB)


def turned(x: np.ndarray, swaps: int, moves: int) -> np.ndarray:
    """A factor of FusedMatMul as MatMul takes it; a vector stays as it is."""
    if x.ndim < 2:
        return x
    if moves:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if swaps else x


@computes("FusedGemm")
def fused_gemm(
    a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0,
    activation="", activation_alpha=None, activation_beta=None, activation_gamma=None,
):  # fmt: skip
    """Gemm and an activation."""
    product = alpha * np.matmul(a.T if transA else a, b.T if transB else b)
    total = product if c is None else product + beta * c
    parameters = [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None]
    return activated(total.astype(a.dtype), activation, *parameters)


@computes("MatMulNBits")
def matmul_n_bits(
    a, b, scales, zero_points=None, g_idx=None, bias=None,
    *, K, N, bits=4, block_size, accuracy_level=0, weight_prepacked=0,
):  # fmt: skip
    """a @ w.T + bias with w[N, K] in blocks of codes. *accuracy_level* is how onnxruntime computes it, not what."""
    if g_idx is not None or weight_prepacked:
        raise NotImplementedError("MatMulNBits with g_idx or with prepacked weights is not handled")
    blocks = -(-K // block_size)
    codes = unpacked(b.reshape(N, -1), bits)[:, : blocks * block_size]
    weight = dequantized(codes, scales.reshape(N, blocks), zero_points, bits, block_size)[:, :K]
    product = np.matmul(a.astype(np.float32), weight.T)
    return (product if bias is None else product + bias).astype(a.dtype)


@computes("GatherBlockQuantized")
def gather_block_quantized(
    data, indices, scales, zero_points=None, *, bits=4, block_size=128, gather_axis=0, quantize_axis=1
):
    """Rows of a table whose elements are codes, in blocks along *quantize_axis*."""
    axis, gather_axis = quantize_axis % data.ndim, gather_axis % data.ndim
    signed = data.dtype.name == "int4"
    is_packed = data.dtype == np.uint8
    codes = np.moveaxis(data, axis, -1)
    codes = unpacked(codes, bits) if is_packed and bits < 8 else codes.astype(np.int32)
    offsets = 0 if signed else 2 ** (bits - 1) if is_packed else 0
    if zero_points is not None:
        offsets = np.moveaxis(zero_points, axis, -1)
        offsets = unpacked(offsets, bits) if is_packed and bits < 8 else offsets.astype(np.int32)
    steps = np.moveaxis(scales, axis, -1)
    if isinstance(offsets, np.ndarray):
        offsets = np.repeat(offsets[..., : steps.shape[-1]], block_size, axis=-1)[..., : codes.shape[-1]]
    table = (codes - offsets) * np.repeat(steps, block_size, axis=-1)[..., : codes.shape[-1]]
    table = np.moveaxis(table, -1, axis)
    return np.take(table, indices, axis=gather_axis).astype(scales.dtype)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Codes of *bits* bits, one by one as int32: those of a byte stand in its low bits first."""
    if bits == 8:
        return packed.astype(np.int32)
    shifts = np.arange(0, 8, bits)
    codes = (packed[..., None] >> shifts) & (2**bits - 1)
    return codes.reshape(*packed.shape[:-1], -1).astype(np.int32)


def dequantized(
    codes: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None, bits: int, block_size: int
) -> np.ndarray:
    """(code - zero point) * scale in float32, for rows in blocks; zero points are packed, or numbers of the scales' dtype."""
    offsets: float | np.ndarray = 2.0 ** (bits - 1)
    if zero_points is not None:
        is_packed = zero_points.dtype == np.uint8
        rows = zero_points.reshape(len(codes), -1)
        rows = unpacked(rows, bits)[:, : scales.shape[1]] if is_packed else rows
        offsets = np.repeat(rows.astype(np.float32), block_size, axis=1)
    return (codes - offsets) * np.repeat(scales.astype(np.float32), block_size, axis=1)
