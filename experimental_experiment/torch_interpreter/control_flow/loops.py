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
    sizes_of,
    typed,
    written_operands,
)
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.emitter import INT64_MAX
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.interpreter import as_view, value_of
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.symbolic import boolean, computed

higher_order = torch.ops.higher_order


@translates(higher_order.while_loop, views=True)
def while_loop(op, cond_fn, body_fn, carried_inputs, additional_inputs=(), mutated_arg_indices=""):
    """One Loop without a trip count; the body ends by computing the next condition. What it writes is carried as well.

    *mutated_arg_indices* says what is looked up here: which operands are written.
    """
    return looped(op, cond_fn, body_fn, carried_inputs, additional_inputs)[0]


@translates(higher_order.while_loop_stack_output, views=True)
def while_loop_stack_output(op, cond_fn, body_fn, carried_inputs, additional_inputs=()):
    """The carries after each turn, stacked: what the gradient of while_loop needs. Those before the first one when there is none."""
    _, turns = looped(op, cond_fn, body_fn, carried_inputs, additional_inputs, is_stacked=True)
    first = op.Min(op.Shape(turns[0], end=1), [1])
    results = []
    for item, stacked in zip(carried_inputs, turns):
        before = op.Unsqueeze(op.Cast(value_of(op, item), to=stacked.dtype), [0])
        results.append(op.Slice(op.Concat(before, stacked, axis=0), first, [INT64_MAX], [0]))
    return results


def looped(op, cond_fn, body_fn, carried_inputs, additional_inputs, is_stacked=False):
    """The carries after the last turn, and, stacked, those after each turn."""
    refuse_writes("the condition of while_loop", cond_fn)
    operands, count = [*carried_inputs, *additional_inputs], len(carried_inputs)
    written = written_operands("the body of while_loop", operands, body_fn)
    if written and written[0] < count:
        raise Untranslatable("the body of while_loop writes one of its carries: clone it before")
    values = [value_of(op, item) for item in operands]
    given = fakes(body_fn.placeholders)[:count]
    wanted = fakes(body_fn.results)
    start = [as_value(op, item, fake) for item, fake in zip(values, wanted)]
    memory = [values[position] for position in written]

    def additional(memory):
        return [dict(zip(written, memory)).get(k, values[k]) for k in range(count, len(values))]

    def test(inner, carried, memory):
        carried = [as_number(value, fake) for value, fake in zip(carried, given)]
        (go,) = cond_fn.inline(inner, *carried, *additional(memory))
        return boolean(inner, inner.Reshape(inner.constant(go), []))

    def step(inner, iteration, go, *inputs):
        carried = [as_number(value, fake) for value, fake in zip(inputs, given)]
        views = [as_view(item) for item in additional(inputs[count:])]
        carried = inline_as_tensors(body_fn, inner, [*carried, *views], wanted)
        memory = [views[position - count].read(inner) for position in written]
        # a body gives each of its results one name
        stacked = [inner.copy(value) for value in carried] if is_stacked else []
        return [test(inner, carried, memory), *carried, *memory, *stacked]

    likes = [*(carried_type("carry", *kinds) for kinds in zip(start, given, wanted)), *memory]
    body = op.subgraph(step, [ITERATION, GO, *likes])
    outputs = len(likes) + count * is_stacked
    results = op.Loop(None, test(op, start, memory), *start, *memory, body=body, outputs=outputs)
    typed(results, [*likes, *likes[:count]][:outputs], outputs - len(likes))
    for position, new in zip(written, results[count:]):
        operands[position].write(op, new)
    return list(results[:count]), list(results[len(likes) :])


BLOCK = 64
"""Turns whose results are joined at once: a sequence of onnxruntime is copied, pointer by pointer, when it grows."""


@translates("higher_order::simple_loop_for")
def simple_loop_for(op, n_iter, body_fn, operands, concatenation_dims=None):
    """A Loop whose results grow in sequences, each joined at the end: a cost linear in the number of turns.

    The turns are taken in blocks, a Loop in a Loop, so that no sequence is long. The first element of a sequence of blocks is an
    empty tensor where its other sizes are known outside of the loop: no turn at all gives that.
    """
    refuse_writes("the body of simple_loop_for", body_fn)
    wanted = fakes(body_fn.results)
    axes = [dim % fake.dim() for dim, fake in zip(concatenation_dims or [0] * len(wanted), wanted)]
    turns = op.Cast(op.constant(n_iter, ir.DataType.INT64), to=ir.DataType.INT64)

    def results(inner, number):
        return inline_as_tensors(body_fn, inner, [number, *operands], wanted)

    def block(inner, number):
        first = inner.Mul(number, BLOCK)
        count = inner.Min(inner.Sub(turns, first), BLOCK)
        start = [empty_sequence(inner, fake) for fake in wanted]
        sequences = grow(inner, count, start, lambda body, k: results(body, body.Add(first, k)))
        return [concatenated(inner, sequence, axis) for sequence, axis in zip(sequences, axes)]

    start = [first_sequence(op, fake, axis) for fake, axis in zip(wanted, axes)]
    if not isinstance(n_iter, ir.Value) and n_iter <= BLOCK:
        sequences = grow(op, turns, start, results)
    else:
        sequences = grow(op, op.Div(op.Add(turns, BLOCK - 1), BLOCK), start, block)
    return [
        op.Cast(concatenated(op, sequence, axis), to=onnx_dtype(fake.dtype))
        for sequence, axis, fake in zip(sequences, axes, wanted)
    ]


def grow(op, count, start, results):
    """A Loop that appends what ``results(inner, number)`` gives to sequences, *count* times."""

    def step(inner, number, go, *sequences):
        return [go, *(insert(inner, *pair) for pair in zip(sequences, results(inner, number)))]

    body = op.subgraph(step, [ITERATION, GO, *start])
    sequences = op.Loop(count, True, *start, body=body, outputs=len(start))
    typed(sequences, start)
    return sequences


def stored(fake):
    """The dtype that a sequence keeps a tensor in: ONNX has no sequence of bfloat16."""
    dtype = onnx_dtype(fake.dtype)
    return ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype


def empty_sequence(op, fake):
    """A sequence of no tensor."""
    return as_sequence(op.SequenceEmpty(dtype=stored(fake)), stored(fake))


def first_sequence(op, fake, axis):
    """A sequence of one empty tensor, or of none when another size than that of *axis* is unknown outside of the loop."""
    sizes = [0 if k == axis else computed(op, size) for k, size in enumerate(sizes_of(fake))]
    if any(size is None for size in sizes):
        return empty_sequence(op, fake)
    empty = op.Expand(op.constant(0, stored(fake)), op.shape(sizes))
    return as_sequence(op.SequenceConstruct(empty), stored(fake))


def insert(op, sequence, value):
    """The sequence with one tensor more, in its dtype."""
    return as_sequence(op.SequenceInsert(sequence, op.Cast(value, to=sequence.dtype)), sequence.dtype)


def as_sequence(value, dtype):
    """*value*, declared as a sequence of tensors of any shape."""
    value.type, value.shape = ir.SequenceType(ir.TensorType(dtype)), None
    return value


def concatenated(op, sequence, axis):
    """The tensors of a sequence, concatenated."""
    result = op.ConcatFromSequence(sequence, axis=axis)
    result.type = ir.TensorType(sequence.dtype)
    return result
