"""Python's search for cycles of garbage, paused while a model is written."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

MANY = 20_000
"""Fewer new objects, those of less than about ten thousand nodes, are looked at in no time."""


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """While this lasts, Python does not look for cycles: it would look at the whole graph, again and again as it changes.

    What was made meanwhile counts as old at the end, when it would be looked at once more.
    """
    enabled = gc.isenabled()
    gc.disable()
    before = gc.get_count()[0]
    try:
        yield
    finally:
        if enabled:
            # the count last: it visits all that somebody else may have frozen, a million objects in 0.07 s
            if gc.get_count()[0] - before > MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
