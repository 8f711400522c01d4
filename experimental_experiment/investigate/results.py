"""What `discrepancies` found: a row for each compared result, the verdict, the printed table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from experimental_experiment.investigate.fusions import Blame
from experimental_experiment.investigate.gaps import Gap
from experimental_experiment.investigate.ways import Way
from experimental_experiment.torch_interpreter.errors import Source, located

SHOWN = 10
"""Rows of the printed table."""

NAMED = 8
"""Nodes of a list that are named."""


@dataclasses.dataclass(frozen=True)
class Suspects:
    """What computes a wrong result from those before it that both sides name: each of its nodes may be the wrong one.

    Attributes:
        name: the wrong result.
        after: the inputs, and the named results, that it is computed from.
        onnx: the ONNX nodes, ``Operator 'result'``, in order.
        fx: the names of the FX nodes that these stand for, in order; a fused node stands for several.
    """

    name: str
    after: list[str]
    onnx: list[str]
    fx: list[str]

    @property
    def are_several(self) -> bool:
        """Whether there is more to suspect than the node of the result."""
        return len(self.fx) > 1

    def __str__(self) -> str:
        after = f"between {shortened(self.after)} and" if self.after else "before"
        verb = "stand" if len(self.onnx) > 1 else "stands"
        return f"wrong {after} %{self.name}: {shortened(self.onnx, ' or ')}, which {verb} for {shortened(self.fx)}"


def shortened(items: Sequence[str], joint: str = ", ") -> str:
    """The first items of a long list, how many are left out, the last one."""
    if len(items) <= NAMED:
        return joint.join(items)
    return joint.join([*items[: NAMED - 2], f"... {len(items) - NAMED + 1} more ...", items[-1]])


@dataclasses.dataclass
class Result:
    """One result that both sides compute.

    Attributes:
        name: of the FX node, ``topk[1]`` where it gives several results.
        operator: its target, ``aten.add.Tensor``.
        onnx: name of the ONNX value.
        written: the ONNX operator that computes it.
        output: name of the model's output that it is, or ``""``.
        module: qualified name of the submodule that it comes from.
        source: the user's line.
        gap: the difference from eager.
        own: the difference from what torch gives on ONNX's results of the nodes before.
        status: ``ok``, ``error``, ``tie``, ``rounding``, ``random``, or ``follows``: the difference comes from before.
        note: what else is known.
        suspects: what may be wrong, for the first error alone.
    """

    name: str
    operator: str
    onnx: str
    written: str
    output: str
    module: str
    source: Source | None
    gap: Gap
    own: Gap
    status: str = "ok"
    note: str = ""
    suspects: Suspects | None = None

    @property
    def eager_overflows(self) -> bool:
        """Whether eager has infinities or NaN where ONNX has numbers."""
        expected, got = (nan + inf for nan, inf in zip(self.gap.nan, self.gap.inf))
        return expected > got

    def __str__(self) -> str:
        lines = [f"%{self.name} = {self.operator}, written as {self.written} {self.onnx!r}: {self.own}"]
        if self.suspects is not None and self.suspects.are_several:
            lines.append(f"  {self.suspects}")
        if self.note:
            lines.append(f"  {self.note}")
        if self.module:
            lines.append(f"  module {self.module}")
        if self.source is not None:
            lines.append(located(self.source))
        return "\n".join(lines)


@dataclasses.dataclass
class Discrepancies:
    """What `discrepancies` found; ``print`` tells the verdict, the first difference, the worst results.

    Attributes:
        results: all that was compared, in the order of the program.
        nodes: how many nodes the program has.
        runtime: what onnxruntime's own optimization changes, None when nothing.
        overflow: the first result that is not finite in eager itself, from finite ones; None when all are.
        ways: what onnxruntime, optimized and not, and onnx.reference make of the whole model; empty when it agrees with eager.
    """

    results: list[Result]
    nodes: int
    runtime: Blame | None = None
    overflow: Result | None = None
    ways: list[Way] = dataclasses.field(default_factory=list)

    @property
    def first(self) -> Result | None:
        """The first result that is wrong by itself."""
        return next((result for result in self.results if result.status == "error"), None)

    @property
    def ties(self) -> list[Result]:
        """The results that differ by the order of equal elements."""
        return [result for result in self.results if result.status == "tie"]

    @property
    def agrees(self) -> bool:
        """Whether the model gives what eager gives, within the tolerances."""
        judged = [result for result in self.results if result.output] or self.results
        return self.runtime is None and all(result.gap.within for result in judged)

    @property
    def verdict(self) -> str:
        """One word: ``error``, ``runtime``, ``random``, ``tie``, ``rounding`` or ``agreement``, the worst that was found."""
        if self.first is not None:
            return "error"
        if self.runtime is not None and not self.runtime.rounds:
            return "runtime"
        if self.agrees:
            return "agreement"
        if any(result.status == "random" for result in self.results):
            return "random"
        return "tie" if self.ties else "rounding"

    def worst(self, count: int = SHOWN) -> list[Result]:
        """The results that differ most from eager, in tolerances of their dtype."""
        return sorted(self.results, key=lambda result: -result.gap.excess)[:count]

    def told(self) -> str:
        """The verdict in a sentence."""
        first, ties = self.first, self.ties
        if first is not None:
            return f"the first wrong result:\n{first}"
        if self.verdict == "runtime":
            return f"every node is right, {self.runtime}"
        if self.agrees:
            return "the outputs agree with eager"
        if self.verdict == "random":
            drawn = next(result for result in self.results if result.status == "random")
            return f"the outputs differ from eager by random numbers, no node is wrong:\n{drawn}"
        if ties:
            return f"the outputs differ from eager by a tie, no node is wrong:\n{ties[0]}"
        begin = next((result for result in self.results if not result.gap.within), None)
        if begin is None:
            return f"every node is right, {self.runtime}"
        if begin.eager_overflows:
            return f"the outputs differ from eager, which overflows where ONNX does not, no node is wrong:\n{begin}"
        return (
            "the outputs differ from eager by rounding that grows from node to node, each node alone is right; "
            f"beyond the tolerance first in:\n{begin}"
        )

    def __str__(self) -> str:
        import tabulate  # only who prints needs it

        compared = f"{len(self.results)} results compared with eager, {self.nodes} nodes"
        lines = [self.told(), "", *(f"the whole model in {way}" for way in self.ways), compared]
        if self.overflow is not None and self.overflow.gap.within:
            lines.append(
                f"eager itself is not finite from %{self.overflow.name} = {self.overflow.operator} on"
            )
        rows = [
            (
                result.output or result.name,
                result.operator,
                result.gap.got,
                *(
                    f"{number:.1e}"
                    for number in (result.gap.absolute, result.gap.relative, *result.gap.quantiles)
                ),
                f"{result.gap.nan[1]}/{result.gap.inf[1]}",
                result.status,
                result.module,
            )
            for result in self.worst()
            if result.gap.absolute
        ]
        if rows:
            headers = [
                "result",
                "operator",
                "type",
                "absolute",
                "relative",
                "50%",
                "90%",
                "99%",
                "nan/inf",
                "",
                "module",
            ]
            lines += ["", tabulate.tabulate(rows, headers, disable_numparse=True)]
        return "\n".join(lines)
