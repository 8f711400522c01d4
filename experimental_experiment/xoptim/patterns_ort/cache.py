"""Attention with a cache as GroupQueryAttention, which appends to the cache itself: past and present may then be one buffer.

A step after a past is rewritten when `decoding.in_place` asks for it; a prompt, which has no past, whenever com.microsoft is allowed.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    ints_of,
    number_of,
    optional,
    softmax_axis,
    var,
)
from experimental_experiment.xoptim.patterns.attention import counts, is_row_of
from experimental_experiment.xoptim.patterns.heads import is_grouping
from experimental_experiment.xoptim.patterns.masks import (
    causal_of,
    opens_each_row,
    source_of,
    starts_at_zero,
)
from experimental_experiment.xoptim.patterns.products import in_groups
from experimental_experiment.xoptim.patterns_ort.attention import (
    MICROSOFT,
    closes_rows,
    is_bias,
    is_of_one_head,
)
from experimental_experiment.xoptim.rules import Declined, no, once_more, rule
from experimental_experiment.xoptim.shapes import is_same, same_sizes

q, bias = var("q"), var("bias")

SMALLEST = float(np.finfo(np.float32).min)
"""What closes a key in eager attention of transformers."""


def capped(product):
    """Scores as eager attention of transformers computes them: scaled behind the product, then, in Gemma 2, in a tanh."""
    scores = P.Mul(product, const("factor")) | product
    part = P.Div(scores, const("divisor")) | scores
    return P.Mul(P.Tanh(part), const("cap")) | part


def weights_of(scores):
    """What a Softmax makes of scores; in gpt-oss a number of each head takes its share of them, the sink, and has no value."""
    sinks = P.Expand(const("sinks"), var("shape_of_sinks"))
    joined = P.Softmax(P.Concat(scores, sinks, name="with_sinks"), name="weights")
    return P.Slice(joined, 0, -1, const("cut"), optional("step")) | P.Softmax(scores, name="weights")


def masked(product):
    """Scores that a mask closes, as eager attention of transformers has them.

    Numbers of heads are added to those of Bloom and MPT, whose mask takes the place of scores, as a buffer of GPT-Neo does before the
    mask is added; CodeGen divides the masked scores, XGLM clips them.
    """
    scores = capped(product)
    added = P.Add(scores, var("added"), name="sum")
    kept = P.Where(var("kept"), scores, const("low"), name="chosen")
    both = P.Add(added | kept | scores, bias)
    replaced = P.Where(P.Cast(bias, name="is_closed", shared=True), const("low"), added | scores)
    return P.Div(both, const("quotient")) | P.Clip(both, const("low"), math.inf) | replaced | both


def attended(keys, values, scores_of=lambda product: P.Add(product, bias)):
    """Attention of heads to these keys and values, whose heads are joined in the end, with the masked scores of a product."""
    scaled = P.Mul(q, const("scale")) | q
    product = P.MatMul(in_groups(scaled, "of_q"), P.Transpose(keys, perm=[0, 1, 3, 2], name="swap"))
    fused = P.FusedMatMul(in_groups(scaled, "of_q"), keys, transB=1, name="fused", domain=MICROSOFT)
    scores = scores_of(in_groups(product, "of_product") | in_groups(fused, "of_product"))
    weights = in_groups(weights_of(scores), "of_weights")
    result = in_groups(P.MatMul(weights, values, name="attention"), "of_result")
    guarded = P.Where(var("closed"), 0.0, result) | result
    return P.Reshape(P.Transpose(guarded, perm=[0, 2, 1, 3], name="back") | guarded, var("shape"))


CACHED = attended(
    P.Concat(var("past_key"), var("k"), name="keys", shared=True),
    P.Concat(var("past_value"), var("v"), name="values", shared=True),
    masked,
)


@rule(CACHED, looks_further=True)
def group_query_attention(op, root, found):
    """Attention whose keys and values were appended to a cache: the operator appends them itself, to the past itself if it has room.

    In no set: with past and present in two buffers it takes longer, measured with onnxruntime 1.31 1.02 of the time of a step after 512
    tokens, 1.10 after 1024; in one buffer 0.84 after 512, of Gemma 2, whose scores are capped, 0.75. onnxruntime refuses several
    rows of several tokens after a past that is not empty.
    """
    keys, values = found["keys"].outputs[0], found["values"].outputs[0]
    if any(attribute_of(found[name], "axis") not in (2, -2) for name in ("keys", "values")):
        return no("the cache grows along another axis")
    reason = unfit(found, keys, values) or unfit_mask(found, keys, found["past_key"], op.opset)
    if reason is not None:
        return reason
    rows = [rows_of(op, found[name]) for name in ("q", "k", "v")]
    return written(op, root, found, keys, values, [*rows, found["past_key"], found["past_value"]])


@rule(attended(var("k"), var("v")), set="onnxruntime", before=23, looks_further=True)
def group_query_attention_of_prompt(op, root, found, k, v):
    """Attention of a prompt whose keys and values are the first of a cache, without Transposes.

    Measured with onnxruntime 1.31: 0.84 of the time for 16 tokens, 1.11 for 128, 0.8 for 384, 0.7 for 1024.
    """
    if not (k.is_graph_output() and v.is_graph_output()):
        return no("keys and values are no results")
    reason = unfit(found, k, v) or unfit_mask(found, k, None, op.opset)
    if reason is not None:
        return reason
    rows = [turned_rows(op, found[name]) for name in ("q", "k", "v")]
    if None in rows:
        return no("queries, keys or values are no heads of rows")
    return written(op, root, found, k, v, [*rows, None, None])


def written(op, root: ir.Node, found: dict, keys: ir.Value, values: ir.Value, inputs: list) -> dict:
    """The operator with these rows of queries, keys and values and this past: what replaces the result, *keys* and *values*.

    Values smaller than the keys have zeros behind them in the rows: they are cut off from the result.
    """
    closed, factor = found["closed"], factor_of(found)
    shape, own = heads_of_queries(found, keys), values.shape[3]
    heads, size = shape[1], shape[3]
    if factor is None or not 0 < factor < math.inf:
        return no("the scale is no positive number")
    cap = 0.0 if found.get("cap") is None else number_of(found["cap"])
    if cap < 0:
        return no("the scores are capped by a negative number")
    back = joined(found, root, ir.Shape([*shape[:3], own]))
    if back is None:
        return no("the heads of the result are not joined")
    result, *presents = op.GroupQueryAttention(
        *inputs,
        *lengths(op, found["bias"], found["q"]),
        None,
        None,
        None,
        bias_in_all(op, found),
        None if found["sinks"] is None else op.Reshape(found["sinks"], [-1]),
        num_heads=heads,
        kv_num_heads=keys.shape[1],
        scale=factor,
        **({"softcap": cap} if cap else {}),
        domain=MICROSOFT,
        outputs=3,
    )
    result = cut(op, result, heads, size, own)
    if closed is not None:
        zero = op.constant(0.0, keys.dtype)
        result = op.append("Where", [op.Squeeze(closed, [1]), zero, result], {}, 1).outputs[0]
    if back:
        result = op.append("Reshape", [result, found["shape"]], {}, 1).outputs[0]
    return dict(zip((root.outputs[0], keys, values), (result, *presents)))


def cut(op, rows: ir.Value, heads: int, size: int, own: int) -> ir.Value:
    """Rows of heads of which the first *own* numbers are kept."""
    if own == size:
        return rows
    parts = op.Slice(op.Reshape(rows, [0, 0, heads, size]), [0], [own], [3])
    return op.Reshape(parts, [0, 0, heads * own])


def bias_in_all(op, found: dict) -> ir.Value:
    """What is added to the scores, with what takes their place."""
    bias = found["bias"]
    if found.get("kept") is not None:
        bias = op.Add(bias, op.Where(found["kept"], op.constant(0.0, bias.dtype), found["low"]))
    return bias if found.get("added") is None else op.Add(bias, found["added"])


def turned_rows(op, heads: ir.Value) -> ir.Value | None:
    """The rows of heads, rotated as these are, written without them; None when they are neither rotated nor transposed."""
    node = heads.producer()
    if node is None or (node.domain, node.op_type) != (MICROSOFT, "RotaryEmbedding"):
        return rows_of(op, heads) if transposed_rows(heads) is not None else None
    given = {**attributes_of(node), "num_heads": heads.shape[1]}
    return op.RotaryEmbedding(rows_of(op, node.inputs[0]), *node.inputs[1:], **given, domain=MICROSOFT)


def transposed_rows(heads: ir.Value) -> ir.Value | None:
    """[batch, positions, heads, size] that a Transpose makes heads of, None when none does."""
    node = producer_of(heads, "Transpose")
    return None if node is None or attribute_of(node, "perm") != [0, 2, 1, 3] else node.inputs[0]


def heads_of_queries(found: dict, keys: ir.Value) -> ir.Shape | None:
    """[batch, heads, positions, size] of the queries, which may be a row of heads that is grouped at once."""
    shape = found["q"].shape
    if shape is None or len(shape) != 3 or found["of_q"] is None or shape[1] != 1 or keys.shape is None:
        return shape
    width, size = shape[2], keys.shape[-1]
    fits = isinstance(width, int) and isinstance(size, int) and size and not width % size
    return ir.Shape([shape[0], width // size, 1, size]) if fits else None


@rule(
    P.Attention(q, var("k"), var("v"), var("mask"), var("past_key"), var("past_value"), name="attention"),
    since=23,
    looks_further=True,
)
def group_query_attention_of_attention(op, attention, q, k, v, mask, past_key, past_value):
    """The same of Attention, which exists from opset 23 on.

    In no set: it copies the past. Measured with onnxruntime 1.31: in one buffer a step after 512 tokens takes 0.95 of the time.
    """
    shapes = [heads_of_input(value, attention, name) for value, name in ((q, "q"), (k, "kv"), (v, "kv"))]
    past = past_key.shape
    if past is None or len(past) != 4 or None in shapes:
        return no("the heads are not known")
    heads, groups = shapes[0], shapes[1]
    if len(attention.outputs) != 3:
        return no("no results for the cache")
    size = heads[3]
    if not isinstance(size, int) or size % 8 or any(other[3] != size for other in shapes[1:]):
        return no("the size of heads is no multiple of 8, or keys and values differ")
    if not all(is_same(heads[axis], other[axis]) for other in shapes[1:] for axis in (0, 2)):
        return no("not as many new keys and values as queries, or a batch that broadcasts")
    reason = unfit_attention(attention, ir.Shape(heads), attention.outputs[1].shape, past_key)
    if reason is not None:
        return reason
    rows = [rows_of(op, value) for value in (q, k, v)]
    return written_of_attention(op, attention, heads, groups[1], size, [*rows, past_key, past_value])


def unfit_attention(
    attention: ir.Node, heads: ir.Shape, keys: ir.Shape | None, past_key: ir.Value
) -> Declined | None:
    """Why an Attention of these heads of queries and keys is no GroupQueryAttention, None when it is."""
    q, mask = attention.inputs[0], attention.inputs[3]
    if attribute_of(attention, "softcap", 0.0) or "softmax_precision" in attention.attributes:
        return no("a softcap, or a Softmax in another dtype")
    if q.dtype != ir.DataType.FLOAT or mask.dtype != ir.DataType.BOOL:
        return no("not in float32, or scores that a number is added to")
    if keys is None or not is_bias(mask, heads, keys):
        return no("the mask is not of queries and keys")
    causal = heads[2] == 1 or attribute_of(attention, "is_causal", 0)
    if not causal and not closes_later_keys(mask, heads[2], past_key):
        return no("the mask may let a query see later keys")
    if not opens_each_row(mask) and mask.shape[1] != 1:
        return no("a row of the mask may be empty for some heads")
    return None


def written_of_attention(
    op, attention: ir.Node, heads: list | ir.Shape, groups: int, own: int, inputs: list
) -> list:
    """The operator with these inputs: what replaces the result of an Attention, with heads of *own* numbers, and the cache."""
    q, mask, size = attention.inputs[0], attention.inputs[3], heads[3]
    bias = op.Where(mask, op.constant(0.0, q.dtype), op.constant(-math.inf, q.dtype))
    scale = {name: item for name, item in attributes_of(attention).items() if name == "scale"}
    result, *presents = op.GroupQueryAttention(
        *inputs, *lengths(op, bias, q), None, None, None, bias,
        num_heads=heads[1], kv_num_heads=groups, **scale, domain=MICROSOFT, outputs=3,
    )  # fmt: skip
    if not opens_each_row(mask):
        # the form that the runtime needs, see Equal.less_than_zero
        closed = op.Less(op.ReduceMax(bias, [3], keepdims=1), op.constant(0.0, q.dtype))
        result = op.Where(op.Squeeze(closed, [1]), op.constant(0.0, q.dtype), result)
    result = cut(op, result, heads[1], size, own)
    if len(q.shape) == 4 and heads[2] == 1:
        result = op.Reshape(result, [0, heads[1], 1, own])
    elif len(q.shape) == 4:
        result = op.Transpose(op.Reshape(result, [0, 0, heads[1], own]), perm=[0, 2, 1, 3])
    return [result, *presents]


def heads_of_input(value: ir.Value, attention: ir.Node, name: str) -> list | None:
    """[batch, heads, positions, size] of an input of Attention, which may hold heads side by side; None when not known."""
    shape, count = value.shape, attribute_of(attention, f"{name}_num_heads")
    if shape is None or len(shape) not in (3, 4) or not isinstance(shape[-1], int):
        return None
    if len(shape) == 4:
        return list(shape) if isinstance(shape[1], int) else None
    return [shape[0], count, shape[1], shape[2] // count] if count else None


def unfit(found: dict, keys: ir.Value, values: ir.Value) -> Declined | None:
    """Why the heads are not those of a GroupQueryAttention, None when they are."""
    shape = heads_of_queries(found, keys)
    if keys.dtype != ir.DataType.FLOAT or any(
        other is None or len(other) != 4 or not isinstance(other[1], int) or other[3] != shape[3]
        for other in (shape, keys.shape, values.shape)
    ):
        return no("no heads of one size in float32")
    of_k, of_v = found["k"].shape, found["v"].shape
    if None in (of_k, of_v) or not all(
        is_same(a, b) for a, b in ((shape[0], keys.shape[0]), (shape[2], of_k[2]), (shape[2], of_v[2]))
    ):
        return no("not as many new keys and values as queries, or a batch that broadcasts")
    heads, groups, size = shape[1], keys.shape[1], shape[3]
    if not isinstance(size, int) or size % 8 or values.shape[1] != groups:
        return no("the size of heads is no multiple of 8, or keys and values differ")
    inside = {found["swap"] or found["fused"], found["attention"]}
    if any(use.node not in inside for value in (keys, values) for use in value.uses()):
        return no("something else reads the cache")
    counts_of_heads = {"of_q": groups, "of_weights": groups, "of_product": heads, "of_result": heads}
    if not all(
        found[name] is None or is_grouping(found[name], count, size)
        for name, count in counts_of_heads.items()
    ):
        return no("the heads are grouped otherwise")
    return None if heads == groups else unfit_groups(found, shape)


def unfit_groups(found: dict, heads: ir.Shape) -> Declined | None:
    """Why the heads do not stay grouped, or are not shown apart again, None when they are: one token need not be."""
    absent = {name for name in ("of_product", "of_weights", "of_result") if found[name] is None}
    is_one = heads[2] == 1 and found["back"] is None
    if found["of_q"] is None or (absent and not is_one) or len(absent & {"of_product", "of_weights"}) == 1:
        return no("the heads are grouped otherwise")
    if "of_product" in absent and not is_of_one_head(found["bias"]):
        return no("the mask differs between heads")
    return None


def factor_of(found: dict) -> float | None:
    """What queries and scores are multiplied by in all, None when it is not known."""
    fused = found["fused"]
    names = [
        name for name in ("scale", "factor", "divisor", "cap", "quotient") if found.get(name) is not None
    ]
    numbers = {name: number_of(found[name]) for name in names}
    divisor = math.prod(numbers.pop(name, 1.0) or 0 for name in ("divisor", "quotient"))
    if None in numbers.values() or not divisor:
        return None
    factor = math.prod(numbers.values()) / divisor
    if fused is None:
        return factor
    turned = any(attribute_of(fused, name, 0) for name in ("transA", "transBatchA", "transBatchB"))
    return None if turned else factor * attribute_of(fused, "alpha", 1.0)


def unfit_mask(found: dict, keys: ir.Value, past: ir.Value | None, opset: int) -> Declined | None:
    """Why the mask is not that of a GroupQueryAttention, None when it is."""
    shape, closed = heads_of_queries(found, keys), found["closed"]
    if softmax_axis(found["weights"], opset) not in (-1, 3) or not is_bias(found["bias"], shape, keys.shape):
        return no("the mask is not of queries and keys")
    if closed is not None and not closes_rows(closed):
        return no("the guard differs between or within heads")
    if found["sinks"] is not None and not are_sinks(found, shape):
        return no("what stands beside the scores is not one number of each head")
    if not fits_mask(found, (*shape[:3], keys.shape[2])):
        return no("scores are replaced, added to or divided otherwise than by a mask")
    if shape[2] != 1 and not is_causal(found["bias"], shape[2], past):
        return no("the mask may let a query see later keys")
    return None


def fits_mask(found: dict, sizes: tuple) -> bool:
    """Whether what `masked` finds beside the mask stands for numbers that are added to scores of these sizes."""
    bias, quotient, low = (found.get(name) for name in ("bias", "quotient", "low"))
    if (low is not None and (number_of(low) is None or number_of(low) > SMALLEST)) or any(
        found.get(name) is not None and not same_sizes(found[name].outputs[0].shape, sizes)
        for name in ("sum", "chosen")
    ):
        return False
    if quotient is None and found.get("is_closed") is None:
        return True
    if quotient is not None and any(found.get(name) is not None for name in ("sum", "cap")):
        return False
    node = producer_of(bias, "Where")  # 0 and what closes a key are so as quotients, and as conditions
    return (
        node is not None
        and number_of(node.inputs[1]) == 0
        and number_of(node.inputs[2]) in (-math.inf, SMALLEST)
        and (quotient is None or 0 < (number_of(quotient) or 0) < 1e4)
        and (found.get("is_closed") is None or attribute_of(found["is_closed"], "to") == ir.DataType.BOOL)
    )


def are_sinks(found: dict, heads: ir.Shape) -> bool:
    """Whether one number of each head stands behind the scores of a query, and its weight alone is cut off."""
    joined, sinks = found["with_sinks"], found["sinks"]
    behind = joined.inputs[1].shape
    return (
        attribute_of(joined, "axis") in (-1, 3)
        and ints_of(found["cut"]) in ([-1], [3])
        and (found["step"] is None or number_of(found["step"]) == 1)
        and (behind is not None and behind[-1] == 1)
        and list(sinks.shape) == [1, heads[1], 1, 1]
    )


def joined(found: dict, root: ir.Node, heads: ir.Shape) -> bool | None:
    """Whether the rows of the result, of these heads, are read in another shape; None when the heads are not joined."""
    rows, target = root.outputs[0].shape, ints_of(found["shape"])
    if found["back"] is None and heads[2] != 1:
        return None
    if rows is not None and is_row_of(rows, heads):
        return False
    fits = target is not None and 0 not in target[2:] and not attribute_of(root, "allowzero", 0)
    return True if fits else None


def is_causal(bias: ir.Value, count: int | ir.SymbolicDim, past: ir.Value | None) -> bool:
    """Whether what is added to the scores closes the keys after each of *count* queries that follow the past: -inf.

    After a past it may be the smallest number, with which a query that sees no key, of padding, takes the mean of all in eager.
    """
    node = producer_of(bias, "Where")
    closed = (-math.inf,) if past is None else (-math.inf, SMALLEST)
    if node is None or number_of(node.inputs[2]) not in closed:
        return False
    return closes_later_keys(node.inputs[0], count, past)


def closes_later_keys(mask: ir.Value, count: int | ir.SymbolicDim, past: ir.Value | None) -> bool:
    """Whether a mask is false for the keys after each of *count* queries that follow the past, if there is one."""
    if past is not None and past.shape is None:
        return False
    size = None if past is None else past.shape
    conditions = [mask]
    while conditions:
        mask = source_of(conditions.pop(), {"Expand"})
        node = producer_of(mask, "And")
        if node is not None:
            conditions += node.inputs
            continue
        positions = causal_of(mask)
        if positions is None or not starts_at_zero(positions[0]):
            continue
        if len(positions[1].shape) == 4 and counts(positions[1], count, size):
            return True
    return False


def lengths(op, bias: ir.Value, queries: ir.Value) -> tuple[ir.Value, ir.Value]:
    """int32[batch], the position of the last key of each row, and int32, the number of keys, both with what was appended."""
    total = op.Shape(bias, start=3, end=4)
    of_batch = bias if is_same(bias.shape[0], queries.shape[0]) else queries
    last = op.Cast(op.Sub(total, op.constant([1])), to=ir.DataType.INT32)
    return op.Expand(last, op.Shape(of_batch, start=0, end=1)), op.Cast(
        op.Squeeze(total, [0]), to=ir.DataType.INT32
    )


def rows_of(op, heads: ir.Value) -> ir.Value:
    """[batch, positions, heads * size] of [batch, heads, positions, size]: what stood there before heads were shown apart."""
    shape = heads.shape
    if len(shape) == 3:
        return heads
    apart = transposed_rows(heads)
    if apart is None and shape[2] == 1:
        apart = heads
    node = producer_of(apart, "Reshape")
    rows = None if node is None else node.inputs[0]
    if rows is not None and rows.shape is not None and is_row_of(rows.shape, shape):
        return rows
    apart = op.Transpose(heads, perm=[0, 2, 1, 3]) if apart is None else apart
    return op.Reshape(apart, [0, shape[2] if shape[2] == 1 else 0, shape[1] * shape[3]])


def turned(name: str):
    """Heads in rows, rotated by the tables that both queries and keys read."""
    heads = P.RotaryEmbedding(
        var(name), var("numbers"), var("cos"), var("sin"), domain=MICROSOFT, name=f"{name}_rotation"
    )
    return P.Reshape(heads, var(f"{name}_shape")) | heads


@rule(
    P.GroupQueryAttention(
        turned("q"), turned("k"), var("v"), var("past_key"), var("past_value"), var("last"), var("total"),
        None, None, None, optional("bias"), optional("sinks"), domain=MICROSOFT, name="attention",
    ),
    set="onnxruntime",
)  # fmt: skip
def rotary_of_group_query_attention(
    op, attention, q, k, v, past_key, past_value, last, total, bias, sinks, cos, sin, q_rotation, k_rotation
):
    """The operator rotates the queries and keys of one token itself, at the position that all samples have.

    It reads the row of the token's number in a table of all of them: there each row is that of the position.
    Measured with onnxruntime 1.31, with the rule of packed rows: a token after 512 takes 0.97 of the time, 78 nodes instead of 101.
    """
    groups = attribute_of(attention, "kv_num_heads"), attribute_of(attention, "num_heads")
    if any(len(x.shape or ()) not in (3, 4) for x in (q, k)) or attribute_of(attention, "do_rotary", 0):
        return no("the heads are not known, or rotated already")
    widths = [width_of(heads, count) for heads, count in ((q, groups[1]), (k, groups[0]))]
    size = widths[0]
    if None in widths or widths[1] != size or size % 16:
        return no("several tokens, or heads whose size is no multiple of 16")
    if any(table.shape is None or list(table.shape) != [1, size // 2] for table in (cos, sin)):
        return no("tables of several positions, or of a part of the heads")
    interleaved = {attribute_of(node, "interleaved", 0) for node in (q_rotation, k_rotation)}
    if len(interleaved) > 1 or any(
        attribute_of(node, name, 0)
        for node in (q_rotation, k_rotation)
        for name in ("rotary_embedding_dim", "is_packed_batching")
    ):
        return no("queries and keys are rotated otherwise")
    count = op.Reshape(op.Cast(total, to=ir.DataType.INT64), [1])
    sizes = op.Concat(count, [size // 2], axis=0)
    tables = [op.Expand(table, sizes) for table in (cos, sin)]
    inputs = [
        rows_of(op, q),
        rows_of(op, k),
        v,
        past_key,
        past_value,
        last,
        total,
        *tables,
        None,
        bias,
        sinks,
    ]
    return once_more(op, attention, inputs, do_rotary=1, rotary_interleaved=interleaved.pop())


def width_of(heads: ir.Value, count: int) -> int | None:
    """The size of *count* heads of one token, [batch, count, 1, size] or [batch, 1, count * size]; None for others."""
    shape = heads.shape
    if len(shape) == 4:
        fits = shape[1] == count and shape[2] == 1
        return shape[3] if fits and isinstance(shape[3], int) else None
    return shape[2] // count if shape[1] == 1 and isinstance(shape[2], int) else None


@rule(P.GroupQueryAttention(domain=MICROSOFT, name="attention"), set="onnxruntime", looks_further=True)
def packed_group_query_attention(op, attention):
    """Queries, keys and values that a Split takes from one row are read from that row."""
    given = attention.inputs[:3]
    parts = [part_of(value) for value in given]
    split = None if None in parts else producer_of(parts[0], "Split")
    if split is None or list(split.outputs) != parts:
        return None
    x = split.inputs[0]
    if x.shape is None or len(x.shape) not in (3, 4) or not all(isinstance(n, int) for n in x.shape[2:]):
        return no("the sizes of the row are unknown")
    if attribute_of(split, "axis", 0) not in ((-1, 2) if len(x.shape) == 3 else (1, -3)):
        return no("the parts do not stand side by side")
    if len(x.shape) == 4 and (x.shape[2] != 1 or not isinstance(x.shape[1], int)):
        return no("there may be several tokens")
    packed = rows_of(op, x)
    if any(
        rows.shape is None or len(rows.shape) != 3 or not all(map(is_same, rows.shape[:2], packed.shape[:2]))
        for rows in given
    ):
        return no("the parts are other rows")
    return once_more(op, attention, [packed, None, None, *attention.inputs[3:]])


def part_of(rows: ir.Value | None) -> ir.Value | None:
    """What a row of heads is before they stand side by side: a result of a Split, None when it is none."""
    for _ in range(2):
        node = producer_of(rows, "Reshape")
        if node is None:
            break
        rows = node.inputs[0]
    return None if rows is None or rows.producer() is None else rows
