"""`computes`: a function of numpy arrays as an operator of the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from experimental_experiment.protos import MICROSOFT

OPERATORS: list[type[OpRun]] = []
"""Every operator that is added to those of onnx."""


def computes(op_type: str, domain: str = MICROSOFT) -> Callable:
    """Register a function as an operator: inputs are positional, None when left out; attributes are keywords with their defaults.

    It returns the output, or a tuple of them: those that the node does not name are dropped. A float attribute comes as a Python
    float, which leaves the dtype of arrays alone. Registering an operator twice is a ValueError.
    """

    def register(function: Callable) -> Callable:
        if any((known.op_domain, known.__name__) == (domain, op_type) for known in OPERATORS):
            raise ValueError(f"{domain}.{op_type} is computed twice")

        def _run(self, *inputs: Any, **attributes: Any) -> tuple:
            attributes = {name: plain(value) for name, value in attributes.items()}
            results = function(*inputs, **attributes)
            return results if isinstance(results, tuple) else (results,)

        # without a schema, which onnx would look up by the bare name: com.microsoft's Attention is not that of ai.onnx
        members = {"op_domain": domain, "op_schema": None, "_run": _run, "__doc__": function.__doc__}
        OPERATORS.append(type(op_type, (OpRun,), members))
        return function

    return register


def plain(value: Any) -> Any:
    """A float attribute, or a list of them, in Python's floats."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, np.floating) else value
