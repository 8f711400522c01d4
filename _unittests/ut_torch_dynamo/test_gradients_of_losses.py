"""Gradients of losses and of recurrent layers."""

import unittest

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F

from _unittests.ut_torch_dynamo.gradient_case import (
    CLASSES,
    FLAT,
    IMAGE,
    POSITIVE,
    SEQUENCE,
    GradientTestCase,
    integers,
    normal,
)
from experimental_experiment.torch_dynamo import onnx_custom_backend
from experimental_experiment.torch_interpreter.torch_versions import states_of_lstm_have_an_axis_too_many


class TestLosses(GradientTestCase):
    CASES = {
        "multilabel_margin_loss whose targets end": (
            lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, 2, -1, 1, 1], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0]])), FLAT),
        "cross_entropy": (F.cross_entropy, FLAT, CLASSES),
        "cross_entropy with weights and smoothing": (
            lambda x, y: F.cross_entropy(x, y, weight=torch.arange(1.0, 6.0), label_smoothing=0.1), FLAT, CLASSES),
        "cross_entropy that ignores": (lambda x, y: F.cross_entropy(x, y, ignore_index=2), FLAT, torch.tensor([1, 2, 4])),
        "cross_entropy of probabilities": (F.cross_entropy, FLAT, FLAT.softmax(1)),
        "cross_entropy of images": (F.cross_entropy, IMAGE, integers(4, 2, 6, 7)),
        "nll_loss": (lambda x, y: F.nll_loss(x, y, reduction="sum"), FLAT, CLASSES),
        "mse_loss": (F.mse_loss, FLAT, POSITIVE),
        "l1_loss": (F.l1_loss, FLAT, POSITIVE),
        "smooth_l1_loss": (F.smooth_l1_loss, FLAT, POSITIVE),
        "huber_loss": (F.huber_loss, FLAT, POSITIVE),
        "bce": (F.binary_cross_entropy, FLAT.sigmoid(), POSITIVE.sigmoid()),
        "bce with logits": (F.binary_cross_entropy_with_logits, FLAT, POSITIVE.sigmoid()),
        "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), FLAT, POSITIVE),
        "poisson_nll": (F.poisson_nll_loss, FLAT, POSITIVE),
        "hinge_embedding": (F.hinge_embedding_loss, FLAT, torch.where(FLAT > 0, 1, -1)),
        "margin_ranking": (F.margin_ranking_loss, FLAT, POSITIVE, torch.where(FLAT > 0, 1, -1)),
        "triplet": (F.triplet_margin_loss, FLAT, POSITIVE, normal(3, 5)),
        "multi_margin": (F.multi_margin_loss, FLAT, CLASSES),
        "cosine_embedding": (F.cosine_embedding_loss, FLAT, POSITIVE, torch.tensor([1, -1, 1])),
        "soft_margin": (lambda x: F.soft_margin_loss(x, (x > 0).to(x.dtype) * 2 - 1), FLAT),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_functions(self.CASES)

    def test_rows_and_targets_that_are_flattened(self):
        """As in a language model: torch cannot tell that there are as many rows as targets."""

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(9, 4)

            def forward(self, tokens, targets):
                scores = self.table(tokens) @ self.table.weight.t()
                return F.cross_entropy(scores.view(-1, 9), targets.view(-1), ignore_index=3)

        calls = [(integers(9, *sizes), integers(9, *sizes)) for sizes in ((2, 6), (3, 7), (4, 5))]
        self.assert_same_gradients(Model(), calls, dynamic=None)
        self.assertEqual(4, len(self.instances))  # forward and backward, of the first sizes and of any


class TestRecurrent(GradientTestCase):
    CASES = {
        "lstm": (torch.nn.LSTM(8, 4, batch_first=True), SEQUENCE),
        "gru": (torch.nn.GRU(8, 4, batch_first=True), SEQUENCE),
        "lstm cell": (torch.nn.LSTMCell(5, 4), FLAT),
        "gru cell": (torch.nn.GRUCell(5, 4), FLAT),
    }

    def test_same_as_eager(self):
        with torch._dynamo.config.patch(allow_rnn=True):
            self.assert_functions(self.CASES)

    @torch._dynamo.config.patch(allow_rnn=True)
    def test_states_that_torch_misreads_are_refused(self):
        torch._dynamo.reset()
        model, x = torch.nn.LSTM(8, 4, batch_first=True), SEQUENCE.clone().requires_grad_()

        def last(x):
            return model(x)[1][0][-1] * 2

        compiled = torch.compile(last, backend=onnx_custom_backend)
        if not states_of_lstm_have_an_axis_too_many():
            torch.testing.assert_close(compiled(x), last(x))
            return
        with self.assertRaisesRegex(
            BackendCompilerFailed, "the last states of an LSTM for tensors of rank 4"
        ):
            compiled(x)


if __name__ == "__main__":
    unittest.main()
