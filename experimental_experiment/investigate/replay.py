"""Running a program node by node with torch, beside the values that ONNX computed.

`Eager` runs it as it is. `Beside` gives every node ONNX's results of the nodes before it: what then differs is this node's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from experimental_experiment.comparison import leaves_of, tensor_of
from experimental_experiment.torch_interpreter.aten.random import draws
from experimental_experiment.torch_interpreter.errors import source_line
from experimental_experiment.torch_interpreter.interface import is_input
from experimental_experiment.torch_interpreter.messages import in_eager
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.torch_interpreter.torch_versions import keywords_in
from experimental_experiment.torch_interpreter.writes import mutated_storages

Onnx = Mapping[tuple[torch.fx.Node, int], torch.Tensor]
"""What ONNX computed: tensors by FX node and position among its results."""


def operands(program: Program, leaves: Sequence[Any]) -> list[Any]:
    """What the placeholders hold: copies of the user's arguments, the weights; what the program writes is copied too.

    Raises ValueError when there are not as many arguments as the program takes.
    """
    users = [entry for entry in program.inputs if entry.tensor is None]
    if len(users) != len(leaves):
        raise ValueError(
            f"the program takes {len(users)} arguments ({', '.join(entry.name for entry in users)}), {len(leaves)} are given"
        )
    writes = bool(mutated_storages(program.module.graph))
    given = iter(leaves)
    held = []
    for entry in program.inputs:
        value = next(given) if entry.tensor is None else entry.tensor
        if not isinstance(value, torch.Tensor) and isinstance(value, ir.TensorProtocol):  # of weights=
            value = tensor_of(value.numpy())
        is_copied = isinstance(value, torch.Tensor) and (writes or entry.tensor is None)
        held.append(value.detach().clone() if is_copied else value)
    return held


def model_inputs(program: Program, leaves: Sequence[Any], names: Sequence[str]) -> list[torch.Tensor]:
    """The inputs of the ONNX model, as tensors: those of the arguments, in order, and the buffers that are inputs by *names*.

    Raises ValueError when these are not as many as the names.
    """
    users = [entry for entry in program.inputs if entry.tensor is None]
    given = [as_onnx(leaf).clone() for entry, leaf in zip(users, leaves) if is_input(entry)]
    buffers = {
        entry.name: as_onnx(entry.tensor).clone()
        for entry in program.inputs
        if entry.is_buffer and entry.name in names[len(given) :]
    }
    if len(names) != len(given) + len(buffers):
        raise ValueError(
            f"the model takes {len(names)} inputs ({', '.join(names)}), the program {len(given) + len(buffers)}"
        )
    return given + [buffers[name] for name in names[len(given) :]]


def as_onnx(leaf: Any) -> torch.Tensor:
    """A leaf as ONNX has it: numbers are 0-d, a complex tensor is a real one with a last dimension of 2."""
    if isinstance(leaf, float):
        leaf = torch.tensor(leaf, dtype=torch.float64)
    tensor = torch.as_tensor(leaf).detach()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def results(value: Any) -> list[torch.Tensor | None]:
    """The results of a node by position, as ONNX has them; None for what is no tensor."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [as_onnx(item) if isinstance(item, torch.Tensor) else None for item in items]


class Eager(torch.fx.Interpreter):
    """Runs a program; *seen* is called with each node that is asked for and its results, copies of what they are then.

    Attributes:
        where: what it runs on, other than the example, in an error.
    """

    where = ""

    def __init__(
        self,
        program: Program,
        wanted: set[torch.fx.Node],
        seen: Callable[[torch.fx.Node, list[torch.Tensor | None]], None],
    ):
        super().__init__(program.module, garbage_collect_values=False)
        self.extra_traceback = False  # an error says it in our words
        self.program = program
        self.wanted = wanted
        self.seen = seen
        self.writes = bool(mutated_storages(program.module.graph))

    def start(self, leaves: Sequence[Any]) -> None:
        """Run the program on the user's arguments."""
        with torch.no_grad(), self.surroundings(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.run(*operands(self.program, leaves), enable_io_processing=False)

    def surroundings(self) -> contextlib.AbstractContextManager:
        """The autocast region that the program was captured in."""
        region = self.program.autocast
        return contextlib.nullcontext() if region is None else torch.autocast(region.device, region.dtype)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node. Raises EagerError when it fails."""
        with in_eager(source_line(n), self.where):
            result = super().run_node(n)
        if n in self.wanted:
            found = results(result)
            self.seen(n, [item.clone() if self.writes and item is not None else item for item in found])
        return result


class Beside(Eager):
    """Runs a program on what ONNX computed so far; *seen* gets what a node gives on ONNX's results of those before it."""

    where = " on the results of ONNX"

    def __init__(
        self, program: Program, onnx: Onnx, seen: Callable[[torch.fx.Node, list[torch.Tensor | None]], None]
    ):
        super().__init__(program, {node for node, _ in onnx}, seen)
        self.onnx = onnx

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node, then go on with ONNX's result of it."""
        result = super().run_node(n)
        if n not in self.wanted:
            return result
        if isinstance(result, (list, tuple)):
            return tuple(self.replaced(n, position, item) for position, item in enumerate(result))
        return self.replaced(n, 0, result)

    def replaced(self, node: torch.fx.Node, position: int, ours: Any) -> Any:
        """ONNX's result with the strides of torch's; in its memory when the program writes, for the views of it."""
        theirs = self.onnx.get((node, position))
        if theirs is None or not isinstance(ours, torch.Tensor):
            return ours
        if ours.is_complex() and theirs.shape[-1:] == (2,):
            theirs = torch.view_as_complex(theirs.contiguous())
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            return ours
        if not self.writes:
            return torch.empty_like(ours).copy_(theirs)
        overlaps = any(stride == 0 and size > 1 for stride, size in zip(ours.stride(), ours.shape))
        return ours if overlaps else ours.copy_(theirs)

    def exact(self, node: torch.fx.Node) -> list[torch.Tensor | None] | None:
        """The results of a node in float64, computed from ONNX's values before it; None when that is not possible."""
        if self.writes:
            return None
        try:
            with torch.no_grad():
                return results(self.in_double(node, {}, is_asked=True))
        except (NotImplementedError, RuntimeError, TypeError, ValueError):  # what torch raises for a dtype
            return None

    def in_double(self, node: torch.fx.Node, known: dict[torch.fx.Node, Any], is_asked: bool = False) -> Any:
        """The value of a node; those that ONNX did not show are computed in float64 from those that it did."""
        if node not in known:
            if node.op != "call_function" or (node in self.wanted and not is_asked):
                known[node] = pytree.tree_map(
                    doubled, self.env[node] if node.op != "get_attr" else self.held(node)
                )
            else:
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: self.in_double(n, known))
                args, kwargs = pytree.tree_map(double_dtype, (args, kwargs))
                known[node] = node.target(*args, **kwargs)
        return known[node]

    def held(self, node: torch.fx.Node) -> Any:
        """What a ``get_attr`` node reads."""
        return self.fetch_attr(node.target)


class Double(Eager):
    """Runs a program in float64, wherever a node of the main graph computes in a smaller dtype."""

    def __init__(self, program: Program):
        super().__init__(program, set(), lambda node, tensors: None)

    def outputs(self, leaves: Sequence[Any]) -> list[torch.Tensor] | None:
        """The outputs that are tensors, None when torch cannot compute them in float64, or the program writes tensors."""
        if self.writes:
            return None
        doubles = [doubled(value) for value in operands(self.program, leaves)]
        try:
            with torch.no_grad():
                result = self.run(*doubles, enable_io_processing=False)
        except (NotImplementedError, RuntimeError, TypeError, ValueError):  # what torch raises for a dtype
            return None
        return [as_onnx(item) for item in pytree.tree_leaves(result) if isinstance(item, torch.Tensor)]

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call an operator with float64 in the place of a smaller dtype."""
        args, kwargs = pytree.tree_map(double_dtype, (tuple(args), dict(kwargs)))
        return super().call_function(target, args, kwargs)


def doubled(value: Any) -> Any:
    """A tensor of floats in float64, a copy; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.float64, copy=True)
    return value.to(torch.complex128) if isinstance(value, torch.Tensor) and value.is_complex() else value


def double_dtype(argument: Any) -> Any:
    """float64 instead of a smaller dtype of floats among the arguments of a call."""
    is_float = isinstance(argument, torch.dtype) and argument.is_floating_point
    return torch.float64 if is_float else argument


def ordered_leaves(
    program: torch.export.ExportedProgram | None, args: tuple, kwargs: Mapping[str, Any]
) -> list[Any]:
    """The leaves of a call in the order of the placeholders: torch.export may have reordered the keyword arguments."""
    if program is not None and kwargs:
        order = keywords_in(program.call_spec.in_spec)
        if set(order) == set(kwargs):
            kwargs = {name: kwargs[name] for name in order}
    return leaves_of((tuple(args), dict(kwargs)))


def random_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """The nodes that draw random numbers."""
    for node in graph.nodes:
        if draws(node.target, node.args, node.kwargs):
            yield node
