"""Buffers that the model gives a tensor which it has not computed: an argument, or another buffer.

Source of semantics: ``torch.export._trace``, which adds a copy into the buffer at the end of the graph.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

MODULE = {"": ("", "torch.nn.Module")}
"""The modules around a copy that torch adds: the root alone."""


@patch("torch", replaces=("torch.export._trace._verify_nn_module_stack",), default=True)
def assigned_buffers() -> Iterator[None]:
    """``self.last = x``, or ``self.older, self.last = self.last, x``, is a SpecViolationError: torch asks which module copies an input into the buffer."""
    # it brings TorchDynamo, which imports of this package do not need
    trace = importlib.import_module("torch.export._trace")
    with replaced(trace, "_verify_nn_module_stack", of_the_root(trace._verify_nn_module_stack)):
        yield


def of_the_root(verify: Callable) -> Callable:
    """*verify* to which these copies are said to be the root's: they share what is known of the input, which no module computes."""

    @functools.wraps(verify)
    def _verify_nn_module_stack(graph_module: torch.fx.GraphModule) -> None:
        calls = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        for node in calls:
            source = node.args[1]
            if source.op == "placeholder" and "nn_module_stack" not in node.meta:
                assigned_buffers.used()
                node.meta = {**source.meta, "nn_module_stack": dict(MODULE)}
        verify(graph_module)

    return _verify_nn_module_stack
