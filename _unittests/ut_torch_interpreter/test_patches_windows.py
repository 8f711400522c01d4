"""Windows of Swin and its relatives, for images of any size."""

import unittest

import torch
import transformers
from transformers.models.clap import modeling_clap
from transformers.models.focalnet import modeling_focalnet
from transformers.models.mobilevit import modeling_mobilevit
from transformers.models.swin import modeling_swin

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

SIZES = dict(image_size=32, patch_size=2, embed_dim=8, depths=[1], num_heads=[2], window_size=3)


def image(height, width, batch=2):
    """Random images."""
    torch.manual_seed(height)
    return (torch.randn(batch, 3, height, width),)


class Windows(torch.nn.Module):
    """Windows of an image, whose elements are mixed, put together again: as a layer of a model does it."""

    def __init__(self, module, layer, merging):
        super().__init__()
        self.layer, self.merging = layer, merging
        self.place = MODULES.index(module)

    def forward(self, x):
        module, side = MODULES[self.place], self.layer.window_size
        height, width = x.shape[1:3]
        padded, pads = self.layer.maybe_pad(x, height, width)
        cut = module.window_partition(padded, side)
        mixed = cut.flatten(1, 2).cumsum(1).view(-1, side, side, cut.shape[-1])
        whole = module.window_reverse(mixed, side, *padded.shape[1:3])
        if pads[3] > 0 or pads[5] > 0:
            whole = whole[:, :height, :width, :]
        return whole, self.merging.maybe_pad(whole, height, width)


class Padded(Windows):
    """An image that is padded to whole windows and cut off again, and padded to an even one."""

    def forward(self, x):
        height, width = x.shape[1:3]
        padded, pads = self.layer.maybe_pad(x, height, width)
        if pads[3] > 0 or pads[5] > 0:
            padded = padded[:, :height, :width, :]
        return padded, self.merging.maybe_pad(x, height, width)


MODULES = (modeling_swin, modeling_clap)


class TestWindows(ExporterTestCase):
    SHAPES = ({0: "batch", 2: "height", 3: "width"},)

    def test_swin(self):
        model = transformers.SwinModel(transformers.SwinConfig(**SIZES)).eval()
        others = [image(*sizes) for sizes in ((17, 15, 1), (24, 31))]
        self.export_and_compare(
            model, image(16, 18), others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )

    def test_patches_of_focal_net(self):
        layer = modeling_focalnet.FocalNetPatchEmbeddings(transformers.FocalNetConfig(), 16, (3, 4), 3, 2)
        others = [image(*sizes) for sizes in ((15, 16, 1), (14, 17), (13, 19))]
        self.export_and_compare(
            layer, image(15, 16), others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )

    def test_windows_of_a_family_of_their_own(self):
        layer = modeling_clap.ClapAudioLayer(modeling_clap.ClapAudioConfig(window_size=4), 768, (16, 16), 2)
        model = Windows(modeling_clap, layer, modeling_clap.ClapAudioPatchMerging(8))
        args = (torch.randn(2, 6, 9, 3),)
        others = [(torch.randn(batch, *sizes, 3),) for batch, *sizes in ((1, 5, 7), (3, 8, 12), (2, 13, 4))]
        shapes = ({0: "batch", 1: "height", 2: "width"},)
        self.export_and_compare(model, args, others=others, dynamic_shapes=shapes, target_opset=20)

    def test_mobile_vit(self):
        """Maps with whole windows and without, down to one element; an example of one window. `tests.architectures` has the whole model."""
        torch.manual_seed(0)
        config = transformers.MobileViTConfig(patch_size=3, num_attention_heads=2)
        layer = modeling_mobilevit.MobileViTLayer(config, 3, 8, stride=2, hidden_size=8, num_stages=1).eval()
        with torch.no_grad():
            for weight in layer.parameters():
                weight.normal_(0.1, 0.3)
        others = [image(*size) for size in ((6, 4, 1), (33, 31), (14, 5), (1, 2))]
        self.export_and_compare(
            layer, image(5, 6), others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )

    def test_without_it_parities_and_paddings_are_those_of_the_example(self):
        layer = modeling_clap.ClapAudioLayer(modeling_clap.ClapAudioConfig(window_size=4), 768, (16, 16), 2)
        merging = modeling_clap.ClapAudioPatchMerging(8)
        options = dict(dynamic_shapes=({0: "batch", 1: "height", 2: "width"},))
        args = (torch.randn(2, 6, 9, 3),)
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            padded = Padded(modeling_clap, layer, merging)
            to_onnx(padded, args, export_options=ExportOptions(patches=False), **options)
        for line in ("if pads[3] > 0", "(width % 2 == 1)"):
            self.assertIn(line, "\n".join(logs.output))
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Windows(modeling_clap, layer, merging), args, **options)

    def test_static_sizes_take_what_the_model_has(self):
        model = transformers.SwinModel(transformers.SwinConfig(**SIZES)).eval()
        with self.assertNoLogs("experimental_experiment.torch_interpreter.patches", "INFO"):
            to_onnx(model, image(16, 18), dynamic_shapes=({0: "batch"},))

    def test_undone(self):
        def functions():
            return [
                modeling_swin.window_partition,
                modeling_swin.window_reverse,
                modeling_swin.SwinLayer.maybe_pad,
                modeling_swin.SwinPatchMerging.maybe_pad,
                modeling_swin.SwinPatchEmbeddings.maybe_pad,
            ]

        before = functions()
        model = transformers.SwinModel(transformers.SwinConfig(**SIZES)).eval()
        with bypass_export_some_errors(patch_transformers=True):
            self.assertFalse(set(before) & set(functions()))
            inside = model(*image(17, 15)).last_hidden_state
        self.assertEqual(before, functions())
        torch.testing.assert_close(inside, model(*image(17, 15)).last_hidden_state)


if __name__ == "__main__":
    unittest.main()
