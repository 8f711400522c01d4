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
                self.check(operator_names() + module_names(), 40, context, samples=1, workers=1)


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


class TestDocument(unittest.TestCase):
    """The sections of docs/conformance.md."""

    def test_a_section_takes_the_place_of_the_one_of_its_name(self):
        old = with_section(with_section("", "## scaled\n\nold\n"), "## plain\n\n| kept |\n")
        new = with_section(old, "## scaled\n\nnew\n")
        self.assertIn("## plain\n\n| kept |\n\n## scaled\n\nnew\n", new)
        self.assertNotIn("old", new)


if __name__ == "__main__":
    unittest.main()
