"""Rules of activations written by hand."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

NUMBERS = {
    "half": 0.5,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "six": 6.0,
    "zero": 0.0,
    "sixth": 1 / 6,
    "root": 2**0.5,
    "inverse": 0.5**0.5,
    "cubic": 0.044715,
    "scale": 0.7978845608028654,
    "quick": 1.702,
}


def graph(nodes, result="float[N,3] y", inputs="float[N,3] x"):
    """The text of a model with the numbers that its nodes read."""
    words = nodes.replace("(", " ").replace(")", " ").replace(",", " ").split()
    numbers = [
        f"{name} = Constant <value_float={value!r}> ()" for name, value in NUMBERS.items() if name in words
    ]
    return f"agraph ({inputs}) => ({result}) {{ {' '.join(numbers)} {nodes} }}"


ERF = "e = Erf(d) a = Add(e, one)"
CUBE = "p = Pow(x, three) q = Mul(p, cubic) r = Add(x, q) t = Mul(r, scale)"
TANH = "u = Tanh(t) a = Add(one, u)"
CLIP = "s = Add(x, three) c = Clip(s, zero, six)"


class TestActivations(RuleTestCase):
    BECOME = {
        "GeluErf": [
            (f"d = Div(x, root) {ERF} m = Mul(x, a) y = Mul(m, half)", "Gelu"),
            (f"d = Mul(inverse, x) {ERF} h = Mul(x, half) y = Mul(h, a)", "Gelu"),
            (f"d = Div(x, root) {ERF} h = Div(a, two) y = Mul(x, h)", "Gelu"),
            (f"d = Div(x, root) {ERF} m = Mul(a, x) y = Div(m, two)", "Gelu"),
        ],
        "GeluTanh": [
            (f"h = Mul(half, x) {CUBE} {TANH} y = Mul(h, a)", "Gelu"),
            (
                f"w = Mul(x, x) {CUBE} {TANH} m = Mul(x, a) y = Mul(m, half)".replace(
                    "Pow(x, three)", "Mul(w, x)"
                ),
                "Gelu",
            ),
            (
                f"k = Mul(x, scale) w = Pow(x, two) q = Mul(w, cubic) r = Add(q, one) t = Mul(k, r) {TANH} h = Mul(x, half) y = Mul(h, a)",
                "Gelu",
            ),
            (
                f"k = Mul(x, scale) w = Mul(x, cubic) q = Mul(w, x) r = Add(q, one) t = Mul(k, r) {TANH} h = Mul(x, half) y = Mul(h, a)",
                "Gelu",
            ),
        ],
        "HardSwish": [
            (f"{CLIP} m = Mul(x, c) y = Div(m, six)", "HardSwish"),
            (f"{CLIP} m = Mul(c, sixth) y = Mul(m, x)", "HardSwish"),
            ("s = HardSigmoid<alpha=0.16666667>(x) y = Mul(x, s)", "HardSwish"),
        ],
        "Mish": [("s = Softplus(x) t = Tanh(s) y = Mul(t, x)", "Mish")],
        "LeakyRelu": [
            ("w = Constant <value = float[1] {0.25}> () y = PRelu(x, w)", "LeakyRelu"),
            ("w = Constant <value = float[1,3] {7, 7, 7}> () y = PRelu(x, w)", "LeakyRelu"),
        ],
    }
    STAY = {
        "GeluErf": [
            (graph(f"d = Mul(x, half) {ERF} m = Mul(x, a) y = Mul(m, half)"), 20),
            (graph(f"d = Div(x, root) {ERF} m = Mul(x, a) y = Mul(m, two)"), 20),
            (graph(f"d = Div(x, root) {ERF} m = Mul(d, a) y = Mul(m, half)"), 20),
            (
                graph(f"d = Div(x, root) {ERF} m = Mul(x, a) y = Mul(m, half)", "float[N,3] y, float[N,3] e"),
                20,
            ),
            (graph(f"d = Div(x, root) {ERF} m = Mul(x, a) y = Mul(m, half)"), 19),
            (
                graph(
                    f"d = Div(x, root) {ERF} m = Mul(x, a) y = Mul(m, w)", "float[1,N] y", "float[N] x"
                ).replace("{ ", "{ w = Constant <value = float[1,1] {0.5}> () ", 1),
                20,
            ),
        ],
        "GeluTanh": [
            (graph(f"h = Mul(half, x) {CUBE} {TANH} y = Mul(h, a)".replace("cubic", "half")), 20),
            (graph(f"h = Mul(half, x) {CUBE} {TANH} y = Mul(h, a)".replace("three", "two")), 20),
            (graph(f"h = Mul(half, x) {CUBE} {TANH} y = Mul(h, a)"), 19),
            (
                graph(f"h = Mul(half, x) {CUBE} {TANH} y = Mul(h, a)", "double[N] y", "double[N] x")
                .replace("_float=", " = double {")
                .replace("> ()", "}> ()"),
                20,
            ),
        ],
        "HardSwish": [
            (graph(f"{CLIP} m = Mul(x, c) y = Div(m, three)"), 20),
            (graph(f"{CLIP} m = Mul(c, half) y = Mul(m, x)"), 20),
            (graph("s = HardSigmoid(x) y = Mul(x, s)"), 20),
            (graph(f"{CLIP} m = Mul(x, c) y = Div(m, six)"), 13),
        ],
        "Mish": [
            (graph("s = Softplus(x) t = Tanh(s) m = Mul(t, x) y = Add(m, t)"), 20),
            (graph("s = Softplus(x) t = Tanh(s) y = Mul(t, x)"), 17),
        ],
        "LeakyRelu": [
            (graph("w = Constant <value = float[3] {0.25, 0.5, 0.25}> () y = PRelu(x, w)"), 20),
            (graph("y = PRelu(x, w)", inputs="float[N,3] x, float[1] w"), 20),
            (
                graph(
                    "w = Constant <value = float[1,3] {7, 7, 7}> () z = PRelu(x, w) y = Identity(z)",
                    "float[N,K] y",
                    "float[N,C] x",
                ),
                20,
            ),
            (
                graph(
                    "w = Constant <value = float[1,1] {7}> () z = PRelu(x, w) n = Shape(z) y = Cast<to=1>(n)",
                    "float[A] y",
                    "float[N] x",
                ),
                20,
            ),
            (
                graph(
                    "w = Constant <value = float16[1] {13312}> () y = PRelu(x, w)",
                    "float16[N,3] y",
                    "float16[N,3] x",
                ),
                20,
            ),
        ],
    }

    def test_they_fire(self):
        for rule, cases in self.BECOME.items():
            for nodes, operator in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    self.assert_becomes(graph(nodes), [operator], rule=rule)

    def test_they_do_not_fire(self):
        for rule, cases in self.STAY.items():
            for text, opset in cases:
                with self.subTest(f"{rule}: {text}"):
                    self.assert_stays(text, rule=rule, opset=opset)


if __name__ == "__main__":
    unittest.main()
