"""Files that other exporters write: their interface, their constants, their functions stay what they are."""

import os
import tempfile
import unittest

import numpy as np
import onnx
import onnx.helper as oh
import onnx_ir as ir

from _unittests.ut_xoptim.cases import drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.protos import PRODUCER, load, to_proto, type_of
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.xoptim import OptimizationOptions, bisect, optimize, quantize_weights

FLOAT, INT64, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING
ML = "ai.onnx.ml"


def model_of(nodes, inputs, outputs, opset=18, ir_version=9, domains=(), **more):
    """A model that is not checked."""
    imports = [oh.make_opsetid("", opset), *(oh.make_opsetid(domain, 1) for domain in domains)]
    graph = oh.make_graph(nodes, "g", inputs, outputs, **more)
    return oh.make_model(graph, opset_imports=imports, ir_version=ir_version)


def tensor(name, dtype, shape):
    return oh.make_tensor_value_info(name, dtype, shape)


class TestForeignFiles(unittest.TestCase):
    def same(self, model, *feeds):
        """The optimized model: the same results, the same interface; twice is once."""
        optimized = optimize(model)
        for item in feeds or (drawn(model),):
            np.testing.assert_equal(
                session(model).run(None, item), session(optimized).run(None, item), f"{item}"
            )
        self.assertEqual(
            ([*model.graph.input], [*model.graph.output]),
            ([*optimized.graph.input], [*optimized.graph.output]),
        )
        self.assertEqual(optimized, optimize(optimized))
        return optimized

    def test_the_value_of_an_input_that_has_a_default_is_open(self):
        model = parsed(
            "agraph (float[2,3] x, int64[2] s) => (float[N,M] y) <int64[2] s = {2, 3}> { r = Relu(x) y = Reshape(r, s) }"
        )
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        optimized = self.same(model, {"x": x}, {"x": x, "s": np.array([3, 2])})
        self.assertEqual(["s"], [item.name for item in optimized.graph.initializer])

    def test_a_number_for_a_size_that_is_dynamic(self):
        """torch writes the length of the example behind an LSTM: what stands behind its node takes any length."""
        weights = "float[1,2,2] w = {1, 2, 3, 4}"
        text = (
            f"agraph (float[length,batch,2] x) => (int64[1] y, float[length,1,batch,2] z) <float[7,1,batch,2] r, {weights}> "
            "{ r = RNN<hidden_size=2>(x, w, w) y = Shape<start=0, end=1>(r) z = Neg(r) }"
        )
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
        feeds = [{"x": np.ones((length, 3, 2), np.float32)} for length in (7, 5)]
        optimized = self.same(model, *feeds)
        self.assertIn("Shape", operators(optimized))

    def test_the_name_of_a_size_of_an_output_that_is_read(self):
        """A cache that grows: the name that a file gives to the output alone may be wrong, one that what reads it has is not."""
        repeated = ["Concat", "Unsqueeze", "Expand", "Reshape", "Transpose", "MatMul"]
        grouped = ["Concat", "Transpose", "Reshape", "MatMul", "Reshape"]
        for told, expected in (("past + new", grouped), ("more", repeated)):
            known = f'float[1,2,1,"{told}",8] u, float[1,2,2,"{told}",8] e, float[1,4,"{told}",8] r, float[1,4,8,"{told}"] k'
            text = (
                "agraph (float[1,4,new,8] q, float[1,2,past,8] x, float[1,2,new,8] t) => "
                '(float[1,2,"past + new",8] present, float[1,4,new,"past + new"] y) '
                f"<int64[1] two={{2}}, int64[5] sizes={{1,1,2,1,1}}, int64[4] joined={{1,4,-1,8}}, {known}> {{ "
                "present = Concat<axis=2>(x, t) u = Unsqueeze(present, two) e = Expand(u, sizes) r = Reshape(e, joined) "
                "k = Transpose<perm=[0,1,3,2]>(r) y = MatMul(q, k) }"
            )
            with self.subTest(told):
                feeds = [{"q": (4, new), "x": (2, past), "t": (2, new)} for new, past in ((1, 3), (2, 2))]
                numbers = [
                    {key: np.ones((1, *rows, 8), np.float32) for key, rows in item.items()} for item in feeds
                ]
                model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
                self.assertEqual(expected, operators(self.same(model, *numbers)))

    def test_inputs_whose_sizes_were_changed_alone(self):
        """As scripts do that make a model take batches: what was inferred for one sample stays in the file."""
        cases = {
            "a part": "a = Neg(x) s = Slice(a, zero, one, zero) y = Exp(s)",
            "a sum": "a = Neg(x) s = ReduceSum<keepdims=1>(a, zero) y = Exp(s)",
            "a part of what is not told": "r = Relu(x) a = Neg(r) s = Slice(a, zero, one, zero) y = Exp(s)",
            "a transposition": "a = Neg(x) u = Unsqueeze(a, one) t = Transpose<perm=[2, 1, 0]>(u) y = Exp(t)",
            "a body": """a = Neg(x) y, ys = Loop(two, true, a)<body = b (int64 i, bool go, float[1,4] v) => (bool on, float[1,4] w, float[1,4] p) {
                on = Identity(go) w = Abs(v) p = Slice(w, zero, one, zero) }>""",
        }
        known = "int64[1] zero = {0}, int64[1] one = {1}, int64 two = {2}, bool true = {1}"
        told = "float[1,4] a, float[1,4] s, float[1,1,4] u, float[4,1,1] t"
        for promise, nodes in cases.items():
            for size, samples in (("N", (1, 3)), ("?", (1, 3)), ("unk__7", (1, 3)), ("3", (3,))):
                result = "float[K,L,M] ys" if "ys" in nodes else "float[] y"
                text = f"agraph (float[{size},4] x) => ({result}) <{known}, {told}> {{ {nodes} }}"
                model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
                with self.subTest(promise, size=size):
                    self.same(model, *({"x": np.ones((count, 4), np.float32)} for count in samples))

    def test_sizes_that_only_a_part_of_a_file_contradicts(self):
        """A node or a constant was changed, or the sizes are those of one sample in bodies and functions alone."""
        known = "int64[1] zero = {0}, int64[1] one = {1}, int64 two = {2}, bool true = {1}"
        cut = "a = Neg(x) s = Slice(a, zero, one, zero)"
        constants = "zero = Constant<value_ints=[0]>() one = Constant<value_ints=[1]>()"
        function = f'<opset_import: ["": 18], domain: "f"> cut (x) => (s) <float[1,4] x, float[1,4] a> {{ {constants} {cut} }}'
        cases = {
            "a node inside": (f"<{known}, float[N,4] r, float[1,4] a> {{ r = Relu(x) a = Neg(r) s = Slice(a, zero, one, zero) y = Exp(s) }}", ""),
            "a branch": (f"<{known}> {{ y = If(true)<then_branch = t () => (float[K,L] s) <float[1,4] a> {{ {cut} }}, else_branch = e () => (float[K,L] n) {{ n = Neg(x) }}> }}", ""),
            "the results of a branch": (f"<{known}, float[1,4] i> {{ i = If(true)<then_branch = t () => (float[N,4] n) {{ n = Neg(x) }}, else_branch = e () => (float[N,4] m) {{ m = Abs(x) }}> y = Slice(i, zero, one, zero) }}", ""),
            "what a loop carries": (f"<{known}> {{ y = Loop(two, true, x)<body = b (int64 i, bool go, float[1,4] v) => (bool on, float[1,4] w) <float[1,4] s> {{ on = Identity(go) s = Slice(v, zero, one, zero) w = Add(v, s) }}> }}", ""),
            "a function": ("{ y = f.cut(x) }", function),
            "the results of a function": (f"<{known}, float[1,4] i> {{ i = f.twice(x) y = Slice(i, zero, one, zero) }}", '<opset_import: ["": 18], domain: "f"> twice (x) => (s) { s = Add(x, x) }'),
        }  # fmt: skip
        for promise, (body, function) in cases.items():
            text = f"agraph (float[N,4] x) => (float[] y) {body} {function}"
            model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18, "f": 1]> {text}')
            with self.subTest(promise):
                self.same(
                    model,
                    *({"x": np.arange(4 * n, dtype=np.float32).reshape(n, 4)} for n in (1, 3)),
                )

    def test_sizes_that_only_what_is_computed_contradicts(self):
        """No node alone: they are told, not believed without a word."""
        text = """agraph (float[3,6] x) => (float[] y) <int64 first = {0}, int64 step = {1}, int64[1] at = {0}, int64[1] across = {1}, float one = {1},
            float none = {0}, bool[6,7] a, bool[7,6] m, int64[6,1] q, int64[1,7] k> { n = Shape(x) i = Gather(n, step) r = Range(first, i, step)
            j = Gather(n, first) f = Range(first, j, step) q = Unsqueeze(r, across) k = Unsqueeze(f, at) a = LessOrEqual(q, k) m = Transpose(a)
            b = Where(m, one, none) y = Add(x, b) }"""
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
        with self.assertRaisesRegex(ValueError, r"'b' is computed as \(3, 6\).*told as \(7, 6\)"):
            optimize(model)

    def test_what_is_unbound_loses_its_axis(self):
        """torch.onnx writes ``unbind`` as a SplitToSequence of 1s; ONNX keeps the axis there, onnxruntime does not."""
        for split, after in (("int64", "Shape(c)"), ("int64[1]", "Shape(c)"), ("int64", "Cast<to=7>(t)")):
            with self.subTest(split, after=after):
                rows = 2 if split == "int64" else 1
                text = f"agraph (float[{rows},3] x) => (int64[] y) <{split} k = {{1}}, int64 i = {{0}}>"
                nodes = f"s = SplitToSequence<keepdims=0>(x, k) c = SequenceAt(s, i) t = Neg(c) y = {after}"
                model = onnx.parser.parse_model(
                    f'<ir_version: 9, opset_import: ["": 18]> {text} {{ {nodes} }}'
                )
                self.same(model)

    def test_a_result_that_tells_one_sample(self):
        """The sizes of inputs were changed, not those of results: a value of them all that is a result too."""
        text = """agraph (float[N,4] x) => (float[1,4] q, float[1,4] y) <int64[1] zero = {0}, int64[1] one = {1}> {
            a = Neg(x) q = Abs(a) s = Slice(q, zero, one, zero) y = Exp(s) }"""
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
        self.same(model, *({"x": np.ones((count, 4), np.float32)} for count in (1, 3)))

    def test_a_number_that_nothing_contradicts(self):
        text = (
            "agraph (float[batch,length] x) => (int64[2] y, float[A,B,C,D] z) <float[batch,7] k, float[1,2,2] w = {1, 2, 3, 4}, int64[3] s = {7, -1, 2}> "
            "{ i = Softsign(x) k = f.cut(i) y = Shape(k) n = Reshape(x, s) z = RNN<hidden_size=2>(n, w, w) }"
        )
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20, "f": 1]> {text}')
        (value,) = (item for item in optimize(model).graph.value_info if item.name == "k")
        self.assertEqual(7, type_of(value).tensor_type.shape.dim[1].dim_value)

    def test_weights_keep_their_order(self):
        """Also the large ones, which inference is not shown."""
        text = "agraph (float[batch,300] x) => (float[batch,300] y) { e = Mul(x, w) f = Add(e, b) y = Div(f, c) }"
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
        values = {
            "w": np.arange(300, dtype=np.float32),
            "b": np.float32(2),
            "c": np.arange(1, 301, dtype=np.float32),
        }
        model.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(value), name) for name, value in values.items())  # fmt: skip
        optimized = optimize(model, OptimizationOptions([]))
        self.assertEqual([*values], [item.name for item in optimized.graph.initializer])

    def test_outputs_keep_the_sizes_that_the_file_does_not_tell(self):
        self.same(
            onnx.parser.parse_model(
                '<ir_version: 9, opset_import: ["": 18]> agraph (float[N,3] x) => (float[] y, float[?,3] z)'
                "{ t = Transpose(x) y = Relu(t) z = Tanh(x) }"
            ),
            {"x": np.ones((2, 3), np.float32)},
        )  # fmt: skip
        sequence = oh.make_tensor_sequence_value_info("y", FLOAT, None)
        split = oh.make_node("SplitToSequence", ["x"], ["y"], axis=0)
        model = model_of([split], [tensor("x", FLOAT, [2, 3])], [sequence])
        self.same(model, {"x": np.ones((2, 3), np.float32)})

    def test_an_output_of_another_rank_than_its_node_gives(self):
        """skl2onnx writes so for some classifiers: onnxruntime only warns."""
        text = "c = Cast<to=7>(x) d = Cast<to=7>(c) y = Identity(d)"
        for output in ("int64[N] y", "int64[N,3,1] y", "int64[] y"):
            with self.subTest(output):
                model = onnx.parser.parse_model(
                    f'<ir_version: 9, opset_import: ["": 18]> agraph (float[N,3] x) => ({output}) {{ {text} }}'
                )
                self.assertEqual(["Cast"], operators(self.same(model, {"x": np.ones((2, 3), np.float32)})))

    def test_sizes_that_rules_uncover(self):
        """The first state of TorchScript's RNN: only what rules make of the middle size lets inference know the others."""
        constants = "int64 i = {1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}"
        text = """s = Shape(x) g = Gather(s, i) u = Unsqueeze(g, zero) c = Concat<axis=0>(one, u, five) h = ConstantOfShape(c)
            t = Tanh(h) y = Mul(t, v)"""
        values = "float[T,N,4] x, float[1,N,5] v"
        model = parsed(f"agraph ({values}) => (float[1,N,5] y) <{constants}> {{ {text} }}", opset=13)
        model = onnx.shape_inference.infer_shapes(model)  # as onnxruntime's quantization does
        (found,) = (item for item in self.same(model).graph.value_info if item.name == "h")
        self.assertEqual([1, 5], [found.type.tensor_type.shape.dim[axis].dim_value for axis in (0, 2)])

    def test_sizes_that_inference_makes_up_have_no_name_in_the_file(self):
        """The batch behind the Reshape is that of the images once a rule has removed it; `unk__7` is a name of the file."""
        model = parsed(
            """agraph (float[unk__7,4,6,6] x, float[unk__7] z) => (float[N,4,6,6] y, float[1,M] n, float[N] k) {
                axes = Constant <value_ints=[2,3]> () shape = Constant <value_ints=[-1,4,1,1]> ()
                r = Relu(x) a = GlobalAveragePool(r) b = Squeeze(a, axes) c = Reshape(b, shape) d = Sigmoid(c) y = Mul(x, d)
                i = NonZero(z) j = Cast<to=1>(i) n = Exp(j) e = Sum(z, z) k = Exp(e)
            }"""
        )
        optimized = self.same(model)
        shapes = {
            value.name: [size.dim_param for size in type_of(value).tensor_type.shape.dim]
            for value in optimized.graph.value_info
        }
        self.assertEqual(["unk__7", "", "", ""], shapes["d"])
        self.assertEqual(["", ""], shapes["j"])
        self.assertEqual(["unk__7"], shapes["e"])

    def test_sizes_of_minus_one_and_question_marks_are_unknown(self):
        """As converters of PaddlePaddle write them."""
        one, two, zero, rows = (
            oh.make_node("Constant", [], [name], value_ints=[number])
            for name, number in (("one", 1), ("two", 2), ("zero", 0), ("rows", -1))
        )
        nodes = [
            *(one, two, zero, rows),
            oh.make_node("Shape", ["x"], ["sizes"]),
            oh.make_node("Gather", ["sizes", "zero"], ["batch"]),
            oh.make_node("Concat", ["batch", "rows"], ["flat"], axis=0),
            oh.make_node("Reshape", ["x", "flat"], ["y"]),
            oh.make_node("Gather", ["sizes", "one"], ["height"]),
            oh.make_node("Gather", ["sizes", "two"], ["width"]),
            oh.make_node("Expand", ["x", "sizes"], ["expanded"]),
            oh.make_node("ReduceSum", ["expanded", "two"], ["sum"], keepdims=1),
            oh.make_node("Sub", ["height", "width"], ["z"]),
        ]
        outputs = [tensor("y", FLOAT, [-1, -1]), tensor("z", INT64, [1]), tensor("sum", FLOAT, [-1, "?", 1])]
        model = model_of(nodes, [tensor("x", FLOAT, [-1, "?", "?"])], outputs)
        feeds = [{"x": np.arange(24, dtype=np.float32).reshape(shape)} for shape in ((2, 3, 4), (1, 24, 1))]
        self.same(model, *feeds)

    def test_sizes_that_are_unknown_inside(self):
        """Two sizes without a name are not equal, of inputs, of what a file tells inside, of what a loop carries."""
        known = [oh.make_tensor(name, INT64, [1], [number]) for name, number in (("zero", 0), ("one", 1))]
        known += [
            oh.make_tensor("once", INT64, [], [1]),
            oh.make_tensor("go", onnx.TensorProto.BOOL, [], [True]),
        ]
        x = tensor("x", FLOAT, ["N", 4])
        twice = oh.make_node("Concat", ["x", "x"], ["c"], axis=0)
        part = [oh.make_node("Slice", ["c", "zero", "one", "zero"], ["d"]), oh.make_node("Exp", ["d"], ["y"])]
        y = oh.make_tensor_value_info("y", FLOAT, None)
        rows = [{"x": np.arange(12, dtype=np.float32).reshape(3, 4)}]
        for size in ("", "?"):
            told = [tensor(name, FLOAT, [size, 4]) for name in "cd"]
            carried = [
                tensor("i", INT64, []),
                tensor("t", onnx.TensorProto.BOOL, []),
                tensor("v", FLOAT, [size, 4]),
                tensor("w", FLOAT, [size, 4]),
            ]
            nodes = [oh.make_node("Identity", [a], [b]) for a, b in ("tq", "vr", "ws")]
            nodes += [oh.make_node("Shape", ["w"], ["k"]), oh.make_node("Expand", ["v", "k"], ["e"])]
            results = [
                tensor("q", onnx.TensorProto.BOOL, []),
                *(tensor(name, FLOAT, [size, 4]) for name in "rse"),
            ]
            body = oh.make_graph(nodes, "body", carried, results)
            loop = oh.make_node("Loop", ["once", "go", "d", "x"], ["m", "n", "y"], body=body)
            pair = [oh.make_node("Shape", ["x"], ["k"]), oh.make_node("Expand", ["z", "k"], ["y"])]
            models = {
                "inside": (model_of([twice, *part], [x], [y], initializer=known, value_info=told), rows),
                "a loop": (model_of([twice, part[0], loop], [x], [y], initializer=known), rows),
                "inputs": (
                    model_of(pair, [tensor(name, FLOAT, [size, 4]) for name in "xz"], [y]),
                    [{**rows[0], "z": np.ones((1, 4), np.float32)}],
                ),
            }
            edited = onnx.ModelProto()
            edited.CopyFrom(models["inputs"][0])
            edited.producer_name = PRODUCER
            models["inputs of a file of ours"] = (edited, models["inputs"][1])
            for promise, (model, feeds) in models.items():
                with self.subTest(promise, size=size):
                    self.same(model, *feeds)

    def test_an_output_that_has_the_names_of_an_input(self):
        """It is usual to name both alike, also where one is cut, padded or repeated: a file of this exporter says what is true."""
        x, header = np.ones((1, 12), np.float32), '<ir_version: 9, opset_import: ["": 20]{}> agraph'
        constants = "int64[1] s = {0}, int64[1] n = {8}, int64[1] a = {1}"
        for inputs, nodes, feeds in (
            ("", f"<{constants}> {{ y = Slice(x, s, n, a) }}", {}),
            (", int64[1] e", f"<{constants}> {{ y = Slice(x, s, e, a) }}", {"e": [9]}),
            (", int64[2] e", "{ y = Expand(x, e) }", {"e": [4, 12]}),
            (", int64[2] e", "{ y = Reshape(x, e) }", {"e": [3, 4]}),
            (", int64[4] e", "{ y = Pad(x, e) }", {"e": [0, 1, 1, 0]}),
        ):
            text = f" (float[B, N] x{inputs}) => (float[B, N] y) {nodes}"
            model = onnx.parser.parse_model(header.format("") + text)
            arrays = {name: np.array(values) for name, values in feeds.items()}
            with self.subTest(nodes):
                self.same(model, {"x": x, **arrays})
        own = header.format(', producer_name: "experimental_experiment"')
        model = onnx.parser.parse_model(
            f"{own} (float[B, N] x, int64[2] e) => (float[B, N] y) {{ y = Reshape(x, e) }}"
        )
        self.assertEqual(["Identity"], operators(optimize(model)))

    def test_an_output_without_a_type_gets_one(self):
        model = parsed("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
        expected = model.graph.output[0].type.tensor_type.elem_type
        model.graph.output[0].ClearField("type")
        self.assertEqual(expected, optimize(model).graph.output[0].type.tensor_type.elem_type)

    def test_tensors_of_the_given_model_get_no_name(self):
        value = oh.make_tensor("", FLOAT, [2], [1, 2])
        nodes = [oh.make_node("Constant", [], ["c"], value=value), oh.make_node("Add", ["x", "c"], ["y"])]
        model = model_of(nodes, [tensor("x", FLOAT, [2])], [tensor("y", FLOAT, [2])])
        before = model.SerializeToString()
        self.same(model)
        self.assertEqual(before, model.SerializeToString())

    def test_texts(self):
        nodes = [
            oh.make_node("Constant", [], ["c"], value_string="é"),
            oh.make_node("Constant", [], ["d"], value_strings=["b\0", "中"]),
            oh.make_node("StringConcat", ["x", "c"], ["y"]),
            oh.make_node("Concat", ["y", "d"], ["z"], axis=0),
        ]
        given = [tensor("x", STRING, [2])]
        model = model_of(nodes, given, [tensor("y", STRING, [2]), tensor("z", STRING, [4])], opset=20)
        feeds = {"x": np.array(["a", ""], object)}
        self.same(model, feeds)

        called = oh.make_function(
            "local", "f", ["x"], ["z"], [*nodes[:3], nodes[3]], [oh.make_opsetid("", 20)]
        )
        call = oh.make_node("f", ["x"], ["z"], domain="local")
        model = model_of([call], given, [tensor("z", STRING, [4])], opset=20, domains=["local"])
        model.functions.append(called)
        self.same(model, feeds)

    def test_saturation_of_float8(self):
        feeds = {"x": np.array([1.1, 1e6, -np.inf], np.float32)}
        for name in ("FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ"):
            for more in ({}, {"saturate": 0}, {"saturate": 1}):
                with self.subTest(name, **more):
                    like = oh.make_tensor("like", onnx.TensorProto.DataType.Value(name), [1], [1.0])
                    nodes = [
                        oh.make_node("CastLike", ["x", "like"], ["q"], **more),
                        oh.make_node("Cast", ["q"], ["y"], to=FLOAT),
                    ]
                    values = [tensor(key, FLOAT, [3]) for key in "xy"]
                    model = model_of(
                        nodes, values[:1], values[1:], opset=21, ir_version=10, initializer=[like]
                    )
                    optimized = self.same(model, feeds)
                    if name.startswith("FLOAT8E4M3"):
                        self.assertEqual(["Cast", "Cast"], operators(optimized))

    def test_weights_are_inputs_before_version_4(self):
        constant = oh.make_tensor("t", FLOAT, [2], [1, 2])
        nodes = [
            oh.make_node("Mul", ["x", "w"], ["p"]),
            oh.make_node("Constant", [], ["c"], value=constant),
            oh.make_node("Add", ["p", "c"], ["a"]),
            oh.make_node("Neg", ["a"], ["n"]),
            oh.make_node("Neg", ["n"], ["y"]),
        ]
        weight = oh.make_tensor("w", FLOAT, [2], [3, 4])
        given = [tensor("x", FLOAT, [2]), tensor("w", FLOAT, [2])]
        more = {"opset": 7, "ir_version": 3, "initializer": [weight]}
        model = model_of(nodes, given, [tensor("y", FLOAT, [2])], **more)
        optimized = self.same(model, {"x": np.ones(2, np.float32)})
        onnx.checker.check_model(optimized, full_check=True)
        self.assertEqual(["Constant", "Mul", "Add"], [node.op_type for node in optimized.graph.node])
        onnx.checker.check_model(quantize_weights(model), full_check=True)

    def test_what_an_old_operator_set_lacks_is_not_written(self):
        """Unsqueeze has an input axes since opset 13."""
        for opset, expected in ((12, ["Add", "Tanh"]), (13, ["Unsqueeze", "Tanh"])):
            model = parsed(
                "agraph (float[3] x) => (float[1,3] y) <float[1,1] z = {0}> { a = Add(x, z) y = Tanh(a) }",
                opset=opset,
            )
            self.assertEqual(expected, operators(self.same(model)))

    def test_the_long_name_of_the_standard_domain(self):
        model = parsed("agraph (float[2] x) => (float[2] y) { n = Neg(x) m = Neg(n) y = Relu(m) }", opset=18)
        model.opset_import[0].domain = "ai.onnx"
        optimized = self.same(model)
        self.assertEqual(
            (["Relu"], [18]), (operators(optimized), [i.version for i in optimized.opset_import])
        )

    def test_attributes_that_the_caller_of_a_function_gives(self):
        text = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
            agraph (float[2,3,4] x) => (float[4,2,3] y, int64[2,3,4] z) {
                y = local.f<perm=[1,2,0]>(x) z = local.g<to=7>(x) }
            <opset_import: ["" : 20], domain: "local"> f<perm>(a) => (c)
                { b = Transpose<perm: ints = @perm>(a) c = Transpose<perm: ints = @perm>(b) }
            <opset_import: ["" : 20], domain: "local"> g<to>(a) => (c)
                { b = Cast<to: int = @to>(a) c = Cast<to: int = @to>(b) }"""
        optimized = self.same(onnx.parser.parse_model(text))
        self.assertEqual([2, 2], [len(function.node) for function in optimized.functions])

    def test_a_loop_that_carries_a_sequence(self):
        """Its body and its results keep the type of a sequence, also where the file tells none, as that of an EmbeddingBag of torch.onnx."""
        body = """agraph (int64 i, bool go, k, rows) => (more, next, longer) {
            at = Reshape(k, last) b = CastLike(one, at) end = Add(at, b) row = Slice(x, at, end) longer = SequenceInsert(rows, row)
            c = CastLike(one, k) next = Add(k, c) more = Less(next, n) }"""
        constants = "int64[1] last = {-1}, int64 one = {1}, int64 n = {3}, bool yes = {1}, int64 zero = {0}"
        text = f"""none = SequenceEmpty() found, rows = Loop <body = {body}> ("", yes, zero, none) copy = Identity(rows)
            y = ConcatFromSequence <axis = 0> (copy)"""
        model = parsed(f"agraph (float[3,4] x) => (float[3,4] y) <{constants}> {{ {text} }}")
        optimized = self.same(model)
        (loop,) = (node for node in optimized.graph.node if node.op_type == "Loop")
        self.assertNotIn("CastLike", [node.op_type for node in loop.attribute[0].g.node])

    def test_numbers_that_are_results(self):
        """A Constant that is an output stays a node, whose number rules read all the same."""
        for inputs, result, constant, nodes in (
            (
                "int64[1] n",
                "bool[M,2]",
                "k = Constant<value_float=0.5>()",
                "r = Slice(table, zero, n, zero) y = Greater(r, k)",
            ),
            (
                "float[2,3] x, float[3,2] w",
                "float[2,2]",
                "k = Constant<value_float=0.5>()",
                "a = Mul(x, k) b = Mul(w, half) y = MatMul(a, b)",
            ),
            (
                "float[2,3,2] x",
                "float[2,3]",
                "k = Constant<value_ints=[-1]>()",
                "a = Cast<to=11>(x) b = ReduceL2<keepdims=0>(a, k) c = Cast<to=1>(b) y = Mul(c, c)",
            ),
        ):
            kind = "float" if "value_float" in constant else "int64[1]"
            constants = "float[3,2] table = {0, 1, 0, 1, 2, 0}, int64[1] zero = {0}, float half = {0.5}"
            model = parsed(
                f"agraph ({inputs}) => ({result} y, {kind} k) <{constants}> {{ {constant} {nodes} }}"
            )
            feeds = {"n": np.array([2])} if inputs == "int64[1] n" else drawn(model)
            with self.subTest(nodes):
                wanted, got = (session(item).run(None, feeds) for item in (model, optimize(model)))
                for a, b in zip(wanted, got):
                    np.testing.assert_allclose(a, b, rtol=1e-5)

    def test_what_rules_wrote_tells_the_shapes_behind_it(self):
        """A GroupNorm of TorchScript's exporter: inference knows no rank behind the second Reshape as long as a Shape stands there."""
        constants = "int64[3] g = {0, 2, -1}, float[2] one = {1, 1}, float[2] none = {0, 0}, float[4,1,1] zeros = {0, 0, 0, 0}"
        text = """r = Reshape(x, g) n = InstanceNormalization(r, one, none) s = Shape(x) o = Reshape(n, s) a = Add(o, zeros)
            y = Tanh(a)"""
        model = parsed(
            f"agraph (float[N,4,3,3] x) => (float[N,4,3,3] y) <{constants}> {{ {text} }}", opset=13
        )
        self.assertNotIn("Add", operators(self.same(model)))


class TestBranchesThatAreNotTaken(unittest.TestCase):
    """They may hold nodes of constants that no runtime computes, which it says when it runs them: they stay as they are."""

    CASES = {
        "a Reshape to more elements": ("r = Reshape(t, s)", "int64[2] s = {5, 5}"),
        "a Reshape to a copied size": ("r = Reshape(t, s)", "int64[2] s = {0, 5}"),
        "a Range by 0": ("a = Range(k, k, k) r = Cast<to=1>(a)", "int64 k = {0}"),
        "a Range by 0.0": ("r = Range(k, k, k)", "float k = {0}"),
        "a Range without an end": ("r = Range(k, e, o)", "float k = {0}, float e = {inf}, float o = {1}"),
        "a CumSum along no axis": ("r = CumSum(t, k)", "int64 k = {5}"),
        "a reduction along an axis twice": ("r = ReduceProd(t, k)", "int64[2] k = {0, 0}"),
        "elements of other rows": ("r = GatherElements<axis=1>(t, k)", "int64[5,1] k = {0, 0, 0, 0, 0}"),
        "batches that are others": ("r = GatherND<batch_dims=1>(t, k)", "int64[2,1] k = {0, 1}"),
    }

    def test_they_stay(self):
        for promise, (nodes, constants) in self.CASES.items():
            numbers = ", ".join(map(str, range(12)))
            text = f"""agraph (float[N,4] x, bool c) => (float[] y) <float[3,4] t = {{{numbers}}}, {constants}> {{
                y = If(c) <then_branch = one () => (float[] r) {{ {nodes} }},
                    else_branch = two () => (float[] q) {{ q = Relu(x) }}> }}"""
            for patterns in ("default", "default+onnxruntime"):
                with self.subTest(promise, patterns=patterns):
                    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
                    optimized = optimize(model, OptimizationOptions(patterns))
                    feeds = {"x": np.ones((2, 4), np.float32), "c": np.array(False)}
                    np.testing.assert_equal(*(session(item).run(None, feeds) for item in (model, optimized)))


class TestMaps(unittest.TestCase):
    """Classifiers of scikit-learn end with a ZipMap, whose type onnx-ir does not have."""

    @staticmethod
    def classifier():
        nodes = [
            oh.make_node("Neg", ["x"], ["n"]),
            oh.make_node("Neg", ["n"], ["m"]),
            oh.make_node("MatMul", ["m", "w"], ["p"]),
            oh.make_node("ZipMap", ["p"], ["y"], domain=ML, classlabels_int64s=[4, 5]),
        ]
        kind = oh.make_map_type_proto(INT64, oh.make_tensor_type_proto(FLOAT, []))
        output = oh.make_value_info("y", oh.make_sequence_type_proto(kind))
        weight = oh.make_tensor("w", FLOAT, [64, 2], np.linspace(-1, 1, 128))
        return model_of(
            [*nodes], [tensor("x", FLOAT, ["N", 64])], [output], domains=[ML], initializer=[weight]
        )

    feeds = {"x": np.linspace(-2, 1, 128, dtype=np.float32).reshape(2, 64)}

    def test_an_output(self):
        model = self.classifier()
        before = model.SerializeToString()
        optimized = optimize(model)
        self.assertEqual(before, model.SerializeToString())
        onnx.checker.check_model(optimized, full_check=True)
        self.assertEqual((["MatMul", "ZipMap"], model.graph.output[0]), (operators(optimized), optimized.graph.output[0]))  # fmt: skip
        self.assertEqual(session(model).run(None, self.feeds), session(optimized).run(None, self.feeds))
        self.assertEqual(optimized, optimize(optimized))

    def test_an_input(self):
        nodes = [oh.make_node("DictVectorizer", ["x"], ["v"], domain=ML, string_vocabulary=["a", "b"])]
        nodes.append(oh.make_node("Identity", ["v"], ["y"]))
        given = oh.make_map_type_proto(STRING, oh.make_tensor_type_proto(FLOAT, []))
        model = model_of(nodes, [oh.make_value_info("x", given)], [tensor("y", FLOAT, [1, 2])], domains=[ML])
        optimized = optimize(model)
        self.assertEqual(["DictVectorizer"], operators(optimized))
        feeds = {"x": {"b": 2.0}}
        np.testing.assert_equal(session(model).run(None, feeds), session(optimized).run(None, feeds))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path, written = os.path.join(folder, "a.onnx"), os.path.join(folder, "b.onnx")
            onnx.save(self.classifier(), path)
            model = load(path)
            optimize(model)
            proto = save(model, written)
            self.assertEqual(proto, to_proto(model))
            self.assertEqual(proto, onnx.load(written))
            self.assertEqual(session(path).run(None, self.feeds), session(written).run(None, self.feeds))

    def test_weights(self):
        model = self.classifier()
        quantized = quantize_weights(model, 8)
        self.assertIn("MatMulNBits", operators(quantized))
        self.assertEqual(model.graph.output[0], quantized.graph.output[0])
        session(quantized).run(None, self.feeds)


class TestTypes(unittest.TestCase):
    """Operators whose inference ends the process where their input has no type: onnx infers none of a Scaler."""

    CODED = "ai.onnx.ml.LabelEncoder<keys_floats=[1.0, 3.0], values_int64s=[5, 6], default_int64=7>"
    DOMAINS = '"ai.onnx.ml": 4, "f": 1'
    SCALER = "s = ai.onnx.ml.Scaler<offset=[0.0], scale=[1.0]>(x)"

    def optimized(self, text, imports=DOMAINS):
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20, {imports}]> {text}')
        return model, optimize(model)

    def test_what_reads_an_unknown_type(self):
        tree = "ai.onnx.ml.TreeEnsemble<leaf_weights = float[1] {1.0}, leaf_targetids = [0], nodes_featureids = [0]"
        tree += ", nodes_modes = uint8[1] {0}, nodes_splits = float[1] {0.0}, nodes_trueleafs = [1]"
        tree += (
            ", nodes_falseleafs = [1], nodes_truenodeids = [0], nodes_falsenodeids = [0], tree_roots = [0]>"
        )
        for node in (self.CODED, tree, "EyeLike<dtype=1>", 'RegexFullMatch<pattern="a">'):
            with self.subTest(node):
                text = f"agraph (float[N,3] x) => (int64[N,3] y) {{ {self.SCALER} y = {node}(s) }}"
                model, optimized = self.optimized(text, '"ai.onnx.ml": 5')
                self.assertEqual(operators(model), operators(optimized))

    def test_results(self):
        text = f"agraph (float[N,3] x) => (int64[N,3] y) {{ {self.SCALER} e = {self.CODED}(s) n = Neg(e) m = Neg(n) y = Identity(m) }}"
        model, optimized = self.optimized(text)
        feeds = {"x": np.array([[1, 2, 3]], np.float32)}
        self.assertEqual(["Scaler", "LabelEncoder"], operators(optimized))
        for item in (model, optimized):
            np.testing.assert_equal([[5, 7, 6]], session(item).run(None, feeds)[0])

    def test_a_type_that_inference_finds(self):
        """What stands behind the LabelEncoder is known as if it had never been hidden."""
        text = f"agraph (float[N,3] x) => (float[N,3] y) {{ r = Relu(x) e = {self.CODED}(r) c = Cast<to=1>(e) y = Relu(c) }}"
        _, optimized = self.optimized(text)
        self.assertEqual({"r": 1, "e": 7, "c": 1}, {v.name: type_of(v).tensor_type.elem_type for v in optimized.graph.value_info})  # fmt: skip

    def test_a_local_function(self):
        function = f'<domain: "f", opset_import: ["": 20, "ai.onnx.ml": 4]> code (x) => (y) {{ y = {self.CODED}(x) }}'
        text = f"agraph (float[N,3] x) => (int64[N,3] y) {{ {self.SCALER} y = f.code(s) }} {function}"
        _, optimized = self.optimized(text)
        self.assertEqual(["LabelEncoder"], [node.op_type for node in optimized.functions[0].node])


class TestRefusals(unittest.TestCase):
    def refused(self, model, said):
        """Each way in says it: nothing is left out in silence."""
        for way in (optimize, quantize_weights, lambda item: bisect(item, drawn(item))):
            with self.assertRaisesRegex(ValueError, said):
                way(model)

    def test_sparse_weights(self):
        dense = (oh.make_tensor("w", FLOAT, [1], [3.0]), oh.make_tensor("i", INT64, [1], [1]))
        sparse = oh.make_sparse_tensor(*dense, [2])
        values = [tensor(key, FLOAT, [2]) for key in "xy"]
        add = oh.make_node("Add", ["x", "w"], ["y"])
        model = model_of([add], values[:1], values[1:], sparse_initializer=[sparse])
        self.refused(model, "the initializer 'w' is sparse, which onnx-ir does not read")
        constant = oh.make_node("Constant", [], ["w"], sparse_value=sparse)
        model = model_of([constant, add], values[:1], values[1:])
        self.refused(model, "'sparse_value' of a node Constant is sparse")
        body = oh.make_graph([add], "body", [], values[1:], sparse_initializer=[sparse])
        both = {"then_branch": body, "else_branch": body}
        true = oh.make_tensor("c", onnx.TensorProto.BOOL, [], [True])
        model = model_of(
            [oh.make_node("If", ["c"], ["y"], **both)], values[:1], values[1:], initializer=[true]
        )
        self.refused(model, "the initializer 'w' is sparse")

    def test_training(self):
        model = parsed("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
        model.training_info.add()
        self.refused(model, "training_info")


class TestModels(unittest.TestCase):
    def test_defaults_and_outputs_of_an_ir_model(self):
        text = "agraph (float[2] x, float[2] w) => (float[] y) <float[2] w = {1, 2}> { p = Mul(x, w) y = Relu(p) }"
        model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}'))
        optimize(model)
        self.assertIsNone(model.graph.outputs[0].shape)
        self.assertEqual([1, 2], model.graph.initializers["w"].const_value.numpy().tolist())


if __name__ == "__main__":
    unittest.main()
