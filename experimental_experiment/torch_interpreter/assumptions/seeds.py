"""Seeds that a model sets: ``torch.manual_seed(0)`` in forward gives eager the same random numbers in each call, a runtime draws others."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator

import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.errors import Source, located
from experimental_experiment.torch_interpreter.frames import is_library_code, source_at
from experimental_experiment.torch_interpreter.patches.patch import replaced

SEEDING = ("manual_seed", "set_rng_state")
"""Functions of torch that decide what is drawn next."""


@contextlib.contextmanager
def seeds_of_the_model(is_followed: bool) -> Iterator[dict[Source, None]]:
    """Find the lines of the model that seed torch's generator, while it is captured.

    *is_followed*: whether TorchDynamo runs the model, which knows these functions by their identity: none is found then.
    """
    found: dict[Source, None] = {}
    with contextlib.ExitStack() as stack:
        for name in () if is_followed else SEEDING:
            noting = noted(getattr(torch.random, name), found)
            for module in (torch, torch.random):
                stack.enter_context(replaced(module, name, noting))
        yield found


def noted(seed: Callable, found: dict[Source, None]) -> Callable:
    """A function that seeds, which notes the line of the model that calls it."""

    @functools.wraps(seed)
    def called(*args, **kwargs):
        frame = sys._getframe(1)
        if not is_library_code(frame.f_code):
            found[source_at(frame.f_code, frame.f_lineno)] = None
        return seed(*args, **kwargs)

    return called


def warn_of_seeds(found: dict[Source, None], program: torch.fx.GraphModule) -> None:
    """Warn of the seeds of a program that draws numbers: once, with the first line."""
    graphs = [part.graph for part in program.modules() if isinstance(part, torch.fx.GraphModule)]
    if found and any(draws(node) for graph in graphs for node in graph.nodes):
        logger.warning(
            "the model seeds torch's generator, and a runtime draws other numbers in each run: draw them once, in __init__, to keep them\n%s",
            located(next(iter(found))),
        )


def draws(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers; a dropout does not where the model does not train, nor an attention without one."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = (
        dict(registry.defaults(target)) | dict(zip(registry.schema_names(target), node.args)) | node.kwargs
    )
    is_off = any(given.get(name) is False for name in ("train", "training"))
    return not is_off and all(given.get(name) != 0 for name in ("p", "dropout", "dropout_p"))
