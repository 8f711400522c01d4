"""Shortcuts: branches for masks without a hole, for nothing at all, and for matrices without a factorization, which a model could do without."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.utils._python_dispatch import _disable_current_modes

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.errors import located
from experimental_experiment.torch_interpreter.frames import asking_frame, decides_turns, line_around
from experimental_experiment.torch_interpreter.patches.checks import without_exception
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import is_modeling

ANSWERS = {"all": False, "any": True}
"""What is answered when a branch asks for the result of an operator: a mask has holes, something is marked."""

COUNTS = ("sum", "count_nonzero")
"""Operators that count what a mask marks."""

OVERLOADS = ("default", "Scalar", "dtype", "dtype_layout")
"""Those of the operators of one tensor that a condition is made of; they are computed of single elements."""

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

    A mask has holes, something is marked (``mask.sum() > 0``), something was found; matrices have the factorization whose ``info`` is asked
    for, as in GPyTorch, which else adds to their diagonals. What the other branch computes must be what the general one
    gives for such data: nothing checks it. What decides how often a ``while`` turns stays refused: it would turn without end.
    """
    told: set[str] = set()
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "__bool__", of_mask(torch.Tensor.__bool__, told)))
        stack.enter_context(replaced(torch.SymBool, "__bool__", of_size(torch.SymBool.__bool__, told)))
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
            if torch.compiler.is_dynamo_compiling():  # strict=True: torch.jit does not trace then
                return False
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


def of_mask(bool_: Callable, told: set[str]) -> Callable:
    """``Tensor.__bool__`` that answers for what is asked of a mask, or of a factorization."""

    def __bool__(self: torch.Tensor) -> bool:
        node = node_of(self) if isinstance(self, FakeTensor) and self.constant is None else None
        found = None if node is None else general_answer(node)
        frame = asking_frame(sys._getframe())
        if found is None or is_no_branch(frame):
            return bool_(self)
        condition, answer = found
        tell(condition, frame, told)
        return answer

    return __bool__


def node_of(value: torch.Tensor) -> torch.fx.Node | None:
    """The node that a tensor of the model is the result of, None when nothing records."""
    mode = get_proxy_mode()
    recorded = mode and get_proxy_slot(value, mode.tracer, None)
    return recorded.proxy.node if recorded else None


def general_answer(node: torch.fx.Node) -> tuple[str, bool] | None:
    """What holds of data in general, and what a condition is then; None for a condition that asks for something else."""
    steps, source = [], node
    while is_step(source):
        steps.append(source)
        (source,) = source.all_input_nodes
        if name_of(steps[-1]) in COUNTS and source.meta["val"].dtype == torch.bool:
            few, many = (evaluated(steps[:-1], torch.tensor(count)) for count in (1, 1 << 40))
            return (f"{name_of(steps[-1])}() > 0 is True", few) if few == many else None
    if is_info(source):
        return "info == 0 is True", evaluated(steps, torch.tensor(0, dtype=torch.int32))
    name = name_of(node)
    return (f"{name}() is {ANSWERS[name]}", ANSWERS[name]) if name in ANSWERS else None


def name_of(node: torch.fx.Node) -> str | None:
    """The name of an operator of ATen, without its overload."""
    target = node.target
    is_aten = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return target._opname if is_aten else None


def is_step(node: torch.fx.Node) -> bool:
    """Whether a node is an operator of one tensor that a condition may be made of."""
    return (
        name_of(node) is not None
        and node.target._overloadname in OVERLOADS
        and len(node.all_input_nodes) == 1
        and isinstance(node.all_input_nodes[0].meta.get("val"), torch.Tensor)
    )


def is_info(node: torch.fx.Node) -> bool:
    """Whether a node says which matrices have no factorization: the ``info`` of ``torch.linalg.cholesky_ex`` and others."""
    if node.target is not operator.getitem or name_of(node.args[0]) is None:
        return False
    results = [result.name for result in node.args[0].target._schema.returns]
    return results[node.args[1] : node.args[1] + 1] == ["info"]


def evaluated(steps: list[torch.fx.Node], value: torch.Tensor) -> bool:
    """The truth of what these nodes, the last one first, give for a single element."""
    with _disable_current_modes():
        for node in reversed(steps):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda _, value=value: value)
            value = node.target(*args, **kwargs)
        return bool(value)


def of_size(bool_: Callable, told: set[str]) -> Callable:
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
        tell(f"{self.node.expr} is {answer}", frame, told)
        return bool(answer)

    return __bool__


def is_no_branch(frame: FrameType) -> bool:
    """Whether the line of a frame checks what must hold, or decides how often a ``while`` turns."""
    if without_exception(frame) is not None:
        return True
    source, _ = line_around(frame)
    return source is not None and decides_turns(*source[:2])


def tell(condition: str, frame: FrameType, told: set[str]) -> None:
    """Warn of a branch that is taken for good, unless that was *told* before."""
    shortcuts.used()
    source, _ = line_around(frame)
    place = f"\n{located(source)}" if source else ""
    text = f"the model holds the branch where {condition}, for all data{place}"
    if text not in told:
        told.add(text)
        logger.warning("%s", text)
