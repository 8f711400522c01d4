"""Checks of values: branches that only decide whether the model raises."""

from __future__ import annotations

import builtins
import contextlib
import dis
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributions import constraints

from experimental_experiment.torch_interpreter.frames import TORCH, asking_frame, is_library_code
from experimental_experiment.torch_interpreter.patches.choices import only_notes
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

CAPTURE = (
    os.path.join(TORCH, "export", ""),
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "tracing.py"),
)
"""Frames around the model: those of torch.export, those of a trace by make_fx."""

LASTING = ("STORE", "DELETE", "POP_TOP", "RETURN", "YIELD", "SEND", "FOR_ITER", "IMPORT", "RERAISE")
"""Beginnings of instructions that no condition has, but statements whose effect lasts."""

STEPS: dict[type, Callable[[torch.Tensor], torch.Tensor]] = {
    constraints._Symmetric: lambda value: torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1),
    constraints._PositiveDefinite: lambda value: torch.linalg.cholesky_ex(value).info.eq(0),
}
"""What constraints of torch.distributions check after those of their base."""


@patch(
    "torch",
    replaces=(
        "torch.Tensor.__bool__",
        "torch.SymBool.__bool__",
        *(f"torch.distributions.constraints.{cls.__name__}.check" for cls in STEPS),
    ),
    default=True,
)
def checks_of_values() -> Iterator[None]:
    """``assert (x > 0).all()``, ``if bad.any(): raise`` and ``if bad.any(): warn(...)`` are refused, as in torch.distributions: they branch on the data.

    The program holds the check, as torch does for ``torch._check``; an ONNX model cannot raise or warn and leaves it out.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "__bool__", of_tensor(torch.Tensor.__bool__)))
        stack.enter_context(replaced(torch.SymBool, "__bool__", of_symbol(torch.SymBool.__bool__)))
        for cls, step in STEPS.items():
            stack.enter_context(replaced(cls, "check", in_one_go(cls, cls.check, step)))
        yield


def of_tensor(bool_: Callable) -> Callable:
    """``Tensor.__bool__`` that answers for the branch that does not raise."""

    def __bool__(self: torch.Tensor) -> bool:
        if isinstance(self, FakeTensor) and self.constant is None and self.fake_mode.shape_env is not None:
            frame = asking_frame(sys._getframe())
            answer = without_exception(frame)
            if answer is not None:
                checks_of_values.used()
                check((self if self.dtype == torch.bool else self != 0).item(), answer)
                return answer
            # another condition may hold instead, or bad data are only told of: there is nothing to check
            answer = without_alternatives(frame)
            answer = without_telling(frame) if answer is None else answer
            if answer is not None:
                checks_of_values.used()
                return answer
        return bool_(self)

    return __bool__


def of_symbol(bool_: Callable) -> Callable:
    """``SymBool.__bool__`` that answers for the branch that does not raise."""

    # a SymBool has loaded it, importing this file has not
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

    def __bool__(self: torch.SymBool) -> bool:
        answer = without_exception(asking_frame(sys._getframe())) if free_unbacked_symbols(self) else None
        if answer is None:
            return bool_(self)
        try:
            return bool_(self)
        except GuardOnDataDependentSymNode:
            checks_of_values.used()
            check(self, answer)
            return answer

    return __bool__


def in_one_go(cls: type, check_: Callable, step: Callable) -> Callable:
    """A constraint of torch.distributions that would leave its last step out when the data fail before."""

    def check(self: Any, value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, FakeTensor):
            return check_(self, value)
        held = super(cls, self).check(value)
        return torch.where(held.all(), step(value), held)

    return check


def check(condition: torch.SymBool, answer: bool) -> None:
    """Write into the program that a condition has an answer."""
    torch._check(condition if answer else torch.sym_not(condition))


# ---- what the byte code does with the answer


def without_exception(frame: FrameType) -> bool | None:
    """The truth for which a frame, which asks for one, goes on; None unless it raises for the other one.

    A frame that runs ``if condition`` or ``assert condition`` stands at the jump that reads the condition.
    """
    steps, position = jump_of(frame)
    if position is None:
        return None
    step = steps[position]
    jumps_if = step.opname.endswith("TRUE")
    if always_raises(steps, position + 1):
        return jumps_if
    return not jumps_if if always_raises(steps, target(steps, step)) else None


def jump_of(frame: FrameType) -> tuple[list[dis.Instruction], int | None]:
    """The instructions of a frame, and the position of the jump that asks; no position where a caller may catch what is raised."""
    if is_caught(frame):
        return [], None
    steps = list(dis.get_instructions(frame.f_code))
    position = next((i for i, step in enumerate(steps) if step.offset == frame.f_lasti), None)
    if position is not None and (
        steps[position].opname == "TO_BOOL"
        or steps[position].argrepr.startswith("bool(")  # COMPARE_OP, from 3.13 on
    ):
        position += 1
    return steps, position if position is not None and is_branch(steps[position]) else None


def without_alternatives(frame: FrameType) -> bool | None:
    """The truth for which a frame passes what ``assert a or b`` asks; None unless it asks and raises only for the other one.

    Between its jump and where that leads there is nothing but other conditions, and ``raise``: ``if a: if b: raise`` too.
    """
    steps, position = jump_of(frame)
    if position is None:
        return None
    goal = target(steps, steps[position])
    if goal <= position or not only_asks(steps, position + 1, goal):
        return None
    return steps[position].opname.endswith("TRUE")


def without_telling(frame: FrameType) -> bool | None:
    """The truth for which a frame passes statements that only warn, log or print; None unless that is all that its ``if`` does."""
    steps, position = jump_of(frame)
    if position is None or not only_notes(frame.f_code, frame.f_lineno):
        return None
    jumps_if = steps[position].opname.endswith("TRUE")
    goal = target(steps, steps[position])
    if is_straight(steps, position + 1, goal):
        return jumps_if
    end = end_of_block(steps, position)
    return not jumps_if if end is not None and is_straight(steps, goal, end) else None


def end_of_block(steps: list[dis.Instruction], position: int) -> int | None:
    """Where the jump right before a block leads, to which the jump at *position* leads.

    So begins the block of ``a or b``, and, from Python 3.12 on, one at the end of a loop.
    """
    start = target(steps, steps[position])
    for place in range(position + 1, start):
        if "JUMP" in steps[place].opname:
            there = target(steps, steps[place])
            if place + 1 == start or there != start:
                return there if place + 1 == start else None
    return None


def is_straight(steps: list[dis.Instruction], position: int, goal: int) -> bool:
    """Whether a position leads to *goal*, by the statements of one block and the other conditions of ``a and b``."""
    while position < len(steps) and not is_same_place(steps, position, goal):
        step = steps[position]
        if "JUMP" in step.opname and target(steps, step) == goal and not is_branch(step):
            return True
        if ("JUMP" in step.opname and (not is_branch(step) or target(steps, step) != goal)) or (
            step.opname != "POP_TOP" and step.opname.startswith(LASTING)
        ):
            return False
        position += 1
    return position < len(steps)


def only_asks(steps: list[dis.Instruction], position: int, goal: int) -> bool:
    """Whether all that can follow a position asks for conditions until one leads to *goal*, or raises."""
    if always_raises(steps, position):
        return True
    while position < goal:
        step = steps[position]
        if is_branch(step):
            there = target(steps, step)
            arrives = is_same_place(steps, there, goal) or (
                there > position and only_asks(steps, there, goal)
            )
            return arrives and only_asks(steps, position + 1, goal)
        if "JUMP" in step.opname or step.opname.startswith(LASTING) or not is_harmless(step):
            return False
        position += 1
    return False


def is_same_place(steps: list[dis.Instruction], one: int, other: int) -> bool:
    """Whether two positions are one, or the same end of a function: Python writes a short one wherever it is needed."""
    while one != other:
        if max(one, other) == len(steps):
            return False
        a, b = steps[one], steps[other]
        if (a.opname, a.argval) != (b.opname, b.argval) or "JUMP" in a.opname:
            return False
        if a.opname.startswith("RETURN"):
            return True
        one, other = one + 1, other + 1
    return True


def is_harmless(step: dis.Instruction) -> bool:
    """Whether an instruction calls nothing by its name, or what tensors, torch and Python know and does not write in place."""
    is_method = step.opname == "LOAD_METHOD" or (
        step.opname == "LOAD_ATTR" and sys.version_info >= (3, 12) and step.arg & 1
    )
    if not is_method and step.opname != "LOAD_GLOBAL":
        return True
    known = any(hasattr(owner, step.argval) for owner in (torch.Tensor, torch, builtins))
    return step.argval == "torch" or (known and not step.argval.endswith("_"))


def is_branch(step: dis.Instruction) -> bool:
    """Whether an instruction reads a condition and jumps or goes on."""
    return step.opname.startswith("POP_JUMP") and step.opname.endswith(("IF_TRUE", "IF_FALSE"))


def target(steps: list[dis.Instruction], step: dis.Instruction) -> int:
    """The position that an instruction jumps to."""
    return next(i for i, other in enumerate(steps) if other.offset == step.argval)


def always_raises(steps: list[dis.Instruction], position: int, again: bool = False) -> bool:
    """Whether all that can follow a position ends with ``raise``, or with raising what was caught *again*."""
    seen: set[int] = set()
    while position < len(steps) and position not in seen:
        seen.add(position)
        step = steps[position]
        if step.opname == "RAISE_VARARGS" or (again and step.opname == "RERAISE"):
            return True
        if step.opname.startswith("RETURN_VALUE") or step.opname in (
            "RETURN_CONST",
            "YIELD_VALUE",
            "RERAISE",
        ):
            return False
        if is_branch(step) or "IF_NONE" in step.opname or "IF_NOT_NONE" in step.opname:
            return always_raises(steps, position + 1, again) and always_raises(
                steps, target(steps, step), again
            )
        if step.opname in ("JUMP_FORWARD", "JUMP_ABSOLUTE"):
            position = target(steps, step)
        elif "JUMP" in step.opname or step.opname in ("FOR_ITER", "SEND"):
            return False
        else:
            position += 1
    return False


def is_caught(frame: FrameType | None) -> bool:
    """Whether the model itself may go on after an exception in a frame: it, or a caller up to the export, has a ``try``."""
    while frame is not None and not frame.f_code.co_filename.startswith(CAPTURE):
        if not is_library_code(frame.f_code) and has_handler(frame):
            return True
        frame = frame.f_back
    return False


def has_handler(frame: FrameType) -> bool:
    """Whether a frame stands in a ``try`` after which it may go on; ``with`` and ``finally`` do not count."""
    code = dis.Bytecode(frame.f_code)
    steps = list(code)
    entries = getattr(code, "exception_entries", None)
    if entries is None:  # Python 3.10 has no table
        return any(step.opname == "SETUP_FINALLY" for step in steps)
    if not any(entry.start <= frame.f_lasti < entry.end for entry in entries):
        return False
    offsets = [step.offset for step in steps]
    handlers = {offsets.index(entry.target) for entry in entries}
    return not all(
        is_of_with(steps, handler) or always_raises(steps, handler, again=True) for handler in handlers
    )


def is_of_with(steps: list[dis.Instruction], handler: int) -> bool:
    """Whether a handler, by its position, is that of a ``with``."""
    return [step.opname for step in steps[handler:][:2]] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]
