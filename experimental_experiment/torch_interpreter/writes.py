"""Which storages the nodes of a program write: declared by the schema, hidden, or inside the region that a node calls.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html. Nodes alias where the fake tensors in ``meta["val"]`` share a storage.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import is_batchedtensor

from experimental_experiment.torch_interpreter import registry


def storage_of(value: Any) -> int | None:
    """An identifier of the storage of a fake tensor, None for anything else."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not is_batchedtensor(value):
        return value.untyped_storage()._cdata
    return None


def storages(value: Any) -> list[int | None]:
    """The storages of the tensors of a node's value, in order."""
    if isinstance(value, (list, tuple)):
        return [storage for item in value for storage in storages(item)]
    return [storage_of(value)]


SAME_TENSOR = frozenset({torch.ops.aten.detach_.default, torch.ops.aten.requires_grad_.default})
"""In-place operators that change neither what a tensor holds nor how it is seen."""

FILLS = frozenset({torch.ops.aten.fill_.Scalar, torch.ops.aten.fill_.Tensor, torch.ops.aten.zero_.default})
"""In-place operators that write one number everywhere."""

HIDDEN_WRITES = {
    torch.ops.aten.batch_norm.default: ("training", ("running_mean", "running_var")),
    torch.ops.aten.instance_norm.default: ("use_input_stats", ("running_mean", "running_var")),
    torch.ops.aten.native_batch_norm.default: ("training", ("running_mean", "running_var")),
    torch.ops.aten._batch_norm_impl_index.default: ("training", ("running_mean", "running_var")),
}
"""Operators that write arguments without saying so in their schema: the flag that makes them write, the arguments."""


def written_nodes(node: torch.fx.Node, root: torch.nn.Module | None = None) -> list[torch.fx.Node]:
    """The nodes whose storages *node* writes: declared by the schema, hidden, or written inside a region it calls.

    *root* has the bodies of regions, the module of the graph by default: while torch traces, the graph has none yet.
    """
    target = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return region_writes(node, root or node.graph.owning_module)
    flag, names = HIDDEN_WRITES.get(target, (None, registry.written_arguments(target)))
    if not names:
        return []
    given = dict(zip((argument.name for argument in schema.arguments), node.args)) | node.kwargs
    if flag is not None and not given.get(flag):
        return []
    found = []
    for name in names:
        value = given.get(name)
        found += [item for item in (value if isinstance(value, (list, tuple)) else [value])]
    return [item for item in found if isinstance(item, torch.fx.Node)]


def region_writes(node: torch.fx.Node, root: torch.nn.Module) -> list[torch.fx.Node]:
    """The operands of a higher-order operator that one of its bodies writes, by position of the body's placeholders."""
    bodies = [
        getattr(root, argument.target)
        for argument in node.args
        if isinstance(argument, torch.fx.Node) and argument.op == "get_attr"
    ]
    modules = [body for body in bodies if isinstance(body, torch.fx.GraphModule)]
    if not modules:
        return []
    operands = [
        item
        for argument in node.args
        for item in (argument if isinstance(argument, (list, tuple)) else [argument])
        if isinstance(item, torch.fx.Node) and item.op != "get_attr"
    ]
    found = []
    for module in modules:
        written = mutated_storages(module.graph)
        if not written:
            continue
        placeholders = module.graph.find_nodes(op="placeholder")
        for placeholder, operand in zip(reversed(placeholders), reversed(operands)):
            if storage_of(placeholder.meta.get("val")) in written:
                found.append(operand)
    return found


def mutated_storages(graph: torch.fx.Graph) -> set[int]:
    """Storages that a node of the graph writes; views of the others need no lens."""
    written: set[int | None] = set()
    for node in graph.nodes:
        if node.op == "call_function" and node.target not in SAME_TENSOR:
            for argument in written_nodes(node):
                written.update(storages(argument.meta.get("val")))
    pairs = [(node, returned_argument(node)) for node in graph.nodes]
    same = [storages([node.meta["val"], given.meta["val"]]) for node, given in pairs if given is not None]
    for pair in [*same, *reversed(same)]:
        if written.intersection(pair):
            written.update(pair)
    written.discard(None)
    return written


def share_what_is_returned(module: torch.fx.GraphModule) -> None:
    """Give what in-place operators return the storage of what they write, which it is in eager.

    torch.export shows another one where that tensor is an attribute, and no parameter or buffer: it runs the operator on the real tensor.
    """
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not returns_argument(node.target):
            continue
        written = [argument.meta["val"] for argument in written_nodes(node)]
        if len(written) == 1 and storage_of(value) != storage_of(written[0]):
            layout = value.shape, value.stride(), value.storage_offset()
            # the copies that torch.export adds at the end have the very dict of what they copy
            node.meta = {**node.meta, "val": written[0].detach().as_strided(*layout)}


def returns_argument(target: Any) -> bool:
    """Whether an overload declares that its result is the argument that it writes."""
    if not registry.written_arguments(target):
        return False
    aliases = [returned.alias_info for returned in target._schema.returns]
    return len(aliases) == 1 and aliases[0] is not None and aliases[0].is_write


CONVERSIONS = frozenset(
    {
        torch.ops.aten.to.device,
        torch.ops.aten.to.dtype,
        torch.ops.aten.to.dtype_layout,
        torch.ops.aten.to.other,
        torch.ops.aten.type_as.default,
    }
)
"""Operators that return their argument where there is nothing to convert: torch.export shows a copy of a tensor that is an attribute."""


def returned_argument(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument that a node returns as it is in eager, although its fake result has a storage of its own."""
    if node.target is torch.ops.aten.dropout.default:
        input, p, train = node.args
        return input if p == 0 or not train else None
    if node.target in CONVERSIONS and not is_copy(node):
        return node.args[0]
    return None


def is_copy(node: torch.fx.Node) -> bool:
    """Whether a conversion makes a tensor: one of another dtype or device, or because of ``copy`` or ``memory_format``."""
    names = (argument.name for argument in node.target._schema.arguments)
    given = dict(zip(names, node.args)) | node.kwargs
    before, after = (item.meta.get("val") for item in (node.args[0], node))
    if given.get("copy") or given.get("memory_format") not in (None, torch.preserve_format):
        return True
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return True
    return (before.dtype, before.device, before.layout) != (after.dtype, after.device, after.layout)
