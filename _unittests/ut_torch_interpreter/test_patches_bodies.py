"""Bodies of branches and loops: what earlier captures left, outputs whose sizes are computed."""

import unittest

import torch
from torch._higher_order_ops import scan, utils, while_loop
from torch._higher_order_ops.map import map as torch_map

from _unittests.ut_control_flow.holder import uncompiled_outputs
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.torch_interpreter.torch_versions import compilers_of_bodies
from experimental_experiment.versions import numbers


class Scan(torch.nn.Module):
    """A running sum of layers over the steps."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        def step(h, row):
            h = torch.tanh(self.linear(row) + h)
            return h, h * 2

        return scan(step, torch.zeros(x.shape[0], 4), x.transpose(0, 1))


class Map(torch.nn.Module):
    """A cumulated sum of each row."""

    def forward(self, x):
        return torch_map(lambda row, y: row.cumsum(0) * y.shape[0], x, x * 2)


class GradientOfScan(torch.nn.Module):
    """The gradient of a scan that reads a tensor of the model in each step."""

    def forward(self, x, w):
        def step(h, row):
            h = torch.tanh(h + row) * w
            return h, h[:1] + 0

        x = x.detach().requires_grad_()
        last, first = scan(step, torch.zeros_like(x[0]), x)
        return torch.autograd.grad(last.sum() + first.sum(), x)[0]


class ScanOfRows(torch.nn.Module):
    """A layer on all rows of each step, its weights having gradients."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, count, x):
        return scan(lambda n, rows: (n + 1, self.linear(rows)), count, torch.stack([x, x * 2]))


class Convolutions(torch.nn.Module):
    """A branch ends with one of two convolutions."""

    def __init__(self):
        super().__init__()
        self.one, self.other = (torch.nn.Conv2d(4, 6, (3, 2)) for _ in range(2))

    def forward(self, flag, x):
        return torch.cond(flag.sum() > 0, self.one, lambda x: self.other(x) * 2, (x,))


class Products(torch.nn.Module):
    """A branch ends with a product of one matrix, whose first stride torch does not make a product of sizes."""

    def forward(self, flag, x, y):
        def product(x, y):
            return torch.einsum("aij,ajk->aik", x, y)

        return torch.cond(flag, product, lambda x, y: product(x, y).exp(), (x, y))


class Heads(torch.nn.Module):
    """A state attends to all steps, its heads put together with the batch of the model."""

    def forward(self, x):
        batch, steps, _ = x.shape

        def step(h, row):
            keys = x.view(batch, steps, 2, 4).transpose(1, 2)
            scores = (h + row).view(batch, 2, 1, 4) @ keys.transpose(2, 3)
            return torch.tanh((scores.softmax(-1) @ keys).transpose(1, 2).reshape(batch, 8)), h + batch

        return scan(step, torch.zeros(batch, 8), x, dim=1)


class Transposed(torch.nn.Module):
    """Each turn looks at the rows of all samples as others."""

    def forward(self, x):
        batch, steps, _ = x.shape

        def turn(i, x):
            return i + 1, x.view(batch, steps, 2, 4).transpose(2, 3).reshape(batch, steps, 8) / steps

        return while_loop(lambda i, x: i < steps, turn, (torch.tensor(0), x.clone()))


class InBranches(torch.nn.Module):
    """Branches in a map read a size of the model."""

    def forward(self, x):
        steps = x.shape[1]

        def each(row):
            def turned(row):
                return row.view(steps, 2, 4).transpose(1, 2).reshape(steps, 8) + torch.arange(steps)[:, None]

            return torch.cond(row.sum() > 0, turned, lambda row: row.reshape(steps, 8) * steps, (row,))

        return torch_map(each, x)


class TestBodies(ExporterTestCase):
    ARGS = (torch.randn(2, 4, 3),)
    OTHERS = tuple((torch.randn(batch, steps, 3),) for batch, steps in ((1, 1), (3, 7), (2, 9)))
    SHAPES = ({0: "batch", 1: "steps"},)

    def test_dynamic_sizes_after_fixed_ones(self):
        for module in (Scan(), Map()):
            for tracing in ("export", "make_fx"):
                with self.subTest(module, tracing=tracing):
                    torch._dynamo.reset()
                    options = ExportOptions(tracing=tracing)
                    self.export_and_compare(module, self.ARGS, export_options=options)
                    self.export_and_compare(
                        module,
                        self.ARGS,
                        others=self.OTHERS,
                        dynamic_shapes=self.SHAPES,
                        export_options=options,
                    )

    def test_gradients_of_other_fixed_sizes(self):
        torch._dynamo.reset()
        options = ExportOptions(tracing="make_fx")
        for sizes in ((4, 3, 2), (7, 5, 6)):
            args = torch.randn(sizes), torch.randn(sizes[1:])
            self.export_and_compare(GradientOfScan(), args, export_options=options)

    def test_weights_with_gradients(self):
        count = torch.zeros(())
        example = count, torch.randn(2, 4, 3)
        others = [(count, x) for (x,) in self.OTHERS]
        for strict in (False, True):
            with self.subTest(strict=strict):
                torch._dynamo.reset()
                self.export_and_compare(
                    ScanOfRows(),
                    example,
                    others=others,
                    dynamic_shapes=({}, *self.SHAPES),
                    export_options=ExportOptions(strict=strict),
                    eager=uncompiled_outputs,
                )

    def test_a_size_that_torch_may_choose(self):
        torch._dynamo.reset()
        automatic = torch.export.Dim.AUTO
        to_onnx(Scan(), self.ARGS)
        self.export_and_compare(
            Scan(), self.ARGS, others=self.OTHERS, dynamic_shapes=({0: automatic, 1: automatic},)
        )

    def test_without_the_patch(self):
        torch._dynamo.reset()
        options = ExportOptions(patches=False)
        to_onnx(Scan(), self.ARGS, export_options=options)
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(Scan(), self.ARGS, dynamic_shapes=self.SHAPES, export_options=options)

    def test_undone(self):
        name = compilers_of_bodies()[0].rpartition(".")[-1]
        before = getattr(utils, name)
        with bypass_export_some_errors():
            self.assertIsNot(getattr(utils, name), before)
        self.assertIs(getattr(utils, name), before)


class TestSizesFromOutside(ExporterTestCase):
    ARGS = (torch.randn(2, 4, 8),)
    OTHERS = tuple((torch.randn(batch, steps, 8),) for batch, steps in ((1, 1), (3, 7), (2, 9), (5, 2)))
    SHAPES = ({0: "batch", 1: "steps"},)

    def test_read_several_times(self):
        for module in (Heads(), Transposed(), InBranches()):
            for strict in (False, True):
                with self.subTest(module, strict=strict):
                    torch._dynamo.reset()
                    self.export_and_compare(
                        module,
                        self.ARGS,
                        others=self.OTHERS,
                        dynamic_shapes=self.SHAPES,
                        export_options=ExportOptions(strict=strict),
                        eager=uncompiled_outputs,
                    )

    def test_without_the_patch(self):
        for module in (Heads(), Transposed()):
            torch._dynamo.reset()
            with self.subTest(module), self.assertRaisesRegex(CaptureError, "could not create a proxy"):
                to_onnx(
                    module,
                    self.ARGS,
                    dynamic_shapes=self.SHAPES,
                    export_options=ExportOptions(patches=False),
                )


class TestOutputsOfComputedSizes(ExporterTestCase):
    ARGS = torch.ones(2), torch.randn(2, 4, 6, 5)
    OTHERS = tuple((flag, torch.randn(2, 4, 9, 7)) for flag in (torch.ones(2), -torch.ones(2)))

    def test_convolutions_in_branches(self):
        for strict in (False, True):
            options = {"export_options": ExportOptions(strict=strict), "eager": uncompiled_outputs}
            with self.subTest(strict=strict):
                torch._dynamo.reset()
                others = [(-self.ARGS[0], self.ARGS[1])]
                self.export_and_compare(Convolutions(), self.ARGS, others=others, **options)
                shapes = {}, {2: "height", 3: "width"}
                self.export_and_compare(
                    Convolutions(), self.ARGS, others=self.OTHERS, dynamic_shapes=shapes, **options
                )

    def test_products_of_one_matrix_in_branches(self):
        x, y = torch.randn(1, 2, 3), torch.randn(1, 3, 4)
        yes, no = torch.tensor(True), torch.tensor(False)
        options = {"others": [(no, x, -y)], "eager": uncompiled_outputs}
        self.export_and_compare(Products(), (yes, x, y), **options)
        unpatched = ExportOptions(patches=False)
        with self.assertRaisesRegex(CaptureError, "stride"):
            to_onnx(Products(), (yes, x, y), export_options=unpatched)

    @unittest.skipIf(numbers(torch.__version__) >= numbers("2.14"), "torch 2.14 expects such strides")
    def test_without_the_patches(self):
        torch._dynamo.reset()
        for shapes in (None, ({}, {2: "height", 3: "width"})):
            with self.subTest(shapes), self.assertRaisesRegex(CaptureError, "accumulative multiplication"):
                to_onnx(
                    Convolutions(),
                    self.ARGS,
                    dynamic_shapes=shapes,
                    export_options=ExportOptions(patches=False),
                )


if __name__ == "__main__":
    unittest.main()
