"""Images that are resized to whole patches, in models that ask first whether they have them already: they always resize.

Source of semantics: ``torch.nn.functional.interpolate``; MobileViT and MobileViT v2 of timm, of which the first resizes back where a flag
says that it has resized.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from experimental_experiment.torch_interpreter.errors import CaptureError
from experimental_experiment.torch_interpreter.frames import (
    asking_frame,
    is_library_code,
    source_at,
    tree_of,
)
from experimental_experiment.torch_interpreter.patches.optional_paddings import is_written, resolved, variable
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.symbols import expression_of

if TYPE_CHECKING:
    import sympy

INTERPOLATE = torch.nn.functional.interpolate

OPTIONS = frozenset(("size", "mode", "align_corners"))
"""Arguments of ``interpolate`` with which a size to itself changes nothing."""

Flagged = dict[tuple[CodeType, int], list["sympy.Expr"]]
"""What an image is resized from where a flag asks for it, by the function and the line."""


@patch("torch", replaces=("torch.SymBool.__bool__", "interpolate, where a flag asks for it"), default=True)
def optional_resizes() -> Iterator[None]:
    """``if new_h != h or new_w != w: x = F.interpolate(x, (new_h, new_w))``, as in MobileViT, is the example's side: other sizes fail.

    An image that is resized to its own size does not change: the model always does it, and what a flag that is set there asks for.
    """
    flagged: Flagged = {}
    with contextlib.ExitStack() as stack:

        def note(found: Flagged) -> None:
            if found and not flagged:  # not before: TorchDynamo, which asks no branch here, follows no frames
                resizing = as_noted(torch.nn.functional.interpolate, flagged)
                stack.enter_context(replaced(torch.nn.functional, "interpolate", resizing))
            flagged.update(found)

        always = always_resizing(torch.SymBool.__bool__, note)
        stack.enter_context(replaced(torch.SymBool, "__bool__", always))
        yield


def always_resizing(bool_: Callable, note: Callable[[Flagged], None]) -> Callable:
    """``__bool__`` that answers yes where a branch resizes an image that may have that size, and does nothing else."""

    @functools.wraps(bool_)
    def __bool__(self: torch.SymBool) -> bool:
        frame = asking_frame(sys._getframe())
        if not is_library_code(frame.f_code) and self.node.has_hint():
            branch = next((each for each in branches_of(frame.f_code) if frame.f_lineno in each.lines), None)
            if branch is not None and branch.changes_nothing(frame):
                note(branch.noted(frame))
                optional_resizes.used()
                return True
        return bool_(self)

    return __bool__


def as_noted(interpolate: Callable, flagged: Flagged) -> Callable:
    """*interpolate* that refuses to resize another image than the one that a flag was set for: eager leaves that one as it is."""

    @functools.wraps(interpolate)
    def called(*args: Any, **kwargs: Any) -> torch.Tensor:
        frame = sys._getframe(1)
        expected = flagged.get((frame.f_code, frame.f_lineno))
        if expected is not None and not all(map(is_equal, args[0].shape[2:], expected)):
            raise CaptureError(
                "an image is resized where another one has been, whatever its size is",
                hint="resize without asking whether the sizes differ",
                source=source_at(frame.f_code, frame.f_lineno),
            )
        return interpolate(*args, **kwargs)

    return called


def is_equal(size: int | torch.SymInt, expected: sympy.Expr) -> bool:
    """Whether a size is known to be what is expected."""
    expression = expression_of(size)
    if expression == expected or not isinstance(size, torch.SymInt):
        return expression == expected
    import sympy  # a SymInt has loaded it, importing this file has not

    return size.node.shape_env._maybe_evaluate_static(sympy.Eq(expression, expected)) == sympy.true


class Branch:
    """An ``if`` whose condition holds where sizes differ, and that resizes an image.

    Attributes:
        lines: those of the condition.
        pairs: the names of the sizes that are compared.
        resize: the call.
        backs: the calls for which a flag asks that is set there.
    """

    def __init__(self, test: ast.expr, pairs: list[tuple[str, str]], resize: ast.Call, backs: list[ast.Call]):
        self.lines = range(test.lineno, (test.end_lineno or test.lineno) + 1)
        self.pairs = pairs
        self.resize = resize
        self.backs = backs

    def changes_nothing(self, frame: FrameType) -> bool:
        """Whether the branch does where its condition does not hold: each axis is resized to what it is compared with, or to what it is."""
        image = variable(frame, self.resize.args[0].id)
        compared = [[variable(frame, name) for name in pair] for pair in self.pairs]
        if not all(isinstance(size, (int, torch.SymInt)) for pair in compared for size in pair):
            return False
        if not isinstance(image, torch.Tensor) or not image.is_floating_point():
            return False
        equal = [{expression_of(size) for size in pair} for pair in compared]
        before = [expression_of(size) for size in image.shape[2:]]
        after = sizes_in(frame, self.resize)
        others = [sizes_in(frame, call) for call in self.backs]
        return all(
            self.is_between(before, sizes, equal) and sizes in (after, before) for sizes in [after, *others]
        )

    @staticmethod
    def is_between(before: list[sympy.Expr], after: list[sympy.Expr], equal: list[set[sympy.Expr]]) -> bool:
        """Whether each size is what it was, or is compared with that."""
        return len(before) == len(after) and all(x == y or {x, y} in equal for x, y in zip(before, after))

    def noted(self, frame: FrameType) -> Flagged:
        """What the image has to be resized from for each flag."""
        after = sizes_in(frame, self.resize)
        return {
            (frame.f_code, line): after
            for call in self.backs
            for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)
        }


def sizes_in(frame: FrameType, call: ast.Call) -> list[sympy.Expr]:
    """The sizes that a call asks for, none when it is of another function, or they are not variables."""
    if resolved(frame, call.func) not in (INTERPOLATE, torch.nn.functional.interpolate):
        return []
    size = next((entry.value for entry in call.keywords if entry.arg == "size"), None) or call.args[1]
    values = [variable(frame, entry.id) if isinstance(entry, ast.Name) else None for entry in size.elts]
    is_known = all(isinstance(value, (int, torch.SymInt)) for value in values)
    return [expression_of(value) for value in values] if is_known else []


@functools.cache
def branches_of(code: types.CodeType) -> tuple[Branch, ...]:
    """The branches of a function that resize; none where its source is not known, or is not what runs."""
    tree = tree_of(code)
    return () if tree is None else tuple(found(tree))


def found(tree: ast.AST) -> Iterator[Branch]:
    """The branches in a tree whose form is known."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.If) or statement.orelse:
            continue
        pairs, resize = compared(statement.test), resized(statement.body[0])
        if not pairs or resize is None or is_written(tree, statement, resize):
            continue
        backs = [backs_of(tree, statement, part) for part in statement.body[1:]]
        if None not in backs:
            yield Branch(statement.test, pairs, resize, [call for calls in backs for call in calls or ()])


def compared(test: ast.expr) -> list[tuple[str, str]]:
    """The variables of which two differ where a condition holds, by pairs; none of other conditions."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    pairs = []
    for part in parts:
        match part:
            case ast.Compare(left=ast.Name(id=left), ops=[ast.NotEq()], comparators=[ast.Name(id=right)]):
                pairs.append((left, right))
            case _:
                return []
    return pairs


def resized(statement: ast.stmt) -> ast.Call | None:
    """The call of ``x = F.interpolate(x, size=(height, width))``, None of another statement."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id=target)], value=ast.Call(args=[ast.Name(id=image), *rest]) as call
        ) if target == image:
            sizes = [*rest, *(entry.value for entry in call.keywords if entry.arg == "size")]
            is_known = {entry.arg for entry in call.keywords} <= OPTIONS
            is_one = len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List))
            return call if is_known and is_one else None
    return None


def backs_of(tree: ast.AST, branch: ast.If, statement: ast.stmt) -> list[ast.Call] | None:
    """What a flag asks for that a statement of a branch sets, where all that read it resize and do nothing else; None of other statements."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=flag)], value=ast.Constant(value=True)):
            pass
        case _:
            return None
    calls, asked = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == flag:
            call = resized(node.body[0]) if len(node.body) == 1 and not node.orelse else None
            is_behind = node.lineno > (branch.end_lineno or branch.lineno)
            if call is None or not is_behind or is_written(tree, node, call):
                return None
            calls.append(call)
            asked.append(node.test)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == flag]
    stores = [node for node in names if isinstance(node.ctx, ast.Store)]
    is_all = len(names) == len(asked) + len(stores)
    before = [node for node in stores if node.lineno < branch.lineno]
    return calls if is_all and len(stores) == 2 and len(before) == 1 else None
