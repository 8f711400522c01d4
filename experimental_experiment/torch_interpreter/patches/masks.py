"""Masks that hide nothing.

Source of semantics: ``transformers.masking_utils``, ``transformers.models.autoformer``, ``transformers.models.informer``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

MADE = tuple(
    f"transformers.models.{name}.modeling_{name}.create_bidirectional_mask"
    for name in ("autoformer", "informer")
)


@patch("transformers", replaces=MADE, since="5.0", default=True)
def masks_of_nothing() -> Iterator[None]:
    """Autoformer and Informer get a mask that hides nothing while torch.export runs, of a shape that their attention does not take."""
    with wrapped(dict.fromkeys(MADE, none_of_none)):
        yield


def none_of_none(create_bidirectional_mask: Callable) -> Callable:
    """`create_bidirectional_mask` that makes nothing of nothing, as in eager."""

    @functools.wraps(create_bidirectional_mask)
    def called(*, attention_mask: Any = None, **kwargs: Any) -> Any:
        if attention_mask is not None:
            return create_bidirectional_mask(attention_mask=attention_mask, **kwargs)
        masks_of_nothing.used()
        return None

    return called
