"""The module of these tests: a function of its weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from experimental_experiment.comparison import eager_outputs
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


def uncompiled_outputs(
    module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any] | None
) -> list[torch.Tensor]:
    """`eager_outputs` without the compiler, which eager control flow calls: a branch, a turn, a row at a time, in Python."""
    with torch.compiler.set_stance("force_eager"):
        return eager_outputs(module, args, kwargs)


class ControlFlowTestCase(ExporterTestCase):
    """Runs a table of cases {promise: (function, inputs, other inputs, dynamic_shapes)}."""

    def assert_cases(
        self, cases: dict[str, Sequence[Any]], compiled: Collection[str] | None = None, **options: Any
    ) -> None:
        """Each function, captured on the first inputs, is the same as eager on all of them.

        *compiled*: the promises whose eager run needs the compiler, for structures that are nested; None: all.
        """
        for promise, (function, args, *rest) in cases.items():
            with self.subTest(promise):
                torch.manual_seed(0)
                torch._dynamo.reset()  # eager control flow is compiled, and what one case taught is kept
                options["others"] = rest[0] if rest else ()
                options["dynamic_shapes"] = rest[1] if len(rest) > 1 else None
                is_compiled = compiled is None or promise in compiled
                options["eager"] = eager_outputs if is_compiled else uncompiled_outputs
                module = OneInput(function) if len(args) == 1 else TwoInputs(function)
                self.export_and_compare(module, args, **options)

    def assert_strict_cases(
        self, cases: dict[str, Sequence[Any]], compiled: Collection[str] | None = None, step: int = 3
    ) -> None:
        """The first case and every *step*-th one behind it, captured by TorchDynamo."""
        chosen = dict(list(cases.items())[::step])
        self.assert_cases(chosen, compiled, export_options=ExportOptions(strict=True))
