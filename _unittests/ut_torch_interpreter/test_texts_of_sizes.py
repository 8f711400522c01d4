"""Texts of dynamic sizes, which are names of symbols while a model is captured: told where they do more than tell."""

import logging
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.randn(4, 3)
_assert = torch._assert  # as timm imports it
TABLES = {"4x3": torch.ones(3)}
logger = logging.getLogger(__name__)


class Looked(torch.nn.Module):
    def forward(self, x):
        key = f"{x.shape[0]}x{x.shape[1]}"  # line
        return x * TABLES[key] if key in TABLES else x


class Compared(torch.nn.Module):
    def forward(self, x):
        return x * len(str(tuple(x.shape)))  # line


class Padded(torch.nn.Module):
    def forward(self, x):
        return x if f"{x.shape[0]:3d}" == "  4" else -x  # line


class Remembers(torch.nn.Module):
    """A memory that it looks up and fills itself: a key that is not found is one that eager has not seen."""

    def __init__(self):
        super().__init__()
        self.tables = {}

    def forward(self, x):
        key = f"{x.shape[0]}x{x.shape[1]}"
        if key not in self.tables:
            self.tables[key] = torch.arange(x.shape[0]).float()
        found = self.tables.get(key)
        return x * found[:, None] + self.tables[key][:, None]


class Tells(torch.nn.Module):
    def forward(self, x):
        message = f"{x.shape[0]} rows"
        if x.shape[1] != 3:
            raise ValueError(message)
        assert x.shape[1] == 3, f"{x.shape}"
        torch._assert(
            x.shape[1] == 3,
            f"{x.shape[0]} rows, not of 3 columns",
        )
        _assert(x.shape[1] == 3, f"{x.shape[0]} rows")
        logger.debug(f"{x.shape} of {message}")
        return x * len(f"{x.shape[1]} columns")


class TestTexts(ExporterTestCase):
    def test_the_warning(self):
        for options in (None, ExportOptions(tracing="make_fx")):
            for kind in (Looked, Compared, Padded):
                with self.subTest(kind.__name__, options=options):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        to_onnx(kind(), (X,), dynamic_shapes=({0: "rows"},), export_options=options)
                    (record,) = logs.records
                    told, place, code = record.getMessage().splitlines()
                    self.assertEqual(
                        "the text of a dynamic size is the name of a symbol, not its digits: what is looked up or compared by it is not "
                        "what eager finds",
                        told,
                    )
                    self.assertIn("test_texts_of_sizes.py", place)
                    self.assertTrue(code.endswith("# line"), code)

    def test_what_only_tells(self):
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            model = to_onnx(Tells(), (X,), dynamic_shapes=({0: "rows"},))
            to_onnx(Looked(), (X,))
            remembering = to_onnx(Remembers(), (X,), dynamic_shapes=({0: "rows"},))
        self.assert_matches(model, Tells(), (torch.randn(2, 3),))
        self.assert_matches(remembering, Remembers(), (torch.randn(2, 3),))


if __name__ == "__main__":
    unittest.main()
