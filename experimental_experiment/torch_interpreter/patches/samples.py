"""Samples of distributions whose shapes torch does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

DIRICHLET = "torch._sample_dirichlet"


@patch("torch", replaces=(DIRICHLET,), default=True)
def samples_of_dirichlet() -> Iterator[None]:
    """Samples of Dirichlet, Beta and LKJCholesky are refused: torch knows no shape of ``torch._sample_dirichlet``.

    They are numbers of the gamma distribution divided by their sum, in float64, as in ATen's kernel.
    """
    with wrapped({DIRICHLET: of_gamma}):
        yield


def of_gamma(of_numbers: Callable) -> Callable:
    """`torch._sample_dirichlet` by `torch._standard_gamma`."""

    def _sample_dirichlet(self: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        if generator is not None:
            return of_numbers(self, generator)
        samples_of_dirichlet.used()
        drawn = torch._standard_gamma(self.double())
        return (drawn / drawn.sum(-1, keepdim=True)).to(self.dtype)

    return _sample_dirichlet
