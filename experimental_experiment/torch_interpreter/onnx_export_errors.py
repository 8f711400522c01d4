"""`bypass_export_some_errors`: what makes torch.export take models that it refuses, for the time of a ``with``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from experimental_experiment.torch_interpreter.patches.patch import (
    PATCHES,
    Convert,
    Patches,
    applied,
    selected,
)

__all__ = ["bypass_export_some_errors", "patches"]


@contextlib.contextmanager
def bypass_export_some_errors(
    patch_torch: bool | Collection[str] = True, patch_transformers: bool | Collection[str] = False
) -> Iterator[Convert]:
    """Apply the patches listed by `patches`, undo them on exit, whatever happens.

    Contexts may be nested, and open in several threads at once: a patch is undone when the last one that wants it leaves.

    Args:
        patch_torch: True applies the patches of torch, and of torchvision where it is imported, but those that only their names ask for; a collection of names those, and the
            ones that are on by default.
        patch_transformers: the same for transformers, which is not imported for it.

    Yields:
        A function ``inputs = modificator(inputs)`` of a tuple, a list, a dict or one value: the same, as torch.export takes them.
    """
    patches_ = [
        *selected(patch_torch, ["torch", "torchvision"]),
        *selected(patch_transformers, ["transformers"]),
    ]
    with applied(patches_) as modificator:
        yield modificator


def patches() -> Patches:
    """All patches; ``print(patches())`` shows them as a table."""
    return Patches(sorted(PATCHES.values(), key=lambda item: (item.set, item.name)))
