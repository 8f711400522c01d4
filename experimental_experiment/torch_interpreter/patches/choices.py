"""The source of functions whose branches are choices: an ``if`` calls a function with both sides, ``not``, ``and`` and ``or`` call others.

`branches` holds what is called, and says in which lines.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Iterable, Iterator

import torch

from experimental_experiment.torch_interpreter.frames import tree_of
from experimental_experiment.torch_interpreter.patches.whole_numbers import NAMES, with_symbols

CHOOSE, NOT, ALL, ANY = "_branch of data", "_not of data", "_and of data", "_or of data"
"""What the functions call in the place of ``if``, ``not``, ``and`` and ``or``: no names of Python, which nothing can shadow."""


def with_choices(code: types.CodeType, lines: set[int]) -> types.CodeType | None:
    """The code of a function whose branches in some lines are choices, None when it cannot be written so."""
    tree = copy.deepcopy(tree_of(code))
    if tree is None:
        return None
    function = tree.body[0]
    if len(tree.body) != 1 or not isinstance(function, ast.FunctionDef):
        return None
    if any(is_private(node) for node in ast.walk(function)):
        return None
    rewriter = Rewriter(function, lines)
    function.body = rewriter.block(function.body, is_tail=True)
    if rewriter.left:
        return None
    function.decorator_list = []
    tree.body = [defined("outer", code.co_freevars, [function])]
    outer = compile(ast.fix_missing_locations(tree), code.co_filename, "exec").co_consts[0]
    written = next(part for part in outer.co_consts if isinstance(part, types.CodeType))
    if written.co_freevars != code.co_freevars:
        return None
    for name in NAMES:
        written = with_symbols(written, code.co_filename, name)
    return written.replace(co_firstlineno=code.co_firstlineno)


def only_notes(code: types.CodeType, line: int) -> bool:
    """Whether the condition in a line of a function is that of an ``if`` that does nothing but warn, log or print."""
    tree = tree_of(code)
    if tree is None:
        return False
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If) and not node.orelse]
    return any(
        node.lineno <= line <= (node.test.end_lineno or node.lineno)
        and is_rewritten(node.test)
        and all(map(is_note, node.body))
        for node in branches
    )


def is_private(node: ast.AST) -> bool:
    """Whether a name is one that its class changes."""
    name = getattr(node, "attr", None) or getattr(node, "id", None) or ""
    return name.startswith("__") and not name.endswith("__")


def defined(name: str, parameters: Iterable[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """``def name(*parameters): body``."""
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=parameter) for parameter in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    return ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[], type_params=[])


def called(name: str, *arguments: ast.expr) -> ast.Call:
    """``name(*arguments)``."""
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(arguments), keywords=[])


def thunk(value: ast.expr) -> ast.Lambda:
    """``lambda: value``."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=nothing, body=value)


def names_of(names: Iterable[str], context: ast.expr_context) -> ast.Tuple:
    """``(names,)``."""
    return ast.Tuple(elts=[ast.Name(id=name, ctx=context) for name in names], ctx=context)


REFUSED = (
    ast.AsyncFor,
    ast.AsyncWith,
    ast.Await,
    ast.Delete,
    ast.Global,
    ast.Import,
    ast.ImportFrom,
    ast.NamedExpr,
    ast.Nonlocal,
    ast.Raise,
    ast.Try,
    ast.Yield,
    ast.YieldFrom,
)
"""What no branch and no condition has that is rewritten."""


TELLERS = ("log", "logger", "logging", "warnings")
"""What warns or logs is called, underscores around it left out."""

LEVELS = ("critical", "debug", "error", "exception", "info", "log", "warn", "warning", "warning_once")
"""The methods by which it does."""

NOTES = ("print", "rank_zero_debug", "rank_zero_info", "rank_zero_warn", "warn", "warn_once")
"""Functions that only print, log or warn, those of Lightning and torchmetrics too."""


class Rewriter:
    """Writes the branches of some lines of a function as choices.

    Attributes:
        stored: the names that the function binds, with the line where it does first.
        shared: the names that functions inside of it, or others, read or bind: they see the variable, not what a branch is given.
        left: the lines that are not rewritten yet.
        places: where the statements and the names stand, before anything is rewritten.
    """

    def __init__(self, function: ast.FunctionDef, lines: set[int]):
        self.left = set(lines)
        self.places = dict(places_of(function.body))
        inner = (ast.FunctionDef, ast.Lambda, ast.GeneratorExp, ast.ClassDef)
        parts = [node for node in ast.walk(function) if isinstance(node, inner) and node is not function]
        nodes = [node for part in parts for node in ast.walk(part)]
        self.shared = {node.id for node in nodes if isinstance(node, ast.Name)}
        self.shared.update(
            name
            for node in (*nodes, *ast.walk(function))
            if isinstance(node, (ast.Global, ast.Nonlocal))
            for name in node.names
        )
        self.stored = {
            argument.arg: 0 for argument in ast.walk(function.args) if isinstance(argument, ast.arg)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.stored[node.id] = min(node.lineno, self.stored.get(node.id, node.lineno))

    def block(self, statements: list[ast.stmt], is_tail: bool) -> list[ast.stmt]:
        """The statements of a block; *is_tail*: whether the function ends with it."""
        found: list[ast.stmt] = []
        for place, statement in enumerate(statements):
            rest = statements[place + 1 :]
            if isinstance(statement, ast.If) and self.is_asked(statement.test, statement.lineno):
                return [*found, *self.choice(statement, rest, is_tail)]
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(statement, field, None)
                if isinstance(inner, list) and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                    ends = is_tail and not rest and isinstance(statement, ast.If)
                    setattr(statement, field, self.block(inner, ends))
            found.append(Expressions(self).visit(statement) if self.left else statement)
        return found

    def is_asked(self, test: ast.expr, first: int | None = None) -> bool:
        """Whether a condition, or the ``if`` in the line *first* before it, stands in one of the lines."""
        return not self.left.isdisjoint(range(first or test.lineno, (test.end_lineno or test.lineno) + 1))

    def written(self, test: ast.expr, first: int | None = None) -> None:
        """Note that a condition is rewritten."""
        self.left -= set(range(first or test.lineno, (test.end_lineno or test.lineno) + 1))

    def choice(self, statement: ast.If, rest: list[ast.stmt], is_tail: bool) -> list[ast.stmt]:
        """What stands in the place of an ``if`` and of what follows it; both as they are when that cannot be written."""
        sides = [[part for part in side if not is_note(part)] for side in (statement.body, statement.orelse)]
        returns = [
            any(isinstance(node, ast.Return) for part in side for node in ast.walk(part)) for side in sides
        ]
        if any(returns):
            sides = [side if ends_with_return(side) else [*side, *rest] for side in sides]
        nodes = [node for side in sides for part in side for node in ast.walk(part)]
        is_refused = any(
            isinstance(node, REFUSED) or (isinstance(node, ast.Name) and node.id == "super") for node in nodes
        )
        if is_refused or not is_rewritten(statement.test):
            return [statement, *rest]
        bound = [set(bindings(side)) for side in sides]
        if self.shared & (bound[0] | bound[1]):
            return [statement, *rest]
        if not any(returns):
            passing = {name for name in bound[0] | bound[1] if self.is_passing(statement, sides, name)}
            bound = [names - passing for names in bound]
        before = sorted(
            name
            for name in bound[0] | bound[1]
            if self.stored[name] < statement.lineno
            and any(needs(side, name, is_given=not any(returns)) for side in sides)
        )
        if any(returns):
            if not is_tail or not all(map(ends_with_return, sides)):
                return [statement, *rest]
            self.written(statement.test, statement.lineno)
            return self.functions(statement, sides, before, ast.Return, [])
        if not any(sides):
            self.written(statement.test, statement.lineno)
            asked = ast.copy_location(ast.Expr(condition(statement.test)), statement)
            return [asked, *self.block(rest, is_tail)]
        names = sorted(bound[0] | bound[1])
        if any(
            not isinstance(part, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.Pass))
            for side in sides
            for part in side
        ):
            return [statement, *rest]
        if not names or set(names) - set(before) - (bound[0] & bound[1]):
            return [statement, *rest]
        self.written(statement.test, statement.lineno)
        result = ast.Return(value=names_of(names, ast.Load()))
        sides = [[*side, result] for side in sides]
        chosen = self.functions(statement, sides, before, ast.Assign, names)
        return [*chosen, *self.block(rest, is_tail)]

    def is_passing(self, statement: ast.If, sides: list[list[ast.stmt]], name: str) -> bool:
        """Whether a branch binds a name for itself alone: its sides do not read it before, and no other place reads what they bind."""
        if any(needs(side, name, is_given=False) for side in sides):
            return False
        here = self.places[statement]
        return all(
            is_inside(place, here) or is_bound_anew(place, here, name)
            for node, place in self.places.items()
            if reads(node, name)
        )

    def functions(
        self, statement: ast.If, sides: list[list[ast.stmt]], before: list[str], kind: type, names: list[str]
    ) -> list[ast.stmt]:
        """Both sides as functions, and what returns or binds what one of them gives."""
        titles = [f"{side}_in_line_{statement.lineno}" for side in ("then", "otherwise")]
        arguments = [ast.Name(id=name, ctx=ast.Load()) for name in (*titles, *before)]
        value = called(CHOOSE, condition(statement.test), *arguments)
        last = (
            ast.Return(value=value)
            if kind is ast.Return
            else ast.Assign(targets=[names_of(names, ast.Store())], value=value)
        )
        found = [*(defined(title, before, side) for title, side in zip(titles, sides)), last]
        return [ast.copy_location(part, statement) for part in found]


class Expressions(ast.NodeTransformer):
    """Writes ``a if c else b`` of some lines as choices."""

    def __init__(self, rewriter: Rewriter):
        self.rewriter = rewriter

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        is_asked = self.rewriter.is_asked(node.test)
        self.generic_visit(node)
        is_refused = any(isinstance(part, REFUSED) for part in ast.walk(node))
        if not is_asked or is_refused or not is_rewritten(node.test):
            return node
        self.rewriter.written(node.test)
        return ast.copy_location(
            called(CHOOSE, condition(node.test), thunk(node.body), thunk(node.orelse)), node
        )


def condition(test: ast.expr) -> ast.expr:
    """A condition whose ``not``, ``and`` and ``or`` take data."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return called(NOT, condition(test.operand))
    if isinstance(test, ast.BoolOp):
        name = ALL if isinstance(test.op, ast.And) else ANY
        return called(name, *(thunk(condition(value)) for value in test.values))
    return test


def is_rewritten(test: ast.expr) -> bool:
    """Whether a condition binds no name, and what follows an ``and`` or an ``or`` calls what changes nothing: it is always asked."""
    if any(isinstance(node, ast.NamedExpr) for node in ast.walk(test)):
        return False
    later = [value for node in ast.walk(test) if isinstance(node, ast.BoolOp) for value in node.values[1:]]
    return all(
        is_harmless(call.func) for value in later for call in ast.walk(value) if isinstance(call, ast.Call)
    )


def is_harmless(function: ast.expr) -> bool:
    """Whether a function is one of torch, of tensors or of Python that writes nothing, by its name."""
    if isinstance(function, ast.Name):
        return function.id in (
            "abs",
            "all",
            "any",
            "bool",
            "float",
            "getattr",
            "hasattr",
            "int",
            "isinstance",
            "len",
        )
    if not isinstance(function, ast.Attribute) or function.attr.endswith("_"):
        return False
    is_torch = isinstance(function.value, ast.Name) and function.value.id == "torch"
    return hasattr(torch if is_torch else torch.Tensor, function.attr)


def needs(side: list[ast.stmt], name: str, is_given: bool) -> bool:
    """Whether a branch may read a name before it binds it; *is_given*: whether it gives the name back."""
    for statement in side:
        nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name]
        is_read = any(isinstance(node.ctx, ast.Load) for node in nodes) or isinstance(
            statement, ast.AugAssign
        )
        if nodes and (is_read or not isinstance(statement, (ast.Assign, ast.AnnAssign))):
            return True
        if nodes:
            return False
    return is_given


Place = tuple[tuple[list[ast.stmt], int], ...]
"""The blocks around something, from that of the function on, and the position of the statement in each."""


def places_of(block: list[ast.stmt], around: Place = ()) -> Iterator[tuple[ast.AST, Place]]:
    """The statements and the names of a block, and where each stands."""
    for position, statement in enumerate(block):
        place = (*around, (block, position))
        yield statement, place
        inner = [statement]
        for node in inner:  # what follows is added meanwhile
            if isinstance(node, ast.Name):
                yield node, place
            for _, value in ast.iter_fields(node):
                parts = value if isinstance(value, list) else [value]
                if parts and isinstance(parts[0], ast.stmt):
                    yield from places_of(parts, place)
                else:
                    inner += [part for part in parts if isinstance(part, ast.AST)]


def reads(node: ast.AST, name: str) -> bool:
    """Whether a statement or a name reads the variable *name* by itself."""
    if isinstance(node, ast.AugAssign):
        node = node.target
        return isinstance(node, ast.Name) and node.id == name
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store)


def is_inside(place: Place, other: Place) -> bool:
    """Whether what stands at *place* is part of a block of the statement at *other*."""
    return len(place) > len(other) and all(map(is_step, place, other))


def is_step(one: tuple[list[ast.stmt], int], other: tuple[list[ast.stmt], int]) -> bool:
    """Whether two positions in blocks are one."""
    return one[0] is other[0] and one[1] == other[1]


def is_bound_anew(place: Place, other: Place, name: str) -> bool:
    """Whether a statement binds *name* before it is read at *place*, in a block around that, and the one at *other* does not come between."""
    for depth, (block, position) in enumerate(place):
        last = max((i for i in range(position) if is_bound_by(block[i], name)), default=None)
        if last is None:
            continue
        is_around = depth < len(other) and other[depth][0] is block
        if not is_around or not last < other[depth][1] <= position:
            return True
    return False


def is_bound_by(statement: ast.stmt, name: str) -> bool:
    """Whether a statement is an assignment that binds a name."""
    is_assigned = isinstance(statement, ast.Assign) or (
        isinstance(statement, ast.AnnAssign) and statement.value is not None
    )
    return is_assigned and name in bindings([statement])


def is_note(statement: ast.stmt) -> bool:
    """Whether a statement only warns, logs or prints, and what it tells changes nothing: a model does not."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    note, name = statement.value, ast.unparse(statement.value.func)
    owner, _, method = name.rpartition(".")
    is_told = owner.rpartition(".")[2].strip("_").lower() in TELLERS and method in LEVELS
    calls = [node for node in ast.walk(note) if isinstance(node, ast.Call) and node is not note]
    return (is_told or name in NOTES) and all(is_harmless(call.func) for call in calls)


def ends_with_return(statements: list[ast.stmt]) -> bool:
    """Whether a block returns, whatever it does before."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return ends_with_return(last.body) and ends_with_return(last.orelse)
    return isinstance(last, ast.Return) and last.value is not None


def bindings(statements: list[ast.stmt]) -> Iterator[str]:
    """The names that a block binds."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
