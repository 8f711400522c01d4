"""Sizes that onnx's inference would know wrongly, and those that it knows in bodies."""

import itertools
import unittest

import numpy as np
import onnx

from _unittests.ut_xoptim.cases import operators
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import Report, optimize

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CONSTANTS = "int64[1] zero={0}, int64[1] one={1}, int64[1] two={2}, int64[1] minus={-1}"


class InferenceTestCase(unittest.TestCase):
    def same(self, text, *feeds, opset=18, is_inferred=False):
        """The optimized model: the same results; twice is once. With *is_inferred*, the file has the shapes that onnx infers."""
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "f": 1]> {text}')
        if is_inferred:
            model = onnx.shape_inference.infer_shapes(model)
        optimized = optimize(model)
        for item in feeds:
            np.testing.assert_equal(
                session(model).run(None, item), session(optimized).run(None, item), f"{item}"
            )
        again = Report()
        optimize(optimized, report=again)
        self.assertEqual([], again.applications)
        return optimized


class TestMadeUpNames(InferenceTestCase):
    """``unk__0`` and the like, which onnx's inference gives to sizes without a name, also in files that were inferred."""

    CASES = {
        "a shape of what stays as it is": (
            """agraph (float[1,1,n,2] x) => (float[a,b,c,d] y) <float[1,1,1,1] w={2}, int64[1] zero={0}, int64[1] two={2}, int64[1] end={9223372036854775807}> {
                c = Conv(x, w) p = Slice(c, zero, end, two) s = Shape(c) e = Expand(p, s) y = Neg(e) }""",
            {"x": X.reshape(1, 1, 3, 2)},
            ["Conv", "Neg"],
        ),
        "a Reshape to the shape of an operand": (
            """agraph (float[?,3,1] x) => (float[a,b,c] y) <int64[1] zero={0}, int64[1] two={2}, int64[1] end={9223372036854775807}> {
                m = ReduceSum<keepdims=1>(x, two) z = Mul(x, m) p = Slice(m, zero, end, zero) s = Shape(p) r = Reshape(z, s) y = Neg(r) }""",
            {"x": X.reshape(2, 3, 1)},
            ["ReduceSum", "Mul", "Neg"],
        ),
    }

    def test_sizes_are_followed_behind_what_is_inferred_first(self):
        """What the Slice cuts is of no known dtype at first: sizes are followed in a second inference alone."""
        text = """agraph (float[2,?,n] x) => (float[a,b,c] y) <int64[1] minus={-1}, int64[1] end={9223372036854775807}, int64[1] one={1}> {
            s = Shape(x) r = Reshape(x, s) y = Slice(r, minus, end, one, one) }"""
        self.assertEqual(["Slice"], operators(self.same(text, {"x": X.reshape(2, 3, 1)})))

    def test_a_name_that_becomes_a_number(self):
        """The rows of a Reshape are as many as those of a tensor that it has all elements of: one."""
        text = """agraph (float[b,3] x) => (float[c,d] y) <int64[1] zero={0}> {
            g = Gather<axis=0>(x, zero) s = Shape(x) r = Reshape(g, s) t = Shape(r) e = Expand(g, t) y = Exp(e) }"""
        self.assertEqual(["Gather", "Exp"], operators(self.same(text, {"x": X[:1]})))

    def test_a_file_with_them_is_optimized_as_one_without(self):
        for name, (text, feeds, expected) in self.CASES.items():
            for is_inferred in (False, True):
                with self.subTest(name, is_inferred=is_inferred):
                    optimized = self.same(text, feeds, is_inferred=is_inferred)
                    self.assertEqual(expected, operators(optimized))


class TestRepeated(InferenceTestCase):
    """Einsum repeats an operand that has one of what another one has more of: onnx's inference says one, or the name that is one."""

    EINSUM = ["Einsum", "Reshape", "Transpose", "MatMul"]
    PRODUCT = ["Transpose", "MatMul", "Reshape", "Transpose", "MatMul"]
    CASES = {
        "one": ("1,n,3", "4,m,3", 1, 4, EINSUM),
        "one, the other one has a name": ("1,n,3", "b,m,3", 1, 4, EINSUM),
        "a name": ("b,n,3", "4,m,3", 1, 4, PRODUCT),
        "names": ("b,n,3", "c,m,3", 1, 4, PRODUCT),
        "no name": ("?,n,3", "4,m,3", 1, 4, PRODUCT),
        "the second one repeats": ("b,n,3", "1,m,3", 4, 1, EINSUM),
    }

    def test_the_size_that_repeats(self):
        constants = "<int64[2] rows={0, -1}>"
        nodes = "e = Einsum<equation = EQUATION>(x, z) r = Reshape(e, rows) t = Transpose<perm=[1, 0]>(r) y = MatMul(r, t)"
        for name, (first, second, *rows, expected) in self.CASES.items():
            feeds = {
                key: np.ones((count, width, 3), np.float32) for key, count, width in zip("xz", rows, (2, 5))
            }
            for equation in ("abc,adc->abd", "abc, adc -> abd"):
                for is_inferred in (False, True):
                    with self.subTest(name, equation=equation, is_inferred=is_inferred):
                        text = f"agraph (float[{first}] x, float[{second}] z) => (float[p,q] y) {constants} {{ {nodes} }}"
                        text = text.replace("EQUATION", f'"{equation}"')
                        optimized = self.same(text, feeds, is_inferred=is_inferred)
                        self.assertEqual(expected, operators(optimized))


class TestUnknown(InferenceTestCase):
    """What onnx's inference does not know is 0 in an Attention, and the size before in a DFT."""

    HEADS = "a = Attention<q_num_heads=2, kv_num_heads=2>(q, k, v)"
    WEIGHTS = "o, p, w, a = Attention(q, k, v)"

    def attended(self, nodes, shape, axis, *sizes):
        """Asks for one size of what *nodes* give, of ones of these *shapes*."""
        text = f"""agraph (float[{shape.format("s", 4)}] q, float[{shape.format("t", 4)}] k, float[{shape.format("t", "h")}] v) => (float[c] y) {{
            {nodes} n = Shape<start={axis}, end={axis + 1}>(a) z = ConstantOfShape(n) y = Exp(z) }}"""
        feeds = {name: np.ones(size, np.float32) for name, size in zip("qkv", sizes)}
        for is_inferred in (False, True):
            with self.subTest(nodes, is_inferred=is_inferred):
                self.same(text, feeds, opset=23, is_inferred=is_inferred)

    def test_the_heads_of_an_attention(self):
        self.attended(self.HEADS, "b,{},{}", 2, (1, 2, 4), (1, 3, 4), (1, 3, 6))

    def test_the_weights_of_an_attention(self):
        self.attended(self.WEIGHTS, "b,2,{},{}", 3, (1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 6))

    def test_the_length_of_a_transform(self):
        """The shape of what is transformed is not that of the result."""
        text = """agraph (float[1,{},1] x, int64 n) => (float[c,d,e] y) <int64 axis={{1}}> {{
            a = DFT{}(x, n{}) s = Shape(x) y = Expand(a, s) }}"""
        feeds = {"x": X.reshape(1, 6, 1), "n": np.array(1)}
        for size, (opset, *forms) in itertools.product(("n", 6), ((20, "", ", axis"), (17, "<axis=1>", ""))):
            for is_inferred in (False, True):
                with self.subTest(size=size, opset=opset, is_inferred=is_inferred):
                    self.same(text.format(size, *forms), feeds, opset=opset, is_inferred=is_inferred)


class TestMisread(InferenceTestCase):
    STARTS = [{"x": X, "start": np.array([start])} for start in (1, 0, -1)]

    def sized(self, nodes, *feeds, inputs="float[2,3] x", constants=CONSTANTS):
        """The elements of a tensor whose shape the *nodes* give from that of ``x``, which they call ``sizes``."""
        head = "exp = Exp(x) sizes = Shape(exp)"
        tail = "filled = ConstantOfShape(shape) y = Size(filled)"
        return self.same(f"agraph ({inputs}) => (int64 y) <{constants}> {{ {head} {nodes} {tail} }}", *feeds)

    def test_a_slice_from_an_input(self):
        for axis in ("", ", zero"):
            self.sized(
                f"shape = Slice(sizes, start, two{axis})",
                *self.STARTS[:2],
                inputs="float[2,3] x, int64[1] start",
            )

    def test_a_slice_from_a_computed_place(self):
        nodes = "place = Abs(start) shape = Slice(sizes, place, two, zero)"
        self.sized(nodes, *self.STARTS, inputs="float[2,3] x, int64[1] start")

    def test_a_slice_from_a_default(self):
        inputs, constants = "float[2,3] x, int64[1] start", f"{CONSTANTS}, int64[1] start = {{0}}"
        nodes = "shape = Slice(sizes, start, two, zero)"
        self.sized(nodes, {"x": X}, *self.STARTS, inputs=inputs, constants=constants)

    def test_a_slice_of_a_vector_whose_type_is_inferred(self):
        """The dtype of ``given`` is known only after a first inference."""
        nodes = "given = Abs(sizes) shape = Slice(given, start, two)"
        self.sized(nodes, *self.STARTS, inputs="float[2,3] x, int64[1] start")

    def test_a_slice_in_a_local_function(self):
        body = (
            "two = Constant<value = int64[1] {2}>() sizes = Shape(x) shape = Slice(sizes, start, two) "
            "filled = ConstantOfShape(shape) y = Size(filled)"
        )
        function = f'<domain: "f", opset_import: ["": 18]> tail (x, start) => (y) {{ {body} }}'
        text = "agraph (float[2,3] x, int64[1] start) => (int64 y) { y = f.tail(x, start) } "
        self.same(text + function, *self.STARTS)

    def test_numbers_that_a_cast_changes(self):
        self.sized("cast = Cast<to=9>(sizes) shape = Cast<to=7>(cast)", {"x": X})
        constants = "int64[1] many = {257}"
        self.sized("cast = Cast<to=3>(many) shape = Cast<to=7>(cast)", {"x": X}, constants=constants)

    def test_rows_of_a_matrix(self):
        nodes = (
            "rows = Unsqueeze(sizes, zero) first = Slice(rows, zero, one, zero) shape = Squeeze(first, zero)"
        )
        self.sized(nodes, {"x": X})
        constants = f"{CONSTANTS}, int64 row = {{1}}, int64[2] few = {{1, 2}}, int64[2] others = {{3, 1}}"
        nodes = "rows = Unsqueeze(few, one) sums = Add(rows, others) shape = Gather(sums, row)"
        self.sized(nodes, {"x": X}, constants=constants)

    def test_a_slice_of_constants_is_known(self):
        optimized = self.sized("shape = Slice(sizes, one, two)", {"x": X})
        self.assertEqual(["Identity"], operators(optimized))


class TestNamesOfParts(InferenceTestCase):
    """In opset 10, what a Slice leaves of an axis of unknown size has the name of all of it."""

    FEEDS = [{"x": np.arange(size, dtype=np.float32)} for size in (5, 2)]
    CONSTANTS = "<int64[1] zero={0}, int64[1] two={2}>"

    def test_a_slice_stays(self):
        nodes = "s = Exp(x) n = Slice(s, zero, two) y = Neg(n)"
        text = f"agraph (float[N] x) => (float[A] y) {self.CONSTANTS} {{ {nodes} }}"
        for is_inferred in (False, True):
            with self.subTest(is_inferred=is_inferred):
                optimized = self.same(text, *self.FEEDS, opset=10, is_inferred=is_inferred)
                self.assertEqual(["Exp", "Slice", "Neg"], operators(optimized))

    def test_other_nodes_do_not_know_the_name(self):
        """The size of a part is not that of all, which a Shape behind it gives."""
        nodes = "n = Slice(x, zero, two) e = Exp(n) f = Shape(e) z = Shape(x) t = Expand(e, f) y = ConstantOfShape(f)"
        text = f"agraph (float[N] x) => (float[A] y, float[B] t, int64[1] z) {self.CONSTANTS} {{ {nodes} }}"
        for is_inferred in (False, True):
            with self.subTest(is_inferred=is_inferred):
                self.same(text, *self.FEEDS, opset=10, is_inferred=is_inferred)

    def test_a_slice_that_a_rule_writes(self):
        nodes = "s = Slice(x, zero, minus) n = Slice(s, zero, two) y = Neg(n)"
        text = f"agraph (float[N] x) => (float[A] y) <{CONSTANTS}> {{ {nodes} }}"
        self.same(text, *self.FEEDS, opset=10)

    def test_a_slice_in_a_local_function(self):
        """The operator set is the function's."""
        body = "one = Constant<value = int64[1] {1}>() zero = Constant<value = int64[1] {0}>() y = Slice(x, zero, one)"
        function = f'<domain: "f", opset_import: ["": 10]> head (x) => (y) {{ {body} }}'
        nodes = "h = f.head(x) z = Shape(x) t = Expand(h, z) y = Neg(t)"
        text = f"agraph (float[N] x) => (float[A] y) {{ {nodes} }} "
        self.same(text + function, *self.FEEDS)

    def test_known_sizes_are_inferred(self):
        nodes = "s = Exp(x) n = Slice(s, zero, five) y = Neg(n)"
        text = f"agraph (float[5] x) => (float[A] y) <int64[1] zero={{0}}, int64[1] five={{5}}> {{ {nodes} }}"
        self.assertEqual(["Exp", "Neg"], operators(self.same(text, self.FEEDS[0], opset=10)))

    def test_attributes_of_the_first_version(self):
        text = (
            "agraph (float[N] x) => (float[A] y) { s = Exp(x) n = Slice<starts=[0], ends=[2]>(s) y = Neg(n) }"
        )
        self.assertEqual(["Exp", "Slice", "Neg"], operators(self.same(text, *self.FEEDS, opset=9)))


class TestNegativeAxes(InferenceTestCase):
    """Before opset 11, inference keeps the axes that a Squeeze names from the last one on, and puts those of an Unsqueeze last."""

    def test_they_are_those_of_the_runtime(self):
        x = np.arange(24, dtype=np.float32).reshape(2, 6, 2)
        cases = {
            "Squeeze": "a, b = Split<axis=2>(x) s = Squeeze<axes=[-1]>(a) y = Unsqueeze<axes=[0]>(s)",
            "Unsqueeze": "a = Exp(x) s = Unsqueeze<axes=[-2]>(a) y = Unsqueeze<axes=[0]>(s)",
            "a Squeeze of an Unsqueeze": "a = Unsqueeze<axes=[-2]>(x) b = Exp(a) y = Squeeze<axes=[-2]>(b)",
        }
        for (name, nodes), opset in itertools.product(cases.items(), (9, 10, 11)):
            for is_inferred in (False, True):
                with self.subTest(f"{name}, opset {opset}, {is_inferred}"):
                    text = f"agraph (float[2,6,2] x) => (float[] y) {{ {nodes} }}"
                    self.same(text, {"x": x}, opset=opset, is_inferred=is_inferred)


class TestOperatorsOfOnnxruntime(unittest.TestCase):
    """ONNX's inference does not know them: sizes of what they give are known from what they read."""

    CASES = {
        "SkipLayerNormalization": "h = com.microsoft.SkipLayerNormalization(x, x, w, w)",
        "SkipSimplifiedLayerNormalization": "h = com.microsoft.SkipSimplifiedLayerNormalization(x, x, w)",
        "SimplifiedLayerNormalization": "h = SimplifiedLayerNormalization(x, w)",
        "BiasGelu": "h = com.microsoft.BiasGelu(x, w)",
        "FastGelu": "h = com.microsoft.FastGelu(x, w)",
        "QuickGelu": "h = com.microsoft.QuickGelu(x)",
        "Gelu": "h = com.microsoft.Gelu(x)",
        "Attention": "h = com.microsoft.Attention<num_heads=2>(x, square, long)",
    }
    WIDER = "h = com.microsoft.Attention<num_heads=2, qkv_hidden_sizes=[4,4,16]>(x, square, long)"

    def optimized(self, node, width):
        """Heads of what the node gives, of as many positions as it has."""
        heads = width // 4
        text = f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[N,S,8] x) => (float[N,{heads},S,4] y)
            <int64 zero={{0}}, int64 one={{1}}, int64[1] first={{0}}, int64[2] last={{{heads},4}}> {{ {node}
            s = Shape(h) n = Gather(s, zero) l = Gather(s, one) batch = Unsqueeze(n, first) length = Unsqueeze(l, first)
            sizes = Concat<axis=0>(batch, length, last) r = Reshape(h, sizes) y = Transpose<perm=[0,2,1,3]>(r) }}"""
        model = onnx.parser.parse_model(text)
        random = np.random.default_rng(0)
        for name, shape in {"w": (8,), "square": (8, 24), "long": (24,)}.items():
            array = random.normal(size=shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        optimized = optimize(model)
        for sizes in ((2, 3, 8), (1, 5, 8)):
            feeds = {"x": random.normal(size=sizes).astype(np.float32)}
            for a, b in zip(*(session(item).run(None, feeds) for item in (model, optimized))):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        return [(node.domain, node.op_type) for node in optimized.graph.node]

    def test_the_shape_of_the_first_input(self):
        for name, node in self.CASES.items():
            with self.subTest(name):
                domain = "com.microsoft" if "com.microsoft" in node else ""
                self.assertEqual(
                    [(domain, name), ("", "Reshape"), ("", "Transpose")], self.optimized(node, 8)
                )

    def test_another_width(self):
        self.assertIn(("", "Shape"), self.optimized(self.WIDER, 16))


class TestBackwardsToTheLargestInteger(InferenceTestCase):
    """onnxruntime takes the elements back to the first one where ONNX's text, inference and numpy take none."""

    CASES = {
        "sizes": ("sizes = Shape(x) y = Slice(sizes, s, e, a, t)", "int64[3] y"),
        "sizes that are constants": (
            "r = Shape(w) s1 = Slice(r, s, e, a, t) v = Reshape(w, s1) n = Slice(w, s, e, two, t) y = Concat<axis=2>(n, w)",
            "float[2,3,8] y, float[4,3,2] v",
        ),
        "a Slice of it": ("b = Slice(w, s, e, a, t) y = Slice(b, zero, one, a)", "float[1,3,4] y"),
        "what stands beside it": ("b = Slice(w, s, e, a, t) n = Neg(b) y = Concat<axis=0>(n, w)", "float[4,3,4] y"),
        "it, and what stands beside it": ("y = Slice(x, s, e, a, t) z = Concat<axis=0>(y, x)", "float[A,B,C] y, float[D,B,C] z"),
    }  # fmt: skip

    def test_it_is_what_onnxruntime_takes(self):
        for promise, (nodes, results) in self.CASES.items():
            for end, dtype in ((2**31 - 1, "int64"), (2**63 - 1, "int64"), (2**31 - 1, "int32")):
                for is_inferred in (False, True):
                    if dtype == "int32" and "zero" in nodes:
                        continue
                    with self.subTest(promise, end=end, dtype=dtype, is_inferred=is_inferred):
                        constants = (
                            f"{dtype}[1] s={{-1}}, {dtype}[1] e={{{end}}}, {dtype}[1] a={{0}}, {dtype}[1] t={{-1}}, int64[1] zero={{0}}, "
                            f"int64[1] one={{1}}, {dtype}[1] two={{2}}"
                        )
                        text = f"agraph (float[P,3,Q] x, float[2,3,4] w) => ({results}) <{constants}> {{ {nodes} }}"
                        feeds = {
                            "x": np.arange(24, dtype=np.float32).reshape(4, 3, 2),
                            "w": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
                        }
                        self.same(text, feeds, is_inferred=is_inferred)


class TestBodies(InferenceTestCase):
    CALLS = [{"x": X, "c": np.array(c)} for c in (True, False)]

    def branch(self, nodes, other, result, *around):
        """An If whose first branch has the *nodes*; ``exp`` and constants stand *around* it."""
        constants = ", ".join([CONSTANTS, *around])
        branches = f"then_branch = t () => (p) {{ {nodes} }}, else_branch = e () => (q) {{ {other} }}"
        text = f"agraph (float[2,3] x, bool c) => ({result} y) <{constants}> {{ exp = Exp(x) row = Unsqueeze(x, zero) "
        optimized = self.same(text + f"y = If(c) <{branches}> }}", *self.CALLS)
        return [node.op_type for node in optimized.graph.node[-1].attribute[0].g.node]

    def test_a_slice_whose_end_is_a_constant_of_the_branch(self):
        nodes = "sizes = Shape(exp) end = Constant<value = int64[1] {2}>() shape = Slice(sizes, one, end) "
        self.branch(nodes + "filled = ConstantOfShape(shape) p = Size(filled)", "q = Size(exp)", "int64")
        nodes += "all = Concat<axis=0>(minus, shape) p = Reshape(exp, all)"
        self.branch(nodes, "q = Identity(exp)", "float[A,B]")

    def test_a_branch_reads_constants_around_it(self):
        """Inference knows what the Reshape gives: the nodes before it are gone at once, not the next time."""
        nodes = "flat = Flatten(row) p = Reshape(flat, target)"
        around = "int64[3] target = {0, 2, 3}"
        found = self.branch(nodes, "e = Unsqueeze(exp, zero) q = Neg(e)", "float[1,2,3]", around)
        self.assertEqual(["Identity"], found)

    def test_constants_stay_where_they_are(self):
        """What inference is shown in a body is not kept there."""
        text = (
            f"agraph (float[2,3] x, bool c) => (float[A,B] y) <{CONSTANTS}, int64[2] target = {{3, 2}}> {{ y = If(c) "
            "<then_branch = t () => (p) { p = Reshape(x, target) }, else_branch = e () => (q) { q = Neg(x) }> }"
        )
        optimized = self.same(text, *self.CALLS)
        self.assertEqual(["target"], [item.name for item in optimized.graph.initializer])
        (node,) = optimized.graph.node
        self.assertEqual([], [item.name for body in node.attribute for item in body.g.initializer])


if __name__ == "__main__":
    unittest.main()
