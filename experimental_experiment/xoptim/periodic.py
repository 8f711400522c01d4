"""Integers that are computed from one size: what they are, whatever it is.

Sums, products by constants, quotients and rests by constants of a size n repeat themselves: ``f(period * k + r) == slopes[r] * k + starts[r]``
for every k >= 0 and r < period. Two of them are equal for all sizes when these numbers are. A rule asks this of each padding of a network:
half a millisecond, where a proof of `torch_interpreter.certainty`, which knows more than equations, takes 10 to 50 of them.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import operator
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import attribute_of, ints_of
from experimental_experiment.xoptim.shapes import Size, told_sizes

LONGEST = 1 << 12
"""The longest period that is followed."""

LARGEST = 1 << 31
"""The largest number in a name that is followed."""

MOST_NODES = 256
"""How many nodes before a value are looked at."""


class NotPeriodic(Exception):
    """A value is computed otherwise, or from several sizes."""


@dataclasses.dataclass(frozen=True, eq=False)
class Periodic:
    """A function of the size called *name*, of none for a constant; see the module.

    Attributes:
        name: of the size.
        slopes: int64[period].
        starts: int64[period].
    """

    name: str | None
    slopes: np.ndarray
    starts: np.ndarray

    def over(self, period: int) -> Periodic:
        """The same function, told for a multiple of its period."""
        if period > LONGEST:
            raise NotPeriodic
        times, rest = np.divmod(np.arange(period), len(self.slopes))
        slopes, starts = self.slopes[rest], self.starts[rest]
        return Periodic(self.name, slopes * (period // len(self.slopes)), slopes * times + starts)

    def beside(self, other: Periodic) -> tuple[Periodic, Periodic]:
        """Both over one period."""
        if None not in (self.name, other.name) and self.name != other.name:
            raise NotPeriodic
        period = math.lcm(len(self.slopes), len(other.slopes))
        return self.over(period), other.over(period)

    def __add__(self, other: Periodic) -> Periodic:
        a, b = self.beside(other)
        return Periodic(a.name or b.name, a.slopes + b.slopes, a.starts + b.starts)

    def __sub__(self, other: Periodic) -> Periodic:
        return self + other * constant(-1)

    def __mul__(self, other: Periodic) -> Periodic:
        a, b = self.beside(other)
        if a.name is not None and b.name is not None:
            raise NotPeriodic
        factor, function = (a, b) if a.name is None else (b, a)
        return Periodic(function.name, function.slopes * factor.starts, function.starts * factor.starts)

    def __floordiv__(self, other: Periodic) -> Periodic:
        count = other.positive()
        wide = self.over(len(self.slopes) * count)  # whose slopes are multiples of it
        return Periodic(self.name, wide.slopes // count, wide.starts // count)

    def __mod__(self, other: Periodic) -> Periodic:
        return self - self // other * other

    def truncated(self, other: Periodic) -> Periodic:
        """The quotient as ONNX divides integers: that of Python where it is exact, or nothing is negative."""
        quotient = self // other
        rest = self - quotient * other
        if (rest.starts != 0).any() and ((self.slopes < 0) | (self.starts < 0)).any():
            raise NotPeriodic
        return quotient

    def at_least(self, other: Periodic) -> Periodic:
        """The larger one, of numbers that do not grow."""
        a, b = self.beside(other)
        if a.slopes.any() or b.slopes.any():
            raise NotPeriodic
        return Periodic(a.name or b.name, a.slopes, np.maximum(a.starts, b.starts))

    def positive(self) -> int:
        """The constant that this is, more than 0."""
        if self.name is not None or self.starts[0] <= 0:
            raise NotPeriodic
        return int(self.starts[0])

    def is_same(self, other: Periodic) -> bool:
        """Whether both are equal for every size."""
        a, b = self.beside(other)
        return bool((a.slopes == b.slopes).all() and (a.starts == b.starts).all())


def constant(number: int) -> Periodic:
    """A number that depends on no size."""
    return Periodic(None, np.zeros(1, np.int64), np.array([number], np.int64))


def size_named(name: str) -> Periodic:
    """A size itself."""
    return Periodic(name, np.ones(1, np.int64), np.zeros(1, np.int64))


OF_NAMES: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
"""The arithmetic in the names of dimensions."""

OF_NODES: dict[str, Callable] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": Periodic.truncated,
    "Mod": operator.mod,
    "Max": Periodic.at_least,
}
"""The same of operators of ONNX, of two integers."""

SHOWN = ("Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that leave a number as it is."""


@functools.lru_cache(maxsize=1024)
def named(text: str) -> Periodic:
    """The function that the name of a dimension says, as ``((h + 1)//2)``. Raises NotPeriodic."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):  # that of a null character
        raise NotPeriodic from None
    return of_tree(tree.body)


def of_tree(tree: ast.expr) -> Periodic:
    """The function of a parsed name."""
    match tree:
        case ast.Constant(value=int(number)) if type(number) is int and number <= LARGEST:
            return constant(number)
        case ast.Name(id=name):
            return size_named(name)
        case ast.BinOp(left, kind, right) if type(kind) in OF_NAMES:
            return OF_NAMES[type(kind)](of_tree(left), of_tree(right))
        case ast.UnaryOp(ast.USub(), operand):
            return constant(-1) * of_tree(operand)
    raise NotPeriodic


def of_size(size: Size) -> Periodic:
    """A size of a shape. Raises NotPeriodic when it has no name that says what it is."""
    if isinstance(size, int):
        return constant(size)
    if size.value is None:
        raise NotPeriodic
    return named(size.value)


def computed(value: ir.Value) -> Periodic:
    """An integer, one element of a model, as a function of one size. Raises NotPeriodic."""
    known: dict[ir.Value, Periodic] = {}
    waiting = [value]
    while waiting:
        item = waiting[-1]
        missing = [other for other in operands(item) if other not in known]
        if len(known) + len(waiting) > MOST_NODES:
            raise NotPeriodic
        if missing:
            waiting += missing
            continue
        known[waiting.pop()] = of_value(item, [known[other] for other in operands(item)])
    return known[value]


def operands(value: ir.Value) -> list[ir.Value]:
    """The numbers that a value is computed from: none for a constant and for a size."""
    node = value.producer()
    if ints_of(value) is not None or node is None or node.domain or value.dtype is not ir.DataType.INT64:
        return []
    if node.op_type in SHOWN:
        return [node.inputs[0]]
    is_known = node.op_type in OF_NODES and len(node.inputs) == 2 and not attribute_of(node, "fmod", 0)
    return list(node.inputs) if is_known else []


def of_value(value: ir.Value, given: list[Periodic]) -> Periodic:
    """A value as a function of a size, when what it is computed from are these."""
    if given:
        node = value.producer()
        return given[0] if node.op_type in SHOWN else OF_NODES[node.op_type](*given)
    numbers = ints_of(value)
    if numbers is None and producer_of(value, "Shape") is not None:
        numbers = told_sizes(value)
    if numbers is None or len(numbers) != 1:
        raise NotPeriodic
    return of_size(numbers[0])
