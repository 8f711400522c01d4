"""What the forward graph keeps for the backward one: tensors, not the views of them that the gradients need.

Source of semantics: ``torch._functorch.partitioners.default_partition``, which keeps what eager keeps. There a view costs nothing;
between two models it is a tensor of its own, computed by the first one and read by the second, such as the transposed weight of every
linear layer. The backward graph makes it of the tensor that it shows, where the transposition of a transposition disappears.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
from torch._functorch.partitioners import default_partition, has_recomputable_ops
from torch.fx.experimental.symbolic_shapes import statically_known_true

from experimental_experiment.torch_dynamo.statistics import keep_float32
from experimental_experiment.torch_interpreter.interpreter import flat

FORWARD, BACKWARD = "is_forward", "is_backward"


def partition(
    joint: torch.fx.GraphModule, inputs: Any, **options: Any
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """The forward and the backward graph of a joint one, as torch's partition functions are called."""
    keep_float32(joint.graph)
    if has_recomputable_ops(joint):
        keep_unwritten(joint)
    else:  # activation checkpointing says itself what is computed again
        move_views(joint)
    return default_partition(joint, inputs, **options)


def keep_unwritten(joint: torch.fx.GraphModule) -> None:
    """Let what is computed again read inputs as they were before they were written, such as running statistics, not as they are then."""
    for node in mutated_inputs(joint):
        readers = [user for user in node.users if user.op != "output"]
        if not readers:
            continue
        with joint.graph.inserting_after(node):
            copy = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta = {"val": node.meta["val"].clone(), "partitioner_tag": FORWARD}
        for reader in readers:
            reader.replace_input_with(node, copy)


def move_views(joint: torch.fx.GraphModule) -> None:
    """Give the backward half of a joint graph its own copies of the views that it reads."""
    nodes = list(joint.graph.nodes)
    written = mutated_inputs(joint)
    first = 1 + max(place for place, node in enumerate(nodes) if is_forward(node))
    backward = [node for node in nodes[first:] if node.op == "call_function"]
    is_late = set(nodes[first:])
    copies: dict[torch.fx.Node, torch.fx.Node] = {}

    def copied(node: torch.fx.Node) -> torch.fx.Node:
        if node in is_late or not is_view(node) or node.args[0] in written:
            return node
        if node not in copies:
            arguments = (copied(node.args[0]), *node.args[1:])
            with joint.graph.inserting_before(nodes[first]):
                copy = joint.graph.call_function(node.target, arguments, node.kwargs)
            copy.meta = {**node.meta, "partitioner_tag": BACKWARD}
            copies[node] = copy
        return copies[node]

    for node in backward:
        node.args = torch.fx.node.map_arg(node.args, copied)
        node.kwargs = torch.fx.node.map_arg(node.kwargs, copied)


def is_forward(node: torch.fx.Node) -> bool:
    """Whether a node is one of the forward pass, as default_partition decides it."""
    is_input = node.op == "placeholder" and "tangents" not in str(node.target)
    return is_input or node.meta.get("partitioner_tag") == FORWARD


def is_view(node: torch.fx.Node) -> bool:
    """Whether a node shows all elements of one tensor, or more than those."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target.is_view:
        return False
    view, base = node.meta["val"], node.args[0].meta["val"]
    return isinstance(view, torch.Tensor) and statically_known_true(base.numel() <= view.numel())


def mutated_inputs(joint: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The inputs that are written after the forward pass: a view of one shows what it was before."""
    results = flat(joint.graph.output_node().meta["desc"])
    written = {result.mutated_input for result in results if isinstance(result, InputMutationAOTOutput)}
    return {node for node in joint.graph.find_nodes(op="placeholder") if node.meta["desc"] in written}
