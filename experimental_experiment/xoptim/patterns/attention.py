"""Attention of opset 23: grouped heads, keys and values of the past, heads side by side in a row.

onnxruntime's kernel takes all of them: together 0.82 of the time of two MatMul around a Softmax for one token after 512, 0.76 for
128 tokens.
"""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import P, attribute_of, number_of, only_reader, optional, var
from experimental_experiment.xoptim.patterns.heads import groups_of
from experimental_experiment.xoptim.patterns.masks import (
    causal_of,
    is_range,
    pairs,
    source_of,
    starts_at_zero,
)
from experimental_experiment.xoptim.rules import no, once_more, rule
from experimental_experiment.xoptim.shapes import is_open, is_same

q, k, v, mask = var("q"), var("k"), var("v"), optional("mask")
past = optional("past_key"), optional("past_value")


def repeated(value, name: str):
    """Each head of a value several times in a row."""
    unsqueeze = P.Unsqueeze(value, var(f"{name}_axes"))
    return P.Reshape(
        P.Expand(unsqueeze, var(f"{name}_size"), name=f"{name}_expand"),
        var(f"{name}_shape"),
        name=f"{name}_repeat",
    )


@rule(P.Attention(q, repeated(k, "k"), repeated(v, "v"), mask, name="attention"), set="default")
def attention_of_grouped_heads(
    op, q, k, v, mask, attention, k_axes, k_expand, k_repeat, v_axes, v_expand, v_repeat
):
    """Attention shares the heads of keys and values itself, without copies.

    Measured with onnxruntime 1.31: one token after 512 takes 0.92 of the time of two MatMul around a Softmax, 128 tokens 0.90.
    """
    groups = groups_of(q, k, k_axes, k_expand, k_repeat), groups_of(q, v, v_axes, v_expand, v_repeat)
    if None in groups or groups[0] != groups[1]:
        return no("the heads are not repeated in place")
    if len(attention.outputs) > 1:
        return no("it also gives the keys and values, of repeated heads, or the scores")
    return once_more(op, attention, [q, k, v, mask])


@rule(
    P.Attention(
        q,
        P.Concat(var("past_key"), k, name="keys", shared=True),
        P.Concat(var("past_value"), v, name="values", shared=True),
        mask,
        name="attention",
    ),
    set="default",
)
def attention_with_past(op, q, k, v, mask, past_key, past_value, keys, values, attention):
    """Attention appends keys and values to those of the past, which are then its results.

    Measured with onnxruntime 1.31: one token after 512 takes 0.95 of the time, 128 tokens 0.99.
    """
    joined = keys.outputs[0], values.outputs[0]
    if len(attention.outputs) > 1 or attribute_of(attention, "is_causal", 0):
        return no("it has a past, or counts positions from it")
    if any(attribute_of(node, "axis") not in (2, -2) for node in (keys, values)) or any(
        x.shape is None or len(x.shape) != 4 for x in joined
    ):
        return no("they are not joined along the positions")
    if any(is_longer(*pair) for pair in ((past_key, past_value), (k, v))):
        return no("the past of the keys is longer or shorter than that of the values")
    if keys.graph is not attention.graph or not all(x.is_graph_output() for x in joined):
        return no("the joined keys or values are no results, which onnxruntime asks for")
    if any(use.node is not attention for x in joined for use in x.uses()):
        return no("the joined keys or values are used elsewhere")
    results = once_more(op, attention, [q, k, v, mask, past_key, past_value], outputs=3)
    return dict(zip((attention.outputs[0], *joined), results))


def is_longer(keys: ir.Value, values: ir.Value) -> bool:
    """Whether keys and values have another number of positions, or other names for it: one may stand behind the past, the other before it."""
    if keys.shape is None or values.shape is None:
        return False
    sizes = keys.shape[2], values.shape[2]
    return not is_same(*sizes) and not any(map(is_open, sizes))


def heads(name: str):
    """Heads that stand side by side in rows, apart; in ``{name}_rows`` they are rotated."""
    apart = P.Transpose(P.Reshape(var(name), var(f"{name}_shape")), name=f"{name}_heads")
    rotated = P.RotaryEmbedding(apart, var(f"{name}_cos"), var(f"{name}_sin"), name=f"{name}_rotation")
    return rotated | apart


@rule(P.Attention(heads("q"), heads("k"), heads("v"), mask, *past, name="attention"), set="default")
def attention_of_rows(
    op,
    q,
    k,
    v,
    mask,
    past_key,
    past_value,
    attention,
    q_heads,
    k_heads,
    v_heads,
    q_rotation,
    k_rotation,
    v_rotation,
):
    """Attention and RotaryEmbedding take heads side by side: no Reshape, no Transpose.

    Measured with onnxruntime 1.31: one token after 512 takes 0.95 of the time, 128 tokens 0.87.
    """
    counts = [heads_of(rows, node) for rows, node in ((q, q_heads), (k, k_heads), (v, v_heads))]
    if v_rotation is not None or None in counts:
        return no("heads do not stand side by side")
    joined = joined_heads(attention.outputs[0])
    if joined is None:
        return no("the heads of the result are not joined")
    q, k = rotated(op, q, q_rotation, counts[0]), rotated(op, k, k_rotation, counts[1])
    sizes = {"q_num_heads": counts[0], "kv_num_heads": counts[1]}
    results = once_more(op, attention, [q, k, v, mask, past_key, past_value], **sizes)
    return dict(zip((joined, *attention.outputs[1:]), results))


def joined_heads(heads: ir.Value) -> ir.Value | None:
    """What stands after [batch, heads, positions, size] when that is only read as [batch, positions, heads * size]."""
    back = only_reader(heads, "Transpose")
    if back is None or attribute_of(back, "perm") != [0, 2, 1, 3]:
        return None
    joined = only_reader(back.outputs[0], "Reshape")
    if joined is None or heads.shape is None or joined.graph is not heads.producer().graph:
        return None
    rows = joined.outputs[0]
    return rows if rows.shape is not None and is_row_of(rows.shape, heads.shape) else None


def rotated(op, rows: ir.Value, rotation: ir.Node | None, count: int) -> ir.Value:
    """Rows rotated as their heads were, if they were."""
    if rotation is None:
        return rows
    return once_more(op, rotation, [rows, *rotation.inputs[1:]], num_heads=count)[0]


@rule(P.Attention(q, k, v, var("mask"), *past, name="attention"), set="default", looks_further=True)
def causal_attention(op, q, k, v, mask, past_key, past_value, attention):
    """Attention knows the causal mask: keys up to the position of the query, after those of the past.

    Measured with onnxruntime 1.31: one token after 512 takes 0.98 of the time, 128 tokens 0.98.
    """
    if attribute_of(attention, "is_causal", 0) or mask.dtype != ir.DataType.BOOL:
        return None
    rows = attention.inputs[0].shape
    found = causal_of(source_of(mask, {"Expand"}))
    if found is None or not starts_at_zero(found[0]) or rows is None or k.shape is None:
        return None
    if past_key is None and not are_as_many(found[0], k.shape[-2]):
        return no("the positions are not those of the keys")
    if not counts(found[1], rows[-2], None if past_key is None else past_key.shape):
        return no("the positions are counted from elsewhere, or are not those of the queries")
    return once_more(op, attention, [q, k, v, None, past_key, past_value], is_causal=1)


def heads_of(rows: ir.Value, node: ir.Node) -> int | None:
    """How many heads a Transpose of a Reshape shows, [batch, positions, heads * size] as [batch, heads, positions, size]."""
    shape = node.outputs[0].shape
    if rows.shape is None or shape is None or len(shape) != 4 or attribute_of(node, "perm") != [0, 2, 1, 3]:
        return None
    return shape[1] if isinstance(shape[1], int) and is_row_of(rows.shape, shape) else None


def is_row_of(rows: ir.Shape, heads: ir.Shape) -> bool:
    """Whether [batch, positions, heads * size] has the sizes of [batch, heads, positions, size]."""
    if (
        len(rows) != 3
        or len(heads) != 4
        or not all(isinstance(n, int) for n in (rows[2], heads[1], heads[3]))
    ):
        return False
    return is_same(rows[0], heads[0]) and is_same(rows[1], heads[2]) and rows[2] == heads[1] * heads[3]


def counts(positions: ir.Value, count: int | ir.SymbolicDim, past: ir.Shape | None) -> bool:
    """Whether positions are 0, 1, 2… after those of the past, one for each of *count* queries, along the axis before the last one alone."""
    shape = list(positions.shape)
    if len(shape) < 2 or any(size != 1 for size in (*shape[:-2], shape[-1])):
        return False  # those of heads or of the batch
    position = source_of(positions, {"Unsqueeze"})
    node = producer_of(position, "Add")
    found = [position]
    if past is not None:
        terms = () if node is None else pairs(node)
        found = [counted for counted, before in terms if is_the_size(before, past[2])]
    return any(
        is_range(counted)
        and starts_at_zero(counted)
        and (is_same(shape[-2], count) or are_as_many(counted, count))
        for counted in found
    )


def are_as_many(positions: ir.Value, count: int | ir.SymbolicDim) -> bool:
    """Whether a Range, unsqueezed or not, has so many positions along its last axis."""
    end, shape = source_of(positions, {"Unsqueeze"}).producer().inputs[1], positions.shape
    return is_the_size(end, count) or (shape is not None and is_same(shape[-1], count))


def is_the_size(value: ir.Value, size: int | ir.SymbolicDim) -> bool:
    """Whether a number is read from a dimension of this name, or is this size."""
    if number_of(value) is not None:
        return number_of(value) == size
    node = producer_of(source_of(value, {"Squeeze"}), "Shape")
    if node is None or node.inputs[0].shape is None:
        return False
    axes = range(len(node.inputs[0].shape))[attribute_of(node, "start", 0) : attribute_of(node, "end")]
    return len(axes) == 1 and is_same(node.inputs[0].shape[axes[0]], size)
