"""Rules: a pattern, and one function that checks and rewrites."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.inference import schema_of
from experimental_experiment.torch_interpreter.producers import attributes_of
from experimental_experiment.torch_interpreter.runtime import kernels, table
from experimental_experiment.xoptim.pattern import Either, NodePattern, Var, alternatives, needed_by

SETS: dict[str, dict[str, Rule]] = {"default": {}, "onnxruntime": {}}
"""The rules by set and name: standard ONNX only, and operators of onnxruntime."""


@dataclasses.dataclass(frozen=True)
class Declined:
    """Why a rule does not apply where its pattern matches."""

    reason: str


def again(op: Any, node: ir.Node, inputs: Sequence[ir.Value | None], **changed: Any) -> ir.Value:
    """The first result of *node* written once more, in the form of its operator set, with other inputs and some attributes *changed*.

    What the runtime needs instead is written where it needs it: the engine then declines a rule that gains nothing. The rows of the
    runtime read the newest form of an operator, not those that an old operator set has.
    """
    attributes = attributes_of(node) | changed
    rows = () if node.domain else op.context.rows.get(node.op_type, ())
    is_newest = all(row.before is None for row in rows) and attributes.keys() <= newest_attributes(
        node.op_type
    )
    repaired = table.rewritten(op, rows, inputs, attributes, None) if is_newest else None
    return once_more(op, node, inputs, **changed)[0] if repaired is None else repaired


def once_more(
    op: Any, node: ir.Node, inputs: Sequence[ir.Value | None], outputs: int | None = None, **changed: Any
) -> Sequence[ir.Value]:
    """The results of *node*, or so many *outputs*, written with other inputs and some attributes *changed*, None for those that it loses. Unlike `again` it asks no row of the runtime.

    It is for rules that only give an operator other inputs: what a row would write otherwise, as halves in float32, stood there before.
    """
    count = len(node.outputs) if outputs is None else outputs
    attributes = {name: kept for name, kept in (attributes_of(node) | changed).items() if kept is not None}
    return op.append(node.op_type, inputs, attributes, count, node.domain).outputs


@functools.cache
def newest_attributes(op_type: str) -> frozenset[str]:
    """The attributes of the newest form of an operator of ONNX; an older one may have attributes in the place of inputs."""
    schema = schema_of(op_type, onnx.defs.onnx_opset_version(), "")
    return frozenset() if schema is None else frozenset(schema.attributes)


def computes(op: Any, op_type: str, dtype: ir.DataType | None) -> bool:
    """Whether the runtime computes an operator of ONNX in this dtype without a cast around it."""
    known = dtypes.constraints(op_type, op.opset)
    computed = kernels.computed(op_type, op.opset, op.context.runtime)
    return known is not None and dtype in computed.get(known.variable(0), ())


def no(reason: str) -> Declined:
    """Decline, with a reason for the report."""
    return Declined(reason)


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """One rewriting.

    Attributes:
        pattern: what is replaced; `Either` of several when it is written in several ways.
        function: ``function(op, **names of the pattern)`` writes with *op* and returns the value that replaces the root's result
            (a sequence for several, None in it for one that nothing uses), None or `no` to leave it. A mapping, old value to
            new one, also replaces results of nodes before the root: nothing but the matched nodes may read those, unless
            what was written has been moved before them (``op.move_after``).
        parameters: the names that the function lists.
        set: the set that it is registered in, "" for none.
        since: the first version of ai.onnx in which it applies.
        before: the first version in which it no longer applies, None for no such version.
        special_values: whether NaN and the sign of zero stay as they are; otherwise ``to_onnx(special_values=True)`` leaves it out.
        looks_further: whether the function reads inputs of nodes that the pattern does not name, or asks what reads a value.
    """

    pattern: NodePattern | Either
    function: Callable
    parameters: tuple[str, ...]
    set: str = ""
    since: int = 1
    before: int | None = None
    special_values: bool = True
    looks_further: bool = False

    @functools.cached_property
    def name(self) -> str:
        """The name of the function in capitals: ``transpose_transpose`` is TransposeTranspose."""
        return "".join(part.capitalize() for part in self.function.__name__.split("_"))

    @property
    def place(self) -> str:
        """The file that holds it."""
        return self.function.__module__.removeprefix("experimental_experiment.").replace(".", "/") + ".py"

    @functools.cached_property
    def needed(self) -> frozenset[frozenset[str]]:
        """Groups of operators, one of which each match has."""
        return needed_by(self.pattern)

    @functools.cached_property
    def absent(self) -> dict[str, None]:
        """What the names of the pattern stand for where no part of a match has them."""
        return dict.fromkeys(names_of(self.pattern))

    def is_for(self, opset: int, special_values: bool) -> bool:
        """Whether it is a rule for this version of ai.onnx, and one that keeps special values when these are to stay."""
        if special_values and not self.special_values:
            return False
        return self.since <= opset and (self.before is None or opset < self.before)

    def rewrite(self, op: Any, found: dict[str, Any], root: ir.Node) -> Any:
        """What the function makes of a match, to which the root is added."""
        if "found" in self.parameters:
            found["found"] = {**self.absent, **found}
        found["root"] = root
        return self.function(op, *map(found.get, self.parameters))


def rule(
    pattern: NodePattern | Either,
    *,
    set: str | None = None,
    since: int = 1,
    before: int | None = None,
    special_values: bool = True,
    looks_further: bool = False,
) -> Callable[[Callable], Rule]:
    """Make a rule of a function, see `Rule`, for the versions of ai.onnx from *since* on and *before* another one.

    With *set*, register it there under its name. ``special_values=False`` says that NaN or the sign of zero may change.
    ``looks_further=True`` says that the function reads inputs of nodes that the pattern does not name, or asks what reads a value: where it
    declined, it is asked again after any change.

    The function lists the names of the pattern that it needs, ``root`` for the node that is replaced, ``found`` for all names in a dict.

    Raises:
        TypeError: the function lists a name that the pattern does not have, or one by keyword only, or the pattern may be a value
            without a node.
        ValueError: there is no such set, or it has a rule of that name.
    """
    if set is not None and set not in SETS:
        raise ValueError(f"there is no set of rules {set!r}: the sets are {', '.join(SETS)}")

    def made(function: Callable) -> Rule:
        roots = alternatives(pattern)
        domains = {root.domain if isinstance(root, NodePattern) else None for root in roots}
        if len(domains) > 1 or None in domains:
            raise TypeError(f"{function.__name__}: a rule replaces nodes of one domain")
        listed = inspect.signature(function).parameters
        if any(item.kind is item.KEYWORD_ONLY for item in listed.values()):
            raise TypeError(f"{function.__name__}: the names are given by position, none by keyword only")
        parameters = tuple(listed)[1:]
        unknown = {*parameters} - names_of(pattern) - {"root", "found"}
        if unknown:
            raise TypeError(f"{function.__name__}: the pattern has no name {sorted(unknown)}")
        result = Rule(pattern, function, parameters, set or "", since, before, special_values, looks_further)
        if set is not None:
            if any(result.name in members for members in SETS.values()):
                raise ValueError(f"there are two rules {result.name}")
            SETS[set][result.name] = result
        return result

    return made


def names_of(pattern: Any) -> set[str]:
    """The names in a pattern."""
    if isinstance(pattern, Var):
        return {pattern.name}
    if isinstance(pattern, Either):
        return {name for item in pattern.patterns for name in names_of(item)}
    if not isinstance(pattern, NodePattern):
        return set()
    return {pattern.name} - {""} | {name for item in pattern.inputs or () for name in names_of(item)}


def chosen(patterns: str | Iterable[str | Rule] | None) -> list[Rule]:
    """The rules of a choice: None for none; names of sets and rules joined by + and - (``"default-CastCast"``), or a list of them.

    Raises ValueError for a name that is neither, with the nearest ones; TypeError for anything else.
    """
    if patterns is None:
        return []
    items = list(patterns) if isinstance(patterns, Iterable) else [patterns]
    if not isinstance(patterns, Iterable) or any(not isinstance(item, (str, Rule)) for item in items):
        raise TypeError(f"patterns is a text of names, or a list of names and rules, not {patterns!r}")
    found: dict[str, Rule] = {}
    parts = signed(patterns) if isinstance(patterns, str) else [("+", item) for item in items]
    for sign, item in parts:
        named = {item.name: item} if isinstance(item, Rule) else by_name(item.strip())
        for name, member in named.items():
            if sign == "-":
                found.pop(name, None)
            else:
                found[name] = member
    return list(found.values())


def signed(patterns: str) -> list[tuple[str, str]]:
    """The names of a text, each with the sign before it. Raises ValueError for a sign without a name behind it."""
    first, *rest = re.split(r"([+-])", patterns)
    parts = [("+", first)] if first.strip() else []
    for sign, name in zip(rest[::2], rest[1::2]):
        if not name.strip():
            raise ValueError(f"patterns is {patterns!r}, with no name of a set or a rule behind a {sign}")
        parts.append((sign, name))
    return parts


def by_name(name: str) -> dict[str, Rule]:
    """The rules of a set, or the rule of this name."""
    if name in SETS:
        return SETS[name]
    for members in SETS.values():
        if name in members:
            return {name: members[name]}
    known = [*SETS, *(member for members in SETS.values() for member in members)]
    close = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f", did you mean {' or '.join(close)}?" if close else f": the sets are {', '.join(SETS)}"
    raise ValueError(f"there is no set of rules and no rule {name!r}{hint}")


def markdown() -> str:
    """``docs/patterns.md``: the rules of each set by file, what they do and what was measured."""
    lines = [
        "# Rules of the optimizer",
        "",
        "Generated by `python -m experimental_experiment patterns`; a test keeps it current. `default` writes standard ONNX only and is",
        "what `to_onnx(..., optimize=True)` and `optimize` apply; `onnxruntime` writes operators of com.microsoft, and several nodes",
        'where its kernel of one is slower: `target_opset={"": 20, "com.microsoft": 1}`, or',
        '`OptimizationOptions("default+onnxruntime")`. Ratios are times after to times before, in onnxruntime on',
        "one thread. The files are those of `xoptim/patterns` and `xoptim/patterns_ort`.",
    ]
    for name, members in SETS.items():
        lines += [
            "",
            f"## {name}",
            "",
            "| rule | instead of | opset | becomes | measured | file |",
            "|---|---|---|---|---|---|",
        ]
        for member in sorted(members.values(), key=lambda item: (item.place, item.name)):
            promise, _, measured = (inspect.getdoc(member.function) or "").partition("\n\n")
            roots = ", ".join(sorted(member.pattern.operators))
            cells = (" ".join(text.split()).rstrip(".").replace("|", "\\|") for text in (promise, measured))
            until = "" if member.before is None else f" to {member.before - 1}"
            versions = f"from {member.since}{until}" if member.since > 1 else until.strip()
            file = member.place.rpartition("/")[2]
            lines.append(f"| {member.name} | {roots} | {versions} | {' | '.join(cells)} | {file} |")
    return "\n".join(lines) + "\n"
