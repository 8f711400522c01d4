"""What a new node yields: its dtype and shape, by ONNX's inference; its value, when all inputs are small constants.

Source of semantics: ``onnx.shape_inference.infer_node_outputs`` and ``onnx.reference``.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx.shape_inference import InferenceError, infer_node_outputs

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.better_shapes import KNOWN_BETTER, ends_otherwise
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.marks import DATA, PROTO

FOLDED = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat "
    "ConstantOfShape Cos Cosh CumSum Div Equal Exp Expand Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual IsInf IsNaN Less "
    "LessOrEqual Log Max Min Mod Mul Neg Not Or Pad Pow Range Reciprocal ReduceMax ReduceMin ReduceProd ReduceSum Relu Reshape Round ScatterND "
    "Shape Sign Sin Sinh Size Slice Split Sqrt Squeeze Sub Tan Tanh Tile Transpose Trilu Unsqueeze Where Xor".split()
)
"""Operators computed while emitting when all inputs are small constants."""

MOVES = frozenset(
    "Concat Expand Flatten Gather GatherElements GatherND Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split()
)
"""Those that compute nothing: they are exact for halves too."""

INDEXED = ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")
"""Those whose second input holds positions in the first one."""

REFUSALS = (IndexError, ValueError, ZeroDivisionError)
"""What numpy says of a Reshape to other sizes, an axis or an element that is none, a Range by 0."""

LIMIT = 1024
"""Constants of more elements stay where they are: folding them would copy weights."""

NUMPY = frozenset(
    {
        ir.DataType.BOOL,
        ir.DataType.INT8,
        ir.DataType.INT16,
        ir.DataType.INT32,
        ir.DataType.INT64,
        ir.DataType.UINT8,
        ir.DataType.UINT64,
        ir.DataType.FLOAT,
        ir.DataType.DOUBLE,
    }
)
"""Dtypes that numpy computes as onnxruntime does."""


ROUNDED = {
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Exp": torch.exp,
    "Log": torch.log,
    "Pow": torch.pow,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
"""Functions that torch and numpy round differently: torch computes what becomes a constant, as it does in eager.

The frequencies of sinusoidal positions are such numbers: their last bit, times a position of 1000, is an error of 6e-5 in the sine.
"""


INFERRED_SINCE = {
    "GreaterOrEqual": 16,
    "LessOrEqual": 16,
    "Reshape": 14,
    "Slice": 11,
    "Squeeze": 11,
    "Unsqueeze": 11,
}
"""Operators whose first versions infer no rank, names of sizes that are cut, or other sizes for negative axes, which runtimes take in all versions; and
the version that does not, which says the same otherwise."""


COMPARED = frozenset(
    (
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    )
)
"""Attributes that can be part of a key."""

INFERRED: dict[tuple, tuple] = {}
"""The types that were inferred for each kind of node: the layers of a model repeat the same ones."""

MOST_INFERRED = 4096


@functools.cache
def schema_of(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema of an operator, None when onnx does not describe it."""
    return onnx.defs.get_schema(op_type, opset, domain) if onnx.defs.has(op_type, opset, domain) else None


@functools.cache
def inferred_as(op_type: str, opset: int, domain: str) -> tuple[int, onnx.defs.OpSchema | None]:
    """The version of an operator by which its results are inferred, and its schema."""
    schema, since = schema_of(op_type, opset, domain), INFERRED_SINCE.get(op_type, 0)
    newer = schema_of(op_type, since, domain) if since > opset else None
    if schema is None or newer is None:
        return opset, schema
    has_inputs = schema.max_input == newer.max_input  # which were attributes once
    return (since, newer) if has_inputs else (opset, schema)


def type_proto(value: ir.Value) -> onnx.TypeProto:
    """The type and the shape of a value, as onnx's inference reads them; not to be changed: tensors share it."""
    sizes = None if value.shape is None else value.shape.dims
    if type(value.type) is ir.TensorType:
        return tensor_type(value.dtype, sizes)
    return typed_proto(value.type, sizes)


@functools.lru_cache(maxsize=1024)
def tensor_type(dtype: ir.DataType, sizes: tuple[int | ir.SymbolicDim, ...] | None) -> onnx.TypeProto:
    """The type of tensors of these sizes, None when their rank is unknown."""
    return typed_proto(ir.TensorType(dtype), sizes)


def typed_proto(type_: ir.TypeProtocol, sizes: tuple[int | ir.SymbolicDim, ...] | None) -> onnx.TypeProto:
    """A type with these sizes."""
    proto = ir.serde.serialize_type(type_)
    if sizes is not None:
        ir.serde.serialize_shape_into(proto, ir.Shape(sizes))
    return proto


def tensor_proto(value: ir.Value) -> onnx.TensorProto:
    """The number or the list that a constant holds, as onnx's inference reads it; written once for each constant."""
    proto = value.meta.get(PROTO)
    if proto is None:
        proto = value.meta[PROTO] = ir.serde.serialize_tensor(value.const_value)
    return proto


def node_proto(node: ir.Node) -> onnx.NodeProto:
    """A node as onnx's inference reads it, without its names and its origin."""
    return onnx.NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=["" if value is None else value.name for value in node.inputs],
        output=[value.name for value in node.outputs],
        attribute=[ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values()],
    )


def infer(node: ir.Node, opset: int) -> None:
    """Give the outputs of *node* the dtype and shape that ONNX infers, leaving unknown what it cannot.

    Cost: about 40 microseconds for the first node of a kind, a fifth for others. Raises Untranslatable when the inputs contradict the operator.
    """
    version, schema = inferred_as(node.op_type, opset, node.domain)
    key = None if schema is None else kind_of(node, version)
    kept = INFERRED.get(key)  # another thread may empty it
    if kept is not None:
        for output, known in zip(node.outputs, kept):
            if known is not None:
                dtype, output.shape = known
                output.type = ir.TensorType(dtype)
        return
    given = [value for value in node.inputs if value is not None]
    if schema is None or any(value.type is None for value in given):
        return
    bodies = [item.as_graph() for item in node.attributes.values() if item.type == ir.AttributeType.GRAPH]
    if bodies:
        check_bodies(node, opset, bodies)
        infer_from_bodies(node, bodies)
        return
    data = {value.name: tensor_proto(value) for value in given if is_small(value, 64)}
    try:
        types = {value.name: type_proto(value) for value in given}
        inferred = infer_node_outputs(schema, node_proto(node), types, data)
    except InferenceError as error:
        shapes = ", ".join(f"{value.dtype}{value.shape}" for value in given)
        raise Untranslatable(f"ONNX {node.op_type} does not accept {shapes}: {error}") from error
    except onnx.checker.ValidationError as error:
        newer = dtypes.first_version(
            node.op_type,
            lambda schema: schema.since_version > opset and accepts(schema, node_proto(node), types, data),
        )
        if newer is None:
            raise
        raise Untranslatable(
            f"{error} of ONNX {node.op_type} in opset {opset}: raise target_opset to {newer}"
        ) from error
    for output in node.outputs:
        if output.name in inferred:
            output.type = ir.serde.deserialize_type_proto_for_type(inferred[output.name])
            output.shape = ir.serde.deserialize_type_proto_for_shape(inferred[output.name])
    if node.op_type in KNOWN_BETTER and not node.domain:
        KNOWN_BETTER[node.op_type](node)
    if key is not None and all(type(output.type) in (ir.TensorType, type(None)) for output in node.outputs):
        if len(INFERRED) >= MOST_INFERRED:
            INFERRED.clear()
        INFERRED[key] = tuple(
            None if output.type is None else (output.dtype, shared_shape(output)) for output in node.outputs
        )


def shared_shape(value: ir.Value) -> ir.Shape | None:
    """The shape of a value for others too: nobody may change it."""
    return None if value.shape is None else value.shape.copy(frozen=True)


def kind_of(node: ir.Node, version: int) -> tuple | None:
    """What the types of a node's results depend on; None when it cannot be compared."""
    key: list[Any] = [node.op_type, node.domain, version, len(node.outputs)]
    for value in node.inputs:
        if value is None:
            key.append(None)
            continue
        kind, shape = value.type, value.shape
        if type(kind) is not ir.TensorType or kind.dtype is ir.DataType.STRING:
            return None
        key += (
            kind.dtype,
            None if shape is None else shape.dims,
            None if value.const_value is None else data_of(value),
        )
    attributes = node.attributes.data
    for attribute in attributes.values():
        if attribute.type not in COMPARED:
            return None
        key += (attribute.name, attribute.value)
    return tuple(key)


def data_of(value: ir.Value) -> bytes | None:
    """The elements of a small constant."""
    data = value.meta.data.get(DATA)
    if data is None and is_small(value, 64):
        data = value.meta[DATA] = value.const_value.tobytes()
    return data


def accepts(schema: onnx.defs.OpSchema, *given) -> bool:
    """Whether a version of an operator takes a node with these types."""
    try:
        infer_node_outputs(schema, *given)
    except (InferenceError, onnx.checker.ValidationError):
        return False
    return True


def check_bodies(node: ir.Node, opset: int, bodies: Sequence[ir.Graph]) -> None:
    """Raises Untranslatable when this version of an If, a Loop or a Scan does not carry a dtype of its bodies."""
    carried = {
        value.dtype for body in bodies for value in body.outputs if isinstance(value.type, ir.TensorType)
    }
    missing = carried - dtypes.constraints(node.op_type, opset).allowed["V"]
    if missing:
        since = dtypes.raise_to(
            node.op_type,
            lambda schema: (
                schema.since_version > opset
                and missing <= dtypes.constraints(node.op_type, schema.since_version).allowed["V"]
            ),
        )
        names = ", ".join(sorted(dtype.name for dtype in missing))
        raise Untranslatable(f"ONNX {node.op_type} does not carry {names} in opset {opset}: {since}")


def infer_from_bodies(node: ir.Node, bodies: Sequence[ir.Graph]) -> None:
    """Give the outputs of an If, or those that a Loop carries, the dtype of their bodies, and the shape that all agree on."""
    if node.op_type == "If":
        sources = [[body.outputs[position] for body in bodies] for position in range(len(node.outputs))]
    elif node.op_type == "Loop":
        sources = [list(pair) for pair in zip(bodies[0].outputs[1:], node.inputs[2:])]
    else:
        return
    for output, values in zip(node.outputs, sources):
        if output.type is None and all(
            value is not None and value.type == values[0].type for value in values
        ):
            output.type = values[0].type
            if all(value.shape is not None and value.shape == values[0].shape for value in values):
                output.shape = values[0].shape


def is_small(value: ir.Value, limit: int = LIMIT) -> bool:
    """Whether a value is a constant of at most *limit* elements."""
    return value.const_value is not None and value.const_value.size <= limit


def is_shared(size: int, dtype: ir.DataType) -> bool:
    """Whether constants that hold the same are one: those of few elements, but for rows of float16.

    onnxruntime casts these when it loads the model if one node reads them, at each run if several do; a Conv with such a bias then takes
    a slower kernel. Measured with onnxruntime 1.31: a ConvNeXt in float16 0.70 of the time, a MobileNet v3 0.87.
    """
    return size <= (1 if dtype is ir.DataType.FLOAT16 else LIMIT)


def fold(node: ir.Node, opset: int) -> list[np.ndarray] | None:
    """The outputs of *node*, computed, or None when it is not worth it, not exact, or when numpy refuses it.

    A branch that is not taken may hold a Reshape to another number of elements, a Range by 0, an axis that is none: runtimes ask when
    they run it.
    """
    if node.op_type not in FOLDED or node.domain:
        return None
    for value in node.inputs:
        if value is None or value.const_value is None:
            return None
    exact = NUMPY | dtypes.HALVES if node.op_type in MOVES else NUMPY
    if not all(is_small(v) and v.dtype in exact for v in node.inputs):
        return None
    for output in node.outputs:
        if output.shape is None or not output.shape.is_static() or output.dtype not in exact:
            return None
        if math.prod(output.shape) > LIMIT:
            return None
    if is_beyond_numpy(node):
        return None
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [ir.serde.serialize_node(node)],
            "fold",
            [onnx.helper.make_value_info(v.name, type_proto(v)) for v in unique(node.inputs)],
            [onnx.helper.make_value_info(v.name, type_proto(v)) for v in node.outputs],
        ),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
    )
    feeds = {value.name: value.const_value.numpy() for value in node.inputs}
    try:
        arrays = [np.asarray(result) for result in evaluated(model, feeds)]
    except REFUSALS:
        return None
    as_declared = all(
        a.dtype == o.dtype.numpy() and a.shape == o.shape.numpy() for a, o in zip(arrays, node.outputs)
    )
    return arrays if as_declared else None


def is_beyond_numpy(node: ir.Node) -> bool:
    """Whether the reference evaluator may refuse a node of constants, or compute something else than onnxruntime."""
    if node.op_type in ("Div", "Mod") and not node.inputs[0].dtype.is_floating_point():
        divisor = node.inputs[1].const_value
        return divisor is None or bool(np.any(divisor.numpy() == 0))
    if node.op_type == "Pad":  # numpy cuts nothing
        pads = node.inputs[1].const_value if len(node.inputs) > 1 else None  # an attribute before opset 11
        return pads is None or bool(np.any(pads.numpy() < 0))
    if node.op_type == "Pow" and not any(value.dtype.is_floating_point() for value in node.inputs):
        exponent = node.inputs[1].const_value
        return exponent is None or bool(np.any(exponent.numpy() < 0))
    if node.op_type == "Range":
        numbers = [None if value.const_value is None else value.const_value.numpy() for value in node.inputs]
        are_known = all(number is not None and np.isfinite(number).all() for number in numbers)
        return not are_known or bool(np.any(numbers[2] == 0))
    if node.op_type == "Reshape":
        before, after = node.inputs[0].shape, node.outputs[0].shape
        are_static = before is not None and after is not None and before.is_static() and after.is_static()
        return are_static and math.prod(before) != math.prod(after)
    if node.op_type == "Slice":
        return ends_otherwise(node) or starts_before_its_axis(node)
    return node.op_type in INDEXED and names_missing_elements(node)


def leaves_its_dtype(node: ir.Node) -> bool:
    """Whether a power of integers may be beyond their dtype: eager's and numpy's wrap, onnxruntime's is the smallest number."""
    if node.op_type != "Pow" or node.inputs[0].dtype not in dtypes.INTEGERS:
        return False
    if any(value.const_value is None for value in node.inputs):
        return True
    base, exponent = (value.const_value.numpy().astype(np.float64) for value in node.inputs)
    with np.errstate(all="ignore"):
        powers = np.abs(np.power(base, exponent))
    return not np.all(powers < dtypes.INTEGERS[node.inputs[0].dtype][1])


def starts_before_its_axis(node: ir.Node) -> bool:
    """Whether a Slice may go backwards from before the first element: that one is its result, numpy's is empty."""
    data, starts, _, axes, steps = (*node.inputs, None, None, None, None)[:5]
    if steps is None:
        return False
    if any(value is not None and value.const_value is None for value in (starts, axes, steps)):
        return True
    first, step = starts.const_value.numpy(), steps.const_value.numpy()
    along = range(len(first)) if axes is None else axes.const_value.numpy()
    sizes = np.array([data.shape[axis] for axis in along])
    return bool(np.any((step < 0) & (first < -sizes)))


def names_missing_elements(node: ir.Node) -> bool:
    """Whether constant positions are none of the axes that they count: the runtime says so, where the node runs at all."""
    data, positions = node.inputs[:2]
    if positions.const_value is None or data.shape is None or not data.shape.is_static():
        return False
    if node.op_type.endswith("ND"):
        first = node.attributes.get_int("batch_dims", 0)
        sizes = data.shape.numpy()[first:][: positions.shape[-1]]
    else:
        sizes = data.shape.numpy()[node.attributes.get_int("axis", 0)]
    found = positions.const_value.numpy()
    return bool(np.any((found < np.negative(sizes)) | (found >= sizes)))


def evaluated(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], operators: Sequence[type] = ()
) -> list[np.ndarray]:
    """What ``onnx.reference`` computes, with *operators* instead of its own."""
    with np.errstate(all="ignore"):
        return evaluator_class()(model, new_ops=[*new_operators(), *operators]).run(None, feeds)


@functools.cache
def evaluator_class() -> type:
    """``onnx.reference.ReferenceEvaluator``, imported by the first constant that is folded: it takes a while."""
    return importlib.import_module("onnx.reference").ReferenceEvaluator


@functools.cache
def new_operators() -> list[type]:
    """Operators that it computes otherwise, or refuses."""
    base = importlib.import_module("onnx.reference.op_run").OpRun

    class GatherElements(base):
        """Its own knows no negative axis, few elements along it, and other axes of the same sizes only."""

        op_domain = ""

        def _run(self, data, indices, axis=0):
            axis %= data.ndim
            read = tuple(slice(None if of == axis else size) for of, size in enumerate(indices.shape))
            return (np.take_along_axis(data[read], indices, axis),)

    class Flatten(base):
        """Its own divides by the number of rows, of which there may be none."""

        op_domain = ""

        def _run(self, data, axis=1):
            return (data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:])),)

    class Unsqueeze(base):
        """Its own, of an attribute, adds one axis after the other: the first ones are none of what there is then."""

        op_domain = ""

        def _run(self, data, axes=None):
            return (np.expand_dims(data, tuple(np.atleast_1d(axes).tolist())),)

    return [Flatten, GatherElements, Unsqueeze, *map(rounded_as_eager, ROUNDED)]


def rounded_as_eager(operator: str) -> type:
    """An operator of `ROUNDED`, whose floats torch computes."""
    base = getattr(importlib.import_module(f"onnx.reference.ops.op_{operator.lower()}"), operator)

    def run(self, *operands):
        if {operand.dtype for operand in operands} not in ({np.dtype("float32")}, {np.dtype("float64")}):
            return base._run(self, *operands)
        # from_numpy: the caller's default device is none of ours
        tensors = (torch.from_numpy(np.array(operand, order="C")) for operand in operands)
        return (ROUNDED[operator](*tensors).numpy(),)

    return type(operator, (base,), {"op_domain": "", "_run": run})


def unique(values) -> list[ir.Value]:
    """The values without repetition, in order."""
    return list(dict.fromkeys(values))
