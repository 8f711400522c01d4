"""Control flow that decides nothing."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.xoptim.constants import lift_constants, nameable
from experimental_experiment.xoptim.pattern import P, const, number_of
from experimental_experiment.xoptim.rules import no, rule


@rule(P.If(const("condition"), name="node"), set="default")
def if_of_known_condition(op, condition, node):
    """The branch of a condition that is known stands in the place of the If."""
    known = number_of(condition)
    if known is None:
        return no("the condition is no single element")
    branch: ir.Graph = node.attributes["then_branch" if known else "else_branch"].value
    unique = op.context.names.unique
    results = list(branch.outputs)
    branch.outputs.clear()
    lift_constants(list(branch))  # those that were outputs
    results = [branch.initializers.get(value.name, value) for value in results]
    for weight in list(branch.initializers.values()):
        here = op.weight(weight.name, nameable(weight.const_value))
        weight.replace_all_uses_with(here)
        results = [here if value is weight else value for value in results]
        del branch.initializers[weight.name]
    inner = list(branch)
    branch.remove(inner)
    for member in inner:
        for value in member.outputs:
            value.name = unique(value.name) if value.name else value.name
        member.name = unique(member.name or member.op_type)
        op.insert(member)
    return results
