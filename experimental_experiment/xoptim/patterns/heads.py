"""Heads: several of queries that share one of keys and values, those of one token, whose order in memory no Transpose changes."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, ints_of, only_reader, softmax_axis, var
from experimental_experiment.xoptim.patterns.reshaping import moved
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import is_same, same_shape_of_elements, same_sizes

x, q, bias = var("x"), var("q"), var("bias")
APART = P.Unsqueeze(x, var("axes"))


def repeated(apart):
    """Heads that are shown several times each."""
    return P.Reshape(P.Expand(apart, var("size"), name="expand"), var("shape"), name="repeat")


# half precision, whose products are those of float32: bfloat16 is expanded there, too
REPEATED = repeated(APART | P.Cast(APART, name="cast")) | P.Cast(repeated(APART), name="cast")


@rule(P.MatMul(q, P.Transpose(REPEATED, name="transpose")), set="default")
def scores_of_grouped_heads(op, q, x, axes, expand, repeat, cast, transpose):
    """The heads of a group stand one after the other in the queries: one product a group, no copy of the keys; an empty batch is refused at the run.

    Measured with onnxruntime 1.31: with the rule of the values 0.90 of the time of a decoding step with 512 tokens in the cache,
    in float16 0.87, for a batch of eight 0.62, in bfloat16 0.89 and 0.71.
    """
    groups = groups_of(q, x, axes, expand, repeat)
    if groups is None or attribute_of(transpose, "perm") != [0, 1, 3, 2]:
        return no("the heads are not repeated in place")
    return grouped(op, q, op.Transpose(as_cast(op, x, cast), perm=[0, 1, 3, 2]), groups)


@rule(P.MatMul(q, REPEATED), set="default")
def values_of_grouped_heads(op, q, x, axes, expand, repeat, cast):
    """The same for the product of weights and values."""
    groups = groups_of(q, x, axes, expand, repeat)
    if groups is None:
        return no("the heads are not repeated in place")
    return grouped(op, q, as_cast(op, x, cast), groups)


@rule(
    P.Transpose(P.Reshape(P.Expand(x, var("size"), name="expand"), var("shape"), name="repeat")),
    set="default",
    looks_further=True,
)
def heads_repeated_in_tokens(op, x, expand, repeat, root):
    """Heads that are repeated beside each other in a token, then turned for a product, are turned first, for the rules above.

    As in Llama's own code. Measured with onnxruntime 1.31, attention of 16 heads in four groups alone: a token after 512 takes 0.19 to 0.21
    of the time, 128 tokens 0.89 to 0.95, 512 tokens 1.06.
    """
    order, product = attribute_of(root, "perm"), only_reader(root.outputs[0], "MatMul")
    if order not in ([0, 2, 1, 3], [0, 2, 3, 1]) or product is None:
        return no("no heads for a product")
    spread, heads = expand.outputs[0].shape, repeat.outputs[0].shape
    if any(shape is None for shape in (x.shape, spread, heads)) or (len(spread), len(heads)) != (5, 4):
        return no("the shapes are unknown")
    groups, times, size = spread[2:]
    if not all(isinstance(known, int) for known in (groups, times, size)) or heads[2] != groups * times:
        return no("the heads are not repeated in place")
    if not same_sizes(x.shape, [*spread[:3], 1, size]):
        return no("more than the heads is repeated")
    if not same_shape_of_elements(heads, [*spread[:2], groups * times, size]):
        return no("other axes are parted too")
    turned = op.Unsqueeze(op.Transpose(op.Squeeze(x, [3]), perm=[0, 2, 1, 3]), [2])
    result = op.Reshape(op.Expand(turned, [1, 1, times, 1, 1]), [0, groups * times, -1, size])
    return result if order == [0, 2, 1, 3] else op.Transpose(result, perm=[0, 1, 3, 2])


BY_HEAD = P.Reshape(x, var("by_head"), name="apart")


@rule(
    P.Reshape(P.Softmax(P.Add(BY_HEAD, bias) | BY_HEAD, name="weights"), var("by_group")),
    set="default",
    before=23,
)
def weights_of_grouped_heads(op, x, bias, apart, weights, root):
    """Where heads and queries share a row of the mask, as those of one token do, the scores of a group stay together.

    Measured with onnxruntime 1.31, with the rule of the guard: a token after 512 takes as long, in three nodes less a layer.
    """
    heads = apart.outputs[0].shape
    if (
        not same_shape_of_elements(x.shape, root.outputs[0].shape)
        or heads is None
        or len(x.shape) != len(heads)
    ):
        return no("the heads are not grouped again")
    if softmax_axis(weights, op.opset) not in (-1, len(heads) - 1) or not is_same(x.shape[-1], heads[-1]):
        return no("the Softmax is along another axis")
    if bias is None:
        return op.Softmax(x, axis=-1)
    if not is_alike(bias, x, apart) or not same_sizes(weights.outputs[0].shape, heads):
        return no("the mask differs between heads or queries")
    return op.Softmax(op.Add(x, bias), axis=-1)


@rule(P.Reshape(P.Where(var("closed"), 0.0, BY_HEAD, name="guarded"), var("rows")), set="default", before=23)
def guard_of_grouped_heads(op, x, closed, apart, guarded, root):
    """The same for the guard of rows without a key: heads stay grouped until they are joined."""
    if not is_alike(closed, x, apart) or not same_sizes(guarded.outputs[0].shape, apart.outputs[0].shape):
        return no("the guard differs between heads or queries")
    values = op.Where(closed, op.constant(0.0, x.dtype), x)
    result = moved(op, values, [apart, root])
    return no("several sizes are not static") if result is None else result


def is_alike(mask: ir.Value, x: ir.Value, apart: ir.Node) -> bool:
    """Whether a mask is the same for all that a Reshape, *apart*, moves: it has one element between the first and the last axis."""
    before, after = x.shape, apart.outputs[0].shape
    if mask.shape is None or before is None or after is None or not len(before) == len(after) == 4:
        return False
    ends = all(is_same(before[axis], after[axis]) for axis in (0, -1))
    return ends and len(mask.shape) == 4 and mask.shape[1] == mask.shape[2] == 1


def part(output: int):
    """One part of a row."""
    return P.Split(x, var("sizes"), name="split", output=output, shared=True)


@rule(P.Reshape(part(0) | part(1) | part(2), var("shape")), set="default", before=23)
def heads_of_one_row(op, x, split):
    """Queries, keys and values of one token are shown as heads, then split: one Reshape instead of three."""
    if (
        x.shape is None
        or len(x.shape) != 3
        or x.shape[1] != 1
        or attribute_of(split, "axis", 0) not in (-1, 2)
    ):
        return no("no rows of one token")
    shown = [shown_heads(value) for value in split.outputs]
    if None in shown or len(shown) < 2:
        return no("a part is used otherwise than as heads")
    shapes = [value.shape for value in shown]
    size = shapes[0][3]
    if any(shape[2] != 1 or shape[3] != size or not is_same(shape[0], x.shape[0]) for shape in shapes):
        return no("heads of several tokens or sizes")
    counts = [shape[1] for shape in shapes]
    if not isinstance(size, int) or any(not isinstance(count, int) for count in counts):
        return no("the number or the size of heads is unknown")
    heads = op.Reshape(x, [0, sum(counts), 1, size])
    parts = op.Split(heads, counts, axis=1, outputs=len(counts))
    op.move_after(split)
    return dict(zip(shown, parts))


def shown_heads(value: ir.Value) -> ir.Value | None:
    """What a Reshape to four axes makes of a value that nothing else reads, None for anything else."""
    node = only_reader(value, "Reshape")
    if node is None or node.graph is not value.producer().graph:
        return None
    shape = node.outputs[0].shape
    return node.outputs[0] if shape is not None and len(shape) == 4 else None


def groups_of(q: ir.Value, x: ir.Value, axes: ir.Value, expand: ir.Node, repeat: ir.Node) -> int | None:
    """The number of heads of *x* when *repeat* shows each of them several times in a row, None otherwise.

    The other sizes of *repeat* leave one for its positions; a batch of one, of *q* or of *x*, broadcasts here as there.
    """
    spread, heads = expand.outputs[0].shape, repeat.outputs[0].shape
    shapes = [x.shape, spread, heads, q.shape]
    if any(shape is None for shape in shapes) or [len(shape) for shape in shapes] != [4, 5, 4, 4]:
        return None
    if ints_of(axes) not in ([2], [-3]) or not all(
        isinstance(n, int) for n in (x.shape[1], spread[2], heads[1])
    ):
        return None
    kept = [(0, 0), (1, 1), (2, 3), (3, 4)]
    fits = (
        heads[1] == x.shape[1] * spread[2]
        and is_same(q.shape[1], heads[1])
        and all(is_same(x.shape[axis], spread[other]) for axis, other in kept)
        and all(is_same(x.shape[axis], heads[axis]) for axis in (0, 3))
    )
    return x.shape[1] if fits else None


def as_cast(op, x: ir.Value, cast: ir.Node | None) -> ir.Value:
    """*x*, converted as *cast* converts what is made of it."""
    return x if cast is None else op.Cast(x, to=attribute_of(cast, "to"))


def grouped(op, q: ir.Value, x: ir.Value, groups: int) -> ir.Value:
    """``q @ x`` by group: [batch, heads, rows, *] is seen as [batch, groups, heads / groups * rows, *] and back."""
    product = op.MatMul(op.Reshape(q, [0, groups, -1, last(q)]), x)
    return op.Reshape(product, [0, q.shape[1], -1, last(product)])


def last(value: ir.Value) -> int:
    """The size of the last axis, 0 to keep one that is not static."""
    return value.shape[-1] if isinstance(value.shape[-1], int) else 0


def is_grouping(target: ir.Value, count: int, size: int | ir.SymbolicDim) -> bool:
    """Whether a Reshape shows the positions of *count* heads: [batch, count, the others, last], the last being *size*."""
    sizes = ints_of(target)
    return (
        sizes is not None
        and len(sizes) == 4
        and sizes[:2] == [0, count]
        and sizes[2] != 0
        and sizes[3] in (0, size)
    )
