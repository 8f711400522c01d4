"""`to_onnx` and what extends it: `translates` registers operators, `ExportError` tells why an export stopped."""

from experimental_experiment.higher_order_ops import simple_loop_for
from experimental_experiment.torch_interpreter import aten, control_flow, symbolic  # noqa: F401 (they register)
from experimental_experiment.torch_interpreter.errors import CaptureError, ExportError, Untranslatable
from experimental_experiment.torch_interpreter.export_options import ExportOptions
from experimental_experiment.torch_interpreter.onnx_export import to_onnx
from experimental_experiment.torch_interpreter.registry import translates

__all__ = ["CaptureError", "ExportError", "ExportOptions", "Untranslatable", "simple_loop_for", "to_onnx", "translates"]
