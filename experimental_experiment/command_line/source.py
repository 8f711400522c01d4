"""``MODULE:FUNCTION`` on the command line: the function that builds a model and an example of its arguments."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from experimental_experiment.command_line.errors import CommandError, existing
from experimental_experiment.torch_interpreter.capture import module_of

HELP = (
    "a function without parameters that returns (model, args, kwargs, dynamic_shapes), the last ones may be left out; "
    "MODULE is a module or a Python file; torch.manual_seed(0) is called before the function"
)


@dataclasses.dataclass
class Example:
    """A model and one call of it."""

    model: Any
    args: tuple = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None


def load(source: str) -> Example:
    """Call the function that *source* names, always with the same random weights.

    Raises CommandError when there is no such function, it takes parameters, or it returns something else.
    """
    function = find(source)
    refuse_parameters(source, function)
    torch.manual_seed(0)
    result = function()
    if callable(result):
        raise CommandError(
            f"{source} returns a model alone: write return model, (x,) with an example x of each argument of its forward"
        )
    parts = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not 1 <= len(parts) <= 4 or not callable(parts[0]):
        raise CommandError(f"{source} must return (model, args, kwargs, dynamic_shapes)")
    example = Example(*parts)
    if example.kwargs is not None and not isinstance(example.kwargs, Mapping):
        raise CommandError(
            f"{source} returns kwargs as {type(example.kwargs).__name__}, a dict of arguments by name is needed"
        )
    example.kwargs = dict(example.kwargs or {})
    if isinstance(example.args, torch.Tensor):
        example.args = (example.args,)
    if not isinstance(example.args, (tuple, list)):
        raise CommandError(f"{source} returns args as {type(example.args).__name__}, a tuple is needed")
    example.args = tuple(example.args)
    return example


def called(example: Example) -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
    """The module that is called, and the arguments, those of a program when none are given. Raises CommandError for what is no model."""
    model, args, kwargs = example.model, example.args, example.kwargs
    if not isinstance(model, torch.export.ExportedProgram):
        try:
            return module_of(model), args, kwargs
        except TypeError as error:
            raise CommandError(str(error)) from error
    if not args and not kwargs and model.example_inputs is not None:
        args, kwargs = model.example_inputs
    return model.module(check_guards=False), args, kwargs


def refuse_parameters(source: str, function: Callable) -> None:
    """Raise CommandError when a function cannot be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        names = ", ".join(inspect.signature(function).parameters)
        kind = "a class" if isinstance(function, type) else "a function"
        raise CommandError(
            f"{source} is {kind} with parameters ({names}): name a function without any that returns "
            "(model, args, kwargs, dynamic_shapes)"
        ) from error


def find(source: str) -> Callable:
    """The function that ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` names."""
    name, _, attribute = source.rpartition(":")
    if not name or not attribute:
        raise CommandError(f"{source!r} is not of the form MODULE:FUNCTION")
    module = from_file(name) if name.endswith(".py") else from_name(name)
    function = module
    for part in attribute.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise CommandError(f"{name} has no function {attribute!r}")
    return function


def from_file(path: str) -> Any:
    """The module that a Python file holds; its folder can be imported from."""
    existing(path)
    folder, file = os.path.split(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(file.removesuffix(".py"), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    return executed(path, lambda: spec.loader.exec_module(module)) or module


def from_name(name: str) -> Any:
    """The module of this name, also one of the current folder."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = None if name.startswith(".") else importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        found = None
    if found is None:
        raise CommandError(f"there is no module {name!r}")
    return executed(name, lambda: importlib.import_module(name))


def executed(name: str, load_module: Callable) -> Any:
    """What loading a module gives; a package that it lacks is named."""
    try:
        return load_module()
    except ModuleNotFoundError as error:
        raise CommandError(f"{name} needs the package {error.name!r}, which is not installed") from error
