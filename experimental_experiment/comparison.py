"""Running a model in onnxruntime and comparing it with eager PyTorch: one place for the rules and the tolerances.

The dtypes that numpy lacks, bfloat16 and those of 8 bits, travel as integers of the same bits.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import dataclasses
import enum
import inspect
import itertools
import math
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch
from torch.utils import _pytree as pytree

from experimental_experiment import versions
from experimental_experiment.torch_interpreter.dtypes import ONNX_TO_TORCH, onnx_dtype
from experimental_experiment.torch_interpreter.memories import called_module
from experimental_experiment.torch_interpreter.messages import in_eager
from experimental_experiment.torch_interpreter.patches.inputs import known_containers
from experimental_experiment.torch_interpreter.signature import leaf_names

versions.require("onnxruntime")

TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (5e-2, 1e-2),
}
"""Relative and absolute tolerance by dtype; integers, booleans and floats of 8 bits are equal."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one output differs from eager.

    Attributes:
        name: name of the output.
        expected: dtype and shape in eager.
        got: dtype and shape in ONNX.
        absolute: largest absolute difference, inf when dtypes, shapes, NaNs or infinities differ.
        relative: largest difference relative to eager's value.
        within: whether the output is within the tolerance of its dtype.
    """

    name: str
    expected: str
    got: str
    absolute: float
    relative: float
    within: bool


def session(
    model: onnx.ModelProto | str | os.PathLike, threads: int | None = None
) -> onnxruntime.InferenceSession:
    """An onnxruntime session on the CPU; a model with external data is given by its file name.

    *threads*: how many one operator may use; None leaves it to onnxruntime.
    """
    options = session_options(threads)
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else os.fspath(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


FOLDER = "session.model_external_initializers_file_folder_path"
"""Where onnxruntime finds the weights of a model that it is given as bytes."""


def session_options(
    threads: int | None = None, folder: str = "", severity: int = 3
) -> onnxruntime.SessionOptions:
    """What all sessions have in common.

    *threads*: see `session`; *folder*: that of the weights of a model that is given as bytes; *severity*: of what onnxruntime prints, 3
    for errors, 4 for what is fatal.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = severity
    if threads is not None:
        options.intra_op_num_threads = threads
    if folder:
        options.add_session_config_entry(FOLDER, folder)
    return options


def tensor_leaves(*trees: Any) -> list[torch.Tensor]:
    """The leaves of a call's arguments that are inputs of the model, or of a result that are outputs, as tensors.

    Numbers become 0-d tensors; None is left out; a complex tensor becomes a real one with a trailing dimension of 2.
    """
    leaves = []
    for leaf in leaves_of(trees):
        if leaf is None:
            continue
        if isinstance(leaf, float):
            leaf = torch.tensor(leaf, dtype=torch.float64)
        elif not isinstance(leaf, torch.Tensor):
            leaf = torch.tensor(leaf)
        leaf = leaf.detach()
        leaves.append(torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf)
    return leaves


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a tree, those of the caches of transformers and of the dataclasses in it among them."""
    with known_containers(tree):
        return pytree.tree_leaves(tree)


def run(runner: onnxruntime.InferenceSession, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs for these inputs, in order. ValueError when there are not as many as the model takes."""
    names = [argument.name for argument in runner.get_inputs()]
    if len(names) != len(inputs):
        raise ValueError(f"the model takes {len(names)} inputs ({', '.join(names)}), {len(inputs)} are given")
    feeds = {name: to_ort(tensor) for name, tensor in zip(names, inputs)}
    outputs = [argument.name for argument in runner.get_outputs()]
    return [from_ort(value) for value in runner.run_with_ort_values(outputs, feeds)]


CARRIERS = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
}
"""The dtypes that numpy lacks, and the integers of the same bits."""

SHORT = {onnx_dtype(dtype).numpy(): dtype for dtype in CARRIERS}
"""The dtypes of ml_dtypes that stand for them."""


def to_ort(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    """A tensor as onnxruntime sees it."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype in CARRIERS:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            tensor.view(CARRIERS[tensor.dtype]).numpy(), onnx_dtype(tensor.dtype)
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())


def from_ort(value: onnxruntime.OrtValue) -> torch.Tensor:
    """A tensor of onnxruntime as torch sees it."""
    dtype = torch_dtype(value)
    if dtype not in CARRIERS:
        return tensor_of(value.numpy())
    tensor = torch.empty(value.shape(), dtype=dtype)
    ctypes.memmove(tensor.data_ptr(), value.data_ptr(), tensor.nbytes)
    return tensor


def torch_dtype(value: onnxruntime.OrtValue) -> torch.dtype | None:
    """The dtype of a tensor of onnxruntime, None when torch has none."""
    return ONNX_TO_TORCH.get(ir.DataType(value.element_type()))


def array_to_ort(array: np.ndarray) -> onnxruntime.OrtValue:
    """An array as onnxruntime sees it, the dtypes that numpy lacks being those of ml_dtypes."""
    if array.dtype in SHORT:
        return to_ort(tensor_of(array))
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def array_from_ort(value: onnxruntime.OrtValue) -> np.ndarray:
    """A tensor of onnxruntime as an array, the inverse of `array_to_ort`."""
    dtype = torch_dtype(value)
    return array_of(from_ort(value)) if dtype in CARRIERS else value.numpy()


def run_arrays(runner: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs for these arrays, in order; lists, dicts and None of a model that gives sequences, maps and optionals."""
    kinds = [argument.type for argument in (*runner.get_inputs(), *runner.get_outputs())]
    if not all(kind.startswith("tensor(") and kind != "tensor(string)" for kind in kinds):
        return runner.run(None, dict(feeds))
    given = {name: array_to_ort(array) for name, array in feeds.items()}
    names = [output.name for output in runner.get_outputs()]
    return [array_from_ort(value) for value in runner.run_with_ort_values(names, given)]


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as numpy sees it, in a dtype of ml_dtypes where numpy has none; no copy unless it must be one."""
    if tensor.dtype in CARRIERS:
        bits = tensor.resolve_neg().view(CARRIERS[tensor.dtype])
        return bits.numpy(force=True).view(onnx_dtype(tensor.dtype).numpy())
    return tensor.numpy(force=True)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The inverse of `array_of`, for an array of any strides: a tensor that owns its memory."""
    dtype = SHORT.get(array.dtype)
    array = np.array(array, order="C")
    if dtype is not None:
        return torch.from_numpy(array.view(f"u{dtype.itemsize}")).view(dtype)
    return torch.from_numpy(array.view(array.dtype.str))  # uint64 may come as C's unsigned long long


class Elements(NamedTuple):
    """How far each element of a result is from what was expected, in float64; inf where NaN or infinities differ.

    Attributes:
        absolute: the difference.
        relative: the difference in what was expected.
        excess: the difference in tolerances of the dtype: above 1 it is beyond.
    """

    absolute: torch.Tensor
    relative: torch.Tensor
    excess: torch.Tensor


def elements(expected: torch.Tensor, got: torch.Tensor, scale: float = 1.0) -> Elements:
    """Compare two tensors of one dtype and shape: the one place where numbers are compared with *scale* times their tolerance.

    Integers and booleans have none, also those that float64 does not hold: a difference of 1 is one tolerance too much.
    """
    a, b = expected.double(), got.double()
    if expected.is_floating_point():
        relative, absolute = TOLERANCES.get(expected.dtype, (0.0, 0.0))
        same, least, unit = (a == b) | (a.isnan() & b.isnan()), 0.0, 1e-30
    else:
        relative, absolute = 0.0, 0.5
        same, least, unit = expected == got, 1.0, 1.0
    apart = (a - b).abs().clamp_min(least)
    found = apart, apart / a.abs().clamp_min(unit), apart / (scale * (absolute + relative * a.abs()))
    # inf / inf: one of two is not finite
    return Elements(*(torch.where(same, 0.0, item.nan_to_num(math.inf, math.inf)) for item in found))


def described(tensor: torch.Tensor) -> str:
    """``float32[2, 3]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{[*tensor.shape]}"


def difference(name: str, expected: torch.Tensor, got: torch.Tensor, scale: float = 1.0) -> Difference:
    """Compare one output: dtype and shape exactly, `elements` within *scale* times the tolerance."""
    kinds = described(expected), described(got)
    if kinds[0] != kinds[1]:
        return Difference(name, *kinds, math.inf, math.inf, False)
    if expected.numel() == 0:
        return Difference(name, *kinds, 0.0, 0.0, True)
    absolute, relative, excess = (float(item.max()) for item in elements(expected, got, scale))
    return Difference(name, *kinds, absolute, relative, excess <= 1)


@contextlib.contextmanager
def without_gradients_of_parameters(model: Any) -> Iterator[None]:
    """Let the parameters of a module ask for no gradients for a while: a scan that records them is refused by torch."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    asking = [parameter for parameter in parameters if parameter.requires_grad and parameter.is_leaf]
    for parameter in asking:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asking:
            parameter.requires_grad_(True)


def inputs_among(model: Any, args: tuple, kwargs: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The leaves of a call that are inputs of the ONNX model: all, the tensors, or the tensors and the numbers of these *names*."""
    leaves = [leaf for leaf in leaves_of((args, kwargs)) if can_be_input(leaf)]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(names) == len(leaves):
        return leaves
    if len(names) == len(tensors):
        return tensors
    forward = model.forward if isinstance(model, torch.nn.Module) else model
    arguments = {**inspect.signature(forward).bind_partial(*args).arguments, **kwargs}
    with known_containers(arguments):
        named = zip(leaf_names(arguments), pytree.tree_leaves(arguments))
    return [
        leaf
        for name, leaf in named
        if isinstance(leaf, torch.Tensor) or (name in names and can_be_input(leaf))
    ]


def can_be_input(leaf: Any) -> bool:
    """Whether a leaf of a call is a tensor or a number; a text, an Enum, another object are constants of the model."""
    return isinstance(leaf, (torch.Tensor, int, float)) and not isinstance(leaf, enum.Enum)


def eager_outputs(
    model: torch.nn.Module, args: tuple = (), kwargs: Mapping[str, Any] | None = None
) -> list[torch.Tensor]:
    """The outputs of a call, in order, on copies of the arguments."""
    return called(model, *copy.deepcopy((args, dict(kwargs or {}))))


def called(model: Any, args: tuple, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The outputs of a call, in order, which later calls do not write.

    The model may take gradients of its inputs itself; those of its parameters are not recorded meanwhile. Raises EagerError when it fails.
    """
    with without_gradients_of_parameters(model):
        with in_eager():
            result = model(*args, **kwargs)
        return [tensor.clone() for tensor in tensor_leaves(result)]


def put_together(
    expected: Sequence[torch.Tensor], names: Sequence[str], got: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The results of eager, those concatenated that the model gives as one: see the warning of the patch `pieces_of_images`."""
    remaining, found = collections.deque(expected), []
    for name, value in zip(names, got):
        parts = [remaining.popleft()] if remaining else []
        may_be_joined = bool(parts) and parts[0].dim() > 0 and f"_{name}".endswith(("_all", "_0"))
        while may_be_joined and remaining and sum(map(len, parts)) < len(value):
            if not remaining[0].shape[1:] == value.shape[1:] == parts[0].shape[1:]:
                break
            parts.append(remaining.popleft())
        found += parts if len(parts) < 2 else [torch.cat(parts)]
    return [*found, *remaining]


def new_values(
    model: Any, given: Mapping[str, Any], kept: Mapping[str, Any], outputs: Sequence[str]
) -> dict[str, Any]:
    """What a call left in its arguments and in the tensors of a model, by the names of the *outputs* that are for them.

    Each is called ``name_out``, with a number behind it where a result is called so.

    Args:
        model: the module, or a method of one, that was called.
        given: the arguments by the names of inputs.
        kept: the tensors of the model by the names of inputs, what they are where the module has none of that name.
        outputs: the names of all outputs, the results first.
    """
    state = state_of(model)
    left = {**given, **{name: state.get(own_name(name, state), leaf) for name, leaf in kept.items()}}
    stems = [re.fullmatch(r"(.+)_out(?:_\d+)?", output) for output in outputs]
    last = {stem[1]: output for stem, output in zip(stems, outputs) if stem}
    return {last[name]: leaf for name, leaf in left.items() if name in last}


def own_name(name: str, state: Container[str]) -> str:
    """The name in its module of a tensor that is an input of an ONNX model: a number is behind it where an argument is called so."""
    stem = re.sub(r"_\d+$", "", name)
    return stem if name not in state and stem in state else name


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """The weights and buffers of a module, or of the one that a function calls, and the tensors among its attributes, by their names in the program."""
    owner = called_module(model)
    modules = () if owner is None else owner.named_modules(remove_duplicate=False)
    return {
        f"{path}.{name}" if path else name: value
        for path, module in modules
        for name, value in (*module._parameters.items(), *module._buffers.items(), *vars(module).items())
        if isinstance(value, torch.Tensor)
    }


def compare(
    model: Any,
    runner: onnxruntime.InferenceSession,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    scale: float = 1.0,
    expected: Sequence[torch.Tensor] | None = None,
) -> list[Difference]:
    """Run both on copies of the same arguments and compare every output, in order.

    Python ints, floats and bools among the arguments are constants of the model unless they are inputs of it. New values that the
    ONNX model returns (``mutated_buffers="outputs"``) are compared with what the call left there.
    *model*: a module, a function, or an ExportedProgram, which has the arguments of its example when none are given.
    *expected*: what `eager_outputs` gave for this call, when it is compared with several ONNX models. Raises EagerError when eager fails.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if not args and not kwargs and model.example_inputs is not None:
            args, kwargs = model.example_inputs
        model = model.module()
    args, kwargs = copy.deepcopy((tuple(args), dict(kwargs or {})))
    names, outputs = ([item.name for item in items] for items in (runner.get_inputs(), runner.get_outputs()))
    least = sum(isinstance(leaf, torch.Tensor) for leaf in leaves_of((args, kwargs)))
    kept = written_tensors(model, names, least)
    names = names[: len(names) - len(kept)]
    given = inputs_among(model, args, kwargs, names)
    inputs = [tensor.clone() for tensor in tensor_leaves([*given, *kept.values()])]
    if expected is not None:
        return differences(outputs, expected, {}, run(runner, inputs), scale)
    expected = called(model, args, kwargs)  # first: a call that fails in eager makes no sense in ONNX either
    after = new_values(model, dict(zip(names, given)), kept, outputs)
    return differences(outputs, expected, after, run(runner, inputs), scale)


def written_tensors(model: Any, names: Sequence[str], least: int) -> dict[str, torch.Tensor]:
    """The tensors of a model that are the last inputs of the ONNX model, by the names there; *least*: so many inputs are tensors of the call."""
    state = state_of(model)
    found: dict[str, torch.Tensor] = {}
    for name in reversed(names[least:]):
        own = own_name(name, state)
        if own not in state:
            break
        found[name] = state.pop(own)
    return dict(reversed(found.items()))


def differences(
    names: Sequence[str],
    expected: Sequence[torch.Tensor],
    after: Mapping[str, Any],
    got: Sequence[torch.Tensor],
    scale: float = 1.0,
) -> list[Difference]:
    """Every output beside eager's, in order: results, those put together that the model gives as one, then the *new_values* that it returns.

    Raises ValueError when there are more of one than of the other.
    """
    written = len(list(itertools.takewhile(after.__contains__, reversed(names))))
    if len(expected) + written > len(got):
        expected = put_together(expected, names, got)
    expected = [*expected, *tensor_leaves([after[name] for name in names[len(expected) :] if name in after])]
    if len(expected) != len(got):
        raise ValueError(f"eager gives {len(expected)} outputs, the ONNX model {len(got)}")
    return [difference(name, a, b, scale) for name, a, b in zip(names, expected, got)]
