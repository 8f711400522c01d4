"""Steps of torch's optimizers on the backend: TorchDynamo writes them with operators of its own, or over lists of tensors."""

from __future__ import annotations

import unittest
from collections.abc import Callable

import torch

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase
from _unittests.ut_torch_dynamo.gradient_case import normal

STARTS = [normal(4, 3), normal(3)]

OPTIMIZERS = {
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, 0.1),
    "Adam of a rate in a tensor": lambda p: torch.optim.Adam(p, torch.tensor(0.1)),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1, centered=True, momentum=0.9),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
}


class TestOptimizers(BackendTestCase):
    def assert_same_steps(self, optimizer: Callable, steps: int = 3) -> None:
        """Two parameters after each step are those of eager."""
        ours, theirs = ([torch.nn.Parameter(start.clone()) for start in STARTS] for _ in range(2))
        eager = optimizer(theirs)
        compiled = self.compiled(optimizer(ours).step, fullgraph=False)
        for _ in range(steps):
            for one, other in zip(ours, theirs):
                one.grad = normal(*one.shape)
                other.grad = one.grad.clone()
            eager.step()
            compiled()
            self.assert_close(ours, theirs, "parameters")

    def test_steps(self):
        for name, optimizer in OPTIMIZERS.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self.assert_same_steps(optimizer)


if __name__ == "__main__":
    unittest.main()
