"""Operators that look at one element at a time: patterns of a few of them in a row, and the same ones written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import Either, NodePattern, P, const, constant_of, optional
from experimental_experiment.xoptim.rules import again

UNARY = tuple(
    "Abs Cast Ceil Celu Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round "
    "Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tan Tanh".split()
)
"""Operators of one operand."""

ARITHMETIC = ("Add", "Div", "Mul", "Pow", "Sub")
"""Operators of two numbers."""

BINARY = (
    *ARITHMETIC,
    *"And Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Or PRelu Xor".split(),
)
"""Operators of two operands that broadcast."""


def step(below, name: str) -> Either:
    """One elementwise operator, called *name*, over *below*; the other operand is a constant."""
    other = const(f"{name}_operand")
    return (
        P.one_of(*UNARY)(below, name=name)
        | P.Clip(below, optional(f"{name}_low"), optional(f"{name}_high"), name=name)
        | P.one_of(*BINARY)(below, other, name=name)
        | P.one_of("Div", "Pow", "Sub")(other, below, name=name)
    )


def one_or_two(below) -> Either:
    """An elementwise operator, called ``second``, over *below*, perhaps with one called ``first`` between them."""
    return step(below | step(below, "first"), "second")


def gated(below) -> NodePattern:
    """*below* times a function of it, as x * sigmoid(x): a Mul called ``product``, an operator called ``gate``."""
    return P.Mul(below, P.one_of(*UNARY)(below, name="gate"), name="product")


def redone(
    op, steps: Sequence[ir.Node | None], old: ir.Value, new: ir.Value, moved: Callable
) -> ir.Value | None:
    """What *steps* make of *new* as they made it of *old*; constants of several elements become ``moved(constant)``, None gives up."""
    for node in steps:
        if node is None:
            continue
        inputs = []
        for value in node.inputs:
            tensor = None if node.op_type == "Clip" else constant_of(value)
            if value is old:
                inputs.append(new)
            elif tensor is None or (tensor.size == 1 and len(tensor.shape) <= len(new.shape or ())):
                inputs.append(value)
            else:
                inputs.append(moved(value))
                if inputs[-1] is None:
                    return None
        old, new = node.outputs[0], again(op, node, inputs)
    return new
