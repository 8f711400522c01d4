"""Measure what translations write: ``python -m tests.written`` updates ``experimental_experiment/torch_interpreter/written.json``.

    python -m tests.written                  # all, a quarter of an hour of a core
    python -m tests.written test_aten_loss   # what this file's tests reach

The file holds a section for each test file, which a run of that test file replaces. Tests run as exports alone, with static sizes
unless the case names its own, for the default operator set and the plain standard: nothing is run nor compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from unittest import mock

import onnx
import onnx_ir as ir

from experimental_experiment import testing
from experimental_experiment.torch_interpreter import catalog, conversion, registry
from experimental_experiment.torch_interpreter.emitter import Context, Emitter
from experimental_experiment.torch_interpreter.errors import Untranslatable
from tests import runner

FILE = os.path.join(os.path.dirname(catalog.__file__), "written.json")

TESTS = (
    "_unittests.ut_control_flow.",
    "_unittests.ut_torch_interpreter.test_aten_",
    "_unittests.ut_torch_interpreter.test_prims",
    "_unittests.ut_torch_interpreter.test_refusals",
    "_unittests.ut_torch_interpreter.test_symbolic",
)
"""What the names of the test files of translations begin with."""

SIZE = "computes a size"
"""Key in the ``meta`` of the nodes that `computes_size` accepts."""


@dataclasses.dataclass
class Call:
    """A translation that is running.

    Attributes:
        name: its entry.
        has_bodies: whether it writes functions of the user, whose operators are their own.
        nodes: what it wrote so far.
    """

    name: str
    has_bodies: bool
    nodes: list[ir.Node] = dataclasses.field(default_factory=list)


class Recorder:
    """Notes the operators that each translation leaves in the graph, those of the translations that it calls included.

    Attributes:
        calls: the translations that are running, the outermost first.
        written: the operators by entry; none for a translation that folds, inlines or refuses all that it is given.
    """

    def __init__(self):
        self.calls: list[Call] = []
        self.written: dict[str, set[str]] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """While this lasts, the registry holds translations that tell this recorder what they write."""
        with contextlib.ExitStack() as stack:
            for table in (registry.TRANSLATIONS, registry.COMPLEX):
                telling = {
                    target: self.telling(catalog.entry_name(target, table), translation)
                    for target, translation in table.items()
                    if catalog.is_own(translation)
                }
                stack.enter_context(mock.patch.dict(table, telling))
            stack.enter_context(mock.patch.object(Emitter, "append", self.noting(Emitter.append)))
            yield

    def telling(self, name: str, translation: registry.Translation) -> registry.Translation:
        """The same translation; what it wrote is noted when it returns."""
        function = translation.function
        has_bodies = name.startswith("higher_order.")

        @functools.wraps(function)
        def told(op, *args, **kwargs):
            call = Call(name, has_bodies)
            self.calls.append(call)
            try:
                result = function(op, *args, **kwargs)
            except Untranslatable:
                self.written.setdefault(name, set())
                raise
            finally:
                self.calls.pop()
            if op.opset == conversion.DEFAULT_OPSET:
                self.written.setdefault(name, set()).update(counted(call.nodes))
            return result

        return dataclasses.replace(translation, function=told)

    def noting(self, append: Callable) -> Callable:
        """`Emitter.append`, whose node belongs to the running translation and to those that it is a part of."""

        @functools.wraps(append)
        def appended(*args, **kwargs):
            node = append(*args, **kwargs)
            if computes_size(node):
                node.meta[SIZE] = True
            for depth, call in enumerate(reversed(self.calls)):
                if depth and call.has_bodies:
                    break
                call.nodes.append(node)
            return node

        return appended


def counted(nodes: list[ir.Node]) -> set[str]:
    """The operators of the nodes that were not folded, without copies, numbers computed from shapes, calls of local functions."""
    return {
        node.op_type
        for node in nodes
        if node.graph is not None and not node.domain and node.op_type != "Identity" and SIZE not in node.meta
    }


def computes_size(node: ir.Node) -> bool:
    """Whether a node computes a number, or a list of known length, from shapes and constants alone."""
    if node.op_type in ("Shape", "Size"):
        return True
    inputs = [value for value in node.inputs if value is not None]
    sizes = [value for value in inputs if value.producer() is not None and SIZE in value.producer().meta]
    return (
        len(sizes) > 0
        and all(value in sizes or value.const_value is not None for value in inputs)
        and all(value.shape is not None and value.shape.is_static() for value in node.outputs)
        and all(len(value.shape) <= 1 for value in node.outputs)
    )


@contextlib.contextmanager
def exports_alone() -> Iterator[None]:
    """While this lasts, a case is one export of the plain standard, static unless it says how, without the passes behind it."""
    same_as_eager, made = testing.ExporterTestCase.assert_same_as_eager, Context.__post_init__

    def once(self, function, *args, dynamic=True, **options):
        return same_as_eager(self, function, *args, dynamic=False, **options)

    def for_the_standard(context):
        context.runtime = "onnx"
        made(context)

    def nothing(*args, **kwargs):
        """Instead of a check."""

    with (
        mock.patch.multiple(
            testing.ExporterTestCase,
            opsets=lambda self: (conversion.DEFAULT_OPSET,),
            assert_same_as_eager=once,
            assert_as_near_as_eager=once,
            assert_rows_needed=nothing,
            assert_calls_match=nothing,
        ),
        mock.patch.object(Context, "__post_init__", for_the_standard),
        mock.patch.object(conversion, "finish", nothing),
        mock.patch.object(testing, "computation", nothing),
        mock.patch.object(onnx.checker, "check_model", nothing),
    ):
        yield


def measured(name: str) -> dict[str, list[str]]:
    """The operators that translations wrote while the tests of a file ran, by entry. Tests that ask for more than exports fail."""
    recorder = Recorder()
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    with exports_alone(), recorder.recording():
        suite.run(unittest.TestResult())
    return {entry: sorted(operators) for entry, operators in sorted(recorder.written.items())}


def save(sections: dict[str, dict[str, list[str]]]) -> None:
    """Write the sections of the test files that exist, an entry a line."""
    existing = set(runner.files())
    kept = {name: entries for name, entries in sorted(sections.items()) if name in existing and entries}
    parts = []
    for name, entries in kept.items():
        lines = [f"{json.dumps(entry)}: {json.dumps(operators)}" for entry, operators in entries.items()]
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    with open(FILE, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


def chosen(names: list[str]) -> list[str]:
    """The test files of these names, with or without their packages, or all. Raises SystemExit when there is none of a name."""
    files = runner.files()
    if not names:
        return [file for file in files if file.startswith(TESTS)]
    found = []
    for name in names:
        matches = [file for file in files if file == name or file.endswith(f".{name}")]
        if not matches:
            raise SystemExit(f"error: there is no test file {name!r}")
        found += matches
    return found


def main(names: list[str]) -> int:
    """Measure these test files, or all."""
    os.chdir(runner.ROOT)
    sections = dict(catalog.measured()) if names else {}
    for name in chosen(names):
        start = time.monotonic()
        sections[name] = measured(name)
        print(f"{name}: {len(sections[name])} translations ({time.monotonic() - start:.0f} s)", flush=True)
    save(sections)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
