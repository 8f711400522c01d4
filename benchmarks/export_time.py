"""Time of an export beside torch.export alone and torch.onnx.export(dynamo=True), on a Llama-style decoder.

    python benchmarks/export_time.py --layers 4 16 64

One line a number of layers: seconds of torch.export, of our export in all, of the peer in all, their ratios to torch.export; then
what translation and optimization take per node of the program, which is to stay the same when the model grows. Each time is the
best of --repeat runs, after one export of every kind that is not counted. The decoder reads a prompt, without KV cache: torch
cannot decompose a program with a DynamicCache, which the peer needs (--cache measures that program, without the peer).
The peer needs onnxscript and is left out without.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable

import torch
from tabulate import tabulate

from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.dynamic_shapes import fitted_shapes

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))

import llama_decoder


def capture(model, args, kwargs, dynamic_shapes) -> torch.export.ExportedProgram:
    """torch.export alone; it takes no strings as names."""
    shapes = fitted_shapes(model, args, kwargs, dynamic_shapes).shapes
    return torch.export.export(model, args, kwargs, dynamic_shapes=shapes)


def ours(model, args, kwargs, dynamic_shapes) -> object:
    """Our export, capture included."""
    return to_onnx(model, args, kwargs, dynamic_shapes=dynamic_shapes)


def peer(model, args, kwargs, dynamic_shapes) -> object:
    """torch.onnx.export, capture included."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.onnx.export(
            model, args, kwargs=kwargs, dynamic_shapes=dynamic_shapes, dynamo=True, verbose=False
        )


def decoder(layers: int, with_cache: bool) -> tuple:
    """Model, arguments and dynamic shapes of examples/llama_decoder.py, with or without the cache."""
    model, args, kwargs, shapes = llama_decoder.decoder(layers)
    if not with_cache:
        model.config.use_cache = False
        kwargs = {"input_ids": kwargs["input_ids"], "attention_mask": torch.ones(2, 3, dtype=torch.int64)}
        shapes = {name: {0: "batch", 1: "sequence"} for name in kwargs}
    return model, args, kwargs, shapes


def best(exporters: list[Callable], layers: int, with_cache: bool, repeat: int) -> list[float]:
    """Seconds of the fastest run of each, each run on a new example, in turns: the machine's load hits all alike."""
    times = [[] for _ in exporters]
    for _ in range(repeat):
        for function, found in zip(exporters, times):
            example = decoder(layers, with_cache)
            begin = time.perf_counter()
            function(*example)
            found.append(time.perf_counter() - begin)
    return [min(found) for found in times]


def translation(layers: int, with_cache: bool, repeat: int) -> tuple[int, float]:
    """Nodes of the program, and seconds from the program to the ONNX model."""
    program = capture(*decoder(layers, with_cache))
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        to_onnx(program)
        times.append(time.perf_counter() - begin)
    return len(program.graph.nodes), min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true", help="leave torch.onnx.export out")
    parser.add_argument(
        "--cache", action="store_true", help="with a DynamicCache in and out, without the peer"
    )
    given = parser.parse_args()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with_peer = not (given.no_peer or given.cache)
    if with_peer and importlib.util.find_spec("onnxscript") is None:
        with_peer = False
        print("torch.onnx.export is left out: the package onnxscript is not installed")
    exporters = [capture, ours, *([peer] if with_peer else [])]
    best(exporters, 1, given.cache, 1)
    rows = []
    for layers in given.layers:
        times = best(exporters, layers, given.cache, given.repeat)
        nodes, seconds = translation(layers, given.cache, given.repeat)
        theirs = [times[2], times[2] / times[0]] if with_peer else [None, None]
        rows.append([layers, nodes, *times[:2], times[1] / times[0], *theirs, seconds, 1e6 * seconds / nodes])
        print(f"{layers} layers: {', '.join(f'{value:.2f} s' for value in times)}", file=sys.stderr)
    headers = ["layers", "nodes", "torch.export s", "ours s", "ratio", "torch.onnx.export s", "ratio",
               "translation s", "us a node"]  # fmt: skip
    print(tabulate(rows, headers, floatfmt=("d", "d", ".2f", ".2f", ".2f", ".2f", ".2f", ".2f", ".0f")))


if __name__ == "__main__":
    main()
