"""Comparisons of two tensors whose result is a boolean of Python: torch.equal and torch.allclose."""

import unittest

import onnxruntime
import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X, Y = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4) % 5


class Call(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def checked(x, y):
    assert torch.allclose(x, x, atol=1e-3)
    if not torch.equal(y, y):
        raise ValueError("NaN")
    return x + y


def kernel(x, y):
    """The distances of GPyTorch, whose diagonal is 0 where both inputs are the same."""
    is_same = torch.equal(x, y)
    distances = (x[:, None] - y[None]).square().sum(-1)
    if is_same:
        distances.fill_diagonal_(0)
    return distances


def to_known_points(x):
    return kernel(x, torch.ones(5, 4))


def branched(x, y):
    return x + y if x.equal(y) else x - y


def returned(x, y):
    return torch.equal(x, y), x.allclose(y, rtol=10.0), torch.equal(x, y[:, :2])


class TestComparisons(ExporterTestCase):
    def test_checks_are_left_out(self):
        model = self.export_and_compare(Call(checked), (X, Y))
        self.assertEqual([node.op_type for node in model.graph.node], ["Add"])

    def test_tensors_of_other_shapes_are_not_equal(self):
        shapes = ({0: "n"}, {0: "m"})
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            self.export_and_compare(
                Call(kernel), (X, torch.ones(5, 4)), others=[(X[:1], Y[:2])], dynamic_shapes=shapes
            )
        self.assertRegex(logs.output[0], r"\n  (m != n|n != m)\n.*\n  is_same = torch.equal\(x, y\)")
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            self.export_and_compare(
                Call(to_known_points), (X,), others=[(X[:2],)], dynamic_shapes=({0: "n"},)
            )
        self.assertRegex(logs.output[0], r"\n  n != 5\n.*\n  is_same = torch.equal\(x, y\)")

    def test_a_branch_of_equal_shapes_is_refused_where_it_is(self):
        with self.assertRaisesRegex(CaptureError, r"\n  if is_same:\n"):
            to_onnx(Call(kernel), (X, Y))
        options = ExportOptions(patches={"shortcuts"})
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            self.export_and_compare(Call(kernel), (X, Y), others=[(Y, X)], export_options=options)
        self.assertRegex(logs.output[0], r"all\(\) is False, for all data\n.*\n  if is_same:")

    def test_a_branch_becomes_a_cond(self):
        options = ExportOptions(patches={"branches_of_data"})
        self.export_and_compare(Call(branched), (X, Y), others=[(X, X)], export_options=options)

    def test_results_are_outputs(self):
        session = onnxruntime.InferenceSession(to_onnx(Call(returned), (X, Y)).SerializeToString())
        nan = X * float("nan")
        for x, y in ((X, Y), (X, X), (X, X.clone()), (nan, nan)):
            got = session.run(None, {"x": x.numpy(), "y": y.numpy()})
            self.assertEqual([bool(value) for value in got], [*returned(x, y)])

    def test_outside_of_a_capture_they_are_booleans(self):
        self.assertIs(torch.equal(X, X), True)
        self.assertIs(X.allclose(Y), False)


if __name__ == "__main__":
    unittest.main()
