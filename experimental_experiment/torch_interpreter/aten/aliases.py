"""Operators that ATen defines by others, and that torch.export leaves whole: their own decomposition is their translation.

Source of semantics: the CompositeImplicitAutograd kernels of ATen.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.composite import composite

aten = torch.ops.aten

ALIASES = (
    aten._cast_Byte.default,
    aten._cast_Char.default,
    aten._cast_Double.default,
    aten._cast_Float.default,
    aten._cast_Half.default,
    aten._cast_Int.default,
    aten._cast_Long.default,
    aten._cast_Short.default,
    aten.linalg_vander.default,
    aten.special_erf.default,
    aten.special_erfc.default,
    aten.special_exp2.default,
    aten.special_expit.default,
    aten.special_expm1.default,
    aten.special_log1p.default,
    aten.special_log_softmax.default,
    aten.special_logit.default,
    aten.special_logsumexp.default,
    aten.special_round.default,
    aten.special_sinc.default,
    aten.special_softmax.default,
    aten.special_xlogy.default,
    aten.special_xlogy.other_scalar,
    aten.special_xlogy.self_scalar,
    aten.vander.default,
)

composite(*ALIASES)
