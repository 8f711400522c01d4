"""An interruption anywhere in an export leaves everything as it was: the model, torch, the patches, the logger, the files."""

from __future__ import annotations

import gc
import importlib
import inspect
import logging
import pathlib
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch._dynamo.convert_frame import compile_lock

from experimental_experiment.torch_interpreter import ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.torch_interpreter.messages import stage
from experimental_experiment.torch_interpreter.patches.patch import PATCHES
from experimental_experiment.torch_interpreter.torch_state import REMARKS
from experimental_experiment.xoptim import optimize
from experimental_experiment.xoptim.quantization import quantize_weights

EXPORT = (
    "capture", "fitted_shapes", "judge", "name_dimensions", "translate", "emit", "fold", "finish", "rewrite", "applied", "written", "placed",
)  # fmt: skip
"""Functions of this package at whose call an export is interrupted. Those of torch leave its modes as they are then."""

FILES = {
    "optimize": ("remove_unused_nodes", "prepare", "rewrite", "look_at"),
    "quantize_weights": ("is_matrix", "quantized"),
    "save": ("workplace", "placed", "without_stale_data"),
}
"""The same of functions that read and write files."""


class Counter(torch.nn.Module):
    """A module with weights, a buffer that it writes and a keyword argument."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x, **others):
        self.count.add_(1)
        return self.linear(x) + self.count + others["y"]


def export(module: torch.nn.Module, file: pathlib.Path) -> bytes:
    """An export with all patches, to a file."""
    x = torch.ones(2, 4)
    shapes = {"x": {0: "batch"}, "others": {"y": {0: "batch"}}}
    options = ExportOptions(patches=True)
    model = to_onnx(
        module,
        (x,),
        {"y": x},
        dynamic_shapes=shapes,
        export_options=options,
        mutated_buffers="outputs",
        filename=file,
    )
    return model.SerializeToString()


def held(path: str) -> Any:
    """What stands at a dotted name, None where nothing does. Looking imports nothing: transformers does so at an attribute."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        found = sys.modules.get(".".join(parts[:end]))
        if found is not None:
            for part in parts[end:]:
                found = inspect.getattr_static(found, part, None)
            return found
    return None


def state(module: torch.nn.Module) -> dict[str, Any]:
    """What an export may change for a while."""
    tracing = importlib.import_module("torch.export._trace")
    loggers = [logging.getLogger(name) for name in ("experimental_experiment", *REMARKS)]
    free = compile_lock.acquire(blocking=False)
    if free:
        compile_lock.release()
    return {
        "patches": [held(path) for patch in PATCHES.values() for path in patch.replaces],
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "torch": (
            torch.is_grad_enabled(),
            torch.compiler.is_exporting(),
            torch.compiler.is_compiling(),
            torch.is_autocast_enabled("cpu"),
        ),
        "context": torch._guards.TracingContext.try_get(),
        "module": (sorted(vars(module)), module.training, module.count.tolist()),
        "weights": [id(tensor) for tensor in module.state_dict(keep_vars=True).values()],
        "loggers": [(list(item.filters), list(item.handlers)) for item in loggers],
        "print": "print" in vars(tracing),
        "others": (gc.isenabled(), free),
    }


class TestInterrupted(unittest.TestCase):
    def test_everything_is_as_before(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "model.onnx"
        module = Counter().eval()
        expected = export(module, file)
        before = state(module)
        for name in EXPORT:
            with self.subTest(name):
                self.assertTrue(is_interrupted(name, lambda: export(module, file)))
                self.assertEqual(before, state(module))
                self.assertEqual([file], list(file.parent.iterdir()))
        self.assertEqual(expected, export(module, file))

    def test_an_interruption_that_torch_names_otherwise(self):
        said = "new_empty(): argument 'size' failed to unpack the object at pos 2 with error \"KeyboardInterrupt: <EMPTY MESSAGE>"
        with self.assertRaises(KeyboardInterrupt), stage("torch.export.export"):
            raise TypeError(said)

    def test_functions_of_files(self):
        """`optimize`, `quantize_weights` and `save` alone: what they read stays, what they write is the old file or the new one."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        source, target = (pathlib.Path(folder.name) / name for name in ("source.onnx", "target.onnx"))
        module = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
        to_onnx(module, (torch.ones(2, 32),), filename=source, optimize=False)
        save(ir.load(source), target)
        given, new = source.read_bytes(), target.read_bytes()
        acts = {
            "optimize": lambda: optimize(onnx.load(source)).SerializeToString(),
            "quantize_weights": lambda: ir.to_proto(quantize_weights(source)).SerializeToString(),
            "save": lambda: save(ir.load(source), target).SerializeToString(),
        }
        held = Counter().eval()
        before = state(held)
        for name, act in acts.items():
            expected = act()
            for function in FILES[name]:
                with self.subTest(name, function=function):
                    target.write_bytes(b"old")
                    self.assertTrue(is_interrupted(function, act))
                    self.assertEqual(before, state(held))
                    self.assertEqual({source, target}, {*source.parent.iterdir()})
                    self.assertEqual(given, source.read_bytes())
                    self.assertIn(target.read_bytes(), (b"old", new))
            self.assertEqual(expected, act())


def is_interrupted(name: str, act: Callable[[], object]) -> bool:
    """Act, interrupted at the first call of a function of this package; whether it was called."""

    def profile(frame, event, argument):
        ours = frame.f_globals.get("__name__", "").startswith("experimental_experiment.")
        if event == "call" and ours and frame.f_code.co_name == name:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


if __name__ == "__main__":
    unittest.main()
