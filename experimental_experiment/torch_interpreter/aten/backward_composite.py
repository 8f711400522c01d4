"""Gradients that are traced: torch's derivative of its own decomposition of the forward operator, or a few lines of torch.

Source of semantics: ``torch._decomp`` and ``tools/autograd/derivatives.yaml`` of PyTorch.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch._decomp import decomposition_table

from experimental_experiment.torch_interpreter.composite import composite

aten = torch.ops.aten


LINEAR, NEAREST, CUBIC = range(3)
"""Interpolations, as ATen numbers them."""

BORDER, REFLECTION = 1, 2
"""Paddings, as ATen numbers them."""


def grid_sampler_backward(
    grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    """The gradients of the image, or the volume, and of the places."""
    forward = (
        decomposition_table[aten.grid_sampler_2d.default] if interpolation_mode == CUBIC else grid_sampled
    )
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (input, grid)]
        sampled = forward(*leaves, interpolation_mode, padding_mode, align_corners)
        gradients = torch.autograd.grad(sampled, leaves, grad_output, materialize_grads=True)
    # torch declares the gradient of the places even where nobody asks for it
    return gradients[0] if output_mask[0] else None, gradients[1]


def grid_sampled(input, grid, interpolation_mode, padding_mode, align_corners):
    """What grid_sampler gives, differentiable as its kernel is: where the padding moves a place its gradient is 0."""
    sizes = input.shape[2:]
    places = [
        padded_place(
            unnormalized(grid[..., -1 - axis], size, align_corners), size, padding_mode, align_corners
        )
        for axis, size in enumerate(sizes)
    ]
    if interpolation_mode == NEAREST:
        return elements_at(input, [place.round() for place in places])
    low = [place.floor() for place in places]
    total = None
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        weight = None
        for place, below, upper in zip(places, low, corner):
            part = place - below if upper else below + 1 - place
            weight = part if weight is None else weight * part
        read = elements_at(input, [below + upper for below, upper in zip(low, corner)])
        total = read * weight.unsqueeze(1) if total is None else total + read * weight.unsqueeze(1)
    return total


def unnormalized(place, size, align_corners):
    """From -1 to 1, to elements."""
    return (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2


def padded_place(place, size, padding_mode, align_corners):
    """Where a place outside is read. On the border it has no gradient either."""
    if padding_mode == REFLECTION:
        low, span = (0, size - 1) if align_corners else (-0.5, size)
        distance = torch.where(place < low, low - place, place - low)
        # a single element with aligned corners has no span, and one place
        turns = (
            torch.zeros_like(distance) if isinstance(span, int) and span == 0 else (distance / span).floor()
        )
        extra = distance - turns.detach() * span
        place = torch.where(turns % 2 == 0, extra + low, span - extra + low)
    if padding_mode in (BORDER, REFLECTION):
        inside = (place > 0) & (place < size - 1)
        place = torch.where(inside, place, place.detach().clamp(0, size - 1))
    return place


def elements_at(input, places):
    """The elements of all channels at whole places, 0 outside."""
    inside, index = None, None
    for place, size in zip(places, input.shape[2:]):
        here = (place >= 0) & (place <= size - 1)
        inside = here if inside is None else inside & here
        clipped = place.detach().clamp(0, size - 1).long()
        index = clipped if index is None else index * size + clipped
    flat = index.flatten(1).unsqueeze(1).expand(-1, input.shape[1], -1)
    read = input.flatten(2).gather(2, flat).unflatten(2, index.shape[1:])
    return torch.where(inside.unsqueeze(1), read, 0)


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


def fused_lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    """The gradients of the gates, which both products share, of the cell before and of the biases."""
    entry, forget, new, exit = workspace.chunk(4, dim=-1)
    of_cell = torch.zeros_like(cy) if grad_cy is None else grad_cy
    of_exit = torch.zeros_like(cy)
    if grad_hy is not None:
        seen = cy.tanh()
        of_exit = grad_hy * seen * exit * (1 - exit)
        of_cell = of_cell + grad_hy * exit * (1 - seen * seen)
    of_entry = of_cell * new * entry * (1 - entry)
    of_forget = of_cell * cx * forget * (1 - forget)
    of_new = of_cell * entry * (1 - new * new)
    of_gates = torch.cat((of_entry, of_forget, of_new, of_exit), dim=-1)
    return of_gates, of_cell * forget, of_gates.sum(0) if has_bias else None


composite(aten._cdist_backward.default, function=cdist_backward)
composite(aten._thnn_fused_lstm_cell_backward_impl.default, function=fused_lstm_cell_backward)
composite(
    aten._fused_rms_norm_backward.default,
    aten.batch_norm_backward.default,
    aten.cummaxmin_backward.default,
    aten.cumprod_backward.default,
    aten.embedding_backward.default,
    aten.gather_backward.default,
    aten.index_select_backward.default,
    aten.masked_select_backward.default,
    aten.trace_backward.default,
    aten.value_selecting_reduction_backward.default,
)
composite(
    aten.grid_sampler_2d_backward.default,
    aten.grid_sampler_3d_backward.default,
    function=grid_sampler_backward,
)
