"""Translations that users give: where one is wrong, the error says whose it is. Errors that travel between processes."""

import copy
import functools
import pickle
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import (
    CaptureError,
    ExportError,
    registry,
    to_onnx,
    translates,
)
from experimental_experiment.torch_interpreter.errors import ShapeContradiction

aten = torch.ops.aten
X = torch.rand(2, 3)


@torch.library.custom_op("wrong_lib::registered", mutates_args=())
def registered(x: torch.Tensor) -> torch.Tensor:
    """An operator whose registered translation fails."""
    return x.clone()


@registered.register_fake
def _(x):
    return torch.empty_like(x)


def divided(op, self):
    return 1 / 0


class Branches(torch.nn.Module):
    """The sine in a branch."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class TestWrongTranslations(ExporterTestCase):
    def error(self, function, *args, **options):
        with self.assertRaises(ExportError) as caught:
            to_onnx(function, args, **options)
        return caught.exception

    def test_the_function_of_the_user_is_named(self):
        sine = aten.sin.default
        cases = {
            "cannot be translated: it gives None": (sine, lambda op, self: None),
            "cannot be translated: it gives 2 results, torch one": (sine, lambda op, self: (self, self)),
            "cannot be translated: it gives 1 results, torch 2": (
                aten.topk.default,
                lambda op, self, k: self,
            ),
            "was translated to FLOAT.6., torch says": (sine, lambda op, self: op.Reshape(self, [-1])),
            "failed with ValidationError": (sine, lambda op, self: op.Add(self, op.Cast(self, to=7))),
            "ONNX Addd does not exist": (sine, lambda op, self: op.Addd(self)),
            "failed with ZeroDivisionError": (sine, divided),
        }
        for message, (target, function) in cases.items():
            for model in (lambda x: x.sin().topk(1)[0], Branches()):
                with self.subTest(message, model=model):
                    if isinstance(model, Branches) and target is not sine:
                        continue
                    error = str(self.error(model, X, translations={target: function}))
                    self.assertRegex(error, message)
                    self.assertRegex(
                        error, r"hint   this translation is yours: .*, .*test_wrong_translations\.py:\d+$"
                    )

    def test_an_operator_that_writes(self):
        """The function of `sin` is that of `sin_`."""
        error = self.error(lambda x: (x + 1).sin_(), X, translations={aten.sin.default: divided})
        self.assertRegex(str(error), "this translation is yours: divided, ")

    def test_a_function_without_a_place(self):
        class Divided:
            def __call__(this, op, self):
                return 1 / 0

        error = self.error(torch.sin, X, translations={aten.sin.default: Divided()})
        self.assertRegex(str(error), "hint   this translation is yours: Divided$")
        partial = functools.partial(lambda op, self, by: by / 0, by=1)
        with self.assertRaisesRegex(TypeError, r"partial: aten\.sin\.default has no argument \['by'\]"):
            to_onnx(torch.sin, (X,), translations={aten.sin.default: partial})

    def test_one_that_is_registered(self):
        translates("wrong_lib::registered")(lambda op, x: 1 / 0)
        self.addCleanup(registry.TRANSLATIONS.pop, "wrong_lib::registered")
        error = self.error(lambda x: registered(x), X)
        self.assertRegex(str(error), "this translation is yours: .*lambda.*, .*test_wrong_translations.py")

    def test_ours(self):
        def broken(op, self):
            return 1 / 0

        broken.__module__ = "experimental_experiment.torch_interpreter.aten.trigonometric"
        for wrong in (broken, None):
            if wrong is None:
                wrong = functools.wraps(broken)(lambda op, self: op.Reshape(self, [-1]))
            error = self.error(torch.sin, X, translations={aten.sin.default: wrong})
            self.assertRegex(str(error), "hint   this is a bug of the exporter: please report it$")

    def test_integers_times_floats(self):
        """Eager refuses them, fake tensors do not."""
        integers = torch.ones(2, 3, dtype=torch.int64)
        for model in (
            torch.nn.Linear(3, 4),
            lambda x: x @ torch.ones(3, 2),
            lambda x: x.mm(torch.ones(3, 2)),
        ):
            error = self.error(model, integers)
            self.assertRegex(str(error), "takes one dtype, not int64 and float32\n")
            self.assertRegex(str(error), r"hint   give the example the dtype of the weights: x\.to\(torch\.float32\)")  # fmt: skip

    def test_a_default_dtype_of_the_capture(self):
        def model(make):
            def forward(x):
                torch.set_default_dtype(torch.float64)
                try:
                    return x + make()
                finally:
                    torch.set_default_dtype(torch.float32)

            return forward

        for make, name in (
            (lambda: torch.ones(3), "aten.ones.default"),
            (lambda: torch.full((3,), 1.0), "aten.full.default"),
            (lambda: torch.arange(3) / 2, "aten.div.Tensor"),
        ):
            with self.subTest(name):
                error = self.error(model(make), X)
                self.assertRegex(
                    str(error),
                    f"^{name} gives torch.float64, torch's default dtype when it was captured: it is torch.float32 now\n",
                )
                self.assertRegex(
                    str(error),
                    r"hint   give it dtype=torch.float64, or x\.to\(torch.float64\), in the place of torch.set_default_dtype in forward",
                )

    def test_what_is_no_table(self):
        with self.assertRaisesRegex(TypeError, "translations is a dict, {operator: function}, not list"):
            to_onnx(torch.sin, (X,), translations=[1])
        with self.assertRaisesRegex(ValueError, "'a' names no operator: .*, or its name, as in 'mylib::a'$"):
            to_onnx(torch.sin, (X,), translations={"a": divided})


class TestErrorsThatTravel(ExporterTestCase):
    """As from a worker of a pool; copies have no node, which holds the graph."""

    def test_copies(self):
        def captured(x):
            return x if x.sum() > 0 else -x

        cases = {
            ExportError: (lambda x: registered(x), {}),
            ShapeContradiction: (torch.sin, {"translations": {aten.sin.default: lambda op, self: op.Reshape(self, [-1])}}),
            CaptureError: (captured, {}),
        }  # fmt: skip
        for kind, (function, options) in cases.items():
            with self.subTest(kind.__name__), self.assertRaises(kind) as caught:
                to_onnx(function, (X,), **options)
            error = caught.exception
            for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
                self.assertIs(kind, type(copied))
                self.assertEqual(
                    (str(error), error.source, error.module_path),
                    (str(copied), copied.source, copied.module_path),
                )
                self.assertEqual((None, None), (copied.node, copied.target))


if __name__ == "__main__":
    unittest.main()
