"""scan, map and associative_scan: one Scan over the first axis.

Source of semantics: ``torch._higher_order_ops.scan``, ``map``, ``associative_scan`` and ONNX Scan-19. The dimension and the
direction of torch's functions have become movedim and flip around the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from experimental_experiment.torch_interpreter.control_flow.bodies import (
    as_value,
    carried_type,
    fakes,
    inline_as_tensors,
    refuse_writes,
    slice_type,
    typed,
    with_absent,
)
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.interpreter import Body
from experimental_experiment.torch_interpreter.registry import schema_names, translates
from experimental_experiment.torch_interpreter.sizes import sizes_of
from experimental_experiment.torch_interpreter.writes import storage_of

aten, higher_order = torch.ops.aten, torch.ops.higher_order

PLACED = frozenset({aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default})
"""Operators whose *storage_offset* is a place in the memory of a tensor."""


@translates(higher_order.scan)
def scan(op, combine_fn, init, xs, additional_inputs=()):
    """The carries come first among the results, then the stacked rows."""
    refuse_writes("the function", combine_fn)
    refuse_places(combine_fn, combine_fn.placeholders[len(init) : len(init) + len(xs)])
    refuse_merged(combine_fn, op.context.node, len(init))
    wanted = fakes(combine_fn.results)
    given = fakes(combine_fn.placeholders)
    start = [as_value(op, item, fake) for item, fake in zip(init, wanted)]

    def step(inner, *rows):
        return inline_as_tensors(combine_fn, inner, [*rows, *additional_inputs], wanted)

    likes = [carried_type("carry", *kinds) for kinds in zip(start, given, wanted)]
    body = op.subgraph(step, [*likes, *(slice_type("row", x) for x in xs)])
    results = op.Scan(*start, *xs, body=body, num_scan_inputs=len(xs), outputs=len(body.outputs))
    typed(results, [*likes, *body.outputs[len(start) :]], stacked=len(results) - len(start))
    return with_absent(results, wanted)


def refuse_places(body: Body, rows: Sequence[torch.fx.Node]) -> None:
    """Raise Untranslatable when a body counts places in the memory of a row, which is that of all rows: it has one row alone.

    What a body inside of it is given may be a row too.
    """
    for module in body.module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        nodes = module.graph.nodes
        shown = rows if module is body.module else [node for node in nodes if node.op == "placeholder"]
        given = {storage_of(node.meta.get("val")) for node in shown} - {None}
        for node in nodes:
            if node.target in PLACED and storage_of(node.args[0].meta.get("val")) in given:
                arguments = dict(zip(schema_names(node.target), node.args)) | node.kwargs
                if arguments.get("storage_offset") is not None:
                    raise Untranslatable(
                        "as_strided of a row, from a place in the memory of all rows: clone the row before"
                    )


def refuse_merged(body: Body, node: torch.fx.Node, carries: int) -> None:
    """Raise Untranslatable when a carry that the body does not read starts with a tensor that is another carry, or captured, too.

    torch.export (2.13) takes such operands for one, and the body reads the last of them instead of the carry; whether it would have read
    the carry cannot be told any more. A copy is another node of the program, whether or not it is another value here.
    """
    arguments = dict(zip(("combine_fn", "init", "xs", "additional_inputs"), node.args)) | node.kwargs
    operands = [*arguments["init"], *arguments.get("additional_inputs", ())]
    for place, (operand, placeholder) in enumerate(zip(operands[:carries], body.placeholders)):
        if not placeholder.users and any(operand is other for other in operands[place + 1 :]):
            raise Untranslatable(
                "torch.export may have taken a carry for another operand that is the same tensor",
                "give the scan a copy of its own: init=h.clone()",
            )


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

    start = [op.Expand(op.constant(0, x.dtype), op.shape(sizes_of(op, x)[1:])) for x in xs]
    is_first = op.Equal(op.Range(0, op.size(xs[0], 0), 1), 0)
    body = op.subgraph(step, [*start, *(slice_type("row", x) for x in [*xs, is_first])])
    results = op.Scan(
        *start, *xs, is_first, body=body, num_scan_inputs=len(xs) + 1, outputs=len(body.outputs)
    )
    typed(results, body.outputs, stacked=len(xs))
    return list(results[len(xs) :])
