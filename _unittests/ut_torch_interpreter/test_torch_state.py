"""A capture that fails prints and logs nothing of torch's own; torch prints and logs as before afterwards."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import unittest

import torch
from torch.export import _trace as tracing

from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.torch_state import REMARKS, without_remarks


def branch_on_data(x):
    """A model that torch.export refuses, with a graph that it prints."""
    n = x.sum().int().item()
    if n > 3:
        return x + n
    return x - n


def size_of_data(x):
    """Another one, which it remarks on."""
    return torch.zeros(x.nonzero().shape[0] - 2).reshape(-1, 2) if x.max() > 0 else x


class Remarks(logging.Handler):
    """Holds what the loggers of `REMARKS` log."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


class TestRemarks(unittest.TestCase):
    def setUp(self):
        self.remarks = Remarks()
        for name in REMARKS:
            logging.getLogger(name).addHandler(self.remarks)
            self.addCleanup(logging.getLogger(name).removeHandler, self.remarks)

    def assert_untouched(self):
        self.assertNotIn("print", vars(tracing))
        self.assertEqual([[] for _ in REMARKS], [logging.getLogger(name).filters for name in REMARKS])

    def test_a_failed_capture_is_silent(self):
        for function in (branch_on_data, size_of_data):
            for strict in (False, True):
                with self.subTest(function.__name__, strict=strict):
                    with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(CaptureError):
                        to_onnx(function, (torch.ones(4),), export_options=ExportOptions(strict=strict))
                    self.assertEqual("", err.getvalue())
                    self.assertEqual([], self.remarks.records)
                    self.assert_untouched()

    def test_what_torch_says_without_us(self):
        """Otherwise the test above shows nothing."""
        with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(RuntimeError):
            torch.export.export(Call(branch_on_data), (torch.ones(4),))
        self.assertIn("def forward(self", err.getvalue())

    def test_remarks_on_a_capture_that_succeeds_are_logged(self):
        with without_remarks():
            logging.getLogger(REMARKS[1]).warning("a remark")
            self.assertEqual([], self.remarks.records)
        self.assertEqual(["a remark"], [record.getMessage() for record in self.remarks.records])
        self.assert_untouched()

    def test_other_threads_are_not_silenced(self):
        def other():
            tracing.print("printed", file=out)
            logging.getLogger(REMARKS[0]).warning("logged")

        out = io.StringIO()
        with self.assertRaises(KeyboardInterrupt), without_remarks():
            tracing.print("swallowed", file=out)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            raise KeyboardInterrupt
        self.assertEqual("printed\n", out.getvalue())
        self.assertEqual(["logged"], [record.getMessage() for record in self.remarks.records])
        self.assert_untouched()


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


if __name__ == "__main__":
    unittest.main()
