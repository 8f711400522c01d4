"""Losses: reductions, weights, ignored targets, as eager."""

import unittest

import torch

from experimental_experiment.testing import Call, ExporterTestCase, each

F = torch.nn.functional
aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2
SCORES = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 5, 3, 3, generator=torch.Generator().manual_seed(1))
CLASSES = torch.tensor([0, 2, -100, 4])
PIXELS = torch.randint(0, 5, (2, 3, 3), generator=torch.Generator().manual_seed(2))
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0])
PROBABILITIES = torch.softmax(SCORES.flip(0), 1)
LOGS = torch.log_softmax(SCORES, 1)
CERTAIN = torch.tensor([0.0, 1.0, 0.5, 1e-3, 0.9]).expand(4, 5)
SURE = PROBABILITIES.flip(1)
ONE = torch.tensor(2.0)
EDGES = torch.tensor([3.0, 1e30, -1e30, 30, -30, torch.inf, torch.nan])


class TestLoss(ExporterTestCase):
    CLASSIFICATION = {
        "classes": (aten.cross_entropy_loss.default, SCORES, CLASSES),
        "one sample": (aten.cross_entropy_loss.default, SCORES[0], torch.tensor(3)),
        "pixels, weighted": (aten.cross_entropy_loss.default, IMAGE, PIXELS, WEIGHT, MEAN, 2),
        "pixels, no reduction": (aten.cross_entropy_loss.default, IMAGE * 1e4, PIXELS, WEIGHT, NONE, 1),
        "pixels, a sum, float64": (aten.cross_entropy_loss.default, IMAGE.double(), PIXELS, WEIGHT.double(), SUM),
        "pixels, all ignored": (aten.cross_entropy_loss.default, IMAGE, PIXELS * 0 - 100),
        "pixels, halves": (aten.cross_entropy_loss.default, IMAGE.half(), PIXELS),
        "no pixels": (aten.cross_entropy_loss.default, IMAGE[:, :, :0], PIXELS[:, :0], None, SUM),
        "a sequence": (aten.cross_entropy_loss.default, IMAGE[:, :, 0], PIXELS[:, 0], WEIGHT),
        "no reduction": (aten.cross_entropy_loss.default, SCORES, CLASSES, None, NONE),
        "a sum": (aten.cross_entropy_loss.default, SCORES, CLASSES, WEIGHT, SUM),
        "all ignored": (aten.cross_entropy_loss.default, SCORES, torch.full((4,), -100)),
        "smooth labels": (aten.cross_entropy_loss.default, SCORES, CLASSES, None, MEAN, -100, 0.1),
        "smooth labels, weighted": (aten.cross_entropy_loss.default, SCORES, CLASSES, WEIGHT, MEAN, -100, 0.3),
        "smooth labels, no reduction": (aten.cross_entropy_loss.default, IMAGE, PIXELS, WEIGHT, NONE, 1, 0.3),
        "smooth labels, a sum": (aten.cross_entropy_loss.default, SCORES, CLASSES, WEIGHT, SUM, -100, 0.3),
        "probabilities": (aten.cross_entropy_loss.default, SCORES, PROBABILITIES),
        "probabilities, weighted and smooth": (aten.cross_entropy_loss.default, SCORES, PROBABILITIES, WEIGHT, MEAN, -100, 0.2),
        "probabilities, a sum": (aten.cross_entropy_loss.default, SCORES, PROBABILITIES, WEIGHT, SUM),
        "probabilities of one sample": (aten.cross_entropy_loss.default, SCORES[0], PROBABILITIES[0], None, NONE),
        "halves": (aten.cross_entropy_loss.default, SCORES.half(), CLASSES),
        "float64": (aten.cross_entropy_loss.default, SCORES.double(), CLASSES, WEIGHT.double()),
        "a score that is NaN, float64": (aten.cross_entropy_loss.default, SCORES.double() / SCORES[:1].sign().relu(), CLASSES, None, NONE),
        "likelihood": (aten.nll_loss.default, LOGS, CLASSES, WEIGHT),
        "likelihood of pixels": (aten.nll_loss2d.default, IMAGE, PIXELS, None, SUM),
        "likelihood of any rank": (aten.nll_loss_nd.default, IMAGE[:, :, 0], PIXELS[:, 0], WEIGHT, NONE, 3),
        "likelihood with its weight": (aten.nll_loss_forward.default, LOGS, CLASSES, WEIGHT, MEAN, -100),
        "likelihood and no weight": (aten.nll_loss_forward.default, LOGS, CLASSES, None, NONE, -100),
        "likelihood of pixels with its weight": (aten.nll_loss2d_forward.default, IMAGE, PIXELS, WEIGHT, SUM, 0),
    }  # fmt: skip
    REGRESSION = {
        "absolute error": (aten.l1_loss.default, SCORES, PROBABILITIES),
        "absolute errors": (aten.l1_loss.default, SCORES, PROBABILITIES, NONE),
        "squared error": (aten.mse_loss.default, SCORES, PROBABILITIES),
        "squared errors, broadcast": (aten.mse_loss.default, SCORES, PROBABILITIES[0], NONE),
        "squared errors, a sum": (aten.mse_loss.default, SCORES.half(), PROBABILITIES.half(), SUM),
        "huber": (aten.huber_loss.default, SCORES, PROBABILITIES, MEAN, 0.5),
        "huber, no reduction": (aten.huber_loss.default, SCORES.double(), PROBABILITIES.double(), NONE, 2.0),
        "smooth": (aten.smooth_l1_loss.default, SCORES, PROBABILITIES, SUM, 0.7),
        "huber of edges": (aten.huber_loss.default, EDGES, EDGES * 0, NONE, 0.5),
        "huber of halves": (aten.huber_loss.default, SCORES.half(), PROBABILITIES.half(), MEAN, 1.0),
        "smooth, no reduction": (aten.smooth_l1_loss.default, SCORES * 3, PROBABILITIES, NONE, 1.0),
        "smooth of edges": (aten.smooth_l1_loss.default, EDGES, EDGES * 0, NONE, 3.0),
        "smooth below nothing": (aten.smooth_l1_loss.default, SCORES, PROBABILITIES, NONE, 0.0),
        "events": (aten.poisson_nll_loss.default, SCORES, PROBABILITIES, True, False, 1e-8, MEAN),
        "events, in full": (
            aten.poisson_nll_loss.default,
            SCORES.exp(),
            SCORES.exp() * 2,
            False,
            True,
            1e-8,
            NONE,
        ),
        "no element": (aten.mse_loss.default, torch.zeros(0, 2), torch.zeros(0, 2)),
    }

    PROBABLE = {
        "binary": (aten.binary_cross_entropy.default, CERTAIN, PROBABILITIES),
        "binary, weighted": (aten.binary_cross_entropy.default, CERTAIN, PROBABILITIES, WEIGHT, SUM),
        "logits": (aten.binary_cross_entropy_with_logits.default, SCORES * 30, PROBABILITIES),
        "logits of edges": (aten.binary_cross_entropy_with_logits.default, EDGES, torch.ones(7), None, None, NONE),
        "logits of edges, none": (aten.binary_cross_entropy_with_logits.default, EDGES, torch.zeros(7), None, EDGES[:1], NONE),
        "logits, weighted": (aten.binary_cross_entropy_with_logits.default, SCORES, PROBABILITIES, WEIGHT, WEIGHT, NONE),
        "logits, float64": (aten.binary_cross_entropy_with_logits.default, SCORES.double(), PROBABILITIES.double()),
        "logits, float64, for float32": (aten.binary_cross_entropy_with_logits.default, SCORES.double(), PROBABILITIES),
        "divergence": (aten.kl_div.default, LOGS, CERTAIN),
        "divergence of logarithms": (aten.kl_div.default, LOGS, LOGS.flip(0), SUM, {"log_target": True}),
        "divergence, no reduction": (aten.kl_div.default, LOGS.half(), CERTAIN.half(), NONE),
    }  # fmt: skip
    GRADIENTS = {
        "binary": (aten.binary_cross_entropy_backward.default, ONE, SURE, PROBABILITIES, WEIGHT, MEAN),
        "huber": (aten.huber_loss_backward.default, ONE, SCORES, PROBABILITIES, MEAN, 0.5),
        "squared error": (aten.mse_loss_backward.default, ONE, SCORES, PROBABILITIES, MEAN),
        "smooth": (aten.smooth_l1_loss_backward.default, ONE, SCORES, PROBABILITIES, SUM, 0.7),
        "likelihood": (aten.nll_loss_backward.default, ONE, LOGS, CLASSES, WEIGHT, MEAN, -100, ONE * 5.5),
        "likelihood of one row": (
            aten.nll_loss_backward.default,
            ONE,
            LOGS[0],
            CLASSES[0],
            None,
            NONE,
            -100,
            ONE,
        ),
        "likelihood that ignores a class": (
            aten.nll_loss_backward.default,
            WEIGHT[:4].double(),
            LOGS.double(),
            torch.tensor([2, 0, 2, 4]),
            None,
            NONE,
            2,
            ONE.double(),
        ),
        "pixels": (aten.nll_loss2d_backward.default, ONE, IMAGE, PIXELS, None, SUM, -100, ONE * 18),
    }

    def test_classification(self):
        self.assert_cases(self.CLASSIFICATION)

    def test_pixels_of_other_sizes(self):
        """They are rows of classes, none of an empty batch."""
        losses = each(
            F.cross_entropy,
            lambda x, target: F.cross_entropy(x, target, WEIGHT, reduction="sum"),
            lambda x, target: F.cross_entropy(x, target, ignore_index=1),
        )
        others = [(torch.randn(n, 5, 4, 3), torch.randint(0, 5, (n, 4, 3))) for n in (3, 0)]
        axes = ({0: "n", 2: "height", 3: "width"}, {0: "n", 1: "height", 2: "width"})
        call = Call(losses, (IMAGE, PIXELS), {})
        self.export_and_compare(call, (IMAGE, PIXELS), others=others, dynamic_shapes=(axes,))

    def test_a_size_that_is_ignored(self):
        """Positions of an answer that are behind the text, as the losses of transformers for questions leave them out."""

        def losses(scores, places):
            n = scores.shape[1]
            places = places.clamp(0, n)
            return [
                F.cross_entropy(scores, places, ignore_index=n),
                F.cross_entropy(scores, places, ignore_index=n, reduction="none", label_smoothing=0.1),
                F.cross_entropy(scores, places, ignore_index=n, label_smoothing=0.1),
                F.nll_loss(scores.log_softmax(1), places, ignore_index=n, reduction="sum"),
            ]

        inputs = [
            (torch.randn(rows, n), torch.arange(rows) * 3 % (n + 4)) for rows, n in ((4, 6), (2, 9), (5, 2))
        ]
        axes = ({0: "rows", 1: "text"}, {0: "rows"})
        self.export_and_compare(
            Call(losses, inputs[0], {}), inputs[0], others=inputs[1:], dynamic_shapes=(axes,)
        )

    def test_regression(self):
        self.assert_cases(self.REGRESSION)

    def test_probabilities(self):
        self.assert_cases(self.PROBABLE)

    def test_gradients(self):
        self.assert_cases(self.GRADIENTS)


if __name__ == "__main__":
    unittest.main()
