"""What functorch leaves in programs beside ``torch.vmap``, whose regions `regions` traces: tangents. torch.export
replaces the inputs of ``torch.func.grad`` by constants without values, which `interface` refuses.

Source of semantics: ``torch._functorch.predispatch``.
"""

from __future__ import annotations

from torch._functorch import predispatch

from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates


@translates(
    predispatch._make_dual,
    predispatch._unpack_dual,
    predispatch._jvp_increment_nesting,
    predispatch._jvp_decrement_nesting,
    predispatch._enter_dual_level,
    predispatch._exit_dual_level,
)
def tangents(op, *args, **kwargs):
    """Tangents inside of the model."""
    raise Untranslatable("the tangents of torch.func.jvp and jacfwd are not part of ONNX")
