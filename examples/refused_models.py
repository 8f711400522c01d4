"""
Models that torch.export refuses
================================

Some models are refused for reasons that are not theirs: torch runs every step of a recurrent layer to find its shape, does not know a class
of inputs, reads a size from data. A patch replaces, while a model is captured, what refuses; everything is put back afterwards.
"""

import dataclasses

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from experimental_experiment.comparison import compare, run, session
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors, patches

# %%
# These are there; ``print(patches())`` is the table of :doc:`../patches`. Those of its column *default* give an export that is right, and
# are on in every ``to_onnx``.

print(*(patch.name for patch in patches()), sep=", ")

# %%
# A recurrent layer with a dynamic length
# ---------------------------------------
#
# torch.export alone fixes the length of the sequence to that of the example; ``patches=False`` shows it.


class Recurrent(torch.nn.Module):
    """An LSTM."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(4, 8, batch_first=True)

    def forward(self, x):
        """Its last state."""
        _, (hidden, _) = self.layer(x)
        return hidden


torch.manual_seed(0)
model, x = Recurrent(), torch.randn(2, 5, 4)
shapes = {"x": {0: "batch", 1: "length"}}
try:
    to_onnx(model, (x,), dynamic_shapes=shapes, export_options=ExportOptions(patches=False))
except CaptureError as error:
    print(error)

# %%
# With the patch, it is one LSTM of ONNX, for any length.

onx = to_onnx(model, (x,), dynamic_shapes=shapes)
print([node.op_type for node in onx.graph.node])
for length in (5, 1, 12):
    (difference,) = compare(model, session(onx), (torch.randn(3, length, 4),))
    print(f"length {length}: {difference.absolute:.1e}")

# %%
# Sequences of several lengths
# ----------------------------
#
# Packed sequences are captured by a patch too.


class Packed(Recurrent):
    """An LSTM over sequences of several lengths."""

    def forward(self, x, lengths):
        """All states, zeros after the end of a sequence."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.layer(packed)
        return pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0]


model = Packed()
onx = to_onnx(
    model,
    (x, torch.tensor([5, 2])),
    dynamic_shapes={"x": {0: "batch", 1: "length"}, "lengths": {0: "batch"}},
)
(difference,) = compare(model, session(onx), (torch.randn(3, 7, 4), torch.tensor([1, 7, 4])))
print(f"{difference.got}, {difference.absolute:.1e}")

# %%
# Gradients in forward
# --------------------
#
# torch.export does not take ``torch.autograd.grad``. ``tracing="make_fx"`` follows it: an energy and its forces, for any number of atoms.


class Energy(torch.nn.Module):
    """A potential and what it does to each atom."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, positions):
        """The energy, and the forces."""
        positions = positions.detach().requires_grad_(True)
        energy = self.layers(positions).sum()
        (slope,) = torch.autograd.grad(energy, positions)
        return energy, -slope


model, positions = Energy(), torch.randn(5, 3)
shapes = {"positions": {0: "atoms"}}
try:
    to_onnx(model, (positions,), dynamic_shapes=shapes)
except CaptureError as error:
    print(str(error).splitlines()[0])
onx = to_onnx(model, (positions,), dynamic_shapes=shapes, export_options=ExportOptions(tracing="make_fx"))
other = torch.randn(9, 3)
expected = [tensor.detach() for tensor in model(other)]
for name, a, b in zip(("energy", "forces"), expected, run(session(onx), [other]), strict=True):
    print(f"{name}: {tuple(b.shape)}, {(a - b).abs().max():.1e}")

# %%
# A branch that the data decide
# -----------------------------
#
# The error of such a branch shows its line. A patch that is used by its name alone makes a ``torch.cond`` of the ``if``: both sides are in the
# model. A side that writes, notes something or gives another shape stays refused.


class Scaled(torch.nn.Module):
    """Scales what is too large."""

    def forward(self, x):
        """At most 1 in size."""
        largest = x.abs().max()
        if largest > 1:
            x = x / largest
        return x


try:
    to_onnx(Scaled(), (x,))
except CaptureError as error:
    print(error)
onx = to_onnx(Scaled(), (x,), export_options=ExportOptions(patches={"branches_of_data"}))
print([node.op_type for node in onx.graph.node])
for factor in (0.1, 10.0):
    (difference,) = compare(Scaled(), session(onx), (factor * x,))
    print(f"times {factor}: {difference.absolute:.1e}")

# %%
# A class of one's own
# --------------------
#
# A dataclass is taken apart by a default patch; its fields name the inputs.


@dataclasses.dataclass
class Point:
    """Two tensors."""

    left: torch.Tensor
    right: torch.Tensor


class Distance(torch.nn.Module):
    """Between the tensors of a point."""

    def forward(self, point):
        """One number a row."""
        return (point.left - point.right).norm(dim=1)


onx = to_onnx(Distance(), (Point(torch.randn(3, 2), torch.randn(3, 2)),))
print([value.name for value in onx.graph.input])

# %%
# Around torch.export
# -------------------
#
# ``bypass_export_some_errors`` applies the patches around your own calls. What it yields converts inputs that torch does not know.

with bypass_export_some_errors() as modificator:
    inputs = modificator((Point(torch.randn(3, 2), torch.randn(3, 2)),))
    program = torch.export.export(Distance(), inputs)
print([node.name for node in program.graph.nodes if node.op == "placeholder"])

# %%
# Caches of transformers are taken apart the same way: :doc:`caches_and_decoding`. All patches are in :doc:`/patches`.
