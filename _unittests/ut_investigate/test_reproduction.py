"""The scripts of `piece_by_piece` reproduce a failure alone, in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest

import torch

from _unittests.ut_investigate.holder import Deep
from _unittests.ut_investigate.test_pieces import CALLS
from experimental_experiment.investigate import piece_by_piece
from experimental_experiment.investigate.reproduction import Sources, Unreproducible
from experimental_experiment.testing import ExporterTestCase

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def factor() -> int:
    """What a class of a function uses."""
    return 3


class Steep(torch.nn.Module):
    """Takes another branch for a larger number: an exported model holds that of its example."""

    def forward(self, x, number):
        return x * number * 2 if number > 4 else x * number * 3


class TestScripts(ExporterTestCase):
    def run_script(self, path: str) -> subprocess.CompletedProcess:
        """Run a script in a process of its own."""
        environment = {**os.environ, "PYTHONPATH": ROOT}
        return subprocess.run(
            [sys.executable, path], capture_output=True, text=True, env=environment, cwd=os.path.dirname(path)
        )

    def test_script_reproduces_the_failure(self):
        shift = 5

        class Local(torch.nn.Module):
            def __init__(self, size):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.arange(float(size)))

            def forward(self, x):
                y = x * self.weight * factor() + shift
                return y if y.sum() > 0 else -y

        with tempfile.TemporaryDirectory() as folder:
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), Local(4))
            (failure,) = piece_by_piece(model, CALLS, folder=folder).failures
            self.assertEqual(sorted(os.listdir(folder)), ["1.pt", "1.py"])
            done = self.run_script(failure.script)
            self.assertEqual(done.returncode, 1)
            self.assertIn("Could not guard on data-dependent expression", done.stderr)
            self.assertIn("return y if y.sum() > 0 else -y", done.stderr)
            with open(failure.script, encoding="utf-8") as file:
                self.assertIn("shift = 5\n", file.read())

    def test_script_of_an_importable_class(self):
        with tempfile.TemporaryDirectory() as folder:
            (failure,) = piece_by_piece(Deep(), CALLS, folder=folder).failures
            self.assertEqual(os.path.basename(failure.script), "layers_1_attention.py")
            done = self.run_script(failure.script)
        self.assertIn("investigate_test.unknown.default has no translation", done.stderr)

    def test_script_of_a_difference_that_only_another_call_shows(self):
        with tempfile.TemporaryDirectory() as folder:
            calls = [(torch.ones(2, 4), 3), (torch.ones(2, 4), 5)]
            (failure,) = piece_by_piece(Steep(), calls, folder=folder).failures
            self.assertEqual((failure.status, failure.verdict), ("differs", "error"))
            done = self.run_script(failure.script)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("%mul_1 = aten.mul.Tensor, written as Mul", done.stdout)

    def test_what_cannot_be_saved_is_told(self):
        around = torch.ones(4)

        class Local(torch.nn.Module):
            def forward(self, x):
                return x + around if x.sum() > 0 else x

        class Holding(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.function = lambda x: x.sum() > 0

            def forward(self, x):
                return x + 1 if self.function(x) else x

        notes = {
            "no script: Local reads around, a Tensor of the code around it": Local(),
            "no script: pickle says: ": Holding(),
        }
        for note, model in notes.items():
            with self.subTest(note), tempfile.TemporaryDirectory() as folder:
                (failure,) = piece_by_piece(model, CALLS, folder=folder).failures
                self.assertIn(note, failure.note)
                self.assertEqual(failure.script, "")
                self.assertEqual(os.listdir(folder), [])

    def test_sources_that_a_script_cannot_hold(self):
        def named_local():
            class Local:
                """One of two."""

            return Local

        sources = Sources()
        sources.add(named_local())
        with self.assertRaisesRegex(
            Unreproducible, "there are two of the name Local, defined in __main__ or in functions"
        ):
            sources.add(named_local())
        made = type("Made", (torch.nn.Module,), {"__module__": "__main__"})
        with self.assertRaisesRegex(Unreproducible, "the source of Made is not known: "):
            sources.add(made)


if __name__ == "__main__":
    unittest.main()
