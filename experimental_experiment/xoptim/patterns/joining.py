"""Products of matrices whose leading axes are one: ``torch.bmm`` of heads, which were [batch, heads, *, *] before and are so after.

The same of rows, as the Conv1D of GPT-2 has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.elementwise import BINARY, UNARY
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    number_of,
    optional,
    softmax_axis,
    var,
)
from experimental_experiment.xoptim.patterns.transposing import perm
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import Size, is_same, same_sizes, shape_after

OPERAND_REACH = 12
"""How many nodes back the operands of a product are looked at."""


MATRICES = P.MatMul(name="matrices")
SCALED = P.one_of("Mul", "Div")(MATRICES, const("factor")) | MATRICES


@rule(P.Reshape(P.Add(SCALED, var("added")) | SCALED, var("shape")), set="default", looks_further=True)
def product_of_joined_axes(op, matrices, root):
    """Leading axes that are one in a product of matrices and part again after it are several from the beginning.

    What stands between is done on all axes: a Transpose of the last two, a Softmax along the last one, elementwise operators. So is what
    ``torch.baddbmm`` makes of the product, which it scales and adds to.
    """
    second = matrices.inputs[1].shape
    if second is None or len(second) != 3:
        return None  # a linear layer, as most
    product = root.inputs[0].producer()
    parted, flat = shape_after(root), product.outputs[0].shape
    if parted is None or flat is None or len(flat) != 3 or len(parted) < 4:
        return no("no leading axis parts")
    if not same_sizes(parted[-2:], flat[1:]):
        return no("the matrices change their sizes")
    result = apart(op, product, parted[:-2], OPERAND_REACH)
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
        if flat is None:
            return None
        if flat[1] == 1 and same_sizes(x.shape, [*lead, flat[2]]):
            return op.Unsqueeze(x, [len(lead)])
        return x if same_sizes(x.shape, [*lead, *flat[1:]]) else None
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
        before = producer_of(value)
        if before is None:
            return None
        is_read_here = len(value.uses()) == 1 and not value.is_graph_output() and before.graph is node.graph
        if not (is_read_here or before.op_type == "Reshape"):
            return None
        inputs.append(apart(op, before, lead, reach - 1))
        if inputs[-1] is None:
            return None
    return again(op, node, inputs, **changed)


ROWS = P.Reshape(var("x"), var("joined"), name="rows", shared=True)
LINEAR = P.one_of("Gemm", "MatMul")(ROWS, const("weight"), optional("bias"), name="product")


@rule(P.Reshape(LINEAR, var("shape")), set="default", looks_further=True)
def linear_of_joined_rows(op, x, weight, bias, rows, product, root):
    """A Gemm or a MatMul of rows whose leading axes are one, and part again after it, is a MatMul and an Add.

    Measured with onnxruntime 1.31: 0.97 to 1.00 of the time for 1 to 512 rows, in a node less, and 0.92 to 1.00 of that of a MatMul, in two less; what it is
    a part of is then known to other rules.
    """
    parted, flat = shape_after(root), shape_after(rows)
    if x.shape is None or parted is None or len(parted) < 3 or flat is None or len(flat) != 2:
        return no("the rows have one leading axis")
    *lead, last = parted
    row = list(x.shape[len(lead) :])
    if not row:
        return no("a row is one number, of no axis")
    if not same_sizes(lead, x.shape[: len(lead)]) or [*filter(is_unknown, row)] or flat[1] != math.prod(row):
        return no("the leading axes change, or the elements of a row")
    if attribute_of(product, "transA", 0) or any(
        attribute_of(product, name, 1.0) != 1 for name in ("alpha", "beta")
    ):
        return no("it is scaled, or transposed")
    if len(weight.shape) != 2:
        return no("the weight is no matrix")
    turned = attribute_of(product, "transB", 0)
    columns = weight.shape[0 if turned else 1]
    if not is_same(last, columns) or (bias is not None and list(bias.shape or ()) != [columns]):
        return no("the columns part, or the bias is no vector of them")
    if len(row) > 1:
        x = op.Reshape(x, [0] * len(lead) + [flat[1]])
    result = op.MatMul(x, op.Transpose(weight, perm=[1, 0]) if turned else weight)
    return result if bias is None else op.Add(result, bias)


def is_unknown(size: Size) -> bool:
    """Whether a size is no number."""
    return not isinstance(size, int)
