"""Custom operators: functional or writing their arguments, translated for one export or for all."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx, translates
from experimental_experiment.torch_interpreter.registry import TRANSLATIONS

torch.manual_seed(0)

X = torch.randn(3, 4)


@torch.library.custom_op("custom_lib::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    """``x * factor``."""
    return x * factor


@torch.library.custom_op("custom_lib::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two halves of the last axis."""
    first, second = x.chunk(2, -1)
    return first.clone(), second.clone()


@torch.library.custom_op("custom_lib::pieces", mutates_args=())
def pieces(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    """*count* pieces of the first axis."""
    return [piece.clone() for piece in x.chunk(count)]


@torch.library.custom_op("custom_lib::add_into", mutates_args=("out",))
def add_into(x: torch.Tensor, out: torch.Tensor) -> None:
    """Add *x* to *out*."""
    out.add_(x)


@torch.library.custom_op("custom_lib::pop", mutates_args=("queue", "count"))
def pop(queue: torch.Tensor, count: torch.Tensor, step: int) -> torch.Tensor:
    """The first row; the others move forward by *step* and *count* decreases."""
    first = queue[0].clone()
    queue.copy_(queue.roll(-step, 0))
    count.sub_(1)
    return first


@torch.library.custom_op("custom_lib::tuned", mutates_args=())
def tuned(x: torch.Tensor, weights: list[torch.Tensor], bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x`` times every weight, plus a bias."""
    for weight in weights:
        x = x * weight
    return x.clone() if bias is None else x + bias


scale.register_fake(lambda x, factor=2.0: torch.empty_like(x))
halves.register_fake(lambda x: (x[..., : x.shape[-1] // 2].clone(), x[..., x.shape[-1] // 2 :].clone()))
pieces.register_fake(lambda x, count: [piece.clone() for piece in x.chunk(count)])
pop.register_fake(lambda queue, count, step: queue[0].clone())
tuned.register_fake(lambda x, weights, bias=None: torch.empty_like(x))

LIBRARY = torch.library.Library("custom_overloads", "DEF")
LIBRARY.define("shift(Tensor x, float by) -> Tensor")
LIBRARY.define("shift.tensor(Tensor x, Tensor by) -> Tensor")
LIBRARY.define("shift_(Tensor(a!) x, float by) -> Tensor(a!)")
LIBRARY.impl("shift", lambda x, by: x + by, "CompositeExplicitAutograd")
LIBRARY.impl("shift.tensor", lambda x, by: x + by, "CompositeExplicitAutograd")
LIBRARY.impl("shift_", lambda x, by: x.add_(by), "CompositeExplicitAutograd")
shift = torch.ops.custom_overloads.shift


def onnx_scale(op, x, factor):
    return op.Mul(x, factor)


def onnx_halves(op, x):
    return op.Split(x, num_outputs=2, axis=-1, outputs=2)


def onnx_pieces(op, x, count):
    return list(op.Split(x, num_outputs=count, axis=0, outputs=count))


def onnx_add_into(op, x, out):
    return op.Add(out, x)


def onnx_pop(op, queue, count, step):
    first = op.Gather(queue, 0, axis=0)
    rolled = op.Concat(op.Slice(queue, [step], [2**62], [0]), op.Slice(queue, [0], [step], [0]), axis=0)
    return first, rolled, op.Sub(count, 1)


def onnx_tuned(op, x, weights, bias):
    for weight in weights:
        x = op.Mul(x, weight)
    return x if bias is None else op.Add(x, bias)


def onnx_shift(op, x, by):
    return op.Add(x, by)


class Function(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


class TestOneExport(ExporterTestCase):
    """``to_onnx(..., translations=...)``."""

    def check(self, function, *args, translations, **options):
        return self.export_and_compare(
            Function(function),
            args,
            translations=translations,
            dynamic_shapes=tuple({0: "rows"} if x.dim() > 1 else None for x in args),
            others=[tuple(torch.cat([x, x]) if x.dim() > 1 else x for x in args)],
            **options,
        )

    def test_every_kind_of_key(self):
        keys = (
            scale,
            torch.ops.custom_lib.scale,
            torch.ops.custom_lib.scale.default,
            "custom_lib::scale",
        )
        for key in keys:
            with self.subTest(type(key)):
                self.check(lambda x: scale(x, 3.0), X, translations={key: onnx_scale})

    def test_defaults_come_from_the_schema(self):
        self.check(lambda x: scale(x), X, translations={scale: onnx_scale})

    def test_several_results_and_lists(self):
        self.check(lambda x: halves(x)[::-1], X, translations={halves: onnx_halves})
        model = self.export_and_compare(
            Function(lambda x: pieces(x, 3)), (X,), translations={pieces: onnx_pieces}
        )
        self.assertEqual(3, len(model.graph.output))

    def test_lists_and_absent_tensors(self):
        translations = {tuned: onnx_tuned}
        self.check(lambda x, w: tuned(x, [w, w]), X, torch.randn(4), translations=translations)
        self.check(lambda x, w: tuned(x, [w], bias=w), X, torch.randn(4), translations=translations)

    def test_it_wins_over_the_registry(self):
        model = to_onnx(
            lambda x: torch.relu(x),
            (X,),
            translations={torch.ops.aten.relu.default: lambda op, self: op.Max(self, 0.0)},
            optimize=False,
        )
        self.assertEqual(["Max"], [node.op_type for node in model.graph.node])

    def test_overloads(self):
        self.check(lambda x: shift(x, 1.5), X, translations={shift: onnx_shift})
        self.check(
            lambda x, y: shift(x, y), X, X, translations={torch.ops.custom_overloads.shift.tensor: onnx_shift}
        )
        self.check(
            lambda x, y: shift(x, y), X, X, translations={"custom_overloads::shift.tensor": onnx_shift}
        )
        with self.assertRaisesRegex(RuntimeError, "shift.tensor has no translation"):
            to_onnx(lambda x, y: shift(x, y), (X, X), translations={shift: onnx_shift})

    def test_another_domain(self):
        model = to_onnx(
            lambda x: scale(x),
            (X,),
            translations={scale: lambda op, x, factor: op.Scale(x, factor=factor, domain="my.domain")},
            target_opset={"": 20, "my.domain": 3},
        )
        self.assertEqual([("my.domain", "Scale")], [(node.domain, node.op_type) for node in model.graph.node])
        self.assertEqual(3, {entry.domain: entry.version for entry in model.opset_import}["my.domain"])


class TestWrites(ExporterTestCase):
    """Operators that write their arguments: the translation gives the new values."""

    def check(self, function, *args, translations):
        self.export_and_compare(Function(function), args, translations=translations)

    def test_a_whole_tensor(self):
        def function(x):
            total = torch.ones_like(x)
            add_into(x, total)
            add_into(x * 2, total)
            return total

        self.check(function, X, translations={add_into: onnx_add_into})

    def test_a_view_of_a_bigger_tensor(self):
        def function(x):
            total = torch.zeros(5, 4)
            add_into(x, total[1:4])
            add_into(x[:, 0], total.t()[2][:3])
            return total, total[2]

        self.check(function, X, translations={add_into: onnx_add_into})

    def test_a_name_given_before_the_write_sees_it(self):
        def function(x):
            total = torch.zeros(3, 4)
            row = total[1]
            add_into(x, total)
            return row + 1

        self.check(function, X, translations={add_into: onnx_add_into})

    def test_results_and_writes(self):
        def function(x):
            queue, count = x.clone(), torch.tensor(3)
            first = pop(queue, count, 1)
            second = pop(queue, count, 2)
            return first, second, queue, count

        self.check(function, X, translations={pop: onnx_pop})

    def test_an_in_place_overload_is_its_functional_twin(self):
        def function(x):
            y = x.clone()
            shift_ = torch.ops.custom_overloads.shift_
            shift_(y[0], 2.0)
            return shift_(y, 1.0) * y

        self.check(function, X, translations={shift: onnx_shift})


class TestRegistered(ExporterTestCase):
    """``@translates``: for all exports to come."""

    def register(self, *targets):
        def forget():
            for target in targets:
                TRANSLATIONS.pop(target, None)

        self.addCleanup(forget)
        return translates(*targets)

    def test_an_overload(self):
        self.register(torch.ops.custom_lib.scale.default)(onnx_scale)
        self.export_and_compare(Function(lambda x: scale(x, 3.0)), (X,))

    def test_a_name_before_the_operator_exists(self):
        self.register("custom_later::negate")(lambda op, x: op.Neg(x))

        @torch.library.custom_op("custom_later::negate", mutates_args=())
        def negate(x: torch.Tensor) -> torch.Tensor:
            return -x

        negate.register_fake(lambda x: torch.empty_like(x))
        self.export_and_compare(Function(lambda x: negate(x)), (X,))

    def test_twice(self):
        self.register(torch.ops.custom_lib.scale.default)(onnx_scale)
        with self.assertRaisesRegex(
            ValueError, r"custom_lib.scale.default is translated twice, first at .*:\d+"
        ):
            translates(torch.ops.custom_lib.scale.default)(onnx_scale)

    def test_a_misspelt_argument(self):
        with self.assertRaisesRegex(TypeError, r"has no argument \['factr'\]"):
            translates(torch.ops.custom_lib.scale.default)(lambda op, x, factr: x)


if __name__ == "__main__":
    unittest.main()
