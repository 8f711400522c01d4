"""The examples of PyTorch's torch.export tutorial and of the documents on exporters, each compared with eager."""

import unittest

import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

torch.manual_seed(0)


class MyModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(100, 10)

    def forward(self, x, y):
        return torch.nn.functional.relu(self.lin(x + y), inplace=True)


class BranchOnData(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return torch.sin(x)
        return torch.cos(x)


class WriteThroughData(torch.nn.Module):
    def forward(self, x):
        x.data[0, 0] = 3
        return x


class BranchWithCond(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: torch.cos(x), [x])


class MapModule(torch.nn.Module):
    def forward(self, xs, y, z):
        return torch_map(lambda x, y, z: x + y + z, xs, y, z)


class DynamicModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(5, 3)

    def forward(self, w, x, y, z):
        x0 = x + y
        x1 = self.l(w)
        x2 = x0.flatten()
        x3 = x2 + z
        return x1, x3


class GuardedModel(DynamicModel):
    def forward(self, w, x, y, z):
        assert w.shape[0] <= 512
        torch._check(x.shape[0] >= 4)
        if w.shape[0] == x.shape[0] + 2:
            return super().forward(w, x, y, z)
        return w


class Items(torch.nn.Module):
    def forward(self, x, y):
        return [*y.tolist(), x.item()]


class CheckedItem(torch.nn.Module):
    def forward(self, x, y):
        a = x.item()
        torch._check(a >= 10)
        torch._check(a <= 60)
        return y + 2 if a // 2 >= 5 else y * 5


class IndexByItem(torch.nn.Module):
    def forward(self, x, y):
        a = x.item()
        torch._check(a >= 0)
        torch._check(a < y.shape[0])
        return y[a]


class RepeatByItem(torch.nn.Module):
    def forward(self, x, y):
        a = x.item()
        return y.unsqueeze(0).repeat(a, 1) + a


class ConvolutionAndNormalization(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 1, 1)
        self.bn = torch.nn.BatchNorm2d(3)

    def forward(self, x):
        return (self.bn(self.conv(x)),)


class CondOnShape(torch.nn.Module):
    def forward(self, x):
        pred = x.dim() > 2 and x.shape[2] > 10
        return torch.cond(pred, lambda x: x.cos(), lambda y: y.sin(), [x])


class ScanModel(torch.nn.Module):
    """The carry is also a result: torch allows that without strict only."""

    def forward(self, x):
        def add(carry, y):
            next_carry = carry + y
            return [next_carry, next_carry]

        carry, _ = torch.ops.higher_order.scan(add, [torch.zeros_like(x[0])], [x], ())
        return carry


class StrictScanModel(torch.nn.Module):
    def forward(self, x):
        def add(carry, y):
            next_carry = carry + y
            return next_carry, next_carry.clone()

        carry, _ = scan(add, torch.zeros_like(x[0]), x, dim=0)
        return carry


class UpdateModel(torch.nn.Module):
    def forward(self, x, update, kv_index):
        x = x.clone()
        x[..., kv_index] = update
        return x


class TestDocuments(ExporterTestCase):
    def test_linear(self):
        self.export_and_compare(MyModule(), (torch.randn(8, 100), torch.randn(8, 100)))

    def test_branch_on_data_is_refused_with_a_hint(self):
        with self.assertRaisesRegex(CaptureError, "torch.cond"):
            to_onnx(BranchOnData(), (torch.randn(3, 3),))

    def test_write_through_data_is_what_torch_refuses(self):
        with self.assertRaises(CaptureError):
            to_onnx(WriteThroughData(), (torch.randn(3, 3),))

    def test_cond(self):
        self.export_and_compare(BranchWithCond(), (torch.ones(3, 3),), others=[(-torch.ones(3, 3),)])

    def test_map(self):
        example = (torch.ones(6, 4), torch.tensor(5), torch.tensor(4))
        shapes = ({0: "rows"}, None, None)
        others = [(torch.randn(9, 4), torch.tensor(-5), torch.tensor(2))]
        self.export_and_compare(MapModule(), example, dynamic_shapes=shapes, others=others)

    def test_automatic_dimensions(self):
        example = (torch.randn(6, 5), torch.randn(4), torch.randn(8, 4), torch.randn(32))
        other = (torch.randn(7, 5), torch.randn(6), torch.randn(3, 6), torch.randn(18))
        shapes = {name: (Dim.AUTO,) * tensor.dim() for name, tensor in zip("wxyz", example)}
        self.export_and_compare(DynamicModel(), example, dynamic_shapes=shapes, others=[other])

    def test_branch_on_shapes(self):
        example = (torch.randn(6, 5), torch.randn(4), torch.randn(8, 4), torch.randn(32))
        other = (torch.randn(9, 5), torch.randn(7), torch.randn(2, 7), torch.randn(14))
        shapes = {name: (Dim.AUTO,) * tensor.dim() for name, tensor in zip("wxyz", example)}
        self.export_and_compare(GuardedModel(), example, dynamic_shapes=shapes, others=[other])

    def test_dimensions_that_are_equal_are_refused_with_a_hint(self):
        dx, dy, d1 = torch.export.dims("dx", "dy", "d1")
        with self.assertRaisesRegex(CaptureError, "hint"):
            to_onnx(
                lambda x, y: x + y + torch.ones(4),
                (torch.randn(6, 4), torch.randn(6, 4)),
                dynamic_shapes={"x": (dx, d1), "y": (dy, d1)},
            )

    def test_items(self):
        example = (torch.tensor(1), torch.tensor([2, 3]))
        self.export_and_compare(Items(), example, others=[(torch.tensor(-7), torch.tensor([5, 0]))])

    def test_checked_item(self):
        example = (torch.tensor(32), torch.randn(4))
        self.export_and_compare(CheckedItem(), example, others=[(torch.tensor(50), torch.randn(4))])

    def test_index_by_item(self):
        example = (torch.tensor(32), torch.randn(60))
        self.export_and_compare(IndexByItem(), example, others=[(torch.tensor(0), torch.randn(60))])

    def test_repeat_by_item(self):
        example = (torch.tensor(32), torch.randn(60))
        self.export_and_compare(RepeatByItem(), example, others=[(torch.tensor(3), torch.randn(60))])

    def test_custom_operator(self):
        @torch.library.custom_op("documents::relu", mutates_args={})
        def custom_op(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x)

        custom_op.register_fake(lambda x: torch.empty_like(x))
        model = torch.nn.Module()
        model.forward = lambda x: torch.cos(custom_op(torch.sin(x)))
        self.export_and_compare(
            model, (torch.randn(3, 3),), translations={custom_op: lambda op, x: op.Relu(x)}
        )

    def test_batch_normalization_in_training(self):
        self.export_and_compare(ConvolutionAndNormalization(), (torch.randn(2, 1, 3, 3),))

    def test_decomposition_table(self):
        table = torch.export.default_decompositions()

        def twice(x, weight, bias, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
            convolution = torch.ops.aten.convolution
            return 2 * convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)

        table[torch.ops.aten.conv2d.default] = twice
        x = torch.randn(2, 1, 3, 3)
        conv = torch.nn.Conv2d(1, 3, 1)
        model = to_onnx(conv, (x,), export_options=ExportOptions(decomposition_table=table))

        class Doubled(torch.nn.Module):
            def forward(self, x):
                return 2 * conv(x)

        self.assert_matches(model, Doubled(), (x,), scale=2)  # bias and product are rounded apart

    def test_cond_on_shapes(self):
        self.export_and_compare(CondOnShape(), (torch.randn(3, 3, 11),))
        self.export_and_compare(CondOnShape(), (torch.randn(3, 3),))

    def test_scan(self):
        x = torch.arange(9.0).reshape(3, 3)
        self.export_and_compare(ScanModel(), (x,))
        self.export_and_compare(StrictScanModel(), (x,), export_options=ExportOptions(strict=True))

    def test_update_by_index(self):
        update = (torch.arange(2) + 10).to(torch.float32).reshape((1, 1, 2))
        example = (torch.ones((4, 4, 10)), update, torch.tensor([1, 2], dtype=torch.int32))
        for strict in (True, False):
            with self.subTest(strict=strict):
                self.export_and_compare(UpdateModel(), example, export_options=ExportOptions(strict=strict))


if __name__ == "__main__":
    unittest.main()
