"""What keeps values in a model and around it, its modules, plain objects, classes, globals and closures, and how functions read and write them."""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
import itertools
import linecache
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from experimental_experiment.torch_interpreter.errors import Source
from experimental_experiment.torch_interpreter.frames import nodes_of, source_at, words
from experimental_experiment.torch_interpreter.memories import (
    MANY,
    Slots,
    attributes_of,
    container_of,
    contents_of,
    count_of,
    is_object,
    is_plain,
    own_attributes,
)
from experimental_experiment.torch_interpreter.patches.choices import is_note
from experimental_experiment.torch_interpreter.patches.whole_numbers import (
    cell_contents,
    functions_of,
    looked_into,
    outer_variables,
)

COPIES = frozenset(("COPY", "DUP_TOP", "DUP_TOP_TWO"))
"""What ``self.count += 1`` and ``counts[key] += 1`` do before they read; the others before Python 3.11."""

LOADED, STORED, ADDED = "loaded", "stored", "added"
"""What functions do with what is kept: the last one is a read in order to write it."""

BEGINNING = ("clear", "init", "reset", "start")
"""How functions are called that empty what is kept, and that a call of the model does not call."""

UNNAMED = ("forward", "__call__", "__getattr__", "__setattr__")
"""Functions that are called by another name."""

CALLING = ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_METHOD")
"""What loads a function to call it."""

Access = tuple[str, types.CodeType, int]
"""What is done, in which function and line."""

Taken = list[tuple[types.FunctionType, list[Access]]]
"""What functions do."""

SETTING = ("setattr", "__setattr__")
"""Functions that write what a text names."""

GETTING = ("getattr", "hasattr")
"""Functions that read it."""


class Through(NamedTuple):
    """How what is kept is read and written without its name.

    Attributes:
        called: functions that write it when they are called.
        read: properties that read it.
        written: those that write it.
    """

    called: Collection[str] = ()
    read: Collection[str] = ()
    written: Collection[str] = ()


ITSELF = Through()
"""By its name alone."""


DEPTH = 4
"""So many plain objects in one another are looked into: an EncoderDecoderCache, a cache, one of its layers, and one more."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """What keeps values by their names.

    Attributes:
        path: where it is, as seen from the model; ``""`` for the model itself, globals and closures.
        attributes: the values, as they are now.
        kinds: the classes whose functions may read and write them.
        others: other functions that may.
        around: the classes whose functions may where those do not.
        reached: other functions that may then, known once a capture has begun.
        access: how byte code calls what it loads and stores there.
    """

    path: str
    attributes: Mapping[str, Any]
    kinds: tuple[type, ...] = ()
    others: tuple[types.FunctionType, ...] = ()
    access: str = "ATTR"
    around: tuple[type, ...] = ()
    reached: Sequence[types.FunctionType] = ()

    def named(self, name: str) -> str:
        """An attribute of it, as seen from the model."""
        return f"{self.path}.{name}" if self.path else name

    @property
    def identity(self) -> int:
        """What `identity` gives of an object whose attributes these are."""
        return id(self.attributes.owner if isinstance(self.attributes, Slots) else self.attributes)

    def functions(self) -> Iterator[types.FunctionType]:
        """The functions that may read and write what it keeps."""
        yield from itertools.chain.from_iterable(map(methods_of, self.kinds))
        yield from self.others

    def properties(self) -> Iterator[tuple[str, property]]:
        """The properties of the classes whose objects keep it, with their names, but those that tensors have: ``x.shape`` is no cache's."""
        for name, item in itertools.chain.from_iterable(map(members_of, self.kinds)):
            if isinstance(item, property) and not hasattr(torch.Tensor, name):
                yield name, item

    def through(self, name: str) -> Through:
        """The properties that read and write an attribute."""
        read, written = set(), set()
        for shown, item in self.properties():
            for names, kinds, function in (
                (read, (LOADED, ADDED), item.fget),
                (written, (STORED,), item.fset),
            ):
                code = getattr(function, "__code__", None)
                if code and any(kind in kinds for kind, *_ in accesses(code, name, self.access)):
                    names.add(shown)
        return Through((), read, written)

    def functions_around(self) -> Iterator[types.FunctionType]:
        """Those of the classes around it."""
        return itertools.chain.from_iterable(map(methods_of, self.around))


class Some(Mapping):
    """Those of some names that a namespace has now."""

    def __init__(self, held: Mapping[str, Any], names: frozenset[str]):
        self.held, self.names = held, names

    def __getitem__(self, name: str) -> Any:
        return self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names.intersection(self.held))

    def __len__(self) -> int:
        return len(self.names.intersection(self.held))


class Closed(Mapping):
    """A variable of an outer function, as what is kept under its name."""

    def __init__(self, name: str, cell: types.CellType):
        self.name, self.cell = name, cell

    def __getitem__(self, name: str) -> Any:
        if name != self.name or not cell_contents(self.cell):
            raise KeyError(name)
        return self.cell.cell_contents

    def __iter__(self) -> Iterator[str]:
        return iter([self.name] if cell_contents(self.cell) else [])

    def __len__(self) -> int:
        return len(cell_contents(self.cell))


def holders_in(module: torch.nn.Module, reached: Sequence[types.FunctionType] = ()) -> list[Holder]:
    """A module, its submodules, and the plain objects among their attributes, as caches and their layers are, `DEPTH` in one another.

    *reached*: the functions that the model may call, in a list that a capture fills.
    """
    modules = {type(part): None for part in module.modules()}
    found = []
    for path, part in module.named_modules():
        others = tuple(kind for kind in modules if kind is not type(part))
        found.append(Holder(path, vars(part), (type(part),), around=others, reached=reached))
    return [*found, *objects_of(found, tuple(modules), reached)]


def objects_of(
    holders: Sequence[Holder], kinds: tuple[type, ...], reached: Sequence[types.FunctionType]
) -> list[Holder]:
    """The plain objects that holders keep, `DEPTH` in one another. *kinds*: other classes whose functions may read and write them."""
    seen = {holder.identity for holder in holders}
    found: list[Holder] = []
    level = holders
    for _ in range(DEPTH):
        inner = []
        for holder in level:
            for name, value in holder.attributes.items():
                for place, item in objects_in(holder.named(name), value):
                    if identity(item) not in seen:
                        held = Holder(place, attributes_of(item), (type(item), *kinds), reached=reached)
                        seen.add(identity(item))
                        inner.append(held)
        found, level = found + inner, inner
    return found


def objects_in(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The objects with attributes that a value is, or a container has, with their places."""
    kind = type(value)
    container = container_of(kind)
    if is_object(kind):
        yield place, value
    if container is None or count_of(value) > MANY:
        return
    contents = contents_of(value)
    items = contents.items() if isinstance(contents, dict) else enumerate(contents)
    for key, item in items:
        if container_of(type(item)) is None:
            yield from objects_in(f"{place}[{key!r}]", item)


def identity(value: Any) -> int:
    """What tells the attributes of one object from those of another one."""
    return id(own_attributes(value) if is_plain(type(value)) else value)


def holders_around(model: torch.nn.Module) -> list[Holder]:
    """The classes of a model, the globals, the variables of outer functions and the defaults that the functions which it calls may read or write.

    The objects among them, too. To be called where a capture begins, see `looked_into`.
    """
    owners, names = looked_into(model)
    functions = tuple(names)
    words = frozenset(name for own in names.values() for name in own if not name.startswith("__"))
    by_globals: dict[int, list[types.FunctionType]] = {}
    for function in functions:
        by_globals.setdefault(id(function.__globals__), []).append(function)
    found = []
    for owner in owners:
        kept = Some(vars(owner), words)
        if isinstance(owner, type):
            found.append(Holder(owner.__name__, kept, others=functions))
        elif id(vars(owner)) in by_globals:
            users = tuple(by_globals[id(vars(owner))])
            found.append(Holder("", kept, others=users, access="GLOBAL"))
    for function in functions:
        if vars(function):
            found.append(Holder(function.__name__, Some(vars(function), words), others=functions))
        if defaults := defaults_of(function):
            found.append(Holder("", defaults, others=(function,), access="FAST"))
    for each in outer_variables(functions):
        kept = Closed(each.name, each.cell)
        found.append(Holder("", kept, others=tuple(each.users), access="DEREF"))
    return [*found, *objects_of(found, (), functions)]


def defaults_of(function: types.FunctionType) -> dict[str, Any]:
    """The arguments that a function has another value for, with it."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    values = dict(zip(reversed(names), reversed(function.__defaults__ or ())))
    return {**values, **(function.__kwdefaults__ or {})}


def line_that_reads(holder: Holder, name: str) -> Source | None:
    """The first of `lines_that_read`, None where there is none."""
    return next(iter(lines_that_read(holder, name)), None)


def lines_that_read(holder: Holder, name: str) -> list[Source]:
    """The lines that read what is kept under a name, where what the call before has left there is read.

    None where all that read it do so in order to add to it, as counters that nobody asks are, or to tell it once, and where each function
    that writes it does that first.
    """
    through = holder.through(name)
    taken = taken_by(holder, name, through)
    names = [function.__name__ for function, steps in taken if only_writes(steps)]
    writers = frozenset(writer for writer in names if not begins(writer) and writer not in UNNAMED)
    if writers:
        through = through._replace(called=writers)
        taken = [(each, [*accesses(each.__code__, name, holder.access, through)]) for each, _ in taken]
    is_kept = any(
        steps[0][0] != STORED and STORED in (kind for kind, *_ in steps) for _, steps in taken if steps
    )
    lines = [source_at(code, line) for _, steps in taken for kind, code, line in steps if kind == LOADED]
    return [line for line in lines if not tells_once(*line[:2], name)] if is_kept else []


def taken_by(holder: Holder, name: str, through: Through) -> Taken:
    """What functions do with what is kept: those that may write it, or others with them, where one of them does."""

    def found(functions: Iterable[types.FunctionType]) -> Taken:
        return [(each, [*accesses(each.__code__, name, holder.access, through)]) for each in functions]

    own = found(holder.functions())
    if writes(own):
        return own
    around = [*own, *found(holder.functions_around())]
    if writes(around):
        return around
    by_text = [(each, [*accesses_by_text(each.__code__, name)]) for each in holder.functions()]
    return by_text if writes(by_text) else [*own, *found(holder.reached)]


def writes(taken: Taken) -> bool:
    """Whether a function writes what is kept, another one than those that begin."""
    return any(
        kind == STORED for function, steps in taken if not begins(function.__name__) for kind, *_ in steps
    )


def only_writes(steps: Sequence[Access]) -> bool:
    """Whether a function does nothing else with what is kept: whoever calls it writes."""
    return bool(steps) and all(kind == STORED for kind, *_ in steps)


def begins(name: str) -> bool:
    """Whether a function is called as one that empties what is kept."""
    return name.strip("_").startswith(BEGINNING)


def methods_of(kind: type) -> Iterator[types.FunctionType]:
    """The functions of the classes of a module, its constructors and torch's own left out, and those that dataclasses write."""
    for name, value in members_of(kind):
        if isinstance(value, types.FunctionType) and name != "__init__":
            function = inspect.unwrap(value)  # what is decorated may be another thing
            if isinstance(function, types.FunctionType) and not is_of_a_dataclass(function):
                yield function


def is_of_a_dataclass(function: types.FunctionType) -> bool:
    """Whether a dataclass or a named tuple has written a function: ``__repr__`` and ``__eq__`` read all that is kept."""
    return function.__code__.co_filename == "<string>" and function.__name__.startswith("__")


def members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """What the classes of a module define, torch's own left out, and what others of them override unless these ask for it: ``super().step()``."""
    first: list[type] = []
    for base in kind.__mro__:
        if base is torch.nn.Module:
            continue
        for name, value in vars(base).items():
            is_overridden = any(name in vars(other) for other in first)
            if not is_overridden or any(may_call(other, base, name) for other in first):
                yield name, value
        first.append(base)


def may_call(kind: type, base: type, name: str) -> bool:
    """Whether a class has a function that may call what one of its bases has under a name, as ``super().step()`` and ``Base.step(self)`` do."""
    owners = {"super", base.__name__}
    names = (words(function.__code__) for value in vars(kind).values() for function in functions_of(value))
    return any(name in each and not each.isdisjoint(owners) for each in names)


def accesses(code: types.CodeType, name: str, access: str, through: Through = ITSELF) -> Iterator[Access]:
    """How a function, and those in it, read and write what has a *name*, with the lines: `ADDED` is a read of ``self.count += 1``.

    ``getattr(self, "h", None)`` reads an attribute.
    """
    loads = ("LOAD_ATTR", "LOAD_METHOD") if access == "ATTR" else (f"LOAD_{access}",)
    store = f"STORE_{access}"
    stores = (store, f"DELETE_{access}")
    lines = dict(dis.findlinestarts(code))
    read, written = {name, *through.read}, {name, *through.written}
    steps, line, called = list(dis.get_instructions(code)), code.co_firstlineno, ""
    for position, step in enumerate(steps):
        line = lines.get(step.offset) or line
        is_call = step.opname in CALLING and step.argval in through.called
        if step.opname == "LOAD_GLOBAL":
            called = step.argval
        if (step.opname in stores and step.argval in written) or is_call:
            yield STORED, code, line
        elif step.opname == "LOAD_CONST" and step.argval == name and access == "ATTR" and called in GETTING:
            yield LOADED, code, line
        elif step.opname in loads and step.argval in read and not is_of_another(code, steps, position):
            is_added = (
                steps[position - 1].opname in COPIES if access == "ATTR" else adds(steps[position:], store)
            )
            yield ADDED if is_added else LOADED, code, line
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from accesses(part, name, access, through)


def is_of_another(code: types.CodeType, steps: Sequence[dis.Instruction], position: int) -> bool:
    """Whether a method of another thing is called, that has the name of what is kept: ``x.mean(1)`` and ``torch.mean(x)`` read no ``self.mean``."""
    step, before = steps[position], steps[position - 1]
    of_global = before.opname == "LOAD_GLOBAL" and "NULL" in before.argrepr.split()  # from Python 3.11 on
    is_method = step.opname == "LOAD_METHOD" or step.argrepr.startswith("NULL|self")  # from 3.12 on
    owners = (*code.co_varnames[: min(1, code.co_argcount)], "self")
    return of_global or (is_method and before.argval not in owners)


def adds(steps: Sequence[dis.Instruction], store: str) -> bool:
    """Whether a variable is loaded for ``count += 1``: what is stored there next is what an operator in place makes of it."""
    added = next((place for place, step in enumerate(steps) if is_in_place(step)), len(steps))
    loads = all(step.opname.startswith(("LOAD_", "CACHE")) for step in steps[:added])
    following = [step for step in steps[added + 1 :] if step.opname != "CACHE"][:1]
    return loads and any(step.opname == store and step.argval == steps[0].argval for step in following)


def is_in_place(step: dis.Instruction) -> bool:
    """Whether a step is ``+=`` or another operator in place; before Python 3.11 each has a name of its own."""
    return step.opname.startswith("INPLACE_") or (step.opname == "BINARY_OP" and step.argrepr.endswith("="))


def accesses_by_text(code: types.CodeType, name: str) -> Iterator[Access]:
    """How a function, and those in it, read and write an attribute whose name is a text: ``self.__dict__["h"] = h``, ``setattr(self, "h", h)``.

    ``setattr`` writes at the end of its statement.
    """
    lines = dict(dis.findlinestarts(code))
    steps, line = list(dis.get_instructions(code)), code.co_firstlineno
    called, is_pending = "", False
    for position, step in enumerate(steps):
        line = lines.get(step.offset) or line
        if step.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"):
            if step.argval == name and not is_of_another(code, steps, position):
                yield LOADED, code, line
            called = step.argval
        elif step.opname == "LOAD_CONST" and step.argval == name:
            is_stored = steps[position + 1].opname == "STORE_SUBSCR"
            is_pending |= called in SETTING
            if is_stored or called not in SETTING:
                yield STORED if is_stored else LOADED, code, line
        elif step.opname == "POP_TOP" and is_pending:
            yield STORED, code, line
            is_pending = False
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from accesses_by_text(part, name)


def tells_once(file: str, line: int, name: str) -> bool:
    """Whether a line asks what is kept in order to tell something once: ``if not warned: warnings.warn("..."); warned = True``."""
    return any(
        isinstance(node, ast.If)
        and node.test.lineno <= line <= (node.test.end_lineno or line)
        and not node.orelse
        and any(map(is_note, node.body))
        and all(is_note(statement) or notes_it(statement, name) for statement in node.body)
        for node in nodes_of("".join(linecache.getlines(file)))
    )


def notes_it(statement: ast.stmt, name: str) -> bool:
    """Whether a statement writes a constant under a name."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    is_it = [getattr(target, "id", getattr(target, "attr", None)) == name for target in targets]
    return bool(is_it) and all(is_it) and isinstance(statement.value, ast.Constant)
