"""A fixed part of PyTorch's operator and module databases, alone and in each context; the whole: ``python -m tests.sweep``."""

import collections
import unittest

from tests.sweep import ONE_IN, SAMPLES, Run, fixed_part, sweep, unexpected, with_section


class TestDatabases(unittest.TestCase):
    """The cases run in a process of their own: a crash loses that case only."""

    def test_fixed_part(self):
        """No case fails outside of the known failures, and no known failure passes; one sample where it is not alone."""
        from tests.cases import module_names, operator_names

        names = operator_names() + module_names()
        runs = [Run(context, SAMPLES if context == "plain" else 1) for context in ONE_IN]
        cases = [(run, name) for run in runs for name in fixed_part(names, run.context)]
        results = collections.defaultdict(list)
        for run, result in sweep(cases, workers=1):
            results[run.context].append(result)
        for run in runs:
            with self.subTest(run.context):
                least = 14 if ONE_IN[run.context] < 720 else 6
                self.assertGreater(len(results[run.context]), least)
                self.assertEqual(unexpected(results[run.context], run), [])
        kinds = {name[0] for name, *_ in results["plain"]}
        self.assertEqual(kinds, {"operator", "inplace", "eval", "train"})


class TestContexts(unittest.TestCase):
    """A context gives the operator what it is given alone."""

    def test_the_operator_sees_the_same_tensors(self):
        from tests.contexts import CONTEXTS, Call, torch

        tensors = [
            torch.arange(24.0).reshape(2, 3, 4),
            torch.tensor([[0.125, -7.5], [float("inf"), 1.0]], dtype=torch.float16),
            torch.tensor([[1, 2, 3]]),
            torch.randn(2, 3, 4, 5, 6, dtype=torch.float64),
            torch.tensor(True),
        ]
        call = Call(lambda *given: given, tensors, {})
        for name, context in CONTEXTS.items():
            with self.subTest(name):
                module = context.module(call)
                ((given, _), *_), *_ = module.calls(module.inputs(tensors))
                for seen, tensor in zip(given, tensors, strict=True):
                    torch.testing.assert_close(seen, tensor)
                    self.assertTrue(seen.is_contiguous())

    def test_values_undo_what_stands_after_the_call(self):
        from tests.contexts import CONTEXTS, Call, torch

        call = Call(torch.sort, (torch.randn(2, 3, 4, 5),), {})
        for name in ("around", "branch", "map", "vmap"):
            module = CONTEXTS[name].module(call)
            first = module.inputs(call.tensors())
            for inputs in (first, *module.others(first)):
                with self.subTest(name, inputs=inputs):
                    (_, values), *_ = module.calls(inputs, module(*inputs))
                    for found, value in zip(values, call(*call.tensors()), strict=True):
                        self.assertTrue(torch.equal(found, value))

    def test_every_row_is_a_call_of_its_own(self):
        from tests.contexts import CONTEXTS, Call, torch

        call = Call(torch.sort, (torch.randn(3, 4),), {})
        for name in ("map", "vmap"):
            module = CONTEXTS[name].module(call)
            inputs = module.longer(module.inputs(call.tensors()))
            calls = list(module.calls(inputs, module(*inputs)))
            with self.subTest(name):
                self.assertEqual(len(calls), 3)
                for (args, _), values in calls:
                    self.assertTrue(torch.equal(values[0], args[0].sort()[0]))


class TestHalves(unittest.TestCase):
    """A result in half precision is compared with eager, then with the result in float64."""

    def test_the_exact_result_or_one_as_near_as_eager(self):
        from tests.cases import as_near, torch

        exact = torch.tensor([100.0, 1.0], dtype=torch.float64)
        eager = torch.tensor([97.0, 1.0], dtype=torch.float16)
        for got, expected in (
            (100.0, True),
            (97.0, True),
            (103.0, True),
            (96.0, False),
            (float("nan"), False),
        ):
            with self.subTest(got):
                self.assertEqual(as_near(torch.tensor([got, 1.0]).half(), eager, exact), expected)
        self.assertFalse(as_near(torch.tensor([103.0, 1.0]).half(), eager * float("inf"), exact))

    def test_the_call_is_computed_in_float64(self):
        from tests.cases import in_float64
        from tests.contexts import CONTEXTS, Call, torch

        x, weight = torch.full((2, 4), 300.0).half(), torch.full((2, 4), 0.25).half()
        call = Call(lambda x, weight: (x * x * weight).sum(), (x, weight), {})
        for name, results in (("plain", [180000.0]), ("around", [180000.0])):
            model = CONTEXTS[name].module(call)
            with self.subTest(name):
                self.assertEqual([y.item() for y in in_float64(model, model.inputs([x, weight]))], results)


class TestSizes(unittest.TestCase):
    """The sizes that a model of dynamic sizes is run on."""

    def test_smaller_sizes(self):
        from tests.cases import batch_of_one, empty_batch, resized, torch

        tensors = torch.randn(3, 4), torch.randn(1, 4), torch.randn(())
        for change, first in ((batch_of_one, 1), (empty_batch, 0)):
            with self.subTest(change.__name__):
                shapes = [tuple(tensor.shape) for tensor in resized(tensors, change)]
                self.assertEqual(shapes, [(first, 4), (1, 4), ()])

    def test_a_rank_that_depends_on_a_size(self):
        from tests.cases import as_declared
        from tests.contexts import CONTEXTS, Call, torch

        rows = torch.randn(3, 1, 4)
        call = CONTEXTS["plain"].module(Call(torch.squeeze, (rows,), {}))
        sizes = (({0: torch.export.Dim.AUTO},),)
        program = torch.export.export(call, (rows,), dynamic_shapes=sizes)
        self.assertTrue(as_declared(program, [rows.squeeze()]))
        self.assertFalse(as_declared(program, [rows[:1].squeeze()]))

    def test_both_are_run(self):
        from tests import cases
        from tests.contexts import CONTEXTS

        seen = []

        def run(model, inputs):
            seen.append(len(inputs[0]))
            return CONTEXTS["plain"].run(model, inputs)

        context = cases.dataclasses.replace(CONTEXTS["plain"], run=run)
        model = context.module(cases.Call(cases.torch.exp, (cases.torch.randn(3, 4),), {}))
        found = cases.with_dynamic_sizes(("operator", "exp", "float32"), context, model, model.call.tensors())
        self.assertEqual((found.status, seen), ("passed", [4, 1, 0]))


class TestDocument(unittest.TestCase):
    """The sections of docs/conformance.md."""

    def test_a_section_takes_the_place_of_the_one_of_its_name(self):
        old = with_section(with_section("", "## scaled\n\nold\n"), "## plain\n\n| kept |\n")
        new = with_section(old, "## scaled\n\nnew\n")
        self.assertIn("## plain\n\n| kept |\n\n## scaled\n\nnew\n", new)
        self.assertNotIn("old", new)


if __name__ == "__main__":
    unittest.main()
