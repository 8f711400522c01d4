"""Python's search for cycles of garbage, paused while a model is written."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """While this lasts, Python does not look for cycles: it would look at the whole graph, again and again as it changes.

    What was made meanwhile counts as old at the end, when it would be looked at once more.
    """
    enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # nobody else keeps objects there
                gc.freeze()
                gc.unfreeze()
            gc.enable()
