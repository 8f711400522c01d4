"""Rows of older operator sets, and what those refuse by name."""

import itertools
import unittest

import onnx
import onnx_ir as ir
import torch

from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx
from experimental_experiment.torch_interpreter.runtime.reductions import REDUCTIONS

aten = torch.ops.aten
F = torch.nn.functional
X = torch.randn(4, 6)
BITS = torch.tensor([-(2**63), -(2**40) - 3, -1, 0, 1, 2**40 + 3, 2**62, 2**63 - 1])
ANY_SIZE = {"dynamic_shapes": (({0: "rows"},),)}


def reduction(operator):
    """A translation of the sum that writes this reduction."""
    return {aten.sum.dim_IntList: lambda op, self, dim: op.emit(operator, (self, dim), {"keepdims": 0})}


def sums(x):
    return x.sum([1])  # of one element that is 1: most reductions give the same


def as_float64(op, self, dtype):
    """A translation of the cast to float64 that writes CastLike."""
    return op.CastLike(self, op.constant(0, dtype))


def bfloat16_zeros(op, self):
    """A translation that writes zeros with an attribute of bfloat16."""
    zero = onnx.helper.make_tensor("zero", onnx.TensorProto.BFLOAT16, [1], [0])
    return op.ConstantOfShape(op.shape_of(self), value=ir.from_proto(zero))


def image(op, self, dim, keepdim):
    """A translation of the mean of an image that writes RoiAlign."""
    mode = "output_half_pixel"
    return op.RoiAlign(self, [[0.0, 0.0, 4.0, 4.0]], [0], coordinate_transformation_mode=mode)


ROWS = {
    **{
        f"{operator}.axes_as_attribute": (sums, torch.ones(4, 1), {"translations": reduction(operator)})
        for operator in REDUCTIONS
        if operator not in ("ReduceSum", "ReduceLogSum", "ReduceLogSumExp")
    },
    "ReduceLogSum.axes_as_attribute": (
        lambda x: x.logsumexp([1]),
        X,
        {
            "translations": {
                aten.logsumexp.default: lambda op, self, dim: op.ReduceLogSum(op.Exp(self), dim, keepdims=0)
            }
        },
    ),
    "ReduceLogSumExp.axes_as_attribute": (lambda x: x.logsumexp([1]), X),
    "Attention.of_two_products": (F.scaled_dot_product_attention, *[torch.randn(2, 3, 4, 5)] * 3),
    "BitCast.bits_from_the_value": (lambda x: x.view(torch.int64), torch.randn(3).double()),
    "BitwiseAnd.bit_by_bit": (lambda a, b: a & b, BITS, BITS.flip(0)),
    "BitwiseNot.distance_from_all_ones": (lambda a: ~a, BITS),
    "BitwiseOr.sum_without_common_bits": (lambda a, b: a | b, BITS, BITS.flip(0)),
    "BitwiseXor.sum_without_carries": (lambda a, b: a ^ b, BITS, BITS.flip(0)),
    "CastLike.a_cast": (lambda x: x.double(), X, {"translations": {aten.to.dtype: as_float64}}),
    "CumProd.scanned_product": (lambda x: x.cumprod(1), X),
    "GroupNormalization.groups_of_channels": (lambda x: F.group_norm(x, 3), X, {"runtime": "onnx"}),
    "HardSwish.times_hard_sigmoid": (F.hardswish, X),
    "LayerNormalization.layers_by_deviation": (lambda x: F.layer_norm(x, (6,)), X),
    "Mish.times_tanh_of_softplus": (F.mish, X),
    "RMSNormalization.root_of_mean_square": (lambda x: F.rms_norm(x, (6,)), X),
    "Reshape.without_zeros": (
        lambda x: x.reshape(x.shape[1], x.shape[0]),
        X,
        {"dynamic_shapes": (({0: "rows", 1: "columns"},),), "others": [(torch.randn(8, 3),)]},
    ),
    "Shape.slice_of_sizes": (lambda x: x + x.shape[0], X, {**ANY_SIZE, "others": [(torch.randn(8, 6),)]}),
    "Split.given_sizes": (
        lambda x: F.glu(x, 0),
        X,
        {"dynamic_shapes": (({0: 2 * torch.export.Dim("half")},),), "others": [(torch.randn(10, 6),)]},
    ),
    "Trilu.where_columns_are": (lambda x: x.tril(-1), X),
}


OTHER_ROWS = {
    "Cast.without_float8": (lambda x: x.to(torch.float8_e4m3fn), X),
    "RoiAlign.without_half_pixels": (lambda x: x.mean((2, 3), keepdim=True), torch.ones(1, 2, 5, 5)),
    "ScatterElements.without_extrema": (
        lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), X, torch.zeros(2, 6).long(), torch.randn(2, 6),
    ),
    "ScatterND.without_extrema": (
        lambda w, i, starts: F.embedding_bag(i, w, starts, mode="max"), X, torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1]),
    ),
}  # fmt: skip
"""Rows that refuse; those that have a test of their own."""


class TestOperatorSets(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_whole_integers(self):
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
            a = torch.randint(-(2**31), 2**31, (5, 3)).to(dtype)
            both = (lambda a, b: (a & b, a | b, a ^ b, ~a, a >> 2), a, a.flip(0))
            with self.subTest(dtype):
                self.assert_same_as_eager(*both, target_opset=13)

    def test_parts_of_any_size(self):
        self.assert_same_as_eager(lambda x: x.reshape(-1, 4)[:, :2].max(1), X, target_opset=13)
        for axis in (0, 1):
            self.assert_same_as_eager(lambda x, axis=axis: F.glu(x, axis), X, target_opset=13)

    def test_triangles_of_any_size(self):
        others = [(torch.randn(n, m), 0) for n, m in ((3, 7), (1, 1), (0, 4), (5, 0))]
        for function, diagonal in itertools.product((torch.tril, torch.triu), (-2, 0, 1)):
            with self.subTest(function.__name__, diagonal=diagonal):
                self.assert_same_as_eager(function, X, diagonal, others=others, target_opset=13)

    def test_a_causal_mask_takes_seven_nodes(self):
        q = torch.randn(2, 3, 4, 8)
        model = self.export_and_compare(
            Call(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (q,), {}),
            (q,),
            dynamic_shapes=(({2: "sequence"},),),
            others=[(torch.randn(2, 3, n, 8),) for n in (1, 7, 0)],
            target_opset=13,
        )
        self.assertEqual(13, len(model.graph.node))

    def test_boxes(self):
        function, x = OTHER_ROWS["RoiAlign.without_half_pixels"]
        model = to_onnx(function, (x,), target_opset=15, translations={aten.mean.dim: image})
        self.assertEqual([], [a.name for a in model.graph.node[0].attribute])

    REFUSED = {
        "ONNX RoiAlign does not move boxes by half a pixel in opset 15: raise target_opset to 16": (
            OTHER_ROWS["RoiAlign.without_half_pixels"],
            15,
            {aten.mean.dim: lambda op, self, dim, keepdim: op.RoiAlign(self, [[0.0, 0.0, 4.0, 4.0]], [0])},
        ),
        "ONNX ScatterElements has no reduction='max' in opset 13: raise target_opset to 18": (
            OTHER_ROWS["ScatterElements.without_extrema"], 13, None,
        ),
        "ONNX ScatterND has no reduction='max' in opset 17: raise target_opset to 18": (
            OTHER_ROWS["ScatterND.without_extrema"], 17, None,
        ),
        "ONNX ScatterElements has no reduction='add' in opset 15: raise target_opset to 16": (
            (lambda x, i: x.scatter_add(0, i, x), X, torch.zeros(4, 6).long()), 15, None,
        ),
        "ONNX has no float8 before opset 19: raise target_opset to 19": (
            OTHER_ROWS["Cast.without_float8"], 18, None,
        ),
        "output has unsupported type tensor(bfloat16) of ONNX ConstantOfShape in opset 18: raise target_opset to 20": (
            (lambda x: x.neg(), X), 18, {aten.neg.default: bfloat16_zeros},
        ),
        "neither ONNX Scan nor a cast around it computes BFLOAT16 in opset 15: raise target_opset to 16": (
            (lambda x: x.cummax(0)[0], X.bfloat16()), 15, None,
        ),
        "ONNX If does not carry BFLOAT16 in opset 15: raise target_opset to 16": (
            (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), X.bfloat16()), 15, None,
        ),
        "ONNX HannWindow does not exist in opset 15: raise target_opset to 17": (
            (lambda x: x.neg(), X), 15, {aten.neg.default: lambda op, self: op.HannWindow(op.size(self, 0))},
        ),
        "ONNX Nothing does not exist in opset 15: no version has it": (
            (lambda x: x.neg(), X), 15, {aten.neg.default: lambda op, self: op.Nothing(self)},
        ),
        "the axes of ONNX ReduceMax are computed in opset 17: raise target_opset to 18": (
            (lambda x: x.neg(), X), 17, {aten.neg.default: lambda op, self: op.ReduceMax(self, op.NonZero(self))},
        ),
        "a size of 0 in ONNX Reshape does not exist in opset 13: raise target_opset to 14": (
            (lambda x: x.reshape(0, 3), torch.ones(3, 0)), 13, None,
        ),
    }  # fmt: skip

    def test_what_older_sets_refuse(self):
        for message, ((function, *args), opset, translations) in self.REFUSED.items():
            with self.subTest(message):
                with self.assertRaises(ExportError) as caught:
                    to_onnx(function, tuple(args), target_opset=opset, translations=translations)
                self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
