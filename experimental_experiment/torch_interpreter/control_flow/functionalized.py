"""What functionalization makes of operators that write their arguments: auto_functionalized, with_effects.

Source of semantics: ``torch._higher_order_ops.auto_functionalize`` and ``effects``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.aten.slicing import slice_
from experimental_experiment.torch_interpreter.aten.striding import places, put_at
from experimental_experiment.torch_interpreter.control_flow.wrappers import single
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.interpreter import Body
from experimental_experiment.torch_interpreter.registry import translates

higher_order = torch.ops.higher_order


@translates(higher_order.auto_functionalized)
def auto_functionalized(op, _mutable_op, **kwargs):
    """The results of the operator, then the new value of each argument that it writes."""
    returned, written = call(op, _mutable_op, kwargs)
    return [*(returned or [None]), *written]


@translates(higher_order.auto_functionalized_v2)
def auto_functionalized_v2(op, _mutable_op, _all_bases, **kwargs):
    """The results of the operator, then the new value of each base whose views it writes."""
    names = registry.written_arguments(_mutable_op)
    bases = list(_all_bases)
    layouts = {name: layout_of(name, kwargs) for name in names}
    given = {name: value for name, value in kwargs.items() if not name.startswith("_")}
    for name, layout in layouts.items():
        given[name] = None if layout is None else read(op, bases, layout)
    returned, written = call(op, _mutable_op, given)
    for layout, new in zip(layouts.values(), written):
        if layout is not None:
            write(op, bases, layout, new)
    return [*(returned or [None]), *bases]


def call(op, target: Any, arguments: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What a custom operator that writes its arguments returns, and their new values; built-in ones are never functionalized so."""
    if not isinstance(target, torch._ops.OpOverload):
        raise Untranslatable(f"{target} was functionalized: export without decompositions")
    results = registry.invoke(translation_of(op, target), op, target, [], arguments)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    count = len(registry.written_arguments(target))
    return results[: len(results) - count], results[len(results) - count :]


def translation_of(op, target: Any) -> registry.Translation:
    """The translation of an operator, this export's own first.

    Raises Untranslatable when it has none.
    """
    for table in (op.context.translations, registry.TRANSLATIONS):
        for key in registry.keys(target):
            if key in table:
                return table[key]
    raise Untranslatable(f"{target} has no translation")


def layout_of(name: str, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """How an argument is seen through its base, None for an absent argument."""
    start = f"_{name}_"
    layout = {key.removeprefix(start): value for key, value in kwargs.items() if key.startswith(start)}
    if "length" in layout:
        raise Untranslatable(f"the argument {name} is a list of written tensors")
    return None if layout.get("base_index") is None else layout


def read(op, bases: list[Any], layout: dict[str, Any]) -> Any:
    """The argument: its base, or a view of it."""
    base = bases[layout["base_index"]]
    get = view_of(op, layout)
    return base if get is None else get(base)


def write(op, bases: list[Any], layout: dict[str, Any], new: Any) -> None:
    """Put the new value of an argument into its base."""
    index = layout["base_index"]
    get = view_of(op, layout)
    bases[index] = new if get is None else put_at(op, bases[index], new, get)


def view_of(op, layout: dict[str, Any]) -> Callable | None:
    """The view that an argument is of its base, None for the base itself."""
    if "slice_dim" in layout:
        bounds = layout["slice_start"], layout["slice_end"]
        return lambda base: slice_(op, base, layout["slice_dim"], *bounds, 1)
    if "storage_offset" not in layout:
        return None
    base = op.context.node.kwargs["_all_bases"][layout["base_index"]].meta["val"]
    if not base.is_contiguous() or base.storage_offset() != 0:
        raise Untranslatable("a view of a base that is not contiguous")
    where = places(op, layout["size"], layout["stride"], layout["storage_offset"])
    return lambda base: op.Gather(op.Reshape(base, [-1]), where, axis=0)


@translates(higher_order.with_effects)
def with_effects(op, token, target, *args, **kwargs):
    """The operator itself, nothing when it returns nothing; the token only orders it. A list of tensors is one result."""
    if not isinstance(target, torch._ops.OpOverload):
        if target is higher_order.print:
            return [token, None]
        raise Untranslatable(f"{target} has effects outside of the model")
    if not target._schema.returns:
        return [token, None]
    results = registry.invoke(translation_of(op, target), op, target, list(args), kwargs)
    return [token, *(results if len(target._schema.returns) > 1 else [results])]


@translates(higher_order.run_const_graph)
def run_const_graph(op, graph: Body, args):
    """A graph of constants, inlined."""
    return single(graph, graph.inline(op, *args))


@translates(higher_order.out_dtype)
def out_dtype(op, target, output_dtype, *args):
    """The operator computed in the dtype of its result: wider than its arguments, it does not overflow."""
    found = translation_of(op, target)
    wide = [op.Cast(x, to=onnx_dtype(output_dtype)) if isinstance(x, ir.Value) else x for x in args]
    return registry.invoke(found, op, target, wide, {})
