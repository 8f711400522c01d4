"""Dropout: the identity in evaluation; in training a mask drawn anew, with the right mean."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import Call, ExporterTestCase, each
from experimental_experiment.torch_interpreter import to_onnx

torch.manual_seed(0)

aten = torch.ops.aten
X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
FAMILY = each(
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)


class TestDropout(ExporterTestCase):
    CASES = {
        "evaluation is the identity": (FAMILY, X, 0.5, False),
        "probability 0 is the identity": (FAMILY, X, 0.0, True),
        "probability 1 gives zeros": (FAMILY, X, 1.0, True),
        "float16": (FAMILY, X.half(), 0.5, False),
        "the mask of evaluation": (aten.native_dropout.default, X, 0.5, False),
        "the mask of probability 1": (aten.native_dropout.default, X, 1.0, True),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def runs(self, function, x, count=2):
        """The results of several runs of one model."""
        call = Call(function, (x,), {})
        runner = session(to_onnx(call, call.tensors()))
        return [run(runner, [x]) for _ in range(count)]

    def test_training_keeps_and_scales(self):
        x = torch.ones(100, 1000)
        (kept,), (again,) = self.runs(lambda x: aten.dropout.default(x, 0.25, True), x)
        self.assertTrue(torch.equal(kept.unique(), torch.tensor([0.0, 1 / 0.75])))
        self.assertAlmostEqual(float((kept == 0).float().mean()), 0.25, delta=0.01)
        self.assertFalse(torch.equal(kept, again))

    def test_two_dropouts_draw_two_masks(self):
        x = torch.ones(10, 100)
        family = each(aten.dropout.default, aten.dropout.default)
        for dtype in (torch.float32, torch.float16, torch.float64):
            ((first, second),) = self.runs(lambda x: family(x, 0.5, True), x.to(dtype), count=1)
            self.assertFalse(torch.equal(first, second))

    def test_the_mask_says_what_is_kept(self):
        ((kept, mask),) = self.runs(lambda x: aten.native_dropout.default(x, 0.5, True), X, count=1)
        self.assertTrue(torch.equal(kept, X * mask * 2))

    def test_features_are_dropped_whole(self):
        x = torch.ones(50, 20, 2, 3)
        family = each(aten.feature_dropout.default, aten.feature_alpha_dropout.default)
        ((plain, alpha),) = self.runs(lambda x: family(x, 0.5, True), x, count=1)
        for result in (plain, alpha):
            self.assertTrue(torch.equal(result, result[..., :1, :1].expand_as(result)))
            self.assertEqual(len(result.unique()), 2)
        self.assertAlmostEqual(float((plain == 0).float().mean()), 0.5, delta=0.1)

    def test_alpha_dropout_keeps_mean_and_variance(self):
        x = torch.randn(1000, 1000)
        ((result,),) = self.runs(lambda x: aten.alpha_dropout.default(x, 0.3, True), x, count=1)
        self.assertAlmostEqual(float(result.mean()), 0, delta=0.01)
        self.assertAlmostEqual(float(result.var()), 1, delta=0.01)

    def test_random_slopes_of_rrelu(self):
        x = torch.tensor([-1.0, 2.0]).repeat(1000)
        for function in (
            lambda x: aten.rrelu.default(x, 0.1, 0.3, True),
            lambda x: aten.rrelu_with_noise.default(x, torch.zeros_like(x), 0.1, 0.3, True),
            lambda x: aten.rrelu_with_noise_functional.default(x, torch.zeros_like(x), 0.1, 0.3, True)[0],
        ):
            ((result,),) = self.runs(function, x, count=1)
            self.assertTrue(torch.equal(result[1::2], x[1::2]))
            self.assertTrue(bool(((result[::2] <= -0.1) & (result[::2] >= -0.3)).all()))
            self.assertGreater(len(result.unique()), 500)

    def test_dropout_inside_a_model_in_training(self):
        class Model(torch.nn.Module):
            def forward(self, x):
                return torch.nn.functional.dropout(x, 0.5, training=True) + 1

        ((result,),) = self.runs(Model(), torch.ones(100), count=1)
        self.assertTrue(torch.equal(result.unique(), torch.tensor([1.0, 3.0])))

    def test_probability_1_is_a_product_with_zero(self):
        model = self.assert_same_as_eager(lambda x: aten.dropout.default(x, 1.0, True), X)
        self.assertEqual(["Mul"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
