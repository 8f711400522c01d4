"""`piece_by_piece` on real architectures: each agrees with eager, and a planted fault is found in each.

CI takes one in 24 of them; ``PIECES=all python -m unittest tests.test_pieces`` takes all.
"""

from __future__ import annotations

import os
import unittest

import torch

from experimental_experiment.investigate import piece_by_piece
from tests import families, networks  # noqa: F401 (they register their builders)
from tests.architectures import BUILDERS, build

STEP = 1 if os.environ.get("PIECES") == "all" else 24
TAKEN = sorted(BUILDERS)[::STEP]
WITHOUT_CACHE = [name for name in sorted(BUILDERS) if not name.endswith("_with_cache")][::STEP]
READERS = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
"""Modules that read the weights of their layers, which are no functions to them."""


class TestPieces(unittest.TestCase):
    def test_architectures_agree_with_eager(self):
        for name in TAKEN:
            with self.subTest(name):
                built = build(name)
                found = piece_by_piece(built.model, [built.kwargs, *built.others])
                self.assertEqual([(piece.path, piece.told) for piece in found.failures], [])

    def test_branch_on_the_data_in_the_last_layer(self):
        class Choice(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                y = self.inner(x)
                return y if y.sum() > 0 else y + 1

        for name in WITHOUT_CACHE:
            with self.subTest(name):
                built = build(name)
                paths = [
                    f"{where}.{inner}".removeprefix(".")
                    for where, part in built.model.named_modules()
                    if not isinstance(part, READERS)
                    for inner, layer in part.named_children()
                    if isinstance(layer, torch.nn.Linear)
                ]
                if not paths:
                    continue
                path = paths[-1]
                built.model.set_submodule(path, Choice(built.model.get_submodule(path)))
                found = piece_by_piece(built.model, [built.kwargs, *built.others])
                failures = {piece.path: piece.family for piece in found.failures}
                self.assertEqual(failures, {path: "a branch or a size depends on the data"})


if __name__ == "__main__":
    unittest.main()
