"""What functorch leaves in programs beside ``torch.vmap``, whose regions `regions` traces: tangents. torch.export
replaces the inputs of ``torch.func.grad`` by constants without values, which `interface` refuses.

Source of semantics: ``torch._functorch.predispatch``.
"""

from __future__ import annotations

from torch._functorch import predispatch

from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates

TANGENTS = (
    "_make_dual",
    "_unpack_dual",
    "_jvp_increment_nesting",
    "_jvp_decrement_nesting",
    "_enter_dual_level",
    "_exit_dual_level",
)
"""Functions of `predispatch`, which older versions of torch lack."""


@translates(*(getattr(predispatch, name) for name in TANGENTS if hasattr(predispatch, name)))
def tangents(op, *args, **kwargs):
    """Tangents inside of the model."""
    raise Untranslatable(
        "the tangents of torch.func.jvp and jacfwd are not part of ONNX",
        hint="ExportOptions(tracing='make_fx') follows them, as it does gradients in forward",
    )
