"""What a captured program assumes of sizes: judged against its example, told in the words of the user.

Dimensions that torch.export kept at their size become static; what branches, operators and guards take for granted is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Min
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.assumptions.counts import leave_out_same_counts
from experimental_experiment.torch_interpreter.assumptions.decisions import (
    CONVOLUTION,
    Assumed,
    Decision,
    Decisions,
    bounds_of_slices,
    constants_of,
    equation_of_remainder,
    has_writes,
    is_equation_of_sizes,
    refuse_misfit_example,
)
from experimental_experiment.torch_interpreter.assumptions.sharing import Shared, shared_copies
from experimental_experiment.torch_interpreter.assumptions.wording import allowed, written
from experimental_experiment.torch_interpreter.assumptions.written_slices import written_slices
from experimental_experiment.torch_interpreter.certainty import Known
from experimental_experiment.torch_interpreter.errors import Source, located, source_line
from experimental_experiment.torch_interpreter.signature import Input

WITHIN = (
    "the model takes a size that cuts another one for the smaller one, or both for equal, as they are in the example: torch.export does "
    "not capture it otherwise"
)
"""What is said of a capture that cannot do without."""

ITSELF = (
    "or else the copy is the tensor itself, and shows what is written to it: clone() copies for all sizes"
)
"""What is said of a copy that eager does not always make."""

COMPUTED = re.compile(r"(?:-?\d+\*)?([^\W\d]\w*)(?: [+-] \d+)?")
"""A name of a size, or what ``2 * rows + 1`` is called, of the Dim ``rows``."""


def judge(inputs: list[Input], module: torch.fx.GraphModule, decisions: Decisions) -> None:
    """Check what torch.export decided about the sizes of the inputs, before the program is translated.

    A dimension called dynamic that it kept at its size becomes static, with a warning. Another warning tells what the
    branches of the model, those of its squeezes and slices too, and its equations of sizes assume as in the example.

    Raises CaptureError when the example itself contradicts what the program assumes.
    """
    kept, bounds = [*decisions.taken_for_granted(module)], [*bounds_of_slices(module)]
    shared = [*shared_copies(module)]
    deferred = [decision.environment for decision in [*decisions.repeated.values(), *shared]]
    environment = environment_of(inputs) or next(
        (size.node.shape_env for size, *_ in kept), next(iter(deferred), None)
    )
    if decisions.takes_within:
        logger.warning(WITHIN)
    if environment is None:
        return
    refuse_misfit_example(environment, decisions, kept)
    make_static(environment, inputs, decisions)
    note_written_slices(module, decisions)
    leave_out_same_counts(module, decisions.repeated)
    tell(conditions(environment, inputs, kept, bounds, decisions, has_writes(module), shared))


def note_written_slices(module: torch.fx.GraphModule, decisions: Decisions) -> None:
    """Note the axes that a slice is filled of, as branches on whether there is anything are."""
    for environment, size, source in written_slices(module):
        decisions.emptied.setdefault((environment, size), source)


def is_for_sizes_from_two(inputs: list[Input], module: torch.fx.GraphModule, decisions: Decisions) -> bool:
    """Whether what a program assumes is proven for all sizes of its inputs from 2 on: it is the program of them all."""
    environment = environment_of(inputs)
    if environment is None or decisions.takes_within:
        return False
    telling = Telling(environment, inputs, decisions, has_writes(module))
    telling.gather([*decisions.taken_for_granted(module)], [*bounds_of_slices(module, all_of_them=True)])
    ranges = telling.declared.ranges
    sizes = {size.node.expr for _, axis, size in symbolic_sizes(inputs) if axis is not None}
    known = Known({**ranges, **{symbol: from_two(ranges[symbol]) for symbol in sizes & ranges.keys()}})
    return not telling.has_equal_sizes and all(
        known.makes_certain(environment, condition) for condition in telling.told
    )


def from_two(range_: ValueRanges) -> ValueRanges:
    """The part of the range of a size that torch takes for possible."""
    return ValueRanges(2, range_.upper) if range_.lower < 2 <= range_.upper else range_


def judge_operators(inputs: list[Input], module: torch.fx.GraphModule) -> None:
    """Tell what the operators of a program that was captured elsewhere assume; nobody wrote down its branches."""
    shared, decisions = [*shared_copies(module)], Decisions()
    kept, bounds = [*decisions.taken_for_granted(module)], [*bounds_of_slices(module)]
    note_written_slices(module, decisions)
    found = [size.node.shape_env for size, *_ in [*kept, *bounds]]
    found += [*(each.environment for each in shared), *(owner for owner, _ in decisions.emptied)]
    if found:
        tell(conditions(environment_of(inputs) or found[0], inputs, kept, bounds, decisions, shared=shared))


def tell(assumed: list[str]) -> None:
    """Warn about what the model assumes of sizes, if there is anything."""
    if assumed:
        logger.warning(
            "the model holds the branches that the example took, those of sizes where\n%s", "\n".join(assumed)
        )


def environment_of(inputs: list[Input]) -> Any:
    """The ShapeEnv of the symbolic sizes of the inputs, None when all are static."""
    for _, _, size in symbolic_sizes(inputs):
        return size.node.shape_env
    return None


def symbolic_sizes(inputs: list[Input]) -> Iterator[tuple[Input, int | None, Any]]:
    """Input, axis and size of each symbolic size of an input; the axis of a number is None."""
    for entry in inputs:
        value = entry.node.meta.get("val")
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for axis, size in sizes:
            if isinstance(size, (torch.SymInt, torch.SymFloat)):
                yield entry, axis, size


def make_static(environment: Any, inputs: list[Input], decisions: Decisions) -> None:
    """Make the sizes constants that a guard keeps at one value: torch allows it when an example size is 0 or 1.

    It does so of numbers, for which it may have put their values already: nothing but a warning tells that the model does not read them.
    """
    constants = constants_of(environment)
    for entry, axis, size in list(symbolic_sizes(inputs)):
        symbol = size.node._expr if axis is None else size.node.expr
        if symbol in constants:
            source = decisions.obstacle if constants[symbol] == 1 else None
            source = source or decisions.source_of(sympy.Eq(symbol, constants[symbol]))
            logger.warning(
                "%s is %s in the model, as in the example: torch.export did not keep it dynamic%s",
                place(entry, axis),
                constants[symbol],
                f"\n{located(source)}" if source else "",
            )
    replace_constants(environment)


def replace_constants(environment: Any) -> None:
    """Put their values in the place of the sizes that a guard keeps at one."""
    for symbol, number in constants_of(environment).items():
        # torch replaces no size that it was told to treat as if it were not 1
        environment.size_like.discard(symbol)
        environment._set_replacement(symbol, number, "kept at its size in the example")


def conditions(
    environment: Any,
    inputs: list[Input],
    kept: list[Assumed],
    bounds: list[Assumed],
    decisions: Decisions,
    writes: bool = False,
    shared: Iterable[Shared] = (),
) -> list[str]:
    """What the model assumes of the sizes of its inputs, with the lines that do; *writes*: see `Telling`; *shared*: its copies that are views for others."""
    telling = Telling(environment, inputs, decisions, writes)
    known = telling.gather(kept, bounds)
    telling.of_copies(shared, known)
    telling.of_data()
    telling.of_nothing()
    return telling.lines()


class Telling:
    """What the model assumes of the sizes of its inputs, gathered in passes over what was asked, the operators and the guards.

    Attributes:
        environment: the ShapeEnv of the inputs.
        inputs: these.
        decisions: those of the capture.
        writes: whether the model writes into tensors, for which the layout of memory matters.
        asked: those of them that were asked of *environment*.
        names: how the user calls the symbols.
        firsts: the first symbol of each name.
        same: the first symbol of the same name, by symbol: sizes of one name are one.
        declared: what is known before anything is asked.
        declared_sizes: what the user calls the sizes as torch had them first.
        found: the line that assumes it, by each condition in words.
        told: the conditions, in torch's symbols.
        has_equal_sizes: whether a branch made one size of several, which no condition of *told* says.
        known: what `settled` has answered.
    """

    def __init__(self, environment: Any, inputs: list[Input], decisions: Decisions, writes: bool = False):
        self.environment = environment
        self.inputs = inputs
        self.decisions = decisions
        self.writes = writes
        self.asked = [decision for decision in decisions if decision.environment is environment]
        self.names = names_of(inputs)
        self.firsts: dict[sympy.Symbol, sympy.Symbol] = {}
        self.same = {symbol: self.firsts.setdefault(name, symbol) for symbol, name in self.names.items()}
        self.declared = Known(declared_ranges(environment, inputs, self.asked))
        self.declared_sizes = sizes_in_the_users_words(inputs)
        self.found: dict[str, str] = {}
        self.told: list[sympy.Basic] = []
        self.has_equal_sizes = False
        self.known: dict[sympy.Basic, sympy.Basic] = {}

    def gather(self, kept: list[Assumed], bounds: list[Assumed]) -> Known:
        """Tell all of it; *kept*: what squeezes, slices and questions of layouts assume; *bounds*: what slices do, of their bounds. Returns what is known then."""
        known, before = self.of_decisions()
        self.of_operators(kept, known)
        self.of_bounds(bounds, before)
        self.of_guards(before)
        return known

    def of_copies(self, shared: Iterable[Shared], known: Known) -> None:
        """Tell that a copy is one for all sizes but some, where what is written to it, or to what it copies, matters."""
        for each in shared:
            condition = self.settled(each.condition)
            if condition != sympy.true and not known.makes_certain(self.environment, condition):
                names = {**self.sizes_of(each.copies), **self.names}
                self.note(f"{written(condition, names)}, {ITSELF}", source_line(each.copies[-1]))

    def sizes_of(self, copies: Iterable[torch.fx.Node]) -> dict[sympy.Symbol, sympy.Symbol]:
        """What to call the sizes of copies that the data decide."""
        return {
            size.node.expr: sympy.Symbol(f"{copy.name}.shape[{axis}]", integer=True)
            for copy in copies
            for axis, size in enumerate(copy.meta["val"].shape)
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
        }

    def of_decisions(self) -> tuple[Known, dict[sympy.Basic, Known]]:
        """Tell what branches and decompositions assume; what is known after all that was asked, and before each condition was."""
        known, before = self.declared, dict[sympy.Basic, Known]()
        for decision in self.asked:
            before.setdefault(decision.condition, known)
            condition = self.settled(decision.condition)
            is_assumed = (decision.is_branch or decision.is_decomposition) and self.is_of_inputs(condition)
            if is_assumed and not decision.is_check:  # where a check does not hold, eager raises
                self.assume(condition, known, decision.source)
            if decision.is_broadcast:
                is_assumed |= self.of_broadcast(condition, known, decision.source)
            if decision.makes_sizes_one:
                equation = decision.condition.xreplace(self.declared_sizes)
                if equation != sympy.true:
                    self.has_equal_sizes = True
                    self.note(written(equation, {}), decision.source)
            if is_assumed or decision.is_check:
                # a convolution raises unless all sizes of its result are positive, torch's check of it when none is
                is_any = decision.asker == CONVOLUTION and isinstance(condition, sympy.Or)
                for part in condition.args if is_any else [condition]:
                    known = known.learn(part)
        return known, before

    def of_broadcast(self, condition: sympy.Basic, known: Known, source: Source | None) -> bool:
        """Tell that two computed sizes are equal where one of them may be 1: eager repeats what has one element, and raises for others.

        Returns whether it is told. Sizes of inputs that have to be equal have one name in the model.
        """
        is_equation = isinstance(condition, sympy.Eq) and not any(side.is_number for side in condition.args)
        if not is_equation or not self.is_of_inputs(condition) or condition.reversed in self.told:
            return False
        if all(known.makes_certain(self.environment, sympy.Ge(side, 2)) for side in condition.args):
            return False
        self.assume(condition, known, source)
        return True

    def of_data(self) -> None:
        """Tell that a size that the data decide equals another one, which torch asserts: eager repeats what has one element as well."""
        for condition, decision in self.decisions.repeated.items():
            if decision.environment is not self.environment or condition.reversed in self.told:
                continue
            declared = {
                symbol: self.declared.ranges[symbol] for symbol in condition.free_symbols & set(self.names)
            }
            ranges = {**decision.ranges, **declared}
            # the ranges of then: torch takes the equation for granted by now
            if any(bound_sympy(side, ranges).lower < 2 for side in sides_that_differ(condition)):
                self.told.append(condition)
                self.note(written(condition, self.names), decision.source)

    def of_nothing(self) -> None:
        """Tell that a size is not 0 where a branch asks for that, or a slice is written, unless the user says that it is at least 1."""
        least = {
            size.node.expr: entry.bounds.get(axis, (None, None))[0]
            for entry, axis, size in symbolic_sizes(self.inputs)
        }
        for (environment, size), source in self.decisions.emptied.items():
            if environment is self.environment and size in self.names and not least.get(size):
                self.note(f"{self.names[size]} != 0", source)

    def of_operators(self, kept: list[Assumed], known: Known) -> None:
        """Tell what squeezes, slices and questions of layouts assume; where a branch or a check does not hold, the model is not the program's anyway."""
        for _, condition, source in kept:
            condition = self.settled(condition)
            if condition.free_symbols:
                self.assume(condition, known, source)

    def of_bounds(self, bounds: list[Assumed], before: dict[sympy.Basic, Known]) -> None:
        """Tell what slices assume of their bounds, by what is known before they ask: what asks their lengths afterwards knows no others."""
        lines: dict[sympy.Basic, Source | None] = {}
        for _, condition, source in bounds:  # each layer has the same ones
            lines.setdefault(condition, source)
        for condition, source in lines.items():
            known = before.get(condition, before.get(sympy.Not(condition), self.declared))
            condition = self.settled(condition)
            if self.is_of_inputs(condition):
                self.assume(condition, known, source)

    def of_guards(self, before: dict[sympy.Basic, Known]) -> None:
        """Tell the equations of sizes among the guards.

        Left out are those of remainders that a check asks for, where eager raises, and those that only matter to layouts of memory.
        """
        asked = [item for item in self.asked if self.writes or not item.is_layout]
        only_of_layouts = {item.condition for item in self.asked} - {item.condition for item in asked}
        remainders, checked = (
            {equation_of_remainder(item.condition) for item in asked if item.is_check is is_check}
            for is_check in (False, True)
        )
        for guard in self.environment.guards:
            remainder = equation_of_remainder(guard.expr)
            if remainder is None:
                is_equation = is_equation_of_sizes(guard.expr) and guard.expr not in only_of_layouts
            else:  # what is reshaped has to be divisible
                is_equation = remainder in remainders - checked
            # torch keeps the symbol of a size that it found to be another one
            condition = self.settled(guard.expr if remainder is None else remainder)
            if is_equation and self.is_of_inputs(condition):
                known = before.get(guard.expr, self.declared)
                self.assume(condition, known, self.decisions.source_of(guard.expr))

    def settled(self, condition: sympy.Basic) -> sympy.Basic:
        """A condition of the sizes that torch knows now; each layer asks the same ones."""
        if condition not in self.known:
            self.known[condition] = self.environment.replace(condition).xreplace(self.same)
        return self.known[condition]

    def is_of_inputs(self, condition: sympy.Basic) -> bool:
        """Whether a condition is one of sizes of inputs alone."""
        return bool(condition.free_symbols) and condition.free_symbols <= set(self.names)

    def assume(self, condition: sympy.Basic, known: Known, source: Source | None) -> None:
        """Tell a condition, unless what is *known* makes it certain."""
        if not known.makes_certain(self.environment, condition):
            self.told.append(condition)
            self.note(written(condition, self.names), source)

    def note(self, text: str, source: Source | None) -> None:
        """Note a condition in words, and the line that assumes it first."""
        self.found.setdefault(text, located(source) if source else "")

    def lines(self) -> list[str]:
        """What was found, then the sizes for which all of it holds."""
        lines = [f"  {text}\n{line}".rstrip() for text, line in self.found.items()]
        right = [
            sizes_in_words(symbol, self.names[symbol], self.told, self.declared)
            for symbol in self.firsts.values()
        ]
        return [*lines, f"  which are {'; '.join(filter(None, right))}"] if any(right) else lines


def sides_that_differ(equation: sympy.Basic) -> Iterable[sympy.Basic]:
    """The sides of an equation of sizes; where it does not hold, those of ``min(10, rows) == rows`` are 10 and more."""
    left, right = equation.args
    for least, other in ((left, right), (right, left)):
        if isinstance(least, Min) and other in least.args:
            return [bound for bound in least.args if bound != other]
    return left, right


def sizes_in_words(symbol: sympy.Symbol, name: sympy.Symbol, told: list[sympy.Basic], declared: Known) -> str:
    """The values of a size for which what is told of it alone holds, ``""`` when nothing is, or that says it already."""
    own = [condition for condition in told if condition.free_symbols == {symbol}]
    range_ = declared.ranges.get(symbol)
    is_plain = len(own) == 1 and symbol in own[0].args
    if not own or is_plain or range_ is None or not range_.is_int or range_.lower in (-int_oo, -sympy.oo):
        return ""  # a number may be any
    largest = None if range_.upper in (int_oo, sympy.oo) else int(range_.upper)
    return allowed(str(name), symbol, own, int(range_.lower), largest)


def names_of(inputs: list[Input]) -> dict[sympy.Symbol, sympy.Symbol]:
    """How the user calls the symbols of the sizes of the inputs."""
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    for entry, axis, size in symbolic_sizes(inputs):
        expression, name = size.node.expr, entry.dims.get(axis)
        if expression.is_Symbol:
            names.setdefault(expression, sympy.Symbol(name or place(entry, axis), integer=True))
            continue
        computed = COMPUTED.fullmatch(name or "")
        if computed and computed[1] != name:  # 32*k: no axis need have the size k
            for symbol in expression.free_symbols:
                names.setdefault(symbol, sympy.Symbol(computed[1], integer=True))
    return names


def sizes_in_the_users_words(inputs: list[Input]) -> dict[sympy.Symbol, sympy.Basic]:
    """What the user calls the sizes of the inputs, ``2*rows`` for example, as torch had them before it found some to be others."""
    sizes: dict[sympy.Symbol, sympy.Basic] = {}
    for entry, axis, size in symbolic_sizes(inputs):
        if size.node._expr.is_Symbol:
            sizes.setdefault(size.node._expr, in_sympy(entry.dims.get(axis) or place(entry, axis)))
    return sizes


def in_sympy(text: str) -> sympy.Basic:
    """A size by its name, or one that torch.export.Dim computes from another one."""
    computed = COMPUTED.fullmatch(text)
    if computed is None:
        return sympy.Symbol(text, integer=True)
    name = computed[1]
    return sympy.sympify(text.replace(name, "size"), {"size": sympy.Symbol(name, integer=True)})


def declared_ranges(
    environment: Any, inputs: list[Input], asked: list[Decision]
) -> dict[sympy.Symbol, ValueRanges]:
    """Where each symbol was before anything was asked: torch narrows the ranges with what its operators find in the example.

    torch takes sizes for at least 2; only the user's own minimum is one.
    """
    declared: dict[sympy.Symbol, tuple[Any, Any]] = {}
    for entry, axis, size in symbolic_sizes(inputs):
        symbol = size.node.expr
        lower, upper = declared.get(symbol, (-int_oo if axis is None else 1, int_oo))
        least, largest = entry.bounds.get(axis, (None, None))
        declared[symbol] = (
            lower if least is None else max(lower, least),
            upper if largest is None else min(upper, largest),
        )
    ranges: dict[sympy.Symbol, ValueRanges] = {}
    for decision in asked:
        for symbol, range_ in decision.ranges.items():
            if range_ is not None:
                ranges.setdefault(symbol, range_)
    ranges = {**environment.var_to_range, **ranges}
    return {
        symbol: narrowed(range_, *declared.get(symbol, (1 if range_.lower == 2 else -int_oo, int_oo)))
        for symbol, range_ in ranges.items()
    }


def narrowed(range_: ValueRanges, lower: Any, upper: Any) -> ValueRanges:
    """A range between what is declared; from *lower* on where torch only takes a size for at least 2."""
    if not range_.is_int:
        return range_
    lower = lower if range_.lower == 2 else max(range_.lower, lower)
    upper = min(range_.upper, upper)
    return ValueRanges(lower, upper) if lower <= upper else range_


def place(entry: Input, axis: int | None) -> str:
    """How a size of an input is written in Python."""
    return entry.name if axis is None else f"{entry.name}.shape[{axis}]"
