"""A backend for torch.compile: inference and training on onnxruntime.

    python examples/torch_compile_backend.py

The backend converts the graphs of a model, and those of its gradients, into ONNX, and runs them with onnxruntime. Results and
gradients are eager's, parameters stay torch's: any optimizer of torch trains the model. It needs scikit-learn for the data.
"""

from __future__ import annotations

import copy

import torch
from sklearn.datasets import load_diabetes
from torch._dynamo.backends.common import aot_autograd

from experimental_experiment.helpers import pretty_onnx
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


class DiabetesDataset(torch.utils.data.Dataset):
    """Ten measures of a patient, and how the disease progressed."""

    def __init__(self, X, y):
        self.X = torch.from_numpy(X / 10).to(torch.float32)
        self.y = torch.from_numpy(y).to(torch.float32).reshape((-1, 1))

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


def compiled_mlp(dynamic: bool, storage: dict | None) -> torch.nn.Module:
    """A model whose results and gradients onnxruntime computes."""
    aot_compiler = aot_autograd(
        fw_compiler=lambda *args, **kwargs: onnx_custom_backend(
            *args, target_opset=18, storage=storage, **kwargs
        ),
        decompositions=get_decomposition_table(),
    )
    return torch.compile(MLP(), backend=aot_compiler, fullgraph=True, dynamic=dynamic)


def train(model: torch.nn.Module, max_iter: int = 5) -> list[float]:
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


def from_one_seed(make, max_iter: int) -> list[float]:
    """The losses of a model made and trained from seed 0."""
    torch.manual_seed(0)
    return train(make(), max_iter)


def main(max_iter: int = 3) -> None:
    """Inference, training with fixed and with dynamic batches, the models."""
    x = torch.randn(3, 10, dtype=torch.float32)
    mlp = MLP()
    compiled_model = torch.compile(
        copy.deepcopy(mlp),
        backend=lambda *args, **kwargs: onnx_custom_backend(*args, target_opset=18, **kwargs),
        dynamic=False,
        fullgraph=True,
    )
    print(f"inference: {(compiled_model(x) - mlp(x)).abs().max()}")
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

    print("-- eager")
    expected = from_one_seed(MLP, max_iter)
    for dynamic in (False, True):
        print(f"-- onnxruntime, dynamic={dynamic}")
        storage: dict = {}
        losses = from_one_seed(lambda: compiled_mlp(dynamic, storage), max_iter)  # noqa: B023
        worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
        print(f"largest relative difference of the losses: {worst:.1e}")
        print(f"{len(storage['instance'])} were created.")
        for i, inst in enumerate(storage["instance"][:2]):
            print()
            print(f"-- model {i} running on {inst['providers']}")
            print(pretty_onnx(inst["onnx"]))


if __name__ == "__main__":
    main()
