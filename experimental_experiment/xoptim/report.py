"""What an optimization did: which rule, where, how often; nodes before and after; time."""

from __future__ import annotations

import collections
import dataclasses


@dataclasses.dataclass
class Report:
    """Filled by `optimize`.

    Attributes:
        nodes_before: number of nodes, those of bodies and functions included.
        nodes_after: the same afterwards.
        seconds: time that it took.
        applications: name of the rule and of the node that it replaced, in order.
        declined: how often a rule whose pattern matched declined, by rule and reason.
    """

    nodes_before: int = 0
    nodes_after: int = 0
    seconds: float = 0.0
    applications: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    declined: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)

    def __str__(self) -> str:
        """A table of the rules that were applied, then one of those that declined."""
        import tabulate  # only who prints a report needs it

        counts = collections.Counter(name for name, _ in self.applications)
        each = 1e6 * self.seconds / max(self.nodes_before, 1)
        lines = [
            f"{self.nodes_before} nodes, {self.nodes_after} after {len(self.applications)} rewritings in "
            f"{self.seconds:.3f} s ({each:.0f} us a node)"
        ]
        if counts:
            lines += ["", tabulate.tabulate(counts.most_common(), headers=["rule", "applied"])]
        if self.declined:
            rows = [(rule, reason, count) for (rule, reason), count in self.declined.most_common()]
            lines += ["", tabulate.tabulate(rows, headers=["rule", "declined because", "times"])]
        return "\n".join(lines)
