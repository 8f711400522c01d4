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
    refuse_writes,
    unknown_where_different,
    with_absent,
)
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.symbolic import boolean

higher_order = torch.ops.higher_order


@translates(higher_order.cond)
def cond(op, pred, true_fn, false_fn, operands=()):
    """One If whose branches capture what they read; a predicate known now leaves one branch."""
    refuse_writes("a branch of cond", true_fn, false_fn)
    wanted = fakes(fake_of(op.context.node))
    if not isinstance(pred, ir.Value):
        return (true_fn if pred else false_fn).inline(op, *operands)

    def branch(body, name):
        return op.subgraph(lambda inner: inline_as_tensors(body, inner, operands, wanted), name=name)

    then, otherwise = branch(true_fn, "then"), branch(false_fn, "else")
    results = op.If(
        boolean(op, op.Reshape(pred, [])), then_branch=then, else_branch=otherwise, outputs=len(then.outputs)
    )
    for result, first, second in zip(results, then.outputs, otherwise.outputs):
        result.type = first.type
        sizes = unknown_where_different(first, second)
        result.shape = None if sizes is None else ir.Shape(sizes)
    return with_absent(results, wanted)
