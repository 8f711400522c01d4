"""Refusals of torch.export that the model catches itself: ``except Exception`` around a branch on the data, and no one is told.

The program has what the handler does, in the place of what eager does.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from torch._subclasses import fake_tensor

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.errors import Source, located
from experimental_experiment.torch_interpreter.frames import is_library_code, source_at
from experimental_experiment.torch_interpreter.messages import sentence
from experimental_experiment.torch_interpreter.patches.patch import replaced

Caught = dict[Source, str]
"""What was caught: by the line of the model that it came out of, in the function that has the handler."""


@contextlib.contextmanager
def refusals_that_are_caught() -> Iterator[Caught]:
    """Find the refusals that end in a handler of the model, while it is captured; what is yielded has them at the end.

    An error knows the frames that it has left, and the one that has caught it.
    """
    symbolic_shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    refusals = symbolic_shapes.GuardOnDataDependentSymNode, fake_tensor.DataDependentOutputException
    raised: list[Exception] = []
    found: Caught = {}
    with contextlib.ExitStack() as stack:
        for refusal in refusals:
            stack.enter_context(replaced(refusal, "__init__", kept(refusal.__init__, raised)))
        numpy = fake_tensor.FakeTensor.numpy
        stack.enter_context(replaced(fake_tensor.FakeTensor, "numpy", kept_if_raised(numpy, raised)))
        yield found
    while raised:
        error = raised.pop(0)
        source = handled(error)
        if source is not None:
            found.setdefault(source, f"{type(error).__name__}: {sentence(error)}")


def warn_of(caught: Caught) -> None:
    """Warn of what the model does only where torch.export captures it."""
    for source, text in caught.items():
        logger.warning(
            "the model holds what it does after an exception that eager does not raise, and that it catches: %s\n%s",
            text,
            located(source),
        )


def kept(init: Callable, raised: list[Exception]) -> Callable:
    """The constructor of an exception that is kept in a list."""

    @functools.wraps(init)
    def __init__(self: Exception, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        raised.append(self)

    return __init__


def kept_if_raised(method: Callable, raised: list[Exception]) -> Callable:
    """A method whose RuntimeError is kept in a list: that of ``numpy()`` has no class of its own."""

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except RuntimeError as error:
            raised.append(error)
            raise

    return called


def handled(error: Exception) -> Source | None:
    """The line of the model that an error came out of, where a function of the model has caught it."""
    traceback = error.__traceback__
    if traceback is None or is_library_code(traceback.tb_frame.f_code):
        return None
    return source_at(traceback.tb_frame.f_code, traceback.tb_lineno)
