"""Matrix products: vectors, empty axes, transposed batches, the digits of float64 factors beside them."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.torch_interpreter.promotion import raised, rounded, wide
from experimental_experiment.torch_interpreter.runtime.table import repairs
from experimental_experiment.torch_interpreter.sizes import may_be_none


@repairs(
    "MatMul",
    when="one operand has one axis, the other several and is computed, or any axis may have size 0 but that of columns",
    because="a Transpose before it is fused although it moves other axes (error 4 on a 5 x 5 matrix); over an empty axis the result is never set; no rows are refused",
    nodes=2,
)
def of_a_vector(op, a, b):
    """The vector is a matrix of one row or one column, and that axis is squeezed afterwards."""
    if not (a.shape and b.shape) or 1 not in (rank(a), rank(b)) or rank(a) == rank(b):
        return None
    vector, other = (a, b) if rank(a) == 1 else (b, a)
    if other.producer() is None and all(isinstance(n, int) and n for n in (*vector.shape, *other.shape[:-1])):
        return None
    if rank(a) == 1:
        row = op.Unsqueeze(a, [0])
        # a row of nothing for all matrices gives what the memory held
        if rank(b) > 2 and not isinstance(a.shape[0], int):
            row = op.Expand(
                row, op.shape([*(op.size(b, axis) for axis in range(rank(b) - 2)), 1, op.size(a, 0)])
            )
        return op.Squeeze(op.MatMul(row, b), [rank(b) - 2])
    return op.Squeeze(op.MatMul(a, op.Unsqueeze(b, [1])), [rank(a) - 1])


@repairs(
    "MatMul",
    when="the summed axis has size 0 in a static shape",
    because="the result of a product with a transposed matrix is never set",
    nodes=2,
)
def over_nothing(op, a, b):
    """A product of zeros over one element."""
    if not (a.shape and b.shape) or a.shape[-1] != 0 or rank(a) == rank(b) == 1:
        return None
    row = op.Expand(op.constant(0, a.dtype), op.shape([*(op.size(a, k) for k in range(rank(a) - 1)), 1]))
    rows = [op.size(b, k) for k in range(rank(b))]
    rows[max(0, rank(b) - 2)] = 1
    return op.MatMul(row, op.Expand(op.constant(0, b.dtype), op.shape(rows)))


@repairs(
    "MatMul",
    when="floats; the last two axes of three or more of an operand are a Transpose, scaled or cast, and the summed axis may have size 0",
    because="the Transpose is fused into the product, whose result over an empty axis is never set",
    nodes=0,
)
def that_may_be_over_nothing(op, a, b):
    """The Transpose is an Einsum, which stays apart."""
    if not (a.shape and b.shape):
        return None
    if any(isinstance(size, int) for size in (a.shape[-1], b.shape[max(0, rank(b) - 2)])):
        return None
    return with_transpositions_apart(op, a, b, swaps_the_last)


@repairs(
    "MatMul",
    when="floats; an operand is a Transpose, scaled or cast, that moves axis 0 behind those of the batch, and the data decide its size",
    because="the fusion of the Transpose ends the process where nothing is selected",
    nodes=0,
)
def of_rows_that_are_selected(op, a, b):
    """The Transpose is an Einsum, which stays apart."""
    if not any(may_be_none(op, size) for value in (a, b) for size in value.shape or ()):
        return None

    def moves_rows(node: ir.Node) -> bool:
        order, moved = order_of(node), node.outputs[0]
        rows, *batch, last = range(rank(moved))
        is_moved = order in ([*batch, rows, last], [*batch, last, rows])
        return is_moved and may_be_none(op, moved.shape[order.index(rows)])

    return with_transpositions_apart(op, a, b, moves_rows)


@repairs(
    "Einsum",
    when="two operands, the second one of three axes or more, of which the data decide a size",
    because="the transposition of the second one ends the process where nothing is selected",
    nodes=1,
)
def of_what_is_selected(op, *operands, equation):
    """The second operand is transposed apart: the axes of both, those that are summed, its own."""
    left, _, output = equation.replace(" ", "").partition("->")
    first, comma, second = left.partition(",")
    if len(operands) != 2 or not comma or "." in left or len({*second}) < max(3, len(second)):
        return None
    if not (operands[1].shape and any(may_be_none(op, size) for size in operands[1].shape)):
        return None
    order = "".join(sorted(second, key=lambda axis: 2 if axis not in first else axis not in output))
    if order == second:
        return None
    moved = op.Einsum(operands[1], equation=f"{second}->{order}")
    return op.Einsum(operands[0], moved, equation=f"{first},{order}->{output}")


def swaps_the_last(node: ir.Node) -> bool:
    """Whether a Transpose swaps the last two axes alone."""
    *batch, rows, columns = range(rank(node.outputs[0]))
    return order_of(node) == [*batch, columns, rows]


def with_transpositions_apart(op, a: ir.Value, b: ir.Value, matters: Callable) -> ir.Value | None:
    """The product of floats of known ranks with `with_transposition_apart` of both; None when that changes neither, and for others."""
    if not (a.shape and b.shape) or a.dtype not in dtypes.FLOATS:
        return None
    apart = [with_transposition_apart(op, value, matters) for value in (a, b)]
    return None if apart == [a, b] else op.MatMul(*apart)


def with_transposition_apart(op, value: ir.Value, matters: Callable[[ir.Node], bool]) -> ir.Value:
    """A value that is transposed by an Einsum in the place of a Transpose of three axes or more that matters; itself without one.

    It is computed once more where onnxruntime fuses what stands between the Transpose and a product: a Cast, one constant factor.
    """
    node = producer_of(value)
    if node is None:
        return value
    if node.op_type == "Transpose":
        if not value.shape or rank(value) < 3 or not matters(node):
            return value
        left = string.ascii_letters[: rank(value)]
        right = "".join(left[axis] for axis in order_of(node))
        return op.Einsum(node.inputs[0], equation=f"{left}->{right}")
    scaling = factors(node.op_type, node.inputs)
    if node.op_type != "Cast" and not scaling:
        return value
    position = 1 - scaling[0] if scaling else 0
    moved = with_transposition_apart(op, node.inputs[position], matters)
    if moved is node.inputs[position]:
        return value
    inputs, attributes = list(node.inputs), attributes_of(node)
    inputs[position] = moved
    return op.emit(node.op_type, inputs, attributes)


@repairs(
    "MatMul",
    when="one operand is a Transpose that moves axis 0 to the last two, then cast (halves always are), the other of another rank",
    because="the fusion of the Transpose ends the process",
    nodes=1,
)
def cast_before_the_transposition(op, a, b):
    """The tensor is cast first, then transposed; halves are multiplied in float32."""
    if not (a.shape and b.shape) or rank(a) == rank(b) or not (transposition(a) or transposition(b)):
        return None
    dtype = wide(a.dtype)
    product = op.MatMul(transposed_last(op, a, dtype), transposed_last(op, b, dtype))
    return rounded(op, product, a.dtype)


def transposed_last(op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """*x* in *dtype*, cast before its `transposition` if there is one."""
    moved = transposition(x)
    source = x if moved is None else moved.inputs[0]
    source = raised(op, source) if wide(x.dtype) != x.dtype else op.Cast(source, to=dtype)
    return source if moved is None else op.Transpose(source, perm=order_of(moved))


def transposition(x: ir.Value) -> ir.Node | None:
    """The Transpose that gives *x*, by way of a Cast unless x is a half, and that moves axis 0 to the last two of several."""
    cast = producer_of(x, "Cast")
    if cast is None and wide(x.dtype) == x.dtype:
        return None
    node = producer_of(x if cast is None else cast.inputs[0], "Transpose")
    if node is None:
        return None
    order = order_of(node)
    return node if len(order) > 2 and 0 in order[-2:] else None


def order_of(node: ir.Node) -> list[int]:
    """The axes that a Transpose of known rank moves to each place."""
    given = node.attributes.get("perm")
    return list(reversed(range(rank(node.inputs[0])))) if given is None else list(given.as_ints())


FACTOR_POSITIONS = {"Mul": (0, 1), "Div": (1,)}
"""Which inputs of these operators scale the other one."""

MOVED = ("Transpose", "Reshape")
"""Operators that onnxruntime moves, or takes away, between a factor and a matrix product."""


@repairs(
    "Mul",
    "Div",
    when="one constant float64 element that float32 does not hold scales a matrix product",
    because="it is fused with MatMul into a float32 attribute",
    nodes="0, 1 with a dynamic size or one element",
)
def of_a_product(op, a, b, operator):
    """The factor is repeated along the last axis that may have several elements; beside one element a Sum stands before it."""
    repeated = factor_repeated(op, operator, [a, b])
    if repeated is None or not any(is_product(value) for value in (a, b)):
        return None
    return op.emit(operator, repeated)


@repairs(
    "MatMul",
    when="one constant float64 element that float32 does not hold scales an operand",
    because="it is fused with MatMul into a float32 attribute",
    nodes="0, 1 with a dynamic size or one element",
)
def of_scaled_operands(op, a, b):
    """The operands are computed by factors that are repeated along an axis; a Sum stands behind one element."""
    repeated = [with_repeated_factors(op, value) for value in (a, b)]
    return None if repeated == [a, b] else op.MatMul(*repeated)


def is_product(value: ir.Value) -> bool:
    """Whether a value is a matrix product, possibly moved and scaled."""
    node = producer_of(value)
    if node is None or node.op_type == "MatMul":
        return node is not None
    if node.op_type in MOVED:
        return is_product(node.inputs[0])
    return any(is_product(node.inputs[1 - factor]) for factor in factors(node.op_type, node.inputs))


def with_repeated_factors(op, value: ir.Value) -> ir.Value:
    """A value computed once more, the factors that scale it being repeated along an axis; itself when there are none."""
    node = producer_of(value)
    if node is None or value.dtype != ir.DataType.DOUBLE:
        return value
    inputs, attributes = list(node.inputs), attributes_of(node)
    if node.op_type == "Transpose":
        inputs[0] = with_repeated_factors(op, inputs[0])
    else:
        scaling = factors(node.op_type, inputs)
        if not scaling:
            return value
        if is_one_element(value) and loses_digits(node.op_type, inputs[scaling[0]]):
            return op.Sum(value)
        inputs = factor_repeated(op, node.op_type, inputs) or inputs
        inputs[1 - scaling[0]] = with_repeated_factors(op, inputs[1 - scaling[0]])
    return value if inputs == list(node.inputs) else op.emit(node.op_type, inputs, attributes)


def factor_repeated(op, operator: str, inputs: list[ir.Value]) -> list[ir.Value] | None:
    """The inputs of a Mul or Div, the factor that loses digits repeated along an axis of the other; None without one.

    Beside a single element nothing can be repeated: the other is the Sum of it alone, which onnxruntime does not look through.
    """
    for position in factors(operator, inputs):
        factor, other = inputs[position], inputs[1 - position]
        if other.shape is None or not loses_digits(operator, factor) or rank(factor) > rank(other):
            continue
        result = list(inputs)
        if is_one_element(other):
            result[1 - position] = op.Sum(other)
        else:
            several = [axis for axis, size in enumerate(other.shape) if size != 1]
            result[position] = op.Expand(factor, op.shape_of(other, several[-1]))
        return result
    return None


def is_one_element(value: ir.Value) -> bool:
    """Whether a value has no axis of another size than 1."""
    return value.shape is not None and all(size == 1 for size in value.shape)


def factors(operator: str, inputs: Sequence[ir.Value]) -> list[int]:
    """The positions of the inputs that are one constant element and scale the other."""
    constants = [(k, inputs[k].const_value) for k in FACTOR_POSITIONS.get(operator, ())]
    return [k for k, constant in constants if constant is not None and constant.size == 1]


def loses_digits(operator: str, factor: ir.Value) -> bool:
    """Whether float32 does not hold a float64 factor, or what a divisor multiplies by."""
    if factor.dtype != ir.DataType.DOUBLE:
        return False
    number = factor.const_value.numpy().item()
    scale = 1 / number if operator == "Div" and number else number
    with np.errstate(over="ignore"):
        return float(np.float32(scale)) != scale


@repairs(
    "Gemm",
    when="beta is not 1 and the summed axis may have size 0",
    because="beta is taken for 1 over an empty axis",
    nodes=1,
)
def with_a_factor_over_nothing(op, a, b, c=None, *, beta=1.0, transA=0, **attributes):
    """The factor is a Mul of what is added."""
    summed = None if a.shape is None else a.shape[0 if transA else 1]
    if c is None or beta == 1.0 or (isinstance(summed, int) and summed > 0):
        return None
    return op.Gemm(a, b, op.Mul(c, beta), transA=transA, **attributes)


@repairs(
    "MatMulInteger",
    when="signed integers on both sides, without zero points",
    because="it takes 4 to 13 times as long as unsigned ones",
    nodes=6,
)
def of_unsigned_integers(op, a, b, a_zero=None, b_zero=None):
    """128 more of each element, in UINT8, with the zero point 128. Of unsigned times signed ones it would be wrong where it adds pairs in 16 bits.

    onnxruntime 1.31.1 with AVX-512 VNNI, one thread, 512 x 1024: 2 rows 970 microseconds, 73 so, 64 rows 4714 and 1053.
    """
    if a.dtype != ir.DataType.INT8 or b.dtype != ir.DataType.INT8 or a_zero is not None or b_zero is not None:
        return None
    a, b = (op.Cast(op.Add(op.Cast(x, to=ir.DataType.INT32), 128), to=ir.DataType.UINT8) for x in (a, b))
    zero = op.constant(128, ir.DataType.UINT8)
    return op.MatMulInteger(a, b, zero, zero)
