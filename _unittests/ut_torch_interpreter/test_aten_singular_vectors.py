"""Singular vectors and eigenvectors in programs that give the same for all of their signs: as eager; the others are refused."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.errors import ExportError

torch.manual_seed(0)

aten = torch.ops.aten
A = torch.randn(2, 3, 3)
WIDE, TALL = torch.randn(2, 3, 5), torch.randn(2, 5, 3).double()
PLANE = torch.cat([A[:, :2], 2 * A[:, :1] - A[:, 1:2]], 1)
SVD, EIGH = torch.linalg.svd, torch.linalg.eigh


def symmetric(x):
    """Positive semidefinite matrices, with their eigenvalues and eigenvectors."""
    return EIGH(x @ x.mT)


def rotation(x):
    """Kabsch's rotation: the last singular value counts with the sign of the determinant."""
    u, s, vh = SVD(x)
    turn = torch.det(u @ vh)
    return (u * torch.cat([torch.ones_like(s)[..., :-1], turn[..., None]], -1)[..., None, :]) @ vh


def rotation_by_a_diagonal(x):
    """The determinant is written to a diagonal matrix."""
    u, _, v = torch.svd(x)
    diagonal = torch.eye(3, dtype=x.dtype)[None].repeat(x.shape[0], 1, 1)
    diagonal[:, -1, -1] = torch.det(u @ v.transpose(2, 1))
    return u.bmm(diagonal).bmm(v.transpose(2, 1))


def rotation_by_elements(x):
    """Zeros get a diagonal, one element after the other, or all at once."""
    u, _, vh = SVD(x)
    diagonal, other = x.new_zeros(x.shape[0], 3, 3), torch.zeros_like(x)
    for index in range(2):
        diagonal[:, index, index] = 1.0
    diagonal[..., 2, 2] = torch.det(u @ vh)
    other.diagonal(dim1=-2, dim2=-1)[:] = 2.0
    return u @ diagonal @ vh, u @ (-other / 3 + diagonal) @ vh


def rotation_in_place(x):
    """The determinant is multiplied in place."""
    u, _, vh = SVD(x)
    vh[..., -1, :] *= (torch.linalg.det(u) * torch.linalg.det(vh))[..., None]
    return u @ vh


def rotation_of_parts(x):
    """The last vector is multiplied and put back behind the others."""
    u, _, vh = SVD(x)
    v = vh.mT
    return torch.cat([v[..., :-1], v[..., -1:] * torch.det(v @ u.mT)[..., None, None]], -1) @ u.mT


def rotation_of_rows(x):
    """The vectors are taken one by one and stacked."""
    u, _, vh = SVD(x)
    return u @ torch.stack([vh[:, 0], vh[:, 1], vh[:, 2] * torch.det(u @ vh)[:, None]], 1)


def root(x):
    """The square root of a matrix."""
    values, v = symmetric(x)
    return v @ torch.diag_embed(values.clamp_min(0).sqrt()) @ v.mT


def whitening(x):
    """``V f(e) V^T`` by a product with a row."""
    values, v = symmetric(x)
    return (v * (values + 1).rsqrt()[..., None, :]) @ v.transpose(-1, -2)


def by_equation(x):
    """``V f(e) V^T`` by an equation."""
    values, v = symmetric(x)
    return torch.einsum("ij,j,kj->ik", v[0], values[0], v[0]), torch.einsum(
        "...ij, ...kj -> ...ik", v, v * values[:, None]
    )


def by_inverse(x):
    """``V f(e) V^-1``."""
    values, v = symmetric(x)
    return (
        v @ torch.diag_embed(values) @ torch.linalg.inv(v),
        v @ torch.eye(3, dtype=x.dtype) @ v.mT,
        v[0] @ v[0, 0],
        (v[0, 0] @ v[0].mT) @ x[0],
    )


def in_a_chain(x):
    """A product of several matrices, in which a diagonal one stands between."""
    values, v = symmetric(x[0])
    return torch.linalg.multi_dot([v, torch.diag(values), v.T])


def low_rank(x):
    """The first two vectors."""
    u, s, vh = SVD(x, full_matrices=False)
    return u[..., :2] @ torch.diag_embed(s[..., :2]) @ vh[..., :2, :]


def reversed_order(x):
    """The largest value first, by a flip and by indices."""
    values, v = symmetric(x)
    order = values[0].argsort(descending=True)
    flipped = v.flip(-1)
    return flipped @ torch.diag_embed(values.flip(-1)) @ flipped.mT, v[0][:, order].square()


def written(x):
    """A copy is written, a part is narrowed, one vector stands on a diagonal."""
    v = symmetric(x)[1]
    matrix, other = torch.ones_like(x), v.clone()
    matrix.mul_(v)
    other.mul_(v)
    first = v.narrow(-1, 0, 2)
    return matrix.square(), other, first @ first.mT, torch.diag_embed(v[..., 0]) @ v[..., 0, None]


def normal(x):
    """Distances to a plane, a projection, one vector as its own outer product."""
    n = symmetric(x)[1][..., 0]
    return (x @ n[..., None]).abs(), n[..., :, None] * n[..., None, :], (x * n[..., None, :]).sum(-1) ** 2


def signed(x):
    """The largest element of each vector is positive."""
    v = symmetric(x)[1]
    return v * torch.sign(v.gather(-2, v.abs().argmax(-2, keepdim=True))), torch.where(x > 0, v, 0.0).abs()


def ratios(x):
    """A vector over its last element, as of a homography."""
    vector = SVD(x)[2][..., -1, :].unflatten(-1, (-1, 1)).flatten(-2)
    return vector / vector[..., -1:]


def traces(x):
    """Determinants, traces, diagonals, norms."""
    values, v = symmetric(x)
    product = v @ torch.diag_embed(values) @ v.mT
    return (
        torch.det(v) ** 2,
        product.diagonal(dim1=-2, dim2=-1),
        torch.linalg.slogdet(v)[1],
        v.norm(dim=-1),
        v[0].diagonal() ** 2,
    )


def shrunk(x):
    """A function of the singular values, the vectors as they are."""
    u, s, vh = SVD(x, full_matrices=False)
    return (u * (s / (s + 1))[..., None, :]) @ vh


def spanned(x):
    """The projection to the rows that a matrix has, and what its null space of one vector is."""
    vh = SVD(x)[2]
    return vh[..., -1, :, None] * vh[..., -1, None, :]


class Homography(torch.nn.Module):
    """The vector that a matrix maps to the least, over its last element."""

    def forward(self, x):
        vector = SVD(x)[2][-1]
        return vector / vector[-1]


class TestSingularVectors(ExporterTestCase):
    CASES = {
        "rotation": (rotation, A),
        "rotation of one matrix": (rotation, A[0].double()),
        "rotation of two axes of batches": (rotation, torch.randn(2, 4, 3, 3)),
        "rotation of points in a plane": (rotation, PLANE.double()),
        "rotation by a diagonal matrix": (rotation_by_a_diagonal, A),
        "rotation by elements of a diagonal": (rotation_by_elements, A),
        "rotation in place": (rotation_in_place, A),
        "rotation of parts": (rotation_of_parts, A),
        "rotation of rows": (rotation_of_rows, A),
        "square root": (root, A),
        "whitening": (whitening, A),
        "by an equation": (by_equation, A),
        "by the inverse": (by_inverse, A),
        "in a chain": (in_a_chain, A),
        "low rank": (low_rank, A),
        "low rank of wide matrices": (low_rank, WIDE),
        "reversed order": (reversed_order, A),
        "written": (written, A),
        "a normal": (normal, A),
        "signed": (signed, A),
        "traces": (traces, A),
        "shrunk": (shrunk, A),
        "shrunk wide matrices": (shrunk, WIDE),
        "shrunk tall matrices": (shrunk, TALL),
        "of zeros": (shrunk, torch.zeros(3, 3)),
        "svd": (lambda x: aten.svd.default(x)[2].square(), TALL),
        "_linalg_svd": (lambda x: aten._linalg_svd.default(x, False, True)[0].square(), TALL),
        "_linalg_eigh": (lambda x: aten._linalg_eigh.default(x + x.mT, "U")[1].abs(), A),
    }

    COMPLETE = {
        "ratios": (ratios, A.double()),
        "null space": (spanned, torch.randn(2, 3, 4).double()),
        "svd": (lambda x: aten.svd.default(x, False)[2].square(), TALL),
    }
    """All vectors of a square matrix, or but one: of other sizes more of them may be those of no singular value."""

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)
        self.assert_cases(self.COMPLETE, dynamic=False)

    def test_other_sizes(self):
        others = [(torch.randn(size),) for size in ((1, 3, 3), (5, 3, 3), (4, 2, 2), (3, 6, 6), (0, 4, 4))]
        for function in (rotation, root, whitening, shrunk):
            with self.subTest(function.__name__):
                self.assert_same_as_eager(function, torch.randn(2, 4, 4), others=others)

    def test_sizes_of_numbers_make_no_difference(self):
        """Tiny and huge matrices, columns of other lengths, many columns."""
        columns = torch.tensor([1e-12, 1.0, 1e12, 1e4]).double()
        x = torch.randn(4, 4).double()
        for matrix in (x * 1e-150, x * 1e120, x * columns, torch.randn(40, 40).double()):
            self.assert_same_as_eager(
                lambda m: tuple(result / m.abs().max() for result in (low_rank(m), torch.linalg.svdvals(m))),
                matrix,
            )

    def test_their_signs_are_refused(self):
        """The operator that reads them is named."""

        def beside_the_diagonal(x):
            u, _, vh = SVD(x)
            matrix = torch.eye(3).repeat(x.shape[0], 1, 1)
            matrix[:, 0, -1] = torch.det(u @ vh)
            return u @ matrix @ vh

        def written_row(x):
            u, _, vh = SVD(x)
            matrix = torch.eye(3).repeat(x.shape[0], 1, 1)
            matrix[:, 0] = 1.0
            return u @ matrix @ vh

        def written_part(x):
            u, _, vh = SVD(x)
            matrix = torch.eye(3).repeat(x.shape[0], 1, 1)
            matrix[:, 1:][:, 0, 0] = 1.0
            return u @ matrix @ vh

        def moved(x):
            u, _, vh = SVD(x)
            return u @ (torch.zeros_like(x) + 1.0) @ vh

        def stretched(x):
            u, _, vh = SVD(x)
            return u @ (torch.eye(1) * x) @ vh

        def overwritten(x):
            v = symmetric(x)[1]
            v[..., 0] = 1.0
            return v @ v.mT

        class Keeps(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("kept", torch.zeros(2, 3, 3))

            def forward(self, x):
                self.kept.copy_(symmetric(x)[1])
                return self.kept.abs()

        def seen(x):
            matrix = torch.ones_like(x)
            row = matrix[:, 0]
            matrix.mul_(symmetric(x)[1])
            return row.abs()

        def seen_in_rows(x):
            matrix = torch.ones_like(x)
            row, *_ = matrix.unbind(1)
            row.mul_(symmetric(x)[1][:, 0])
            return matrix.abs()

        def flipped_parts(x):
            u, _, vh = SVD(x)
            return u[..., :2].flip(-1)[..., 0] * vh.flip(-2)[..., 0, :]

        def indexed_parts(x):
            u, _, vh = SVD(x)
            last = torch.tensor([-1, 0])
            return u[..., :2][..., last][..., 0] * vh[..., last, :][..., 0, :]

        def cross_of_columns(x):
            v = symmetric(x)[1]
            return torch.linalg.cross(v, v * 2.0)

        def cross(x):
            v = symmetric(x)[1]
            return torch.stack([v[..., 0], v[..., 1], torch.linalg.cross(v[..., 0], v[..., 1])], -1)

        def of_the_batch(x):
            return symmetric(x)[1].transpose(0, 1).flatten(0, 1).sum(0).abs()

        cases = {
            "an output is one of them": [
                lambda x: symmetric(x)[1],
                lambda x: torch.det(SVD(x)[0]),
                lambda x: SVD(x)[2] ** 3,
                lambda x: SVD(x)[2] / 2,
                lambda x: (lambda v: v.to(torch.bool) * v)(SVD(x)[2]),
                flipped_parts,
                indexed_parts,
            ],
            "aten.matmul.default reads": [
                lambda x: SVD(x)[0] @ x,
                lambda x: SVD(x)[0][..., 1:] @ SVD(x)[2][..., :2, :],
                lambda x: (lambda u, s, vh: u[..., 1:] @ vh[..., :2, :])(*SVD(x)),
                beside_the_diagonal,
                written_row,
                written_part,
                moved,
                stretched,
            ],
            "aten.einsum.default reads": [
                lambda x: torch.einsum("bij,cjk->bcik", symmetric(x)[1], symmetric(x)[1].mT),
                lambda x: torch.einsum("bii->bi", symmetric(x)[1]),
            ],
            "aten.sum.default reads": [lambda x: (lambda u, s, vh: (u * vh).sum())(*SVD(x))],
            "aten.mean.dim reads": [lambda x: symmetric(x)[1].mean(0).abs()],
            "aten.to.dtype reads": [lambda x: (9 * symmetric(x)[1]).to(torch.uint8)],
            "aten.relu.default reads": [lambda x: torch.relu(symmetric(x)[1])],
            "aten.add.Tensor reads": [lambda x: symmetric(x)[1] + 1.0],
            "aten.fill_.Tensor reads": [overwritten],
            "aten.copy_.default reads": [Keeps()],
            "aten.mul_.Tensor reads": [seen, seen_in_rows],
            "aten.linalg_cross.default reads": [cross_of_columns],
            "aten.stack.default reads": [cross],
            "aten.flatten.using_ints reads": [of_the_batch],
            "aten.gt.Scalar reads": [lambda x: (lambda v: torch.where(v > 0, v, -v))(symmetric(x)[1])],
            "aten.where.ScalarOther reads": [lambda x: torch.where(x > 0, symmetric(x)[1], 1.0).abs()],
        }
        for words, functions in cases.items():
            for function in functions:
                with (
                    self.subTest(words),
                    self.assertRaisesRegex(
                        ExportError, f"signs of its vectors are not determined, and {words}"
                    ),
                ):
                    to_onnx(function, (A,))

    def test_vectors_of_a_large_null_space_are_refused(self):
        """Two or more vectors of no singular value are any that span it."""
        for function, x in ((lambda x: SVD(x)[2].abs(), WIDE), (lambda x: SVD(x)[0].abs(), TALL)):
            with self.assertRaisesRegex(
                ExportError, "2 of its vectors are any of a space: full_matrices=False leaves them out"
            ):
                to_onnx(function, (x,))

    def test_null_spaces_of_dynamic_sizes(self):
        """Eight points or more leave one vector at most of a homography's nine; fewer leave more, for some sizes."""
        x = torch.randn(10, 9).double()
        others = [(torch.randn(rows, 9).double(),) for rows in (8, 9, 30)]
        shapes = ({0: torch.export.Dim("rows", min=8)},)
        self.export_and_compare(Homography(), (x,), others=others, dynamic_shapes=shapes)
        for function, least in (
            (Homography(), 7),
            (lambda x: SVD(x)[0].abs(), 8),
            (lambda x: torch.svd(x, some=False)[2].abs(), 2),
        ):
            shapes = ({0: torch.export.Dim("rows", min=least)},)
            with self.assertRaisesRegex(
                ExportError, "for some sizes, two or more of its vectors are any of a space"
            ):
                to_onnx(function, (x,), dynamic_shapes=shapes)


if __name__ == "__main__":
    unittest.main()
