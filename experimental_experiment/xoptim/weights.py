"""Weights that are computed from other weights alone, as weight norms and standardized weights are: computed when the model is written."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import Context, content_of
from experimental_experiment.torch_interpreter.functions import is_read_outside
from experimental_experiment.torch_interpreter.inference import (
    FOLDED,
    LIMIT,
    MOVES,
    NUMPY,
    evaluated,
    is_beyond_numpy,
    is_shared,
    leaves_its_dtype,
    schema_of,
    type_proto,
)
from experimental_experiment.torch_interpreter.producers import is_of
from experimental_experiment.torch_interpreter.runtime.kernels import CONTINUOUS, NEWEST, computes
from experimental_experiment.xoptim.graphs import is_read
from experimental_experiment.xoptim.pattern import attribute_of
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.validity import may_run

COMPUTED = FOLDED | frozenset(
    "Einsum Erf Gemm MatMul ReduceL2 ReduceMean ReduceSumSquare Sigmoid Softplus".split()
)
"""Operators that are computed, as often as their results are read."""

RUN = frozenset(
    "ArgMax ArgMin AveragePool BatchNormalization Conv ConvTranspose Gelu GridSample GroupNormalization HardSwish InstanceNormalization "
    "LayerNormalization LogSoftmax MaxPool ReduceLogSumExp Resize ScatterElements ScatterND Softmax TopK".split()
)
"""Others, which onnxruntime computes, as it does when it loads a model: numpy needs minutes for the positions of a vision transformer, and
onnx.reference gives NaN for the logarithm of a sum of nothing, other indices among NaN, mixes the statistics of a BatchNormalization before
opset 14, and knows one axis of Softmax before opset 13.
"""

POSITIONS = 2**14
"""The most elements of a result that may take more room than what it is computed from."""

MEMBERS = 256
"""In groups of more nodes no part is looked for: each asks for all nodes before it."""


def compute_weights(
    graph: ir.Graph, context: Context, report: Report, stop_after: int | None = None
) -> list[ir.Value]:
    """Replace nodes that read weights alone by what they give, where this takes no more room than the weights that are read no more.

    Where it takes more, the values nearest to it that take less are stored: what a network gives, behind which positions are looked up. So are
    results of up to `POSITIONS` elements, as the distances of tokens of a known number and what a table says of them.

    They are computed whenever they are read, which takes no memory before the model is written. Weights of other files stay there, so
    do the nodes of bodies, and Transposes of what is computed: rules store the results transposed, or have a Gemm read them.

    Each result is a rewriting of the report, ComputedWeight; *stop_after* so many in all, none more. Returns what is read instead.
    """
    new: dict[ir.Value, None] = {}
    nodes = [*computed_nodes(graph)]
    for members in groups(nodes) if nodes else ():
        inside = set(members)
        results = [value for node in members for value in node.outputs if is_read_outside(value, inside)]
        read = dict.fromkeys(value for node in members for value in node.inputs if is_constant(value))
        is_small = all(node.op_type in FOLDED for node in members) and all(size_of(w) <= LIMIT for w in read)
        spared = [value for value in read if not is_read_outside(value, inside)]
        if is_small or room(results) > room(spared):
            results = parts_of(results) if len(members) <= MEMBERS else []
        for value in results:
            if stop_after is not None and len(report.applications) >= stop_after:
                return list(new)
            known, given = ancestors(value)
            source = max([weight for weight in spared if weight in given] or given, key=size_of)
            report.applications.append(("ComputedWeight", value.name or ""))
            new[computed_weight(graph, value, source, context)] = None
            for node in reversed(known):
                if not is_read(node.outputs):
                    graph.remove(node, safe=True)
    return list(new)


def parts_of(results: Iterable[ir.Value]) -> list[ir.Value]:
    """The values nearest to *results*, of those that they are computed from, that may be stored.

    Such a value is small, or takes no more room than the weights that nothing but its computation reads.
    """
    found: dict[ir.Value, None] = {}
    waiting, seen = list(results), set(results)
    while waiting:
        value = waiting.pop()
        nodes, given = ancestors(value)
        inside = set(nodes)
        inner = [output for node in nodes for output in node.outputs if output is not value]
        is_alone = not any(is_read_outside(output, inside) for output in inner)
        spared = [weight for weight in given if not is_read_outside(weight, inside)] if is_alone else []
        if size_of(value) <= POSITIONS or room([value]) <= room(spared):
            found[value] = None
            continue
        before = [one for one in nodes[-1].inputs if one is not None and one.producer() is not None]
        waiting += [one for one in before if one not in seen]
        seen.update(before)
    return list(found)


def computed_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes that read nothing but weights and each other, each after those that it reads, but for the Transposes of the last results.

    They are found from the weights: what reads one first may read weights alone.
    """
    weights = filter(is_constant, graph.initializers.values())
    waiting = [use.node for value in weights for use in value.uses() if use.idx == 0]
    computed: dict[ir.Node, None] = {}
    opset = graph.opset_imports.get("", 1)

    def is_known(value: ir.Value | None) -> bool:
        return value is None or is_constant(value) or value.producer() in computed

    while waiting:
        node = waiting.pop()
        is_new = node.graph is graph and node not in computed
        if is_new and all(map(is_known, node.inputs)) and is_computed(node, opset) and may_run(node, opset):
            computed[node] = None
            waiting += [use.node for value in node.outputs for use in value.uses()]
    for node in computed:
        if not is_of(node, "Transpose") or any(use.node in computed for use in node.outputs[0].uses()):
            yield node


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is a constant, and held here."""
    tensor = None if value is None else value.const_value
    return tensor is not None and not isinstance(tensor, ir.ExternalTensor)


def is_computed(node: ir.Node, opset: int) -> bool:
    """Whether a node is computed as onnxruntime does, and its result is no output of the model."""
    if node.op_type not in COMPUTED | RUN or node.domain:
        return False
    if node.op_type in RUN and not is_run(node, opset):
        return False
    exact = NUMPY | dtypes.HALVES if node.op_type in MOVES or is_continuous(node) else NUMPY
    if any(value is not None and value.dtype not in exact for value in node.inputs):
        return False
    return not (is_beyond_numpy(node) or leaves_its_dtype(node)) and all(
        value.dtype in exact
        and value.shape is not None
        and value.shape.is_static()
        and not value.is_graph_output()
        for value in node.outputs
    )


def is_run(node: ir.Node, opset: int) -> bool:
    """Whether onnxruntime computes a node alone, halves in float32, and ONNX knows its shape.

    Of pools that round up, it says another one before opset 22: a last window that starts in the padding is none.
    """
    given = [None if value is None else value.dtype for value in node.inputs]
    wide = tuple([ir.DataType.FLOAT if dtype in dtypes.HALVES else dtype for dtype in given])
    return (
        opset <= NEWEST
        and schema_of(node.op_type, opset, "") is not None
        and not attribute_of(node, "ceil_mode", 0)
        and all(value.name for value in node.outputs)
        and computes(node.op_type, opset, "onnxruntime", wide)
    )


def is_continuous(node: ir.Node) -> bool:
    """Whether a result in float32 is near to the one in float16: both may be computed there."""
    if node.op_type in ("Cast", "CastLike"):
        return node.outputs[0].dtype in dtypes.FLOATS
    return node.op_type in CONTINUOUS


def groups(nodes: Sequence[ir.Node]) -> list[list[ir.Node]]:
    """The nodes that read each other, or the same weight of more than `LIMIT` elements, each group in order."""
    group: dict[ir.Value, list[ir.Node]] = {}
    for node in nodes:
        joined = list({id(group[value]): group[value] for value in joining(node) if value in group}.values())
        members = max(joined, key=len, default=[])
        moved = [member for other in joined if other is not members for member in other]
        members += [*moved, node]
        group.update((value, members) for member in (*moved, node) for value in joining(member))
    place = {node: position for position, node in enumerate(nodes)}
    return [sorted(members, key=place.get) for members in {id(one): one for one in group.values()}.values()]


def joining(node: ir.Node) -> list[ir.Value]:
    """The values that put two nodes into one group, when each of them reads or gives one of these."""
    large = [
        value
        for value in node.inputs
        if value is not None and (not is_constant(value) or size_of(value) > LIMIT)
    ]
    return [*node.outputs, *large]


def size_of(value: ir.Value) -> int:
    """The number of elements."""
    return math.prod(value.shape) if value.const_value is None else value.const_value.size


def room(values: Sequence[ir.Value]) -> int:
    """The bytes of those that have more than `LIMIT` elements."""
    return sum(size_of(value) * value.dtype.bitwidth // 8 for value in values if size_of(value) > LIMIT)


def computed_weight(graph: ir.Graph, old: ir.Value, source: ir.Value, context: Context) -> ir.Value:
    """A weight that is computed as *old* is, named after one of those that it is computed from, which all read instead.

    Of small ones, the constant that holds the same, if there is one.
    """
    nodes, given = ancestors(old)
    imports = [onnx.helper.make_opsetid("", graph.opset_imports[""])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [ir.serde.serialize_node(node) for node in nodes],
            "weight",
            [onnx.helper.make_value_info(value.name, type_proto(value)) for value in given],
            [onnx.helper.make_value_info(old.name, type_proto(old))],
        ),
        opset_imports=imports,
        ir_version=onnx.helper.find_min_ir_version_for(imports),
    )
    raise_halves(model.graph)
    tensors = {value.name: value.const_value for value in given}
    name, dtype, shape = context.names.unique(f"{source.name}_computed"), old.dtype, old.shape.numpy()
    run = sorted({node.op_type for node in nodes} & RUN)

    def compute() -> ir.Tensor:
        feeds = {
            given: tensor.numpy().astype(np.float32) if tensor.dtype in dtypes.HALVES else tensor.numpy()
            for given, tensor in tensors.items()
        }
        (array,) = evaluated(model, feeds, [run_alone(op_type) for op_type in run])
        array = np.asarray(array, dtype.numpy())
        if array.shape != shape:  # a file told it, what a Range gives for example, and no node contradicted
            raise ValueError(f"{old.name!r} is computed as {array.shape}, and its sizes were told as {shape}")
        return ir.Tensor(array, dtype, name=name)

    is_small = size_of(old) <= POSITIONS  # rules ask for masks once a layer
    tensor = ir.LazyTensor(compute, dtype=dtype, shape=ir.Shape(shape), name=name, cache=is_small)
    new = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(dtype), const_value=tensor)
    if is_shared(size_of(old), dtype) and all(size_of(weight) <= LIMIT for weight in given):
        new = context.constants.setdefault(content_of(tensor.numpy()), new)
    if new.graph is None:
        graph.register_initializer(new)
    old.replace_all_uses_with(new)
    return new


@functools.cache
def run_alone(op_type: str) -> type:
    """An operator for ``onnx.reference`` that onnxruntime computes, imported by the first weights that it is asked for."""
    session = importlib.import_module("experimental_experiment.comparison").session
    base = importlib.import_module("onnx.reference.op_run").OpRun

    def run(self, *operands, **_):
        node, opsets = self.onnx_node, self.run_params["opsets"]
        feeds = {name: array for name, array in zip(node.input, operands) if name}
        given = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ]
        graph = onnx.helper.make_graph(
            [node], "node", given, [onnx.ValueInfoProto(name=name) for name in node.output]
        )
        imports = [onnx.helper.make_opsetid("", opsets[""])]
        model = onnx.helper.make_model(
            graph, opset_imports=imports, ir_version=onnx.helper.find_min_ir_version_for(imports)
        )
        return tuple(session(model, threads=1).run(None, feeds))

    return type(op_type, (base,), {"op_domain": "", "_run": run})


def raise_halves(graph: onnx.GraphProto) -> None:
    """Compute in float32 what a graph computes in float16 or bfloat16; what is cast to one of these is rounded there, and read in float32."""
    halves = [dtype.value for dtype in dtypes.HALVES]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in halves:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    nodes = []
    for node in graph.node:
        nodes.append(node)
        if node.op_type == "Cast" and onnx.helper.get_node_attr_value(node, "to") in halves:
            (name,) = node.output
            node.output[0] = f"{name}_rounded"
            nodes.append(onnx.helper.make_node("Cast", node.output, [name], to=onnx.TensorProto.FLOAT))
    del graph.node[:]
    graph.node.extend(nodes)


def ancestors(result: ir.Value) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes that compute a value, each after those that it reads, and the weights that they read."""
    order: dict[ir.Node, None] = {}
    given: dict[ir.Value, None] = {}
    waiting = [result.producer()]
    while waiting:
        node = waiting[-1]
        given.update(dict.fromkeys(value for value in node.inputs if is_constant(value)))
        before = [
            value.producer() for value in node.inputs if value is not None and value.producer() is not None
        ]
        missing = [producer for producer in before if producer not in order]
        if missing:
            waiting += missing
        else:
            order[waiting.pop()] = None
    return list(order), list(given)
