"""How long the usual operators take in onnxruntime: our graph, the smallest possible one, that of ``torch.onnx.export``.

    python benchmarks/operators.py [--only WORD ...] [--rounds 40] [--dynamic]

One thread, CPU time of the thread, the three models interleaved and rotated in one process; a row is the median of the rounds,
the last two columns are ratios to our graph (more than 1: ours is faster). The smallest graph is what one would write for
these very inputs, without any other size or value in mind: a floor, not always a right answer.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable

import onnx
import onnx_ir as ir
import torch
import torch.nn.functional as F
from tabulate import tabulate

from experimental_experiment.comparison import session, to_ort
from experimental_experiment.testing import Call
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.emitter import Context, Emitter

WIDE = torch.randn(64, 4096)
IMAGE = torch.rand(1, 8, 64, 64)
HEADS = torch.randn(1, 8, 128, 64)
INTS = torch.randint(0, 1000, (64, 4096))
LABELS = torch.randint(0, 4096, (64,))
GRID = torch.rand(1, 64, 64, 2) * 2 - 1
POINTS = torch.randn(200, 16)
TOKENS = torch.randint(0, 100, (64, 16))
TABLE = torch.randn(100, 32)
OPSET = 20


def resized(mode: str, factor: float) -> Callable:
    """One Resize."""
    more = {"coordinate_transformation_mode": "half_pixel", "mode": mode}
    more |= {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
    return lambda op, x: op.Resize(x, None, [1.0, 1.0, factor, factor], **more)


def attention(op, q):
    """Two products and a softmax, the mask a constant."""
    mask = torch.full((128, 128), float("-inf")).triu(1)
    scores = op.MatMul(op.Mul(q, 0.125), op.Transpose(q, perm=[0, 1, 3, 2]))
    return op.MatMul(op.Softmax(op.Add(scores, mask)), q)


def normalized(op, x, groups):
    """InstanceNormalization of groups."""
    scale, bias = torch.ones(groups), torch.zeros(groups)
    rows = op.Reshape(x, [0, groups, -1])
    return op.Reshape(op.InstanceNormalization(rows, scale, bias, epsilon=1e-5), list(IMAGE.shape))


def block(op, *tensors):
    """A layer norm, a linear layer, GELU and a residual, in float32."""
    x, scale, weight, bias = (op.Cast(tensor, to=1) for tensor in tensors)
    rows = op.Gemm(op.LayerNormalization(x, scale, bias), weight, bias, transB=1)
    return op.Cast(op.Add(x, op.Gelu(rows)), to=16)


CASES: dict[str, tuple] = {
    "topk": (lambda x: x.topk(5), lambda op, x: op.TopK(x, [5], outputs=2), WIDE),
    "sort": (lambda x: x.sort(), lambda op, x: op.TopK(x, [4096], largest=0, outputs=2), WIDE),
    "argmax": (lambda x: x.argmax(1), lambda op, x: op.ArgMax(x, axis=1, keepdims=0), WIDE),
    "amax": (lambda x: x.amax(1), lambda op, x: op.ReduceMax(x, [1], keepdims=0), WIDE),
    "amin": (lambda x: x.amin(1), lambda op, x: op.ReduceMin(x, [1], keepdims=0), WIDE),
    "max of an axis": (
        lambda x: x.max(1),
        lambda op, x: (op.ReduceMax(x, [1], keepdims=0), op.ArgMax(x, axis=1, keepdims=0)),
        WIDE,
    ),
    "max of an axis, values": (
        lambda x: x.max(1).values,
        lambda op, x: op.ReduceMax(x, [1], keepdims=0),
        WIDE,
    ),
    "min of an axis": (
        lambda x: x.min(1),
        lambda op, x: (op.ReduceMin(x, [1], keepdims=0), op.ArgMin(x, axis=1, keepdims=0)),
        WIDE,
    ),
    "sum of int64": (lambda x: x.sum(1), lambda op, x: op.ReduceSum(x, [1], keepdims=0), INTS),
    "mean": (lambda x: x.mean(1), lambda op, x: op.ReduceMean(x, [1], keepdims=0), WIDE),
    "group norm": (lambda x: F.group_norm(x, 2), lambda op, x: normalized(op, x, 2), IMAGE),
    "instance norm": (
        F.instance_norm,
        lambda op, x: op.InstanceNormalization(x, torch.ones(8), torch.zeros(8), epsilon=1e-5),
        IMAGE,
    ),
    "pixel unshuffle": (
        lambda x: F.pixel_unshuffle(x, 2),
        lambda op, x: op.Reshape(
            op.Transpose(op.Reshape(x, [1, 8, 32, 2, 32, 2]), perm=[0, 1, 3, 5, 2, 4]), [1, 32, 32, 32]
        ),
        IMAGE,
    ),
    "bilinear x 0.5": (
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
        resized("linear", 0.5),
        IMAGE,
    ),
    "bicubic x 1.5": (
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
        resized("cubic", 1.5),
        IMAGE,
    ),
    "bicubic x 0.5": (
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic"),
        resized("cubic", 0.5),
        IMAGE,
    ),
    "nearest to a size": (
        lambda x, y: F.interpolate(x, y.shape[2:]),
        lambda op, x, y: op.Resize(x, None, None, [1, 8, 96, 80]),
        IMAGE,
        torch.rand(1, 8, 96, 80),
    ),
    "nearest x 2": (
        lambda x: F.interpolate(x, scale_factor=2),
        lambda op, x: op.Resize(x, None, [1.0, 1.0, 2.0, 2.0]),
        IMAGE,
    ),
    "grid sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda op, x, g: op.GridSample(x, g),
        IMAGE,
        GRID,
    ),
    "grid sample of halves": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda op, x, g: op.Cast(op.GridSample(op.Cast(x, to=1), op.Cast(g, to=1)), to=10),
        IMAGE.half(),
        GRID.half(),
    ),
    "attention, causal": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        attention,
        HEADS,
    ),
    "adaptive average pool": (
        lambda x: F.adaptive_avg_pool2d(x, 7),
        lambda op, x: op.AveragePool(x, kernel_shape=[10, 10], strides=[9, 9]),
        IMAGE,
    ),
    "cross entropy": (F.cross_entropy, lambda op, x, y: op.SoftmaxCrossEntropyLoss(x, y), WIDE, LABELS),
    "cross entropy, 10 classes": (
        F.cross_entropy,
        lambda op, x, y: op.SoftmaxCrossEntropyLoss(x, y),
        torch.randn(4096, 10),
        torch.randint(0, 10, (4096,)),
    ),
    "cross entropy, 32000 classes": (
        F.cross_entropy,
        lambda op, x, y: op.SoftmaxCrossEntropyLoss(x, y),
        torch.randn(64, 32000),
        LABELS,
    ),
    "expm1": (torch.expm1, lambda op, x: op.Sub(op.Exp(x), 1.0), WIDE),
    "log1p": (lambda x: torch.log1p(x.abs()), lambda op, x: op.Log(op.Add(op.Abs(x), 1.0)), WIDE),
    "int // 3": (lambda x: x // 3, lambda op, x: op.Div(x, 3), INTS),
    "float % 3": (lambda x: x % 3.0, lambda op, x: op.Mod(x, 3.0, fmod=1), WIDE),
    "float // 2": (lambda x: x // 2.0, lambda op, x: op.Floor(op.Mul(x, 0.5)), WIDE),
    "mse loss": (
        F.mse_loss,
        lambda op, x, y: op.ReduceMean(op.Pow(op.Sub(x, y), 2.0), keepdims=0),
        WIDE,
        WIDE + 1,
    ),
    "cdist": (
        lambda x: torch.cdist(x, x),
        lambda op, x: op.ReduceL2(op.Sub(op.Unsqueeze(x, [1]), op.Unsqueeze(x, [0])), [2], keepdims=0),
        POINTS,
    ),
    "meshgrid": (
        lambda x, y: torch.meshgrid(x, y, indexing="ij"),
        lambda op, x, y: (op.Expand(op.Unsqueeze(x, [1]), [1, 512]), op.Expand(y, [512, 1])),
        torch.randn(512),
        torch.randn(512),
    ),
    "index put": (
        lambda x, i, y: x.index_put((i,), y),
        lambda op, x, i, y: op.ScatterND(x, op.Unsqueeze(i, [1]), y),
        WIDE,
        torch.randperm(64),
        WIDE + 1,
    ),
    "scatter add": (
        lambda x, i: x.scatter_add(0, i, x),
        lambda op, x, i: op.ScatterElements(x, i, x, reduction="add"),
        WIDE,
        INTS % 64,
    ),
    "embedding bag": (
        lambda i, table: F.embedding_bag(i, table),
        lambda op, i, table: op.ReduceMean(op.Gather(table, i), [1], keepdims=0),
        TOKENS,
        TABLE,
    ),
    "embedding bag, offsets": (
        lambda i, starts, table: F.embedding_bag(i, table, starts),
        lambda op, i, starts, table: op.ReduceMean(
            op.Reshape(op.Gather(table, i), [64, 16, 32]), [1], keepdims=0
        ),
        TOKENS.reshape(-1),
        torch.arange(0, 1024, 16),
        TABLE,
    ),
    "nothing": (
        lambda x: torch.unsqueeze(x * 1.0 + 0, 0).unsqueeze(0),
        lambda op, x: op.Unsqueeze(x, [0, 1]),
        WIDE,
    ),
    "square": (lambda x: x**2, lambda op, x: op.Mul(x, x), WIDE),
    "linear in bfloat16": (
        lambda x, w: F.linear(x, w),
        lambda op, x, w: op.Cast(op.Gemm(op.Cast(x, to=1), op.Cast(w, to=1), transB=1), to=16),
        WIDE[:, :512].bfloat16(),
        WIDE[:, :512].bfloat16(),
    ),
    "a block in bfloat16": (
        lambda x, scale, weight, bias: (
            x + F.gelu(F.linear(F.layer_norm(x, (512,), scale, bias), weight, bias))
        ),
        block,
        WIDE[:, :512].bfloat16(),
        torch.rand(512).bfloat16(),
        (torch.randn(512, 512) / 16).bfloat16(),
        torch.rand(512).bfloat16(),
    ),
}
"""{row: (function of torch, the smallest graph, *inputs)}."""


def smallest(write: Callable, inputs: tuple[torch.Tensor, ...]) -> onnx.ModelProto:
    """The model of a function that writes with an emitter, in the plain standard."""
    graph = ir.Graph([], [], nodes=[], name="smallest", opset_imports={"": OPSET})
    op = Emitter(graph, Context(graph, OPSET, runtime="onnx"))
    for position, tensor in enumerate(inputs):
        kind = ir.TensorType(ir.tensor_adapters.TorchTensor(tensor).dtype)
        graph.inputs.append(ir.Value(name=f"x{position}", type=kind, shape=ir.Shape(tensor.shape)))
    results = write(op, *graph.inputs)
    graph.outputs.extend(results if isinstance(results, tuple) else (results,))
    return ir.to_proto(ir.Model(graph, ir_version=10))


def axes_of(inputs: tuple[torch.Tensor, ...]) -> tuple:
    """All dimensions dynamic."""
    return tuple({axis: torch.export.Dim.AUTO for axis in range(x.dim())} for x in inputs)


def peer(call: Call, inputs: tuple, shapes: tuple | None) -> onnx.ModelProto | None:
    """The model of torch.onnx.export, None when it has none that onnxruntime runs."""
    shapes = None if shapes is None else (shapes,)
    try:
        program = torch.onnx.export(call, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False)
        session(program.model_proto, threads=1)
    except Exception:  # it refuses, or onnxruntime refuses its model: the row says so
        return None
    return program.model_proto


def timed(runners: list, feeds: list[list], rounds: int) -> list[float]:
    """Median microseconds of thread CPU time of each runner, interleaved and rotated."""
    found: list[list[float]] = [[] for _ in runners]
    for runner, given in zip(runners, feeds):
        for _ in range(3):
            runner.run_with_ort_values(None, given)
    for turn in range(rounds):
        for k in range(len(runners)):
            k = (k + turn) % len(runners)
            start = time.thread_time_ns()
            runners[k].run_with_ort_values(None, feeds[k])
            found[k].append((time.thread_time_ns() - start) / 1e3)
    return [statistics.median(times) for times in found]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="words that the row's name holds")
    parser.add_argument("--rounds", type=int, default=40, help="runs of each model")
    parser.add_argument("--dynamic", action="store_true", help="export with all dimensions dynamic")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("experimental_experiment", "torch.onnx", "onnxscript"):
        logging.getLogger(name).setLevel(logging.ERROR)
    rows = []
    for name, (function, write, *inputs) in CASES.items():
        if options.only and not any(word in name for word in options.only):
            continue
        call = Call(function, inputs, {})
        given = call.tensors()
        shapes = axes_of(given) if options.dynamic else None
        ours = to_onnx(call, given, dynamic_shapes=None if shapes is None else (shapes,), target_opset=OPSET)
        models = [ours, smallest(write, given), peer(call, given, shapes)]
        runners = [session(model, threads=1) for model in models if model is not None]
        feeds = [
            {argument.name: to_ort(tensor) for argument, tensor in zip(runner.get_inputs(), given)}
            for runner in runners
        ]
        times = timed(runners, feeds, options.rounds)
        ratios = [f"{other / times[0]:.2f}" for other in times[1:]] + ["no model"] * (models[2] is None)
        nodes = [len(model.graph.node) if model is not None else None for model in models]
        rows.append([name, *nodes, f"{times[0]:.0f}", *ratios])
    headers = ["row", "nodes", "smallest", "torch.onnx", "us", "smallest / ours", "torch.onnx / ours"]
    print(tabulate(rows, headers=headers, tablefmt="github"))


if __name__ == "__main__":
    main()
