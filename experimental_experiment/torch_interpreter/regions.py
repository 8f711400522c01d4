"""Regions under ``torch.vmap``: what functorch makes of them.

Between ``_vmap_increment_nesting`` and ``_vmap_decrement_nesting`` an exported program shows what happens to one sample. The
region is traced again on its fake values, functorch's batching rules included, and the result is walked in its place.
Source of semantics: ``torch._functorch.predispatch``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._functorch import predispatch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from experimental_experiment.torch_interpreter.assumptions.decisions import solved
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.patches.batches import symbolic_rules
from experimental_experiment.torch_interpreter.writes import mutated_storages, storage_of

INCREMENT, DECREMENT = predispatch._vmap_increment_nesting, predispatch._vmap_decrement_nesting
DEPTH = {INCREMENT: 1, DECREMENT: -1}
ADD, REMOVE = predispatch._add_batch_dim, predispatch._remove_batch_dim


@dataclasses.dataclass
class Region:
    """The nodes of one region, outermost vmap to its end, in order.

    *live*: the nodes of the graph that matter; *around*: see `unmarked`.
    """

    live: Container[torch.fx.Node]
    around: Mapping[torch.fx.Node, list[torch.fx.Node]]
    nodes: list[torch.fx.Node] = dataclasses.field(default_factory=list)

    def inputs(self) -> list[torch.fx.Node]:
        """The nodes before the region that it reads."""
        inside = set(self.nodes)
        read = (node for member in self.nodes for node in member.all_input_nodes)
        return list(dict.fromkeys(node for node in read if node not in inside and node.op != "get_attr"))

    def outputs(self) -> list[torch.fx.Node]:
        """The nodes of the region that are read behind it."""
        inside = set(self.nodes)
        return [
            node
            for node in self.nodes
            if any(user in self.live and user not in inside for user in node.users)
        ]

    def traced(self, region: Any) -> torch.fx.GraphModule:
        """The region on whole batches, its inputs being placeholders, in an enclosing *region* such as autocast.

        Raises Untranslatable when it writes one of its inputs.
        """
        inputs, graph = self.inputs(), torch.fx.Graph()
        copies = {node: graph.placeholder(node.name) for node in inputs}
        stack: list[torch.fx.Node] = []
        for member in self.nodes:
            if member in self.around:
                mark(graph, stack, self.around[member], copies)
            for node in member.all_input_nodes:
                if node.op == "get_attr" and node not in copies:
                    copies[node] = graph.node_copy(node)
            copies[member] = graph.node_copy(member, copies.__getitem__)
        mark(graph, stack, [], copies)
        graph.output(tuple(copies[node] for node in self.outputs()))
        body = torch.fx.GraphModule(self.nodes[0].graph.owning_module, graph)
        fakes = [node.meta["val"] for node in inputs]
        # the size of the batch is a node where it is a symbol
        is_symbolic = any(n.target is REMOVE and isinstance(n.args[2], torch.fx.Node) for n in self.nodes)
        with symbolic_rules() if is_symbolic else contextlib.nullcontext():
            result = retrace(body, fakes, region)
        given = {storage_of(node.meta.get("val")) for node in result.graph.find_nodes(op="placeholder")}
        if mutated_storages(result.graph) & given:
            raise Untranslatable("a region under torch.vmap writes a tensor from outside")
        return result


def vmap_regions(graph: torch.fx.Graph, live: Container[torch.fx.Node]) -> dict[torch.fx.Node, Region]:
    """The region of each live node that is in one."""
    found: dict[torch.fx.Node, Region] = {}
    around = unmarked(graph)
    depth, region = 0, None
    for node in graph.nodes:
        change = DEPTH.get(node.target, 0) if node.op == "call_function" else 0
        if (change > 0 and depth == 0) or (region is None and node in around):
            region = Region(live, around)
        depth += change
        if region is not None and node.op == "call_function" and (node in live or node.target in DEPTH):
            region.nodes.append(node)
            found[node] = region
        is_last = node in around and around[node][0] is node
        if is_last or (depth == 0 and not around):
            region = None
    return found


def unmarked(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """The regions around each node that gives them a batch or takes a result, outermost first, each by its last result.

    They are those of a body, where torch.export leaves out the nodes that begin and end a region: these give nothing that is read.
    """
    last: dict[int, torch.fx.Node] = {}
    begun: set[int] = set()
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.target not in (ADD, REMOVE):
            if node.op == "call_function" and node.target in DEPTH:
                return {}
            continue
        level = node.args[2] if node.target is ADD else node.args[1]
        if node.target is ADD:
            begun.add(level)
        elif level in begun or level not in last:
            begun.discard(level)
            last[level] = node
        found[node] = [last[outer] for outer in range(1, level + 1)]
    return found


def mark(
    graph: torch.fx.Graph,
    stack: list[torch.fx.Node],
    around: Sequence[torch.fx.Node],
    copies: Mapping[torch.fx.Node, torch.fx.Node],
) -> None:
    """Write what ends the regions of *stack* that are not *around*, and begins the others; each is known by its last result."""
    while stack != around[: len(stack)]:
        graph.call_function(DECREMENT)
        stack.pop()
    for last in around[len(stack) :]:
        size = last.args[2]
        graph.call_function(INCREMENT, (copies.get(size, size), "error"))
        stack.append(last)


def retrace(function: Callable, fakes: Sequence[Any], region: Any) -> torch.fx.GraphModule:
    """What a function does to fake values, in ATen's operators, transformations of functorch applied.

    Raises Untranslatable when torch refuses it, as batching rules do that take no symbolic sizes, or takes the size of the example for
    good, as those of torch 2.9 do: no transformation lasts after it.
    """
    modes = [fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor)]
    mode = modes[0] if modes else FakeTensorMode(allow_non_fake_inputs=True)
    depth = functorch.get_dynamic_layer_stack_depth()
    # a size that is 1 in the example may be another one
    larger_than_one = torch.fx.experimental._config.patch(backed_size_oblivious=True)
    with mode, larger_than_one, contextlib.nullcontext() if region is None else region.tracing():
        try:
            with of_any_size(mode):
                return make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)(*fakes)
        finally:
            if functorch.get_dynamic_layer_stack_depth() > depth:
                functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


@contextlib.contextmanager
def of_any_size(mode: FakeTensorMode) -> Iterator[None]:
    """Raise Untranslatable when torch refuses what is traced in the context, or takes sizes of the example for good."""
    environment = mode.shape_env
    before = 0 if environment is None else len(environment.guards)
    try:
        yield
    except RuntimeError as error:
        raise Untranslatable(f"tracing it again, torch says: {str(error).splitlines()[0]}") from error
    kept = [] if environment is None else environment.guards[before:]
    kept = [found[1] for guard in kept if (found := solved(guard.expr))]
    if kept:
        numbers = ", ".join(map(str, sorted(set(kept))))
        raise Untranslatable(
            f"tracing it again, torch keeps dynamic sizes at {numbers}, those of the example"
        )
