"""Arithmetic: products, quotients, opposites."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import FLOATS
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.elementwise import is_cut
from experimental_experiment.xoptim.pattern import (
    P,
    all_readers,
    const,
    constant_of,
    ints_of,
    number_of,
    only_reader,
    var,
)
from experimental_experiment.xoptim.rules import Declined, computes, no, rule
from experimental_experiment.xoptim.shapes import adds_no_axes, has_shape_of, same_sizes

x, y = var("x"), var("y")
a, b = const("a"), const("b")

LEAST = 2.0**-20
"""What one operand of a product is multiplied by for both, at least: few numbers are tiny then that were not."""

ADDS_AXES = no("the constant adds axes")
"""Why a number beside a value stays, see `adds_no_axes`."""

MISREAD = no("onnxruntime would make a norm of it that it refuses, that loses an axis, or epsilon")
"""Why a quotient is not written, see `is_misread_norm`."""

CUT = no("what is cut behind it may be another whole number")
"""Why floats are rounded at each step, see `is_cut`."""


@rule(P.Mul(x, P.Reciprocal(y)), set="default", special_values=False, looks_further=True)
def mul_reciprocal(op, x, y, root):
    """x * (1 / y) is x / y, one node less, which onnxruntime recognizes in a norm. 1 / 1e-40 is infinite, 0 times it NaN.

    Measured with onnxruntime 1.31: a Llama decoder 0.99, a T5 encoder 0.93 of the time, because the norm is then one kernel.
    """
    result, of_root = root.outputs[0], producer_of(y, "Sqrt")
    if of_root is not None and is_misread_norm(op, x, of_root.inputs[0], result):
        return MISREAD
    # a norm rounds in other places than eager's kernel anyway, wherever its steps are cut behind a scale
    if only_reader(result, "Round") is not None or (of_root is None and is_cut(result)):
        return CUT
    return op.Div(x, y)


def is_misread_norm(op, x: ir.Value, total: ir.Value, result: ir.Value) -> bool:
    """Whether onnxruntime would take *x* by the root of a *total* for a norm, and be wrong.

    Measured with onnxruntime 1.31: one whose epsilon has more axes has the shape of x; a deviation that is cast to the dtype of its scale is,
    from opset 17 on, a LayerNormalization of two dtypes; a scale with more elements than x is refused. Where the size of the axis is known a
    rule writes another.
    """
    if op.context.runtime != "onnxruntime":
        return False
    if is_misread_epsilon(x, total, "Pow"):
        return True
    if x.shape is None or total.shape is None:
        return False
    if len(total.shape) > len(x.shape):
        return True
    if not len(x.shape) or isinstance(x.shape[-1], int):
        return False
    cast, scaled = only_reader(result, "Cast"), only_reader(result, "Mul")
    if cast is not None:
        return op.opset >= 17 and is_of(producer_of(x), "Sub")
    scale = None if scaled is None else scaled.inputs[scaled.inputs[0] is result]
    return scale is not None and (scale.shape is None or not same_sizes(scale.shape[-1:], x.shape[-1:]))


def is_misread_epsilon(x: ir.Value, total: ir.Value, square: str) -> bool:
    """Whether onnxruntime would take 1e-5 for what is added to the mean of squares of *x* that this operator writes.

    Measured with onnxruntime 1.31: it reads one constant, of a LayerNormalization on the right alone, and not in float64.
    """
    node = producer_of(total, "Add")
    for place, value in enumerate(() if node is None else node.inputs):
        mean, epsilon = producer_of(value, "ReduceMean"), node.inputs[1 - place]
        if mean is not None and producer_of(mean.inputs[0], square) is not None:
            is_on_the_left = place == 1 and producer_of(x, "Sub") is not None
            return is_on_the_left or epsilon.dtype is ir.DataType.DOUBLE or number_of(epsilon) is None
    return False


@rule(P.Div(1.0, y, name="quotient"), set="default")
def div_one(op, y, quotient):
    """1 / y is the Reciprocal of y."""
    one = quotient.inputs[0]
    if y.dtype not in FLOATS:
        return no("integers have no Reciprocal")
    if y.shape is None or one.shape is None or len(one.shape) > len(y.shape):
        return no("the number 1 may have more axes")
    return op.Reciprocal(y)


@rule(P.Neg(P.Neg(x, shared=True)), set="default")
def neg_neg(op, x):
    """The opposite of an opposite."""
    return x


@rule(P.Not(P.Not(x, shared=True)), set="default")
def not_not(op, x):
    """The negation of a negation."""
    return x


@rule(P.Add(x, P.Neg(y)), set="default")
def add_neg(op, x, y):
    """x + (-y) is x - y."""
    return op.Sub(x, y)


@rule(P.Sub(x, P.Neg(y)), set="default")
def sub_neg(op, x, y):
    """x - (-y) is x + y."""
    return op.Add(x, y)


def with_axes(op, x, node):
    """*x* with the axes that the constant beside it adds."""
    if x.shape is None:
        return no("the constant may add axes")
    added = len(node.inputs[node.inputs[0] is x].shape) - len(x.shape)
    return op.Unsqueeze(x, [*range(added)]) if added > 0 else x


@rule(P.one_of("Mul", "Div")(x, 1.0, name="node"), set="default", looks_further=True)
def factor_one(op, x, node):
    """x * 1 and x / 1 are x."""
    return with_axes(op, x, node)


@rule(P.one_of("Add", "Sub")(x, 0.0, name="node"), set="default", special_values=False, looks_further=True)
def term_zero(op, x, node):
    """x + 0 and x - 0 are x."""
    return with_axes(op, x, node)


def constant_or_shown(name: str):
    """A constant, or an Expand of one that others may read too."""
    return const(name) | P.Expand(const(name), var("shape"), name="expand", shared=True)


@rule(P.one_of("Mul", "Div")(x, constant_or_shown("ones"), name="node"), set="default")
def factor_ones(op, x, ones, expand, node):
    """x * ones and x / ones are x, where the ones have as many axes or two: a vector is the scale of a norm."""
    return x if changes_nothing(x, ones, expand, node, 1) else None


@rule(P.one_of("Add", "Sub")(x, constant_or_shown("zeros"), name="node"), set="default", special_values=False)
def term_zeros(op, x, zeros, expand, node):
    """x + zeros and x - zeros are x, where the zeros have as many axes or two: a vector is the bias of a layer."""
    return x if changes_nothing(x, zeros, expand, node, 0) else None


def changes_nothing(
    x: ir.Value, constant: ir.Value, expand: ir.Node | None, node: ir.Node, number: int
) -> bool:
    """Whether a constant beside *x* holds nothing but a number, and the result has the shape of *x*."""
    tensor = constant_of(constant)
    if not has_shape_of(x, node) or (expand is None and len(tensor.shape) < min(2, len(x.shape))):
        return False
    array = tensor.numpy()
    return bool(array.size and array.flat[0] == number and (array == number).all())


# ---- constants that meet


@rule(P.one_of("Add", "Sub")(P.one_of("Add", "Sub")(x, a, name="inner"), b, name="outer"), set="default")
def sum_of_constants(op, x, a, b, inner, outer):
    """(x + a) - b is x + (a - b) for integers; floats round at each step."""
    if x.dtype is None or x.dtype in FLOATS or not (is_small(a) and is_small(b)):
        return no("the sums may round")
    first, second = (
        np.negative(value.const_value.numpy()) if node.op_type == "Sub" else value.const_value.numpy()
        for value, node in ((a, inner), (b, outer))
    )
    return with_constant(op, op.Add, x, np.add(first, second, dtype=first.dtype), (a, b))


@rule(P.Mul(P.Mul(x, a), b), set="default")
def product_of_constants(op, x, a, b, root):
    """(x * a) * b is x * (a * b) where that product is exact: one rounding less, which is none of what is cut to whole numbers."""
    return rounded_once(op, op.Mul, x, exact(np.multiply, a, b, True, True), a, b, root)


@rule(P.Div(P.Mul(x, a), b), set="default")
def quotient_of_constants(op, x, a, b, root):
    """(x * a) / b is x * (a / b) where that quotient is exact."""
    return rounded_once(op, op.Mul, x, exact(np.divide, a, b, True, False), a, b, root)


@rule(P.Mul(P.Div(x, a), b), set="default")
def factor_of_quotient(op, x, a, b, root):
    """(x / a) * b is x * (b / a) where that quotient is exact."""
    return rounded_once(op, op.Mul, x, exact(np.divide, b, a, True, False, swapped=True), a, b, root)


@rule(P.Div(P.Div(x, a), b), set="default")
def divisor_of_quotient(op, x, a, b, root):
    """(x / a) / b is x / (a * b) where that product is exact."""
    return rounded_once(op, op.Div, x, exact(np.multiply, a, b, False, False), a, b, root)


def rounded_once(op, write, x: ir.Value, array: np.ndarray | None, a: ir.Value, b: ir.Value, root: ir.Node):
    """`with_constant` instead of two steps of floats, unless a cut behind *root* shows that one step less is rounded."""
    if rounds_before_a_cut(a, b, root):
        return CUT
    return with_constant(op, write, x, array, (a, b))


def rounds_before_a_cut(a: ir.Value, b: ir.Value, root: ir.Node) -> bool:
    """Whether both steps of floats round, as those by powers of two do not, and a cut behind *root* shows that there is one step less."""
    if a.dtype not in FLOATS or not (is_small(a) and is_small(b)):
        return False
    return not any(are_powers_of_two(one.const_value.numpy()) for one in (a, b)) and is_cut(root.outputs[0])


@rule(P.MatMul(P.Mul(x, a), P.Mul(y, b)), set="default")
def factors_of_matmul(op, x, y, a, b):
    """(x * a) @ (y * b) is (x * ab) @ y for two numbers of at most 1: torch.onnx scales queries and keys by the same root."""
    first, second = number_of(a), number_of(b)
    if first is None or second is None or x.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return no("they are no numbers, or round much")
    if any(len(number.shape) > len(value.shape or ()) for number, value in ((a, x), (b, y))):
        return no("a number adds axes")
    if not (abs(first) <= 1 and abs(second) <= 1 and abs(first * second) >= LEAST):
        return no("one side may overflow, or be tiny, that is not so with both")
    product = np.asarray(float(first) * float(second)).astype(a.dtype.numpy())
    return op.MatMul(op.Mul(x, op.constant(product, a.dtype)), y)


def exact(
    function, a: ir.Value, b: ir.Value, a_multiplies: bool, b_multiplies: bool, swapped: bool = False
) -> np.ndarray | None:
    """The product or quotient of two small constants when it is exact and not tiny; None otherwise.

    Also None when the first step may overflow although both together do not: eager is infinite there. *a* is the first step, *b* with
    *swapped*; each multiplies, or divides.
    """
    if a.dtype != b.dtype or not (is_small(a) and is_small(b)):
        return None
    left, right = a.const_value.numpy(), b.const_value.numpy()
    if a.dtype not in FLOATS:
        with np.errstate(over="ignore"):
            product = np.multiply(left, right)
        # a product of products wraps as they do, a divisor that wraps is another one
        is_whole = np.array_equal(product, left.astype(object) * right.astype(object))
        return product if function is np.multiply and (a_multiplies or is_whole) else None
    if a.dtype == ir.DataType.DOUBLE and not are_powers_of_two(right):
        return None
    with np.errstate(all="ignore"):
        steps = [
            np.abs(array.astype(np.float64)) ** (1 if multiplies else -1)
            for array, multiplies in ((left, a_multiplies), (right, b_multiplies))
        ]
        first, second = reversed(steps) if swapped else steps
        if np.any((first > 1) & (second < 1)):
            return None
        wide = function(left.astype(np.float64), right.astype(np.float64))
        result = wide.astype(left.dtype)
        same = np.array_equal(result.astype(np.float64), wide)
        if function is np.divide:
            same = np.array_equal(
                result.astype(np.float64) * right.astype(np.float64), left.astype(np.float64)
            )
    return result if same and is_normal(result) else None


def are_powers_of_two(array: np.ndarray) -> bool:
    """Whether all numbers are powers of two or their opposites."""
    return bool(np.all(np.abs(np.frexp(array.astype(np.float64))[0]) == 0.5))


def is_normal(array: np.ndarray) -> bool:
    """Whether all numbers are finite, and none has lost digits for being tiny."""
    smallest = ir.DataType.from_numpy(array.dtype)
    tiny = {ir.DataType.FLOAT16: 2.0**-14, ir.DataType.DOUBLE: 2.0**-1022}.get(smallest, 2.0**-126)
    wide = np.abs(array.astype(np.float64))
    return bool(np.all(np.isfinite(wide) & (wide >= tiny)))


def with_constant(op, write, x: ir.Value, array: np.ndarray | None, constants) -> ir.Value:
    """``write(x, array)`` when there is one that is no larger than the *constants* that it stands for."""
    if array is None:
        return no("it is not exact")
    if array.size > max(value.const_value.size for value in constants):
        return no("the constants broadcast to a larger one")
    return write(x, op.constant(array, constants[0].dtype))


# ---- signs


@rule(P.Mul(x, -1.0, name="node"), set="default")
def mul_minus_one(op, x, node):
    """x * -1 is -x."""
    return opposite(op, x, node)


@rule(P.Sub(0.0, x, name="node"), set="default", special_values=False, looks_further=True)
def zero_minus(op, x, node):
    """0 - x is -x; of floats only where the sign of zero is lost right after: 0 - 0 is 0, of which a complex root or an angle makes +pi, not -pi."""
    if x.dtype in FLOATS and not all_readers(node.outputs[0], loses_sign_of_zero):
        return no("the sign of zero may decide a branch cut")
    return opposite(op, x, node)


def loses_sign_of_zero(node: ir.Node, index: int) -> bool:
    """Whether a node gives the same number for 0 and for -0, but where the other operand is a zero, too."""
    return node.op_type in ("Add", "Exp", "Gemm", "MatMul", "Sigmoid", "Softmax", "Sub")


def opposite(op, x: ir.Value, node: ir.Node) -> ir.Value | Declined:
    """-x, when *node* of *x* and a constant has its shape."""
    if not computes(op, "Neg", x.dtype):
        return no("onnxruntime does not negate this dtype")
    return op.Neg(x) if adds_no_axes(node, x) else ADDS_AXES


@rule(P.Neg(P.Sub(x, y)), set="default", special_values=False)
def neg_sub(op, x, y):
    """-(x - y) is y - x."""
    return op.Sub(y, x)


@rule(P.Neg(P.Mul(x, a)) | P.Mul(P.Neg(x), a), set="default")
def neg_mul(op, x, a):
    """-(x * a) and -x * a are x * -a."""
    return op.Mul(x, op.constant(-a.const_value.numpy(), a.dtype)) if is_small(a) else no("a is large")


# ---- powers


@rule(P.Pow(x, 2.0, name="node"), set="default")
def pow_two(op, x, node):
    """x ** 2 is x * x: 0.6 of the time.

    Not in a norm: onnxruntime 1.31 recognizes a LayerNormalization written with Pow only.
    """
    if x.dtype not in FLOATS:
        return no("integers are raised as floats")
    users = node.outputs[0].uses()
    if any(is_of(use.node, "ReduceMean") for use in users):
        return no("it may be a norm")
    return op.Mul(x, x) if adds_no_axes(node, x) else ADDS_AXES


length = P.Cast(P.ReduceL2(P.Cast(x), a, name="norm"))


@rule(P.Mul(length, length, name="square"), set="default", special_values=False)
def square_of_length(op, x, a, norm, square):
    """The square of the length of pairs, taken in float64, is the sum of the squares of both parts: 0.24 to 0.38 of the time.

    It overflows where that does. The length of infinity beside NaN is infinite, the sum is NaN.
    """
    axes = ints_of(a)
    dtypes = [x.dtype, norm.inputs[0].dtype, square.outputs[0].dtype]
    if dtypes != [ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT]:
        return no("it is no length of float32, taken in float64")
    if x.shape is None or axes is None or len(axes) != 1:
        return no("it is not along one axis")
    axis = axes[0] % len(x.shape)
    if x.shape[axis] != 2:
        return no("there are not two parts")
    keepdims = norm.attributes.get_int("keepdims", 1)
    if axis != len(x.shape) - 1:
        return op.ReduceSum(op.Mul(x, x), [axis], keepdims=keepdims)
    # neighbours are added slowly
    total = op.Add(*(op.Mul(part, part) for part in op.Split(x, axis=-1, num_outputs=2, outputs=2)))
    return total if keepdims else op.Squeeze(total, [-1])


@rule(P.Pow(x, 1.0, name="node"), set="default")
def pow_one(op, x, node):
    """x ** 1 is x."""
    return x if adds_no_axes(node, x) else ADDS_AXES


@rule(P.Pow(x, -1.0, name="node"), set="default")
def pow_minus_one(op, x, node):
    """x ** -1 is 1 / x."""
    if x.dtype not in FLOATS:
        return no("integers have no reciprocal")
    return op.Reciprocal(x) if adds_no_axes(node, x) else ADDS_AXES


@rule(P.Pow(x, 0.5, name="node"), set="default", looks_further=True)
def pow_half(op, x, node):
    """x ** 0.5 is the root of what is never negative: 0.1 of the time. That of -infinity is infinity, its root is not."""
    if x.dtype not in FLOATS or not never_negative(x):
        return no("it may be negative")
    quotient = only_reader(node.outputs[0], "Div")
    if quotient is not None and is_misread_norm(op, quotient.inputs[0], x, quotient.outputs[0]):
        return MISREAD
    return op.Sqrt(x) if adds_no_axes(node, x) else ADDS_AXES


POSITIVE = frozenset(
    "Abs Exp HardSigmoid Relu Sigmoid Softmax Softplus Sqrt ReduceL1 ReduceL2 ReduceSumSquare".split()
)
"""Operators whose results are never negative."""

KEPT = frozenset(
    "Cast Expand Flatten Gather Identity ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Slice Squeeze Tile "
    "Transpose Unsqueeze".split()
)
"""Operators whose results are never negative when their first input is not."""


def never_negative(value: ir.Value, depth: int = 4) -> bool:
    """Whether no element of a value is below zero, as far as the few operators before it tell."""
    tensor = constant_of(value)
    if tensor is not None:
        return tensor.size <= 1024 and bool(np.all(tensor.numpy() >= 0))
    node = producer_of(value)
    if node is None or depth == 0 or value.dtype not in FLOATS:
        return False
    if node.op_type in POSITIVE:
        return True
    if node.op_type in KEPT:
        return never_negative(node.inputs[0], depth - 1)
    if node.op_type == "Pow":
        return number_of(node.inputs[1]) == 2
    if node.op_type == "Mul" and node.inputs[0] is node.inputs[1]:
        return True
    operands = node.inputs[1:] if node.op_type == "Where" else node.inputs
    return node.op_type in ("Add", "Div", "Mul", "Where") and all(
        never_negative(item, depth - 1) for item in operands
    )


# ---- limits


@rule(P.Min(P.Max(x, a), b) | P.Max(P.Min(x, b), a), set="default", special_values=False)
def min_max(op, x, a, b):
    """The smaller of b and the larger of x and a is x clipped, also in the other order: 0.63 of the time."""
    return clipped(op, x, a, b)


@rule(P.Min(P.Relu(x), b) | P.Relu(P.Min(x, b)), set="default", special_values=False)
def min_relu(op, x, b):
    """The smaller of b and Relu of x is x clipped at zero and b, also in the other order."""
    return clipped(op, x, zero_like(op, b), b)


def zero_like(op, number: ir.Value) -> ir.Value:
    """The constant 0 of the dtype of another constant."""
    return constant_like(op, number, 0)


def constant_like(op, other: ir.Value, number: float) -> ir.Value:
    """A number as a constant of the dtype of another constant."""
    return op.constant(np.array(number, constant_of(other).numpy().dtype), other.dtype)


def clipped(op, x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """Clip, when the limits are numbers in order."""
    least, most = number_of(low), number_of(high)
    if least is None or most is None or not least <= most or op.opset < 12:
        return no("the limits are no numbers in order")
    if (
        x.shape is None
        or max(len(low.shape), len(high.shape)) > len(x.shape)
        or not computes(op, "Clip", x.dtype)
    ):
        return no("the limits add axes, or onnxruntime does not clip this dtype")
    least, most = (op.constant(constant_of(value).numpy().reshape(()), x.dtype) for value in (low, high))
    return op.Clip(x, least, most)


@rule(P.Max(x, 0.0, name="node"), set="default", special_values=False)
def max_zero(op, x, node):
    """The larger of x and 0 is Relu, of floats: with a Clip behind it, onnxruntime does not load one of int32."""
    if x.dtype not in FLOATS or not computes(op, "Relu", x.dtype):
        return no("onnxruntime has no Relu of this dtype, or fuses it")
    return op.Relu(x) if adds_no_axes(node, x) else ADDS_AXES


@rule(
    P.one_of("Max", "Min")(x, const("bound"), name="node")
    | P.one_of("Max", "Min")(const("bound"), x, name="node"),
    set="default",
    special_values=False,
)
def one_limit(op, x, bound, node):
    """The larger or the smaller of x and a number is x clipped, with an infinity as the other limit, in models for onnxruntime.

    Measured with onnxruntime 1.31: 0.98, 0.86, 0.75 and 0.73 of the time for 1, 64, 160 and 262 144 numbers, the norms of rows but for the last.
    """
    number = number_of(bound)
    if op.context.runtime != "onnxruntime":
        return no("the runtime takes one limit")
    if x.dtype != ir.DataType.FLOAT or number is None or not math.isfinite(number):
        return no("not in float32, or the limit is no finite number")
    if node.op_type == "Max":
        return (
            no("it is a Relu") if number == 0 else clipped(op, x, bound, constant_like(op, bound, math.inf))
        )
    return clipped(op, x, constant_like(op, bound, -math.inf), bound)


@rule(P.Relu(P.Clip(x, a, b)) | P.Clip(P.Relu(x), a, b), set="default")
def relu_of_clip(op, x, a, b):
    """Relu of what is clipped is clipped at zero, also in the other order."""
    low, high = number_of(a), number_of(b)
    if low is None or high is None or not low <= high or high < 0:
        return no("the limits are negative or no numbers")
    return op.Clip(x, a if low >= 0 else zero_like(op, a), b)


@rule(P.Clip(P.Clip(x, a, b), const("low"), const("high")), set="default")
def clip_of_clip(op, x, a, b, low, high):
    """Two Clips whose limits meet are one."""
    limits = [number_of(value) for value in (a, b, low, high)]
    if None in limits or not max(limits[0], limits[2]) <= min(limits[1], limits[3]):
        return no("the limits do not meet")
    return op.Clip(x, a if limits[0] >= limits[2] else low, b if limits[1] <= limits[3] else high)


UNCHANGED = {
    "Abs": ("Abs", "Relu"),
    "Ceil": ("Ceil", "Floor", "Round"),
    "Exp": ("Abs", "Relu"),
    "Floor": ("Ceil", "Floor", "Round"),
    "Relu": ("Abs", "Relu"),
    "Round": ("Ceil", "Floor", "Round"),
    "Sigmoid": ("Abs", "Relu"),
    "Sign": ("Ceil", "Floor", "Round", "Sign"),
    "Softmax": ("Abs", "Relu"),
    "Sqrt": ("Abs", "Relu"),
}
"""Operators that change nothing in the results of others."""


@rule(
    P.one_of("Abs", "Ceil", "Floor", "Relu", "Round", "Sign")(
        P.one_of(*UNCHANGED)(name="inner", shared=True), name="outer"
    ),
    set="default",
)
def done_before(op, inner, outer):
    """What changes nothing in the result of another operator, such as the Relu of a Relu."""
    result = inner.outputs[0]
    if inner.op_type == "Abs" and outer.op_type == "Relu" and result.dtype not in FLOATS:
        return no("the smallest integer has no absolute value")
    if inner.op_type == "Relu" and outer.op_type == "Abs" and op.context.special_values:
        return no("the Relu of -0 is -0")
    return result if outer.op_type in UNCHANGED[inner.op_type] else None


# ---- conditions


@rule(P.Where(P.Not(x, name="negation", shared=True), var("a"), var("b")), set="default", looks_further=True)
def not_where(op, x, a, b, negation):
    """Where(not c, a, b) is Where(c, b, a), when nothing but such a Where reads the negation."""
    if not all_readers(negation.outputs[0], is_condition_of):
        return no("the negation is read otherwise")
    return op.Where(x, b, a)


def is_condition_of(user: ir.Node, index: int) -> bool:
    """Whether a reader is a Where, which chooses by what it reads."""
    return is_of(user, "Where") and index == 0
