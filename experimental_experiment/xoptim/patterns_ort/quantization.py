"""Quantized weights. Products of what DequantizeLinear makes of blocks need no rule: onnxruntime makes MatMulNBits of them when it loads."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.blocks import BLOCK_SIZES, pack
from experimental_experiment.xoptim.pattern import P, attribute_of, const, constant_of, optional, var
from experimental_experiment.xoptim.patterns.packing import bias_of, sum_after
from experimental_experiment.xoptim.patterns_ort.attention import MICROSOFT
from experimental_experiment.xoptim.rules import no, rule

WEIGHT = P.DequantizeLinear(const("weight"), const("scale"), optional("zero"), name="dequantized")


@rule(P.Gather(WEIGHT, var("indices"), name="gather"), set="onnxruntime")
def gather_block_quantized(op, weight, scale, zero, indices, dequantized, gather):
    """Rows of a matrix of four bits in blocks: the operator dequantizes those rows only.

    Measured with onnxruntime 1.31: 0.016 of the time for one row of 1024 x 512, 0.45 for 128 rows.
    """
    if zero is not None and constant_of(zero) is None:
        return no("the zeros are no constants, as the operator asks")
    size, axis = attribute_of(dequantized, "block_size", 0), attribute_of(dequantized, "axis", 1)
    if (
        weight.dtype not in (ir.DataType.INT4, ir.DataType.UINT4)
        or weight.shape is None
        or len(weight.shape) != 2
    ):
        return no("no matrix of four bits")
    if (
        size < 16
        or size & (size - 1)
        or axis not in (1, -1)
        or attribute_of(gather, "axis", 0) not in (0, -2)
    ):
        return no("blocks of another size, or along the axis of the rows")
    if scale.dtype != ir.DataType.FLOAT or dequantized.outputs[0].dtype != scale.dtype:
        return no("not in float32")
    return op.GatherBlockQuantized(
        weight, indices, scale, zero, block_size=size, gather_axis=0, quantize_axis=1, domain=MICROSOFT
    )


BYTES = (ir.DataType.INT8, ir.DataType.UINT8)

LEFT = P.DequantizeLinear(var("x"), var("x_scale"), optional("x_zero"), name="left")
RIGHT = P.DequantizeLinear(const("weight"), const("scale"), optional("zero"), name="right")

PASSED = frozenset(("Clip", "Relu"))
"""What onnxruntime takes into a quantized product that ends behind it."""


@rule(P.Gemm(LEFT, RIGHT, optional("bias"), name="gemm"), set="onnxruntime", looks_further=True)
def product_of_integers(op, x, x_scale, x_zero, weight, scale, zero, bias, left, right, gemm):
    """A linear layer of bytes whose result stays float is a product of integers, scaled afterwards.

    Measured with onnxruntime 1.31, 1024 x 512: 0.2 to 0.3 of the time for 1 and 3 rows, 0.4 for 16; its own QGemm asks for a bias in integers, and
    for unsigned ones, else a Gemm dequantizes the weight at each run. All are unsigned here: pairs of other products would saturate in 16 bits.
    """
    if x.dtype not in BYTES or weight.dtype not in BYTES or weight.shape is None or len(weight.shape) != 2:
        return no("no matrices of bytes")
    if any(value.dtype != ir.DataType.FLOAT for value in (x_scale, scale, gemm.outputs[0])):
        return no("not in float32")
    factors = {attribute_of(gemm, name, 1.0) for name in ("alpha", "beta")}
    if attribute_of(gemm, "transA", 0) or factors != {1.0}:
        return no("the product is scaled, or of a transposed matrix")
    if x_scale.shape is None or any(size != 1 for size in x_scale.shape):
        return no("several scales of what is multiplied")
    if is_quantized_next(gemm.outputs[0]) or (bias is None and x.dtype == ir.DataType.UINT8):
        return no("onnxruntime makes a quantized product of it")
    turned = attribute_of(gemm, "transB", 0)
    scales, zeros = constant_of(scale).numpy(), zeros_of(zero, weight.dtype)
    columns = weight.shape[0 if turned else 1]
    along = attribute_of(right, "axis", 1) % 2 == (0 if turned else 1)
    if (
        zeros is None
        or scales.ndim > 1
        or (scales.size > 1 and not along)
        or zeros.size not in (1, columns)
        or not zeros.size
    ):
        return no("several scales of a column, or zeros that are not known")
    unsigned = in_unsigned(op, x, x_scale, x_zero)
    if unsigned is None:
        return no("what is multiplied comes from elsewhere")
    codes, shift = constant_of(weight), 128 if weight.dtype == ir.DataType.INT8 else 0

    def compute() -> np.ndarray:
        """A row for each element that is summed."""
        given = codes.numpy().astype(np.int16) + shift
        return np.ascontiguousarray(given.T if turned else given, dtype=np.uint8)

    shape = reversed(weight.shape) if turned else weight.shape
    rows = op.lazy_weight(f"{weight.name}_unsigned", compute, ir.DataType.UINT8, tuple(shape))
    zeros = (zeros.astype(np.int16) + shift).astype(np.uint8)
    total = op.MatMulInteger(unsigned[0], rows, unsigned[1], zeros[0] if (zeros == zeros[0]).all() else zeros)
    result = op.Mul(op.Cast(total, to=ir.DataType.FLOAT), op.Mul(x_scale, scales.reshape(-1)))
    return result if bias is None else op.Add(result, bias)


STEPS = P.Reshape(P.Cast(const("codes")), var("in_blocks"))
ZEROS = P.Reshape(P.Cast(const("zeros")), var("of_zeros")) | const("zeros")
SCALES = P.Reshape(const("scales"), var("of_scales")) | const("scales")
MOVED = P.Sub(STEPS, ZEROS, name="moved") | STEPS
BLOCKS = P.Reshape(P.Mul(MOVED, SCALES, name="scaled"), var("shape"), name="weight")
TURNED = P.Transpose(BLOCKS, perm=[1, 0])
FROM = 2**20
"""Elements of a weight from which its product in four bits is worth it: one row times fewer takes longer."""

MIDDLES = {ir.DataType.INT8: 8, ir.DataType.UINT8: 0}
"""The code of four bits that stands for 0."""


@rule(
    P.Gemm(var("x"), BLOCKS, optional("bias"), transB=1, name="product")
    | P.MatMul(var("x"), TURNED, name="product"),
    set="onnxruntime",
)
def product_of_blocks(op, x, codes, scales, weight, scaled, product, zeros=None, moved=None, bias=None):
    """A linear layer whose weight arrives as steps of four bits in blocks: the operator reads them, nothing is stored in float32.

    What multiplies it is not rounded. Measured with onnxruntime 1.31, 1024 x 1024 to 2048 x 8192: 0.43 to 0.67 of the time for one row, as in decoding,
    1.1 to 2.2 for 2 to 16, 1.0 to 1.3 for 64, 0.99 for 256. An element of blocks of 32 takes 5 bits; else onnxruntime makes 32 of them when it loads.
    """
    plain = {"transA": 0, "alpha": 1.0, "beta": 1.0}
    if any(attribute_of(product, name, usual) != usual for name, usual in plain.items()):
        return no("the product is scaled, or of a transposed matrix")
    if product.outputs[0].dtype != ir.DataType.FLOAT or codes.dtype not in MIDDLES:
        return no("not in float32, or no steps of a byte")
    blocks, rows = scaled.outputs[0].shape, weight.outputs[0].shape
    if blocks is None or len(blocks) != 3 or not blocks.is_static() or x.shape is None or len(x.shape) < 2:
        return no("blocks of an unknown size, or no rows")
    count, many, size = blocks
    if size not in BLOCK_SIZES or rows != (count, many * size) or codes.shape != rows:
        return no("blocks of another size, or not along the terms of the sum")
    if count * many * size < FROM:
        return no("the weight is small")
    if not any(value.shape == (count, many, 1) for value in scaled.inputs):
        return no("scales of other blocks")
    middle = MIDDLES[codes.dtype]
    offsets = np.zeros(1) if zeros is None else constant_of(zeros).numpy()
    if offsets.size != 1 and moved.inputs[1].shape != (count, many, 1):
        return no("zeros of other blocks")
    offsets, array = offsets + middle, constant_of(codes).numpy()
    limits = np.array([int(array.min()), int(array.max())]) + middle
    if not are_of_four_bits(offsets) or not are_of_four_bits(limits):
        return no("steps or zeros of more than four bits")
    stored = stored_blocks(op, codes, scales, offsets, (count, many, size))
    total = sum_after(product) if product.op_type == "MatMul" else None
    if total is not None:
        bias = bias_of(op, product, total)
    sizes = {"K": many * size, "N": count, "bits": 4, "block_size": size}
    is_row = bias is None or bias.shape == (count,)
    result = op.MatMulNBits(x, *stored, None, bias if is_row else None, **sizes, domain=MICROSOFT)
    return {(total or product).outputs[0]: result if is_row else op.Add(result, bias)}


def stored_blocks(
    op, codes: ir.Value, scales: ir.Value, offsets: np.ndarray, shape: tuple[int, int, int]
) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """What MatMulNBits reads of rows, blocks of a row and steps of a block: packed steps, scales, zero points; *offsets* are one or one a block."""
    count, many, size = shape
    steps, factors, middle = constant_of(codes), constant_of(scales), MIDDLES[codes.dtype]
    packed = op.lazy_weight(
        f"{codes.name}_packed",
        lambda: pack(steps.numpy().view(np.uint8) + np.uint8(middle)).reshape(count, many, size // 2),
        ir.DataType.UINT8,
        (count, many, size // 2),
    )
    of_blocks = op.lazy_weight(
        f"{codes.name}_scales", lambda: factors.numpy().reshape(count, many), factors.dtype, (count, many)
    )
    if (offsets == 8).all():  # as the operator takes them for
        return packed, of_blocks, None
    each = np.zeros((count, many + many % 2), np.uint8)
    each[:, :many] = offsets if offsets.size == 1 else offsets.reshape(count, many)
    points = op.weight(f"{codes.name}_zero_points", ir.Tensor(pack(each).reshape(count, -1)))
    return packed, of_blocks, points


def are_of_four_bits(values: np.ndarray) -> bool:
    """Whether values are integers from 0 to 15."""
    return bool(((values >= 0) & (values < 16) & (values == np.floor(values))).all())


def is_quantized_next(value: ir.Value) -> bool:
    """Whether a QuantizeLinear reads a value, or what is made of it that goes into the product."""
    for user, _ in value.uses():
        if user.op_type == "QuantizeLinear" or (
            user.op_type in PASSED and is_quantized_next(user.outputs[0])
        ):
            return True
    return False


def zeros_of(zero: ir.Value | None, dtype: ir.DataType) -> np.ndarray | None:
    """The zero points of constants in a row, None when they are not known."""
    if zero is None:
        return np.zeros(1, dtype.numpy())
    tensor = constant_of(zero)
    return None if tensor is None else tensor.numpy().reshape(-1)


def in_unsigned(op, x: ir.Value, scale: ir.Value, zero: ir.Value | None) -> tuple[ir.Value, ir.Value] | None:
    """Bytes and their zero point in UINT8: quantized so, when they were signed; None when nothing quantizes them with the same numbers."""
    byte = ir.DataType.UINT8
    if x.dtype == byte:
        return x, op.constant(0, byte) if zero is None else zero
    node = producer_of(x, "QuantizeLinear")
    if node is None or node.inputs[1] is not scale or (*node.inputs, None)[2] is not zero:
        return None
    if zero is None:
        moved = op.constant(128, byte)
    else:
        moved = op.Cast(op.Add(op.Cast(zero, to=ir.DataType.INT32), 128), to=byte)
    return op.QuantizeLinear(*node.inputs[:2], moved), moved
