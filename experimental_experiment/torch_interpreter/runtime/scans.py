"""Scans of nothing."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import sympy
import torch

from experimental_experiment.torch_interpreter.runtime.table import repairs
from experimental_experiment.torch_interpreter.sizes import Number, Size, is_static
from experimental_experiment.torch_interpreter.symbolic import computed


@repairs(
    "Scan",
    when="over an axis that may have size 0, but for torch's own scan of an axis of the inputs, which torch refuses as well",
    because="it is refused while the model runs",
    nodes="an If",
)
def when_there_are_rows(
    op, *inputs, outputs, body, num_scan_inputs, scan_input_axes=None, scan_output_axes=None, **attributes
):
    """An If: the Scan, or the first states as they are and no row."""
    start, scanned = inputs[:-num_scan_inputs], inputs[-num_scan_inputs]
    length = op.size(scanned, scan_input_axes[0] if scan_input_axes else 0)
    if scan_output_axes is not None or (is_static(length) and length > 0) or has_elements(op, length):
        return None

    def rows(inner):
        given = {"body": body, "num_scan_inputs": num_scan_inputs, "scan_input_axes": scan_input_axes}
        return inner.emit("Scan", inputs, {**given, **attributes}, len(body.outputs))

    def no_row(inner):
        return [*start, *(empty(inner, output, body, start) for output in body.outputs[len(start) :])]

    if is_static(length):
        results = tuple(no_row(op))
    else:
        then, otherwise = op.subgraph(rows, name="rows"), op.subgraph(no_row, name="no_row")
        results = op.If(
            op.Greater(length, 0), then_branch=then, else_branch=otherwise, outputs=len(then.outputs)
        )
        for result, like in zip(results, then.outputs):
            result.type, result.shape = like.type, like.shape
    return results if outputs is not None else results[0]


def has_elements(op, length: Size) -> bool:
    """Whether a symbolic size is at least 1 whatever those of the inputs are, as that of a row and all others.

    Sizes below 1 do not matter to torch's own scan, which refuses to scan nothing. ``s - 1`` stays what it is: patches scan behind a first row.
    """
    label = length.label if isinstance(length, Number) else None
    expression = expression_named(op, label)
    if label is None or expression is None:
        return False
    # torch takes each size for 2 or more: numbers among the inputs are no sizes, and may be negative
    node = op.context.node
    sign = "positive" if node is not None and node.target is torch.ops.higher_order.scan else "nonnegative"
    sizes = {
        symbol: sympy.Dummy(symbol.name, integer=True, **{sign: True})
        for symbol in expression.free_symbols
        if symbol.is_nonnegative
    }
    return expression.xreplace(sizes).is_positive is True


def empty(op, output: ir.Value, body: ir.Graph, start: Sequence[ir.Value]) -> ir.Value:
    """No row of an output of a body: one that is a state as well has its sizes; those that only the body tells are 0."""
    for state, like in zip(body.outputs, start):
        if state.producer().inputs[0] is output.producer().inputs[0]:
            sizes: list[Size] = [op.size(like, axis) for axis in range(len(like.shape))]
            break
    else:
        sizes = [size if isinstance(size, int) else named_size(op, size.value) for size in output.shape or ()]
    return op.Expand(op.constant(0, output.dtype), op.shape([0, *sizes]))


def named_size(op, label: str | None) -> Size:
    """The size that a dimension is named after, 0 when the inputs of the model do not decide it."""
    expression = expression_named(op, label)
    size = None if expression is None else computed(op, expression)
    return 0 if size is None else size


def expression_named(op, label: str | None) -> sympy.Expr | None:
    """What a dimension is named after, in torch's symbols; None for a name of ours."""
    return next((known for known, text in op.context.dimensions.texts.items() if text == label), None)
