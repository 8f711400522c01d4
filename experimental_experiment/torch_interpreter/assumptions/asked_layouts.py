"""Questions of a model about memory: ``x.t().is_contiguous()`` is True of one row, and the program holds the branch of the example's rows.

torch answers them for symbolic sizes as if no size were 1, and no branch on a size is seen.

Source of semantics: ``Tensor.is_contiguous`` of eager: the stride of each axis is what those behind it take, or its size is 1.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import itertools
import linecache
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import simplify_logic

from experimental_experiment.torch_interpreter.errors import Source
from experimental_experiment.torch_interpreter.frames import line_around, nodes_of
from experimental_experiment.torch_interpreter.patches.choices import is_note
from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.symbols import expression_of

ORDERS = {torch.channels_last: (1, 3, 2, 0), torch.channels_last_3d: (1, 4, 3, 2, 0)}
"""The axes of a layout from the innermost one on."""

COPYING = frozenset(("clone", "contiguous"))
"""Methods whose result is what the tensor was, in memory of its own."""

MANY = 8
"""More equations than these are not made simpler."""

Asked = dict[sympy.Basic, tuple[torch.SymInt, sympy.Basic, Source]]
"""What answers about the layout of memory take for granted: one of the sizes, the condition, the line of the model that first asks."""


@contextlib.contextmanager
def recorded(found: Asked) -> Iterator[None]:
    """Write down what the model asks of the layout of tensors of symbolic sizes; TorchDynamo answers for a tensor that it follows."""
    # imported here: it brings TorchDynamo, as torch.export does when it is called
    variable = importlib.import_module("torch._dynamo.variables.tensor").TensorVariable
    asked_of_variable = variable.method_is_contiguous
    asked_of_tensor = torch.Tensor.is_contiguous

    @functools.wraps(asked_of_tensor)
    def is_contiguous(self: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
        answer = asked_of_tensor(self, *args, **kwargs)
        note(self, layout_of(*args, **kwargs), answer, sys._getframe(1), found)
        return answer

    @functools.wraps(asked_of_variable)
    def method_is_contiguous(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        answer = asked_of_variable(self, tx, *args, **kwargs)
        fake = self.proxy.node.meta.get("example_value")
        if answer is not None and fake is not None:
            layout = layout_of(*(given.as_python_constant() for given in (*args, *kwargs.values())))
            note(fake, layout, answer.as_python_constant(), sys._getframe(1), found)
        return answer

    with (
        replaced(torch.Tensor, "is_contiguous", is_contiguous),
        replaced(variable, "method_is_contiguous", method_is_contiguous),
    ):
        yield


def layout_of(memory_format: torch.memory_format = torch.contiguous_format) -> torch.memory_format:
    """The argument of ``is_contiguous``."""
    return memory_format


def note(
    tensor: torch.Tensor, layout: torch.memory_format, answer: bool, frame: FrameType, found: Asked
) -> None:
    """Write down what an answer takes for granted of sizes, where a line of the model asked, and does something else for the other one."""
    numbers = [number for number in (*tensor.shape, *tensor.stride()) if isinstance(number, torch.SymInt)]
    if not numbers or not all(number.node.has_hint() for number in numbers):
        return
    source, is_asked_by_model = line_around(frame)
    if not is_asked_by_model or source is None or is_harmless(*source[:2]):
        return
    for condition in conditions(tensor, layout, answer):
        found.setdefault(condition, (numbers[0], condition, source))


def conditions(tensor: torch.Tensor, layout: torch.memory_format, answer: bool) -> Sequence[sympy.Basic]:
    """What has to hold of the sizes of a tensor for an answer, all of it."""
    rank = tensor.dim()
    order = ORDERS.get(layout, tuple(reversed(range(rank))))
    if len(order) != rank:
        return []
    taken, parts = sympy.S.One, []
    for axis in order:
        size, stride = (sympy.sympify(expression_of(part[axis])) for part in (tensor.shape, tensor.stride()))
        parts.append(sympy.Or(is_one(size), equals(stride, taken)))
        taken *= size
    condition = simpler(sympy.And(*parts) if answer else sympy.Not(sympy.And(*parts)))
    return condition.args if isinstance(condition, sympy.And) else [condition]


def equals(stride: sympy.Basic, taken: sympy.Basic) -> sympy.Basic:
    """Whether a stride is another one; what is a factor of both is not 0."""
    if stride == 0:  # an axis that is expanded
        return sympy.false
    left, right = sympy.fraction(sympy.cancel(stride / taken))
    if left == 1 or right == 1:
        return is_one(right if left == 1 else left)
    return sympy.Eq(left, right)


def is_one(size: sympy.Basic) -> sympy.Basic:
    """Whether a size is 1: each of its factors is."""
    factors = size.args if isinstance(size, sympy.Mul) else [size]
    return sympy.And(*(sympy.Eq(factor, 1) for factor in factors))


def simpler(condition: sympy.Basic) -> sympy.Basic:
    """A condition as few equations, or inequations, that hold all, or of each of which one holds."""
    atoms = [*condition.atoms(sympy.Eq, sympy.Ne)]
    equations = list(dict.fromkeys(sympy.Eq(*atom.args) for atom in sorted(atoms, key=str)))
    if len(equations) > MANY:
        return condition
    stands = {equation: sympy.Dummy() for equation in equations}
    stands |= {sympy.Ne(*equation.args): sympy.Not(dummy) for equation, dummy in stands.items()}
    found = simplify_logic(condition.xreplace(stands), form="cnf")
    return found.xreplace({dummy: equation for equation, dummy in stands.items() if dummy.is_Symbol})


def is_harmless(file: str, line: int) -> bool:
    """Whether a line asks in order to raise, log or copy: ``if not x.is_contiguous(): x = x.contiguous()``."""
    return any(line in lines for lines in harmless_lines("".join(linecache.getlines(file))))


@functools.lru_cache(maxsize=64)
def harmless_lines(source: str) -> list[range]:
    """The lines of a file with the conditions of branches that raise, log or copy, and do nothing else."""
    nodes = [*nodes_of(source)]
    asking: list[ast.stmt | ast.expr] = [node for node in nodes if isinstance(node, ast.Assert)]
    asking += [
        node.test
        for node in nodes
        if (isinstance(node, ast.If) and all(map(changes_nothing, itertools.chain(node.body, node.orelse))))
        or (isinstance(node, ast.IfExp) and sum(map(is_copy, (node.body, node.orelse))) == 1)
    ]
    return [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in asking]


def changes_nothing(statement: ast.stmt) -> bool:
    """Whether a statement raises, logs, passes, or gives a tensor memory of its own."""
    is_assigned = isinstance(statement, ast.Assign) and is_copy(statement.value)
    return is_assigned or isinstance(statement, (ast.Raise, ast.Pass)) or is_note(statement)


def is_copy(value: ast.expr) -> bool:
    """Whether an expression is a copy of a tensor: ``x.contiguous()``."""
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in COPYING
    )
