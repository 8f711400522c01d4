"""Operators that look at one element at a time: patterns of a few of them in a row, and the same ones written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import FLOATS
from experimental_experiment.torch_interpreter.inference import MOVES
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

CUTS = frozenset("Ceil Equal Floor Greater GreaterOrEqual Less LessOrEqual Mod Round Sign".split())
"""Operators whose results jump: the last bit of an operand decides between two whole numbers, or between true and false."""

KEEPS = MOVES | frozenset("Abs Add Clip Div Max Min Mul Neg Pad Relu Sub Where".split())
"""Operators that hand the last bits of a number on, as scales, bounds and movements before a cut do."""

ASKED = 24
"""How many nodes behind a value are asked whether they cut it."""


def is_cut(value: ir.Value) -> bool:
    """Whether what a few simple nodes make of floats ends in whole numbers or conditions, where a rounding less is another result.

    As in ``(x * scale).clamp(0, 255).to(torch.uint8)`` and ``torch.floor(hours * 60 * 60)``, of which eager rounds each step.
    """
    behind, asked = [value], 0
    while behind and asked < ASKED:
        read = behind.pop(0)
        for node, _ in read.uses()[: ASKED - asked]:
            asked += 1
            whole = node.op_type == "Cast" and node.outputs[0].dtype not in FLOATS
            if whole or node.op_type in CUTS:
                return True
            if node.op_type in KEEPS or node.op_type == "Cast":
                behind.extend(node.outputs)
    return False


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
