"""Random programs of singular vectors and eigenvectors: what is exported is the same in eager for vectors of other signs.

Steps are drawn for the tensors that the steps before gave, and kept when eager takes them. Each result is a program of its own: it is
exported, or refused for the signs that it depends on.
"""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable, Sequence

import torch

from experimental_experiment.torch_interpreter import ExportError, to_onnx
from tests.properties import RandomPrograms

BATCH, SIZE = 3, 4
REFUSES = (RuntimeError, IndexError, ValueError, TypeError)
EQUATIONS = (
    *("bij,bjk->bik", "bij,bkj->bik", "bij,bij->bi", "bij,bij->bj", "bij,bik->jk", "bij,bik->bjk"),
    *("...ij,...kj->...ik", "bi,bj->bij", "bij,bj->bi"),
)


class Draw:
    """Numbers of one step, the same whenever it is taken, and the tensors that it may take."""

    def __init__(self, seed: int, tensors: Sequence[torch.Tensor]):
        self.random = random.Random(seed)
        self.tensors = tensors

    def tensor(self) -> torch.Tensor:
        """One of those that there are, a later one more often."""
        return self.tensors[int(self.random.random() ** 0.7 * len(self.tensors))]

    def axis(self, x: torch.Tensor, more: int = 0) -> int:
        """One of the axes."""
        return self.random.randrange(x.dim() + more)

    def index(self, x: torch.Tensor, axis: int) -> int:
        """A position along an axis, from either end."""
        return self.random.randrange(-x.shape[axis], x.shape[axis])


def scaled(draw):
    x = draw.tensor()
    return x * draw.tensors[2][:, None, :]


def selected(draw):
    x = draw.tensor()
    axis = draw.axis(x)
    return x.select(axis, draw.index(x, axis))


def parted(draw):
    x = draw.tensor()
    start = draw.index(x, -1)
    return draw.random.choice((x[..., start:], x[..., :start], x.narrow(-1, 0, 2)))


def summed(draw):
    x = draw.tensor()
    return x.sum(draw.axis(x), keepdim=draw.random.random() < 0.5)


def transposed(draw):
    x = draw.tensor()
    return x.transpose(draw.axis(x), draw.axis(x))


def viewed(draw):
    x = draw.tensor()
    return draw.random.choice(
        (x.flatten(draw.axis(x)), x.reshape(-1, x.shape[-1]), x.unsqueeze(draw.axis(x, 1)))
    )


def united(draw):
    x, y = draw.tensor(), draw.tensor()
    return (
        torch.cat([x, y], draw.axis(x))
        if draw.random.random() < 0.5
        else torch.stack([x, y], draw.axis(x, 1))
    )


def divided(draw):
    x = draw.tensor()
    return x / x.norm(dim=draw.axis(x), keepdim=True)


def gathered(draw):
    x = draw.tensor()
    axis = draw.axis(x)
    return x.gather(axis, x.abs().argmax(axis, keepdim=True)) if draw.random.random() < 0.5 else x.flip(axis)


def written(draw):
    """A copy of which all, or one column, is multiplied or written."""
    x = draw.tensor().clone()
    part = x if draw.random.random() < 0.4 else x[..., draw.index(x, -1)]
    if draw.random.random() < 0.5:
        part.mul_(draw.tensor())
    else:
        part.copy_(draw.tensor())
    return x


def written_apart(draw):
    """A copy, or ones like it, of which one of the parts along an axis is multiplied."""
    x = draw.tensor()
    x = x.clone() if draw.random.random() < 0.5 else torch.ones_like(x)
    parts = x.unbind(draw.axis(x))
    parts[draw.random.randrange(len(parts))].mul_(draw.tensor())
    return x


def on_a_diagonal(draw):
    """Identities in which elements are written, most of them on the diagonal."""
    x = torch.eye(SIZE, dtype=torch.float64).repeat(BATCH, 1, 1)
    row = draw.random.randrange(1, SIZE)
    column = row if draw.random.random() < 0.7 else 0
    part = x[:, row, column] if draw.random.random() < 0.7 else x[:, 1:][:, row - 1, column]
    part.copy_(draw.tensor())
    return x


STEPS: tuple[Callable, ...] = (
    *(
        scaled,
        selected,
        parted,
        summed,
        transposed,
        viewed,
        united,
        divided,
        gathered,
        written,
        on_a_diagonal,
    ),
    *(lambda draw: draw.tensor() @ draw.tensor(),) * 5,
    *(lambda draw: draw.tensor().mT,) * 3,
    *(lambda draw: draw.tensor() * draw.tensor(),) * 2,
    lambda draw: draw.tensor() + draw.tensor(),
    lambda draw: draw.tensor().abs(),
    lambda draw: (draw.tensor() * 3).to(torch.int32).to(torch.float64),
    lambda draw: draw.tensor().to(torch.bool).to(torch.float64),
    lambda draw: draw.tensor()[..., torch.tensor([-1, 0])],
    lambda draw: draw.tensor() ** draw.random.choice((2, 3)),
    lambda draw: torch.linalg.det(draw.tensor()),
    lambda draw: torch.linalg.inv(draw.tensor()),
    lambda draw: torch.diag_embed(draw.tensor()),
    lambda draw: torch.eye(SIZE, dtype=torch.float64) * draw.tensor(),
    lambda draw: draw.tensor().diagonal(dim1=-2, dim2=-1),
    lambda draw: torch.linalg.cross(draw.tensor()[..., :3], draw.tensor()[..., :3]),
    lambda draw: torch.einsum(draw.random.choice(EQUATIONS), draw.tensor(), draw.tensor()),
)


class Program(torch.nn.Module):
    """Steps from the vectors of a matrix, each with the seed of its draws.

    Attributes:
        signs: what the vectors are multiplied by, None for those of torch.
        wanted: the step of which the result is given, None for all.
    """

    def __init__(self, is_symmetric: bool):
        super().__init__()
        self.is_symmetric = is_symmetric
        self.steps: list[tuple[Callable, int]] = []
        self.signs: torch.Tensor | None = None
        self.wanted: int | None = None

    def forward(self, x):
        if self.is_symmetric:
            values, left = torch.linalg.eigh(x + x.mT)
            right = left.mT
        else:
            left, values, right = torch.linalg.svd(x)
        if self.signs is not None:
            left = left * self.signs[:, None, :]
            right = left.mT if self.is_symmetric else right * self.signs[:, :, None]
        found = [left, right, values]
        for step, seed in self.steps:
            found.append(step(Draw(seed, found)))
        return found[3:] if self.wanted is None else found[3 + self.wanted]


class TestRandomSigns(RandomPrograms):
    EXAMPLES = 25

    def check(self, random: random.Random) -> bool:
        """Each result of a program; whether one of them was exported."""
        x = torch.randn(
            BATCH,
            SIZE,
            SIZE,
            dtype=torch.float64,
            generator=torch.Generator().manual_seed(random.randrange(2**31)),
        )
        program = Program(random.random() < 0.5)
        for _ in range(random.randint(2, 9)):
            program.steps.append((random.choice(STEPS), random.randrange(2**31)))
            try:
                program(x)
            except REFUSES:
                program.steps.pop()
        exported = [self.is_exported(program, x, step) for step in range(len(program.steps))]
        return any(exported)

    def is_exported(self, program: Program, x: torch.Tensor, step: int) -> bool:
        """Whether the result of one step is exported: then it is what eager gives for vectors of any signs."""
        program.wanted, program.signs = step, None
        expected = program(x)
        try:
            to_onnx(program, (x,), optimize=False)
        except ExportError as error:
            self.assertIn("signs of its vectors are not determined", str(error))
            return False
        for place in range(4):
            program.signs = torch.tensor(
                [[1.0 - 2 * ((row + column) >> place & 1) for column in range(SIZE)] for row in range(BATCH)]
            )
            torch.testing.assert_close(program(x), expected, rtol=1e-8, atol=1e-8, equal_nan=True)
        return True

    def test_random_programs(self):
        self.assert_programs(self.check)


if __name__ == "__main__":
    unittest.main()
