"""``int`` of a size, which Python makes a number of its own: in functions that only call it, it gives a symbol."""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import functools
import importlib
import inspect
import sys
import textwrap
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from experimental_experiment.torch_interpreter.frames import PACKAGES, is_library
from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped
from experimental_experiment.torch_interpreter.patches.vision import words

BEGINNINGS = ("torch.export._trace._export", "torch._export.non_strict_utils.make_fake_inputs")
"""What torch.export, and `tracing`, call with the model before they run it."""

NAME = "int of sizes"
"""What the functions call in the place of ``int``: no name of Python, which nothing can shadow."""


@patch("torch", replaces=(*BEGINNINGS, "int, in the functions of the model"), default=True)
def whole_numbers_of_sizes() -> Iterator[None]:
    """``int(x.shape[0] * 1.5)`` is a number of Python: images of MobileViT, InternVL and others have the example's size.

    The functions of the model that is captured, and those beside its classes, call something else in the place of ``int``, those that
    do nothing else with it: ``isinstance(x, int)`` and ``dtype=int`` want a type.
    """
    setattr(builtins, NAME, whole)  # it stays: another thread may be inside of such a function when this ends
    for module in {path.rpartition(".")[0] for path in BEGINNINGS}:
        importlib.import_module(module)  # they bring TorchDynamo, which imports of this package do not need
    with contextlib.ExitStack() as stack:

        def beginning(capture: Callable) -> Callable:
            signature = inspect.signature(capture)

            @functools.wraps(capture)
            def begun(*args: Any, **kwargs: Any) -> Any:
                model, *_ = signature.bind(*args, **kwargs).args
                replace_int(model, stack)
                return capture(*args, **kwargs)

            return begun

        with wrapped(dict.fromkeys(BEGINNINGS, beginning)):
            yield


def replace_int(model: torch.nn.Module, stack: contextlib.ExitStack) -> None:
    """Let the functions of a model call `whole` in the place of ``int`` until *stack* is closed."""
    for function in functions(model):
        before = function.__code__
        if "int" not in function.__globals__:
            function.__code__ = with_whole_numbers(before, before.co_filename)
            stack.callback(setattr, function, "__code__", before)


def whole(*values: Any, **options: Any) -> Any:
    """``int`` that is a symbol where a number is computed from symbols: what is behind the point is cut off."""
    if values and isinstance(values[0], (torch.SymInt, torch.SymFloat)):
        whole_numbers_of_sizes.used()
        return torch.sym_int(values[0])
    return builtins.int(*values, **options)


# ---- the functions of models


class Owner(NamedTuple):
    """What a module or a class held when it was looked at.

    Attributes:
        held: which values, by their identity.
        functions: its functions that name ``int``.
        classes: the classes that a module of Python defines.
        files: where the functions that it holds are defined, and the modules of Python that it holds, but those of other packages.
    """

    held: tuple[int, ...]
    functions: list[types.FunctionType]
    classes: list[type]
    files: set[str]


OWNERS: weakref.WeakKeyDictionary[Any, Owner] = weakref.WeakKeyDictionary()
"""Modules and classes as they were last: few change from one capture to the next."""


def functions(model: torch.nn.Module) -> dict[types.FunctionType, None]:
    """The functions that name ``int``: of the classes of a model, in their files, and in the files that these import from."""
    classes = {cls: None for part in model.modules() for cls in type(part).__mro__}
    held = [value for part in model.modules() for value in vars(part).values()]
    given = dict.fromkeys(function for value in held for function in functions_of(value))
    names = dict.fromkeys(owner.__module__ for owner in (*classes, *given))
    files = dict.fromkeys(filter(None, map(file_of, names)))
    names = dict.fromkeys(name for file in files for name in looked_at(file).files)
    files.update(dict.fromkeys(filter(None, map(file_of, names))))
    own = dict.fromkeys(cls for cls in classes if file_of(cls.__module__) is not None)
    own.update(dict.fromkeys(cls for file in files for cls in looked_at(file).classes))
    found = dict.fromkeys(filter(names_int, given))
    for owner in (*files, *own):
        found.update(dict.fromkeys(looked_at(owner).functions))
    return found


def file_of(name: str) -> types.ModuleType | None:
    """The module of a name, when it is imported, and not torch's, Python's or this package's."""
    module = sys.modules.get(name)
    return None if module is None or is_library(getattr(module, "__file__", None) or "") else module


def looked_at(owner: Any) -> Owner:
    """What a module or a class holds now."""
    values = list(vars(owner).values())
    held = tuple(map(id, values))
    known = OWNERS.get(owner)
    if known is None or known.held != held:
        found = dict.fromkeys(function for value in values for function in functions_of(value))
        name = getattr(owner, "__name__", None)
        classes = [value for value in values if isinstance(value, type) and value.__module__ == name]
        known = OWNERS[owner] = Owner(
            held,
            list(filter(names_int, found)),
            classes if isinstance(owner, types.ModuleType) else [],
            {function.__module__ for function in found}
            | {
                value.__name__
                for value in values
                if isinstance(value, types.ModuleType) and is_near(value, name)
            },
        )
    return known


def is_near(module: types.ModuleType, name: str) -> bool:
    """Whether a module that the module of a name imports is of the same package, or of none that is installed."""
    file = getattr(module, "__file__", None) or ""
    return module.__name__.partition(".")[0] == name.partition(".")[0] or not file.startswith(PACKAGES)


def names_int(function: types.FunctionType) -> bool:
    """Whether a function of a model, or one in it, names ``int``."""
    return "int" in words(function.__code__) and not is_library(function.__code__.co_filename)


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The functions behind a function, a method or a property, without what decorates them."""
    if isinstance(value, property):
        parts = [value.fget, value.fset]
    else:
        parts = [getattr(value, "__func__", value)]  # classmethod, staticmethod
    for part in parts:
        if callable(part) and not isinstance(part, type):
            part = inspect.unwrap(part)
            if isinstance(part, types.FunctionType):
                yield part


# ---- their code


@functools.cache
def with_whole_numbers(code: types.CodeType, file: str) -> types.CodeType:
    """The code of a function of *file* with `NAME` in the place of ``int``, itself unless it calls ``int`` and does nothing else with it.

    Equal codes of two files are not the same: their lines are cited.
    """
    return renamed(code) if only_calls_int(code) else code


def renamed(code: types.CodeType) -> types.CodeType:
    """The code, and that of the functions in it, with `NAME` in the place of ``int``."""
    inner = tuple(renamed(part) if isinstance(part, types.CodeType) else part for part in code.co_consts)
    names = tuple(NAME if name == "int" else name for name in code.co_names)
    return code.replace(co_names=names, co_consts=inner)


def only_calls_int(code: types.CodeType) -> bool:
    """Whether ``int`` is called in a function, and is nothing else there, as far as its source is known.

    No attribute, variable or import has its name, and it is no value: a type, or a function that is passed on.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # a lambda in the middle of a statement is none by itself
        return False
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    told = {id(name) for note in notes(nodes) for name in ast.walk(note)}
    names = [
        node for node in nodes if isinstance(node, ast.Name) and node.id == "int" and id(node) not in told
    ]
    loads = list(instructions(code))
    return (
        all(id(name) in called for name in names)
        and all(load == "LOAD_GLOBAL" for load in loads)
        and len(loads) == len(names)  # what was read is what runs
    )


def notes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The annotations of arguments, functions and variables."""
    for node in nodes:
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            yield node.returns


def instructions(code: types.CodeType) -> Iterator[str]:
    """The names of the instructions that name ``int``, in a function and in those in it."""
    for instruction in dis.get_instructions(code):
        if instruction.argval == "int" and isinstance(instruction.argval, str):
            if instruction.opname != "LOAD_CONST":
                yield instruction.opname
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from instructions(part)
