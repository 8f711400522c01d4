"""What all control flow shares: bodies as ONNX subgraphs with typed inputs and outputs.

Bodies are inlined in an inner graph: carried values are its inputs, everything else is captured from outside.
Source of semantics: ONNX If, Loop and Scan; ``torch._higher_order_ops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.emitter import Emitter
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.interpreter import Body
from experimental_experiment.torch_interpreter.sizes import Number
from experimental_experiment.torch_interpreter.storage import View
from experimental_experiment.torch_interpreter.writes import mutated_storages, storage_of

ITERATION = ir.Value(name="i", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
GO = ir.Value(name="go", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
"""Inputs of the body of a Loop: the iteration number, the condition that let it run."""

NUMBER_DTYPES = {
    torch.SymBool: ir.DataType.BOOL,
    bool: ir.DataType.BOOL,
    torch.SymInt: ir.DataType.INT64,
    int: ir.DataType.INT64,
    torch.SymFloat: ir.DataType.DOUBLE,
    float: ir.DataType.DOUBLE,
}


def dtype_of(fake: Any) -> ir.DataType:
    """The ONNX dtype of a fake tensor or of a number."""
    return onnx_dtype(fake.dtype) if isinstance(fake, torch.Tensor) else NUMBER_DTYPES[type(fake)]


def fake_of(result: Any) -> Any:
    """The fake value of a node, anything else as it is."""
    return result.meta.get("val") if isinstance(result, torch.fx.Node) else result


def fakes(results: Any) -> list[Any]:
    """The fake values of the results of a body, in order; a bare result is one."""
    results = results if isinstance(results, (list, tuple)) else [results]
    return [fake_of(result) for result in results]


def as_value(op: Emitter, item: Any, fake: Any) -> ir.Value:
    """A value with the dtype that torch gives to *fake*, from a value or a Python number."""
    dtype = dtype_of(fake)
    return op.Cast(item, to=dtype) if isinstance(item, ir.Value) else op.constant(item, dtype)


def as_number(value: ir.Value, fake: Any) -> ir.Value:
    """*value*, as a Python number when torch says that it is one."""
    return value if isinstance(fake, torch.Tensor) else Number(value)


def refuse_writes(what: str, *bodies: Body) -> None:
    """Raise Untranslatable when a body writes a tensor that it was given: the write would be lost outside."""
    for body in bodies:
        written = mutated_storages(body.module.graph)
        given = {storage_of(fake_of(node)) for node in body.placeholders}
        if written & given:
            raise Untranslatable(f"{what} writes one of its operands: clone it before")


def written_operands(what: str, operands: Sequence[Any], *bodies: Body) -> list[int]:
    """The positions of the operands, views, that a body writes.

    Raises Untranslatable when another operand shares the memory of one: each has a storage of its own in the body.
    """
    found = set()
    for body in bodies:
        written = mutated_storages(body.module.graph)
        found |= {k for k, node in enumerate(body.placeholders) if storage_of(fake_of(node)) in written}
    cells = [item.cell for item in operands if isinstance(item, View)]
    if any(cells.count(operands[position].cell) > 1 for position in found):
        raise Untranslatable(f"{what} writes an operand that shares its memory with another one")
    return sorted(found)


def carried_type(label: str, value: ir.Value, *others: Any) -> ir.Value:
    """The declaration of a carried value: sizes that may change between two turns are unknown.

    *others*: fake values of the same carry, inside the body. A size is declared when all of them are the same int.
    """
    sizes: list[int | None] = []
    for axis, size in enumerate(value.shape):
        agreed = all(
            isinstance(other, torch.Tensor) and same_size(sizes_of(other)[axis], size) for other in others
        )
        sizes.append(size if isinstance(size, int) and agreed else None)
    return ir.Value(name=label, type=ir.TensorType(value.dtype), shape=ir.Shape(sizes))


def sizes_of(fake: torch.Tensor) -> list[int | torch.SymInt]:
    """The sizes of the value of a fake tensor: a complex one has an axis more."""
    return [*fake.shape, 2] if fake.dtype.is_complex else [*fake.shape]


def same_size(size: Any, known: Any) -> bool:
    """Whether the size of a fake tensor is that int."""
    return isinstance(size, int) and size == known


def slice_type(label: str, value: ir.Value) -> ir.Value:
    """The declaration of one row of a scanned value."""
    return ir.Value(name=label, type=ir.TensorType(value.dtype), shape=ir.Shape(list(value.shape)[1:]))


def typed(results: Sequence[ir.Value], likes: Sequence[ir.Value], stacked: int = 0) -> None:
    """Give the results of a node with a body the types of *likes*; the last *stacked* gain a first axis."""
    for position, (result, like) in enumerate(zip(results, likes)):
        shape = None if like.shape is None else list(like.shape)
        if position >= len(results) - stacked:
            shape = None if shape is None else [None, *shape]
        result.type = like.type
        result.shape = None if shape is None else ir.Shape(shape)


def unknown_where_different(first: ir.Value, second: ir.Value) -> list[int | None] | None:
    """The sizes that two values share, None where they differ; None when the ranks do."""
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return None
    return [a if isinstance(a, int) and a == b else None for a, b in zip(first.shape, second.shape)]


def inline_as_tensors(
    body: Body, op: Emitter, operands: Sequence[Any], wanted: Sequence[Any]
) -> list[ir.Value]:
    """Write a body and return its results as values of the dtypes of *wanted*, without those that are None."""
    results = body.inline(op, *operands)
    return [as_value(op, item, fake) for item, fake in zip(results, wanted) if fake is not None]


def with_absent(results: Sequence[ir.Value], wanted: Sequence[Any]) -> list[Any]:
    """The results, None put back where *wanted* has it."""
    given = iter(results)
    return [None if fake is None else next(given) for fake in wanted]
