"""Embedding: rows of a table, read one by one or summed by bags.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html#sparse-functions.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten.embedding.default)
def embedding(op, weight, indices, padding_idx, scale_grad_by_freq, sparse):
    """Rows of *weight*; the other arguments say how gradients flow."""
    return op.Gather(weight, indices, axis=0)
