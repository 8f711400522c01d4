"""Patterns: what a rule looks for, written as the expression that it replaces.

``P.Transpose(P.Transpose(x, name="inner"), name="outer")`` matches a Transpose of a Transpose; ``x = var("x")`` is any value.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx_ir as ir

from experimental_experiment.torch_interpreter.marks import NUMBERS, REFUSED
from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.constants import given_by

COMMUTATIVE = frozenset(
    {
        "Add",
        "And",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Equal",
        "Max",
        "Mean",
        "Min",
        "Mul",
        "Or",
        "Sum",
        "Xor",
    }
)
"""Operators whose two operands are tried in both orders."""

MOST_NUMBERS = 64
"""Constants of more elements are not read as numbers."""

MOST_READERS = 64
"""A value that more nodes read is not followed to all of them: linear time, also on stars."""

JUDGED = 256
"""A value that more nodes read is not judged by each of them, as many as a mask for the layers of the deepest models has."""

Found = dict[str, Any]
"""What names stand for. Who is asked for a match owns what was found so far: it may write into it, also before it finds nothing."""


@dataclasses.dataclass(frozen=True)
class Var:
    """Any value; the same one wherever the name stands again, absent everywhere if it is absent once.

    Attributes:
        name: parameter of the rule's function.
        is_constant: whether the value must be known.
        is_optional: whether it may be absent: the function then gets None.
    """

    name: str
    is_constant: bool = False
    is_optional: bool = False

    def __or__(self, other: Var | NodePattern | Either) -> Either:
        """One or the other."""
        return Either((self, *alternatives(other)))

    def matches(self, value: ir.Value | None, found: Found) -> Sequence[Found]:
        """What is found with this value, or nothing."""
        if value is None and self.is_optional:
            return (found,) if found.setdefault(self.name, None) is None else ()
        if value is None or (self.is_constant and constant_of(value) is None):
            return ()
        return (found,) if found.setdefault(self.name, value) is value else ()


@dataclasses.dataclass(frozen=True)
class NodePattern:
    """A node of one of some operators.

    Attributes:
        operators: names of the operators.
        domain: their domain.
        inputs: a pattern for each input (`Var`, `NodePattern`, a number, None for an absent one), None for any inputs; ``...`` at the
            end for any further ones.
        attributes: values that attributes must have.
        name: parameter of the rule's function that gets the node, ``""`` for none.
        output: which result of the node is meant.
        is_shared: whether other nodes may use the node too; it then stays in the graph.
        reads: operators, one of which stands before one of the inputs; none for any.
    """

    operators: tuple[str, ...]
    domain: str = ""
    inputs: tuple[Any, ...] | None = None
    attributes: tuple[tuple[str, Any], ...] = ()
    name: str = ""
    output: int = 0
    is_shared: bool = False
    reads: frozenset[str] = frozenset()

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names of the operators, to look them up."""
        return frozenset(self.operators)

    @functools.cached_property
    def depth(self) -> int:
        """Number of nodes on the longest path."""
        return 1 + max(map(depth_of, self.inputs or ()), default=0)

    def __or__(self, other: Var | NodePattern | Either) -> Either:
        """One or the other."""
        return Either((self, *alternatives(other)))

    @functools.cached_property
    def listed(self) -> tuple[Any, ...]:
        """The patterns of inputs, without ``...``."""
        inputs = self.inputs or ()
        return inputs[:-1] if self.is_open else inputs

    @functools.cached_property
    def width(self) -> int:
        """The number of inputs that have a pattern."""
        return len(self.listed)

    @property
    def is_open(self) -> bool:
        """Whether a node may have further inputs."""
        return bool(self.inputs) and self.inputs[-1] is ...

    @functools.cached_property
    def operands(self) -> Operands:
        """The position of each input and what asks for its match: what tells most nodes apart first, constants and deep patterns."""
        return tuple(
            (position, matcher_of(item))
            for position, item in sorted(enumerate(self.listed), key=lambda pair: rank_of(pair[1]))
        )

    @functools.cached_property
    def swapped(self) -> frozenset[str]:
        """The operators whose two operands are tried in both orders."""
        return self.names & COMMUTATIVE if self.width == 2 else frozenset()

    def matches(self, value: ir.Value | None, found: Found) -> Sequence[Found]:
        """What is found when the value comes from such a node."""
        node = value.producer() if value is not None else None
        if node is None or node.op_type not in self.names or node.domain != self.domain:
            return ()
        return self.matches_node(node, found) if value.index() == self.output else ()

    def matches_node(self, node: ir.Node, found: Found) -> Sequence[Found]:
        """What is found when attributes and inputs of a node of the operator match; ``""`` holds the nodes of the pattern."""
        for name, expected in self.attributes:
            if attribute_of(node, name) != expected:
                return ()
        if self.reads and self.reads.isdisjoint(before.op_type for before in node.predecessors()):
            return ()
        if not self.is_shared:
            found[""] += (node,)
        if self.name:
            known = found.get(self.name)
            if known is node:  # it stands twice in the pattern, as a residual and its square do
                return (found,)
            if known is not None:
                return ()
            found[self.name] = node
        if self.inputs is None:
            return (found,)
        inputs, operands = node.inputs, self.operands
        missing = self.width - len(inputs)
        if missing > 0:
            inputs += (None,) * missing
        elif missing and not self.is_open and inputs[missing:] != (None,) * -missing:
            return ()
        if self.swapped and inputs[0] is not inputs[1] and node.op_type in self.swapped:
            matches = matches_all(operands, inputs, dict(found))
            return [*matches, *matches_all(operands, inputs[::-1], found)]
        return matches_all(operands, inputs, found)


@dataclasses.dataclass(frozen=True)
class Either:
    """One of several patterns, tried in order: ``P.Cast(x) | x``. A name that only the others have is None."""

    patterns: tuple[Var | NodePattern, ...]

    @functools.cached_property
    def by_operator(self) -> dict[str | None, tuple[Var | NodePattern, ...]]:
        """The patterns that a value may match, by the operator before it; under None those that any value may."""
        names = {
            name for pattern in self.patterns if type(pattern) is NodePattern for name in pattern.operators
        }
        return {
            name: tuple(item for item in self.patterns if type(item) is Var or name in item.names)
            for name in (None, *names)
        }

    @functools.cached_property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators of nodes, as the root of a rule: all are of one domain."""
        return tuple(dict.fromkeys(name for pattern in self.patterns for name in pattern.operators))

    @property
    def domain(self) -> str:
        """The domain of the operators."""
        return self.patterns[0].domain

    @functools.cached_property
    def depth(self) -> int:
        """Number of nodes on the longest path."""
        return max(map(depth_of, self.patterns))

    def __or__(self, other: Var | NodePattern | Either) -> Either:
        """One more."""
        return Either((*self.patterns, *alternatives(other)))

    def matches_node(self, node: ir.Node, found: Found) -> Sequence[Found]:
        """What is found with each of the patterns whose root the node may be."""
        return [
            more
            for pattern in self.by_operator[node.op_type]
            for more in pattern.matches_node(node, dict(found))
        ]

    def matches(self, value: ir.Value | None, found: Found) -> Sequence[Found]:
        """What is found with each of the patterns."""
        node = value.producer() if value is not None else None
        known = self.by_operator
        patterns = known[None] if node is None else known.get(node.op_type, known[None])
        if len(patterns) == 1:
            return patterns[0].matches(value, found)
        return [more for pattern in patterns for more in pattern.matches(value, dict(found))]


def alternatives(pattern: Var | NodePattern | Either) -> tuple[Var | NodePattern, ...]:
    """The patterns of an `Either`, or the one."""
    return pattern.patterns if isinstance(pattern, Either) else (pattern,)


def inner_nodes(pattern: Any) -> Iterator[NodePattern]:
    """The node patterns below the root of a pattern."""
    if isinstance(pattern, Either):
        for item in pattern.patterns:
            yield from inner_nodes(item)
    elif isinstance(pattern, NodePattern):
        for item in pattern.inputs or ():
            yield from (node for node in alternatives(item) if isinstance(node, NodePattern))
            yield from inner_nodes(item)


def needed_by(pattern: Any) -> frozenset[frozenset[str]]:
    """Groups of operators: every match has one of each group."""
    if isinstance(pattern, Either):
        return functools.reduce(either_of, map(needed_by, pattern.patterns))
    if not isinstance(pattern, NodePattern):
        return frozenset()
    groups = {pattern.names, pattern.reads} - {frozenset()}
    return frozenset(groups).union(*map(needed_by, pattern.inputs or ()))


def either_of(a: frozenset[frozenset[str]], b: frozenset[frozenset[str]]) -> frozenset[frozenset[str]]:
    """What every match of one of two patterns has; groups that hold another one say nothing."""
    joined = {one | other for one in a for other in b}
    return frozenset(group for group in joined if not any(smaller < group for smaller in joined))


def rank_of(pattern: Any) -> int:
    """The place of a pattern among those of a node's inputs when they are asked."""
    return -100 if isinstance(pattern, Var) and pattern.is_constant else -depth_of(pattern)


def depth_of(pattern: Any) -> int:
    """Number of nodes on the longest path of a pattern."""
    return pattern.depth if isinstance(pattern, (NodePattern, Either)) else 0


Operands = Sequence[tuple[int, str | Callable[[ir.Value | None, Found], Sequence[Found]]]]
"""Positions of inputs, and what each of them must match: the name of any value, or who is asked."""


def matches_all(operands: Operands, values: Sequence[ir.Value | None], found: Found) -> Sequence[Found]:
    """What is found when the value at each position matches its pattern."""
    for count, (position, matcher) in enumerate(operands, 1):
        value = values[position]
        if type(matcher) is str:
            if value is None or found.setdefault(matcher, value) is not value:
                return ()
            continue
        matches = matcher(value, found)
        if not matches:
            return ()
        if len(matches) > 1:
            return [more for one in matches for more in matches_all(operands[count:], values, one)]
        found = matches[0]
    return (found,)


def matcher_of(pattern: Any) -> str | Callable[[ir.Value | None, Found], Sequence[Found]]:
    """What a value must match: the name of any value, or who is asked about a node, a constant, a number, None."""
    if isinstance(pattern, Var) and not pattern.is_constant and not pattern.is_optional:
        return pattern.name
    if isinstance(pattern, (Var, NodePattern, Either)):
        return pattern.matches
    if pattern is None:
        return lambda value, found: (found,) if value is None else ()
    return lambda value, found: (found,) if number_of(value) == pattern else ()


def matches_of(pattern: NodePattern | Either, root: ir.Node) -> Sequence[Found]:
    """Every way in which a pattern matches at *root*, which has one of its operators: what its names stand for, the nodes under ``""``.

    The nodes of a match, but its root and those that may be shared, are used by nothing else.
    """
    matches = pattern.matches_node(root, {"": ()})
    if len(matches) == 1 and len(matches[0][""]) == 1:
        return matches  # as most
    return [found for found in matches if is_whole(root, found[""])]


def is_whole(root: ir.Node, nodes: Sequence[ir.Node]) -> bool:
    """Whether nothing but these nodes uses the results of any of them but *root*."""
    for node in nodes:
        if node is not root and not is_inside(node, nodes):
            return False
    return True


CONSTANT = "#"
"""The kind of an input that is a constant of several elements, or of none; that of one element is its number."""

ABSENT = "-"
"""The kind of an input that is not given."""


Kind = str | float
"""What stands before an input: an operator, `CONSTANT` or the number of a constant, `ABSENT`, ``""`` for the graph's inputs."""


class Kinds(dict[ir.Value | None, Kind]):
    """The kind of each value, looked up once: it stays the same."""

    def __missing__(self, value: ir.Value | None) -> Kind:
        producer = None if value is None else value.producer()
        operator = None if producer is None else producer.op_type
        if value is None:
            kind: Kind = ABSENT
        elif operator is not None and operator != "Constant":
            kind = operator
        else:
            number = number_of(value)
            kind = number if number is not None else "" if constant_of(value) is None else CONSTANT
        self[value] = kind
        return kind


def is_constant(kind: Kind) -> bool:
    """Whether an input of this kind is known."""
    return kind == CONSTANT or not isinstance(kind, str)


def may_match(pattern: NodePattern | Either, kinds: Sequence[Kind]) -> bool:
    """Whether a node is what a pattern asks for: *kinds* are its domain, its operator and the kind of each of its inputs."""
    if isinstance(pattern, Either):
        return any(may_match(item, kinds) for item in pattern.patterns)
    return bool(orders_of(pattern, kinds))


def orders_of(pattern: NodePattern, kinds: Sequence[Kind]) -> list[int]:
    """The orders, 1 or -1, in which the inputs of a node of these kinds may be the operands of a pattern."""
    _, operator, *inputs = kinds
    if operator not in pattern.names or (pattern.reads and pattern.reads.isdisjoint(inputs)):
        return []
    if pattern.inputs is None:
        return [1]
    listed = pattern.listed
    if not pattern.is_open and any(kind != ABSENT for kind in inputs[len(listed) :]):
        return []
    inputs += [ABSENT] * (len(listed) - len(inputs))
    orders = [1, -1] if operator in pattern.swapped and len(inputs) == 2 else [1]
    return [
        order for order in orders if all(may_be(item, kind) for item, kind in zip(listed, inputs[::order]))
    ]


Finder = Callable[[ir.Node], Sequence[Found]]
"""Finds every way in which a pattern matches at a node, see `matches_of`."""


def finder_of(pattern: NodePattern | Either, kinds: Sequence[Kind]) -> Finder:
    """What finds the matches of a pattern that may match at nodes of these kinds.

    The kinds tell in which order the inputs are the operands, and whether those without a pattern of their own fit: only nodes are asked.
    """
    if isinstance(pattern, Either) or pattern.attributes or has_a_name_twice(pattern.listed):
        return functools.partial(matches_of, pattern)
    names = [item.name if isinstance(item, Var) else "" for item in pattern.listed]
    asked = [
        (position, matcher) for position, matcher in pattern.operands if depth_of(pattern.listed[position])
    ]
    orders = orders_of(pattern, kinds)
    absent = (None,) * max(0, pattern.width - len(kinds) + 2)

    def found_in(order: int, root: ir.Node) -> Sequence[Found]:
        """What is found with the inputs in one order."""
        values = root.inputs[::order] + absent
        found: Found = dict(zip(names, values))
        found[""] = () if pattern.is_shared else (root,)
        if pattern.name:
            found[pattern.name] = root
        if not asked:
            return (found,)
        matches = matches_all(asked, values, found)
        return [match for match in matches if is_whole(root, match[""])] if matches else ()

    def in_both(root: ir.Node) -> Sequence[Found]:
        """What is found with the two operands in both orders, once where they are the same."""
        first, second = root.inputs
        return found_in(1, root) if first is second else [*found_in(1, root), *found_in(-1, root)]

    return in_both if len(orders) > 1 else functools.partial(found_in, orders[0])


def has_a_name_twice(listed: Sequence[Any]) -> bool:
    """Whether two inputs have the same name."""
    names = [item.name for item in listed if isinstance(item, Var)]
    return len(set(names)) < len(names)


def may_be(pattern: Any, kind: Kind) -> bool:
    """Whether an input of this kind may match a pattern."""
    if isinstance(pattern, Either):
        return any(may_be(item, kind) for item in pattern.patterns)
    if isinstance(pattern, NodePattern):
        return kind in pattern.names
    if isinstance(pattern, Var):
        return is_constant(kind) if pattern.is_constant else kind != ABSENT or pattern.is_optional
    return kind == (ABSENT if pattern is None else pattern)


def is_inside(node: ir.Node, nodes: Sequence[ir.Node]) -> bool:
    """Whether only these nodes use the results of a node."""
    for value in node.outputs:
        if value.is_graph_output():
            return False
        for user, _ in value.uses():
            if user not in nodes:
                return False
    return True


# ---- what rules ask of values and nodes


def all_readers(value: ir.Value, suits: Callable[..., bool], *facts: Any) -> bool:
    """Whether ``suits(node, index, *facts)`` holds for each reader of a value, which is no output; no more than `JUDGED` are asked.

    The one that does not suit is asked first the next time: rules that look at each reader ask here from each reader again.
    """
    uses = value.uses()
    if value.is_graph_output() or len(uses) > JUDGED:
        return False
    refused = value.meta.get(REFUSED, {})
    last = refused.get(suits.__name__)
    if last is not None and last in uses and not suits(*last, *facts):
        return False
    for use in uses:
        if not suits(*use, *facts):
            value.meta[REFUSED] = {**refused, suits.__name__: use}
            return False
    return True


def only_reader(value: ir.Value | None, operator: str | None = None) -> ir.Node | None:
    """The one node that reads a value, which is no output; None when it is not this *operator* of ONNX, where one is asked for."""
    uses = () if value is None or value.is_graph_output() else value.uses()
    node = uses[0].node if len(uses) == 1 else None
    return node if operator is None or is_of(node, operator) else None


def constant_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of a constant or of a weight that is no input of the model, None for anything else."""
    if value is None:
        return None
    tensor = value.const_value
    if tensor is not None:
        return None if value.is_graph_input() else tensor
    node = producer_of(value, "Constant")
    return None if node is None else given_by(node)


def elements_of(value: ir.Value | None) -> tuple[list, int] | None:
    """The elements of a small constant in a row, and its rank; None for anything else. Not to be changed: they are kept with the value."""
    tensor = constant_of(value)
    if tensor is None:
        return None
    elements = value.meta.data.get(NUMBERS)
    if elements is None and tensor.size <= MOST_NUMBERS and tensor.dtype != ir.DataType.STRING:
        array = tensor.numpy()
        elements = value.meta[NUMBERS] = array.reshape(-1).tolist(), array.ndim
    return elements


def numbers_of(value: ir.Value | None) -> list | None:
    """The elements of a small constant in a row, None for anything else; not to be changed."""
    elements = elements_of(value)
    return None if elements is None else elements[0]


def number_of(value: ir.Value | None) -> int | float | bool | None:
    """The number that a constant of one element holds, None for anything else."""
    elements = elements_of(value)
    return elements[0][0] if elements is not None and len(elements[0]) == 1 else None


def ints_of(value: ir.Value | None) -> list[int] | None:
    """The integers of a small constant vector, None for anything else."""
    elements = elements_of(value)
    return None if elements is None or elements[1] > 1 else [*elements[0]]


def attribute_of(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute, *default* when the node has none."""
    attribute = node.attributes.data.get(name)
    if attribute is None:
        return default
    value = attribute.value
    return list(value) if type(value) is tuple else value


def softmax_axis(node: ir.Node, opset: int) -> int:
    """The axis of a Softmax; before opset 13, where it also joins all axes behind it, it is 1 when the node does not tell."""
    return attribute_of(node, "axis", -1 if opset >= 13 else 1)


def var(name: str) -> Var:
    """Any value."""
    return Var(name)


def const(name: str) -> Var:
    """Any constant."""
    return Var(name, is_constant=True)


def optional(name: str) -> Var:
    """Any value, or none."""
    return Var(name, is_optional=True)


class Builder:
    """``P.Add(x, 1.0, name="sum")``: a pattern by the name of its operator.

    Keywords of the pattern: ``name``, ``output``, ``shared``, ``domain``, ``reads``; the others are attributes. Without inputs, any match.
    """

    def __getattr__(self, operator: str):
        if not operator[0].isupper():
            raise AttributeError(f"{operator!r} is no ONNX operator: they start with a capital")
        return self.one_of(operator)

    def one_of(self, *operators: str):
        """A pattern of one of these operators."""

        def build(*inputs, name="", output=0, shared=False, domain="", reads=(), **attributes) -> NodePattern:
            return NodePattern(
                operators,
                domain,
                tuple(inputs) if inputs else None,
                tuple(sorted(attributes.items())),
                name,
                output,
                shared,
                frozenset(reads),
            )

        return build


P = Builder()
