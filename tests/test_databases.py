"""A fixed tenth of PyTorch's operator and module databases; the whole runs by ``python -m tests.sweep``."""

import unittest

from tests.sweep import SAMPLES, sweep, tenth, unexpected


class TestDatabases(unittest.TestCase):
    """Each case runs in a process of its own kind: a crash loses that case only."""

    def check(self, names, fewest):
        """No case fails outside of the known failures, and no known failure passes."""
        results = list(sweep(tenth(names), samples=SAMPLES, workers=2))
        self.assertGreater(len(results), fewest)
        self.assertEqual(unexpected(results), [])

    def test_operators(self):
        from tests.cases import operator_names

        self.check(operator_names(), 50)

    def test_modules(self):
        from tests.cases import module_names

        self.check(module_names(), 5)


if __name__ == "__main__":
    unittest.main()
