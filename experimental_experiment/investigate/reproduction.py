"""A script that reproduces one failure alone: the module and its arguments are saved beside it.

Classes of files and packages are imported from where they are; those of ``__main__`` and of functions are copied, with what they use.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import inspect
import os
import pickle
import re
import site
import sys
import sysconfig
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from experimental_experiment.investigate.recording import Call, shown
from experimental_experiment.investigate.tree import Piece

PLAIN = (bool, int, float, str, type(None))
"""Values that a script can spell."""


class Unreproducible(Exception):
    """A module that cannot be saved for another process: the message says why."""


def write_script(
    folder: str | os.PathLike,
    piece: Piece,
    module: torch.nn.Module,
    calls: Sequence[Call],
    shapes: Any,
    options: Mapping[str, Any],
) -> str:
    """Write ``<path of the piece>.py`` and ``.pt`` to a folder; the path of the script.

    Raises Unreproducible when a class or an argument cannot be saved.
    """
    name = re.sub(r"\W", "_", piece.path) or "model"
    sources = Sources()
    for part in {type(part) for part in module.modules()}:
        sources.add(part)
    arguments = [(call.args, call.kwargs) for call in calls]
    save(os.path.join(folder, f"{name}.pt"), {"module": module, "calls": arguments})
    spelled = {key: value for key, value in options.items() if isinstance(value, PLAIN)}
    text = SCRIPT.format(
        what=f"{piece.path or 'model'} ({piece.kind}): {piece.told}".replace("\\", "\\\\").replace(
            '"""', "'''"
        ),
        file=name,
        folders=sources.folders,
        imports="".join(f"import {item}\n" for item in sorted(sources.modules)),
        sources="".join(f"\n\n{source}" for source in sources.texts.values()),
        shapes=shown(shapes),
        options="".join(f", {key}={value!r}" for key, value in spelled.items()),
        left=left_out(options, spelled),
    )
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def left_out(options: Mapping[str, Any], spelled: Mapping[str, Any]) -> str:
    """A comment on the options that the script cannot spell."""
    missing = sorted(set(options) - set(spelled))
    return f"# to_onnx was also given {', '.join(missing)}\n" if missing else ""


class Main:
    """Stands for the module ``__main__`` in a saved file."""

    def __reduce__(self) -> tuple:
        return importlib.import_module, ("__main__",)


class Pickler(pickle._Pickler):
    """Saves classes of ``__main__`` and of functions as what the script defines under their names."""

    def reducer_override(self, obj: Any) -> Any:
        """How a class is saved."""
        return (
            (getattr, (Main(), obj.__name__)) if isinstance(obj, type) and is_copied(obj) else NotImplemented
        )


def save(path: str, content: Any) -> None:
    """Write with torch.save; Unreproducible when pickle cannot."""
    pickling = types.ModuleType("pickling")
    pickling.Pickler = Pickler
    try:
        torch.save(content, path, pickle_module=pickling)
    except (AttributeError, TypeError, pickle.PicklingError, RuntimeError) as error:
        os.remove(path)
        raise Unreproducible(f"pickle says: {error}") from error


def is_copied(item: Any) -> bool:
    """Whether a class or a function cannot be imported by another process."""
    return item.__module__ == "__main__" or "<" in item.__qualname__


class Sources:
    """What a script needs to define and to import.

    Attributes:
        texts: source of what is copied, by name, what is used first.
        modules: names of modules to import.
        folders: where modules are found that are not installed.
    """

    def __init__(self):
        self.texts: dict[str, str] = {}
        self.owners: dict[str, Any] = {}
        self.modules: set[str] = set()
        self.folders: list[str] = []

    def add(self, item: Any) -> None:
        """Make the script know a class or a function."""
        if not is_copied(item):
            self.add_module(item.__module__)
            return
        name = item.__name__
        if name in self.owners:
            if self.owners[name] is not item:
                raise Unreproducible(f"there are two of the name {name}, defined in __main__ or in functions")
            return
        self.owners[name] = item
        try:
            source = textwrap.dedent(inspect.getsource(item))
        except (OSError, TypeError) as error:
            raise Unreproducible(f"the source of {name} is not known: {error}") from error
        known = known_names(item)
        for used in sorted(names_of(compile(source, "<source>", "exec", dont_inherit=True))):
            if used != name and used in known:
                self.add_name(used, known[used], name)
        self.texts[name] = source

    def add_name(self, name: str, value: Any, user: str) -> None:
        """Make the script know what *user* calls *name*."""
        if name in self.texts and name not in self.owners:
            return
        if isinstance(value, types.ModuleType) and name in ("os", "sys", "torch") and value.__name__ == name:
            return  # the script imports them itself
        if isinstance(value, types.ModuleType):
            self.texts[name] = f"import {value.__name__} as {name}\n"
        elif isinstance(value, (type, types.FunctionType)):
            self.add(value)
            if not is_copied(value):
                self.texts[name] = (
                    f"from {value.__module__} import {value.__qualname__.split('.')[0]} as {name}\n"
                )
        elif isinstance(value, PLAIN):
            self.texts[name] = f"{name} = {value!r}\n"
        else:
            raise Unreproducible(f"{user} reads {name}, a {type(value).__name__} of the code around it")

    def add_module(self, name: str) -> None:
        """Import a module, from its folder when it is not installed."""
        if name in sys.stdlib_module_names or name == "torch" or name.startswith("torch."):
            return
        self.modules.add(name)
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or is_installed(file):
            return
        levels = name.count(".") + (os.path.basename(file) == "__init__.py")
        folder = os.path.dirname(os.path.abspath(file))
        for _ in range(levels):
            folder = os.path.dirname(folder)
        if folder not in self.folders:
            self.folders.append(folder)


def is_installed(file: str) -> bool:
    """Whether a file is part of Python or of an installed package."""
    places = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["stdlib"]]
    return any(os.path.abspath(file).startswith(os.path.join(place, "")) for place in places)


def known_names(item: Any) -> dict[str, Any]:
    """What the names in the code of a class or a function mean: globals of its file, variables of the function around it."""
    known = dict(vars(sys.modules[item.__module__]))
    functions = [item] if isinstance(item, types.FunctionType) else vars(item).values()
    for function in functions:
        function = inspect.unwrap(getattr(function, "__func__", function)) if callable(function) else None
        if isinstance(function, types.FunctionType) and function.__closure__:
            for name, cell in zip(function.__code__.co_freevars, function.__closure__):
                if name != "__class__":
                    known[name] = cell.cell_contents
    return known


def names_of(code: types.CodeType) -> set[str]:
    """The names that a source and its functions read from outside."""
    return {name for name in read_from_outside(code) if not hasattr(builtins, name)}


def read_from_outside(code: types.CodeType) -> Iterator[str]:
    """See `names_of`."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from read_from_outside(constant)


SCRIPT = '''"""{what}

The module and the arguments of its calls stand in {file}.pt, which is read with pickle.
"""

import os
import sys

import torch

sys.path[:0] = {folders!r}

from experimental_experiment.comparison import compare, session
from experimental_experiment.investigate import discrepancies
from experimental_experiment.investigate.recording import unchanged
from experimental_experiment.torch_interpreter import to_onnx

{imports}{sources}

{left}DYNAMIC = torch.export.Dim.DYNAMIC
DYNAMIC_SHAPES = {shapes}


def main():
    """Export, run, compare; 1 when the results differ."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{file}.pt")
    saved = torch.load(path, weights_only=False)
    module, calls = saved["module"], saved["calls"]
    model = to_onnx(module, *calls[0], dynamic_shapes=DYNAMIC_SHAPES{options})
    runner = session(model)
    for args, kwargs in calls:
        with unchanged(module):
            differences = compare(module, runner, args, kwargs)
        for difference in differences:
            print(difference)
        if not all(difference.within for difference in differences):
            print(discrepancies(module, args, kwargs, onnx=model, dynamic_shapes=DYNAMIC_SHAPES))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''
