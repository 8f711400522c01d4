"""What the files of random programs share: how many, programs written as source, the comparison with eager.

A program is drawn from a `random.Random` of a seed, which a failure names: what stands elsewhere does not change what is drawn.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import random
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import torch

from experimental_experiment.comparison import compare, difference, leaves_of, session
from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter import CaptureError, ExportError, to_onnx


class RandomPrograms(unittest.TestCase):
    """Exports random programs and compares them with eager.

    Attributes:
        EXAMPLES: programs of a run in CI, those of the seeds from 0 on; ``PROGRAMS=n SEED=m`` in the environment runs n from m on.
        REFUSED: what this exporter may answer instead of a model.
    """

    EXAMPLES = 30
    REFUSED: tuple[str, ...] = ()

    def assert_programs(self, check: Callable[[random.Random], bool]) -> None:
        """``check(random)`` draws a program and compares it; it says whether there was a model: more than a quarter have one."""
        models: list[bool] = []
        first = int(os.environ.get("SEED", 0))
        for seed in range(first, first + int(os.environ.get("PROGRAMS", self.EXAMPLES))):
            with self.subTest(seed=seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                models.append(check(random.Random(seed)))
        self.assertGreater(sum(models), len(models) / 4, "torch.export refuses most of the programs")

    def assert_as_eager(
        self,
        program: torch.nn.Module,
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
        others: Sequence[tuple[tuple, Mapping[str, Any]]] = (),
        eager: torch.nn.Module | None = None,
        **options: Any,
    ) -> onnx.ModelProto | None:
        """The model, which gives what *eager* (or the program itself) gives on the example and on *others*, pairs (args, kwargs).

        None when torch.export refuses the program, or this exporter does in one of the ways of `REFUSED`.
        """
        try:
            model = to_onnx(copy.deepcopy(program), copy.deepcopy(args), copy.deepcopy(kwargs), **options)
        except CaptureError:
            return None
        except ExportError as error:
            if any(words in str(error) for words in self.REFUSED):
                return None
            raise AssertionError(f"{error}\n{program}") from error
        onnx.checker.check_model(model, full_check=True)
        self.assert_calls(model, program if eager is None else eager, [(args, kwargs), *others])
        return model

    def assert_calls(self, model: onnx.ModelProto, eager: torch.nn.Module, calls: Sequence[tuple]) -> None:
        """The model gives what *eager* gives on these calls, pairs (args, kwargs)."""
        runner = session(model)
        for call in calls:
            for found in compare(copy.deepcopy(eager), runner, *call):
                kinds = [f"{x.dtype}{[*x.shape]}" for x in leaves_of(call) if isinstance(x, torch.Tensor)]
                self.assertTrue(found.within, f"{found}\n{eager}\n{kinds}")


def is_as_near(
    name: str, expected: torch.Tensor, got: torch.Tensor, exact: torch.Tensor, usual: float = 0.0
) -> bool:
    """Whether a result is within the tolerance of eager's, or of the exact one in float64, or not twice as far from it as eager's.

    Eager rounds every step to the dtype of a program in half precision, and sums in another order. *usual*: how far eager is from
    the exact result on inputs like this one, where it may be nearer by chance.
    """
    if difference(name, expected, got).within:
        return True
    if got.shape != exact.shape or got.dtype != expected.dtype or not got.is_floating_point():
        return False
    if difference(name, exact.to(got.dtype), got).within:
        return True
    ours, eagers = (float((x.double() - exact).abs().max()) for x in (got, expected))
    return ours <= 2 * max(eagers, usual) < float("inf")


@contextlib.contextmanager
def told() -> Iterator[list[str]]:
    """The warnings of the exporter."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


class Written(torch.nn.Module):
    """A module whose forward is written as source.

    *namespace*: what its names mean. *buffers*: its buffers by name.
    """

    def __init__(self, source: str, namespace: Mapping[str, Any], buffers: Mapping[str, torch.Tensor]):
        super().__init__()
        self.source = source
        defined = dict(namespace)
        exec(source, defined)
        self.function = defined["forward"]
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, *args):
        """What the source says."""
        return self.function(self, *args)

    def __repr__(self) -> str:
        return self.source


def numbers(random: random.Random, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of small numbers: halves, whole numbers, booleans. Sums and products of a few are exact."""
    seed = random.randint(0, 1000)
    drawn = torch.randint(-6, 7, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return drawn > 0 if dtype == torch.bool else (drawn / 2 if dtype.is_floating_point else drawn).to(dtype)
