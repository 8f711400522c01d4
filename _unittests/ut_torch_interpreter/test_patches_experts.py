"""Mixtures of experts whose loop over the chosen ones depends on the data."""

import unittest

import torch
from transformers.models.longcat_flash import modeling_longcat_flash as longcat
from transformers.models.openai_privacy_filter import modeling_openai_privacy_filter as privacy_filter

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

HIDDEN = 8
SHAPES = ({0: "tokens"},) * 3


def experts(module, name, config, **sizes):
    """A layer of experts with random weights."""
    layer = getattr(module, name)(config(hidden_size=HIDDEN, **sizes))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer.eval()


def call(tokens, among, chosen=2):
    """The states of tokens, the experts that each chooses, their weights."""
    choices = torch.stack([among[torch.randperm(len(among))[:chosen]] for _ in range(tokens)])
    return torch.randn(tokens, HIDDEN), choices, torch.rand(tokens, chosen)


class TestEveryExpert(ExporterTestCase):
    def layers(self):
        """The layers, and the number of experts of each."""
        sizes = {"expert_ffn_hidden_size": 4, "n_routed_experts": 3}
        for name, zeros in (("LongCat", 2), ("LongCat without identities", 0)):
            layer = experts(
                longcat, "LongcatFlashExperts", longcat.LongcatFlashConfig, zero_expert_num=zeros, **sizes
            )
            yield name, layer, 3 + zeros
        config = privacy_filter.OpenAIPrivacyFilterConfig
        layer = experts(
            privacy_filter, "OpenAIPrivacyFilterExperts", config, intermediate_size=4, num_local_experts=3
        )
        layer.config._experts_implementation = "eager"
        yield "privacy filter", layer, 3

    def test_any_choice(self):
        for name, layer, count in self.layers():
            with self.subTest(name):
                everyone = torch.arange(count)
                others = [call(7, everyone), call(2, everyone[1:]), call(1, everyone[:2])]
                self.export_and_compare(
                    layer, call(5, everyone), others=others, dynamic_shapes=SHAPES, target_opset=20
                )
                with self.assertRaises(CaptureError):
                    options = ExportOptions(patches=False)
                    to_onnx(layer, call(5, everyone), dynamic_shapes=SHAPES, export_options=options)

    def test_another_implementation_is_kept(self):
        *_, (_, layer, count) = self.layers()
        example = call(5, torch.arange(count))
        loop = to_onnx(layer, example, dynamic_shapes=SHAPES)
        layer.config._experts_implementation = "batched_mm"
        batched = to_onnx(layer, example, dynamic_shapes=SHAPES)
        self.assertIn("NonZero", {node.op_type for node in loop.graph.node})
        self.assertNotIn("NonZero", {node.op_type for node in batched.graph.node})


if __name__ == "__main__":
    unittest.main()
