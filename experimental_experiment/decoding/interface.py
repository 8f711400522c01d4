"""What the inputs and outputs of a decoder are for: tokens, mask, positions, logits, the cache before and after."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
import onnxruntime

ELEMENTS = {"tensor(float)": (1, 4), "tensor(float16)": (10, 2)}
"""ONNX's number of the types that a cache may have, and bytes of an element."""

OTHERS = frozenset(("tensor(bfloat16)", "tensor(double)"))
"""Types of floats that it may not have."""

STATE = re.compile("conv_state|recurrent_state|linear_cache")
"""What the names of states have in common: those of transformers, whose layers begin with zeros."""

ATTENTION = "GroupQueryAttention"
BIAS = 10
"""Position of its input that is added to the scores: without it, the first key of a row is its first token."""


class DecodingError(ValueError):
    """The model is no decoder with a cache, or what it is given does not fit."""


@dataclasses.dataclass(frozen=True)
class CacheTensor:
    """The keys, or the values, of one layer.

    Attributes:
        past: name of the input, [batch, heads, tokens before, size].
        present: name of the output, [batch, heads, tokens before and now, size].
        element: number of the ONNX type.
        bytes: bytes of an element.
        heads: number of heads.
        size: size of a head.
    """

    past: str
    present: str
    element: int
    bytes: int
    heads: int
    size: int

    def shape(self, batch: int, tokens: int) -> list[int]:
        """The sizes for so many rows and tokens."""
        return [batch, self.heads, tokens, self.size]


@dataclasses.dataclass(frozen=True)
class StateTensor:
    """What one layer remembers of all tokens before, in a tensor that does not grow: a convolution's last inputs, a recurrence.

    Attributes:
        past: name of the input, [batch, *sizes].
        present: name of the output, of the same shape.
        element: number of the ONNX type.
        bytes: bytes of an element.
        sizes: all sizes but the batch.
    """

    past: str
    present: str
    element: int
    bytes: int
    sizes: tuple[int, ...]

    def shape(self, batch: int, tokens: int) -> list[int]:
        """The sizes for so many rows, whatever the number of tokens is."""
        return [batch, *self.sizes]


@dataclasses.dataclass(frozen=True)
class Interface:
    """The roles of a decoder's inputs and outputs.

    Attributes:
        tokens: int64[batch, sequence], the new tokens.
        mask: int64[batch, past + sequence], 1 where there is a token, 0 for padding; None when the model has none.
        positions: int64[batch, sequence], the positions of the new tokens; None when the model counts them itself.
        logits: [batch, sequence, vocabulary], or [batch, 1, vocabulary] of the last tokens alone.
        gives_last: whether they are those of the last tokens alone, as with ``logits_to_keep=1``.
        vocabulary: number of tokens.
        dtype: float32 or float16, of the logits.
        takes_one: whether the new tokens are one a row, int64[batch, 1].
        cache: the keys and values of the cache.
        states: the states of the cache; with one of them, ``takes_one`` is true.
        is_shared: whether keys and values may be one buffer, past and present: only GroupQueryAttention reads the past, and writes the
            present.
        reads_padding: whether prompts may be padded on the left.
    """

    tokens: str
    mask: str | None
    positions: str | None
    logits: str
    gives_last: bool
    vocabulary: int
    dtype: np.dtype
    takes_one: bool
    cache: tuple[CacheTensor, ...]
    states: tuple[StateTensor, ...]
    is_shared: bool
    reads_padding: bool


def interface_of(session: onnxruntime.InferenceSession, model: onnx.ModelProto) -> Interface:
    """The roles of the inputs and outputs of *session*, found by type and name; *model* is its graph.

    Raises DecodingError when there is no cache, or one of them has no role.
    """
    past, present = by_role(session.get_inputs()), by_role(session.get_outputs())
    if not past:
        for item in session.get_inputs():
            if item.type in OTHERS and (len(item.shape) == 4 or STATE.search(item.name)):
                raise DecodingError(f"the cache is float32 or float16, {item.name} is a {item.type}")
        raise DecodingError(
            "the model has no cache: no input is a tensor of floats [batch, heads, tokens, size], as past_key_values are, or a state"
        )
    if past.keys() != present.keys():
        named = [
            item.name
            for found in (past, present)
            for key, item in found.items()
            if key not in past or key not in present
        ]
        raise DecodingError(
            f"{', '.join(named)}: each past needs a present of the same layer, and the reverse"
        )
    others = {"tokens": None, "mask": None, "positions": None}
    for item in session.get_inputs():
        if is_cache(item) or is_state(item):
            continue
        kind = role_of_integers(item.name)
        if item.type != "tensor(int64)" or len(item.shape) != 2 or others[kind] is not None:
            raise DecodingError(f"the input {item.name}, {item.type}{item.shape}, has no role in decoding")
        others[kind] = item.name
        if kind == "tokens":
            takes_one = item.shape[1] == 1
    logits = [
        item
        for item in session.get_outputs()
        if item.type in ELEMENTS and len(item.shape) == 3 and not is_state(item)
    ]
    if others["tokens"] is None or len(logits) != 1 or not isinstance(logits[0].shape[2], int):
        raise DecodingError(
            "a decoder takes tokens, int64[batch, sequence], and gives logits[batch, sequence, size of the vocabulary]"
        )
    cache = tuple(cache_tensor(item, present[key]) for key, item in past.items() if is_cache(item))
    states = tuple(state_tensor(item, present[key]) for key, item in past.items() if is_state(item))
    if states:
        check_states(model.graph, others, takes_one, alone=not cache)
    grouped = [node for node in model.graph.node if node.op_type == ATTENTION]
    pads = others["mask"] is not None and all(len(node.input) > BIAS and node.input[BIAS] for node in grouped)
    return Interface(
        **others,
        logits=logits[0].name,
        gives_last=logits[0].shape[1] == 1,
        vocabulary=logits[0].shape[2],
        dtype=np.dtype("float32" if logits[0].type == "tensor(float)" else "float16"),
        takes_one=takes_one,
        cache=cache,
        states=states,
        is_shared=bool(cache) and may_share(model.graph, cache),
        reads_padding=pads or not cache,
    )


def role_of_integers(name: str) -> str:
    """What an input of integers is for, by its name: ``mask``, ``positions`` or ``tokens``."""
    return "mask" if "mask" in name else "positions" if "position" in name else "tokens"


def is_cache(item: onnxruntime.NodeArg) -> bool:
    """Whether an input or output is a tensor of floats of rank 4, and no state."""
    return item.type in ELEMENTS and len(item.shape) == 4 and not STATE.search(item.name)


def is_state(item: onnxruntime.NodeArg) -> bool:
    """Whether an input or output has the name of a state, and sizes that are known, but for the batch."""
    is_fixed = all(isinstance(size, int) for size in item.shape[1:])
    return item.type in ELEMENTS and STATE.search(item.name) is not None and len(item.shape) > 1 and is_fixed


def by_role(items: Sequence[onnxruntime.NodeArg]) -> dict[tuple[str, ...], onnxruntime.NodeArg]:
    """The tensors of the cache among inputs or outputs. Raises DecodingError when two have one role."""
    found: dict[tuple[str, ...], onnxruntime.NodeArg] = {}
    for item in items:
        if is_cache(item) or is_state(item):
            first = found.setdefault(role(item.name), item)
            if first is not item:
                raise DecodingError(
                    f"{first.name} and {item.name} are of the same layer: they need names that differ"
                )
    return found


def role(name: str) -> tuple[str, ...]:
    """What the names of a past and its present have in common: the layer, keys or values or which state."""
    return tuple(re.findall(rf"\d+|key|value|{STATE.pattern}", name.replace("past_key_values", "past")))


def cache_tensor(past: onnxruntime.NodeArg, present: onnxruntime.NodeArg) -> CacheTensor:
    """One tensor of the cache. Raises DecodingError when its sizes are unknown."""
    heads, size = past.shape[1], past.shape[3]
    if not isinstance(heads, int) or not isinstance(size, int) or past.type != present.type:
        raise DecodingError(
            f"{past.name} and {present.name} need one type, a number of heads and a size of the heads"
        )
    return CacheTensor(past.name, present.name, *ELEMENTS[past.type], heads, size)


def state_tensor(past: onnxruntime.NodeArg, present: onnxruntime.NodeArg) -> StateTensor:
    """One state of the cache. Raises DecodingError when it changes its type or its sizes."""
    if past.shape[1:] != present.shape[1:] or past.type != present.type:
        raise DecodingError(f"{past.name} and {present.name} need one type and the same sizes")
    return StateTensor(past.name, present.name, *ELEMENTS[past.type], tuple(past.shape[1:]))


def check_states(graph: onnx.GraphProto, others: dict[str, str | None], takes_one: bool, alone: bool) -> None:
    """Raise DecodingError when a model with states, *alone* or beside keys and values, is not one that takes token after token.

    torch.export sees one branch of two: that of several tokens, which in some models begins anew, or that of one.
    """
    if not takes_one:
        raise DecodingError(
            f"a model with states takes one token a row, {others['tokens']} is to be exported as int64[batch, 1]"
        )
    if alone and others["mask"] in set(names_in(graph.node)):
        raise DecodingError(
            f"there are states alone, which know no tokens before, and {others['mask']} is read: export the model without it"
        )


def may_share(graph: onnx.GraphProto, cache: Sequence[CacheTensor]) -> bool:
    """Whether a GroupQueryAttention node alone reads each past, and writes the present of the same layer."""
    presents = {tensor.past: tensor.present for tensor in cache}
    for node in graph.node:
        used = presents.keys() & set(names_in([node]))
        if not used:
            continue
        is_attention = node.op_type == ATTENTION and node.domain == "com.microsoft"
        if not is_attention or [presents.get(name) for name in node.input[3:5]] != list(node.output[1:3]):
            return False
        if used != set(node.input[3:5]):
            return False
    return True


def names_in(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    """The names that nodes and their bodies read."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from names_in(body.node)
                yield from (output.name for output in body.output)
