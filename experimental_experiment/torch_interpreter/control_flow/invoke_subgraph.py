"""invoke_subgraph: a region that torch compiles once becomes one local function, called many times.

Source of semantics: ``torch.compiler.nested_compile_region`` and ``torch._higher_order_ops.invoke_subgraph``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.control_flow.bodies import fake_of, fakes
from experimental_experiment.torch_interpreter.emitter import Emitter
from experimental_experiment.torch_interpreter.functions import local_function, read_from_outside
from experimental_experiment.torch_interpreter.interpreter import Body, value_of
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Number, declare, plain
from experimental_experiment.torch_interpreter.writes import mutated_storages, storage_of

DOMAIN = "nested_compile_region"
"""Domain of the local functions."""


@dataclasses.dataclass(frozen=True)
class Region:
    """The local function of a region.

    Attributes:
        function: its inputs are the operands that are values, then what it reads from the model.
        read: the weights and inputs of the model that it reads.
        results: what the region gives, None in the place of each output of the function.
    """

    function: ir.Function
    read: Sequence[ir.Value]
    results: Sequence[Any]


@translates(torch.ops.higher_order.invoke_subgraph, views=True)
def invoke_subgraph(op, subgraph, identifier, *operands):
    """A call of the region's function; its body where it writes its operands or gives them back."""
    if shares_memory(subgraph):
        return subgraph.inline_views(op, *operands)
    operands = [value_of(op, operand) for operand in operands]
    given = [operand for operand in operands if isinstance(operand, ir.Value)]
    # 1, 1.0 and True are equal keys, but not the same numbers
    kinds = tuple(x.dtype if isinstance(x, ir.Value) else (type(x), x) for x in operands)
    key = (subgraph.module, op.context.region, kinds)
    if key not in op.context.regions:
        op.context.regions[key] = written(op, subgraph, identifier, operands)
    region = op.context.regions[key]
    outputs = region.function.outputs
    caller = op.append(region.function.name, [*given, *region.read], {}, len(outputs), DOMAIN)
    for result, output in zip(caller.outputs, outputs):
        result.type, result.shape = output.type, output.shape
    results = iter(caller.outputs)
    return [next(results) if number is None else number for number in region.results]


def shares_memory(body: Body) -> bool:
    """Whether a body writes its operands, or a result of it is a view of one."""
    given = {storage_of(fake_of(node)) for node in body.placeholders} - {None}
    returned = {storage_of(fake) for fake in fakes(body.results)}
    return bool(given & (mutated_storages(body.module.graph) | returned))


def written(op: Emitter, body: Body, identifier: str, operands: Sequence[Any]) -> Region:
    """Write the body in a graph of its own, which sees no size computed elsewhere, and make it a function."""
    context = op.context
    inner = Emitter(ir.Graph([], [], nodes=[], name=context.names.unique(identifier)), context)
    formals = [formal_input(inner, *pair) for pair in zip(operands, body.placeholders)]
    results = body.inline(inner, *formals)
    outputs: list[ir.Value] = []
    for result in map(plain, results):
        if isinstance(result, ir.Value):
            is_own = result.producer() is not None and result not in outputs
            outputs.append(result if is_own else inner.copy(result))
    nodes = list(inner.graph)
    inner.graph.remove(nodes)
    read, constants = read_from_outside(nodes, context)
    inputs = [plain(formal) for formal in formals if isinstance(formal, ir.Value)]
    read = [value for value in read if value not in inputs]
    function = local_function(context, DOMAIN, inner.graph.name, nodes, [*inputs, *read], constants, outputs)
    context.functions.append(function)
    return Region(function, read, [None if isinstance(item, ir.Value) else item for item in results])


def formal_input(inner: Emitter, operand: Any, node: torch.fx.Node) -> Any:
    """An input of the function of the type of *operand*, its sizes known inside; a Python number stays."""
    if not isinstance(operand, ir.Value):
        return operand
    formal = ir.Value(name=inner.context.names.unique(node.name), type=operand.type, shape=operand.shape)
    fake, dimensions = node.meta["val"], inner.context.dimensions
    if isinstance(fake, torch.Tensor):
        formal.shape = ir.Shape(dimensions.shape(fake, formal.name))
    else:
        formal = Number(formal, dimensions.label(fake, formal.name))
    declare(inner, formal)
    return formal
