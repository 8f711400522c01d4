"""Rules of reshapes, squeezes and expansions."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase


class TestReshaping(RuleTestCase):
    BECOME = {
        "ReshapeReshape": [
            ("float[N,6] x", "float[6,N]", "s = Constant<value=int64[2]{-1,3}>() t = Constant<value=int64[2]{6,-1}>() a = Reshape(x, s) y = Reshape(a, t)", ["Reshape"]),
            ("float[2,3] x", "float[6]", "o = Constant<value=int64[1]{0}>() t = Constant<value=int64[1]{6}>() a = Unsqueeze(x, o) y = Reshape(a, t)", ["Reshape"]),
        ],
        "ReshapeToComputedShape": [
            ("float[N,M,6] x", "float[N,M,2,3]", "s = Shape<end=2>(x) u = Constant<value=int64[2]{2,3}>() t = Concat<axis=0>(s, u) y = Reshape<allowzero=1>(x, t)", ["Reshape"]),
            ("float[N,4,6] x", "float[N,24]", "s = Shape<end=1>(x) u = Constant<value=int64[1]{-1}>() t = Concat<axis=0>(s, u) y = Reshape(x, t)", ["Reshape"]),
            ("float[N,M] x", "float[N,1,1,M]", "n = Shape<end=1>(x) m = Shape<start=1>(x) u = Constant<value=int64[2]{1,1}>() t = Concat<axis=0>(n, u, m) y = Reshape<allowzero=1>(x, t)", ["Unsqueeze"]),
            ("float[N,1,M] x", "float[1,N,1,M]", "n = Shape(x) u = Constant<value=int64[1]{1}>() t = Concat<axis=0>(u, n) y = Reshape(x, t)", ["Unsqueeze"]),
            ("float[N,M,6] x", "float[N,K]", "s = Shape<end=1>(x) u = Constant<value=int64[1]{-1}>() t = Concat<axis=0>(s, u) y = Reshape(x, t)", ["Reshape"]),
            ("float[N,6,H,W] x", "float[N,2,3,H,W]", "n = Shape<end=1>(x) m = Shape<start=2>(x) s = Constant<value=int64[2]{2,3}>() t = Concat<axis=0>(n, s, m) y = Reshape(x, t)", ["Unsqueeze", "Reshape"]),
            ("float[N,2,3,H,W] x", "float[N,6,H,W]", "n = Shape<end=1>(x) m = Shape<start=3>(x) s = Constant<value=int64[1]{6}>() t = Concat<axis=0>(n, s, m) y = Reshape(x, t)", ["Reshape", "Squeeze"]),
            ("float[N,2,2,3,H,W] x", "float[N,6,2,H,W]", "n = Shape<end=1>(x) m = Shape<start=4>(x) s = Constant<value=int64[2]{6,2}>() t = Concat<axis=0>(n, s, m) y = Reshape(x, t)", ["Reshape", "Squeeze"]),
        ],
        "ElementwiseOfExpanded": [
            ("float[1,6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) y = Exp(a)", ["Shape", "Exp", "Expand"]),
            ("float[6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) h = Constant<value_float=0.5>() y = Sub(h, a)", ["Shape", "Sub", "Expand"]),
            ("float[6] x, float[N,6] w", "int64[N,6]", "s = Shape(w) a = Expand(x, s) y = Cast<to=7>(a)", ["Shape", "Cast", "Expand"]),
            ("float[N,6] w", "bool[N,6]", "s = Shape(w) t = Constant<value=bool {1}>() a = Expand(t, s) y = Not(a)", ["Shape", "Not", "Expand"]),
            # a number that others read, too
            ("float[N,6] w", "float[N,6]", "s = Shape(w) h = Constant<value_float=-2.0>() a = Expand(h, s) y = Sign(a) z = Mul(a, w)", ["Shape", "Expand", "Sign", "Expand", "Mul"], "float[N,6] z"),
            ("float[N,6] w", "float[N,6]", "s = Shape(w) h = Constant<value=float[1]{-2}>() a = Expand(h, s) y = Neg(a)", ["Shape", "Expand", "Neg", "Expand"], "float[N,6] a"),
        ],
        "ReshapeTwice": [
            ("float[N,6] x", "float[N,2,1,3]", "s = Constant<value=int64[3]{-1,2,3}>() o = Constant<value=int64[1]{2}>() a = Reshape(x, s) y = Unsqueeze(a, o)", ["Reshape"]),
            ("float[N,1,6] x", "float[N,6,1]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{2}>() a = Squeeze(x, o) y = Unsqueeze(a, p)", ["Reshape"]),
            ("float[N,2,3] x", "float[N,6]", "s = Constant<value=int64[4]{0,2,3,1}>() a = Reshape(x, s) y = Flatten(a)", ["Reshape"]),
        ],
        "SqueezeSqueeze": [
            ("float[1,N,1,6,1] x", "float[N,6]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[2]{-1,1}>() a = Squeeze(x, o) y = Squeeze(a, p)", ["Squeeze"]),
        ],
        "SqueezedReduction": [
            ("float[N,4,6] x", "float[N,6]", "o = Constant<value=int64[1]{-2}>() p = Constant<value=int64[1]{1}>() a = ReduceMean(x, o) y = Squeeze(a, p)", ["ReduceMean"]),
            ("float[N,4,6] x", "float[N]", "o = Constant<value=int64[2]{1,2}>() s = Constant<value=int64[1]{-1}>() a = ReduceMax(x, o) y = Reshape(a, s)", ["ReduceMax"]),
            ("float[N,4,6] x", "int64[N,6]", "p = Constant<value=int64[1]{1}>() a = ArgMax<axis=1>(x) y = Squeeze(a, p)", ["ArgMax"]),
        ],
        "UnsqueezedReduction": [
            ("float[N,4,6] x", "float[N,1,6]", "o = Constant<value=int64[1]{-2}>() p = Constant<value=int64[1]{1}>() a = ReduceSum<keepdims=0>(x, o) y = Unsqueeze(a, p)", ["ReduceSum"]),
            ("float[N,4,6] x", "int64[N,1,6]", "p = Constant<value=int64[1]{1}>() a = ArgMin<axis=-2,keepdims=0>(x) y = Unsqueeze(a, p)", ["ArgMin"]),
        ],
        "ReshapeElementwiseReshape": [
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{-1,3}>() t = Constant<value=int64[2]{-1,6}>() a = Reshape(x, s) b = Relu(a) y = Reshape(b, t)", ["Relu"]),
            ("float[N,6] x", "float[N,1,6]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{1}>() q = Constant<value=int64[1]{0}>() two = Constant<value_float=2.0>() a = Unsqueeze(x, o) b = Sub(two, a) c = Exp(b) d = Squeeze(c, q) y = Unsqueeze(d, p)", ["Sub", "Exp", "Unsqueeze"]),
        ],
        "ReshapeGateReshape": [
            ("float[N,6,1] x", "float[N,6,1]", "s = Constant<value=int64[2]{-1,6}>() t = Constant<value=int64[3]{-1,6,1}>() a = Reshape(x, s) g = Sigmoid(a) b = Mul(a, g) y = Reshape(b, t)", ["Sigmoid", "Mul"]),
            ("float[N,6] x", "float[N,1,6]", "o = Constant<value=int64[1]{0}>() t = Constant<value=int64[3]{-1,1,6}>() a = Unsqueeze(x, o) g = Tanh(a) b = Mul(g, a) y = Reshape(b, t)", ["Tanh", "Mul", "Reshape"]),
        ],
        "ReshapedOperands": [
            ("float[N,1,6] x, float[N,1,6] w", "float[N,6]", "o = Constant<value=int64[1]{1}>() a = Squeeze(x, o) b = Squeeze(w, o) y = Sub(b, a)", ["Sub", "Squeeze"]),
            ("float[N,6] x, float[1,6] w", "float[N,6,1]", "o = Constant<value=int64[1]{-1}>() a = Unsqueeze(x, o) b = Unsqueeze(w, o) y = Sub(a, b)", ["Sub", "Unsqueeze"]),
            ("float[N,6] x, float[N,6] w", "float[N,2,3]", "s = Constant<value=int64[3]{0,2,3}>() a = Reshape(x, s) b = Reshape(w, s) y = Sub(a, b)", ["Sub", "Reshape"]),
        ],
        "ExpandExpand": [
            ("float[1,6] x", "float[2,4,6]", "s = Constant<value=int64[2]{4,6}>() t = Constant<value=int64[3]{2,1,1}>() a = Expand(x, s) y = Expand(a, t)", ["Expand"]),
            ("float[N,1] x", "float[2,N,6]", "s = Constant<value=int64[2]{1,6}>() t = Constant<value=int64[3]{2,1,1}>() a = Expand(x, s) y = Expand(a, t)", ["Expand"]),
        ],
        "ExpandedOperand": [
            ("float[1,300] x, float[N,300] w", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Sub(a, w)", ["Sub"]),
            ("float[1,6] x, float[4,6] w", "float[4,6]", "s = Constant<value=int64[2]{4,6}>() a = Expand(x, s) y = Mul(w, a)", ["Mul"]),
            ("float[M,N] w, float[M,1] x", "float[M,N]", "s = Shape(w) a = Expand(x, s) y = Div(a, w)", ["Div"]),
            ("float[1,300] x, float[N,300] w", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Sub(a, w) z = Mul(a, w)", ["Sub", "Mul"], "float[N,300] z"),
            ("float[1,300] x, float[N,300] w", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Sub(w, a)", ["Sub"]),
            ("float[N,1] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) y = Sub(w, a)", ["Sub"]),
            ("float[N,1,1] x, float[N,2,3] w", "bool[N,2,3]", "s = Shape(w) a = Expand(x, s) y = Less(w, a)", ["Less"]),
        ],
        "ExpandedOperandsOfWhere": [
            ("bool[1,300] x, float[N,300] w", "float[N,300]", "s = Shape(w) a = Expand(x, s) z = Constant<value_float=0.0>() e = Expand(z, s) y = Where(a, w, e)", ["Where"]),
            ("bool[1,300] x, float[N,300] w, float[N,300] k", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Where(a, w, k) z = Where(a, k, w)", ["Where", "Where"], "float[N,300] z"),
        ],
        "ReshapeNothing": [
            ("float[N,M] x", "float[N,M]", "s = Shape(x) a = Reshape(x, s) y = Neg(a)", ["Neg"]),
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{-1,6}>() a = Reshape(x, s) y = Neg(a)", ["Neg"]),
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{0,6}>() a = Reshape(x, s) y = Neg(a)", ["Neg"]),
        ],
        "SqueezeUnsqueeze": [
            ("float[N,6] x", "float[N,6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{-2}>() a = Unsqueeze(x, o) b = Squeeze(a, p) y = Neg(b)", ["Neg"]),
            ("float[N,6] x", "float[1,N,1,6]", "o = Constant<value=int64[3]{3,0,1}>() p = Constant<value=int64[1]{1}>() a = Unsqueeze(x, o) y = Squeeze(a, p)", ["Unsqueeze"]),
        ],
        "UnsqueezeSqueeze": [
            ("float[N,1,6] x", "float[N,1,6]", "o = Constant<value=int64[1]{1}>() a = Squeeze(x, o) b = Unsqueeze(a, o) y = Neg(b)", ["Neg"]),
        ],
        "UnsqueezeUnsqueeze": [
            ("float[N,6] x", "float[1,N,6,1]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{-1}>() a = Unsqueeze(x, o) y = Unsqueeze(a, p)", ["Unsqueeze"]),
            ("float[N,6] x", "float[1,1,N,6]", "o = Constant<value=int64[1]{0}>() a = Unsqueeze(x, o) y = Unsqueeze(a, o)", ["Unsqueeze"]),
            ("float[N,6] x", "float[1,N,1,1,6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[2]{0,2}>() a = Unsqueeze(x, o) y = Unsqueeze(a, p)", ["Unsqueeze"]),
        ],
        "ExpandNothing": [
            ("float[2,6] x", "float[2,6]", "s = Constant<value=int64[2]{1,6}>() a = Expand(x, s) y = Neg(a)", ["Neg"]),
        ],
    }  # fmt: skip
    STAY = {
        "ReshapeReshape": [
            ("float[N,M] x", "float[1,N,M]", "o = Constant<value=int64[1]{0}>() t = Constant<value=int64[3]{1,0,-1}>() a = Unsqueeze(x, o) y = Reshape(a, t)"),
        ],
        "ReshapeToComputedShape": [
            ("float[N,M,6] x", "float[M,N,6]", "n = Shape<end=1>(x) m = Shape<start=1,end=2>(x) s = Constant<value=int64[1]{6}>() t = Concat<axis=0>(m, n, s) y = Reshape(x, t)"),
            ("float[N,M] x", "float[M,1,N]", "n = Shape<end=1>(x) m = Shape<start=1>(x) s = Constant<value=int64[1]{1}>() t = Concat<axis=0>(m, s, n) y = Reshape(x, t)"),
            ("float[N,M] x, float[K] k", "float[N,1,K]", "n = Shape<end=1>(x) m = Shape(k) s = Constant<value=int64[1]{1}>() t = Concat<axis=0>(n, s, m) y = Reshape(x, t)"),
            ("float[N,M,6] x, float[2,K] k", "float[N,K,A]", "n = Shape<end=1>(x) m = Shape<start=1>(k) s = Constant<value=int64[1]{-1}>() t = Concat<axis=0>(n, m, s) y = Reshape(x, t)"),
            ("float[N,6,H,W] x, float[N,6,H,W] w", "float[N,2,3,H,W]", "n = Shape<end=1>(x) m = Shape<start=2>(x) s = Constant<value=int64[2]{2,3}>() t = Concat<axis=0>(n, s, m) y = Reshape(x, t) z = Reshape(w, t) k = Add(n, n) l = Neg(m)", "float[N,2,3,H,W] z, int64[1] k, int64[2] l"),
            ("float[N,3,1,H,W] x", "float[N,6,H,W]", "n = Shape<end=1>(x) m = Shape<start=3>(x) s = Constant<value=int64[1]{6}>() t = Concat<axis=0>(n, s, m) r = Constant<value=int64[3]{2,1,1}>() e = Expand(x, r) y = Reshape(e, t)"),
            ("float[N,6,H,W] x", "float[N,2,3,W,H]", "n = Shape<end=1>(x) h = Shape<start=2,end=3>(x) w = Shape<start=3>(x) s = Constant<value=int64[2]{2,3}>() t = Concat<axis=0>(n, s, w, h) y = Reshape(x, t)"),
        ],
        "ReshapeTwice": [
            ("float[N,M,6] x", "float[N,M,1,2,3]", "n = Shape<end=2>(x) s = Constant<value=int64[2]{2,3}>() t = Concat<axis=0>(n, s) o = Constant<value=int64[1]{2}>() a = Reshape(x, t) y = Unsqueeze(a, o) z = Neg(a)", "float[N,M,2,3] z"),
            ("float[N,M,1] x", "float[1,N,M]", "o = Constant<value=int64[1]{2}>() p = Constant<value=int64[1]{0}>() a = Squeeze(x, o) y = Unsqueeze(a, p)"),
        ],
        "SqueezedReduction": [
            ("float[N,4,1] x", "float[N,1]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{1}>() a = ReduceMean(x, o) y = Squeeze(a, p) z = Neg(a)", "float[N,1,1] z"),
            ("float[N,1,4] x", "float[N,4]", "o = Constant<value=int64[1]{2}>() s = Constant<value=int64[2]{-1,4}>() b = Neg(x) p = Constant<value=int64[1]{1}>() y = Squeeze(b, p)"),
        ],
        "UnsqueezedReduction": [
            ("float[N,4,6] x", "float[N,6,1]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{2}>() a = ReduceSum<keepdims=0>(x, o) y = Unsqueeze(a, p)"),
            ("float[N,4,6] x", "int64[N,6,1]", "p = Constant<value=int64[1]{2}>() a = ArgMax<axis=1,keepdims=0>(x) y = Unsqueeze(a, p)"),
        ],
        "ReshapeElementwiseReshape": [
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{-1,3}>() t = Constant<value=int64[2]{-1,6}>() k = Constant<value=float[3]{1.0,2.0,3.0}>() a = Reshape(x, s) b = Add(a, k) y = Reshape(b, t)"),
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{-1,3}>() t = Constant<value=int64[2]{-1,6}>() a = Reshape(x, s) b = Relu(a) y = Reshape(b, t) z = Neg(b)", "float[K,3] z"),
            ("float[N,6] x", "float[N,6]", "s = Constant<value=int64[2]{-1,3}>() t = Constant<value=int64[2]{-1,6}>() a = Reshape(x, s) b = Softmax(a) y = Reshape(b, t)"),
        ],
        "ReshapeGateReshape": [
            ("float[N,6,1] x", "float[N,6,1]", "s = Constant<value=int64[2]{-1,6}>() t = Constant<value=int64[3]{-1,6,1}>() a = Reshape(x, s) g = Sigmoid(a) b = Mul(a, g) y = Reshape(b, t) z = Neg(a)", "float[N,6] z"),
            ("float[N,6,1] x", "float[N,6,1]", "s = Constant<value=int64[2]{-1,6}>() t = Constant<value=int64[3]{-1,6,1}>() a = Reshape(x, s) g = Sigmoid(a) b = Add(a, g) y = Reshape(b, t)"),
            ("float[N,6,1] x, float[N,6,1] w", "float[N,6,1]", "s = Constant<value=int64[2]{-1,6}>() t = Constant<value=int64[3]{-1,6,1}>() a = Reshape(x, s) c = Reshape(w, s) g = Sigmoid(c) b = Mul(a, g) y = Reshape(b, t)"),
        ],
        "ReshapedOperands": [
            ("float[N,1,6] x, float[1,1,6] w", "float[N,6]", "s = Constant<value=int64[2]{-1,6}>() a = Reshape(x, s) b = Reshape(w, s) y = Sub(b, a)"),
            ("float[N,6] x, float[6] w", "float[N,6,6]", "o = Constant<value=int64[1]{1}>() a = Unsqueeze(x, o) b = Unsqueeze(w, o) y = Sub(a, b)"),
            ("float[N,6] x, float[N,6] w", "float[N,2,3]", "s = Constant<value=int64[3]{0,2,3}>() a = Reshape(x, s) b = Reshape(w, s) y = Sub(a, b) z = Neg(a)", "float[N,2,3] z"),
        ],
        "ExpandExpand": [
            ("float[1,6] x, float[N,6] w", "float[2,N,6]", "s = Shape(w) t = Constant<value=int64[3]{2,1,1}>() a = Expand(x, s) y = Expand(a, t)"),
        ],
        "ExpandedOperand": [
            ("float[1,300] x, float[1,300] w, float[N,300] k", "float[N,300]", "s = Shape(k) a = Expand(x, s) y = Sub(a, w)"),
            ("float[1,300] x, float[M,300] w, float[N,300] k", "float[N,300]", "s = Shape(k) a = Expand(x, s) y = Sub(a, w)"),
            ("float[1,300] x, float[N,300] w", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Sub(a, w) z = Neg(a)", "float[N,300] z"),
            ("float[1,300] x, float[N,300] w, float[1,300] k", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Sub(a, w) z = Mul(a, k)", "float[N,300] z"),
            ("float[1,300] x, float[N,300] w", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = PRelu(a, w)"),
            ("float[1,6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) y = Sub(w, a)"),
            ("float[1,N,1] x, float[M,N,6] w", "float[M,N,6]", "s = Shape(w) a = Expand(x, s) y = Sub(w, a)"),
        ],
        "ExpandedOperandsOfWhere": [
            ("bool[1,300] x, float[1,300] w, float[N,300] k", "float[N,300]", "s = Shape(k) a = Expand(x, s) z = Constant<value_float=0.0>() y = Where(a, w, z)"),
            ("bool[1,300] x, float[N,300] w, float[N,300] k", "float[N,300]", "s = Shape(w) a = Expand(x, s) y = Where(a, w, k) z = Not(a)", "bool[N,300] z"),
        ],
        "ElementwiseOfExpanded": [
            ("float[1,6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) b = Cast<to=16>(a) y = Cast<to=1>(b)"),
            ("bool[1,6] x, float[N,6] w", "bool[N,6]", "s = Shape(w) a = Expand(x, s) y = Not(a)"),
            ("float[N,6] w", "float[N,6]", "s = Shape(w) t = Constant<value=bool {1}>() a = Expand(t, s) y = Cast<to=1>(a)"),
            ("float[1,6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) k = Constant<value=float[6]{1,2,3,4,5,6}>() y = Mul(a, k)"),
            ("float[6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) k = Constant<value=float[1,1]{2}>() y = Mul(a, k)"),
            ("float[1,6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) y = Exp(a) z = Neg(a)", "float[N,6] z"),
            ("float[1,6] x, float[N,6] w", "float[N,6]", "s = Shape(w) a = Expand(x, s) y = Exp(a)", "float[N,6] a"),
            ("float[N,2] w", "float[N,2]", "s = Shape(w) h = Constant<value=float[2]{1,2}>() a = Expand(h, s) y = Exp(a) z = Neg(a)", "float[N,2] z"),
            ("float[N,2] w", "float[N,2]", "s = Shape(w) h = Constant<value_float=2.0>() k = Constant<value=float[2]{1,2}>() a = Expand(h, s) y = Mul(a, k) z = Neg(w)", "float[N,2] z"),
        ],
        "ReshapeNothing": [("float[2,6] x", "float[6,2]", "s = Constant<value=int64[2]{6,2}>() y = Reshape(x, s)")],
        "SqueezeUnsqueeze": [
            ("float[1,6] x", "float[1,6]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{1}>() a = Unsqueeze(x, o) b = Squeeze(a, p) y = Neg(b)"),
            ("float[1,6] x", "float[6,1]", "o = Constant<value=int64[1]{2}>() p = Constant<value=int64[1]{0}>() a = Unsqueeze(x, o) y = Squeeze(a, p)"),
            ("float[1,6] x", "float[6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[2]{0,1}>() a = Unsqueeze(x, o) y = Squeeze(a, p)"),
        ],
        "UnsqueezeSqueeze": [
            ("float[N,1,6] x", "float[1,N,6]", "o = Constant<value=int64[1]{1}>() p = Constant<value=int64[1]{0}>() a = Squeeze(x, o) y = Unsqueeze(a, p)"),
            ("float x", "float[1]", "o = Constant<value=int64[0]{}>() p = Constant<value=int64[1]{0}>() a = Squeeze(x, o) y = Unsqueeze(a, p)"),
        ],
        "ExpandNothing": [
            ("float[1,6] x", "float[2,6]", "s = Constant<value=int64[2]{2,6}>() y = Expand(x, s)"),
            ("float[1,6] x, float[4,6] w", "float[4,6]", "s = Shape(w) y = Expand(x, s)"),
        ],
    }  # fmt: skip

    def repeated(
        self,
        nodes: str = "m = Where(a, zero, low) y = Add(w, m)",
        x: str = "bool[1,1,S,S] x",
        repeat: str = "l = Shape <start=2> (w) s = Concat <axis=0> (n, one, l) a = Expand(x, s)",
        more: str = "",
        results: str = "",
        known: str = "bool[N,1,S,S] a, float[N,1,S,S] m",
    ) -> str:
        """A sum with what is chosen by an expanded condition, or looked up at expanded positions."""
        return f"""agraph ({x}, float[N,2,S,S] w{more}) => (float[N,2,S,S] y{results}) <{known}> {{
        low = Constant <value_float=-1.0> () zero = Constant <value_float=0.0> () ones = Constant <value=int64[3]{{1,1,1}}> ()
        one = Constant <value=int64[1]{{1}}> () n = Shape <end=1> (w) {repeat} {nodes} }}"""

    def test_add_of_expanded(self):
        rule, after = "AddOfExpanded", ["Where", "Add"]
        self.assert_becomes(self.repeated(), after, rule=rule)
        self.assert_becomes(
            self.repeated(repeat="r = Concat <axis=0> (n, ones) a = Tile(x, r)"), after, rule=rule
        )
        self.assert_becomes(
            self.repeated(
                "m = Where(a, zero, low) y = Add(m, w) z = Mul(w, m)", results=", float[N,2,S,S] z"
            ),
            ["Shape", "Shape", "Concat", "Expand", "Where", *after, "Mul"],
            rule=rule,
        )
        self.assert_becomes(
            self.repeated("m = Where(a, zero, low) v = Add(w, m) y = Add(v, m)"),
            ["Where", "Add", "Add"],
            rule=rule,
        )
        self.assert_becomes(
            "agraph (float[N,2,300] w, float[4,300] t) => (float[N,2,300] y) <int64[N,2] a, float[N,2,300] g> "
            "{ x = Constant <value=int64[1,2]{3,1}> () n = Shape <end=1> (w) one = Constant <value=int64[1]{1}> () "
            "p = Concat <axis=0> (n, one) a = Tile (x, p) g = Gather (t, a) y = Add (g, w) }",
            ["Gather", "Add"],
            rule=rule,
        )

    def test_what_add_of_expanded_declines(self):
        cases = {
            "a result": self.repeated(results=", float[N,1,S,S] m"),
            "another reader": self.repeated(
                "m = Where(a, zero, low) y = Add(w, m) z = Neg(m)", results=", float[N,1,S,S] z"
            ),
            "a sum that it makes larger": self.repeated(more=", float[1,2,S,S] v").replace(
                "Add(w, m)", "Add(v, m)"
            ),
            "a mask of one query, which attention does not take": self.repeated(x="bool[1,1,1,S] x"),
            "no numbers": self.repeated(more=", float[N,1,S,S] v").replace("(a, zero, low)", "(a, v, low)"),
            "numbers that add axes": self.repeated(x="bool[S] x").replace(
                "zero = Constant <value_float=0.0> ()", "zero = Constant <value=float[1,1,1,1]{0}> ()"
            ),
            "positions along another axis": (
                "agraph (float[2,N,3] w, float[2,4] t) => (float[2,N,3] y) <int64[N,3] a, float[2,N,3] g> "
                "{ x = Constant <value=int64[1,3]{3,1,0}> () n = Shape <start=1> (w) a = Expand (x, n) "
                "g = Gather <axis=1> (t, a) y = Add (g, w) }"
            ),
            "elements that are repeated in turns": (
                "agraph (float[6,300] w, float[4,300] t) => (float[6,300] y) <int64[6] a> "
                "{ x = Constant <value=int64[3]{3,1,0}> () two = Constant <value=int64[1]{2}> () a = Tile (x, two) "
                "g = Gather (t, a) y = Add (g, w) }"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule="AddOfExpanded")

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_attributes_that_are_inputs_now(self):
        """The rows of the runtime are for the inputs."""
        sizes = "i = Constant <value=int64[3] {1,-1,1}> () j = Constant <value=int64[1] {-1}> ()"
        for rule, opset, result, nodes, expected in (
            ("SqueezedReduction", 11, "float[7]", "p = ReduceSum<axes=[0,2]>(x) q = Squeeze<axes=[0,2]>(p) y = Neg(q)", ["ReduceSum", "Neg"]),
            ("SqueezedReduction", 12, "float[7]", f"{sizes} p = ReduceSum<axes=[0,2]>(x) q = Reshape(p, j) y = Neg(q)", ["ReduceSum", "Neg"]),
            ("UnsqueezedReduction", 12, "float[1,7,1]", f"{sizes} p = ReduceSum<axes=[0,2], keepdims=0>(x) q = Reshape(p, i) y = Neg(q)", ["ReduceSum", "Neg"]),
            ("ReshapeElementwiseReshape", 10, "float[3,7,4]", "u = Unsqueeze<axes=[0]>(x) k = Clip<min=-1.0, max=1.0>(u) y = Squeeze<axes=[0]>(k)", ["Clip"]),
        ):  # fmt: skip
            with self.subTest(nodes):
                text = f"agraph (float[3,7,4] x) => ({result} y) {{ {nodes} }}"
                self.assert_becomes(text, expected, rule=rule, opset=opset)


if __name__ == "__main__":
    unittest.main()
