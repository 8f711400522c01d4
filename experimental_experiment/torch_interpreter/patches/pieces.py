"""Features of images that a model of transformers splits, an image each, and concatenates again."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.frames import asking_frame
from experimental_experiment.torch_interpreter.patches.caches import registered_cache
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import is_modeling, modeling_modules

FLATTENING = tuple(
    f"transformers.models.{name}.modeling_{name}"
    for name in ("idefics2", "idefics3", "modernvbert", "ultravbert")
)
"""Models that make rows of the pieces, and of nothing else, before they concatenate them; SmolVLM returns them too."""

LISTING = "transformers.models.llava.modeling_llava"
"""A model that makes a list of the features of its images, an image each."""


RETURNED = (
    "the model returns an entry for each image, in any number: the ONNX model has one result for all, ..._all "
    "(..._0 of Idefics), their rows one after the other"
)
"""The warning."""

RETURNING = "MultimodalBaseModelOutputWithPast"
"""What the modules of `FLATTENING` import that return the rows of each image: those of transformers 5.24 and later."""


@patch(
    "transformers",
    replaces=(
        "torch._subclasses.fake_tensor.FakeTensor.tolist",
        "torch.split",
        "torch.Tensor.split",
        "torch.cat",
        "list, in the module of LLaVA",
    ),
    since="5.0",
    default=True,
)
def pieces_of_images() -> Iterator[None]:
    """The number of images is the example's: their features are split by a list of lengths, and concatenated again.

    What a model returns split is one result, ``..._all``: those of all images.
    """
    tell = functools.cache(functools.partial(logger.warning, RETURNED))  # once
    with contextlib.ExitStack() as stack:
        if modeling_modules():
            stack.enter_context(registered_cache(Pieces, as_one_result(tell)))
            stack.enter_context(replaced(FakeTensor, "tolist", listed(FakeTensor.tolist)))
            stack.enter_context(replaced(torch, "split", split_later(torch.split)))
            stack.enter_context(replaced(torch.Tensor, "split", rows_of_all(torch.Tensor.split, tell)))
            stack.enter_context(replaced(torch, "cat", joined(torch.cat)))
        if LISTING in sys.modules:
            stack.enter_context(replaced(sys.modules[LISTING], "list", list_later))
        yield


class Lengths(Sequence):
    """The list of a tensor's numbers, which is made when somebody looks into it."""

    def __init__(self, tensor: torch.Tensor, tolist: Callable):
        self.tensor, self.tolist = tensor, tolist

    @functools.cached_property
    def numbers(self) -> list[Any]:
        """The numbers: as many as the tensor of the example has."""
        return self.tolist(self.tensor)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return self.numbers[place]


class Pieces(Sequence):
    """The parts of a tensor, which are made when somebody looks into them."""

    def __init__(self, whole: torch.Tensor, make: Callable[[], Sequence[torch.Tensor]]):
        self.whole, self.make = whole, make

    @functools.cached_property
    def parts(self) -> Sequence[torch.Tensor]:
        """The parts: as many as the example has."""
        return self.make()

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: Any) -> Any:
        return self.parts[place]


def as_one_result(tell: Callable[[], None]) -> tuple[Callable, Callable, Callable]:
    """How torch flattens `Pieces` that a model returns, in any number: one result, which *tell* warns of."""

    def flatten(pieces: Pieces) -> tuple[list[torch.Tensor], list[str]]:
        pieces_of_images.used()
        tell()
        return [pieces.whole], ["all"]

    def unflatten(leaves: Any, names: list[str]) -> Pieces:
        (whole,) = leaves
        return Pieces(whole, lambda: (whole,))

    def flatten_with_keys(pieces: Pieces) -> tuple[list[tuple], list[str]]:
        leaves, names = flatten(pieces)
        return [(pytree.MappingKey(name), leaf) for name, leaf in zip(names, leaves)], names

    return flatten, unflatten, flatten_with_keys


def listed(tolist: Callable) -> Callable:
    """``FakeTensor.tolist`` that gives `Lengths` to a model, for numbers, or rows of them, whose count is not known."""

    def called(self: FakeTensor) -> Any:
        is_row = self.dim() in (1, 2) and isinstance(self.shape[0], torch.SymInt)
        if is_row and is_within_forward(asking_frame(sys._getframe(1))):
            return Lengths(self, tolist)
        return tolist(self)

    return called


def is_within_forward(frame: FrameType | None) -> bool:
    """Whether a function of a model is called by the forward of a model beside it: what it returns is no output."""
    while frame.f_globals.get("__name__", "").startswith((__package__, "transformers.utils.")):
        frame = frame.f_back  # a patch, a decorator
    names = frame.f_globals
    if not is_modeling(names.get("__name__", "")):
        return False
    while frame is not None and (frame.f_globals is not names or frame.f_code.co_name != "forward"):
        frame = frame.f_back
    return frame is not None


def split_later(split: Callable) -> Callable:
    """``torch.split`` that makes `Pieces` of `Lengths`."""

    def called(tensor: torch.Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
        if isinstance(split_size_or_sections, Lengths):
            lengths = split_size_or_sections
            if dim == 0:
                return Pieces(tensor, lambda: split(tensor, lengths.numbers))
            split_size_or_sections = split_size_or_sections.numbers
        return split(tensor, split_size_or_sections, dim)

    return called


def list_later(values: Any = ()) -> Any:
    """``list`` that makes `Pieces` of a tensor, for a number of rows that is not known."""
    is_of_rows = isinstance(values, FakeTensor) and isinstance(values.shape[0], torch.SymInt)
    if is_of_rows and is_within_forward(sys._getframe(1)):
        return Pieces(values.flatten(0, 1), values.unbind)
    return list(values)


def rows_of_all(split: Callable, tell: Callable[[], None]) -> Callable:
    """``Tensor.split`` that gives all at once to a model that makes rows of the pieces and concatenates them.

    One that returns them, too, has one entry for all: *tell* warns of it.
    """

    def called(self: torch.Tensor, split_size: Any, dim: int = 0) -> Any:
        if isinstance(split_size, Lengths):
            names = sys._getframe(1).f_globals
            if dim == 0 and names.get("__name__") in FLATTENING:
                pieces_of_images.used()
                if RETURNING in names:
                    tell()
                return (self,)
            split_size = split_size.numbers
        return split(self, split_size, dim)

    return called


def joined(cat: Callable) -> Callable:
    """``torch.cat`` that gives the whole tensor for its `Pieces`."""

    def called(tensors: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if isinstance(tensors, Pieces):
            if (not args and not kwargs) or args == (0,) or kwargs == {"dim": 0}:
                pieces_of_images.used()
                return tensors.whole
            tensors = tensors.parts
        return cat(tensors, *args, **kwargs)

    return called
