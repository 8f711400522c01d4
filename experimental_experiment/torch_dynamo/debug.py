"""A compiled graph that onnx's reference evaluator runs, with every result at hand: slow, to find what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from experimental_experiment.comparison import array_of, tensor_of
from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.torch_dynamo.compiled import CompiledGraph
from experimental_experiment.torch_dynamo.conversion import Converted


class DebugBackend(CompiledGraph):
    """A graph that `ExtendedReferenceEvaluator` runs, called as an `OrtBackend` is.

    Args:
        verbose: see `ExtendedReferenceEvaluator`.
        results: receives at each call a dict of every result by its name; None for none.
    """

    def __init__(
        self,
        converted: Converted,
        device: torch.device,
        seen: int | None = None,
        verbose: int = 0,
        results: list[dict[str, Any]] | None = None,
    ):
        super().__init__(converted, device, seen)
        self.evaluator = ExtendedReferenceEvaluator(converted.run, verbose=verbose)
        self.device = device
        self.results = results

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs that the model computes."""
        feeds = {name: array_of(tensor) for name, tensor in zip(self.input_names, tensors)}
        if self.results is None:
            found = self.evaluator.run(self.output_names, feeds)
        else:
            self.results.append(self.evaluator.run(None, feeds, intermediate=True))
            found = [self.results[-1][name] for name in self.output_names]
        return [tensor_of(value).to(self.device) for value in found]
