"""`coverage`: the whole list of operators, what stops the export and where."""

from __future__ import annotations

import unittest

import torch

from _unittests.ut_investigate.holder import Deep
from experimental_experiment.investigate import coverage
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError


def unknown(x):
    return torch.ops.investigate_test.unknown(x)


class TestCoverage(ExporterTestCase):
    def targets(self, model, *args, **options):
        """{operator: what was found}."""
        return {target.name: target for target in coverage(model, args, **options).targets}

    def test_unknown_operator_deep_inside_is_named_with_its_line(self):
        found = coverage(Deep(), (torch.randn(2, 4),))
        (missing,) = found.missing
        self.assertEqual(missing.name, "investigate_test.unknown.default")
        self.assertEqual((missing.count, missing.refused), (1, 1))
        self.assertEqual((missing.reason, missing.module), ("has no translation", "layers.1.attention"))
        self.assertIn("torch.ops.investigate_test.unknown(y)", missing.source[3])
        counts = {target.name: target.count for target in found.targets}
        self.assertEqual(counts["aten.linear.default"], 4)
        self.assertEqual(counts["aten.layer_norm.default"], 3)
        text = str(found)
        self.assertIn("14 calls of 5 operators, 1 cannot be translated", text)
        self.assertLess(text.index("investigate_test.unknown"), text.index("aten.linear"))

    def test_every_fault_is_listed_not_only_the_first(self):
        found = self.targets(
            lambda x: (unknown(x).sum(0), unknown(unknown(x)), x.to_sparse()), torch.ones(2, 3)
        )
        self.assertEqual(found["investigate_test.unknown.default"].refused, 3)
        self.assertEqual(found["aten.to_sparse.default"].refused, 1)
        self.assertEqual(found["aten.sum.dim_IntList"].refused, 0)

    def test_argument_that_is_not_handled_counts(self):
        found = self.targets(lambda x: (x.view(torch.int16), x.view(torch.float32)), torch.ones(2, 4))
        target = found["aten.view.dtype"]
        self.assertEqual((target.count, target.refused), (2, 1))
        self.assertEqual(
            target.reason, "cannot be translated: a view of FLOAT as INT16, which has another width"
        )

    def test_translation_of_this_call_counts(self):
        found = coverage(
            Deep(),
            (torch.randn(2, 4),),
            translations={"investigate_test::unknown": lambda op, x: op.Mul(x, 2.0)},
        )
        self.assertEqual(found.missing, [])
        self.assertIn("0 cannot be translated", str(found))

    def test_bodies_of_control_flow(self):
        def branches(x):
            return torch.cond(
                x.sum() > 0, lambda x: unknown(x).sin(), lambda x: unknown(x.cos()).relu(), (x,)
            )

        found = self.targets(branches, torch.ones(2, 3))
        self.assertEqual(found["investigate_test.unknown.default"].refused, 2)
        self.assertEqual([found[f"aten.{name}.default"].count for name in ("sin", "cos", "relu")], [1, 1, 1])
        self.assertEqual(found["higher_order.cond"].refused, 0)

    def test_symbolic_sizes_writes_and_programs(self):
        def model(x):
            y = unknown(x)
            y[0] = 1
            return y.reshape(x.shape[0] * 2, -1).add_(1)

        class Model(torch.nn.Module):
            def forward(self, x):
                return model(x)

        program = torch.export.export(
            Model(), (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
        )
        found = {target.name: target.refused for target in coverage(program).targets}
        self.assertEqual(found["investigate_test.unknown.default"], 1)
        self.assertEqual(sum(found.values()), 1)

    def test_refused_capture(self):
        with self.assertRaisesRegex(CaptureError, "torch.export.export failed with"):
            coverage(lambda x: x + 1 if x.sum() > 0 else x, (torch.ones(2),))

    def test_arguments_that_do_not_fit(self):
        for message, options in {
            "export_options is an ExportOptions, not str": {"export_options": "strict"},
            "kwargs is a dict of keyword arguments, not tuple": {"kwargs": (1,)},
            "progress is a function of a stage and its number of steps, not None": {"progress": None},
        }.items():
            with self.subTest(message), self.assertRaisesRegex(TypeError, message):
                coverage(torch.sin, (torch.ones(2),), **options)


if __name__ == "__main__":
    unittest.main()
