"""The examples of PyTorch's torch.export tutorial and of the documents on exporters, each compared with eager."""

import itertools
import unittest

import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from experimental_experiment.comparison import run, session
from experimental_experiment.higher_order_ops import simple_loop_for
from experimental_experiment.testing import Call, ExporterTestCase
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


class AddAddress(torch.nn.Module):
    def forward(self, x):
        x = x + 1
        return x + id(x)


class BranchOnItem(torch.nn.Module):
    def forward(self, x, y):
        a = x.item()
        return y + 2 if a // 2 >= 5 else y * 5


class IndexByUncheckedItem(torch.nn.Module):
    def forward(self, x, y):
        return y[x.item()]


class LoopOnItem(torch.nn.Module):
    def forward(self, x, y):
        a = x.item()
        b = torch.cat([y for y in range(a)], dim=0)
        return b + int(a)


class IntAndBool(torch.nn.Module):
    def forward(self, tensor_0, tensor_1, int_val, bool_val):
        return tensor_0 * int_val, tensor_1 - 1 if bool_val else tensor_1 + int_val


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


class CroppedRows(torch.nn.Module):
    """The document on loops: pieces of W between two splits, the first columns of each."""

    def __init__(self, crop_size):
        super().__init__()
        self.crop_size = crop_size

    def forward(self, W, splits):
        cropped = []
        for start, end in itertools.pairwise(splits):
            extract = W[:, start:end]
            if extract.shape[1] < self.crop_size:
                cropped.append(extract)
            else:
                cropped.append(extract[:, : self.crop_size])
        return torch.cat(cropped, axis=1)


class CroppedRowsWithScan(CroppedRows):
    def forward(self, W, splits):
        def body_scan(init, split, W):
            extract = W[:, split[0].item() : split[1].item()]
            cropped = extract[:, : torch.sym_min(extract.shape[1], self.crop_size)]
            return torch.cat([init, cropped], axis=1)

        starts_ends = torch.cat([splits[:-1].unsqueeze(1), splits[1:].unsqueeze(1)], axis=1)
        init = torch.empty((W.shape[0], 0), dtype=W.dtype)
        return torch.ops.higher_order.scan(body_scan, [init], [starts_ends], [W])


class CroppedRowsWithLoop(CroppedRows):
    def forward(self, W, splits):
        def body_loop(i, splits, W):
            split = splits[i.item() : (i + 1).item()][0]
            extract = W[:, split[0].item() : split[1].item()]
            return (extract[:, : torch.sym_min(extract.shape[1], self.crop_size)],)

        starts_ends = torch.cat([splits[:-1].unsqueeze(1), splits[1:].unsqueeze(1)], axis=1)
        turns = torch.tensor(starts_ends.shape[0], dtype=torch.int64)
        return simple_loop_for(turns, body_loop, (starts_ends, W), concatenation_dims=[1])


class UpdateModel(torch.nn.Module):
    def forward(self, x, update, kv_index):
        x = x.clone()
        x[..., kv_index] = update
        return x


LOOP_SHAPES = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})


class TestDocuments(ExporterTestCase):
    def test_linear(self):
        self.export_and_compare(MyModule(), (torch.randn(8, 100), torch.randn(8, 100)))

    def test_branch_on_data_is_refused_with_a_hint(self):
        with self.assertRaisesRegex(CaptureError, "torch.cond"):
            to_onnx(BranchOnData(), (torch.randn(3, 3),))

    def test_write_through_data_is_what_torch_refuses_without_a_patch(self):
        with self.assertRaises(CaptureError):
            to_onnx(WriteThroughData(), (torch.randn(3, 3),), export_options=ExportOptions(patches=False))
        self.export_and_compare(WriteThroughData(), (torch.randn(3, 3),), others=[(torch.randn(3, 3),)])

    def test_the_address_of_an_object_is_refused_by_the_strict_capture(self):
        with self.assertRaises(CaptureError):
            to_onnx(AddAddress(), (torch.randn(3, 3),), export_options=ExportOptions(strict=True))
        # without strict, the address seen while capturing is a constant of the model
        model = to_onnx(AddAddress(), (torch.randn(3, 3),), export_options=ExportOptions(strict=False))
        self.assertEqual(run(session(model), [torch.ones(3, 3)])[0].shape, (3, 3))

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

    def test_an_exported_program(self):
        example = (torch.randn(6, 5), torch.randn(4), torch.randn(8, 4), torch.randn(32))
        program = torch.export.export(DynamicModel(), example)
        self.assert_matches(to_onnx(program), program.module(), example)
        for table in ({}, torch.export.default_decompositions()):
            decomposed = program.run_decompositions(table)
            self.assert_matches(to_onnx(decomposed), program.module(), example)

    def test_a_dimension_that_cannot_be_dynamic_is_refused_with_a_hint(self):
        example = (torch.randn(6, 5), torch.randn(4), torch.randn(8, 4), torch.randn(32))
        auto = {name: (Dim.AUTO,) * tensor.dim() for name, tensor in zip("wxyz", example)}
        refused = (
            {"w": (Dim.AUTO, Dim.DYNAMIC)},  # the layer has 5 columns
            {"x": (Dim.STATIC,), "y": (Dim.AUTO, Dim.DYNAMIC)},  # they are equal
        )
        for change in refused:
            with self.subTest(str(change)), self.assertRaisesRegex(CaptureError, "hint"):
                to_onnx(DynamicModel(), example, dynamic_shapes=auto | change)

    def test_a_dimension_of_one_is_static(self):
        model = to_onnx(
            torch.nn.Linear(4, 3), (torch.randn(1, 4),), dynamic_shapes={"input": (Dim.AUTO, None)}
        )
        self.assertEqual(model.graph.input[0].type.tensor_type.shape.dim[0].dim_value, 1)

    def test_dimensions_of_another(self):
        dx, dh = Dim("dx", min=4, max=256), Dim("dh", max=512)

        def pairs(x, y):
            return torch.cat([y, y], dim=1)[: x.shape[0]].sum(1) + x.sum(1), y.reshape(x.shape[0], -1)

        self.export_and_compare(
            Call(pairs, (torch.randn(5, 3), torch.randn(10, 7)), {}),
            (torch.randn(5, 3), torch.randn(10, 7)),
            others=[(torch.randn(9, 3), torch.randn(18, 2))],
            dynamic_shapes=(({0: dx}, {0: 2 * dx, 1: dh}),),
        )
        self.export_and_compare(
            Call(lambda x: x.reshape(4, -1, 3), (torch.randn(20, 3),), {}),
            (torch.randn(20, 3),),
            others=[(torch.randn(36, 3),)],
            dynamic_shapes=(({0: 4 * dx},),),
        )

    def test_integers_and_booleans_among_the_inputs(self):
        shapes = {"tensor_0": (Dim.AUTO, None), "tensor_1": None, "int_val": None, "bool_val": None}
        for flag in (False, True):
            example = (torch.randn(4, 4), torch.randn(3, 3), 16, flag)
            others = [(torch.randn(7, 4), torch.randn(3, 3), 16, flag)]
            self.export_and_compare(IntAndBool(), example, dynamic_shapes=shapes, others=others)

    def test_items_that_decide_are_refused_with_a_hint(self):
        example = (torch.tensor(32), torch.randn(60))
        with self.assertRaisesRegex(CaptureError, "torch.cond"):
            to_onnx(BranchOnItem(), example)
        with self.assertRaises(CaptureError):
            to_onnx(LoopOnItem(), example, export_options=ExportOptions(strict=False))

    def test_index_by_an_item_that_is_not_checked(self):
        others = [(torch.tensor(0), torch.randn(60)), (torch.tensor(-60), torch.randn(60))]
        self.export_and_compare(IndexByUncheckedItem(), (torch.tensor(32), torch.randn(60)), others=others)

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

    SPLITS = (torch.rand((2, 22)), torch.tensor([0, 5, 15, 20, 22], dtype=torch.int64))

    def test_loops_in_eager(self):
        expected = CroppedRows(4)(*self.SPLITS)
        self.assertEqual(expected.shape, (2, 14))
        (scanned,) = CroppedRowsWithScan(4)(*self.SPLITS)
        looped = CroppedRowsWithLoop(4)(*self.SPLITS)
        self.assertEqual(float((expected - scanned).abs().max()), 0)
        self.assertEqual(float((expected - looped).abs().max()), 0)

    def test_a_scan_that_grows_is_refused_with_a_hint(self):
        for shapes in (None, LOOP_SHAPES):
            with self.subTest(shapes=shapes), self.assertRaisesRegex(CaptureError, "simple_loop_for"):
                to_onnx(CroppedRowsWithScan(4), self.SPLITS, dynamic_shapes=shapes)

    def test_a_loop_gives_the_same_rows(self):
        others = [(torch.rand((3, 30)), torch.tensor(splits)) for splits in ([0, 1, 30], [0, 7, 7, 9, 22])]
        for strict in (False, True):
            with self.subTest(strict=strict):
                model = self.export_and_compare(
                    CroppedRowsWithLoop(4),
                    self.SPLITS,
                    others=others,
                    dynamic_shapes=LOOP_SHAPES,
                    export_options=ExportOptions(strict=strict),
                )
                for inputs in [self.SPLITS, *others]:
                    (got,) = run(session(model), inputs)
                    self.assertTrue(torch.equal(got, CroppedRows(4)(*inputs)))

    def test_a_program_with_a_loop(self):
        """The size of the concatenation is one that torch does not know; the body is a graph of its own."""
        program = torch.export.export(CroppedRowsWithLoop(4), self.SPLITS, dynamic_shapes=LOOP_SHAPES)
        (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.higher_order.simple_loop_for)
        rows, columns = node.meta["val"][0].shape
        self.assertRegex(str(rows), r"^s\d+$")
        self.assertRegex(str(columns), r"^u\d+$")
        self.assertEqual([name for name, _ in program.graph_module.named_children()], ["body_graph_0"])
        (got,) = run(session(to_onnx(program)), self.SPLITS)
        self.assertTrue(torch.equal(got, CroppedRows(4)(*self.SPLITS)))

    def test_update_by_index(self):
        update = (torch.arange(2) + 10).to(torch.float32).reshape((1, 1, 2))
        example = (torch.ones((4, 4, 10)), update, torch.tensor([1, 2], dtype=torch.int32))
        for strict in (True, False):
            with self.subTest(strict=strict):
                self.export_and_compare(UpdateModel(), example, export_options=ExportOptions(strict=strict))


if __name__ == "__main__":
    unittest.main()
