"""Buffers and parameters that a model gives another tensor, where torch.export does not follow: what they become is lost.

Source of semantics: ``torch.export._trace``, which copies at the end what is assigned to buffers of the module that it is given.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from experimental_experiment.torch_interpreter.assumptions.kept_tensors import is_constant
from experimental_experiment.torch_interpreter.assumptions.replayed import calls_end
from experimental_experiment.torch_interpreter.memories import put_into
from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.signature import Program

WRAPPED = "_export_root"
"""What torch.export calls the module in another one that it makes."""


class Assignment(NamedTuple):
    """What a buffer or a parameter was at first, and what it is at last."""

    kind: str
    first: torch.Tensor | None
    last: Any

    @property
    def is_written(self) -> bool:
        """Whether ``tracing="make_fx"`` writes what a buffer becomes into what it was."""
        return self.kind == "buffer" and self.first is not None

    def is_lost(self, program: Program) -> bool:
        """Whether the next call would find something else: a table that depends on sizes alone is made again."""
        is_new = self.first is None and isinstance(self.last, torch.Tensor)
        return self.last is not self.first and not (is_new and is_constant(program, self.last, ()))


class Following:
    """What torch hears of the buffers of a module with, and stops to before it looks for their inputs.

    Attributes:
        root: the module.
        names: the buffers that it is to hear of.
        handle: torch's own.
    """

    def __init__(self, root: torch.nn.Module, names: set[str], handle: RemovableHandle):
        self.root, self.names, self.handle = root, names, handle
        hooks = torch.nn.modules.module._global_buffer_registration_hooks
        hear = hooks[handle.id]

        def hear_some(part: torch.nn.Module, name: str, value: Any) -> Any:
            return hear(part, name, value) if part is not root or name in names else value

        hooks[handle.id] = hear_some

    def remove(self) -> None:
        """Hear no more, and leave the module the buffers that are inputs."""
        self.handle.remove()
        held = self.root._buffers
        put_into(held, {name: value for name, value in held.items() if name in self.names})


@contextlib.contextmanager
def lost_assignments(module: torch.nn.Module, is_followed: bool) -> Iterator[dict[str, Assignment]]:
    """Yield the buffers and the parameters that get another tensor meanwhile, by name, but those buffers that torch.export follows.

    It follows an assignment to a buffer of the module itself, ``self.b = h``, and loses what is put there otherwise,
    ``self._buffers["b"] = h``, and what was no tensor before. It counts these as well when it looks for the inputs of the others.
    *is_followed*: whether TorchDynamo runs the model: all of these are lost.
    """
    parts = [*module.named_modules()]
    kinds = {
        "buffer": {id(part._buffers): path for path, part in parts},
        "parameter": {id(part._parameters): path for path, part in parts},
    }
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    followed = {name for name, value in module._buffers.items() if value is not None}
    seen: set[str] = set()
    assigned: dict[str, Assignment] = {}
    trace = importlib.import_module("torch.export._trace")
    stateless = torch.nn.utils.stateless
    follow, swapped = trace.register_buffer_assignment_hook, stateless._reparametrize_module

    def note(kind: str, part: torch.nn.Module, name: str, value: Any) -> None:
        held = part._buffers if kind == "buffer" else part._parameters
        path = kinds[kind].get(id(held))
        if kind == "buffer" and path == "" and name in followed:
            seen.add(name)
        elif path is not None and (kind == "buffer" or name in held):
            full = f"{path}.{name}" if path else name
            first = assigned[full].first if full in assigned else held.get(name)
            assigned[full] = Assignment(kind, first, value)

    def following(root: torch.nn.Module, found: dict[str, str]) -> Following:
        return Following(root, followed, follow(root, found))

    @contextlib.contextmanager
    def watched(root: torch.nn.Module, tensors: dict[str, torch.Tensor], *args, **kwargs) -> Iterator[None]:
        before = dict(tensors)
        with swapped(root, tensors, *args, **kwargs):
            yield
        if module not in (root, getattr(root, WRAPPED, None)):
            return
        for name, tensor in tensors.items():  # what the model has put in their places
            full = name.removeprefix(f"{WRAPPED}.")
            if tensor is not before[name] and full not in seen:
                kind = "parameter" if full in parameters else "buffer"
                assigned.setdefault(full, Assignment(kind, before[name], tensor))

    registered = [
        (kind, path, held, dict(held))
        for path, part in parts
        for kind, held in (("buffer", part._buffers), ("parameter", part._parameters))
    ]
    left: dict[str, Assignment] = {}  # TorchDynamo follows `note`, too, and takes what that notes away

    def compare(tables: Sequence[torch.Tensor], _: Sequence[Iterator]) -> None:
        for kind, path, held, before in registered:
            for name in {**before, **held}:
                first, value = before.get(name), held.get(name)
                is_table = first is None and any(value is table for table in tables)
                if value is not first and not is_table:
                    left[f"{path}.{name}" if path else name] = Assignment(kind, first, value)

    hooks = torch.nn.modules.module
    first = dict(module._buffers)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: put_into(module._buffers, {**first, **module._buffers}))
        if is_followed:
            stack.enter_context(calls_end(compare))
        stack.enter_context(replaced(trace, "register_buffer_assignment_hook", following))
        stack.enter_context(replaced(stateless, "_reparametrize_module", watched))
        for kind, register in (
            ("buffer", hooks.register_module_buffer_registration_hook),
            ("parameter", hooks.register_module_parameter_registration_hook),
        ):
            stack.callback(register(functools.partial(note, kind)).remove)
        yield assigned
        assigned.update(left)
