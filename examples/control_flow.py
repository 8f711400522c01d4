"""
Control flow
============

A branch or a loop that depends on the data cannot be captured by running the model once. torch has operators for it: ``torch.cond``,
``while_loop``, ``scan``, ``map``. They become If, Loop and Scan in ONNX, nested as you nest them.
"""

import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from experimental_experiment.comparison import compare, session
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_interpreter import CaptureError, to_onnx

torch.manual_seed(0)


def export_and_compare(model, args, others=(), dynamic_shapes=None):
    """Export, print the worst difference from eager on the example and on other inputs."""
    onx = to_onnx(model, args, dynamic_shapes=dynamic_shapes)
    runner = session(onx)
    worst = max(gap.absolute for inputs in (args, *others) for gap in compare(model, runner, inputs))
    print(f"operators: {sorted({node.op_type for node in onx.graph.node})}, largest difference {worst:.1e}")
    return onx


# %%
# A branch
# --------
#
# Python's ``if`` on a value of a tensor is refused. torch writes the graph that it had so far, then comes the error; the hint names the
# operator to use.


class Branch(torch.nn.Module):
    """sin or cos."""

    def forward(self, x):
        """By the sign of the sum."""
        if x.sum() > 0:
            return torch.sin(x)
        return torch.cos(x)


x = torch.ones(3, 3)
try:
    to_onnx(Branch(), (x,))
except CaptureError as error:
    print(error)

# %%
# ``torch.cond`` takes the two functions and their operands.


class BranchWithCond(torch.nn.Module):
    """sin or cos."""

    def forward(self, x):
        """By the sign of the sum."""
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: torch.cos(x), [x])


onx = export_and_compare(BranchWithCond(), (x,), [(-x,)])
print(pretty_onnx(onx))

# %%
# A loop as long as a condition holds
# -----------------------------------


class Halve(torch.nn.Module):
    """Halves until the norm is below one, and counts."""

    def forward(self, x):
        """The number of turns and the result."""

        def large(count, x):
            return x.norm() > 1

        def halve(count, x):
            return count + 1, x / 2

        return while_loop(large, halve, (torch.tensor(0), x))


export_and_compare(Halve(), (torch.full((3,), 100.0),), [(torch.full((3,), 1e-3),), (torch.randn(3) * 1e4,)])

# %%
# A scan
# ------
#
# ``scan`` carries a value from turn to turn and keeps one result a turn: a recurrence over the rows of a tensor.


class Recurrence(torch.nn.Module):
    """A running mean that forgets."""

    def forward(self, x):
        """The last mean, and all of them."""

        def step(mean, row):
            mean = 0.9 * mean + 0.1 * row
            return mean, mean.clone()

        return scan(step, torch.zeros_like(x[0]), x, dim=0)


export_and_compare(
    Recurrence(), (torch.randn(6, 4),), [(torch.randn(2, 4),), (torch.randn(11, 4),)], ({0: "steps"},)
)

# %%
# A map
# -----


class EachRow(torch.nn.Module):
    """One function over the rows."""

    def forward(self, xs, y):
        """A row at a time."""
        return torch_map(lambda x, y: (x * y).cumsum(0), xs, y)


export_and_compare(
    EachRow(), (torch.randn(6, 4), torch.randn(4)), [(torch.randn(2, 4), torch.randn(4))], ({0: "rows"}, None)
)

# %%
# Inside each other
# -----------------


class Nested(torch.nn.Module):
    """A branch in each turn of a scan; the slope comes from outside."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        """A leaky sum."""

        def step(total, row):
            row = torch.cond(row.sum() > 0, lambda row: row.clone(), lambda row: row * self.slope, [row])
            return total + row, row.clone()

        return scan(step, torch.zeros_like(x[0]), x, dim=0)


onx = export_and_compare(Nested(), (torch.randn(6, 4),), [(torch.randn(9, 4),)], ({0: "steps"},))
print(pretty_onnx(onx))

# %%
# A loop whose turns give results of different sizes has an operator of its own: :doc:`export_a_loop`.
