"""A step without detours: what runs the graphs that aot_autograd makes of one of TorchDynamo's, when it is simple.

What aot_autograd returns asks at each call about written inputs, outputs that are views, subclasses of tensors, tokens, generators; for a
small model this lasts as long as the model. Where none of them occurs, the forward and the backward graph are one function of autograd.
Source of semantics: ``torch._functorch._aot_autograd.runtime_wrappers``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import PlainTensorMeta, ViewAndMutationMeta
from torch._functorch._aot_autograd.utils import (
    saved_tensors_hooks_are_inlineable,
    top_saved_tensors_hooks,
)
from torch._guards import TracingContext

from experimental_experiment.torch_dynamo.compiled import CompiledGraph
from experimental_experiment.torch_dynamo.corrections import corrected
from experimental_experiment.torch_dynamo.decompositions import Table
from experimental_experiment.torch_dynamo.partition import partition

FORWARD, BACKWARD, INFERENCE = "forward", "backward", "inference"

ROLES = {"fw": FORWARD, "bw": BACKWARD, "inference": INFERENCE}
"""The compilers that aot_autograd takes."""


class Step:
    """What TorchDynamo calls with the inputs of its graph.

    aot_autograd's function runs until all graphs are compiled, the backward one by the first backward pass.

    Attributes:
        whole: aot_autograd's function.
        graphs: the compiled graphs by their role, FORWARD, BACKWARD or INFERENCE.
        metadata: what aot_autograd knows about inputs and outputs.
    """

    def __init__(
        self, graph_module: torch.fx.GraphModule, args: Sequence[Any], compiler: Callable, table: Table
    ):
        self.graphs: dict[str, CompiledGraph] = {}
        self.metadata: ViewAndMutationMeta | None = None
        self.direct: Callable | None = None
        self.is_decided = is_special()
        compilers = {f"{part}_compiler": self.kept(role, compiler) for part, role in ROLES.items()}
        trace = aot_autograd(**compilers, decompositions=table, partition_fn=partition)
        with corrected(graph_module):
            self.whole = trace(graph_module, args)

    def kept(self, role: str, compiler: Callable) -> Callable:
        """A compiler whose graph is kept."""

        def compile(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> CompiledGraph:
            if role != BACKWARD:
                self.metadata = metadata_now()
            self.graphs[role] = compiler(module, inputs)
            return self.graphs[role]

        return compile

    def __call__(self, *args: Any) -> Any:
        """The outputs of the graph."""
        if not self.is_decided and (INFERENCE in self.graphs or BACKWARD in self.graphs):
            self.direct, self.is_decided = direct(self.graphs, self.metadata), True
        return (self.direct or self.whole)(*args)


def metadata_now() -> ViewAndMutationMeta | None:
    """What aot_autograd knows about the graph that is compiled, None without it."""
    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def keep_inputs() -> None:
    """Say that a backward graph writes into nothing that it is given: it may run again, with ``retain_graph=True``."""
    metadata = metadata_now()
    if metadata is not None:
        metadata.bw_donated_idxs = []


def is_special() -> bool:
    """Whether only aot_autograd's function will do: hooks that it inlines, compiled autograd, gradients inside no_grad."""
    return (
        torch._dynamo.config.compiled_autograd
        or saved_tensors_hooks_are_inlineable(top_saved_tensors_hooks())
        or not torch.is_grad_enabled()
    )


def direct(graphs: dict[str, CompiledGraph], metadata: ViewAndMutationMeta | None) -> Callable | None:
    """The function of the inputs that needs nothing of what aot_autograd does around the graphs; None where there is none."""
    first = graphs.get(INFERENCE) or graphs.get(FORWARD)
    if metadata is None or first is None or not is_simple(first, metadata):
        return None
    run = unpacked(first) if INFERENCE in graphs else function_of(first, graphs[BACKWARD], metadata)
    marks = [
        (position, info.dynamic_dims)
        for position, info in enumerate(metadata.output_info)
        if info.dynamic_dims is not None
    ]
    return marked(run, marks) if marks else run


def is_simple(first: CompiledGraph, metadata: ViewAndMutationMeta) -> bool:
    """Whether the graphs take the inputs as they come and their outputs are tensors of their own; older torch does not tell."""
    return (
        hasattr(metadata, "num_opaque_objects_saved_for_bw")
        and all(hasattr(info, "requires_grad_for_backward") for info in metadata.output_info)
        and len(first.inputs) == len(metadata.input_info)
        and not any(info.mutates_data or info.mutates_metadata for info in metadata.input_info)
        and not metadata.num_outputs_aliased
        and not metadata.num_intermediate_bases
        and not metadata.tokens
        and not metadata.num_backward_tokens
        and not metadata.num_opaque_objects_saved_for_bw
        and not metadata.num_graphsafe_rng_states
        and not metadata.is_rng_op_functionalized
        and metadata.grad_enabled_mutation is None
        and all(
            isinstance(meta, PlainTensorMeta)
            for metas in (metadata.subclass_inp_meta, metadata.subclass_fw_graph_out_meta)
            for meta in metas
        )
        and all(
            entry.source is entry.twin is entry.base is entry.shows is None
            for entry in first.outputs[: metadata.num_forward_returns]
        )
    )


def unpacked(graph: CompiledGraph) -> Callable:
    """A graph called with its inputs, not with the list of them."""
    return lambda *args: graph(list(args))


def function_of(forward: CompiledGraph, backward: CompiledGraph, metadata: ViewAndMutationMeta) -> Callable:
    """A function of autograd that two graphs are: the forward one returns the results, then what the backward one reads first."""
    shown = metadata.num_forward_returns
    checked = metadata.tensors_saved_for_backwards_with_vc_check_slice
    unchecked = metadata.tensors_saved_for_backwards_no_vc_check_slice
    numbers = metadata.symints_saved_for_backwards_slice
    tensors = [
        position
        for position, info in enumerate(metadata.output_info)
        if issubclass(info.raw_type, torch.Tensor)
    ]
    has_gradient = [
        position for position in tensors if metadata.output_info[position].requires_grad_for_backward
    ]
    fixed = [position for position in tensors if not metadata.output_info[position].requires_grad]

    def gradients(ctx, *given):
        tangents = [given[position] for position in has_gradient]
        return tuple(backward([*ctx.numbers, *ctx.saved_tensors, *ctx.unchecked, *tangents]))

    class Graph(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            found = forward(list(args))
            # a view of a result would keep alive what keeps it alive
            ctx.save_for_backward(*[kept.detach() if kept._is_view() else kept for kept in found[checked]])
            ctx.unchecked = [kept.detach() if kept._is_view() else kept for kept in found[unchecked]]
            ctx.numbers = found[numbers]
            if fixed:
                ctx.mark_non_differentiable(*[found[position] for position in fixed])
            return tuple(found[:shown])

        @staticmethod
        def backward(ctx, *given):
            if not torch.is_grad_enabled():
                return gradients(ctx, *given)
            with torch.no_grad():  # create_graph=True: there are gradients, but none of them
                return differentiable_once(gradients(ctx, *given))

    return Graph.apply


NO_SECOND_GRADIENTS = (
    b"a graph on onnx_custom_backend has gradients, but none of its gradients: leave out of torch.compile "
    b"what is differentiated twice"
)


def differentiable_once(gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
    """The same numbers, whose gradients raise RuntimeError: without that they would be zero, whatever the weights are.

    `once_differentiable` of torch says so only where a tangent requires grad, not where a weight does.
    """
    places = [position for position, found in enumerate(gradients) if is_float(found)]
    refuse = torch._C._functions.DelayedError(NO_SECOND_GRADIENTS, len(places))
    refusing = refuse(*[gradients[position].detach().requires_grad_() for position in places])
    refusing = refusing if isinstance(refusing, (list, tuple)) else [refusing]
    marked = dict(zip(places, refusing))
    return tuple(marked.get(position, found) for position, found in enumerate(gradients))


def is_float(value: Any) -> bool:
    """Whether a value is a tensor that may have a gradient."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def marked(run: Callable, marks: list[tuple[int, set[int]]]) -> Callable:
    """A function whose results say which of their sizes change: the next graph after a break is not compiled twice."""

    def call(*args: Any) -> Any:
        results = run(*args)
        for position, axes in marks:
            results[position]._dynamo_propagated_dynamic_indices = set(axes)
        return results

    return call
