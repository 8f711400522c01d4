"""Latent attention, whose cache holds rows that keys and values of all heads are products of, as GroupQueryAttention."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, const, var
from experimental_experiment.xoptim.patterns_ort.cache import (
    attended,
    masked,
    q,
    rows_of,
    unfit_attention,
    unfit_mask,
    written,
    written_of_attention,
)
from experimental_experiment.xoptim.rules import Declined, no, rule
from experimental_experiment.xoptim.shapes import same_sizes

LATENTS = P.Concat(var("past_key"), var("k"), name="latents", shared=True)
TURNED = P.Concat(var("past_value"), var("v"), name="turned", shared=True)
APART = P.Reshape(P.MatMul(LATENTS, const("weight"), name="products"), var("apart"))


def part(output: int):
    """What each head makes of the latent rows: the first part of its keys, or its values."""
    heads = P.Transpose(APART, perm=[0, 2, 1, 3])
    return P.Split(heads, const("sizes"), name="split", output=output)


KEYS = P.Concat(part(0), P.Expand(TURNED, var("times"), name="spread"), name="joined")


@rule(attended(KEYS, part(1), masked), looks_further=True)
def group_query_attention_of_latents(op, root, found, split, joined, latents, turned):
    """Latent attention, as of DeepSeek: the cache holds keys and values of all heads in place of the rows that they are made of.

    Zeros stand behind the values, which have the size of the keys there. In no set: the sizes of past and present are others, as
    `decoding.in_place` then writes them. A token makes no keys and values of those before it: measured with onnxruntime 1.31, in one
    buffer, attention of 16 heads of 192 and 128 from 512 takes for a token after 64 0.14 of the time, after 512 0.05, for a prompt of 16
    1.02, of 128 1.16, of 512 1.03. With products of the latent rows, which need less memory, it took 0.09 after 512, 2.1 for 512.
    """
    keys, values = joined.outputs[0], split.outputs[-1]
    reason = unfit(found, keys, values) or unfit_mask(found, keys, found["past_key"], op.opset)
    if reason is not None:
        return reason
    result = written(op, root, found, keys, values, cached(op, found, keys))
    if isinstance(result, Declined):
        return result
    return {
        root.outputs[0]: result[root.outputs[0]],
        latents.outputs[0]: result[keys],
        turned.outputs[0]: result[values],
    }


@rule(P.Attention(q, KEYS, part(1), var("mask"), name="attention"), since=23, looks_further=True)
def group_query_attention_of_latents_of_attention(op, attention, found, split, joined, latents, turned):
    """The same of Attention, which exists from opset 23 on."""
    keys, values = joined.outputs[0], split.outputs[-1]
    if len(attention.outputs) != 1 or attribute_of(attention, "is_causal", 0):
        return no("other results, or an order that begins with the first key of the past")
    reason = unfit(found, keys, values) or unfit_attention(
        attention, found["q"].shape, keys.shape, found["past_key"]
    )
    if reason is not None:
        return reason
    given = cached(op, found, keys)
    results = written_of_attention(op, attention, found["q"].shape, keys.shape[1], values.shape[3], given)
    return dict(zip((attention.outputs[0], latents.outputs[0], turned.outputs[0]), results))


def cached(op, found: dict, keys: ir.Value) -> list[ir.Value]:
    """The rows of the queries, those of the new keys and values of all heads, of the size of the keys, and the past."""
    heads, size = keys.shape[1], keys.shape[3]
    sizes = [output.shape[3] for output in found["split"].outputs]
    products = op.MatMul(op.Squeeze(found["k"], [1]), found["weight"])
    first, own = op.Split(op.Reshape(products, [0, 0, heads, sum(sizes)]), sizes, axis=3, outputs=2)
    new = op.Concat(first, op.Expand(op.Transpose(found["v"], perm=[0, 2, 1, 3]), [heads, 1]), axis=3)
    own = own if sizes[1] == size else op.Pad(own, [*[0] * 7, size - sizes[1]])
    rows = [rows_of(op, found["q"]), *(op.Reshape(x, [0, 0, heads * size]) for x in (new, own))]
    return [*rows, found["past_key"], found["past_value"]]


def unfit(found: dict, keys: ir.Value, values: ir.Value) -> Declined | None:
    """Why the heads are not those of latent attention, None when they are."""
    queries, k, v, weight, split = (found[name] for name in ("q", "k", "v", "weight", "split"))
    latents, turned = (found[name].outputs[0] for name in ("latents", "turned"))
    heads = [x.shape for x in (queries, keys, split.outputs[0], values)]
    rows = [x.shape for x in (k, latents, v, turned)]
    if (
        any(shape is None or len(shape) != 4 for shape in (*heads, *rows))
        or queries.dtype != ir.DataType.FLOAT
    ):
        return no("no heads of known sizes in float32")
    axes = [attribute_of(found[name], "axis", 0) % 4 for name in ("split", "joined", "latents", "turned")]
    if axes != [3, 3, 2, 2] or any(
        found.get(name) is not None for name in ("of_q", "of_product", "of_weights", "of_result")
    ):
        return no("the heads are grouped, or joined along other axes")
    batch, count, new, size = heads[0]
    first, own, latent, turn = (shape[3] for shape in (*heads[2:], rows[0], rows[2]))
    if not all(isinstance(known, int) for known in (count, size, first, own, latent, turn)):
        return no("no heads of known sizes in float32")
    total = heads[1][2]
    expected = [(batch, count, new, size), *((batch, count, total, each) for each in (size, first, own))]
    for width in (latent, turn):
        expected += [(batch, 1, new, width), (batch, 1, total, width)]
    if not all(map(same_sizes, (*heads, *rows), expected)):
        return no("not as many new rows as queries, or a batch that broadcasts")
    if size % 8 or own > size or list(weight.shape) != [latent, count * (first + own)]:
        return no("the size of heads is no multiple of 8, or values are larger than keys")
    readers = ((latents, found["products"]), (turned, found["spread"]))
    if any(use.node is not reader for value, reader in readers for use in value.uses()):
        return no("something else reads the cache")
    return None
