"""Errors: the first node that could not be translated, where the user wrote it, what to do."""

from __future__ import annotations

import re

import torch


class Untranslatable(Exception):
    """Raised by a translation that meets a case it does not cover.

    The interpreter adds the node and the user's line and raises an `ExportError` from it.
    """


class ExportError(RuntimeError):
    """An export that stopped.

    Attributes:
        node: the ``torch.fx.Node`` that could not be translated, None before the translation starts.
        target: the operator of that node, None before the translation starts.
        source: ``(file, line, function, code)`` of the user's line, None when torch does not know it.
        module_path: qualified name of the submodule that the node comes from, ``""`` for the model itself.
    """

    def __init__(self, message: str, node: torch.fx.Node | None = None, hint: str = ""):
        self.node = node
        self.target = node.target if node is not None else None
        self.source = source_line(node) if node is not None else None
        self.module_path = module_path(node) if node is not None else ""
        lines = [message]
        if node is not None:
            lines.append(f"  node   %{node.name} = {target_name(node.target)}{signature(node)}")
        if self.source is not None:
            file, line, function, code = self.source
            lines += [f'  File "{file}", line {line}, in {function}', f"  {code}"]
        if hint:
            lines.append(f"  hint   {hint}")
        super().__init__("\n".join(lines))


class CaptureError(ExportError):
    """``torch.export.export`` refused the model; its own error is the cause (``__cause__``)."""


class ShapeContradiction(ExportError):
    """torch and ONNX disagree on the dtype or the shape of a result: a bug of a translation."""


HINTS = (
    (
        r"aliasing during higher order op",
        "a branch or a body returns one of its inputs, a view of one, or one tensor twice: clone it",
    ),
    (
        r"unsupported branch return type|HOP body output unsupported",
        "branches and bodies return tensors: torch.tensor(n) for a number",
    ),
    (
        r"improper combine_fn",
        "a strict capture takes torch._higher_order_ops.scan, torch.ops.higher_order.scan needs strict=False",
    ),
    (
        r"to have same metadata|object of type 'Node' has no len",
        "a carry keeps its shape from turn to turn, in a list for torch.ops.higher_order.scan: collect what grows with experimental_experiment.higher_order_ops.simple_loop_for",
    ),
    (
        r"data-dependent|GuardOnDataDependentSymNode|Could not guard|Could not extract specialized",
        "a branch or a size depends on the data: use torch.cond, bound the value with torch._check, or compute both sides with torch.where",
    ),
    (
        r"Constraints violated|ConstraintViolation|specialized|Specialized|not all values of",
        "a dimension declared dynamic is not: remove it from dynamic_shapes, name equal dimensions alike, or use Dim.AUTO",
    ),
    (
        r"pytree|Unsupported input type|register_dataclass|register_constant|unregistered|is not supported as an input",
        "a class among the inputs is unknown to torch: register it with torch.export.register_dataclass or torch.utils._pytree.register_pytree_node",
    ),
    (
        r"autograd state|set_grad_enabled|requires grad|grad mode",
        "the model changes the gradient mode: export it under torch.no_grad()",
    ),
    (
        r"dynamic_shapes|mismatch|arity",
        "dynamic_shapes must have the structure of the arguments: one entry per argument, None for a static one",
    ),
)


def capture_hint(error: BaseException) -> str:
    """One line of advice for the known families of torch.export's errors, ``""`` for the others."""
    text = f"{type(error).__name__}: {error}"
    for pattern, hint in HINTS:
        if re.search(pattern, text):
            return hint
    return ""


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


def source_line(node: torch.fx.Node) -> tuple[str, int, str, str] | None:
    """File, line, function and code of the last frame of the node's stack, None when unknown."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', node.meta.get("stack_trace") or "")
    if not frames:
        return None
    file, line, function, code = frames[-1]
    return file, int(line), function, code.strip()


def module_path(node: torch.fx.Node) -> str:
    """Qualified name of the submodule that called the operator."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L['self']")
