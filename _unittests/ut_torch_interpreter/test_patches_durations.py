"""FastSpeech 2: vectors that are repeated for as many frames as the data say, and their positions."""

import unittest

import torch
from transformers.models.fastspeech2_conformer import modeling_fastspeech2_conformer as fast_speech
from transformers.models.fastspeech2_conformer.configuration_fastspeech2_conformer import (
    FastSpeech2ConformerConfig,
)

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.torch_interpreter.patches import durations

T = torch.tensor
DURATIONS = {
    "any": T([[2, 0, 1], [1, 3, 4]]),
    "a row of none": T([[0, 0, 0], [1, 2, 0]]),
    "none at all": T([[0, 0, 0], [0, 0, 0]]),
}


class Frames(torch.nn.Module):
    """The frames of a text, and what their positions add."""

    def __init__(self, speed=1.0):
        super().__init__()
        config = FastSpeech2ConformerConfig(hidden_size=6)
        self.positions = fast_speech.FastSpeech2ConformerRelPositionalEncoding(config, config.decoder_config)
        self.speed = speed

    def forward(self, x, durations):
        durations = durations + 0
        frames = fast_speech.length_regulator(x, durations, self.speed)
        return *self.positions(frames), durations


def call(durations):
    """The vectors of a text, and how long each is spoken."""
    torch.manual_seed(0)
    return torch.randn(*durations.shape, 6), durations


class TestDurations(ExporterTestCase):
    SHAPES = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})

    def test_same_as_the_loop(self):
        for promise, given in DURATIONS.items():
            for speed in (1.0, 1.7):
                with self.subTest(promise, speed=speed):
                    expected, got = given.clone(), given.clone()
                    x, _ = call(given)
                    wanted = fast_speech.length_regulator(x, expected, speed)
                    self.assertTrue(torch.equal(durations.length_regulator(x, got, speed), wanted))
                    self.assertTrue(torch.equal(got, expected))
        with self.assertRaisesRegex(ValueError, "`speaking_speed` must be greater than 0."):
            durations.length_regulator(x, given, 0.0)

    def test_any_durations(self):
        others = [
            call(DURATIONS["a row of none"]),
            call(DURATIONS["none at all"]),
            call(T([[3, 1], [0, 9], [1, 0]])),
        ]
        for speed in (1.0, 1.7):
            with self.subTest(speed=speed):
                model = Frames(speed).eval()
                self.export_and_compare(
                    model, call(DURATIONS["any"]), others=others, dynamic_shapes=self.SHAPES, target_opset=20
                )
        with self.assertRaises(CaptureError):
            options = ExportOptions(patches=False)
            to_onnx(model, call(DURATIONS["any"]), dynamic_shapes=self.SHAPES, export_options=options)

    def test_undone(self):
        before = fast_speech.length_regulator, fast_speech.FastSpeech2ConformerRelPositionalEncoding.forward
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIs(fast_speech.length_regulator, durations.length_regulator)
        after = fast_speech.length_regulator, fast_speech.FastSpeech2ConformerRelPositionalEncoding.forward
        self.assertEqual(after, before)


if __name__ == "__main__":
    unittest.main()
