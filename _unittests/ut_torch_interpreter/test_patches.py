"""What gets refused models through torch.export: applied, undone, named, listed."""

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import threading
import unittest

import numpy
import torch
from torch.export import Dim

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.frames import ASKING
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors, patches
from experimental_experiment.torch_interpreter.patches import patch as room

T = torch.tensor
DYNAMIC = {"dynamic_shapes": ({0: "batch", 1: "steps"},)}


@dataclasses.dataclass
class Pair:
    """A class that torch does not know."""

    left: torch.Tensor
    right: torch.Tensor
    scale: float = 1.0


@dataclasses.dataclass
class Nest:
    """A class of classes."""

    pairs: list[Pair]


class Layer(torch.nn.Module):
    """A model that torch.export keeps at the length of the example."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.GRU(3, 4, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0] * 2


def resolved(name):
    """The state of something with a dotted name: what identifies it, or its kernels, or its entries; None for models that are newer."""
    parts = name.split(".")
    if parts[:2] == ["transformers", "models"] and importlib.util.find_spec(".".join(parts[:3])) is None:
        return None
    for count in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            found = importlib.import_module(".".join(parts[:count]))
            found = functools.reduce(getattr, parts[count:], found)
            break
    if isinstance(found, torch._ops.OpOverload):
        return dict(found.py_kernels)
    if isinstance(found, torch._ops.HigherOrderOperator):
        return dict(found.python_key_table)
    return dict(found) if isinstance(found, dict) else found


def state(patches_=None):
    """What the patches replace, as it stands."""
    found = {}
    for item in patches_ if patches_ is not None else room.PATCHES.values():
        if not item.reason_to_skip():
            found.update({name: resolved(name) for name in item.replaces if "." in name})
    return {name: what for name, what in found.items() if what is not None}


class TestContext(unittest.TestCase):
    """Applied while a context lasts, undone afterwards."""

    @classmethod
    def setUpClass(cls):
        # torch registers classes, and short cuts for dynamic sizes, of its own when it first exports
        torch.export.export(Layer(), (torch.ones(2, 3, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
        state()  # and transformers the outputs of a model whose module is imported

    def setUp(self):
        self.before = state()

    def tearDown(self):
        self.assertEqual(state(), self.before)
        self.assertEqual([item.users for item in room.PATCHES.values()], [0] * len(room.PATCHES))

    def test_everything_that_a_patch_names_is_replaced(self):
        for item in patches():
            if item.reason_to_skip() or item.name in ("dataclass_inputs", "numpy_inputs"):
                continue
            with self.subTest(item.name), room.applied([item]):
                for name, inside in state([item]).items():
                    self.assertNotEqual(inside, self.before[name], name)

    def test_what_asks_symbols_is_no_line_of_the_model(self):
        """Otherwise branches of the model are taken for those of a library, and nothing warns of them."""
        for item in patches():
            if any(name.endswith("__bool__") for name in item.replaces):
                with self.subTest(item.name):
                    self.assertIn(item.apply.__wrapped__.__code__.co_filename, ASKING)

    def test_what_torch_remembers_of_its_functions(self):
        """A device knows the functions that create tensors; it looks for them once, which may be during a capture."""
        constructors = importlib.import_module("torch.utils._device")._device_constructors
        for cached in (constructors, room.know_functions):
            cached.cache_clear()

        def forward(x):
            with torch.device("cpu"):
                return x + torch.linspace(0, 1, 3) + torch.rand(3)

        to_onnx(forward, (torch.ones(3),))
        with torch.device("meta"):
            created = [torch.rand(3), torch.randn(3), torch.linspace(0, 1, 3), torch.hann_window(3)]
        self.assertEqual([True] * 4, [tensor.is_meta for tensor in created])

    def test_undone_after_an_exception(self):
        for error in (ValueError, KeyboardInterrupt, SystemExit):
            with self.assertRaises(error), bypass_export_some_errors(patch_transformers=True):
                self.assertNotEqual(state(), self.before)
                raise error

    def test_undone_when_a_patch_cannot_be_applied(self):
        @contextlib.contextmanager
        def fails():
            raise RuntimeError("torch changed")
            yield

        broken = room.Patch("broken", "it breaks", "torch", (), "", "", True, False, fails)
        with self.assertRaisesRegex(RuntimeError, "torch changed"):
            with room.applied([*room.selected(True, ["torch"]), broken]):
                self.fail("it is applied")

    def test_the_inner_context_leaves_the_outer_one(self):
        with bypass_export_some_errors():
            inside = state()
            with bypass_export_some_errors(patch_transformers=True):
                pass
            self.assertEqual(state(), inside)

    def test_contexts_of_threads_overlap(self):
        entered, left = threading.Event(), threading.Event()

        def first():
            with bypass_export_some_errors():
                entered.set()
                left.wait(10)

        thread = threading.Thread(target=first)
        with bypass_export_some_errors():
            thread.start()
            entered.wait(10)
        self.assertNotEqual(state(), self.before, "the other thread still wants them")
        left.set()
        thread.join()

    def test_a_refused_export_undoes_them(self):
        with self.assertRaises(CaptureError):
            to_onnx(lambda x: x if x.sum() > 0 else -x, (torch.ones(3),))

    def test_registered_classes_are_forgotten(self):
        with bypass_export_some_errors() as modificator:
            modificator((Nest([Pair(torch.ones(2), torch.ones(2))]),))
            self.assertIn(Pair, torch.utils._pytree.SUPPORTED_NODES)
        self.assertNotIn(Pair, torch.utils._pytree.SUPPORTED_NODES)


class TestModificator(ExporterTestCase):
    """``inputs = modificator(inputs)``."""

    def test_a_dataclass_is_an_input(self):
        def forward(pair, more):
            return pair.left * pair.scale + pair.right * more[0].pairs[0].left

        inputs = (
            Pair(torch.ones(2), torch.arange(2.0), 3.0),
            [Nest([Pair(torch.ones(2) * 5, torch.ones(2))])],
        )
        with bypass_export_some_errors() as modificator:
            program = torch.export.export(Call(forward), modificator(inputs))
            torch.testing.assert_close(program.module()(*inputs), forward(*inputs))
        with self.assertRaisesRegex(Exception, "Pair"):
            torch.export.export(Call(forward), inputs)

    def test_to_onnx_takes_a_dataclass(self):
        def forward(pair):
            return pair.left * pair.scale + pair.right

        pair = Pair(torch.ones(2), torch.arange(2.0), 3.0)
        model = to_onnx(Call(forward), (pair,))
        self.assertEqual([value.name for value in model.graph.input], ["pair_left", "pair_right"])
        (got,) = run(session(model), [T([1.0, 5.0]), T([2.0, 0.0])])
        torch.testing.assert_close(got, T([5.0, 15.0]))
        with self.assertRaisesRegex(CaptureError, "register it with torch.export.register_dataclass"):
            to_onnx(Call(forward), (pair,), export_options=ExportOptions(patches=False))

    def test_what_torch_takes_is_left(self):
        size = torch.Size([2])
        inputs = {"x": torch.ones(2), "n": 3, "many": [None, (1.5, "a")], "size": size}
        with bypass_export_some_errors() as modificator:
            got = modificator(inputs)
        self.assertEqual(list(got), list(inputs))
        self.assertIs(got["x"], inputs["x"])
        self.assertEqual(got["many"], inputs["many"])
        self.assertIs(got["size"], size)

    def test_numpy_becomes_torch(self):
        with bypass_export_some_errors() as modificator:
            x, n, flag = modificator([numpy.ones((2, 3), numpy.float32), numpy.int64(3), numpy.bool_(True)])
        self.assertEqual((x.dtype, tuple(x.shape)), (torch.float32, (2, 3)))
        self.assertEqual((type(n), n, type(flag), flag), (int, 3, bool, True))
        with bypass_export_some_errors(patch_torch=False) as modificator:
            self.assertIsInstance(modificator(numpy.int64(3)), numpy.int64)


class Call(torch.nn.Module):
    """A module of a function, with the names of its parameters."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


class TestOptions(ExporterTestCase):
    """What is asked for by name."""

    def names(self, *given):
        return {item.name for item in room.selected(*given)}

    def test_selected(self):
        default = {item.name for item in patches() if item.default}
        self.assertIn("recurrent_layers", default)
        self.assertNotIn("numpy_inputs", default)
        self.assertEqual(self.names(None), default)
        self.assertEqual(self.names(False), set())
        by_name = {item.name for item in patches() if item.by_name}
        self.assertIn("shortcuts", by_name)
        self.assertEqual(self.names(True), set(room.PATCHES) - by_name)
        self.assertEqual(self.names(["shortcuts"]), {*default, "shortcuts"})
        self.assertEqual(self.names(["numpy_inputs"]), {*default, "numpy_inputs"})
        self.assertLessEqual(self.names(True, ["torch"]), self.names(True))

    def test_names_that_are_wrong(self):
        with self.assertRaisesRegex(
            ValueError,
            "there is no patch 'numpy_input' of torch, torchvision, transformers: did you mean 'numpy_inputs'",
        ):
            ExportOptions(patches=["numpy_input"])
        with self.assertRaisesRegex(
            ValueError,
            "there is no patch 'zzz' of torch, torchvision, transformers: there are .*numpy_inputs, ",
        ):
            ExportOptions(patches=["zzz"])
        with self.assertRaisesRegex(ValueError, "there is no patch 'numpy_inputs' of transformers: "):
            with bypass_export_some_errors(patch_transformers=["numpy_inputs"]):
                pass
        with self.assertRaisesRegex(
            TypeError, "patches is True, False, None or a collection of names, not 'numpy_inputs'"
        ):
            ExportOptions(patches="numpy_inputs")

    def test_a_patch_that_is_wrong(self):
        def two():
            """A problem."""
            yield

        two.__name__ = "numpy_inputs"
        with self.assertRaisesRegex(ValueError, "there are two patches 'numpy_inputs'"):
            room.patch("torch", ())(two)
        with self.assertRaisesRegex(
            ValueError, "the patches are those of torch, torchvision, transformers, not of 'jax'"
        ):
            room.patch("jax", ())

        def silent():
            yield

        with self.assertRaisesRegex(ValueError, "the docstring of silent says which problem it removes"):
            room.patch("torch", ())(silent)

    def test_wrapped(self):
        import_later = {
            "no_such_package.module.function": str,
            "importlib.resources.abc.Traversable.open": str,
        }
        before = importlib.import_module, Pair.__eq__
        paths = {"importlib.import_module": str, f"{__name__}.Pair.__eq__": repr, **import_later}
        with room.wrapped(paths):
            self.assertEqual((importlib.import_module, Pair.__eq__), (str(before[0]), repr(before[1])))
        self.assertEqual((importlib.import_module, Pair.__eq__), before)
        with (
            self.assertRaisesRegex(AttributeError, "no_such_name"),
            room.wrapped({"importlib.no_such_name": str}),
        ):
            self.fail()

    def test_versions(self):
        def at(since="", until=""):
            return room.Patch("p", "it fails", "torch", (), since, until, True, False, None)

        self.assertEqual(at().reason_to_skip(), "")
        self.assertEqual(at("2.0", "99.1").versions, "torch >= 2.0, < 99.1")
        self.assertEqual(at("2.0", "99.1").reason_to_skip(), "")
        self.assertRegex(at("99").reason_to_skip(), "torch .* is older than 99")
        self.assertRegex(at(until="2.0.1").reason_to_skip(), "torch .* does not need it")
        self.assertLess(room.numbers("2.9"), room.numbers("2.13.0+cpu"))
        self.assertEqual(room.numbers("2.13"), room.numbers("2.13.0a1"))

    def test_a_patch_that_is_not_needed_says_so(self):
        old = room.Patch("old", "it failed", "torch", (), "", "1.0", True, False, None)
        with self.assertLogs("experimental_experiment", logging.DEBUG) as logs, room.applied([old]):
            pass
        self.assertRegex(logs.output[0], "DEBUG.*patch old is skipped: torch .* does not need it")

    def test_the_patches_that_were_used_are_logged(self):
        x = torch.randn(2, 3, 3)
        with self.assertLogs("experimental_experiment", logging.INFO) as logs:
            to_onnx(Layer(), (x,), **DYNAMIC)
        told = [line for line in logs.output if "patch" in line]
        self.assertEqual(len(told), 1)
        self.assertIn("patch recurrent_layers was used: nn.LSTM", told[0])
        with self.assertLogs("experimental_experiment", logging.INFO) as logs:
            to_onnx(Layer(), (x,))
        self.assertNotIn("patch", "".join(logs.output))

    def test_without_any(self):
        with self.assertRaisesRegex(CaptureError, "specialized"):
            to_onnx(Layer(), (torch.randn(2, 3, 3),), export_options=ExportOptions(patches=False), **DYNAMIC)

    def test_the_table(self):
        lines = str(patches()).splitlines()
        self.assertEqual(len(lines), len(room.PATCHES) + 2)
        self.assertTrue(any(line.startswith("| numpy_inputs | Numpy's arrays") for line in lines))


class TestTutorial(ExporterTestCase):
    """As the documents call it."""

    def test_without_inputs(self):
        x = torch.randn(2, 5, 3)
        with bypass_export_some_errors():
            program = torch.export.export(Layer(), (x,), dynamic_shapes=({0: Dim("batch"), 1: Dim("steps")},))
            model = to_onnx(program)
        layer = program.module(check_guards=False)
        for shape in ((3, 9, 3), (2, 2, 3)):
            self.assert_matches(model, layer, (torch.randn(shape),))

    def test_with_inputs(self):
        inputs = {"x": torch.randn(2, 5, 3)}
        with bypass_export_some_errors(patch_transformers=True) as modificator:
            inputs = modificator(inputs)
            model = to_onnx(Layer().eval(), (), inputs, dynamic_shapes={"x": {0: "batch"}})
        self.assertEqual([value.name for value in model.graph.input], ["x"])

    def test_under_no_grad(self):
        with torch.no_grad(), bypass_export_some_errors(patch_torch=True):
            to_onnx(Layer(), (torch.randn(2, 5, 3),), **DYNAMIC)


if __name__ == "__main__":
    unittest.main()
