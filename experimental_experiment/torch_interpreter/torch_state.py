"""torch's state that an export shares with the rest of the process: what is global is locked, what is ambient put aside."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

LOCK = threading.RLock()
"""torch.export, TorchDynamo and the tracers of torch.fx patch classes and modules while they run."""


def one_at_a_time() -> threading.RLock:
    """Let one thread capture and translate; an export inside of an export is that thread's own."""
    return LOCK


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Leave ``torch.autocast`` for a while: what translations trace and compute is not the model's."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
