"""Activations: NaN, infinities, thresholds, every dtype, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each, of_each_float
from experimental_experiment.torch_interpreter import to_onnx

torch.manual_seed(0)

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor(
    [NAN, -INF, -0.0, 0.0, 1.5, -1.5, 100.0, -100.0, 1e-6, 0.5, -0.5, 3.0, -3.0, 6.0, 20.0, -20.0]
)
INTS = torch.tensor([-3, 0, 2, 7])
MATRIX = torch.tensor([[1.0, -2.0, 0.5, 3.0], [-INF, 1.0, 2.0, -INF], [1e4, 0.0, -1e4, 1.0]])
CUBE = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
UNITS = each(
    aten.relu.default,
    aten.relu6.default,
    aten.leaky_relu.default,
    aten.elu.default,
    aten.celu.default,
    aten.selu.default,
    aten.gelu.default,
    aten.silu.default,
    aten.mish.default,
    aten.softplus.default,
    aten.sigmoid.default,
    aten.log_sigmoid.default,
    aten.hardsigmoid.default,
    aten.hardswish.default,
    aten.hardtanh.default,
    aten.hardshrink.default,
    aten.softshrink.default,
    aten.rrelu.default,
)


def with_arguments(x):
    """Activations with arguments that are not their defaults."""
    return [
        aten.leaky_relu.default(x, 0.2),
        aten.elu.default(x, 1.5, 2.0, 0.5),
        aten.celu.default(x, 2.0),
        aten.gelu.default(x, approximate="tanh"),
        aten.softplus.default(x, 2, 20),
        aten.softplus.default(x, 0.5, 1),
        aten.hardtanh.default(x, -0.5, 0.75),
        aten.hardshrink.default(x, 1.0),
        aten.softshrink.default(x, 1.0),
        aten.threshold.default(x, 0.3, 20.0),
        aten.rrelu.default(x, 0.1, 0.2, False),
    ]


def softmaxes(x):
    """Every softmax along the last axis."""
    return [
        aten.softmax.int(x, -1),
        aten._softmax.default(x, -1, False),
        aten._safe_softmax.default(x, -1),
        aten.log_softmax.int(x, -1),
        aten._log_softmax.default(x, -1, False),
    ]


class TestActivation(ExporterTestCase):
    CASES = {
        **of_each_float(UNITS, EDGES),
        **of_each_float(with_arguments, EDGES, of="arguments of"),
        "empty": (UNITS, EDGES[:0]),
        "0-d": (UNITS, EDGES[5]),
        "integers": (each(aten.relu.default, aten.relu6.default, aten.sigmoid.default), INTS),
        "integers truncate bounds": (aten.hardtanh.default, INTS, -0.5, 2.5),
        "integers truncate a threshold": (aten.threshold.default, INTS, 1.5, 20.5),
        "log_sigmoid and its buffer": (aten.log_sigmoid_forward.default, EDGES),
    }
    MASKS = {
        "a mask of each element": (aten._masked_softmax.default, CUBE, CUBE > 1, 3, 2),
        "a mask of each element, another axis": (aten._masked_softmax.default, CUBE.half(), CUBE > 1, 0),
        "a mask of pairs": (aten._masked_softmax.default, CUBE, CUBE[0, 0] > 1, 3, 0),
        "a mask of keys": (aten._masked_softmax.default, CUBE, CUBE[:, 0, 0] > 1, 3, 1),
        "a mask of a matrix": (aten._masked_softmax.default, CUBE[0, 0].double(), CUBE[1, 1] > 0, None, 1),
        "a row that is hidden is NaN": (aten._masked_softmax.default, CUBE[0, 0], CUBE[0, 0] > -9),
    }
    GATES = {
        "a gate": (aten.glu.default, EDGES.reshape(4, 4), -1),
        "a gate along the first axis": (aten.glu.default, EDGES.reshape(4, 4), 0),
        "one weight": (aten.prelu.default, EDGES, torch.tensor([0.3])),
        "one weight for a 0-d tensor": (aten.prelu.default, EDGES[5], torch.tensor([0.3])),
        "a weight a channel": (aten.prelu.default, EDGES.reshape(2, 4, 2), torch.rand(4)),
        "a weight a channel in float64": (
            aten.prelu.default,
            EDGES.reshape(4, 4).double(),
            torch.rand(4).double(),
        ),
        "weights that broadcast": (aten._prelu_kernel.default, EDGES.reshape(4, 4), torch.rand(4, 1)),
        "random slopes are not drawn in evaluation": (
            aten.rrelu_with_noise_functional.default,
            EDGES,
            torch.zeros(16),
            0.1,
            0.2,
            False,
        ),
        "the noise is left in evaluation": (aten.rrelu_with_noise.default, EDGES, torch.zeros(16), 0.1, 0.2),
    }
    SOFTMAXES = {
        **of_each_float(softmaxes, MATRIX, of="rows of"),
        "NaN and infinity": (softmaxes, torch.tensor([[NAN, 1.0], [INF, 1.0]])),
        "NaN and infinity in float64": (
            softmaxes,
            torch.tensor([[NAN, 1.0, -2.0], [INF, 1.0, -INF], [-INF, -INF, -INF]], dtype=torch.float64),
        ),
        "a masked row is 0 when safe, NaN otherwise": (softmaxes, torch.full((2, 3), -INF)),
        "0-d": (softmaxes, torch.tensor(3.0)),
        "empty": (softmaxes, MATRIX[:0]),
        "empty rows": (softmaxes, MATRIX[:, :0]),
        "columns": (each(aten.softmax.int, aten.log_softmax.int), MATRIX, 0),
        "a dtype is cast before": (
            each(aten.softmax.int, aten.log_softmax.int, aten._safe_softmax.default),
            MATRIX.half(),
            1,
            torch.float32,
        ),
        "integers with a dtype": (aten.softmax.int, INTS, 0, torch.float32),
    }

    def test_units(self):
        self.assert_cases(self.CASES)

    def test_sigmoids_far_down_keep_their_digits(self):
        far = torch.tensor([-17.0, -30.0, -80.0, -88.0, -110.0, 20.0])
        logs = each(lambda x: aten.sigmoid.default(x).log(), lambda x: aten.silu.default(x).neg().log())
        self.assert_same_as_eager(lambda x: aten.sigmoid.default(x).log(), far)
        self.assert_same_as_eager(logs, far.double(), scale=1e-5)

    def test_gates(self):
        self.assert_cases(self.GATES)

    def test_masked_softmax(self):
        """torch.export captures it once its meta function, which torch lacks, is given."""
        library = torch.library.Library("aten", "IMPL")
        self.addCleanup(library._destroy)
        meta = lambda self, mask, dim=None, mask_type=None: torch.empty_like(self)
        library.impl("_masked_softmax", meta, "Meta")
        self.assert_cases(self.MASKS)

    def test_softmax(self):
        self.assert_cases(self.SOFTMAXES)

    def test_other_sizes(self):
        self.assert_same_as_eager(aten.glu.default, torch.rand(3, 4), 1, others=[(torch.rand(2, 6),)])
        self.assert_same_as_eager(softmaxes, torch.rand(3, 4), others=[(torch.rand(2, 6),)])

    def test_gelu_is_one_operator(self):
        operators = {
            opset: [
                node.op_type for node in to_onnx(torch.nn.GELU(), (EDGES,), target_opset=opset).graph.node
            ]
            for opset in (18, 20)
        }
        self.assertEqual(operators[20], ["Gelu"])
        self.assertIn("Erf", operators[18])


if __name__ == "__main__":
    unittest.main()
