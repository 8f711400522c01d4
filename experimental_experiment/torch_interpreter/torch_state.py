"""torch's state that an export shares with the rest of the process: what is global is locked, what is ambient put aside."""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.patches.patch import replaced

REMARKS = ("torch.export._trace", "torch.fx.experimental.symbolic_shapes", "torch._guards")
"""The modules of torch that remark on a capture that fails: each has a logger of its name."""

UNSOLVED = "Failed to reduce inequalities"
"""A remark with a traceback of sympy: torch then keeps the conditions on a size in the words in which they were asked."""


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one thread capture and translate; an export inside of an export is that thread's own.

    torch.export, TorchDynamo and the tracers of torch.fx patch classes and modules while they run. The lock is the one that TorchDynamo
    holds while it compiles and calls backends: with one of ours beside it, a thread of each would wait for the other. As TorchDynamo does,
    torch is told that something is compiled: otherwise it refuses, in any thread, to call what is compiled already while make_fx traces.
    """
    with (
        importlib.import_module("torch._dynamo.convert_frame").compile_lock,
        replaced(torch.compiler, "_is_compiling_flag", True),
    ):
        yield


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Leave ``torch.autocast`` for a while: what translations trace and compute is not the model's."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def forget_marks(example: Any) -> None:
    """Remove the marks of dynamic sizes that a capture which fails leaves on the tensors of its example: the next one would read them."""
    # brings TorchDynamo, as torch.export does when it is called
    clean = importlib.import_module("torch._export.non_strict_utils")._clean_dynamic_markers
    for leaf in pytree.tree_leaves(example):
        if isinstance(leaf, torch.Tensor):
            clean(leaf)


@contextlib.contextmanager
def unmarked(example: Any) -> Iterator[None]:
    """Forget the marks on an example at the end, see `forget_marks`."""
    try:
        yield
    finally:
        forget_marks(example)


@contextlib.contextmanager
def without_remarks() -> Iterator[None]:
    """Keep torch.export from printing the graph of a capture that fails, and from logging about it: our error says what matters.

    What it logs of a capture that succeeds is logged when that is known, but `UNSOLVED`; other threads print and log as they did.
    """
    # brings TorchDynamo, as torch.export does when it is called
    tracing = importlib.import_module(REMARKS[0])
    thread = threading.get_ident()
    held: list[logging.LogRecord] = []

    def printed(*values: Any, **options: Any) -> None:
        if threading.get_ident() != thread:
            print(*values, **options)

    def passes(record: logging.LogRecord) -> bool:
        if record.thread != thread or record.levelno < logging.WARNING:
            return True
        if record.msg != UNSOLVED:
            held.append(record)
        return False

    loggers = [logging.getLogger(name) for name in REMARKS]
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(tracing, "print", printed))
        for logger in loggers:
            logger.addFilter(passes)
            stack.callback(logger.removeFilter, passes)
        yield
    for record in held:
        logging.getLogger(record.name).handle(record)
