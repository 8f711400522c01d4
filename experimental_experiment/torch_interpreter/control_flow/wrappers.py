"""Regions that torch.export wraps: gradient mode, autocast, checkpoints. Their bodies are inlined.

Source of semantics: ``torch._higher_order_ops``. The operands are views: a region may write what it was given.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.control_flow.autocast import Autocast
from experimental_experiment.torch_interpreter.registry import translates

higher_order = torch.ops.higher_order


@translates(higher_order.wrap_with_set_grad_enabled, views=True)
def wrap_with_set_grad_enabled(op, enable_grad, wrapped_func, *args):
    """The gradient mode changes no value."""
    return wrapped_func.inline_views(op, *args)


@translates(higher_order.wrap_with_autocast, views=True)
def wrap_with_autocast(op, device_type, dtype, enabled, cache_enabled, wrapped_func, *args):
    """Each operator of the body casts its inputs as autocast does, or none does in a disabled region."""
    with op.context.inside(autocast(device_type, dtype, enabled)):
        return wrapped_func.inline_views(op, *args)


@translates(torch.amp.autocast_mode._enter_autocast)
def enter_autocast(op, device_type, dtype=None, enabled=True, cache_enabled=None):
    """The beginning of a region that torch.export did not wrap, because it holds control flow. Gives the outer region."""
    outer, op.context.region = op.context.region, autocast(device_type, dtype, enabled)
    return outer


def autocast(device_type: str, dtype: torch.dtype | None, enabled: bool) -> Autocast | None:
    """The region that autocast makes with these arguments, None where it is off."""
    return Autocast(device_type, dtype or torch.get_autocast_dtype(device_type)) if enabled else None


@translates(torch.amp.autocast_mode._exit_autocast)
def exit_autocast(op, mode):
    """The end of such a region."""
    op.context.region = mode


@translates("higher_order::foreach_map", "higher_order::invoke_quant_packed", views=True)
def wrapped(op, subgraph, *operands, **options):
    """A region that is marked for compilers: its body."""
    return subgraph.inline_views(op, *operands)


@translates(
    higher_order.tag_activation_checkpoint,
    higher_order.wrap,
    higher_order.wrap_activation_checkpoint,
    views=True,
)
def checkpoint(op, wrapped_func, *args, **kwargs):
    """When values are kept for the backward pass changes none; the options say only that."""
    return wrapped_func.inline_views(op, *args)


@translates(higher_order.hints_wrapper, views=True)
def hints_wrapper(op, body_func, args, kwargs, hints):
    """The hints are for compilers."""
    return single(body_func, body_func.inline_views(op, *args, *kwargs.values()))


@translates(higher_order.strict_mode, views=True)
def strict_mode(op, callable, operands):
    """How the body was captured changes no value."""
    return single(callable, callable.inline_views(op, *operands))


def single(body, results):
    """The only result of a body that returns no tuple, the list of results otherwise."""
    return results if isinstance(body.results, (list, tuple)) else results[0]
