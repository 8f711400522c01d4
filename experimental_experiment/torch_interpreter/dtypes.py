"""Dtypes: torch's and ONNX's, and the type constraints of operators.

Source of semantics: the operator schemas of ``onnx.defs``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.errors import Untranslatable

TORCH_TO_ONNX = {
    torch.bool: ir.DataType.BOOL,
    torch.uint8: ir.DataType.UINT8,
    torch.uint16: ir.DataType.UINT16,
    torch.uint32: ir.DataType.UINT32,
    torch.uint64: ir.DataType.UINT64,
    torch.int8: ir.DataType.INT8,
    torch.int16: ir.DataType.INT16,
    torch.int32: ir.DataType.INT32,
    torch.int64: ir.DataType.INT64,
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float8_e4m3fn: ir.DataType.FLOAT8E4M3FN,
    torch.float8_e4m3fnuz: ir.DataType.FLOAT8E4M3FNUZ,
    torch.float8_e5m2: ir.DataType.FLOAT8E5M2,
    torch.float8_e5m2fnuz: ir.DataType.FLOAT8E5M2FNUZ,
    torch.complex64: ir.DataType.FLOAT,
    torch.complex128: ir.DataType.DOUBLE,
    torch.complex32: ir.DataType.FLOAT16,
}
"""A complex tensor is a real one with a trailing dimension of 2."""

ONNX_TO_TORCH = {onnx_type: dtype for dtype, onnx_type in TORCH_TO_ONNX.items() if not dtype.is_complex}

FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
    | {onnx_type for dtype, onnx_type in TORCH_TO_ONNX.items() if dtype.is_floating_point}
)

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""What torch computes in float32."""

FLOAT8 = frozenset(dtype for dtype in FLOATS if dtype.itemsize == 1)
"""onnxruntime moves and computes none of them."""


INTEGERS = {
    ir.DataType.BOOL: (0, 1),
    **{
        dtype: (-(1 << dtype.bitwidth - 1), (1 << dtype.bitwidth - 1) - 1)
        for dtype in (ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64)
    },
    **{
        dtype: (0, (1 << dtype.bitwidth) - 1)
        for dtype in (ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64)
    },
}
"""Integers and booleans, the smallest and the largest number of each."""

DIGITS = {
    ir.DataType.FLOAT: (24, 127),
    ir.DataType.DOUBLE: (53, 1023),
    ir.DataType.FLOAT16: (11, 15),
    ir.DataType.BFLOAT16: (8, 127),
}
"""Floats: digits and largest exponent."""


def lowest(dtype: ir.DataType) -> float:
    """What no element of *dtype* is below."""
    return -math.inf if dtype in FLOATS else INTEGERS[dtype][0]


def highest(dtype: ir.DataType) -> float:
    """What no element of *dtype* is above."""
    return math.inf if dtype in FLOATS else INTEGERS[dtype][1]


def holds(wide: ir.DataType, narrow: ir.DataType) -> bool:
    """Whether a dtype holds every number of another one."""
    if wide == narrow:
        return True
    if narrow in INTEGERS and wide in INTEGERS:
        (low, high), (least, most) = INTEGERS[narrow], INTEGERS[wide]
        return wide != ir.DataType.BOOL and least <= low and high <= most
    if narrow in INTEGERS and wide in DIGITS:
        return INTEGERS[narrow][1].bit_length() <= DIGITS[wide][0]
    if narrow in DIGITS and wide in DIGITS:
        return all(a >= b for a, b in zip(DIGITS[wide], DIGITS[narrow]))
    return False


def onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    """The ONNX dtype of a torch dtype; Untranslatable when ONNX lacks it."""
    if dtype not in TORCH_TO_ONNX:
        raise Untranslatable(f"ONNX has no dtype for {dtype}")
    return TORCH_TO_ONNX[dtype]


def torch_dtype(dtype: ir.DataType) -> torch.dtype:
    """The torch dtype of an ONNX dtype."""
    return ONNX_TO_TORCH[dtype]


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Types of an ONNX operator at one version.

    Attributes:
        inputs: type variable or concrete type of each formal input; the last one repeats when ``variadic``.
        variadic: whether the last input repeats.
        mixed: whether it repeats with other dtypes, as what a Loop carries.
        outputs: type variable or concrete type of each formal output.
        allowed: dtypes that a variable may take.
        attributes: names of the attributes.
    """

    inputs: tuple[str, ...]
    variadic: bool
    mixed: bool
    outputs: tuple[str, ...]
    allowed: dict[str, frozenset[ir.DataType]]
    attributes: frozenset[str]

    def variable(self, position: int) -> str:
        """The type of the input at *position*."""
        if position < len(self.inputs):
            return self.inputs[position]
        return self.inputs[-1] if self.variadic and self.inputs else ""


def concrete(kind: str) -> ir.DataType | None:
    """The dtype of ``tensor(int64)``, None for a type variable or a type that is not a tensor."""
    if not kind.startswith("tensor("):
        return None
    name = kind[7:-1].upper()
    return ir.DataType[name] if name in ir.DataType.__members__ else None


@functools.cache
def constraints(op_type: str, opset: int, domain: str = "") -> Constraints | None:
    """The types of an operator, None for a domain that onnx does not describe.

    Raises Untranslatable when ai.onnx gained the operator after *opset*.
    """
    if not onnx.defs.has(op_type, opset, domain):
        if domain in ("", "ai.onnx"):
            raise Untranslatable(
                f"ONNX {op_type} does not exist in opset {opset}: {raise_to(op_type, lambda schema: True)}"
            )
        return None
    schema = onnx.defs.get_schema(op_type, opset, domain)
    variadic = (
        bool(schema.inputs) and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    )
    allowed = {
        constraint.type_param_str: frozenset(map(concrete, constraint.allowed_type_strs)) - {None}
        for constraint in schema.type_constraints
    }
    return Constraints(
        tuple(formal.type_str for formal in schema.inputs),
        variadic,
        variadic and not schema.inputs[-1].is_homogeneous,
        tuple(formal.type_str for formal in schema.outputs),
        allowed,
        frozenset(schema.attributes),
    )


def first_version(op_type: str, fits: Callable[[onnx.defs.OpSchema], bool]) -> int | None:
    """The first version of ai.onnx whose operator fits, None when there is none."""
    versions = [
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if (schema.domain, schema.name) == ("", op_type) and fits(schema)
    ]
    return min(versions, default=None)


def raise_to(op_type: str, fits: Callable[[onnx.defs.OpSchema], bool]) -> str:
    """What to do when an old version of an operator does not fit: the first version of ai.onnx that does."""
    version = first_version(op_type, fits)
    return "no version has it" if version is None else f"raise target_opset to {version}"


def check_inputs(op_type: str, opset: int, values: Sequence[ir.Value | None]) -> None:
    """Raises Untranslatable when this version of the operator lacks one of the inputs."""
    kinds = constraints(op_type, opset)
    if kinds.variadic:
        return
    for position in range(len(kinds.inputs), len(values)):
        if values[position] is not None:
            name = onnx.defs.get_schema(op_type).inputs[position].name
            since = raise_to(op_type, lambda schema, position=position: len(schema.inputs) > position)
            raise Untranslatable(f"ONNX {op_type} has no input {name} in opset {opset}: {since}")


def attributes_at(op_type: str, opset: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes as this version of the operator takes them: without those that it lacks and that hold their default.

    Raises Untranslatable when the operator has no such attribute yet.
    """
    unknown = attributes.keys() - constraints(op_type, opset).attributes
    if not unknown:
        return attributes
    for name in unknown:
        if attributes[name] != default_of(op_type, name):
            since = raise_to(op_type, lambda schema, name=name: name in schema.attributes)
            raise Untranslatable(
                f"ONNX {op_type} has no {name}={attributes[name]!r} in opset {opset}: {since}"
            )
    return {name: value for name, value in attributes.items() if name not in unknown}


def default_of(op_type: str, name: str) -> Any:
    """The default value of an attribute in the newest version of an operator, None without one."""
    attribute = onnx.defs.get_schema(op_type).attributes.get(name)
    if attribute is None or attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def is_complex(argument: Any) -> bool:
    """Whether an argument of a node is a complex tensor or a complex number."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.dtype.is_complex)
