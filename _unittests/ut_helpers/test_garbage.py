"""The pause of Python's search for garbage: what stood before stands afterwards."""

import gc
import unittest

from experimental_experiment.garbage import MANY, paused_collection


class TestPausedCollection(unittest.TestCase):
    def setUp(self):
        self.addCleanup(gc.enable)
        gc.unfreeze()

    def test_is_as_before(self):
        for is_enabled in (True, False):
            with self.subTest(is_enabled=is_enabled):
                (gc.enable if is_enabled else gc.disable)()
                with self.assertRaises(KeyError), paused_collection():
                    self.assertFalse(gc.isenabled())
                    {}["missing"]
                self.assertEqual(is_enabled, gc.isenabled())

    def test_many_objects_become_old(self):
        gc.enable()
        with paused_collection():
            made = [[] for _ in range(2 * MANY)]
        young = {id(item) for generation in (0, 1) for item in gc.get_objects(generation)}
        self.assertFalse(young & set(map(id, made)))
        self.assertEqual(0, gc.get_freeze_count())

    def test_what_a_caller_froze_stays_frozen(self):
        gc.freeze()
        self.addCleanup(gc.unfreeze)
        frozen = gc.get_freeze_count()
        with paused_collection():
            made = [[] for _ in range(2 * MANY)]
        self.assertEqual(2 * MANY, len(made))
        self.assertLess(0.9 * frozen, gc.get_freeze_count())


if __name__ == "__main__":
    unittest.main()
