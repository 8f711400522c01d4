"""Golden graphs: the ONNX operators that the usual forms of operators become, node for node, in ``golden_graphs.txt``.

A change that writes other nodes edits the table: ``python -m _unittests.ut_torch_interpreter.test_golden_graphs`` prints it.
"""

from __future__ import annotations

import copy
import os
import unittest
from collections.abc import Iterator

import torch

from _unittests.ut_torch_interpreter.golden_cases import CASES
from experimental_experiment.testing import Call
from experimental_experiment.torch_interpreter import to_onnx

TABLE = os.path.join(os.path.dirname(__file__), "golden_graphs.txt")


def forms(name: str) -> Iterator[tuple[str, torch.nn.Module, tuple, tuple | None]]:
    """One case in its forms: label, module, inputs, dynamic shapes; float16 where it has float32 inputs."""
    function, *inputs = CASES[name]
    for dtype in (torch.float32, torch.float16):
        cast = tuple(x.to(dtype) if x.dtype == torch.float32 else x for x in inputs)
        module = function if isinstance(function, torch.nn.Module) else Call(function, cast, {})
        module = copy.deepcopy(module).to(dtype)
        axes = tuple({axis: torch.export.Dim.AUTO for axis in range(x.dim())} for x in cast)
        for label, shapes in (("static", None), ("dynamic", (axes,))):
            yield f"{label} {str(dtype).removeprefix('torch.')}", module, cast, shapes
        if not any(x.dtype == torch.float32 for x in inputs):
            return


def written(module: torch.nn.Module, inputs: tuple, shapes: tuple | None) -> str:
    """The operators of the graph in order, repeated ones counted: ``Cast, 2 Mul``."""
    model = to_onnx(module, copy.deepcopy(inputs), dynamic_shapes=shapes)
    runs: list[list] = []
    for node in model.graph.node:
        if runs and runs[-1][1] == node.op_type:
            runs[-1][0] += 1
        else:
            runs.append([1, node.op_type])
    return ", ".join(f"{count} {kind}" if count > 1 else kind for count, kind in runs) or "nothing"


def described(name: str) -> str:
    """The line of a case: its static graph, then the other forms that differ from the one that they are derived from."""
    graphs = {label: written(*form) for label, *form in forms(name)}
    parts = [f"{name}: {graphs['static float32']}"]
    for label, like in (
        ("dynamic float32", "static float32"),
        ("static float16", "static float32"),
        ("dynamic float16", "dynamic float32"),
    ):
        if label in graphs and graphs[label] != graphs[like]:
            parts.append(f"{label}: {graphs[label]}")
    return " | ".join(parts)


class TestGoldenGraphs(unittest.TestCase):
    def test_table(self):
        with open(TABLE, encoding="utf-8") as file:
            lines = {line.partition(":")[0]: line for line in file.read().splitlines()}
        self.assertEqual(list(CASES), list(lines))
        for name, line in lines.items():
            with self.subTest(name):
                self.assertEqual(line, described(name))


if __name__ == "__main__":
    print("\n".join(map(described, CASES)))
