"""Backward of pointwise operators: the gradients that eager gives."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

torch.manual_seed(0)

aten = torch.ops.aten
G = torch.linspace(-1, 2, 20).reshape(4, 5)
X = torch.tensor(
    [0.0, 0.25, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5, 20.0, -20.0, 0.1, 0.9, -0.1, 1.0, 2.0, -2.0, 6, 5, 4, -9]
)
X = X.reshape(4, 5)
PLAIN = each(
    aten.hardsigmoid_backward.default,
    aten.hardswish_backward.default,
    aten.silu_backward.default,
    aten.mish_backward.default,
    aten.gelu_backward.default,
    aten.logit_backward.default,
)


def with_arguments(gradient, x):
    """Backward operators that take numbers."""
    return [
        aten.threshold_backward.default(gradient, x, 0.5),
        aten.hardtanh_backward.default(gradient, x, -0.5, 0.5),
        aten.hardshrink_backward.default(gradient, x, 0.5),
        aten.softshrink_backward.default(gradient, x, 0.5),
        aten.leaky_relu_backward.default(gradient, x, 0.1, False),
        aten.elu_backward.default(gradient, 1.5, 2.0, 0.7, False, x),
        aten.elu_backward.default(gradient, 1.5, 2.0, 0.7, True, aten.elu(x, 1.5, 2.0, 0.7)),
        aten.softplus_backward.default(gradient, x, 2, 3),
        aten.gelu_backward.default(gradient, x, approximate="tanh"),
        aten.logit_backward.default(gradient, x, 0.2),
        aten.log_sigmoid_backward.default(gradient, x, torch.exp(-x.abs())),
        aten.native_dropout_backward.default(gradient, x > 0, 1.25),
        aten.sigmoid_backward.default(gradient, x.sigmoid()),
        aten.tanh_backward.default(gradient, x.tanh()),
    ]


def softmax_backward(gradient, x):
    """The gradients of softmax and log_softmax."""
    return [
        aten._softmax_backward_data.default(gradient, torch.softmax(x, 1), 1, x.dtype),
        aten._log_softmax_backward_data.default(gradient, torch.log_softmax(x, 0), 0, x.dtype),
    ]


class TestBackwardPointwise(ExporterTestCase):
    CASES = {
        f"{promise} in {dtype}": (function, G.to(dtype), X.to(dtype))
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        for promise, function in (
            ("functions of the input", PLAIN),
            ("with arguments", with_arguments),
            ("softmax", softmax_backward),
        )
    }
    OTHERS = {
        "a gate": (aten.glu_backward.default, G[:2], X, 0),
        "prelu": (aten._prelu_kernel_backward.default, G, X, torch.rand(1, 5)),
        "rrelu in training": (
            aten.rrelu_with_noise_backward.default,
            *(G, X, torch.rand(4, 5), 0.1, 0.3, True, False),
        ),
        "rrelu in evaluation": (
            aten.rrelu_with_noise_backward.default,
            *(G, X, torch.rand(4, 5), 0.1, 0.3, False, False),
        ),
        "softmax of a 0-d tensor": (
            lambda g, y: [
                aten._softmax_backward_data.default(g, y, 0, torch.float32),
                aten._log_softmax_backward_data.default(g, y, 0, torch.float32),
            ],
            torch.tensor(2.0),
            torch.tensor(1.0),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_others(self):
        self.assert_cases(self.OTHERS)

    def test_dynamic(self):
        # torch cannot trace the others with symbolic sizes
        family = each(aten.silu_backward.default, aten.gelu_backward.default, softmax_backward)
        self.assert_same_as_eager(family, G, X, others=[(G.repeat(2, 2), X.repeat(2, 2))])


if __name__ == "__main__":
    unittest.main()
