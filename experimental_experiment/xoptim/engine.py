"""The engine: rules by the operator of their root, a queue of nodes, a budget.

A node is looked at once, and again when something changed within reach of a pattern: linear time for rules that end.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import Context, Emitter
from experimental_experiment.torch_interpreter.inference import FOLDED, fold, infer
from experimental_experiment.torch_interpreter.marks import MODULES
from experimental_experiment.xoptim.pattern import CONSTANT, P, inner_nodes, kinds_of, matches_of, may_match
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.rules import Declined, Rule, no, rule

BUDGET = 20
"""Rewritings for each node of the model, on average, before a rule is said not to end."""

MANY = 64
"""A value with more uses than this is not followed to what its change may allow: linear time, also on stars."""

FEW = 2
"""A value that loses a user may now be inside a pattern only if this many are left."""


@rule(P.one_of(*FOLDED)())
def constant_folding(op, root):
    """The value of a node whose inputs are small constants."""
    arrays = fold(root, op.opset)
    return None if arrays is None else [op.constant(array) for array in arrays]


class OptimizationError(RuntimeError):
    """A rule does not end, or replaces a value by one of another type."""


class Place:
    """The `Origin` of what is written instead of a node: where the node comes from; most rules decline before they write."""

    node = None

    def __init__(self, replaced: ir.Node):
        self.replaced = replaced

    @property
    def prefix(self) -> str:
        """What names begin with."""
        node = self.replaced
        name = (node.name or node.op_type.lower()).removeprefix("node_")
        return re.sub(rf"_{node.op_type}(_\d+)?$", "", name)

    @property
    def provenance(self) -> Mapping[str, str]:
        """The ``metadata_props``."""
        return self.replaced.metadata_props

    @property
    def modules(self) -> tuple[tuple[str, str, str], ...]:
        """The calls of modules."""
        return self.replaced.meta.get(MODULES, ())


class Rewriter(Emitter):
    """An emitter that writes before one node, and remembers what it wrote."""

    def __init__(self, anchor: ir.Node, context: Context):
        super().__init__(anchor.graph, context)
        self.anchor = anchor
        self.written: list[ir.Node] = []

    def insert(self, node: ir.Node) -> None:
        """Put a node where this emitter writes."""
        self.graph.insert_before(self.anchor, node)
        self.written.append(node)

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A constant: an initializer of the model, a Constant node inside a local function."""
        if not isinstance(self.context.root, ir.Function):
            return super().initializer(name, tensor)
        node = ir.node("Constant", [], {"value": tensor})
        node.outputs[0].name = name
        node.outputs[0].const_value = tensor
        self.insert(node)
        infer(node, self.opset)
        return node.outputs[0]


class Engine:
    """Applies rules to one graph, or to one local function, until nothing changes.

    Only the rules whose operators stand before a node are tried on it; with *folds*, constants are computed too.
    """

    def __init__(
        self,
        root: ir.Graph | ir.Function,
        context: Context,
        rules: Iterable[Rule],
        report: Report,
        folds: bool = False,
    ):
        self.root = root
        self.context = context
        self.report = report
        self.folds = folds
        self.index: dict[tuple[str, str], list[Rule]] = collections.defaultdict(list)
        self.depths: dict[tuple[str, str], int] = collections.defaultdict(int)
        self.inner: dict[tuple[str, str], int] = collections.defaultdict(int)
        for member in rules:
            if not member.applies_to(context.opset) or (context.special_values and not member.special_values):
                continue
            for operator in member.pattern.operators:
                key = member.pattern.domain, operator
                self.index[key].append(member)
                self.depths[key] = max(self.depths[key], member.pattern.depth)
            for node in inner_nodes(member.pattern):
                for operator in node.operators:
                    self.inner[node.domain, operator] = max(self.inner[node.domain, operator], node.depth)
        for operator in FOLDED if folds else ():
            self.depths["", operator] = max(self.depths["", operator], 1)
        self.reach = max(self.depths.values(), default=0)
        rows = (row for rows in context.rows.values() for row in rows)
        self.repairs = frozenset(row.name for row in rows if row.measured is not None)
        self.candidates: dict[tuple, tuple[Rule, ...]] = {}
        self.present: set[str] = set()
        self.queue: collections.deque[ir.Node] = collections.deque()
        self.waiting: set[ir.Node] = set()
        self.limit = 100

    def run(self, nodes: Iterable[ir.Node], stop_after: int | None = None) -> None:
        """Apply the rules to these nodes and to what changes; at most *stop_after* rewritings in all.

        Raises OptimizationError when a rule does not end.
        """
        self.push(nodes)
        self.limit = max(self.limit, len(self.report.applications) + BUDGET * len(self.queue) + 100)
        queue, waiting, candidates = self.queue, self.waiting, self.candidates
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            if node.graph is None:
                continue
            kinds = kinds_of(node)
            members = candidates.get(kinds)
            if members is None:
                members = candidates[kinds] = self.candidates_of(kinds)
            for member in members:
                if stop_after is not None and len(self.report.applications) >= stop_after:
                    queue.clear()
                    waiting.clear()
                    return
                if self.applied(member, node):
                    if len(self.report.applications) > self.limit:
                        counts = collections.Counter(name for name, _ in self.report.applications)
                        raise OptimizationError(f"the rule {counts.most_common(1)[0][0]} does not end")
                    break

    def candidates_of(self, kinds: tuple) -> tuple[Rule, ...]:
        """The rules that may match a node of these operators: asked once for each neighbourhood that a model has."""
        domain, operator, *inputs = kinds
        members = [
            item
            for item in self.index.get((domain, operator), ())
            if may_match(item.pattern, kinds)
            and not any(group.isdisjoint(self.present) for group in item.needed)
        ]
        if self.folds and not domain and operator in FOLDED and inputs and set(inputs) <= {CONSTANT}:
            members.insert(0, constant_folding)
        return tuple(members)

    def push(self, nodes: Iterable[ir.Node]) -> None:
        """Have another look at these nodes; an operator that is new may let rules match that need it."""
        for node in nodes:
            if node.op_type not in self.present:
                self.present.add(node.op_type)
                self.candidates.clear()
            if node not in self.waiting:
                self.waiting.add(node)
                self.queue.append(node)

    def applied(self, member: Rule, root: ir.Node) -> bool:
        """Whether a rule has replaced the results of a node."""
        for found in matches_of(member.pattern, root):
            op = Rewriter(root, self.context)
            before = dict(self.context.applied)
            with self.context.at(Place(root)):
                result = member.rewrite(op, found, root)
            if len(op.written) >= len(found[""]) and self.is_repaired(before):
                result = no("the runtime needs it otherwise")
            if result is None or isinstance(result, Declined):
                self.withdraw(op)
                if result is not None:
                    self.report.declined[member.name, result.reason] += 1
                continue
            self.report.applications.append((member.name, root.name or root.outputs[0].name or ""))
            self.replace(member, op, root, replacements(member, root, result))
            return True
        return False

    def is_repaired(self, before: Mapping[str, int]) -> bool:
        """Whether the runtime needed what was written otherwise: then it stood there, and a rule that goes on would not end."""
        applied = self.context.applied
        return any(count > before.get(name, 0) for name, count in applied.items() if name in self.repairs)

    def withdraw(self, op: Rewriter) -> None:
        """Remove what a rule wrote before it declined."""
        for node in reversed(op.written):
            op.graph.remove(node, safe=True)

    def replace(self, member: Rule, op: Rewriter, root: ir.Node, values: Mapping[ir.Value, ir.Value]) -> None:
        """Use other values instead of the results of *root* and of nodes before it, and queue what this may allow."""
        for old, new in values.items():
            if new is None and not (old.uses() or old.is_graph_output()):
                continue
            check_types(member, old, new)
            if old is new:
                continue
            if old.is_graph_output():
                new = self.as_output(op, old, new)
            elif new.shape is None or (old.shape is not None and new.producer() in op.written):
                new.shape = old.shape
            new.type = new.type or old.type
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.push(op.written)
        for value in filter(None, values.values()):
            self.push(self.users_within_reach(value))
        if root.graph is not None:
            self.remove_unused([*dict.fromkeys(old.producer() for old in values), root])

    def as_output(self, op: Rewriter, old: ir.Value, new: ir.Value) -> ir.Value:
        """*new* under the name of the graph output *old*; a copy when it is an input, a constant, another output or an outer value."""
        if not may_be_output(new, op.graph):
            new = op.copy(new)
        old.name, new.name = self.context.names.unique(f"{old.name}_replaced"), old.name
        new.type, new.shape = old.type or new.type, old.shape or new.shape
        new.metadata_props.update(old.metadata_props)
        return new

    def users_within_reach(self, value: ir.Value, through_patterns: bool = False) -> list[ir.Node]:
        """The nodes whose patterns are deep enough to see *value*; with *through_patterns* only those that see it in a pattern.

        The functions of rules look further back than their patterns, as the rules of masks do: at values, not at who uses them.
        """
        found: list[ir.Node] = []
        seen: set[ir.Node] = set()
        level = [value]
        for distance in range(self.reach):
            users = [use.node for item in level if len(item.uses()) <= MANY for use in item.uses()]
            users = [user for user in dict.fromkeys(users) if user not in seen]
            if not users:
                break
            seen.update(users)
            found += [user for user in users if self.depths.get((user.domain, user.op_type), 0) > distance]
            if through_patterns:
                users = [user for user in users if self.inner.get((user.domain, user.op_type), 0) > distance]
            level = [output for user in users for output in user.outputs]
        return found

    def remove_unused(self, nodes: list[ir.Node]) -> None:
        """Remove nodes whose results nothing uses, and those that only they used; queue what now has fewer users."""
        while nodes:
            node = nodes.pop()
            if node.graph is None or any(out.is_graph_output() or out.uses() for out in node.outputs):
                continue
            inputs = [value for value in dict.fromkeys(node.inputs) if value is not None]
            node.graph.remove(node, safe=True)
            for value in inputs:
                if value.producer() is not None and not value.uses():
                    nodes.append(value.producer())
                elif value.producer() is not None and len(value.uses()) <= FEW:
                    producer = value.producer()
                    if (producer.domain, producer.op_type) in self.inner:
                        self.push(self.users_within_reach(value, through_patterns=True))


def may_be_output(value: ir.Value, graph: ir.Graph | ir.Function) -> bool:
    """Whether a value may be one more output of *graph*, under the name of that output."""
    node = value.producer()
    return node is not None and node.graph is graph and not value.is_graph_output()


def replacements(member: Rule, root: ir.Node, result: Any) -> Mapping[ir.Value, ir.Value]:
    """What a rule gave, by the value that it replaces."""
    if isinstance(result, Mapping):
        return result
    values = list(result) if isinstance(result, (list, tuple)) else [result]
    if len(values) != len(root.outputs):
        raise OptimizationError(f"the rule {member.name} gives {len(values)} values for {len(root.outputs)}")
    return dict(zip(root.outputs, values))


def check_types(member: Rule, old: ir.Value, new: ir.Value) -> None:
    """Raise OptimizationError when a rule gives another dtype or another rank."""
    if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
        raise OptimizationError(f"the rule {member.name} replaces {old.dtype.name} by {new.dtype.name}")
    if old.shape is not None and new.shape is not None and len(old.shape) != len(new.shape):
        raise OptimizationError(f"the rule {member.name} replaces {old.shape} by {new.shape}")
