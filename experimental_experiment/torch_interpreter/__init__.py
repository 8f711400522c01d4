"""`to_onnx` and what extends it: `translates` registers operators, `ExportError` tells why an export stopped."""

from __future__ import annotations

import importlib
from typing import Any

from experimental_experiment.torch_interpreter import (  # noqa: F401 (they register)
    aten,
    control_flow,
    patches,
    prims,
    symbolic,
)
from experimental_experiment.torch_interpreter.dynamic_shapes import guess_dynamic_shapes
from experimental_experiment.torch_interpreter.errors import (
    CaptureError,
    ExportError,
    Untranslatable,
    VerificationError,
)
from experimental_experiment.torch_interpreter.export_options import ExportOptions
from experimental_experiment.torch_interpreter.onnx_export import to_onnx
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.runtime import rows  # noqa: F401 (they register)

__all__ = [
    "CaptureError",
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
