"""`to_onnx` and what extends it: `translates` registers operators, `ExportError` tells why an export stopped.

The import is light: the translations are loaded by the first export, or by the first `translates` of a user.
"""

from __future__ import annotations

import importlib
from typing import Any

from experimental_experiment import versions
from experimental_experiment.torch_interpreter import patches  # noqa: F401 (they register)
from experimental_experiment.torch_interpreter.dynamic_shapes import guess_dynamic_shapes
from experimental_experiment.torch_interpreter.errors import (
    CaptureError,
    EagerError,
    ExportError,
    Untranslatable,
    VerificationError,
)
from experimental_experiment.torch_interpreter.export_options import ExportOptions
from experimental_experiment.torch_interpreter.onnx_export import to_onnx
from experimental_experiment.torch_interpreter.registry import translates

versions.require("onnx", "torch")

__all__ = [
    "CaptureError",
    "EagerError",
    "ExportError",
    "ExportOptions",
    "Untranslatable",
    "VerificationError",
    "guess_dynamic_shapes",
    "simple_loop_for",
    "to_onnx",
    "translates",
]


def __getattr__(name: str) -> Any:
    """`simple_loop_for` is loaded when first asked for: it brings TorchDynamo, a second of imports."""
    if name == "simple_loop_for":
        return importlib.import_module("experimental_experiment.higher_order_ops").simple_loop_for
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
