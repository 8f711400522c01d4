"""The runtime table: every row is needed, says what it is, and only works for its target."""

import copy
import importlib
import pkgutil
import unittest

import torch

import _unittests.ut_torch_interpreter as room
from experimental_experiment import comparison
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.runtime import table

X = torch.randn(4, 4)


def tested_rows() -> set[str]:
    """The rows that a table ``ROWS`` or ``OTHER_ROWS`` of a file ``test_runtime_*`` has a case of."""
    found: set[str] = set()
    for module in pkgutil.iter_modules(room.__path__):
        if module.name.startswith("test_runtime_"):
            tests = importlib.import_module(f"{room.__name__}.{module.name}")
            found.update(getattr(tests, "ROWS", {}), getattr(tests, "OTHER_ROWS", {}))
    return found


class TestTable(ExporterTestCase):
    def test_every_row_has_a_case(self):
        self.assertEqual(set(), {row.name for row in table.ROWS} - tested_rows())

    def test_names_are_unique(self):
        with self.assertRaisesRegex(ValueError, r"the row MatMul.of_a_vector stands twice in the table"):
            row = next(row for row in table.ROWS if row.name == "MatMul.of_a_vector")
            table.repairs("MatMul", when="", because="", nodes=0)(row.rewrite)

    def test_the_plain_standard_has_no_repair(self):
        model = to_onnx(lambda x: x @ x[0], (X,), runtime="onnx")
        self.assertEqual(["Gather", "MatMul"], [node.op_type for node in model.graph.node])

    def test_the_plain_standard_keeps_halves(self):
        model = to_onnx(lambda x: x @ x + 1, (X.to(torch.bfloat16),), runtime="onnx")
        self.assertEqual(["MatMul", "Add"], [node.op_type for node in model.graph.node])

    def test_special_values_are_asked_for(self):
        for special_values, expected in (
            (False, ["ReduceMax"]),
            (True, ["ReduceMax", "ReduceL1", "IsNaN", "Where"]),
        ):
            model = to_onnx(lambda x: x.amax(1), (X,), special_values=special_values)
            self.assertEqual(expected, [node.op_type for node in model.graph.node])

    def test_another_runtime(self):
        with self.assertRaisesRegex(ValueError, "runtime is 'onnxruntime' or 'onnx', not 'tensorrt'"):
            to_onnx(lambda x: x + 1, (X,), runtime="tensorrt")

    def test_special_values_that_are_no_bool(self):
        with self.assertRaisesRegex(TypeError, "special_values is True or False, not 'yes'"):
            to_onnx(lambda x: x + 1, (X,), special_values="yes")

    def test_a_row_that_does_not_exist(self):
        with (
            self.assertRaisesRegex(KeyError, "the runtime table has no row MatMul.other"),
            without_row("MatMul.other"),
        ):
            pass


class TestRegions(ExporterTestCase):
    """Operators without a kernel for bfloat16 that follow each other are cast once around."""

    def test_a_chain(self):
        x = X.to(torch.bfloat16)
        model = self.assert_same_as_eager(lambda x: torch.tanh(x @ x + x) * 2, x, dynamic=False)
        self.assertEqual(2, [node.op_type for node in model.graph.node].count("Cast"))

    def test_a_chain_through_what_moves_elements(self):
        """Reshape, Transpose, Slice, Concat and Expand have kernels for bfloat16, or none: the chain goes on in float32."""

        class Rotated(torch.nn.Module):
            def forward(self, x, w, cos):
                heads = (x @ w).view(2, 3, 2, 4).transpose(1, 2)
                first, second = heads.chunk(2, -1)
                turned = heads * cos + torch.cat([-second, first], -1) * cos
                return torch.softmax(turned[:, :, None].expand(2, 2, 2, 3, 4) * 2, -1)

        tensors = [torch.randn(2, 3, 8), torch.randn(8, 8), torch.randn(3, 4)]
        given = tuple(x.bfloat16() for x in tensors)
        model = to_onnx(Rotated(), given)
        casts = [node.op_type for node in model.graph.node].count("Cast")
        self.assertEqual(4, casts)  # the three inputs and the result
        (got,) = comparison.run(comparison.session(model), given)
        exact = Rotated()(*(x.double() for x in given))
        eager = Rotated()(*given)
        self.assertLessEqual((got.double() - exact).abs().max(), (eager.double() - exact).abs().max())
        plain = to_onnx(Rotated(), given, runtime="onnx")
        self.assertNotIn("Cast", [node.op_type for node in plain.graph.node])

    def test_attention_goes_on_with_what_is_not_rounded(self):
        """The products around attention have no kernel either."""

        class Attended(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

            def forward(self, x):
                heads = self.layer(x).view(2, 5, 2, 4).transpose(1, 2)
                attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
                return self.last(attended.transpose(1, 2).reshape(2, 5, 8))

        module, x = Attended().bfloat16().eval(), torch.randn(2, 5, 8).bfloat16()
        model = to_onnx(module, (x,))
        weights = {item.name for item in model.graph.initializer}
        casts = [node for node in model.graph.node if node.op_type == "Cast" and node.input[0] not in weights]
        self.assertEqual(2, len(casts))
        (got,) = comparison.run(comparison.session(model), (x,))
        exact = copy.deepcopy(module).double()(x.double())
        self.assertLessEqual((got.double() - exact).abs().max(), (module(x).double() - exact).abs().max())

    def test_what_has_a_kernel_goes_on_too(self):
        """LayerNormalization between sums and products, numbers that bfloat16 rounds."""

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.layer = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

            def forward(self, x):
                normed = self.norm(x + self.layer(x))
                return 0.5 * normed * (1 + torch.tanh(0.7978845608 * (normed + 0.044715 * normed**3)))

        module, x = Block().bfloat16().eval(), torch.randn(2, 5, 8).bfloat16()
        model = to_onnx(module, (x,))
        weights = {item.name for item in model.graph.initializer}
        casts = [node for node in model.graph.node if node.op_type == "Cast" and node.input[0] not in weights]
        self.assertEqual(2, len(casts))
        self.assertIn("Gelu", [node.op_type for node in model.graph.node])
        (got,) = comparison.run(comparison.session(model), (x,))
        exact = copy.deepcopy(module).double()(x.double())
        self.assertLessEqual((got.double() - exact).abs().max(), (module(x).double() - exact).abs().max())

    def test_regions_of_many_operators(self):
        """One cast in, one cast out; rows of the table that write several operators go on as well."""
        rows = torch.tensor([0, 2, 1, 0, 2])
        functions = {
            "padded, cut off, resized": lambda x: torch.nn.functional.interpolate(
                torch.nn.functional.pad(x * 2, (1, 1)).clamp(-1, 1)[:, None], scale_factor=2.0
            ).atan(),
            "a row": lambda x: (x * 1.01)[:, 1].cumsum(0) / 3,
            "tiles": lambda x: (x / 3).repeat(2, 1, 1).tril() * 1.01,
            "sums into rows": lambda x: torch.zeros_like(x[:, :3]).index_add(1, rows, x * 1.01) / 3,
            "standardized": lambda x: torch.std_mean(x * 1.01, -1, keepdim=True)[0] / 3,
            "a norm": lambda x: torch.linalg.vector_norm(x * 1.01, 3, -1) / 3,
            "rows of squares": lambda x: torch.nn.functional.rms_norm(x * 1.01, (8,)) / 3,
            "an axis that is moved": lambda x: (x * 1.01).permute(2, 0, 1) @ (x * 1.01)[0, :, :2] / 3,
        }
        x = torch.randn(2, 5, 8).bfloat16()
        for name, function in functions.items():
            with self.subTest(name):
                model = to_onnx(function, (x,))
                casts = [node for node in model.graph.node if node.op_type == "Cast"]
                self.assertEqual(2, len(casts))
                (got,) = comparison.run(comparison.session(model), (x,))
                exact, eager = function(x.double()), function(x)
                self.assertLessEqual((got.double() - exact).abs().max(), (eager.double() - exact).abs().max())

    def test_sizes_are_those_of_what_is_not_rounded(self):
        """What moves elements is written again in float32: its sizes are known, too, they are not read from it."""

        class Grouped(torch.nn.Module):
            def forward(self, x, keys, values):
                heads = x.view(x.shape[0], -1, 2, 4).transpose(1, 2)
                shown = [
                    item[:, :, None].expand(-1, -1, 2, -1, -1).reshape(item.shape[0], 2, -1, 4)
                    for item in (keys, values)
                ]
                return torch.nn.functional.scaled_dot_product_attention(heads * 2, *shown)

        def call(batch, queries, number):
            sizes = ((batch, queries, 8), (batch, 1, number, 4), (batch, 1, number, 4))
            return tuple(torch.randn(size).bfloat16() for size in sizes)

        past = {0: "batch", 2: "keys"}
        shapes = {"x": {0: "batch", 1: "queries"}, "keys": past, "values": past}
        model = to_onnx(Grouped(), call(2, 5, 7), dynamic_shapes=shapes)
        written = [node.op_type for node in model.graph.node]
        self.assertFalse({"Shape", "Expand"} & {*written})  # the heads are grouped, not repeated
        for given in (call(2, 5, 7), call(3, 1, 4)):
            (got,) = comparison.run(comparison.session(model), given)
            exact, eager = Grouped()(*(item.double() for item in given)), Grouped()(*given)
            self.assertLessEqual((got.double() - exact).abs().max(), (eager.double() - exact).abs().max())

    def test_comparisons_see_the_rounded_values(self):
        x = torch.tensor([1.0, 1.0 + 2**-7], dtype=torch.bfloat16)
        self.assert_same_as_eager(lambda x: (x * 1.01 == (x * 1.01).reshape(2, 1), (x / 3).sort()), x)
        points = torch.tensor([0.1, 0.3], dtype=torch.bfloat16)

        def sampled(x, points):
            grid = (points * 1.7).view(1, 1, 1, 2)
            return torch.nn.functional.grid_sample(x.view(1, 1, 1, 2), grid, mode="nearest"), (
                points * 1.7
            ).view(2, 1) > points

        self.assert_same_as_eager(sampled, x, points)

    def test_distances_from_what_is_seen_rounded(self):
        """Where eager's distance is 0, that of what is not rounded would be negative: its root is NaN."""
        x = (torch.rand(4, 500) * 8).bfloat16()
        functions = {
            "floor": lambda y: y - y.floor(),
            "the elements moved": lambda y: y.t().reshape(-1) - (y.t().floor() * 1).reshape(-1),
            "ceil": lambda y: y.ceil() - y,
            "integers": lambda y: y - y.long(),
            "the smallest": lambda y: y - y.sort(-1).values[:, :1],
            "the smallest and its index": lambda y: y - y.min(-1, keepdim=True).values,
            "a quotient": lambda y: y - y // 1,
            "in float32": lambda y: y - y.float().floor().bfloat16(),
            "seen afterwards": lambda y: y.amax(-1, keepdim=True) - y.gather(-1, y.argmax(-1, keepdim=True)),
            "computed, seen afterwards": lambda y: (y * 2) - y.floor() * 2,
            "chosen": lambda y: (y.gather(-1, y.argmax(-1, keepdim=True)) - y.amax(-1, keepdim=True)).abs(),
        }
        for name, function in functions.items():
            with self.subTest(name):
                self.assert_same_as_eager(lambda x, function=function: function(x * 1.01).sqrt(), x)

    def test_the_rounding_that_the_model_asks_for(self):
        x = torch.tensor([1.0, 3.0], dtype=torch.bfloat16)
        self.assert_same_as_eager(lambda x: (x / 3).float() * 3, x)
        self.assert_same_as_eager(lambda x: (x / 3).view(2, 1).float() * 3, x)
        self.assert_same_as_eager(lambda x: x.float().div(3).bfloat16().view(2, 1).float() * 3, x)


if __name__ == "__main__":
    unittest.main()
