"""
A backend for torch.compile, and training
=========================================

``torch.compile`` hands the graphs of a model to a backend. ``onnx_custom_backend`` converts them to ONNX, and those of the gradients too,
and runs them with onnxruntime. Parameters stay torch's: any of its optimizers trains the model.
"""

import copy

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes
from torch._dynamo.backends.common import aot_autograd

from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.plotting import plot_dot
from experimental_experiment.torch_dynamo import get_decomposition_table, onnx_custom_backend
from experimental_experiment.torch_interpreter import ExportOptions


class MLP(torch.nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(10, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 1),
        )

    def forward(self, x):
        """One number a row."""
        return self.layers(x)


torch.manual_seed(0)
x = torch.randn(3, 10, dtype=torch.float32)
mlp = MLP()

# %%
# Inference
# ---------

compiled_model = torch.compile(
    copy.deepcopy(mlp),
    backend=lambda *args, **kwargs: onnx_custom_backend(*args, target_opset=18, **kwargs),
    dynamic=False,
    fullgraph=True,
)
print(f"inference: {(compiled_model(x) - mlp(x)).abs().max()}")

# %%
# Training
# --------
#
# The operators of gradients have translations. For one that has none, torch may know simpler ones: ``get_decomposition_table`` is torch's
# table without what the exporter translates whole, ``filter_decomposition_table`` makes others.

aot_compiler = aot_autograd(
    fw_compiler=lambda *args, **kwargs: onnx_custom_backend(
        *args,
        target_opset=18,
        export_options=ExportOptions(decomposition_table=get_decomposition_table()),
        **kwargs,
    ),
)
compiled_model = torch.compile(copy.deepcopy(mlp), backend=aot_compiler, fullgraph=True, dynamic=False)
print(f"through aot_autograd: {(compiled_model(x) - mlp(x)).abs().max()}")

# %%
# The data, and a loop as one writes it for any model.


class DiabetesDataset(torch.utils.data.Dataset):
    """Ten measures of a patient, and how the disease progressed."""

    def __init__(self, X, y):
        self.X = torch.from_numpy(X / 10).to(torch.float32)
        self.y = torch.from_numpy(y).to(torch.float32).reshape((-1, 1))

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


def train(model, max_iter):
    """The losses of the epochs."""
    trainloader = torch.utils.data.DataLoader(
        DiabetesDataset(*load_diabetes(return_X_y=True)),
        batch_size=5,
        shuffle=True,
        num_workers=0,
    )
    loss_function = torch.nn.L1Loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-1)
    losses = []
    for epoch in range(max_iter):
        current_loss = 0.0
        for X, y in trainloader:
            optimizer.zero_grad()
            loss = loss_function(model(X), y)
            loss.backward()
            optimizer.step()
            current_loss += loss.item()
        losses.append(current_loss)
        print(f"Loss after epoch {epoch + 1}: {current_loss}")
    print("Training process has finished.")
    return losses


def compiled_mlp(dynamic, storage):
    """A model whose results and gradients onnxruntime computes."""
    aot_compiler = aot_autograd(
        fw_compiler=lambda *args, **kwargs: onnx_custom_backend(
            *args, target_opset=18, storage=storage, **kwargs
        ),
        decompositions=get_decomposition_table(),
    )
    return torch.compile(MLP(), backend=aot_compiler, fullgraph=True, dynamic=dynamic)


# %%
# Eager first, from the same seed as the others.

torch.manual_seed(0)
losses = {"eager": train(MLP(), 3)}

# %%
# The last batch of an epoch has other sizes: with ``dynamic=False`` it has models of its own.

torch.manual_seed(0)
storage = {}
losses["onnxruntime"] = train(compiled_mlp(False, storage), 3)
print(f"{len(storage['instance'])} were created.")

# %%
# With ``dynamic=True`` the batch is an input. An input or output with ``_dim_`` in its name is a size, one with ``_NONE_`` is None.

torch.manual_seed(0)
dynamic_storage = {}
losses["onnxruntime, dynamic"] = train(compiled_mlp(True, dynamic_storage), 3)
print(f"{len(dynamic_storage['instance'])} were created.")

# %%
# The losses are the same.

for name, values in losses.items():
    worst = max(abs(a - b) / b for a, b in zip(values, losses["eager"], strict=True))
    print(f"{name}: largest relative difference of the losses: {worst:.1e}")
    plt.plot(range(1, 4), values, "o-", label=name)
plt.xlabel("epoch")
plt.xticks([1, 2, 3])
plt.ylabel("loss")
plt.legend()
plt.show()

# %%
# The models
# ----------
#
# ``storage`` keeps what was converted: the forward graph, then the backward one.

for i, inst in enumerate(storage["instance"][:2]):
    print(f"-- model {i} running on {inst['providers']}")
    print(pretty_onnx(inst["onnx"]))

# %%
# The forward graph, drawn.

plot_dot(storage["instance"][0]["onnx"])
plt.show()

# %%
# The backward graph.

plot_dot(storage["instance"][1]["onnx"])
plt.show()

# %%
# And those of dynamic batches.

for i, inst in enumerate(dynamic_storage["instance"]):
    print(f"-- model {i} running on {inst['providers']}")
    print(pretty_onnx(inst["onnx"]))
