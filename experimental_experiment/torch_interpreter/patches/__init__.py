"""What gets a model through torch.export that refuses it: one small object a problem.

`patch` holds the room's mechanics; the other files hold the patches, by what they are about.
"""

from __future__ import annotations

from experimental_experiment.torch_interpreter.patches import (  # noqa: F401 (they register)
    caches,
    checks,
    codecs,
    experts,
    image_sizes,
    inputs,
    lengths,
    packed,
    pieces,
    quantizers,
    recurrent,
    remarks,
    scans,
    shortcuts,
    vision,
)
