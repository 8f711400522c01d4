"""Latency in onnxruntime of one model written in several ways, beside eager PyTorch.

    python benchmarks/latency.py [--models decode bert ...] [--rounds 30] [--floor]

One line a model: time of each candidate relative to our model without optimization (thread-CPU time of one thread, candidates in turns
whose order rotates, the median of all rounds), the number of nodes, and the milliseconds of that model. Candidates:
plain (ours, optimize=False), generic (ours, standard rules), runtime (ours, with the rules of onnxruntime), peer
(torch.onnx.export(optimize=True)), peer+ours (that model after our `optimize`), eager, and again (plain once more: what noise is).
--floor adds the time inside MatMul, Gemm and Conv, from onnxruntime's profile.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import torch
from latency_models import MODELS, example
from tabulate import tabulate
from torch.utils import _pytree as pytree

from experimental_experiment.comparison import tensor_leaves
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import OptimizationOptions, optimize

OPSET = 20
PRODUCTS = ("MatMul", "Gemm", "Conv", "FusedMatMul", "FusedGemm", "FusedConv", "DynamicQuantizeLSTM", "LSTM")


def peer(model, args, shapes) -> onnx.ModelProto | None:
    """torch.onnx.export's model, None when it refuses."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(
                model,
                args,
                dynamic_shapes=shapes,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                optimize=True,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            print(f"torch.onnx.export: {str(error).splitlines()[0]}")
            return None
    return program.model_proto


def candidates(name: str) -> tuple[dict[str, onnx.ModelProto], torch.nn.Module, tuple]:
    """The models, and what eager needs."""
    model, args, shapes = example(name)
    domains = {"": OPSET, "com.microsoft": 1}
    with torch.no_grad():
        program = to_onnx(model, args, dynamic_shapes=shapes, optimize=False, target_opset=OPSET)
        found = {
            "plain": program,
            "generic": to_onnx(model, args, dynamic_shapes=shapes, target_opset=OPSET),
            "runtime": to_onnx(model, args, dynamic_shapes=shapes, target_opset=domains),
            "peer": peer(model, args, shapes),
        }
    if found["peer"] is None:
        del found["peer"]
    else:
        found["peer+ours"] = optimize(found["peer"], OptimizationOptions())
    return {**found, "again": program}, model, args


def session(model: onnx.ModelProto, profile: str | None = None) -> onnxruntime.InferenceSession:
    """One thread, onnxruntime's own optimizations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def feeds_of(runner: onnxruntime.InferenceSession, args: tuple) -> dict[str, np.ndarray]:
    """The arguments by name, in order."""
    leaves = [tensor.numpy() for tensor in tensor_leaves(args)]
    return dict(zip((item.name for item in runner.get_inputs()), leaves, strict=True))


def floor_of(model: onnx.ModelProto, args: tuple, runs: int = 20) -> float:
    """Milliseconds a run inside the products."""
    with tempfile.TemporaryDirectory() as folder:
        runner = session(model, os.path.join(folder, "profile"))
        feeds = feeds_of(runner, args)
        for _ in range(runs):
            runner.run(None, feeds)
        with open(runner.end_profiling()) as file:
            events = json.load(file)
    inside = [
        item["dur"]
        for item in events
        if item.get("cat") == "Node"
        and item["name"].endswith("_kernel_time")
        and item["args"].get("op_name") in PRODUCTS
    ]
    return sum(inside) / runs / 1000


def measured(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of thread-CPU time of each function, called in turns."""
    names = list(functions)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 3):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            begin = time.thread_time()
            functions[name]()
            if turn >= 3:
                times[name].append(time.thread_time() - begin)
    return {name: 1000 * statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--floor", action="store_true", help="also the time inside MatMul, Gemm, Conv, LSTM")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("torch.onnx", "experimental_experiment"):
        logging.getLogger(name).setLevel(logging.ERROR)
    columns = ["plain", "generic", "runtime", "peer", "peer+ours", "eager", "again"]
    rows = []
    for name in given.models:
        models, eager, args = candidates(name)
        functions, expected = {}, None
        for key, model in models.items():
            runner = session(model)
            feeds = feeds_of(runner, args)
            results = runner.run(None, feeds)
            expected = expected or results
            worst = max(float(np.abs(a - b).max()) for a, b in zip(expected, results, strict=True))
            if worst > 1e-3:
                print(f"{name}: {key} differs by {worst:.1e}")
            functions[key] = lambda runner=runner, feeds=feeds: runner.run(None, feeds)

        def forward(eager=eager, args=args):
            with torch.no_grad():
                eager(*pytree.tree_map(lambda leaf: leaf, args))

        functions["eager"] = forward
        times = measured(functions, given.rounds)
        ratios = [times[key] / times["plain"] if key in times else None for key in columns[1:]]
        nodes = "/".join(str(len(models[key].graph.node)) if key in models else "-" for key in columns[:5])
        floor = [floor_of(models["plain"], args)] if given.floor else []
        rows.append([name, times["plain"], *ratios, nodes, *floor])
        print(tabulate(rows[-1:], tablefmt="plain", floatfmt=".3f"), flush=True)
    headers = [
        "model",
        "plain ms",
        *columns[1:],
        "nodes " + "/".join(columns[:5]),
        *(["floor ms"] if given.floor else []),
    ]
    print(tabulate(rows, headers, floatfmt=".3f"))


if __name__ == "__main__":
    main()
