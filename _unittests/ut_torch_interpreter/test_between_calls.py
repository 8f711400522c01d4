"""What the next call of a model would do otherwise: numbers that it keeps, random numbers that are not torch's."""

import dataclasses
import enum
import functools
import random
import unittest
import warnings

import numpy as np
import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.rand(3, 4)
DYNAMIC = ({0: "rows"},)
OPTIONS = (None, ExportOptions(tracing="make_fx"), ExportOptions(strict=True))


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step  # line


class Warmed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = First()

    def forward(self, x):
        return self.inner(x) + 1


class First(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = False

    @torch.no_grad()
    def forward(self, x):
        if not self.seen:  # line
            self.seen = True
            return x
        return x * 2


class Grown(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.longest = 2

    def forward(self, x):
        if x.shape[0] > self.longest:  # line
            self.longest = x.shape[0]
        return x * self.longest


class Counted(torch.nn.Module):
    """A counter that nobody reads, a number that is written before it is read, one that does not change."""

    def __init__(self):
        super().__init__()
        self.calls, self.rows, self.scale = 0, 1, 2.0
        self.last = None

    def forward(self, x):
        self.calls += 1
        self.rows = x.shape[0]
        self.scale = self.scale + 0.0
        self.last = x.shape[0]
        return x.reshape(self.rows, 2, 2) * self.scale


class OfTheClass(torch.nn.Module):
    step = 0

    def forward(self, x):
        type(self).step += 1
        return x * type(self).step  # line


class FromTheClass(torch.nn.Module):
    """It has a number of its own from its first call on."""

    step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step  # line


STEP, CALLS, IS_TOLD = 0, 0, False


class OfAGlobal(torch.nn.Module):
    def forward(self, x):
        global STEP
        STEP += 1
        return x * STEP  # line


class CountsForNobody(torch.nn.Module):
    def forward(self, x):
        global CALLS, IS_TOLD
        CALLS += 1
        if not IS_TOLD:
            warnings.warn("told once", stacklevel=1)
            IS_TOLD = True
        return x + 1


def counter():
    step = 0

    def forward(x):
        nonlocal step
        step += 1
        return x * step  # line

    return forward


class Phases(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.phase = "first"

    def forward(self, x):
        y = x * 2 if self.phase == "first" else x  # line
        self.phase = "later"
        return y


class Replaces(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)  # line
        self.layer = torch.nn.ReLU()
        return y


def of_itself(x):
    of_itself.step += 1
    return x * of_itself.step  # line


of_itself.step = 0


class Decorated(Counter):
    @functools.wraps(functools.partial(print))
    def note(self):
        """A function whose original is none."""


class Asked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    @property
    def scale(self):
        return self.step  # line

    def taken(self):
        self.step += 1
        return self.step  # line

    def forward(self, x):
        self.taken()
        return x * self.scale


class Overrides(Asked):
    """What its base reads, and it does not: a counter that nobody asks."""

    @property
    def scale(self):
        return 2

    def taken(self):
        self.step += 1


class AsksItsBase(Overrides):
    def taken(self):
        return Asked.taken(self)


class AsksAbove(Asked):
    scale = 2

    def taken(self):
        return super().taken() + 1


class Mode(enum.Enum):
    FIRST = 1
    LATER = 2


class Changes(torch.nn.Module):
    """An attribute that has another value from the second call on."""

    def __init__(self, first, later, use):
        super().__init__()
        self.given, self.later, self.use = first, later, use

    def forward(self, x):
        y = self.use(x, self.given)  # line
        self.given = self.later
        return y


CHANGES = {
    "1.5 before it, None": (1.5, None, lambda x, scale: x if scale is None else x * scale),
    "1j before it, (1+0j)": (1j, 1 + 0j, lambda x, scale: x * scale.real),
    "b'a' before it, b'bc'": (b"a", b"bc", lambda x, text: x * len(text)),
    "sin before it, cos": (torch.sin, torch.cos, lambda x, function: function(x)),
    "<Mode.FIRST: 1> before it, <Mode.LATER: 2>": (Mode.FIRST, Mode.LATER, lambda x, mode: x * mode.value),
    "torch.float32 before it, torch.int64": (torch.float32, torch.int64, lambda x, dtype: x.to(dtype) * 1.0),
}


class MakesOnce(torch.nn.Module):
    """A table, when a flag says that there is none."""

    def __init__(self):
        super().__init__()
        self.is_made = False

    def forward(self, x):
        if not self.is_made:
            self.table = torch.arange(x.shape[1]).float()
            self.is_made = True
        return x + self.table


class KeepsOnce(MakesOnce):
    """The first input, which is no table."""

    def forward(self, x):
        if not self.is_made:  # line
            self.table = x.mean(0)
            self.is_made = True
        return x + self.table


class KeepsABufferOnce(MakesOnce):
    """A buffer, which a caller may give."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(4))

    def forward(self, x):
        if not self.is_made:  # line
            self.table = x.mean(0)
            self.is_made = True
        return x + self.table


class MakesLater(MakesOnce):
    """Where the flag is set elsewhere, the second call is the first that makes it."""

    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        if self.is_made:  # line
            self.scale = 2.0
        self.is_made = True
        return x * self.scale


@dataclasses.dataclass
class Calls:
    count: int = 0


class CountsInADataclass(torch.nn.Module):
    """What its ``__repr__`` alone reads."""

    def __init__(self):
        super().__init__()
        self.calls = Calls()

    def forward(self, x):
        self.calls.count += 1
        return x * 2


class Place:
    def __init__(self):
        self.at = 0


class Cached(torch.nn.Module):
    """A buffer that is filled, row by row: an object among those of a list counts them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3, 4))
        self.layers = [Place()]

    def forward(self, x):
        (place,) = self.layers
        self.rows[place.at] = x  # line
        place.at += 1
        return self.rows.sum(0)


class Drawing(torch.nn.Module):
    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def forward(self, x):
        return x * self.generator.random()


class TestBetweenCalls(ExporterTestCase):
    def warnings(self, model, **options):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(model, (X,), **options)
        return [record.getMessage() for record in logs.records]

    def test_numbers_that_are_kept(self):
        expected = {
            Counter: "the model does what the captured call does: step is 0 before it, 1 after it",
            Decorated: "the model does what the captured call does: step is 0 before it, 1 after it",
            Warmed: "the model does what the captured call does: inner.seen is False before it, True after it",
            Asked: "the model does what the captured call does: step is 0 before it, 1 after it",
            AsksItsBase: "the model does what the captured call does: step is 0 before it, 1 after it",
            AsksAbove: "the model does what the captured call does: step is 0 before it, 1 after it",
            Grown: "the model does what the captured call does: longest is 2 before it, 3 after it",
        }
        for options in OPTIONS:
            for kind, text in expected.items():
                with self.subTest(kind.__name__, options=options):
                    model = kind()
                    (found,) = self.warnings(model, export_options=options)
                    self.assertTrue(found.startswith(text + "\n"), found)
                    self.assertTrue(found.endswith("# line"), found)
                    self.assertFalse(self.changed(model))  # it is left as it was

    def test_values_of_other_kinds(self):
        for options in OPTIONS:
            for change, given in CHANGES.items():
                with self.subTest(change, options=options):
                    (found,) = self.warnings(Changes(*given), export_options=options)
                    text = f"the model does what the captured call does: given is {change} after it\n"
                    self.assertTrue(found.startswith(text), found)
                    self.assertTrue(found.endswith("# line"), found)

    def test_flags_of_what_is_made_once(self):
        for options in OPTIONS:
            with self.subTest(options=options), self.assertNoLogs("experimental_experiment", "WARNING"):
                to_onnx(MakesOnce(), (X,), export_options=options)
            for kind in (KeepsOnce, KeepsABufferOnce, MakesLater):
                with self.subTest(kind.__name__, options=options):
                    found = self.warnings(kind(), export_options=options)
                    text = "the model does what the captured call does: is_made is False before it, True after it\n"
                    told = [each for each in found if each.startswith(text) and each.endswith("# line")]
                    self.assertEqual(1, len(told), found)

    def test_numbers_that_are_kept_outside(self):
        expected = {OfTheClass: "OfTheClass.step", OfAGlobal: "STEP", counter: "step", FromTheClass: "step"}
        for options in OPTIONS:
            for kind, name in expected.items():
                with self.subTest(kind.__name__, options=options):
                    OfTheClass.step = globals()["STEP"] = 0
                    (found,) = self.warnings(kind(), export_options=options)
                    text = f"the model does what the captured call does: {name} is 0 before it, 1 after it\n"
                    self.assertTrue(found.startswith(text), found)
                    self.assertTrue(found.endswith("# line"), found)

    def test_what_is_no_number(self):
        for options in OPTIONS:
            for model, change in (
                (Phases(), "phase is 'first' before it, 'later' after it"),
                (Replaces(), "layer is a Linear before it, a ReLU after it"),
                (of_itself, "of_itself.step is 0 before it, 1 after it"),
            ):
                of_itself.step = 0
                if model is of_itself and options is not None and options.strict:
                    continue  # TorchDynamo refuses to write into a function
                with self.subTest(change, options=options):
                    (found,) = self.warnings(model, export_options=options)
                    self.assertTrue(
                        found.startswith(f"the model does what the captured call does: {change}\n"), found
                    )
                    self.assertTrue(found.endswith("# line"), found)
                    self.assertIsInstance(getattr(model, "layer", None), (torch.nn.Linear, type(None)))

    def changed(self, model):
        return {name for name, value in vars(type(model)()).items() if type(value) is int} & {
            name for name, value in vars(model).items() if value != vars(type(model)())[name]
        }

    def test_numbers_of_what_the_model_holds(self):
        model = Cached()
        texts = self.warnings(model, mutated_buffers="outputs")
        expected = "the model does what the captured call does: layers[0].at is 0 before it, 1 after it\n"
        (found,) = [text for text in texts if text.startswith(expected)]
        self.assertTrue(found.endswith("# line"), found)
        self.assertEqual(0, model.layers[0].at)

    def test_a_size_that_is_kept(self):
        texts = self.warnings(Grown(), dynamic_shapes=DYNAMIC)
        self.assertTrue(any("longest is 2 before it" in text for text in texts), texts)

    def test_a_global_that_no_call_reads(self):
        with self.assertNoLogs("experimental_experiment", "WARNING"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            to_onnx(CountsForNobody(), (X,))

    def test_what_no_call_reads(self):
        for options in OPTIONS:
            for shapes in (None, DYNAMIC):
                with (
                    self.subTest(options=options, shapes=shapes),
                    self.assertNoLogs("experimental_experiment", "WARNING"),
                ):
                    to_onnx(Counted(), (X,), dynamic_shapes=shapes, export_options=options)
                    to_onnx(Overrides(), (X,), dynamic_shapes=shapes, export_options=options)
                    to_onnx(CountsInADataclass(), (X,), dynamic_shapes=shapes, export_options=options)

    def test_random_numbers(self):
        def python(x):
            return x * random.random()

        def numpy(x):
            return x + float(np.random.rand())

        for model, name in (
            (python, "Python's random"),
            (numpy, "numpy.random"),
            (Drawing(random.Random(1)), "generator"),
            (Drawing(np.random.default_rng(1)), "generator"),
            (Drawing(np.random.RandomState(1)), "generator"),
            (Drawing(np.random.RandomState(np.random.PCG64(1))), "generator"),
        ):
            with self.subTest(name, kind=type(model)):
                expected = (
                    f"{name} gave numbers to the captured call: where the model uses them, it holds them"
                )
                self.assertEqual(self.warnings(model), [expected])

    def test_what_has_no_state(self):
        """A generator that cannot be asked what it draws next, a number that is not equal to itself."""
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Drawing(random.SystemRandom()), (X,))
            limit = Counted()
            limit.scale = float("nan")
            limit.forward = lambda x: x.clamp(max=limit.scale)
            to_onnx(limit, (X,))

    def test_torch_draws_its_own(self):
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(lambda x: x + torch.rand_like(x), (X,))


if __name__ == "__main__":
    unittest.main()
