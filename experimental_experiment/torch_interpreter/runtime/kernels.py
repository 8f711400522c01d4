"""Dtypes for which onnxruntime has no kernel, or ONNX no version of an operator: computed in a wider one, cast back.

Source: ``kernels.json``, measured by ``benchmarks/kernels.py`` on onnxruntime's CPU provider.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes, sizes
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import attributes_of, is_of, producer_of

BFLOAT16, DOUBLE, FLOAT = ir.DataType.BFLOAT16, ir.DataType.DOUBLE, ir.DataType.FLOAT

NEWEST = 26
"""The newest version of ai.onnx that onnxruntime 1.31 runs."""

WIDER = {
    ir.DataType.BOOL: (ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT),
    ir.DataType.INT8: (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT),
    ir.DataType.UINT8: (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT),
    ir.DataType.INT16: (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT),
    ir.DataType.UINT16: (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT),
    ir.DataType.INT32: (ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.FLOAT),
    ir.DataType.UINT32: (ir.DataType.INT64, ir.DataType.DOUBLE),
    ir.DataType.UINT64: (ir.DataType.INT64,),
    ir.DataType.FLOAT16: (ir.DataType.FLOAT, ir.DataType.DOUBLE),
    ir.DataType.BFLOAT16: (ir.DataType.FLOAT, ir.DataType.DOUBLE),
    ir.DataType.DOUBLE: (ir.DataType.FLOAT,),
    **dict.fromkeys(dtypes.FLOAT8, (ir.DataType.FLOAT,)),
}
"""Where to compute when an operator has no kernel for a dtype. Only float64 loses digits, and that is logged."""

CONTINUED = frozenset({(BFLOAT16, FLOAT), (DOUBLE, FLOAT), (FLOAT, DOUBLE)})
"""A dtype and the wider one that the next operator goes on with: one cast around a region, not around every node."""

CONTINUOUS = frozenset(
    """Abs Acos Acosh Add Asin Asinh Atan Atanh AveragePool BatchNormalization Clip Col2Im Conv ConvTranspose Cos Cosh CumProd
    CumSum Div Einsum Elu Erf Exp Gelu Gemm GlobalAveragePool GlobalMaxPool GroupNormalization GRU HardSigmoid HardSwish
    InstanceNormalization LayerNormalization LeakyRelu Log LogSoftmax LSTM MatMul Max Mean Min Mish Mul Neg Pad Pow PRelu
    Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Resize RMSNormalization RNN Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Sub Sum Swish Tan Tanh Trilu Where""".split()
)
"""Operators whose result moves as little as their operands do. Comparisons and indices see the rounded values that torch sees."""

MOVING = frozenset(
    "Concat DepthToSpace Expand Gather Reshape Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze".split()
)
"""Operators that move elements: the next operator goes on with the wider ones that stand where theirs do."""

NEUTRAL = frozenset(("Identity", "Shape", "Size"))
"""Operators to which a rounding makes no difference."""

GOES_ON = CONTINUOUS | MOVING
"""Operators that take values before they are rounded, and give some."""

REACH = 8
"""How many such operators stand between two that compute, at most."""


WITH_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose bodies take what they are given: a cast around them would not reach the bodies."""


@functools.cache
def table() -> dict[str, dict[str, list[str]]]:
    """{operator: {type variable: [dtypes without a kernel]}}."""
    file = importlib.resources.files(__package__) / "kernels.json"
    return json.loads(file.read_text())


@functools.cache
def computed(op_type: str, opset: int, runtime: str) -> dict[str, frozenset[ir.DataType]]:
    """The dtypes that each type variable of an operator may take and the runtime computes; all when it computes none."""
    missing = table().get(op_type, {}) if runtime == "onnxruntime" else {}
    kinds = dtypes.constraints(op_type, opset)
    found = {}
    for variable, allowed in kinds.allowed.items():
        absent = {ir.DataType[name] for name in missing.get(variable, ())}
        found[variable] = allowed - absent or allowed
    return found


@functools.lru_cache(maxsize=4096)
def computes(op_type: str, opset: int, runtime: str, given: tuple[ir.DataType | None, ...]) -> bool:
    """Whether the runtime computes an operator with inputs of these dtypes; None for one that is absent or no tensor."""
    kinds, allowed = dtypes.constraints(op_type, opset), computed(op_type, opset, runtime)
    return all(
        dtype is None or dtype in allowed.get(kinds.variable(position), (dtype,))
        for position, dtype in enumerate(given)
    )


def widened(
    op: Any, op_type: str, kinds: dtypes.Constraints, values: list[ir.Value | None]
) -> tuple[list[ir.Value | None], dict[str, ir.DataType]]:
    """Inputs cast to a dtype that the operator computes, and the dtype to give back, by type variable.

    Raises Untranslatable when no wider dtype is computed.
    """
    given = tuple(
        [None if value is None or type(value.type) is not ir.TensorType else value.dtype for value in values]
    )
    context = op.context
    if computes(op_type, context.opset, context.runtime, given):
        return values, {}
    chosen: dict[str, ir.DataType] = {}
    restored: dict[str, ir.DataType] = {}
    allowed = computed(op_type, context.opset, context.runtime)
    for position, value in enumerate(values):
        if value is None or not isinstance(value.type, ir.TensorType):
            continue
        kind = kinds.variable(position)
        if kind not in allowed or value.dtype in allowed[kind] or kind in chosen:
            continue
        candidates = () if op_type in WITH_BODIES else WIDER.get(value.dtype, ())
        wider = next((dtype for dtype in candidates if dtype in allowed[kind]), None)
        if wider is None:
            raise Untranslatable(
                f"neither ONNX {op_type} nor a cast around it computes {value.dtype.name}"
                + later(op_type, op.opset, kind, value.dtype)
            )
        if value.dtype == DOUBLE:
            op.context.warn_once(f"onnxruntime has no float64 kernel for {op_type}: computed in float32")
        chosen[kind], restored[kind] = wider, value.dtype
    if not chosen:
        return values, restored
    cast = []
    for position, value in enumerate(values):
        kind = kinds.variable(position)
        if value is not None and kind in chosen:
            value = wide_value(op, op_type, value, chosen[kind])
        cast.append(value)
    return cast, restored


def later(op_type: str, opset: int, kind: str, dtype: ir.DataType) -> str:
    """What to do when a newer version of the operator takes this dtype, nothing when none does."""
    name = f"tensor({dtype.name.lower()})"
    since = dtypes.first_version(
        op_type,
        lambda schema: (
            schema.since_version > opset
            and any(
                item.type_param_str == kind and name in item.allowed_type_strs
                for item in schema.type_constraints
            )
        ),
    )
    return "" if since is None else f" in opset {opset}: raise target_opset to {since}"


def wide_value(op: Any, op_type: str, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """*value* in a wider dtype: what it was cast from when the operator before had no kernel either, a Cast otherwise."""
    wide = unrounded(op, value, dtype) if op_type in GOES_ON else None
    if wide is not None:
        return wide
    if is_small(value) and value.dtype in dtypes.FLOATS:
        return op.computed("Cast", [value], value.const_value.numpy(), dtype)
    return op.Cast(value, to=dtype)


def unrounded(op: Any, value: ir.Value, dtype: ir.DataType) -> ir.Value | None:
    """What *value* was cast from, moved as it was moved since; None when it was not cast from *dtype* here."""
    return moved(op, value, dtype) if was_wider(op, value, dtype, REACH) else None


def see_rounded(op: Any, op_type: str, values: Sequence[ir.Value | None]) -> None:
    """Values whose rounding an operator sees, as Floor, TopK and Cast do, are rounded for all others, too.

    ``x - x.floor()`` is never negative then: its root is no NaN where eager has 0.
    """
    if op_type in GOES_ON or op_type in NEUTRAL:
        return
    context = op.context
    for value in values:
        # a float64 that was computed in float32 is the same number
        if value is None or value.dtype != BFLOAT16:
            continue
        for seen in (origins(value, REACH) & context.cast_from.keys()) - context.seen_rounded:
            context.seen_rounded.add(seen)
            round_again(context, seen)


def round_again(context: Any, value: ir.Value) -> None:
    """What went on with the wider value that *value* was cast from reads *value* cast back; not what computes *value*."""
    wide, narrowing = context.cast_from[value], value.producer()
    if narrowing is None or wide not in narrowing.inputs:  # it was cast to wide, nothing was rounded
        return
    computing = context.computing.get(value, frozenset((narrowing,)))
    uses = [use for use in wide.uses() if use.node not in computing]
    if not uses:
        return
    back = ir.node(
        "Cast",
        [value],
        {"to": wide.dtype.value},
        name=context.names.unique(f"{narrowing.name}_back"),
        metadata_props=dict(narrowing.metadata_props),
    )
    back.meta.update(narrowing.meta)
    (result,) = back.outputs
    result.name = context.names.unique(f"{value.name}_back")
    result.type, result.shape = wide.type, wide.shape
    narrowing.graph.insert_after(narrowing, back)
    for use in uses:
        use.node.replace_input_with(use.idx, result)


def origins(value: ir.Value, reach: int) -> set[ir.Value]:
    """The values whose elements at most *reach* operators have moved to where they are in *value*."""
    node = producer_of(value)
    if node is None or not moves(node) or not reach:
        return {value}
    return set().union(*(origins(item, reach - 1) for item in moved_by(node)))


def was_wider(op: Any, value: ir.Value, dtype: ir.DataType, reach: int) -> bool:
    """Whether *value* was cast from *dtype* in this graph, or at most *reach* operators have moved what was; nothing saw it rounded."""
    seen = op.context.seen_rounded
    if seen and not seen.isdisjoint(origins(value, reach)):
        return False
    wide = op.context.cast_from.get(value)
    if wide is not None:
        return wide.dtype == dtype and (not op.context.keeps_modules or op.producer(wide) is not None)
    node = op.producer(value)
    if node is None or not moves(node) or not reach:
        return False
    return all(was_wider(op, item, dtype, reach - 1) for item in moved_by(node))


def moves(node: ir.Node) -> bool:
    """Whether a node moves elements, beside zeros or not."""
    return is_of(node, *MOVING) or (is_of(node, "Pad") and all(map(is_zero, node.inputs[2:3])))


def is_zero(value: ir.Value | None) -> bool:
    """Whether what is written around is 0, as it is unless something is given."""
    return value is None or (value.const_value is not None and not value.const_value.numpy().any())


def moved_by(node: ir.Node) -> Sequence[ir.Value]:
    """The inputs of a node that moves elements whose elements they are."""
    return node.inputs if node.op_type == "Concat" else node.inputs[:1]


def moved(op: Any, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """`unrounded` of what `was_wider`: the operators that moved it are written once more."""
    known = op.context.cast_from
    if value not in known:
        node = value.producer()
        inputs = [moved(op, item, dtype) for item in moved_by(node)]
        attributes = attributes_of(node)
        others = list(node.inputs[len(inputs) :])
        if node.op_type == "Pad":
            others[1:2] = [None]  # the zero has the other dtype
        results = op.emit(node.op_type, [*inputs, *others], attributes, outputs=len(node.outputs))
        known.update(zip(node.outputs, results))
    wide = known[value]
    sizes.take_sizes(op, wide, value)
    return wide


def narrow_value(op: Any, op_type: str, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """*value*, the result of a wider computation, cast back to *dtype*."""
    return narrowed(op, value, dtype) if op_type in GOES_ON else op.Cast(value, to=dtype)


def narrowed(op: Any, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """*value* cast to *dtype*; what computes without a kernel goes on with the wider one."""
    result = op.Cast(value, to=dtype)
    if (dtype, value.dtype) in CONTINUED and op.context.runtime == "onnxruntime":
        op.context.cast_from[result] = value
        if len(value.uses()) > 1:
            op.context.computing[result] = frozenset(use.node for use in value.uses())
    return result
