"""Texts of dynamic sizes: ``f"{height}x{width}"`` is the names of symbols while a model is captured, and no key of a table that it holds.

What is raised, logged or printed changes nothing, nor does the key of what the function itself remembers.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.errors import Source, located
from experimental_experiment.torch_interpreter.frames import is_library_code, source_at, tree_of
from experimental_experiment.torch_interpreter.patches import texts
from experimental_experiment.torch_interpreter.patches.choices import is_note
from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.symbols import SYMBOLS

CHECKS = (
    "_assert",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_type",
    "_check_value",
)
"""Functions of torch that raise a message unless a condition holds, as those of timm's images."""


@contextlib.contextmanager
def texts_of_sizes() -> Iterator[dict[Source, None]]:
    """Find the lines of the model that ask for the text of a symbolic number, while it is captured."""
    found: dict[Source, None] = {}

    def noting(repr_: Callable) -> Callable:
        @functools.wraps(repr_)
        def __repr__(self) -> str:
            if getattr(getattr(self.node, "expr", None), "free_symbols", None):
                note(sys._getframe(1), found)
            return repr_(self)

        return __repr__

    with contextlib.ExitStack() as stack:
        for cls in SYMBOLS:
            stack.enter_context(replaced(cls, "__repr__", noting(cls.__repr__)))
        yield found


def note(frame: types.FrameType | None, found: dict[Source, None]) -> None:
    """Note the line of a frame, where it is the model's and does more than tell."""
    while frame is not None and frame.f_code.co_filename == texts.__file__:
        frame = frame.f_back
    if frame is None or is_library_code(frame.f_code) or only_tells(frame.f_code, frame.f_lineno):
        return
    found[source_at(frame.f_code, frame.f_lineno)] = None


def warn_of_texts(found: dict[Source, None]) -> None:
    """Warn of what the model may decide by the text of a size."""
    for source in found:
        logger.warning(
            "the text of a dynamic size is the name of a symbol, not its digits: what is looked up or compared by it is not what eager finds\n%s",
            located(source),
        )


def only_tells(code: types.CodeType, line: int) -> bool:
    """Whether a line of a function raises, logs or prints, or names a text for what does, or for the key of a memory."""
    tree = tree_of(code)
    if tree is None:
        return False
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    around = [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
    if any(map(tells, around)):
        return True
    inner = max(around, key=lambda node: node.lineno, default=None)
    if not isinstance(inner, ast.Assign) or not isinstance(inner.targets[0], ast.Name):
        return False
    told = {id(name) for statement in filter(tells, statements) for name in ast.walk(statement)}
    read = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == inner.targets[0].id and isinstance(node.ctx, ast.Load)
    ]
    told.update(id(name) for name in keys_of_memories(tree, inner.targets[0].id))
    return all(id(name) in told for name in read)


def keys_of_memories(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    """Where a variable is a key of what a function looks up and fills: a text that is not found is computed anew, as eager does once."""
    uses: dict[str, list[ast.expr]] = {}
    filled: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=memory, slice=ast.Name() as key):
                filled.update(
                    [ast.unparse(memory)] if key.id == name and isinstance(node.ctx, ast.Store) else []
                )
            case ast.Compare(left=ast.Name() as key, ops=[ast.In() | ast.NotIn()], comparators=[memory]):
                pass
            case ast.Call(func=ast.Attribute(value=memory, attr="get"), args=[ast.Name() as key, *_]):
                pass
            case _:
                continue
        if key.id == name:
            uses.setdefault(ast.unparse(memory), []).append(key)
    return itertools.chain.from_iterable(uses[memory] for memory in filled)


def tells(statement: ast.stmt) -> bool:
    """Whether a statement raises, logs or prints."""
    return isinstance(statement, (ast.Raise, ast.Assert)) or is_note(statement) or is_check(statement)


def is_check(statement: ast.stmt) -> bool:
    """Whether a statement is ``torch._assert(condition, message)``, or another check of torch: the message is told, or nothing is."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
            return name in CHECKS
    return False
