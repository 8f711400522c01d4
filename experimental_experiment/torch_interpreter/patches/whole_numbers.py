"""``int`` and ``float`` of a size and ``len`` of a tensor, numbers of Python: in functions that only call them, they give symbols.

``isinstance(size, int)`` is true for the symbol there, as it is for the number, and ``type(size)`` is ``int``. ``type(x)`` of a tensor of the
capture is ``torch.Tensor``.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import dis
import functools
import importlib
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.frames import (
    PACKAGES,
    is_library,
    is_library_code,
    tree_of,
    words,
)
from experimental_experiment.torch_interpreter.memories import TRACED, own_attributes
from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

BEGINNINGS = ("torch.export._trace._export", "experimental_experiment.torch_interpreter.tracing.traced")
"""What captures a model, for torch.export and for ``tracing="make_fx"``."""

NAMES = {
    "int": "_int of sizes",
    "float": "_float of sizes",
    "len": "_len of tensors",
    "isinstance": "_isinstance of sizes",
    "type": "_type of sizes",
}
"""What the functions call in the place of those of Python: no names of Python, which nothing can shadow.

TorchDynamo takes what has no underscore among Python's own for a function of C.
"""

NUMBERS = frozenset({"bool", "int", "float", "Number", "Real", "Rational", "Integral"})
"""The classes of numbers: a function that names none of them does not ask whether a size is one."""

TENSORS = frozenset({"Tensor", "Parameter"})
"""The classes of tensors that ``type`` is compared with; ``isinstance`` knows those that derive from them."""

QUESTIONS = {"isinstance": NUMBERS, "type": NUMBERS | TENSORS | {"__name__"}}
"""The names of `NAMES` that ask for a class, with the classes that they ask for; ``type(x).__name__`` is compared with a text."""


@patch(
    "torch",
    replaces=(*BEGINNINGS, "int, float, len, isinstance and type, in the functions of the model"),
    default=True,
)
def whole_numbers_of_sizes() -> Iterator[None]:
    """``int(x.shape[0] * 1.5)`` is a number of Python: images of MobileViT, InternVL and others have the example's size.

    So are ``len(x)`` of a tensor, in D-FINE and RT-DETR, and ``float(width - 1) / 2``, in Kornia; ``int(x[0])`` of a number of the data is
    refused. ``isinstance(x.shape[0], int)``, which the augmentations of Kornia check, is true for the number and not for the symbol, as
    ``type(x.shape[0]) is int`` is, and ``type(x) is torch.Tensor`` of a tensor of the capture, whose class is derived from it: the model had
    the other side of such a branch, without a word. The functions of the model that is captured, and those beside its classes, call something else in the
    place of ``int``, ``float``, ``len``, ``isinstance`` and ``type``, those that do nothing else with them: ``isinstance(x, int)`` and
    ``dtype=int`` want a type. ``map(int, x.shape)`` is a call.
    """
    calls = {"int": whole, "float": fraction, "len": length, "isinstance": is_instance, "type": type_of}
    for name, call in calls.items():
        setattr(builtins, NAMES[name], call)  # it stays: another thread may be inside of such a function
    with captures_begin(replace_calls):
        yield


@contextlib.contextmanager
def captures_begin(prepare: Callable[[torch.nn.Module, contextlib.ExitStack], None]) -> Iterator[None]:
    """For a while, call *prepare* when a capture begins: with the model, and with a stack that is closed when the capture ends."""
    for module in {path.rpartition(".")[0] for path in BEGINNINGS}:
        importlib.import_module(module)  # they bring TorchDynamo, which imports of this package do not need

    def beginning(capture: Callable) -> Callable:
        signature = inspect.signature(capture)

        @functools.wraps(capture)
        def captured(*args: Any, **kwargs: Any) -> Any:
            model, *_ = signature.bind(*args, **kwargs).args
            with contextlib.ExitStack() as stack:
                stack.callback(FOUND.pop, id(model), None)
                prepare(model, stack)
                return capture(*args, **kwargs)

        return captured

    with wrapped(dict.fromkeys(BEGINNINGS, beginning)):
        yield


def replace_calls(model: torch.nn.Module, stack: contextlib.ExitStack) -> None:
    """Let the functions of a model call `whole`, `fraction`, `length`, `is_instance` and `type_of` in the place of Python's until *stack* is closed."""
    for function in functions(model):
        before = function.__code__
        for name in NAMES:
            if name not in function.__globals__:
                function.__code__ = with_symbols(function.__code__, before.co_filename, name)
        stack.callback(setattr, function, "__code__", before)


def whole(*values: Any, **options: Any) -> Any:
    """``int`` that is a symbol where a number is computed from symbols, or read from a tensor: what is behind the point is cut off."""
    values = read(values)
    if is_symbol(values):
        whole_numbers_of_sizes.used()
        return torch.sym_int(values[0])
    if is_condition(values):
        whole_numbers_of_sizes.used()
        return torch.sym_ite(values[0], 1, 0)
    return builtins.int(*values, **options)


def fraction(*values: Any) -> Any:
    """``float`` that is a symbol where a number is computed from symbols, or read from a tensor."""
    values = read(values)
    if is_symbol(values) or is_condition(values):
        whole_numbers_of_sizes.used()
        return torch.sym_float(whole(*values) if is_condition(values) else values[0])
    return builtins.float(*values)


def read(values: tuple) -> tuple:
    """The arguments of ``int`` or ``float``, the number in the place of a tensor."""
    return (values[0].item(),) if len(values) == 1 and isinstance(values[0], FakeTensor) else values


def is_symbol(values: tuple) -> bool:
    """Whether ``int`` or ``float`` is asked for a number that is a symbol."""
    return len(values) == 1 and isinstance(values[0], (torch.SymInt, torch.SymFloat))


def is_condition(values: tuple) -> bool:
    """Whether ``int`` or ``float`` is asked for a condition that is a symbol: 1 where it holds, 0 where it does not."""
    return len(values) == 1 and isinstance(values[0], torch.SymBool)


def length(values: Any) -> Any:
    """``len`` that is a symbol where the first size of a tensor is one."""
    if isinstance(values, torch.Tensor) and values.dim() and isinstance(values.shape[0], torch.SymInt):
        whole_numbers_of_sizes.used()
        return values.shape[0]
    return builtins.len(values)


def is_instance(value: Any, classes: Any) -> bool:
    """``isinstance`` that takes a symbol for the number that it stands for, one that the data decide, too."""
    number = stands_for(value)
    if number is None or not builtins.isinstance(number, classes):
        return builtins.isinstance(value, classes)
    whole_numbers_of_sizes.used()
    return True


def type_of(*values: Any, **options: Any) -> type:
    """``type`` that is the class of the number that a symbol stands for, and of the tensor that one of the capture does."""
    if len(values) == 1 and isinstance(values[0], TRACED):
        whole_numbers_of_sizes.used()
        return torch.nn.Parameter if isinstance(values[0], torch.nn.Parameter) else torch.Tensor
    number = stands_for(values[0]) if len(values) == 1 else None
    if number is None:
        return builtins.type(*values, **options)
    whole_numbers_of_sizes.used()
    return builtins.type(number)


def stands_for(value: Any) -> int | float | bool | None:
    """A number of the class of what a symbol stands for, None for what is no symbol."""
    return STANDS_FOR.get(type(value))


STANDS_FOR = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}
"""A number for each kind of symbol."""


# ---- the functions of models


class Owner(NamedTuple):
    """What a module or a class held when it was looked at.

    Attributes:
        held: the names of its attributes, and their values by their identity.
        asking: the attributes whose functions name one of `NAMES`.
        classes: the attributes that are classes, which a module of Python defines.
        files: where the functions that it holds are defined, and the modules of Python that it holds, but those of other packages.
    """

    held: tuple[tuple[str, ...], tuple[int, ...]]
    asking: list[str]
    classes: list[str]
    files: set[str]


OWNERS: weakref.WeakKeyDictionary[Any, Owner] = weakref.WeakKeyDictionary()
"""Modules and classes as they were last: few change from one capture to the next. Names alone: a function holds its class."""


def functions(model: torch.nn.Module) -> dict[types.FunctionType, None]:
    """The functions that name one of `NAMES`, among those that `looked_into` finds."""
    owners, reachable = looked_into(model)
    found = dict.fromkeys(function for function, names in reachable.items() if asks_in(names))
    for owner in owners:
        values = vars(owner)
        asking = (function for name in looked_at(owner).asking for function in functions_of(values[name]))
        found.update(dict.fromkeys(filter(names_calls, asking)))
    return found


Found = tuple[dict[Any, None], dict[types.FunctionType, set[str]]]
"""Classes and modules of Python; functions, and the names in their code."""

FOUND: dict[int, Found] = {}
"""What has been found for the models whose captures have begun."""


def looked_into(model: torch.nn.Module) -> Found:
    """The classes of a model, the modules of Python of their files and of those that these import from; the functions that are `reached`.

    Called when a capture begins: until it ends they stay what they are.
    """
    if id(model) not in FOUND:
        FOUND[id(model)] = owners_and_functions(model)
    return FOUND[id(model)]


def owners_and_functions(model: torch.nn.Module) -> Found:
    """See `looked_into`."""
    given, classes = held_by(model)
    names = dict.fromkeys(owner.__module__ for owner in (*classes, *given))
    files = dict.fromkeys(filter(None, map(file_of, names)))
    names = dict.fromkeys(name for file in files for name in looked_at(file).files)
    files.update(dict.fromkeys(filter(None, map(file_of, names))))
    own = dict.fromkeys(filter(is_own, classes))
    reachable = reached(given, own)
    own.update(dict.fromkeys(vars(file)[name] for file in files for name in looked_at(file).classes))
    return {**files, **own}, reachable


HOOKS = ("_forward_hooks", "_forward_pre_hooks")
"""Where a module keeps the functions that are called with it."""


def held_by(model: torch.nn.Module) -> tuple[list[types.FunctionType], list[type]]:
    """The functions that a model and its submodules hold, and their classes."""
    classes = dict.fromkeys(cls for part in model.modules() for cls in type(part).__mro__)
    held = [value for part in model.modules() for value in vars(part).values()]
    held += [hook for part in model.modules() for name in HOOKS for hook in vars(part)[name].values()]
    given = dict.fromkeys(function for value in held for function in functions_of(value))
    return list(given), list(classes)


def reached(
    beginnings: Iterable[types.FunctionType], classes: Iterable[type]
) -> dict[types.FunctionType, set[str]]:
    """The functions that these and ``forward`` of these classes may call, in whatever module: ``kornia.geometry.rotate`` has helpers.

    A function calls what it names: functions and classes of its module, those that are attributes of a module that it names, and the
    methods of that name. What it finds otherwise, in a table or by a string, is not known.
    """
    found: dict[types.FunctionType, set[str]] = {}
    names = {"forward"}
    unnamed: dict[str, list[Any]] = {}
    known: set[int] = set()
    waiting: list[Any] = [*beginnings, *classes]
    while waiting:
        value = waiting.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        if isinstance(value, types.FunctionType) and not is_library_code(value.__code__):
            own = found[value] = words(value.__code__)
            waiting.extend(named(value, own))
            for name in own - names:
                names.add(name)
                waiting.extend(part for method in unnamed.pop(name, ()) for part in functions_of(method))
        elif isinstance(value, type) and is_own(value):
            for name, method in vars(value).items():
                if name in names or name.startswith("__"):
                    waiting.extend(functions_of(method))
                else:
                    unnamed.setdefault(name, []).append(method)
    return found


def named(function: types.FunctionType, names: set[str]) -> Iterator[Any]:
    """The functions and the classes that a function finds: by names in its module, as attributes of modules that it names, in its cells."""
    held = [function.__globals__[name] for name in names if name in function.__globals__]
    held.extend(value for cell in function.__closure__ or () for value in cell_contents(cell))
    known: set[int] = set()
    while held:
        value = held.pop()
        if isinstance(value, type):
            yield value
        elif not isinstance(value, types.ModuleType):
            yield from functions_of(value)
        elif id(value) not in known:  # modules hold one another
            known.add(id(value))
            attributes = own_attributes(value)
            if not is_library(attributes.get("__file__") or ""):
                held.extend(attributes[name] for name in names if name in attributes)


def cell_contents(cell: types.CellType) -> tuple:
    """The value of a variable of an outer function, nothing before it is assigned."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


@dataclasses.dataclass(eq=False)
class Variable:
    """A variable of an outer function: its name, its cell, the functions that have it."""

    name: str
    cell: types.CellType
    users: list[types.FunctionType] = dataclasses.field(default_factory=list)


def outer_variables(functions: Iterable[types.FunctionType]) -> list[Variable]:
    """The variables of outer functions that functions have, each once."""
    found: dict[int, Variable] = {}
    for function in functions:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            found.setdefault(id(cell), Variable(name, cell)).users.append(function)
    return [*found.values()]


def file_of(name: str) -> types.ModuleType | None:
    """The module of a name, when it is imported, and not torch's, Python's or this package's."""
    module = sys.modules.get(name)
    return None if module is None or is_library(getattr(module, "__file__", None) or "") else module


def is_own(cls: type) -> bool:
    """Whether a class is neither torch's nor Python's: that of a file that was run and not imported has no module."""
    return cls.__module__ not in sys.modules or file_of(cls.__module__) is not None


def looked_at(owner: Any) -> Owner:
    """What a module or a class holds now."""
    values = dict(vars(owner))
    held = tuple(values), tuple(map(id, values.values()))
    known = OWNERS.get(owner)
    if known is None or known.held != held:
        found = {name: list(functions_of(value)) for name, value in values.items()}
        own = getattr(owner, "__name__", None)
        classes = [
            name for name, value in values.items() if isinstance(value, type) and value.__module__ == own
        ]
        modules = [value for value in values.values() if isinstance(value, types.ModuleType)]
        known = OWNERS[owner] = Owner(
            held,
            [name for name, functions in found.items() if any(map(names_calls, functions))],
            classes if isinstance(owner, types.ModuleType) else [],
            {function.__module__ for functions in found.values() for function in functions}
            | {module.__name__ for module in modules if is_near(module, own)},
        )
    return known


def is_near(module: types.ModuleType, name: str) -> bool:
    """Whether a module that the module of a name imports is of the same package, or of none that is installed."""
    file = own_attributes(module).get("__file__") or ""
    return module.__name__.partition(".")[0] == name.partition(".")[0] or not file.startswith(PACKAGES)


def names_calls(function: types.FunctionType) -> bool:
    """Whether a function of a model, or one in it, names one of `NAMES` for what this patch changes."""
    code = function.__code__
    return not is_library_code(code) and asks_in(words(code))


def asks_in(found: set[str]) -> bool:
    """Whether a name of `NAMES` is among those of a function."""
    return any(is_named(found, name) for name in NAMES)


def is_named(found: set[str], name: str) -> bool:
    """Whether a *name* of `NAMES` is among those of a function: one of `QUESTIONS` beside a class that it asks for."""
    return name in found and (name not in QUESTIONS or not QUESTIONS[name].isdisjoint(found))


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The functions of a function, a method or a property, and those that it decorates.

    No other object is asked for an attribute: what stands for a package that is not installed raises an error of its own.
    """
    if isinstance(value, property):
        parts = [value.fget, value.fset]
    elif isinstance(value, (classmethod, staticmethod, types.MethodType)):
        parts = [value.__func__]
    else:
        parts = [value]
    for part in parts:
        known = set()
        while part is not None and id(part) not in known:
            known.add(id(part))
            if isinstance(part, types.FunctionType):
                yield part
            part = own_attributes(part).get("__wrapped__")


# ---- their code


CALLED = "LOAD_GLOBAL + NULL"
"""What Python 3.11 and later write where a global is loaded for nothing but a call: no source is read then."""


GLOBALS = frozenset(f"{kind}_{scope}" for kind in ("LOAD", "STORE", "DELETE") for scope in ("GLOBAL", "NAME"))
"""The instructions that have a name of the globals."""


@functools.cache
def with_symbols(code: types.CodeType, file: str, name: str) -> types.CodeType:
    """The code of a function of *file* with another call in the place of a *name* of `NAMES`, itself unless it only calls that.

    Equal codes of two files are not the same: their lines are cited.
    """
    return renamed(code, name) if only_calls(code, name) else code


def renamed(code: types.CodeType, name: str) -> types.CodeType:
    """The code, and that of the functions in it, with the name of `NAMES` in the place of a global name: ``x.float()`` stays what it is."""
    inner = tuple(
        renamed(part, name) if isinstance(part, types.CodeType) else part for part in code.co_consts
    )
    names = tuple(NAMES[name] if known == name else known for known in code.co_names)
    written = code.co_code
    if any(not is_load(instruction) for instruction in named_by(code, name)):
        names = *code.co_names, NAMES[name]
        written = with_loads(code, name, len(code.co_names))
    return code.replace(co_names=names, co_consts=inner, co_code=written)


def with_loads(code: types.CodeType, name: str, index: int) -> bytes:
    """The instructions of a function, those that load a global name with another *index* of it."""
    written = bytearray(code.co_code)
    for instruction in filter(is_load, named_by(code, name)):
        # Python 3.11 and later have a bit for the kind of the load behind it
        number = index if sys.version_info < (3, 11) else index << 1 | instruction.arg & 1
        place = instruction.offset
        written[place + 1] = number & 255
        while place >= 2 and written[place - 2] == dis.EXTENDED_ARG:
            place, number = place - 2, number >> 8
            written[place + 1] = number & 255
        if number > 255:
            return code.co_code
    return bytes(written)


def only_calls(code: types.CodeType, name: str) -> bool:
    """Whether a *name* of `NAMES` is called in a function, and is nothing else there, as far as its source is known.

    No variable has its name, and it is no value: a type, or a function that is passed on, but to ``map``, which calls it.
    """
    if not is_named(words(code), name):
        return False
    loads = list(loads_of(code, name))
    if not loads or all(load == CALLED for load in loads):
        return bool(loads)
    tree = tree_of(code)
    if tree is None:
        return False
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    called = {id(node.func) for node in calls}
    called.update(id(node.args[0]) for node in calls if node.args and ast.unparse(node.func) == "map")
    told = {id(node) for note in notes(nodes) for node in ast.walk(note)}
    names = [
        node for node in nodes if isinstance(node, ast.Name) and node.id == name and id(node) not in told
    ]
    return (
        all(id(node) in called for node in names) and len(loads) == len(names)  # what was read is what runs
    )


def notes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The annotations of arguments, functions and variables."""
    for node in nodes:
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            yield node.returns


def named_by(code: types.CodeType, name: str) -> Iterator[dis.Instruction]:
    """The instructions of a function that have a *name* of its globals, its attributes or its imports."""
    for instruction in dis.get_instructions(code):
        if instruction.argval == name and instruction.opcode in dis.hasname:
            yield instruction


def is_load(instruction: dis.Instruction) -> bool:
    """Whether an instruction loads a global name."""
    return instruction.opname == "LOAD_GLOBAL"


def loads_of(code: types.CodeType, name: str) -> Iterator[str]:
    """The instructions that have a global *name*, in a function and in those in it, `CALLED` for those that load what is called."""
    for instruction in named_by(code, name):
        if is_load(instruction) and sys.version_info >= (3, 11) and instruction.arg & 1:
            yield CALLED
        elif instruction.opname in GLOBALS:
            yield instruction.opname
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from loads_of(part, name)
