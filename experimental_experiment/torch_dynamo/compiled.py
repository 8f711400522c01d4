"""A compiled graph: an onnxruntime session between tensors of torch, which it reads and returns without copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnxruntime
import torch
from onnxruntime.capi._pybind_state import OrtDevice, OrtValueVector, RunOptions
from torch._C import _from_dlpack as from_dlpack  # torch's own asks first what a capsule is
from torch.utils.dlpack import to_dlpack

from experimental_experiment.comparison import session_options
from experimental_experiment.torch_dynamo.aliasing import viewing
from experimental_experiment.torch_dynamo.conversion import Converted, is_computed
from experimental_experiment.torch_dynamo.interface import BOOL, CONSTANT, DIM, FLOAT, TENSOR, Entry
from experimental_experiment.torch_dynamo.layout import laid_out, permutation
from experimental_experiment.torch_dynamo.providers import Provider
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.versions import numbers

with_effects = torch.ops.higher_order.with_effects

NUMBERS = {DIM: torch.int64, FLOAT: torch.float64, BOOL: torch.bool}

NEW_DLPACK = numbers(onnxruntime.__version__) >= numbers("1.32")
"""Whether onnxruntime takes booleans by DLPack, before that it took bytes and wanted to be told; and gives nothing the strides 0."""


class CompiledGraph:
    """A graph: call it with the list of its inputs, it returns the list of its outputs.

    Attributes:
        model: the ONNX model, with all inputs and outputs of the graph.
        inputs, outputs: see `interface`.
    """

    def __init__(self, converted: Converted, device: torch.device, seen: int | None = None):
        # aot_autograd looks for it in what wraps this object too, which copies no attribute of the class
        self._boxed_call = True
        self.model = converted.model
        self.inputs, self.outputs = converted.inputs, converted.outputs
        self.given = [
            (position, preparation(entry, device))
            for position, entry in enumerate(self.inputs)
            if entry.kind != CONSTANT
        ]
        self.drawn = [noise.draw for noise in converted.noises]
        self.input_names = [
            *(self.inputs[position].name for position, _ in self.given),
            *(noise.name for noise in converted.noises),
        ]
        self.known = [
            (position, entry.source, entry.node is not self.inputs[entry.source].node)
            for position, entry in enumerate(self.outputs)
            if entry.source is not None
        ]
        self.twins = [
            (position, entry.twin, entry.node is not self.outputs[entry.twin].node)
            for position, entry in enumerate(self.outputs)
            if entry.twin is not None and entry.source is None
        ]
        self.views = [
            (position, entry.base, viewing(entry, self.outputs[entry.base], self.inputs))
            for position, entry in enumerate(self.outputs)
            if entry.base is not None
        ]
        self.shown = [
            (position, entry.shows, viewing(entry, self.inputs[entry.shows], self.inputs))
            for position, entry in enumerate(self.outputs)
            if entry.shows is not None
        ]
        self.computed = [
            (position, completion(entry, device, seen is None or position < seen))
            for position, entry in enumerate(self.outputs)
            if is_computed(entry)
        ]
        self.constants = [entry.value for entry in self.outputs]
        self.output_names = [self.outputs[position].name for position, _ in self.computed]

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run the graph on its inputs, in order. *args* is emptied: what nobody else holds is freed early."""
        results = list(self.constants)
        for position, source, is_detached in self.known:
            results[position] = args[source].detach() if is_detached else args[source]
        for position, source, view in self.shown:
            results[position] = view(args[source].detach(), args)
        if self.computed:
            tensors = []
            for position, prepare in self.given:
                value = args[position]
                if prepare is not None:
                    value = prepare(value)
                if not value.is_contiguous() or value.is_neg():
                    value = value.resolve_neg().contiguous()
                tensors.append(value)
            tensors += [draw(args).contiguous() for draw in self.drawn]
            for (position, complete), value in zip(self.computed, self.run(tensors)):
                results[position] = value if complete is None else complete(value)
            for position, base, view in self.views:
                results[position] = view(results[base], args)
        for position, twin, is_detached in self.twins:
            # one tensor: autograd, which adds to a gradient in place, asks who else holds it
            results[position] = results[twin].detach() if is_detached else results[twin]
        args.clear()
        return results

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs that the model computes from its inputs, contiguous tensors in order."""
        raise NotImplementedError


class OrtBackend(CompiledGraph):
    """A graph that onnxruntime runs.

    Several threads may call at the same time. The outputs own their memory, an output that is an input excepted: it is that tensor.

    Attributes:
        session: what runs the model; None when every output is an input or a constant.
        providers: the names of what it runs on.
    """

    def __init__(
        self,
        converted: Converted,
        device: torch.device,
        seen: int | None = None,
        providers: Sequence[Provider] = ("CPUExecutionProvider",),
    ):
        super().__init__(converted, device, seen)
        refuse_short([*self.inputs, *self.outputs])
        # onnxruntime refuses a graph without nodes
        self.session = session(converted.run.SerializeToString(), providers) if self.computed else None
        self.providers = (
            self.session.get_providers()
            if self.session
            else [provider if isinstance(provider, str) else provider[0] for provider in providers]
        )
        self.booleans = [
            *(is_bool(self.inputs[position]) for position, _ in self.given),
            *(noise.fake.dtype == torch.bool for noise in converted.noises),
        ]
        kind = OrtDevice.cuda() if device.type == "cuda" else OrtDevice.cpu()
        place = OrtDevice(kind, OrtDevice.default_memory(), device.index or 0)
        self.places = [place] * len(self.computed)
        self.options = RunOptions()

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs that the model computes; no tensor is copied."""
        feeds = OrtValueVector()
        feeds.reserve(len(tensors))
        for tensor, boolean in zip(tensors, self.booleans):
            if NEW_DLPACK:
                feeds.push_back(to_dlpack(tensor))
            else:
                feeds.push_back(to_dlpack(tensor.view(torch.uint8) if boolean else tensor), boolean)
        found = OrtValueVector()
        self.session._sess.run_with_ortvaluevector(
            self.options, self.input_names, feeds, self.output_names, found, self.places
        )
        return found.to_dlpacks(from_dlpack)


def session(model: bytes, providers: Sequence[Provider]) -> onnxruntime.InferenceSession:
    """A session with the number of threads of torch."""
    options = session_options(torch.get_num_threads())
    # a result in the buffer of an earlier one of the same sizes keeps that alive: measured with onnxruntime 1.31, a training step of six
    # layers of a transformer takes 3.3 GB instead of 4.1
    options.enable_mem_reuse = False
    return onnxruntime.InferenceSession(model, options, providers=providers)


def refuse_short(entries: Sequence[Entry]) -> None:
    """Raise ExportError when a tensor has a dtype that onnxruntime does not exchange."""
    for entry in entries:
        if entry.kind == TENSOR and entry.fake.dtype.itemsize == 1 and entry.fake.dtype.is_floating_point:
            raise ExportError(
                f"onnxruntime takes and gives no {entry.fake.dtype} by DLPack",
                entry.node,
                "cast it outside of the compiled function",
            )


def is_bool(entry: Entry) -> bool:
    """Whether an input is made of booleans."""
    return entry.kind == BOOL or (entry.kind == TENSOR and entry.fake.dtype == torch.bool)


def is_token(node: torch.fx.Node) -> bool:
    """Whether an input only orders effects, such as checks: at a call it is None."""
    return any(user.target is with_effects and user.args[0] is node for user in node.users)


def preparation(entry: Entry, device: torch.device) -> Callable | None:
    """What makes an argument a plain tensor on the device, None when it is one."""
    if entry.kind != TENSOR:
        dtype = NUMBERS[entry.kind]
        return lambda value: torch.tensor([value], dtype=dtype, device=device)
    dtype = entry.fake.dtype
    if is_token(entry.node):
        return lambda value: torch.empty(0, dtype=dtype, device=device)
    if dtype.is_complex:
        return lambda value: torch.view_as_real(value.resolve_conj())
    if entry.fake.device != device:
        return lambda value: value.to(device)
    return None


def with_strides(value: torch.Tensor) -> torch.Tensor:
    """A tensor that has the strides of its sizes when it has no elements."""
    return value if value.numel() else torch.empty(value.shape, dtype=value.dtype, device=value.device)


def completion(entry: Entry, device: torch.device, is_seen: bool) -> Callable | None:
    """What makes of a tensor of onnxruntime's on the device an output, None when it is one.

    *is_seen*: its layout is seen by the user.
    """
    if entry.kind == BOOL:
        return lambda value: bool(value.item())  # onnxruntime gives bytes
    if entry.kind != TENSOR:
        return torch.Tensor.item
    order = permutation(entry.fake) if is_seen else None
    dtype = entry.fake.dtype
    steps: list[Callable] = []
    if entry.fake.device != device:
        steps.append(lambda value: value.to(entry.fake.device))
    if NEW_DLPACK and is_seen and not all(isinstance(size, int) and size for size in entry.fake.shape):
        steps.append(with_strides)
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
