"""Regions that torch.export wraps: gradient mode, autocast, checkpoints. Their bodies are inlined.

Source of semantics: ``torch._higher_order_ops``. The operands are views: a region may write what it was given.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.registry import translates

higher_order = torch.ops.higher_order


@translates(higher_order.wrap_with_set_grad_enabled, views=True)
def wrap_with_set_grad_enabled(op, enable_grad, wrapped_func, *args):
    """The gradient mode changes no value."""
    return wrapped_func.inline_views(op, *args)
