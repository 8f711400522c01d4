"""Composite operators: the translation *is* torch's own decomposition of that one node, walked by the same interpreter.

Source of semantics: ``OpOverload.decompose`` and ``torch._decomp``. For rare operators only: never where ONNX has the operator,
never tried on an operator that is not declared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

from experimental_experiment.torch_interpreter.assumptions.decisions import Decisions
from experimental_experiment.torch_interpreter.errors import ExportError, Untranslatable
from experimental_experiment.torch_interpreter.interpreter import Walk, as_view, value_of
from experimental_experiment.torch_interpreter.regions import of_any_size
from experimental_experiment.torch_interpreter.registry import TRANSLATIONS, Translation, takes, translates


def composite(
    *targets: torch._ops.OpOverload,
    function: Callable | None = None,
    table: dict[Any, Translation] = TRANSLATIONS,
) -> None:
    """Declare that operators are translated through torch's decomposition of the node, one level of it.

    *function*: what decomposes them, called as they are, where torch has nothing.
    """
    for target in targets:
        translates(target, table=table)(decomposed(target, function))


def decomposed(target: torch._ops.OpOverload, function: Callable | None = None):
    """The translation of one composite operator; its arguments are those of the schema."""

    def translation(op, **arguments):
        node = op.context.node
        names = [argument.name for argument in target._schema.arguments]
        args = dict(zip(names, node.args)) | dict(node.kwargs)
        return inline(op, target, args, arguments, function)

    translation.__name__ = target._schema.name.split("::")[1]
    translation.__doc__ = f"torch's decomposition of {target}."
    return takes(translation, target)


def inline(
    op,
    target: torch._ops.OpOverload,
    nodes: dict[str, Any],
    values: dict[str, Any],
    function: Callable | None = None,
) -> Any:
    """Trace the decomposition with the node's fake values and write it where *op* is."""
    given, fakes, operands = placed(nodes, values)
    return write(op, target, trace(target, given, fakes, op.context.region, function), operands)


def write(op, target: torch._ops.OpOverload, traced: torch.fx.GraphModule, operands: list[Any]) -> Any:
    """Write what an operator was traced to, on the values of its operands, where *op* is."""
    walk = Walk(traced, op, op.context.dimensions, origin=op.context.node)
    try:
        results = [value_of(op, item) for item in walk.run([as_view(value) for value in operands])]
    except ExportError as error:
        raise Untranslatable(f"in torch's decomposition of it, {str(error).splitlines()[0]}") from error
    return results[0] if len(target._schema.returns) == 1 and not is_list(target) else results


def placed(nodes: dict[str, Any], values: dict[str, Any]) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """The arguments with a `Slot` for each node, the fake values of the nodes, and what *values* has for them."""
    fakes, operands = [], []

    def collect(item: Any, value: Any) -> Any:
        if isinstance(item, torch.fx.Node):
            fakes.append(item.meta["val"])
            operands.append(value)
            return Slot(len(fakes) - 1)
        if isinstance(item, (list, tuple)):
            return [collect(a, b) for a, b in zip(item, value)]
        return item

    return {name: collect(item, values[name]) for name, item in nodes.items()}, fakes, operands


class Slot(int):
    """The position of a traced operand among the fake values."""


def is_list(target: torch._ops.OpOverload) -> bool:
    """Whether the only result of an operator is a list of tensors."""
    return str(target._schema.returns[0].type).startswith("List")


def trace(
    target: torch._ops.OpOverload,
    given: dict[str, Any],
    fakes: list[Any],
    region: Any,
    function: Callable | None = None,
) -> torch.fx.GraphModule:
    """The decomposition as a graph whose placeholders are the fake values, one level of it where torch allows that.

    *region*: what the fake values of the decomposition are computed in, such as autocast. *function*: see `composite`.
    Raises Untranslatable when torch has no decomposition.
    """
    function = function or decomposition_table.get(target, target.decompose)
    traced = traced_call(target, function, given, fakes, region)
    if any(node.target is target for node in traced.graph.nodes):
        traced = traced_call(target, target.decompose, given, fakes, region, pre_dispatch=False)
    return traced


def traced_call(
    target: torch._ops.OpOverload,
    function: Callable,
    given: dict[str, Any],
    fakes: list[Any],
    region: Any,
    pre_dispatch: bool = True,
) -> torch.fx.GraphModule:
    """What *function*, called as *target* is on *given*, does to the fake values."""

    def fill(item: Any, flat: tuple) -> Any:
        if isinstance(item, Slot):
            return flat[item]
        if isinstance(item, list):
            return [fill(entry, flat) for entry in item]
        return item

    def call(*flat):
        kwargs = {name: fill(item, flat) for name, item in given.items()}
        args = [kwargs.pop(a.name) for a in target._schema.arguments if a.name in kwargs and not a.kwarg_only]
        result = function(*args, **kwargs)
        if result is NotImplemented:
            raise Untranslatable("torch has no decomposition for it")
        return result

    mode = next((fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor)), None)
    if mode is None:
        raise Untranslatable("a composite operator without tensors")
    with mode, no_branch_on_sizes(), contextlib.ExitStack() as stack:
        if region is not None:
            stack.enter_context(region.tracing())
            stack.enter_context(
                of_any_size(mode)
            )  # C++ decomposes it there, and asks symbols for their numbers
        return make_fx(call, tracing_mode="real", pre_dispatch=pre_dispatch, _allow_non_fake_inputs=True)(
            *fakes
        )


@contextlib.contextmanager
def no_branch_on_sizes() -> Iterator[None]:
    """Raise Untranslatable when a decomposition branches on sizes: what the program assumes of them was judged before."""
    decisions = Decisions()
    with decisions.recorded(follows=True):
        yield
    assumed = decisions.of_decompositions()
    if assumed:
        raise Untranslatable(
            f"torch's decomposition of it is that of sizes where {' and '.join(assumed)}, as in the example"
        )
