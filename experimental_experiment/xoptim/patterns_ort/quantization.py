"""Quantized weights. Products of those in blocks need no rule: onnxruntime makes MatMulNBits of them when it loads."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import P, attribute_of, const, constant_of, optional, var
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
