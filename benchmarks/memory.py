"""Peak resident memory of an export to a file, ours and torch.onnx.export's, for a model of N GB of weights.

    python benchmarks/memory.py --gigabytes 2.2

Each export runs in a process of its own: the model is built, a small one is exported first, then the peak is reset (Linux only)
and the model exported to a temporary folder. What is printed is the peak beyond the loaded model. The rows "from safetensors" and
"beside safetensors" export a model of the meta device, whose weights are in a file of another folder, or in the model's own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
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

EXPORTERS = ("ours", "from safetensors", "beside safetensors", "torch.onnx.export")
WIDTH = 8192


def build_empty(gigabytes: float) -> torch.nn.Module:
    """Square layers on the meta device, 256 MB each, as many as *gigabytes* asks for."""
    layers = max(1, round(gigabytes * 2**30 / (4 * WIDTH * WIDTH)))
    with torch.device("meta"):
        return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def build(gigabytes: float) -> torch.nn.Module:
    """The same layers with values."""
    model = build_empty(gigabytes).to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.001)
    return model


def write_safetensors(model: torch.nn.Module, filename: str) -> None:
    """Write numbers for the weights of a model, one after the other: the length of a header, the header, the data."""
    header, end = {}, 0
    for name, tensor in model.state_dict().items():
        begin, end = end, end + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": [*tensor.shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(filename, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in model.state_dict().values():
            torch.full([tensor.numel()], 0.001).numpy().tofile(file)


def export(
    exporter: str, model: torch.nn.Module, width: int, filename: str, weights: str | None = None
) -> None:
    """Export to a file with a dynamic batch."""
    args, shapes = (torch.ones(2, width),), ({0: torch.export.Dim.DYNAMIC},)
    if exporter != "torch.onnx.export":
        to_onnx(model, args, dynamic_shapes=shapes, filename=filename, weights=weights)
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
    filename, weights = os.path.join(folder, "model.onnx"), None
    if exporter.endswith("safetensors"):
        model = build_empty(gigabytes)
        place = "." if exporter.startswith("beside") else ".."
        weights = os.path.join(folder, place, "model.safetensors")
        write_safetensors(model, weights)
    else:
        model = build(gigabytes)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, begin = status("VmRSS"), time.perf_counter()
    export(exporter, model, WIDTH, filename, weights)
    seconds = time.perf_counter() - begin
    written = sum(entry.stat().st_size for entry in os.scandir(folder) if "model.onnx" in entry.name) / 2**20
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
        if exporter == "torch.onnx.export" and importlib.util.find_spec("onnxscript") is None:
            print("torch.onnx.export is left out: the package onnxscript is not installed")
            continue
        with tempfile.TemporaryDirectory(dir=given.folder) as parent:
            folder = os.path.join(parent, "exported")
            os.mkdir(folder)
            command = [sys.executable, __file__, "--only", exporter, "--folder", folder]
            command += ["--gigabytes", str(given.gigabytes)]
            result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append([exporter, *map(float, result.stdout.split())])
    headers = ["exporter", "loaded MB", "peak beyond it MB", "seconds", "written MB"]
    print(tabulate(rows, headers, floatfmt=".0f"))


if __name__ == "__main__":
    main()
