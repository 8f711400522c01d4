"""Complex tensors through structural and linear operators: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each
from experimental_experiment.torch_interpreter import ExportError

torch.manual_seed(0)

aten = torch.ops.aten


def randn(*shape, dtype=torch.complex64):
    """A complex tensor of random numbers."""
    return torch.randn(*shape, dtype=dtype)


X = randn(2, 3, 4)
M = randn(3, 4)
INDEX = torch.tensor([[0, 2, 1, 0]])
MASK = torch.tensor([[True, False, True, False]] * 3)


class TestComplexStructure(ExporterTestCase):
    MOVED = {
        "_reshape_copy": (aten._reshape_copy.default, X, [3, -1]),
        "_unsafe_view": (aten._unsafe_view.default, X, [3, -1]),
        "as_strided": (aten.as_strided.default, X, [2, 2], [1, 3], 2),
        "atleast_1d": (aten.atleast_1d.default, torch.tensor(1j)),
        "atleast_2d": (aten.atleast_2d.default, randn(3)),
        "atleast_3d": (aten.atleast_3d.default, randn(3)),
        "broadcast_to": (aten.broadcast_to.default, M, [2, 3, 4]),
        "broadcast_tensors": (aten.broadcast_tensors.default, [M, X]),
        "broadcast_tensors, one real": (aten.broadcast_tensors.default, [M, X.real]),
        "block_diag": (aten.block_diag.default, [M, randn(2)]),
        "cat with a real tensor": (aten.cat.default, [M, torch.randn(3, 2)], -1),
        "chunk": (aten.chunk.default, X, 2, -1),
        "column_stack": (aten.column_stack.default, [randn(3), M]),
        "concat": (aten.concat.default, [M, M], 1),
        "constant_pad_nd": (aten.constant_pad_nd.default, M, [1, 2, -1, 0], 1.5),
        "constant_pad_nd zeros": (aten.constant_pad_nd.default, M, [1, 2, -1, 0]),
        "copy": (aten.copy.default, M, randn(4)),
        "cumsum": (aten.cumsum.default, X, -2),
        "diag": (aten.diag.default, M, 1),
        "diag_embed": (aten.diag_embed.default, M, 0, -1, -2),
        "diagflat": (aten.diagflat.default, randn(3)),
        "diagonal": (aten.diagonal.default, X, 0, -2, -1),
        "diagonal_backward": (aten.diagonal_backward.default, randn(3), [4, 3], 0, 1, 0),
        "diagonal_scatter": (aten.diagonal_scatter.default, M, randn(3)),
        "diff": (aten.diff.default, M),
        "dstack": (aten.dstack.default, [M, M]),
        "embedding": (aten.embedding.default, M, torch.tensor([[2, 0]])),
        "expand": (aten.expand.default, M, [2, -1, 4]),
        "expand_as": (aten.expand_as.default, M, X),
        "fill": (aten.fill.Scalar, M, 1 - 2j),
        "fill with a tensor": (aten.fill.Tensor, M, torch.tensor(1 - 2j)),
        "fill with a real tensor": (aten.fill.Tensor, M, torch.tensor(1.5)),
        "col2im": (aten.col2im.default, randn(1, 8, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        "flatten": (aten.flatten.using_ints, X, -2, -1),
        "expand from below": (aten.expand.default, M, [2, -1, 4]),
        "flatten the last axes": (aten.flatten.using_ints, X, -2, -1),
        "flip": (aten.flip.default, X, [-1]),
        "fliplr": (aten.fliplr.default, M),
        "flipud": (aten.flipud.default, M),
        "full": (lambda z: aten.full.default([2, 3], 1 - 2j) + z, randn(3)),
        "scalar_tensor": (lambda z: aten.scalar_tensor.default(1 - 2j, dtype=torch.complex64) + z, randn(3)),
        "full_like": (aten.full_like.default, M, 2),
        "gather": (aten.gather.default, M, -2, INDEX),
        "hstack": (aten.hstack.default, [M, M]),
        "scatter that adds": (lambda x, i, y: aten.scatter.reduce(x, 1, i, y, reduce="add"), M, INDEX, M),
        "ldexp": (aten.ldexp.Tensor, M, torch.tensor([2, -1, 0, 60])),
        "index": (aten.index.Tensor, X, [None, None, INDEX[0]]),
        "index_add": (aten.index_add.default, M, -1, torch.tensor([0, 0]), randn(3, 2)),
        "index_copy": (aten.index_copy.default, M, -1, torch.tensor([0, 3]), randn(3, 2)),
        "index_put": (aten.index_put.default, M, [torch.tensor([0, 2])], randn(4)),
        "index_select": (aten.index_select.default, X, -1, INDEX[0]),
        "linalg_diagonal": (aten.linalg_diagonal.default, X),
        "masked_fill": (aten.masked_fill.Scalar, M, MASK, 2j),
        "masked_fill with a tensor": (aten.masked_fill.Tensor, M, MASK, torch.tensor(1j)),
        "masked_select": (aten.masked_select.default, M, MASK),
        "mT": (aten.mT.default, X),
        "movedim": (aten.movedim.int, X, -1, 0),
        "movedim of a list": (aten.movedim.intlist, X, [-1, 0], [0, 1]),
        "narrow": (aten.narrow.default, X, -1, 1, 2),
        "new_full": (aten.new_full.default, M, [2, 2], 3 - 1j),
        "new_zeros": (aten.new_zeros.default, M, [2, 2]),
        "numpy_T": (aten.numpy_T.default, X),
        "ones_like": (aten.ones_like.default, M),
        "pad with zeros": (aten.pad.default, X, [1, 0, 0, 2]),
        "pad by reflection": (aten.pad.default, X, [1, 2], "reflect"),
        "pad": (aten.pad.default, M, [1, 1], "constant", 2.0),
        "pad_sequence": (aten.pad_sequence.default, [M, randn(5, 4)], True, 1.5),
        "pad_sequence with a real tensor": (aten.pad_sequence.default, [M, torch.randn(2, 4)], False, 0.0, "left"),
        "permute": (aten.permute.default, X, [-1, 0, 1]),
        "ravel": (aten.ravel.default, X),
        "repeat": (aten.repeat.default, M, [2, 1, 2]),
        "repeat_interleave": (aten.repeat_interleave.self_int, M, 2, -1),
        "reshape": (aten.reshape.default, X, [-1, 2]),
        "reshape_as": (aten.reshape_as.default, X, randn(6, 4)),
        "roll": (aten.roll.default, X, [1], [-1]),
        "rot90": (aten.rot90.default, X, 1, [-2, -1]),
        "scatter": (aten.scatter.src, M, -2, INDEX, randn(1, 4)),
        "scatter a number": (aten.scatter.value, M, -2, INDEX, 2.0),
        "scatter_add": (aten.scatter_add.default, M, -2, INDEX, randn(1, 4)),
        "select": (aten.select.int, X, -1, 2),
        "select_scatter": (aten.select_scatter.default, M, randn(3), -1, 0),
        "slice": (aten.slice.Tensor, X, -1, 1, 3),
        "slice_scatter": (aten.slice_scatter.default, M, randn(3, 2), -1, 1, 3),
        "split": (aten.split.Tensor, X, 2, -1),
        "split_with_sizes": (aten.split_with_sizes.default, X, [1, 3], -1),
        "squeeze": (aten.squeeze.default, randn(1, 3, 1)),
        "squeeze an axis": (aten.squeeze.dim, randn(1, 3, 1), -1),
        "squeeze axes": (aten.squeeze.dims, randn(1, 3, 1), [-1, 0]),
        "stack": (aten.stack.default, [M, M], -1),
        "swapaxes": (aten.swapaxes.default, X, 0, -1),
        "swapdims": (aten.swapdims.default, X, 0, -1),
        "t": (aten.t.default, M),
        "take": (aten.take.default, M, INDEX),
        "take_along_dim": (aten.take_along_dim.default, M, INDEX, -2),
        "tensor_split": (aten.tensor_split.sections, X, 3, -1),
        "tensor_split at indices": (aten.tensor_split.indices, X, [1, 2], -1),
        "tile": (aten.tile.default, M, [2, 2]),
        "transpose": (aten.transpose.int, X, -1, 0),
        "tril": (aten.tril.default, X),
        "triu": (aten.triu.default, X, 1),
        "unbind": (aten.unbind.int, X, -1),
        "unflatten": (aten.unflatten.int, X, -1, [2, 2]),
        "unfold": (aten.unfold.default, X, -1, 2, 1),
        "unsafe_chunk": (aten.unsafe_chunk.default, X, 2, -1),
        "unsafe_split": (aten.unsafe_split.Tensor, X, 2, -1),
        "unsqueeze": (aten.unsqueeze.default, X, -1),
        "view": (aten.view.default, X, [6, 4]),
        "view_as": (aten.view_as.default, X, randn(6, 4)),
        "view_copy": (aten.view_copy.default, X, [6, 4]),
        "vstack": (aten.vstack.default, [M, M]),
        "where": (aten.where.self, MASK, M, torch.randn(3, 4)),
        "where with a number": (aten.where.ScalarOther, MASK, M, 2.0),
        "where of two numbers": (lambda c: [aten.where.Scalar(c, 1j, 2.0), torch.where(c, 2, 1 - 1j)], MASK),
        "where with a first number": (aten.where.ScalarSelf, MASK, 2.0, M),
        "zeros_like": (aten.zeros_like.default, M),
        "masked_scatter_backward": (aten.masked_scatter_backward.default, M, MASK, [6]),
        "reflection_pad1d": (aten.reflection_pad1d.default, X, [1, 2]),
        "reflection_pad2d": (aten.reflection_pad2d.default, X, [1, 2, 2, 1]),
        "reflection_pad3d": (aten.reflection_pad3d.default, randn(1, 2, 3, 2), [1, 0, 1, 2, 1, 0]),
        "reflection_pad1d_backward": (aten.reflection_pad1d_backward.default, randn(3, 7), M, [1, 2]),
        "reflection_pad2d_backward": (aten.reflection_pad2d_backward.default, randn(2, 6, 7), X, [1, 2, 2, 1]),
        "reflection_pad3d_backward": (
            aten.reflection_pad3d_backward.default, randn(1, 3, 6, 3), randn(1, 2, 3, 2), [1, 0, 1, 2, 1, 0]),
        "replication_pad1d": (aten.replication_pad1d.default, X, [1, 2]),
        "replication_pad2d": (aten.replication_pad2d.default, X, [1, 2, 2, 1]),
        "replication_pad3d": (aten.replication_pad3d.default, randn(1, 2, 3, 2), [1, 0, 1, 2, 1, 0]),
        "replication_pad1d_backward": (aten.replication_pad1d_backward.default, randn(3, 7), M, [1, 2]),
        "replication_pad2d_backward": (aten.replication_pad2d_backward.default, randn(2, 6, 7), X, [1, 2, 2, 1]),
        "replication_pad3d_backward": (
            aten.replication_pad3d_backward.default, randn(1, 3, 6, 3), randn(1, 2, 3, 2), [1, 0, 1, 2, 1, 0]),
        "select_backward": (aten.select_backward.default, M, [3, 5, 4], -2, 3),
        "select_backward to a vector": (aten.select_backward.default, M[0, 0], [5], 0, -2),
        "slice_backward": (aten.slice_backward.default, M, [3, 9], -1, 1, 9, 2),
        "slice_backward of sums": (lambda x: aten.slice_backward(x.exp(), [3, 9], 1, 1, 9, 2), M),
        "unfold_backward": (aten.unfold_backward.default, randn(2, 3, 3), [2, 7], -1, 3, 2),
    }  # fmt: skip
    SUMS = {
        "add of a 0-d complex128": (aten.add.Tensor, M, torch.tensor(1 + 2j, dtype=torch.complex128)),
        "sub from a 0-d complex128": (aten.sub.Tensor, torch.tensor(1 + 2j, dtype=torch.complex128), M),
        "adjoint": (aten.adjoint.default, X),
        "mH": (aten.mH.default, X),
        "matrix_H": (aten.matrix_H.default, M),
        "addmm": (aten.addmm.default, randn(2), M, randn(4, 2), {"alpha": 2 - 1j, "beta": 0.5j}),
        "addmm without self": (aten.addmm.default, randn(2) * torch.nan, M, randn(4, 2), {"beta": 0}),
        "addmv": (aten.addmv.default, randn(3), M, randn(4)),
        "baddbmm": (aten.baddbmm.default, randn(3, 5), X, randn(2, 4, 5), {"alpha": 3}),
        "bmm": (aten.bmm.default, X, randn(2, 4, 5)),
        "dot": (aten.dot.default, randn(4), randn(4)),
        "einsum": (aten.einsum.default, "ij,kj,j->ik", [M, randn(2, 4), randn(4)]),
        "inner": (aten.inner.default, M, randn(2, 4)),
        "kron": (aten.kron.default, M, randn(2, 2)),
        "linalg_cross": (aten.linalg_cross.default, randn(2, 3), randn(2, 3)),
        "linalg_matmul": (aten.linalg_matmul.default, X, randn(4, 5)),
        "linalg_multi_dot": (aten.linalg_multi_dot.default, [M, randn(4, 2), randn(2, 5)]),
        "linalg_vecdot": (aten.linalg_vecdot.default, X, M),
        "linear": (aten.linear.default, X, randn(5, 4), randn(5)),
        "linear without bias": (aten.linear.default, M, randn(5, 4)),
        "matmul": (aten.matmul.default, X, randn(4)),
        "mean": (aten.mean.default, X),
        "mean of an axis": (aten.mean.dim, X, [-1]),
        "mm": (aten.mm.default, M, randn(4, 2)),
        "mv": (aten.mv.default, M, randn(4)),
        "outer": (aten.outer.default, randn(4), randn(3)),
        "add": (aten.add.Tensor, X, M),
        "add what is apart": (lambda x, y: x + torch.complex(y.real, y.imag * 2) + y.conj().real, X, M),
        "add of no axes": (aten.add.Tensor, X[0, 0, 0], M[0, 0], {"alpha": 2}),
        "add in complex128": (aten.add.Tensor, X, M.to(torch.complex128)),
        "rsub": (aten.rsub.Tensor, X, M),
        "rsub from a number": (aten.rsub.Scalar, X, 2),
        "sub": (aten.sub.Tensor, X, M),
        "sum": (aten.sum.default, X),
        "sum of an axis": (aten.sum.dim_IntList, X, [-1], True),
        "tensordot": (aten.tensordot.default, X, M, [-1], [-1]),
        "trace": (aten.trace.default, M),
        "vdot": (aten.vdot.default, randn(4), randn(4)),
    }  # fmt: skip

    COPIES = {
        "copies of views": (
            each(
                aten.alias_copy.default,
                aten.detach_copy.default,
                lambda x: aten.as_strided_copy.default(x, [2, 2], [1, 3], 2),
                lambda x: aten.diagonal_copy.default(x, 1, 1, 2),
                lambda x: aten.expand_copy.default(x, [2, 2, 3, 4]),
                lambda x: aten.narrow_copy.default(x, 1, 1, 2),
                lambda x: aten.permute_copy.default(x, [2, 0, 1]),
                lambda x: aten.select_copy.int(x, -1, 1),
                lambda x: aten.slice_copy.Tensor(x, 1, 1, 3),
                lambda x: aten.split_copy.Tensor(x, 2, 1),
                lambda x: aten.split_with_sizes_copy.default(x, [1, 2], 1),
                lambda x: aten.squeeze_copy.default(x[:1]),
                lambda x: aten.squeeze_copy.dim(x[:1], 0),
                lambda x: aten.squeeze_copy.dims(x[:1], [0]),
                lambda x: aten.t_copy.default(x[0]),
                lambda x: aten.transpose_copy.int(x, 0, -1),
                lambda x: aten.unbind_copy.int(x, 1),
                lambda x: aten.unfold_copy.default(x, 2, 2, 1),
                lambda x: aten.unsqueeze_copy.default(x, -1),
            ),
            X,
        ),
        "splits": (
            each(
                lambda x: aten.hsplit.int(x, 3),
                lambda x: aten.vsplit.array(x, [1]),
                lambda x: aten.dsplit.int(x, 2),
                lambda x: aten.tensor_split.tensor_indices_or_sections(x, torch.tensor([1, 3]), -1),
            ),
            X,
        ),
        "more splits": (
            each(
                lambda x: aten.hsplit.array(x, [1]),
                lambda x: aten.vsplit.int(x, 2),
                lambda x: aten.dsplit.array(x, [1, 3]),
            ),
            X,
        ),
        "atleast, of a list": (
            each(
                lambda x: aten.atleast_1d.Sequence([x, x[0]]),
                lambda x: aten.atleast_2d.Sequence([x, x[0, 0]]),
                lambda x: aten.atleast_3d.Sequence([x, x[0]]),
            ),
            X,
        ),
        "indices": (
            each(
                lambda x, i: aten._unsafe_index.Tensor(x, [None, i]),
                lambda x, i: aten._unsafe_index_put.default(x, [None, i], x[:, :2], True),
                lambda x, i: aten._unsafe_masked_index.default(x[0, 0], i > 1, [i], 2),
                lambda x, i: aten._unsafe_masked_index_put_accumulate.default(
                    x[0, 0], i > 1, [i], x[0, 0, :2]
                ),
                lambda x, i: aten.index_fill.int_Tensor(x, 1, i, x[0, 0, 0]),
            ),
            X,
            torch.tensor([2, 0]),
        ),
        "empty ones": (
            each(
                lambda x: aten.empty_like.default(x).zero_(),
                lambda x: aten.new_empty.default(x, [2, 3]).zero_(),
                lambda x: aten.new_empty_strided.default(x, [2, 3], [3, 1]).zero_(),
                lambda x: aten.resize.default(x, [2, 5]),
            ),
            X,
        ),
        "channels": (
            each(
                lambda x: aten.channel_shuffle.default(x, 2),
                lambda x: aten.pixel_shuffle.default(x, 2),
                lambda x: aten.pixel_unshuffle.default(x, 2),
                lambda x: aten.im2col.default(x, [2, 2], [1, 1], [1, 0], [1, 2]),
            ),
            randn(1, 4, 4, 2),
        ),
        "combinations": (lambda v: aten.combinations.default(v, 1), randn(4)),
        "cartesian_prod": (lambda v: aten.cartesian_prod.default([v, v + 1]), randn(3)),
        "meshgrid": (
            lambda v, w: [aten.meshgrid.default([v, w]), aten.meshgrid.indexing([v, w], indexing="xy")],
            randn(3),
            randn(2),
        ),
        "repeat_interleave": (
            lambda x, n: aten.repeat_interleave.self_Tensor(x, n, 1),
            X,
            torch.tensor([1, 0, 2]),
        ),
        "sum_to_size": (aten.sum_to_size.default, X, [1, 3, 1]),
        "zero": (
            lambda x: [
                aten.zero.default(x),
                aten.subtract.Tensor(x, x * 2),
                aten._reshape_alias.default(x, [6, 4], [4, 1]),
            ],
            X,
        ),
        "index_fill": (aten.index_fill.int_Scalar, X, 1, torch.tensor([0, 2]), 1 - 2j),
        "put": (aten.put.default, X, torch.tensor([0, 5, -1]), randn(3)),
        "masked_scatter": (aten.masked_scatter.default, M, MASK, randn(12)),
        "as_strided_scatter": (aten.as_strided_scatter.default, M, randn(2, 2), [2, 2], [1, 3], 2),
        "diff with both ends": (lambda x: torch.diff(x, prepend=x[..., :1], append=x[..., :2]), X),
        "add a number": (lambda x: [aten.add.Scalar(x, 2), aten.sub.Scalar(x, 1j, 2)], X),
        "ones": (
            lambda x: [
                torch.ones_like(x),
                aten.new_ones.default(x, [2, 3]),
                torch.ones_like(x, dtype=torch.float32),
            ],
            X,
        ),
        "constants": (
            lambda x: [torch.zeros_like(x.real, dtype=x.dtype), x.new_full((2,), 3, dtype=torch.complex128)],
            X,
        ),
        "spaced": (
            lambda x: [x + torch.linspace(0, 1j, 4), x + torch.logspace(0, 1, 4, dtype=torch.complex64)],
            X,
        ),
    }
    PRODUCTS = {
        "cross": (aten.cross.default, X, randn(2, 3, 4), 1),
        "addr": (aten.addr.default, M, randn(3), randn(4), {"beta": 1j, "alpha": 0.5}),
        "addr, some real": (aten.addr.default, M, randn(3).real, randn(4)),
        "addr, of float64": (aten.addr.default, M.real.double(), randn(3), randn(4).imag),
        "addbmm": (aten.addbmm.default, M, randn(2, 3, 5), randn(2, 5, 4), {"beta": 0.5, "alpha": 2j}),
        "conv1d": (aten.conv1d.default, X, randn(5, 3, 2), randn(5)),
        "conv2d, same": (aten.conv2d.padding, randn(1, 2, 5, 5), randn(4, 1, 3, 3), randn(4), [1, 1], "same", [1, 1], 2),
        "conv2d": (aten.conv2d.default, randn(1, 2, 5, 5), randn(3, 2, 3, 3), None, [2, 1], [1, 0]),
        "conv3d": (aten.conv3d.default, randn(1, 2, 3, 4, 4), randn(3, 2, 2, 2, 2), randn(3)),
        "conv1d, valid": (aten.conv1d.padding, X, randn(5, 3, 2), randn(5), [1], "valid"),
        "conv3d, same": (aten.conv3d.padding, randn(1, 2, 3, 4, 4), randn(3, 2, 2, 2, 2), None, [1, 1, 1], "same"),
        "conv_transpose3d": (aten.conv_transpose3d.input, randn(1, 2, 3, 2, 2), randn(2, 3, 2, 2, 2), randn(3)),
        "conv_transpose1d": (aten.conv_transpose1d.default, X, randn(3, 2, 2), randn(2), [2]),
        "conv_transpose2d": (aten.conv_transpose2d.input, randn(1, 2, 3, 3), randn(2, 3, 2, 2), None, [2, 1]),
    }  # fmt: skip

    def test_elements_that_move(self):
        self.assert_cases(self.MOVED, dynamic=False)

    def test_products_and_sums(self):
        self.assert_cases(self.SUMS, dynamic=False)

    def test_copies(self):
        self.assert_cases(self.COPIES, dynamic=False)

    def test_products(self):
        self.assert_cases(self.PRODUCTS, dynamic=False)

    def test_scattered_numbers_are_only_added(self):
        with self.assertRaisesRegex(ExportError, "complex numbers that are scattered are only added"):
            self.assert_same_as_eager(
                lambda x, i, y: aten.scatter.reduce(x, 1, i, y, reduce="multiply"), M, INDEX, M
            )

    def test_dynamic_convolution(self):
        others = [(randn(3, 3, 9), randn(5, 3, 2), randn(5))]
        self.assert_same_as_eager(aten.conv1d.default, X, randn(5, 3, 2), randn(5), others=others)

    def test_dynamic_sizes(self):
        def move(z):
            return torch.cat([z.flatten(1), z.transpose(-1, 1).flatten(1)], dim=-1).roll(1, -1)

        self.assert_same_as_eager(move, X, others=[(randn(5, 2, 3),)])

    def test_a_spectrum_stays_whole(self):
        """What a layer between two Fourier transforms does: what comes whole is cut, moved and written in one node each."""

        def layer(z, w):
            out = torch.zeros_like(z)
            out[:, :2, -2:] = (z + w)[:, -2:, :2].transpose(1, 2).flip(-1)
            out[:, 0] = z[:, 1]
            return torch.cat([out, z.unsqueeze(-1).squeeze(-1)], -1).sum(-2)

        model = self.assert_same_as_eager(layer, X, X * 2, others=[(randn(5, 3, 4), randn(5, 3, 4))])
        self.assertEqual(len(model.graph.node), 15)
        model = self.assert_same_as_eager(
            lambda z, w: (
                torch.where(z.real > 0, z, w)[..., None].expand(-1, -1, -1, 2) - w.narrow(-1, 1, 1)[..., None]
            ),
            X,
            X * 2,
            others=[(randn(5, 2, 3), randn(5, 2, 3))],
        )
        kinds = [node.op_type for node in model.graph.node]
        self.assertEqual(kinds, "Gather Greater Unsqueeze Where Unsqueeze Expand Slice Unsqueeze Sub".split())

    def test_parts_have_the_sizes_of_their_number(self):
        """What torch says of a product of dynamic sizes is known of its parts, which a squeeze takes apart."""

        def outer(z):
            products = torch.einsum("ij,kj->ik", z, z.conj())
            return products.reshape(z.shape[0], 1, -1).squeeze(1)

        self.assert_same_as_eager(outer, M, others=[(randn(2, 5),)])

    def test_writes_through_adjoints(self):
        def write(z):
            z = z.clone()
            z.mH[0].fill_(1 + 2j)
            z.H[:, 1].add_(z[0])
            z.adjoint().mul_(1j)
            return z

        self.assert_same_as_eager(write, M)

    def test_a_complex_exponent(self):
        with self.assertRaisesRegex(ExportError, "a complex other"):
            self.assert_same_as_eager(aten.ldexp.Tensor, M, M)

    def test_float64(self):
        self.assert_same_as_eager(
            aten.matmul.default, randn(2, 3, dtype=torch.complex128), randn(3, 2).to(torch.complex128)
        )


if __name__ == "__main__":
    unittest.main()
