"""`coverage`: every operator of a program, how often it is called, whether it is translated and where.

`to_onnx` stops at the first node that cannot be translated. Here the walk goes on: the results of such a node become inputs
of a graph that nobody keeps, and what follows is translated with them.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from experimental_experiment.progress import Progress, silent
from experimental_experiment.torch_interpreter import dtypes, registry
from experimental_experiment.torch_interpreter.arguments import refuse_foreign_arguments, refuse_no_progress
from experimental_experiment.torch_interpreter.capture import capture
from experimental_experiment.torch_interpreter.conversion import emitter_for
from experimental_experiment.torch_interpreter.emitter import Emitter
from experimental_experiment.torch_interpreter.errors import (
    ExportError,
    Source,
    module_path,
    source_line,
    target_name,
)
from experimental_experiment.torch_interpreter.export_options import ExportOptions
from experimental_experiment.torch_interpreter.interface import Weights, add_input, is_input, number_dtype
from experimental_experiment.torch_interpreter.interpreter import Walk, as_view, live_nodes
from experimental_experiment.torch_interpreter.signature import Program, name_dimensions
from experimental_experiment.torch_interpreter.sizes import Number
from experimental_experiment.torch_interpreter.storage import Cell, View
from experimental_experiment.torch_interpreter.symbols import SYMBOLS
from experimental_experiment.torch_interpreter.torch_state import one_at_a_time, without_autocast


@dataclasses.dataclass
class Target:
    """One operator of a program.

    Attributes:
        name: as the user knows it, ``aten.add.Tensor``.
        count: how often it is called, in the bodies of control flow too.
        refused: how many of these calls cannot be translated.
        reason: why the first of them cannot, ``""`` when all can.
        source: the user's line of the first call that cannot be translated, or of the first call.
        module: qualified name of the submodule of that call.
    """

    name: str
    count: int = 0
    refused: int = 0
    reason: str = ""
    source: Source | None = None
    module: str = ""


@dataclasses.dataclass
class Coverage:
    """What `coverage` found. ``print`` shows the table, the operators that stop the export first.

    Attributes:
        targets: the operators, those that cannot be translated first, then by name.
    """

    targets: list[Target]

    @property
    def missing(self) -> list[Target]:
        """The operators that stop the export."""
        return [target for target in self.targets if target.refused]

    def __str__(self) -> str:
        import tabulate  # only who prints needs it

        calls = sum(target.count for target in self.targets)
        refused = sum(target.refused for target in self.targets)
        rows = [
            (
                target.name,
                target.count,
                f"{target.refused} refused: {target.reason}" if target.refused else "translated",
                target.module,
                f"{target.source[0]}:{target.source[1]}" if target.source else "",
            )
            for target in self.targets
        ]
        lines = [f"{calls} calls of {len(rows)} operators, {refused} cannot be translated"]
        return "\n".join([*lines, "", tabulate.tabulate(rows, ["operator", "calls", "", "module", "line"])])


def coverage(
    model: torch.nn.Module | Callable | torch.export.ExportedProgram | torch.fx.GraphModule,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target_opset: int | Mapping[str, int] | None = None,
    export_options: ExportOptions | None = None,
    translations: Mapping[Any, Callable] | None = None,
    progress: Progress = silent,
) -> Coverage:
    """Every operator of a model, translated or not, with the reason and the user's line.

    The arguments are those of `to_onnx`. Calls that no output needs are not counted.

    Raises CaptureError when torch.export refuses the model.
    """
    refuse_foreign_arguments(kwargs, export_options)
    refuse_no_progress(progress)
    op = emitter_for("coverage", target_opset, translations, "onnxruntime")
    options = export_options or ExportOptions()
    with one_at_a_time(), options.patched() as converted:
        progress("capture", 1)
        args, named = converted((args, dict(kwargs or {})))
        program = capture(model, args, named, dynamic_shapes, options)
        step = progress("translate", len(program.module.graph.nodes))
        with without_autocast(), op.context.inside(program.autocast):
            survey = Survey(program.module, op, op.context.dimensions, step)
            survey.run(operands(op, program))
    bodies = [part.graph for part in program.module.modules() if isinstance(part, torch.fx.GraphModule)]
    for graph in bodies[1:]:
        survey.refuse_unknown(graph)
    return Coverage(counted(bodies, survey.refusals))


def operands(op: Emitter, program: Program) -> list[Any]:
    """What the placeholders of a program hold while it is translated."""
    name_dimensions(program.inputs, op.context.dimensions)
    weights = Weights(op)
    return [
        as_view(add_input(entry, op.context.dimensions) if is_input(entry) else weights.value(entry))
        for entry in program.inputs
    ]


class Survey(Walk):
    """A walk that notes what cannot be translated and goes on. ``refusals``: the errors, by the node that was refused."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.refusals: dict[torch.fx.Node, ExportError] = {}

    def translated(self, node: torch.fx.Node) -> Any:
        """The result of a node, or a stand-in for it."""
        try:
            return super().translated(node)
        except ExportError as error:
            self.refusals[error.node or node] = error
            return pytree.tree_map(lambda fake: self.stand_in(node, fake), node.meta.get("val"))

    def stand_in(self, node: torch.fx.Node, fake: Any) -> Any:
        """A value that nothing produces, of the type that torch says; FLOAT for a dtype that ONNX lacks."""
        if isinstance(fake, torch.Tensor):
            kind = dtypes.TORCH_TO_ONNX.get(fake.dtype, ir.DataType.FLOAT)
            shape = ir.Shape(self.dimensions.shape(fake, node.name))
            return View(Cell(ir.Value(name=node.name, type=ir.TensorType(kind), shape=shape)))
        if isinstance(fake, SYMBOLS):
            value = ir.Value(name=node.name, type=ir.TensorType(number_dtype(fake)), shape=ir.Shape([]))
            return Number(value, self.dimensions.label(fake, node.name))
        return fake

    def refuse_unknown(self, graph: torch.fx.Graph) -> None:
        """Note the operators of a body without a translation: the walk leaves a body at the first of them."""
        for node in calls(graph):
            if node not in self.refusals and not self.knows(node):
                self.refusals[node] = ExportError(f"{target_name(node.target)} has no translation", node)

    def knows(self, node: torch.fx.Node) -> bool:
        """Whether an operator, or what it is without its write, has a translation."""
        target = registry.twin(node.target) or node.target
        tables = (self.op.context.translations, registry.TRANSLATIONS, registry.COMPLEX)
        return target is operator.getitem or any(
            key in table for table in tables for name in (node.target, target) for key in registry.keys(name)
        )


def calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The calls of operators that matter in a graph."""
    live = live_nodes(graph)
    return [node for node in graph.nodes if node.op == "call_function" and node in live]


def counted(graphs: Sequence[torch.fx.Graph], refusals: Mapping[torch.fx.Node, ExportError]) -> list[Target]:
    """The operators that are called in some graphs."""
    found: dict[str, Target] = {}
    for node in (node for graph in graphs for node in calls(graph)):
        name = target_name(node.target)
        target = found.setdefault(name, Target(name, source=source_line(node), module=module_path(node)))
        target.count += 1
        if node not in refusals:
            continue
        target.refused += 1
        if target.refused == 1:
            target.reason = str(refusals[node]).splitlines()[0].removeprefix(f"{name} ")
            target.source, target.module = source_line(node), module_path(node)
    return sorted(found.values(), key=lambda target: (not target.refused, target.name))
