"""Operators without any kernel, which nothing replaces: one logged warning."""

from __future__ import annotations

from experimental_experiment.torch_interpreter.runtime.table import repairs


@repairs(
    "MaxRoiPool",
    "RoiAlign",
    when="ai.onnx 22 and later",
    because="there is no kernel",
    nodes=0,
)
def warned_about(op, *inputs, operator, **attributes):
    """The operator itself, and one logged warning that says to lower target_opset."""
    if op.opset >= 22:
        op.context.warn_once(f"onnxruntime has no kernel for {operator} after opset 21: lower target_opset")
