"""Rules that fold constants into weights."""

import unittest

import numpy as np
import onnx
import onnx_ir as ir

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize


def numbers(*shape, name, positive=False):
    """A Constant node of random numbers."""
    values = np.random.default_rng(sum(map(ord, name))).uniform(0.5 if positive else -1, 2, size=shape)
    listed = ",".join(f"{value:.4f}" for value in values.ravel())
    return f"{name} = Constant <value = float[{','.join(map(str, shape))}] {{{listed}}}> ()"


CHANNELS = " ".join(
    numbers(4, name=name, positive=name == "variance") for name in ("scale", "shift", "mean", "variance")
)
NORM = "y = BatchNormalization<epsilon=0.01>(p, scale, shift, mean, variance)"
CONV = f"{numbers(4, 2, 3, 3, name='w')} {numbers(4, name='b')}"
TRANSPOSED = f"{numbers(6, 2, 3, 3, name='w')} {numbers(4, name='b')}"
GEMM = f"{numbers(4, 3, name='w')} {numbers(4, name='b')}"
LINEAR = f"{numbers(4, 3, name='t')} {numbers(4, name='b')} w = Transpose<perm=[1,0]>(t)"
FACTORS = numbers(4, name="f")
PLANES = numbers(4, 1, 1, name="f")
IMAGE = "float[N,4,6,6] y", "float[N,2,8,8] x"
LAST, IMAGE_LAST = "q = Transpose<perm=[0, 2, 3, 1]>(p)", ("float[N,6,6,4] y", IMAGE[1])
LARGER = "float[N,4,7,7] y", "float[N,6,5,5] x"
ROWS = "float[N,4] y", "float[N,3] x"
LAYERS = "float[N,5,4] y", "float[N,5,3] x"


def parsed_halves(inputs, result, nodes, weights):
    """A model with these weights in float16."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]>\nagraph ({inputs}) => ({result}) {{ {nodes} }}'
    )
    for name, values in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float16), name))
    return model


def graph(nodes, result, inputs):
    """The text of a model."""
    return f"agraph ({inputs}) => ({result}) {{ {nodes} }}"


class TestFolding(RuleTestCase):
    def assert_table(self, rule, cases):
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                if expected is None:
                    self.assert_stays(text, rule=rule)
                else:
                    self.assert_becomes(text, expected, rule=rule)

    def test_batch_norm_of_product(self):
        self.assert_table(
            "BatchNormOfProduct",
            {
                "Conv": (graph(f"{CONV} {CHANNELS} p = Conv(x, w) {NORM}", *IMAGE), ["Conv"]),
                "Conv without its height": (
                    graph(
                        f"{CONV} {CHANNELS} a = Constant <value=int64[1] {{2}}> () c = Conv(x, w, b) p = Squeeze(c, a) {NORM}",
                        "float[N,4,6] y",
                        "float[N,2,3,8] x",
                    ),
                    ["Conv", "Squeeze"],
                ),
                "Conv in rows": (
                    graph(
                        f"{CONV} {CHANNELS} s = Constant <value=int64[3] {{0, 0, -1}}> () c = Conv(x, w, b) p = Reshape(c, s) {NORM}",
                        "float[N,4,36] y",
                        IMAGE[1],
                    ),
                    ["Conv", "Reshape"],
                ),
                "Conv whose samples come second": (
                    graph(
                        f"{CONV} {CHANNELS} c = Conv(x, w, b) p = Transpose<perm=[1, 0, 2, 3]>(c) {NORM}",
                        "float[4,4,6,6] y",
                        "float[4,2,8,8] x",
                    ),
                    None,
                ),
                "Conv whose channels and places are one axis": (
                    graph(
                        f"{numbers(2, 2, 3, 3, name='w')} {CHANNELS} c = Conv(x, w) p = Flatten(c) {NORM}",
                        "float[N,4] y",
                        "float[N,2,3,4] x",
                    ),
                    None,
                ),
                "Conv with a bias, in groups": (
                    graph(
                        f"{CONV} {CHANNELS} p = Conv<group=2>(x, w, b) {NORM}", IMAGE[0], "float[N,4,8,8] x"
                    ),
                    ["Conv"],
                ),
                "ConvTranspose in groups": (
                    graph(f"{TRANSPOSED} {CHANNELS} p = ConvTranspose<group=2>(x, w, b) {NORM}", *LARGER),
                    ["ConvTranspose"],
                ),
                "Gemm": (
                    graph(
                        f"{GEMM} {CHANNELS} p = Gemm<transB=1, alpha=0.5, beta=3.0>(x, w, b) {NORM}", *ROWS
                    ),
                    ["Gemm"],
                ),
                "Gemm of a weight that is not transposed, without a bias": (
                    graph(f"{numbers(3, 4, name='w')} {CHANNELS} p = Gemm<beta=0.0>(x, w) {NORM}", *ROWS),
                    ["Gemm"],
                ),
                "a bias for each row": (
                    graph(
                        f"{GEMM} {numbers(2, 1, name='c')} {CHANNELS} p = Gemm<transB=1>(x, w, c) {NORM}",
                        "float[2,4] y",
                        "float[2,3] x",
                    ),
                    None,
                ),
                "a weight that another reads": (
                    graph(
                        f"{CONV} {CHANNELS} p = Conv(x, w) {NORM} z = Neg(w)",
                        f"{IMAGE[0]}, float[4,2,3,3] z",
                        IMAGE[1],
                    ),
                    None,
                ),
                "the product is an output": (
                    graph(
                        f"{CONV} {CHANNELS} p = Conv(x, w) {NORM}", f"{IMAGE[0]}, float[N,4,6,6] p", IMAGE[1]
                    ),
                    None,
                ),
                "a bias that is an input": (
                    graph(f"{CONV} {CHANNELS} p = Conv(x, w, c) {NORM}", IMAGE[0], f"{IMAGE[1]}, float[4] c"),
                    None,
                ),
                "a weight that is an input": (
                    graph(f"{CHANNELS} p = Conv(x, w) {NORM}", IMAGE[0], f"{IMAGE[1]}, float[4,2,3,3] w"),
                    None,
                ),
            },
        )

    def test_batch_norm_of_a_product_in_float16(self):
        """The weights are rounded once; where float16 holds them no more the norm stays."""
        random = np.random.default_rng(0)
        cases = {
            "ordinary": ([1.5, -0.5, 2.0, 0.1], 0.0, ["Conv"]),
            "a channel that is off": ([1.5, 0.0, 2.0, 1e-9], 0.0, ["Conv"]),
            "a channel of which little is left": (
                [1.5, -0.5, 2.0, 1e-5],
                0.0,
                ["Conv", "BatchNormalization"],
            ),
            "weights too large": ([1.5, -0.5, 2.0, 6e4], 0.0, ["Conv", "BatchNormalization"]),
            "a bias too large": ([1.5, -0.5, 2.0, 10.0], 3e4, ["Conv", "BatchNormalization"]),
        }
        for promise, (scale, bias, expected) in cases.items():
            with self.subTest(promise):
                weights = {
                    "w": random.normal(size=(4, 2, 3, 3)),
                    "b": np.full(4, bias),
                    "scale": np.array(scale),
                    "shift": random.normal(size=4),
                    "mean": random.normal(size=4),
                    "variance": random.uniform(0.5, 2, size=4),
                }
                nodes = f"p = Conv(x, w, b) {NORM}"
                model = parsed_halves("float16[N,2,8,8] x", "float16[N,4,6,6] y", nodes, weights)
                optimized = optimize(model)
                self.assertEqual(expected, operators(optimized))
                if expected == ["Conv"]:
                    x = random.normal(size=(3, 2, 8, 8)).astype(np.float16)
                    wanted, got = (session(item).run(None, {"x": x})[0] for item in (model, optimized))
                    np.testing.assert_allclose(got, wanted, rtol=0, atol=2**-10 * np.abs(wanted).max())

    def test_a_bias_in_float16_that_is_no_constant(self):
        random = np.random.default_rng(0)
        weights = {name: random.uniform(0.5, 2, size=4) for name in ("scale", "shift", "mean", "variance")}
        weights["w"] = random.normal(size=(4, 2, 3, 3))
        model = parsed_halves(
            "float16[N,2,8,8] x, float16[4] b", "float16[N,4,6,6] y", f"p = Conv(x, w, b) {NORM}", weights
        )
        optimized = optimize(model)
        self.assertEqual(["Conv", "BatchNormalization"], operators(optimized))
        feeds = {"x": random.normal(size=(3, 2, 8, 8)), "b": random.normal(size=4)}
        feeds = {name: value.astype(np.float16) for name, value in feeds.items()}
        wanted, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
        np.testing.assert_array_equal(wanted, got)

    def test_product_of_batch_norm(self):
        channels = " ".join(
            numbers(4, name=name, positive=name == "variance")
            for name in ("scale", "shift", "mean", "variance")
        )
        norm = "a = BatchNormalization(x, scale, shift, mean, variance)"
        weight, bias = numbers(6, 4, 3, name="w"), numbers(6, name="b")
        signals = "float[N,6,5] y", "float[N,4,7] x"
        rows = "float[N,6] y", "float[N,4] x"
        self.assert_table(
            "ProductOfBatchNorm",
            {
                "Conv": (graph(f"{weight} {channels} {norm} y = Conv(a, w)", *signals), ["Conv"]),
                "Conv in groups, with a bias": (
                    graph(
                        f"{numbers(6, 2, 3, name='w')} {bias} {channels} {norm} y = Conv<group=2, pads=[0,0]>(a, w, b)",
                        *signals,
                    ),
                    ["Conv"],
                ),
                "Gemm": (
                    graph(
                        f"{numbers(6, 4, name='w')} {bias} {channels} {norm} "
                        "y = Gemm<transB=1, alpha=0.5, beta=3.0>(a, w, b)",
                        *rows,
                    ),
                    ["Gemm"],
                ),
                "Gemm of a weight that is not transposed": (
                    graph(f"{numbers(4, 6, name='w')} {channels} {norm} y = Gemm<beta=0.0>(a, w)", *rows),
                    ["Gemm"],
                ),
                "zeros around": (
                    graph(
                        f"{weight} {channels} {norm} y = Conv<pads=[1,0]>(a, w)", "float[N,6,6] y", signals[1]
                    ),
                    None,
                ),
                "zeros around by name": (
                    graph(
                        f'{weight} {channels} {norm} y = Conv<auto_pad="SAME_UPPER">(a, w)',
                        "float[N,6,7] y",
                        signals[1],
                    ),
                    None,
                ),
                "rows that are channels": (
                    graph(
                        f"{numbers(2, 6, name='w')} {channels} {norm} y = Gemm<transA=1>(a, w)",
                        "float[4,6] y",
                        "float[2,4] x",
                    ),
                    None,
                ),
                "another reads the norm": (
                    graph(
                        f"{weight} {channels} {norm} y = Conv(a, w)",
                        f"{signals[0]}, float[N,4,7] a",
                        signals[1],
                    ),
                    None,
                ),
            },
        )

    def test_a_norm_in_training_stays(self):
        text = graph(
            f"{CONV} {CHANNELS} p = Conv(x, w) y, m, v = BatchNormalization<training_mode=1>(p, scale, shift, mean, variance)",
            "float[N,4,6,6] y, float[4] m, float[4] v",
            IMAGE[1],
        )
        optimized = optimize(parsed(text))
        self.assertEqual(["Conv", "BatchNormalization"], operators(optimized))

    def test_biases_that_are_equal_are_one(self):
        zeros = "z = Constant <value = float[4] {0,0,0,0}> ()"
        norms = (f"{name} = BatchNormalization({name}_, {name}_scale, z, z, variance)" for name in ("p", "q"))
        text = graph(
            f"{numbers(4, 2, 3, 3, name='v')} {numbers(4, 2, 3, 3, name='w')} {numbers(4, name='p_scale')} "
            f"{numbers(4, name='q_scale')} {numbers(4, name='variance', positive=True)} {zeros} "
            f"p_ = Conv(x, v) q_ = Conv(x, w) {' '.join(norms)} y = Sub(p, q)",
            *IMAGE,
        )
        optimized = optimize(parsed(text))
        self.assertEqual(["Conv", "Conv", "Sub"], operators(optimized))
        biases = [node.input[2] for node in optimized.graph.node[:2]]
        self.assertEqual(biases[0], biases[1])
        self.assertEqual(optimized, optimize(optimized))

    def test_batch_norm_of_linear(self):
        self.assert_table(
            "BatchNormOfLinear",
            {
                "with a bias": (
                    graph(f"{LINEAR} {CHANNELS} m = MatMul(x, w) p = Add(b, m) {NORM}", *ROWS),
                    ["MatMul", "Add"],
                ),
                "without": (
                    graph(f"{numbers(3, 4, name='w')} {CHANNELS} p = MatMul(x, w) {NORM}", *ROWS),
                    ["MatMul", "Add"],
                ),
                "turned": (
                    graph(
                        f"{LINEAR} {CHANNELS} m = MatMul(x, w) n = Add(m, b) p = Transpose<perm=[0, 2, 1]>(n) {NORM}",
                        "float[N,4,5] y",
                        LAYERS[1],
                    ),
                    ["MatMul", "Add", "Transpose"],
                ),
                "turned, another axis": (
                    graph(
                        f"{LINEAR} {CHANNELS} m = MatMul(x, w) p = Transpose<perm=[2, 1, 0]>(m) {NORM}",
                        "float[4,4,N] y",
                        "float[N,4,3] x",
                    ),
                    None,
                ),
                "turned, read twice": (
                    graph(
                        f"{LINEAR} {CHANNELS} m = MatMul(x, w) p = Transpose<perm=[0, 2, 1]>(m) {NORM} z = Neg(p)",
                        "float[N,4,5] y, float[N,4,5] z",
                        LAYERS[1],
                    ),
                    None,
                ),
                "channels before the last axis": (
                    graph(
                        f"{numbers(3, 5, name='w')} {CHANNELS} p = MatMul(x, w) {NORM}",
                        "float[N,4,5] y",
                        "float[N,4,3] x",
                    ),
                    None,
                ),
            },
        )

    def test_batch_norm_between_transposes(self):
        turn = "t = Transpose<perm=[0, 2, 1]>(x)"
        norm = NORM.replace("(p", "(t").replace("y =", "p =")
        doubles = CHANNELS.replace("float[", "double[")
        self.assert_table(
            "BatchNormBetweenTransposes",
            {
                "and back": (
                    graph(
                        f"{CHANNELS} {turn} {norm} y = Transpose<perm=[0, 2, 1]>(p)",
                        LAYERS[0],
                        "float[N,5,4] x",
                    ),
                    ["Mul", "Add"],
                ),
                "and elsewhere, in float64": (
                    graph(
                        f"{doubles} {turn} {norm} y = Transpose<perm=[1, 2, 0]>(p)",
                        "double[4,5,N] y",
                        "double[N,5,4] x",
                    ),
                    ["Mul", "Add", "Transpose"],
                ),
                "of another axis": (
                    graph(
                        f"{CHANNELS} t = Transpose<perm=[2, 1, 0]>(x) {norm} y = Transpose<perm=[2, 1, 0]>(p)",
                        "float[N,4,5] y",
                        "float[N,4,5] x",
                    ),
                    None,
                ),
                "read between them": (
                    graph(
                        f"{CHANNELS} {turn} {norm} y = Transpose<perm=[0, 2, 1]>(p) z = Neg(p)",
                        f"{LAYERS[0]}, float[N,4,5] z",
                        "float[N,5,4] x",
                    ),
                    None,
                ),
            },
        )

    def test_batch_norm_of_rows(self):
        result, given = "float[M,4] y", "float[N,5,3] x"
        narrow = f"{numbers(3, 2, name='w')} s = Constant <value = int64[2] {{-1,4}}> ()"
        self.assert_table(
            "BatchNormOfRows",
            {
                "flattened": (
                    graph(
                        f"{LINEAR} {CHANNELS} m = MatMul(x, w) q = Add(m, b) p = Flatten<axis=2>(q) {NORM}",
                        result,
                        given,
                    ),
                    ["MatMul", "Add", "Flatten"],
                ),
                "in another shape, without a bias": (
                    graph(
                        f"{numbers(3, 4, name='w')} s = Constant <value = int64[2] {{-1,4}}> () {CHANNELS} m = MatMul(x, w) p = Reshape(m, s) {NORM}",
                        result,
                        given,
                    ),
                    ["MatMul", "Add", "Reshape"],
                ),
                "two rows in one": (
                    graph(
                        f"{narrow} {CHANNELS} m = MatMul(x, w) p = Reshape(m, s) {NORM}",
                        result,
                        "float[N,6,3] x",
                    ),
                    None,
                ),
                "three axes": (
                    graph(
                        f"{LINEAR} {CHANNELS} m = MatMul(x, w) s = Constant <value = int64[3] {{-1,4,5}}> () p = Reshape(m, s) {NORM}",
                        "float[N,4,5] y",
                        given,
                    ),
                    None,
                ),
            },
        )

    def test_batch_norm_nothing(self):
        ones, zeros = ("{" + ",".join([number] * 4) + "}" for number in "10")
        nothing = f"one = Constant <value = float[4] {ones}> () zero = Constant <value = float[4] {zeros}> () a = Abs(x)"
        norm = "n = BatchNormalization<epsilon=0.0>(a, one, zero, zero, one) y = Neg(n)"
        shapes = "float[N,4,5] y", "float[N,4,5] x"
        self.assert_table(
            "BatchNormNothing",
            {
                "nothing": (graph(f"{nothing} {norm}", *shapes), ["Abs", "Neg"]),
                "epsilon": (graph(f"{nothing} {norm}".replace("=0.0", "=0.01"), *shapes), None),
                "a shift": (graph(f"{nothing} {norm}".replace("zero, zero", "one, zero"), *shapes), None),
            },
        )

    def test_scale_of_product(self):
        self.assert_table(
            "ScaleOfProduct",
            {
                "Conv": (graph(f"{CONV} {PLANES} p = Conv(x, w, b) y = Mul(f, p)", *IMAGE), ["Conv"]),
                "Conv divided by a number": (
                    graph(f"{CONV} f = Constant <value_float=3.0> () p = Conv(x, w) y = Div(p, f)", *IMAGE),
                    ["Conv"],
                ),
                "ConvTranspose": (
                    graph(
                        f"{TRANSPOSED} {numbers(1, 4, 1, 1, name='f')} p = ConvTranspose<group=2>(x, w) y = Mul(p, f)",
                        *LARGER,
                    ),
                    ["ConvTranspose"],
                ),
                "Gemm": (
                    graph(f"{GEMM} {FACTORS} p = Gemm<transB=1>(x, w, b) y = Mul(p, f)", *ROWS),
                    ["Gemm"],
                ),
                "channels last": (
                    graph(f"{CONV} {FACTORS} p = Conv(x, w, b) {LAST} y = Mul(q, f)", *IMAGE_LAST),
                    ["Conv", "Transpose"],
                ),
                "channels last, divided": (
                    graph(
                        f"{CONV} {numbers(1, 1, 1, 4, name='f')} p = Conv(x, w, b) {LAST} y = Div(q, f)",
                        *IMAGE_LAST,
                    ),
                    ["Conv", "Transpose"],
                ),
                "a ConvTranspose with channels first of all": (
                    graph(
                        f"{TRANSPOSED} {numbers(4, 1, 1, 1, name='f')} p = ConvTranspose<group=2>(x, w) "
                        "q = Transpose<perm=[1, 0, 2, 3]>(p) y = Mul(q, f)",
                        "float[4,N,7,7] y",
                        LARGER[1],
                    ),
                    ["ConvTranspose", "Transpose"],
                ),
                "Gemm with the axes turned": (
                    graph(
                        f"{GEMM} {numbers(4, 1, name='f')} p = Gemm<transB=1>(x, w, b) q = Transpose(p) y = Mul(q, f)",
                        "float[4,N] y",
                        ROWS[1],
                    ),
                    ["Gemm", "Transpose"],
                ),
                "channels last, one number for each column": (
                    graph(
                        f"{CONV} {numbers(1, 4, 1, name='f')} p = Conv(x, w) {LAST} y = Mul(q, f)",
                        "float[N,2,4,4] y",
                        "float[N,2,4,6] x",
                    ),
                    None,
                ),
                "channels last, read twice": (
                    graph(
                        f"{CONV} {FACTORS} p = Conv(x, w, b) {LAST} y = Mul(q, f) z = Neg(q)",
                        f"{IMAGE_LAST[0]}, float[N,6,6,4] z",
                        IMAGE[1],
                    ),
                    None,
                ),
                "read before it is turned": (
                    graph(
                        f"{CONV} {FACTORS} p = Conv(x, w, b) {LAST} y = Mul(q, f) z = Neg(p)",
                        f"{IMAGE_LAST[0]}, float[N,4,6,6] z",
                        IMAGE[1],
                    ),
                    None,
                ),
                "divided": (
                    graph(f"{CONV} {PLANES} p = Conv(x, w) y = Div(f, p)", *IMAGE),
                    None,
                ),
                "divided by zero": (
                    graph(f"{CONV} f = Constant <value_float=0.0> () p = Conv(x, w) y = Div(p, f)", *IMAGE),
                    None,
                ),
                "one number for each column": (
                    graph(
                        f"{CONV} {FACTORS} p = Conv(x, w) y = Mul(p, f)",
                        "float[N,4,2,4] y",
                        "float[N,2,4,6] x",
                    ),
                    None,
                ),
                "another axis": (
                    graph(
                        f"{CONV} {numbers(1, 1, 1, 1, 1, name='f')} p = Conv(x, w) y = Mul(p, f)",
                        "float[1,N,4,6,6] y",
                        IMAGE[1],
                    ),
                    None,
                ),
            },
        )

    def test_bias_of_product(self):
        self.assert_table(
            "BiasOfProduct",
            {
                "Conv": (graph(f"{CONV} {PLANES} p = Conv(x, w, b) y = Add(f, p)", *IMAGE), ["Conv"]),
                "Conv without a bias": (
                    graph(f"{CONV} {PLANES} p = Conv(x, w) y = Sub(p, f)", *IMAGE),
                    ["Conv"],
                ),
                "Gemm": (
                    graph(f"{GEMM} {FACTORS} p = Gemm<transB=1, beta=2.0>(x, w, b) y = Add(p, f)", *ROWS),
                    ["Gemm"],
                ),
                "Gemm without a bias": (
                    graph(f"{GEMM} {FACTORS} p = Gemm<transB=1, beta=0.0>(x, w) y = Add(p, f)", *ROWS),
                    ["Gemm"],
                ),
                "a weight that another reads stays as it is": (
                    graph(
                        f"{CONV} {PLANES} p = Conv(x, w) y = Add(p, f) z = Neg(w)",
                        f"{IMAGE[0]}, float[4,2,3,3] z",
                        IMAGE[1],
                    ),
                    ["Conv", "Neg"],
                ),
                "channels last": (
                    graph(f"{CONV} {FACTORS} p = Conv(x, w, b) {LAST} y = Sub(q, f)", *IMAGE_LAST),
                    ["Conv", "Transpose"],
                ),
                "channels last, a bias for each column": (
                    graph(
                        f"{CONV} {numbers(6, 1, name='f')} p = Conv(x, w) {LAST} y = Add(q, f)", *IMAGE_LAST
                    ),
                    None,
                ),
                "subtracted": (graph(f"{CONV} {PLANES} p = Conv(x, w) y = Sub(f, p)", *IMAGE), None),
                "a bias for each place": (
                    graph(f"{CONV} {numbers(6, 6, name='f')} p = Conv(x, w) y = Add(p, f)", *IMAGE),
                    None,
                ),
            },
        )

    def test_scale_of_linear(self):
        self.assert_table(
            "ScaleOfLinear",
            {
                "a layer scale": (
                    graph(f"{LINEAR} {FACTORS} m = MatMul(x, w) a = Add(m, b) y = Mul(f, a)", *LAYERS),
                    ["MatMul", "Add"],
                ),
                "a weight that is too large to be transposed now": (
                    graph(
                        f"{numbers(40, 30, name='t')} w = Transpose<perm=[1,0]>(t) {numbers(40, name='f')} "
                        "m = MatMul(x, w) y = Mul(f, m)",
                        "float[N,40] y",
                        "float[N,30] x",
                    ),
                    ["Transpose", "MatMul"],
                ),
                "without a bias": (
                    graph(f"{numbers(3, 4, name='w')} {FACTORS} m = MatMul(x, w) y = Mul(m, f)", *LAYERS),
                    ["MatMul"],
                ),
                "a number": (
                    graph(
                        f"{LINEAR} f = Constant <value_float=-0.35> () m = MatMul(x, w) a = Add(m, b) y = Mul(f, a)",
                        *LAYERS,
                    ),
                    ["MatMul", "Add"],
                ),
                "a number in a vector": (
                    graph(
                        f"{LINEAR} f = Constant <value=float[1]{{8}}> () m = MatMul(x, w) y = Mul(m, f)",
                        *LAYERS,
                    ),
                    ["MatMul"],
                ),
                "a number that adds axes": (
                    graph(
                        f"{LINEAR} f = Constant <value=float[1,1,1,1]{{8}}> () m = MatMul(x, w) y = Mul(m, f)",
                        "float[1,N,5,4] y",
                        LAYERS[1],
                    ),
                    None,
                ),
                "a number that makes small weights smaller": (
                    graph(
                        f"{LINEAR} f = Constant <value_float=1e-9> () m = MatMul(x, w) y = Mul(m, f)", *LAYERS
                    ),
                    None,
                ),
                "a number that is not finite": (
                    graph(
                        f"{LINEAR} f = Constant <value_float=inf> () m = MatMul(x, w) y = Mul(m, f)", *LAYERS
                    ),
                    None,
                ),
                "zero": (
                    graph(
                        f"{LINEAR} f = Constant <value_float=0.0> () m = MatMul(x, w) y = Mul(m, f)", *LAYERS
                    ),
                    None,
                ),
                "a vector that is no constant": (
                    graph(
                        f"{LINEAR} m = MatMul(x, w) a = Add(m, b) y = Mul(f, a)",
                        LAYERS[0],
                        f"{LAYERS[1]}, float[4] f",
                    ),
                    None,
                ),
                "a weight that two products share": (
                    graph(
                        f"{LINEAR} {FACTORS} m = MatMul(x, w) n = MatMul(z, w) a = Mul(m, f) y = Add(a, n)",
                        LAYERS[0],
                        f"{LAYERS[1]}, float[N,5,3] z",
                    ),
                    None,
                ),
                "a batch of matrices": (
                    graph(
                        f"{numbers(5, 3, 4, name='w')} {FACTORS} m = MatMul(x, w) y = Mul(m, f)",
                        "float[5,2,4] y",
                        "float[5,2,3] x",
                    ),
                    None,
                ),
            },
        )

    def test_scale_of_heads(self):
        shape = "s = Constant <value=int64[4]{0,0,2,2}> () m = MatMul(x, w) a = Add(m, b)"
        heads = f"{LINEAR} {shape} r = Reshape(a, s) h = Transpose<perm=[0,2,1,3]>(r)"
        three = "f = Constant <value_float=-3.0> ()"
        shown, parted = ("float[N,2,5,2] y", LAYERS[1]), ("float[N,5,2,2] y", LAYERS[1])
        both = ["MatMul", "Add", "Reshape", "Transpose"]
        self.assert_table(
            "ScaleOfHeads",
            {
                "divided": (graph(f"{heads} {three} y = Div(h, f)", *shown), both),
                "multiplied": (graph(f"{heads} {three} y = Mul(f, h)", *shown), both),
                "without a bias": (
                    graph(f"{heads.replace('(a, s)', '(m, s)')} {three} y = Mul(h, f)", *shown),
                    ["MatMul", "Reshape", "Transpose"],
                ),
                "not transposed": (graph(f"{heads} {three} y = Div(r, f)", *parted), both[:3]),
                "not parted": (graph(f"{heads} {three} y = Div(a, f)", *LAYERS), both[:2]),
                "what divides": (graph(f"{heads} {three} y = Div(f, h)", *shown), None),
                "divided by zero": (
                    graph(f"{heads} {three.replace('-3.0', '0.0')} y = Div(h, f)", *shown),
                    None,
                ),
                "one number for each place of a head": (
                    graph(f"{heads} f = Constant <value=float[2]{{1,2}}> () y = Mul(h, f)", *shown),
                    None,
                ),
                "a number that adds an axis": (
                    graph(
                        f"{heads} f = Constant <value=float[1,1,1,1,1]{{2}}> () y = Mul(h, f)",
                        "float[1,N,2,5,2] y",
                        LAYERS[1],
                    ),
                    None,
                ),
                "a number that adds an axis to one element": (
                    graph(
                        f"{numbers(3, 1, name='w')} s = Constant <value=int64[0]{{}}> () f = Constant <value=float[1]{{2}}> () "
                        "m = MatMul(x, w) r = Reshape(m, s) y = Mul(r, f)",
                        "float[1] y",
                        "float[3] x",
                    ),
                    None,
                ),
                "heads that another reads": (
                    graph(
                        f"{heads} {three} y = Mul(h, f) z = Neg(h)",
                        f"{shown[0]}, float[N,2,5,2] z",
                        LAYERS[1],
                    ),
                    None,
                ),
                "rows that are a result": (
                    graph(f"{heads} {three} y = Mul(h, f)", f"{shown[0]}, float[N,5,4] a", LAYERS[1]),
                    None,
                ),
                "a weight that is computed": (
                    graph(
                        f"{heads.replace('(x, w)', '(x, u)')} {three} y = Mul(h, f)",
                        shown[0],
                        f"{LAYERS[1]}, float[3,4] u",
                    ).replace("w = Transpose<perm=[1,0]>(t)", ""),
                    None,
                ),
            },
        )

    def test_the_old_weight_leaves_the_model(self):
        """One weight before, one after, computed when it is read."""
        text = graph(f"{CONV} {CHANNELS} p = Conv(x, w, b) {NORM}", *IMAGE)
        model = optimize(ir.from_proto(parsed(text)))
        tensors = {value.name: value.const_value for value in model.graph.initializers.values()}
        self.assertEqual({(4, 2, 3, 3), (4,)}, {tuple(tensor.shape) for tensor in tensors.values()})
        self.assertEqual(2, len(tensors))
        self.assertIsInstance(tensors["w_scaled"], ir.LazyTensor)
        onnx.checker.check_model(ir.to_proto(model), full_check=True)


if __name__ == "__main__":
    unittest.main()
