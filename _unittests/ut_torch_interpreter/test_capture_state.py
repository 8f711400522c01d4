"""What a model holds is what it held before it was exported."""

import collections
import copy
import enum
import itertools
import operator
import types
import unittest
import warnings

import torch
from torch.export import Dim

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.export_options import CapturedOnce
from experimental_experiment.torch_interpreter.memories import is_plain

X = torch.randn(2, 3)


class Scheduler:
    """Steps that are counted, and what they computed, as the schedulers of diffusers keep it."""

    def __init__(self):
        self.counter = 0
        self.outputs = []
        self.slots = [None, None]
        self.by_name = {"first": X}
        self.sample = None

    def step(self, x):
        self.counter += 1
        self.outputs.append(x * self.counter)
        self.slots[-1] = x + 1
        self.slots.reverse()
        self.by_name["last"] = x - 1
        self.by_name.pop("first")
        self.sample = x
        self.late = x * 3
        return sum(self.outputs) + self.slots[0]


class Sampled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scheduler = Scheduler()
        self.inner = torch.nn.Identity()
        self.inner.scheduler = self.scheduler

    def forward(self, x):
        return self.scheduler.step(self.inner(x))


class Failing(Sampled):
    def forward(self, x):
        if super().forward(x).sum() > 0:
            return x
        return -x


class Registering(torch.nn.Module):
    """Buffers, a parameter and a layer that are registered by the first call."""

    def forward(self, x):
        if not hasattr(self, "table"):
            self.register_buffer("table", torch.arange(3.0), persistent=False)
            self.register_parameter("scale", torch.nn.Parameter(torch.full((3,), 2.0)))
            self.layer = torch.nn.BatchNorm1d(3).eval()
        return self.layer(x * self.table * self.scale)


class Remembering(torch.nn.Module):
    """A table for the size of the last call, as RT-DETR keeps its anchors: class attributes before the first one."""

    size = None
    table = torch.empty(0)

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.seen = []
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape[1])
        if self.size != x.shape[1]:
            self.table = torch.arange(x.shape[1]) * torch.ones(1)
            self.size = x.shape[1]
            self.inner.is_used = True
        return self.inner(x * self.table)


class Collecting(torch.nn.Module):
    """What a layer gives is collected by a hook that the first call registers, as models of transformers do it."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def collect(self, module, args, output):
        self.collected.append(output)

    def forward(self, x):
        collected = []
        if not hasattr(self, "has_hooks"):
            self.layer.register_forward_hook(self.collect)
            self.has_hooks = True
        self.collected = collected
        self.layer(self.layer(x))
        return torch.cat(collected)


class TestRegistered(ExporterTestCase):
    def test_hooks_that_forward_registers(self):
        """Neither twice nor never: those of the capture are removed with what remembers them."""
        model = Collecting()
        with torch.no_grad():
            for _ in range(3):
                written = to_onnx(model, (X,))
                self.assertEqual((4, 3), model(X).shape)
                self.assert_matches(written, model, (X,))

    def test_attributes_that_are_new(self):
        for options in (ExportOptions(), ExportOptions(tracing="make_fx"), ExportOptions(strict=True)):
            for is_new in (True, False):
                with self.subTest(options, is_new=is_new), warnings.catch_warnings(action="ignore"):
                    model = Remembering()
                    if not is_new:
                        model(X)
                    seen, before = model.seen, [dict(vars(part)) for part in model.modules()]
                    written = to_onnx(model, (X,), export_options=options)
                    self.assertEqual(before, [vars(part) for part in model.modules()])
                    self.assertIs(seen, model.seen)
                    self.assertEqual([] if is_new else [3], seen)
                    self.assert_matches(written, model, (X,))

    def test_what_forward_registers(self):
        """The fake tensors are taken away: the next call of eager registers real ones, and keeps them in the next export."""
        model = Registering().eval()
        for _ in range(2):
            self.export_and_compare(model, (X,))
            self.assertEqual({}, model.state_dict())
            self.assertEqual([], [*model.children()])
        model(X)
        held = [*model.parameters(), *model.buffers()]
        self.export_and_compare(model, (X,))
        self.assertEqual([*map(id, held)], [id(x) for x in (*model.parameters(), *model.buffers())])
        self.assertEqual({torch.Tensor, torch.nn.Parameter}, set(map(type, held)))

    def test_a_layer_under_two_names(self):
        """Its weights and running statistics are those that it had, whatever stood for them meanwhile."""
        layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        model = torch.nn.Sequential(layer, layer).eval()
        held = [*model.parameters(), *model.buffers()]
        for options in (ExportOptions(), ExportOptions(tracing="make_fx"), ExportOptions(strict=True)):
            with self.subTest(options):
                self.export_and_compare(model, (X,), export_options=options)
                self.assertEqual([*map(id, held)], [id(x) for x in (*model.parameters(), *model.buffers())])
                self.assertEqual({torch.Tensor, torch.nn.Parameter}, set(map(type, held)))


class TestPlainObjects(ExporterTestCase):
    def assert_new(self, scheduler):
        self.assertEqual(["counter", "outputs", "slots", "by_name", "sample"], list(vars(scheduler)))
        self.assertEqual(
            (0, [], [None, None], None),
            (scheduler.counter, scheduler.outputs, scheduler.slots, scheduler.sample),
        )
        self.assertEqual(["first"], list(scheduler.by_name))
        self.assertIs(X, scheduler.by_name["first"])

    def test_a_scheduler_is_as_before(self):
        for options in ({}, {"dynamic_shapes": ({0: "batch"},)}):
            with self.subTest(**options):
                model = Sampled()
                outputs = model.scheduler.outputs
                self.export_and_compare(model, (X,), others=[(torch.randn(2, 3),)], **options)
                to_onnx(model, (X,), **options)
                self.assert_new(model.scheduler)
                self.assertIs(outputs, model.scheduler.outputs)
                torch.testing.assert_close(copy.deepcopy(model)(X), X + X + 1)

    def test_one_in_a_list_of_an_object_of_another(self):
        """As deep as the layers of an EncoderDecoderCache."""

        class Holder:
            def __init__(self, held):
                self.held = held

        class Holding(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.cache = Holder(Holder([Scheduler()]))

            def forward(self, x):
                return self.cache.held.held[0].step(x)

        model = Holding()
        self.export_and_compare(model, (X,))
        to_onnx(model, (X,))
        self.assert_new(model.cache.held.held[0])

    def test_also_when_the_capture_fails(self):
        model = Failing()
        with self.assertRaises(CaptureError):
            to_onnx(model, (X,))
        self.assert_new(model.scheduler)

    def test_which_objects(self):
        slotted = type("Slotted", (), {"__slots__": ("a",)})
        kinds = (Scheduler, enum.Enum("Kind", "a b"), slotted, torch.nn.Linear, torch.Tensor, torch.Generator)
        kinds += (type, types.FunctionType, types.ModuleType, collections.OrderedDict, dict, list, int)
        self.assertEqual([True, True] + [False] * (len(kinds) - 2), list(map(is_plain, kinds)))


class TestWrittenAttributes(ExporterTestCase):
    """``mutated_buffers="outputs"``: what a call leaves in a tensor of the model goes out, and comes in for the next one."""

    CONVERSIONS = {
        "to(dtype)": (lambda t, x: t.to(torch.float32), True),
        "to(device)": (lambda t, x: t.to(x.device), True),
        "to(other)": (lambda t, x: t.to(x), True),
        "type_as": (lambda t, x: t.type_as(x), True),
        "a copy": (lambda t, x: t.to(torch.float32, copy=True), False),
        "another dtype": (lambda t, x: t.to(torch.float64), False),
    }

    def test_an_attribute_that_is_converted_to_what_it_is(self):
        """Then ``to`` returns the tensor itself, although torch.export shows a copy of an attribute."""

        class Converted(torch.nn.Module):
            def __init__(self, convert):
                super().__init__()
                self.count, self.convert = torch.ones(3), convert

            def forward(self, x):
                self.convert(self.count, x).add_(1)
                return x * self.count

        for promise, (convert, is_written) in self.CONVERSIONS.items():
            with self.subTest(promise):
                model = to_onnx(Converted(convert), (X,), mutated_buffers="outputs")
                names = [value.name for value in model.graph.input], [v.name for v in model.graph.output]
                written = (["x", "count"], ["output", "count_out"])
                self.assertEqual(written if is_written else (["x"], ["output"]), names)
                eager, state = Converted(convert), [torch.ones(3)] * is_written
                for turn in range(3):
                    result, *state = run(session(model), [X + turn, *state])
                    torch.testing.assert_close(result, eager(X + turn))

    def test_a_check_leaves_them(self):
        class Count(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = torch.zeros(1)

            def forward(self, x):
                return x * self.calls.add_(1)

        model = Count()
        to_onnx(model, (X,), mutated_buffers="outputs", verify=True)
        self.assertEqual(0, int(model.calls))


class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        self.linear.weight = torch.nn.Parameter(self.linear.weight * 0.5)
        return self.linear(x)


class Registers(torch.nn.Module):
    """A buffer that is new, of which torch.export takes the input for the buffer's."""

    def forward(self, x):
        self.register_buffer("new", x.sum(0))
        return x + self.new


class Optional(torch.nn.Module):
    """A buffer behind others that are None, which torch.export counts when it looks for its input."""

    def __init__(self):
        super().__init__()
        for name in ("first", "second", "third"):
            self.register_buffer(name, None)
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        y = x + self.last
        self.last = x.sum(0)
        return y


class FillsOptional(Optional):
    def forward(self, x):
        self.second = x.sum(0)
        return x + self.last


class PutsIntoTheDict(Optional):
    def forward(self, x):
        y = x + self.last
        self._buffers["last"] = x.sum(0)
        return y


class InPlace(torch.nn.Module):
    """A buffer that is written in place, and assigned again: the same tensor, or one of the same memory."""

    def __init__(self, write):
        super().__init__()
        self.register_buffer("count", torch.ones(3))
        self.write = write

    def forward(self, x):
        self.count = self.write(self.count, x.sum(0))
        return x * self.count


class Drops(torch.nn.Module):
    """A parameter, and a buffer, that are there for the first call alone."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("first", torch.ones(3))

    def forward(self, x):
        y = self.linear(x) + (self.first if hasattr(self, "first") else 0)
        self.linear.bias = None
        del self.first
        return y


class TestLostAssignments(ExporterTestCase):
    STRICT = ExportOptions(strict=True)
    OPTIONS = (None, ExportOptions(tracing="make_fx"))

    def assert_told(self, kind, name, options):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            model = kind()
            onnx_model = to_onnx(model, (X,), export_options=options)
        self.assertEqual(1, len(logs.output))
        self.assertIn(f"the model writes {name}: the new values are not part", logs.output[0])
        torch.testing.assert_close(run(session(onnx_model), [X])[0], kind_like(model)(X))
        return model

    def test_a_parameter_that_is_given_another_tensor(self):
        for options in self.OPTIONS:  # TorchDynamo refuses torch.nn.Parameter(...)
            with self.subTest(options=options):
                self.assert_told(Halves, "linear.weight", options)
                with self.assertRaisesRegex(
                    ExportError,
                    "the new value of the parameter linear.weight is lost: torch.export does not follow a module that gives its "
                    "parameter another tensor",
                ):
                    to_onnx(Halves(), (X,), mutated_buffers="outputs", export_options=options)

    def test_buffers_that_are_not_followed(self):
        cases = [(Registers, "new", None)]
        cases += [(FillsOptional, "second", options) for options in self.OPTIONS]
        cases += [(PutsIntoTheDict, "last", None)]
        cases += [(FillsOptional, "second", self.STRICT)]
        cases += [(kind, "last", self.STRICT) for kind in (PutsIntoTheDict, Optional)]
        for kind, name, options in cases:
            with self.subTest(kind.__name__, options=options):
                model = self.assert_told(kind, name, options)
                self.assertEqual([*kind()._buffers], [*model._buffers])
                self.assertIsNone(model._buffers.get("second"))
                with self.assertRaisesRegex(
                    ExportError,
                    f"the new value of the buffer {name} is lost: torch.export does not follow a module that gives its buffer another tensor",
                ):
                    to_onnx(kind(), (X,), mutated_buffers="outputs", export_options=options)

    def test_a_buffer_that_is_written_in_place_is_not_lost(self):
        writes = {
            "x += y": operator.iadd,
            "add_": lambda count, x: count.mul_(0.5).add_(x),
            "out": lambda count, x: torch.add(count, x, out=count),
            "a view": lambda count, x: count.add_(x).view(-1).detach(),
            "what is not converted": lambda count, x: count.add_(x).to(x.dtype).contiguous(),
        }
        for (promise, write), options in itertools.product(writes.items(), (None, self.STRICT)):
            with self.subTest(promise, options=options):
                model = to_onnx(InPlace(write), (X,), mutated_buffers="outputs", export_options=options)
                eager, count = InPlace(write), torch.ones(3)
                for turn in range(3):
                    result, count = run(session(model), [X + turn, count])
                    torch.testing.assert_close(result, eager(X + turn))

    def test_a_parameter_and_a_buffer_that_are_dropped(self):
        for options in (None, self.STRICT):
            with self.subTest(options=options):
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    to_onnx(Drops(), (X,), export_options=options)
                names = "(first, linear.bias|linear.bias, first)"
                self.assertRegex(logs.output[0], f"the model writes {names}: the new values are not part")

    def test_a_table(self):
        """The next call would make the same one."""

        class HasATable(torch.nn.Module):
            def forward(self, x):
                if not hasattr(self, "table"):
                    self.register_buffer("table", torch.arange(x.shape[1]).float())
                return x + self.table

        for options in (*self.OPTIONS, self.STRICT):
            with self.subTest(options=options), self.assertNoLogs("experimental_experiment", "WARNING"):
                to_onnx(HasATable(), (X,), mutated_buffers="outputs", export_options=options)

    def test_a_buffer_behind_others_that_are_none(self):
        for options in self.OPTIONS:
            with self.subTest(options=options):
                model = self.assert_told(Optional, "last", options)
                self.assertEqual([*Optional()._buffers], [*model._buffers])
                written = to_onnx(Optional(), (X,), mutated_buffers="outputs", export_options=options)
                self.assertEqual(["output", "last_out"], [value.name for value in written.graph.output])
                result, last = run(session(written), [X, torch.ones(3)])
                torch.testing.assert_close(result, X + 1)
                torch.testing.assert_close(last, X.sum(0))


def kind_like(model):
    """A module of the same weights, which no capture has seen."""
    other = type(model)()
    other.load_state_dict(model.state_dict())
    return other


class TestOneCapture(ExporterTestCase):
    """A capture for several uses of a model."""

    def test_a_refusal_is_one_each_time(self):
        """The sizes that its message proposes are those of another program."""
        once = CapturedOnce(ExportOptions())
        for _ in range(2):
            with self.assertRaisesRegex(CaptureError, "Constraints violated(?s:.*)\n  try    dynamic_shapes"):
                to_onnx(
                    lambda x: x + torch.ones(3),
                    (torch.ones(2, 3),),
                    dynamic_shapes=({1: Dim("width")},),
                    export_options=once,
                )
            self.assertIsNone(once.program)


if __name__ == "__main__":
    unittest.main()
