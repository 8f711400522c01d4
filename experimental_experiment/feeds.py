"""What a model is run on: arrays that onnxruntime would refuse, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx


def refuse_misfits(graph: onnx.GraphProto, feeds: Mapping[str, Any], called: str = "feeds") -> None:
    """Raise ValueError for names and shapes that the inputs of a graph do not have, TypeError for other dtypes, and what is no array.

    *called*: the name of the argument that the *feeds* are.
    """
    if not isinstance(feeds, Mapping):
        raise TypeError(f"{called} is a dict of arrays by name, not {type(feeds).__name__}")
    inputs = {value.name: value.type for value in graph.input}
    unknown = [name for name in feeds if name not in inputs]
    if unknown:
        raise ValueError(f"the model has no input {unknown[0]!r} but {', '.join(inputs) or 'none'}")
    known = {*feeds, *(tensor.name for tensor in graph.initializer)}
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    for name, kind in inputs.items():
        if name not in known and not kind.HasField("optional_type"):
            raise ValueError(f"the input {name!r} is not given")
    for name, value in feeds.items():
        if inputs[name].HasField("tensor_type"):
            refuse_misfit(name, value, inputs[name].tensor_type)


def refuse_misfit(name: str, value: Any, kind: onnx.TypeProto.Tensor) -> None:
    """Raise TypeError or ValueError for an input of a graph that is no array of its dtype and shape."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"the input {name!r} is an array, not {type(value).__name__}")
    if kind.elem_type:
        expected = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        is_text = kind.elem_type == onnx.TensorProto.STRING and value.dtype.kind in "OSU"
        if value.dtype != expected and not is_text:
            raise TypeError(f"the input {name!r} is {expected}, not {value.dtype}")
    if kind.HasField("shape"):
        dims = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim
        ]
        if len(dims) != value.ndim or any(
            isinstance(dim, int) and dim != size for dim, size in zip(dims, value.shape)
        ):
            raise ValueError(f"the input {name!r} has the shape {dims}, not {list(value.shape)}")
