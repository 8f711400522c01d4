"""Texts of dynamic sizes: ``f"{height}x{width}"`` is the names of symbols while a model is captured, and no key of a table that it holds.

What is raised, logged or printed changes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
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
    """Whether a line of a function raises, logs or prints, or names a text for what does."""
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
    return all(id(name) in told for name in read)


def tells(statement: ast.stmt) -> bool:
    """Whether a statement raises, logs or prints."""
    return isinstance(statement, (ast.Raise, ast.Assert)) or is_note(statement)
