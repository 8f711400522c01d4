"""Doubts about the sizes that a file of another exporter tells of its results: onnxruntime infers them itself, and runs files where they are wrong.

Someone may have changed the sizes of the inputs alone, so that the model takes any number of samples, or a node, or a weight.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import infer, kind_of
from experimental_experiment.xoptim.graphs import bodies_of, nodes_of
from experimental_experiment.xoptim.hidden import is_hidden, is_mistaken
from experimental_experiment.xoptim.shapes import Size, is_open


def tells_shapes(node: ir.Node) -> bool:
    """Whether a file tells the shape of a result of a node, or perhaps of what its bodies take."""
    for value in node.outputs:
        if value.shape is not None:
            return True
    return bool(bodies_of(node))


class Doubts:
    """Which nodes contradict what a file tells of their results, for *opset* and the *names* of the sizes of the inputs.

    Layers repeat the same nodes: what was asked of one is known of the others.
    """

    def __init__(self, opset: int, names: Container[str | None]):
        self.opset, self.names = opset, names
        self.settled: set[tuple] = set()

    def contradict(self, node: ir.Node) -> bool:
        """Whether a node gives another size than a file tells of its results, or one of the names where the file has a number."""
        kind = kind_of(node, self.opset)
        if kind is None:
            return contradicts(node, self.opset, self.names)
        told = [(value.shape, value.is_graph_output()) for value in node.outputs]
        key = (kind, *[(None if shape is None else shape.dims, is_output) for shape, is_output in told])
        if key in self.settled:
            return False
        if contradicts(node, self.opset, self.names):
            return True
        self.settled.add(key)
        return False


def contradicts(node: ir.Node, opset: int, names: Container[str | None]) -> bool:
    """The same for one node, which takes about 30 microseconds."""
    if bodies_of(node):
        return any(is_other(new, told, names) for new, told in passed_by(node))
    if is_hidden(node, opset) and not is_mistaken(node):
        return False
    told = [(value, value.type, value.shape) for value in node.outputs]
    for value, *_ in told:
        value.shape = None
    is_wrong = False
    try:
        infer(node, opset)
    except Untranslatable:
        is_wrong = True  # what it reads has sizes that its operator does not take
    except onnx.checker.ValidationError:
        pass  # which is said elsewhere
    pairs = [(value, value.shape, shape) for value, _, shape in told]
    for value, kind, shape in told:
        value.type, value.shape = kind, shape
    # `correct_ranks` knows that of results
    return is_wrong or any(
        is_other(new, old, names) or is_guessed(node, new, old)
        for value, new, old in pairs
        if new is None or old is None or len(new) == len(old) or not value.is_graph_output()
    )


def is_other(new: Sequence[Size] | None, told: Sequence[Size] | None, names: Container[str | None]) -> bool:
    """Whether a shape is another one than a file tells: of another rank, or with another number or one of these names where the file has a number."""
    if new is None or told is None:
        return False
    return len(new) != len(told) or any(
        isinstance(old, int) and (old != size if isinstance(size, int) else size.value in names)
        for size, old in zip(new, told)
    )


def is_guessed(node: ir.Node, new: Sequence[Size] | None, told: Sequence[Size] | None) -> bool:
    """Whether a file may have from onnx's inference a size that nobody knows, see `is_mistaken`."""
    if new is None or told is None or len(new) != len(told) or node.op_type == "Einsum":
        return False
    return is_mistaken(node) and any(is_open(size) and not is_open(old) for size, old in zip(new, told))


def passed_by(node: ir.Node) -> list[tuple[Sequence[Size] | None, Sequence[Size] | None]]:
    """The shapes that a node hands to its bodies, or takes from them, with those that a file tells of what they arrive at.

    Not of a Scan: onnxruntime 1.31 believes what a file tells of its results, and refuses others.
    """
    if node.domain or node.op_type not in ("If", "Loop"):
        return []
    pairs: list[tuple[ir.Value | None, ir.Value]] = []
    for body in bodies_of(node):
        if node.op_type == "If":
            pairs += zip(body.outputs, node.outputs)
        else:
            carried = len(body.inputs) - 2
            pairs += zip(node.inputs[2:], body.inputs[2:])
            pairs += zip(body.outputs[1 : 1 + carried], node.outputs)
    return [(value.shape, place.shape) for value, place in pairs if value is not None]


def forget_functions(model: ir.Model) -> None:
    """What a file tells of the values of local functions is unknown from now on: it is true of one call, if of any."""
    for function in model.functions.values():
        nodes = nodes_of(function)
        for value in (*function.inputs, *(value for node in nodes for value in node.outputs)):
            value.type = value.shape = None


def forget_calls(model: ir.Model, nodes: Iterable[ir.Node]) -> dict[ir.Value, ir.Shape]:
    """The results of local functions that the *nodes* call have no shape from now on; returns those that they had, for inference knows functions."""
    results = [value for node in nodes if node.op_identifier() in model.functions for value in node.outputs]
    told = {value: value.shape for value in results if value.shape is not None}
    for value in told:
        value.shape = None
    return told
