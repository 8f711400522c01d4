"""Sizes: symbolic numbers, where a size is read, shapes, arithmetic on sizes.

A size is an int when it is static, a `Number` otherwise. One that the inputs of the model decide is read once for its name,
``"sequence"`` or ``"2*batch"``, whatever tensor has it (dimensions that the user calls alike are equal); one that the data decide is read from the tensor that shows it. A body of
control flow sees the sizes of the graphs around it; a local function sees its own only.
Source of semantics: the expressions of torch's ShapeEnv, which are equal when the sizes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import sympy

from experimental_experiment.torch_interpreter.dimensions import decided
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.symbols import SYMBOLS

if TYPE_CHECKING:
    from experimental_experiment.torch_interpreter.emitter import Emitter

INT64 = ir.DataType.INT64


class Number(ir.Value):
    """A symbolic number, as a translation receives it for a SymInt, a SymFloat or a SymBool: a number in Python, not a tensor.

    It stands for a 0-d value of the graph, which may be a tensor of the program as well (``x.item()`` of an INT64 is ``x``), and
    looks like it; the emitter puts `read` in its place in the nodes. *label*: its expression in named dimensions, None without.
    """

    __slots__ = ("held", "label")

    def __init__(self, held: ir.Value, label: str | None = None):
        held = plain(held)
        super().__init__(name=held.name, type=held.type, shape=ir.Shape([]), const_value=held.const_value)
        self.held = held
        self.label = label

    def read(self) -> ir.Value:
        """The 0-d value that it stands for."""
        return self.held


class AxisSize(Number):
    """The size of one axis of a value, written where it was asked for first, when something reads it.

    Attributes:
        home: the emitter of the graph that it is read in; those inside see it.
        x, axis: what it is the size of.
    """

    __slots__ = ("alone", "axis", "home", "x")

    def __init__(self, home: Emitter, x: ir.Value, axis: int, label: str | None):
        ir.Value.__init__(self, name=f"{x.name}_size_{axis}", type=ir.TensorType(INT64), shape=ir.Shape([]))
        self.home, self.x, self.axis, self.label = home, x, axis, label
        self.held: ir.Value | None = None
        self.alone: ir.Value | None = None

    def read(self) -> ir.Value:
        """The size, written now if it was not before."""
        if self.held is None:
            vector = self.vector()
            with self.home.before_calls(self.x):
                self.held = self.home.Squeeze(vector, [0])
        return self.held

    def move(self, x: ir.Value, axis: int) -> None:
        """Read the size from another tensor, unless it was written, or is one of an input of the graph."""
        if self.held is None and self.alone is None and self.x.producer() is not None:
            self.x, self.axis = x, axis

    def vector(self) -> ir.Value:
        """The size as a 1-D value of one element, written now if it was not before."""
        if self.alone is None:
            with self.home.before_calls(self.x):
                self.alone = shape_between(self.home, self.x, self.axis, self.axis + 1)
        return self.alone


class GivenNumber(Number):
    """A number that the caller gives as a tensor of one element.

    Attributes:
        home: the emitter of the graph whose input it is.
        alone: that input.
    """

    __slots__ = ("alone", "home")

    def __init__(self, home: Emitter, alone: ir.Value, label: str | None):
        ir.Value.__init__(self, name=f"{alone.name}_number", type=alone.type, shape=ir.Shape([]))
        self.home, self.alone, self.label = home, alone, label
        self.held: ir.Value | None = None

    def read(self) -> ir.Value:
        """The number, squeezed now if it was not before."""
        if self.held is None:
            with self.home.before_calls(self.alone):
                self.held = self.home.Squeeze(self.alone, [0])
        return self.held

    def vector(self) -> ir.Value:
        """The tensor of one element."""
        return self.alone


Size = int | Number | ir.Value
"""A size: an int when it is static, otherwise a number, or what arithmetic on numbers gives, a 0-d INT64 value."""


def rank(value: ir.Value) -> int:
    """Number of dimensions of a value; Untranslatable when it is unknown."""
    if value.shape is None:
        raise Untranslatable(f"the rank of {value.name} is unknown")
    return len(value.shape)


def plain(value: Any) -> Any:
    """The value that a number stands for; anything else as it is."""
    return value.read() if Number in type(value).__mro__ else value  # isinstance asks onnx-ir's protocols


def all_plain(values: Iterable[Any]) -> list[Any]:
    """The same of several; mostly there is nothing to do."""
    values = list(values)
    return values if {*map(type, values)} <= PLAIN else [plain(value) for value in values]


PLAIN = frozenset((ir.Value, type(None)))
"""What stands in a node as it is."""


# ---- where sizes are found


def key_of(op: Emitter, label: str | None) -> tuple | None:
    """Where the emitters keep a size that has a name, None for one that is not the same all over the graph."""
    context = op.context
    return (context.function, label) if label in context.dimensions.shared else None


def lookup(op: Emitter, key: Any) -> Any:
    """What was kept under a key here or in an enclosing graph, None when there is nothing."""
    emitter: Emitter | None = op
    while emitter is not None:
        if key in emitter.sizes:
            return emitter.sizes[key]
        emitter = emitter.parent
    return None


def named(op: Emitter, label: str) -> Number | None:
    """A size by its name: the one of this function, or of the main graph, which is then an input of the function."""
    if label not in op.context.dimensions.shared:
        return None
    return lookup(op, key_of(op, label)) or lookup(op, ((), label))


def may_be_none(op: Emitter, size: int | ir.SymbolicDim) -> bool:
    """Whether the data decide a size, which is 0 when nothing is selected."""
    return not isinstance(size, int) and size.value in op.context.dimensions.of_selections


def remember(op: Emitter, number: Number) -> None:
    """Keep a number that has a name."""
    key = key_of(op, number.label)
    if key is not None:
        op.sizes.setdefault(key, number)


def declare(op: Emitter, value: ir.Value) -> None:
    """Keep the sizes of an input of the graph, and an input that is a number: this is where they are read."""
    if isinstance(value, Number):
        remember(op, value)
        return
    for axis in range(rank(value)):
        size_of(op, value, axis)


def show(op: Emitter, x: ir.Value) -> None:
    """Keep the sizes of a result that the sizes of inputs decide: they are read from the last result that shows them, not computed.

    The last one, so that what is asked for its sizes is no value in the middle of nodes that are fused.
    """
    for axis, size in enumerate(x.shape):
        key = None if isinstance(size, int) else key_of(op, size.value)
        if key is None:
            continue
        kept = lookup(op, key)
        if kept is None:
            op.sizes[key] = AxisSize(op, x, axis, size.value)
        elif type(kept) is AxisSize and kept.home is op:
            kept.move(x, axis)


def size_of(op: Emitter, x: ir.Value, axis: int) -> int | Number:
    """The size of one axis: an int when it is static, otherwise a number, written when something reads it."""
    axis = axis % rank(x)
    size = x.shape[axis]
    if isinstance(size, int):
        return size
    key = key_of(op, size.value) or (x, axis)
    found = lookup(op, key)
    if found is None:
        found = op.sizes[key] = AxisSize(op, x, axis, size.value)
    return found


def know_sizes(op: Emitter, x: ir.Value, sizes: Sequence[Size]) -> None:
    """Keep the sizes of *x* that inference does not know: they are not read from it again."""
    own = list(x.shape)
    for axis, size in enumerate(sizes):
        if isinstance(own[axis], int) or own[axis].value is not None:
            continue
        if isinstance(size, Number):
            op.sizes[x, axis] = size
            if key_of(op, size.label) is not None:
                own[axis] = ir.SymbolicDim(size.label)
        elif isinstance(size, int) and size > 1:  # to expand to 1, or by -1, keeps a size
            own[axis] = size
    x.shape = ir.Shape(own)


def take_sizes(op: Emitter, x: ir.Value, like: ir.Value) -> None:
    """Keep of *x* what is known of the sizes of *like*, which are the same; nothing when nothing is."""
    if like.shape is None:
        return
    own = like.shape if x.shape is None else x.shape
    x.shape = ir.Shape([size if isinstance(size, int) else told for size, told in zip(own, like.shape)])
    know_sizes(op, x, sizes_of(op, like))


def known(op: Emitter, number: Any, wish: str) -> Any:
    """The value of a symbolic number that is static, or that was met before; None otherwise. Other numbers as they are."""
    if not isinstance(number, SYMBOLS):
        return number
    expression = decided(number)
    if expression.is_Integer:
        return int(expression)
    if expression in (sympy.true, sympy.false):
        return bool(expression)
    key = key_of(op, op.context.dimensions.label(number, wish))
    return None if key is None else lookup(op, key)


def sizes_of(op: Emitter, x: ir.Value) -> list[Size]:
    """All sizes of *x*; those that are not static are written when something reads them."""
    return [size_of(op, x, axis) for axis in range(rank(x))]


# ---- shapes


def shape_between(op: Emitter, x: ir.Value, start: int, end: int) -> ir.Value:
    """The Shape node of some axes of *x*."""
    return op.Shape(x, start=start or None, end=end if end < rank(x) else None)


def shape_of(op: Emitter, x: ir.Value, start: int = 0, end: int | None = None) -> ir.Value:
    """The sizes of a range of axes as a 1-D INT64 value: a constant, or one Shape node for all tensors of these sizes."""
    start, end, _ = slice(start, end).indices(rank(x))
    sizes = [size_of(op, x, axis) for axis in range(start, end)]
    if is_static(*sizes) or end - start == 1:
        return shape(op, sizes)
    return kept_shape(op, sizes, lambda: shape_between(op, x, start, end))


def shape(op: Emitter, sizes: Sequence[Size]) -> ir.Value:
    """A list of ints and INT64 values (0-d or 1-D) as one 1-D INT64 value."""
    if is_static(*sizes):
        return op.constant(np.array(sizes, dtype=np.int64).reshape(-1))
    if len(sizes) == 1:
        return vector_of(op, sizes[0])

    def written() -> ir.Value:
        axes = axes_of(sizes)
        if axes is not None:
            return shape_between(op, *axes)
        parts: list[Any] = []
        for size in sizes:
            if isinstance(size, ir.Value):
                parts.append(vector_of(op, size))
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(int(size))
            else:
                parts.append([int(size)])
        return op.Concat(*parts, axis=0)

    return kept_shape(op, sizes, written)


def kept_shape(op: Emitter, sizes: Sequence[Size], write: Callable[[], ir.Value]) -> ir.Value:
    """What *write* gives for a list of sizes; written once when all of them have names."""
    key = shape_key(op, sizes)
    found = lookup(op, key)
    if found is None:
        found = write()
        if key is not None:
            op.sizes[key] = found
    return found


def shape_key(op: Emitter, sizes: Sequence[Size]) -> tuple | None:
    """Where the emitters keep a list of sizes, None when one of them has no name."""
    keys = [key_of(op, label(size)) if isinstance(size, ir.Value) else size for size in sizes]
    return None if None in keys else ("shape", *keys)


def has_shape(op: Emitter, sizes: Sequence[Size]) -> bool:
    """Whether at most one node writes these sizes together: they are those of one tensor, or were written before."""
    return axes_of(sizes) is not None or lookup(op, shape_key(op, sizes)) is not None


def axes_of(sizes: Sequence[Size]) -> tuple[ir.Value, int, int] | None:
    """The tensor and the range of its axes that have exactly these sizes, None when there is none."""
    position, first = next(
        ((position, size) for position, size in enumerate(sizes) if isinstance(size, AxisSize)), (0, None)
    )
    if first is None or first.axis < position:
        return None
    start, end = first.axis - position, first.axis - position + len(sizes)
    if end > len(first.x.shape):
        return None
    same = all(
        has_size(first.x, axis, size)
        or (isinstance(size, AxisSize) and (size.x, size.axis) == (first.x, axis))
        for axis, size in enumerate(sizes, start)
    )
    return (first.x, start, end) if same else None


def has_size(x: ir.Value, axis: int, size: Size) -> bool:
    """Whether an axis is known to have a size."""
    own = x.shape[axis] if isinstance(x.shape[axis], int) else x.shape[axis].value
    return own is not None and own == label(size)


def vector_of(op: Emitter, size: ir.Value) -> ir.Value:
    """A value of one element, or a 1-D one, as a 1-D INT64 value."""
    if isinstance(size, (AxisSize, GivenNumber)):
        return size.vector()
    size = op.Cast(size, to=INT64)
    return op.Unsqueeze(size, [0]) if rank(size) == 0 else size


def vector_at_hand(size: Size) -> ir.Value | list[int] | None:
    """A size as a vector of one element when no node is needed for that but its Shape, None otherwise."""
    if isinstance(size, (AxisSize, GivenNumber)):
        return size.vector()
    if isinstance(size, ir.Value):
        return squeezed_vector(plain(size))
    return [size]


def squeezed_vector(size: ir.Value) -> ir.Value | None:
    """The vector of one element that a Squeeze made a 0-d value of, None for any other value."""
    node = producer_of(size, "Squeeze")
    is_squeezed = node is not None and rank(size) == 0
    return node.inputs[0] if is_squeezed and len(node.inputs[0].shape or ()) == 1 else None


# ---- what is known of sizes


def label(size: Size) -> int | str | None:
    """What is known of a size: the int, the expression of a symbolic one, None when it has no name."""
    if isinstance(size, Number):
        return size.label
    return None if isinstance(size, ir.Value) else size


def is_static(*sizes: Size) -> bool:
    """Whether no size is symbolic."""
    return not any(isinstance(size, ir.Value) for size in sizes)


def is_int(size: Size, number: int) -> bool:
    """Whether a size is this static number."""
    return not isinstance(size, ir.Value) and size == number


def static(size: Size) -> Size:
    """A size as an int when it is constant."""
    if isinstance(size, ir.Value) and size.const_value is not None:
        return int(size.const_value.numpy().reshape(-1)[0])
    return size


def same_sizes(op: Emitter, x: ir.Value, sizes: Sequence[Size]) -> list[bool]:
    """Whether each size is known to be the one *x* has at that position."""
    own = sizes_of(op, x)
    return [
        position < len(own) and (size is own[position] or has_size(x, position, size))
        for position, size in enumerate(sizes)
    ]


def broadcast_sizes(op: Emitter, *tensors: ir.Value) -> list[Size]:
    """The sizes that the tensors broadcast to; a symbolic size is not 1."""
    width = max((rank(tensor) for tensor in tensors), default=0)
    sizes: list[Size] = [1] * width
    for tensor in tensors:
        for axis, size in enumerate(sizes_of(op, tensor), start=width - rank(tensor)):
            if is_int(sizes[axis], 1) or (is_static(size) and size != 1):
                sizes[axis] = size
    return sizes


# ---- arithmetic


def plus(op: Emitter, a: Size, b: Size) -> Size:
    """``a + b``."""
    return computed(op, np.add, "Add", a, b) if not is_int(b, 0) else a


def minus(op: Emitter, a: Size, b: Size) -> Size:
    """``a - b``."""
    return computed(op, np.subtract, "Sub", a, b) if not is_int(b, 0) else a


def times(op: Emitter, a: Size, b: Size) -> Size:
    """``a * b``."""
    return computed(op, np.multiply, "Mul", a, b) if not is_int(b, 1) else a


def quotient(op: Emitter, a: Size, b: Size) -> Size:
    """``a // b`` for sizes that are not negative."""
    return computed(op, np.floor_divide, "Div", a, b) if not is_int(b, 1) else a


def larger(op: Emitter, a: Size, b: Size) -> Size:
    """``max(a, b)``."""
    return computed(op, np.maximum, "Max", a, b)


def smaller(op: Emitter, a: Size, b: Size) -> Size:
    """``min(a, b)``."""
    return computed(op, np.minimum, "Min", a, b)


def computed(op: Emitter, numpy_function: Callable, op_type: str, a: Size, b: Size) -> Size:
    """One operation on two sizes: computed now on ints, written on vectors of one element where there are, for shapes."""
    if is_static(a, b):
        return int(numpy_function(a, b))
    vectors = [vector_at_hand(size) for size in (a, b)]
    if any(vector is None for vector in vectors):
        return op.emit(op_type, (a, b))
    return op.Squeeze(op.emit(op_type, vectors), [0])


def total(op: Emitter, sizes: Iterable[Size]) -> Size:
    """The sum of sizes: the static ones last, in one."""
    known, result = 0, None
    for size in sizes:
        if is_static(size):
            known += size
        else:
            result = size if result is None else plus(op, result, size)
    return known if result is None else plus(op, result, known)


def volume(op: Emitter, sizes: Sequence[Size]) -> Size:
    """The product of sizes: no Shape node reads them apart."""
    known = math.prod(size for size in sizes if is_static(size))
    others = [size for size in sizes if not is_static(size)]
    if not others or known == 0:
        return known
    product = others[0] if len(others) == 1 else op.Squeeze(op.ReduceProd(shape(op, others), keepdims=1), [0])
    return times(op, product, known)


def counted(op: Emitter, count: Size, step: int = 1) -> ir.Value:
    """``[0, step, 2 * step, ...]``, *count* numbers."""
    if is_static(count):
        return op.constant(np.arange(count, dtype=np.int64) * step)
    return op.Range(0, times(op, count, step), step)
