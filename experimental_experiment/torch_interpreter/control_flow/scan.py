"""scan, map and associative_scan: one Scan over the first axis.

Source of semantics: ``torch._higher_order_ops.scan``, ``map``, ``associative_scan`` and ONNX Scan-19. The dimension and the
direction of torch's functions have become movedim and flip around the operator. torch has no scan of no row, and the one of
onnxruntime ends the process: a Scan of any length is guarded by an If.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.control_flow.bodies import (
    as_value,
    carried_type,
    fakes,
    inline_as_tensors,
    refuse_writes,
    sizes_of,
    slice_type,
    typed,
    with_absent,
)
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.symbolic import computed

higher_order = torch.ops.higher_order


@translates(higher_order.scan)
def scan(op, combine_fn, init, xs, additional_inputs=()):
    """The carries come first among the results, then the stacked rows."""
    refuse_writes("the function", combine_fn)
    wanted = fakes(combine_fn.results)
    given = fakes(combine_fn.placeholders)
    start = [as_value(op, item, fake) for item, fake in zip(init, wanted)]

    def step(inner, *rows):
        return inline_as_tensors(combine_fn, inner, [*rows, *additional_inputs], wanted)

    def scanned(inner):
        body = inner.subgraph(step, [*likes, *(slice_type("row", x) for x in xs)])
        results = inner.Scan(*start, *xs, body=body, num_scan_inputs=len(xs), outputs=len(body.outputs))
        typed(results, [*likes, *body.outputs[len(start) :]], stacked=len(results) - len(start))
        return results

    likes = [carried_type("carry", *kinds) for kinds in zip(start, given, wanted)]
    rows = [fake for fake in wanted[len(start) :] if fake is not None]
    return with_absent(guarded(op, xs[0], scanned, start, rows), wanted)


def guarded(op, x, scanned, start, rows):
    """What ``scanned(inner)`` gives when *x* has rows; the carries as they are and no row otherwise."""
    length = op.size(x, 0)
    if isinstance(length, int):
        return scanned(op) if length else without_rows(op, start, rows)
    then = op.subgraph(scanned, name="rows")
    otherwise = op.subgraph(lambda inner: without_rows(inner, start, rows), name="no_row")
    results = op.If(op.Greater(length, 0), then_branch=then, else_branch=otherwise, outputs=len(then.outputs))
    typed(results, then.outputs)
    return results


def without_rows(op, start, rows):
    """The carries and empty results, whose other sizes are 0 where only the function could tell them."""
    empty = []
    for fake in rows:
        sizes = [computed(op, size) for size in sizes_of(fake)]
        shape = op.shape([0, *(0 if size is None else size for size in sizes)])
        empty.append(op.Expand(op.constant(0, onnx_dtype(fake.dtype)), shape))
    return [*start, *empty]


@translates(higher_order.map_impl)
def map_(op, f, xs, pos_args=()):
    """A scan that carries nothing."""
    return scan(op, f, [], xs, pos_args)


@translates(higher_order.associative_scan)
def associative_scan(op, combine_fn, xs, additional_inputs=()):
    """A scan that gives each carry as a row; the first one is the first row itself, whatever the function says.

    torch.export unrolls it; this is for the graphs of TorchDynamo.
    """
    refuse_writes("the function of associative_scan", combine_fn)
    wanted = fakes(combine_fn.results)

    def step(inner, *values):
        *operands, first = values
        rows = operands[len(xs) :]
        combined = inline_as_tensors(combine_fn, inner, [*operands, *additional_inputs], wanted)
        results = [inner.Where(first, row, value) for row, value in zip(rows, combined)]
        return [*results, *results]

    def scanned(inner):
        start = [inner.Gather(x, 0, axis=0) for x in xs]
        is_first = inner.Equal(inner.Range(0, inner.size(xs[0], 0), 1), 0)
        body = inner.subgraph(step, [*start, *(slice_type("row", x) for x in [*xs, is_first])])
        results = inner.Scan(
            *start, *xs, is_first, body=body, num_scan_inputs=len(xs) + 1, outputs=len(body.outputs)
        )
        typed(results, body.outputs, stacked=len(xs))
        return results[len(xs) :]

    return list(guarded(op, xs[0], scanned, [], wanted))
