"""Halves between float32 weights: the statistics of norms and what goes on from a rounded result, as eager keeps them."""

from __future__ import annotations

import copy
import unittest

import torch

from _unittests.ut_torch_dynamo.backend_case import BackendTestCase

GENERATOR = torch.Generator().manual_seed(0)

IMAGE = torch.randn(8, 6, 5, 5, generator=GENERATOR) + 20
"""Far from 0 beside its deviation: a rounded mean is wrong by a part of the deviation."""

NORMS = {
    "batch_norm": torch.nn.BatchNorm2d(6),
    "batch_norm without weight": torch.nn.BatchNorm2d(6, affine=False),
    "batch_norm without statistics": torch.nn.BatchNorm2d(6, track_running_stats=False),
    "group_norm": torch.nn.GroupNorm(2, 6),
    "layer_norm": torch.nn.LayerNorm(5),
    "instance_norm": torch.nn.InstanceNorm2d(6, affine=True),
}


def gradients(model, compiled, x, dtype=None):
    """Those of the parameters and of the input, in float64."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        y = compiled(x)
    weights = torch.linspace(0.1, 1, y.numel(), dtype=torch.float64).reshape(y.shape)
    (y.double() ** 2 * weights).sum().backward()
    return {
        name: grad.double()
        for name, grad in [*((n, p.grad) for n, p in model.named_parameters()), ("input", x.grad)]
    }


def distance(found, exact):
    """The relative distance of two tensors."""
    return float((found - exact).norm() / exact.norm())


class TestMixedPrecision(BackendTestCase):
    def assert_as_near_as_eager(self, model, x, dtype=None, left_out=()):
        """Gradients are as near to those in float64 as eager's."""
        torch._dynamo.reset()
        exact, ours = copy.deepcopy(model).double(), copy.deepcopy(model)
        expected = gradients(exact, exact, x.double())
        theirs, found = gradients(model, model, x, dtype), gradients(ours, self.compiled(ours), x, dtype)
        for name in expected.keys() - set(left_out):
            near = distance(theirs[name], expected[name])
            self.assertLessEqual(distance(found[name], expected[name]), 1.1 * near + 1e-4, name)

    def test_norms_of_halves(self):
        for dtype in torch.bfloat16, torch.float16:
            for name, norm in NORMS.items():
                with self.subTest(name, dtype=dtype):
                    self.assert_as_near_as_eager(copy.deepcopy(norm), IMAGE.to(dtype))

    def test_norms_of_halves_with_weights_of_halves(self):
        for name, norm in NORMS.items():
            with self.subTest(name):
                self.assert_as_near_as_eager(copy.deepcopy(norm).bfloat16(), IMAGE.bfloat16())

    def test_norms_behind_layers_under_autocast(self):
        layers = {
            "convolution": (torch.nn.Conv2d(6, 6, 3), torch.nn.BatchNorm2d(6)),
            "convolution, groups": (torch.nn.Conv2d(6, 6, 3), torch.nn.GroupNorm(3, 6)),
            "linear": (torch.nn.Linear(5, 5), torch.nn.LayerNorm(5)),
        }
        for name, model in layers.items():
            with self.subTest(name):
                # the gradient of a bias in front of a norm of each channel is 0
                left_out = ["0.bias"] if "convolution" in name else []
                self.assert_as_near_as_eager(torch.nn.Sequential(*model), IMAGE, torch.bfloat16, left_out)


if __name__ == "__main__":
    unittest.main()
