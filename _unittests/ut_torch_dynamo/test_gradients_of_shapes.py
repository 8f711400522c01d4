"""Gradients of reductions, views, indexing, products."""

import unittest

import torch
from torch.nn import functional as F

from _unittests.ut_torch_dynamo.gradient_case import (
    FLAT,
    IMAGE,
    POSITIVE,
    SEQUENCE,
    GradientTestCase,
    integers,
    normal,
)

MATRICES = normal(2, 3, 3) + 3 * torch.eye(3)


class TestReductionsAndShapes(GradientTestCase):
    CASES = {
        "sum, mean": (lambda x: (x.sum(1), x.mean(0), x.sum()), FLAT),
        "max, min along": (lambda x: (x.max(1).values, x.min(0).values, x.amax(1), x.max()), FLAT),
        "var, std": (lambda x: (x.var(1), x.std(0), torch.var_mean(x, 1, correction=0)[0]), FLAT),
        "prod": (lambda x: (x.prod(1), x.prod()), FLAT),
        "norm": (lambda x: (x.norm(dim=1), x.norm(), F.normalize(x)), FLAT),
        "logsumexp": (lambda x: x.logsumexp(1), FLAT),
        "softmax": (lambda x: F.softmax(x, 1), FLAT),
        "log_softmax": (lambda x: F.log_softmax(x, 0), FLAT),
        "cumsum, cumprod": (lambda x: (x.cumsum(1), x.cumprod(0)), FLAT),
        "sort, topk": (lambda x: (x.sort(1).values, x.topk(2, 1).values), FLAT),
        "gather": (lambda x, i: x.gather(1, i), FLAT, integers(5, 3, 2)),
        "scatter": (lambda x, i, y: x.scatter(1, i, y), FLAT, torch.tensor([[0], [2], [4]]), normal(3, 1)),
        "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y), FLAT, integers(5, 3, 2), normal(3, 2)),
        "masked_scatter": (lambda x, y: x.masked_scatter(x > 0, y), FLAT, normal(4, 5)),
        "index": (lambda x, i: (x[i], x[:, i], x[i, i]), normal(4, 4), integers(4, 3)),
        "index_select": (lambda x, i: x.index_select(1, i), FLAT, integers(5, 4)),
        "index_add": (lambda x, i, y: x.index_add(0, i, y), FLAT, integers(3, 2), normal(2, 5)),
        "a written slice": (lambda x, y: (z := x.clone(), z[:, 1:3].copy_(y), z * z)[2], FLAT, normal(3, 2)),
        "slices": (lambda x: (x[1:], x[:, ::2], x[..., -1], x[None]), FLAT),
        "cat, stack": (lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y])), FLAT, POSITIVE),
        "split, chunk, unbind": (lambda x: (*x.split([2, 3], 1), *x.chunk(2), *x.unbind(1)), FLAT),
        "views": (lambda x: (x.t(), x.reshape(-1), x.unsqueeze(1), x.flatten(), x.view(5, 3)), FLAT),
        "expand, repeat": (lambda x: (x[:, :1].expand(3, 4), x.repeat(2, 1), x.repeat_interleave(2, 0)), FLAT),
        "permute": (lambda x: (x.permute(2, 0, 1), x.transpose(1, 2), x.movedim(0, 2)), SEQUENCE),
        "flip, roll": (lambda x: (x.flip(1), x.roll(1, 0)), FLAT),
        "tril, triu, diagonal": (lambda x: (x.tril(), x.triu(1), x.diagonal()), FLAT),
        "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 1), "reflect"), F.pad(x, (1, 2), "replicate")),
                SEQUENCE),
        "unfold": (lambda x: x.unfold(1, 2, 1), FLAT),
        "im2col": (lambda x: F.unfold(x, 3, padding=1), IMAGE),
        "as strided": (lambda x: x.as_strided((2, 3), (5, 1), 1), FLAT),
        "einsum": (lambda x, y: torch.einsum("bsd,bd->bs", x, y), SEQUENCE, normal(2, 8)),
        "products": (lambda x, y, z: (x @ y, torch.mv(x, z), torch.outer(z, z), torch.dot(z, z)),
                     FLAT, normal(5, 4), normal(5)),
        "batched products": (lambda x, y: (torch.bmm(x, y), torch.baddbmm(x @ y, x, y), x @ y[0]),
                             SEQUENCE, normal(2, 8, 3)),
        "triangular solve": (lambda x, y: torch.linalg.solve_triangular(x.tril() + 4 * torch.eye(3), y, upper=False),
                             normal(3, 3), normal(3, 2)),
        "inverse, solve, power": (
            lambda x, y: (torch.linalg.inv(x), torch.linalg.solve(x, y), torch.linalg.matrix_power(x, -2)),
            MATRICES, normal(2, 3, 2)),
        "determinants": (
            lambda x: (x.det(), torch.linalg.slogdet(x), x.logdet(), x.mT.det()), MATRICES),
        "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), MATRICES),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_functions(self.CASES)


if __name__ == "__main__":
    unittest.main()
