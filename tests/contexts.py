"""The contexts that the sweeps run an operator in: alone, or as it stands in a model, between other nodes.

onnxruntime rewrites what a node and its neighbours make together: an operator alone shows none of that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import unittest.mock
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import torch
from torch._higher_order_ops.map import map as torch_map
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

from experimental_experiment import comparison
from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.testing import Call
from experimental_experiment.torch_interpreter import ExportOptions

Tensors = Sequence[torch.Tensor]


class InContext(torch.nn.Module):
    """A call with other nodes before and after it, or in the body of another operator; this one has none.

    The call is given the tensors that it is given alone: those are the arguments of the first of its ``calls``.
    """

    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def inputs(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """What the model is given."""
        return tuple(tensors)

    def longer(self, inputs: Tensors) -> tuple[torch.Tensor, ...]:
        """Inputs of another size where the context has one of its own."""
        return tuple(inputs)

    def others(self, inputs: Tensors) -> list[tuple[torch.Tensor, ...]]:
        """Inputs of the same sizes that show another side of the model."""
        return []

    def operands(self, inputs: Tensors) -> list[torch.Tensor]:
        """What the nodes before the call make of it."""
        return list(inputs)

    def applied(self, operands: list[torch.Tensor]) -> list[Any]:
        """The values that the call gives."""
        return pytree.tree_leaves(self.call(*operands))

    def results(self, values: list[Any]) -> list[Any]:
        """What the nodes after the call make of its values."""
        return values

    def values(self, results: Tensors) -> Tensors:
        """Tensors of which the last ones are those that the call gave: positions, and what stands at them."""
        return results

    def calls(self, inputs: Tensors, *results: Tensors) -> Iterator[tuple]:
        """The arguments of the function and, of each of *results*, its values, for each time that it is called."""
        yield self.call.arguments(self.operands(inputs)), *map(self.values, results)

    def forward(self, *inputs):
        """The call, in the context."""
        return self.results(self.applied(self.operands(inputs)))


class Around(InContext):
    """Tensors arrive with the channels last and go back to it, in the way of a model written for such images.

    onnxruntime moves transpositions through the nodes between them, each operator in its own way.
    """

    def inputs(self, tensors):
        return tuple(channels_last(tensor) for tensor in tensors)

    def operands(self, inputs):
        return [channels_first(tensor) for tensor in inputs]

    def results(self, values):
        return [channels_last(value) if isinstance(value, torch.Tensor) else value for value in values]

    def values(self, results):
        return [channels_first(result) for result in results]


class Scaled(InContext):
    """Floats arrive as ``1.5 * x - 0.25``, leave as ``relu(2 * y + 1)``, and once more through half precision.

    The fusions of a scale, a bias or an activation and the moving of casts meet the operator, which both runtimes must give
    the same bits: a rounding before a floor, a comparison or an argmax would change its result by more than any tolerance.
    """

    def inputs(self, tensors):
        return tuple((t + 0.25) / scale(t) if is_float(t) else t for t in tensors)

    def operands(self, inputs):
        return [x * scale(x) - 0.25 if is_float(x) else x for x in inputs]

    def results(self, values):
        """The positive floats of full precision stay among the results, their halves come before all others."""
        halves, results = [], []
        for value in values:
            if isinstance(value, torch.Tensor) and is_float(value):
                value = torch.relu(value * 2 + 1)
                # back to the wide dtype, where a node uses it; the result is a half so that it is compared as one.
                # Doubled: onnxruntime computes float16 in float32, where what eager's half overflows to could become small again
                halves.append((value.to(torch.float16).to(value.dtype) * 2).to(torch.float16))
            results.append(value)
        return halves + results


class Branch(InContext):
    """The first branch of ``torch.cond``; the second one gives the opposite. The last input tells which one is taken."""

    def inputs(self, tensors):
        return (*tensors, torch.tensor(True))

    def others(self, inputs):
        return [(*inputs[:-1], torch.tensor(False))]

    def applied(self, operands):
        *operands, condition = operands
        if not torch.compiler.is_compiling():
            return (self.first if condition else self.second)(*operands)
        with without_seeds():
            return list(torch.cond(condition, self.first, self.second, tuple(operands)))

    def first(self, *operands):
        """What the call gives: torch refuses branches that give views of their operands."""
        return [value.clone() if is_tensor(value) else value for value in super().applied(operands)]

    def second(self, *operands):
        """Other values of the same shapes and dtypes."""
        return [opposite(value) if is_tensor(value) else value for value in super().applied(operands)]

    def calls(self, inputs, *results):
        *operands, condition = inputs
        if not condition:
            results = [[opposite(value) for value in values] for values in results]
        yield self.call.arguments(operands), *results


class Rows(InContext):
    """Each tensor has a new first axis: the row that the call is given alone, and another one."""

    def inputs(self, tensors):
        return tuple(torch.stack([tensor, another(tensor)]) for tensor in tensors)

    def longer(self, inputs):
        return tuple(torch.cat([tensor, tensor[:1]]) for tensor in inputs)

    def calls(self, inputs, *results):
        for row, *values in zip(zip(*inputs), *(zip(*result) for result in results), strict=True):
            yield self.call.arguments(row), *values


class Mapped(Rows):
    """The body of ``map``, which calls it for one row after the other."""

    def applied(self, operands):
        if not torch.compiler.is_compiling():
            return [torch.stack(values) for values in zip(*map(self.of_row, zip(*operands)))]
        with without_seeds():
            return list(torch_map(self.of_row, tuple(operands)))

    def of_row(self, row):
        """What the call gives for one row: torch refuses bodies that give views of it."""
        return [value.clone() if is_tensor(value) else value for value in super().applied(row)]


class Vectorized(Rows):
    """What ``torch.vmap`` calls once, with all rows."""

    def applied(self, operands):
        return list(torch.vmap(self.of_row)(*operands))

    def of_row(self, *row):
        """What the call gives for one row."""
        return tuple(super().applied(row))


@contextlib.contextmanager
def without_seeds() -> Iterator[None]:
    """While this lasts, the random operators of the databases do not seed the generator: TorchDynamo does not trace that."""

    def called(op: Callable, *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    with unittest.mock.patch.object(common_methods_invocations, "wrapper_set_seed", called):
        yield


def in_onnxruntime(model: onnx.ModelProto, inputs: Tensors) -> list[torch.Tensor]:
    """The outputs that onnxruntime gives."""
    return comparison.run(comparison.session(model), inputs)


def in_reference(model: onnx.ModelProto, inputs: Tensors) -> list[torch.Tensor]:
    """The outputs that the reference evaluator gives: it reads the standard and nothing else."""
    feeds = {
        argument.name: comparison.array_of(tensor)
        for argument, tensor in zip(model.graph.input, inputs, strict=True)
    }
    return [comparison.tensor_of(output) for output in ExtendedReferenceEvaluator(model).run(None, feeds)]


@dataclasses.dataclass(frozen=True)
class Context:
    """How the cases of a sweep are exported and run.

    Attributes:
        promise: one sentence, for the documentation.
        module: what surrounds the call.
        options: keyword arguments of `to_onnx`.
        run: the outputs of a model for these inputs.
        smaller_sizes: whether a model of dynamic sizes is also run on a batch of one and on an empty one.
    """

    promise: str
    module: Callable[[Call], InContext] = InContext
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    run: Callable[[onnx.ModelProto, Tensors], list[torch.Tensor]] = in_onnxruntime
    smaller_sizes: bool = False


DECOMPOSED = ExportOptions(decomposition_table="default")

CONTEXTS = {
    "plain": Context("the operator or module alone, in onnxruntime's CPU provider", smaller_sizes=True),
    "around": Context("between transpositions: channels last before and after", Around),
    "scaled": Context("between a scale, a bias, an activation and casts", Scaled),
    "decomposed": Context("after `run_decompositions()` with torch's default table", options={"export_options": DECOMPOSED}),
    "reference": Context("alone, in the reference evaluator instead of onnxruntime", options={"runtime": "onnx"}, run=in_reference),
    "branch": Context("in a branch of `torch.cond`, both branches taken", Branch),
    "map": Context("as the body of torch's `map`, over two rows", Mapped),
    "vmap": Context("under `torch.vmap`, over two rows", Vectorized),
}  # fmt: skip
"""By name: what ``python -m tests.sweep --context`` takes."""


def is_tensor(value: Any) -> bool:
    """Whether a value of the call is a tensor: others are Python's numbers."""
    return isinstance(value, torch.Tensor)


def is_float(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds floats, and is not sparse: those have no arithmetic with numbers."""
    return tensor.is_floating_point() and tensor.layout == torch.strided


def scale(tensor: torch.Tensor) -> float:
    """1.5; 2 in half precision, where eager rounds the product and onnxruntime the sum only: a power of two rounds nothing."""
    return 2 if tensor.itemsize == 2 else 1.5


def opposite(tensor: torch.Tensor) -> torch.Tensor:
    """Other values, of which these are the opposite; torch has no arithmetic of uint64."""
    if tensor.dtype == torch.uint64:
        return tensor.clone()
    return -tensor if tensor.is_floating_point() or tensor.is_complex() else ~tensor


def another(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same domain: smaller floats, the same integers in another order unless they are in order."""
    if tensor.is_floating_point():
        return tensor * 0.75
    in_order = tensor.dim() == 0 or bool((tensor.long().diff() >= 0).all())
    return tensor.clone() if in_order else tensor.flip(tuple(range(tensor.dim())))


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The axis after the first one comes last, as in NHWC; the two axes of a matrix change their places.

    Contiguous, which is no node of ONNX, so that as_strided and view see the strides that they see alone.
    """
    return tensor.movedim(second_axis(tensor), -1).contiguous() if has_axes(tensor) else tensor


def channels_first(tensor: torch.Tensor) -> torch.Tensor:
    """The inverse of `channels_last`."""
    return tensor.movedim(-1, second_axis(tensor)).contiguous() if has_axes(tensor) else tensor


def has_axes(tensor: torch.Tensor) -> bool:
    """Whether there are two axes or more that can change their places: those of a sparse tensor cannot."""
    return tensor.dim() > 1 and tensor.layout == torch.strided


def second_axis(tensor: torch.Tensor) -> int:
    """The axis of the channels; the first one of a matrix."""
    return min(1, tensor.dim() - 2)
