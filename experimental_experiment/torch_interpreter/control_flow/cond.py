"""cond: one If.

Source of semantics: https://pytorch.org/docs/stable/cond.html and ONNX If-19.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.control_flow.bodies import (
    fake_of,
    fakes,
    inline_as_tensors,
    typed,
    unknown_where_different,
    with_absent,
    written_operands,
)
from experimental_experiment.torch_interpreter.interpreter import as_view, value_of
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.symbolic import boolean

higher_order = torch.ops.higher_order


@translates(higher_order.cond, views=True)
def cond(op, pred, true_fn, false_fn, operands=()):
    """One If whose branches capture what they read and also return what they write; a predicate known now leaves one branch."""
    pred = value_of(op, pred)
    if not isinstance(pred, ir.Value):
        return (true_fn if pred else false_fn).inline_views(op, *operands)
    wanted = fakes(fake_of(op.context.node))
    written = written_operands("a branch of cond", operands, true_fn, false_fn)
    given = [value_of(op, item) for item in operands]

    def branch(body, name):
        def step(inner):
            views = [as_view(item) for item in given]
            results = inline_as_tensors(body, inner, views, wanted)
            return [*results, *(views[position].read(inner) for position in written)]

        return op.subgraph(step, name=name)

    then, otherwise = branch(true_fn, "then"), branch(false_fn, "else")
    results = op.If(
        boolean(op, op.Reshape(pred, [])), then_branch=then, else_branch=otherwise, outputs=len(then.outputs)
    )
    for result, first, second in zip(results, then.outputs, otherwise.outputs):
        result.type = first.type
        sizes = unknown_where_different(first, second)
        result.shape = None if sizes is None else ir.Shape(sizes)
    count = len(results) - len(written)
    typed(results[count:], [given[position] for position in written])
    for position, new in zip(written, results[count:]):
        operands[position].write(op, new)
    return with_absent(results[:count], wanted)
