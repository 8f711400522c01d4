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

OVER_LISTS = {  # torch's default on a GPU
    "Adadelta": lambda p: torch.optim.Adadelta(p, foreach=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.1, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True, foreach=True),
    "Adamax": lambda p: torch.optim.Adamax(p, foreach=True),
    "ASGD": lambda p: torch.optim.ASGD(p, foreach=True),
    "NAdam": lambda p: torch.optim.NAdam(p, foreach=True),
    "RAdam": lambda p: torch.optim.RAdam(p, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9, foreach=True),
    "Rprop": lambda p: torch.optim.Rprop(p, foreach=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, foreach=True),
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

    def test_steps_over_lists(self):
        for name, optimizer in OVER_LISTS.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self.assert_same_steps(optimizer)

    def test_norms_that_are_clipped(self):
        parameters = [torch.nn.Parameter(start) for start in STARTS]
        for maximum in (0.1, 100.0):

            def clipped(gradients, maximum=maximum):
                for parameter, gradient in zip(parameters, gradients):
                    parameter.grad = gradient.clone()
                norm = torch.nn.utils.clip_grad_norm_(parameters, maximum)
                return norm, [parameter.grad for parameter in parameters]

            with self.subTest(maximum):
                compiled = self.compiled(clipped)
                for _ in range(2):
                    gradients = [normal(4, 3), normal(3)]
                    self.assert_close(compiled(gradients), clipped(gradients), "gradients")


if __name__ == "__main__":
    unittest.main()
