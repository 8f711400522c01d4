"""Matrices in blocks of 4 or 8 bits: the codes, scales and zero points that MatMulNBits reads.

Source of the layout: onnxruntime's contrib operators MatMulNBits and GatherBlockQuantized; its own functions quantize.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from onnxruntime.capi import _pybind_state as onnxruntime_native

BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Elements of a block that onnxruntime multiplies."""

QUANTIZE = {4: onnxruntime_native.quantize_matmul_4bits, 8: onnxruntime_native.quantize_matmul_8bits}


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A matrix of N rows and K columns, each row in blocks of *block_size* columns, the last one filled up.

    Attributes:
        packed: uint8[N, blocks, block_size * bits / 8], codes of 4 bits in pairs, the first in the low half.
        scales: [N, blocks], of the dtype of the matrix.
        zero_points: uint8[N, ceil(blocks * bits / 8)], packed alike; None when all are 2 ** (bits - 1).
        columns: K.
        bits: 4 or 8.
    """

    packed: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
    columns: int
    bits: int

    @property
    def block_size(self) -> int:
        """Columns of a block."""
        return self.packed.shape[2] * 8 // self.bits

    @property
    def nbytes(self) -> int:
        """Bytes of all three."""
        return sum(
            array.nbytes for array in (self.packed, self.scales, self.zero_points) if array is not None
        )

    def codes(self) -> np.ndarray:
        """uint8[N, K], a code each."""
        return unpack(self.packed.reshape(len(self.packed), -1), self.bits)[:, : self.columns]

    def offsets(self) -> np.ndarray | None:
        """uint8[N, blocks]: the zero points, one each."""
        if self.zero_points is None:
            return None
        return unpack(self.zero_points, self.bits)[:, : self.scales.shape[1]]

    def rows(self) -> np.ndarray:
        """uint8[N, ceil(K * bits / 8)]: the codes of GatherBlockQuantized, packed without the filling."""
        width = -(-self.columns * self.bits // 8)
        return np.ascontiguousarray(self.packed.reshape(len(self.packed), -1)[:, :width])

    def error(self, matrix: np.ndarray) -> float:
        """Frobenius norm of the difference with the [N, K] matrix, relative to that of the matrix; a slice at a time."""
        lost = total = 0.0
        for start in range(0, len(matrix), SLICE):
            rows = slice(start, start + SLICE)
            part = matrix[rows].astype(np.float32)
            offsets = None if self.zero_points is None else self.zero_points[rows]
            same = dataclasses.replace(
                self, packed=self.packed[rows], scales=self.scales[rows], zero_points=offsets
            )
            with np.errstate(over="ignore"):  # inf is an error too
                read = same.dequantized().astype(matrix.dtype).astype(np.float32)
            lost += float(np.square(read - part, dtype=np.float64).sum())
            total += float(np.square(part, dtype=np.float64).sum())
        return (lost / total) ** 0.5 if total else 0.0

    def are_held(self, matrix: np.ndarray) -> bool:
        """Whether the scale of every block of the [N, K] matrix is a step: finite, and large enough for its dtype.

        Float32 that is not normal has no reciprocal, by which onnxruntime multiplies. Float16 below 8 times its smallest number is
        rounded by more than a sixteenth, which is what 4 bits lose.
        """
        steps = np.abs(self.scales)
        limits = np.finfo(steps.dtype)
        is_half = steps.dtype == np.float16
        smallest = limits.smallest_subnormal * np.float16(8) if is_half else limits.smallest_normal
        starts = range(0, self.columns, self.block_size)
        is_zero = ~np.logical_or.reduceat(matrix != 0, starts, axis=1)
        return bool((np.isfinite(steps) & ((steps >= smallest) | is_zero)).all())

    def dequantized(self) -> np.ndarray:
        """float32[N, K]: (code - zero point) * scale."""
        offsets = self.offsets()
        offsets = np.float32(2 ** (self.bits - 1)) if offsets is None else self.spread(offsets)
        return (self.codes() - offsets) * self.spread(self.scales)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """float32[N, K]: the value of its block for each column."""
        return np.repeat(values.astype(np.float32), self.block_size, axis=1)[:, : self.columns]


SLICE = 1024
"""Rows whose error is computed at once."""


def quantize_blocks(matrix: np.ndarray, bits: int, block_size: int, symmetric: bool) -> Blocks:
    """Round an [N, K] matrix of float32 or float16 to *bits* bits, row by row in blocks.

    The error of an element is at most half a step, the scale of its block. Symmetric: the step is the largest magnitude divided
    by 2 ** (bits - 1), and one element of this magnitude but opposite sign may lose a whole step. Not symmetric: the codes span
    the smallest to the largest element, 0 included.
    """
    count, columns = matrix.shape
    blocks = -(-columns // block_size)
    packed = np.zeros((count, blocks, block_size * bits // 8), np.uint8)
    scales = np.zeros((count, blocks), matrix.dtype)
    zero_points = np.zeros((count, -(-blocks * bits // 8)), np.uint8)
    transposed = np.ascontiguousarray(matrix.T)
    QUANTIZE[bits](packed, transposed, scales, zero_points, block_size, count, columns, symmetric)
    return Blocks(packed, scales, None if symmetric else zero_points, columns, bits)


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8[n, m * 8 / bits]: one code each."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


def pack(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits, any shape, in pairs in the order of the memory, as ONNX keeps INT4 and UINT4."""
    flat = codes.reshape(-1)
    if flat.size % 2:
        flat = np.append(flat, flat.dtype.type(0))
    return flat[::2] & 15 | (flat[1::2] & 15) << 4
