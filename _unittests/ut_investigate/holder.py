"""Models with a planted fault: an operator that nothing translates, deep inside; a wrong translation; a branch on the data."""

from __future__ import annotations

import torch


@torch.library.custom_op("investigate_test::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator without translation."""
    return x * 2


@unknown.register_fake
def _(x):
    return torch.empty_like(x)


class Attention(torch.nn.Module):
    """A layer whose last operator has no translation."""

    def __init__(self, size: int = 4, broken: bool = True):
        super().__init__()
        self.proj = torch.nn.Linear(size, size)
        self.broken = broken

    def forward(self, x):
        y = self.proj(x).softmax(-1)
        if self.broken:
            y = torch.ops.investigate_test.unknown(y)
        return y


class Layer(torch.nn.Module):
    """A residual layer around the attention."""

    def __init__(self, size: int = 4, broken: bool = True):
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.attention = Attention(size, broken)

    def forward(self, x):
        return x + self.attention(self.norm(x))


class Deep(torch.nn.Module):
    """Three layers, the fault in the second one."""

    def __init__(self, size: int = 4, broken: bool = True):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(size, broken and position == 1) for position in range(3)])
        self.head = torch.nn.Linear(size, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Choice(torch.nn.Module):
    """A branch on the data, in Python."""

    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Guarded(torch.nn.Module):
    """A model whose second child branches on the data."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.choice = Choice()

    def forward(self, x):
        return self.choice(self.first(x)).relu()
