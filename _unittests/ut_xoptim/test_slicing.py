"""Rules of slices, joins, splits and gathers."""

import collections
import itertools
import sys
import unittest

import numpy as np
import onnx
import onnx_ir as ir

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize
from experimental_experiment.xoptim.patterns.parts import part_around, part_with
from experimental_experiment.xoptim.spans import ENDLESS, composed


def constants(**values):
    """Nodes that hold these INT64 numbers and vectors."""
    texts = []
    for name, value in values.items():
        if isinstance(value, int):
            texts.append(f"{name} = Constant<value_int={value}>()")
        else:
            listed = ",".join(str(item) for item in value)
            texts.append(f"{name} = Constant<value=int64[{len(value)}]{{{listed}}}>()")
    return " ".join(texts) + " "


ALL = 9223372036854775807

ROWS = constants(i=0, j=-1, p=[1], q=[-1]) + "a = Gather<axis=0>(x, i) b = Gather(x, j) "
"""Both rows of a matrix."""


class TestSlicing(RuleTestCase):
    BECOME = {
        "SliceNothing": [
            ("float[N,6] x", "float[N,6]", constants(s=[0], e=[ALL], a=[0]) + "b = Slice(x, s, e, a) y = Neg(b)", ["Neg"]),
            ("float[N,6] x", "float[N,6]", constants(s=[-6, 0], e=[6, ALL], a=[1, 0], t=[1, 1]) + "b = Slice(x, s, e, a, t) y = Neg(b)", ["Neg"]),
            ("float[N,6] x", "float[N,6]", constants(s=[0], a=[0]) + "e = Shape<end=1>(x) y = Slice(x, s, e, a)", ["Identity"]),
        ],
        "SliceSlice": [
            ("float[8,9] x", "float[2,4]", constants(s=[1], e=[5], a=[0], t=[2], u=[-4], f=[ALL], b=[-1]) + "c = Slice(x, s, e, a, t) y = Slice(c, u, f, b)", ["Slice"]),
            ("float[8] x", "float[3]", constants(s=[1], e=[7], u=[-1], f=[-4], t=[-1], a=[0]) + "c = Slice(x, s, e) y = Slice(c, u, f, a, t)", ["Slice"]),
            ("float[8] x", "float[8]", constants(s=[-1], e=[-ALL], a=[0], t=[-1]) + "c = Slice(x, s, e, a, t) y = Slice(c, s, e, a, t)", ["Slice"]),
            ("float[4] x", "float[1]", constants(s=[-9], e=[-ALL], a=[0], t=[-1]) + "c = Slice(x, s, e, a, t) y = Slice(c, s, e, a, t)", ["Slice"]),
            ("float[N,6] x", "float[M,6]", constants(s=[1], e=[ALL], a=[0], f=[2], t=[2]) + "c = Slice(x, s, e, a) y = Slice(c, s, f, a, t)", ["Slice"]),
        ],
        "SliceOfConcat": [
            ("float[N,2] x, float[N,3] w", "float[N,3]", constants(s=[2], e=[ALL], a=[1]) + "c = Concat<axis=-1>(x, w) b = Slice(c, s, e, a) y = Neg(b) z = Abs(c)", ["Concat", "Neg", "Abs"], "float[N,5] z"),
            ("float[N,2] x, float[N,3] w", "float[N,2]", constants(s=[0], e=[-3], a=[1]) + "c = Concat<axis=1>(x, w) b = Slice(c, s, e, a) y = Neg(b)", ["Neg"]),
            ("float[N,2] x, float[N,M] w, float[N,3] v", "float[N,3]", constants(s=[-3], e=[ALL], a=[1]) + "c = Concat<axis=1>(x, w, v) b = Slice(c, s, e, a) y = Neg(b)", ["Neg"]),
            ("float[N,2] x, float[N,M] w, float[N,3] v", "float[N,K]", constants(s=[2], e=[ALL], a=[1]) + "c = Concat<axis=1>(x, w, v) y = Slice(c, s, e, a)", ["Concat"]),
            ("float[N,2] x, float[N,3] w", "float[N,1]", constants(s=[3], e=[4], a=[1]) + "c = Concat<axis=-1>(x, w) b = Slice(c, s, e, a) y = Neg(b) z = Abs(c)", ["Concat", "Slice", "Neg", "Abs"], "float[N,5] z"),
            ("float[N,2] x, float[N,M] w", "float[N,K]", constants(s=[3], e=[-1], a=[1]) + "c = Concat<axis=-1>(x, w) y = Slice(c, s, e, a)", ["Slice"]),
            ("float[N,4] x, float[N,M] w", "float[N,2]", constants(s=[1], e=[3], a=[1]) + "c = Concat<axis=-1>(x, w) y = Slice(c, s, e, a)", ["Slice"]),
            # two rows are written one after the other, then one is cut
            ("float[N,1] x, float[N,1] w, float[N,4] v", "float[N,6]", constants(z=[0], s=[1], f=[2], e=[ALL], a=[1]) + "c = Concat<axis=1>(v, x, w) d = Slice(c, z, s, a) t = Slice(c, f, e, a) y = Concat<axis=1>(d, w, t)", ["Concat", "Slice", "Slice", "Concat"]),
            ("float[N,1] x, float[N,1] w, float[N,4] v", "float[N,7]", constants(z=[0], s=[2], f=[3], e=[ALL], a=[1]) + "c = Concat<axis=1>(x, w, x, v) d = Slice(c, z, s, a) t = Slice(c, f, e, a) y = Concat<axis=1>(d, w, t)", ["Concat", "Concat"]),
        ],
        "ConcatOne": [("float[N,2] x", "float[N,2]", "c = Concat<axis=-1>(x) y = Neg(c)", ["Neg"])],
        "ConcatEmpty": [
            ("float[N,2] x", "float[N,4]", constants(s=[2], e=[ALL], a=[1]) + "b = Slice(x, s, e, a) y = Concat<axis=-1>(x, b, x)", ["Concat"]),
            ("float[N,2] x", "float[N,2]", constants(s=[2], e=[ALL], a=[1]) + "b = Slice(x, s, e, a) y = Concat<axis=1>(b, x)", ["Concat"]),
        ],
        "ConcatConcat": [
            ("float[N,2] x, float[N,3] w", "float[N,10]", "c = Concat<axis=-1>(x, w) d = Concat<axis=1>(w, x) y = Concat<axis=1>(c, d)", ["Concat"]),
            ("float[N,2] x, float[N,3] w", "float[N,12]", "c = Concat<axis=-1>(x, w) d = Concat<axis=1>(w, c) e = Concat<axis=1>(d, x) y = Concat<axis=-1>(x, e)", ["Concat"]),
            ("float[2,2] x, float[6,1] w", "float[6,4]", "a = Concat<axis=0>(x, x) b = Concat<axis=0>(a, x) c = Concat<axis=1>(b, w) y = Concat<axis=-1>(w, c)", ["Concat", "Concat"]),
            ("float[2,2] x", "float[8,2]", "a = Concat<axis=0>(x, x) b = Concat<axis=0>(a, x) y = Concat<axis=0>(b, x) z = Neg(b)", ["Concat", "Concat", "Neg"], "float[6,2] z"),
            ("float[2,2] x", "float[8,2]", "a = Concat<axis=0>(x, x) b = Concat<axis=0>(a, x) y = Concat<axis=0>(x, b)", ["Concat", "Concat"], "float[6,2] b"),
        ],
        "ConcatOfSplit": [
            ("float[N,5] x", "float[N,5]", constants(p=[2, 3]) + "a, b = Split<axis=1>(x, p) c = Concat<axis=-1>(a, b) y = Neg(c)", ["Neg"]),
        ],
        "ConcatOfNeighbours": [
            ("float[N,8] x", "float[N,6]", constants(s=[1], m=[3], e=[-1], a=[1]) + "b = Slice(x, s, m, a) c = Slice(x, m, e, a) y = Concat<axis=-1>(b, c)", ["Slice"]),
            ("float[M,2] x", "float[M,2]", constants(s=[0], m=[3], e=[ALL], a=[0]) + "b = Slice(x, s, m, a) c = Slice(x, m, e, a) y = Concat<axis=0>(b, c)", ["Slice"]),
            ("float[N,8] x, float[N,1] w", "float[N,9]", constants(s=[0], m=[3], e=[8], a=[1]) + "b = Slice(x, s, m, a) c = Slice(x, m, e, a) y = Concat<axis=-1>(w, b, c)", ["Slice", "Concat"]),
            ("float[N,M,8] x", "int64[3]", constants(k=[4]) + "b = Shape<end=1>(x) c = Shape<start=-2,end=2>(x) d = Concat<axis=0>(b, c, k) y = Neg(d)", ["Shape", "Concat", "Neg"]),
        ],
        "ConcatOfRows": [
            ("float[2,N] x", "float[N,2]", ROWS + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=-1>(c, d) z = Neg(a)", ["Gather", "Transpose", "Neg"], "float[N] z"),
            ("bool[N,M] x", "int64[K,2]", ROWS.replace("(x, ", "(n, ").replace("a = ", "n = NonZero(x) a = ") + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=1>(c, d)", ["NonZero", "Transpose"]),
        ],
        "SplitOfConcat": [
            ("float[N,2] x, float[N,3] w", "float[N,2]", constants(p=[2, 3]) + "c = Concat<axis=-1>(x, w) a, b = Split<axis=1>(c, p) y = Neg(a) z = Abs(b)", ["Neg", "Abs"], "float[N,3] z"),
        ],
        "SplitWithoutSequence": [
            ("float[2,N] x", "float[1,N]", constants(k=1, i=0) + "s = SplitToSequence<keepdims=0>(x, k) c = SequenceAt(s, i) a = Constant<value=int64[2]{1, -1}>() y = Reshape(c, a)", ["Gather", "Reshape"]),
            ("float[N,6] x", "float[N,3]", constants(k=[1, 3, 2], i=-2, j=0) + "s = SplitToSequence<axis=-1>(x, k) y = SequenceAt(s, i) z = SequenceAt(s, j)", ["Split"], "float[N,1] z"),
            ("float[5,N] x", "float[1,N]", constants(k=2, i=-1, j=0) + "s = SplitToSequence(x, k) z = SequenceAt(s, j) b = SequenceAt(s, i) y = Neg(b)", ["Split", "Neg"], "float[2,N] z"),
            ("float[2,N] x", "float[1,N]", constants(i=1, j=0) + "s = SplitToSequence<axis=0>(x) y = SequenceAt(s, i) z = SequenceAt(s, j)", ["Split"], "float[1,N] z"),
            ("float[N,2] x", "float[N]", constants(i=-1, j=0) + "s = SplitToSequence<axis=1,keepdims=0>(x) y = SequenceAt(s, i) z = SequenceAt(s, j)", ["Gather", "Gather"], "float[N] z"),
            ("float[N,2] x", "float[N]", constants(i=[1]) + "s = SplitToSequence<axis=1,keepdims=0>(x) y = SequenceAt(s, i)", ["Gather"]),
            ("bool[4] x", "bool[2]", constants(k=2, i=1, j=0) + "s = SplitToSequence(x, k) y = SequenceAt(s, i) z = SequenceAt(s, j)", ["Split"], "bool[2] z"),
        ],
        "SplitNothing": [("float[N,2] x", "float[N,2]", constants(p=[2]) + "c = Split<axis=1>(x, p) y = Neg(c)", ["Neg"])],
        "PadNothing": [("float[N,2] x", "float[N,2]", constants(p=[0, 0, 0, 0]) + "c = Pad(x, p) y = Neg(c)", ["Neg"])],
        "TileOnce": [("float[N,2] x", "float[N,2]", constants(p=[1, 1]) + "c = Tile(x, p) y = Neg(c)", ["Neg"])],
        "GatherNothing": [("float[N,3] x", "float[N,3]", constants(i=[0, 1, 2]) + "c = Gather<axis=-1>(x, i) y = Neg(c)", ["Neg"])],
        "UnsqueezedGather": [
            ("float[N,3,2] x", "float[N,1,2]", constants(i=-2, a=[1]) + "c = Gather<axis=-2>(x, i) y = Unsqueeze(c, a)", ["Gather"]),
        ],
        "GatherOfConcat": [
            ("float[N,1] x, float[N,1] w", "float[N]", constants(i=-1) + "c = Concat<axis=-1>(x, w) y = Gather<axis=1>(c, i) z = Neg(c)", ["Concat", "Squeeze", "Neg"], "float[N,2] z"),
            ("float[N,1] x, float[N,1] w", "float[N,1]", constants(i=[0]) + "c = Concat<axis=-1>(x, w) b = Gather<axis=1>(c, i) y = Neg(b)", ["Neg"]),
            ("float[N,1] x, float[N,2] w", "float[N]", constants(i=2) + "c = Concat<axis=-1>(x, w) y = Gather<axis=1>(c, i)", ["Gather"]),
            ("float[N,K] x, float[N,2] w", "float[N,1]", constants(i=[-2]) + "c = Concat<axis=-1>(x, w) y = Gather<axis=1>(c, i)", ["Gather"]),
            ("float[N,1] x, float[N,2] w", "float[N]", constants(i=0) + "c = Concat<axis=-1>(x, w) b = Concat<axis=1>(c, w) y = Gather<axis=1>(b, i)", ["Squeeze"]),
        ],
        "GatherOfSlice": [
            ("float[N,M] x", "float[N]", constants(s=[1], e=[ALL], a=[-1], i=1) + "b = Slice(x, s, e, a) y = Gather<axis=-1>(b, i) z = Abs(b)", ["Slice", "Gather", "Abs"], "float[N,K] z"),
            ("float[N,5] x", "float[N,1]", constants(s=[1], e=[4], a=[1], i=[2]) + "b = Slice(x, s, e, a) y = Gather<axis=1>(b, i)", ["Gather"]),
        ],
        "GatherOfNeighbours": [
            ("float[N,5] x", "float[N,3]", constants(i=[-3, 3, 4]) + "y = Gather<axis=-1>(x, i)", ["Slice"]),
            ("float[5,N] x", "float[1,N]", constants(i=[-1]) + "y = Gather(x, i)", ["Slice"]),
        ],
        "GatherOfTransposed": [
            ("float[N,M,3,2] x", "float[N,M,2]", constants(i=0, j=-1) + "t = Transpose<perm=[2,0,1,3]>(x) y = Gather(t, i) z = Gather(t, j)", ["Gather", "Gather"], "float[N,M,2] z"),
        ],
        "GatherOfPartedAxis": [
            ("float[N,M,6] x", "float[N,M,2]", constants(i=0, j=-1, s=[0, 0, 3, 2]) + "t = Reshape(x, s) y = Gather<axis=2>(t, i) z = Gather<axis=-2>(t, j)", ["Slice", "Slice"], "float[N,M,2] z"),
        ],
        "ShapeOfKnownSizes": [
            ("float[N,3] x", "int64[1]", "s = Shape<start=-1>(x) y = Neg(s)", ["Neg"]),
            ("float[2,3] x", "int64[2]", "s = Shape(x) y = Neg(s)", ["Neg"]),
        ],
        "SizeOfKnownSizes": [("float[2,3] x", "int64", "s = Size(x) y = Neg(s)", ["Neg"])],
        "GatherOfShape": [
            ("float[N,3,2] x", "int64", constants(i=-1) + "s = Shape(x) g = Gather(s, i) y = Neg(g)", ["Neg"]),
            ("float[N,M,2] x", "int64[2]", constants(i=[0, -2]) + "s = Shape(x) g = Gather(s, i) y = Neg(g)", ["Shape", "Neg"]),
            ("float[N,M,2] x", "int64[1]", constants(i=[1]) + "s = Shape<start=1>(x) g = Gather(s, i) y = Neg(g) z = Abs(s)", ["Shape", "Neg", "Abs"], "int64[2] z"),
        ],
        "SliceOfShape": [
            ("float[N,3,2] x", "int64[2]", constants(b=[-2], e=[ALL]) + "s = Shape(x) g = Slice(s, b, e) y = Neg(g)", ["Neg"]),
            ("float[N,M,2] x", "int64[1]", constants(b=[0], e=[1]) + "s = Shape<start=1>(x) g = Slice(s, b, e) y = Neg(g)", ["Shape", "Neg"]),
            ("float[3,2,4] x", "int64[1]", constants(b=[-10], e=[-ALL], a=[0], t=[-1]) + "s = Shape(x) g = Slice(s, b, e, a, t) y = Neg(g)", ["Neg"]),
            ("float[N,M] x", "int64[1]", constants(b=[-10], e=[-ALL], a=[0], t=[-1]) + "s = Shape(x) g = Slice(s, b, e, a, t) y = Neg(g)", ["Shape", "Neg"]),
        ],
    }  # fmt: skip
    STAY = {
        "SliceNothing": [
            ("float[N,6] x", "float[N,6]", constants(s=[-1], e=[-ALL], a=[1], t=[-1]) + "y = Slice(x, s, e, a, t)"),
            ("float[N,6] x", "float[M,6]", constants(s=[1], e=[ALL], a=[0]) + "y = Slice(x, s, e, a)"),
            ("float[N,6] x", "float[M,6]", constants(s=[0], e=[2], a=[0]) + "y = Slice(x, s, e, a)"),
            ("float[N,6] x, int64[1] t", "float[N,6]", constants(s=[0], e=[6], a=[1]) + "one = Div(t, t) y = Slice(x, s, e, a, one)"),
        ],
        "SliceSlice": [
            ("float[N] x", "float[M]", constants(s=[1], e=[ALL], u=[-1]) + "c = Slice(x, s, e) y = Slice(c, u, e)"),
            ("float[8] x", "float[5]", constants(s=[1], e=[7]) + "c = Slice(x, s, e) y = Slice(c, s, e) z = Neg(c)", "float[6] z"),
        ],
        "SliceOfConcat": [
            ("float[N,2] x, float[N,3] w", "float[N,2]", constants(s=[1], e=[3], a=[1]) + "c = Concat<axis=-1>(x, w) y = Slice(c, s, e, a)"),
            ("float[N,2] x, float[M,2] w", "float[K,1]", constants(s=[0], e=[1], a=[1]) + "c = Concat<axis=0>(x, w) y = Slice(c, s, e, a)"),
            ("float[2,N] x, float[2,M] w", "float[2,K]", constants(s=[2], e=[ALL], a=[1]) + "c = Concat<axis=1>(x, w) y = Slice(c, s, e, a)"),
        ],
        "ConcatEmpty": [
            ("float[N,2] x", "float[M,0]", constants(s=[2], e=[ALL], a=[1]) + "b = Slice(x, s, e, a) y = Concat<axis=0>(b, b)"),
            ("float[N,2] x", "float[N,0]", constants(s=[2], e=[ALL], a=[1]) + "b = Slice(x, s, e, a) y = Concat<axis=1>(b, b)"),
        ],
        "ConcatConcat": [
            ("float[2,2] x", "float[4,4]", "c = Concat<axis=0>(x, x) y = Concat<axis=1>(c, c)"),
            ("float[2,2] x", "float[6,2]", "c = Concat<axis=0>(x, x) y = Concat<axis=0>(c, x) z = Neg(c)", "float[4,2] z"),
        ],
        "ConcatOfSplit": [
            ("float[N,5] x", "float[N,5]", constants(p=[2, 3]) + "a, b = Split<axis=1>(x, p) y = Concat<axis=-1>(b, a)"),
            ("float[4,4] x", "float[2,8]", constants(p=[2, 2]) + "a, b = Split<axis=0>(x, p) y = Concat<axis=1>(a, b)"),
        ],
        "ConcatOfNeighbours": [
            ("float[N,8] x", "float[N,7]", constants(s=[1], m=[3], e=[8], k=[4], a=[1]) + "b = Slice(x, s, k, a) c = Slice(x, k, e, a) y = Concat<axis=-1>(c, b)"),
            ("float[M] x", "float[K]", constants(s=[0], m=[-1], e=[ALL]) + "b = Slice(x, s, m) c = Slice(x, m, e) y = Concat<axis=0>(b, c)"),
            ("float[8,8] x", "float[16,4]", constants(s=[0], m=[4], e=[8], a=[1]) + "b = Slice(x, s, m, a) c = Slice(x, m, e, a) y = Concat<axis=0>(b, c)"),
            ("float[N,M] x, float[N,M] w", "int64[2]", "b = Shape<end=1>(x) c = Shape<start=1>(w) y = Concat<axis=0>(b, c)"),
        ],
        "ConcatOfRows": [
            ("float[2,N] x", "float[N,2]", ROWS + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=-1>(d, c)"),
            ("float[3,N] x", "float[N,2]", ROWS + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=-1>(c, d)"),
            ("float[2,N] x", "float[N,1]", "i = Constant<value_int=0>() a = Gather(x, i) p = Constant<value_ints=[1]>() c = Unsqueeze(a, p) y = Concat<axis=1>(c)"),
            ("float[K,N] x", "float[N,2]", ROWS + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=-1>(c, d)"),
            ("float[2,N] x", "float[M,1]", ROWS + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=0>(c, d)"),
            ("float[2,N] x, float[2,N] w", "float[N,2]", ROWS.replace("Gather(x", "Gather(w") + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=-1>(c, d)"),
            ("float[2,2] x", "float[2,2]", ROWS.replace("Gather(x", "Gather<axis=1>(x") + "c = Unsqueeze(a, p) d = Unsqueeze(b, q) y = Concat<axis=-1>(c, d)"),
        ],
        "SplitOfConcat": [
            ("float[N,2] x, float[N,2] w", "float[N,1]", constants(p=[1, 3]) + "c = Concat<axis=-1>(x, w) y, b = Split<axis=1>(c, p) z = Abs(b)", "float[N,3] z"),
        ],
        "SplitWithoutSequence": [
            ("float[4,N] x", "float[2,N]", constants(k=2, i=0) + "s = SplitToSequence(x, k) y = SequenceAt(s, i) z = SequenceLength(s)", "int64 z"),
            ("float[M,N] x", "float[K,N]", constants(k=2, i=0) + "s = SplitToSequence(x, k) y = SequenceAt(s, i)"),
            ("float[4,N] x", "float[2,N]", constants(k=2, i=0, j=1) + "a = Size(x) b = Mul(a, i) s = SplitToSequence(x, k) y = SequenceAt(s, i) z = SequenceAt(s, b)", "float[2,N] z"),
            ("float[2,N] x", "float[1,N]", constants(k=[1, 1], i=0) + "s = SplitToSequence<keepdims=0>(x, k) y = SequenceAt(s, i)"),
        ],
        "PadNothing": [("float[N,2] x", "float[N,3]", constants(p=[0, 0, 0, 1]) + "y = Pad(x, p)")],
        "GatherNothing": [
            ("float[N,3] x", "float[N,3]", constants(i=[0, 2, 1]) + "y = Gather<axis=-1>(x, i)"),
            ("float[N,3] x", "float[3,3]", constants(i=[0, 1, 2]) + "y = Gather<axis=0>(x, i)"),
        ],
        "UnsqueezedGather": [("float[N,3,2] x", "float[1,N,2]", constants(i=1, a=[0]) + "c = Gather<axis=1>(x, i) y = Unsqueeze(c, a)")],
        "GatherOfConcat": [
            ("float[N,K] x, float[N,2] w", "float[N]", constants(i=0) + "c = Concat<axis=-1>(x, w) y = Gather<axis=1>(c, i)"),
            ("float[N,1] x, float[N,2] w", "float[N,2]", constants(i=[0, 2]) + "c = Concat<axis=-1>(x, w) y = Gather<axis=1>(c, i)"),
        ],
        "GatherOfSlice": [
            ("float[N,M] x", "float[N]", constants(s=[-2], e=[ALL], a=[1], i=0) + "b = Slice(x, s, e, a) y = Gather<axis=1>(b, i)"),
            ("float[N,M] x", "float[N]", constants(s=[1], e=[-1], a=[1], i=0) + "b = Slice(x, s, e, a) y = Gather<axis=1>(b, i)"),
            ("float[N,M] x", "float[N]", constants(s=[0], e=[ALL], a=[1], t=[2], i=1) + "b = Slice(x, s, e, a, t) y = Gather<axis=1>(b, i)"),
            ("float[4,M] x", "float[M]", constants(s=[1], e=[ALL], a=[1], i=1) + "b = Slice(x, s, e, a) y = Gather<axis=0>(b, i)"),
        ],
        "GatherOfNeighbours": [
            ("float[N,5] x", "float[N,3]", constants(i=[4, 3, 2]) + "y = Gather<axis=-1>(x, i)"),
            ("float[N,5] x", "float[2,5]", constants(i=[0, 1]) + "y = Gather(x, i)"),
            ("float[N,5] x", "float[N,2]", constants(i=[-1, 0]) + "y = Gather<axis=1>(x, i)"),
        ],
        "GatherOfTransposed": [
            ("float[N,3,4] x", "float[4,N]", constants(i=0) + "t = Transpose<perm=[1,2,0]>(x) y = Gather(t, i)"),
            ("float[N,3,4] x", "float[1,N,4]", constants(i=[0]) + "t = Transpose<perm=[1,0,2]>(x) y = Gather(t, i)"),
        ],
        "GatherOfPartedAxis": [
            ("float[N,6] x", "float[N,3]", constants(i=0, s=[0, 3, 2]) + "t = Reshape(x, s) y = Gather<axis=2>(t, i)"),
            ("float[3,2,6] x", "float[2,3,2]", constants(i=0, s=[2, 3, 3, 2]) + "t = Reshape(x, s) y = Gather<axis=2>(t, i)"),
        ],
        "ShapeOfKnownSizes": [("float[N,3] x", "int64[2]", "y = Shape(x)")],
        "GatherOfShape": [("float[N,M,2] x", "int64[2]", constants(i=[1, 0]) + "s = Shape(x) y = Gather(s, i)")],
        "SliceOfShape": [
            ("float[N,M,K] x", "int64[2]", constants(b=[0], e=[ALL], a=[0], t=[2]) + "s = Shape(x) y = Slice(s, b, e, a, t)"),
            ("float[N,M] x", "int64[2]", "b = Constant<value=int64[0]{}>() s = Shape(x) y = Slice(s, b, b)"),
        ],
    }  # fmt: skip

    def test_a_sequence_that_is_a_result_stays(self):
        nodes = constants(k=2, i=0) + "s = SplitToSequence(x, k) y = SequenceAt(s, i)"
        model = parsed(f"agraph (float[4,N] x) => (float[2,N] y, seq(float[2,N]) s) {{ {nodes} }}")
        self.assertEqual(["SplitToSequence", "SequenceAt"], operators(optimize(model)))

    def test_a_sequence_that_a_branch_reads_stays(self):
        branches = "then_branch = t () => (float[2,3] a) { a = SequenceAt(s, j) }, else_branch = e () => (float[2,3] b) { b = Neg(y) }"
        nodes = (
            constants(k=2, i=0, j=1)
            + f"s = SplitToSequence(x, k) y = SequenceAt(s, i) z = If(c) <{branches}>"
        )
        model = parsed(f"agraph (float[4,3] x, bool c) => (float[2,3] y, float[2,3] z) {{ {nodes} }}")
        feeds = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "c": np.array(True)}
        optimized = optimize(model)
        self.assertEqual(["SplitToSequence", "SequenceAt", "If"], operators(optimized))
        for a, b in zip(*(session(item).run(None, feeds) for item in (model, optimized))):
            np.testing.assert_equal(a, b)

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)


class TestGrowingConcat(unittest.TestCase):
    """A value to which each turn of a loop joins another one."""

    def growing(self, count: int) -> onnx.ModelProto:
        """A chain of *count* Concats."""
        turns = " ".join(
            f"n{turn} = {('Sin', 'Abs')[turn % 2]}(n{turn - 1}) y{turn} = Concat<axis=0>(y{turn - 1}, n{turn})"
            for turn in range(1, count + 1)
        )
        return parsed(f"agraph (float[2] y0, float[2] n0) => (float[{2 * count + 2}] y{count}) {{ {turns} }}")

    def test_it_is_one(self):
        model = self.growing(5)
        report = Report()
        optimized = optimize(model, OptimizationOptions(["ConcatConcat"]), report=report)
        self.assertEqual(["Abs", "Sin", "Abs", "Sin", "Abs", "Concat"], operators(optimized))
        self.assertEqual(1, len(report.applications))
        for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
            np.testing.assert_array_equal(a, b)

    def written(self, count: int) -> onnx.ModelProto:
        """Zeros whose rows are written one after the other, each from the one before."""
        turns = " ".join(
            f"g{turn} = Gather<axis=0>(y{turn - 1}, i{turn - 1}) n{turn} = Sin(g{turn}) "
            f"a{turn} = Slice(y{turn - 1}, i0, i{turn}, i0) b{turn} = Slice(y{turn - 1}, i{turn + 1}, end, i0) "
            f"y{turn} = Concat<axis=0>(a{turn}, n{turn}, b{turn})"
            for turn in range(1, count)
        )
        ends = constants(end=[ALL], **{f"i{turn}": [turn] for turn in range(count + 1)})
        return parsed(f"agraph (float[{count},N] y0) => (float[{count},N] y{count - 1}) {{ {ends} {turns} }}")

    def test_rows_that_are_written_are_joined_once(self):
        for opset in (13, 20):
            model = self.written(7)
            model.opset_import[0].version = opset
            optimized = optimize(model)
            self.assertEqual(["Slice", *["Sin"] * 6, "Concat"], operators(optimized))
            for a, b in zip(*(session(item).run(None, drawn(model)) for item in (model, optimized))):
                np.testing.assert_array_equal(a, b)

    def test_the_work_is_linear(self):
        """A long chain takes no more calls of functions a node than a short one."""
        for chain in (self.growing, self.written):
            calls = {}
            for count in (20, 100, 400):  # what is made once is made by the first
                model = ir.from_proto(chain(count))
                events = []
                sys.setprofile(
                    lambda frame, event, _, events=events: events.append(event) if event == "call" else None
                )
                try:
                    optimize(model)
                finally:
                    sys.setprofile(None)
                self.assertEqual(count + 1, len(model.graph))
                calls[count] = len(events) / count
            with self.subTest(chain.__name__):
                self.assertLess(calls[400], 1.2 * calls[100], calls)

    def test_a_function_of_that_name_is_not_taken_apart(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
            agraph (float[2] x) => (float[4] y) { c = local.Concat(x, x) y = Concat<axis=0>(c, x) }
            <opset_import: ["" : 20], domain: "local"> Concat (a, b) => (c) { c = Add(a, b) }"""
        )
        self.assertEqual(["Concat", "Concat"], operators(optimize(model)))


class TestOutside(RuleTestCase):
    """Indices of no element, in a branch that is not taken."""

    def test_they_stay(self):
        joined, parted = "s = Concat<axis=1>(x, x)", constants(p=[0, 3, 2]) + "s = Reshape(r, p)"
        cases = {
            "an axis that is not there": ("GatherOfShape", "int64", "s = Shape(x)", 2, 0),
            "axes that are not there": ("GatherOfShape", "int64[1]", "s = Shape(x)", [-3], 0),
            "one of two values": ("GatherOfConcat", "float[N]", joined, 2, 1),
            "several of two values": ("GatherOfConcat", "float[N,1]", joined, [-3], 1),
            "a piece that is not there": ("GatherOfPartedAxis", "float[N,2]", parted, 3, 1),
        }
        for promise, (rule, result, nodes, index, axis) in cases.items():
            with self.subTest(promise):
                text = f"""agraph (float[N,1] x, float[N,6] r, {result} w) => ({result} y) {{
                    {constants(zero=0)} n = Size(x) never = Less(n, zero) y = If(never) <
                        then_branch = one () => ({result} a) {{ {nodes} {constants(i=index)} a = Gather<axis={axis}>(s, i) }},
                        else_branch = two () => ({result} b) {{ b = Identity(w) }}> }}"""
                self.assert_stays(text, rule=rule)


def as_onnx(values, start, end, step):
    """What a Slice takes, which clamps its start to the elements for negative steps."""
    return values[max(start, -len(values)) if step < 0 else start : end : step]


class TestComposed(unittest.TestCase):
    def test_it_takes_what_two_slices_take(self):
        """Every pair of small slices, for sizes known and unknown."""
        generator = np.random.default_rng(0)
        ends = [-ALL, -7, -3, -1, 0, 1, 2, 4, 9, ENDLESS, ALL]
        known = 0
        for _ in range(4000):
            (a, b, c, d), (s, t) = (
                generator.choice(ends, 4).tolist(),
                generator.choice([-2, -1, 1, 3], 2).tolist(),
            )
            first, second = (a, b, s), (c, d, t)
            for size in range(7):
                values = np.arange(size)
                wanted = as_onnx(as_onnx(values, *first), *second).tolist()
                self.assertEqual(wanted, as_onnx(values, *composed(first, second, size)).tolist())
                span = composed(first, second, "N")
                known += span is not None
                if span is not None:
                    self.assertEqual(wanted, as_onnx(values, *span).tolist(), (first, second, size))
        self.assertGreater(known, 100)


class TestNeighbours(RuleTestCase):
    def test_two_slices_of_what_is_joined_are_it(self):
        """Neither is taken from the part that it is of: beside each other they are one."""
        for first, result in (("float[2,3]", "float[2,7]"), ("float[2,N]", "float[2,M]")):
            with self.subTest(first):
                nodes = constants(s=[0], m=[2], e=[ALL], i=[1]) + (
                    "a = Concat<axis=1>(x, w) c = Concat<axis=1>(a, v) p = Slice(c, s, m, i) q = Slice(c, m, e, i)"
                    " r = Concat<axis=1>(p, q) y = Neg(r)"
                )
                text = f"agraph ({first} x, float[2,2] w, float[2,2] v) => ({result} y) {{ {nodes} }}"
                self.assertEqual(["Concat", "Neg"], operators(optimize(parsed(text))))


class TestPartsInBodies(unittest.TestCase):
    """A buffer that is shifted, of which a branch reads a row, too: what is joined stands where it did."""

    def test_it_stays_in_its_graph(self):
        reads = {
            "a slice": "a = Slice(z, s, e, i)",
            "an element": "a = Gather<axis=1>(z, s)",
        }
        for promise, read in reads.items():
            with self.subTest(promise):
                nodes = constants(s=[1], e=[2], i=[1], all=[ALL]) + (
                    f"c = Concat<axis=1>(x, w) z = Concat<axis=1>(c, v) y = If(b) <then_branch = one () => (float[2,1] a) {{ {read} }},"
                    "else_branch = other () => (float[2,1] o) { o = Identity(v) }> t = Slice(z, s, all, i) r = Concat<axis=1>(t, v)"
                )
                model = parsed(
                    f"agraph (float[2,N] x, float[2,2] w, float[2,1] v, bool b) => (float[2,1] y, float[2,M] r) {{ {nodes} }}"
                )
                optimized = optimize(model)
                for taken in (True, False):
                    feeds = drawn(model) | {"b": np.array(taken)}
                    for one, two in zip(*(session(item).run(None, feeds) for item in (model, optimized))):
                        np.testing.assert_array_equal(one, two)


class TestParts(unittest.TestCase):
    def test_it_takes_what_a_slice_or_an_index_of_all_takes(self):
        """Every slice and every index of parts of all small sizes, the last or the first of which is unknown."""
        known = collections.Counter()
        places = [-ALL, -4, -1, 0, 1, 2, 3, 4, 5, 9, ENDLESS, ALL]
        for sizes in itertools.product(range(3), range(3), range(4)):
            bounds = itertools.accumulate(sizes, initial=0)
            rows = [np.arange(start, start + size) for start, size in zip(bounds, sizes)]
            joined = np.concatenate(rows)
            for unknown in (None, 0, 2):
                shapes = ["N" if place == unknown else size for place, size in enumerate(sizes)]
                values = [
                    ir.Value(name=str(place), shape=ir.Shape([size])) for place, size in enumerate(shapes)
                ]
                for start, end in itertools.product(places, places):
                    around = part_around(values, 0, start, end)
                    known["slice"] += around is not None
                    if around is not None:
                        value, *span = around
                        found = rows[values.index(value)][slice(*span)]
                        self.assertEqual(joined[start:end].tolist(), found.tolist(), (shapes, start, end))
                for index in range(-len(joined), len(joined)):
                    one = part_with(values, 0, index)
                    known["index"] += one is not None
                    if one is not None:
                        self.assertEqual(joined[index], rows[values.index(one[0])][one[1]], (shapes, index))
        self.assertGreater(min(known.values()), 100)


ROWS = ["Transpose", "Gather", "Transpose"]
RANGE = """
zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () two = Constant <value=int64[1] {2}> ()
size = Shape <start=2, end=3> (x) n = Squeeze (size) every = Range (zero, n, one)
"""


def columns(count: int, size: int) -> str:
    """A constant of *count* positions of an axis, which are in no order and may be negative."""
    numbers = ",".join(str((7 * index) % (2 * size) - size) for index in range(count))
    return f"i = Constant <value=int64[{count}] {{{numbers}}}> ()"


def picked(shape: str, count: int, size: int, axis: int = -1, dtype: str = "float") -> str:
    """The text of a model that picks constant positions along an axis of *size* elements."""
    result = shape.split(",")
    result[axis] = str(count)
    gather = f"y = Gather <axis={axis}> (x, i)"
    return f"agraph ({dtype}[{shape}] x) => ({dtype}[{','.join(result)}] y) {{ {columns(count, size)} {gather} }}"


class TestGatherAsRows(RuleTestCase):
    RULE = "GatherAsRows"

    def test_constant_positions(self):
        cases = {
            "a permutation": picked("64,20", 20, 20),
            "of the last of three axes": picked("B,16,32", 8, 32, axis=2),
            "of halves": picked("8,16,32", 64, 32, dtype="float16"),
            "of integers": picked("2,8,4,32", 9, 32, dtype="int64"),
            "two columns": picked("N,512,2", 2, 2),
            "a few rows often": picked("64,3,20", 20, 20),
            "a few rows more": picked("N,2,5,20", 10, 20),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ROWS)

    def test_a_multiple_of_an_unknown_size(self):
        """It is at least its factor, which a reshaped image has."""
        model = parsed(picked("N,3,64", 64, 64))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "4096*N"
        optimized = optimize(model, OptimizationOptions([self.RULE]))
        self.assertEqual(ROWS, operators(optimized))
        self.assertEqual([2, 0, 1], list(optimized.graph.node[0].attribute[0].ints))
        x = np.random.default_rng(0).normal(size=(5, 3, 64)).astype(np.float32)
        wanted, got = (session(item).run(None, {"x": x})[0] for item in (model, optimized))
        np.testing.assert_array_equal(got, wanted)

    def test_positions_computed_from_those_of_all_elements(self):
        text = f"""agraph (float[N,8,W] x) => (float[N,8,K] y) <int64[K] every, int64[K] i>
            {{ {RANGE} twice = Mul (every, two) i = Div (twice, two) y = Gather <axis=2> (x, i) }}"""
        self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Mul", "Div", *ROWS])

    def test_positions_computed_from_a_constant(self):
        """As those of a Resize to a constant size, of a width that is not known."""
        for count in (20, 4):
            every = ",".join(map(str, range(count)))
            text = f"""agraph (float[N,8,W] x) => (float[N,8,{count}] y) <int64[{count}] i>
                {{ size = Shape <start=2, end=3> (x) every = Constant <value=int64[{count}] {{{every}}}> ()
                all = Constant <value=int64[1] {{{count}}}> ()
                far = Mul (every, size) i = Div (far, all) y = Gather <axis=2> (x, i) }}"""
            with self.subTest(count):
                if count == 20:
                    self.assert_becomes(text, ["Shape", "Mul", "Div", *ROWS])
                else:
                    self.assert_stays(text)

    def test_what_it_declines(self):
        cases = {
            "another axis": picked("64,20,20", 20, 20, axis=1),
            "one position": picked("64,20", 1, 20),
            "few of many positions": picked("64,200", 20, 200),
            "perhaps few rows": picked("N,3,20", 20, 20),
            "a small tensor": picked("4,20", 20, 20),
            "a vector": picked("600", 600, 600),
            "positions of two axes": """agraph (float[8,64] x, int64[2,3] z) => (float[8,2,3] y)
                { zero = Sub (z, z) y = Gather <axis=1> (x, zero) }""",
            "any positions": """agraph (float[N,8,W] x, int64[K] z) => (float[N,8,K] y)
                { i = Sub (z, z) y = Gather <axis=2> (x, i) }""",
            "a matrix of unknown rows": f"""agraph (float[N,2,W] x) => (float[N,W] y) <int64[W] every, float[N,W] first>
                {{ {RANGE} at = Constant <value=int64[1] {{1}}> () first = ReduceSum <keepdims=0> (x, at)
                y = Gather <axis=1> (first, every) }}""",
            "the first ones": f"""agraph (float[N,8,W] x) => (float[N,8,W] y) <int64[W] every>
                {{ {RANGE} y = Gather <axis=2> (x, every) }}""",
            "a constant": """agraph (int64[1] z) => (float[4,2] y) {
                t = Constant <value=float[4,2] {1,2,3,4,5,6,7,8}> () i = Constant <value=int64[2] {1,0}> ()
                y = Gather <axis=1> (t, i) }""",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


if __name__ == "__main__":
    unittest.main()
