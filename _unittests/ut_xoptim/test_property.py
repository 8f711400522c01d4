"""Random graphs of the operators that rules mention: optimized, they compute the same, and nothing is left to optimize."""

import unittest

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from _unittests.ut_xoptim.cases import check
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize
from experimental_experiment.xoptim.bisection import array_gap

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL

UNARY = ("Neg", "Relu", "Abs", "Sigmoid", "Tanh", "Identity", "Erf", "Softplus", "Floor")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5)


class Graphs:
    """Writes a random graph: *draw* chooses, the shape of every value is known."""

    def __init__(self, draw):
        self.draw = draw
        self.opset = self.pick(20, 20, 13, 23)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values = {"x": (2, 3, 4), "w": (4, 4), "b": (4,)}
        self.count = 0

    def pick(self, *choices):
        """One of these."""
        return self.draw(st.sampled_from(choices))

    def value(self, rank: int | None = None) -> str:
        """A float value, the last ones more often."""
        names = [name for name, shape in self.values.items() if rank is None or len(shape) >= rank]
        return self.pick(*names, *names[-3:])

    def write(self, operator: str, inputs: list[str], shape: tuple[int, ...], **attributes) -> str:
        """A node with one float result."""
        name = self.name("v")
        self.nodes.append(onnx.helper.make_node(operator, inputs, [name], **attributes))
        self.values[name] = shape
        return name

    def name(self, kind: str) -> str:
        """A name of its own, also among those of bodies."""
        self.count += 1
        return f"{kind}{self.count}"

    def constant(self, array) -> str:
        """An initializer, or a Constant node."""
        tensor = onnx.numpy_helper.from_array(np.asarray(array))
        name = self.name("c")
        if self.draw(st.booleans()):
            tensor.name = name
            self.initializers.append(tensor)
        else:
            self.nodes.append(onnx.helper.make_node("Constant", [], [name], value=tensor))
        return name

    def ints(self, *numbers: int) -> str:
        """A constant vector."""
        return self.constant(np.array(numbers, np.int64))

    # ---- one step each

    def unary(self):
        x = self.value()
        self.write(self.pick(*UNARY), [x], self.values[x])

    def number(self):
        x = self.value()
        c = self.constant(np.array(self.pick(*NUMBERS), np.float32).reshape([1] * self.pick(0, 1)))
        shape = self.values[x] or np.shape(np.zeros([1] * (len(self.values[x]))))
        inputs = [x, c] if self.draw(st.booleans()) else [c, x]
        if len(self.values[x]):
            self.write(self.pick(*BINARY), inputs, shape)

    def pair(self):
        x, y = self.value(), self.value()
        try:
            shape = np.broadcast_shapes(self.values[x], self.values[y])
        except ValueError:
            return
        if int(np.prod(shape)) <= 400:
            self.write(self.pick(*BINARY), [x, y], shape)

    def quotient(self):
        x = self.value()
        r = self.write("Exp", [self.write("Tanh", [x], self.values[x])], self.values[x])
        if self.draw(st.booleans()):
            self.write("Div", [x, r], self.values[x])
        else:
            self.write("Mul", [x, self.write("Reciprocal", [r], self.values[x])], self.values[x])

    def transpose(self):
        x = self.value()
        shape = self.values[x]
        perm = self.draw(st.permutations(range(len(shape))))
        if shape:
            self.write("Transpose", [x], tuple(shape[axis] for axis in perm), perm=perm)

    def reshape(self):
        x = self.value()
        size = int(np.prod(self.values[x]))
        divisor = self.pick(*(n for n in range(1, size + 1) if size % n == 0))
        shape = self.pick((size,), (divisor, size // divisor), (divisor, 1, size // divisor))
        given = list(shape)
        if self.draw(st.booleans()):
            given[self.pick(*range(len(given)))] = -1
        self.write("Reshape", [x, self.ints(*given)], shape)

    def unsqueeze(self):
        x = self.value()
        shape = self.values[x]
        if len(shape) < 5:
            axis = self.pick(*range(len(shape) + 1))
            self.write("Unsqueeze", [x, self.ints(axis)], (*shape[:axis], 1, *shape[axis:]))

    def squeeze(self):
        x = self.value()
        shape = self.values[x]
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        if ones:
            axis = self.pick(*ones)
            self.write("Squeeze", [x, self.ints(axis)], (*shape[:axis], *shape[axis + 1 :]))

    def expand(self):
        x = self.value()
        shape = self.values[x]
        spread = tuple(self.pick(1, 2) if size == 1 else size for size in shape)
        if shape and int(np.prod(spread)) <= 400:
            self.write("Expand", [x, self.ints(*spread)], spread)

    def slice(self):
        x = self.value(1)
        shape = self.values[x]
        axis = self.pick(*range(len(shape)))
        start = self.pick(0, 0, 1)
        end = self.pick(2, 3, 2**62)
        size = len(range(shape[axis])[start:end])
        if size:
            inputs = [x, self.ints(start), self.ints(end), self.ints(axis)]
            self.write("Slice", inputs, (*shape[:axis], size, *shape[axis + 1 :]))

    def concat(self):
        x = self.value(1)
        shape = self.values[x]
        same = [name for name, other in self.values.items() if other == shape]
        axis = self.pick(*range(len(shape)))
        inputs = [x, self.pick(*same)]
        if int(np.prod(shape)) <= 200:
            self.write("Concat", inputs, (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), axis=axis)

    def split(self):
        x = self.value(1)
        shape = self.values[x]
        axis = self.pick(*range(len(shape)))
        if shape[axis] < 2:
            return
        first = self.pick(*range(1, shape[axis]))
        names = [self.name("v"), self.name("v")]
        sizes = self.ints(first, shape[axis] - first)
        self.nodes.append(onnx.helper.make_node("Split", [x, sizes], names, axis=axis))
        for name, size in zip(names, (first, shape[axis] - first)):
            self.values[name] = (*shape[:axis], size, *shape[axis + 1 :])
        if self.draw(st.booleans()):
            self.write("Concat", names, shape, axis=axis)

    def gather(self):
        x = self.value(1)
        shape = self.values[x]
        axis = self.pick(*range(len(shape)))
        index = np.array(self.pick(0, shape[axis] - 1), np.int64)
        if self.draw(st.booleans()):
            self.write("Gather", [x, self.constant(index)], (*shape[:axis], *shape[axis + 1 :]), axis=axis)
        else:
            index = self.constant(index.reshape(1))
            self.write("Gather", [x, index], (*shape[:axis], 1, *shape[axis + 1 :]), axis=axis)

    def cast(self):
        x = self.value()
        kind = self.pick(INT64, BOOL, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT)
        other = self.name("k")
        self.nodes.append(onnx.helper.make_node("Cast", [x], [other], to=kind))
        self.write("Cast", [other], self.values[x], to=FLOAT)

    def where(self):
        x, y = self.value(), self.value()
        try:
            shape = np.broadcast_shapes(self.values[x], self.values[y])
        except ValueError:
            return
        if int(np.prod(shape)) > 400:
            return
        self.write("Where", [self.condition(x), x, y], shape)

    def condition(self, x: str) -> str:
        """Where a value is positive, or is not."""
        condition, other = self.name("k"), self.name("k")
        self.nodes.append(onnx.helper.make_node("Greater", [x, self.constant(np.float32(0))], [condition]))
        if self.draw(st.booleans()):
            return condition
        self.nodes.append(onnx.helper.make_node("Not", [condition], [other]))
        return other

    def matmul(self):
        x = self.value(2)
        shape = self.values[x]
        if shape[-1] == 4:
            self.write("MatMul", [x, "w"], shape)

    def reduce(self):
        x = self.value(1)
        shape = self.values[x]
        axis = self.pick(*range(len(shape)))
        kept = (*shape[:axis], 1, *shape[axis + 1 :])
        operator = self.pick("ReduceMean", "ReduceSum", "ReduceMax")
        keepdims = self.pick(0, 1)
        shape = kept if keepdims else (*shape[:axis], *shape[axis + 1 :])
        if self.opset < 18 and operator != "ReduceSum":
            self.write(operator, [x], shape, axes=[axis], keepdims=keepdims)
        else:
            self.write(operator, [x, self.ints(axis)], shape, keepdims=keepdims)

    def softmax(self):
        x = self.value(1)
        shape = self.values[x]
        self.write("Softmax", [x], shape, axis=self.pick(*range(len(shape))))

    def silu(self):
        x = self.value()
        shape = self.values[x]
        scaled = x
        if self.draw(st.booleans()):
            scaled = self.write("Mul", [x, self.constant(np.float32(1.5))], shape)
        self.write("Mul", [x, self.write("Sigmoid", [scaled], shape)], shape)

    def norm(self):
        """Of the last axis, with a mean or without, with a scale or without, of a sum or not."""
        x = self.value(2)
        shape = self.values[x]
        if self.draw(st.booleans()):
            x = self.write(
                "Add", [x, self.pick(*(name for name, other in self.values.items() if other == shape))], shape
            )
        if self.draw(st.booleans()):
            x = self.write("Sub", [x, self.mean(x)], shape)
        square = self.write("Mul", [x, x], shape) if self.draw(st.booleans()) else None
        square = square or self.write("Pow", [x, self.constant(np.float32(2))], shape)
        mean = self.mean(square)
        root = self.write("Add", [mean, self.constant(np.float32(1e-2))], self.values[mean])
        root = self.write("Sqrt", [root], self.values[mean])
        result = self.write("Div", [x, root], shape)
        if shape[-1] == 4 and self.draw(st.booleans()):
            self.write("Mul", ["b", result], shape)

    def mean(self, x: str) -> str:
        """The mean of the last axis, which stays."""
        shape = (*self.values[x][:-1], 1)
        if self.opset < 18:
            return self.write("ReduceMean", [x], shape, axes=[-1])
        return self.write("ReduceMean", [x, self.ints(-1)], shape)

    def branches(self):
        """An If of a body that reads outer values, and a constant of the same sizes."""
        total = self.name("k")
        self.nodes.append(onnx.helper.make_node("ReduceSum", ["x"], [total], keepdims=0))
        condition = self.condition(total)
        then, result = self.body([], {}, None)
        zeros = onnx.numpy_helper.from_array(np.zeros(result[1], np.float32))
        other = self.name("o")
        otherwise = onnx.helper.make_graph(
            [onnx.helper.make_node("Constant", [], [other], value=zeros)],
            "otherwise",
            [],
            [typed(other, result[1])],
        )
        self.write("If", [condition], result[1], then_branch=then, else_branch=otherwise)

    def turns(self):
        """A Loop of a body that carries a value, two turns, reading outer values."""
        carried = self.value()
        shape = self.values[carried]
        go, inner, counter = self.name("k"), self.name("v"), self.name("k")
        inputs = [
            onnx.helper.make_tensor_value_info(counter, INT64, []),
            onnx.helper.make_tensor_value_info(go, BOOL, []),
            typed(inner, shape),
        ]
        body, _ = self.body(inputs, {inner: shape}, shape)
        again = self.name("k")
        body.node.append(onnx.helper.make_node("Identity", [go], [again]))
        body.output.insert(0, onnx.helper.make_tensor_value_info(again, BOOL, []))
        self.write("Loop", [self.constant(np.array(2)), "", carried], shape, body=body)

    def rows(self):
        """A Scan of a body that takes one row after the other, reading outer values."""
        x = self.value(2)
        count, *shape = self.values[x]
        inner = self.name("v")
        body, (_, result) = self.body([typed(inner, shape)], {inner: tuple(shape)}, None)
        self.write("Scan", [x], (count, *result), body=body, num_scan_inputs=1)

    def body(
        self,
        inputs: list[onnx.ValueInfoProto],
        given: dict[str, tuple[int, ...]],
        shape: tuple[int, ...] | None,
    ) -> tuple[onnx.GraphProto, tuple]:
        """A graph of a few steps, which sees also what is *given*; its result has this shape, any one when None. And the result with its shape."""
        nodes, values = self.nodes, dict(self.values)
        self.nodes = []
        self.values.update(given)
        for _ in range(self.pick(1, 2, 3, 4)):
            self.pick(*self.STEPS)(self)
        names = [name for name, other in self.values.items() if shape is None or other == shape]
        result = self.write("Tanh", [names[-1]], self.values[names[-1]])
        found = result, self.values[result]
        graph = onnx.helper.make_graph(self.nodes, self.name("body"), inputs, [typed(*found)])
        self.nodes, self.values = nodes, values
        return graph, found

    STEPS = (
        unary, unary, number, number, pair, pair, quotient, transpose, transpose, reshape, reshape, unsqueeze, squeeze, expand,
        slice, slice, concat, split, gather, cast, where, matmul, reduce, softmax, silu, norm,
    )  # fmt: skip

    BODIES = branches, turns, rows

    def model(self, steps: int) -> onnx.ModelProto:
        """The model after so many steps; two of its values are outputs, one of them the last."""
        if self.draw(st.booleans()):  # a value whose rank is unknown
            self.write("Reshape", ["x", "s"], self.values["x"])
        for _ in range(steps):
            self.pick(*self.STEPS, *self.STEPS, *self.BODIES)(self)
        written = [name for name in self.values if name not in ("x", "w", "b")]
        names = dict.fromkeys([written[-1], self.pick(*written)] if written else [])
        outputs = [
            onnx.helper.make_tensor_value_info(name, FLOAT, [None] * len(self.values[name])) for name in names
        ]
        shape = self.pick(("N", 3, 4), (2, 3, 4), ("N", "M", "K"))
        inputs = [
            onnx.helper.make_tensor_value_info("x", FLOAT, shape),
            onnx.helper.make_tensor_value_info("s", INT64, ["R"]),
        ]
        weights = np.random.default_rng(0)
        for name in ("w", "b"):
            array = weights.normal(size=self.values[name]).astype(np.float32)
            self.initializers.append(onnx.numpy_helper.from_array(array, name))
        graph = onnx.helper.make_graph(self.nodes, "g", inputs, outputs, self.initializers)
        return onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=10
        )


def typed(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    """A result of a body, of unknown sizes."""
    return onnx.helper.make_tensor_value_info(name, FLOAT, [None] * len(shape))


@st.composite
def models(draw):
    """A random model."""
    return Graphs(draw).model(draw(st.integers(1, 14)))


class TestProperty(unittest.TestCase):
    @settings(
        max_examples=100,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(models())
    def test_same_results_and_a_fixed_point(self, model):
        if not model.graph.output:
            return
        report = Report()
        for patterns in ("default", "default+onnxruntime"):
            optimized = optimize(model, OptimizationOptions(patterns), report=report)
            check(optimized, full_check=True)
            x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
            feeds = {"x": x, "s": np.array([2, 3, 4])}
            expected, got = (session(item).run(None, feeds) for item in (model, optimized))
            for a, b in zip(expected, got, strict=True):
                self.assertTrue(array_gap(a, b, 1e-5)[1], f"{onnx.printer.to_text(model)}\n{report}")
            again = Report()
            optimize(optimized, OptimizationOptions(patterns), report=again)
            self.assertEqual([], again.applications, onnx.printer.to_text(optimized))


if __name__ == "__main__":
    unittest.main()
