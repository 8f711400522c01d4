"""``to_onnx(weights=...)``: the values of a model that was made without, on the meta device or under FakeTensorMode.

They stay where they are: a tensor of a file is known by its place, and read, or copied, when the model is written.
Source of the format: https://huggingface.co/docs/safetensors, the length of a JSON header in eight bytes, the header, the data.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.signature import Program

INDEX = "model.safetensors.index.json"
"""The file of a folder that says which tensor is in which file."""

DTYPES = {
    "BF16": ir.DataType.BFLOAT16,
    "BOOL": ir.DataType.BOOL,
    "F16": ir.DataType.FLOAT16,
    "F32": ir.DataType.FLOAT,
    "F64": ir.DataType.DOUBLE,
    "F8_E4M3": ir.DataType.FLOAT8E4M3FN,
    "F8_E5M2": ir.DataType.FLOAT8E5M2,
    "I16": ir.DataType.INT16,
    "I32": ir.DataType.INT32,
    "I64": ir.DataType.INT64,
    "I8": ir.DataType.INT8,
    "U16": ir.DataType.UINT16,
    "U32": ir.DataType.UINT32,
    "U64": ir.DataType.UINT64,
    "U8": ir.DataType.UINT8,
}
"""What safetensors calls the dtypes that ONNX has."""

SHOWN = 10
"""So many names are listed in a message."""

Values = Mapping[str, torch.Tensor | ir.ExternalTensor]


class WeightsError(ValueError):
    """The weights are not those of the model: what is missing, too much or of another shape, what was written since."""


class Weight(TorchTensor):
    """A tensor of torch in a model, by reference: it raises WeightsError when it is read after torch has written it.

    Constants that were folded from the old values would stand beside the new ones. What torch does not count is not seen: writes
    through ``.data`` or numpy, and those of tensors made in ``torch.inference_mode``.
    """

    def __init__(self, tensor: torch.Tensor, name: str | None = None):
        super().__init__(tensor.detach(), name=name)
        self.writes = writes(self._raw)

    @property
    def raw(self) -> torch.Tensor:
        """The tensor, as it was when the model was made."""
        if writes(self._raw) != self.writes:
            raise WeightsError(f"the weight {self.name} was written after the export: export the model again")
        return self._raw


def in_parts(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; a complex one as ONNX has it, with an axis more of real and imaginary parts."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def writes(tensor: torch.Tensor) -> int:
    """How often torch has written the memory of a tensor; 0 when it does not count."""
    return 0 if tensor.is_inference() else tensor._version


@contextlib.contextmanager
def weights_errors() -> Iterator[None]:
    """A WeightsError stands alone: onnx-ir wraps one that is raised while it writes a model."""
    try:
        yield
    except ir.serde.SerdeError as error:
        cause = error.__cause__
        while isinstance(cause, ir.serde.SerdeError):
            cause = cause.__cause__
        if isinstance(cause, WeightsError):
            raise cause from None
        raise


def opened(weights: Any) -> Values:
    """The weights by name: a state_dict as it is, or what a safetensors file, or a folder of them, says of its tensors.

    Raises TypeError for anything else, FileNotFoundError and WeightsError for a path without weights.
    """
    if isinstance(weights, Mapping):
        return weights
    if not isinstance(weights, (str, os.PathLike)):
        raise TypeError(f"weights is a state_dict, or the path of safetensors, not {type(weights).__name__}")
    path = os.path.abspath(weights)
    if not os.path.isdir(path):
        return stored(path)
    index = os.path.join(path, INDEX)
    if os.path.exists(index):
        files = listed_files(index)
    else:
        files = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    if not files:
        raise WeightsError(f"the folder {os.fspath(weights)!r} holds no safetensors")
    return {name: tensor for file in files for name, tensor in stored(os.path.join(path, file)).items()}


def listed_files(index: str) -> list[str]:
    """The files that the index of a folder names. Raises WeightsError when it names none."""
    with open(index, "rb") as file:
        content = parsed(file.read())
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(file and isinstance(file, str) for file in places.values()):
        raise WeightsError(f"{index!r} does not say in which file each weight is")
    return sorted(set(places.values()))


def parsed(content: bytes) -> Any:
    """What a text of JSON says, None when it is no such text."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def stored(path: str) -> dict[str, ir.ExternalTensor]:
    """The tensors of a safetensors file, none of them read. Raises WeightsError when its header makes no sense."""
    with open(path, "rb") as file:
        start = file.read(8)
        length, room = int.from_bytes(start, "little"), os.path.getsize(path) - 8
        header = parsed(file.read(length)) if len(start) == 8 and length <= room else None
    if not isinstance(header, dict):
        raise WeightsError(f"{path!r} is no safetensors file")
    header.pop("__metadata__", None)
    return {name: placed(name, entry, path, length, room - length) for name, entry in header.items()}


def placed(name: str, entry: Any, path: str, length: int, room: int) -> ir.ExternalTensor:
    """A tensor of the file *path*, behind a header of *length* bytes, in the *room* of bytes that follow."""
    values = entry if isinstance(entry, dict) else {}
    kind, shape, offsets = (values.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or not are_counts(shape) or not are_counts(offsets) or len(offsets) != 2:
        raise WeightsError(f"{path!r} does not say what the weight {name} is: {entry!r:.100}")
    if kind not in DTYPES:
        raise WeightsError(f"the weight {name} of {path!r} is {kind}, which ONNX does not have")
    dtype, (begin, end) = DTYPES[kind], offsets
    if end > room or end - begin != math.prod(shape) * dtype.itemsize:
        raise WeightsError(f"{path!r} does not hold the weight {name}, {kind}{shape} from {begin} to {end}")
    return ir.ExternalTensor(
        os.path.basename(path),
        8 + length + begin,
        end - begin,
        dtype,
        shape=ir.Shape(shape),
        name=name,
        base_dir=os.path.dirname(path),
    )


def are_counts(values: Any) -> TypeGuard[list[int]]:
    """Whether this is a list of whole numbers that are not negative."""
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def is_empty(tensor: Any) -> bool:
    """Whether a tensor has a shape and no values."""
    return isinstance(tensor, torch.Tensor) and (tensor.is_meta or isinstance(tensor, FakeTensor))


def example(args: Any) -> Any:
    """The arguments with zeros in the place of tensors without values."""
    return pytree.tree_map_only(
        torch.Tensor, lambda x: torch.zeros(x.shape, dtype=x.dtype) if is_empty(x) else x, args
    )


@contextlib.contextmanager
def off_the_meta_device(module: torch.nn.Module) -> Iterator[None]:
    """Let the weights of a module that are on the meta device be on the CPU for a while, still without values."""
    named = [*module.named_parameters(), *module.named_buffers()]
    on_meta = {
        name: tensor for name, tensor in named if tensor.is_meta and not isinstance(tensor, FakeTensor)
    }
    if not on_meta:
        yield
        return
    with FakeTensorMode():
        fakes = {name: on_cpu(tensor) for name, tensor in on_meta.items()}
    with torch.nn.utils.stateless._reparametrize_module(module, fakes, tie_weights=True, stack_weights=True):
        yield


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the CPU like one of the meta device, for FakeTensorMode."""
    fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake


def give(program: Program, model: torch.nn.Module | torch.export.ExportedProgram, values: Values) -> None:
    """Put *values* in the place of the weights of a program of *model*.

    Raises WeightsError when they are not those of the model: all that is wrong in one message; TypeError when one is no tensor.
    """
    expected, held = weights_of(model)
    names = with_aliases(expected)
    given = {name: next((alias for alias in names[name] if alias in values), None) for name in names}
    for found in filter(None, given.values()):
        if not isinstance(values[found], (torch.Tensor, ir.ExternalTensor)):
            kind = type(values[found]).__name__
            raise TypeError(f"the weight {found} is no tensor but {kind}: torch.as_tensor makes one")
    missing = [
        name for name, found in given.items() if found is None and (name in held or is_empty(expected[name]))
    ]
    problems = listed("missing", missing) + listed(
        "unexpected", [name for name in values if name not in names]
    )
    problems += [
        f"{name} is {[*values[found].shape]} and not {[*expected[name].shape]}"
        for name, found in given.items()
        if found is not None and [*values[found].shape] != [*expected[name].shape]
    ][:SHOWN]
    if problems:
        raise WeightsError(f"weights does not fit the model: {'; '.join(problems)}")
    converted_once: dict[tuple, Any] = {}
    for entry in program.inputs:
        found = given.get(entry.name)
        if entry.tensor is not None and found is not None:
            dtype = entry.node.meta["val"].dtype
            key = found, dtype
            if key not in converted_once:
                converted_once[key] = as_dtype(found, values[found], dtype)
            entry.tensor = converted_once[key]


def listed(what: str, names: list[str]) -> list[str]:
    """A part of a message: so many names, and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what} {', '.join(names[:SHOWN])}{more}"] if names else []


def weights_of(
    model: torch.nn.Module | torch.export.ExportedProgram,
) -> tuple[dict[str, torch.Tensor], set[str]]:
    """The parameters and the buffers of a model by name, a tensor of several names under each; the names of its ``state_dict``."""
    if isinstance(model, torch.export.ExportedProgram):
        state = dict(model.state_dict)
        others = model.graph_signature.non_persistent_buffers
        return {**state, **{name: model.constants[name] for name in others}}, set(state)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    return parameters | buffers, set(model.state_dict(keep_vars=True))


def with_aliases(tensors: Mapping[str, torch.Tensor]) -> dict[str, list[str]]:
    """The names of every weight, the other names of the same tensor with each."""
    shared: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        shared.setdefault(id(tensor), []).append(name)
    return {name: [name, *shared[id(tensor)]] for name, tensor in tensors.items()}


def as_dtype(name: str, value: torch.Tensor | ir.ExternalTensor, dtype: torch.dtype) -> Any:
    """A weight in the dtype of the model, as ``load_state_dict`` casts it: the same tensor, or one that is cast when written."""
    if isinstance(value, torch.Tensor):
        if value.dtype == dtype:
            return value
        held = Weight(value, name)
        return lazy(lambda: TorchTensor(held.raw.to(dtype)), dtype, value.shape)
    expected = dtypes.onnx_dtype(dtype)
    if value.dtype == expected:
        return value

    def cast() -> ir.Tensor:
        array = value.numpy().astype(expected.numpy())
        value.release()
        return ir.Tensor(array, dtype=expected)

    return lazy(cast, dtype, value.shape)


def lazy(function: Any, dtype: torch.dtype, shape: Any) -> ir.LazyTensor:
    """A weight that is computed each time it is read."""
    return ir.LazyTensor(function, dtypes.onnx_dtype(dtype), ir.Shape([*map(int, shape)]))
