"""The cost of a loop that keeps every result: simple_loop_for against the same model with a growing carry.

    python benchmarks/loops.py [--rows 64] [--turns 10 100 1000 10000]

Prints the time of one call in onnxruntime for each number of turns. The growing carry copies all earlier results at every
turn: its time grows with the square of the number of turns. torch.export captures no growing carry: that model is written
with the emitter, node by node as the other one is, but for the carry.
"""

from __future__ import annotations

import argparse
import time

import onnx
import onnx_ir as ir
import tabulate
import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.higher_order_ops import simple_loop_for
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.emitter import Context, Emitter

COLUMNS = 16


class Looped(torch.nn.Module):
    """Rows of x times the number of the turn, of all turns."""

    def forward(self, x, n):
        return simple_loop_for(n, lambda i, x: x * i, (x,))


def growing_carry(opset: int) -> onnx.ModelProto:
    """The same function with a Loop that concatenates its carry and the rows of a turn."""
    graph = ir.Graph([], [], nodes=[], name="growing", opset_imports={"": opset})
    op = Emitter(graph, Context(graph, opset))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["rows", COLUMNS]))
    n = ir.Value(name="n", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    graph.inputs.extend([x, n])
    iteration = ir.Value(name="i", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    go = ir.Value(name="go", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    carry = ir.Value(name="carry", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None, COLUMNS]))

    def step(inner, i, go, carry):
        return [go, inner.Concat(carry, inner.Mul(x, inner.Cast(i, to=ir.DataType.FLOAT)), axis=0)]

    body = op.subgraph(step, [iteration, go, carry])
    start = op.Expand(op.constant(0.0), op.shape([0, COLUMNS]))
    (result,) = op.Loop(n, None, start, body=body, outputs=1)
    result.type, result.shape = carry.type, ir.Shape([None, COLUMNS])
    graph.outputs.append(result)
    return ir.to_proto(ir.Model(graph, ir_version=10))


def seconds(model: onnx.ModelProto, inputs: list[torch.Tensor], repeat: int) -> float:
    """The best time of one call."""
    runner = session(model)
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run(runner, inputs)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 100, 1000, 10000])
    arguments = parser.parse_args()
    x = torch.rand(arguments.rows, COLUMNS)
    looped = to_onnx(Looped(), (x, torch.tensor(2)), dynamic_shapes=({0: torch.export.Dim.DYNAMIC}, None))
    growing = growing_carry(looped.opset_import[0].version)
    rows = []
    for turns in arguments.turns:
        inputs = [x, torch.tensor(turns)]
        repeat = 3 if turns < 5000 else 1
        torch.testing.assert_close(run(session(looped), inputs)[0], Looped()(*inputs))
        first, second = seconds(looped, inputs, repeat), seconds(growing, inputs, repeat)
        rows.append(
            [turns, first * 1e3, first / turns * 1e6, second * 1e3, second / turns * 1e6, second / first]
        )
    headers = ["turns", "loop (ms)", "per turn (us)", "growing carry (ms)", "per turn (us)", "ratio"]
    print(tabulate.tabulate(rows, headers, floatfmt=".3g"))


if __name__ == "__main__":
    main()
