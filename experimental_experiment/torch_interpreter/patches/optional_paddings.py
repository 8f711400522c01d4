"""Paddings of images that have no whole windows, in models that ask first whether there is something to pad: they always pad.

Source of semantics: ``torch.nn.functional.pad``; SwinIR, OmniSR, Restormer and others, which pad to a multiple of their windows, and the
Swin of detectors and of MONAI, which cut that off again.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from experimental_experiment.torch_interpreter.frames import asking_frame, is_library_code, tree_of
from experimental_experiment.torch_interpreter.patches.maxima import least
from experimental_experiment.torch_interpreter.patches.paddings import missing
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.symbols import expression_of

PAD = torch.nn.functional.pad

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv}
"""What amounts of padding are made of: the half on each side."""


@patch("torch", replaces=("torch.SymBool.__bool__", "torch.SymInt.__bool__"), default=True)
def optional_paddings() -> Iterator[None]:
    """``if pad_h or pad_w: x = F.pad(x, (0, pad_w, 0, pad_h))``, as in SwinIR, is the example's side: its other sizes are not padded.

    A padding by nothing changes nothing, nor does cutting it off, ``if pad_h > 0: x = x[:, :h]``: the model always does it. What the
    branch does else, paddings that may be negative, and sizes that are not known to be equal without padding, leave it to the example.
    """
    with contextlib.ExitStack() as stack:
        for kind in (torch.SymBool, torch.SymInt):
            stack.enter_context(replaced(kind, "__bool__", always_padding(kind.__bool__)))
        yield


def always_padding(bool_: Callable) -> Callable:
    """``__bool__`` that answers yes where a branch pads, or cuts off what was padded, and does nothing else."""

    def __bool__(self: torch.SymBool | torch.SymInt) -> bool:
        frame = asking_frame(sys._getframe())
        if not is_library_code(frame.f_code) and self.node.has_hint() and only_pads(frame):
            optional_paddings.used()
            return True
        return bool_(self)

    return __bool__


def only_pads(frame: FrameType) -> bool:
    """Whether the branch that a frame asks for changes nothing where its condition does not hold."""
    branches = [branch for branch in branches_of(frame.f_code) if frame.f_lineno in branch.lines]
    if len(branches) != 1:
        return False
    (branch,) = branches
    values = [variable(frame, name) for name in branch.amounts]
    if not all(isinstance(value, (int, torch.SymInt)) for value in values):
        return False
    if any(isinstance(value, int) and value > 0 for value in values):
        return True  # the branch is always taken
    if branch.is_signed and not all(map(is_never_negative, values)):
        return False
    return all(is_harmless(frame, step, values) for step in branch.steps)


class Branch:
    """An ``if`` whose condition holds where one of some variables is not 0, or positive, and what it does to which tensor.

    Attributes:
        lines: those of the condition.
        amounts: the names of the variables.
        is_signed: whether the condition asks for positive ones.
        steps: a call or a subscript for each statement, whose result takes the place of its first operand.
    """

    def __init__(self, test: ast.expr, amounts: dict[str, bool], steps: list[ast.expr]):
        self.lines = range(test.lineno, (test.end_lineno or test.lineno) + 1)
        self.amounts = list(amounts)
        self.is_signed = any(amounts.values())
        self.steps = steps


@functools.cache
def branches_of(code: types.CodeType) -> tuple[Branch, ...]:
    """The branches of a function that pad or cut off; none where its source is not known, or is not what runs."""
    tree = tree_of(code)
    return () if tree is None else tuple(found(tree))


def found(tree: ast.AST) -> Iterator[Branch]:
    """The branches in a tree whose form is known."""
    for node in ast.walk(tree):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list):
                for place, statement in enumerate(block):
                    amounts = asked(statement.test) if isinstance(statement, ast.If) else {}
                    steps = steps_of(statement, block[place + 1 :]) if amounts else []
                    if steps and not any(is_written(tree, statement, step) for step in steps):
                        yield Branch(statement.test, amounts, steps)


def asked(test: ast.expr) -> dict[str, bool]:
    """The variables of which one is not 0 where a condition holds, and whether it asks for positive ones; none of other conditions."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    amounts: dict[str, bool] = {}
    for part in parts:
        is_signed = False
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and is_literal_zero(part.comparators[0]):
            is_signed = isinstance(part.ops[0], ast.Gt)
            part = part.left if is_signed or isinstance(part.ops[0], ast.NotEq) else part
        if not isinstance(part, ast.Name):
            return {}
        amounts[part.id] = is_signed
    return amounts


def is_literal_zero(value: ast.expr) -> bool:
    """Whether 0 is written there."""
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value == 0


def steps_of(statement: ast.If, following: list[ast.stmt]) -> list[ast.expr]:
    """What a branch computes, where each result takes the place of its operand, as it does when the branch is not taken; else nothing."""
    steps = []
    for part in statement.body:
        value = getattr(part, "value", None)
        if isinstance(part, ast.Return) and len(statement.body) == 1:
            others = statement.orelse or following
            other = others[0] if others and isinstance(others[0], ast.Return) else None
            target = None if other is None else other.value
        elif isinstance(part, ast.Assign) and len(part.targets) == 1 and not statement.orelse:
            (target,) = part.targets
        else:
            return []
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr == "contiguous"
        ):
            value = value.func.value
        operand = operand_of(value)
        if not isinstance(operand, ast.Name) or not isinstance(target, ast.Name) or operand.id != target.id:
            return []
        steps.append(value)
    return steps


def is_written(tree: ast.AST, branch: ast.If, step: ast.expr) -> bool:
    """Whether the next thing that is done to the variable that a branch pads is to write into it: the tensor itself, if not padded."""
    if not isinstance(step, ast.Call):
        return False  # a slice is the memory of the tensor too
    behind = branch.end_lineno or branch.lineno
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Call))]
    found = [(node.lineno, writes(node, step.args[0].id)) for node in statements if node.lineno > behind]
    changes = sorted((line, does) for line, does in found if does is not None)
    return bool(changes) and changes[0][1]


def writes(node: ast.Assign | ast.AugAssign | ast.Call, name: str) -> bool | None:
    """Whether a variable, or a part of it, is written in place, rather than bound anew; None when neither is done."""
    if isinstance(node, ast.Call):
        is_in_place = isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
        return True if is_in_place and name_of(node.func.value) == name else None
    if isinstance(node, ast.AugAssign):
        return True if name_of(node.target) == name else None
    for target in node.targets:
        if name_of(target) == name:
            return isinstance(target, ast.Subscript)
    return None


def name_of(value: ast.expr) -> str | None:
    """The variable that is written there, also of a part of it."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def operand_of(value: ast.expr | None) -> ast.expr | None:
    """What is padded or cut."""
    if isinstance(value, ast.Call):
        return value.args[0] if value.args else None
    return value.value if isinstance(value, ast.Subscript) else None


# ---- what the variables hold


def variable(frame: FrameType, name: str) -> Any:
    """The value of a variable of a frame."""
    return frame.f_locals.get(name, frame.f_globals.get(name))


def is_never_negative(value: int | torch.SymInt) -> bool:
    """Whether a number is known to be 0 or more, as a rest is."""
    return bool(least(value) >= 0)


def is_harmless(frame: FrameType, step: ast.expr, amounts: list[Any]) -> bool:
    """Whether a step changes nothing where all *amounts* are 0."""
    if isinstance(step, ast.Call):
        called = resolved(frame, step.func)
        if called is None or called not in (PAD, torch.nn.functional.pad) or len(step.args) < 2:
            return False
        entries = values_of(frame, step.args[1])
        return bool(entries) and all(vanishes(entry, amounts) for entry in entries)
    tensor = variable(frame, operand_of(step).id)
    entries = step.slice.elts if isinstance(step.slice, ast.Tuple) else [step.slice]
    if not isinstance(tensor, torch.Tensor) or len(entries) > tensor.dim():
        return False
    sizes = tensor.shape
    if isinstance(entries[0], ast.Constant) and entries[0].value is ...:
        entries = entries[1:]
        sizes = sizes[len(sizes) - len(entries) :]
    return all(keeps(frame, entry, size, amounts) for entry, size in zip(entries, sizes))


def resolved(frame: FrameType, name: ast.expr) -> Any:
    """What a dotted name stands for, None when it is something else, or not known."""
    if isinstance(name, ast.Name):
        return variable(frame, name.id)
    if isinstance(name, ast.Attribute):
        owner = resolved(frame, name.value)
        return vars(owner).get(name.attr) if isinstance(owner, types.ModuleType) else None
    return None


def values_of(frame: FrameType, written: ast.expr) -> list[Any]:
    """The numbers of a list, None for those that are not known."""
    if isinstance(written, ast.Name):
        value = variable(frame, written.id)
        return list(value) if isinstance(value, (list, tuple)) else []
    return (
        [number(frame, entry) for entry in written.elts] if isinstance(written, (ast.Tuple, ast.List)) else []
    )


def number(frame: FrameType, written: ast.expr) -> Any:
    """A number, a variable, or the sum, the difference or the quotient of some; None of anything else."""
    if isinstance(written, ast.Constant):
        return written.value
    if isinstance(written, ast.Name):
        return variable(frame, written.id)
    if isinstance(written, ast.BinOp) and type(written.op) in OPERATIONS:
        operands = number(frame, written.left), number(frame, written.right)
        is_known = all(isinstance(value, (int, torch.SymInt)) for value in operands)
        if isinstance(written.op, ast.FloorDiv):  # a symbol would be asked whether it is 0
            is_known = is_known and type(operands[1]) is int and operands[1] > 0
        if is_known:
            return OPERATIONS[type(written.op)](*operands)
    return None


def vanishes(value: Any, amounts: Iterable[Any]) -> bool:
    """Whether a number is 0 where all *amounts* are: one of them, its half, or 0."""
    if isinstance(value, torch.SymInt):
        symbolic = [amount for amount in amounts if isinstance(amount, torch.SymInt)]
        halves = [half for amount in symbolic for half in (amount // 2, amount - amount // 2)]
        zeros = {amount.node.expr: 0 for amount in symbolic}
        return value.node.expr in map(expression_of, halves) or value.node.expr.subs(zeros) == 0
    return type(value) is int and value == 0


def keeps(frame: FrameType, entry: ast.expr, size: Any, amounts: Iterable[Any]) -> bool:
    """Whether ``:`` or ``:end`` keeps an axis of some size where all *amounts* are 0: it is longer by one of them, or not longer."""
    if not isinstance(entry, ast.Slice) or entry.lower is not None or entry.step is not None:
        return False
    if entry.upper is None:
        return True
    end = variable(frame, entry.upper.id) if isinstance(entry.upper, ast.Name) else None
    if not isinstance(end, (int, torch.SymInt)):
        return False
    longer = expression_of(size - end)
    return longer == 0 or any(
        longer in (expression_of(amount), expression_of(missing(end, amount))) for amount in amounts
    )
