"""
Custom operators
================

torch.export sees a custom operator as one call that it does not look into. The exporter needs a translation of it: a function that writes
ONNX. Below, one operator that returns its result, one that writes into its argument, and one that needs an operator of your runtime.

.. code-block:: bash

    python -m experimental_experiment export examples/custom_operators.py:model -o custom.onnx --check
"""

import torch

from experimental_experiment.comparison import compare, session
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_interpreter import ExportError, to_onnx, translates

# %%
# The operators
# -------------
#
# ``register_fake`` gives the type of the result: without it torch.export cannot capture a call. An operator that writes says so in
# ``mutates_args``.


@torch.library.custom_op("example::soft_sign", mutates_args=())
def soft_sign(x: torch.Tensor, slope: float) -> torch.Tensor:
    """What a compiled kernel would do: torch.export only sees a name."""
    return (slope * x) / (1 + (slope * x).abs())


@soft_sign.register_fake
def _(x, slope):
    return torch.empty_like(x)


@torch.library.custom_op("example::shift_", mutates_args=("x",))
def shift_(x: torch.Tensor, by: float) -> None:
    """An operator that returns nothing and changes its argument."""
    x.add_(by)


class Model(torch.nn.Module):
    """Uses both, the second one on a slice."""

    def forward(self, x):
        """x squeezed between -1 and 1, all columns but the first one shifted."""
        y = soft_sign(x, 2.0)
        shift_(y[:, 1:], 0.5)
        return y


def model():
    """The model, its arguments, its dynamic dimensions."""
    return Model(), (torch.randn(3, 4),), {}, {"x": {0: "batch"}}


# %%
# Without a translation the export stops there, and says what to do.

torch.manual_seed(0)
module, args, _, dynamic_shapes = model()
try:
    to_onnx(module, args, dynamic_shapes=dynamic_shapes)
except ExportError as error:
    print(error)

# %%
# The translations
# ----------------
#
# A translation receives ``op``, which writes ONNX operators, and the arguments by their names: tensors as ONNX values, numbers as Python's.
# A number beside a tensor takes its dtype. For an operator that writes, the translation returns the new value of the argument; that the
# argument is a slice of something else is the exporter's business.


@translates(torch.ops.example.soft_sign.default)
def translate_soft_sign(op, x, slope):
    """ONNX has Softsign."""
    return op.Softsign(op.Mul(x, slope))


@translates(torch.ops.example.shift_.default)
def translate_shift_(op, x, by):
    """The new value of x."""
    return op.Add(x, by)


onx = to_onnx(module, args, dynamic_shapes=dynamic_shapes)
print(pretty_onnx(onx))
for rows in (3, 8):
    (difference,) = compare(module, session(onx), (torch.randn(rows, 4),))
    print(f"{rows} rows: {difference.absolute:.1e}")

# %%
# For one call
# ------------
#
# ``translations=`` holds for one export only, before those that are registered: here the product stands alone.


def without_softsign(op, x, slope):
    """The same, written with Abs and Div."""
    scaled = op.Mul(x, slope)
    return op.Div(scaled, op.Add(op.Abs(scaled), 1.0))


onx = to_onnx(module, args, translations={torch.ops.example.soft_sign.default: without_softsign})
print([node.op_type for node in onx.graph.node])
(difference,) = compare(module, session(onx), args)
print(f"{difference.absolute:.1e}")
