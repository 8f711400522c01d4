"""What rules know of shapes."""

import unittest

import onnx_ir as ir

from _unittests.ut_xoptim.cases import parsed
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
        prepare(model, nodes_of(model.graph), set())
        nodes = {node.outputs[0].name: node for node in model.graph}
        self.assertEqual([-1, M, 8], told_sizes(nodes["a"].outputs[0]))
        self.assertEqual([M, 8], shape_after(nodes["r"])[1:])
        for name in "ry":
            nodes[name].outputs[0].shape = None
        self.assertEqual([UNKNOWN, M, 8], shape_after(nodes["r"]))
        self.assertEqual([N, UNKNOWN, UNKNOWN, 8], shape_after(nodes["y"]))
        self.assertIsNone(told_sizes(nodes["y"].outputs[0]))


if __name__ == "__main__":
    unittest.main()
