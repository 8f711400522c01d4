"""Time of the optimizer: microseconds a node on decoders of 1 000, 10 000 and 100 000 nodes, and on models of `latency_models`.

    python benchmarks/optimizer_time.py [--nodes 1000 10000 100000] [--models decode bert ...] [--profile]

The blocks are those of a Llama-style decoder as an exporter writes them by hand: norms of primitive operators, rotary embeddings,
grouped heads that are repeated; they are ours, so the sizes that the model tells are believed: those of a file of another exporter are
checked, a quarter more calls. --models also takes architectures of transformers as `to_onnx` writes them. A node is one of the model
before the optimization; the time is that of this thread, with the standard rules and with those of onnxruntime, and with the standard
rules once more on what they leave. The calls of functions a node do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time

import numpy as np
import onnx_ir as ir
import tabulate

from experimental_experiment.protos import PRODUCER, write_for
from experimental_experiment.torch_interpreter.emitter import Context, Emitter
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize

BATCH, TOKENS, HEADS, GROUPS, HEAD = "batch", "tokens", 8, 4, 16
WIDTH = HEADS * HEAD
OPSET = 20


def decoder(nodes: int) -> ir.Model:
    """A decoder of at least so many nodes."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name="decoder")
    op = Emitter(graph, Context(graph, OPSET))
    x, cos, sin, mask = (
        ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
        for name, shape in {
            "x": (BATCH, TOKENS, WIDTH),
            "cos": (BATCH, 1, TOKENS, HEAD),
            "sin": (BATCH, 1, TOKENS, HEAD),
            "mask": (BATCH, 1, TOKENS, TOKENS),
        }.items()
    )
    graph.inputs.extend([x, cos, sin, mask])
    random = np.random.default_rng(0)
    weights = {
        name: op.initializer(name, ir.tensor(random.normal(size=shape).astype(np.float32) / 10, name=name))
        for name, shape in {
            "norm": (WIDTH,),
            "query": (WIDTH, WIDTH),
            "key": (WIDTH, GROUPS * HEAD),
            "up": (WIDTH, 4 * WIDTH),
            "down": (4 * WIDTH, WIDTH),
        }.items()
    }
    while len(graph) < nodes:
        x = block(op, x, cos, sin, mask, weights)
    graph.outputs.append(x)
    return ir.Model(graph, ir_version=10, producer_name=PRODUCER)


def block(op, x, cos, sin, mask, weights):
    """One layer."""
    normed = norm(op, x, weights["norm"])
    q = heads(op, op.MatMul(normed, weights["query"]), HEADS)
    k, v = (heads(op, op.MatMul(normed, weights["key"]), GROUPS) for _ in range(2))
    q, k = rotated(op, q, cos, sin), rotated(op, k, cos, sin)
    k, v = repeated(op, k), repeated(op, v)
    scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), HEAD**-0.5)
    attended = op.MatMul(op.Softmax(op.Add(scores, mask), axis=-1), v)
    joined = op.Reshape(op.Transpose(attended, perm=[0, 2, 1, 3]), [0, 0, WIDTH])
    x = op.Add(x, op.MatMul(joined, weights["query"]))
    normed = norm(op, x, weights["norm"])
    gate, up = (op.MatMul(normed, weights["up"]) for _ in range(2))
    return op.Add(x, op.MatMul(op.Mul(op.Mul(gate, op.Sigmoid(gate)), up), weights["down"]))


def norm(op, x, weight):
    """RMSNorm of primitive operators."""
    mean = op.ReduceMean(op.Mul(x, x), [-1], keepdims=1)
    return op.Mul(op.Mul(x, op.Reciprocal(op.Sqrt(op.Add(mean, 1e-6)))), weight)


def heads(op, x, count):
    """[batch, tokens, heads * head] as [batch, heads, tokens, head]."""
    return op.Transpose(op.Reshape(x, [0, 0, count, HEAD]), perm=[0, 2, 1, 3])


def rotated(op, x, cos, sin):
    """Rotary embedding by halves."""
    half = HEAD // 2
    left, right = op.Slice(x, [0], [half], [3]), op.Slice(x, [half], [HEAD], [3])
    return op.Add(op.Mul(x, cos), op.Mul(op.Concat(op.Neg(right), left, axis=3), sin))


def repeated(op, x):
    """Each head of keys or values for all heads of queries of its group."""
    many = op.Expand(op.Unsqueeze(x, [2]), [1, 1, HEADS // GROUPS, 1, 1])
    return op.Reshape(many, [0, HEADS, -1, HEAD])


def exported(name: str) -> ir.Model:
    """One of the models of `latency_models`, as `to_onnx` writes it without optimization."""
    import latency_models  # brings transformers
    import torch

    from experimental_experiment.torch_interpreter import to_onnx

    model, args, shapes = latency_models.example(name)
    with torch.no_grad():
        return ir.from_proto(to_onnx(model, args, dynamic_shapes=shapes, optimize=False, target_opset=OPSET))


def timed(model: ir.Model, patterns: str) -> tuple[tuple, cProfile.Profile]:
    """Nodes before and after, rewritings, seconds, microseconds and calls a node, microseconds a node once more; the profile."""
    options, profile = OptimizationOptions(patterns=patterns), cProfile.Profile()
    copy, reports = model.clone(), [Report(), Report()]
    for one in (model, copy):
        write_for(one, "onnxruntime")  # as `to_onnx` does before it optimizes
    seconds = []
    for report in reports:
        start = time.thread_time()
        optimize(model, options, report=report)
        seconds.append(time.thread_time() - start)
    profile.runcall(optimize, copy, options)
    nodes = reports[0].nodes_before
    calls = pstats.Stats(profile).total_calls / nodes
    again = 1e6 * seconds[1] / reports[1].nodes_before
    row = (
        nodes,
        reports[0].nodes_after,
        len(reports[0].applications),
        seconds[0],
        1e6 * seconds[0] / nodes,
        calls,
        again,
    )
    return row, profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--models", nargs="*", default=[], help="of latency_models")
    parser.add_argument("--patterns", nargs="+", default=["default", "default+onnxruntime"])
    parser.add_argument("--profile", action="store_true", help="print where the time of the last goes")
    args = parser.parse_args()
    models = {f"decoder of {count}": (decoder, count) for count in args.nodes}
    models |= {name: (exported, name) for name in args.models}
    rows = []
    for patterns in args.patterns:
        for name, (made, argument) in models.items():
            row, profile = timed(made(argument), patterns)
            rows.append((patterns, name, *row))
    headers = [
        "patterns",
        "model",
        "nodes",
        "after",
        "rewritings",
        "s",
        "us a node",
        "calls a node",
        "again us",
    ]
    print(tabulate.tabulate(rows, headers, floatfmt=".3g"))
    if args.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
