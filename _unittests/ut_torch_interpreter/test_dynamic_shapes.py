"""dynamic_shapes: every form that says one thing is taken as meant, what does not fit is refused with what would."""

import collections
import dataclasses
import importlib.util
import unittest

import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import (
    CaptureError,
    ExportOptions,
    guess_dynamic_shapes,
    to_onnx,
)

X, Y = torch.randn(2, 3), torch.randn(2, 3)

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Batch:
    """An input with three fields."""

    ids: torch.Tensor | None
    tokens: torch.Tensor
    mask: torch.Tensor


def setUpModule():
    torch.export.register_dataclass(Batch, serialized_type_name=f"{__name__}.Batch")


class Function(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def sizes(model):
    """The sizes of the inputs, in order."""
    return [
        tuple(dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in model.graph.input
    ]


def add_all(x, *rest, **more):
    return sum([*rest, *more.values()], x)


class TestForms(ExporterTestCase):
    ROWS = {0: "n"}
    FORMS = {
        "None for a whole list": (
            lambda xs, y: xs[0].sum() + y,
            ([X, X], Y),
            {},
            (None, ROWS),
            [(2, 3), (2, 3), ("n", 3)],
        ),
        "None for a whole dict": (lambda table, y: y, ({"a": X}, Y), {}, (None, ROWS), [(2, 3), ("n", 3)]),
        "a dict with fewer keys": (
            lambda table: table["a"] * 2,
            ({"a": X, "b": Y},),
            {},
            ({"a": ROWS},),
            [("n", 3), (2, 3)],
        ),
        "a tuple for a list": (lambda xs: xs[0] * 2, ([X, Y],), {}, ((ROWS, None),), [("n", 3), (2, 3)]),
        "a named tuple by its fields": (
            lambda pair: pair.left * 2,
            (Pair(X, Y),),
            {},
            ({"left": ROWS},),
            [("n", 3), (2, 3)],
        ),
        "a dataclass by its fields, one of which holds None": (
            lambda batch: batch.tokens * 2,
            (Batch(None, X, Y),),
            {},
            ({"ids": None, "tokens": ROWS, "mask": {}},),
            [("n", 3), (2, 3)],
        ),
        "a dataclass in the order of its fields, one of which holds None": (
            lambda batch: batch.tokens * 2,
            (Batch(None, X, Y),),
            {},
            ([None, ROWS, None],),
            [("n", 3), (2, 3)],
        ),
        "a negative axis": (lambda x: x * 2, (X,), {}, ({-1: "n"},), [(2, "n")]),
        "an empty dict for an int": (lambda x, n: x * n, (X, 3), {}, (ROWS, {}), [("n", 3)]),
        "a name for an int": (lambda x, n: x * n, (X, 3), {}, (None, "n"), [(2, 3), ()]),
        "a Dim for an int": (lambda x, n: x * n, (X, 3), {}, (None, Dim("n", min=2, max=9)), [(2, 3), ()]),
        "arguments left out": (lambda x, y: x * 2, (X, Y), {}, {"y": ROWS}, [(2, 3), ("n", 3)]),
        "*args as torch.export takes them": (add_all, (X, Y, X), {}, (None, (None, ROWS)), None),
        "*args one by one": (add_all, (X, Y), {}, (ROWS, ROWS), [("n", 3), ("n", 3)]),
        "*args and **kwargs one by one": (add_all, (X, Y), {"a": X}, (ROWS,) * 3, [("n", 3)] * 3),
        "**kwargs by name": (add_all, (X,), {"a": X}, {"x": ROWS, "a": ROWS}, [("n", 3)] * 2),
        "**kwargs as torch.export takes them": (add_all, (X,), {"a": X}, (ROWS, {"a": ROWS}), [("n", 3)] * 2),
        "a keyword given by position in dynamic_shapes": (
            lambda x, y: x + y,
            (X,),
            {"y": Y},
            (ROWS, ROWS),
            [("n", 3)] * 2,
        ),
    }

    def test_forms(self):
        for promise, (function, args, kwargs, dynamic_shapes, expected) in self.FORMS.items():
            with self.subTest(promise):
                if expected is None:  # two tensors whose sizes the sum makes equal
                    with self.assertRaisesRegex(CaptureError, "specialized"):
                        to_onnx(Function(function), args, kwargs, dynamic_shapes=dynamic_shapes)
                    continue
                model = self.export_and_compare(
                    Function(function), args, kwargs, dynamic_shapes=dynamic_shapes
                )
                self.assertEqual(expected, sizes(model))

    def test_additional_inputs(self):
        more = torch.export.AdditionalInputs()
        more.add((torch.randn(5, 3),))
        model = to_onnx(Function(lambda x: x * 2), (X,), dynamic_shapes=more)
        self.assertEqual([("x_dim_0", 3)], sizes(model))

    MISFITS = {
        "it has 2 entries for the arguments x": (lambda x: x, (X,), {}, ({}, {})),
        "it is 'batch', not a dict of arguments": (lambda x: x, (X,), {}, "batch"),
        r"there is no argument 'z' but x, y \(the names are those of forward, not input_names\)": (
            lambda x, y: x,
            (X, Y),
            {},
            {"z": {}},
        ),
        r"\*rest holds 2 arguments, its entry is \({0: 'n'},\)": (
            add_all,
            (X, Y, X),
            {},
            {"rest": ({0: "n"},)},
        ),
        r"\*\*more holds a, its entry is \[{}\]": (add_all, (X,), {"a": X}, {"more": [{}]}),
        "x has 2 dimensions, its entry has 1": (lambda x: x, (X,), {}, (("n",),)),
        "x is a tensor, its entry is 'n'": (lambda x: x, (X,), {}, ("n",)),
        "it gives axis 2 of a tensor of 2 dimensions, x": (lambda x: x, (X,), {}, ({2: "n"},)),
        "it gives axis -3 of a tensor of 2 dimensions, x": (lambda x: x, (X,), {}, ({-3: "n"},)),
        "it gives axis 1 of x twice": (lambda x: x, (X,), {}, ({1: "n", -1: "m"},)),
        "axis 0 of x is 2.5, not a name, a Dim": (lambda x: x, (X,), {}, ({0: 2.5},)),
        "axis 0 of x is '', not a name": (lambda x: x, (X,), {}, ({0: ""},)),
        r"it gives two sizes of the example, 2 and 3, one name, 'n'\n  hint   sizes of one name are equal": (
            lambda x: x,
            (X,),
            {},
            (("n", "n"),),
        ),
        "'n [+] 2' is 3 in the example, where it would be 4": (lambda x: x, (X,), {}, (("n", "n + 2"),)),
        "axis 0 of x is 4, its size in the example is 2": (lambda x: x, (X,), {}, ({0: 4},)),
        "n is the number 3, its entry is {0: 'n'} and not a name": (
            lambda x, n: x,
            (X, 3),
            {},
            ({}, {0: "n"}),
        ),
        r"n is a number, which cannot be the expression 2\*b": (
            lambda x, n: x,
            (X, 4),
            {},
            ({0: Dim("b")}, 2 * Dim("b")),
        ),
        "mode is 'sum', which cannot be dynamic, its entry is 'n'": (
            lambda x, mode: x,
            (X, "sum"),
            {},
            ({}, "n"),
        ),
        "y is None, which cannot be dynamic, its entry is {0: 'n'}": (
            lambda x, y: x,
            (X, None),
            {},
            ({}, {0: "n"}),
        ),
        "xs is a list of 2 leaves, its entry is {0: 'n'}": (lambda xs: xs[0], ([X, Y],), {}, ({0: "n"},)),
        "xs is a list of 2 leaves, its entry is a list of 3": (
            lambda xs: xs[0],
            ([X, Y],),
            {},
            ([{}, {}, {}],),
        ),
        "batch is a Batch of 2 leaves, its entry is {'ids': {0: 'n'}": (
            lambda batch: batch.tokens,
            (Batch(None, X, Y),),
            {},
            ({"ids": {0: "n"}, "tokens": None, "mask": None},),
        ),
        "table is a dict of 1 leaves, its entry is {'b': {}}": (
            lambda table: table["a"],
            ({"a": X},),
            {},
            ({"b": {}},),
        ),
    }

    def test_what_does_not_fit(self):
        for message, (function, args, kwargs, dynamic_shapes) in self.MISFITS.items():
            with self.subTest(message):
                with self.assertRaisesRegex(
                    CaptureError, f"dynamic_shapes does not fit the arguments: {message}"
                ):
                    to_onnx(Function(function), args, kwargs, dynamic_shapes=dynamic_shapes)

    def test_the_structure_that_fits_can_be_pasted(self):
        def function(x, xs, table, mode, flag=None):
            return x + xs[0] + table["a"][0]

        args = (X, [X, Y, X], {"a": (Y, Y)}, "sum")
        with self.assertRaises(CaptureError) as caught:
            to_onnx(Function(function), args, dynamic_shapes=({0: "n"},))
        hint = str(caught.exception).splitlines()[-1]
        code = hint.partition("dynamic_shapes=")[2].partition(" with {0:")[0]
        self.assertEqual('{"x": {}, "xs": [{}] * 3, "table": {\'a\': [{}, {}]}, "mode": None}', code)
        self.assertTrue(to_onnx(Function(function), args, dynamic_shapes=eval(code)).graph.node)

    def test_one_tensor_given_twice_is_two_inputs(self):
        model = to_onnx(Function(lambda xs: xs[0] - 2 * xs[1]), ([X, X],))
        self.assert_matches(model, Function(lambda xs: xs[0] - 2 * xs[1]), ([X, Y],))


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class TestCaches(ExporterTestCase):
    """transformers' caches, registered as a list of keys and one of values, or tensor by tensor."""

    @classmethod
    def setUpClass(cls):
        from transformers.cache_utils import DynamicCache
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()
        cls.addClassCleanup(torch.utils._pytree._deregister_pytree_node, DynamicCache)

    def cache(self, kind=None):
        from transformers.cache_utils import DynamicCache

        cache = (kind or DynamicCache)()
        for layer in range(2):
            cache.update(torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4), layer)
        return cache

    def layered(self):
        """A cache class whose leaves come layer by layer."""
        from transformers.cache_utils import DynamicCache

        class LayeredCache(DynamicCache):
            """Key, value, key, value."""

        def flatten(cache):
            return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)], None

        def unflatten(leaves, context):
            cache = LayeredCache()
            for layer in range(len(leaves) // 2):
                cache.update(leaves[2 * layer], leaves[2 * layer + 1], layer)
            return cache

        def with_keys(cache):
            leaves, context = flatten(cache)
            return [(torch.utils._pytree.SequenceKey(k), leaf) for k, leaf in enumerate(leaves)], context

        torch.utils._pytree.register_pytree_node(
            LayeredCache, flatten, unflatten, flatten_with_keys_fn=with_keys
        )
        return self.cache(LayeredCache)

    def exported(self, cache, entry):
        def read(x, cache):
            return x + cache.layers[0].keys.sum() + cache.layers[1].values.sum()

        return sizes(to_onnx(Function(read), (X, cache), dynamic_shapes=({0: "n"}, entry)))[1:]

    def test_every_form(self):
        keys, values = {0: "batch", 2: "past"}, {0: "batch"}
        plain, named = (2, 2, 5, 4), ("batch", 2, "past", 4)
        other = ("batch", 2, 5, 4)
        for promise, entry, expected in (
            ("None", None, [plain] * 4),
            ("keys and values", [[keys] * 2, [values] * 2], [named, named, other, other]),
            ("a tuple of them", ([keys] * 2, [values] * 2), [named, named, other, other]),
            ("by name", {"key_cache": [keys] * 2}, [named, named, plain, plain]),
            ("flat", [keys] * 4, [named] * 4),
        ):
            with self.subTest(promise):
                self.assertEqual(expected, self.exported(self.cache(), entry))

    def test_layer_by_layer(self):
        cache = self.layered()
        keys, values = {0: "batch", 2: "past"}, {0: "batch"}
        named, other = ("batch", 2, "past", 4), ("batch", 2, 5, 4)
        for promise, entry in (
            ("keys and values", [[keys] * 2, [values] * 2]),
            ("flat", [keys, values, keys, values]),
        ):
            with self.subTest(promise):
                self.assertEqual([named, other] * 2, self.exported(cache, entry))

    def test_a_flat_list_whose_order_is_not_sure(self):
        keys, values = {2: "past"}, {0: "batch"}
        with self.assertRaisesRegex(
            CaptureError, r"cache is a DynamicCache of 4 leaves(.|\n)*\"cache\": \[\[{}, {}\], \[{}, {}\]\]}"
        ):
            self.exported(self.cache(), [keys, values, keys, values])


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class TestModelOutputs(ExporterTestCase):
    """A dict to Python, as `encoder_outputs` of a decoder is, and a list to torch.export."""

    def test_by_name_or_by_position(self):
        from transformers.modeling_outputs import BaseModelOutput

        function = Function(lambda x, found: x + found.last_hidden_state.sum())
        args = (X, BaseModelOutput(last_hidden_state=torch.randn(4, 5)))
        for entry in ([{0: "n"}], ({0: "n"},), {"last_hidden_state": {0: "n"}}):
            with self.subTest(entry):
                model = to_onnx(function, args, dynamic_shapes={"x": None, "found": entry})
                self.assertEqual(sizes(model)[1], ("n", 5))
        with self.assertRaisesRegex(
            CaptureError,
            r'found is a BaseModelOutput of 1 leaves, its entry is \[{}, {}\](.|\n)*"found": \[{}\]}',
        ):
            to_onnx(function, args, dynamic_shapes={"x": None, "found": [{}, {}]})


class Mixed(torch.nn.Module):
    """Tensors, a number, containers, keywords."""

    def forward(self, x, pair, count, scale=None, options=None):
        return (x * scale).sum(1) * count + pair[0][:, 0], pair[1]["rows"] + options["shift"]


class TestGuessing(ExporterTestCase):
    def call(self, rows, columns, count):
        kwargs = {"scale": torch.randn(rows, 1), "options": {"shift": torch.randn(3), "flag": None}}
        return (
            torch.randn(rows, columns),
            [torch.randn(rows, 2), {"rows": torch.randn(columns, 3)}],
            count,
        ), kwargs

    def test_what_differs_is_dynamic(self):
        calls = [self.call(4, 5, 2), self.call(6, 5, 2), self.call(4, 7, 3)]
        shapes = guess_dynamic_shapes(calls)
        dynamic = Dim.DYNAMIC
        self.assertEqual(
            (
                {0: dynamic, 1: dynamic},
                [{0: dynamic}, {"rows": {0: dynamic}}],
                dynamic,
                {0: dynamic},
                {"shift": None, "flag": None},
            ),
            shapes,
        )
        args, kwargs = calls[0]
        self.export_and_compare(
            Mixed(), args, kwargs, others=calls[1:], dynamic_shapes=shapes, target_opset=20
        )

    def test_the_forms_of_a_call(self):
        x, y = torch.randn(2, 3), torch.randn(4, 3)
        rows = {0: Dim.DYNAMIC}
        self.assertEqual((rows,), guess_dynamic_shapes([x, y]))
        self.assertEqual((rows, None), guess_dynamic_shapes([(x, x), (y, x)]))
        self.assertEqual({"b": rows, "a": None}, guess_dynamic_shapes([{"b": x, "a": x}, {"a": x, "b": y}]))
        self.assertEqual((None, rows), guess_dynamic_shapes([((x,), {"a": x}), ((x,), {"a": y})]))

    def test_example_sizes_0_and_1(self):
        calls = [(torch.randn(1, 3),), (torch.randn(0, 3),), (torch.randn(5, 3),)]
        for example in calls:
            self.export_and_compare(
                torch.nn.Linear(3, 2),
                example,
                others=calls,
                dynamic_shapes=guess_dynamic_shapes(calls),
                target_opset=20,
            )

    def test_keywords_in_another_order_than_forward(self):
        def call(rows, columns, seed):
            kwargs = {"queries": torch.ones(seed, 8), "mask": torch.ones(rows, columns)}
            return (torch.ones(rows, columns),), kwargs

        rows, both = {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
        calls = [call(2, 16, 5), call(3, 20, 7)]
        (x,), kwargs = calls[0]
        shapes = guess_dynamic_shapes(calls)
        self.assertEqual((both, rows, both), shapes)
        refused = "a tuple does not tell queries, mask apart, which forward has in another order: "
        models = {
            "mask, queries": Function(
                lambda x, mask=None, queries=None: queries.sum(0) + x.sum() + mask.sum()
            ),
            "mask": Function(lambda x, mask, **more: more["queries"].sum(0) + x.sum() + mask.sum()),
        }
        for declared, model in models.items():
            for given in (shapes, list(shapes), (both, both, rows)):
                with (
                    self.subTest(declared, given=given),
                    self.assertRaisesRegex(CaptureError, refused + declared),
                ):
                    to_onnx(model, (x,), kwargs, dynamic_shapes=given)
            to_onnx(model, (x,), kwargs, dynamic_shapes=(both, rows, rows))  # either order says the same
            ordered = [(args, {name: named[name] for name in ("mask", "queries")}) for args, named in calls]
            by_name = {"x": both, "queries": rows, "mask": both}
            for (first, *others), given in ((calls, by_name), (ordered, (both, both, rows))):
                self.export_and_compare(model, *first, others=others, dynamic_shapes=given, target_opset=20)

    def test_what_is_no_call(self):
        call = "a call is a tuple of arguments, a dict of keyword arguments or a pair of both, not int"
        for message, calls in {"calls is a list of example calls, not int": 3, call: [(X,), 3]}.items():
            with self.subTest(message), self.assertRaisesRegex(TypeError, message):
                guess_dynamic_shapes(calls)

    def test_calls_that_do_not_fit(self):
        x = torch.randn(2, 3)
        for message, calls in {
            "sizes are compared between two calls or more, not 1": [(x,)],
            "the calls do not have the same arguments": [(x,), (x, x)],
            r"args\[0\] does not have the same number of dimensions in all calls": [(x,), (x[0],)],
            r"args\[0\] does not hold the same in all calls": [([x],), ([x, x],)],
            r"args\[0\] is a Tensor in one call and something else in another": [(x,), (None,)],
        }.items():
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                guess_dynamic_shapes(calls)


class Keywords(torch.nn.Module):
    """A branch on the size of a keyword argument that comes first in the call."""

    def forward(self, x, *, z, w):
        return x + w if z.shape[0] == 2 else x


class TestSuggestions(ExporterTestCase):
    CASES = {
        "a constant is left out": (
            Function(lambda x, y: x[:, :3] + y),
            ((X, Y), {}),
            ({0: "rows"}, {0: "rows", 1: Dim.DYNAMIC}),
            '{"x": {0: "rows"}, "y": {0: "rows"}}',
        ),
        "equal sizes have one name": (
            Function(lambda x, y: x + y),
            ((X, Y), {}),
            ({0: Dim("rows", min=2, max=9)}, {0: Dim("other")}),
            """{"x": {0: Dim('rows', min=2, max=9)}, "y": {0: Dim('rows', min=2, max=9)}}""",
        ),
        "containers": (
            Function(lambda x, y: x.sum() + y["a"][0] + torch.ones(2, 1)),
            ((X, {"a": [Y], "n": 3}), {}),
            ({0: "n", 1: "m"}, {"a": [{0: "k", 1: "c"}], "n": None}),
            """{"x": {0: "n", 1: "m"}, "y": {'a': [{1: "c"}], 'n': None}}""",
        ),
        "a size that indices of another size keep at 1 is left out": (
            Function(lambda x, i, j: x[i, j]),
            ((X, torch.tensor([1, 0, 1]), torch.tensor([1])), {}),
            ({}, {0: "a"}, {0: Dim("b")}),
            '{"x": {}, "i": {0: "a"}, "j": {}}',
        ),
        "keywords": (
            Keywords(),
            ((X,), {"w": Y, "z": X + 1}),
            {"x": {0: "a"}, "w": {0: "b"}, "z": {0: "c"}},
            '{"x": {0: "a"}, "w": {0: "a"}, "z": {}}',
        ),
    }

    def test_what_to_paste(self):
        for promise, (model, (args, kwargs), dynamic_shapes, expected) in self.CASES.items():
            for tracing in ("export", "make_fx"):
                with self.subTest(promise, tracing=tracing):
                    options = {"export_options": ExportOptions(tracing=tracing)}
                    with self.assertRaises(CaptureError) as caught:
                        to_onnx(model, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
                    *_, given, better = str(caught.exception).splitlines()
                    self.assertTrue(given.startswith("  given  dynamic_shapes="), given)
                    self.assertEqual(f"  try    dynamic_shapes={expected}", better)
                    pasted = eval(expected, {"Dim": Dim})
                    self.assertTrue(to_onnx(model, args, kwargs, dynamic_shapes=pasted, **options).graph.node)

    def test_nothing_to_paste_when_a_capture_that_may_choose_keeps_all_sizes(self):
        with self.assertRaises(CaptureError) as caught:
            to_onnx(
                Function(lambda x: x if x.shape[1] ** 2 != 25 else x + 1),
                (torch.ones(3, 4),),
                dynamic_shapes=({0: Dim("n"), 1: Dim("m")},),
            )
        text = str(caught.exception)
        self.assertIn("Not all values of m", text)
        self.assertNotIn("  given  ", text)
        self.assertTrue(text.endswith("name equal dimensions alike, or use Dim.AUTO"), text)


if __name__ == "__main__":
    unittest.main()
