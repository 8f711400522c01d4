"""Every error message and every warning of the library is quoted by a test: a fragment of its own text stands among the strings of the tests."""

from __future__ import annotations

import ast
import builtins
import pathlib
import re
import unittest
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
WARNING = frozenset(("logger.warning", "op.context.warn_once", "warnings.warn"))
"""What warns."""

WORDS = 4
"""So many words in a row are a quotation, fewer are when they are the whole text between two values."""


def trees(*folders: str) -> Iterator[tuple[pathlib.Path, ast.Module]]:
    """The syntax trees of the Python files of some folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def exceptions(library: list[tuple[pathlib.Path, ast.Module]]) -> set[str]:
    """The names of the exceptions that the library may raise: Python's and its own."""
    found = {name for name, kind in vars(builtins).items() if is_exception(kind)}
    classes = [node for _, tree in library for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while True:
        more = {item.name for item in classes if any(ast.unparse(base) in found for base in item.bases)}
        if more <= found:
            return found
        found |= more


def is_exception(kind: object) -> bool:
    """Whether a builtin is an exception."""
    return isinstance(kind, type) and issubclass(kind, BaseException)


def texts(node: ast.AST, named: dict[str, ast.AST]) -> Iterator[str]:
    """The constant texts of an expression, *named* being the constants of its module."""
    if isinstance(node, ast.Name) and node.id in named:
        yield from texts(named[node.id], named)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from map(str.strip, node.value.split("%s"))
    elif isinstance(node, ast.JoinedStr | ast.BinOp | ast.IfExp):
        for child in ast.iter_child_nodes(node):
            yield from texts(child, named)


def messages() -> Iterator[tuple[str, list[str]]]:
    """Place and constant texts of every exception that the library makes with a text of its own, and of every warning."""
    library = list(trees("experimental_experiment"))
    names = exceptions(library) | WARNING
    for path, tree in library:
        named = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in names:
                found = [text for text in texts(node.args[0], named) if len(text) > 5]
                if found:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", found


def quotations() -> tuple[str, set[tuple[str, ...]]]:
    """All strings of the tests, one line each, and every few words of them; docstrings are left out."""
    found = set()
    for _, tree in trees("_unittests", "tests"):
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                plain = re.sub(r"\\(\W)", r"\1", node.value)
                found.update(part.strip() for part in re.split(r"\.\*|\.\+|\n", plain))
    return "\n".join(found), {words for part in found for words in in_a_row(part)}


def in_a_row(text: str) -> Iterator[tuple[str, ...]]:
    """Every few words of a text."""
    words = re.findall(r"[\w'.]+", text)
    yield from (tuple(words[start : start + WORDS]) for start in range(len(words) - WORDS + 1))


def is_quoted(text: str, lines: str, rows: set[tuple[str, ...]]) -> bool:
    """Whether the tests hold a text, or several of its words in a row."""
    return text in lines or not rows.isdisjoint(in_a_row(text))


class TestMessages(unittest.TestCase):
    def test_every_message_is_quoted(self):
        quoted = quotations()
        unquoted = [
            f"{place}: {' ... '.join(found)}"
            for place, found in messages()
            if not any(is_quoted(text, *quoted) for text in found)
        ]
        self.assertEqual([], unquoted)

    def test_what_a_quotation_is(self):
        line = "an export cannot be translated: shade=x"
        quoted = line, set(in_a_row(line))
        self.assertTrue(is_quoted("shade=", *quoted))
        self.assertTrue(is_quoted("that cannot be translated: shade of", *quoted))
        self.assertFalse(is_quoted("this cannot be translated", *quoted))


if __name__ == "__main__":
    unittest.main()
