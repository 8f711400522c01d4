"""Fake results are made once."""

import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import fake_results
from experimental_experiment.torch_interpreter.fake_results import made_once
from experimental_experiment.torch_interpreter.patches.patch import replaced

SHAPES = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)


class Layers(torch.nn.Module):
    """New tensors, views, tensors in place, conjugates, boolean masks and sizes of data."""

    def forward(self, x):
        y = torch.nn.functional.softmax(x.reshape(-1, 2) @ x.reshape(2, -1), dim=-1)
        y = y[1:].t().contiguous() + 1
        y += torch.complex(y, y).conj().imag
        return y, y[y > 1.2] * 2


def captured() -> tuple[str, int]:
    """The text of the program of a capture, and how many tensors it made of what the cache keeps."""
    original = FakeTensorMode._output_from_cache_entry
    made = []

    def counted(*args):
        made.append(args)
        return original(*args)

    with replaced(FakeTensorMode, "_output_from_cache_entry", counted):
        program = torch.export.export(Layers(), (torch.randn(4, 6),), dynamic_shapes=SHAPES)
    return str([(node.name, str(node.meta.get("val"))) for node in program.graph.nodes]), len(made)


class TestFakeResults(ExporterTestCase):
    def test_the_program_is_the_same(self):
        plain, before = captured()
        method = FakeTensorMode._get_output_info_for_cache_entry
        with made_once():
            captured()  # the kinds of results are known now
            once, after = captured()
        self.assertIs(FakeTensorMode._get_output_info_for_cache_entry, method)
        self.assertEqual(once, plain)
        self.assertLess(after, before / 2)

    def test_what_is_exported(self):
        others = [(torch.randn(6, 4),), (torch.randn(2, 3),)]
        self.export_and_compare(Layers(), (torch.randn(4, 6),), others=others, dynamic_shapes=SHAPES)

    def test_a_kind_that_is_not_alike_is_asked_about_again(self):
        asked = []

        def describe(*args):
            asked.append(args)
            raise RuntimeError("dispatch_key_set mismatch")

        called = fake_results.without_seconds(describe, lambda output: False)
        result = torch.ones(2, dtype=torch.complex32).conj()
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "mismatch"):
                called(None, None, None, torch.ops.aten._conj.default, (torch.ones(2),), {}, result)
        self.assertEqual(len(asked), 2)
        self.assertNotIn(fake_results.kind_of(torch.ops.aten._conj.default, result), fake_results.ALIKE)

    def test_what_is_written_in_place_tells_nothing(self):
        """torch makes no second tensor of an argument: one of its kind was compared with none."""
        function, x = torch.ops.aten.add_.Tensor, torch.ones(2, dtype=torch.complex32).conj()
        called = fake_results.without_seconds(lambda *args: "described", lambda output: False)
        self.assertEqual(called(None, None, None, function, (x, 1), {}, x), "described")
        self.assertNotIn(fake_results.kind_of(function, x), fake_results.ALIKE)

    def test_sizes_of_data_are_left_to_torch(self):
        asked = []
        mode = FakeTensorMode()
        own = mode._output_from_cache_entry
        result = torch.ones(3)

        def describe(self, *args):
            asked.append(self._output_from_cache_entry == own)

        for depends in (False, False, True):
            called = fake_results.without_seconds(describe, lambda output, depends=depends: depends)
            called(mode, None, None, torch.ops.aten.add.Tensor, (torch.ones(3),), {}, result)
        self.assertEqual(asked[1:], [False, True])
        self.assertEqual(mode._output_from_cache_entry, own)


if __name__ == "__main__":
    unittest.main()
