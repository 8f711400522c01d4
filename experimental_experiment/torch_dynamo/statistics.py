"""The means and deviations of normalization layers between the forward and the backward graph, in the dtype that eager keeps them in.

Mixed precision training: a batch, layer or group norm of a bfloat16 or float16 tensor whose weight, bias or running statistics are
float32 gives float32 statistics on a CPU, torch's fake tensors say halves. Rounded to them, gradients are wrong where the mean is
large beside the deviation. Source of semantics: ``at::native::param_scalar_type`` of torch's kernels, seen with torch 2.13.
"""

from __future__ import annotations

import operator

import torch

aten = torch.ops.aten

HALF_PRECISION = (torch.bfloat16, torch.float16)
"""Dtypes of inputs whose statistics torch's fake tensors say to be halves, too."""

STATISTICS = (1, 2)
"""The places of the mean and of 1 / deviation among the results."""

NORMALIZATIONS = (
    aten.native_layer_norm.default,
    aten.native_group_norm.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
)

SAME = (aten.detach.default, aten.alias.default)
"""What stands between a result and the gradient that reads it."""


def keep_float32(graph: torch.fx.Graph) -> None:
    """Let ``meta["val"]`` of a joint graph say float32 where eager's statistics are that."""
    for target in NORMALIZATIONS:
        for node in graph.find_nodes(op="call_function", target=target):
            if is_mixed(node):
                node.meta["val"] = tuple(
                    widened(val) if place in STATISTICS else val for place, val in enumerate(node.meta["val"])
                )
                for part in node.users:
                    if part.target is operator.getitem and part.args[1] in STATISTICS:
                        widen(part)


def is_mixed(node: torch.fx.Node) -> bool:
    """Whether a normalization of halves has a float32 weight, bias or running statistics."""
    given = [
        arg.meta["val"].dtype for arg in node.all_input_nodes if isinstance(arg.meta["val"], torch.Tensor)
    ]
    return node.args[0].meta["val"].dtype in HALF_PRECISION and torch.float32 in given


def widen(node: torch.fx.Node) -> None:
    """Let a node and those that only show its result say float32."""
    node.meta["val"] = widened(node.meta["val"])
    for user in node.users:
        if user.target in SAME:
            widen(user)


def widened(fake: torch.Tensor) -> torch.Tensor:
    """A fake tensor as it is, but of float32 when it is of halves."""
    return fake.float() if fake.dtype in HALF_PRECISION else fake
