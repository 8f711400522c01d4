"""What onnxruntime raises: its errors share no class of their own."""

from __future__ import annotations

from onnxruntime.capi import onnxruntime_pybind11_state as runtime

REFUSALS = (runtime.Fail, runtime.InvalidGraph, runtime.NotImplemented, runtime.RuntimeException)
"""For a model that it cannot run."""

UNLOADED = (*REFUSALS, runtime.InvalidArgument, runtime.InvalidProtobuf, runtime.NoSuchFile)
"""For what it cannot load."""
