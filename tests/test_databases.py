"""A fixed part of PyTorch's operator and module databases, alone and in each context; the whole: ``python -m tests.sweep``."""

import unittest

from tests.sweep import ONE_IN, SAMPLES, Run, fixed_part, sweep, unexpected, with_section


class TestDatabases(unittest.TestCase):
    """Each case runs in a process of its own kind: a crash loses that case only."""

    def check(self, names, fewest, context="plain", samples=SAMPLES, workers=2):
        """No case fails outside of the known failures, and no known failure passes."""
        run = Run(context, samples)
        results = list(sweep(fixed_part(names, context), run, workers))
        self.assertGreater(len(results), fewest)
        self.assertEqual(unexpected(results, run), [])

    def test_operators(self):
        from tests.cases import operator_names

        self.check(operator_names(), 50)

    def test_modules(self):
        from tests.cases import module_names

        self.check(module_names(), 5)

    def test_contexts(self):
        """One sample and one worker: starting another costs as much as ten cases."""
        from tests.cases import module_names, operator_names

        for context in ONE_IN.keys() - {"plain"}:
            with self.subTest(context):
                self.check(operator_names() + module_names(), 25, context, samples=1, workers=1)


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
                for seen, tensor in zip(module.operands(module.inputs(tensors)), tensors, strict=True):
                    torch.testing.assert_close(seen, tensor)
                    self.assertTrue(seen.is_contiguous())

    def test_values_undo_what_stands_after_the_call(self):
        from tests.contexts import Around, Call, torch

        call = Call(torch.sort, (torch.randn(2, 3, 4, 5),), {})
        module = Around(call)
        for found, value in zip(module.values(module(*module.inputs(call.tensors()))), call(*call.tensors())):
            self.assertTrue(torch.equal(found, value))


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


class TestDocument(unittest.TestCase):
    """The sections of docs/conformance.md."""

    def test_a_section_takes_the_place_of_the_one_of_its_name(self):
        old = with_section(with_section("", "## scaled\n\nold\n"), "## plain\n\n| kept |\n")
        new = with_section(old, "## scaled\n\nnew\n")
        self.assertIn("## plain\n\n| kept |\n\n## scaled\n\nnew\n", new)
        self.assertNotIn("old", new)


if __name__ == "__main__":
    unittest.main()
