"""Transpositions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import FLOAT8
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.torch_interpreter.runtime.products import cast_before_the_transposition
from experimental_experiment.xoptim.elementwise import BINARY, gated, one_or_two, redone, step
from experimental_experiment.xoptim.pattern import P, attribute_of, const, constant_of, ints_of, optional, var
from experimental_experiment.xoptim.rules import Declined, again, no, rule
from experimental_experiment.xoptim.shapes import reshape_target, same_sizes, shape_after
from experimental_experiment.xoptim.spans import slice_of, sliced, spans_of, told_axes

x, y = var("x"), var("y")

REDUCTIONS = tuple(
    f"Reduce{name}" for name in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
)


def perm(node) -> list[int] | None:
    """The permutation of a Transpose, None when the rank is not known."""
    given = attribute_of(node, "perm")
    if given is None and node.inputs[0].shape is not None:
        return list(reversed(range(len(node.inputs[0].shape))))
    return given


def swaps_last_two(node: ir.Node) -> bool:
    """Whether a Transpose swaps the last two axes and moves no other one."""
    axes = perm(node) or []
    return len(axes) > 1 and axes == [*range(len(axes) - 2), len(axes) - 1, len(axes) - 2]


def transposed(op, x: ir.Value, axes: list[int]) -> ir.Value:
    """*x* with its axes in this order."""
    return x if axes == sorted(axes) else op.Transpose(x, perm=axes)


@rule(P.Transpose(P.Transpose(x, name="inner", shared=True), name="outer"), set="default")
def transpose_transpose(op, x, inner, outer):
    """Transpose(Transpose(x, p), q) is Transpose(x, p[q]), or x when p[q] changes nothing."""
    first, second = perm(inner), perm(outer)
    if first is None or second is None:
        return no("the rank is unknown")
    return transposed(op, x, [first[axis] for axis in second])


TURNED = P.Cast(P.Transpose(shared=True), shared=True)


@rule(P.MatMul(TURNED, var("other")) | P.MatMul(var("other"), TURNED), set="default", looks_further=True)
def product_of_turned(op, root):
    """What is transposed and cast, before a product with one of another rank, is cast first: onnxruntime's fusion of the two ends the process.

    A row of the runtime table does so where they stand together; here are those that other rules bring together, and those of files.
    """
    if op.context.runtime != "onnxruntime":
        return no("the runtime fuses no Transpose")
    result = cast_before_the_transposition(op, *root.inputs)
    return no("the ranks are equal, or no axis 0 is moved to the last two") if result is None else result


@rule(P.Transpose(x, name="root_node"), set="default")
def transpose_nothing(op, x, root_node):
    """A permutation that moves nothing is its input."""
    moved = perm(root_node)
    return x if moved is not None and moved == sorted(moved) else None


@rule(P.Transpose(const("weight"), name="node"), set="default")
def transpose_of_weight(op, weight, node):
    """A weight that nothing else reads is stored transposed; it is moved when the model is written, and takes no memory before.

    Measured with onnxruntime 1.31, which moves it when it loads: a session of a Llama is made in 0.70 of the time, of a BERT in 0.72.
    """
    tensor, result = constant_of(weight), node.outputs[0]
    if result.is_graph_output():
        return no("it is a result")
    if tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
        return no("its elements are no whole bytes")
    if any(is_of(use.node, "Gemm") for use in result.uses()):
        return no("a Gemm transposes it")
    return stored_transposed(op, weight, node)


@rule(
    P.Cast(P.Transpose(P.Cast(const("weight"), to=int(ir.DataType.FLOAT)), name="node"), name="last"),
    set="default",
)
def transpose_of_float8(op, weight, node, last):
    """A weight in float8 that nothing else reads is stored transposed too; ONNX transposes it from opset 21 on, before in float32."""
    if weight.dtype not in FLOAT8 or attribute_of(last, "to") != weight.dtype:
        return no("no weight in float8")
    if weight.dtype == ir.DataType.FLOAT8E5M2 and attribute_of(last, "saturate", 1):
        return no("infinities become the largest number")
    return stored_transposed(op, weight, node)


def stored_transposed(op, weight: ir.Value, node: ir.Node) -> ir.Value | Declined:
    """A constant that nothing else reads as *node* transposes it, moved when the model is written."""
    tensor = constant_of(weight)
    if len(weight.uses()) > 1 or weight.is_graph_output():
        return no("another node reads the weight, or it is a result")
    if isinstance(tensor, ir.ExternalTensor):
        return no("the weight stays in its file")
    axes = perm(node) or list(reversed(range(len(tensor.shape))))
    shape = [tensor.shape[axis] for axis in axes]
    return op.lazy_weight(
        f"{weight.name}_transposed",
        lambda: np.ascontiguousarray(tensor.numpy().transpose(axes)),
        tensor.dtype,
        shape,
    )


@rule(P.Transpose(x, name="node"), set="default")
def transpose_ones(op, x, node):
    """A permutation that moves only axes of size 1 is a Reshape, which copies nothing."""
    axes = perm(node)
    if axes is None or x.shape is None or constant_of(x) is not None:
        return None
    ones = {axis for axis, size in enumerate(x.shape) if isinstance(size, int) and size == 1}
    kept = [axis for axis in axes if axis not in ones]
    if not ones or kept != sorted(kept) or axes == sorted(axes):
        return None
    target = reshape_target(x.shape, [x.shape[axis] for axis in axes])
    return no("two sizes are not static") if target is None else op.Reshape(x, target)


@rule(
    P.Transpose(one_or_two(P.Transpose(x, name="inner")), name="outer"),
    set="default",
)
def transpose_elementwise_transpose(op, x, inner, first, second, outer):
    """Two transpositions around one or two elementwise operators are one after them, or none."""
    before, after = perm(inner), perm(outer)
    if before is None or after is None:
        return no("the rank is unknown")

    result = redone(op, (first, second), inner.outputs[0], x, turned_back(op, before))
    if result is None:
        return no("a constant cannot be transposed now")
    return transposed(op, result, [before[axis] for axis in after])


def turned_back(op, axes: list[int]) -> Callable[[ir.Value], ir.Value | None]:
    """A function of constants that meet a tensor behind a transposition: those that meet it before, None when there are none now."""

    def moved(constant: ir.Value) -> ir.Value | None:
        rank = len(axes)
        if not is_small(constant) or len(constant.shape) > rank or 0 in constant.shape:
            return None
        full = op.Reshape(constant, [1] * (rank - len(constant.shape)) + list(constant.shape))
        result = op.Transpose(full, perm=[axes.index(axis) for axis in range(rank)])
        return None if constant_of(result) is None else result

    return moved


TURNED = P.Transpose(x, name="inner")


@rule(P.Transpose(gated(TURNED), name="outer"), set="default")
def transpose_gate_transpose(op, x, inner, gate, product, outer):
    """The same around a value times a function of it, as x * sigmoid(x)."""
    before, after = perm(inner), perm(outer)
    if before is None or after is None:
        return no("the rank is unknown")
    result = again(op, product, [x, again(op, gate, [x])])
    return transposed(op, result, [before[axis] for axis in after])


@rule(
    P.Transpose(
        P.Pad(gated(TURNED) | step(TURNED, "first") | TURNED, const("pads"), optional("value"), name="pad"),
        name="outer",
    ),
    set="default",
)
def transpose_pad_transpose(op, x, inner, first, gate, product, pads, value, pad, outer):
    """The same around a Pad, perhaps of such a value: a Conv takes the padding then, as in models whose channels are last.

    Measured with onnxruntime 1.31: MobileNetV2 of Keras 102 nodes instead of 114, MobileNetV3Small 181 for 193, 0.99 to 1.02 of the time.
    """
    before, after, sides = perm(inner), perm(outer), ints_of(pads)
    if before is None or after is None or sides is None or len(sides) != 2 * len(before):
        return no("rank or padding unknown")
    if product is not None:
        result = again(op, product, [x, again(op, gate, [x])])
    else:
        result = redone(op, (first,), inner.outputs[0], x, turned_back(op, before))
    if result is None:
        return no("a constant cannot be transposed now")
    added = np.empty((2, len(before)), np.int64)
    added[:, before] = np.reshape(sides, (2, -1))
    given = [result, op.constant(added.ravel())] + ([] if value is None else [value])
    return transposed(op, again(op, pad, given), [before[axis] for axis in after])


@rule(
    P.Transpose(P.one_of("LogSoftmax", "Softmax")(P.Transpose(x, name="inner"), name="middle"), name="outer"),
    set="default",
)
def transpose_softmax_transpose(op, x, inner, middle, outer):
    """Two transpositions that undo each other around a Softmax: it takes another axis."""
    before, after = perm(inner), perm(outer)
    if before is None or after is None or op.opset < 13:
        return no("the rank is unknown, or the Softmax flattens")
    if [before[axis] for axis in after] != list(range(len(before))):
        return no("they do not undo each other")
    return again(op, middle, [x], axis=before[attribute_of(middle, "axis", -1)])


@rule(
    P.one_of(*BINARY)(P.Transpose(x, name="left"), P.Transpose(y, name="right"), name="node"), set="default"
)
def transposed_operands(op, x, y, left, right, node):
    """Two operands that are transposed alike: the result is."""
    axes = perm(left)
    if axes is None or axes != perm(right):
        return no("they are not transposed alike")
    operands = [x, y] if node.inputs[0] is left.outputs[0] else [y, x]
    return op.Transpose(again(op, node, operands), perm=axes)


PART = P.Transpose(x, name="transpose") | slice_of(P.Transpose(x, name="transpose"), "part")


@rule(P.one_of(*REDUCTIONS)(PART | P.Cast(PART, name="cast"), optional("along"), name="node"), set="default")
def reduced_transpose(op, x, along, transpose, part, cast, node):
    """A reduction of a transposed value, or of a part or a cast of it, takes the axes where they were, when those that it keeps stand in order."""
    order = perm(transpose)
    given = told_axes(node)
    taken = {} if part is None else spans_of(part)
    if order is None or not given or taken is None:
        return no("the axes are unknown")
    rank = len(order)
    reduced = {order[axis % rank] for axis in given}
    kept = [axis for axis in order if axis not in reduced]
    if kept != sorted(kept):
        return no("it keeps axes in another order")
    if attribute_of(node, "keepdims", 1) and {axis % rank for axis in given} != reduced:
        return no("it keeps the axes that it reduces")
    if part is not None:
        x = sliced(op, x, {order[axis]: span for axis, span in taken.items()})
    if cast is not None:
        x = again(op, cast, [x])
    if along is None:
        return again(op, node, [x], axes=sorted(reduced))
    return again(op, node, [x, op.constant(sorted(reduced))])


@rule(P.Concat(name="node", reads=["Transpose"]), set="default", looks_further=True)
def concat_transposed(op, node):
    """Values that are transposed alike before they are joined: the result is."""
    producers = [producer_of(value, "Transpose") for value in node.inputs]
    if len(producers) < 2 or None in producers:
        return None
    axes = perm(producers[0])
    if axes is None or any(perm(item) != axes for item in producers):
        return no("they are not transposed alike")
    if any(len(value.uses()) > 1 or value.is_graph_output() for value in node.inputs):
        return no("another node uses one of them")
    joined = again(op, node, [item.inputs[0] for item in producers], axis=axes[attribute_of(node, "axis")])
    return op.Transpose(joined, perm=axes)


@rule(
    P.Reshape(P.Transpose(P.Reshape(x, var("flat"), name="inner"), name="middle"), var("shape")),
    set="default",
    looks_further=True,
)
def transpose_with_leading_axes_as_one(op, x, inner, middle, root):
    """Leading axes that are one while the others are transposed: a Transpose that leaves them where they are."""
    axes = perm(middle)
    if axes is None or axes[0] != 0 or x.shape is None:
        return no("the shapes are unknown")
    joined = len(x.shape) - len(axes)
    flat, result = (shape_after(inner), shape_after(root)) if joined > 0 else ((), ())
    if flat is None or result is None:
        return no("the shapes are unknown")
    if joined < 1 or not same_sizes(flat[1:], x.shape[joined + 1 :]):
        return no("the first Reshape does more than joining leading axes")
    order = [*range(joined + 1), *(axis + joined for axis in axes[1:])]
    if not same_sizes(result, [x.shape[axis] for axis in order]):
        return no("the last Reshape does not part them again")
    return op.Transpose(x, perm=order)


@rule(P.Squeeze(P.Transpose(P.Unsqueeze(x, const("added")), name="middle"), const("removed")), set="default")
def transpose_of_unsqueezed(op, x, added, middle, removed):
    """An axis that is added, moved and removed again: a Transpose of the others."""
    axes, new, gone = perm(middle), ints_of(added), ints_of(removed)
    if axes is None or not new or not gone:
        return no("the rank is unknown")
    rank = len(axes)
    new, gone = ({axis % rank for axis in items} for items in (new, gone))
    if {axes[axis] for axis in gone} != new:
        return no("another axis is removed")
    kept = [axis for axis in range(rank) if axis not in new]
    return transposed(op, x, [kept.index(axis) for axis in axes if axis not in new])


@rule(
    P.Reshape(P.Transpose(P.Reshape(x, var("flat"), name="inner"), name="middle"), var("shape")),
    set="default",
    looks_further=True,
)
def reshape_around_transpose(op, x, inner, middle, root):
    """Axes that are one while they are transposed and part afterwards: they part before, in the one Reshape that there is."""
    axes, parted = perm(middle), root.outputs[0].shape
    if axes is None or (parted is not None and len(parted) != len(axes) + 1):
        return no("the shapes are unknown, or more than one axis parts")
    flat, result = shape_after(inner), shape_after(root)
    if flat is None or result is None or len(result) != len(flat) + 1:
        return no("the shapes are unknown, or more than one axis parts")
    moved = [flat[axis] for axis in axes]
    for place, axis in enumerate(axes):
        if not same_sizes(moved[:place], result[:place]) or not same_sizes(
            moved[place + 1 :], result[place + 2 :]
        ):
            continue
        target = reshape_target(x.shape, [*flat[:axis], *result[place : place + 2], *flat[axis + 1 :]])
        if target is None:
            return no("a size is computed")
        order = [other + (other > axis) for other in axes]
        return op.Transpose(
            op.Reshape(x, target), perm=[*order[: place + 1], order[place] + 1, *order[place + 1 :]]
        )
    return no("more than one axis parts")


@rule(P.Gemm(P.Transpose(x, name="transpose"), y, optional("bias"), name="gemm"), set="default")
def transposed_left_of_gemm(op, x, y, bias, transpose, gemm):
    """The left matrix of a Gemm is transposed by the Gemm itself."""
    return absorbed(op, x, y, bias, transpose, gemm, "transA")


@rule(P.Gemm(x, P.Transpose(y, name="transpose"), optional("bias"), name="gemm"), set="default")
def transposed_right_of_gemm(op, x, y, bias, transpose, gemm):
    """The right matrix of a Gemm is transposed by the Gemm itself."""
    return absorbed(op, x, y, bias, transpose, gemm, "transB")


def absorbed(op, x, y, bias, transpose, gemm, flag: str) -> ir.Value:
    """A Gemm that takes the matrix that was transposed."""
    if perm(transpose) != [1, 0]:
        return no("the permutation moves nothing")
    given = {name: attribute_of(gemm, name) for name in ("alpha", "beta", "transA", "transB")}
    given[flag] = 1 - (given[flag] or 0)
    return op.Gemm(x, y, bias, **given)
