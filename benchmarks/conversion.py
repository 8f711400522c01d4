"""The ten operators of PyTorch's operator database that take longest to convert, beside the median.

    python benchmarks/conversion.py [--only WORD ...]

One float32 sample of each operator (its last); the capture by torch.export is not counted. The time of a conversion is the best of three.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings

import torch
from tabulate import tabulate
from torch.testing._internal.common_methods_invocations import op_db

from experimental_experiment.testing import Call
from experimental_experiment.torch_interpreter import ExportError, to_onnx


def measure(words: list[str]) -> list[tuple[float, str, int, int]]:
    """Milliseconds, name, FX nodes and ONNX nodes of each operator that is exported."""
    rows = []
    for info in op_db:
        if words and not any(word in info.name for word in words):
            continue
        if torch.float32 not in info.supported_dtypes("cpu"):
            continue
        samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        if not samples:
            continue
        call = Call(info.op, (samples[-1].input, *samples[-1].args), samples[-1].kwargs)
        try:
            program = torch.export.export(call, call.tensors())
        except Exception:  # torch.export refuses this operator: nothing to convert
            continue
        try:
            best, model = min((timed(program) for _ in range(3)), key=lambda pair: pair[0])
        except ExportError:
            continue
        rows.append((best * 1e3, info.name, len(program.graph.nodes), len(model.graph.node)))
    return sorted(rows, reverse=True)


def timed(program: torch.export.ExportedProgram):
    """Seconds of one conversion, and the model."""
    start = time.perf_counter()
    model = to_onnx(program)
    return time.perf_counter() - start, model


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="words that the operator's name holds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("experimental_experiment").setLevel(logging.ERROR)
    rows = measure(options.only)
    median = statistics.median(row[0] for row in rows)
    table = [(name, f"{ms:.1f}", f"{ms / median:.1f}", fx, onnx) for ms, name, fx, onnx in rows[:10]]
    print(tabulate(table, headers=["operator", "ms", "times the median", "FX nodes", "ONNX nodes"]))
    print(f"median of {len(rows)} operators: {median:.2f} ms")


if __name__ == "__main__":
    main()
