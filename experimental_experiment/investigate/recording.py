"""Running a model once per input while every submodule's arguments and results are kept; dynamic shapes from their differences."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from experimental_experiment.comparison import leaves_of
from experimental_experiment.torch_interpreter.dynamic_shapes import guess_dynamic_shapes
from experimental_experiment.torch_interpreter.messages import in_eager
from experimental_experiment.torch_interpreter.patches.inputs import known_containers

DYNAMIC = torch.export.Dim.DYNAMIC


@dataclasses.dataclass
class Call:
    """One call of a module: copies of its arguments before, of its result after.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments, in the order of the signature.
        result: what forward returned.
    """

    args: tuple
    kwargs: dict[str, Any]
    result: Any = None


@dataclasses.dataclass
class Recording:
    """What was seen of one module.

    Attributes:
        calls: the first call of each run.
        count: how often it was called in all.
    """

    calls: list[Call] = dataclasses.field(default_factory=list)
    count: int = 0


def record(
    model: torch.nn.Module, inputs: Sequence[tuple[tuple, dict[str, Any]]], step: Callable[[], object]
) -> dict[str, Recording]:
    """Run the model on each input; what was seen of it, ``""``, and of every submodule by its qualified names.

    Each run begins with the buffers that the model has, and the model keeps them. Raises EagerError when a run fails.
    """
    found: dict[torch.nn.Module, Recording] = {}
    handles = []
    for module in model.modules():
        found[module] = Recording()
        handles += hooks(module, found[module])
    seen = {path: found[module] for path, module in model.named_modules(remove_duplicate=False)}
    try:
        for run, (args, kwargs) in enumerate(inputs):
            args, kwargs = copy.deepcopy((args, kwargs))
            with unchanged(model), in_eager():
                model(*args, **kwargs)
            for recording in seen.values():
                del recording.calls[run + 1 :]
            step()
    finally:
        for handle in handles:
            handle.remove()
    return seen


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Give the buffers of a model back the tensors and the values that they have now: runs of it do not see each other."""
    kept = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, value in kept:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
                setattr(module, name, buffer)


def hooks(module: torch.nn.Module, recording: Recording) -> list[Any]:
    """Keep the calls of a module; those of one that is called within itself are closed in order.

    Eager compiles the branches and the bodies of control flow: what they call has no values there, and is not kept.
    """
    open_calls: list[Call] = []

    def before(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        open_calls.append(Call(*copied(args, in_order(module, args, kwargs))))

    def after(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        call = open_calls.pop()
        recording.count += 1
        call.result = copied(result)
        recording.calls.append(call)

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]


def copied(*trees: Any) -> Any:
    """Copies of arguments or results, tensors detached from what they were computed from."""
    memo = {
        id(leaf): leaf.detach().clone().requires_grad_(leaf.requires_grad and leaf.is_leaf)
        for leaf in leaves_of(trees)
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)
    }
    found = copy.deepcopy(trees, memo)
    return found if len(found) > 1 else found[0]


def in_order(module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments in the order of forward's signature, as torch.export takes them."""
    names = list(inspect.signature(module.forward).parameters)
    return dict(
        sorted(kwargs.items(), key=lambda item: names.index(item[0]) if item[0] in names else len(names))
    )


# ---- dynamic shapes


def inferred_shapes(calls: Sequence[Call]) -> Any:
    """``dynamic_shapes`` of a module, see `guess_dynamic_shapes`: None for a single call, and for calls of several structures."""
    if len(calls) < 2:
        return None
    examples = [(call.args, call.kwargs) for call in calls]
    with known_containers(examples):
        try:
            return guess_dynamic_shapes(examples)
        except ValueError:
            return None


def shown(shapes: Any) -> str:
    """``dynamic_shapes`` as one writes them: ``({0: DYNAMIC}, None)``."""
    return repr(shapes).replace(repr(DYNAMIC), "DYNAMIC")
