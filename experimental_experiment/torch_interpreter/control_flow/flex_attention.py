"""flex_attention: score_mod and mask_mod over the whole matrix of scores.

Source of semantics: ``torch._higher_order_ops.flex_attention.math_attention``, torch's own definition, which is traced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import math_attention
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.interpreter import Body, Walk, as_view, value_of
from experimental_experiment.torch_interpreter.promotion import cast
from experimental_experiment.torch_interpreter.regions import retrace
from experimental_experiment.torch_interpreter.registry import translates


@translates(torch.ops.higher_order.flex_attention)
def flex_attention(op, *arguments, **named):
    """torch's definition in terms of matrix products, functions of all positions and a softmax that gives 0 to masked rows."""
    node = op.context.node
    leaves, spec = pytree.tree_flatten(
        (node.args, node.kwargs), is_leaf=lambda x: isinstance(x, torch.fx.Node)
    )
    values, _ = pytree.tree_flatten((list(arguments), named), is_leaf=lambda x: isinstance(x, Body))
    tensors = [
        k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.fx.Node) and leaf.op != "get_attr"
    ]

    def call(*flat):
        filled: list[Any] = [held(leaf) for leaf in leaves]
        for position, tensor in zip(tensors, flat):
            filled[position] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return math_attention(*args, **kwargs)

    traced = retrace(call, [leaves[k].meta["val"] for k in tensors], op.context.region)
    walk = Walk(traced, op, op.context.dimensions, origin=node)
    results = [value_of(op, item) for item in walk.run([as_view(values[k]) for k in tensors])]
    # of float64 torch's definition gives sums in float64, its fake tensors are float32
    return [cast(op, value, onnx_dtype(fake.dtype)) for value, fake in zip(results, node.meta["val"])]


def held(leaf: Any) -> Any:
    """The body that a node names, anything else as it is."""
    if isinstance(leaf, torch.fx.Node) and leaf.op == "get_attr":
        return getattr(leaf.graph.owning_module, leaf.target)
    return leaf
