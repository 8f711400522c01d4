"""Peak resident memory of an export to a file, ours and torch.onnx.export's, for a model of N GB of weights.

    python benchmarks/memory.py --gigabytes 2.2

Each export runs in a process of its own: the model is built, a small one is exported first, then the peak is reset (Linux only)
and the model exported to a temporary folder. What is printed is the peak beyond the loaded model.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

import torch
from tabulate import tabulate

from experimental_experiment.torch_interpreter import to_onnx

EXPORTERS = ("ours", "torch.onnx.export")
WIDTH = 8192


def build(gigabytes: float) -> torch.nn.Module:
    """Square layers, 256 MB each, as many as *gigabytes* asks for."""
    layers = max(1, round(gigabytes * 2**30 / (4 * WIDTH * WIDTH)))
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.001)
    return model


def export(exporter: str, model: torch.nn.Module, width: int, filename: str) -> None:
    """Export to a file with a dynamic batch."""
    args, shapes = (torch.ones(2, width),), ({0: torch.export.Dim.DYNAMIC},)
    if exporter == "ours":
        to_onnx(model, args, dynamic_shapes=shapes, filename=filename)
        return
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, args, filename, dynamic_shapes=shapes, dynamo=True, external_data=True)


def status(field: str) -> float:
    """A field of /proc/self/status in MB: VmRSS now, VmHWM the peak."""
    with open("/proc/self/status") as file:
        return int(re.search(rf"{field}:\s+(\d+) kB", file.read()).group(1)) / 1024


def measure(exporter: str, gigabytes: float, folder: str) -> None:
    """In a process of its own: print MB before, MB beyond at the peak, seconds, MB written."""
    export(exporter, torch.nn.Linear(4, 4), 4, os.path.join(folder, "small.onnx"))
    model = build(gigabytes)
    filename = os.path.join(folder, "model.onnx")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, begin = status("VmRSS"), time.perf_counter()
    export(exporter, model, WIDTH, filename)
    seconds = time.perf_counter() - begin
    written = sum(entry.stat().st_size for entry in os.scandir(folder)) / 2**20
    print(before, status("VmHWM") - before, seconds, written)


def main() -> None:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.2)
    parser.add_argument(
        "--folder", help="where the models are written, the folder of temporary files by default"
    )
    parser.add_argument("--only", choices=EXPORTERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        measure(given.only, given.gigabytes, given.folder)
        return
    rows = []
    for exporter in EXPORTERS:
        if exporter != "ours" and importlib.util.find_spec("onnxscript") is None:
            print("torch.onnx.export is left out: the package onnxscript is not installed")
            continue
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            command = [sys.executable, __file__, "--only", exporter, "--folder", folder]
            command += ["--gigabytes", str(given.gigabytes)]
            result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append([exporter, *map(float, result.stdout.split())])
    headers = ["exporter", "loaded MB", "peak beyond it MB", "seconds", "written MB"]
    print(tabulate(rows, headers, floatfmt=".0f"))


if __name__ == "__main__":
    main()
