"""
Export a model, with dynamic sizes
==================================

``to_onnx`` takes a model and the arguments of one call, and gives an ONNX model. This page exports a small model, says which sizes may
change, and compares with PyTorch on sizes that the export has not seen.
"""

import numpy as np
import onnxruntime
import torch

from experimental_experiment.comparison import compare, session
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_interpreter import CaptureError, ExportError, guess_dynamic_shapes, to_onnx


class Model(torch.nn.Module):
    """A linear layer, a Relu, and the rows that were best."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 4)

    def forward(self, x, bias):
        """Four numbers a row, and the largest of them."""
        scores = torch.relu(self.linear(x) + bias)
        return scores, scores.amax(dim=1)


torch.manual_seed(0)
model = Model()
x, bias = torch.randn(3, 10), torch.randn(4)

# %%
# Without more, every size is that of the example. ``print(pretty_onnx(...))`` shows a model as text: inputs are named after the
# parameters of ``forward``, weights after the keys of ``state_dict``.

print(pretty_onnx(to_onnx(model, (x, bias))))

# %%
# Sizes that may change
# ---------------------
#
# ``dynamic_shapes`` is that of ``torch.export.export``; a string names a dimension, and the model shows that name.

onx = to_onnx(model, (x, bias), dynamic_shapes={"x": {0: "batch"}, "bias": None})
print(pretty_onnx(onx))

# %%
# Any runtime takes the model. ``compare`` runs it in onnxruntime and gives the differences from eager, here on other sizes,
# one row and none included.

runner = onnxruntime.InferenceSession(onx.SerializeToString(), providers=["CPUExecutionProvider"])
scores, best = runner.run(None, {"x": np.ones((7, 10), np.float32), "bias": bias.numpy()})
print(scores.shape, best.shape)

for rows in (7, 1, 0):
    for difference in compare(model, session(onx), (torch.randn(rows, 10), bias)):
        print(f"{difference.name}: {difference.got}, largest difference {difference.absolute:.1e}")

# %%
# Sizes made of others
# --------------------
#
# The size of a result may be an expression of those of the inputs; it is written in the type of the output.


def pairs(x, y):
    """The rows of both, each with each."""
    return torch.cat([x, y]), x[:, None] * y[None]


onx = to_onnx(
    pairs,
    (torch.randn(2, 5), torch.randn(3, 5)),
    dynamic_shapes=({0: "left", 1: "width"}, {0: "right", 1: "width"}),
)
for output in onx.graph.output:
    print(output.name, [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim])

# %%
# ``torch.export.Dim`` gives bounds, ``Dim.AUTO`` leaves the choice to torch, ``2 * dim`` says that a size is twice another one.

half = torch.export.Dim("half", min=1, max=512)
onx = to_onnx(
    lambda x, y: x.repeat_interleave(2, dim=0) + y,
    (torch.randn(4, 5), torch.randn(8, 5)),
    dynamic_shapes=(({0: half}, {0: 2 * half})),
)
for value in onx.graph.input:
    print(value.name, [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim])

# %%
# Which sizes change is also seen from several calls.

print(guess_dynamic_shapes([(x, bias), (torch.randn(8, 10), bias)]))

# %%
# A size that cannot change
# -------------------------
#
# The linear layer has ten columns. A dimension that is called dynamic and is not is refused, with what to change.

try:
    to_onnx(model, (x, bias), dynamic_shapes={"x": {0: "batch", 1: "columns"}, "bias": None})
except CaptureError as error:
    print(error)

# %%
# Numbers among the arguments
# ---------------------------
#
# A Python number is a constant of the model, as in ``torch.export``, unless its shape says that it changes.


def power(x, exponent: int):
    """x to an integer power."""
    return x**exponent


constant = to_onnx(power, (x, 3))
print([value.name for value in constant.graph.input])
changing = to_onnx(power, (x, 3), dynamic_shapes=({0: "batch"}, torch.export.Dim.DYNAMIC))
print([value.name for value in changing.graph.input])

# %%
# Files
# -----
#
# ``to_onnx(..., filename="model.onnx")`` writes the model; weights of more than 16 MB in all go to ``model.onnx.data``, straight from
# torch's memory. The command line does the same, and compares:
#
# .. code-block:: bash
#
#     python -m experimental_experiment export model.py:build -o model.onnx --dynamic x:0=batch --check
#
# ``ExportError`` is the class of every refusal; ``CaptureError``, one of its subclasses, says that torch.export refused the model.

print(issubclass(CaptureError, ExportError))
