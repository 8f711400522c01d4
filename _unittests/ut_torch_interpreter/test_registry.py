"""The registry: overloads, checked while importing, bound by ATen's names."""

import ast
import inspect
import os
import pathlib
import unittest
from collections.abc import Iterator

import torch

from experimental_experiment.torch_interpreter import catalog, registry
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import (
    COMPLEX,
    TRANSLATIONS,
    Translation,
    bind,
    check_names,
    keys,
    per_call_table,
    translates,
    twin,
    writes_through,
    written_arguments,
)

aten = torch.ops.aten


class TestRegistering(unittest.TestCase):
    def table(self, *targets):
        table = {}
        return table, translates(*targets, table=table)

    def test_one_function_may_take_several_keys(self):
        table, register = self.table(aten.sin.default, "mylib::sin")

        @register
        def sin(op, self):
            """Sine."""

        self.assertEqual({aten.sin.default, "mylib::sin"}, set(table))
        self.assertTrue(all(entry.function is sin for entry in table.values()))

    def test_the_place_is_the_line_that_registers(self):
        table, register = self.table(aten.sin.default)
        register(lambda op, self: None)
        line = inspect.currentframe().f_lineno - 1
        self.assertEqual(f"{__file__}:{line}", table[aten.sin.default].place)

    def test_twice(self):
        table, register = self.table(aten.sin.default)
        register(lambda op, self: None)
        with self.assertRaisesRegex(
            ValueError, "aten.sin.default is translated twice, first at .*test_registry"
        ):
            translates(aten.sin.default, table=table)(lambda op, self: None)

    def test_misspelt_arguments(self):
        with self.assertRaisesRegex(TypeError, r"sum_: aten.sum.dim_IntList has no argument \['axis'\]"):

            @translates(aten.sum.dim_IntList, table={})
            def sum_(op, self, axis):
                """Wrong."""

    def test_a_put_with_unknown_arguments(self):
        def put(op, base, new, dim, wrong):
            """Wrong."""

        with self.assertRaisesRegex(TypeError, r"has no argument \['dim', 'wrong'\]"):
            writes_through(aten.roll.default)(put)

    def test_a_put_twice(self):
        table = {}
        writes_through(aten.t.default, table=table)(lambda op, base, new: None)
        with self.assertRaisesRegex(ValueError, "aten.t.default is written twice, first by <lambda>"):
            writes_through(aten.t.default, table=table)(lambda op, base, new: None)

    def test_every_translation_is_sound(self):
        """Its file exists, its arguments are ATen's, it says what it promises."""
        package = os.path.dirname(os.path.dirname(os.path.abspath(registry.__file__)))
        for target, translation in [*TRANSLATIONS.items(), *COMPLEX.items()]:
            with self.subTest(target):
                check_names(target, translation.function)
                self.assertTrue(os.path.exists(os.path.join(package, translation.file)))

    def test_every_put_is_sound(self):
        """Its arguments are the base, the new value, those of the view and the position of a result."""
        for target, put in [*registry.PUTS.items(), *registry.COMPLEX_PUTS.items()]:
            with self.subTest(target):
                check_names(target, put, "base", "new", "position")
                self.assertEqual(["base", "new"], [*registry.parameters(put)][:2])


def written_names(source: str) -> Iterator[str]:
    """The dotted names in a source, ``torch.ops.`` left out, after names like ``aten = torch.ops.aten``."""
    aliases: dict[str, str] = {}

    def dotted(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return aliases.get(node.id, node.id)
        owner = dotted(node.value) if isinstance(node, ast.Attribute) else None
        return owner and f"{owner}.{node.attr}"

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and dotted(node.value):
            aliases[node.targets[0].id] = dotted(node.value)
        name = dotted(node)
        if name:
            yield name.removeprefix("torch.ops.")


class TestCases(unittest.TestCase):
    def test_every_key_has_a_case(self):
        """The tests write out each key of the registry, those of complex numbers in the tests of their file.

        Not those of control flow: users write ``torch.cond`` or ``torch.no_grad``, and torch.export their keys.
        """
        tests = pathlib.Path(__file__).parent.glob("test_*.py")
        written = {path.stem: set(written_names(path.read_text())) for path in tests}
        missing = set()
        package = os.path.dirname(registry.__file__)
        for name, role, place in catalog.registered():
            if not place.startswith(package):
                continue  # another test runs an example, which registers its own
            family = pathlib.Path(place.rpartition(":")[0]).stem
            tests = (
                ("test_aten_complex", f"test_aten_{family}", f"test_{family}")
                if role == " (complex)"
                else "test_"
            )
            names = set().union(*(names for stem, names in written.items() if stem.startswith(tests)))
            if "control_flow" not in place and not {name, f"{name}.default"} & names:
                missing.add(f"{name}{role}")
        self.assertEqual(missing, set())


class TestBinding(unittest.TestCase):
    def bound(self, function, *args, target=aten.sum.dim_IntList, **kwargs):
        return bind(target, Translation(target, function), list(args), kwargs)

    def test_arguments_by_name_with_atens_defaults(self):
        found = self.bound(lambda op, dim, self, keepdim, dtype: None, "x", [1])
        self.assertEqual({"self": "x", "dim": [1], "keepdim": False, "dtype": None}, found)

    def test_an_argument_that_is_not_listed_holds_its_default(self):
        self.assertEqual({"self": "x"}, self.bound(lambda op, self: None, "x", target=aten.sum.default))
        self.bound(lambda op, self, dim: None, "x", [1], False)
        with self.assertRaisesRegex(Untranslatable, "keepdim=True is not handled"):
            self.bound(lambda op, self, dim: None, "x", [1], True)
        with self.assertRaisesRegex(Untranslatable, "dtype=torch.float64 is not handled"):
            self.bound(lambda op, self, dim: None, "x", [1], dtype=torch.float64)

    def test_harmless_arguments(self):
        found = self.bound(
            lambda op, size, dtype: None,
            [2],
            dtype=None,
            device=torch.device("cpu"),
            pin_memory=False,
            layout=torch.strided,
            target=aten.zeros.default,
        )
        self.assertEqual({"size": [2], "dtype": None}, found)


class TestTwins(unittest.TestCase):
    def test_in_place_and_out_overloads(self):
        cases = {
            aten.add_.Tensor: aten.add.Tensor,
            aten.relu_.default: aten.relu.default,
            aten.add.out: aten.add.Tensor,
            aten.sum.IntList_out: aten.sum.dim_IntList,
            aten.frexp.Tensor_out: aten.frexp.Tensor,
            aten.any.dims_out: aten.any.dims,
            aten.arange.start_out: aten.arange.start_step,
            aten.zeros.out: aten.zeros.default,
            aten.copy_.default: aten.copy.default,
            aten.index_put_.default: aten.index_put.default,
            aten.add.Tensor: None,
        }
        for target, expected in cases.items():
            with self.subTest(target):
                self.assertIs(expected, twin(target))

    def test_written_arguments(self):
        cases = {
            aten.add_.Tensor: ["self"],
            aten.max.dim_max: ["max", "max_values"],
            aten.add.Tensor: [],
        }
        for target, expected in cases.items():
            with self.subTest(target):
                self.assertEqual(expected, written_arguments(target))


class TestKeys(unittest.TestCase):
    def test_the_most_exact_first(self):
        self.assertEqual([aten.add.Tensor, "aten::add.Tensor"], list(keys(aten.add.Tensor)))
        self.assertEqual([aten.relu.default, "aten::relu"], list(keys(aten.relu.default)))
        self.assertEqual("higher_order::cond", list(keys(torch.ops.higher_order.cond))[1])

    def test_one_export(self):
        def function(op, self):
            """Anything."""

        @torch.library.custom_op("registry_lib::plain", mutates_args=())
        def plain(self: torch.Tensor) -> torch.Tensor:
            return self.clone()

        table = per_call_table({aten.relu: function, plain: function, "lib::name": function})
        self.assertEqual({aten.relu.default, torch.ops.registry_lib.plain.default, "lib::name"}, set(table))
        self.assertEqual({}, per_call_table(None))
        names = {"aten::relu.default": function, "aten::add.Tensor": function, "later::op.Scalar": function}
        self.assertEqual({"aten::relu", "aten::add.Tensor", "later::op.Scalar"}, set(per_call_table(names)))
        for wrong, message in (
            ({aten.relu: 3}, "is not a function but int"),
            ({3.5: function}, "not an operator"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                per_call_table(wrong)


if __name__ == "__main__":
    unittest.main()
