"""Exports that are looked at: in memory, or in a folder when the weights take more than protobuf holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
import torch

from experimental_experiment.torch_interpreter.files import PROTOBUF_LIMIT
from experimental_experiment.torch_interpreter.onnx_export import to_onnx


def written(
    model: Any, args: tuple, kwargs: Mapping[str, Any], folder: str | os.PathLike, **options: Any
) -> tuple[onnx.ModelProto, onnx.ModelProto | str]:
    """The graph of an export, and what can be run: the same, or a file of *folder* for a model that is too large."""
    if not is_large(tensors_of(model)):
        proto = to_onnx(model, args, kwargs, **options)
        return proto, proto
    path = os.path.join(folder, f"{len(os.listdir(folder))}.onnx")
    return to_onnx(model, args, kwargs, filename=path, **options), path


def is_large(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether these take more than protobuf holds, those that share memory counted once."""
    sizes = {tensor.untyped_storage()._cdata: tensor.nbytes for tensor in tensors}
    return sum(sizes.values()) > PROTOBUF_LIMIT


def tensors_of(model: Any) -> list[torch.Tensor]:
    """The weights of a module or a program; nothing is known of a function's."""
    if isinstance(model, torch.export.ExportedProgram):
        return [*model.state_dict.values(), *filter(is_tensor, model.constants.values())]
    return [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []


def is_tensor(item: Any) -> bool:
    """Whether an item is a tensor."""
    return isinstance(item, torch.Tensor)
