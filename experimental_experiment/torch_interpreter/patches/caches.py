"""Caches of transformers as inputs and outputs of a model.

Source of semantics: ``transformers.cache_utils``. The tensors of a cache are leaves, named by layer: ``0_key``, ``0_value``,
``1_conv_states_0``, ``0_cross_key``. Everything else that it holds is part of the structure, a constant of the program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.errors import CaptureError
from experimental_experiment.torch_interpreter.patches.patch import Convert, patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import modeling_modules

WORDS = {"layers": "", "keys": "key", "values": "value", "self_attention_cache": "self"}
WORDS |= {"cross_attention_cache": "cross"}
"""How the attributes on the way to a tensor are called in its name."""

CONSTANTS = ("_sliding_window_tensor",)
"""Tensors of a layer that hold a setting."""

EXECUTORCH = "transformers.integrations.executorch"
"""The module whose ``register_dynamic_cache_export_support`` takes caches of keys and values only."""

COUNTERS = re.compile(r"cumulative_length|_count$")
"""Attributes that count tokens in a Python int, which a program would hold as a constant."""


@patch("transformers", replaces=("torch.utils._pytree.SUPPORTED_NODES",), default=True)
def caches() -> Iterator[Convert]:
    """A cache (DynamicCache, EncoderDecoderCache, StaticCache, those of linear attention) is refused as an input or an output."""
    with contextlib.ExitStack() as registered:
        for cls in cache_classes():
            known = pytree.SUPPORTED_NODES.get(cls)
            if known is not None and known.flatten_fn.__module__ == EXECUTORCH:
                registered.enter_context(registered_cache(cls, beside(known)))
            elif not is_named(known):
                registered.enter_context(registered_cache(cls, (flatten, unflatten, flatten_with_keys)))

        def convert(value: Any) -> Any:
            if is_state(value):
                caches.used()
                refuse_counters(value)
            return value

        yield convert


@patch(
    "transformers",
    replaces=tuple(
        f"transformers.cache_utils.DynamicSlidingWindowLayer.{name}"
        for name in ("get_mask_sizes", "get_seq_length", "update")
    ),
    since="5.0",
    default=True,
)
def sliding_window_caches() -> Iterator[None]:
    """A layer with a sliding window counts its tokens in a Python int, which the program holds as a constant.

    It is captured as a layer that keeps all tokens; the mask is that of the window all the same. So the cache of the ONNX
    model is the whole one, before and after, as the runtimes of decoders expect it.
    """
    utilities = sys.modules.get("transformers.cache_utils")
    layer = getattr(utilities, "DynamicSlidingWindowLayer", None)
    with contextlib.ExitStack() as stack:
        for name in ("get_mask_sizes", "get_seq_length", "update") if layer is not None else ():
            stack.enter_context(replaced(layer, name, getattr(utilities.DynamicLayer, name)))
        yield


def cache_classes() -> list[type]:
    """The classes of caches in the modules of transformers that are imported."""
    utilities = sys.modules.get("transformers.cache_utils")
    if utilities is None:
        return []
    found = dict.fromkeys(subclasses(utilities.Cache))
    for module in modeling_modules():
        found.update(dict.fromkeys(caches_of(module)))
    return list(found)


@functools.cache
def caches_of(module: types.ModuleType) -> tuple[type, ...]:
    """The classes of caches that a module of a model defines."""
    own = [item for item in vars(module).values() if getattr(item, "__module__", None) == module.__name__]
    return tuple(cls for cls in own if isinstance(cls, type) and is_cache_class(cls))


def subclasses(cls: type) -> Iterator[type]:
    """A class and all that derive from it."""
    yield cls
    for derived in cls.__subclasses__():
        yield from subclasses(derived)


def is_cache_class(cls: type) -> bool:
    """Whether a class of a model is a cache, which its name tells, and not a layer of one."""
    utilities = sys.modules["transformers.cache_utils"]
    return cls.__name__.endswith("Cache") and not issubclass(cls, utilities.CacheLayerMixin)


def is_named(known: pytree.NodeDef | None) -> bool:
    """Whether torch knows a class, with names for its tensors: the exporters of transformers only number them."""
    return known is not None and known.flatten_fn.__module__ != "transformers.exporters.exporter_dynamo"


@contextlib.contextmanager
def registered_cache(cls: type, functions: tuple[Callable, Callable, Callable]) -> Iterator[None]:
    """Let torch flatten a class of caches, put it together and name its tensors with these functions for a while."""
    flatten_, unflatten_, flatten_with_keys_ = functions
    known, serialized = pytree.SUPPORTED_NODES.get(cls), pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if known is not None:
        pytree._deregister_pytree_node(cls)
    pytree._private_register_pytree_node(
        cls,
        flatten_,
        unflatten_,
        flatten_with_keys_fn=flatten_with_keys_,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
    )
    try:
        yield
    finally:
        pytree._deregister_pytree_node(cls)
        if known is not None:
            pytree.SUPPORTED_NODES[cls], pytree.SUPPORTED_SERIALIZED_TYPES[cls] = known, serialized
            pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[serialized.serialized_type_name] = cls


def beside(known: pytree.NodeDef) -> tuple[Callable, Callable, Callable]:
    """The functions that are registered, for the caches that they take, and those of this file for the others."""

    def flatten_beside(cache: Any) -> tuple[list[torch.Tensor], Any]:
        return known.flatten_fn(cache) if holds_keys_only(cache) else flatten(cache)

    def unflatten_beside(leaves: Any, context: Any) -> Any:
        is_ours = isinstance(context, tuple) and isinstance(context[-1], State)
        return unflatten(leaves, context) if is_ours else known.unflatten_fn(leaves, context)

    def flatten_with_keys_beside(cache: Any) -> tuple[list[tuple], Any]:
        return known.flatten_with_keys_fn(cache) if holds_keys_only(cache) else flatten_with_keys(cache)

    return flatten_beside, unflatten_beside, flatten_with_keys_beside


def holds_keys_only(cache: Any) -> bool:
    """Whether all layers of a cache hold keys and values, no state."""
    names = ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")
    return all(type(layer).__name__ in names for layer in cache.layers)


@contextlib.contextmanager
def known_caches() -> Iterator[None]:
    """Let ``torch.utils._pytree`` look into caches for a while."""
    caches.enter()
    try:
        yield
    finally:
        caches.leave()


# ---- taking a cache apart


@dataclasses.dataclass(frozen=True)
class Leaf:
    """The place of a tensor in the structure of a cache."""

    position: int


@dataclasses.dataclass(frozen=True)
class State:
    """An object of transformers in the structure of a cache: its class and its attributes."""

    cls: type
    attributes: dict[str, Any]


def flatten(cache: Any) -> tuple[list[torch.Tensor], tuple]:
    """The tensors of a cache; their names and what remains of it."""
    if torch.compiler.is_exporting():
        caches.used()
    leaves: list[torch.Tensor] = []
    names: list[str] = []
    structure = taken_apart(cache, (), leaves, names)
    return leaves, (names, structure)


def flatten_with_keys(cache: Any) -> tuple[list[tuple], tuple]:
    """The tensors of a cache with their names as keys."""
    leaves, context = flatten(cache)
    return [(pytree.MappingKey(name), leaf) for name, leaf in zip(context[0], leaves)], context


def unflatten(leaves: Any, context: tuple) -> Any:
    """The cache with these tensors."""
    return put_together(context[1], list(leaves))


def taken_apart(value: Any, path: tuple, leaves: list[torch.Tensor], names: list[str]) -> Any:
    """The structure of an attribute of a cache; its tensors are added to *leaves*, their names to *names*."""
    if isinstance(value, torch.Tensor) and path[-1] not in CONSTANTS:
        leaves.append(value)
        names.append(name_of(path))
        return Leaf(len(leaves) - 1)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return str(value)
    if type(value) in (list, tuple):
        return type(value)(taken_apart(item, (*path, i), leaves, names) for i, item in enumerate(value))
    if type(value) is dict:
        return {key: taken_apart(item, (*path, key), leaves, names) for key, item in value.items()}
    if isinstance(value, types.MethodType):
        raise TypeError(
            f"the method {value.__name__} is bound to a cache, which torch.export cannot take apart"
        )
    if not is_state(value):
        return value
    attributes = {name: taken_apart(item, (*path, name), leaves, names) for name, item in vars(value).items()}
    return State(type(value), attributes)


def put_together(structure: Any, leaves: list[torch.Tensor]) -> Any:
    """What `taken_apart` took apart."""
    if isinstance(structure, Leaf):
        return leaves[structure.position]
    if type(structure) in (list, tuple):
        return type(structure)(put_together(item, leaves) for item in structure)
    if type(structure) is dict:
        return {key: put_together(item, leaves) for key, item in structure.items()}
    if not isinstance(structure, State):
        return structure
    value = structure.cls.__new__(structure.cls)
    vars(value).update(put_together(structure.attributes, leaves))
    return value


def is_state(value: Any) -> bool:
    """Whether an object is a cache or one of its layers, rather than a setting."""
    utilities = sys.modules.get("transformers.cache_utils")
    names = ("Cache", "CacheLayerMixin", "DummyLayer", "LinearAttentionCacheLayerMixin")
    if isinstance(value, tuple(getattr(utilities, name) for name in names if hasattr(utilities, name))):
        return True
    cls = type(value)
    return cls.__module__.startswith("transformers.models.") and cls.__name__.endswith(("Cache", "Layer"))


def name_of(path: tuple) -> str:
    """The name of a tensor: its layer first, whose it is, what it holds."""
    words = [WORDS.get(part, str(part)) for part in path]
    if "layers" in path:
        layer = words.pop(path.index("layers") + 1)
        words.insert(0, layer)
    return "_".join(word.strip("_") for word in words if word)


def refuse_counters(cache: Any) -> None:
    """Raise CaptureError when a cache counts its tokens where a program cannot see it, or has forgotten some."""
    utilities = sys.modules["transformers.cache_utils"]
    for layer in layers_of(cache):
        tokens = getattr(layer, "cumulative_length", 0)
        is_sliding = type(layer) in sliding_layers(utilities)
        if is_sliding and isinstance(layer.keys, torch.Tensor) and tokens > layer.keys.shape[-2]:
            raise CaptureError(
                f"the cache of the example has forgotten {tokens - layer.keys.shape[-2]} of its {tokens} tokens",
                hint=f"give one of less than {layer.sliding_window} tokens, the sliding window: the cache of the ONNX model "
                "keeps all tokens",
            )
        # tensors that hold no token yet are inputs, too
        least = 0 if getattr(layer, "is_initialized", False) else 1
        counters = [
            name for name, value in vars(layer).items() if COUNTERS.search(name) and counts(value, least)
        ]
        if counters and not is_sliding:
            raise CaptureError(
                f"a {type(layer).__name__} counts its tokens in {counters[0]}, a Python number that the program would hold "
                "as a constant",
                hint="export with a cache whose layers have no such counter, as DynamicCache(config=...) has",
            )


def layers_of(cache: Any) -> Iterator[Any]:
    """The layers of a cache and of the caches in it."""
    yield from getattr(cache, "layers", ())
    for part in (getattr(cache, name, None) for name in ("self_attention_cache", "cross_attention_cache")):
        if part is not None:
            yield from layers_of(part)


def sliding_layers(utilities: Any) -> list[type]:
    """The classes of layers that `sliding_window_caches` is about."""
    names = ("DynamicSlidingWindowLayer", "LinearAttentionAndSlidingWindowAttentionLayer")
    return [getattr(utilities, name) for name in names if hasattr(utilities, name)]


def counts(value: Any, least: int) -> bool:
    """Whether a value is a Python number of at least so many, or holds one."""
    if isinstance(value, dict):
        return any(counts(item, least) for item in value.values())
    return isinstance(value, int) and value >= least
