"""Custom operators: one that returns its result, one that writes into its argument, each with a translation.

python examples/custom_operators.py
python -m experimental_experiment export examples/custom_operators.py:model -o custom.onnx --check
"""

import torch

from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_interpreter import to_onnx, translates


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


@translates(torch.ops.example.soft_sign.default)
def translate_soft_sign(op, x, slope):
    """ONNX has Softsign: arguments arrive by name, numbers take the dtype of the tensor beside them."""
    return op.Softsign(op.Mul(x, slope))


@translates(torch.ops.example.shift_.default)
def translate_shift_(op, x, by):
    """For an operator that writes: the new value of the argument; who reads it later is known to the exporter."""
    return op.Add(x, by)


class Model(torch.nn.Module):
    """Uses both, the second one on a slice."""

    def forward(self, x):
        y = soft_sign(x, 2.0)
        shift_(y[:, 1:], 0.5)
        return y


def model():
    """The model, its arguments, its dynamic dimensions."""
    return Model(), (torch.randn(3, 4),), {}, {"x": {0: "batch"}}


if __name__ == "__main__":
    module, args, _, dynamic_shapes = model()
    print(pretty_onnx(to_onnx(module, args, dynamic_shapes=dynamic_shapes)))
