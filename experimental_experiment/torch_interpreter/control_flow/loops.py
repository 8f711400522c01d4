"""while_loop and simple_loop_for: one Loop.

Source of semantics: ``torch._higher_order_ops.while_loop`` and ONNX Loop-19.
"""

from __future__ import annotations

import onnx_ir as ir
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
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
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


@translates("higher_order::simple_loop_for")
def simple_loop_for(op, n_iter, body_fn, operands, concatenation_dims=None):
    """One Loop whose results grow in sequences, each joined once: a cost linear in the number of turns.

    Each sequence starts with an empty tensor where its other sizes are known outside of the loop: no turn at all gives that.
    """
    refuse_writes("the body of simple_loop_for", body_fn)
    wanted = fakes(body_fn.results)
    axes = [dim % fake.dim() for dim, fake in zip(concatenation_dims or [0] * len(wanted), wanted)]
    start = [first_sequence(op, fake, axis) for fake, axis in zip(wanted, axes)]

    def step(inner, iteration, go, *sequences):
        results = inline_as_tensors(body_fn, inner, [iteration, *operands], wanted)
        return [go, *(insert(inner, *pair) for pair in zip(sequences, results))]

    body = op.subgraph(step, [ITERATION, GO, *start])
    turns = op.Cast(op.constant(n_iter, ir.DataType.INT64), to=ir.DataType.INT64)
    sequences = op.Loop(turns, None, *start, body=body, outputs=len(start))
    typed(sequences, start)
    return [joined(op, *each) for each in zip(sequences, wanted, axes)]


def first_sequence(op, fake, axis):
    """A sequence of one empty tensor, or of none when another size than that of *axis* is unknown outside of the loop."""
    dtype = onnx_dtype(fake.dtype)
    dtype = ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype  # no sequence of bfloat16 in ONNX
    sizes = [0 if k == axis else op.context.dimensions.value(op, size) for k, size in enumerate(fake.shape)]
    if any(size is None for size in sizes):
        sequence = op.SequenceEmpty(dtype=dtype)
    else:
        sequence = op.SequenceConstruct(op.Expand(op.constant(0, dtype), op.shape(sizes)))
    sequence.type, sequence.shape = ir.SequenceType(ir.TensorType(dtype)), None
    return sequence


def insert(op, sequence, value):
    """The sequence with one tensor more, in its dtype."""
    result = op.SequenceInsert(sequence, op.Cast(value, to=sequence.dtype))
    result.type, result.shape = sequence.type, None
    return result


def joined(op, sequence, fake, axis):
    """The tensors of a sequence, concatenated."""
    result = op.ConcatFromSequence(sequence, axis=axis)
    result.type, result.shape = ir.TensorType(sequence.dtype), ir.Shape([None] * fake.dim())
    return op.Cast(result, to=onnx_dtype(fake.dtype))
