"""An interruption anywhere in an export leaves everything as it was: the model, torch, the patches, the logger, the files."""

from __future__ import annotations

import gc
import importlib
import logging
import pathlib
import random
import sys
import tempfile
import unittest
from typing import Any

import torch

from experimental_experiment.torch_interpreter import ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches.patch import PATCHES
from experimental_experiment.torch_interpreter.torch_state import LOCK, REMARKS

POINTS = 6
"""Calls of Python functions, drawn at random, at which the export is interrupted."""


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
    """What stands at a dotted name, None where nothing does."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        found = sys.modules.get(".".join(parts[:end]))
        if found is not None:
            for part in parts[end:]:
                found = getattr(found, part, None)
            return found
    return None


def state(module: torch.nn.Module) -> dict[str, Any]:
    """What an export may change for a while."""
    tracing = importlib.import_module("torch.export._trace")
    loggers = [logging.getLogger(name) for name in ("experimental_experiment", *REMARKS)]
    free = LOCK.acquire(blocking=False)
    if free:
        LOCK.release()
    return {
        "patches": [held(path) for patch in PATCHES.values() for path in patch.replaces],
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "torch": (torch.is_grad_enabled(), torch.compiler.is_exporting(), torch.is_autocast_enabled("cpu")),
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
        generator = random.Random(0)
        total = self.interrupted_after(sys.maxsize, module, file)
        self.assertGreater(total, 10_000)
        for call in [*generator.sample(range(1, total), POINTS - 1), total - 300]:
            with self.subTest(call=call):
                self.interrupted_after(call, module, file)
                self.assertEqual(before, state(module))
                self.assertEqual([file], list(file.parent.iterdir()))
        self.assertEqual(expected, export(module, file))

    def interrupted_after(self, calls: int, module: torch.nn.Module, file: pathlib.Path) -> int:
        """Export, interrupted at a call of a Python function, generators of sympy left alone; how many there were."""
        count = 0

        def profile(frame, event, argument):
            nonlocal count
            count += event == "call"
            if event == "call" and count >= calls and frame.f_code.co_name != "<genexpr>":
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(profile)
        try:
            export(module, file)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        return count


if __name__ == "__main__":
    unittest.main()
