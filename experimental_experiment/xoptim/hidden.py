"""What onnx's inference sees of a model. Nodes that end its process, or of which it infers wrong sizes, are hidden from it; bodies are given the
constants of the graphs around them, as it looks for constants in the body alone.

Measured with onnx 1.23.2, ``data_prop=True``: what it does not know of a Slice's starts is 0. In opset 10, what a Slice leaves of an axis
has the name of all of it. A Slice backwards to the largest integer is empty, where onnxruntime goes to the first element. Before opset 11, a
Squeeze of negative axes keeps them, and an Unsqueeze puts them last. An Einsum has the sizes of its first operands, where these are 1, too. A size of
an Attention that it does not know is 0, and a DFT of a length that it does not know has the length of what it transforms.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter.better_shapes import (
    are_backwards_to_the_end,
    repeated_size,
    sizes_of_einsum,
)
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import infer, is_small
from experimental_experiment.xoptim.pattern import attribute_of, constant_of, numbers_of

MAPS = frozenset(("CastMap", "DictVectorizer", "ZipMap"))
"""Operators that read or write maps, whose type onnx-ir cannot read."""

READS_TYPE = frozenset(("EyeLike", "LabelEncoder", "RegexFullMatch", "TreeEnsemble"))
"""Operators whose inference ends the process where their input has no type, as the result of a Scaler: measured with onnx 1.23.2."""

SIZES = frozenset((None, ir.DataType.INT32, ir.DataType.INT64))
"""The dtypes of what inference takes for sizes."""

WIDE = frozenset((ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64))
"""The dtypes that hold every size: a Cast to another one is, to inference, the same number."""

FOLLOWED = frozenset(
    "Add Cast Concat Constant Gather Identity Mul Shape Size Slice Squeeze Sub Unsqueeze".split()
)
"""Operators whose results inference computes, where these are sizes."""

IN_A_ROW = frozenset(("Add", "Concat", "Mul", "Slice", "Sub"))
"""Operators whose results inference takes for vectors where they are matrices."""

LIKE_THE_FIRST = frozenset(
    (
        ("", "SimplifiedLayerNormalization"),
        ("com.microsoft", "BiasGelu"),
        ("com.microsoft", "FastGelu"),
        ("com.microsoft", "Gelu"),
        ("com.microsoft", "QuickGelu"),
        ("com.microsoft", "SkipLayerNormalization"),
        ("com.microsoft", "SkipSimplifiedLayerNormalization"),
    )
)
"""Operators of onnxruntime, by domain and name, whose first result has the type and the shape of their first input."""


@contextlib.contextmanager
def hidden(nodes: Mapping[ir.Node, int], follows: bool) -> Iterator[list[ir.Node]]:
    """While this lasts, inference does not know the operators that it cannot take, nor, where it *follows* sizes, those that it misreads.

    It takes those of `LIKE_THE_FIRST` for an Identity. *nodes*: the operator set of each. Returns the nodes that are hidden, but for those
    of `MAPS`.
    """
    found = [node for node, opset in nodes.items() if is_hidden(node, opset, follows)]
    names = [(node, node.op_type) for node in nodes if node.op_type in MAPS]
    names += [(node, node.op_type) for node in found]
    known = [(node, node.domain, node.op_type) for node in nodes if is_like_the_first(node)]
    for node, operator in names:
        node.op_type = f"{operator}Hidden"
    for node, *_ in known:
        node.domain, node.op_type = "", "Identity"
    try:
        yield found
    finally:
        for node, operator in names:
            node.op_type = operator
        for node, domain, operator in known:
            node.domain, node.op_type = domain, operator


def is_like_the_first(node: ir.Node) -> bool:
    """Whether the first result of an operator of onnxruntime is known to have the type and the shape of its first input."""
    if (node.domain, node.op_type) != ("com.microsoft", "Attention"):
        return (node.domain, node.op_type) in LIKE_THE_FIRST
    weights = node.inputs[1].shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
    is_square = weights is not None and len(weights) == 2 and weights[1] == 3 * weights[0]
    return is_square and attribute_of(node, "qkv_hidden_sizes") is None


def is_hidden(node: ir.Node, opset: int, follows: bool = True) -> bool:
    """Whether inference is not shown a node."""
    if is_refused(node) or keeps_names(node, opset) or is_empty(node) or has_negative_axes(node, opset):
        return True
    if is_mistaken(node):
        return True
    return follows and is_misread(node)


def keeps_names(node: ir.Node, opset: int) -> bool:
    """Whether inference may give a part of an axis the name of all of it, as it does in one version of Slice."""
    if opset != 10 or node.op_type != "Slice" or node.domain or not node.inputs:
        return False
    data = node.inputs[0]
    return data is None or data.shape is None or not data.shape.is_static()


def has_negative_axes(node: ir.Node, opset: int) -> bool:
    """Whether inference takes the axes of a Squeeze or an Unsqueeze otherwise than runtimes do."""
    if opset >= 11 or node.op_type not in ("Squeeze", "Unsqueeze") or node.domain:
        return False
    return min(attribute_of(node, "axes", []), default=0) < 0


def is_empty(node: ir.Node) -> bool:
    """Whether inference takes a Slice for empty that is not in onnxruntime."""
    if node.op_type != "Slice" or node.domain or len(node.inputs) < 5:
        return False
    ends, steps = numbers_of(node.inputs[2]), numbers_of(node.inputs[4])
    return ends is not None and steps is not None and are_backwards_to_the_end(ends, steps)


def is_mistaken(node: ir.Node) -> bool:
    """Whether inference gives the results of a node wrong sizes, which `infer` corrects."""
    if node.domain:
        return False
    if node.op_type == "Attention":
        return attends_to_unknown_sizes(node)
    if node.op_type == "DFT":
        length = node.inputs[1] if len(node.inputs) > 1 else None
        return length is not None and constant_of(length) is None
    return repeats(node)


def attends_to_unknown_sizes(node: ir.Node) -> bool:
    """Whether the result of an Attention has the size of heads that is not known, or its weights that of keys that is not."""
    key, value = (x.shape if x is not None else None for x in node.inputs[1:3])
    if value is not None and len(value) == 3 and not isinstance(value[2], int):
        return True
    return len(node.outputs) > 3 and (key is None or not isinstance(key[-2], int))


def repeats(node: ir.Node) -> bool:
    """Whether an operand of an Einsum is known to have 1 of what another one has more of, so that inference gives it another size."""
    if node.op_type != "Einsum" or node.domain:
        return False
    sizes = sizes_of_einsum(node)
    return sizes is not None and any(repeated_size(found) != found[0] for found in sizes)


def is_refused(node: ir.Node) -> bool:
    """Whether onnx's inference would end the process here."""
    return node.op_type in READS_TYPE and not has_type(node)


def has_type(node: ir.Node) -> bool:
    """Whether the type of the first input of a node is known."""
    return bool(node.inputs) and node.inputs[0] is not None and node.inputs[0].type is not None


def is_misread(node: ir.Node) -> bool:
    """Whether inference may take other numbers for what the node gives, where these are sizes."""
    if node.op_type not in ("Cast", "Gather", "Slice", "Squeeze") or node.domain or not node.inputs:
        return False
    data = node.inputs[0]
    if data is None or data.dtype not in SIZES:
        return False
    producer = data.producer()
    operator = None if producer is None else producer.op_type
    if data.dtype is None and operator is not None and operator not in FOLLOWED:
        return False
    rank = None if data.shape is None else len(data.shape)
    if node.op_type in ("Gather", "Squeeze"):
        return operator in IN_A_ROW and rank not in (0, 1)
    if rank is not None and rank > 1:
        return False
    if node.op_type == "Cast":
        return attribute_of(node, "to") not in WIDE
    return not is_shown(node)


def is_shown(node: ir.Node) -> bool:
    """Whether inference knows where a Slice begins and ends, and its steps are 1.

    With other steps, inference reads an end of 2 ** 63 - 1 otherwise than onnxruntime does.
    """
    for value in filter(None, node.inputs[1:]):
        producer = value.producer()
        if constant_of(value) is None or (producer is not None and producer.graph is not node.graph):
            return False
    return len(node.inputs) < 5 or node.inputs[4] is None or set(numbers_of(node.inputs[4]) or ()) == {1}


@contextlib.contextmanager
def shown(graph: ir.Graph, nodes: Iterable[ir.Node]) -> Iterator[None]:
    """While this lasts, each body has copies of the small constants that its *nodes* read from the graphs around it."""
    added: list[ir.Value] = []
    for node in nodes:
        if node.graph is graph or not isinstance(node.graph, ir.Graph):
            continue
        own = node.graph.initializers
        for value in node.inputs:
            if value is None or value.name in own or value.producer() is not None or not is_small(value, 64):
                continue
            tensor = value.const_value
            copy = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=tensor)
            node.graph.register_initializer(copy)
            added.append(copy)
    try:
        yield
    finally:
        for copy in added:
            del copy.graph.initializers[copy.name]


def part_as_onnxruntime(nodes: Iterable[ir.Node]) -> None:
    """A SplitToSequence into pieces of 1 without their axis, as torch.onnx writes ``unbind``, is not told the 1 from now on.

    onnxruntime 1.31 removes the axis where the 1 is a number; ONNX, and its inference, only where it is not told at all.
    """
    for node in nodes:
        if node.op_type != "SplitToSequence" or node.domain or len(node.inputs) != 2:
            continue
        size = constant_of(node.inputs[1])
        if (
            size is not None
            and not len(size.shape)
            and size.numpy() == 1
            and not attribute_of(node, "keepdims", 1)
        ):
            node.resize_inputs(1)


def know_hidden(nodes: Iterable[ir.Node], opset: int) -> bool:
    """Infer each of the nodes that were hidden by itself; return whether a result has got a type or a shape that it did not have."""
    known = False
    for node in nodes:
        before = [(value.type, value.shape) for value in node.outputs]
        if not has_type(node) or all(shape is not None for _, shape in before):
            continue
        with contextlib.suppress(Untranslatable, onnx.checker.ValidationError):
            infer(node, opset)
        known |= before != [(value.type, value.shape) for value in node.outputs]
    return known
