"""Operators over lists, ``_foreach_add`` and its like: an operator of ATen for each entry, the numbers being one for all or one each.

Optimizers call them, and ``torch.nn.utils.clip_grad_norm_``. Those that write their lists are their twins, written back.
Source of semantics: the ``slow`` kernels of ATen, ``ForeachOpsKernels.cpp``, which loop over the entries.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from experimental_experiment.torch_interpreter.composite import composite
from experimental_experiment.torch_interpreter.registry import COMPLEX

aten = torch.ops.aten


def scaled(function: Callable) -> Callable:
    """The number that scales a product or a quotient, by its name."""
    return lambda self, tensor1, tensor2, value=1: function(self, tensor1, tensor2, value=value)


def power_sum(self, ord=2, dtype=None):
    """A norm without its root."""
    return torch.abs(self if dtype is None else self.to(dtype)).pow(ord).sum()


ENTRIES = {
    "_foreach_abs": torch.abs,
    "_foreach_acos": torch.acos,
    "_foreach_add": torch.add,
    "_foreach_addcdiv": scaled(torch.addcdiv),
    "_foreach_addcmul": scaled(torch.addcmul),
    "_foreach_asin": torch.asin,
    "_foreach_atan": torch.atan,
    "_foreach_ceil": torch.ceil,
    "_foreach_clamp_max": torch.clamp_max,
    "_foreach_clamp_min": torch.clamp_min,
    "_foreach_clone": torch.clone,
    "_foreach_copy": lambda self, src, non_blocking=False: aten.copy.default(self, src),
    "_foreach_cos": torch.cos,
    "_foreach_cosh": torch.cosh,
    "_foreach_div": torch.div,
    "_foreach_erf": torch.erf,
    "_foreach_erfc": torch.erfc,
    "_foreach_exp": torch.exp,
    "_foreach_expm1": torch.expm1,
    "_foreach_floor": torch.floor,
    "_foreach_frac": torch.frac,
    "_foreach_lerp": torch.lerp,
    "_foreach_lgamma": torch.lgamma,
    "_foreach_log": torch.log,
    "_foreach_log10": torch.log10,
    "_foreach_log1p": torch.log1p,
    "_foreach_log2": torch.log2,
    "_foreach_max": torch.max,
    "_foreach_maximum": torch.clamp_min,
    "_foreach_minimum": torch.clamp_max,
    "_foreach_mm": torch.mm,
    "_foreach_mul": torch.mul,
    "_foreach_neg": torch.neg,
    "_foreach_norm": lambda self, ord=2, dtype=None: torch.linalg.vector_norm(self, ord, dtype=dtype),
    "_foreach_pow": torch.pow,
    "_foreach_powsum": power_sum,
    "_foreach_reciprocal": torch.reciprocal,
    "_foreach_round": torch.round,
    "_foreach_rsqrt": torch.rsqrt,
    "_foreach_sigmoid": torch.sigmoid,
    "_foreach_sign": torch.sign,
    "_foreach_sin": torch.sin,
    "_foreach_sinh": torch.sinh,
    "_foreach_sqrt": torch.sqrt,
    "_foreach_sub": torch.sub,
    "_foreach_tan": torch.tan,
    "_foreach_tanh": torch.tanh,
    "_foreach_trunc": torch.trunc,
    "_foreach_zero": torch.zeros_like,
}
"""What an operator does to the entries of its lists."""

OF_REALS = frozenset(
    "_foreach_ceil _foreach_clamp_max _foreach_clamp_min _foreach_erf _foreach_erfc _foreach_floor _foreach_frac _foreach_lgamma "
    "_foreach_max _foreach_maximum _foreach_minimum _foreach_round _foreach_sign _foreach_trunc".split()
)
"""Operators that torch refuses for complex tensors."""


def of_each(function: Callable) -> Callable:
    """*function* over the entries of the lists among its arguments; what is no list is for all of them."""

    def over_lists(*args, **kwargs):
        lists = [argument for argument in args if isinstance(argument, list)]
        return [
            function(*(x[position] if isinstance(x, list) else x for x in args), **kwargs)
            for position in range(len(lists[0]))
        ]

    return over_lists


def captured(name: str) -> list[torch._ops.OpOverload]:
    """The overloads of an operator that write nothing, none where the installed torch lacks it.

    Not those that read the numbers of a tensor, ``_foreach_addcmul.Tensor``: torch computes them of no fake tensors.
    """
    packet = getattr(aten, name, None)
    overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet else []
    types = [{x.name: str(x.type) for x in overload._schema.arguments} for overload in overloads]
    return [
        overload
        for overload, given in zip(overloads, types)
        if not overload._schema.is_mutable and given.get("scalars") != "Tensor"
    ]


for _name, _function in ENTRIES.items():
    composite(*captured(_name), function=of_each(_function))
    if _name not in OF_REALS:
        composite(*captured(_name), function=of_each(_function), table=COMPLEX)
