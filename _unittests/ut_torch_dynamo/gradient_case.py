"""Tables of functions whose gradients are compared with eager, and the tensors that they share."""

from __future__ import annotations

import os

import torch
from torch._dynamo.exc import BackendCompilerFailed

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from experimental_experiment.torch_interpreter import ExportError

BOTH = os.environ.get("GRADIENTS") == "all"
"""Whether each group of functions is compiled with static sizes and with dynamic ones."""

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR)


def integers(high, *shape):
    """Integers below *high*, the same at every run."""
    return torch.randint(0, high, shape, generator=GENERATOR)


class Functions(torch.nn.Module):
    """Functions of the same arguments: all their results."""

    def __init__(self, functions):
        super().__init__()
        self.layers = torch.nn.ModuleList(f for f in functions if isinstance(f, torch.nn.Module))
        self.functions = list(functions)

    def forward(self, *args):
        return tuple(torch.utils._pytree.tree_leaves([function(*args) for function in self.functions]))


class GradientTestCase(BackendTestCase):
    def assert_functions(self, cases):
        """A table {promise: (function or layer, *arguments)}: results and gradients are eager's.

        Functions of the same arguments are compiled together, with static or with dynamic sizes in turn; each alone only where
        that fails.
        """
        groups = {}
        for promise, (_, *args) in cases.items():
            groups.setdefault(tuple(map(id, args)), []).append(promise)
        for number, promises in enumerate(groups.values()):
            for dynamic in (False, True) if BOTH else (number % 2 == 0,):
                try:
                    self.assert_group(cases, promises, dynamic)
                except (AssertionError, ExportError, BackendCompilerFailed):
                    for promise in promises:
                        with self.subTest(promise, dynamic=dynamic):
                            self.assert_group(cases, [promise], dynamic)
                    raise

    def assert_group(self, cases, promises, dynamic):
        """Some functions of the same arguments, in one graph, twice: the gradients add up."""
        torch._dynamo.reset()
        model = Functions([cases[promise][0] for promise in promises])
        self.assert_same_gradients(model, [tuple(cases[promises[0]][1:])] * 2, dynamic)


IMAGE, FLAT, SEQUENCE = normal(2, 4, 6, 7), normal(3, 5), normal(2, 5, 8)
VOLUME = normal(1, 2, 4, 5, 4)
POSITIVE = FLAT.abs() + 0.5
QUERY, KEY, VALUE = (normal(2, 4, 5, 4) for _ in range(3))
GROUPS = normal(2, 2, 5, 4), normal(2, 2, 5, 4)
BAGS = integers(7, 12), torch.tensor([0, 4, 4, 7])
CLASSES = integers(5, 3)
MASK = torch.ones(5, 5, dtype=torch.bool).tril()
