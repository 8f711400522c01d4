"""Contractions: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def randn(*shape, dtype=torch.float32):
    """A tensor of random numbers."""
    return torch.randn(*shape).to(dtype)


def randint(*shape, dtype=torch.int64):
    """A tensor of small integers."""
    return torch.randint(-5, 6, shape).to(dtype)


class TestContraction(ExporterTestCase):
    CASES = {
        "bilinear with a bias": (aten.bilinear.default, randn(5, 3), randn(5, 4), randn(2, 3, 4), randn(2)),
        "bilinear of vectors": (aten.bilinear.default, randn(3), randn(4), randn(2, 3, 4)),
        "bilinear of batches": (aten.bilinear.default, randn(2, 5, 3), randn(2, 5, 4), randn(2, 3, 4), randn(2)),
        "_trilinear": (aten._trilinear.default, randn(5, 3), randn(2, 3, 4), randn(5, 4), [1, 3], [0], [1, 2], [2, 3]),
        "a matrix product": (aten.einsum.default, "ij,jk->ik", [randn(2, 3), randn(3, 4)]),
        "products of batches": (aten.einsum.default, "bhij,bhjk->bhik", [randn(2, 2, 3, 4), randn(2, 2, 4, 5)]),
        "a batch of one matrix": (aten.einsum.default, "bij,bjk->bik", [randn(1, 3, 4), randn(3, 4, 5)]),
        "a batch and a matrix": (aten.einsum.default, "...ij,jk->...ik", [randn(2, 3, 4), randn(4, 5)]),
        "a matrix and a batch": (aten.einsum.default, "ij,bjk->bik", [randn(3, 4), randn(2, 4, 5)]),
        "a batch over nothing": (aten.einsum.default, "bij,bjk->bik", [randn(2, 3, 0), randn(2, 0, 5)]),
        "products of int8": (aten.einsum.default, "ij,jk->ik", [randint(2, 3).to(torch.int8), randint(3, 4).to(torch.int8)]),
        "an implicit output is sorted": (aten.einsum.default, "ba,cb", [randn(2, 3), randn(4, 2)]),
        "capitals come first": (aten.einsum.default, "aB", [randn(2, 3)]),
        "spaces do not count": (aten.einsum.default, " i j , j k -> k i ", [randn(2, 3), randn(3, 4)]),
        "a trace": (aten.einsum.default, "ii", [randn(3, 3)]),
        "a diagonal": (aten.einsum.default, "bii->bi", [randn(2, 3, 3)]),
        "ellipses of different ranks broadcast": (
            aten.einsum.default,
            "...ij,...jk->...ik",
            [randn(2, 1, 3, 4), randn(5, 4, 6)],
        ),
        "an ellipsis of no axis": (aten.einsum.default, "...i,i...->...", [randn(4), randn(4, 3)]),
        "an ellipsis without output": (aten.einsum.default, "i...,ij", [randn(4, 2, 3), randn(4, 5)]),
        "an ellipsis that is summed": (aten.einsum.default, "...i->i", [randn(2, 3, 4)]),
        "a size of 1 broadcasts": (aten.einsum.default, "ij,jk->ik", [randn(2, 1), randn(3, 4)]),
        "no element gives zeros": (aten.einsum.default, "ij,jk->ik", [randn(2, 0), randn(0, 4)]),
        "three operands": (aten.einsum.default, "bn,anm,bm->ba", [randn(2, 3), randn(5, 3, 4), randn(2, 4)]),
        "a path": (aten.einsum.default, "ij,jk,kl->il", [randn(2, 3), randn(3, 4), randn(4, 2)], {"path": [1, 2, 0, 1]}),
        "numbers": (aten.einsum.default, ",->", [torch.tensor(2.0), torch.tensor(3.0)]),
        "int64": (aten.einsum.default, "ij,jk->k", [randint(2, 3) * 2**40, randint(3, 4)]),
        "int8 wraps": (aten.einsum.default, "i,i->", [randint(9, dtype=torch.int8) * 25] * 2),
        "a sum of integers is int64": (aten.einsum.default, "ij->i", [torch.full((2, 3), 200, dtype=torch.uint8)]),
        "float16": (aten.einsum.default, "bij,bkj->bik", [randn(2, 3, 4).half(), randn(2, 5, 4).half()]),
        "float64": (aten.einsum.default, "bij,bkj->bik", [randn(2, 3, 4).double(), randn(2, 5, 4).double()]),
        "inner of matrices": (aten.inner.default, randn(2, 3), randn(4, 3)),
        "inner of a vector": (aten.inner.default, randn(3), randn(2, 4, 3)),
        "inner with a number": (aten.inner.default, randn(2, 3), torch.tensor(2)),
        "tensordot keeps the axes in order": (aten.tensordot.default, randn(2, 3, 4), randn(4, 5, 3), [1, 2], [2, 0]),
        "tensordot over negative axes": (aten.tensordot.default, randn(2, 3, 4), randn(4, 5, 3), [-1], [-3]),
        "tensordot over nothing": (aten.tensordot.default, randint(2, 3), randint(4), [], []),
        "tensordot broadcasts a size of 1": (aten.tensordot.default, randn(2, 1), randn(4, 5), [1], [0]),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)


if __name__ == "__main__":
    unittest.main()
