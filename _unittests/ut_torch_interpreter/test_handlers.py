"""Refusals of torch.export that the model catches itself."""

import contextlib
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.rand(2, 3)


def branch(x):
    try:
        if (x > 0).all():  # line
            return x * 2
        return x - 1
    except Exception:
        return x * 3


def inner_branch(x):
    def chosen(x):
        return x * 2 if x.sum() > 0 else x

    try:
        return chosen(x)  # line
    except RuntimeError:
        return x * 3


def loop(x):
    with contextlib.suppress(Exception):
        x = x * len(range(int(x.sum())))  # line
    return x


def numpy(x):
    try:
        return torch.from_numpy(x.numpy()) * 2  # line
    except RuntimeError:
        return x * 3


class TestHandlers(ExporterTestCase):
    def test_what_is_caught_is_told(self):
        for options in (None, ExportOptions(tracing="make_fx")):
            for function in (branch, inner_branch, loop, numpy):
                with self.subTest(function.__name__, options=options):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        to_onnx(function, (X,), export_options=options)
                    (text,) = [record.getMessage() for record in logs.records]
                    self.assertRegex(
                        text,
                        r"the model holds what it does after an exception that eager does not raise(.|\n)*# line$",
                    )

    def test_what_torch_catches_is_not(self):
        def selected(x):
            x = x.flatten()
            found = x[x > 0]
            return found.sum() + found.reshape(-1).mean(), x.nonzero().view(-1), x[: int((x > 0).sum())]

        def own(x):
            try:
                raise KeyError("none of torch's")
            except KeyError:
                return x * 2

        with self.assertNoLogs("experimental_experiment", "WARNING"):
            for function in (selected, own):
                self.export_and_compare(function, (X,))


if __name__ == "__main__":
    unittest.main()
