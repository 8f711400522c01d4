"""The registry of translations: a dict keyed by overloads, bound by ATen's names.

Source of semantics: ATen's schemas (``OpOverload._schema``) give the names, the order and the defaults of arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.errors import ARGUMENTS, Untranslatable

HARMLESS = frozenset(
    {
        "assume_unique",
        "cudnn_enable",
        "cudnn_enabled",
        "device",
        "layout",
        "memory_format",
        "non_blocking",
        "pin_memory",
        "sparse_grad",
        "unroll_dim",
    }
)
"""Arguments that change where a tensor or its gradient is stored or how fast it is computed, never its values: ignored when not listed."""

OPTIONS = frozenset({"device", "dtype", "layout", "pin_memory"})
"""What a function that makes a tensor is told of it."""


@dataclasses.dataclass(frozen=True)
class Translation:
    """A function that writes the ONNX nodes of one operator.

    Attributes:
        target: the overload, another callable of FX graphs, or the name of a custom operator.
        function: called with the emitter and the arguments it lists, by name.
        views: the function receives the interpreter's views, not values (regions that may write).
        registered: file and line that registered it, see `registering_line`.
    """

    target: Any
    function: Callable
    views: bool = False
    registered: tuple[str, int] | None = None

    @functools.cached_property
    def names(self) -> list[str]:
        """The arguments that the function lists: kept here, a table of functions would keep those of one export, and its model."""
        return parameters(self.function)

    @property
    def place(self) -> str:
        """File and line that registers the function."""
        code = inspect.unwrap(self.function).__code__
        file, line = self.registered or (code.co_filename, code.co_firstlineno)
        return f"{file}:{line}"

    @property
    def file(self) -> str:
        """The file that registers the function, relative to the package."""
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        return os.path.relpath(self.place.rpartition(":")[0], package).replace(os.sep, "/")


TRANSLATIONS: dict[Any, Translation] = {}
COMPLEX: dict[Any, Translation] = {}
PUTS: dict[Any, Callable] = {}
COMPLEX_PUTS: dict[Any, Callable] = {}


def translates(*targets, views: bool = False, table: dict[Any, Translation] = TRANSLATIONS):
    """Register a translation of these exact overloads; its names are checked against ATen's (those of this package by the tests).

    The function is called as ``function(op, **arguments)`` where *op* is the emitter and *arguments* those of the
    schema that it lists: values for tensors and symbolic numbers, plain Python for the rest, ATen's defaults for what
    the program leaves out. It returns one value, or a tuple for an operator with several results. For an operator
    that mutates arguments it returns the declared results followed by the new value of every mutated argument.

    A target may be a name, ``"mylib::scale"`` or ``"mylib::scale.overload"``, for an operator that is
    defined later.

    Raises:
        ValueError: a target is translated twice, or a name is of another form.
        TypeError: the function lists an argument that the schema does not have.
    """

    def register(function: Callable) -> Callable:
        for target in map(operator_key, targets):
            if not is_ours(function):
                check_names(target, function)
                importlib.import_module(f"{__package__}.translations")  # ours come first
            if target in table:
                raise ValueError(f"{target} is translated twice, first at {table[target].place}")
            table[target] = Translation(target, function, views, registering_line())
        return function

    return register


def registering_line() -> tuple[str, int]:
    """The line that is registering a translation now: outside this file, `composite`, and ``register`` of other decorators."""
    frame: Any = sys._getframe(1)
    inside = (__name__, f"{__package__}.composite")
    while frame.f_globals.get("__name__") in inside or frame.f_code.co_name == "register":
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def translates_complex(*targets):
    """Register the translation used when an argument is complex: a real value with a trailing dimension of 2."""
    return translates(*targets, table=COMPLEX)


def writes_through(*targets, table: dict[Any, Callable] = PUTS):
    """Register how to write through the result of view operators.

    The function is called as ``put(op, base, new, **arguments)``, the arguments being those of the operator after its
    first one, and returns the base in which the viewed elements hold *new*. An operator with several results
    (split, unbind) has a put that also lists ``position``, the index of the result written.
    """

    def register(function: Callable) -> Callable:
        for target in targets:
            if not is_ours(function):
                check_names(target, function, "base", "new", "position")
                importlib.import_module(f"{__package__}.translations")
            if target in table:
                raise ValueError(f"{target} is written twice, first by {table[target].__name__}")
            table[target] = function
        return function

    return register


def writes_complex_through(*targets):
    """Register how to write through the result of view operators of a complex tensor."""
    return writes_through(*targets, table=COMPLEX_PUTS)


FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
"""What torch's functions and methods of tensors are; operators are objects of its own classes."""


def operator_key(target: Any) -> Any:
    """The key of a target: an overload, a packet's ``default``, the name of an operator without ``.default``.

    Raises:
        TypeError: the target is nothing that a program calls.
        ValueError: a name is not of the form ``namespace::name`` or ``namespace::name.overload``, or ATen has no such operator.
    """
    target = getattr(target, "_opoverload", target)  # a torch.library.custom_op
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target.default
    if not isinstance(target, str):
        if not callable(target) or isinstance(target, type):
            raise TypeError(f"{target!r} is not an operator that can be translated")
        refuse_functions(target)
        return target
    found = re.fullmatch(r"([\w.]+)::(\w+)(?:\.(\w+))?", target)
    if found is None:
        name = re.sub(r"^torch\.ops\.", "", target).replace(".", "::", 1)
        name = name if "::" in name else f"mylib::{name}"
        raise ValueError(
            f"{target!r} names no operator: give the operator itself, torch.ops..., or its name, as in {name!r}"
        )
    namespace, name, overload = found.groups()
    if namespace == "aten":
        packet = getattr(torch.ops.aten, name, None)
        if packet is None or (overload or "default") not in packet.overloads():
            raise ValueError(f"{target!r} names no operator: ATen has none of this name")
    return target.removesuffix(".default")


def refuse_functions(target: Callable) -> None:
    """Raise TypeError for ``torch.add``, ``torch.nn.functional.gelu`` and the like: programs hold the operator that they call."""
    name, module = getattr(target, "__name__", ""), getattr(target, "__module__", None) or "torch"
    is_of_torch = module == "torch" or module.startswith(("torch.nn.", "torch._C._nn"))
    packet = getattr(torch.ops.aten, name, None) if is_of_torch and isinstance(target, FUNCTIONS) else None
    if packet is not None:
        raise TypeError(
            f"{name} is a function of torch, not an operator, as torch.ops.aten.{name}.{packet.overloads()[0]} is"
        )


def is_ours(function: Callable) -> bool:
    """Whether a function is of this package: the tests check the names of its arguments once, not every import."""
    return function.__module__.partition(".")[0] == __name__.partition(".")[0]


def check_names(target: Any, function: Callable, *others: str) -> None:
    """Raise TypeError when *function* lists an argument that neither the schema of *target* has nor *others*."""
    if isinstance(target, torch._ops.OpOverload):
        unknown = {*parameters(function)} - {*schema_names(target), *others}
        if unknown:
            name = getattr(function, "__name__", type(function).__name__)
            raise TypeError(f"{name}: {target} has no argument {sorted(unknown)}")


def takes(function: Callable, names: torch._ops.OpOverload | Sequence[str]) -> Callable:
    """*function*, written with ``**arguments``, takes arguments of these names, or all those of an overload."""
    setattr(function, "takes", names)  # noqa: B010 (a function has no such attribute for a type checker)
    return function


def parameters(function: Callable) -> list[str]:
    """Names of the parameters of a translation after the emitter."""
    names = getattr(function, "takes", None)
    if names is not None:
        return schema_names(names) if isinstance(names, torch._ops.OpOverload) else [*names]
    return list(inspect.signature(function).parameters)[1:]


def schema_names(target: torch._ops.OpOverload) -> list[str]:
    """Names of the arguments of an overload, in order."""
    return [argument.name for argument in target._schema.arguments]


def per_call_table(translations: Mapping[Any, Callable] | None) -> dict[Any, Translation]:
    """The translations given to one export, keyed by overload.

    Keys: an overload, an overload packet (its ``default``), a ``torch.library.custom_op``, or a name.

    Raises:
        TypeError: this is no dict, a key is none of these, a value is not callable, or it lists an unknown argument.
        ValueError: a name is of another form, see `operator_key`.
    """
    if translations is not None and not isinstance(translations, Mapping):
        kind = type(translations).__name__
        raise TypeError(f"translations is a dict, {{operator: function}}, not {kind}")
    table: dict[Any, Translation] = {}
    for key, function in (translations or {}).items():
        target = operator_key(key)
        if not callable(function):
            raise TypeError(f"the translation of {key} is not a function but {type(function).__name__}")
        check_names(target, function)
        table[target] = Translation(target, function)
    return table


def keys(target: Any) -> Iterable[Any]:
    """The keys under which the translation of *target* may be registered, the most exact first."""
    yield target
    if isinstance(target, torch._ops.OpOverload):
        schema = target._schema
        yield f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    elif isinstance(target, torch._ops.HigherOrderOperator):
        yield f"higher_order::{target._name}"
    elif callable(target) and getattr(target, "__module__", None):
        yield f"{target.__module__}::{target.__name__}"


def given_by_user(target: Any, translations: Mapping[Any, Translation]) -> str:
    """The function, and its place, that a user gave as the translation of *target*; ``""`` where it is ours, or nobody's.

    *translations*: those of this export, see `per_call_table`.
    """
    functional = twin(target)
    for table in (translations, TRANSLATIONS, COMPLEX):
        for key in (*keys(target), *(keys(functional) if functional is not None else ())):
            if key in table:
                function = inspect.unwrap(table[key].function)
                return "" if is_ours(function) else described(function)
    return ""


def described(function: Callable) -> str:
    """A function in a message: its name, the file and the line, where it has any."""
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return f"{name}, {code.co_filename}:{code.co_firstlineno}" if code is not None else name


def invoke(translation: Translation, op: Any, target: Any, args: list, kwargs: Mapping[str, Any]) -> Any:
    """Call a translation: by name for an operator with a schema, as the program does for the others."""
    if getattr(target, "_schema", None) is None:
        return translation.function(op, *args, **kwargs)
    return translation.function(op, **bind(target, translation, args, kwargs))


def bind(target: Any, translation: Translation, args: list, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a translation lists, by name; any other argument must hold its default.

    Raises Untranslatable when the program gives an argument that the translation does not list.
    """
    wanted = translation.names
    bound = {}
    for position, (name, default) in enumerate(defaults(target)):
        if position < len(args):
            value = args[position]
        else:
            value = kwargs.get(name, default)
        if name in wanted:
            bound[name] = value
        elif value is not default and name not in HARMLESS and not same(value, default):
            raise Untranslatable(f"{name}={value} is not handled", ARGUMENTS.get(name, ""))
    return bound


@functools.cache
def defaults(target: torch._ops.OpOverload) -> list[tuple[str, Any]]:
    """Names and defaults of the arguments of an overload; the default of a required argument is None."""
    return [(argument.name, default_of(argument)) for argument in target._schema.arguments]


def default_of(argument: torch._C.Argument) -> Any:
    """The default of an argument: a schema tells that of a dtype by its number."""
    value = argument.default_value
    if isinstance(value, int) and str(argument.real_type) in ("ScalarType", "Optional[ScalarType]"):
        return torch.ops.aten.to.dtype(torch.empty(0), value).dtype
    return value


def same(value: Any, default: Any) -> bool:
    """Whether an argument holds its default, as plain Python values compare."""
    return type(value) in (type(default), int, float, bool) and value == default


def twin(target: Any) -> torch._ops.OpOverload | None:
    """The functional overload with the arguments of an in-place (``add_``) or ``out=`` overload, None without one."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return None
    return find_twin(target)


@functools.cache
def find_twin(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """Look the functional twin up among the overloads of the name without its trailing underscore."""
    schema = target._schema
    namespace, name = schema.name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    if packet is None:
        return None
    inputs = [argument.name for argument in schema.arguments if not argument.is_out]
    has_out = len(inputs) < len(schema.arguments)
    overload = schema.overload_name
    preferred = [overload or "default", overload.removesuffix("_out"), "default"]
    for overload_name in [*preferred, *packet.overloads()]:
        candidate = getattr(packet, overload_name, None)
        if candidate is None or candidate._schema.is_mutable:
            continue
        names = schema_names(candidate)  # the first one may be called input or self
        if has_out:  # torch.arange(n, out=t) is told them by t
            names = [name for name in names if name in inputs or name not in OPTIONS]
        if len(names) == len(inputs) and names[1:] == inputs[1:]:
            return candidate
    return None


@functools.cache
def written_arguments(target: Any) -> list[str]:
    """Names of the arguments that an overload declares to write, in order."""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    return [
        argument.name
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
