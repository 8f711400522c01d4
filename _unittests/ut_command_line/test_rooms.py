"""CONTRIBUTING.md's map of the rooms is the one that the imports draw: run this file with ``--write`` to draw it again."""

from __future__ import annotations

import ast
import collections
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = "experimental_experiment"
SMALL = frozenset({"__main__", "comparison", "helpers", "logs", "progress", "testing", "versions", "whole"})
"""Single files that every room may import: no rooms."""

BEGIN, END = "<!-- rooms: drawn from the imports -->", "<!-- end of the rooms -->"
FORBIDDEN = {
    "plotting": {"torch_interpreter", "torch_dynamo", "command_line", "investigate"},
    "reference": {"torch_interpreter", "xoptim", "torch_dynamo", "command_line", "investigate"},
    "torch_interpreter": {"command_line", "torch_dynamo", "decoding"},
    "xoptim": {"command_line", "investigate", "torch_dynamo", "decoding"},
}
"""What a room must not know: the package can be read from the bottom."""

LONGEST = 600
"""Lines of a file of the package."""


def imported(tree: ast.Module) -> set[str]:
    """The modules of the package that a file imports wherever it does; what only types ask for is left out."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] == PACKAGE}


def room_of(module: str) -> str:
    """The room of a module, ``torch_interpreter``; small files are none."""
    room = [*module.split("."), ""][1]
    return "" if room in SMALL else room


def rooms() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        room = room_of(".".join(parts))
        folders = {entry.name for entry in (ROOT / PACKAGE).iterdir() if entry.is_dir()}
        others = {room_of(name) for name in imported(ast.parse(path.read_text(encoding="utf-8")))}
        if room in folders:
            found[room] |= others & folders - {room}
    return dict(found)


def reached(room: str, graph: dict[str, set[str]]) -> set[str]:
    """The rooms that a room needs, those of the rooms that it imports among them."""
    found, waiting = set(), [room]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def drawn() -> str:
    """The map: a line a room, those that import nothing first, each with the rooms that it imports when it is
    loaded or in a function; what it loads by name when that is needed is left out."""
    graph = rooms()
    order = sorted(graph, key=lambda room: (len(reached(room, graph)), room))
    lines = ["```", *(f"{room:18} <- {', '.join(sorted(graph[room]))}".rstrip(" <-") for room in order)]
    return "\n".join([BEGIN, *lines, "```", END])


def written() -> tuple[str, str, str]:
    """CONTRIBUTING.md before the map, the map, and after."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    return before, BEGIN + found + END, after


class TestRooms(unittest.TestCase):
    def test_the_map_is_drawn_from_the_imports(self):
        command = "python -m _unittests.ut_command_line.test_rooms --write"
        self.assertEqual(written()[1], drawn(), f"run: {command}")

    def test_no_room_knows_those_above_it(self):
        graph = rooms()
        for room, others in FORBIDDEN.items():
            with self.subTest(room):
                self.assertEqual(graph[room] & others, set())

    def test_no_file_is_too_long_to_be_read(self):
        for path in (ROOT / PACKAGE).rglob("*.py"):
            with self.subTest(path.name):
                self.assertLessEqual(path.read_text(encoding="utf-8").count("\n"), LONGEST)

    def test_every_room_is_described(self):
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        for room in rooms():
            self.assertIn(f"`{room}/", text)

    def test_every_file_between_the_rooms_is_described(self):
        """Those of the package itself, of `torch_interpreter` and of its assumptions, whose rooms are files."""
        named = set(re.findall(r"`(?:torch_interpreter/)?(\w+\.py)`", written()[0]))
        interpreter = ROOT / PACKAGE / "torch_interpreter"
        for folder in (ROOT / PACKAGE, interpreter, interpreter / "assumptions"):
            files = {path.name for path in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
            self.assertEqual(set(), files - named, folder.name)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        os.chdir(ROOT)
        before, _, after = written()
        (ROOT / "CONTRIBUTING.md").write_text(before + drawn() + after, encoding="utf-8")
    else:
        unittest.main()
