"""The pattern optimizer: `optimize` rewrites a model by rules, `rule` makes one, `quantize_weights` rounds the weights.

@rule(P.Neg(P.Neg(x)))
def neg_neg(op, x):
    return x

optimize(model, rules=[neg_neg])
"""

from __future__ import annotations

import importlib
from typing import Any

import experimental_experiment.torch_interpreter.translations  # noqa: F401 (whose runtime the rules ask)
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
    "QuantizationReport",
    "Report",
    "bisect",
    "const",
    "no",
    "optimize",
    "optional",
    "quantize_weights",
    "rule",
    "var",
]


BRINGING_ONNXRUNTIME = {
    "QuantizationReport": "quantization",
    "bisect": "bisection",
    "quantize_weights": "quantization",
}


def __getattr__(name: str) -> Any:
    """What brings onnxruntime is loaded when first asked for."""
    if name in BRINGING_ONNXRUNTIME:
        return getattr(importlib.import_module(f"{__name__}.{BRINGING_ONNXRUNTIME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
