"""Operators that copy their input."""

from __future__ import annotations

from experimental_experiment.xoptim.engine import may_be_output
from experimental_experiment.xoptim.pattern import P, number_of, optional, var
from experimental_experiment.xoptim.rules import no, rule

x = var("x")


@rule(P.Identity(x), set="default")
def identity_nothing(op, x, root):
    """A copy is what it copies; an output of a graph that is an input, a constant, another output or an outer value needs one."""
    if root.outputs[0].is_graph_output() and not may_be_output(x, root.graph):
        return no("an output is a copy")
    return x


@rule(P.Dropout(x, optional("ratio"), optional("training"), name="node"), set="default")
def dropout_nothing(op, x, ratio, training, node):
    """A Dropout outside of training, or of nothing, is a copy."""
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return no("the mask is used")
    if op.opset < 7 or (training is not None and number_of(training) != 0 and number_of(ratio) != 0):
        return no("it may be training")
    return [x, None][: len(node.outputs)]
