"""The inputs, weights and outputs of the ONNX graph.

Names are a contract: inputs are argument names even when passed through, weights are ``state_dict`` keys, stored once
when torch shares them; every output is a value of its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dimensions import Dimensions
from experimental_experiment.torch_interpreter.emitter import Emitter
from experimental_experiment.torch_interpreter.errors import ExportError, Untranslatable, target_name
from experimental_experiment.torch_interpreter.interpreter import Walk, flat
from experimental_experiment.torch_interpreter.signature import Input, Program
from experimental_experiment.torch_interpreter.sizes import Number, plain
from experimental_experiment.torch_interpreter.weights import Weight, in_parts
from experimental_experiment.torch_interpreter.writes import storage_of


def is_input(entry: Input) -> bool:
    """Whether a placeholder is an input of the model: a tensor or a symbolic number given by the user."""
    return entry.tensor is None and not entry.is_constant


def is_written(program: Program, walk: Walk, entry: Input) -> bool:
    """Whether the program writes the storage of a placeholder, or returns its new value."""
    returned = any(entry is written for written in program.writes.values())
    return returned or storage_of(entry.node.meta.get("val")) in walk.mutation.storages


def rename_inputs(program: Program, names: Sequence[str] | None) -> None:
    """Give the inputs the user's names, or make torch's unique.

    Raises ValueError when there are not as many names as inputs, or when one comes twice.
    """
    entries = [entry for entry in program.inputs if is_input(entry)]
    if names is not None:
        if len(names) != len(entries):
            raise ValueError(
                f"input_names has {len(names)} names for {len(entries)} inputs: {[e.name for e in entries]}"
            )
        if len(set(names)) != len(names):
            raise ValueError(f"input_names holds a name twice: {list(names)}")
        for entry, name in zip(entries, names):
            entry.name = name


def output_leaves(
    program: Program, names: Sequence[str] | None, inputs: Sequence[str]
) -> list[tuple[str, Any]]:
    """Name and node (or Python number) of every output that is not None. *inputs*: the names of the inputs of the model, which are taken.

    Raises ValueError when the user's names are not as many as the outputs, repeated, or those of inputs.
    """
    results = flat(program.module.graph.output_node().args[0])
    leaves = [leaf for position, leaf in enumerate(results) if position not in program.writes]
    known = program.output_names if len(program.output_names) == len(leaves) else []
    wishes = known or [f"output_{position}" for position in range(len(leaves))]
    kept = [
        (wish, leaf) for wish, leaf in zip(wishes, leaves) if leaf is not None and val_of(leaf) is not None
    ]
    if names is not None:
        if len(names) != len(kept):
            raise ValueError(f"output_names has {len(names)} names for {len(kept)} outputs")
        if len(set(names)) != len(names) or not set(names).isdisjoint(inputs):
            raise ValueError(f"output_names holds a name twice, or the name of an input: {list(names)}")
        return [(name, leaf) for name, (_, leaf) in zip(names, kept)]
    caches = {as_present(name) for name in inputs}
    asked = [as_present(wish) if as_present(wish) in caches else wish for wish, _ in kept]
    return [(name, leaf) for name, (_, leaf) in zip(distinct(asked, inputs), kept)]


def distinct(wishes: Sequence[str], taken: Iterable[str]) -> list[str]:
    """A name for each wish, ``_out`` behind one that is *taken* or stands twice: who wishes a free name has it."""
    taken = {*taken}
    free = {*wishes} - taken
    names = []
    for wish in wishes:
        name = wish
        while name in taken or (name != wish and name in free):
            name = f"{name}_out"
        taken.add(name)
        names.append(name)
    return names


def as_present(name: str) -> str:
    """The name of a part of a cache as a result: the cache of transformers is ``past_key_values`` before 5.24 and ``cache`` from then on."""
    return re.sub(r"past_key_values|cache_params|cache(?=_(?:linear_cache_)?\d)", "present", name, count=1)


def refuse_names_of_weights(argument: str, program: Program, names: Sequence[str] | None) -> None:
    """Raise ValueError when a name of the user's is that of a weight, which keeps it."""
    weights = {entry.name for entry in program.inputs if entry.tensor is not None}
    taken = next((name for name in names or () if name in weights), None)
    if taken is not None:
        raise ValueError(f"{argument} holds {taken!r}, which is the name of a weight")


def val_of(leaf: Any) -> Any:
    """The fake value of a leaf of the result, or the Python value that it is."""
    return leaf.meta.get("val", leaf) if isinstance(leaf, torch.fx.Node) else leaf


def add_input(entry: Input, dimensions: Dimensions) -> ir.Value:
    """The value of an input: a tensor with its symbolic sizes, or a 0-d number."""
    fake = entry.node.meta["val"]
    if isinstance(fake, torch.Tensor):
        if fake.layout != torch.strided:
            raise ExportError(
                f"the input {entry.name} is {fake.layout}: ONNX models take dense tensors", entry.node
            )
        try:
            dtype = dtypes.onnx_dtype(fake.dtype)
        except Untranslatable as error:
            raise ExportError(f"the input {entry.name} cannot be translated: {error}", entry.node) from error
        sizes = dimensions.shape(fake, entry.name)
        return ir.Value(name=entry.name, type=ir.TensorType(dtype), shape=ir.Shape(sizes))
    value = ir.Value(name=entry.name, type=ir.TensorType(number_dtype(fake)), shape=ir.Shape([]))
    return Number(value, dimensions.label(fake, entry.name))


def number_dtype(number: Any) -> ir.DataType:
    """The dtype of a Python number, symbolic or not, among the inputs and outputs."""
    if isinstance(number, (torch.SymBool, bool)):
        return ir.DataType.BOOL
    return ir.DataType.DOUBLE if isinstance(number, (torch.SymFloat, float)) else ir.DataType.INT64


class Weights:
    """Initializers for parameters, buffers and constants, by reference; tensors that share memory are one."""

    def __init__(self, op: Emitter):
        self.op = op
        self.seen: dict[tuple, ir.Value] = {}

    def value(self, entry: Input) -> Any:
        """The initializer of a weight; the Python value of a static argument."""
        if entry.tensor is None:
            return entry.constant
        tensor = entry.tensor
        if isinstance(tensor, (ir.ExternalTensor, ir.LazyTensor)):
            return self.stored(entry.name, tensor)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        if is_traceable_wrapper_subclass(tensor) and is_read_by_parts(entry.node):
            return Wrapper(self, entry, tensor)
        reason = refusal(tensor, entry.name)
        if reason and not entry.node.users:
            return None
        if reason:
            raise ExportError(reason, entry.node)
        tensor = in_parts(tensor)
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and key in self.seen:
            return self.seen[key]
        name = self.op.context.names.unique(entry.name)
        try:
            dtypes.onnx_dtype(tensor.dtype)
        except Untranslatable as error:
            raise ExportError(f"the weight {name} cannot be translated: {error}", entry.node) from error
        self.seen[key] = self.op.initializer(name, Weight(tensor, name))
        return self.seen[key]

    def stored(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """The initializer of a weight that is no tensor of torch: it lies in a file, or is computed when written."""
        if (id(tensor),) not in self.seen:
            self.seen[id(tensor),] = self.op.initializer(self.op.context.names.unique(name), tensor)
        return self.seen[id(tensor),]


PART = "export.access_subclass_inner_tensor.default"
"""The operator that reads a tensor of a weight that holds several."""


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """A weight that holds other tensors, as those of torchao do; the program reads these."""

    weights: Weights
    entry: Input
    tensor: torch.Tensor

    def part(self, attribute: str, node: torch.fx.Node) -> ir.Value | Wrapper:
        """The initializer of the tensor that an attribute is, which *node* reads."""
        name = f"{self.entry.name}.{attribute}"
        return self.weights.value(Input(node, name, getattr(self.tensor, attribute), self.entry.is_buffer))


def is_read_by_parts(node: torch.fx.Node) -> bool:
    """Whether only the tensors that a weight holds are read, no operator the weight itself."""
    return all(target_name(user.target) == PART for user in node.users)


def refusal(tensor: torch.Tensor, name: str) -> str:
    """Why a tensor cannot be a weight, ``""`` when it can."""
    if tensor.layout != torch.strided:
        return f"the weight {name} is {tensor.layout}: ONNX models hold dense tensors, as tensor.to_dense() makes them"
    if is_traceable_wrapper_subclass(tensor):
        return (
            f"the weight {name} is a {type(tensor).__name__}, which holds other tensors: "
            "ExportOptions(tracing='make_fx') takes them, run_decompositions() those of an ExportedProgram, or make an ordinary one of it first"
        )
    if tensor.is_meta or isinstance(tensor, FakeTensor) or is_functorch_wrapped_tensor(tensor):
        return (
            f"the weight {name} has no values: give to_onnx(weights=...) if it was made on the meta device or under "
            "FakeTensorMode; torch.export of gradients in forward makes such, ExportOptions(tracing='make_fx') follows them"
        )
    return ""


def output(op: Emitter, dimensions: Dimensions, name: str, value: Any, leaf: Any) -> ir.Value:
    """The value of one output under its name: never an input, a weight or another output itself."""
    fake = val_of(leaf)
    if not isinstance(value, ir.Value):
        if not isinstance(value, (bool, int, float)):
            raise ExportError(f"the output {name} is {value!r}: ONNX models return tensors and numbers")
        value = op.constant(value, number_dtype(value))
    value = plain(value)
    if value.producer() is None or value.is_graph_output() or value.producer().graph is not op.graph:
        value = op.copy(value)
    value.name = name
    if isinstance(fake, torch.Tensor):
        value.shape = ir.Shape(dimensions.shape(fake, name))
    else:
        value.shape = ir.Shape([])
    return value
