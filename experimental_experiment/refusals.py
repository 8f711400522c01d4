"""What onnxruntime raises: its errors share no class of their own."""

from __future__ import annotations

from onnxruntime.capi import onnxruntime_pybind11_state as runtime

REFUSALS = (runtime.Fail, runtime.InvalidGraph, runtime.NotImplemented, runtime.RuntimeException)
"""For a model that it cannot run."""

FAILURES = (*REFUSALS, runtime.InvalidArgument)
"""For a model that it cannot run, or inputs that the model does not take."""

UNLOADED = (*FAILURES, runtime.InvalidProtobuf, runtime.NoSuchFile)
"""For what it cannot load."""
