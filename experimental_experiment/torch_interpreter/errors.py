"""Errors: the first node that could not be translated, where the user wrote it, what to do."""

from __future__ import annotations

import os
import re

import torch

Source = tuple[str, int, str, str]
"""A line of the user's: file, line, function, code."""

CALLS = "<eval_with_key>", os.path.join(os.path.dirname(torch.__file__), "_library", "")
"""Where the innermost frames of a stack are no lines of the model: graphs, and calls of operators, which torch 2.9 keeps."""

SPARSE = (
    "ONNX has no sparse tensors: compute with dense ones; zeros.index_add(0, rows, values[:, None] * x[columns]) is the product of "
    "a matrix, of which values are given, with x"
)
"""The advice for operators of sparse tensors."""

QUANTIZED = (
    "tensors of torch.quint8 and the like, which torch.export does not follow: quantize with PT2E, or export the float model, then "
    "experimental_experiment.xoptim.quantize_weights"
)
"""The advice for operators of quantized tensors."""

INSTEAD = ((r"^aten\._?(to_)?sparse(?!_semi)", SPARSE), (r"^aten\.(de)?quantize", QUANTIZED))
"""Names of operators that have no translation, and the advice that is better than to write one."""

ARGUMENTS = {"generator": "leave generator= out: a runtime draws with its own"}
"""Arguments that no operator of ONNX takes, and the advice."""


class Untranslatable(Exception):
    """Raised by a translation that meets a case it does not cover.

    The interpreter adds the node and the user's line and raises an `ExportError` from it, with the *hint* if there is one.
    """

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


class ExportError(RuntimeError):
    """An export that stopped.

    Attributes:
        node: the ``torch.fx.Node`` that could not be translated, None before the translation starts, and in a copy.
        target: the operator of that node, None where there is no node.
        source: ``(file, line, function, code)`` of the user's line, None when it is not known.
        module_path: qualified name of the submodule that the node comes from, ``""`` for the model itself.
    """

    def __init__(
        self, message: str, node: torch.fx.Node | None = None, hint: str = "", source: Source | None = None
    ):
        self.node = node
        self.target = node.target if node is not None else None
        self.source = source_line(node) if node is not None else source
        self.module_path = module_path(node) if node is not None else ""
        lines = [message]
        if node is not None:
            lines.append(f"  node   %{node.name} = {target_name(node.target)}{signature(node)}")
        if self.source is not None:
            lines.append(located(self.source))
        if hint:
            lines.append(f"  hint   {hint}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple:
        """A copy, as for another process, has neither the node, which holds the whole graph, nor its operator: torch pickles none."""
        return type(self), self.args, {**self.__dict__, "node": None, "target": None}


class CaptureError(ExportError):
    """``torch.export.export`` refused the model; its own error is the cause (``__cause__``)."""


class EagerError(ExportError):
    """PyTorch itself fails on the example, before anything of ONNX: what it raised is the cause (``__cause__``)."""


class VerificationError(ExportError):
    """The model that was written does not give what eager gives: ``to_onnx(verify=True)`` names the first output."""


class ShapeContradiction(ExportError):
    """torch and ONNX disagree on the dtype or the shape of a result: a bug of a translation."""


def located(source: Source) -> str:
    """A line of the user's in a message, as Python shows it in a traceback."""
    file, line, function, code = source
    return f'  File "{file}", line {line}, in {function}\n  {code}'.rstrip()


def target_name(target: object) -> str:
    """The name a user knows a target by: ``aten.add.Tensor``, ``higher_order.cond``, ``operator.add``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = getattr(target, "__name__", None) or str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{name}"
    module = getattr(target, "__module__", "") or ""
    return f"{module.lstrip('_')}.{name}" if module else name


def signature(node: torch.fx.Node) -> str:
    """Types of the arguments and of the result: ``(float32[3, 3], dim=0) -> float64[]``."""
    given = [brief(argument) for argument in node.args]
    given += [f"{name}={brief(value)}" for name, value in node.kwargs.items()]
    return f"({', '.join(given)}) -> {brief(node.meta.get('val'))}"


def brief(value: object) -> str:
    """A short text for an argument of a node: dtype and shape of a tensor, the value of anything else."""
    if isinstance(value, torch.fx.Node):
        value = value.meta.get("val", value)
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(brief(item) for item in value)}]"
    return str(value)


def source_line(node: torch.fx.Node) -> Source | None:
    """File, line, function and code of the last frame of the node's stack in a file, None when unknown."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', node.meta.get("stack_trace") or "")
    frames = [frame for frame in frames if not frame[0].startswith(CALLS)] or frames
    if not frames:
        return None
    file, line, function, code = frames[-1]
    return file, int(line), function, code.strip()


def module_path(node: torch.fx.Node) -> str:
    """Qualified name of the submodule that called the operator."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L['self']")


def refused(node: torch.fx.Node, error: Untranslatable, hint: str = "") -> ExportError:
    """The error that names the node, and what to do: *hint*, if there is a better one."""
    name = target_name(node.target)
    hint = hint or error.hint or f"rewrite this line, or give to_onnx(..., translations={{{name}: function}})"
    return ExportError(f"{name} cannot be translated: {error}", node, hint)


def untranslated(node: torch.fx.Node, target: object, of_what: str = "") -> ExportError:
    """The error for an operator, that of a node or the one in its place, that has no translation, or none *of_what* it is given."""
    name = target_name(target)
    hint = next((advice for pattern, advice in INSTEAD if re.search(pattern, name)), "")
    hint = hint or (
        f"register one with @translates({name}), or pass to_onnx(..., translations={{{name}: function}})"
    )
    return ExportError(f"{name}{of_what} has no translation", node, hint)
