"""The model of a file, or one sentence that says that it holds none."""

from __future__ import annotations

import os

import onnx
import onnx.parser
from google.protobuf import json_format, message, text_format

MALFORMED = (message.Error, json_format.Error, text_format.Error, onnx.parser.ParseError, ValueError)
"""What the readers of the forms of a file raise: which one is read, its name says."""


def read(path: str | os.PathLike, with_weights: bool = False) -> onnx.ModelProto:
    """The model of a file, its external data only when it is asked for. Raises ValueError when the file holds no model."""
    try:
        model = onnx.load(path, load_external_data=False)
    except MALFORMED as error:
        raise ValueError(f"{os.fspath(path)!r} is not an ONNX model, or it is truncated") from error
    if not model.HasField("graph") or not model.opset_import:
        raise ValueError(f"{os.fspath(path)!r} is not an ONNX model, or it is truncated")
    return onnx.load(path) if with_weights else model
