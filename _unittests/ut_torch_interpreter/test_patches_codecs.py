"""Audio codecs with a dynamic number of samples."""

import unittest
import unittest.mock

import torch
import transformers

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches import codecs


class Codes(torch.nn.Module):
    """The codes of a codec alone."""

    def __init__(self, codec):
        super().__init__()
        self.codec = codec

    def forward(self, samples):
        return self.codec.encode(samples).audio_codes


class TestCodecs(ExporterTestCase):
    """Lengths with every remainder of the strides."""

    def test_encodec(self):
        config = transformers.EncodecConfig(
            num_filters=4, hidden_size=16, codebook_size=32, codebook_dim=16, upsampling_ratios=[4, 2], num_lstm_layers=1,
            target_bandwidths=[1.5], sampling_rate=2000, chunk_length_s=None, overlap=None, normalize=False,
        )  # fmt: skip
        codec = Codes(transformers.EncodecModel(config).eval())
        shapes = {"samples": {0: "batch", 2: "samples"}}
        example = (torch.randn(2, 1, 101),)
        with self.assertLogs("experimental_experiment", "INFO") as logged:
            model = to_onnx(codec, example, dynamic_shapes=shapes)
        for name in ("codec_padding", "one_chunk"):
            self.assertIn(f"patch {name} was used", "".join(logged.output))
        for batch, length in ((2, 101), (3, 96), (1, 59), (2, 58), (2, 60)):
            self.assert_matches(model, codec, (torch.randn(batch, 1, length),))
        with self.assertRaises(CaptureError):
            to_onnx(codec, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    @unittest.skipUnless(hasattr(transformers, "WavTokenizerModel"), "transformers before 5.24")
    def test_wav_tokenizer(self):
        module = transformers.models.wavtokenizer.modeling_wavtokenizer
        for stride, size in ((1, 3), (3, 4), (4, 8)):
            layer = module.WavTokenizerConv1d(
                transformers.WavTokenizerEncoderConfig(), 1, 2, size, stride
            ).eval()
            with torch.no_grad():
                self.export_and_compare(
                    layer,
                    (torch.randn(2, 1, 40),),
                    others=[(torch.randn(3, 1, length),) for length in (41, 42, 43, 51)],
                    dynamic_shapes=({0: "batch", 2: "samples"},),
                )

    def test_extra_padding(self):
        for stride, size in ((1, 3), (2, 4), (4, 8), (5, 10), (3, 4)):
            layer = transformers.models.encodec.modeling_encodec.EncodecConv1d(
                transformers.EncodecConfig(), 1, 1, size, stride
            )
            numbers = unittest.mock.Mock(stride=stride, kernel_size=size, padding_total=size - stride)
            for length in range(1, 30):
                x = torch.ones(1, 1, length)
                expected = int(layer._get_extra_padding_for_conv1d(x))
                self.assertEqual(codecs.extra_padding(numbers, x), expected, (stride, size, length))


if __name__ == "__main__":
    unittest.main()
