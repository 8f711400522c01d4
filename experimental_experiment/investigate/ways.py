"""The whole model run in three ways: by onnxruntime as it is optimized and as it is written, by onnx.reference."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.comparison import array_of, run, tensor_of
from experimental_experiment.investigate.gaps import Gap, gap
from experimental_experiment.investigate.onnx_side import (
    FULL,
    PLAIN,
    UNKNOWN,
    Given,
    loaded,
    session_at,
)
from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.refusals import FAILURES
from experimental_experiment.torch_interpreter.files import weight_bytes

SECONDS = 20.0
"""After which onnx.reference is stopped, between two nodes."""

LARGEST = 2**29
"""Bytes of weights: onnx.reference, which copies them, does not run a model with more."""


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to run the model.

    Attributes:
        name: ``onnxruntime, optimized``, ``onnxruntime, as written``, ``onnx.reference``.
        output: the output that is furthest from eager's.
        gap: how far it is; None when there is no result.
        failure: why there is none.
    """

    name: str
    output: str = ""
    gap: Gap | None = None
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Whether all outputs are eager's, within the tolerances."""
        return self.gap is not None and self.gap.within

    def __str__(self) -> str:
        if self.gap is None:
            return f"{self.name}: {self.failure}"
        return f"{self.name}: {'agrees with eager' if self.agrees else f'{self.output} differs, {self.gap}'}"


def ways(
    model: Given, inputs: Sequence[torch.Tensor], expected: Mapping[str, torch.Tensor], scale: float
) -> list[Way]:
    """Run a model in each way; *expected*: eager's outputs by their names."""
    graph_model = loaded(model)
    names = [value.name for value in graph_model.graph.outputs]
    found = []
    for name, level in (("onnxruntime, optimized", FULL), ("onnxruntime, as written", PLAIN)):
        try:
            outputs = run(session_at(model, level), inputs)
        except FAILURES as error:
            found.append(Way(name, failure=f"stops: {str(error).splitlines()[0]}"))
        else:
            found.append(compared(name, dict(zip(names, outputs)), expected, scale))
    return [*found, by_reference(graph_model, inputs, expected, scale)]


def compared(
    name: str, outputs: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], scale: float
) -> Way:
    """The output that is furthest from eager's."""
    gaps = {output: gap(tensor, outputs[output], scale) for output, tensor in expected.items()}
    if not gaps:
        return Way(name, failure="no output is a result of the program")
    worst = max(gaps, key=lambda output: gaps[output].excess)
    return Way(name, worst, gaps[worst])


def by_reference(
    model: ir.Model, inputs: Sequence[torch.Tensor], expected: Mapping[str, torch.Tensor], scale: float
) -> Way:
    """What onnx.reference gives, or why it gives nothing: too large, too slow, an operator that it lacks."""
    name, size = "onnx.reference", weight_bytes(model)
    if size > LARGEST:
        return Way(name, failure=f"not run, it copies weights and these are {size / 2**30:.1f} GB")
    feeds = {value.name: array_of(tensor) for value, tensor in zip(model.graph.inputs, inputs)}
    ir.external_data.load_to_model(model)
    try:
        evaluator = TimedEvaluator(ir.to_proto(model))
        with np.errstate(all="ignore"):
            results = evaluator.run(list(expected), feeds)
        outputs = {output: tensor_of(array) for output, array in zip(expected, results)}
    except TimeoutError:
        return Way(name, failure=f"stopped after {SECONDS:.0f} seconds, it is slow")
    except UNKNOWN as error:
        return Way(
            name, failure=f"does not run it, {type(error).__name__}: {str(error).strip()}".splitlines()[0]
        )
    return compared(name, outputs, expected, scale)


class TimedEvaluator(ExtendedReferenceEvaluator):
    """Stops between two nodes once `SECONDS` are over, with TimeoutError."""

    def __init__(self, proto: Any, **options: Any):
        self.begin = time.monotonic()
        super().__init__(proto, **options)

    def _log(self, level: int, pattern: str, *args: Any) -> None:
        if time.monotonic() - self.begin > SECONDS:
            raise TimeoutError
        super()._log(level, pattern, *args)
