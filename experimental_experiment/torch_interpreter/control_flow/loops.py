"""while_loop and simple_loop_for: one Loop.

Source of semantics: ``torch._higher_order_ops.while_loop`` and ONNX Loop-19.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.control_flow.bodies import (
    GO,
    ITERATION,
    as_number,
    as_value,
    carried_type,
    fakes,
    inline_as_tensors,
    refuse_writes,
    typed,
)
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.symbolic import boolean

higher_order = torch.ops.higher_order


@translates(higher_order.while_loop)
def while_loop(op, cond_fn, body_fn, carried_inputs, additional_inputs=()):
    """One Loop without a trip count; the body ends by computing the next condition."""
    refuse_writes("a function of while_loop", cond_fn, body_fn)
    given = fakes(body_fn.placeholders)[: len(carried_inputs)]
    wanted = fakes(body_fn.results)
    start = [as_value(op, item, fake) for item, fake in zip(carried_inputs, wanted)]

    def test(inner, carried):
        (go,) = cond_fn.inline(inner, *carried, *additional_inputs)
        return boolean(inner, inner.Reshape(inner.constant(go), []))

    def step(inner, iteration, go, *carried):
        for value, fake in zip(carried, given):
            as_number(value, fake)
        carried = inline_as_tensors(body_fn, inner, [*carried, *additional_inputs], wanted)
        for value, fake in zip(carried, given):
            as_number(value, fake)
        return [test(inner, carried), *carried]

    likes = [carried_type("carry", *kinds) for kinds in zip(start, given, wanted)]
    body = op.subgraph(step, [ITERATION, GO, *likes])
    go = test(op, [as_number(value, fake) for value, fake in zip(start, given)])
    results = op.Loop(None, go, *start, body=body, outputs=len(start))
    typed(results, likes)
    return list(results)
