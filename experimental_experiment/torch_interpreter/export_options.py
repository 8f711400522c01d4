"""How ``torch.export.export`` is called."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from experimental_experiment.torch_interpreter.errors import CaptureError, capture_hint


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of the capture; the defaults are those of ``torch.export.export``, without any decomposition.

    Attributes:
        strict: capture with TorchDynamo instead of running the model on fake tensors.
        decomposition_table: None takes the program as it is; ``"default"`` decomposes it with torch's default
            table; a dict {overload: function} decomposes those overloads.
        preserve_module_call_signature: qualified names of submodules whose calling convention is kept.
        prefer_deferred_runtime_asserts_over_guards: turn guards on sizes into runtime checks.
        backed_size_oblivious: treat dynamic dimensions as if they could be 0 or 1. None: only when the example
            size of a dimension called dynamic is 0 or 1, which torch would otherwise refuse.
    """

    strict: bool = False
    decomposition_table: str | Mapping[Any, Callable] | None = None
    preserve_module_call_signature: tuple[str, ...] = ()
    prefer_deferred_runtime_asserts_over_guards: bool = False
    backed_size_oblivious: bool | None = None

    def __post_init__(self):
        table = self.decomposition_table
        if not (table is None or table == "default" or isinstance(table, Mapping)):
            raise ValueError(
                f"decomposition_table is None, 'default' or a dict of decompositions, not {table!r}"
            )

    def capture(
        self,
        module: torch.nn.Module,
        args: tuple,
        kwargs: dict[str, Any],
        dynamic_shapes: Any,
        has_small_sizes: bool,
    ) -> torch.export.ExportedProgram:
        """Call ``torch.export.export``, then decompose if asked.

        *has_small_sizes*: whether a dimension called dynamic has size 0 or 1 in the example.
        Raises CaptureError, with torch's own error as its cause.
        """
        oblivious = self.backed_size_oblivious
        if oblivious is None:
            oblivious = has_small_sizes
        config = contextlib.nullcontext()
        if oblivious:
            config = torch.fx.experimental._config.patch(backed_size_oblivious=True)
        with stage("torch.export.export"), config:
            program = torch.export.export(
                module,
                args,
                kwargs or None,
                dynamic_shapes=dynamic_shapes,
                strict=self.strict,
                preserve_module_call_signature=self.preserve_module_call_signature,
                prefer_deferred_runtime_asserts_over_guards=self.prefer_deferred_runtime_asserts_over_guards,
            )
        return self.decomposed(program)

    def decomposed(self, program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        """The program after the decompositions asked for, the program itself when there is none."""
        if self.decomposition_table is None:
            return program
        table = None if self.decomposition_table == "default" else dict(self.decomposition_table)
        with stage("ExportedProgram.run_decompositions"):
            return program.run_decompositions(table)


@contextlib.contextmanager
def stage(name: str):
    """Pass torch's errors on as a CaptureError that says in which stage they arose, with a hint for known families."""
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
        raise CaptureError(
            f"{name} failed with {type(error).__name__}: {first}", hint=capture_hint(error)
        ) from error
