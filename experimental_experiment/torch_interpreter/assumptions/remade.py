"""Branches that do nothing but make again what a model keeps: tables, when sizes or a flag are others than those of the last call.

The next call has what this one has made, so that such a branch may as well be taken again.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from experimental_experiment.torch_interpreter.assumptions.holders import begins
from experimental_experiment.torch_interpreter.errors import Source
from experimental_experiment.torch_interpreter.frames import nodes_of

Function = ast.FunctionDef | ast.AsyncFunctionDef


def only_remakes(lines: Sequence[Source], name: str) -> bool:
    """Whether lines that read an attribute do so in conditions that decide whether something that is kept is made again, or in order to make it."""
    return bool(lines) and all(
        line in remaking("".join(linecache.getlines(file)), name) for file, line, *_ in lines
    )


def is_set_there(lines: Sequence[Source], name: str, buffers: Collection[str]) -> bool:
    """Whether nothing but the branches of such conditions writes an attribute: where it is another one by now, the captured call has taken one.

    They write no *buffers* either, which the next call may be given, and call nothing that might.
    """
    return all(
        is_set_in_branches("".join(linecache.getlines(file)), line, name, frozenset(buffers))
        for file, line, *_ in lines
    )


@functools.lru_cache(maxsize=64)
def is_set_in_branches(source: str, line: int, name: str, buffers: frozenset[str]) -> bool:
    """Whether the class in a line writes an attribute in no place but in branches that make something again, and whose conditions read it.

    Functions that begin, as the constructor, may write it.
    """
    functions, methods = functions_in(source)
    kinds = [node for node in nodes_of(source) if isinstance(node, ast.ClassDef) and line in lines_of(node)]
    own = [node for kind in kinds for node in ast.walk(kind) if isinstance(node, Function)] or functions
    branches = [
        branch
        for function in own
        for branch in ast.walk(function)
        if isinstance(branch, ast.If) and asks_for(branch.test, name) and remakes(branch, function, methods)
    ]
    branches = [branch for branch in branches if not any(map(function_of, statements_in(branch)))]
    inside = [node for branch in branches for node in written_in(branch)]
    written = [node for function in own if not begins(function.name) for node in written_in(function)]
    return all(node in inside for node in written if node.attr == name) and not any(
        node.attr in buffers for node in inside
    )


def written_in(part: ast.AST) -> list[ast.Attribute]:
    """The attributes that a function or a branch writes."""
    attributes = [node for node in ast.walk(part) if isinstance(node, ast.Attribute)]
    return [node for node in attributes if not isinstance(node.ctx, ast.Load)]


def statements_in(part: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function or a branch."""
    return (node for node in ast.walk(part) if isinstance(node, ast.stmt))


def asks_for(test: ast.expr, name: str) -> bool:
    """Whether a condition reads an attribute."""
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(test))


def functions_in(source: str) -> tuple[list[Function], dict[str, list[Function]]]:
    """The functions of a file, and the same by their names."""
    functions = [node for node in nodes_of(source) if isinstance(node, Function)]
    methods: dict[str, list[Function]] = {}
    for function in functions:
        methods.setdefault(function.name, []).append(function)
    return functions, methods


@functools.lru_cache(maxsize=64)
def remaking(source: str, name: str) -> frozenset[int]:
    """The lines of such conditions in a file, and those behind them that read what an attribute has become."""
    functions, methods = functions_in(source)
    found: set[int] = set()
    for function in functions:
        for node in ast.walk(function):
            if not isinstance(node, ast.If):
                continue
            if remakes(node, function, methods):
                called = [each.body for statement in node.body for each in called_by(statement, methods)]
                bodies = [node.body, *called]
            elif returns_it(node, function):
                bodies = [function.body[function.body.index(node) + 1 :]]
            else:
                continue
            found.update(lines_of(node.test))
            for body in bodies:
                found.update(*map(lines_of, behind(body, name)))
    return frozenset(found)


def lines_of(node: ast.stmt | ast.expr) -> range:
    """The lines of a statement or an expression."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def behind(body: Sequence[ast.stmt], name: str) -> Iterator[ast.stmt]:
    """The statements behind the one that writes an attribute."""
    statements = iter(body)
    for statement in statements:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(getattr(part, "attr", None) == name for target in targets for part in parts_of(target)):
            yield from statements


def remakes(branch: ast.If, function: Function, methods: Mapping[str, list[Function]]) -> bool:
    """Whether a branch keeps values in attributes, has variables that nobody reads beyond it, and does nothing else.

    A method that it calls, ``self.build(x.shape)``, is one of the file, and does nothing else either.
    """
    inside = {id(node) for statement in branch.body for node in ast.walk(statement)}
    outside = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside
    }
    return not branch.orelse and all(keeps(each, outside, methods) for each in branch.body)


def returns_it(branch: ast.If, function: Function) -> bool:
    """Whether a branch returns what the function, at its end, returns in any case, attributes: ``if self.size == size: return self.table``."""
    first, last = branch.body[0], function.body[-1]
    return (
        not branch.orelse
        and branch in function.body
        and isinstance(first, ast.Return)
        and isinstance(last, ast.Return)
        and first.value is not None
        and ast.dump(first.value) == ast.dump(last.value or first)
        and all(is_attribute(part) for part in parts_of(first.value))
    )


def keeps(statement: ast.stmt, outside: set[str], methods: Mapping[str, list[Function]]) -> bool:
    """Whether a statement writes attributes, or variables that are not read *outside*."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        parts = [part for target in targets for part in parts_of(target)]
        are_kept = all(is_attribute(part) or is_variable(part, outside) for part in parts)
        return are_kept and not any(map(writes_in_place, ast.walk(statement)))
    if isinstance(statement, (ast.With, ast.For)):
        return all(keeps(each, outside, methods) for each in statement.body)
    if isinstance(statement, ast.If):
        return all(keeps(each, outside, methods) for each in (*statement.body, *statement.orelse))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True  # a docstring
    if is_attribute(function := function_of(statement)) and function.attr == "register_buffer":
        return True
    called = called_by(statement, methods)
    names = {function.name for function in called}
    others = {name: functions for name, functions in methods.items() if name not in names}
    return bool(called) and all(keeps(each, set(), others) for function in called for each in function.body)


def called_by(statement: ast.stmt, methods: Mapping[str, list[Function]]) -> list[Function]:
    """The methods that a statement may call which does nothing else: ``self.build(x)``."""
    called = function_of(statement)
    return methods.get(called.attr, []) if is_attribute(called) else []


def function_of(statement: ast.stmt) -> ast.expr | None:
    """What a statement calls that does nothing else."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return statement.value.func if is_call else None


def writes_in_place(node: ast.AST) -> bool:
    """Whether a tensor is written: ``x.mul_(2)``."""
    name = getattr(getattr(node, "func", None), "attr", "")
    return name.endswith("_") and not name.endswith("__")


def is_variable(node: ast.expr, outside: set[str]) -> bool:
    """Whether an expression is a variable that is not read *outside*."""
    return isinstance(node, ast.Name) and node.id not in outside


def parts_of(target: ast.expr) -> Iterator[ast.expr]:
    """What a tuple has, or the expression itself."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from parts_of(part)
    else:
        yield target


def is_attribute(node: Any) -> TypeGuard[ast.Attribute]:
    """Whether an expression is an attribute of a variable: ``self.table``."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
