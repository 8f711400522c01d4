"""What the next call of a model would find behind properties, in locals of a thread, in defaults, in objects of globals and in iterators."""

import collections
import functools
import itertools
import operator
import random
import threading
import unittest

import torch

from _unittests.ut_torch_interpreter.test_kept_tensors import KeptTestCase, X
from experimental_experiment.comparison import run, session
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx


class Shown(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._past, self._step, self._seen = None, 0, []

    @property
    def past(self):
        return self._past

    @past.setter
    def past(self, value):
        self._past = value

    @property
    def step(self):
        return self._step

    @property
    def seen(self):
        return self._seen


class KeepsInAProperty(Shown):
    def forward(self, x):
        y = x if self.past is None else x + self.past  # line
        self.past = y
        return y


class ReadsAProperty(Shown):
    def forward(self, x):
        y = x if self.past is None else x + self.past  # line
        self._past = y
        return y


class CountsBehindAProperty(Shown):
    def forward(self, x):
        self._step += 1
        return x * self.step  # line


class GrowsBehindAProperty(Shown):
    def forward(self, x):
        self.seen.append(x)
        return sum(y.sum() for y in self.seen)  # line


class WritesAPropertyFirst(Shown):
    def forward(self, x):
        self.past = x * 2
        return x + self.past


class HasAShape(Shown):
    """A property that has the name of one of tensors."""

    @property
    def shape(self):
        return self._past.shape

    def forward(self, x):
        rows = x.shape[0]
        self._past = x * rows
        return self._past + self.shape[0]


class HasALocal(torch.nn.Module):
    make = threading.local

    def __init__(self):
        super().__init__()
        self.local = self.make()


class KeepsInAThread(HasALocal):
    def forward(self, x):
        past = getattr(self.local, "past", None)  # line
        self.local.past = x
        return x if past is None else x + past


class Local(threading.local):
    """A local of a class of its own."""


class KeepsInAThreadOfItsOwn(KeepsInAThread):
    make = Local


class AsksByText(torch.nn.Module):
    def forward(self, x):
        past = getattr(self, "past", None)  # line
        self.past = x
        return x if past is None else x + past


class WritesInAThreadFirst(HasALocal):
    def forward(self, x):
        self.local.past = x
        return x + self.local.past


class GrowsADefault(torch.nn.Module):
    def forward(self, x, seen=[]):  # noqa: B006
        seen.append(x)
        return sum(y.sum() for y in seen)  # line


class GrowsADefaultOfAMethod(torch.nn.Module):
    def forward(self, x):
        return self.add(x)

    def add(self, x, *, seen={}):  # noqa: B006
        last = seen.get("last", x)  # line
        seen["last"] = x
        return x + last


class Cache:
    def __init__(self):
        self.keys = None

    def update(self, keys):
        self.keys = keys if self.keys is None else self.keys + keys  # line
        return self.keys


CACHE = Cache()


class HasADefault(torch.nn.Module):
    def forward(self, x, cache=Cache()):  # noqa: B008
        return cache.update(x)


class ReadsAGlobal(torch.nn.Module):
    def forward(self, x):
        return CACHE.update(x)


class FillsADefault(torch.nn.Module):
    def forward(self, x, tables={}, names=("scale",)):  # noqa: B006
        if x.shape[1] not in tables:
            tables[x.shape[1]] = torch.arange(x.shape[1]).float()
        return x * tables[x.shape[1]] + len(names)


def numbers():
    number = 0.5
    while True:
        yield number
        number += 0.5


class Draws(torch.nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given

    def forward(self, x):
        return x * next(self.given)


class DrawsNothing(Draws):
    def forward(self, x):
        return x * 2


class DrawsParts(Draws):
    """What gives tuples, or what stands in a list, in a dict or among the arguments of a call."""

    def forward(self, x):
        given = self.given
        while not callable(given) and not isinstance(given, collections.abc.Iterator):
            given = given["first"] if isinstance(given, dict) else given[0]
        given = given() if callable(given) else next(given)
        for part in given if isinstance(given, tuple) else [given]:
            x = x * float(part)
        return x


class Halving:
    """An iterator of a class of its own."""

    def __init__(self):
        self.last = 2.0

    def __iter__(self):
        return self

    def __next__(self):
        self.last /= 2
        return self.last


ITERATORS = {
    "cycle": lambda: itertools.cycle([0.5, 2, 4]),
    "a cycle that has all of its values": lambda: all_of(itertools.cycle([0.5, 2, 4]), 4),
    "a cycle of its own": lambda: itertools.cycle(Halving()),
    "chain": lambda: itertools.chain([0.5], [2, 4]),
    "from_iterable": lambda: itertools.chain.from_iterable([[0.5], [2, 4]]),
    "zip": lambda: zip([1, 1], [1, 2]),
    "zip_longest": lambda: itertools.zip_longest([0.5, 2, 3], [1], fillvalue=5),
    "map": lambda: map(abs, [0.5, 2]),
    "a map of a generator": lambda: map(abs, numbers()),
    "filter": lambda: filter(None, [0.5, 2]),
    "enumerate": lambda: enumerate([0.5, 2]),
    "reversed": lambda: reversed([0.5, 2]),
    "islice": lambda: itertools.islice(itertools.count(1), 5),
    "accumulate": lambda: itertools.accumulate([0.5, 2]),
    "starmap": lambda: itertools.starmap(pow, [(2, 1), (2, 2)]),
    "takewhile": lambda: itertools.takewhile(abs, [0.5, 2]),
    "compress": lambda: itertools.compress([0.5, 2], [1, 1]),
    "product": lambda: itertools.product([0.5, 2], [1, 3]),
    "permutations": lambda: itertools.permutations([0.5, 2, 3], 2),
    "combinations": lambda: itertools.combinations([0.5, 2, 3], 2),
    "groupby": lambda: map(operator.itemgetter(0), itertools.groupby([0.5, 2])),
    "tee": lambda: itertools.tee([0.5, 2])[0],
    "in a list": lambda: [itertools.cycle([0.5, 2])],
    "in a dict of tuples": lambda: {"first": (iter([0.5, 2]),)},
    "an argument": lambda: functools.partial(next, itertools.cycle([0.5, 2])),
}
"""What gives another value to each call."""


def all_of(cycle, values):
    """A cycle that gave some values."""
    for _ in range(values):
        next(cycle)
    return cycle


GENERATOR, NUMBERS = random.Random(1), itertools.count(1)


def draws_of_a_global(x):
    return x * GENERATOR.random()


def counts_of_a_global(x):
    return x * next(NUMBERS)


class TestKeptElsewhere(KeptTestCase):
    TOLD = {
        KeepsInAProperty: "_past is None before it, a tensor after it",
        ReadsAProperty: "_past is None before it, a tensor after it",
        CountsBehindAProperty: "_step is 0 before it, 1 after it",
        GrowsBehindAProperty: "_seen is a list of 0 before it, a list of 1 after it",
        KeepsInAThread: "local.past is None before it, a tensor after it",
        KeepsInAThreadOfItsOwn: "local.past is None before it, a tensor after it",
        AsksByText: "past is None before it, a tensor after it",
        GrowsADefault: "seen is a list of 0 before it, a list of 1 after it",
        GrowsADefaultOfAMethod: "seen is a dict of 0 before it, a dict of 1 after it",
        HasADefault: "cache.keys is None before it, a tensor after it",
        ReadsAGlobal: "CACHE.keys is None before it, a tensor after it",
    }
    QUIET = WritesAPropertyFirst, HasAShape, WritesInAThreadFirst, FillsADefault

    def test_what_is_read(self):
        for options in (None, ExportOptions(tracing="make_fx"), ExportOptions(strict=True)):
            for kind, text in self.TOLD.items():
                with self.subTest(kind.__name__, options=options):
                    model = kind()
                    self.assertEqual(1, len(self.assert_told(model, text, options)))
                    self.assertIs(torch.Tensor, type(model(X)))  # nothing of the capture is left
                    self.empty()

    def empty(self):
        """Let the defaults and the global hold nothing."""
        GrowsADefault.forward.__defaults__[0].clear()
        GrowsADefaultOfAMethod.add.__kwdefaults__["seen"].clear()
        HasADefault.forward.__defaults__[0].keys = CACHE.keys = None

    def test_what_no_call_reads(self):
        for kind in self.QUIET:
            with self.subTest(kind.__name__), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.assert_matches(to_onnx(kind(), (X,)), lambda x, kind=kind: kind()(x), (X,))

    def test_what_gives_the_next_value(self):
        left = iter([1, 2, 3])
        for model, name, kind in (
            (Draws(itertools.count(1)), "given", "values"),
            (Draws(numbers()), "given", "values"),
            (Draws(left), "given", "values"),
            (counts_of_a_global, "NUMBERS", "values"),
            (draws_of_a_global, "GENERATOR", "numbers"),
        ):
            with self.subTest(name), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(model, (X,))
            text = f"{name} gave {kind} to the captured call: where the model uses them, it holds them"
            self.assertEqual([text], [record.getMessage() for record in logs.records])
        self.assertEqual([2, 3], [*left])

    def test_what_dynamo_asks_for_the_next_value(self):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Draws(itertools.count(1)), (X,), export_options=ExportOptions(strict=True))
        self.assertIn("given gave values to the captured call", logs.output[0])

    def test_iterators(self):
        for promise, make in ITERATORS.items():
            with self.subTest(promise):
                model, reference = DrawsParts(make()), DrawsParts(make())
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    written = to_onnx(model, (X,))
                (text,) = (record.getMessage() for record in logs.records)
                self.assertRegex(
                    text, r"^given(\[.*\])* gave values to the captured call: where the model uses"
                )
                first, second = reference(X), reference(X)
                torch.testing.assert_close(run(session(written), [X])[0], first)
                torch.testing.assert_close(model(X), second)  # one value was taken, no more
                self.assertFalse(torch.equal(first, second))

    def test_what_nobody_asks_for_a_value(self):
        givers = [make() for make in ITERATORS.values()]
        givers += itertools.count(1), numbers(), (x for x in ())
        for given in givers:
            for options in (None, ExportOptions(strict=True)):
                with self.assertNoLogs("experimental_experiment", "WARNING"):
                    to_onnx(DrawsNothing(given), (X,), export_options=options)


if __name__ == "__main__":
    unittest.main()
