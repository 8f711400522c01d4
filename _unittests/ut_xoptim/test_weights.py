"""Weights that are computed from other weights alone."""

import re
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import torch
import torch.nn.functional as F

from _unittests.ut_xoptim.cases import drawn, operators
from experimental_experiment.comparison import session
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize

NORM = """
two = Constant <value=int64[2]{1,2}> () squares = Mul (w, w) total = ReduceSum (squares, two) root = Sqrt (total)
unit = Div (w, root) scaled = Mul (unit, g)
"""
"""A weight norm of ``w`` (48, 8, 5) by ``g`` (48, 1, 1)."""


def model_of(signature: str, nodes: str, opset: int = 20, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """A model with random float32 weights of these shapes."""
    generator = np.random.default_rng(0)
    model = parsed_without_check(signature, nodes, opset)
    for name, shape in shapes.items():
        array = (0.2 * generator.normal(size=shape)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(model, full_check=True)
    return model


def parsed_without_check(signature: str, nodes: str, opset: int) -> onnx.ModelProto:
    """The text of a model whose weights are not there yet."""
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
    return onnx.parser.parse_model(f"{header}agraph {signature} {{ {nodes} }}")


class TestComputedWeights(unittest.TestCase):
    SIGNATURE = "(float[N,8,L] x) => (float[N,48,M] y)"

    def assert_optimized(self, model, expected, report=None):
        """These operators stay, with the same results; optimizing again changes nothing."""
        options = OptimizationOptions(None)
        optimized = optimize(model, options, report=report)
        self.assertEqual(expected, operators(optimized))
        onnx.checker.check_model(optimized, full_check=True)
        again = Report()
        twice = optimize(optimized, options, report=again)
        self.assertEqual([], again.applications)
        self.assertEqual(optimized.SerializeToString(), twice.SerializeToString())
        feeds = drawn(model, sizes=9)
        for wanted, got in zip(session(model).run(None, feeds), session(optimized).run(None, feeds)):
            self.assertEqual((wanted.dtype, wanted.shape), (got.dtype, got.shape))
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        return optimized

    def test_one_that_holds_what_a_constant_holds(self):
        """They are one, and so are the nodes that read them."""
        nodes = """z = Constant <value=float[1,3]{0,0,0}> () m = Constant <value=bool[1,3]{1,1,1}> ()
            w = Where (m, z, k) b = Neg (x) a = Add (b, z) d = Add (b, w) y = Mul (a, d)"""
        model = model_of("(float[N,3] x) => (float[N,3] y)", nodes, k=(1,))
        optimized = self.assert_optimized(model, ["Neg", "Add", "Mul"])
        self.assertEqual(["z"], [weight.name for weight in optimized.graph.initializer])

    def test_frequencies(self):
        """Those of thousands of elements have the bits that eager computes, as small constants have."""
        for dtype in (torch.float32, torch.float64):
            exponents = torch.rand(5000, dtype=dtype)
            model = to_onnx(
                lambda x, e=exponents: x * torch.pow(10000.0, -e), (torch.rand(5000, dtype=dtype),)
            )
            self.assertEqual(["Mul"], operators(model))
            (weight,) = model.graph.initializer
            expected = torch.pow(10000.0, -exponents)
            self.assertTrue(torch.equal(expected, torch.tensor(onnx.numpy_helper.to_array(weight))))

    def test_weight_norm(self):
        """Its nodes are gone, and the weight that it was computed from; the name says where it comes from."""
        report = Report()
        model = model_of(self.SIGNATURE, f"{NORM} y = Conv (x, scaled)", w=(48, 8, 5), g=(48, 1, 1))
        optimized = self.assert_optimized(model, ["Conv"], report)
        self.assertEqual({"w_computed": [48, 8, 5]}, {w.name: [*w.dims] for w in optimized.graph.initializer})
        self.assertEqual([("ComputedWeight", "scaled")], report.applications)

    def test_standardized_weight(self):
        nodes = """
        shape = Constant <value=int64[3]{1,48,40}> () back = Constant <value=int64[3]{48,8,5}> () axes = Constant <value=int64[2]{0,2}> ()
        r = Reshape (w, shape) m = ReduceMean (r, axes) d = Sub (r, m) s = Mul (d, d) mean = Squeeze (m, axes)
        variance = ReduceMean <keepdims=0> (s, axes) b = BatchNormalization <epsilon=1e-6> (r, one, zero, mean, variance)
        scaled = Reshape (b, back) y = Conv (x, scaled)
        """
        model = model_of(self.SIGNATURE, nodes, w=(48, 8, 5), one=(48,), zero=(48,))
        self.assert_optimized(model, ["Conv"])

    def test_parts_of_a_weight(self):
        """Gathers of a weight take as much room as it, whichever nodes read them; their Transposes are left to the rules."""
        nodes = """
        zero = Constant <value=int64{0}> () one = Constant <value=int64{1}> () a = Gather (w, zero) b = Gather (w, one)
        p = MatMul (x, a) t = Transpose (b) y = MatMul (p, t)
        """
        model = model_of("(float[N,40] x) => (float[N,40] y)", nodes, w=(2, 40, 30))
        optimized = self.assert_optimized(model, ["MatMul", "Transpose", "MatMul"])
        self.assertEqual(["w_computed", "w_computed_1"], sorted(w.name for w in optimized.graph.initializer))

    def test_resampled_positions(self):
        """As a vision transformer resizes the positions that it was trained with: onnxruntime computes them."""

        class Resized(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Parameter(torch.randn(1, 30, 14, 14))

            def forward(self, x):
                resized = torch.nn.functional.interpolate(self.table, x.shape[1:3], mode="bicubic")
                return x + resized.permute(0, 2, 3, 1)

        class Sampled(Resized):
            def __init__(self):
                super().__init__()
                self.register_buffer("grid", torch.rand(1, 7, 9, 2) * 2 - 1)

            def forward(self, x):
                sampled = torch.nn.functional.grid_sample(self.table, self.grid, align_corners=False)
                return x + sampled.permute(0, 2, 3, 1)

        for module, dtype in (
            (Resized(), torch.float32),
            (Resized(), torch.float16),
            (Sampled(), torch.float32),
        ):
            module, x = module.to(dtype), torch.randn(2, 7, 9, 30).to(dtype)
            model = to_onnx(module, (x,))
            self.assertEqual(["Add"], operators(model))
            (got,) = session(model).run(None, {"x": x.numpy()})
            tolerance = 1e-5 if dtype == torch.float32 else 5e-3
            np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=tolerance, atol=tolerance)

    def test_operators_that_eager_has(self):
        """They are computed to the last digits of float32, also those of rows of -infinity, ties and NaN."""
        functions = {
            "log_softmax": lambda w: w.log_softmax(1),
            "logsumexp": lambda w: w.logsumexp(0),
            "argmax": lambda w: F.one_hot(w.argmax(1), w.shape[1]).float(),
            "argmin": lambda w: w.argmin(0).float(),
            "sort": lambda w: w.sort(0)[0],
            "argsort": lambda w: w.argsort(dim=1, stable=True).float(),
            "topk": lambda w: w.topk(w.shape[1])[0],
            "layer_norm": lambda w: F.layer_norm(w, w.shape[1:]),
            "group_norm": lambda w: F.group_norm(w[None], 2)[0],
            "gelu": lambda w: F.gelu(w),
            "hardswish": lambda w: F.hardswish(w),
            "avg_pool1d": lambda w: F.avg_pool1d(w, 3, 1, 1),
            "max_pool1d": lambda w: F.max_pool1d(w[None], 3, 1, 1)[0],
            "lgamma": lambda w: w.lgamma(),
            "quantile": lambda w: w.quantile(0.3, 0),
            "where": lambda w: torch.where(w.isinf() | w.isnan(), 0.5, w),
            "positions": lambda w: F.layer_norm((1000 * w).sin(), w.shape[1:]),
        }
        with_infinity = {"logsumexp", "log_softmax", "sort", "argmax", "lgamma", "where", "max_pool1d"}
        for size in (4, 40):
            numbers = torch.randn(size, size)
            numbers[1, 2] = numbers[1, 3]  # a tie
            infinite = numbers.clone()
            infinite[:, 1], infinite[0, 2] = -torch.inf, torch.inf
            for name, function in functions.items():
                for weight in (numbers, infinite) if name in with_infinity else (numbers,):
                    with self.subTest(name, size=size, is_infinite=weight is infinite):
                        model = to_onnx(
                            lambda x, f=function, w=weight: x + f(w), (torch.randn(2, size, size),)
                        )
                        self.assertEqual(["Add"], operators(model))
                        (computed,) = model.graph.initializer
                        expected = function(weight).numpy()
                        np.testing.assert_allclose(
                            onnx.numpy_helper.to_array(computed), expected, rtol=1e-6, atol=1e-6
                        )

    def test_operators_that_onnxruntime_computes(self):
        """As it does with numbers that are equal, of which it takes the first one or the last one."""
        nodes = """k = Constant <value=int64[1]{40}> () v, i = TopK (w, k) a = ArgMax <axis=0, select_last_index=1> (w) c = Cast <to=1> (i) d = Cast <to=1> (a)
        s = Add (v, c) t = Add (s, d) y = Add (x, t)"""
        model = model_of("(float[40,40] x) => (float[40,40] y)", nodes, w=(40, 40))
        (weight,) = model.graph.initializer
        array = np.round(4 * onnx.numpy_helper.to_array(weight))
        weight.CopyFrom(onnx.numpy_helper.from_array(array, "w"))
        self.assert_optimized(model, ["Add"])

    def test_convolutions_and_scattering(self):
        functional = torch.nn.functional

        class Model(torch.nn.Module):
            def __init__(self, function):
                super().__init__()
                self.function = function
                self.weight = torch.nn.Parameter(torch.randn(6, 6))
                self.kernel = torch.nn.Parameter(torch.randn(2, 1, 3, 3))
                self.register_buffer("index", torch.tensor([0, 2, 2, 5, 1, 0]))

            def forward(self, x):
                return x @ self.function(self.weight, self.kernel, self.index)

        cases = {
            "Conv": lambda w, k, i: functional.conv2d(w[None, None], k, padding=1)[0, 0],
            "ConvTranspose": lambda w, k, i: functional.conv_transpose2d(w[None, None], k[:1], padding=1)[
                0, 0
            ],
            "a sum": lambda w, k, i: w.index_add(0, i, w),
            "a maximum": lambda w, k, i: w.scatter_reduce(0, i[None].expand(6, 6), w, "amax"),
            "elements": lambda w, k, i: w.scatter(1, i[:, None], 1.0),
            "rows": lambda w, k, i: w.index_put((i[:2],), w[:2]),
        }
        x = torch.randn(4, 6)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
            for name, function in cases.items():
                with self.subTest(name, dtype=dtype):
                    model = Model(function).to(dtype).eval()
                    exported = to_onnx(model, (x.to(dtype),))
                    self.assertEqual(["MatMul"], operators(exported))
                    (found,) = session(exported).run(None, {"x": x.to(dtype).numpy()})
                    expected = model(x.to(dtype)).detach().numpy()
                    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)

    def test_what_onnxruntime_does_not_compute(self):
        """A dtype without a kernel, an operator set that it does not load."""
        nodes = "p = AveragePool <kernel_shape=[3]> (w) y = Add (x, p)"
        model = parsed_without_check("(double[1,2,38] x) => (double[1,2,38] y)", nodes, 22)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 2, 40)), "w"))
        self.assertEqual(["AveragePool", "Add"], operators(optimize(model, OptimizationOptions(None))))
        nodes = "p = LogSoftmax (w) y = Add (x, p)"
        for opset, expected in ((26, ["Add"]), (27, ["LogSoftmax", "Add"])):
            model = parsed_without_check("(float[N,40] x) => (float[40,40] y)", nodes, opset)
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((40, 40), np.float32), "w"))
            with self.subTest(opset=opset):
                self.assertEqual(expected, operators(optimize(model, OptimizationOptions(None))))

    def test_a_softmax_of_weights(self):
        """As of the weights of a sum, and a product in Einstein's notation."""
        nodes = 's = Softmax (w) t = Einsum <equation="ij,jk->ki"> (s, v) y = MatMul (x, t)'
        model = model_of("(float[N,40] x) => (float[N,40] y)", nodes, w=(40, 40), v=(40, 40))
        self.assert_optimized(model, ["MatMul"])

    def test_what_old_operator_sets_mean(self):
        """A Softmax of all axes from the second on, the statistics of a BatchNormalization."""
        signature, norm = (
            "(float[N,4,6,5] x) => (float[N,4,6,5] y)",
            "v = Exp(l) s = BatchNormalization(w, g, b, m, v)",
        )
        for opset, nodes in ((11, "s = Softmax(w)"), (11, "s = Softmax<axis=0>(w)"), (9, norm), (13, norm)):
            with self.subTest(nodes, opset=opset):
                shapes = {"w": (2, 4, 6, 5), **dict.fromkeys("gbml", (4,))}
                model = model_of(signature, f"{nodes} y = Add (x, s)", opset, **shapes)
                optimized = optimize(model, OptimizationOptions(None))
                self.assertEqual(["Add"], operators(optimized))
                feeds = {"x": np.zeros((2, 4, 6, 5), np.float32)}
                expected, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
                np.testing.assert_allclose(expected, got, rtol=1e-5, atol=1e-6)

    def test_axes_that_an_attribute_counts_from_the_end(self):
        """onnx's evaluator adds one after the other, and refuses the first of these."""
        model = model_of(
            "(float[1,60,40,1] x) => (float[1,60,40,1] y)",
            "u = Unsqueeze <axes=[-4,-1]> (w) n = Neg (u) y = Add (x, n)",
            opset=11,
            w=(60, 40),
        )
        optimized = optimize(model)
        self.assertEqual(["Add"], operators(optimized))
        feeds = drawn(model)
        np.testing.assert_array_equal(
            session(optimized).run(None, feeds)[0], session(model).run(None, feeds)[0]
        )

    def test_several_weights(self):
        """One that stays does not keep others; what one node reads of two is one weight."""
        nodes = f"{NORM} c = Conv (x, scaled) s = Sigmoid (v) p = Mul (s, u) q = MatMul (c, p) r = MatMul (q, t) e = Exp (t) y = MatMul (r, e)"
        model = model_of(
            "(float[N,8,44] x) => (float[N,48,130] y)",
            nodes,
            w=(48, 8, 5),
            g=(48, 1, 1),
            u=(40, 130),
            v=(40, 130),
            t=(130, 130),
        )
        self.assert_optimized(model, ["Conv", "MatMul", "MatMul", "Exp", "MatMul"])

    def test_a_small_result_of_a_weight_that_stays(self):
        nodes = "axes = Constant <value=int64[1]{1}> () m = ReduceMean <keepdims=0> (w, axes) p = MatMul (x, w) y = Mul (p, m)"
        model = model_of("(float[N,40] x) => (float[N,40] y)", nodes, w=(40, 40))
        self.assert_optimized(model, ["MatMul", "Mul"])

    def test_a_mask_of_integers(self):
        nodes = "one = BitwiseOr (a, b) two = BitwiseXor (one, a) three = BitwiseNot (two) m = BitwiseAnd (three, b) y = BitwiseAnd (x, m)"
        model = parsed_without_check("(int32[N,40,40] x) => (int32[N,40,40] y)", nodes, 20)
        generator = np.random.default_rng(0)
        for name, shape in {"a": (1, 40), "b": (40, 40)}.items():
            array = generator.integers(-9, 9, shape).astype(np.int32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        self.assert_optimized(model, ["BitwiseAnd"])

    def test_a_small_result_that_takes_more(self):
        """A table of distances, read for the pairs of a window's tokens, as in Swin: up to 2 ** 14 elements, none more."""
        nodes = "l = Gather (w, i) t = Transpose <perm=[2,0,1]> (l) y = Add (x, t)"
        for tokens, expected in {40: ["Transpose", "Add"], 80: ["Gather", "Transpose", "Add"]}.items():
            with self.subTest(tokens=tokens):
                shape = f"float[N,4,{tokens},{tokens}]"
                model = parsed_without_check(f"({shape} x) => ({shape} y)", nodes, 20)
                generator = np.random.default_rng(0)
                table = generator.normal(size=(400, 4)).astype(np.float32)
                index = generator.integers(0, 400, (tokens, tokens))
                for name, array in {"w": table, "i": index}.items():
                    model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
                self.assert_optimized(model, expected)

    def test_rows_that_are_not_there_are_left_to_the_runtime(self):
        """A branch that is not taken may hold such a node: what is in the file is not judged."""
        nodes = "seven = Constant <value=int64[1]{7}> () row = Gather (w, seven) y = Add (x, row)"
        model = model_of("(float[1,4] x) => (float[1,4] y)", nodes, w=(3, 4))
        self.assertEqual(["Gather", "Add"], operators(optimize(model)))

    def test_parts_that_take_less(self):
        """A network of positions, whose results are looked up for pairs of tokens, as those of Swin v2; distances of a known number of tokens."""
        nodes = """
        h = MatMul (c, w) r = Relu (h) t = MatMul (r, u)
        zero = Constant <value=int64{0}> () one = Constant <value=int64{1}> () n = Constant <value=int64{120}> ()
        most = Constant <value=int64{39}> () first = Constant <value=int64[1]{0}> () second = Constant <value=int64[1]{1}> ()
        p = Range (zero, n, one) k = Unsqueeze (p, first) q = Unsqueeze (p, second) d = Sub (k, q) far = Abs (d) i = Min (far, most)
        l = Gather (t, i) y = Add (x, l)
        """
        model = model_of(
            "(float[N,120,120,3] x) => (float[N,120,120,3] y)", nodes, c=(40, 2), w=(2, 600), u=(600, 3)
        )
        optimized = self.assert_optimized(model, ["Gather", "Add"])
        sizes = [[*weight.dims] for weight in optimized.graph.initializer]
        self.assertEqual([[40, 3], [120, 120]], sorted(sizes))

    def test_elements_of_a_weight(self):
        """More than ``numpy.choose`` takes, and the last ones by negative positions."""
        nodes = (
            "i = Constant <value=int64[2,1]{-1,70}> () e = GatherElements <axis=-2> (w, i) y = MatMul (x, e)"
        )
        model = model_of("(float[N,2] x) => (float[N,1] y)", nodes, w=(2000, 1))
        self.assert_optimized(model, ["MatMul"])

    def test_scattering_outside_of_an_axis(self):
        """onnxruntime refuses it when the model runs, and would when the weight is computed."""
        nodes = "i = Constant <value=int64[1,2]{%s}> () u = Constant <value=float[1,2]{1,2}> () s = ScatterElements (w, i, u) y = Add (x, s)"
        for positions, expected in (("0,-40", ["Add"]), ("0,40", ["ScatterElements", "Add"])):
            model = model_of("(float[40,2] x) => (float[40,2] y)", nodes % positions, w=(40, 2))
            self.assertEqual(expected, operators(optimize(model)))

    def test_slices_from_before_the_first_element(self):
        """Backwards onnxruntime begins with the first one, where numpy's are empty; forwards both do."""
        nodes = """s = Constant <value=int64[1]{-10}> () e = Constant <value=int64[1]{%s}> () a = Constant <value=int64[1]{1}> ()
        t = Constant <value=int64[1]{%s}> () c = Slice (w, s, e, a, t) y = Add (x, c)"""
        last = "-9223372036854775808"
        for end, step, expected in ((last, -1, ["Slice", "Add"]), ("3", 1, ["Add"])):
            with self.subTest(step):
                size = 1 if step < 0 else 3
                model = model_of(f"(float[4,1] x) => (float[4,{size}] y)", nodes % (end, step), w=(4, 5))
                self.assert_optimized(model, expected)

    def test_powers_of_integers(self):
        """numpy refuses negative ones, and wraps those beyond the dtype, which onnxruntime does not."""
        nodes = "b = Constant <value={0}[3]{{2,1,-1}}> () e = Constant <value={0}{{{1}}}> () p = Pow (b, e) y = Add (x, p)"
        for dtype, exponent, expected in (
            ("int64", -1, ["Pow", "Add"]),
            ("int64", 3, ["Add"]),
            ("int64", 62, ["Add"]),
            ("int64", 64, ["Pow", "Add"]),
            ("int32", 30, ["Add"]),
            ("int32", 31, ["Pow", "Add"]),
        ):
            with self.subTest(dtype, exponent=exponent):
                model = model_of(f"({dtype}[3] x) => ({dtype}[3] y)", nodes.format(dtype, exponent))
                self.assert_optimized(model, expected)

    def test_powers_of_a_large_weight(self):
        for exponent, expected in ((2, ["Add"]), (64, ["Pow", "Add"])):
            with self.subTest(exponent):
                nodes = f"e = Constant <value=int64{{{exponent}}}> () p = Pow (b, e) y = Add (x, p)"
                model = parsed_without_check("(int64[40,41] x) => (int64[40,41] y)", nodes, 20)
                weight = onnx.numpy_helper.from_array(np.arange(1640).reshape(40, 41), "b")
                model.graph.initializer.append(weight)
                self.assert_optimized(model, expected)

    def test_what_stays(self):
        wide = "(float[N,40] x) => (float[N,40] y)"
        tie = "(float[N,130] x) => (float[N,130] y, float[N,130] z)"
        cases = {
            "a weight that another reads": (tie, "e = Exp (large) y = MatMul (x, e) z = MatMul (x, large)", "Exp MatMul MatMul"),
            "a result that is larger": (
                "(float[40] x) => (float[40,40,40] y)",
                "s = Constant <value=int64[3]{40,40,40}> () e = Expand (w, s) y = Add (x, e)",
                "Expand Add",
            ),
            "an output": ("(float[N,40] x) => (float[N,40] y, float[40,40] e)", "e = Exp (w) y = MatMul (x, e)", "Exp MatMul"),
            "what cuts": (
                "(float[N,39] x) => (float[N,40] y)",
                "p = Constant <value=int64[4]{-1,0,0,0}> () e = Pad (w, p) y = MatMul (x, e)",
                "Pad MatMul",
            ),
            "a Transpose": (wide, "t = Transpose (w) y = MatMul (x, t)", "Transpose MatMul"),
            "random numbers": (wide, "e = RandomNormalLike (w) z = MatMul (x, e) y = Sub (z, z)", "RandomNormalLike MatMul Sub"),
            "another domain": (wide, "e = com.microsoft.BiasGelu (w, g) y = MatMul (x, e)", "BiasGelu MatMul"),
        }  # fmt: skip
        for promise, (signature, nodes, expected) in cases.items():
            with self.subTest(promise):
                weights = {"w": (40, 40), "g": (40,), "large": (130, 130)}
                read = {name: shape for name, shape in weights.items() if name in re.findall(r"\w+", nodes)}
                optimized = optimize(model_of(signature, nodes, **read), OptimizationOptions(None))
                self.assertEqual(expected.split(), operators(optimized))

    def test_pads_of_an_old_operator_set(self):
        """An attribute there, which numpy's Pad does not read: the node stays."""
        nodes = "p = Pad <pads=[1,0,0,0]> (w) y = MatMul (x, p)"
        model = model_of("(float[N,41] x) => (float[N,40] y)", nodes, opset=10, w=(40, 40))
        optimized = optimize(model, OptimizationOptions(None))
        self.assertEqual(["Pad", "MatMul"], operators(optimized))

    def test_what_onnx_does_not_know_of_an_old_operator_set(self):
        """A LayerNormalization that onnxruntime alone has there, the sizes of a pool that rounds up."""
        signature = "(float[N,3,3] x) => (float[N,3,3] y)"
        cases = {
            16: "n = LayerNormalization<axis=-1>(w, g) y = Add(x, n)",
            18: "p = MaxPool<kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1], ceil_mode=1>(v) s = ReduceMax<keepdims=0>(p) y = Add(x, s)",
        }
        for opset, nodes in cases.items():
            with self.subTest(opset):
                model = model_of(signature, nodes, w=(3, 3), g=(3,), v=(1, 2, 5, 5))
                model.opset_import[0].version = opset
                optimized = optimize(model, OptimizationOptions(None))
                self.assertEqual(operators(model), operators(optimized))
                x = np.ones((2, 3, 3), np.float32)
                expected, got = (session(item).run(None, {"x": x})[0] for item in (model, optimized))
                np.testing.assert_allclose(expected, got, rtol=1e-6)

    def test_halves(self):
        """They are computed in float32 and rounded once, where a small step of an operand is a small one of the result."""
        random = np.random.default_rng(0)
        weights = {
            name: random.normal(size=shape).astype(np.float16)
            for name, shape in {"w": (40, 40), "g": (40, 1)}.items()
        }
        for nodes, expected in (
            ("n = ReduceL2 <keepdims=1> (w, last) d = Div (w, n) s = Mul (d, g)", ["MatMul"]),
            ("r = Floor (w) s = Mul (r, g)", ["Floor", "Mul", "MatMul"]),
            ("r = ArgMax (w) f = Cast <to=10> (r) s = Mul (g, f)", ["ArgMax", "Cast", "Mul", "MatMul"]),
        ):
            with self.subTest(nodes):
                constants = "last = Constant <value=int64[1]{1}> ()"
                text = f"{constants} {nodes} y = MatMul (x, s)"
                model = parsed_without_check("(float16[N,40] x) => (float16[N,40] y)", text, 20)
                for name, array in weights.items():
                    model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
                optimized = optimize(model, OptimizationOptions(None))
                self.assertEqual(expected, operators(optimized))
                if expected == ["MatMul"]:
                    wide = weights["w"].astype(np.float64)
                    exact = wide / np.linalg.norm(wide, axis=1, keepdims=True) * weights["g"]
                    computed = onnx.numpy_helper.to_array(optimized.graph.initializer[0])
                    np.testing.assert_allclose(computed, exact, rtol=2**-11 * 1.01)

    def test_what_is_rounded_to_halves(self):
        """A weight that is cast there and back holds what halves hold, infinities too."""
        weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
        weight[0, 0] = 1e5
        for half, dtype in ((10, np.float16), (16, ml_dtypes.bfloat16)):
            with self.subTest(half), np.errstate(over="ignore"):
                text = f"h = Cast <to={half}> (w) s = Cast <to=1> (h) y = MatMul (x, s)"
                model = parsed_without_check("(float[N,40] x) => (float[N,40] y)", text, 20)
                model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
                optimized = optimize(model, OptimizationOptions(None))
                self.assertEqual(["MatMul"], operators(optimized))
                computed = onnx.numpy_helper.to_array(optimized.graph.initializer[0])
                np.testing.assert_array_equal(computed, weight.astype(dtype).astype(np.float32))

    def test_quantized_weights_stay(self):
        """They take less room as they are."""
        cases = {
            "quantized": (
                "float[N,40] x",
                """scale = Constant <value=float{0.1}> () zero = Constant <value=int8{0}> () q = QuantizeLinear (w, scale, zero)
                s = DequantizeLinear (q, scale, zero) y = MatMul (x, s)""",
                "float[N,40] y",
                "QuantizeLinear DequantizeLinear MatMul",
            ),
        }  # fmt: skip
        for promise, (given, nodes, result, expected) in cases.items():
            with self.subTest(promise):
                model = model_of(f"({given}) => ({result})", nodes, w=(40, 40))
                optimized = optimize(model, OptimizationOptions(None))
                self.assertEqual(expected.split(), operators(optimized))

    def test_options(self):
        """It is a part of constant_folding, and counts among the rewritings."""
        model = model_of(self.SIGNATURE, f"{NORM} y = Conv (x, scaled)", w=(48, 8, 5), g=(48, 1, 1))
        for options in (
            OptimizationOptions(None, constant_folding=False),
            OptimizationOptions(None, stop_after=0),
        ):
            self.assertIn("Div", operators(optimize(model, options)))

    def test_memory(self):
        """Nothing is computed before it is read; up to 2 ** 14 elements are kept then, as masks that rules ask for once a layer."""
        signature = "(float[N,8,L] x) => (float[N,R,M] y)"
        for rows, is_kept in {48: True, 480: False}.items():
            with self.subTest(rows=rows):
                weights = {"w": (rows, 8, 5), "g": (rows, 1, 1)}
                model = ir.from_proto(model_of(signature, f"{NORM} y = Conv (x, scaled)", **weights))
                optimize(model, OptimizationOptions(None))
                (weight,) = model.graph.initializers.values()
                self.assertIsInstance(weight.const_value, ir.LazyTensor)
                self.assertEqual(is_kept, weight.const_value.cache)

    def test_modules(self):
        """Weight norms and spectral norms of torch, as eager computes them, before other rules look at the weights."""

        class Normed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                parametrizations = torch.nn.utils.parametrizations
                self.conv = parametrizations.weight_norm(torch.nn.Conv1d(32, 64, 5), dim=2)
                self.linear = parametrizations.spectral_norm(torch.nn.Linear(64, 48))

            def forward(self, x):
                return self.linear(self.conv(x).mT)

        torch.manual_seed(0)
        module = Normed().eval()
        model = to_onnx(module, (torch.randn(2, 32, 20),), dynamic_shapes=({0: "batch", 2: "length"},))
        self.assertEqual(["Conv", "Transpose", "MatMul", "Add"], operators(model))
        x = torch.randn(3, 32, 11)
        (got,) = session(model).run(None, {"x": x.numpy()})
        np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
