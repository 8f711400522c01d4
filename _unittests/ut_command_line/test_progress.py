"""The progress of an export: its stages in order, a step a node, a bar only where a terminal is attached."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import unittest

import torch

from experimental_experiment.progress import silent, terminal_progress
from experimental_experiment.torch_interpreter import to_onnx


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


class TestProgress(unittest.TestCase):
    def test_stages_and_steps(self):
        stages = []

        def progress(stage, steps):
            stages.append([stage, steps, 0])

            def step():
                stages[-1][2] += 1

            return step

        to_onnx(
            torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()),
            (torch.ones(2, 3),),
            progress=progress,
        )
        self.assertEqual([stage for stage, _, _ in stages], ["capture", "translate", "optimize", "write"])
        _, steps, done = stages[1]
        self.assertEqual(steps, done)
        self.assertGreaterEqual(steps, 6)
        self.assertEqual(stages[2][1:], [2, 2])  # a step a node

    def test_nothing_is_shown_without_a_terminal(self):
        with contextlib.redirect_stderr(io.StringIO()) as err, terminal_progress() as progress:
            self.assertIs(progress, silent)
            progress("translate", 10)()
        self.assertEqual(err.getvalue(), "")

    @unittest.skipUnless(importlib.util.find_spec("tqdm"), "needs the package tqdm")
    def test_a_terminal_gets_a_bar(self):
        with contextlib.redirect_stderr(Terminal()) as err, terminal_progress() as progress:
            step = progress("translate", 10)
            for _ in range(10):
                step()
            progress("write", 1)
        self.assertIn("translate", err.getvalue())
        self.assertIn("write", err.getvalue())


if __name__ == "__main__":
    unittest.main()
