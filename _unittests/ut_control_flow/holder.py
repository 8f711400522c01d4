"""The module of these tests: a function of its weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions

D = torch.export.Dim.DYNAMIC


class OneInput(torch.nn.Module):
    """Calls ``function(self, x)``: it has a linear layer and a buffer."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function
        self.lin = torch.nn.Linear(4, 4)
        self.register_buffer("b", torch.full((4,), 2.0))

    def forward(self, x):
        return self.function(self, x)


class TwoInputs(OneInput):
    """Calls ``function(self, x, y)``."""

    def forward(self, x, y):
        return self.function(self, x, y)


class ControlFlowTestCase(ExporterTestCase):
    """Runs a table of cases {promise: (function, inputs, other inputs, dynamic_shapes)}."""

    def assert_cases(self, cases: dict[str, Sequence[Any]], **options: Any) -> None:
        """Each function, captured on the first inputs, is the same as eager on all of them."""
        for promise, (function, args, *rest) in cases.items():
            with self.subTest(promise):
                torch.manual_seed(0)
                torch._dynamo.reset()  # eager control flow is compiled, and what one case taught is kept
                others = rest[0] if rest else ()
                shapes = rest[1] if len(rest) > 1 else None
                module = OneInput(function) if len(args) == 1 else TwoInputs(function)
                self.export_and_compare(module, args, others=others, dynamic_shapes=shapes, **options)

    def assert_strict_cases(self, cases: dict[str, Sequence[Any]], step: int = 3) -> None:
        """The first case and every *step*-th one behind it, captured by TorchDynamo."""
        chosen = dict(list(cases.items())[::step])
        self.assert_cases(chosen, export_options=ExportOptions(strict=True))
