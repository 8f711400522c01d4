"""Exports at once, in threads and in processes: each writes into the same folder the bytes that it writes alone."""

from __future__ import annotations

import multiprocessing
import pathlib
import tempfile
import threading
import unittest
from typing import Any

import torch

from experimental_experiment.torch_interpreter import to_onnx

WIDTHS = (8, 16)
WAIT = 300
"""Seconds until the others must be there."""


def network(width: int) -> torch.nn.Module:
    """A model that depends on nothing else."""
    torch.manual_seed(width)
    layers = torch.nn.Linear(4, width), torch.nn.LayerNorm(width), torch.nn.GELU(), torch.nn.Linear(width, 2)
    return torch.nn.Sequential(*layers)


def export(module: torch.nn.Module, file: pathlib.Path, barrier: Any = None) -> None:
    """Write a model, when the others are about to."""
    if barrier is not None:
        barrier.wait(WAIT)
    to_onnx(module, (torch.ones(3, 4),), dynamic_shapes=({0: "batch"},), filename=file)


def process(width: int, file: pathlib.Path, barrier: Any) -> None:
    """What another process does."""
    export(network(width), file, barrier)


class TestAtOnce(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for width in WIDTHS:
            export(network(width), self.folder / f"{width}.onnx")
        alone = self.written()
        self.expected = {
            f"{width}_{turn}.onnx": alone[f"{width}.onnx"] for width in WIDTHS for turn in range(2)
        }

    def written(self) -> dict[str, bytes]:
        """What is in the folder."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def assert_written(self, names: list[str]) -> None:
        """These files, with the bytes that were written alone, and no other."""
        for width in WIDTHS:
            (self.folder / f"{width}.onnx").unlink()
        self.assertEqual({name: self.expected[name] for name in names}, self.written())

    def test_threads(self):
        barrier = threading.Barrier(len(self.expected))
        threads = []
        for name in self.expected:
            module = network(int(name.split("_")[0]))
            threads.append(threading.Thread(target=export, args=(module, self.folder / name, barrier)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assert_written([*self.expected])

    def test_processes(self):
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(len(WIDTHS))
        names = [f"{width}_0.onnx" for width in WIDTHS]
        processes = [
            context.Process(target=process, args=(width, self.folder / name, barrier))
            for width, name in zip(WIDTHS, names)
        ]
        for other in processes:
            other.start()
        for other in processes:
            other.join()
        self.assertEqual([0] * len(WIDTHS), [other.exitcode for other in processes])
        self.assert_written(names)


if __name__ == "__main__":
    unittest.main()
