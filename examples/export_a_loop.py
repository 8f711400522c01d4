"""
A loop whose turns give different sizes
=======================================

``scan`` stacks results of one size. Where each turn gives another size, a growing carry would copy everything at every turn, and
torch.export refuses it. ``simple_loop_for`` keeps the result of every turn in a list and concatenates once, in eager mode, in torch.export
and in ONNX.
"""

import itertools
import time

import matplotlib.pyplot as plt
import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.higher_order_ops import simple_loop_for
from experimental_experiment.torch_interpreter import CaptureError, to_onnx

# %%
# The model cuts ``W`` at the columns of ``splits`` and keeps at most ``crop_size`` columns of each piece.


class Model(torch.nn.Module):
    """A Python loop over the values of a tensor."""

    def __init__(self, crop_size: int):
        super().__init__()
        self.crop_size = crop_size

    def forward(self, W, splits):
        """The pieces, side by side."""
        cropped = []
        for start, end in itertools.pairwise(splits):
            extract = W[:, start:end]
            cropped.append(extract if extract.shape[1] < self.crop_size else extract[:, : self.crop_size])
        return torch.cat(cropped, axis=1)


torch.manual_seed(0)
args = (torch.rand((2, 22)), torch.tensor([0, 5, 15, 20, 22]))
expected = Model(4)(*args)
print(f"expected shape: {tuple(expected.shape)}")

# %%
# With scan
# ---------
#
# The carry grows. It works in eager mode, with a cost that is quadratic in the number of turns, and cannot be exported.


class ModelWithScan(Model):
    """The same, carried from turn to turn."""

    def forward(self, W, splits):
        """One turn a piece."""

        def body(carried, split, W):
            extract = W[:, split[0].item() : split[1].item()]
            return torch.cat([carried, extract[:, : torch.sym_min(extract.shape[1], self.crop_size)]], axis=1)

        starts_ends = torch.cat([splits[:-1].unsqueeze(1), splits[1:].unsqueeze(1)], axis=1)
        carried = torch.empty((W.shape[0], 0), dtype=W.dtype)
        return torch.ops.higher_order.scan(body, [carried], [starts_ends], [W])


(scanned,) = ModelWithScan(4)(*args)
print(f"discrepancy of scan: {(scanned - expected).abs().max()}")
dynamic = torch.export.Dim.DYNAMIC
shapes = ({0: "rows", 1: "columns"}, {0: dynamic})
try:
    to_onnx(ModelWithScan(4), args, dynamic_shapes=shapes)
except CaptureError as error:
    print(error)

# %%
# With simple_loop_for
# --------------------
#
# The function receives the number of the turn and the operands, and returns its results; ``concatenation_dims`` has an axis for each.


class ModelWithLoop(Model):
    """The same, with the operator."""

    def forward(self, W, splits):
        """One turn a piece."""

        def body(i, splits, W):
            split = splits[i.item() : (i + 1).item()][0]
            extract = W[:, split[0].item() : split[1].item()]
            return (extract[:, : torch.sym_min(extract.shape[1], self.crop_size)],)

        starts_ends = torch.cat([splits[:-1].unsqueeze(1), splits[1:].unsqueeze(1)], axis=1)
        turns = torch.tensor(starts_ends.shape[0], dtype=torch.int64)
        return simple_loop_for(turns, body, (starts_ends, W), concatenation_dims=[1])


print(f"discrepancy of the operator: {(ModelWithLoop(4)(*args) - expected).abs().max()}")

# %%
# torch.export keeps it as one node.

program = torch.export.export(ModelWithLoop(4), args, dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic}))
print([str(node.target) for node in program.graph.nodes if "loop" in node.name])

# %%
# In ONNX it is a Loop that inserts into a sequence, and one concatenation.

model = to_onnx(ModelWithLoop(4), args, dynamic_shapes=shapes)
print(pretty_onnx(model))
runner = session(model)
for W, splits in [args, (torch.rand((3, 30)), torch.tensor([0, 1, 9, 10, 13, 30]))]:
    difference = (run(runner, [W, splits])[0] - Model(4)(W, splits)).abs().max()
    print(f"discrepancy of the ONNX model: {difference}")

# %%
# What it costs
# -------------
#
# Eager mode with a growing carry, and with the operator: a turn gives four columns of two thousand rows.


def seconds(module, *inputs):
    """The best of three runs."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        module(*inputs)
        times.append(time.perf_counter() - start)
    return min(times)


turns = [50, 100, 200, 400]
cases = [(torch.rand(2000, 5 * count), torch.arange(0, 5 * count + 1, 5)) for count in turns]
for module in (ModelWithScan(4), ModelWithLoop(4)):
    plt.plot(turns, [seconds(module, *case) for case in cases], "o-", label=type(module).__name__)
plt.xlabel("turns")
plt.ylabel("seconds")
plt.legend()
plt.show()
