"""Questions about sizes whose answer changes nothing, as another operand of the same ``and`` or ``or`` decides.

``q_length > 1 and attention_mask is None and is_causal`` of transformers is False where there is a mask, whatever the length.
"""

from __future__ import annotations

import ast
import dis
import functools
import itertools
import types
from collections.abc import Iterator
from types import FrameType
from typing import Any

from experimental_experiment.torch_interpreter.frames import tree_of

UNKNOWN = object()
"""The value of an operand that would have to be computed."""

Place = tuple[int | None, ...]
"""Line, last line, column, last column of an expression."""


def is_settled(frame: FrameType) -> bool:
    """Whether the condition that *frame* is about to ask stands in an ``and`` that a later operand makes False, or an ``or`` that one
    makes True.

    Only later operands that are variables, or ask whether one is None, count, and all those up to the one that decides have to be such:
    they are not evaluated for the other answer.
    """
    chains = chains_of(frame.f_code)
    decides, operands = chains.get(asked_place(frame), (None, ())) if chains else (None, ())
    for operand in operands:
        value = value_of(frame, operand)
        if value is decides:
            return True
        if bool_of(value) is not (not decides):  # unknown, or the result itself, which is not False, or True
            return False
    return False


def asked_place(frame: FrameType) -> Place | None:
    """Where the expression stands whose truth decides where *frame* jumps to; None when it does not jump."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if not dis.opname[code[at]].startswith(("POP_JUMP", "JUMP_IF", "TO_BOOL")):
        return None
    while dis.opname[code[at]].startswith(("POP_JUMP", "JUMP_IF", "TO_BOOL", "COPY", "CACHE")):
        at -= 2  # what computes the expression comes last before
    return next(itertools.islice(frame.f_code.co_positions(), at // 2, None))


@functools.cache
def chains_of(code: types.CodeType) -> dict[Place, tuple[bool, tuple[ast.expr, ...]]]:
    """By the place of an operand of an ``and`` or ``or``: what decides it, and the operands behind; none where the source is not known."""
    tree = tree_of(code)
    return {} if tree is None else dict(chains_in(tree))


def chains_in(tree: ast.AST) -> Iterator[tuple[Place, tuple[bool, tuple[ast.expr, ...]]]]:
    """The operands in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp):
            for number, operand in enumerate(node.values[:-1], 1):
                place = operand.lineno, operand.end_lineno, operand.col_offset, operand.end_col_offset
                yield place, (isinstance(node.op, ast.Or), tuple(node.values[number:]))


def value_of(frame: FrameType, operand: ast.expr) -> Any:
    """The value of a variable, of a constant, or whether one is None; `UNKNOWN` of anything else."""
    if isinstance(operand, ast.Constant):
        return operand.value
    if isinstance(operand, ast.Name):
        return frame.f_locals.get(operand.id, UNKNOWN)
    if isinstance(operand, ast.Compare) and len(operand.ops) == 1:
        other = operand.comparators[0]
        kind = operand.ops[0]
        if isinstance(kind, (ast.Is, ast.IsNot)) and isinstance(other, ast.Constant) and other.value is None:
            value = value_of(frame, operand.left)
            return UNKNOWN if value is UNKNOWN else (value is None) is isinstance(kind, ast.Is)
    return UNKNOWN


def bool_of(value: Any) -> bool | None:
    """The truth of what asks nobody for it, None of other values."""
    return bool(value) if value is None or isinstance(value, (bool, int, float, str)) else None
