"""The pattern optimizer: `optimize` rewrites a model by rules, `rule` makes one.

@rule(P.Neg(P.Neg(x)))
def neg_neg(op, x):
    return x

optimize(model, rules=[neg_neg])
"""

from experimental_experiment.xoptim import patterns  # noqa: F401 (they register)
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
    "const",
    "no",
    "optimize",
    "optional",
    "rule",
    "var",
]
