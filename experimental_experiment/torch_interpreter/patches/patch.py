"""A patch: what torch or transformers does while a model is captured, replaced for a while and put back.

A patch is a generator registered with `@patch`: it replaces something, yields, puts it back. It is applied when the first of
those who want it enters, in whatever thread, and undone when the last one leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

from experimental_experiment.logs import logger
from experimental_experiment.versions import numbers

PATCHES: dict[str, Patch] = {}
"""All patches by name."""

SETS = ("torch", "torchvision", "transformers")
"""The packages that are patched."""

Convert = Callable[[Any], Any]
"""A function of one value of the inputs, no container of Python's own: what torch.export takes in its place."""

LOCK = threading.RLock()
MISSING = object()


@dataclasses.dataclass(eq=False)
class Patch:
    """One problem of a capture and what removes it.

    Attributes:
        name: what it is asked for by.
        problem: what torch.export does without it, in one sentence.
        set: the package that is patched, one of `SETS`.
        replaces: the qualified names of what is replaced, or what is registered.
        since: the first version of the package that needs it, ``""`` for all before *until*.
        until: the first version of the package that no longer needs it, ``""`` when there is none.
        default: whether `to_onnx` applies it unasked: it turns a refusal, or a constant of the example, into an export that is right.
        by_name: whether it is applied only when it is named: it assumes something of the model that nothing checks.
        apply: a context manager that replaces and puts back; it yields None, or a function that converts inputs.
    """

    name: str
    problem: str
    set: str
    replaces: tuple[str, ...]
    since: str
    until: str
    default: bool
    by_name: bool
    apply: Callable[[], contextlib.AbstractContextManager[Convert | None]]
    users: int = 0
    uses: int = 0
    applied: contextlib.ExitStack | None = None
    convert: Convert | None = None

    @property
    def versions(self) -> str:
        """The versions that need it, as ``transformers >= 5.0, < 5.3``."""
        bounds = [f"{sign} {bound}" for sign, bound in ((">=", self.since), ("<", self.until)) if bound]
        return f"{self.set} {', '.join(bounds)}".strip()

    def reason_to_skip(self) -> str:
        """Why what is installed and imported does not need it, ``""`` when it does."""
        if self.set not in sys.modules:
            return f"{self.set} is not imported"
        installed = sys.modules[self.set].__version__
        if self.since and numbers(installed) < numbers(self.since):
            return f"{self.set} {installed} is older than {self.since}"
        if self.until and numbers(installed) >= numbers(self.until):
            return f"{self.set} {installed} does not need it"
        return ""

    def used(self) -> None:
        """Say that what it replaces was called: `applied` logs it. Not while TorchDynamo looks into it, which follows no lock."""
        if not torch.compiler.is_dynamo_compiling():
            with LOCK:
                self.uses += 1

    def is_used_for(self, *sizes: Any) -> bool:
        """Whether one of these numbers is a symbol; says that the patch is used when it is."""
        found = any(isinstance(size, (torch.SymInt, torch.SymFloat)) for size in sizes)
        if found:
            self.used()
        return found

    def enter(self) -> None:
        """Apply it, unless it is."""
        with LOCK:
            know_functions()
            if self.users == 0:
                stack = contextlib.ExitStack()
                self.convert = stack.enter_context(self.apply())
                self.applied = stack
            self.users += 1

    def leave(self) -> None:
        """Undo it, unless somebody else still wants it."""
        with LOCK:
            self.users -= 1
            if self.users == 0:
                stack, self.applied, self.convert = self.applied, None, None
                stack.close()


class Patches(tuple):
    """Patches; printed, they are a table."""

    def __str__(self) -> str:
        return "\n".join(table(self))


def patch(
    set: str,
    replaces: tuple[str, ...],
    since: str = "",
    until: str = "",
    default: bool = False,
    by_name: bool = False,
) -> Callable[[Callable[[], Iterator[Convert | None]]], Patch]:
    """Register a generator, which replaces, yields and puts back, as the patch of its name.

    The first paragraph of its docstring is the problem. See `Patch` for the arguments.
    """
    if set not in SETS:
        raise ValueError(f"the patches are those of {', '.join(SETS)}, not of {set!r}")

    def register(function: Callable[[], Iterator[Convert | None]]) -> Patch:
        name = function.__name__
        if name in PATCHES:
            raise ValueError(f"there are two patches {name!r}")
        problem = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        if not problem:
            raise ValueError(f"the docstring of {name} says which problem it removes")
        apply = contextlib.contextmanager(function)
        PATCHES[name] = Patch(name, problem, set, tuple(replaces), since, until, default, by_name, apply)
        return PATCHES[name]

    return register


def selected(wanted: bool | Collection[str] | None, among: Collection[str] = SETS) -> list[Patch]:
    """The patches that *wanted* means: None those that are on by default, False none, names those and the default ones.

    True means all but those that only their names ask for.

    *among*: only those of these sets. Raises TypeError or ValueError when *wanted* is no such thing.
    """
    if not (wanted is None or isinstance(wanted, bool)):
        check_names(wanted, among)
    return [
        item
        for item in PATCHES.values()
        if item.set in among
        and wanted is not False
        and (item.default or (not item.by_name if wanted is True else item.name in (wanted or ())))
    ]


def check_names(wanted: Any, among: Collection[str]) -> None:
    """Raise TypeError or ValueError when *wanted* is not a collection of names of patches of these sets."""
    if isinstance(wanted, str) or not isinstance(wanted, Collection):
        raise TypeError(f"patches is True, False, None or a collection of names, not {wanted!r}")
    names = sorted(item.name for item in PATCHES.values() if item.set in among)
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            raise ValueError(f"there is no patch {name!r} of {', '.join(among)}: {hint}")


@contextlib.contextmanager
def applied(patches: Collection[Patch]) -> Iterator[Convert]:
    """Apply patches for a while; what is yielded converts inputs, in containers of any depth.

    Patches that the installed versions do not need are skipped and say so at DEBUG; those that were used are logged at the end.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(log_uses)
        active = []
        for item in patches:
            reason = item.reason_to_skip()
            if reason:
                logger.debug("patch %s is skipped: %s", item.name, reason)
                continue
            item.enter()
            stack.callback(item.leave)
            active.append(item)
        yield lambda inputs: converted(inputs, [item.convert for item in active if item.convert is not None])


def used_patches() -> list[str]:
    """The names of the patches that were used since they were logged last."""
    return [item.name for item in PATCHES.values() if item.uses]


def log_uses() -> None:
    """Name the patches that were used since the last time, with the problem that each removed."""
    with LOCK:
        for item in PATCHES.values():
            if item.uses:
                item.uses = 0
                logger.info("patch %s was used: %s", item.name, item.problem)


def converted(inputs: Any, functions: Collection[Convert]) -> Any:
    """*inputs* with every value that is no container of Python's own replaced by what the functions make of it."""
    if type(inputs) in (list, tuple):
        return type(inputs)(converted(item, functions) for item in inputs)
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*(converted(item, functions) for item in inputs))
    if isinstance(inputs, dict) and type(inputs).__module__ in ("builtins", "collections"):
        result = inputs.copy()
        for key, item in inputs.items():
            result[key] = converted(item, functions)
        return result
    for function in functions:
        inputs = function(inputs)
    return inputs


@functools.cache
def know_functions() -> None:
    """Let torch find its own functions before one is replaced: it remembers which ones ``torch.device`` and TorchDynamo know."""
    importlib.import_module("torch.utils._device")._device_constructors()
    importlib.import_module("torch._dynamo.trace_rules")


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[Any]:
    """Set an attribute of a module, a class or an object for a while; yields what stood there, None where nothing did.

    TorchScript takes a function in the place of one of torch for the operator that this is.
    """
    own = vars(owner).get(name, MISSING)
    before = getattr(owner, name, None)
    operators = torch.jit._builtins._get_builtin_table()
    operator = operators.get(id(before))
    is_other = operator is not None and id(value) not in operators
    setattr(owner, name, value)
    if is_other:
        operators[id(value)] = operator
    try:
        yield before
    finally:
        if is_other:
            del operators[id(value)]
        if own is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextlib.contextmanager
def wrapped(wrappers: Mapping[str, Callable[[Callable], Any]]) -> Iterator[None]:
    """Replace functions and methods, ``module.function`` and ``module.Class.method``, by ``wrapper(original)`` for a while.

    Those whose module is not imported stay away. Raises AttributeError when a module or a class that is there has no such member.
    """
    with contextlib.ExitStack() as stack:
        for path, wrapper in wrappers.items():
            owner, name = owner_of(path), path.rpartition(".")[-1]
            if owner is not None:
                stack.enter_context(replaced(owner, name, wrapper(getattr(owner, name))))
        yield


def owner_of(path: str) -> Any:
    """The module, or the class in a module, of ``module.function`` or ``module.Class.method``; None when it is not imported."""
    owner = path.rpartition(".")[0]
    module, _, name = owner.rpartition(".")
    if owner in sys.modules:
        return sys.modules[owner]
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


@contextlib.contextmanager
def replaced_everywhere(module: str, name: str, wrap: Callable[[Callable], Callable]) -> Iterator[None]:
    """Replace a function of a module, where that is imported, by ``wrap(function)`` for a while, also in the modules that import it by its name."""
    original = getattr(sys.modules.get(module), name, None)
    with contextlib.ExitStack() as stack:
        if original is not None:
            replacement = wrap(original)
            # another patch may have wrapped it before
            holders = (*importers(name, original), *importers(name, inspect.unwrap(original)))
            for holder in dict.fromkeys((sys.modules[module], *holders)):
                stack.enter_context(replaced(holder, name, replacement))
        yield


def importers(name: str, original: Callable) -> list[ModuleType]:
    """The modules, but torch's, that hold a function under its own name, as a model's file that imports it does."""
    known, _ = importers_among(tuple(map(id, sys.modules.values())), name, original)
    # a notebook may import it at any time, and what imported it may have another one by now
    modules = dict.fromkeys([*known, sys.modules["__main__"]])
    return [module for module in modules if vars(module).get(name) is original]


@functools.lru_cache(maxsize=16)
def importers_among(
    modules: tuple[int, ...], name: str, original: Callable
) -> tuple[list[ModuleType], list[Any]]:
    """Those of the modules that are imported now, and all: *modules* by their identity, thousands, and hardly ever others than last time.

    All of them are held as long as the answer is: no module that is imported later has the identity of one of them.
    """
    holders = [
        module
        for path, module in list(sys.modules.items())
        if not path.startswith("torch.")
        and isinstance(module, ModuleType)
        and vars(module).get(name) is original
    ]
    return holders, list(sys.modules.values())


def entry(stack: contextlib.ExitStack, entries: dict, key: Any, value: Any) -> None:
    """Replace or add an entry of a dict until *stack* is closed."""
    if key in entries:
        stack.callback(entries.__setitem__, key, entries[key])
    else:
        stack.callback(entries.pop, key)
    entries[key] = value


# ---- what is shown


def table(patches: Collection[Patch]) -> list[str]:
    """The lines of a table of patches, in markdown."""
    lines = ["| patch | without it | versions | replaces | default |", "|---|---|---|---|---|"]
    for item in sorted(patches, key=lambda item: (item.set, item.name)):
        replaces = ", ".join(f"`{name}`" for name in item.replaces)
        applied_when = "yes" if item.default else "by its name only" if item.by_name else ""
        problem = item.problem.replace("|", "\\|")
        lines.append(f"| {item.name} | {problem} | {item.versions} | {replaces} | {applied_when} |")
    return lines


def markdown() -> str:
    """``docs/patches.md``."""
    lines = [
        "# Patches",
        "",
        "Generated by `python -m experimental_experiment patches`; a test keeps it current.",
        "",
        "torch.export refuses some models for reasons that are not the model's. A patch replaces, while the model is captured, what",
        "refuses; everything is put back afterwards. Those of the column default turn a refusal, or a number of the example that the",
        "program would hold, into an export that is right, and are on in",
        "every `to_onnx`; `ExportOptions(patches=True)` asks for all but those that",
        'assume something of the model, `patches={"name"}` for some more by name, `patches=False` for none. To call',
        "torch.export oneself, or to convert inputs:",
        "",
        "```python",
        "from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors",
        "",
        "with bypass_export_some_errors(patch_transformers=True) as modificator:",
        "    inputs = modificator(inputs)",
        "    program = torch.export.export(model, inputs)",
        "```",
        "",
        "A log line (INFO) names each patch that was used, another one (DEBUG) those that the installed versions do not need.",
        "",
    ]
    return "\n".join([*lines, *table(PATCHES.values())]) + "\n"
