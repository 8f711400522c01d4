"""Branches that the data decide: where torch.export refuses one, the ``if`` becomes a ``torch.cond``, and the model is captured again.

A statement ``if c: x = f(x)``, one that returns, and ``a if c else b`` are rewritten, in the source of their function. What torch.cond
refuses, a branch that writes or gives another shape than the other one, stays refused as it was.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib
import inspect
import os
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.frames import TORCH, is_library_code
from experimental_experiment.torch_interpreter.patches.choices import ALL, ANY, CHOOSE, NOT, with_choices
from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped
from experimental_experiment.torch_interpreter.patches.whole_numbers import held_by, reached
from experimental_experiment.torch_interpreter.torch_state import forget_marks
from experimental_experiment.torch_interpreter.writes import storages, written_nodes

EXPORT = "torch.export._trace._export"

MOST = 32
"""Branches that are rewritten for one model, at most."""

FAILURES = (AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)
"""What torch raises for a branch that it cannot follow."""


@patch("torch", replaces=(EXPORT, "if, in the functions that are refused"), by_name=True)
def branches_of_data() -> Iterator[None]:
    """``if (x < 0).any(): x = x.sigmoid()`` is refused: it becomes a torch.cond, unless a branch writes or returns another shape.

    The model is captured once more for each such line.
    """
    for name, function in {CHOOSE: choose, NOT: negated, ALL: all_of, ANY: any_of}.items():
        setattr(builtins, name, function)  # they stay: another thread may be inside of such a function
    importlib.import_module(EXPORT.rpartition(".")[0])
    with wrapped({EXPORT: again_without_branches}):
        yield


def again_without_branches(capture: Callable) -> Callable:
    """*capture* that is called again for each branch that it refuses and that can be rewritten."""

    signature = inspect.signature(capture)

    @functools.wraps(capture)
    def called(*args: Any, **kwargs: Any) -> Any:
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        model, *_ = signature.bind(*args, **kwargs).args
        refused, asked = None, {}
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    program = capture(*args, **kwargs)
                except (GuardOnDataDependentSymNode, DataDependentOutputException) as error:
                    if not rewrite(error, model, asked, stack):
                        raise
                    refused = error
                    branches_of_data.used()
                    forget_marks((args, kwargs))
                except FAILURES as error:
                    if refused is None or not (is_of_cond(error) or isinstance(error, NameError)):
                        raise
                    raise refused from error  # as if it had not been tried
                else:
                    if refused is not None and writes_to_results(program.graph_module):
                        raise refused
                    return program

    return called


def writes_to_results(module: torch.fx.GraphModule) -> bool:
    """Whether a program writes to what a torch.cond gave or was given: it gives copies, where the branch of Python may give a tensor itself.

    What is written later, to either of them, by an operator or by another torch.cond, would be seen in the other one.
    """
    for part in module.modules():
        shared: set[int | None] = set()
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            written = stored(written_nodes(node)) if node.op == "call_function" else set()
            if not shared.isdisjoint(written):
                return True
            if node.target is torch.ops.higher_order.cond:
                shared |= stored([node, *node.args[3]])
    return False


def stored(arguments: Iterable[Any]) -> set[int | None]:
    """The storages of the tensors among the arguments of a node."""
    nodes = [argument for argument in arguments if isinstance(argument, torch.fx.Node)]
    return {storage for node in nodes for storage in storages(node.meta.get("val"))} - {None}


def is_of_cond(error: BaseException) -> bool:
    """Whether an error comes from a torch.cond."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    return os.path.join(TORCH, "_higher_order_ops", "cond.py") in files


def asking_line(error: BaseException) -> tuple[types.CodeType, int] | None:
    """The code and the line of the model that asked for the truth of data."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = [place for place in frames if not is_library_code(place[0])]
    return found[-1] if found else None


# ---- what is called


def is_data(value: Any) -> bool:
    """Whether the data decide a truth."""
    if isinstance(value, torch.SymBool):
        return not value.node.expr.free_symbols <= set(value.node.shape_env.var_to_sources)
    if not isinstance(value, FakeTensor) or value.constant is not None:
        return False
    return all(isinstance(size, int) and size == 1 for size in value.shape)


def truth(value: Any) -> Any:
    """The truth of data as torch.cond takes it."""
    if isinstance(value, torch.SymBool):
        return value
    value = value.reshape(())
    return value if value.dtype == torch.bool else value != 0


def choose(condition: Any, then: Callable, otherwise: Callable, *values: Any) -> Any:
    """What one of two functions gives for values."""
    if not is_data(condition):
        return then(*values) if condition else otherwise(*values)
    return torch.cond(truth(condition), of_its_own(then, values), of_its_own(otherwise, values), ())


def of_its_own(branch: Callable, values: tuple) -> Callable:
    """A branch that returns copies, none of its inputs."""

    def called() -> Any:
        return pytree.tree_map_only(torch.Tensor, torch.clone, branch(*values))

    return called


def negated(value: Any) -> Any:
    """``not value``."""
    if not is_data(value):
        return not value
    return torch.sym_not(value) if isinstance(value, torch.SymBool) else ~truth(value)


def all_of(*parts: Callable) -> Any:
    """``a and b`` of what is asked for one after the other."""
    return joined(parts, torch.logical_and, lambda value: not value)


def any_of(*parts: Callable) -> Any:
    """``a or b``."""
    return joined(parts, torch.logical_or, bool)


def joined(parts: Iterable[Callable], join: Callable, ends: Callable) -> Any:
    """The truth of several, all of those that data decide joined."""
    data, value = None, None
    for part in parts:
        value = part()
        if is_data(value):
            found = truth(value)
            found = (
                torch.scalar_tensor(found, dtype=torch.bool) if isinstance(found, torch.SymBool) else found
            )
            data = found if data is None else join(data, found)
        elif ends(value):
            return value
    return value if data is None else data


# ---- the functions

Lines = dict[tuple, set[int]]
"""The lines of each function that ask for the truth of data."""


def rewrite(error: BaseException, model: torch.nn.Module, asked: Lines, stack: contextlib.ExitStack) -> bool:
    """Let the function of a model that an error comes from choose in its line, until *stack* is closed; whether that can be written."""
    place = asking_line(error)
    if place is None:
        return False
    code, line = place
    lines = asked.setdefault(identity(code), set())
    if line in lines or sum(map(len, asked.values())) == MOST:
        return False
    lines.add(line)
    written = with_choices(code, lines)
    if written is None:
        return False
    known = [value for value in gc.get_objects() if type(value) is types.FunctionType]
    known.extend(reached(*held_by(model)))  # after gc.freeze the collector does not list what was there
    functions = dict.fromkeys(value for value in known if identity(value.__code__) == identity(code))
    for function in functions:
        stack.callback(setattr, function, "__code__", function.__code__)
        function.__code__ = written
    return bool(functions)


def identity(code: types.CodeType) -> tuple:
    """What the codes of one function have in common, other names called or branches rewritten."""
    return code.co_filename, code.co_firstlineno, code.co_name, code.co_freevars
