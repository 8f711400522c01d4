"""
Where the time goes
===================

onnxruntime's profiler, by operator and by module of the PyTorch model. The same on the command line::

    python -m experimental_experiment export examples/profile_a_model.py:model -o encoder.onnx
    python -m experimental_experiment profile encoder.onnx --size batch=4 --plot bars.png
    python -m experimental_experiment plot encoder.onnx -o encoder.svg --fold
"""

import matplotlib.pyplot as plt
import torch

from experimental_experiment.investigate import profile
from experimental_experiment.torch_interpreter import to_onnx


class Block(torch.nn.Module):
    """A layer of an encoder."""

    def __init__(self, size: int):
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.inner, self.outer = torch.nn.Linear(size, 4 * size), torch.nn.Linear(4 * size, size)

    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(self.norm(x))))


class Encoder(torch.nn.Module):
    """Layers one after the other."""

    def __init__(self, size: int = 64, count: int = 6):
        super().__init__()
        self.layers = torch.nn.Sequential(*(Block(size) for _ in range(count)))

    def forward(self, x):
        return self.layers(x).mean(dim=1)


def model():
    """The model, its arguments, its dynamic dimensions."""
    return Encoder(), (torch.randn(2, 16, 64),), {}, {"x": {0: "batch"}}


# %%
# One table for operators, one for modules; the floor is the time in matrix products.

module, args, _, dynamic_shapes = model()
exported = to_onnx(module, args, dynamic_shapes=dynamic_shapes)
found = profile(exported, {"x": torch.randn(4, 16, 64)})
print(found)

# %%
# Equal layers are added up above; apart, the slowest first:

for share in found.by_module(layers=True)[:3]:
    print(f"{share.name}: {share.milliseconds:.3f} ms")

# %%
# The same as bars.

_, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
found.plot(axes)
plt.show()
