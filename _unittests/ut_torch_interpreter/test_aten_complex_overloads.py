"""Overloads of complex numbers beside those of the tables of their families: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

torch.manual_seed(0)

aten = torch.ops.aten
Z = torch.randn(3, 4, dtype=torch.complex64)
CUBE = torch.randn(2, 4, 4, dtype=torch.complex64)
ROWS, MASK = torch.tensor([2, 0]), torch.tensor([True, False])


def gradients(x):
    """Every overload: spacings by number, by axis, by coordinates."""
    ticks = [torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.0, 0.5, 1.0, 4.0])]
    return [
        aten.gradient.scalarint(x, spacing=2.0, dim=1),
        aten.gradient.scalararray(x, spacing=2.0, dim=[0, 1]),
        aten.gradient.array(x, dim=[0, 1]),
        aten.gradient.scalarrayint(x, spacing=[2.0], dim=1),
        aten.gradient.scalarrayarray(x, spacing=[2.0, 0.5], dim=[0, 1]),
        aten.gradient.tensorarrayint(x, spacing=ticks[1:], dim=1),
        aten.gradient.tensorarray(x, spacing=ticks, dim=[0, 1]),
    ]


def written(x):
    """Written through a view whose first axis was the last."""
    aten.moveaxis.int(x, 0, -1)[0].mul_(2j)
    return x


class TestComplexOverloads(ExporterTestCase):
    CASES = {
        "arithmetic with numbers": (
            each(aten.multiply.Scalar, aten.divide.Scalar, aten.true_divide.Scalar), Z, 2.5 - 1j),
        "differences": (aten.subtract.Tensor, Z, Z[0]),
        "softmax of the real parts": (each(aten.softmax.int, aten.log_softmax.int), Z, -1, torch.float32),
        "gradients": (gradients, Z),
        "integrals": (
            lambda y, x: (
                aten.trapezoid.x(y, x), aten.cumulative_trapezoid.x(y, x), aten.trapz.dx(y, dx=0.5)),
            Z, torch.tensor([0.0, 1.0, 1.5, 4.0])),
        "powers of matrices": (aten.matrix_power.default, CUBE, 3),
        "norms": (
            lambda x: (aten.linalg_matrix_norm.default(x, 1.0), aten.linalg_norm.ord_str(x, "fro", [0, 1])), Z),
        "indices": (
            lambda x, i: (
                aten._unsafe_index.Tensor(x, [None, i]), aten._unsafe_index_put.default(x, [i], x[:2] * 2),
                aten.index_fill.int_Tensor(x, 1, i, x[0, 0]), aten.repeat_interleave.self_Tensor(x[:2], i, 0)),
            Z, ROWS),
        "masked indices": (
            lambda x, m, i: (
                aten._unsafe_masked_index.default(x, m, [i], -5.0),
                aten._unsafe_masked_index_put_accumulate.default(x, m, [i], x[:2])),
            Z[0], MASK, ROWS),
        "at least some axes": (
            lambda x, y: (
                aten.atleast_1d.Sequence([x, y]), aten.atleast_2d.Sequence([x, y]), aten.atleast_3d.Sequence([x, y])),
            Z, torch.tensor(2j)),
        "combined": (
            lambda x, y: (
                aten.cartesian_prod.default([x, y]), aten.meshgrid.default([x, y]),
                aten.meshgrid.indexing([x, y], indexing="xy")),
            Z[0], Z[1, :2]),
        "combinations of one": (aten.combinations.default, Z[0], 1),
        "split": (
            lambda x: (aten.vsplit.int(x, 2), aten.hsplit.array(x, [1, 3]), aten.dsplit.array(x, [2])), CUBE),
        "made like another": (
            lambda x: (
                aten.new_ones.default(x, [2]), aten.zero.default(x), aten.empty_like.default(x).fill_(1j),
                aten.new_empty.default(x, [2]).fill_(1j), aten.new_empty_strided.default(x, [2, 3], [3, 1]).fill_(2)),
            Z),
        "seen in another shape": (
            lambda x: (aten._reshape_alias.default(x, [4, 3], [3, 1]), aten.resize.default(x, [2, 3])), Z),
        "convolutions": (
            lambda x, w: (
                aten.conv1d.padding(x[:, :, 0, 0], w[:, :, 0, 0], None, [1], "same"),
                aten.conv3d.padding(x, w, None, [1], "valid"),
                aten.conv_transpose3d.input(x, w, None, [2, 1, 1])),
            torch.randn(1, 2, 3, 4, 5, dtype=torch.complex64), torch.randn(2, 2, 2, 2, 3, dtype=torch.complex64)),
        "other names": (
            lambda x, y: (
                aten.moveaxis.int(x, -1, 0), aten.moveaxis.intlist(x, [-1, 0], [0, 1]),
                aten.concatenate.default([y, y], 1), aten.row_stack.default([y, y]),
                aten.not_equal.Tensor(x, y), aten.not_equal.Scalar(y, 1.0),
                aten.subtract.Scalar(x, 1.5), aten.subtract.Scalar(x, 2 - 1j),
                aten.where.default(y * torch.tensor([1.0, 0.0, 1.0, 0.0]))),
            CUBE, CUBE[0]),
        "other names of functions": (
            each(
                aten.special_exp2.default, aten.special_expit.default, aten.special_expm1.default,
                aten.special_log1p.default, aten.special_sinc.default,
                lambda x: aten.special_logsumexp.default(x, [-1])),
            CUBE),
        "norms of matrices": (
            lambda x: (
                aten.frobenius_norm.dim(x, [-1]), aten.frobenius_norm.dim(x, [0, 1], True),
                aten.nuclear_norm.default(x[0])),
            CUBE),
        "products of several": (aten.chain_matmul.default, [Z, CUBE[0], CUBE[1]]),
        "written on the diagonal": (
            lambda x: (
                aten.fill_diagonal_.default(x[0].clone(), 2.5),
                x.clone()[:, :3].reshape(6, 4).fill_diagonal_(2 - 1j, True)),
            CUBE),
        "the size of another": (aten.resize_as.default, CUBE, Z),
        "around": (aten._pad_circular.default, CUBE, [1, 2]),
        "no NaN": (
            aten.nan_to_num.default, torch.tensor([complex(math.nan, 1), complex(math.inf, math.nan), -math.inf]), 7.0),
        "a moved axis, written": (lambda x: written(x.clone()), CUBE),
        "nothing dropped, and all": (
            lambda x: [aten.dropout.default(x, *given) for given in ((0.5, False), (0.0, True), (1.0, True))], CUBE),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_sizes(self):
        sizes = lambda z: (aten.sym_size.int(z, -1), aten.sym_numel.default(z), z * 2)
        self.assert_same_as_eager(sizes, Z, others=[(Z.t(),)])


if __name__ == "__main__":
    unittest.main()
