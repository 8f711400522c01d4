"""Sizes of the last call that a model keeps and compares with those of its next one: tables of sizes are made again, other things are told."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.rand(3, 4)


class Module(torch.nn.Module):
    first = (0, 0)

    def __init__(self):
        super().__init__()
        self.size, self.table = self.first, None


class KeepsData(Module):
    def forward(self, x):
        if self.size != x.shape:  # line
            self.size = x.shape
            self.table = x * 2
        return x + self.table


class HasNone(KeepsData):
    first = None


class HasAList(Module):
    first = [0, 0]

    def forward(self, x):
        if self.size != list(x.shape):  # line
            self.size, self.table = list(x.shape), x * 2
        return x + self.table


class Doubles(Module):
    def forward(self, x):
        if self.size != x.shape:  # line
            self.size = x.shape
            x = x * 2
        return x


class DoublesInPlace(Module):
    def forward(self, x):
        x = x + 1
        if self.size != x.shape:  # line
            self.size = x.shape
            self.table = x.mul_(2)
        return x


class HasAnotherBranch(Module):
    def forward(self, x):
        if self.size != x.shape:  # line
            self.size = x.shape
        else:
            x = x * 2
        return x


class BuildsOfData(Module):
    def forward(self, x):
        if self.size != x.shape:  # line
            self.build(x)
        return x + self.table

    def build(self, x):
        self.size = x.shape
        self.table = x * 2


class CallsWhatWrites(Module):
    def forward(self, x):
        x = x + 1
        if self.size != x.shape:  # line
            self.size = x.shape
            self.double(x)
        return x

    def double(self, x):
        x.mul_(2)


class Scales(Module):
    def forward(self, x):
        y = x * self.size[0]  # line
        self.size = x.shape
        return y


class KeepsATable(Module):
    def forward(self, x):
        if self.size != x.shape:
            self.size = x.shape
            rows, columns = (torch.arange(n).float() for n in self.size)
            self.table = rows[:, None] + columns
        return x + self.table


class BuildsATable(Module):
    def forward(self, x):
        if self.size != x.shape:
            self.build(x)
        return x + self.table

    def build(self, x):
        """Make the table."""
        self.size = tuple(x.shape)
        with torch.no_grad():
            self.table = torch.arange(self.size[0]).float()[:, None]


class RegistersATable(Module):
    def forward(self, x):
        if self.size != x.shape:
            self.size = x.shape
            self.register_buffer("scales", torch.ones(x.shape[1]), persistent=False)
        return x + self.scales


class ReturnsATable(Module):
    def forward(self, x):
        return x + self.made(x)

    def made(self, x):
        if self.size == x.shape:
            return self.table
        self.size = x.shape
        self.table = torch.ones(self.size)
        return self.table


class WritesFirst(Module):
    def forward(self, x):
        self.size = x.shape
        return x * self.size[0]


class TestRemade(ExporterTestCase):
    TOLD = (
        KeepsData,
        HasNone,
        HasAList,
        Doubles,
        DoublesInPlace,
        HasAnotherBranch,
        BuildsOfData,
        CallsWhatWrites,
        Scales,
    )
    QUIET = KeepsATable, BuildsATable, RegistersATable, ReturnsATable, WritesFirst

    def test_what_the_next_call_would_do_otherwise(self):
        for options in (None, ExportOptions(tracing="make_fx"), ExportOptions(strict=True)):
            for kind in self.TOLD:
                with self.subTest(kind.__name__, options=options):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        to_onnx(kind(), (X,), export_options=options)
                    (told,) = [record.getMessage() for record in logs.records]
                    last = "[3, 4]" if kind is HasAList else "torch.Size([3, 4])"
                    change = f"size is {kind.first!r} before it, {last} after it"
                    self.assertTrue(
                        told.startswith(f"the model does what the captured call does: {change}\n"), told
                    )
                    self.assertTrue(told.endswith("# line"), told)
                    model = kind()
                    first, second = model(X.clone()), model(X.clone() + 1)
                    self.assertFalse(torch.equal(second, kind()(X.clone() + 1)), first)

    def test_tables_of_sizes(self):
        for kind in self.QUIET:
            with self.subTest(kind.__name__):
                with self.assertNoLogs("experimental_experiment", "WARNING"):
                    written = to_onnx(kind(), (X,))
                model = kind()
                model(X)
                self.assert_matches(written, model, (X + 1,))


if __name__ == "__main__":
    unittest.main()
