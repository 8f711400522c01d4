"""What the example decided: branches on sizes that were taken for good, sizes that torch.export pinned.

An exported program holds one side of ``if x.shape[0] == 1``. torch asks its ShapeEnv for each such decision, in both modes
of the capture; here they are written down with the line that asked, and `judging` judges them once the program is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch.utils._sympy.functions import Max, Min, Mod, PythonMod
from torch.utils._sympy.solve import try_solve
from torch.utils._sympy.value_ranges import ValueRanges

from experimental_experiment.torch_interpreter.assumptions.asked_layouts import Asked
from experimental_experiment.torch_interpreter.assumptions.asked_layouts import (
    recorded as questions_of_layouts,
)
from experimental_experiment.torch_interpreter.assumptions.emptiness import Emptied
from experimental_experiment.torch_interpreter.assumptions.emptiness import recorded as branches_on_nothing
from experimental_experiment.torch_interpreter.assumptions.operands import is_settled
from experimental_experiment.torch_interpreter.assumptions.wording import written
from experimental_experiment.torch_interpreter.certainty import Known
from experimental_experiment.torch_interpreter.errors import CaptureError, Source, source_line
from experimental_experiment.torch_interpreter.frames import (
    TORCH,
    asking_frame,
    is_asked_by_check,
    is_called_by,
    is_decomposition,
    is_library_code,
    line_around,
)
from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.torch_versions import source_name

DYNAMO = os.path.join(TORCH, "_dynamo", "symbolic_convert.py")
"""What runs the byte code of a model, of the bodies of branches and loops too."""

TRANSFORMATIONS = os.path.join(TORCH, "_functorch", "eager_transforms.py")
"""``torch.func.grad``, ``jvp``, ... in Python."""

VMAP = os.path.join(TORCH, "_functorch", "vmap.py")
"""``torch.vmap`` in Python."""

CONVOLUTION = "calc_conv_nd_return_shape"
"""The function of torch that computes the shape of a convolution."""

BROADCASTS = frozenset(
    os.path.join(TORCH, *path)
    for path in (
        ("_prims", "__init__.py", "_broadcast_in_dim_meta"),
        ("_refs", "__init__.py", "_broadcast_shapes"),
        ("_subclasses", "fake_impls.py", "infer_size"),
    )
)
"""The functions of torch, behind their files, that ask whether two sizes are equal, and go on where one of them is 1."""

LAYOUTS = frozenset(
    os.path.join(TORCH, *path)
    for path in (
        ("_prims_common", "__init__.py", "check_contiguous_sizes_strides"),
        ("_subclasses", "fake_tensor.py", "_get_output_tensor_from_cache_entry"),
    )
)
"""The functions of torch, behind their files, that ask how the memory of a fake tensor is laid out."""

SQUEEZES = tuple(
    overload
    for packet in (torch.ops.aten.squeeze, torch.ops.aten.squeeze_copy)
    for overload in (packet.default, packet.dim, packet.dims)
)
"""What removes an axis where its size is 1, and asks nothing where it is symbolic."""

SLICES = torch.ops.aten.slice.Tensor, torch.ops.aten.slice_copy.Tensor

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
        is_batch: whether it was asked inside of ``torch.vmap``.
        is_decomposition: whether the decomposition of an operator asked itself, which is followed node by node.
        asker: the name of the function that asked.
        is_broadcast: whether that one repeats what has one element.
        is_layout: whether that one asks how memory is laid out, which changes what a write changes, and nothing else. What
            TorchDynamo asks is none: its program is traced again, and what is known since leaves out a slice that cuts nothing in the example.
    """

    environment: Any
    expression: sympy.Basic
    result: Any
    ranges: dict[sympy.Symbol, ValueRanges]
    source: Source | None
    is_branch: bool
    is_check: bool = False
    is_gradient: bool = False
    is_batch: bool = False
    is_decomposition: bool = False
    asker: str = ""
    is_broadcast: bool = False
    is_layout: bool = False

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
        repeated: by the equation of two sizes, one of which the data decide, that torch leaves to each run where eager repeats what has one element.
        emptied: the branches that another size of 0 would take, and the slices that it would not have.
        layouts: what the answers to questions about the layout of memory take for granted.
        obstacle: the line that another example than one of size 1 does not pass, None when none was tried.
        takes_within: whether a size that cuts another one was taken for the smaller one, or both for equal, without a proof.
    """

    def __init__(self):
        self.found: dict[tuple, Decision] = {}
        self.repeated: dict[sympy.Basic, Decision] = {}
        self.emptied: Emptied = {}
        self.layouts: Asked = {}
        self.obstacle: Source | None = None
        self.takes_within = False

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
                is_batch=is_called_by(frame, VMAP),
                is_decomposition=follows and is_decomposition(asking),
                asker=frame.f_code.co_name,
                is_broadcast=is_asked_by(frame, BROADCASTS),
                is_layout=asks_layout(frame) and not is_called_by(frame, DYNAMO),
            )
            return result

        defer = environments.guard_or_defer_runtime_assert

        def guard_or_defer_runtime_assert(environment, expression, *args, **kwargs):
            frame = asking_frame(sys._getframe(1))
            if (
                isinstance(expression, sympy.Eq)
                and expression not in self.repeated
                and is_asked_by(frame, BROADCASTS)
            ):
                ranges = {symbol: environment.var_to_range[symbol] for symbol in expression.free_symbols}
                self.repeated[expression] = Decision(
                    environment, expression, True, ranges, line_around(frame)[0], False, is_broadcast=True
                )
            return defer(environment, expression, *args, **kwargs)

        with (
            replaced(environments, "evaluate_expr", evaluate_expr),
            replaced(environments, "guard_or_defer_runtime_assert", guard_or_defer_runtime_assert),
            branches_on_nothing(self.emptied),
            questions_of_layouts(self.layouts),
        ):
            yield

    def taken_for_granted(self, module: torch.fx.GraphModule) -> Iterator[Assumed]:
        """What the squeezes and slices of a program have for granted, and what was answered about the layout of memory."""
        yield from kept_axes(module)
        yield from whole_slices(module)
        yield from self.layouts.values()

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

    def choose_sizes(self) -> bool:
        """Whether something was asked of the smaller or the larger one of two sizes."""
        return any(decision.condition.has(Min, Max, sympy.Min, sympy.Max) for decision in self)

    def of_decompositions(self) -> list[str]:
        """What decompositions assume of sizes, in words, where eager computes something else for others, as torch knows the sizes."""
        return [
            in_torchs_names(decision.environment, decision.condition)
            for decision in self
            if decision.is_decomposition
            and not decision.is_check
            and not Known(decision.ranges).makes_certain(decision.environment, decision.condition)
        ]

    def symbols_in(self, text: str) -> str:
        """What torch's symbols in a text stand for: `` (s77 is x.shape[0])``; ``""`` when it holds none of an input."""
        found = {}
        for environment in self.environments():
            for symbol, sources in environment.var_to_sources.items():
                place = (
                    re.fullmatch(r"L\['(\w+)'\](.*)\.size\(\)(\[\d+\])", source_name(sources[0]))
                    if sources
                    else None
                )
                if place and re.search(rf"\b{symbol}\b", text):
                    found[str(symbol)] = f"{symbol} is {place[1]}{place[2]}.shape{place[3]}"
        return f" ({', '.join(found.values())})" if found else ""

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
        kept = [*self.taken_for_granted(module)]
        branches = [decision for decision in self if decision.is_branch] if number is not None else []
        for environment in self.environments():
            refuse_misfit_example(environment, self, kept, branches, number)

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


def is_asked_by(frame: FrameType, functions: Collection[str]) -> bool:
    """Whether a frame is that of one of some functions, each behind its file."""
    return os.path.join(frame.f_code.co_filename, frame.f_code.co_name) in functions


def asks_layout(frame: FrameType) -> bool:
    """Whether a frame asks how memory is laid out, as ``F.linear`` does in C++, which flattens its input and asks nothing else."""
    is_cpp = frame.f_code is torch._ops.OpOverload.__call__.__code__
    return is_asked_by(frame, LAYOUTS) or (is_cpp and frame.f_locals["self"] is torch.ops.aten.linear.default)


def solved(condition: sympy.Basic) -> tuple[sympy.Symbol, sympy.Integer] | None:
    """The symbol and the number that a condition sets equal, as ``4*s0 == 8`` does; None when it is of another form."""
    if isinstance(condition, sympy.Eq) and len(condition.free_symbols) == 1:
        (symbol,) = condition.free_symbols
        found = try_solve(condition, symbol)
        if found is not None and isinstance(found[0], sympy.Eq) and found[1].is_Integer:
            return symbol, found[1]  # of (s0 + 255) // 256 == 1 it makes s0 < 257
    return None


def example_of(environment: Any) -> Mapping[sympy.Symbol, sympy.Integer]:
    """The sizes of the example."""
    return (
        environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val
    )


def refuse_misfit_example(
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


def constants_of(environment: Any) -> dict[sympy.Symbol, sympy.Integer]:
    """The sizes that a guard keeps at one value."""
    return dict(filter(None, (solved(guard.expr) for guard in environment.guards)))


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


def bounds_of_slices(module: torch.fx.GraphModule, all_of_them: bool = False) -> Iterator[Assumed]:
    """What slices with symbolic bounds have as in the example.

    A bound is counted from the end where it is negative; it lies within the axis, and the first one before the last: the length is a
    difference then, and none where what lies beyond is asked of each run. *all_of_them*: also what slices with numbers have, as ``x[3:]`` three
    rows or more, and that a bound lies within an axis of a known size, as the positions of a text do in a table: others are empty, or
    most models raise.
    """
    for node in calls_to(module, SLICES):
        self, dim, *given = (*node.args, *(0, None, None)[len(node.args) - 1 :])
        start, end = (bound.meta["val"] if isinstance(bound, torch.fx.Node) else bound for bound in given[:2])
        size, length = self.meta["val"].shape[dim], node.meta["val"].shape[dim]
        symbolic = [value for value in (start, end, size) if isinstance(value, torch.SymInt)]
        bounds = [value for value in symbolic if value is not size]
        is_asked = bool(bounds) or (all_of_them and isinstance(length, torch.SymInt))
        if not is_asked or not all(value.node.has_hint() for value in symbolic):
            continue
        source = source_line(node)
        for bound in bounds:
            sign = sympy.Lt if bound.node.hint < 0 else sympy.Ge
            yield bound, sign(bound.node.expr, 0), source
        if isinstance(length, torch.SymInt) and length.node.expr.has(sympy.Min, sympy.Max, Min, Max):
            continue
        elements = sympy.sympify(expression_of(size))
        for bound in bounds:
            if abs(bound.node.hint) > hint_of(size):  # cut off in the example
                beyond = sympy.Lt(bound.node.expr, -elements), sympy.Gt(bound.node.expr, elements)
                yield bound, beyond[bound.node.hint > 0], source
        first = sympy.S.Zero if start is None else place_of(start, size)
        last = elements if end is None else place_of(end, size)
        if symbolic:
            yield symbolic[0], sympy.Ge(first, 0), source
            yield symbolic[0], sympy.Ge(last, first), source
            if all_of_them or isinstance(size, torch.SymInt):
                yield symbolic[0], sympy.Le(last, elements), source


def place_of(bound: int | torch.SymInt, size: int | torch.SymInt) -> sympy.Basic:
    """The element that a bound of a slice means in the example: the first or the one behind the last where it lies beyond the axis."""
    in_example, elements = hint_of(bound), hint_of(size)
    if in_example < -elements:
        return sympy.S.Zero
    if in_example > elements:
        return sympy.sympify(expression_of(size))
    return sympy.sympify(expression_of(bound)) + (expression_of(size) if in_example < 0 else 0)


def hint_of(size: int | torch.SymInt) -> int:
    """A size, or a bound, in the example."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def has_writes(module: torch.fx.GraphModule) -> bool:
    """Whether an operator writes into a tensor, which may be a view of another one, or a copy, by the layout of that one."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for inner in module.modules()
        if isinstance(inner, torch.fx.GraphModule)
        for node in inner.graph.nodes
    )


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
