"""Masks of ``torch.nn.Transformer``, its encoder and its decoder."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X, PADDED = torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
SHAPES = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})


class Model(torch.nn.Module):
    """An encoder of padded sequences."""

    def __init__(self, with_mask=False, **options):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, **options)
        self.with_mask = with_mask

    def forward(self, x, padded=None):
        mask = torch.zeros(x.shape[1], x.shape[1]) if self.with_mask else None
        return self.encoder(x, mask, src_key_padding_mask=padded)


class Function(torch.nn.Module):
    """The layers, and a function of them."""

    def __init__(self, function):
        super().__init__()
        options = dict(batch_first=True, dim_feedforward=16, dropout=0.0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, **options)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(8, 2, **options), 1)
        self.both = torch.nn.Transformer(8, 2, 1, 1, **options)
        self.function = function

    def forward(self, x, mask):
        return self.function(self, x, mask)


def causal(x):
    return torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])


def banded(length):
    """A mask that is not causal, of minus infinities: without gradients eager takes whatever is not 0 for one."""
    return torch.full((length, length), -torch.inf).triu(2) + torch.full((length, length), -torch.inf).tril(
        -2
    )


class TestGivenMasks(ExporterTestCase):
    FUNCTIONS = {
        "a mask that is made": lambda layers, x, mask: layers.encoder(x, causal(x)),
        "a mask of booleans": lambda layers, x, mask: layers.encoder(x, torch.isinf(causal(x))),
        "a mask that is an input": lambda layers, x, mask: layers.encoder(x, mask),
        "one that is causal": lambda layers, x, mask: layers.encoder(x, causal(x), is_causal=True),
        "a decoder": lambda layers, x, mask: layers.decoder(x, x * 2, tgt_mask=mask),
        "both": lambda layers, x, mask: layers.both(x, x * 2, src_mask=mask, tgt_mask=causal(x)),
    }
    SHAPES = ({0: "batch", 1: "length"}, {0: "length", 1: "length"})

    def test_same_as_eager(self):
        args = X, causal(X)
        static = [(X, banded(4))]
        dynamic = [(torch.randn(1, 5, 8), banded(5)), (X[:, :1], causal(X[:, :1]))]
        for promise, function in self.FUNCTIONS.items():
            for shapes, others in ((None, static), (self.SHAPES, dynamic)):
                with self.subTest(promise, shapes=shapes):
                    model = Function(function).eval()
                    self.export_and_compare(model, args, others=others, dynamic_shapes=shapes)

    def test_captured_by_torch_dynamo(self):
        model = Function(self.FUNCTIONS["both"]).eval()
        self.export_and_compare(
            model,
            (X, causal(X)),
            others=[(torch.randn(1, 5, 8), banded(5))],
            dynamic_shapes=self.SHAPES,
            export_options=ExportOptions(strict=True),
        )

    def test_without_the_patch(self):
        model = Function(self.FUNCTIONS["a mask that is an input"]).eval()
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(model, (X, causal(X)), export_options=ExportOptions(patches=False))


class TestPaddedEncoders(ExporterTestCase):
    def test_the_ends_are_warned_about(self):
        model = Model().eval()
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            written = to_onnx(model, (X, PADDED), dynamic_shapes=SHAPES)
        self.assertIn("gives zeros where src_key_padding_mask pads", logs.output[0])
        with torch.no_grad():
            self.assertEqual(0, model(X, PADDED)[1, 2:].count_nonzero())
        with torch.enable_grad():  # the way that is exported
            other = torch.randn(3, 5, 8), torch.arange(5).expand(3, 5) > 2
            for args in ((X, PADDED), other):
                (got,) = run(session(written), args)
                torch.testing.assert_close(got, model(*args).detach(), rtol=1e-4, atol=1e-5)

    def test_one_way_in_eager(self):
        cases = {
            "no nested tensors": (Model(enable_nested_tensor=False).eval(), (X, PADDED)),
            "nothing is padded": (Model().eval(), (X,)),
            "a mask as well": (Model(with_mask=True).eval(), (X, PADDED)),
        }
        for promise, (model, args) in cases.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(model, args, dynamic_shapes=SHAPES[: len(args)])


if __name__ == "__main__":
    unittest.main()
