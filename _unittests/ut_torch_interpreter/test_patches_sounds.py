"""Towers for sounds that cut them into chunks and windows: any number of sounds, of any lengths."""

import unittest

import torch
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as omni_2_5
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniAudioEncoderConfig
from transformers.models.qwen3_asr import modeling_qwen3_asr as asr
from transformers.models.qwen3_asr.configuration_qwen3_asr import Qwen3ASREncoderConfig
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as omni_3
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeAudioEncoderConfig

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

SMALL = {
    "num_mel_bins": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "d_model": 32,
    "output_dim": 24,
}
WINDOWS = {**SMALL, "n_window": 50, "n_window_infer": 200, "downsample_hidden_size": 4}
SOUNDS = {"input_features": {1: "frames"}, "feature_lens": {0: "sounds"}}


def sounds(*lengths):
    """Sounds of these numbers of frames, one after the other."""
    return {"input_features": torch.randn(16, sum(lengths)), "feature_lens": torch.tensor(lengths)}


class Tower(torch.nn.Module):
    """Qwen2.5-Omni's tower, which is given the lengths after its first convolution too."""

    def __init__(self):
        super().__init__()
        self.tower = omni_2_5.Qwen2_5OmniAudioEncoder(Qwen2_5OmniAudioEncoderConfig(**SMALL, n_window=8))

    def forward(self, input_features, feature_lens):
        lengths = (feature_lens - 1) // 2 + 1
        return self.tower(input_features, feature_lens=feature_lens, aftercnn_lens=lengths).last_hidden_state


class Windows(torch.nn.Module):
    """The boundaries of the windows alone."""

    def forward(self, chunk_lengths, feature_lens):
        return omni_3.get_audio_cu_seqlens(chunk_lengths, feature_lens, n_window_infer=16, n_window=4)


class TestSounds(ExporterTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def test_chunks(self):
        calls = [sounds(*lengths) for lengths in ((40, 17), (33, 50, 16), (9,), (48, 32))]
        with torch.no_grad():
            self.export_and_compare(
                Tower().eval(), (), calls[0], others=[((), call) for call in calls[1:]], dynamic_shapes=SOUNDS
            )

    def test_chunks_and_windows(self):
        tower = omni_3.Qwen3OmniMoeAudioEncoder(Qwen3OmniMoeAudioEncoderConfig(**WINDOWS, conv_chunksize=2))
        calls = [sounds(*lengths) for lengths in ((280, 119), (100, 350, 1), (63,), (500, 200))]
        with torch.no_grad():
            self.export_and_compare(
                tower.eval(), (), calls[0], others=[((), call) for call in calls[1:]], dynamic_shapes=SOUNDS
            )
        self.assertEqual(2, tower.conv_chunksize)

    def test_windows_beside_a_mask(self):
        encoder = asr.Qwen3ASREncoder(Qwen3ASREncoderConfig(**WINDOWS)).eval()
        masks = [
            (torch.arange(frames) < torch.tensor(lengths)[:, None]).long()
            for frames, lengths in ((300, (280, 119)), (400, (100, 350, 1)), (100, (63,)))
        ]
        calls = [
            {"input_features": torch.randn(len(mask), 16, mask.shape[1]), "input_features_mask": mask}
            for mask in masks
        ]
        shapes = {
            "input_features": {0: "sounds", 2: "frames"},
            "input_features_mask": {0: "sounds", 1: "frames"},
        }
        with torch.no_grad():
            self.export_and_compare(
                encoder, (), calls[0], others=[((), call) for call in calls[1:]], dynamic_shapes=shapes
            )

    def test_boundaries(self):
        lengths = [(30, 5), (8,), (16, 1, 31), (33, 40, 64, 7)]
        calls = [(torch.tensor([8, 8, min(8, max(call)), 3]), torch.tensor(call)) for call in lengths]
        shapes = ({0: "chunks"}, {0: "sounds"})
        self.export_and_compare(Windows(), calls[0], others=calls[1:], dynamic_shapes=shapes)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(Windows(), calls[0], dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_what_is_given_is_not_computed(self):
        def given(chunk_lengths, feature_lens, boundaries):
            module = {"cu_seqlens": boundaries}
            found = omni_3.get_audio_cu_seqlens(chunk_lengths, feature_lens, 16, 4, kwargs=module)
            padded = {"padded_feature": boundaries, "chunk_lengths": chunk_lengths}
            return found + 1, *omni_2_5.chunk_and_pad_features(boundaries, feature_lens, 4, kwargs=padded)

        lengths = torch.tensor([8, 3]), torch.tensor([11]), torch.tensor([0, 4, 6])
        self.export_and_compare(given, lengths, others=[tuple(x + 1 for x in lengths)])


if __name__ == "__main__":
    unittest.main()
