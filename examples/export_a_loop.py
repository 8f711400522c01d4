"""Export a loop whose turns give results of different sizes, with simple_loop_for.

    python examples/export_a_loop.py

A loop over tensors cannot be exported as it is, and torch.export refuses a scan with a growing carry. ``simple_loop_for`` keeps the
result of every turn in a list and concatenates once, in eager mode, in torch.export and in ONNX.
"""

from __future__ import annotations

import itertools

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.higher_order_ops import simple_loop_for
from experimental_experiment.torch_interpreter import to_onnx


class Model(torch.nn.Module):
    """Cuts W at the columns of splits and keeps at most crop_size columns of each piece."""

    def __init__(self, crop_size: int):
        super().__init__()
        self.crop_size = crop_size

    def forward(self, W, splits):
        """A Python loop over the values of a tensor."""
        cropped = []
        for start, end in itertools.pairwise(splits):
            extract = W[:, start:end]
            cropped.append(extract if extract.shape[1] < self.crop_size else extract[:, : self.crop_size])
        return torch.cat(cropped, axis=1)


class ModelWithLoop(Model):
    """The same, with the operator."""

    def forward(self, W, splits):
        """One turn a piece."""
        crop_size = self.crop_size

        def body(i, splits, W):
            split = splits[i.item() : (i + 1).item()][0]
            extract = W[:, split[0].item() : split[1].item()]
            return (extract[:, : torch.sym_min(extract.shape[1], crop_size)],)

        starts_ends = torch.cat([splits[:-1].unsqueeze(1), splits[1:].unsqueeze(1)], axis=1)
        turns = torch.tensor(starts_ends.shape[0], dtype=torch.int64)
        return simple_loop_for(turns, body, (starts_ends, W), concatenation_dims=[1])


def main() -> None:
    """Compare the loop, the operator and the ONNX model, on the example and on other sizes."""
    args = (torch.rand((2, 22)), torch.tensor([0, 5, 15, 20, 22]))
    dynamic = torch.export.Dim.DYNAMIC
    model = to_onnx(ModelWithLoop(4), args, dynamic_shapes=({0: "rows", 1: "columns"}, {0: dynamic}))
    runner = session(model)
    for W, splits in [args, (torch.rand((3, 30)), torch.tensor([0, 1, 9, 10, 13, 30]))]:
        expected = Model(4)(W, splits)
        print(f"expected shape: {tuple(expected.shape)}")
        print(f"discrepancy of the operator: {(ModelWithLoop(4)(W, splits) - expected).abs().max()}")
        print(f"discrepancy of the ONNX model: {(run(runner, [W, splits])[0] - expected).abs().max()}")


if __name__ == "__main__":
    main()
