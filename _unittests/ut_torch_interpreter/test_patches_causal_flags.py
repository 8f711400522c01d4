"""``is_causal`` of an attention, where that depends on a size."""

import sys
import types
import unittest

import torch
from torch.nn.functional import scaled_dot_product_attention

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches.causal_flags import NAME
from experimental_experiment.torch_interpreter.patches.patch import importers, replaced

ROWS = ({0: "batch", 2: "rows"},)
ROWS_AND_COLUMNS = ({0: "batch", 2: "rows"}, {0: "batch", 2: "columns"})


def rows(length, batch=2):
    return (torch.randn(batch, 2, length, 8),)


def of_itself(q):
    return scaled_dot_product_attention(q, q, q, is_causal=q.shape[2] > 1)


def of_itself_unless_one(q):
    return scaled_dot_product_attention(q, q, q, is_causal=q.shape[2] != 1)


def with_a_cache(q, k):
    """One query sees all keys, some see those up to their own place."""
    return scaled_dot_product_attention(q, k, k, is_causal=q.shape[2] > 1)


def of_another_size(q):
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, None, 0.0, q.shape[0] > 2, scale=0.5)


def beside_a_mask(q, mask):
    """As transformers writes it: of one query it is the first condition, a symbol, that says no."""
    is_causal = q.shape[2] > 1 and mask is None
    return scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=is_causal)


class TestCausalFlags(ExporterTestCase):
    def test_of_itself_it_is_causal(self):
        causal = to_onnx(
            lambda q: scaled_dot_product_attention(q, q, q, is_causal=True), rows(5), dynamic_shapes=ROWS
        )
        for function in (of_itself, of_itself_unless_one):
            with self.subTest(function.__name__):
                model = self.export_and_compare(
                    function, rows(5), others=[rows(1), rows(7, 1)], dynamic_shapes=ROWS
                )
                self.assertEqual(
                    [node.op_type for node in causal.graph.node], [node.op_type for node in model.graph.node]
                )

    def test_with_a_cache(self):
        self.export_and_compare(
            with_a_cache,
            rows(5) + rows(9),
            others=[rows(1) + rows(9), rows(1, 1) + rows(1, 1), rows(4) + rows(4), rows(6, 3) + rows(2, 3)],
            dynamic_shapes=ROWS_AND_COLUMNS,
        )

    def test_of_another_size(self):
        self.export_and_compare(
            of_another_size, rows(5, 4), others=[rows(5, 2), rows(1, 3), rows(4, 1)], dynamic_shapes=ROWS
        )

    def test_beside_a_mask(self):
        def of(length, batch):
            return (*rows(length, batch), torch.arange(length) <= torch.arange(length)[:, None])

        mask = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        for length in (1, 5):
            with self.subTest(length=length):
                self.export_and_compare(
                    beside_a_mask,
                    of(length, 2),
                    others=[of(1, 3), of(4, 1)],
                    dynamic_shapes=({0: "batch", 2: torch.export.Dim.DYNAMIC}, mask),
                )

    def test_known_sizes(self):
        with self.assertLogs("experimental_experiment", "INFO") as log:
            self.export_and_compare(with_a_cache, rows(5) + rows(9))
        self.assertNotIn("causal_flags", "\n".join(log.output))

    def test_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "must be bool, not SymBool"):
            to_onnx(of_itself, rows(5), dynamic_shapes=ROWS, export_options=ExportOptions(patches=False))

    def test_undone(self):
        before = scaled_dot_product_attention
        to_onnx(of_itself, rows(5), dynamic_shapes=ROWS)
        self.assertIs(before, scaled_dot_product_attention)
        self.assertIs(before, torch.nn.functional.scaled_dot_product_attention)


class TestImporters(unittest.TestCase):
    """The modules that hold the attention, whose list is kept from one export to the next."""

    def test_a_module_that_comes_and_changes(self):
        here = sys.modules[__name__]
        self.assertIn(here, importers(NAME, scaled_dot_product_attention))
        module = types.ModuleType("of_a_model")
        setattr(module, NAME, scaled_dot_product_attention)
        self.addCleanup(sys.modules.pop, module.__name__, None)
        sys.modules[module.__name__] = module
        self.assertIn(module, importers(NAME, scaled_dot_product_attention))
        setattr(module, NAME, of_itself)
        self.assertNotIn(module, importers(NAME, scaled_dot_product_attention))
        del sys.modules[module.__name__]
        self.assertIn(here, importers(NAME, scaled_dot_product_attention))

    def test_a_notebook(self):
        main = sys.modules["__main__"]
        importers(NAME, scaled_dot_product_attention)
        with replaced(main, NAME, scaled_dot_product_attention):
            self.assertEqual(importers(NAME, scaled_dot_product_attention).count(main), 1)


if __name__ == "__main__":
    unittest.main()
