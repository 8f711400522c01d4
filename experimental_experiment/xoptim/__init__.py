"""The pattern optimizer: `optimize` rewrites a model by rules, `rule` makes one.

@rule(P.Neg(P.Neg(x)))
def neg_neg(op, x):
    return x

optimize(model, rules=[neg_neg])
"""

from __future__ import annotations

from typing import Any

import experimental_experiment.torch_interpreter  # noqa: F401 (which imports parts of this package itself)
from experimental_experiment.xoptim import patterns, patterns_ort  # noqa: F401 (they register)
from experimental_experiment.xoptim.engine import OptimizationError
from experimental_experiment.xoptim.optimizer import optimize
from experimental_experiment.xoptim.options import OptimizationOptions
from experimental_experiment.xoptim.pattern import P, const, optional, var
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.rules import no, rule

__all__ = [
    "OptimizationError",
    "OptimizationOptions",
    "P",
    "Report",
    "bisect",
    "const",
    "no",
    "optimize",
    "optional",
    "rule",
    "var",
]


def __getattr__(name: str) -> Any:
    """`bisect` is loaded when first asked for: it brings onnxruntime."""
    if name == "bisect":
        from experimental_experiment.xoptim.bisection import bisect

        return bisect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
