"""A fixed tenth of PyTorch's operator database; the whole runs by ``python -m tests.sweep``."""

import unittest

from tests.sweep import SAMPLES, sweep, tenth, unexpected


class TestOperators(unittest.TestCase):
    """Each case runs in a process of its own kind: a crash loses that case only."""

    def check(self, names):
        """No case fails outside of the known failures, and no known failure passes."""
        results = list(sweep(tenth(names), samples=SAMPLES, workers=2))
        self.assertGreater(len(results), 50)
        self.assertEqual(unexpected(results), [])

    def test_operators(self):
        from tests.cases import operator_names

        self.check(operator_names())


if __name__ == "__main__":
    unittest.main()
