"""What `optimize` refuses: arguments of other types, nodes that ONNX does not describe, which no runtime loads and no rule expects.

Source of semantics: the schemas of ``onnx.defs``, as onnx's checker reads them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter.arguments import refuse_no_progress
from experimental_experiment.torch_interpreter.inference import (
    accepts,
    inferred_as,
    is_small,
    node_proto,
    schema_of,
    tensor_proto,
    type_proto,
)
from experimental_experiment.xoptim.options import OptimizationOptions
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.rules import Rule

SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single
"""An input that a node must have."""


def check_model(model: Any) -> None:
    """Raise TypeError for what is no model, as the path of one."""
    if not isinstance(model, (ir.Model, onnx.ModelProto)):
        raise TypeError(
            f"a model is an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}: onnx.load reads a file"
        )


def check_arguments(model: Any, options: Any, rules: Any, report: Any, progress: Any) -> None:
    """Raise TypeError for what `optimize` does not take."""
    check_model(model)
    check_options(options)
    if not isinstance(report, Report | None):
        raise TypeError(f"report is a Report, which is filled, not {report!r}")
    refuse_no_progress(progress)
    if not isinstance(rules, Iterable):
        raise TypeError(f"rules is a list of rules, not {type(rules).__name__}")


def check_options(options: Any) -> None:
    """Raise TypeError for what are no options of `optimize`."""
    if not isinstance(options, OptimizationOptions | None):
        raise TypeError(f"options is an OptimizationOptions, not {options!r}: it takes the names of rules")


def check_rules(rules: Iterable[Any]) -> None:
    """Raise TypeError for a function that was not made a rule."""
    other = next((item for item in rules if not isinstance(item, Rule)), None)
    if other is not None:
        raise TypeError(f"{other!r} is no rule: the decorator rule makes one of a function")


def check_nodes(nodes: Iterable[ir.Node], opsets: Mapping[str, int]) -> None:
    """Raise ValueError for the first node that contradicts its operator."""
    opset = opsets.get("")
    if opset is None or opset > onnx.defs.onnx_opset_version():
        return
    for node in nodes:
        if node.domain:
            continue
        attributes, inputs = node.attributes.data, node.inputs
        kinds = tuple(
            [(k, None if a.is_ref() else a.type) for k, a in attributes.items()] if attributes else ()
        )
        given = tuple([value is not None for value in inputs]) if None in inputs else (True,) * len(inputs)
        problem = contradiction(node.op_type, opset, given, len(node.outputs), kinds)
        if problem:
            raise ValueError(f"{title(node)} {problem}")


def title(node: ir.Node) -> str:
    """A node in a message, by its name or by what it gives."""
    names = [node.name, *(value.name for value in node.outputs)]
    return f"the node {next(filter(None, names), '')!r} ({node.op_type})"


@functools.lru_cache(maxsize=4096)
def contradiction(
    op_type: str,
    opset: int,
    inputs: tuple[bool, ...],
    outputs: int,
    attributes: tuple[tuple[str, ir.AttributeType | None], ...],
) -> str:
    """What a node has that its operator has not, or lacks; ``""`` when it is as ONNX describes it, or when ONNX does not.

    *inputs*: whether each is given. *attributes*: names and types, None for one of the caller of a function.
    """
    schema = schema_of(op_type, opset, "")
    if schema is None or schema.deprecated:
        return ""
    for count, least, most, what in (
        (len(inputs), schema.min_input, schema.max_input, "inputs"),
        (outputs, schema.min_output, schema.max_output, "outputs"),
    ):
        if not least <= count <= most:
            return f"has {count} {what}, and ONNX wants {least if count < least else most}"
    for position, (is_given, expected) in enumerate(zip(inputs, schema.inputs)):
        if expected.option == SINGLE and not is_given:
            return f"lacks the input {position}, {expected.name}"
    for name, kind in attributes:
        known = schema.attributes.get(name)
        if known is None and not name.startswith("__"):
            return f"has the attribute {name!r}, which ONNX does not know in opset {opset}"
        if known is not None and kind is not None and kind.name != known.type.name:
            return f"has the attribute {name!r} of the type {kind.name}, and ONNX wants {known.type.name}"
    names = {name for name, _ in attributes}
    if op_type == "Constant" and len(names & schema.attributes.keys()) != 1:
        return f"has {len(names)} attributes, and ONNX wants one of them"
    missing = [name for name, known in schema.attributes.items() if known.required and name not in names]
    return f"lacks the attribute {missing[0]!r}" if missing else ""


def may_run(node: ir.Node, opset: int) -> bool:
    """Whether ONNX's inference accepts a node whose types are known, before numpy computes it.

    A node in a branch that is never taken may be invalid, and numpy may raise any error for it. Inference does not count the elements that a
    Reshape takes: `is_beyond_numpy` does. Cost: about 10 microseconds, for a node whose inputs are constants.
    """
    given = [value for value in node.inputs if value is not None]
    schema = inferred_as(node.op_type, opset, node.domain)[1]
    if schema is None or any(value.type is None for value in given):
        return False
    types = {value.name: type_proto(value) for value in given}
    data = {value.name: tensor_proto(value) for value in given if is_small(value, 64)}
    return accepts(schema, node_proto(node), types, data)
