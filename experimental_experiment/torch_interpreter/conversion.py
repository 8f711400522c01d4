"""From the arguments of `to_onnx` to a model: capture, translate, optimize."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch

import experimental_experiment.torch_interpreter.translations  # noqa: F401 (they register)
from experimental_experiment import versions
from experimental_experiment.garbage import paused_collection
from experimental_experiment.logs import logger
from experimental_experiment.progress import Progress, silent
from experimental_experiment.protos import MICROSOFT, PRODUCER, to_proto
from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.arguments import opsets_by_domain, refuse_no_switches
from experimental_experiment.torch_interpreter.assumptions.held_values import warn_of_held
from experimental_experiment.torch_interpreter.capture import capture, module_of
from experimental_experiment.torch_interpreter.emitter import Context, Emitter
from experimental_experiment.torch_interpreter.errors import ExportError, brief
from experimental_experiment.torch_interpreter.export_options import CapturedOnce, ExportOptions
from experimental_experiment.torch_interpreter.files import PROTOBUF_LIMIT, saving, weight_bytes
from experimental_experiment.torch_interpreter.functions import class_names
from experimental_experiment.torch_interpreter.interface import (
    Weights,
    add_input,
    is_input,
    is_written,
    output,
    output_leaves,
    refuse_names_of_weights,
    rename_inputs,
)
from experimental_experiment.torch_interpreter.interpreter import (
    Walk,
    as_view,
    assignments,
    changes_shape,
    value_of,
)
from experimental_experiment.torch_interpreter.journal import Journal
from experimental_experiment.torch_interpreter.passes import finish, options_of
from experimental_experiment.torch_interpreter.patches.patch import used_patches
from experimental_experiment.torch_interpreter.runtime.draws import warn_of_equal_draws
from experimental_experiment.torch_interpreter.runtime.kernels import NEWEST
from experimental_experiment.torch_interpreter.runtime.table import refuse_misfit_target
from experimental_experiment.torch_interpreter.signature import Input, Program, name_dimensions
from experimental_experiment.torch_interpreter.sizes import declare, plain
from experimental_experiment.torch_interpreter.storage import View
from experimental_experiment.torch_interpreter.torch_state import one_at_a_time, without_autocast
from experimental_experiment.torch_interpreter.weights import give, opened
from experimental_experiment.xoptim.options import OptimizationOptions

versions.require("onnx_ir")

OPSETS = range(13, NEWEST + 1)
"""Versions of ai.onnx that can be targeted."""

FUNCTIONS_IR_VERSION = 8
"""The version of the file format that has local functions."""

DEFAULT_OPSET = 20


@contextlib.contextmanager
def written(
    model: ir.Model, filename: str | os.PathLike | None, is_tried: bool
) -> Iterator[tuple[onnx.ModelProto, onnx.ModelProto | str]]:
    """The model as a proto, in the file when there is one, which is in its place when this ends without an error, see `saving`.

    Gives it, and what can be run meanwhile when it *is_tried*. Raises ValueError when it needs a file.
    """
    if filename is not None:
        with saving(model, filename, is_tried) as (proto, path):
            yield proto, path
        return
    size = weight_bytes(model)
    if size > PROTOBUF_LIMIT:
        raise ValueError(f"the weights take {size / 2**30:.1f} GB and protobuf stops at 2: give filename=")
    proto = to_proto(ir.external_data.load_to_model(model))
    yield proto, proto


def to_ir(
    mod: Any,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    target_opset: int | Mapping[str, int] | None = None,
    export_options: ExportOptions | CapturedOnce | None = None,
    optimize: bool | OptimizationOptions = True,
    translations: Mapping[Any, Callable] | None = None,
    mutated_buffers: str = "drop",
    modules_as_functions: bool | Collection[type] = False,
    inline: bool | None = None,
    runtime: str = "onnxruntime",
    special_values: bool = False,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike | None = None,
    journal: Journal | None = None,
) -> ir.Model:
    """What `to_onnx` writes, with the same arguments: its weights are torch's own memory. *journal*: where to note what is done."""
    journal = journal or Journal(silent)
    op = emitter_for(
        type(mod).__name__,
        target_opset,
        translations,
        runtime,
        special_values,
        keeps_modules=bool(modules_as_functions) and not inline,
    )
    context = op.context
    classes = class_names(modules_as_functions)
    options = options_of(optimize, context.domains)
    refuse_no_switches(may_be_none=True, inline=inline)
    if mutated_buffers not in ("drop", "outputs"):
        raise ValueError(f"mutated_buffers is 'drop' or 'outputs', not {mutated_buffers!r}")
    capture_options = export_options or ExportOptions()
    with one_at_a_time(), capture_options.patched() as modificator:
        journal.progress("capture", 1)
        args, kwargs = modificator(args), modificator(dict(kwargs or {}))
        values = None if weights is None else opened(weights)
        program = capture(mod, args, kwargs, dynamic_shapes, capture_options)
        if values is not None:
            give(program, mod if isinstance(mod, torch.export.ExportedProgram) else module_of(mod), values)
        with without_autocast(), context.inside(program.autocast):
            translate(op, program, input_names, output_names, mutated_buffers == "outputs", journal.progress)
        journal.patches = used_patches()
    model = model_of(op)
    refuse_unused_domains(target_opset, model)
    journal.optimized = finish(model, context, options, bool(inline), classes, journal.progress)
    if runtime == "onnxruntime":
        warn_of_equal_draws(model.graph)
    journal.program, journal.rows = program, context.applied
    journal.exported = capture_options.program if isinstance(capture_options, CapturedOnce) else None
    return model


def emitter_for(
    name: str,
    target_opset: int | Mapping[str, int] | None,
    translations: Mapping[Any, Callable] | None,
    runtime: str,
    special_values: bool = False,
    **others: Any,
) -> Emitter:
    """What writes an empty graph for this target; arguments as `to_onnx` takes them, *others* go to `Context`.

    Raises ValueError or TypeError when one of them is wrong.
    """
    opset, domains = opsets(target_opset)
    refuse_misfit_target(runtime, special_values)
    table = registry.per_call_table(translations)
    graph = ir.Graph([], [], nodes=[], name=name, opset_imports={"": opset, **domains})
    others |= {"translations": table, "runtime": runtime, "special_values": special_values}
    return Emitter(graph, Context(graph, opset, domains=graph.opset_imports, **others))


def model_of(op: Emitter) -> ir.Model:
    """The model of a graph that was written, with its local functions."""
    return ir.Model(
        op.graph,
        ir_version=max(
            FUNCTIONS_IR_VERSION,
            onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", op.opset)]),
        ),
        producer_name=PRODUCER,
        functions=op.context.functions,
    )


def opsets(target: int | Mapping[str, int] | None) -> tuple[int, dict[str, int]]:
    """The version of ai.onnx, and those of the other domains; ValueError or TypeError when it cannot be honoured."""
    if target is None:
        return DEFAULT_OPSET, {}
    versions = opsets_by_domain(target) if isinstance(target, Mapping) else {"": target}
    opset = versions.pop("", DEFAULT_OPSET)
    if not isinstance(opset, int) or isinstance(opset, bool):
        raise TypeError(f"target_opset is an int or a dict of versions by domain, not {target!r}")
    if opset not in OPSETS:
        raise ValueError(f"target_opset {opset} is not between {OPSETS[0]} and {OPSETS[-1]}")
    return opset, versions


STANDARD_DOMAINS = "", "ai.onnx", onnx.defs.ONNX_ML_DOMAIN, onnx.defs.AI_ONNX_PREVIEW_TRAINING_DOMAIN
"""Those of ONNX, whose versions a list for several models gives."""


def refuse_unused_domains(target: int | Mapping[str, int] | None, model: ir.Model) -> None:
    """Raise ValueError when *target* gives the version of a domain that no node has, none of ONNX's own and not com.microsoft."""
    if not isinstance(target, Mapping):
        return
    used = {node.domain for part in (model.graph, *model.functions.values()) for node in part.all_nodes()}
    used |= {*STANDARD_DOMAINS, MICROSOFT}
    unused = [domain for domain in target if domain not in used]
    if unused:
        raise ValueError(f"target_opset names the domain {unused[0]!r}, of which the model has no operator")


def is_state(program: Program, walk: Walk, entry: Input) -> bool:
    """Whether a call writes a tensor that the model holds, a buffer or an attribute, for the next one to read."""
    # a constant without users is a buffer that the model reaches through another object, see `name_lifted_buffers`
    is_held = entry.tensor is not None and (entry.is_buffer or bool(entry.node.users))
    return is_held and is_written(program, walk, entry) and not is_literal(entry.node)


def other_names(held: Sequence[Input]) -> dict[torch.fx.Node, Input]:
    """Of the buffers that are held under several names, as a module that stands twice in a Sequential has them: the first entry."""
    first: dict[int, Input] = {}
    known = {entry.node: first.setdefault(id(entry.tensor), entry) for entry in held}
    return {node: entry for node, entry in known.items() if entry.node is not node}


def refuse_other_shapes(program: Program) -> None:
    """Raise ExportError when a buffer is given a tensor of another shape, as a cache that grows: the input has that of the module."""
    names = {entry.node: entry.name for entry in program.inputs}
    for node in filter(changes_shape, assignments(program.module.graph)):
        buffer, given = (brief(argument) for argument in node.args)
        raise ExportError(
            f"the buffer {names.get(node.args[0], node.args[0].name)} is given a tensor of another shape, {given} for {buffer}: the input would not take it",
            hint="make it an argument and a result of forward, or write into a buffer that is large enough",
        )


def is_literal(node: torch.fx.Node) -> bool:
    """Whether a constant is that of ``torch.tensor([1, 2])`` in forward: each call makes a copy, and writes into that."""
    return bool(node.users) and all(
        user.target is torch.ops.aten.lift_fresh_copy.default for user in node.users
    )


@paused_collection()
def translate(
    op: Emitter,
    program: Program,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    keep_written: bool,
    progress: Progress,
) -> None:
    """Write the program into the graph of *op*: inputs, weights, nodes, outputs."""
    for name, kind in program.assigned.items() if keep_written else ():
        module = "submodule" if kind == "buffer" and "." in name else "module"
        raise ExportError(
            f"the new value of the {kind} {name} is lost: torch.export does not follow a {module} that gives its {kind} another tensor",
            hint=f"write into the {kind}: self.name.copy_(value)",
        )
    if keep_written:
        refuse_other_shapes(program)
    rename_inputs(program, input_names)
    dimensions = op.context.dimensions
    name_dimensions(program.inputs, dimensions)
    step = progress("translate", len(program.module.graph.nodes))
    walk = Walk(program.module, op, dimensions, step)
    refuse_names_of_weights("input_names", program, input_names)
    refuse_names_of_weights("output_names", program, output_names)
    interface = [entry for entry in program.inputs if is_input(entry)]
    held = [entry for entry in program.inputs if keep_written and is_state(program, walk, entry)]
    others = other_names(held)
    kept = [entry for entry in held if entry.node not in others]
    interface += kept
    for entry in interface:  # of a buffer and an argument of one name the argument has it
        entry.name = op.context.names.unique(entry.name)
    warn_of_held(program, kept)
    leaves = output_leaves(program, output_names, [entry.name for entry in interface])
    for name, _ in leaves:
        op.context.names.reserve(name)
    weights = Weights(op)
    views: list[Any] = []
    for entry in program.inputs:
        if entry.node in others:
            views.append(views[program.inputs.index(others[entry.node])])
            continue
        value = add_input(entry, dimensions) if entry in interface else weights.value(entry)
        if entry in interface:
            declare(op, value)
        views.append(as_view(value))
    op.graph.inputs.extend(plain(value_of(op, views[program.inputs.index(entry)])) for entry in interface)
    returned = [value_of(op, item) for item in walk.run(views)]
    for position, entry in program.writes.items():
        if entry is not None:
            views[program.inputs.index(entry)].write(op, returned[position])
    results = [
        item for position, item in enumerate(returned) if item is not None and position not in program.writes
    ]
    for (name, node), item in zip(leaves, results):
        op.graph.outputs.append(output(op, dimensions, name, item, node))
    written = [
        (entry, view)
        for entry, view in zip(program.inputs, views)
        if isinstance(view, View)
        and view.cell.version
        and not is_literal(entry.node)
        and entry.node not in others
    ]
    if not (op.graph.outputs or (keep_written and written)):
        raise ExportError(f"{op.graph.name} returns no tensor and no number: an ONNX model has an output")
    if keep_written:
        for entry, view in written:
            name = op.context.names.unique(f"{entry.name}_out")
            op.graph.outputs.append(output(op, dimensions, name, view.read(op), entry.node))
        return
    lost = [entry.name for entry, view in written if all(view.read(op) is not value for value in returned)]
    lost += program.assigned
    if lost:
        logger.warning(
            "the model writes %s: the new values are not part of the ONNX model (mutated_buffers='outputs' adds them)",
            ", ".join(lost),
        )
