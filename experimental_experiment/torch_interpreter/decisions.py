"""What the example decided: branches on sizes that were taken for good, sizes that torch.export pinned.

An exported program holds one side of ``if x.shape[0] == 1``. torch asks its ShapeEnv for each such decision, in both modes
of the capture; here they are written down with the line that asked, and judged once the program is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch.utils._sympy.functions import Max, Min, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.solve import try_solve
from torch.utils._sympy.value_ranges import ValueRanges

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.assumptions import allowed, written
from experimental_experiment.torch_interpreter.certainty import Known
from experimental_experiment.torch_interpreter.errors import CaptureError, Source, located, source_line
from experimental_experiment.torch_interpreter.frames import (
    TORCH,
    asking_frame,
    is_asked_by_check,
    is_called_by,
    is_decomposition,
    is_library_code,
    line_around,
)
from experimental_experiment.torch_interpreter.operands import is_settled
from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.signature import Input, Program
from experimental_experiment.torch_interpreter.torch_versions import source_name

TRANSFORMATIONS = os.path.join(TORCH, "_functorch", "eager_transforms.py")
"""``torch.func.grad``, ``jvp``, ... in Python."""

CONVOLUTION = "calc_conv_nd_return_shape"
"""The function of torch that computes the shape of a convolution."""

SQUEEZES = tuple(
    overload
    for packet in (torch.ops.aten.squeeze, torch.ops.aten.squeeze_copy)
    for overload in (packet.default, packet.dim, packet.dims)
)
"""What removes an axis where its size is 1, and asks nothing where it is symbolic."""

SLICES = torch.ops.aten.slice.Tensor, torch.ops.aten.slice_copy.Tensor

COMPUTED = re.compile(r"(?:-?\d+\*)?([^\W\d]\w*)(?: [+-] \d+)?")
"""A name of a size, or what ``2 * rows + 1`` is called, of the Dim ``rows``."""

Assumed = tuple[torch.SymInt, sympy.Basic, Source | None]
"""A symbolic size, what the program takes for granted of it, and the line that this matters to."""


@dataclasses.dataclass(frozen=True)
class Decision:
    """One question about sizes that the example answered.

    Attributes:
        environment: the ShapeEnv that was asked.
        expression: what was asked, in torch's symbols.
        result: the answer: a bool for a condition, a number for an expression.
        ranges: the sizes that were possible before.
        source: the innermost line of the model, None when there is none.
        is_branch: whether that line asked itself, rather than an operator that it calls, and the answer matters to it.
        is_check: whether ``torch._check`` asked, which raises for the other answer, whatever the data are.
        is_gradient: whether it was asked inside of a transformation of ``torch.func``.
        is_decomposition: whether the decomposition of an operator asked itself, which is followed node by node.
        asker: the name of the function that asked.
    """

    environment: Any
    expression: sympy.Basic
    result: Any
    ranges: dict[sympy.Symbol, ValueRanges]
    source: Source | None
    is_branch: bool
    is_check: bool = False
    is_gradient: bool = False
    is_decomposition: bool = False
    asker: str = ""

    @property
    def condition(self) -> sympy.Basic:
        """What holds for the example."""
        if not isinstance(self.result, (bool, BooleanAtom)):
            return sympy.Eq(self.expression, self.result)
        return self.expression if self.result else sympy.Not(self.expression)

    @property
    def makes_sizes_one(self) -> bool:
        """Whether a branch of the model found that one size is another one, or computed from it, which torch takes for granted since."""
        if not self.is_branch or self.is_check or not isinstance(self.condition, sympy.Eq):
            return False
        replaced = self.environment.replace
        symbols = self.condition.free_symbols
        return replaced(self.condition) == sympy.true and all(replaced(x).free_symbols for x in symbols)

    def is_named(self, symbol: sympy.Symbol, text: str) -> bool:
        """Whether a message of torch names a size."""
        for source in self.environment.var_to_sources.get(symbol, ()):
            name = source_name(source)
            called = self.environment.source_name_to_debug_name.get(name, name)
            if name in text or f"marked {called} as dynamic" in text:
                return True
        return False


class Decisions:
    """The decisions of one capture, in order.

    Attributes:
        found: by what asked for what, and where.
        obstacle: the line that another example than one of size 1 does not pass, None when none was tried.
    """

    def __init__(self):
        self.found: dict[tuple, Decision] = {}
        self.obstacle: Source | None = None

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.found.values())

    @contextlib.contextmanager
    def recorded(self, follows: bool = False) -> Iterator[None]:
        """Write down what every ShapeEnv is asked.

        *follows*: whether decompositions are followed node by node; where the program holds the operator, what they ask is no matter.
        """
        environments = importlib.import_module("torch.fx.experimental.symbolic_shapes").ShapeEnv
        evaluate = environments.evaluate_expr

        def evaluate_expr(environment, expression, *args, **kwargs):
            asking = sys._getframe(1)
            frame = asking_frame(asking)
            settled = not is_library_code(frame.f_code) and is_settled(frame)
            key = (id(environment), expression, frame.f_code, frame.f_lineno, settled)
            if key in self.found or not getattr(expression, "free_symbols", None):
                return evaluate(environment, expression, *args, **kwargs)
            ranges = {symbol: environment.var_to_range.get(symbol) for symbol in expression.free_symbols}
            result = evaluate(environment, expression, *args, **kwargs)
            source, is_branch = line_around(frame)
            self.found[key] = Decision(
                environment,
                expression,
                result,
                ranges,
                source,
                is_branch and not settled,
                is_check=is_asked_by_check(asking),
                is_gradient=is_called_by(frame, TRANSFORMATIONS),
                is_decomposition=follows and is_decomposition(asking),
                asker=frame.f_code.co_name,
            )
            return result

        with replaced(environments, "evaluate_expr", evaluate_expr):
            yield

    def pin(self, text: str) -> Decision | None:
        """The first decision that made a size constant which *text*, a message of torch, names: ``L['x'].size()[0]``, or
        the name of its Dim.
        """
        for decision in self:
            pinned = solved(decision.condition)
            if pinned is not None and decision.source is not None and decision.is_named(pinned[0], text):
                return decision
        return None

    def last_branch(self, text: str) -> Decision | None:
        """The last branch of the model on one size, which *text*, a message of torch, names: several fix it, or bound it, together."""
        found = [
            decision
            for decision in self
            if decision.is_branch
            and decision.source is not None
            and len(decision.expression.free_symbols) == 1
            and decision.is_named(*decision.expression.free_symbols, text)
        ]
        return found[-1] if found else None

    def pins_inner_sizes(self) -> bool:
        """Whether an operator, no branch of the model, made an expression of sizes 0 or 1 for good, as it is in the example."""
        return any(
            not decision.is_branch
            and keeps_inner_size(decision.condition)
            and any(guard.expr == decision.condition for guard in decision.environment.guards)
            for decision in self
        )

    def pins_sizes_of_one(self) -> bool:
        """Whether a guard keeps a size of an input at 1, as it is in the example."""
        return any(1 in constants_of(environment).values() for environment in self.environments())

    def of_decompositions(self) -> list[str]:
        """What decompositions assume of sizes, in words, where eager computes something else for others, as torch knows the sizes."""
        return [
            in_torchs_names(decision.environment, decision.condition)
            for decision in self
            if decision.is_decomposition
            and not decision.is_check
            and not Known(decision.ranges).makes_certain(decision.environment, decision.condition)
        ]

    def environments(self) -> Collection[Any]:
        """The ShapeEnvs that were asked."""
        return {id(decision.environment): decision.environment for decision in self}.values()

    def refuse_contradictions(
        self, program: torch.export.ExportedProgram | Program, number: int | None = None
    ) -> None:
        """Raise CaptureError when what the program assumes does not hold for the sizes of the example.

        *number*: what stands for 1 in the example of *program*; its branches have to be those of 1 then.
        """
        module = program.module if isinstance(program, Program) else program.graph_module
        kept = [*kept_axes(module), *whole_slices(module)]
        branches = [decision for decision in self if decision.is_branch] if number is not None else []
        for environment in self.environments():
            refuse_contradictions(environment, self, kept, branches, number)

    def closed_sizes(self) -> set[sympy.Symbol]:
        """The sizes of inputs that the guards allow no other value than that of the example.

        Guards of several sizes are left out: they fix none of them alone.
        """
        found = set()
        for environment in self.environments():
            for symbol, value in example_of(environment).items():
                guards = [guard.expr for guard in environment.guards if guard.expr.free_symbols == {symbol}]
                # twice the size is a multiple of all that this one is a multiple of
                others = (sympy.Integer(other) for other in range(1, 2 * int(value) + 2) if other != value)
                if not any(
                    all(guard.subs(symbol, other) != sympy.false for guard in guards) for other in others
                ):
                    found.add(symbol)
        return found

    def source_of(self, condition: sympy.Basic) -> Source | None:
        """The line that asked for a condition."""
        found = [decision.source for decision in self if decision.source and decision.condition == condition]
        return found[0] if found else None


def solved(condition: sympy.Basic) -> tuple[sympy.Symbol, sympy.Integer] | None:
    """The symbol and the number that a condition sets equal, as ``4*s0 == 8`` does; None when it is of another form."""
    if isinstance(condition, sympy.Eq) and len(condition.free_symbols) == 1:
        (symbol,) = condition.free_symbols
        found = try_solve(condition, symbol)
        if found is not None and isinstance(found[0], sympy.Eq) and found[1].is_Integer:
            return symbol, found[1]  # of (s0 + 255) // 256 == 1 it makes s0 < 257
    return None


def judge(inputs: list[Input], module: torch.fx.GraphModule, decisions: Decisions) -> None:
    """Check what torch.export decided about the sizes of the inputs, before the program is translated.

    A dimension called dynamic that it kept at its size becomes static, with a warning. Another warning tells what the
    branches of the model, those of its squeezes and slices too, and its equations of sizes assume as in the example.

    Raises CaptureError when the example itself contradicts what the program assumes.
    """
    kept = [*kept_axes(module), *whole_slices(module)]
    environment = environment_of(inputs) or next((size.node.shape_env for size, *_ in kept), None)
    if environment is None:
        return
    refuse_contradictions(environment, decisions, kept)
    make_static(environment, inputs, decisions)
    tell(conditions(environment, inputs, kept, decisions))


def judge_operators(inputs: list[Input], module: torch.fx.GraphModule) -> None:
    """Tell what the operators of a program that was captured elsewhere assume; nobody wrote down its branches."""
    kept = [*kept_axes(module), *whole_slices(module)]
    if kept:
        tell(conditions(kept[0][0].node.shape_env, inputs, kept, Decisions()))


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


def example_of(environment: Any) -> Mapping[sympy.Symbol, sympy.Integer]:
    """The sizes of the example."""
    return (
        environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val
    )


def refuse_contradictions(
    environment: Any,
    decisions: Decisions,
    kept: Iterable[Assumed],
    branches: Iterable[Decision] = (),
    number: int | None = None,
) -> None:
    """Raise CaptureError when a guard, or what operators and branches assume, does not hold for the sizes of the example.

    *number*: what stands for 1 in the example.
    """
    example = {
        symbol: sympy.S.One if value == number else value for symbol, value in example_of(environment).items()
    }
    guards = [guard.expr for guard in environment.guards]
    if number is not None:
        # an operator that asks what differs, as memory is laid out by it, computes the same
        guards = [guard for guard in guards if not isinstance(guard, sympy.Ne)]
    guards += [sympy.Eq(symbol, other) for symbol, other in environment.replacements.items()]
    assumed = [(guard, decisions.source_of(guard)) for guard in guards]
    assumed += [(condition, source) for _, condition, source in kept]
    assumed += [(branch.condition, branch.source) for branch in branches]
    for condition, source in assumed:
        if condition.free_symbols <= set(example) and condition.xreplace(example) == sympy.false:
            raise CaptureError(
                f"the program of torch.export assumes {in_torchs_names(environment, condition)}, which the example contradicts",
                hint="give an example whose sizes called dynamic are larger than 1",
                source=source,
            )


def in_torchs_names(environment: Any, condition: sympy.Basic) -> str:
    """A condition in words, its sizes called what torch's messages call them."""
    sources = environment.var_to_sources.items()
    return written(
        condition, {symbol: sympy.Symbol(source_name(of_it[0])) for symbol, of_it in sources if of_it}
    )


def make_static(environment: Any, inputs: list[Input], decisions: Decisions) -> None:
    """Make the sizes constants that a guard keeps at one value: torch allows it when an example size is 0 or 1."""
    constants = constants_of(environment)
    for entry, axis, size in list(symbolic_sizes(inputs)):
        symbol = size.node.expr
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


def constants_of(environment: Any) -> dict[sympy.Symbol, sympy.Integer]:
    """The sizes that a guard keeps at one value."""
    return dict(filter(None, (solved(guard.expr) for guard in environment.guards)))


def replace_constants(environment: Any) -> None:
    """Put their values in the place of the sizes that a guard keeps at one."""
    for symbol, number in constants_of(environment).items():
        # torch replaces no size that it was told to treat as if it were not 1
        environment.size_like.discard(symbol)
        environment._set_replacement(symbol, number, "kept at its size in the example")


def conditions(environment: Any, inputs: list[Input], kept: list[Assumed], decisions: Decisions) -> list[str]:
    """What the model assumes of the sizes of its inputs, with the lines that do."""
    names = names_of(inputs)
    firsts: dict[sympy.Symbol, sympy.Symbol] = {}
    # sizes of one name are one
    same = {symbol: firsts.setdefault(name, symbol) for symbol, name in names.items()}
    asked = [decision for decision in decisions if decision.environment is environment]
    # where a check does not hold, eager raises: what is reshaped has to be divisible
    rests, checked = (
        {equation_of_remainder(decision.condition) for decision in asked if decision.is_check is is_check}
        for is_check in (False, True)
    )
    declared = Known(declared_ranges(environment, inputs, asked))
    declared_sizes = sizes_in_the_users_words(inputs)
    found: dict[str, str] = {}
    told: list[sympy.Basic] = []

    def settled(condition: sympy.Basic) -> sympy.Basic:
        return environment.replace(condition).xreplace(same)

    def assume(condition: sympy.Basic, known: Known, source: Source | None) -> None:
        if not known.makes_certain(environment, condition):
            told.append(condition)
            found.setdefault(written(condition, names), located(source) if source else "")

    known, before = declared, {}
    for decision in asked:
        before.setdefault(decision.condition, known)
        condition = settled(decision.condition)
        is_told = (
            (decision.is_branch or decision.is_decomposition)
            and condition.free_symbols
            and condition.free_symbols <= set(names)
        )
        if is_told and not decision.is_check:  # where a check does not hold, eager raises
            assume(condition, known, decision.source)
        if decision.makes_sizes_one:
            equation = decision.condition.xreplace(declared_sizes)
            if equation != sympy.true:
                found.setdefault(written(equation, {}), located(decision.source) if decision.source else "")
        if is_told or decision.is_check:
            # a convolution raises unless all sizes of its result are positive, torch's check of it when none is
            is_any = decision.asker == CONVOLUTION and isinstance(condition, sympy.Or)
            for part in condition.args if is_any else [condition]:
                known = known.learn(part)
    for _, condition, source in kept:
        condition = settled(condition)
        if condition.free_symbols:
            assume(
                condition, known, source
            )  # where a branch or a check does not hold, the model is not the program's anyway
    for guard in environment.guards:
        remainder = equation_of_remainder(guard.expr)
        # torch keeps the symbol of a size that it found to be another one
        condition = settled(guard.expr if remainder is None else remainder)
        is_told = is_equation_of_sizes(guard.expr) if remainder is None else remainder in rests - checked
        if is_told and condition.free_symbols and condition.free_symbols <= set(names):
            known = before.get(guard.expr, declared)
            assume(condition, known, decisions.source_of(guard.expr))
    lines = [f"  {text}\n{line}".rstrip() for text, line in found.items()]
    right = [sizes_in_words(symbol, names[symbol], told, declared) for symbol in firsts.values()]
    return [*lines, f"  which are {'; '.join(filter(None, right))}"] if any(right) else lines


def sizes_in_words(symbol: sympy.Symbol, name: sympy.Symbol, told: list[sympy.Basic], declared: Known) -> str:
    """The values of a size for which what is told of it alone holds, ``""`` when nothing is, or that says it already."""
    own = [condition for condition in told if condition.free_symbols == {symbol}]
    range_ = declared.ranges.get(symbol)
    is_plain = len(own) == 1 and symbol in own[0].args
    if not own or is_plain or range_ is None or not range_.is_int:
        return ""
    largest = None if range_.upper in (int_oo, sympy.oo) else int(range_.upper)
    return allowed(str(name), symbol, own, int(range_.lower), largest)


def names_of(inputs: list[Input]) -> dict[sympy.Symbol, sympy.Symbol]:
    """How the user calls the symbols of the sizes of the inputs."""
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    for entry, axis, size in symbolic_sizes(inputs):
        if size.node.expr.is_Symbol:
            name = entry.dims.get(axis) or place(entry, axis)
            names.setdefault(size.node.expr, sympy.Symbol(name, integer=True))
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
    minima: dict[sympy.Symbol, int] = {}
    for entry, axis, size in symbolic_sizes(inputs):
        symbol = size.node.expr
        minima[symbol] = max(minima.get(symbol, 1), entry.minima.get(axis, 1))
    ranges: dict[sympy.Symbol, ValueRanges] = {}
    for decision in asked:
        for symbol, range_ in decision.ranges.items():
            if range_ is not None:
                ranges.setdefault(symbol, range_)
    ranges = {**environment.var_to_range, **ranges}
    return {
        symbol: ValueRanges(minima.get(symbol, 1), range_.upper) if range_.lower == 2 else range_
        for symbol, range_ in ranges.items()
    }


def kept_axes(module: torch.fx.GraphModule) -> Iterator[Assumed]:
    """The symbolic sizes of the axes that squeezes keep: they are not 1, as in the example."""
    for node in calls_to(module, SQUEEZES):
        shape = node.args[0].meta["val"].shape
        given = node.args[1] if len(node.args) > 1 else range(len(shape))
        axes = [shape[axis] for axis in (given if isinstance(given, Iterable) else [given]) if shape]
        sizes = [size for size in axes if isinstance(size, torch.SymInt)]
        ones = sum(isinstance(size, int) and size == 1 for size in axes)  # a symbol would be asked
        if len(shape) - node.meta["val"].dim() < ones + len(sizes):
            for size in sizes:
                yield size, sympy.Ne(size.node.expr, 1), source_line(node)


def whole_slices(module: torch.fx.GraphModule) -> Iterator[Assumed]:
    """The symbolic sizes that slices of a known size are long enough for, as torch takes each for at least 2; those that others do not exceed."""
    for node in calls_to(module, SLICES):
        self, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1 :])
        size, length = self.meta["val"].shape[dim], node.meta["val"].shape[dim]
        if not isinstance(size, torch.SymInt) or not isinstance(step, int):
            continue
        if not isinstance(length, int):
            bounds = [end] if isinstance(end, int) and 0 < end < sys.maxsize else []
            bounds += [-start] if isinstance(start, int) and start < 0 else []
            if bounds and not length.node.expr.has(sympy.Min, sympy.Max, Min, Max):
                yield size, sympy.Le(size.node.expr, min(bounds)), source_line(node)
        elif length and (isinstance(start, int) or start is None):
            first = start or 0
            least = -first if first < 0 else first + (length - 1) * step + 1
            yield size, sympy.Ge(size.node.expr, least), source_line(node)


def calls_to(
    module: torch.fx.GraphModule, targets: Iterable[torch._ops.OpOverload]
) -> Iterator[torch.fx.Node]:
    """The calls of some operators, also those in the bodies of branches and loops."""
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            for target in targets:
                yield from inner.graph.find_nodes(op="call_function", target=target, sort=False)


def is_equation_of_sizes(guard: sympy.Basic) -> bool:
    """Whether a guard sets an expression of sizes equal to a number of the example; a remainder is `equation_of_remainder`."""
    if not isinstance(guard, sympy.Eq) or solved(guard) is not None:
        return False
    is_rest = any(isinstance(side, (Mod, PythonMod)) for side in guard.args)
    return any(side.is_number for side in guard.args) and not is_rest


def equation_of_remainder(condition: sympy.Basic) -> sympy.Basic | None:
    """The equation of a remainder and 0 that a condition is, ``s0 + s0 % 4 == s0`` too; None for another one.

    That of 1 is asked of what may broadcast, which ONNX asks of each run.
    """
    if not isinstance(condition, sympy.Eq):
        return None
    _, remainder = (condition.lhs - condition.rhs).as_coeff_Mul()
    return sympy.Eq(remainder, 0) if isinstance(remainder, (Mod, PythonMod)) else None


def is_inner_size(condition: sympy.Basic) -> bool:
    """Whether a condition sets a size that is computed from those of the inputs, as ``s0 - 1 == 1`` does, equal to a number."""
    is_equation = isinstance(condition, sympy.Eq) and not any(side.is_Symbol for side in condition.args)
    return is_equation and (solved(condition) is not None or is_equation_of_sizes(condition))


def keeps_inner_size(condition: sympy.Basic) -> bool:
    """Whether a condition makes a computed size 0 or 1, or at most 1, as torch 2.9 asks before it asks whether the size is 1."""
    if isinstance(condition, sympy.Le):
        return condition.rhs == 1 and not condition.lhs.is_Symbol
    return is_inner_size(condition) and not {sympy.S.Zero, sympy.S.One}.isdisjoint(condition.args)


def place(entry: Input, axis: int | None) -> str:
    """How a size of an input is written in Python."""
    return entry.name if axis is None else f"{entry.name}.shape[{axis}]"
