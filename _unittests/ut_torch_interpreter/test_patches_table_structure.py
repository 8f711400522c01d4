"""SLANet: tables that end at different steps, or never."""

import unittest

import torch
from transformers.models.slanet import modeling_slanet

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Head(torch.nn.Module):
    """The head that writes at most 12 tokens of 4."""

    def __init__(self):
        super().__init__()
        config = modeling_slanet.SLANetConfig(
            post_conv_out_channels=6, hidden_size=8, out_channels=4, max_text_length=11
        )
        torch.manual_seed(6)
        self.head = modeling_slanet.SLANetSLAHead(config)
        for weight in self.head.parameters():
            torch.nn.init.normal_(weight)

    def forward(self, states):
        return self.head(states).last_hidden_state


class TestTables(ExporterTestCase):
    SHAPES = ({0: "batch", 1: "places"},)

    def test_any_tables(self):
        model, calls = Head().eval(), []
        for seed in range(12):
            torch.manual_seed(seed)
            calls.append((4 * torch.randn(1 + seed % 3, 5 + seed, 6),))
        lengths = {model(*call).shape[1] for call in calls}
        self.assertGreater(len(lengths), 2)
        self.assertIn(12, lengths)
        example, *others = sorted(calls, key=lambda call: call[0].shape[0] != 2)
        self.export_and_compare(model, example, others=others, dynamic_shapes=self.SHAPES, target_opset=20)

    def test_refused_without(self):
        options = ExportOptions(patches=False)
        with self.assertRaises(CaptureError):
            to_onnx(
                Head().eval(), (torch.randn(2, 5, 6),), dynamic_shapes=self.SHAPES, export_options=options
            )

    def test_undone(self):
        before = modeling_slanet.SLANetSLAHead.forward
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIsNot(modeling_slanet.SLANetSLAHead.forward, before)
        self.assertIs(modeling_slanet.SLANetSLAHead.forward, before)


if __name__ == "__main__":
    unittest.main()
