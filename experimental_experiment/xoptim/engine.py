"""The engine: rules by the operator of their root, a queue of nodes, a budget.

A node is looked at once, and again when something changed within reach of a pattern: linear time for rules that end.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from experimental_experiment.progress import nothing
from experimental_experiment.torch_interpreter.emitter import Context, Emitter, content_of
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import (
    FOLDED,
    fold,
    infer,
    is_shared,
    is_small,
    leaves_its_dtype,
)
from experimental_experiment.torch_interpreter.marks import MODULES
from experimental_experiment.xoptim.graphs import detach, is_read, say_the_same, values_read_by
from experimental_experiment.xoptim.pattern import (
    MOST_READERS,
    Finder,
    Kinds,
    P,
    finder_of,
    inner_nodes,
    is_constant,
    may_match,
)
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.rules import Declined, Rule, no, rule
from experimental_experiment.xoptim.shapes import joined_shape

BUDGET = 20
"""Rewritings for each node of the model, on average, before a rule is said not to end."""

FEW = 2
"""A value that loses a user may now be inside a pattern only if this many are left."""


@rule(P.one_of(*FOLDED)())
def constant_folding(op, root):
    """The value of a node whose inputs are small constants."""
    arrays = fold(root, op.opset)
    if arrays is None or leaves_its_dtype(root):
        return None
    return [op.constant(array) for array in arrays]


class OptimizationError(RuntimeError):
    """A rule does not end, or replaces a value by one of another type, or by none."""


class Place:
    """The `Origin` of what is written instead of a node: where the node comes from; most rules decline before they write.

    Attributes:
        replaced: the node.
        known_prefix: what `prefix` has found for it.
    """

    node = None
    replaced: ir.Node
    known_prefix: str | None

    @property
    def prefix(self) -> str:
        """What names begin with."""
        if self.known_prefix is None:
            node = self.replaced
            name = (node.name or node.op_type.lower()).removeprefix("node_")
            stem, _, number = name.rpartition("_")
            numbered, ending = stem if number.isdecimal() else name, f"_{node.op_type}"
            self.known_prefix = numbered.removesuffix(ending) if numbered.endswith(ending) else name
        return self.known_prefix

    @property
    def provenance(self) -> Mapping[str, str]:
        """The ``metadata_props``."""
        return self.replaced.metadata_props

    @property
    def modules(self) -> tuple[tuple[str, str, str], ...]:
        """The calls of modules."""
        return self.replaced.meta.data.get(MODULES, ())


class Rewriter(Emitter):
    """An emitter that writes before one node, and remembers what it wrote."""

    def __init__(self, anchor: ir.Node, context: Context):
        super().__init__(anchor.graph, context)
        self.written: list[ir.Node] = []
        context.origin = self.place = Place()
        self.stand_before(anchor)

    def stand_before(self, anchor: ir.Node) -> None:
        """Write before *anchor*; nothing has been written before another node."""
        context, place = self.context, self.place
        self.anchor, self.graph = anchor, anchor.graph
        place.replaced, place.known_prefix = anchor, None
        if self.sizes:
            self.sizes.clear()
        if type(context.root) is ir.Function:
            context.constants.clear()  # they are nodes of the function, which may stand behind this one or be gone

    def insert(self, node: ir.Node) -> None:
        """Put a node where this emitter writes."""
        self.graph.insert_before(self.anchor, node)
        self.written.append(node)

    def folded(self, node: ir.Node) -> list[ir.Value] | None:
        """Constants instead of the outputs of *node*, which is written no more, or None."""
        values = super().folded(node)
        if values is not None:
            self.written.remove(node)
        return values

    def move_after(self, node: ir.Node) -> None:
        """Put what was written right after *node*, which comes before the anchor: others than the anchor may then read it."""
        self.graph.remove(self.written)
        self.graph.insert_after(node, self.written)

    def once(self, op_type: str, table: ir.Value, *others: ir.Value, **attributes: Any) -> ir.Value:
        """The result of an operator of a table and constants, or of the table twice: one node, right behind the table, for all who ask for it."""
        source, inputs = table.producer(), (table, *others)
        key = op_type, inputs, tuple(attributes.items())
        is_here = self.graph is self.context.root if source is None else source.graph is self.graph
        constants = [value for value in others if value is not table]
        if not is_here or any(
            value.producer() is not None for value in constants
        ):  # nodes, in a local function
            return self.emit(op_type, inputs, attributes)
        known = self.context.written.get(key)
        if known is not None and (known.producer() is None or known.producer().graph is self.graph):
            return known
        before = len(self.written)
        result = self.context.written[key] = self.emit(op_type, inputs, attributes)
        nodes = self.written[before:]  # none when the table is a constant
        if nodes:
            self.graph.remove(nodes)
            if source is None:
                self.graph.insert_before(self.graph[0], nodes)
            else:
                self.graph.insert_after(source, nodes)
        return result

    def weight(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A tensor that a rule computed from others, of this name or one like it: a small one is the constant that holds the same, as those of a file are."""
        tensor.name = self.context.names.unique(name)
        return self.stored_once(tensor)

    def stored_once(self, tensor: ir.TensorProtocol) -> ir.Value:
        """A tensor under its name, or the constant that holds the same."""
        if not is_shared(tensor.size, tensor.dtype):
            return self.initializer(tensor.name, tensor)
        key = content_of(tensor.numpy())
        if key not in self.context.constants:
            self.context.share(key, self.initializer(tensor.name, tensor))
        return self.context.constants[key]

    def lazy_weight(
        self, name: str, compute: Callable[[], np.ndarray], dtype: ir.DataType, shape: Iterable[int]
    ) -> ir.Value:
        """A weight of this name, or one like it, that is computed whenever it is read: it takes no memory before the model is written."""
        name = self.context.names.unique(name)
        tensor = ir.LazyTensor(
            lambda: ir.Tensor(compute(), dtype, name=name), dtype=dtype, shape=ir.Shape(shape), name=name
        )
        return self.stored_once(tensor)

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


Operator = tuple[str, str]
"""Domain and name."""

Candidate = tuple[Rule, Finder]
"""A rule that may match at some nodes, and what finds its matches there."""

MOST_CANDIDATES = 4096
"""Neighbourhoods whose rules are remembered."""


@dataclasses.dataclass
class Index:
    """Rules by the operators that they look at; made once for a choice of rules.

    Attributes:
        rules: by the operator of the root.
        depths: how many nodes the deepest pattern looks back from an operator that is its root.
        inner: the same from an operator below its root.
        candidates: the rules that may match a node, and what finds their matches there, by what `candidates_at` was asked.
    """

    rules: dict[Operator, list[Rule]]
    depths: dict[Operator, int]
    inner: dict[Operator, int]
    candidates: dict[tuple, list[Candidate]]

    def candidates_at(self, kinds: tuple) -> list[Candidate]:
        """The rules that may match a node of this domain, this operator and these kinds of inputs: models have the same ones."""
        known = self.candidates.get(kinds)
        if known is None:
            if len(self.candidates) >= MOST_CANDIDATES:
                self.candidates.clear()
            known = self.candidates[kinds] = [
                (item, finder_of(item.pattern, kinds))
                for item in self.rules.get(kinds[:2], ())
                if may_match(item.pattern, kinds)
            ]
        return known


@functools.lru_cache(maxsize=64)
def index_of(rules: tuple[Rule, ...], folds: bool) -> Index:
    """The index of these rules; with *folds*, constants are computed too."""
    index = Index(*(collections.defaultdict(kind) for kind in (list, int, int)), {})
    for member in rules:
        for operator in member.pattern.operators:
            key = member.pattern.domain, operator
            index.rules[key].append(member)
            index.depths[key] = max(index.depths[key], member.pattern.depth)
        for node in inner_nodes(member.pattern):
            for operator in node.operators:
                index.inner[node.domain, operator] = max(index.inner[node.domain, operator], node.depth)
    for operator in FOLDED if folds else ():
        index.depths["", operator] = max(index.depths["", operator], 1)
    return index


class Reaches(dict[ir.Node, tuple[int, int]]):
    """How many nodes patterns look back from a node, as their root and as a node below it: looked up once for each node."""

    def __init__(self, index: Index):
        super().__init__()
        self.index = index

    def __missing__(self, node: ir.Node) -> tuple[int, int]:
        operator = node.domain, node.op_type
        reach = self[node] = self.index.depths.get(operator, 0), self.index.inner.get(operator, 0)
        return reach


class Engine:
    """Applies rules to one graph, or to one local function, until nothing changes.

    Only the rules whose operators stand before a node are tried on it; with *folds*, constants are computed too.

    Attributes:
        may_tell_sizes: whether a value has become a small constant, or integers in a row have been replaced: sizes may be known now.
        written: the nodes that rules wrote, removed ones too.
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
        self.index = index_of(
            tuple(item for item in rules if item.is_for(context.opset, context.special_values)), folds
        )
        self.reaches = Reaches(self.index)
        self.reach = max(self.index.depths.values(), default=0)
        # all that may match, and those among them that look further
        self.candidates: dict[tuple, tuple[list[Candidate], list[Candidate]]] = {}
        self.kinds = Kinds()
        self.present: set[str] = set()
        # of the first walk: what stands behind one of them waits too, it needs no push
        self.unseen: set[ir.Node] = set()
        self.queue: collections.deque[ir.Node] = collections.deque()
        self.waiting: set[ir.Node] = set()  # those of the queue
        self.unsettled: dict[ir.Node, None] = {}  # where a rule declined that looks further than its pattern
        self.left: dict[ir.Value, None] = {}  # weights that have lost a reader
        self.limit = 100
        self.op: Rewriter | None = None  # of the node looked at last, as long as it has written nothing
        self.may_tell_sizes = False
        self.written: set[ir.Node] = set()

    def run(
        self,
        nodes: Collection[ir.Node],
        stop_after: int | None = None,
        step: Callable[[], object] = nothing,
    ) -> None:
        """Apply the rules to all nodes of the graph in order, and to what changes; at most *stop_after* rewritings in all, a *step* a node.

        Called once more, it looks at the nodes given then. Raises OptimizationError when a rule does not end.
        """
        walk: Collection[ir.Node] = ()
        if self.present:
            self.push_new(nodes)
        else:
            walk, self.unseen, self.present = nodes, set(nodes), {node.op_type for node in nodes}
        applications, again = self.report.applications, self.taken_unsettled()
        self.limit = max(self.limit, len(applications) + BUDGET * (len(walk) + len(self.queue)) + 100)
        self.op = None
        with self.context.at(self.context.origin):  # each rewriter has its own
            while walk or self.queue or again:
                before = len(applications)
                self.look_at(again, stop_after, further=True)
                self.look_at(self.pending(walk, step), stop_after)
                walk = again = ()
                if len(applications) > before:
                    again = self.taken_unsettled()
                    self.push_last_readers()

    def taken_unsettled(self) -> Collection[ir.Node]:
        """Where rules that look further than their pattern declined since this was asked last."""
        taken, self.unsettled = self.unsettled, {}
        return taken

    def pending(self, walk: Collection[ir.Node], step: Callable[[], object]) -> Iterator[ir.Node]:
        """The nodes of the first walk, a *step* each, then those of the queue, which grows meanwhile."""
        unseen, queue, waiting = self.unseen, self.queue, self.waiting
        takes_steps = step is not nothing
        for node in walk:
            if takes_steps:
                step()
            unseen.discard(node)
            yield node
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            yield node

    def look_at(self, nodes: Iterable[ir.Node], stop_after: int | None, further: bool = False) -> None:
        """Apply the rules to nodes, those that look *further* alone where their patterns saw no change; *stop_after* so many rewritings none waits any more."""
        candidates, kinds = self.candidates, self.kinds
        applications = self.report.applications
        for node in nodes:
            if node.graph is None:
                continue
            before = node.domain, node.op_type, *map(kinds.__getitem__, node.inputs)
            known = candidates.get(before)
            if known is None:
                known = candidates[before] = self.candidates_of(before)
            members = known[further]
            if not members:
                continue
            if stop_after is not None and len(applications) >= stop_after:
                for waiting in (self.unseen, self.queue, self.waiting):
                    waiting.clear()
                return
            if self.is_rewritten(node, members) and len(applications) > self.limit:
                counts = collections.Counter(name for name, _ in applications)
                raise OptimizationError(f"the rule {counts.most_common(1)[0][0]} does not end")

    def candidates_of(self, kinds: tuple) -> tuple[list[Candidate], list[Candidate]]:
        """The rules that may match a node of these operators here, and those among them that look further: asked once for each neighbourhood that a model has."""
        domain, operator, *inputs = kinds
        members = [
            (item, finder)
            for item, finder in self.index.candidates_at(kinds)
            if not any(group.isdisjoint(self.present) for group in item.needed)
        ]
        if self.folds and not domain and operator in FOLDED and inputs and all(map(is_constant, inputs)):
            members.insert(0, (constant_folding, finder_of(constant_folding.pattern, kinds)))
        return members, [candidate for candidate in members if candidate[0].looks_further]

    def push_new(self, nodes: Collection[ir.Node]) -> None:
        """Look at nodes that were never seen; an operator that is new may let rules match that need it."""
        operators = {node.op_type for node in nodes}
        if not operators <= self.present:
            self.present |= operators
            self.candidates.clear()
        self.push(nodes)

    def push(self, nodes: Iterable[ir.Node]) -> None:
        """Have another look at these nodes."""
        unseen, waiting = self.unseen, self.waiting
        for node in nodes:
            if node not in unseen and node not in waiting:
                waiting.add(node)
                self.queue.append(node)

    def push_last_readers(self) -> None:
        """Look again at the last reader of a weight, which may take it; counted once for all that no longer read it: all layers may."""
        for value in self.left:
            if value.const_value is not None and len(value.uses()) == 1:
                self.push(self.users_within_reach(value))
        self.left.clear()

    def is_rewritten(self, root: ir.Node, members: Iterable[Candidate]) -> bool:
        """Whether one of the rules has replaced the results of a node."""
        context, op = self.context, self.op
        for member, finder in members:
            for found in finder(root):
                if op is None or op.written:  # who declines before it writes leaves it as it was
                    op = self.op = Rewriter(root, context)
                elif op.anchor is not root:
                    op.stand_before(root)
                if op.graph is not context.root and not stand_together(found[""], op.graph):
                    continue
                repaired = context.repaired
                try:
                    result = member.rewrite(op, found, root)
                except (Untranslatable, onnx.checker.ValidationError) as error:
                    # the operator set, or a dtype of it, lacks what the rule writes, or a value of the file has a dtype that it cannot have
                    result = no(str(error))
                if context.repaired > repaired and len(op.written) >= len(found[""]):
                    result = no("the runtime needs it otherwise")  # what it needs stood there: no end
                if result is None or type(result) is Declined:
                    if member.looks_further:
                        self.unsettled[root] = None
                    if op.written:
                        op.graph.remove(op.written, safe=True)
                    if result is not None:
                        self.report.declined[member.name, result.reason] += 1
                    continue
                self.report.applications.append((member.name, root.name or root.outputs[0].name or ""))
                self.replace(member, op, root, replacements(member, root, result))
                return True
        return False

    def replace(self, member: Rule, op: Rewriter, root: ir.Node, values: Mapping[ir.Value, ir.Value]) -> None:
        """Use other values instead of the results of *root* and of nodes before it, and queue what this may allow."""
        for old, new in values.items():
            if not isinstance(old, ir.Value):
                raise OptimizationError(f"the rule {member.name} replaces {old!r}, which is no value")
            if new is None and not (old.uses() or old.is_graph_output()):
                continue
            if not isinstance(new, ir.Value):
                raise OptimizationError(f"the rule {member.name} gives {new!r}, which is no value")
            check_types(member, old, new)
            if old is new:
                continue
            self.may_tell_sizes |= is_small(new) or may_be_sizes(old)
            shape = new.shape
            if old.is_graph_output():
                new = self.as_output(op, old, new)
            elif new.shape is None or (old.shape is not None and new.producer() in op.written):
                new.shape = joined_shape(old.shape, new.shape)
            if new.shape is not shape and new.producer() is not None:
                self.push([new.producer()])  # rules may ask for the shape that it has now
            if new.type is None:
                new.type = old.type
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.push_new(op.written)
        self.written.update(op.written)
        for value in filter(None, values.values()):
            self.push(self.users_within_reach(value))
        if root.graph is not None:
            self.remove_unused([*op.written, *dict.fromkeys(old.producer() for old in values), root])

    def as_output(self, op: Rewriter, old: ir.Value, new: ir.Value) -> ir.Value:
        """*new* under the name of the graph output *old*; a copy when it is an input, a constant, another output or an outer value."""
        if not may_be_output(new, op.graph):
            new = op.copy(new)
        old.name, new.name = self.context.names.unique(f"{old.name}_replaced"), old.name
        new.type, new.shape = old.type or new.type, joined_shape(old.shape, new.shape)
        say_the_same(new, old)
        return new

    def users_within_reach(self, value: ir.Value) -> list[ir.Node]:
        """The nodes seen before whose patterns are deep enough to see *value*."""
        found: list[ir.Node] = []
        seen: set[ir.Node] = set()
        level = [value]
        reaches, unseen = self.reaches, self.unseen
        for distance in range(self.reach):
            next_level = []
            for item in level:
                uses = item.uses()
                for user, _ in uses if len(uses) <= MOST_READERS else ():
                    if user in unseen or user in seen:
                        continue
                    seen.add(user)
                    depth, inner = reaches[user]
                    if depth > distance:
                        found.append(user)
                    if inner > distance:
                        next_level += user.outputs
            if not next_level:
                break
            level = next_level
        return found

    def remove_unused(self, nodes: list[ir.Node]) -> None:
        """Remove nodes whose results nothing uses, and those that only they used; queue what now has fewer users."""
        removed = collections.defaultdict(list)
        while nodes:
            node = nodes.pop()
            graph = node.graph
            if graph is None or is_read(node.outputs):
                continue
            inputs = dict.fromkeys(values_read_by(node))
            detach(node)
            removed[graph].append(node)
            for value in inputs:
                if value is None:
                    continue
                producer = value.producer()
                if producer is None:
                    self.left[value] = None
                    continue
                left = len(value.uses())
                if not left:
                    nodes.append(producer)
                elif left <= FEW and self.reaches[producer][1] > 0:
                    self.push(self.users_within_reach(value))
        for graph, members in removed.items():  # together: each call looks at all outputs of the graph
            graph.remove(members)


def stand_together(nodes: Iterable[ir.Node], graph: ir.Graph | ir.Function) -> bool:
    """Whether the nodes that a rule replaces are all of one graph: what stands around a Loop runs once, what is written in it at each turn."""
    return all([node.graph is graph for node in nodes])


def may_be_sizes(value: ir.Value) -> bool:
    """Whether a value may be what a shape is made of: integers, one or in a row."""
    return value.dtype is ir.DataType.INT64 and (value.shape is None or len(value.shape) <= 1)


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
    before, after = old.dtype, new.dtype
    if before is not after and before is not None and after is not None:
        raise OptimizationError(
            f"the rule {member.name} replaces {before.name} by {after.name}, or the model tells another dtype of {old.name!r} than its node gives"
        )
    before, after = old.shape, new.shape
    if before is not None and after is not None and len(before) != len(after):
        raise OptimizationError(f"the rule {member.name} replaces {before} by {after}")
