"""Options of the optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from experimental_experiment.torch_interpreter.arguments import refuse_no_switches
from experimental_experiment.xoptim.rules import Rule, chosen


@dataclasses.dataclass(frozen=True)
class OptimizationOptions:
    """What `optimize` does.

    Attributes:
        patterns: names of sets and rules joined by + and -: ``"default"``, ``"default+onnxruntime"``,
            ``"default+onnxruntime-CastCast"``; or a list of names and rules; None for no rule. The set ``onnxruntime`` writes
            operators of the domain com.microsoft, and several nodes where the kernel of one is slower.
        stop_after: stop after so many rewritings, None for no limit.
        constant_folding: compute nodes whose inputs are small constants, and those that weights alone make smaller or as large weights of.
        common_subexpressions: compute once what several nodes compute from the same values.
        remove_unused: remove what no output needs.

    Raises ValueError when a name is unknown, with the nearest ones, and for another *stop_after*; TypeError when patterns or a switch
    is something else.
    """

    patterns: str | Sequence[str | Rule] | None = "default"
    stop_after: int | None = None
    constant_folding: bool = True
    common_subexpressions: bool = True
    remove_unused: bool = True

    def __post_init__(self):
        chosen(self.patterns)
        refuse_no_switches(
            constant_folding=self.constant_folding,
            common_subexpressions=self.common_subexpressions,
            remove_unused=self.remove_unused,
        )
        is_number = isinstance(self.stop_after, int) and not isinstance(self.stop_after, bool)
        if self.stop_after is not None and not (is_number and self.stop_after >= 0):
            raise ValueError(f"stop_after is a number of rewritings or None, not {self.stop_after!r}")

    @property
    def rules(self) -> list[Rule]:
        """The rules that are chosen."""
        return chosen(self.patterns)
