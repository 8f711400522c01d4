"""Attention and rotary embeddings before opset 23, in operators of onnxruntime; opset 23 has its own, which are faster."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import attributes_of, is_of
from experimental_experiment.xoptim.pattern import (
    P,
    all_readers,
    const,
    constant_of,
    ints_of,
    number_of,
    optional,
    softmax_axis,
    var,
)
from experimental_experiment.xoptim.patterns.attention import is_row_of
from experimental_experiment.xoptim.patterns.masks import is_mask
from experimental_experiment.xoptim.patterns.packing import is_like, is_turned, side_by_side
from experimental_experiment.xoptim.patterns.reshaping import MASK, of_less, shape_of_less
from experimental_experiment.xoptim.patterns.rotary import ROTATED, by_operator, rotation_in
from experimental_experiment.xoptim.patterns.transposing import perm
from experimental_experiment.xoptim.rules import Declined, no, once_more, rule
from experimental_experiment.xoptim.shapes import is_same

MICROSOFT = "com.microsoft"

q, k, v, bias = var("q"), var("k"), var("v"), var("bias")


@rule(ROTATED, set="onnxruntime", before=23, looks_further=True)
def microsoft_rotary_embedding(op, x, found):
    """The operator of onnxruntime, with tables of each angle once, which all layers share; a row of them for each position of each sample.

    Measured with onnxruntime 1.31: 0.44 of the time for one token, 0.36 for 128.
    """
    rotation = rotation_in(op, found)
    if rotation is None:
        return no("no halves or neighbours, or tables of other angles")
    tables = rotation.tables
    shape = tables[0].shape
    if shape[0] == 1:
        numbers, rows = op.constant([0]), [op.Squeeze(table, [0]) for table in tables]
    elif isinstance(shape[2], int):
        sizes = op.Shape(tables[0], start=0, end=2)
        rows = [op.Reshape(table, [-1, shape[2]]) for table in tables]
        numbers = op.Reshape(op.Range(0, op.ReduceProd(sizes, keepdims=0), 1), sizes)
    else:
        return no("the number of angles is unknown")
    return by_operator(op, x, rotation, numbers, *rows, domain=MICROSOFT)


IN_ROWS = P.Reshape(var("rows"), var("sizes"))
TURNED_HEADS = P.RotaryEmbedding(
    P.Transpose(IN_ROWS, perm=[0, 2, 1, 3], name="apart") | IN_ROWS,
    var("numbers"), var("cos"), var("sin"), domain=MICROSOFT, name="rotation",
)  # fmt: skip


@rule(
    P.Reshape(P.Transpose(TURNED_HEADS, perm=[0, 2, 1, 3], name="back") | TURNED_HEADS, var("shape")),
    set="onnxruntime",
)
def microsoft_rotary_embedding_of_rows(op, root, rows, numbers, cos, sin, rotation, apart, back):
    """Heads that stand side by side are rotated where they stand, without Transposes."""
    heads, joined = rotation.outputs[0].shape, root.outputs[0].shape
    if any(shape is None for shape in (heads, joined, rows.shape)):
        return no("the sizes of the heads are unknown")
    if not is_row_of(rows.shape, heads) or not is_row_of(joined, heads):
        return no("heads do not stand side by side")
    if heads[2] != 1 and (apart is None or back is None):
        return no("positions stand side by side")
    given = {**attributes_of(rotation), "num_heads": heads[1]}
    return op.RotaryEmbedding(rows, numbers, cos, sin, **given, domain=MICROSOFT)


def apart(name: str, perm: list[int], read: str = ""):
    """Heads that stand side by side in rows, apart; others may read the "heads" or what they are "shown" from.

    Those of half precision are cast before or after.
    """
    shown = P.Reshape(var(name), var(f"{name}_shape"), shared=bool(read))
    given = {"name": f"{name}_heads", "perm": perm, "shared": read == "heads"}
    cast = {"name": f"{name}_cast", "to": int(ir.DataType.FLOAT)}
    return (
        P.Transpose(shown, **given)
        | P.Cast(P.Transpose(shown, **given), **cast)
        | P.Transpose(P.Cast(shown, **cast), **given)
    )


KEYS = apart("k", [0, 2, 3, 1], "shown") | P.Transpose(
    apart("k", [0, 2, 1, 3], "heads"), name="swap", perm=[0, 1, 3, 2]
)
QUERIES = apart("q", [0, 2, 1, 3])
SCALED = P.Mul(QUERIES, const("scale")) | QUERIES
SCORES = P.MatMul(SCALED, KEYS) | P.one_of("Mul", "Div")(
    P.MatMul(QUERIES, KEYS), const("scale"), name="scaling"
)


ATTENDED = P.MatMul(
    P.Softmax(P.Add(SCORES, bias) | SCORES, name="weights"),
    apart("v", [0, 2, 1, 3], "heads"),
    name="attention",
)
GUARDED = P.Where(var("closed"), 0.0, ATTENDED) | ATTENDED
GUARDED = GUARDED | P.Cast(GUARDED, name="cast", to=int(ir.DataType.FLOAT16))


@rule(P.Reshape(P.Transpose(GUARDED, perm=[0, 2, 1, 3]), var("shape")), set="onnxruntime", before=23)
def multi_head_attention(op, q, k, v, bias, closed, scale, scaling, weights, attention, shape, root, found):
    """Two MatMul around a Softmax of as many heads of queries as of keys, without their Transposes.

    Keys and values that are the first of a cache are its results too.
    Measured with onnxruntime 1.31: attention without a mask 0.89 of the time, with one 0.94, of windows that stand apart 0.87 to 1.00; with
    keys and values as results 0.77 to 0.92 for 100 to 1500 keys, 0.97 to 1.03 for fewer. It does not append to a past: a token after 512
    takes 1.12, after 64 1.00. Models of float16 on a CPU 0.95 to 1.04, in CUDA's provider on an H200 0.68 to 0.78.
    """
    shapes = shapes_of_heads(found)
    casts = [found[f"{name}cast"] for name in ("q_", "k_", "v_", "")]
    is_half = any(casts)
    if q.dtype != (ir.DataType.FLOAT16 if is_half else ir.DataType.FLOAT) or (is_half and None in casts):
        return no("not in float32, nor in float16 with attention in float32")
    reason = unfit(*shapes, is_half)
    if reason is not None:
        return reason
    rows = [as_rows(found[name], found[f"{name}_shape"], known) for name, known in zip("qkv", shapes)]
    back = [] if is_rows(root.outputs[0], attention.outputs[0].shape) else sizes_without_zeros(shape)
    if None in (*rows, back):
        return no("heads do not stand side by side")
    heads, keys, _ = shapes
    of_all_queries = bias is not None and not back and is_of_all_queries(bias, heads, keys)
    is_added = bias is None or of_all_queries or is_bias(bias, heads, keys)
    if softmax_axis(weights, op.opset) not in (-1, 3) or not is_added:
        return no("the mask is not of queries and keys")
    if closed is not None and (back or not closes_rows(closed)):
        return no("the guard differs between or within heads, or windows stand apart")
    factor = positive_factor(scale, scaling)
    if factor is None:
        return no("the scale is no positive number")
    cache = first_of_cache(found)
    if cache is None:
        return no("something else reads the heads of keys or values")
    if is_half and bias is not None:
        if not is_mask(bias):
            return no("what is added may be no number of half precision")
        bias = op.Cast(bias, to=q.dtype)
    given = [op.Reshape(value, row) if row else value for value, row in zip((q, k, v), rows)]
    if of_all_queries:
        bias = op.Expand(bias, op.Concat([1, 1], op.Shape(bias, start=3, end=4), [1], axis=0))
    result, *presents = op.MultiHeadAttention(
        *given, None, None, bias, num_heads=heads[1], scale=factor, domain=MICROSOFT, outputs=1 + len(cache)
    )
    if back:
        result = op.Reshape(result, shape)
    elif closed is not None:
        result = op.Where(op.Squeeze(closed, [1]), op.constant(0.0, q.dtype), result)
    return dict(zip((root.outputs[0], *cache), (result, *presents)))


def shapes_of_heads(found: dict) -> list[ir.Shape | None]:
    """The shapes of queries, keys and values, [batch, heads, positions, size] each."""
    heads, keys, values = (found[f"{name}_heads"].outputs[0].shape for name in "qkv")
    return [heads, swapped(keys) if found["swap"] is None else keys, values]


def unfit(
    heads: ir.Shape | None, keys: ir.Shape | None, values: ir.Shape | None, is_half: bool
) -> Declined | None:
    """Why MultiHeadAttention does not take queries, keys and values of these sizes, None when it does."""
    if heads is None or keys is None or values is None:
        return no("heads of unknown sizes")
    if not heads[1] == keys[1] == values[1] or not isinstance(heads[1], int) or heads[3] != keys[3]:
        return no("groups of heads")
    if is_half and not all(isinstance(size, int) and size % 8 == 0 for size in (heads[3], values[3])):
        return no("heads of half precision that CUDA's provider adds in half precision")
    if not is_same(heads[0], keys[0]) or not is_same(keys[0], values[0]):
        return no("a batch that broadcasts")
    return None


def positive_factor(scale: ir.Value | None, scaling: ir.Node | None) -> float | None:
    """What scores are multiplied by, 1 without a *scale*; *scaling* may divide by it. None when it is not known to be positive."""
    factor = 1.0 if scale is None else number_of(scale)
    if factor is None or not 0 < factor < math.inf:
        return None
    return 1 / factor if scaling is not None and scaling.op_type == "Div" else factor


def is_of_one_head(mask: ir.Value) -> bool:
    """Whether a mask is the same for all heads."""
    return mask.shape is not None and len(mask.shape) == 4 and mask.shape[1] == 1


def closes_rows(closed: ir.Value) -> bool:
    """Whether a guard of [batch, heads, positions, size] is the same for all heads, and for all numbers of a row."""
    return is_of_one_head(closed) and closed.shape[3] == 1


def first_of_cache(found: dict) -> list[ir.Value] | None:
    """Heads of keys and of values that are results, nothing when attention alone reads them; None when something else does.

    Those of half precision are read as float32, and no results.
    """
    if found["v_cast"] is not None:
        heads = [found[name].outputs[0] for name in ("k_heads", "v_heads")]
        return None if any(value.is_graph_output() or len(value.uses()) > 1 for value in heads) else []
    shown, keys = found["k_heads"].inputs[0], found["k_heads"]
    if found["swap"] is None:
        others = {use.node for use in shown.uses()} - {keys}
        if len(others) > 1 or shown.is_graph_output():
            return None
        keys = others.pop() if others else None
        if keys is not None and not (is_of(keys, "Transpose") and perm(keys) == [0, 2, 1, 3]):
            return None
    readers = ((keys, found["swap"]), (found["v_heads"], found["attention"]))
    heads = {node.outputs[0]: reader for node, reader in readers if node is not None}
    if any(use.node is not reader for value, reader in heads.items() for use in value.uses()):
        return None
    results = [value for value in heads if value.is_graph_output()]
    return results if len(results) in (0, 2) else None


def is_rows(x: ir.Value, heads: ir.Shape | None) -> bool:
    """Whether a value has heads side by side, see `is_row_of`."""
    return x.shape is not None and heads is not None and is_row_of(x.shape, heads)


def as_rows(x: ir.Value, shape: ir.Value, heads: ir.Shape) -> list[int] | None:
    """What to reshape a value to that was reshaped to [batch, positions, heads, size]: nothing when it is rows, None if it is unknown."""
    if is_rows(x, heads):
        return []
    sizes = sizes_without_zeros(shape)
    if sizes is None or len(sizes) != 4 or min(sizes[2:]) < 1:
        return None
    return [*sizes[:2], sizes[2] * sizes[3]]


def sizes_without_zeros(shape: ir.Value) -> list[int] | None:
    """A shape that is known, and stands for the same sizes whatever is reshaped to it."""
    sizes = ints_of(shape)
    return None if sizes is None or 0 in sizes else sizes


def biased(name: str):
    """Rows, and the constant that is added to each of them or not."""
    return P.Add(var(name), const(f"{name}_bias")) | var(name)


ALL_BIASED = P.MultiHeadAttention(
    biased("q"), biased("k"), biased("v"), None, None, optional("bias"), domain=MICROSOFT, name="attention"
)


@rule(ALL_BIASED, set="onnxruntime")
def biases_of_attention(op, attention, q, k, v, bias, q_bias, k_bias, v_bias):
    """MultiHeadAttention adds the biases of queries, keys and values itself, zeros where one of them has none.

    Measured with onnxruntime 1.31: the products, their biases and the attention take 0.95 to 1.00 of the time, in three nodes less.
    """
    given = [item for item in (q_bias, k_bias, v_bias) if item is not None]
    if len(given) < 2 or any(len(item.shape) != 1 or item.dtype != q.dtype for item in given):
        return no("fewer than two vectors are added")
    widths = [x.shape[2] if x.shape is not None and len(x.shape) == 3 else None for x in (q, k, v)]
    pairs = list(zip((q_bias, k_bias, v_bias), widths))
    if any(
        not isinstance(width, int) or (item is not None and item.shape[0] != width) for item, width in pairs
    ):
        return no("the sizes of rows are unknown, or a number is added to all of a row")
    vectors = [
        np.zeros(width, q.dtype.numpy()) if item is None else constant_of(item).numpy()
        for item, width in pairs
    ]
    inputs = [q, k, v, op.constant(np.concatenate(vectors)), None, bias]
    return once_more(op, attention, inputs)


@rule(
    P.MultiHeadAttention(q, k, v, optional("biases"), None, MASK, domain=MICROSOFT, name="attention"),
    set="onnxruntime",
    looks_further=True,
)
def mask_of_batch(op, attention, x, a, b, expand, node):
    """A mask of two numbers that all samples share needs no Expand: the operator broadcasts it."""
    bias = node.outputs[0]
    shape = shape_of_less(x, expand, None, a, b, node)
    if (
        shape is None
        or bias.shape is None
        or len(shape) != 4
        or not all(map(is_same, shape[2:], bias.shape[2:]))
    ):
        return no("the mask is not of queries and keys")
    if not all_readers(bias, is_bias_of):
        return no("another reader needs the mask as it is")
    return once_more(op, attention, [*attention.inputs[:5], of_less(op, node, expand, x)])


def is_bias_of(user: ir.Node, index: int) -> bool:
    """Whether a reader is a MultiHeadAttention that adds what it reads to its scores."""
    return (user.domain, user.op_type, index) == (MICROSOFT, "MultiHeadAttention", 5)


def product(name: str):
    """One value times a weight."""
    return P.MatMul(var("x"), const(f"{name}_weight"), name=name)


POSITIONS = range(65, 257)
"""How many positions Attention is faster for."""


@rule(
    P.MultiHeadAttention(
        product("q"), product("k"), product("v"), optional("biases"), None, optional("bias"),
        domain=MICROSOFT, name="attention",
    ),
    set="onnxruntime",
)  # fmt: skip
def attention_of_one_value(op, attention, x, q, k, v, biases, bias):
    """MultiHeadAttention of products of one value is Attention, which multiplies by the weights side by side.

    Measured with onnxruntime 1.31: products and attention take 0.80 to 0.99 of the time for 65 to 256 positions, a ViT 0.96; it is slower
    for fewer in large batches (2.3 for 8 samples of one position) and for 512 (1.03).
    """
    products = [q, k, v]
    if len(attention.outputs) > 1:
        return no("keys and values are results, which it gives in one")
    if x.dtype != ir.DataType.FLOAT or x.shape is None or len(x.shape) != 3 or x.shape[1] not in POSITIONS:
        return no("not in float32, or not known to be as many positions as it is faster for")
    if any(is_turned(node.inputs[1]) or not is_like(node, q) for node in products):
        return no("a weight is read elsewhere, or not transposed yet")
    weights = [node.inputs[1] for node in products]
    if len({weight.shape[1] for weight in weights}) > 1:
        return no("values have other sizes than keys")
    packed = side_by_side(op, weights)
    if biases is None:  # onnxruntime 1.31 reads a bias that is not there
        biases = op.constant(np.zeros(packed.shape[1], x.dtype.numpy()))
    return op.Attention(x, packed, biases, None, None, bias, **attributes_of(attention), domain=MICROSOFT)


def swapped(shape: ir.Shape | None) -> ir.Shape | None:
    """[batch, heads, positions, size] of [batch, heads, size, positions]."""
    return None if shape is None else ir.Shape([shape[0], shape[1], shape[3], shape[2]])


def is_of_all_queries(bias: ir.Value, heads: ir.Shape, keys: ir.Shape) -> bool:
    """Whether a mask has one row for all queries, which are as many as the keys."""
    shape = bias.shape
    if shape is None or len(shape) != 4 or shape[2] != 1 or heads[2] == 1 or not is_same(heads[2], keys[2]):
        return False
    return is_of_heads(shape, heads) and is_same(shape[3], keys[2])


def is_of_heads(shape: ir.Shape, heads: ir.Shape) -> bool:
    """Whether a mask is of one sample or all, and of one head or all."""
    return all(shape[axis] == 1 or is_same(shape[axis], heads[axis]) for axis in (0, 1))


def is_bias(bias: ir.Value, heads: ir.Shape, keys: ir.Shape) -> bool:
    """Whether a mask is [1 or batch, 1 or heads, queries, keys]."""
    shape = bias.shape
    return (
        shape is not None
        and len(shape) == 4
        and is_of_heads(shape, heads)
        and is_same(shape[2], heads[2])
        and is_same(shape[3], keys[2])
    )
