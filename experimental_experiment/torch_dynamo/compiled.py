"""A compiled graph: an onnxruntime session between tensors of torch, which it reads and returns without copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnxruntime
import torch
from onnxruntime.capi._pybind_state import OrtDevice, OrtValueVector, RunOptions
from torch.utils.dlpack import from_dlpack, to_dlpack

from experimental_experiment.torch_dynamo.conversion import Converted, is_computed
from experimental_experiment.torch_dynamo.interface import BOOL, CONSTANT, DIM, FLOAT, TENSOR, Entry
from experimental_experiment.torch_dynamo.layout import laid_out, permutation
from experimental_experiment.torch_dynamo.providers import Provider

NUMBERS = {DIM: torch.int64, FLOAT: torch.float64, BOOL: torch.bool}


class OrtBackend:
    """A graph that onnxruntime runs: call it with the list of its inputs, it returns the list of its outputs.

    Several threads may call at the same time. The outputs own their memory, an output that is an input excepted: it is that tensor.

    Attributes:
        model: the ONNX model, with all inputs and outputs of the graph.
        inputs, outputs: see `interface`.
        session: what runs it.
    """

    def __init__(
        self,
        converted: Converted,
        providers: Sequence[Provider],
        device: torch.device,
        seen: int | None = None,
    ):
        self._boxed_call = (
            True  # aot_autograd reads it, also from what wraps this object: no attribute of the class
        )
        self.model = converted.model
        self.inputs, self.outputs = converted.inputs, converted.outputs
        self.session = session(converted.run.SerializeToString(), providers)
        self.given = [
            (position, preparation(entry, device), is_bool(entry))
            for position, entry in enumerate(self.inputs)
            if entry.kind != CONSTANT
        ]
        self.input_names = [self.inputs[position].name for position, *_ in self.given]
        self.known = [
            (position, entry.source)
            for position, entry in enumerate(self.outputs)
            if entry.source is not None
        ]
        self.computed = [
            (position, completion(entry, seen is None or position < seen))
            for position, entry in enumerate(self.outputs)
            if is_computed(entry)
        ]
        self.constants = [entry.value for entry in self.outputs]
        self.output_names = [self.outputs[position].name for position, _ in self.computed]
        kind = OrtDevice.cuda() if device.type == "cuda" else OrtDevice.cpu()
        place = OrtDevice(kind, OrtDevice.default_memory(), device.index or 0)
        self.places = [place] * len(self.computed)
        self.options = RunOptions()

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run the graph on its inputs, in order. *args* is emptied: what nobody else holds is freed early."""
        results = list(self.constants)
        for position, source in self.known:
            results[position] = args[source]
        if self.computed:
            feeds = OrtValueVector()
            feeds.reserve(len(self.given))
            for position, prepare, boolean in self.given:
                value = args[position]
                if prepare is not None:
                    value = prepare(value)
                if not value.is_contiguous() or value.is_neg():
                    value = value.resolve_neg().contiguous()
                feeds.push_back(to_dlpack(value), boolean)
            found = OrtValueVector()
            self.session._sess.run_with_ortvaluevector(
                self.options, self.input_names, feeds, self.output_names, found, self.places
            )
            for (position, complete), value in zip(self.computed, found.to_dlpacks(from_dlpack)):
                results[position] = value if complete is None else complete(value)
        args.clear()
        return results


def session(model: bytes, providers: Sequence[Provider]) -> onnxruntime.InferenceSession:
    """A session with the number of threads of torch."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(model, options, providers=providers)


def is_bool(entry: Entry) -> bool:
    """Whether onnxruntime takes a tensor of bytes for booleans, which DLPack gives it as bytes."""
    return entry.kind == BOOL or (entry.kind == TENSOR and entry.fake.dtype == torch.bool)


def preparation(entry: Entry, device: torch.device) -> Callable | None:
    """What makes an argument a plain tensor on the device, None when it is one."""
    if entry.kind != TENSOR:
        dtype = NUMBERS[entry.kind]
        if entry.kind == BOOL:
            return lambda value: torch.tensor([value], dtype=torch.uint8, device=device)
        return lambda value: torch.tensor([value], dtype=dtype, device=device)
    dtype = entry.fake.dtype
    if dtype == torch.bool:
        return lambda value: value.contiguous().view(torch.uint8)
    if dtype.is_complex:
        return lambda value: torch.view_as_real(value.resolve_conj())
    if entry.fake.device != device:
        return lambda value: value.to(device)
    return None


def completion(entry: Entry, is_seen: bool) -> Callable | None:
    """What makes of a tensor of onnxruntime's an output, None when it is one. *is_seen*: its layout is seen by the user."""
    if entry.kind != TENSOR:
        return torch.Tensor.item
    order = permutation(entry.fake) if is_seen else None
    dtype = entry.fake.dtype
    steps: list[Callable] = []
    if dtype == torch.bool:
        steps.append(lambda value: value.view(torch.bool))
    if dtype.is_complex:
        steps.append(torch.view_as_complex)
    if order is not None:
        steps.append(laid_out(order))
    if len(steps) < 2:
        return steps[0] if steps else None

    def complete(value: torch.Tensor) -> torch.Tensor:
        for step in steps:
            value = step(value)
        return value

    return complete
