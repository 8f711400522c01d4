"""The keys of ``meta`` on values and nodes of onnx-ir: each of them is declared in `marks`."""

from __future__ import annotations

import ast
import pathlib
import unittest
from collections.abc import Iterator

import experimental_experiment
from experimental_experiment.torch_interpreter import marks

PACKAGE = pathlib.Path(experimental_experiment.__file__).parent
TORCH = {"example_value", "inline_constraints", "nn_module_stack", "stack_trace", "unbacked_bindings", "val"}
"""Keys on nodes and modules of torch.fx, which are torch's."""


def keys(tree: ast.Module) -> Iterator[ast.expr]:
    """What stands in ``x.meta[key]``, ``x.meta.get(key)`` and ``key in x.meta``."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="meta"), slice=key):
                yield key
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="meta"), attr="get"), args=[key, *_]):
                yield key
            case ast.Compare(
                left=key, ops=[ast.In() | ast.NotIn()], comparators=[ast.Attribute(attr="meta")]
            ):
                yield key


class TestMarks(unittest.TestCase):
    """One place declares them."""

    def test_each_key_is_declared(self):
        declared = {name for name in vars(marks) if name.isupper()}
        used = set()
        for room in ("torch_interpreter", "xoptim"):
            for path in (PACKAGE / room).rglob("*.py"):
                for key in keys(ast.parse(path.read_text(encoding="utf-8"))):
                    with self.subTest(path=path.name, line=key.lineno):
                        if isinstance(key, ast.Constant):
                            self.assertIn(key.value, TORCH)
                        else:
                            self.assertIn(key.id, declared)
                            self.assertNotIn(f"\n{key.id} =", path.read_text(encoding="utf-8"))
                            used.add(key.id)
        self.assertEqual(used, declared)


if __name__ == "__main__":
    unittest.main()
