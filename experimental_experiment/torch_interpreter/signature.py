"""The interface of the model: names and types of inputs and outputs, names of dimensions, weights.

Source of semantics: ``torch.export.ExportGraphSignature`` and the pytree specs of an ExportedProgram.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.torch_versions import keywords_in, source_name

if TYPE_CHECKING:
    import sympy

    from experimental_experiment.torch_interpreter.dimensions import Dimensions
    from experimental_experiment.torch_interpreter.errors import Source


Bounds = tuple[int | None, int | None]
"""The smallest and the largest size, None where nothing is said."""


@dataclasses.dataclass
class Input:
    """One placeholder of the program.

    Attributes:
        node: the placeholder.
        name: name in the model: the argument's for an input of the user, the ``state_dict`` key for a weight.
        tensor: the weight, buffer or constant; None for an input of the user.
        is_buffer: whether it is a buffer.
        constant: the Python value of an argument that the capture made static.
        is_constant: whether it is such an argument.
        dims: what the user called the dimensions: {axis: name}; for a number {None: name}.
        bounds: the smallest and the largest size that the user declared: {axis: (size, size)}, None for none; for a number {None: ...}.
    """

    node: torch.fx.Node
    name: str
    tensor: torch.Tensor | None = None
    is_buffer: bool = False
    constant: Any = None
    is_constant: bool = False
    dims: dict[int | None, str] = dataclasses.field(default_factory=dict)
    bounds: dict[int | None, Bounds] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Program:
    """What is translated.

    Attributes:
        module: the graph.
        inputs: its placeholders, in order.
        output_names: names for the leaves of the user's result.
        writes: the leaves of the graph's result that are new values of an input, None for a token: a functionalized
            program returns what it would write.
        autocast: the region of ``torch.autocast`` that the program was captured in: it shows none of its casts.
        assigned: the buffers of submodules, and the parameters, that were given another tensor, which the program does not show; what each is.
        decided: the lines that asked for the value of a weight, by its placeholder: the program holds what it was.
    """

    module: torch.fx.GraphModule
    inputs: list[Input]
    output_names: list[str]
    writes: dict[int, Input | None] = dataclasses.field(default_factory=dict)
    autocast: Any = None
    assigned: Mapping[str, str] = dataclasses.field(default_factory=dict)
    decided: Mapping[torch.fx.Node, Sequence[Source | None]] = dataclasses.field(default_factory=dict)

    @property
    def given(self) -> list[Input]:
        """The inputs that are no weights, buffers or constants: one for each leaf of the user's arguments."""
        return [entry for entry in self.inputs if entry.tensor is None]


def program_of(
    exported: torch.export.ExportedProgram,
    dims: list[dict[int | None, str]] | None = None,
    bounds: list[dict[int | None, Bounds]] | None = None,
) -> Program:
    """Describe an ExportedProgram.

    *dims*, *bounds*: the user's names of dimensions and what is declared of their sizes, for each leaf of the arguments, in order.
    """
    tensors = {**exported.constants, **exported.state_dict}
    placeholders = exported.graph.find_nodes(op="placeholder")
    inputs = []
    names, declared = iter(dims or []), iter(bounds or [])
    for node, spec in zip(placeholders, exported.graph_signature.input_specs):
        if spec.kind == InputKind.USER_INPUT:
            value = spec.arg.value if isinstance(spec.arg, ConstantArgument) else node.meta.get("val")
            entry = user_input(node, readable(str(node.target)), value)
            entry.dims, entry.bounds = next(names, {}), next(declared, {})
        elif spec.kind == InputKind.TOKEN:
            entry = Input(node, spec.arg.name, torch.empty(0))
        else:
            entry = Input(node, spec.target, tensors.get(spec.target), spec.kind == InputKind.BUFFER)
        inputs.append(entry)
    name_lifted_buffers(inputs)
    names = output_names(exported.call_spec.out_spec)
    return Program(exported.graph_module, inputs, names, written_inputs(exported, inputs))


def described(
    exported: torch.export.ExportedProgram | Program,
    args: tuple,
    kwargs: dict[str, Any],
    dims: list[dict[int | None, str]],
    bounds: list[dict[int | None, Bounds]],
) -> Program:
    """What a capture of a call gave, with what its user says of the leaves of ``(args, kwargs)``, see `program_of`."""
    if not isinstance(exported, Program):
        names, declared = (in_order_of_placeholders(exported, args, kwargs, said) for said in (dims, bounds))
        return program_of(exported, names, declared)
    for entry, names, declared in zip(exported.given, dims, bounds):
        entry.dims, entry.bounds = names, declared
    return exported


def in_order_of_placeholders(
    exported: torch.export.ExportedProgram, args: Any, kwargs: dict[str, Any], said: list
) -> list:
    """What is said of each leaf in the order of the placeholders: torch.export may have reordered the keyword arguments."""
    if not said or not kwargs:
        return said
    order = keywords_in(exported.call_spec.in_spec)
    counts = {name: len(pytree.tree_leaves(value)) for name, value in kwargs.items()}
    start = len(pytree.tree_leaves(tuple(args)))
    starts = {}
    for name, count in counts.items():
        starts[name] = start
        start += count
    positional = said[: len(pytree.tree_leaves(tuple(args)))]
    return positional + [
        entry for name in order for entry in said[starts[name] : starts[name] + counts[name]]
    ]


def name_lifted_buffers(inputs: list[Input]) -> None:
    """Make buffers of the constants that are one: of those that the model reads through another object, as layers of a cache that are registered.

    torch.export then leaves the placeholder of the buffer without users, which becomes the constant.
    """
    unread = {id(entry.tensor): entry for entry in inputs if entry.is_buffer and not entry.node.users}
    for entry in inputs:
        buffer = unread.get(id(entry.tensor))
        if buffer is not None and not entry.is_buffer:
            entry.name, buffer.name = buffer.name, entry.name
            entry.is_buffer, buffer.is_buffer = True, False


def user_input(node: torch.fx.Node, name: str, value: Any) -> Input:
    """The description of one leaf of the arguments: what is neither a tensor nor a symbol, as a text or an Enum, is a constant."""
    is_constant = not isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))
    return Input(node, name, constant=value if is_constant else None, is_constant=is_constant)


def written_inputs(exported: torch.export.ExportedProgram, inputs: list[Input]) -> dict[int, Input | None]:
    """The inputs whose new values a functionalized program returns, by position among its results."""
    by_name = {entry.name if entry.is_buffer else entry.node.name: entry for entry in inputs}
    others = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    return {
        position: by_name.get(spec.target)
        for position, spec in enumerate(exported.graph_signature.output_specs)
        if spec.kind not in others
    }


def program_of_graph_module(module: torch.fx.GraphModule) -> Program:
    """Describe a GraphModule whose nodes carry ``meta["val"]``.

    Raises ValueError when the placeholders carry none.
    """
    inputs = []
    for node in module.graph.find_nodes(op="placeholder"):
        if "val" not in node.meta:
            raise ValueError(
                f"placeholder {node.name} has no meta['val']: run FakeTensorProp on the GraphModule first"
            )
        inputs.append(user_input(node, node.name, node.meta["val"]))
    result = module.graph.output_node().args[0]
    return Program(module, inputs, output_names(pytree.tree_structure(result)))


def readable(name: str) -> str:
    """The name of an input: torch's, with the tensors of a cache numbered by layer.

    ``past_key_values_key_cache_0`` becomes ``past_key_values_0_key``.
    """
    return re.sub(r"_(key|value)_cache_(\d+)$", r"_\2_\1", name)


def leaf_names(arguments: dict[str, Any]) -> list[str]:
    """The names of the leaves of the arguments, made as torch.export does: the parameter, then the keys of containers."""
    paths, _ = pytree.tree_flatten_with_path(arguments)
    return [readable("_".join(re.sub(r"\W", "_", step(key)).lower() for key in path)) for path, _ in paths]


def step(key: Any) -> str:
    """One step on the path to a leaf: a key, a position or an attribute."""
    return str(next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)))


def output_names(spec: pytree.TreeSpec) -> list[str]:
    """A name for every leaf of the result: its path, ``output`` or ``output_i`` where the path has no word."""
    names = []
    for path in paths(spec):
        words = [str(part) for part in path]
        if not words or words[0].isdigit():
            words.insert(0, "output")
        names.append(readable(re.sub(r"\W", "_", "_".join(words))) or "output")
    return names


def paths(spec: pytree.TreeSpec) -> Iterator[tuple]:
    """The path of every leaf of a tree, in order."""
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    if spec.is_leaf():
        yield ()
        return
    for key, child in zip(child_names(spec, len(children)), children):
        for path in paths(child):
            yield (key, *path)


def child_names(spec: pytree.TreeSpec, count: int) -> list[Any]:
    """How the children of a node of a tree are called: keys, fields or positions."""
    context = spec.context
    fields = getattr(context, "_fields", None)  # a named tuple: the context is its class
    if fields is not None and len(fields) == count:
        return list(fields)
    for candidate in (context, context[0] if isinstance(context, (list, tuple)) and context else None):
        if isinstance(candidate, (list, tuple)) and len(candidate) == count:
            if all(isinstance(key, (str, int)) for key in candidate):
                return list(candidate)
    return list(range(count))


def recorded_dims(exported: torch.export.ExportedProgram) -> list[dict[int | None, str]]:
    """The names of dimensions that an ExportedProgram remembers, for each input of the user; a saved one has lost them."""
    found = []
    for node in user_placeholders(exported):
        value = node.meta.get("val")
        names: dict[int | None, str] = {}
        for axis in range(value.dim()) if isinstance(value, torch.Tensor) else ():
            symbol = symbol_of(value, axis)
            if symbol is not None:
                environment = value.shape[axis].node.shape_env
                sources = environment.var_to_sources.get(symbol, ())
                given = [environment.source_name_to_debug_name.get(source_name(source)) for source in sources]
                names.update((axis, name) for name in given if name)
        found.append(names)
    return found


def user_placeholders(exported: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """The placeholders of the user's inputs, in order."""
    specs = zip(exported.graph.find_nodes(op="placeholder"), exported.graph_signature.input_specs)
    return [node for node, spec in specs if spec.kind == InputKind.USER_INPUT]


def name_dimensions(inputs: list[Input], dimensions: Dimensions) -> None:
    """Give the symbols of the inputs the user's names first, then ``input_dim_axis`` to those without one."""
    for entry in inputs:
        for axis, name in entry.dims.items():
            symbol = symbol_of(entry.node.meta.get("val"), axis)
            if symbol is not None:
                dimensions.name(symbol, name)
    for entry in inputs:
        value = entry.node.meta.get("val")
        axes = range(value.dim()) if isinstance(value, torch.Tensor) and entry.tensor is None else [None]
        for axis in axes:
            symbol = symbol_of(value, axis)
            if symbol is not None and symbol not in dimensions.names:
                wish = entry.name if axis is None else f"{entry.name}_dim_{axis}"
                dimensions.name(symbol, dimensions.fresh(wish))


def symbol_of(value: Any, axis: int | None) -> sympy.Symbol | None:
    """The symbol that is one size of a fake tensor, or a symbolic number; None for a constant or an expression."""
    size = value
    if axis is not None:
        if not isinstance(value, torch.Tensor) or axis >= value.dim():
            return None
        size = value.shape[axis]
    if not isinstance(size, (torch.SymInt, torch.SymFloat)):
        return None
    expression = size.node.expr
    return expression if getattr(expression, "is_Symbol", False) else None
