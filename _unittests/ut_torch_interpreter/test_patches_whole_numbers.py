"""``int`` of a size and ``len`` of a tensor in the functions of a model, and other ways to make whole numbers and scalars of sizes."""

import functools
import importlib
import linecache
import math
import numbers
import sys
import textwrap
import types
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.torch_interpreter.patches.whole_numbers import (
    NAMES,
    is_instance,
    length,
    with_symbols,
)

X = torch.randn(1, 2, 6, 4)
SIZES = ((1, 2, 7, 5), (1, 2, 2, 3), (1, 2, 9, 11))


def scaled(size, factor):
    return int(size * factor)


def doubled(function):
    @functools.wraps(function)
    def called(*args):
        return 2 * function(*args)

    return called


class Resized(torch.nn.Module):
    def forward(self, x):
        size = int(x.shape[2] * 1.5), scaled(x.shape[3], 0.75)
        return torch.nn.functional.interpolate(x, size=size, mode="nearest")


class Negative(torch.nn.Module):
    """``int`` cuts off, towards zero."""

    def forward(self, x):
        rows = x.shape[2]
        below = int(1 - rows * 0.75)
        return (
            x + below,
            x * int(rows / -4),
            x[..., : int(rows / 2), :],
            x.new_zeros(int(2.9) + int("1") + 0),
        )


class Kinds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = 3

    @staticmethod
    def half(size):
        return int(size / 2)

    @classmethod
    def third(cls, size):
        return (lambda number: int(number / 3))(size)

    @property
    def most(self):
        return int(self.rows * 2.5)

    @doubled
    def quarter(self, size: int) -> int:
        return int(size / 4)

    def forward(self, x):
        rows = x.shape[2]
        sizes = self.half(rows) + 1, self.third(rows) + 1, self.quarter(rows) + 1, self.most
        return tuple(torch.zeros(size) for size in sizes)


class Rounded(torch.nn.Module):
    """What gives symbols by itself: ``round`` goes to the even number of two."""

    def forward(self, x):
        rows = x.shape[2]
        return (
            torch.zeros(math.floor(rows * 1.5), math.ceil(rows * 0.3), round(rows * 0.5) + 1),
            x + round(rows * -0.5),
            x * math.floor(rows * -0.3) + math.ceil(rows * -0.3) + math.trunc(rows * -0.7),
            x * (rows / 4) + rows**0.5,
        )


class Attention(torch.nn.Module):
    """The batch by ``len``, beside lists and shapes, whose length is a number."""

    def forward(self, x):
        batch, parts = len(x), [x, x + 1]
        heads = x.reshape(batch * 2, len(parts), -1)
        return heads.sum(1).reshape(len(x), -1) / len(x), torch.zeros(len(x[0, 0]), len(x.shape))


class Cropped(torch.nn.Module):
    """Sizes in a tensor, as images before padding have them: ``int`` cuts off, towards zero."""

    def forward(self, x, size):
        sizes = (size * 1.5).to(torch.int64)
        return x[..., : int(sizes[0]), : int(sizes[1])] + int(size[0]), x * int(-size[1] / 4)


class Looped(torch.nn.Module):
    def forward(self, x):
        for _ in range(int(x.shape[2] * 0.5)):
            x = x * 2
        return x


class Function(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def scaled_by_height(x):
    return x * int(x.shape[2] * 1.5)


def is_an_int(x):
    size = int(x.shape[2] * 1.5)
    return x + size if isinstance(size, int) and type(size) is int else x - size


def as_a_dtype(x):
    return torch.full((2,), int(x.shape[2] * 1.5), dtype=int)


def as_a_key(x):
    return x + {int: 1, float: 2}[type(int(x.shape[2] * 1.5))]


def passed_on(x):
    return x + max((x.shape[2] * 1.5, 2.5), key=int)


def assigned(x):
    global int
    if x is None:
        int = float
    return x + int(x.shape[2] * 1.5)


def noted(x):
    def half(size: int):
        return int(size * 0.5)

    return x + half(x.shape[2])


def a_variable(x):
    size = x.shape[2]

    def add(int=int):
        return int(size * 1.5)

    return x + add()


def running_halves(x):
    """The half of a size, and the half of that when it is asked again."""
    half = int(x.shape[2] / 2)
    yield half
    yield int(half / 2)


KEPT = (is_an_int, as_a_dtype, as_a_key, passed_on, assigned, noted, a_variable)
RESIZED = Resized.forward.__code__
NAMED = (lambda x: x.float() + x.float(True)).__code__


class TestWholeNumbers(ExporterTestCase):
    def test_any_size(self):
        for model in (Resized(), Negative(), Kinds(), Rounded()):
            for strict in (False, True):
                with (
                    self.subTest(type(model).__name__, strict=strict),
                    self.assertNoLogs("experimental_experiment", "WARNING"),
                ):
                    self.export_and_compare(
                        model,
                        (X,),
                        others=[(torch.randn(*size),) for size in SIZES],
                        dynamic_shapes=({2: "height", 3: "width"},),
                        export_options=ExportOptions(strict=strict),
                    )

    def test_the_size_of_the_example_without_the_patch(self):
        options = ExportOptions(patches=False)
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            written = to_onnx(Resized(), (X,), dynamic_shapes=({2: "height"},), export_options=options)
        self.assertIn("math.trunc(1.5*height) == 9", "".join(logs.output))
        with self.assertRaises(AssertionError):
            self.assert_matches(written, Resized(), (torch.randn(1, 2, 7, 4),))

    def test_a_loop_over_a_whole_number(self):
        """Python takes the turns of the example: it is told."""
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Looped(), (X,), dynamic_shapes=({2: "height"},))
        self.assertRegex("".join(logs.output), r"math\.trunc\(0\.5\*height\) == 3\n.*\n.*in range\(int")

    def test_int_that_is_a_type_or_another_thing_stays(self):
        for function in KEPT:
            with self.subTest(function.__name__):
                code, model = function.__code__, Function(function)
                self.assertIs(code, with_symbols(code, code.co_filename, "int"))
                written = to_onnx(model, (X,))
                self.assert_matches(written, model, (X,))
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    to_onnx(model, (X,), dynamic_shapes=({2: "height"},))
                self.assertIn("height", "".join(logs.output))

    def test_all_is_put_back(self):
        """Also when torch.export is called by the user, and by another one inside of it."""
        with bypass_export_some_errors(patch_torch=True):
            self.assertIs(RESIZED, Resized.forward.__code__)
            for _ in range(2):
                program = torch.export.export(
                    Resized(), (X,), dynamic_shapes=({2: torch.export.Dim.DYNAMIC},)
                )
                self.assertIs(RESIZED, Resized.forward.__code__)
                self.assertEqual((1, 2, 10, 3), program.module()(torch.randn(1, 2, 7, 4)).shape)
        self.assertIs(RESIZED, Resized.forward.__code__)

    def test_a_function_that_runs_meanwhile(self):
        """As one of another thread does: it began with the code of the patch, which is undone before it ends."""
        running = []

        class Meanwhile(torch.nn.Module):
            def forward(self, x):
                running.append(running_halves(X.new_zeros(1, 1, 7, 1)))
                running.append(next(running[0]))
                return x * next(running_halves(x))

        to_onnx(Meanwhile(), (X,))
        self.assertEqual((3, 1), (running[1], next(running[0])))

    def module_of(self, name, source):
        """A module of Python whose source is given."""
        module, source = types.ModuleType(name), textwrap.dedent(source)
        file = f"<{name}>"
        linecache.cache[file] = len(source), None, source.splitlines(True), file
        self.addCleanup(linecache.cache.pop, file, None)
        sys.modules[name] = module
        self.addCleanup(sys.modules.pop, name, None)
        exec(compile(source, file, "exec"), vars(module))
        return module

    def test_a_module_that_has_its_own_int(self):
        """The name is looked up where the function is, not among Python's."""
        module = self.module_of(
            "of_another_int",
            """
            import torch

            def int(number):
                return number + 1000

            class Model(torch.nn.Module):
                def forward(self, x):
                    return x + int(x.shape[2])
            """,
        )
        model = module.Model()
        self.export_and_compare(
            model, (X,), others=[(torch.randn(1, 2, 9, 4),)], dynamic_shapes=({2: "height"},)
        )

    def test_what_stands_for_a_package_that_is_not_installed(self):
        """Nothing is asked of it: it raises its own error for any attribute."""
        model = self.module_of(
            "of_optional_packages",
            """
            import functools
            import torch

            class Missing:
                def __getattr__(self, name):
                    raise ImportError("this package is not installed")

                def __call__(self, *args):
                    raise ImportError("this package is not installed")

            missing = Missing()

            class Late(type(torch)):
                def __getattr__(self, name):
                    raise ImportError("this module is not imported before it is used")

            late = Late("late")

            @functools.lru_cache
            def cut(number):
                return int(number)

            class Model(torch.nn.Module):
                optional = missing

                def forward(self, x):
                    return torch.nn.functional.interpolate(x, size=(cut.__wrapped__(x.shape[2] * 1.5), 3))
            """,
        ).Model()
        self.export_and_compare(
            model, (X,), others=[(torch.randn(1, 2, 9, 4),)], dynamic_shapes=({2: "height"},)
        )

    def test_a_function_of_another_module(self):
        """One that the file of the model imports, and reads a function of, or from."""
        self.module_of(
            "of_sizes",
            """
            def scaled(size, factor):
                return _cut(size * factor)

            def _cut(number):
                return int(number)
            """,
        )
        source = """
            import torch
            {imported}

            class Model(torch.nn.Module):
                def forward(self, x):
                    return torch.nn.functional.interpolate(x, size=({name}(x.shape[2], 1.5), 3))
            """
        for imported, name in (
            ("import of_sizes", "of_sizes.scaled"),
            ("from of_sizes import scaled", "scaled"),
        ):
            with self.subTest(imported):
                model = self.module_of("of_models", source.format(imported=imported, name=name)).Model()
                self.export_and_compare(
                    model,
                    (X,),
                    others=[(torch.randn(*size),) for size in SIZES],
                    dynamic_shapes=({2: "height", 3: "width"},),
                )

    def test_a_function_that_a_function_of_another_module_calls(self):
        """It is found by its name, through packages, classes and variables of outer functions."""
        self.module_of(
            "of_centers",
            """
            def center(size):
                return float(size - 1) / 2

            class Halves:
                def __init__(self, size):
                    self.size = size

                def of_all(self):
                    return self._of(self.size)

                @staticmethod
                def _of(size):
                    return int(size * 0.5)
            """,
        )
        self.module_of(
            "of_transforms",
            """
            import of_centers
            from of_centers import Halves

            def centered(x):
                return x - of_centers.center(x.shape[2]) + Halves(x.shape[3]).of_all()
            """,
        )
        package = self.module_of("of_package", "import of_transforms as transforms")
        package.package = package
        source = """
            import torch
            import of_package

            def built(function):
                def called(x):
                    return function(x) * 2
                return called

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.called = built(lambda x: of_package.package.transforms.centered(x))

                def forward(self, x):
                    return self.called(x)
            """
        self.export_and_compare(
            self.module_of("of_nested_models", source).Model(),
            (X,),
            others=[(torch.randn(*size),) for size in SIZES],
            dynamic_shapes=({2: "height", 3: "width"},),
        )

    def test_a_function_that_is_the_model(self):
        """It is captured under the name ``forward``, by a copy."""
        for function in (scaled_by_height, lambda x: x * int(x.shape[3] * 0.5)):
            self.export_and_compare(
                function,
                (X,),
                others=[(torch.randn(*size),) for size in SIZES],
                dynamic_shapes=({2: "height", 3: "width"},),
            )

    def test_float_of_a_size(self):
        """And of an element of a tensor, while other values are what they are for Python."""

        class Model(torch.nn.Module):
            def forward(self, x, n):
                return (
                    x * float(n) + torch.tensor([float(x.shape[2] - 1) / 2, float("2.5"), float(True)]).sum()
                )

        self.export_and_compare(
            Model(),
            (X, torch.tensor(3)),
            others=[(torch.randn(*size), torch.tensor(n)) for n, size in enumerate(SIZES)],
            dynamic_shapes=({2: "height", 3: "width"}, None),
        )

    def test_a_method_of_that_name(self):
        """Whatever the number of names in the function, while an attribute, which is found by the same name, stays."""

        class Model(torch.nn.Module):
            def forward(self, x):
                rows = [float(part.shape[2]) for part in (x, x)]
                return x.float() * float(x.shape[2] - 1) / 2 + x.int() * int(x.shape[3] * 0.5) + sum(rows)

        self.assertIs(NAMED, with_symbols(NAMED, NAMED.co_filename, "float"))
        for count in (0, 100, 200, 40000):
            model = Model() if not count else Function(self.of_many_names(count).half_of_height)
            with self.subTest(count):
                self.export_and_compare(
                    model,
                    (X,),
                    others=[(torch.randn(*size),) for size in SIZES],
                    dynamic_shapes=({2: "height", 3: "width"},),
                )

    def of_many_names(self, count):
        """A module of a function that names as many attributes before it asks for half of a height."""
        names = "\n".join(f"                    x.attribute_{number}" for number in range(count))
        return self.module_of(
            f"of_{count}_names",
            f"""
            def half_of_height(x):
                if x is None:
{names}
                return x.int() + int(x.shape[2] / 2) * x.shape[3]
            """,
        )

    def test_a_class_of_a_file_that_is_not_imported(self):
        """As one that is read and executed: no module of Python has its name."""
        module = self.module_of(
            "that_is_forgotten",
            """
            import torch

            class Model(torch.nn.Module):
                def forward(self, x):
                    return x * int(x.shape[2] * 1.5)
            """,
        )
        del sys.modules[module.__name__]
        self.export_and_compare(
            module.Model(), (X,), others=[(torch.randn(1, 2, 9, 4),)], dynamic_shapes=({2: "height"},)
        )

    def test_int_of_a_condition(self):
        """1 where it holds, also one on the data."""

        class Model(torch.nn.Module):
            def forward(self, x):
                positive = (x[0, 0, 0, 0] > 0).item()
                return (
                    x * int(x.shape[2] > 6) + float(x.shape[3] > 3) + int(x.shape[2] > 4) * 3 + int(positive)
                )

        self.export_and_compare(
            Model(),
            (X,),
            others=[(sign * torch.rand(*size),) for size in SIZES for sign in (1, -1)],
            dynamic_shapes=({2: "height", 3: "width"},),
        )

    def test_a_size_is_an_instance_of_int(self):
        class Asking(torch.nn.Module):
            def forward(self, x):
                size = x.shape[2]
                answers = (
                    isinstance(size, int),
                    isinstance(size, (list, int)),
                    isinstance(size / 2, float),
                    isinstance(size / 2, numbers.Real),
                    isinstance(size > 2, bool),
                    isinstance(size, float),
                    isinstance(size, torch.Tensor),
                    isinstance(2, int),
                    isinstance(x, torch.Tensor),
                )
                return (
                    x * torch.tensor([float(2**place * answer) for place, answer in enumerate(answers)]).sum()
                )

        self.export_and_compare(
            Asking(),
            (X,),
            others=[(torch.randn(*size),) for size in SIZES],
            dynamic_shapes=({2: "height", 3: "width"},),
        )

    def test_type_of_a_size(self):
        """Of a module and of a parameter too."""

        class Asking(torch.nn.Module):
            def forward(self, x):
                sizes = x.shape[2] if type(x.shape[2]) is int else 0
                parts = x.shape[2] / 4 if type(x.shape[2] / 2) == float else 0  # noqa: E721
                return x * sizes + parts + len(type(self).__name__) + (type(x.shape) in (int, float))

        self.export_and_compare(
            Asking(),
            (X,),
            others=[(torch.randn(*size),) for size in SIZES],
            dynamic_shapes=({2: "height", 3: "width"},),
        )

    def test_int_that_map_calls(self):
        class Mapped(torch.nn.Module):
            def forward(self, x):
                _, _, height, width = map(int, x.shape)
                half, third = map(int, (x.shape[2] / 2, 1.5))
                scale = sum(map(float, x.shape[2:]))
                return x.reshape(-1, height * width) * scale, x[:, :, :half] + third

        for way in (torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC):
            with self.subTest(way), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(
                    Mapped(),
                    (X,),
                    others=[(torch.randn(*size),) for size in SIZES],
                    dynamic_shapes=({2: way, 3: way},),
                )

    def test_models_of_transformers(self):
        """A function that asks what is an ``int`` keeps it, those beside it do not."""
        for name, changed in (
            ("mobilevit", "MobileViTLayer.unfolding"),
            ("llama4", "pixel_shuffle"),
        ):
            module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
            function = functools.reduce(getattr, changed.split("."), module)
            before = function.__code__
            self.assertIn(NAMES["int"], with_symbols(before, before.co_filename, "int").co_names)


def checked(size, least=1):
    """What Kornia does with the batch of its augmentations, and many with ``(size, size)``."""
    if not isinstance(size, int) or size < least:
        raise AssertionError(f"a positive integer, not {size}")
    return size


class Checked(torch.nn.Module):
    def forward(self, x):
        batch, rows = checked(x.shape[0]), x.shape[1]
        half = rows / 2
        sizes = rows if isinstance(rows, (list, tuple)) else (rows, batch)
        kinds = [
            isinstance(half, float),
            isinstance(rows, (str, int)),
            isinstance(rows, float),
            isinstance(half, int),
            isinstance(rows, torch.Tensor),
            isinstance(x, (torch.Tensor, int)),
        ]
        return x.new_ones(sizes) * half, torch.tensor(kinds)


class Found(torch.nn.Module):
    """A number that the data decide: it is not compared."""

    def forward(self, x):
        rows = x.nonzero().shape[0]
        if isinstance(rows, int) and rows > 100:
            raise ValueError("too many")
        return x.new_ones(rows)


def times_or_beside(x, factor):
    """A tensor times a number, or beside a tensor."""
    return x * factor if isinstance(factor, (int, float)) else x + factor


class Factors(torch.nn.Module):
    """Numbers of the data that are asked for their class."""

    def forward(self, x):
        count, most = (x > 0).sum().item(), x.max().item()
        kinds = type(most) is float, type(count) is int, type(most > 0) is bool
        factors = [count, 1] if isinstance(count, int) else count
        return times_or_beside(x, most), times_or_beside(x, count), x * factors[0], torch.tensor(kinds)


class TestKindsOfNumbers(ExporterTestCase):
    EXAMPLE, SHAPES = (torch.randn(3, 6),), ({0: "batch", 1: "rows"},)

    def test_a_size_is_an_int(self):
        others = [(torch.randn(*size),) for size in ((1, 6), (4, 1), (2, 3))]
        self.export_and_compare(Checked(), self.EXAMPLE, others=others, dynamic_shapes=self.SHAPES)
        self.assertIn("isinstance", Checked.forward.__code__.co_names)

    def test_refused_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "a positive integer"):
            to_onnx(
                Checked(),
                self.EXAMPLE,
                dynamic_shapes=self.SHAPES,
                export_options=ExportOptions(patches=False),
            )

    def test_a_number_of_the_data(self):
        others = [(torch.zeros(2, 5),), (torch.ones(3, 3),)]
        self.export_and_compare(Found(), self.EXAMPLE, others=others, dynamic_shapes=self.SHAPES)

    def test_the_class_of_a_number_of_the_data(self):
        others = [(-torch.ones(2, 5),), (torch.ones(3, 3),)]
        self.export_and_compare(Factors(), self.EXAMPLE, others=others, dynamic_shapes=self.SHAPES)

        def limited(x):
            count = (x > 0).sum().item()
            if isinstance(count, int) and count > 3:
                count = 3
            return x * count

        with self.assertRaisesRegex(CaptureError, "a branch or a size depends on the data"):
            to_onnx(limited, self.EXAMPLE)

    def test_other_calls(self):
        self.assertTrue(is_instance(3, (int, str)))
        self.assertFalse(is_instance("3", int))
        self.assertTrue(is_instance(True, int | float))
        with self.assertRaisesRegex(TypeError, "isinstance"):
            is_instance(3, 4)

    def test_what_asks_for_no_number_stays(self):
        def passes(x):
            return x if isinstance(x, torch.Tensor) else None

        code = passes.__code__
        self.assertIs(with_symbols(code, code.co_filename, "isinstance"), code)


def listed(values):
    """A list of tensors, or of one."""
    if type(values) == torch.Tensor:  # noqa: E721
        values = [values]
    return [value * 2 for value in values]


class Typed(torch.nn.Module):
    """Types of inputs, of what may not be given, of weights, of results, in a branch and under vmap."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, mask=None):
        def raised(x):
            return x + 1 if type(x) is torch.Tensor else x + 5

        found = listed(x)
        if type(mask) is torch.Tensor:
            found = [value * mask for value in found]
        if type(self.weight) is torch.nn.Parameter:
            found.append(x + self.weight)
        if type(self.shift) in (torch.Tensor, list):
            found.append(x + self.shift)
        if type(x.relu()) is not torch.Tensor:
            found.append(x)
        if type(x).__name__ == "Tensor":
            found.append(x - 1)
        return *found, torch.cond(x.sum() > 0, raised, lambda x: x * 2, (x,)), torch.vmap(raised)(x)


class TestTypesOfTensors(ExporterTestCase):
    """Tensors of a capture without TorchDynamo have a class of their own."""

    def test_the_side_of_eager(self):
        shapes = ({0: "n"}, {0: "n"})
        for options in (None, ExportOptions(strict=True), ExportOptions(tracing="make_fx")):
            for mask in (torch.rand(3, 4), None):
                with self.subTest(options=options, mask=mask is not None):
                    others = [(-torch.rand(5, 4), None if mask is None else torch.rand(5, 4))]
                    self.export_and_compare(
                        Typed(),
                        (torch.rand(3, 4), mask),
                        others=others,
                        dynamic_shapes=(shapes[0], None if mask is None else shapes[1]),
                        export_options=options,
                    )

    def test_the_other_side_without_the_patch(self):
        model, args = Typed(), (torch.rand(5, 4), torch.rand(5, 4))
        without = to_onnx(model, args, export_options=ExportOptions(patches=False))
        self.assertNotEqual(len(without.graph.output), len(model(*args)))


class TestLengthsAndElements(ExporterTestCase):
    def test_length_of_a_tensor(self):
        shapes = ({0: "batch", 2: "rows"},)
        example, others = (
            (torch.randn(2, 2, 6, 4),),
            [(torch.randn(*size),) for size in ((1, 2, 6, 4), (5, 2, 3, 4))],
        )
        self.export_and_compare(Attention(), example, others=others, dynamic_shapes=shapes)
        self.assertIn("len", Attention.forward.__code__.co_names)
        self.assertEqual((length("abc"), length(torch.ones(4, 2))), (3, 4))
        with self.assertRaisesRegex(TypeError, "len\\(\\) of a 0-d tensor"):
            length(torch.ones(()))
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(Attention(), example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_element_of_a_tensor(self):
        sizes = ([4.0, 2.0], [1.0, 3.0], [2.5, 0.0], [9.0, 9.0])
        example, *others = [(torch.randn(1, 2, 6, 4), torch.tensor(size)) for size in sizes]
        self.export_and_compare(Cropped(), example, others=others)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(Cropped(), example, export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
