"""What a capture leaves in globals, classes and functions is taken away."""

import collections
import unittest
import unittest.mock

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import (
    CaptureError,
    ExportError,
    ExportOptions,
    memories,
    to_onnx,
)
from experimental_experiment.torch_interpreter.memories import MANY, memories_in

TABLES = {}
TABLES["itself"] = TABLES
BY_KIND = collections.defaultdict(dict)
SEEN = []
LAST = None
STEPS = 0


class Tables:
    """Tables of a class and of an object."""

    known = None

    def __init__(self):
        self.by_size = {}
        self.length = 0


KEEPER = Tables()


def table(length):
    """A new table."""
    return torch.arange(length) * 1.5


def with_default(length, known={}):  # noqa: B006 (that is what is tested)
    """The table of a size, kept in the default of an argument."""
    return known.setdefault(length, table(length)) if length not in known else known[length]


def with_cell():
    """The same, kept in a variable of an outer function."""
    known = {}

    def inner(length):
        if length not in known:
            known[length] = table(length)
        return known[length]

    return inner


in_cell = with_cell()


def of_a_dict(length):
    if length not in TABLES:
        TABLES[length] = table(length)
    return TABLES[length]


def of_dicts(length):
    if length not in BY_KIND["float"]:
        BY_KIND["float"][length] = table(length)
    return BY_KIND["float"][length]


def of_a_list(length):
    if not SEEN:
        SEEN.append((length, table(length)))
    return SEEN[0][1]


def of_a_global(length):
    global LAST, STEPS
    STEPS += 1
    if LAST is None:
        LAST = table(length)
    return LAST


def of_a_class(length):
    if Tables.known is None:
        Tables.known = table(length)
    return Tables.known


def of_an_object(length):
    if KEEPER.length < length:
        KEEPER.by_size[length], KEEPER.length = table(length), length
    return KEEPER.by_size[KEEPER.length][:length]


def of_a_function(length):
    if not hasattr(of_a_function, "known"):
        of_a_function.known = table(length)
    return of_a_function.known


class Model(torch.nn.Module):
    """A model that multiplies with a table, from where a function keeps it."""

    own = None

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        if self.function is not None:
            return x * self.function(x.shape[1])
        if Model.own is None:
            Model.own = table(x.shape[1])
        return x * Model.own


class TestLeftovers(ExporterTestCase):
    X = torch.ones(2, 6)
    PLACES = (
        of_a_dict,
        of_dicts,
        of_a_list,
        of_a_global,
        of_a_class,
        of_an_object,
        of_a_function,
        with_default,
        in_cell,
        None,
    )

    def test_the_model_can_be_called_and_exported_again(self):
        for function in self.PLACES:
            with self.subTest(getattr(function, "__name__", "of its class")):
                to_onnx(Model(function), (self.X,))
                again = to_onnx(Model(function), (self.X,))
                self.assertIs(type(Model(function)(self.X)), torch.Tensor)
                self.assert_matches(again, Model(function), (self.X,))

    def test_what_is_no_part_of_a_capture_stays(self):
        steps = STEPS
        to_onnx(Model(of_a_global), (self.X,))
        self.assertGreater(STEPS, steps)

    def test_left_without_the_patch(self):
        left = lambda length: LEFT.setdefault(length, table(length))
        to_onnx(Model(left), (self.X,), export_options=ExportOptions(patches=False))
        self.addCleanup(LEFT.clear)
        self.assertIsNot(type(Model(left)(self.X)), torch.Tensor)
        with self.assertRaisesRegex((CaptureError, ExportError), "fake tensor|has no values"):
            to_onnx(Model(left), (self.X,))

    def test_what_is_looked_into(self):
        class Lazy(dict):
            def values(self):
                raise AssertionError("asked for its values")

            __iter__ = __len__ = items = values

        inner, large, lazy = [1], dict.fromkeys(range(MANY + 1)), Lazy()
        found = memories_in([{"inner": inner}, inner, lazy, large, KEEPER, Tables, torch, 3], depth=2)
        self.assertIs(lazy, found[2])
        found[2] = {}
        self.assertEqual([{"inner": inner}, inner, {}, vars(lazy), vars(KEEPER), KEEPER.by_size], found)

    def test_classes_that_show_no_attributes(self):
        # as those that mypyc compiles, and proxies of werkzeug, outside of what they stand for
        def refuse(_):
            raise RuntimeError("asked for its attributes")

        sealed = type("Sealed", (), {"__dict__": property(refuse)})
        empty = type("Empty", (), {"__dict__": None})
        self.assertEqual([], memories_in([sealed(), empty()], depth=2))
        missing = type("Compiled", (), {"__dict__": property(lambda self: self.absent)})  # AttributeError
        with unittest.mock.patch.object(memories, "has_attributes", return_value=True):
            self.assertEqual({}, memories.own_attributes(missing()))
        model = Model(None)
        model.held = [sealed(), empty()]
        to_onnx(model, (self.X,))


LEFT = {}

if __name__ == "__main__":
    unittest.main()
