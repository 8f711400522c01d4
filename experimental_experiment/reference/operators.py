"""The operators that `ExtendedReferenceEvaluator` adds to those of onnx."""

from __future__ import annotations

from onnx.reference.op_run import OpRun

OPERATORS: list[type[OpRun]] = []
