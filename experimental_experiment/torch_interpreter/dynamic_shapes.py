"""``dynamic_shapes``: what the user wrote, fitted to the arguments of the example.

Source of semantics: ``torch.export.export``. Strings name dimensions, None stands for a whole argument, an axis counts
from the end when it is negative. What does not fit is refused with the structure that does.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.errors import CaptureError
from experimental_experiment.torch_interpreter.messages import advice
from experimental_experiment.torch_interpreter.patches.inputs import known_containers
from experimental_experiment.torch_interpreter.signature import Bounds

UNUSUAL = 5
"""A size that models seldom ask for, as they do for 2 and 3."""


@dataclasses.dataclass
class DynamicShapes:
    """What the user says about the sizes of the example.

    Attributes:
        shapes: for torch.export, in exactly the structure that it asks for; None when nothing was said.
        names: the user's names of dimensions, {axis: name} for each leaf of (args, kwargs); {None: name} for a number.
        bounds: the smallest and the largest size that the user declared, {axis: (size, size)} for each leaf.
        has_small_sizes: whether a dimension called dynamic has size 0 or 1 in the example.
        said: the entries of the user, {axis: entry} for each leaf.
    """

    shapes: Any = None
    names: list[dict[int | None, str]] = dataclasses.field(default_factory=list)
    bounds: list[dict[int | None, Bounds]] = dataclasses.field(default_factory=list)
    has_small_sizes: bool = False
    said: list[dict[int | None, Any]] = dataclasses.field(default_factory=list)

    def add(self, sizes: Mapping[Any, Any], value: Any) -> None:
        """Note what is said about one leaf, *value*: the entry of each axis, or of None for a number."""
        self.said.append({axis: entry for axis, entry in sizes.items() if entry is not None})
        self.names.append({axis: dim_name(entry) for axis, entry in sizes.items() if dim_name(entry)})
        declared = {axis: declared_bounds(entry) for axis, entry in sizes.items()}
        self.bounds.append({axis: bounds for axis, bounds in declared.items() if bounds != (None, None)})
        if isinstance(value, torch.Tensor):
            self.has_small_sizes |= any(
                value.shape[axis] in (0, 1) for axis, entry in sizes.items() if is_asked(entry)
            )

    def larger(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], int] | None:
        """The example with another size than 1 wherever a dimension called dynamic has that, and this size, which no tensor has.

        None where none has size 1, and where a tensor is of a class of its own.
        """
        leaves, spec = pytree.tree_flatten((args, kwargs))
        sizes = {size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape}
        number = next(size for size in itertools.count(UNUSUAL) if size not in sizes)
        is_larger = False
        for position, (leaf, entries) in enumerate(zip(leaves, self.said)):
            if not isinstance(leaf, torch.Tensor):
                continue
            axes = {axis for axis, entry in entries.items() if is_asked(entry) and leaf.shape[axis] == 1}
            if axes and type(leaf) is not torch.Tensor:
                return None
            if axes:
                shape = [number if axis in axes else size for axis, size in enumerate(leaf.shape)]
                leaves[position] = leaf.detach().expand(shape).clone().requires_grad_(leaf.requires_grad)
                is_larger = True
        return (*pytree.tree_unflatten(leaves, spec), number) if is_larger else None

    def relaxed(self) -> Any:
        """The same for torch.export, which may choose what becomes of each dimension that was called dynamic."""
        return pytree.tree_map_only(
            (torch.export.Dim, type(torch.export.Dim.AUTO)),
            lambda entry: torch.export.Dim.AUTO if is_asked(entry) else entry,
            self.shapes,
        )

    def written(self, arguments: Mapping[str, Any], found: list[list] | None = None) -> str:
        """The entries of the user in Python, or those that fit the sizes *found* for each leaf: constants are left out, equal
        sizes have one name.
        """
        names: dict[Any, str] = {}
        leaves = []
        for place, entries in enumerate(self.said):
            texts = {}
            for axis, entry in entries.items():
                text = in_python(entry)
                if found is not None and is_asked(entry):
                    size = found[place][axis or 0]
                    if not isinstance(size, torch.SymInt) or size.node.expr.is_Integer:
                        continue
                    text = names.setdefault(size.node.expr, text)
                texts[axis] = text
            leaves.append(texts)
        given = iter(leaves)
        inner = [f'"{name}": {entry_in_python(value, given)}' for name, value in arguments.items()]
        return "{" + ", ".join(inner) + "}"


class Misfit(Exception):
    """An entry of ``dynamic_shapes`` that does not fit its argument: the message says which and why."""


def fitted_shapes(
    module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], dynamic_shapes: Any
) -> DynamicShapes:
    """``dynamic_shapes`` fitted to the arguments of ``module.forward``.

    Raises CaptureError when forward does not take the arguments, an entry does not fit its argument, or one name stands for two sizes of the example; the hint is
    the structure that would.
    """
    found = DynamicShapes()
    signature = inspect.signature(module.forward)
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise CaptureError(
            f"the arguments do not fit forward: {error}",
            hint=f"to_onnx(model, args, kwargs) takes what forward does: {', '.join(signature.parameters) or 'nothing'}",
        ) from error
    if dynamic_shapes is None:
        return found
    if isinstance(dynamic_shapes, (torch.export.ShapesCollection, torch.export.AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(module, args, kwargs)
    try:
        positional, named = by_argument(signature, args, kwargs, dynamic_shapes)
        fitted = [fit(found, value, spec, name) for value, (name, spec) in zip(args, positional)]
        fitted_kwargs = {name: fit(found, value, named[name], name) for name, value in kwargs.items()}
        refuse_ambiguous_names(pytree.tree_leaves((args, kwargs)), found.names)
    except Misfit as error:
        structure = ", ".join(f'"{name}": {template(value)}' for name, value in arguments.items())
        raise CaptureError(
            f"dynamic_shapes does not fit the arguments: {error}",
            hint="dynamic_shapes must have the structure of the arguments: "
            f'dynamic_shapes={{{structure}}} with {{0: "batch"}} in place of a {{}} to name its first axis',
        ) from error
    found.shapes = dict(signature.bind(*fitted, **fitted_kwargs).arguments)
    return found


def guess_dynamic_shapes(calls: Sequence[Any]) -> Any:
    """The ``dynamic_shapes`` of several example calls: what has another size in two of them is dynamic, the rest is not.

    A call is a tuple of arguments, a dict of keyword arguments, or both as a pair. The result has the structure of the
    arguments: a dict when there are only keyword arguments, otherwise a tuple, the keyword arguments last. These must have the order of
    forward in the first call, as torch.export.export and to_onnx refuse a tuple for those in another one. Dimensions have no names: sizes that
    agree in every call may differ in the next one.

    Raises ValueError for less than two calls, and for calls whose arguments are not of one structure; TypeError for what is no list of calls.
    """
    if not isinstance(calls, (list, tuple)):
        raise TypeError(f"calls is a list of example calls, not {type(calls).__name__}")
    if len(calls) < 2:
        raise ValueError(f"sizes are compared between two calls or more, not {len(calls)}")
    given = [taken_as_call(call) for call in calls]
    args, kwargs = given[0]
    if any(len(other) != len(args) or set(named) != set(kwargs) for other, named in given):
        raise ValueError("the calls do not have the same arguments")
    with known_containers(given):
        positional = [
            guessed([other[place] for other, _ in given], f"args[{place}]") for place in range(len(args))
        ]
        named = {name: guessed([other[name] for _, other in given], name) for name in kwargs}
    return named if kwargs and not args else (*positional, *named.values())


def taken_as_call(call: Any) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call that is written as a tuple, a dict, both in a pair, or as its only tensor."""
    if isinstance(call, torch.Tensor):
        return (call,), {}
    if isinstance(call, Mapping):
        return (), dict(call)
    if not isinstance(call, (list, tuple)):
        kind = type(call).__name__
        raise TypeError(
            f"a call is a tuple of arguments, a dict of keyword arguments or a pair of both, not {kind}"
        )
    if len(call) == 2 and isinstance(call[0], (tuple, list)) and isinstance(call[1], Mapping):
        if all(isinstance(name, str) for name in call[1]):
            return tuple(call[0]), dict(call[1])
    return tuple(call), {}


def guessed(values: list[Any], path: str) -> Any:
    """The entry of one argument, whose values in the calls are given."""
    first = values[0]
    kind = pytree._get_node_type(first)
    if any(pytree._get_node_type(value) is not kind for value in values):
        raise ValueError(f"{path} is a {kind.__name__} in one call and something else in another")
    if isinstance(first, torch.Tensor):
        if len({value.dim() for value in values}) > 1:
            raise ValueError(f"{path} does not have the same number of dimensions in all calls")
        sizes = [{value.shape[axis] for value in values} for axis in range(first.dim())]
        return {axis: torch.export.Dim.DYNAMIC for axis, found in enumerate(sizes) if len(found) > 1} or None
    if kind not in pytree.SUPPORTED_NODES:
        is_dynamic = isinstance(first, int) and not isinstance(first, bool) and len(set(values)) > 1
        return torch.export.Dim.DYNAMIC if is_dynamic else None
    parts = [taken_apart(value) for value in values]
    children, names, rebuild = parts[0]
    if any(list(other) != list(names) for _, other, _ in parts):
        raise ValueError(f"{path} does not hold the same in all calls")
    inner = paths(path, names)
    entries = [guessed([part[0][place] for part in parts], inner[place]) for place in range(len(children))]
    return rebuild(entries)


def by_argument(
    signature: inspect.Signature, args: tuple, kwargs: dict[str, Any], shapes: Any
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """(name, entry) of each positional argument, and the entries of the others by name: None where nothing is said.

    A tuple has the order of forward's arguments. Keyword arguments of a call in another order are refused when that would give one of them
    another entry, as torch.export does, which reads the tuple in both orders.
    """
    arguments: dict[Any, Any] = dict(signature.bind(*args, **kwargs).arguments)
    gathering = {
        parameter.kind: name for name, parameter in signature.parameters.items() if name in arguments
    }
    rest = gathering.get(inspect.Parameter.VAR_POSITIONAL)
    more = gathering.get(inspect.Parameter.VAR_KEYWORD)
    names = [name for name in signature.bind_partial(*args).arguments if name != rest]
    if rest is not None:
        names += [f"{rest}[{position}]" for position in range(len(args) - len(names))]
    if isinstance(shapes, (list, tuple)):
        declared = [name for name in arguments if name in kwargs]
        flat = [*names, *declared, *(name for name in kwargs if name not in declared)]
        as_bound = dict(zip(arguments, shapes))
        if len(shapes) == len(arguments) and gathers(as_bound.get(rest), as_bound.get(more)):
            shapes = as_bound
        elif len(shapes) == len(flat):
            shapes = dict(zip(flat, shapes))
        else:
            raise Misfit(f"it has {len(shapes)} entries for the arguments {', '.join(arguments)}")
        called = iter([name for name in kwargs if name in shapes])
        as_called = [next(called) if name in kwargs else name for name in shapes]
        if dict(zip(as_called, shapes.values())) != shapes:
            raise Misfit(
                f"a tuple does not tell {', '.join(kwargs)} apart, which forward has in another order: {', '.join(declared)}"
            )
    elif not isinstance(shapes, Mapping):
        raise Misfit(f"it is {shapes!r}, not a dict of arguments, a tuple or a list")
    shapes = dict(shapes)
    if shapes.get(rest) is not None:
        entries = shapes.pop(rest)
        if not isinstance(entries, (list, tuple)) or len(entries) != len(arguments[rest]):
            raise Misfit(f"*{rest} holds {len(arguments[rest])} arguments, its entry is {brief(entries)}")
        shapes.update({f"{rest}[{position}]": entry for position, entry in enumerate(entries)})
    if shapes.get(more) is not None:
        entries = shapes.pop(more)
        if not isinstance(entries, Mapping):
            raise Misfit(f"**{more} holds {', '.join(arguments[more])}, its entry is {brief(entries)}")
        shapes.update(entries)
    unknown = set(shapes) - {*arguments, *names, *kwargs}
    if unknown:
        raise Misfit(
            f"there is no argument {min(unknown, key=str)!r} but {', '.join([*names, *kwargs])} (the names are those of forward, not input_names)"
        )
    return [(name, shapes.get(name)) for name in names], {name: shapes.get(name) for name in kwargs}


def gathers(rest: Any, more: Any) -> bool:
    """Whether the entries of ``*args`` and ``**kwargs`` hold one entry each, rather than being those of tensors."""
    is_rest = rest is None or isinstance(rest, (list, tuple))
    is_more = more is None or (isinstance(more, Mapping) and all(isinstance(key, str) for key in more))
    return is_rest and is_more


def fit(found: DynamicShapes, value: Any, spec: Any, path: str) -> Any:
    """The entry of one argument as torch.export wants it; what it says about the leaves is added to *found*."""
    if isinstance(value, torch.Tensor):
        sizes = sizes_of(value, spec, path)
        found.add(sizes, value)
        return {axis: without_name(entry) for axis, entry in sizes.items()} or None
    if pytree._get_node_type(value) not in pytree.SUPPORTED_NODES:
        entry = number_entry(value, spec, path)
        found.add({None: entry}, value)
        return as_hint(entry, path)
    children, names, rebuild = taken_apart(value)
    specs = entries_of_children(value, children, names, spec, path)
    return rebuild([fit(found, *item) for item in zip(children, specs, paths(path, names))])


def sizes_of(tensor: torch.Tensor, spec: Any, path: str) -> dict[int, Any]:
    """What is said about the axes of a tensor, counted from the first one."""
    rank = tensor.dim()
    if spec is None:
        return {}
    if isinstance(spec, (list, tuple)):
        if len(spec) != rank:
            raise Misfit(f"{path} has {rank} dimensions, its entry has {len(spec)}")
        spec = dict(enumerate(spec))
    if not isinstance(spec, Mapping):
        raise Misfit(f"{path} is a tensor, its entry is {brief(spec)}")
    sizes: dict[int, Any] = {}
    for axis, entry in spec.items():
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise Misfit(f"it gives axis {axis} of a tensor of {rank} dimensions, {path}")
        if axis % rank in sizes:
            raise Misfit(f"it gives axis {axis % rank} of {path} twice")
        if entry is not None:
            sizes[axis % rank] = checked_entry(entry, tensor.shape[axis], f"axis {axis} of {path}")
    return sizes


def checked_entry(entry: Any, size: int, what: str) -> Any:
    """An entry that torch.export or a name can be made of."""
    if entry == "" or not isinstance(entry, (str, int, torch.export.Dim, type(torch.export.Dim.AUTO))):
        raise Misfit(f"{what} is {entry!r}, not a name, a Dim, Dim.DYNAMIC, Dim.AUTO or Dim.STATIC")
    if isinstance(entry, int) and entry != size:
        raise Misfit(f"{what} is {entry}, its size in the example is {size}")
    return entry


def number_entry(value: Any, spec: Any, path: str) -> Any:
    """What is said about an argument that is no tensor: only an int can be dynamic."""
    if spec is None or (isinstance(spec, (Mapping, list, tuple)) and not spec):
        return None
    if not isinstance(value, (str, bool, int, float, type(None))):
        kind = type(value)
        raise CaptureError(
            f"dynamic_shapes describes {path}, a {kind.__name__}, which torch cannot look into",
            hint=advice(f"Unsupported input type <class '{kind.__name__}'>"),
        )
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"{path} is {value!r}, which cannot be dynamic, its entry is {brief(spec)}")
    if isinstance(spec, (Mapping, list, tuple)):
        raise Misfit(
            f"{path} is the number {value}, its entry is {brief(spec)} and not a name or Dim.DYNAMIC"
        )
    return checked_entry(spec, value, path)


def taken_apart(value: Any) -> tuple[list, list, Any]:
    """The children of a container, what they are called, and the function that torch.export's entry is made with."""
    kind = pytree._get_node_type(value)
    flattened, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    children = list(flattened)
    if kind in pytree.BUILTIN_TYPES:
        names = value if isinstance(value, Mapping) else getattr(value, "_fields", range(len(children)))
        return (
            children,
            list(names),
            lambda entries: pytree.SUPPORTED_NODES[kind].unflatten_fn(entries, context),
        )
    # torch.export knows a class by what it flattens to
    names = next((keys for keys in keys_of(context) if len(keys) == len(children)), range(len(children)))
    return children, list(names), type(flattened)


def keys_of(context: Any) -> Iterator[list]:
    """The lists of names that the context of a flattened class may hold."""
    for candidate in (context, context[0] if isinstance(context, (list, tuple)) and context else None):
        if isinstance(candidate, (list, tuple)) and all(isinstance(key, str) for key in candidate):
            yield list(candidate)


def entries_of_children(value: Any, children: list, names: list, spec: Any, path: str) -> list:
    """The entry of each child of a container."""
    spec = of_held_fields(value, names, spec)
    if spec is None:
        return [None] * len(children)
    if (
        isinstance(spec, Mapping)
        and set(spec) <= set(names)
        and (isinstance(value, Mapping) or has_words(names))
    ):
        return [spec.get(name) for name in names]
    # a class of transformers that is a dict is a list to torch.export, and in the hint
    is_dict = isinstance(value, Mapping) and pytree._get_node_type(value) in pytree.BUILTIN_TYPES
    if isinstance(spec, (list, tuple)) and not is_dict:
        if len(spec) == len(children) and not any(map(is_misplaced, children, spec)):
            return list(spec)
        found = by_layer(value, children, spec) or in_each_leaf(children, spec)
        if found is not None:
            return found
    count = len(pytree.tree_leaves(value))
    raise Misfit(f"{path} is a {type(value).__name__} of {count} leaves, its entry is {brief(spec)}")


def of_held_fields(value: Any, names: list, spec: Any) -> Any:
    """The entries of a dataclass without those of its fields that hold None, of which torch makes no child."""
    if not dataclasses.is_dataclass(value):
        return spec
    fields = [field.name for field in dataclasses.fields(value)]
    if isinstance(spec, (list, tuple)) and len(names) < len(spec) == len(fields):
        spec = dict(zip(fields, spec))
    if not isinstance(spec, Mapping):
        return spec
    empty = {name for name in fields if name not in names and not spec.get(name)}
    return {name: entry for name, entry in spec.items() if name not in empty}


def has_words(names: list) -> bool:
    """Whether the children of a container have names rather than positions."""
    return all(isinstance(name, str) for name in names)


def is_misplaced(child: Any, spec: Any) -> bool:
    """Whether a container has the entry of a tensor, or a tensor that of a container."""
    is_container = pytree._get_node_type(child) in pytree.SUPPORTED_NODES
    if isinstance(spec, Mapping):
        return is_container and bool(spec) and all(isinstance(key, int) for key in spec)
    nested = isinstance(spec, (list, tuple)) and any(
        isinstance(item, (Mapping, list, tuple)) for item in spec
    )
    return nested and not is_container


def by_layer(value: Any, children: list, spec: list | tuple) -> list | None:
    """``[[keys ...], [values ...]]`` for a cache whose leaves come layer by layer; None when it is no such thing."""
    layers = getattr(value, "layers", None)
    if layers is None or len(spec) != 2 or not all(isinstance(part, (list, tuple)) for part in spec):
        return None
    places = {id(tensor): place for place, tensor in enumerate(children)}
    entries: list[Any] = [None] * len(children)
    for part, attribute in zip(spec, ("keys", "values")):
        held = [places.get(id(getattr(layer, attribute, None))) for layer in layers]
        if len(part) != len(held) or None in held:
            return None
        for place, entry in zip(held, part):
            if place is not None:
                entries[place] = entry
    return entries


def in_each_leaf(children: list, spec: list | tuple) -> list | None:
    """A flat list of entries that are all the same, one for each leaf of the children; None when it is no such thing."""
    leaves = len(pytree.tree_leaves(children))
    if len(spec) != leaves or any(entry != spec[0] for entry in spec):
        return None
    return [pytree.tree_map(lambda leaf: spec[0], child) for child in children]


def entry_in_python(value: Any, entries: Iterator[dict]) -> str:
    """The entry of one argument, from those of its leaves."""
    if isinstance(value, torch.Tensor):
        return "{" + ", ".join(f"{axis}: {text}" for axis, text in next(entries).items()) + "}"
    if pytree._get_node_type(value) not in pytree.SUPPORTED_NODES:
        return next(entries).get(None, "None")
    children, names, _ = taken_apart(value)
    inner = [entry_in_python(child, entries) for child in children]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {entry}" for name, entry in zip(names, inner)) + "}"
    return f"[{', '.join(inner)}]"


def in_python(entry: Any) -> str:
    """One entry as a person writes it."""
    if isinstance(entry, (str, int)):
        return f'"{entry}"' if isinstance(entry, str) else str(entry)
    if not isinstance(entry, torch.export.Dim):
        return f"Dim.{entry.type.name}"
    limits = [f"{name}={getattr(entry, name, None)}" for name in ("min", "max")]
    limits = [limit for limit in limits if limit.rpartition("=")[2].isdigit() and limit != "min=0"]
    return f"Dim({', '.join([repr(entry.__name__), *limits])})"


def paths(path: str, names: list) -> list[str]:
    """How the children of an argument are called in messages."""
    return [f"{path}.{name}" if isinstance(name, str) else f"{path}[{name!r}]" for name in names]


def template(value: Any) -> str:
    """The entry of an argument, in Python, that says nothing: a person writes axes into its ``{}``."""
    if isinstance(value, torch.Tensor):
        return "{}"
    kind = pytree._get_node_type(value)
    if kind not in pytree.SUPPORTED_NODES:
        return "None"
    children, names, _ = taken_apart(value)
    entries = [template(child) for child in children]
    if kind in pytree.BUILTIN_TYPES and isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {entry}" for name, entry in zip(names, entries)) + "}"
    if len(entries) > 2 and len(set(entries)) == 1:
        return f"[{entries[0]}] * {len(entries)}"
    return f"[{', '.join(entries)}]"


def brief(spec: Any) -> str:
    """An entry in a message."""
    if isinstance(spec, (list, tuple)) and len(spec) > 2:
        return f"a {type(spec).__name__} of {len(spec)}"
    return repr(spec)


def is_asked(entry: Any) -> bool:
    """Whether an entry makes a dimension dynamic, rather than leaving it to torch."""
    if isinstance(entry, (int, type(None))):
        return False
    return not hasattr(entry, "type") or entry.type.name == "DYNAMIC"


def dim_name(entry: Any) -> str:
    """The name that an entry of ``dynamic_shapes`` gives to a dimension, ``""`` for none."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, torch.export.Dim):
        return entry.__name__
    return ""


def declared_bounds(entry: Any) -> Bounds:
    """The ``min`` and the ``max`` of an entry, None where it has none or no number."""
    least, largest = (getattr(entry, name, None) for name in ("min", "max"))
    return number_or_none(least), number_or_none(largest)


def number_or_none(bound: Any) -> int | None:
    """The number that a bound is, of sympy for a derived Dim; None for infinity, and for none."""
    return int(bound) if isinstance(bound, int) or getattr(bound, "is_Integer", False) else None


def without_name(entry: Any) -> Any:
    """``Dim.DYNAMIC`` instead of a name."""
    return torch.export.Dim.DYNAMIC if isinstance(entry, str) else entry


def as_hint(entry: Any, path: str) -> Any:
    """The entry of a number, for which torch.export takes no Dim."""
    if not isinstance(entry, torch.export.Dim):
        return without_name(entry)
    if hasattr(entry, "root"):
        raise Misfit(f"{path} is a number, which cannot be the expression {entry.__name__}")
    return torch.export.Dim.DYNAMIC(min=entry.min, max=entry.max if isinstance(entry.max, int) else None)


def refuse_ambiguous_names(leaves: list[Any], dims: list[dict[int | None, str]]) -> None:
    """Raise CaptureError when dimensions whose sizes differ in the example have one name, or the name ``n + 1`` another size than that."""
    sizes: dict[str, int] = {}
    for leaf, names in zip(leaves, dims):
        for axis, name in names.items():
            size = leaf.shape[axis] if isinstance(leaf, torch.Tensor) and axis is not None else leaf
            if sizes.setdefault(name, size) != size:
                raise CaptureError(
                    "dynamic_shapes does not fit the arguments: "
                    f"it gives two sizes of the example, {sizes[name]} and {size}, one name, {name!r}",
                    hint="sizes of one name are equal in every call: give these two names, or another example",
                )
    for name, size in sizes.items():
        meant = size_meant(name, sizes)
        if meant not in (None, size):
            raise CaptureError(
                f"dynamic_shapes does not fit the arguments: {name!r} is {size} in the example, where it would be {meant}",
                hint="the model holds such a text for what is computed of the other name: give a name of its own, or another example",
            )


def size_meant(name: str, sizes: Mapping[str, int]) -> int | None:
    """The size that a name says which is an expression of other names, as ``past + length``; None for any other name."""
    try:
        tree = ast.parse(name.strip(), mode="eval")
    except SyntaxError:
        return None
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    numbers = [node.value for node in nodes if isinstance(node, ast.Constant)]
    if name in names or not names or not names <= sizes.keys() or not all(type(n) is int for n in numbers):
        return None
    parts = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Name, ast.Load, ast.Constant)
    if not all(isinstance(node, parts) for node in nodes):
        return None
    return eval(compile(tree, "<name>", "eval"), {}, dict(sizes))
