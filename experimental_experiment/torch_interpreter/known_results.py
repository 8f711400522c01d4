"""Results that are known while exporting: torch computes the factorizations of constants, which are Loops otherwise.

An invertible convolution inverts its weight, a normal distribution factorizes its covariance: as nodes they run at every call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.inference import LIMIT, NUMPY
from experimental_experiment.torch_interpreter.storage import View
from experimental_experiment.torch_interpreter.weights import Weight, in_parts
from experimental_experiment.torch_interpreter.writes import storages

if TYPE_CHECKING:
    from experimental_experiment.torch_interpreter.interpreter import Walk

FAMILIES = frozenset(
    f"experimental_experiment.torch_interpreter.aten.{name}"
    for name in ("factorization", "matrix_norm", "singular_values", "solving")
)
"""The files whose translations are Loops over the columns of matrices."""


def known_results(walk: Walk, node: torch.fx.Node, translation: registry.Translation) -> Any:
    """What torch computes for a factorization of constants, as constants; None for another operator, or when one is not known.

    Results hold no more elements than what they are made of, or as few as are computed elsewhere. A matrix that eager refuses, as one
    without an inverse, is left to the nodes: a branch that is not taken may hold it.
    """
    family = registry.TRANSLATIONS.get(node.target)  # a complex translation stands beside it
    if family is None or family.function.__module__ not in FAMILIES:
        return None
    if walk.op.context.region is not None or not registry.is_ours(translation.function):
        return None
    read = read_by(walk, node, {})
    if read is None:
        return None
    most = max([LIMIT, *(tensor.numel() for tensor in read)])
    fakes = node.meta["val"]
    if any(math.prod(fake.shape) > most for fake in pytree.tree_leaves(fakes)):
        return None
    try:
        results = computed(node, read)
    except torch.linalg.LinAlgError:
        return None
    operands = [walk.read(argument) for argument in node.all_input_nodes]
    constants = [
        walk.op.computed(node.name, operands, in_parts(result)) for result in pytree.tree_leaves(results)
    ]
    return constants if isinstance(fakes, (list, tuple)) else constants[0]


Known = dict[torch.fx.Node, torch.Tensor | None]
"""What was found of the nodes before a factorization: each is asked once, however many read it."""


def read_by(walk: Walk, node: torch.fx.Node, known: Known) -> list[torch.Tensor] | None:
    """The tensors that a node reads, None when one is not known."""
    read = []
    for argument in node.all_input_nodes:
        if argument not in known:
            known[argument] = known_tensor(walk, argument, known)
        tensor = known[argument]
        if tensor is None:
            return None
        read.append(tensor)
    return read


def known_tensor(walk: Walk, node: torch.fx.Node, known: Known) -> torch.Tensor | None:
    """The tensor that a node is whatever the inputs of the model are, None when it is not known.

    It is a constant of the graph, or what torch computes of such: a weight that is cast, transposed, or times another one.
    """
    fake, view = node.meta.get("val"), walk.env[node]
    if not isinstance(fake, torch.Tensor) or not isinstance(view, View):
        return None
    held = view.read(walk.op).const_value
    if held is not None:
        if not isinstance(held, Weight) and held.dtype not in NUMPY:
            return None
        tensor = held.raw.cpu() if isinstance(held, Weight) else torch.from_numpy(held.numpy().copy())
        return with_layout(tensor, fake)
    if not is_pure(walk, node):
        return None
    read = read_by(walk, node, known)
    if read is None:
        return None
    result = computed(node, read)
    # under autocast it has another dtype
    return result if result.dtype == fake.dtype and result.shape == fake.shape else None


def with_layout(tensor: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """A constant as torch sees it: complex, and with the strides by which some factorizations choose what they factorize."""
    if fake.is_complex():
        tensor = torch.view_as_complex(tensor.contiguous())
    strides = fake.stride()
    if tensor.stride() == strides:
        return tensor
    once = tensor[
        tuple(slice(None) if step else slice(1) for step in strides)
    ]  # what is expanded stands once
    return torch.empty_strided(once.shape, strides, dtype=tensor.dtype).copy_(once).expand(fake.shape)


def is_pure(walk: Walk, node: torch.fx.Node) -> bool:
    """Whether a node is an operator of ATen's that gives the same for the same tensors, in memory that nothing writes."""
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace == "aten"
        and "empty" not in target._schema.name
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not registry.given_by_user(target, walk.op.context.translations)
        and not any(storage in walk.mutation.storages for storage in storages(node.meta["val"]))
    )


def computed(node: torch.fx.Node, read: Sequence[torch.Tensor]) -> Any:
    """What the operator of a node gives for these tensors, on the CPU."""
    tensors = dict(zip(node.all_input_nodes, read))
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), tensors.__getitem__)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    with _disable_current_modes(), torch.no_grad():
        return node.target(*args, **kwargs)
