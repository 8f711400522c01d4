"""
Reading errors, and investigating
=================================

An export stops at the first node that it cannot translate. This page reads such an error, lists everything that would stop it, finds the
submodule that torch.export refuses, and the node where numbers differ.
"""

import contextlib
import io

import onnx
import torch

from experimental_experiment.investigate import coverage, discrepancies, piece_by_piece
from experimental_experiment.torch_interpreter import CaptureError, ExportError, to_onnx


@torch.library.custom_op("investigated::rescale", mutates_args=())
def rescale(x: torch.Tensor, by: float) -> torch.Tensor:
    """An operator that the exporter does not know."""
    return x * by


@rescale.register_fake
def _(x, by):
    return torch.empty_like(x)


class Encoder(torch.nn.Module):
    """A layer and a custom operator."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        """As wide as x."""
        return rescale(torch.relu(self.linear(x)), 0.5)


class Gate(torch.nn.Module):
    """Branches on data."""

    def forward(self, x):
        """x or nothing."""
        if x.mean() > 0:
            return x
        return torch.zeros_like(x)


class Model(torch.nn.Module):
    """Both, and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.gate = Gate()
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x):
        """Two numbers a row."""
        return self.head(self.gate(self.encoder(x)))


torch.manual_seed(0)
x = torch.randn(3, 6)

# %%
# An error
# --------
#
# What stopped and why; the node with its types; the line of the model; what to do. The exception has them as attributes.

try:
    to_onnx(Encoder(), (x,))
except ExportError as error:
    print(error)
    print("--", error.target, error.module_path or "the model itself", error.source[1:3])

# %%
# Everything that would stop it
# -----------------------------
#
# ``coverage`` goes on after a node that has no translation.

print(coverage(Encoder(), (x,)))

# %%
# Which part does torch.export refuse?
# ------------------------------------
#
# ``piece_by_piece`` runs the model, exports it, then its submodules with the arguments that they had. With several calls, the dimensions that
# differ are dynamic. (torch writes the graph that it had so far to the error stream: here it goes nowhere.)

with contextlib.redirect_stderr(io.StringIO()):
    try:
        to_onnx(Model(), (x,))
    except CaptureError as error:
        print(str(error).splitlines()[0])

    pieces = piece_by_piece(Model(), [(x,), (torch.randn(5, 6),)])

print([(piece.path, piece.family or piece.detail.splitlines()[0]) for piece in pieces.failures])

# %%
# ``print(pieces)`` shows the tree with its times, ``to_html`` writes it as a page, ``folder=`` a script for each failure that reproduces it
# alone.

for depth, piece in pieces.root.walk():
    print(f"{'  ' * depth}{piece.path or 'model'} ({piece.kind}): {piece.status}")

# %%
# Numbers that differ
# -------------------
#
# ``discrepancies`` compares every result that torch and ONNX both name. Here a translation is wrong on purpose: it forgets the factor.

report = discrepancies(Encoder(), (x,), translations={rescale: lambda op, x, by: op.Identity(x)})
print(report.verdict)
print(report.first)

# %%
# With the right one:

right = {rescale: lambda op, x, by: op.Mul(x, by)}
print(discrepancies(Encoder(), (x,), translations=right))

# %%
# A model that was written before, by this exporter or by hand, is compared the same way.

model = to_onnx(Encoder(), (x,), translations=right)
weight = next(value for value in model.graph.initializer if value.name == "linear.bias")
weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) + 0.1, "linear.bias"))
print(discrepancies(Encoder(), (x,), onnx=model).first)

# %%
# The commands do the same: ``python -m experimental_experiment investigate --help``.
