"""Products of matrices whose leading axes are one: ``torch.bmm`` of heads, which were [batch, heads, *, *] before and are so after."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from experimental_experiment.xoptim.elementwise import BINARY, UNARY
from experimental_experiment.xoptim.pattern import P, number_of, softmax_axis, var
from experimental_experiment.xoptim.patterns.transposing import perm
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import Size, same_sizes, shape_after

REACH = 12
"""How many nodes back the operands of a product are looked at."""


@rule(P.Reshape(P.MatMul(name="product"), var("shape")), set="default", looks_further=True)
def product_of_joined_axes(op, product, root):
    """Leading axes that are one in a product of matrices and part again after it are several from the beginning.

    What stands between is done on all axes: a Transpose of the last two, a Softmax along the last one, elementwise operators.
    """
    second = product.inputs[1].shape
    if second is None or len(second) != 3:
        return None  # a linear layer, as most
    parted, flat = shape_after(root), product.outputs[0].shape
    if parted is None or flat is None or len(flat) != 3 or len(parted) < 4:
        return no("no leading axis parts")
    if not same_sizes(parted[-2:], flat[1:]):
        return no("the matrices change their sizes")
    result = apart(op, product, parted[:-2], REACH)
    return (
        no("the leading axes of an operand were others, or are one for another reader")
        if result is None
        else result
    )


def apart(op, node: ir.Node, lead: Sequence[Size], reach: int) -> ir.Value | None:
    """What *node* gives with the leading axes *lead* in the place of its first one, None when they are not known to be joined before."""
    shape = node.outputs[0].shape
    if shape is None or len(shape) != 3 or not reach:
        return None
    if node.op_type == "Reshape":
        x, flat = node.inputs[0], shape_after(node)
        joins = flat is not None and same_sizes(x.shape, [*lead, *flat[1:]])
        return x if joins else None
    changed = {}
    if node.op_type == "Transpose":
        if perm(node) != [0, 2, 1]:
            return None
        changed["perm"] = [*range(len(lead)), len(lead) + 1, len(lead)]
    elif node.op_type == "Softmax":
        if op.opset < 13 or softmax_axis(node, op.opset) not in (-1, 2):
            return None
        changed["axis"] = -1
    elif node.op_type not in ("MatMul", *UNARY, *BINARY):
        return None
    inputs = []
    for value in node.inputs:
        if node.op_type != "MatMul" and number_of(value) is not None:
            inputs.append(value)
            continue
        before = value.producer()
        if before is None or before.domain:
            return None
        is_read_here = len(value.uses()) == 1 and not value.is_graph_output() and before.graph is node.graph
        if not (is_read_here or before.op_type == "Reshape"):
            return None
        inputs.append(apart(op, before, lead, reach - 1))
        if inputs[-1] is None:
            return None
    return again(op, node, inputs, **changed)
