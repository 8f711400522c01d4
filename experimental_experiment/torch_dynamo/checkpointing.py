"""Random operators under activation checkpointing, drawn in the forward graph and, from the same state, in the backward one.

Source of semantics: ``torch._prims.rng_prims``. torch wraps such an operator: ``run_and_save_rng_state`` also gives the state of the
generator, ``run_with_rng_state`` takes it. Both become the operator itself, and `noise` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import map_arg

from experimental_experiment.torch_interpreter.aten.random import draws

SAVING = torch.ops.higher_order.run_and_save_rng_state
USING = torch.ops.higher_order.run_with_rng_state

STATE = "state_of_generator"
"""Under this name the meta of a random node keeps the input with the state that it is drawn from."""


def state_of_generator() -> torch.Tensor:
    """The state that the next random operator is drawn from."""
    return torch.get_rng_state()


def unwrap(module: torch.fx.GraphModule, drawn: Callable[[Any, Sequence[Any]], bool]) -> None:
    """Put the operators that are *drawn* with their arguments, and what draws nothing, as attention without dropout, in the place of their wrappers, on the CPU."""
    wrappers = [node for node in module.graph.nodes if node.target in (SAVING, USING)]
    for node in wrappers:
        if node.target is SAVING and is_known(node, node.args[0], drawn):
            with module.graph.inserting_before(node):
                state = module.graph.call_function(state_of_generator)
                result = operator_of(node, node.args[0], node.args[1:])
            with mode_of(module.graph):
                state.meta["val"] = torch.empty(len(torch.get_rng_state()), dtype=torch.uint8)
            for user in list(node.users):
                user.replace_all_uses_with(result if user.args[1] else state)
                module.graph.erase_node(user)
            module.graph.erase_node(node)
        elif node.target is USING and is_known(node, node.args[1], drawn):
            with module.graph.inserting_before(node):
                result = operator_of(node, node.args[1], node.args[2:])
            result.meta[STATE] = node.args[0]
            node.replace_all_uses_with(result)
            module.graph.erase_node(node)
    if wrappers:
        module.recompile()


def is_known(node: torch.fx.Node, target: Any, drawn: Callable[[Any, Sequence[Any]], bool]) -> bool:
    """Whether an operator that a node wraps is *drawn*, or draws nothing, and on the CPU."""
    fakes = [item.meta["val"] for item in node.all_input_nodes]
    arguments = node.args[node.args.index(target) + 1 :]
    is_followed = drawn(target, arguments) or not draws(target, arguments, node.kwargs)
    return is_followed and all(x.device.type == "cpu" for x in fakes if isinstance(x, torch.Tensor))


def operator_of(node: torch.fx.Node, target: Any, args: Sequence[Any]) -> torch.fx.Node:
    """A node of the operator itself, with its fake result."""
    result = node.graph.call_function(target, tuple(args), node.kwargs)
    result.meta = {**node.meta}
    args, kwargs = map_arg((result.args, result.kwargs), lambda item: item.meta["val"])
    with mode_of(node.graph):
        result.meta["val"] = target(*args, **kwargs)
    return result


def mode_of(graph: torch.fx.Graph) -> FakeTensorMode:
    """The mode of the fake tensors that a graph takes: a wrapper in a graph without tensors does not occur."""
    fakes = (node.meta["val"] for node in graph.find_nodes(op="placeholder"))
    return next(fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor))


def from_state(draw: Callable, position: int) -> Callable:
    """A function that draws from the state that the input at *position* is, and leaves the generator as it was."""

    def drawn(args: Sequence[Any]) -> torch.Tensor:
        now = torch.get_rng_state()
        torch.set_rng_state(args[position])
        try:
            return draw(args)
        finally:
            torch.set_rng_state(now)

    return drawn
