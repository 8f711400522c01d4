"""Gradients that are traced: torch's derivative of its own decomposition of the forward operator, or a few lines of torch.

Source of semantics: ``torch._decomp`` and ``tools/autograd/derivatives.yaml`` of PyTorch.
"""

from __future__ import annotations

import math

import torch
from torch._decomp import decomposition_table

from experimental_experiment.torch_interpreter.composite import composite

aten = torch.ops.aten


def grid_sampler_2d_backward(
    grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    """The gradients of the image and of the places."""
    forward = decomposition_table[aten.grid_sampler_2d.default]
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (input, grid)]
        sampled = forward(*leaves, interpolation_mode, padding_mode, align_corners)
        gradients = torch.autograd.grad(sampled, leaves, grad_output)
    return tuple(gradient if wanted else None for gradient, wanted in zip(gradients, output_mask))


def cdist_backward(grad, x1, x2, p, cdist):
    """The gradient of the rows of *x1*; where a distance is 0 so is its gradient."""
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    grad, distance = grad.unsqueeze(-1), cdist.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x1)
    if p == 1:
        return (grad * difference.sign()).sum(-2)
    if p == math.inf:
        return (grad * difference.sign() * (difference.abs() == distance)).sum(-2)
    slope = difference if p == 2 else difference.sign() * difference.abs() ** (p - 1)
    whole = grad * slope / distance ** (p - 1)
    return torch.where(distance == 0, 0, whole).sum(-2)


composite(aten._cdist_backward.default, function=cdist_backward)
composite(aten.grid_sampler_2d_backward.default, function=grid_sampler_2d_backward)
