"""Views and writes: the laws of every lens, and programs that write through views, checked against eager."""

import io
import itertools
import logging
import unittest

import onnx
import onnx_ir as ir
import torch
from onnx.reference import ReferenceEvaluator

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, registry, to_onnx
from experimental_experiment.torch_interpreter.emitter import Context, Emitter
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.storage import Viewed, lens_of

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


class Node:
    """What a lens reads of an FX node: its value, and the viewed node among its arguments."""

    def __init__(self, value, *args):
        self.args = args
        self.meta = {"val": value}


LENSES = {
    "_reshape_alias": (aten._reshape_alias.default, [[4, 3], [3, 1]]),
    "alias": (aten.alias.default, []),
    "as_strided": (aten.as_strided.default, [[2, 2], [4, 1], 1]),
    "chunk": (aten.chunk.default, [2, 1]),
    "detach": (aten.detach.default, []),
    "diagonal": (aten.diagonal.default, [1]),
    "diagonal below": (aten.diagonal.default, [-1, 1, 0]),
    "expand": (aten.expand.default, [[1, -1, 4]]),
    "flatten": (aten.flatten.using_ints, []),
    "hsplit": (aten.hsplit.int, [2]),
    "hsplit at": (aten.hsplit.array, [[1, 3]]),
    "linalg_diagonal": (aten.linalg_diagonal.default, []),
    "mT": (aten.mT.default, []),
    "movedim": (aten.movedim.int, [0, 1]),
    "movedim of axes": (aten.movedim.intlist, [[0], [-1]]),
    "narrow": (aten.narrow.default, [1, -3, 2]),
    "numpy_T": (aten.numpy_T.default, []),
    "permute": (aten.permute.default, [[1, 0]]),
    "ravel": (aten.ravel.default, []),
    "reshape": (aten.reshape.default, [[2, -1]]),
    "select": (aten.select.int, [0, 1]),
    "select the last": (aten.select.int, [1, -1]),
    "slice": (aten.slice.Tensor, [0, 1, 3]),
    "slice from the end": (aten.slice.Tensor, [1, -3, -1]),
    "slice with a step": (aten.slice.Tensor, [1, 0, None, 2]),
    "slice that is empty": (aten.slice.Tensor, [0, 2, 1]),
    "slice that is empty, from the end": (aten.slice.Tensor, [0, -1, 1]),
    "slice of everything": (aten.slice.Tensor, [0, 0, None]),
    "split": (aten.split.Tensor, [3, 1]),
    "split into sizes": (aten.split.sizes, [[1, 2], 0]),
    "split_with_sizes": (aten.split_with_sizes.default, [[1, 3], 1]),
    "unsafe_split": (aten.unsafe_split.Tensor, [3, 1]),
    "unsafe_split_with_sizes": (aten.unsafe_split_with_sizes.default, [[1, 3], 1]),
    "squeeze": (aten.squeeze.default, []),
    "squeeze an axis": (aten.squeeze.dim, [0]),
    "squeeze axes": (aten.squeeze.dims, [[0, 1]]),
    "swapaxes": (aten.swapaxes.default, [0, 1]),
    "swapdims": (aten.swapdims.default, [0, 1]),
    "t": (aten.t.default, []),
    "tensor_split": (aten.tensor_split.sections, [3, 1]),
    "tensor_split at": (aten.tensor_split.indices, [[1, 3], 1]),
    "transpose": (aten.transpose.int, [0, -1]),
    "unbind": (aten.unbind.int, [1]),
    "unflatten": (aten.unflatten.int, [1, [2, -1]]),
    "unfold": (aten.unfold.default, [1, 2, 2]),
    "unsqueeze": (aten.unsqueeze.default, [1]),
    "view": (aten.view.default, [[4, 3]]),
    "vsplit": (aten.vsplit.int, [3]),
    "vsplit at": (aten.vsplit.array, [[1]]),
}
"""View operators with their arguments after a 3 x 4 tensor (a 1 x 4 one for squeeze)."""


class TestLaws(unittest.TestCase):
    """get(put(b, v)) = v; put(b, get(b)) = b; put(put(b, v), w) = put(b, w); put(b, v) is what torch leaves in b."""

    def evaluate(self, op, inputs, outputs):
        """The values of *outputs* for the tensors *inputs*, in the reference evaluator."""
        op.graph.outputs.extend(op.copy(value) for value in outputs)
        model = ir.to_proto(ir.Model(op.graph, ir_version=9))
        feeds = {value.name: tensor.numpy() for value, tensor in zip(op.graph.inputs, inputs)}
        return [torch.from_numpy(array) for array in ReferenceEvaluator(model).run(None, feeds)]

    def check(self, target, arguments, position):
        """The laws for one result of one view operator."""
        rows = 1 if "squeeze." in str(target) else 3
        base = floats(rows, 4)
        eager = base.clone()
        result = target(eager, *arguments)
        view = result if position is None else result[position]
        first, second = -1 - floats(*view.shape), 100 + floats(*view.shape)
        view.copy_(first)

        graph = ir.Graph([], [], nodes=[], name="laws", opset_imports={"": 20})
        op = Emitter(graph, Context(graph, 20))
        tensors = [base, first, second]
        for name, tensor in zip("bvw", tensors):
            kind = ir.TensorType(ir.DataType.FLOAT)
            graph.inputs.append(ir.Value(name=name, type=kind, shape=ir.Shape(tensor.shape)))
        b, v, w = graph.inputs
        translation = registry.TRANSLATIONS[target]
        given = registry.bind(target, translation, [b, *arguments], {})
        viewed = Node(base)
        place = Viewed(viewed, translation.names[0])
        lens = lens_of(translation, Node(result, viewed), target, given, place, position=position)
        put = lens.put(op, b, v)
        laws = [
            put,
            lens.get(op, put),
            lens.put(op, b, lens.get(op, b)),
            lens.put(op, put, w),
            lens.put(op, b, w),
        ]
        put, got, same, twice, once = self.evaluate(op, tensors, laws)
        self.assertTrue(torch.equal(put, eager), f"put leaves {put}, torch {eager}")
        self.assertTrue(torch.equal(got, first), "get(put(b, v)) = v")
        self.assertTrue(torch.equal(same, base), "put(b, get(b)) = b")
        self.assertTrue(torch.equal(twice, once), "put(put(b, v), w) = put(b, w)")

    def test_laws(self):
        for promise, (target, arguments) in LENSES.items():
            result = target(floats(1 if "squeeze." in str(target) else 3, 4), *arguments)
            positions = range(len(result)) if isinstance(result, (list, tuple)) else [None]
            for position in positions:
                with self.subTest(promise, position=position):
                    self.check(target, arguments, position)


def stale(x):
    """Views made before a write, read and written after it."""
    y = x.clone()
    row, column = y[0], y.t()[1]
    y.add_(1)
    row.mul_(2)
    column.sub_(3)
    return y, row, column


def transposed(x):
    """A row of the transposed tensor."""
    y = x * 1
    y.t()[0].add_(5)
    return y


def slices(x):
    """Slices, steps, the end."""
    y = x.clone()
    y[:, 1:3] = x[:, 2:4]
    y[::2] = 0
    y[1::2, -1] = 5
    y[-2:] += 1
    y[2:1] = 7
    y[-1:1] = 8
    y[3:] = 9
    return y


def tensors_as_indices(x):
    """Positions and masks."""
    y = x.clone()
    y[..., torch.tensor([0, 2])] = x[:, 1:3]
    y[torch.tensor([0, 0]), 1] += 10
    y[y > 5] = -1
    y[0][y[0] < 0] = 3
    return y


def pieces(x):
    """Pieces of unbind, split, chunk, tensor_split."""
    y = x.clone()
    a, b, c = y.unbind(0)
    b.zero_()
    a.copy_(c)
    left, right = y.split(2, 1)
    right.fill_(7)
    left += 1
    first, second = y.chunk(2, 0)
    second.mul_(first[:1])
    y.tensor_split(2, 1)[0][0] = 4
    return y, a, b, left


def metadata(x):
    """t_, unsqueeze_, squeeze_, transpose_: every name of the tensor sees them, its older views do not."""
    y = x.clone()
    same, row = y, y[0]
    y.t_()
    row.add_(1)
    y[0].mul_(2)
    y.unsqueeze_(0)
    y[:, 1].zero_()
    y.squeeze_()
    y.transpose_(0, 1)
    y.swapaxes_(0, 1).swapdims_(1, 0)
    y.as_strided_((2, 2), (1, 4))
    y.sub_(2)
    return y, same + 0, row


def shapes(x):
    """flatten, view, unflatten, narrow, movedim, unfold, diagonal, squeeze."""
    y = x.clone()
    y.flatten()[1:7:2] = 0
    y.view(-1)[0] = 9
    y.unflatten(1, (2, -1))[:, 0] = 4
    y.narrow(0, 1, 1).mul_(3)
    y.movedim(0, 1)[1].add_(1)
    y.unfold(1, 2, 2)[..., 0].sub_(8)
    y.diagonal(1).fill_(3)
    y[None].squeeze(0)[2].neg_()
    y.select(1, -2).fill_(1)
    y.expand_as(x).contiguous().detach()[0].add_(2)
    return y


def memory(x):
    """as_strided."""
    y = x.clone()
    y.as_strided((2, 2), (1, 2), 1).zero_()
    return y


def expanded(x):
    """An expanded tensor reads what is written to the only element."""
    y = torch.zeros(1, 1)
    z = y.expand(2, 3)
    y.add_(3)
    return z + x.sum()


def out(x):
    """out= overloads, into a tensor and into a view."""
    y = torch.empty(x.shape)
    torch.add(x, 1, out=y)
    torch.mul(x[0], 2, out=y[0])
    z = torch.zeros(2, *x.shape, dtype=torch.float64)
    torch.sub(x, 1, out=z[1])
    return y, z


def casts(x):
    """What is written takes the dtype of the storage; a cast that changes nothing is the tensor itself."""
    y = x.clone()
    y[0] = torch.tensor(3)
    y.to(torch.float32).add_(1)
    y.double().add_(1)
    z = torch.zeros(3, dtype=torch.int64)
    z[1] = 2.9
    z.copy_(x[:, 0])
    return y, z


def dropped(x):
    """A dropout that drops nothing returns its input."""
    y = x.clone()
    z = torch.nn.functional.dropout(y, 0.5, False)
    z += 1
    return y, z


def written_input(x):
    """An input of the model."""
    x.add_(1)
    x[0] = 3
    return x * 2


def symbolic(x, other):
    """Bounds that are sizes."""
    y = x.clone()
    n = other.shape[0]
    y[:n] = 0
    y[-n:] += 1
    y[:, n:].mul_(n)
    y.narrow(1, n - 1, 1).sub_(3)
    y.view(-1)[: n + 1].neg_()
    return y


def index_operators(x):
    """In-place operators that index."""
    y = x.clone()
    y.index_fill_(1, torch.tensor([0]), 5)
    y.index_add_(0, torch.tensor([1, 1]), x[:2])
    y.index_copy_(0, torch.tensor([2]), x[:1])
    y.scatter_(1, torch.tensor([[1], [2], [0]]), 0.5)
    y.masked_fill_(y > 8, -1)
    y.t().index_put_((torch.tensor([3]),), torch.tensor(6.0))
    y.tril_()
    y[1].fill_diagonal_(3) if y[1].dim() > 1 else y.fill_diagonal_(3)
    return y


PROGRAMS = (
    stale,
    transposed,
    slices,
    tensors_as_indices,
    pieces,
    metadata,
    shapes,
    memory,
    expanded,
    out,
    casts,
    dropped,
    written_input,
    index_operators,
)


class Counter(torch.nn.Module):
    """A module that writes two buffers, one of them through a view."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        self.total[:2].add_(x[:2])
        return self.total * self.calls


class TestPrograms(ExporterTestCase):
    def setUp(self):
        super().setUp()
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)

    def test_same_as_eager(self):
        for program in PROGRAMS:
            with self.subTest(program.__name__):
                self.assert_same_as_eager(program, floats(3, 4) - 3, dynamic=program is not metadata)

    def test_symbolic_bounds_on_other_sizes(self):
        others = [(floats(5, 7), floats(4)), (floats(7, 3), floats(2))]
        self.assert_same_as_eager(symbolic, floats(3, 4), floats(2), others=others)

    def test_a_program_loaded_from_a_file(self):
        class Model(torch.nn.Module):
            def __init__(self, program):
                super().__init__()
                self.program = program

            def forward(self, x):
                return self.program(x)

        for program in PROGRAMS:
            with self.subTest(program.__name__):
                x = floats(3, 4) - 3
                file = io.BytesIO()
                torch.export.save(torch.export.export(Model(program), (x.clone(),)), file)
                file.seek(0)
                model = to_onnx(torch.export.load(file))
                onnx.checker.check_model(model, full_check=True)
                self.assert_matches(model, Model(program), (x,))

    def test_buffers_that_are_written(self):
        self.export_and_compare(Counter(), (floats(3),))
        model = to_onnx(Counter(), (floats(3),), mutated_buffers="outputs")
        self.assertEqual([value.name for value in model.graph.input], ["x", "total", "calls"])
        total, calls = floats(3), torch.tensor(4)
        result, new_total, new_calls = run(session(model), [floats(3), total, calls])
        expected = torch.tensor([0.0, 2.0, 2.0])
        self.assertTrue(torch.equal(new_total, expected))
        self.assertEqual(int(new_calls), 5)
        self.assertTrue(torch.equal(result, expected * 5))

    def test_buffer_of_a_module_that_stands_twice_is_one_input(self):
        counter = Counter()
        for strict, name in ((False, "0.total"), (True, "2.total")):
            with self.subTest(strict=strict):
                model = to_onnx(
                    torch.nn.Sequential(counter, torch.nn.ReLU(), counter),
                    (floats(3),),
                    mutated_buffers="outputs",
                    export_options=ExportOptions(strict=strict),
                    verify=True,
                )
                names = [value.name for value in (*model.graph.input, *model.graph.output)]
                self.assertEqual([name, f"{name}_out"], [each for each in names if "total" in each])

    def test_attributes_that_are_written(self):
        """They go in and out as buffers do: what a call leaves is read by the next one."""

        class Count(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = torch.zeros(1)

            def forward(self, x):
                return x * self.calls.add_(1)

        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = Count(), Count()

            def forward(self, x):
                return self.second(self.first(x))

        model = to_onnx(Both(), (floats(3),), mutated_buffers="outputs")
        names = [value.name for value in model.graph.input]
        self.assertEqual(["x", "first.calls", "second.calls"], names)
        self.assertEqual(
            ["output", "first.calls_out", "second.calls_out"], [value.name for value in model.graph.output]
        )
        eager, state = Both(), [torch.zeros(1), torch.zeros(1)]
        for turn in range(3):
            result, *state = run(session(model), [floats(3) + turn, *state])
            self.assertTrue(torch.equal(result, eager(floats(3) + turn)))

    def test_a_written_buffer_beside_others_of_its_name(self):
        class Mean(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(3))

            def forward(self, x):
                self.mean.add_(x)
                return {"y": x * 2, "mean": self.mean.clone()}

        class Argument(Mean):
            def forward(self, mean):
                return super().forward(mean)["mean"]

        for module, inputs, outputs in (
            (Mean(), ["x", "mean"], ["y", "mean_out", "mean_out_1"]),
            (Argument(), ["mean", "mean_1"], ["output", "mean_1_out"]),
        ):
            with self.subTest(inputs):
                model = to_onnx(module, (floats(3),), mutated_buffers="outputs")
                self.assertEqual(inputs, [value.name for value in model.graph.input])
                self.assertEqual(outputs, [value.name for value in model.graph.output])
                *_, new = run(session(model), [floats(3), torch.ones(3)])
                self.assertTrue(torch.equal(floats(3) + 1, new))

    def test_a_tensor_that_was_a_buffer_keeps_its_elements(self):
        class Delay(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", floats(3))
                self.register_buffer("count", torch.tensor(2))

            def forward(self, x):
                before, count = self.seen, self.count
                self.seen, self.count = self.seen * 0.5 + x, self.count + 1
                return before, before[1:], self.seen, count, {"more": self.count}

        self.export_and_compare(Delay(), (floats(3),))
        model = to_onnx(Delay(), (floats(3),), mutated_buffers="outputs")
        results = run(session(model), [floats(3), floats(3) + 1, torch.tensor(5)])
        new = floats(3) * 1.5 + 0.5
        for expected, found in zip(
            [floats(3) + 1, floats(3)[1:] + 1, new, 5, 6, new, 6], results, strict=True
        ):
            self.assertTrue(torch.equal(torch.as_tensor(expected), found))
        file = io.BytesIO()
        torch.export.save(torch.export.export(Delay(), (floats(3),)), file)
        file.seek(0)
        self.assert_matches(to_onnx(torch.export.load(file)), Delay(), (floats(3),))

        class Overwritten(Delay):
            def forward(self, x):
                before = self.seen
                self.seen.copy_(x * 2)
                return before

        self.export_and_compare(Overwritten(), (floats(3),))

    def test_a_view_of_what_was_a_buffer_is_given_to_another_one(self):
        class Shifted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("rows", torch.arange(6.0).view(2, 3))
                self.register_buffer("last", floats(3))

            def forward(self, x):
                rows = self.rows
                self.rows, self.last = torch.stack([x, rows[0]]), rows[1]
                return x + rows.sum(0)

        model = to_onnx(Shifted(), (floats(3),), mutated_buffers="outputs")
        names = [value.name for value in model.graph.input]
        inner, eager = session(model), Shifted()
        held = {name: dict(eager.named_buffers())[name].clone() for name in names[1:]}
        for x in (floats(3), floats(3) * 2, floats(3) - 5):
            found = run(inner, [x, *held.values()])
            held = dict(zip(held, found[1:], strict=True))
            self.assertTrue(torch.equal(eager(x), found[0]))
            for name, value in eager.named_buffers():
                self.assertTrue(torch.equal(value, held[name]), name)

    def test_a_buffer_that_grows(self):
        class Growing(torch.nn.Module):
            def __init__(self, rows):
                super().__init__()
                self.register_buffer("seen", torch.zeros(rows, 3))

            def forward(self, x):
                self.seen = torch.cat([self.seen, x])
                return x + self.seen.sum(0)

        logging.disable(logging.NOTSET)
        x, rows = torch.randn(2, 3), ({0: "rows"},)
        for length, shapes in itertools.product((0, 1, 2), (None, rows)):
            with self.subTest(length=length, shapes=shapes):
                with self.assertLogs("experimental_experiment", "WARNING") as logged:
                    self.export_and_compare(Growing(length), (x,), dynamic_shapes=shapes)
                self.assertIn("the model writes seen: the new values are not part", logged.output[0])
                words = rf"the buffer seen is given a tensor of another shape, float32\[.*, 3\] for float32\[{length}, 3\]: the input would not take it"
                with self.assertRaisesRegex(ExportError, words):
                    to_onnx(Growing(length), (x,), dynamic_shapes=shapes, mutated_buffers="outputs")

    def test_a_submodule_that_gives_its_buffer_another_tensor(self):
        class Remembering(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", floats(3))

            def forward(self, x):
                self.seen = self.seen * 0.5 + x
                return self.seen * 2

        model = torch.nn.Sequential(Remembering())
        logging.disable(logging.NOTSET)
        with self.assertLogs("experimental_experiment", "WARNING") as logged:
            self.export_and_compare(model, (floats(3),))
        self.assertIn("the model writes 0.seen: the new values are not part", logged.output[0])
        words = "the new value of the buffer 0.seen is lost: torch.export does not follow a submodule that gives its buffer"
        with self.assertRaisesRegex(ExportError, words):
            to_onnx(model, (floats(3),), mutated_buffers="outputs")

    def test_a_literal_is_no_buffer(self):
        """Each call makes its own copy of ``torch.tensor([1, 2])``: what is written into it is lost in eager too."""

        class Literal(torch.nn.Module):
            def forward(self, x):
                factors = torch.tensor([1.0, 2.0, 3.0])
                factors.mul_(3)
                factors[1] = x.sum()
                return x * factors

        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(Literal(), (floats(3),), others=[(floats(3) + 1,)])
        model = to_onnx(Literal(), (floats(3),), mutated_buffers="outputs")
        self.assertEqual((1, 1), (len(model.graph.input), len(model.graph.output)))

    def test_a_functionalized_program_returns_what_it_writes(self):
        class Written(Counter):
            def forward(self, x):
                x.mul_(2)
                return super().forward(x)

        program = torch.export.export(Written(), (floats(3),)).run_decompositions({})
        model = to_onnx(program)
        self.assertEqual([value.name for value in model.graph.output], ["output"])
        self.assert_matches(model, Written(), (floats(3),))
        model = to_onnx(program, mutated_buffers="outputs")
        self.assertEqual([value.name for value in model.graph.input], ["x", "total", "calls"])
        module = Written()
        module.total.copy_(floats(3))
        results = run(session(model), [floats(3), floats(3), module.calls])
        x = floats(3)
        expected = {"output": module(x), "total_out": module.total, "calls_out": module.calls, "x_out": x}
        for value, result in zip(model.graph.output, results, strict=True):
            self.assertTrue(torch.equal(result, expected[value.name]), value.name)

    def test_a_view_that_cannot_be_read_names_its_line(self):
        def outside(x):
            y = x.clone()
            row = y[1:].as_strided((2,), (1,), 0)
            y.add_(1)
            return row

        def behind(x):
            return x.clone()[0].as_strided((3, 2), (2, 1))

        for function in (outside, behind):
            with (
                self.subTest(function.__name__),
                self.assertRaisesRegex(
                    ExportError, r"as_strided.*the tensor does not have\n  node   %as_strided"
                ),
            ):
                self.assert_same_as_eager(function, floats(3, 4), dynamic=False)


class TestRegistry(unittest.TestCase):
    def test_every_put_has_a_law(self):
        checked = {target for target, _ in LENSES.values()}
        like_alias = {t for t, put in registry.PUTS.items() if put is registry.PUTS[aten.alias.default]}
        left = set(registry.PUTS) - checked - like_alias - SAME_AS_ANOTHER
        self.assertEqual({str(target) for target in left}, set())


SAME_AS_ANOTHER = {
    aten._unsafe_view.default,
    aten.adjoint.default,
    aten.atleast_1d.default,
    aten.atleast_2d.default,
    aten.atleast_3d.default,
    aten.broadcast_to.default,
    aten.dsplit.array,
    aten.dsplit.int,
    aten.expand_as.default,
    aten.mH.default,
    aten.matrix_H.default,
    aten.moveaxis.int,
    aten.moveaxis.intlist,
    aten.reshape_as.default,
    aten.resize.default,
    aten.resize_as.default,
    aten.view.dtype,
    aten.view_as.default,
    aten.view_as_complex.default,
}
"""Puts registered together with one that has a law, or that need more than a matrix of real numbers."""


if __name__ == "__main__":
    unittest.main()
