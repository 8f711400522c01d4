"""Models after quantization-aware training, with FakeQuantize modules."""

import unittest
import warnings

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.ao import quantization

PER_CHANNEL = {
    "ch_axis": 0,
    "dtype": torch.qint8,
    "quant_min": -128,
    "quant_max": 127,
    "qscheme": torch.per_channel_symmetric,
}


class Net(torch.nn.Module):
    """A small network between a QuantStub and a DeQuantStub."""

    def __init__(self):
        super().__init__()
        self.first = quantization.QuantStub()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.relu = torch.nn.ReLU()
        self.linear = torch.nn.Linear(4, 2)
        self.last = quantization.DeQuantStub()

    def forward(self, x):
        x = self.relu(self.conv(self.first(x)))
        return self.last(self.linear(x.mean((2, 3))))


def trained(backend="fbgemm"):
    """A network whose scales were observed."""
    net = Net().train()
    net.qconfig = quantization.get_default_qat_qconfig(backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        net = quantization.prepare_qat(net)
    net(torch.randn(4, 3, 8, 8))
    return net.eval()


def observed(quantizer):
    """A quantizer that has seen a tensor and no longer observes."""
    quantizer(torch.randn(3, 4))
    quantizer.disable_observer()
    return torch.nn.Sequential(quantizer)


def kinds(model):
    return [node.op_type for node in model.graph.node]


class TestFakeQuantizers(ExporterTestCase):
    def test_modules(self):
        cases = {
            "per tensor": quantization.FakeQuantize(quantization.MovingAverageMinMaxObserver),
            "per channel": quantization.FakeQuantize(
                quantization.MovingAveragePerChannelMinMaxObserver, **PER_CHANNEL
            ),
            "fused": quantization.FusedMovingAvgObsFakeQuantize(quantization.MovingAverageMinMaxObserver),
            "fused, per channel": quantization.FusedMovingAvgObsFakeQuantize(
                quantization.MovingAveragePerChannelMinMaxObserver, **PER_CHANNEL
            ),
        }
        for promise, quantizer in cases.items():
            with self.subTest(promise):
                model = self.export_and_compare(
                    observed(quantizer),
                    (torch.randn(3, 4),),
                    others=[(torch.randn(3, 6),)],
                    dynamic_shapes=({1: "width"},),
                    target_opset=20,
                )
                self.assertEqual(kinds(model), ["QuantizeLinear", "DequantizeLinear"])

    def test_a_scale_that_is_a_number(self):
        def quantized(x):
            return torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255)

        module = torch.nn.Module()
        module.forward = quantized
        others = [(torch.randn(rows, 4) * 9,) for rows in (1, 7)]
        self.export_and_compare(module, (torch.randn(3, 4),), others=others, dynamic_shapes=({0: "batch"},))

    def test_a_network(self):
        net = trained()
        net.apply(quantization.disable_observer)
        x = torch.randn(2, 3, 8, 8)
        model = self.export_and_compare(
            net, (x,), others=[(torch.randn(5, 3, 8, 8),)], dynamic_shapes=({0: "batch"},), target_opset=20
        )
        self.assertEqual(kinds(model).count("DequantizeLinear"), 5)
        net.apply(quantization.disable_fake_quant)
        model = self.export_and_compare(net, (x,), target_opset=20)
        self.assertEqual(kinds(model), ["Conv", "Relu", "ReduceMean", "Gemm"])

    def test_an_observer_that_is_on(self):
        with self.assertRaisesRegex(
            CaptureError,
            "a FusedMovingAvgObsFakeQuantize still observes, its scale changes with every call: "
            r"model.apply\(torch.ao.quantization.disable_observer\) first",
        ):
            to_onnx(trained(), (torch.randn(2, 3, 8, 8),))

    def test_without_the_patch(self):
        module = observed(quantization.FakeQuantize(quantization.MovingAverageMinMaxObserver))
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(module, (torch.randn(3, 4),), export_options=ExportOptions(patches=False))

    def test_flags_are_read_at_each_export(self):
        module = observed(quantization.FakeQuantize(quantization.MovingAverageMinMaxObserver))
        x = torch.randn(3, 4)
        self.assertEqual(len(kinds(to_onnx(module, (x,)))), 2)
        module[0].disable_fake_quant()
        self.assertNotIn("QuantizeLinear", kinds(to_onnx(module, (x,))))
        module[0].enable_fake_quant()
        torch.testing.assert_close(module(x), module[0](x))


if __name__ == "__main__":
    unittest.main()
