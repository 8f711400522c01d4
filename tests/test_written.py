"""What the recorder of `tests.written` notes of one export."""

import unittest

import torch

from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.registry import TRANSLATIONS
from tests.written import Recorder, chosen, exports_alone

aten = torch.ops.aten
X = torch.randn(3, 4)
FIRST = {"dynamic_shapes": ({0: "batch"},)}


def written(function, *args, **options):
    """The operators that the translations of an export wrote."""
    recorder = Recorder()
    with exports_alone(), recorder.recording():
        to_onnx(function, args, **options)
    return recorder.written


class TestNames(unittest.TestCase):
    def test_a_file_with_or_without_its_packages(self):
        whole = "_unittests.ut_torch_interpreter.test_aten_loss"
        self.assertEqual(chosen(["test_aten_loss", whole]), [whole, whole])
        with self.assertRaisesRegex(SystemExit, "error: there is no test file 'test_aten_los'"):
            chosen(["test_aten_los"])


class TestRecorder(unittest.TestCase):
    def test_what_is_folded_is_not_written(self):
        function = lambda x: aten.add.Tensor(aten.arange.start(0, 4), x)  # noqa: E731
        self.assertEqual(written(function, X), {"aten.arange.start": set(), "aten.add.Tensor": {"Add"}})

    def test_sizes_are_not_counted(self):
        found = written(lambda x: x.reshape(2 * x.shape[0], 2), X, **FIRST)
        self.assertEqual(found["aten.reshape.default"], {"Reshape"})
        self.assertEqual(
            written(lambda x: torch.arange(x.shape[0]), X, **FIRST)["aten.arange.default"], {"Range"}
        )

    def test_the_decomposition_of_an_operator_is_its_own(self):
        found = written(lambda x: aten.cumulative_trapezoid.dx(x), X)
        parts = [operators for name, operators in found.items() if name != "aten.cumulative_trapezoid.dx"]
        self.assertEqual(found["aten.cumulative_trapezoid.dx"], set().union(*parts))
        self.assertIn("CumSum", found["aten.cumulative_trapezoid.dx"])

    def test_the_operators_of_a_body_are_not_those_of_the_control_flow(self):
        found = written(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), X)
        self.assertEqual(found["higher_order.cond"], {"If"})
        self.assertEqual(found["aten.sin.default"], {"Sin"})

    def test_only_the_default_operator_set_is_noted(self):
        self.assertEqual(written(torch.sin, X, target_opset=18), {})

    def test_a_refusal_writes_nothing(self):
        recorder = Recorder()
        with exports_alone(), recorder.recording(), self.assertRaisesRegex(Exception, "jvp"):
            to_onnx(lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1], (X,))
        self.assertIn("torch._functorch.predispatch._make_dual", recorder.written)

    def test_afterwards_the_registry_is_as_before(self):
        before = dict(TRANSLATIONS)
        written(torch.sin, X)
        self.assertEqual(before, TRANSLATIONS)


if __name__ == "__main__":
    unittest.main()
