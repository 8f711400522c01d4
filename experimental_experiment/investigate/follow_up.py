"""What `to_onnx` does after the export when it is asked to: ``verify=True``, ``report="report.html"``."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

import onnx
import torch

from experimental_experiment.comparison import (
    Difference,
    called,
    differences,
    leaves_of,
    new_values,
    run,
    session,
)
from experimental_experiment.investigate.page import page
from experimental_experiment.investigate.replay import as_onnx, ordered_leaves
from experimental_experiment.investigate.report import as_markdown, gathered
from experimental_experiment.torch_interpreter.capture import module_of
from experimental_experiment.torch_interpreter.errors import VerificationError
from experimental_experiment.torch_interpreter.journal import Journal
from experimental_experiment.torch_interpreter.weights import is_empty, weights_of
from experimental_experiment.whole import whole

FORMATS = (".html", ".md")
"""What a report can be, by the end of its name."""

Model = onnx.ModelProto | str | os.PathLike


def refuse_unknown_format(report: str | os.PathLike | None) -> None:
    """Raise ValueError for a report of another format, or in a folder that does not exist."""
    if report is None:
        return
    if not os.fspath(report).endswith(FORMATS):
        raise ValueError(f"report is a file that ends with {' or '.join(FORMATS)}, not {os.fspath(report)!r}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(report))):
        raise FileNotFoundError(f"the folder of {os.fspath(report)!r} does not exist")


def refuse_no_values(mod: Any, args: Any, kwargs: Mapping[str, Any] | None, are_apart: bool) -> None:
    """Raise ValueError for what eager cannot run: an example without values, or, when weights *are apart*, a model that has none of its own.

    They are on the meta device, or were made under FakeTensorMode.
    """
    tensors: dict[str, torch.Tensor] = {}
    if are_apart:
        tensors.update(
            weights_of(mod if isinstance(mod, torch.export.ExportedProgram) else module_of(mod))[0]
        )
    tensors.update(
        (f"input {number} of the example", leaf)
        for number, leaf in enumerate(leaves_of((args, kwargs)))
        if isinstance(leaf, torch.Tensor)
    )
    empty = next((name for name, tensor in tensors.items() if is_empty(tensor)), None)
    if empty is not None:
        raise ValueError(
            f"verify runs the model that is given in eager, and {empty} has no values there: make it with some, or leave verify out"
        )


def follow_up(
    journal: Journal,
    mod: Any,
    args: Any,
    kwargs: Mapping[str, Any],
    model: Model,
    verify: bool,
    report: str | os.PathLike | None,
    filename: str | os.PathLike | None,
) -> None:
    """Write the report, then verify: the report of a model that is wrong is the one to read.

    *filename*: where the *model* will be, when that is a file.

    Raises:
        VerificationError: an output differs from eager.
        EagerError: the example fails in eager.
        ValueError: an ExportedProgram or a GraphModule without an example call.
    """
    args, kwargs = example_call(mod, args, kwargs)
    if report is not None:
        content = gathered(journal, type(mod).__name__, args, kwargs, model, filename)
        text = page(content) if os.fspath(report).endswith(".html") else as_markdown(content)
        with whole(report) as written, open(written, "w", encoding="utf-8") as file:
            file.write(text)
    if verify:
        differences = compared(journal, mod, args, kwargs, model)
        wrong = [item for item in differences if not item.within]
        if wrong:
            raise VerificationError(told(wrong[0], len(wrong), len(differences)), hint=HINT)


HINT = "experimental_experiment.investigate.discrepancies(model, args, kwargs) names the first wrong node"


def told(first: Difference, wrong: int, outputs: int) -> str:
    """The sentence of the error."""
    if first.expected == first.got:
        how = f"{first.expected}, differs by {first.absolute:.1e}, relatively by {first.relative:.1e}"
    else:
        how = f"{first.got} instead of {first.expected}"
    return f"the output {first.name} is not eager's: {how} ({wrong} of {outputs} outputs differ)"


def example_call(mod: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of the example, those of the program when none are given."""
    args = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    if isinstance(mod, torch.export.ExportedProgram) and not args and not kwargs:
        if mod.example_inputs is None:
            raise ValueError(
                "verify and report need the arguments of a call: the ExportedProgram has no example inputs"
            )
        return mod.example_inputs
    return args, dict(kwargs)


def compared(
    journal: Journal, mod: Any, args: tuple, kwargs: Mapping[str, Any], model: Model
) -> list[Difference]:
    """Every output beside eager's, in order; then the new values of what the model writes, when they are outputs."""
    held_tensors = (entry.tensor for entry in journal.program.inputs if entry.tensor is not None)
    writes = any(not isinstance(tensor, torch.nn.Parameter) for tensor in held_tensors)
    eager = mod.module() if isinstance(mod, torch.export.ExportedProgram) else mod
    eager = copy.deepcopy(eager) if writes else eager
    given = copy.deepcopy((tuple(args), dict(kwargs)))
    leaves = ordered_leaves(journal.exported, *given)
    users = [entry for entry in journal.program.inputs if entry.tensor is None]
    arguments = {entry.name: leaf for entry, leaf in zip(users, leaves)}
    kept = {entry.name: entry.tensor for entry in journal.program.inputs if entry.tensor is not None}
    held, runner = {**arguments, **kept}, session(model)
    inputs = [as_onnx(held[argument.name]).clone() for argument in runner.get_inputs()]
    expected = called(eager, *given)
    names = [argument.name for argument in runner.get_outputs()]
    after = new_values(eager, arguments, kept, names)
    return differences(names, expected, after, run(runner, inputs))
