"""Writing a model: one file, or two when the weights are large; nothing half written."""

from __future__ import annotations

import os
import tempfile

import onnx
import onnx_ir as ir

EXTERNAL_THRESHOLD = 16 * 2**20
"""Weights of more bytes in all go to a file of their own: they are never copied into a protobuf."""

PROTOBUF_LIMIT = 2**31 - 2**20
"""A protobuf holds less than 2 GB."""


def weight_bytes(model: ir.Model) -> int:
    """Size of the initializers of the model in bytes."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )


def save(model: ir.Model, filename: str | os.PathLike) -> onnx.ModelProto:
    """Write *model* to *filename*, its weights to ``filename + ".data"`` when they take more than 16 MB.

    Both files are written in a temporary folder beside the target, then renamed: a failure leaves what was there.
    Returns the model that was written; it refers to the data file by its name. Raises IsADirectoryError on a folder.
    """
    path = os.path.abspath(filename)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{os.fspath(filename)!r} is a folder")
    folder, name = os.path.split(path)
    data = f"{name}.data" if weight_bytes(model) > EXTERNAL_THRESHOLD else None
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as temporary:
        written = os.path.join(temporary, name)
        ir.save(model, written, external_data=data)
        proto = onnx.load(written, load_external_data=False)
        if data is not None:
            os.replace(os.path.join(temporary, data), os.path.join(folder, data))
        os.replace(written, path)
    return proto
