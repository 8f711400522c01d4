"""Layouts of fake tensors are asked about once."""

import unittest

import torch
import torch._prims_common as common
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.layouts import Answers, asked_once
from experimental_experiment.torch_interpreter.patches.patch import replaced

SHAPES = ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)


class Layers(torch.nn.Module):
    """Images, channels last and not, branches on their layout, views and copies, sizes of data."""

    def forward(self, x):
        y = torch.relu(x + 1) * x
        last = y.permute(0, 2, 3, 1)
        if not last.is_contiguous():
            last = last.contiguous() + 1
        if last.is_contiguous():
            last = last * 2
        z = last.permute(0, 3, 1, 2)
        if z.is_contiguous(memory_format=torch.channels_last):
            z = z - 1
        found = z[z > 1]
        return y.reshape(y.shape[0], -1), z.reshape(-1), found * found + 1


def captured() -> tuple[str, int]:
    """The text of the program of a capture with its strides, and how many layouts were looked at."""
    original = common.check_contiguous_sizes_strides
    looked = []

    def counted(*args, **options):
        looked.append(args)
        return original(*args, **options)

    with replaced(common, original.__name__, counted):
        program = torch.export.export(Layers(), (torch.randn(2, 3, 4, 5),), dynamic_shapes=SHAPES)
    values = [(node.name, node.meta.get("val")) for node in program.graph.nodes]
    strides = [value.stride() for _, value in values if isinstance(value, torch.Tensor)]
    return str((values, strides, program.range_constraints)), len(looked)


def question(answers):
    """A question that gives *answers* in order, and what it was asked."""
    asked = []

    def is_contiguous(a, false_if_dde=False):
        asked.append((a, false_if_dde))
        return answers[len(asked) - 1]

    return is_contiguous, asked


class TestLayouts(ExporterTestCase):
    def setUp(self):
        super().setUp()
        self.environment = ShapeEnv()

    def of(self, *hints):
        """A tensor of new sizes, on the device meta."""
        sizes = [
            self.environment.create_symintnode(
                self.environment.create_symbol(hint, torch._dynamo.source.ConstantSource(f"s{hint}")),
                hint=hint,
            )
            for hint in hints
        ]
        return torch.empty(sizes, device="meta")

    def test_the_program_is_the_same(self):
        plain, before = captured()
        function = common.is_contiguous
        with asked_once():
            once, after = captured()
        self.assertIs(common.is_contiguous, function)
        self.assertEqual(once, plain)
        self.assertLess(after, 0.7 * before)

    def test_what_is_exported(self):
        args, others = (torch.randn(2, 3, 4, 5),), [(torch.randn(3, 3, 6, 2),)]
        self.export_and_compare(Layers(), args, others=others, dynamic_shapes=SHAPES)

    def test_each_layout_once(self):
        answers = Answers(lambda: False)
        asks, asked = question([True, False, True])
        once = answers.of_tensors(asks, 0)
        x, y = self.of(3, 4), self.of(3, 5)
        self.assertEqual([once(x), once(y), once(x), once(y), once(x * 2)], [True, False, True, False, True])
        self.assertEqual(len(asked), 2)
        self.assertTrue(once(x, false_if_dde=True))
        self.assertEqual(len(asked), 3)

    def test_asked_again_after_a_decision(self):
        answers = Answers(lambda: False)
        asks, asked = question([False, True])
        once = answers.of_tensors(asks, 0)
        x = self.of(3, 4)
        self.assertFalse(once(x))
        self.assertTrue(x.shape[0] > 2)  # a guard
        self.assertTrue(once(x))
        self.assertEqual(len(asked), 2)

    def test_static_sizes_and_those_of_data_are_left_to_torch(self):
        answers = Answers(lambda: False)
        asks, asked = question([True] * 4)
        once = answers.of_tensors(asks, 0)
        for x in (torch.ones(2, 3), torch.empty(self.environment.create_unbacked_symint(), 2, device="meta")):
            once(x)
            once(x)
        self.assertEqual((len(asked), answers.known), (4, {}))


if __name__ == "__main__":
    unittest.main()
