"""What ``torch.nn.Transformer``, its encoder and its decoder, ask about the values of their masks.

Source of semantics: torch/nn/modules/transformer.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

FORWARD = "torch.nn.TransformerEncoder.forward"
DETECT = "torch.nn.modules.transformer._detect_is_causal_mask"


@patch("torch", replaces=(DETECT,), default=True)
def given_masks() -> Iterator[None]:
    """``nn.TransformerEncoder(x, mask)`` asks whether its mask is a causal one, and so do the others: torch.export refuses to answer.

    A mask that is given without ``is_causal=True`` is added to the scores, whatever it is.
    """
    with wrapped({DETECT: by_what_is_said}):
        yield


def by_what_is_said(detect: Callable) -> Callable:
    """Whether a mask is said to be causal."""

    @functools.wraps(detect)
    def called(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        if mask is not None and is_causal is None:
            given_masks.used()
        return is_causal is True

    return called


@patch("torch", replaces=(FORWARD,), default=True)
def padded_encoders() -> Iterator[None]:
    """Without gradients ``nn.TransformerEncoder`` gives zeros where its input is padded at the end; torch.export follows it with gradients.

    Nothing is replaced: a warning says that the results differ there.
    """
    with wrapped({FORWARD: with_warning}):
        yield


def with_warning(forward: Callable) -> Callable:
    """The same forward, and a warning where nested tensors may take its place in eager."""

    @functools.wraps(forward)
    def called(self: torch.nn.TransformerEncoder, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling() and is_nested_in_eager(self, *args, **kwargs):
            padded_encoders.used()
            logger.warning(
                "torch.nn.TransformerEncoder gives zeros where src_key_padding_mask pads the end of a sequence, in eval mode and without"
                " gradients; the model gives there what it does with gradients, or with enable_nested_tensor=False"
            )
        return forward(self, *args, **kwargs)

    return called


def is_nested_in_eager(
    encoder: torch.nn.TransformerEncoder,
    src: torch.Tensor,
    mask: torch.Tensor | None = None,
    src_key_padding_mask: torch.Tensor | None = None,
    is_causal: bool | None = None,
) -> bool:
    """Whether eager may make a nested tensor of these arguments, of which it fills the ends with zeros."""
    is_padded = src_key_padding_mask is not None and mask is None and src.dim() == 3
    can_nest = getattr(encoder, "use_nested_tensor", False) and torch.backends.mha.get_fastpath_enabled()
    return is_padded and can_nest and not encoder.layers[0].training
