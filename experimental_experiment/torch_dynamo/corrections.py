"""What torch would decompose wrongly, or to other random numbers than eager's, while aot_autograd traces one of TorchDynamo's graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention

from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.patches.decompositions import margin_of_ended_classes
from experimental_experiment.torch_interpreter.patches.patch import applied
from experimental_experiment.torch_interpreter.patches.recurrent import last_states_of_lstm

PLACE_OF_DROPOUT = {scaled_dot_product_attention: 4, multi_head_attention_forward: 10}
"""Functions of attention that TorchDynamo leaves whole, and the position of their argument dropout_p."""


@contextlib.contextmanager
def corrected(module: torch.fx.GraphModule) -> Iterator[None]:
    """While this lasts, torch decomposes what the graph holds as eager computes it. Raises ExportError where that cannot be."""
    refuse_states_of_another_rank(module)
    with contextlib.ExitStack() as stack:
        stack.enter_context(applied([last_states_of_lstm, margin_of_ended_classes]))
        if drops_attention(module):
            # a kernel of a GPU draws its dropout itself, a decomposition leaves it to an operator that follows torch's generator
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def drops_attention(module: torch.fx.GraphModule) -> bool:
    """Whether a graph of TorchDynamo's has attention with dropout."""
    return any(
        (node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)) != 0
        for part in module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for target, place in PLACE_OF_DROPOUT.items()
        for node in part.graph.find_nodes(op="call_function", target=target)
    )


def refuse_states_of_another_rank(module: torch.fx.GraphModule) -> None:
    """Raise ExportError when a graph of TorchDynamo's computes with the last states of an LSTM and takes them for tensors of rank 4.

    So torch says before 2.13: what follows them was chosen for an axis too many. They are right where they are returned as they are.
    """
    for graph in (part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)):
        for layer in graph.find_nodes(op="call_function", target=torch.lstm):
            for part in layer.users:
                value = part.meta.get("example_value")
                is_wrong = isinstance(value, torch.Tensor) and value.dim() == 4
                if is_wrong and any(user.op != "output" for user in part.users):
                    raise ExportError(
                        "torch takes the last states of an LSTM for tensors of rank 4",
                        layer,
                        "compile it with torch 2.13 or later, or with torch._dynamo.config.allow_rnn = False",
                    )
