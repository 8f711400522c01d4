"""What rules know of shapes."""

import unittest

import numpy as np
import onnx_ir as ir

from _unittests.ut_xoptim.cases import parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize
from experimental_experiment.xoptim.graphs import nodes_of
from experimental_experiment.xoptim.optimizer import prepare
from experimental_experiment.xoptim.shapes import (
    broadcast,
    reshape_target,
    same_sizes,
    shape_after,
    told_sizes,
)

N, M, UNKNOWN = ir.SymbolicDim("N"), ir.SymbolicDim("M"), ir.SymbolicDim(None)


class TestShapes(unittest.TestCase):
    def test_equal_sizes(self):
        self.assertTrue(same_sizes([N, 2], [ir.SymbolicDim("N"), 2]))
        for a, b in (([N], [M]), ([UNKNOWN], [UNKNOWN]), ([2], [N]), ([2], [2, 2]), (None, None)):
            self.assertFalse(same_sizes(a, b))

    def test_broadcast(self):
        for shapes, expected in (
            ([[N, 1], [1, 3], []], [N, 3]),
            ([[3], [N, 3]], [N, 3]),
            ([[N], [M]], None),
            ([[N], [3]], None),
            ([[3], None], None),
        ):
            self.assertEqual(expected, broadcast(shapes))

    def test_reshape_target(self):
        for shape, result, expected in (
            ([N, 6], [N, 2, 3], [0, 2, 3]),
            ([N, M, 6], [N, M, 2, 3], [0, 0, 2, 3]),
            ([N, 6], [2, N, 3], [2, -1, 3]),
            ([N, M], [M, N], None),
            ([N, M, 6], [N, UNKNOWN], None),
            ([2, 3], [0], None),
        ):
            self.assertEqual(expected, reshape_target(shape, result))
        self.assertEqual([0, -1], reshape_target([N, M, 6], [N, UNKNOWN], may_be_empty=False))

    def test_what_computed_shapes_tell(self):
        """Without inference: the vector is made of a -1, of sizes, and of a number that the data give."""
        model = ir.from_proto(
            parsed(
                """agraph (float[N,4,M,8] x, int64 k) => (float[A,B,C,D] y) {
                s = Shape(x) m = Shape<start=2,end=3>(x) h = Shape<end=2>(x) q = Squeeze(m)
                one = Constant<value=int64[1]{-1}>() zero = Constant<value=int64[1]{0}>() w = Constant<value=int64[1]{8}>()
                u = Unsqueeze(q, zero) v = Unsqueeze(k, zero)
                a = Concat<axis=0>(one, u, w) b = Concat<axis=0>(zero, v, one, w)
                r = Reshape(x, a) y = Reshape(x, b) }"""
            )
        )
        prepare(model, nodes_of(model.graph), "onnxruntime", set())
        nodes = {node.outputs[0].name: node for node in model.graph}
        self.assertEqual([-1, M, 8], told_sizes(nodes["a"].outputs[0]))
        self.assertEqual([M, 8], shape_after(nodes["r"])[1:])
        for name in "ry":
            nodes[name].outputs[0].shape = None
        self.assertEqual([UNKNOWN, M, 8], shape_after(nodes["r"]))
        self.assertEqual([N, UNKNOWN, UNKNOWN, 8], shape_after(nodes["y"]))
        self.assertIsNone(told_sizes(nodes["y"].outputs[0]))

    def test_sizes_side_by_side_are_read_by_rows(self):
        """Columns of sizes that are joined and flattened are in another order than those below one another."""
        for axis, result, is_told in ((1, "A,C,B,D", False), (0, "A,B,C,D", True)):
            text = f"""agraph (float[A,B,C,D] x) => (float[{result}] y) {{ one = Constant<value=int64[1]{{1}}>()
                all = Constant<value=int64[1]{{-1}}>() s = Shape<end=2>(x) t = Shape<start=2>(x) a = Unsqueeze(s, one) b = Unsqueeze(t, one)
                c = Concat<axis={axis}>(a, b) v = Reshape(c, all) y = Reshape(x, v) }}"""
            with self.subTest(axis=axis):
                model = ir.from_proto(parsed(text))
                prepare(model, nodes_of(model.graph), "onnxruntime", set())
                (value,) = (node.outputs[0] for node in model.graph if node.outputs[0].name == "v")
                self.assertEqual(
                    [*"ABCD"] if is_told else [None] * 4, [size.value for size in told_sizes(value)]
                )

    def test_a_branch_with_sizes_side_by_side(self):
        """A body, whose sizes inference does not name: the model computes the same."""
        nodes = """s = Shape<end=2>(x) t = Shape<start=2>(x) a = Unsqueeze(s, one) b = Unsqueeze(t, one) c = Concat<axis=1>(a, b)
            v = Reshape(c, all) o = Reshape(x, v) p = Relu(o)"""
        model = parsed(
            f"""agraph (float[A,3,C,5] x, bool k) => (float[?,?,?,?] y) <int64[1] one = {{1}}, int64[1] all = {{-1}}> {{
            y = If(k) <then_branch = t () => (float[?,?,?,?] p) {{ {nodes} }},
                else_branch = e () => (float[?,?,?,?] q) {{ q = Transpose<perm=[0, 2, 1, 3]>(x) }}> }}"""
        )
        for k in (True, False):
            feeds = {"x": np.ones((2, 3, 4, 5), np.float32), "k": np.array(k)}
            wanted, got = (session(item).run(None, feeds)[0] for item in (model, optimize(model)))
            np.testing.assert_equal(wanted, got)


if __name__ == "__main__":
    unittest.main()
