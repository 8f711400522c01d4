"""Shortcuts: branches for masks without a hole and for nothing at all, which a model could do without."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.errors import located
from experimental_experiment.torch_interpreter.frames import asking_frame, decides_turns, line_around
from experimental_experiment.torch_interpreter.patches.checks import without_exception
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import is_modeling

ANSWERS = {"aten.all": False, "aten.any": True}
"""What is answered when a branch asks for the result of an operator: a mask has holes, something is marked."""

HARMLESS = (
    ("transformers.models.fsmt.modeling_fsmt", "make_padding_mask"),
    ("transformers.models.ovis2.modeling_ovis2", "forward"),
)
"""Functions that ask whether something is marked before they do what changes nothing when nothing is."""

INTERPOLATING = ("_tile_position_embeddings", "get_absolute_positions", "interpolate_pos_encoding")
"""Functions that give the position embeddings as they are for the size of the configuration, unless torch.jit traces."""


@patch("torch", replaces=("torch.Tensor.__bool__", "torch.SymBool.__bool__"), by_name=True)
def shortcuts() -> Iterator[None]:
    """A branch on ``mask.all()``, ``mask.any()`` or ``found.numel() == 0`` is refused: the general one is taken, with a warning.

    A mask has holes, something is marked, something was found. What the other branch computes must be what the general one
    gives for such data: nothing checks it. What decides how often a ``while`` turns stays refused: it would turn without end.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "__bool__", of_mask(torch.Tensor.__bool__)))
        stack.enter_context(replaced(torch.SymBool, "__bool__", of_size(torch.SymBool.__bool__)))
        yield


@patch("transformers", replaces=("torch.Tensor.__bool__",), since="5.0", default=True)
def harmless_shortcuts() -> Iterator[None]:
    """FSMT asks whether a token is padding, Ovis2 whether one stands for an image, to save what would change nothing."""

    def of_marks(bool_: Callable) -> Callable:
        def __bool__(self: torch.Tensor) -> bool:
            if isinstance(self, FakeTensor) and self.constant is None:
                frame = asking_frame(sys._getframe())
                if (frame.f_globals.get("__name__"), frame.f_code.co_name) in HARMLESS:
                    harmless_shortcuts.used()
                    return True
            return bool_(self)

        return __bool__

    with replaced(torch.Tensor, "__bool__", of_marks(torch.Tensor.__bool__)):
        yield


@patch("transformers", replaces=("torch.jit.is_tracing",), since="5.0", default=True)
def position_embeddings() -> Iterator[None]:
    """Vision models take their position embeddings as they are for images of the configured size: other sizes would get them too.

    They are interpolated for every size, as transformers itself does while torch.jit traces: to their own size, that changes nothing.
    """

    def of_sizes(is_tracing: Callable) -> Callable:
        def called() -> bool:
            asking = sys._getframe(1)
            if is_modeling(asking.f_globals.get("__name__", "")) and has_symbolic_sizes(asking):
                position_embeddings.used()
                return True
            return is_tracing()

        return called

    with replaced(torch.jit, "is_tracing", of_sizes(torch.jit.is_tracing)):
        yield


def has_symbolic_sizes(frame: FrameType) -> bool:
    """Whether a frame is that of a function of `INTERPOLATING` for a size that is a symbol."""
    code = frame.f_code
    arguments = (frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount])
    return code.co_name in INTERPOLATING and any(isinstance(value, torch.SymInt) for value in arguments)


def of_mask(bool_: Callable) -> Callable:
    """``Tensor.__bool__`` that answers for what ``all`` and ``any`` give."""

    def __bool__(self: torch.Tensor) -> bool:
        operator = operator_of(self) if isinstance(self, FakeTensor) and self.constant is None else None
        frame = asking_frame(sys._getframe())
        if operator not in ANSWERS or is_no_branch(frame):
            return bool_(self)
        tell(f"{operator.removeprefix('aten.')}() is {ANSWERS[operator]}", frame)
        return ANSWERS[operator]

    return __bool__


def operator_of(value: torch.Tensor) -> str | None:
    """The operator that a tensor of the model is the result of, None when nothing records."""
    mode = get_proxy_mode()
    recorded = mode and get_proxy_slot(value, mode.tracer, None)
    target = recorded.proxy.node.target if recorded else None
    return str(target.overloadpacket) if isinstance(target, torch._ops.OpOverload) else None


def of_size(bool_: Callable) -> Callable:
    """``SymBool.__bool__`` that answers for sizes that the data decide: they are not 0."""

    # a SymBool has loaded them, importing this file has not
    import sympy
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    def __bool__(self: torch.SymBool) -> bool:
        symbols = free_unbacked_symbols(self)
        frame = asking_frame(sys._getframe())
        if not symbols or not symbols <= self.node.shape_env.size_like or is_no_branch(frame):
            return bool_(self)
        positive = {symbol: sympy.Symbol(symbol.name, integer=True, positive=True) for symbol in symbols}
        answer = self.node.expr.xreplace(positive)
        if answer not in (sympy.true, sympy.false):
            return bool_(self)
        tell(f"{self.node.expr} is {answer}", frame)
        return bool(answer)

    return __bool__


def is_no_branch(frame: FrameType) -> bool:
    """Whether the line of a frame checks what must hold, or decides how often a ``while`` turns."""
    if without_exception(frame) is not None:
        return True
    source, _ = line_around(frame)
    return source is not None and decides_turns(*source[:2])


def tell(condition: str, frame: FrameType) -> None:
    """Warn of a branch that is taken for good."""
    shortcuts.used()
    source, _ = line_around(frame)
    place = f"\n{located(source)}" if source else ""
    logger.warning("the model holds the branch where %s, for all data%s", condition, place)
