"""Functions of one size: what they are for all sizes, beside Python's numbers."""

import random
import unittest

import onnx_ir as ir

from _unittests.ut_xoptim.cases import parsed
from experimental_experiment.xoptim import periodic
from experimental_experiment.xoptim.periodic import NotPeriodic, Periodic, computed, named, of_size


def at(function: Periodic, size: int) -> int:
    """The number for one size."""
    times, rest = divmod(size, len(function.slopes))
    return int(function.slopes[rest] * times + function.starts[rest])


def expression(generator: random.Random, depth: int) -> str:
    """An arithmetic expression of ``n``."""
    if not depth:
        return generator.choice(["n", "n", str(generator.randrange(-9, 10))])
    left, number = expression(generator, depth - 1), generator.randrange(1, 8)
    return generator.choice(
        [
            f"({left} + {expression(generator, depth - 1)})",
            f"({left} - {expression(generator, depth - 1)})",
            f"({left} * {generator.randrange(-4, 5)})",
            f"({left} // {number})",
            f"({left} % {number})",
            f"(-{left})",
        ]
    )


class TestPeriodic(unittest.TestCase):
    def test_names(self):
        generator, followed = random.Random(0), 0
        for _ in range(200):
            text = expression(generator, generator.randrange(1, 6))
            try:
                function = named(text)
            except NotPeriodic:
                continue
            followed += 1
            with self.subTest(text):
                for size in (*range(50), 997, 4096, 5003):
                    self.assertEqual(eval(text, {"n": size}), at(function, size))
        self.assertGreater(followed, 190)

    def test_names_of_other_things(self):
        for text in (
            "a + b",
            "n * n",
            "n // n",
            "n % 0",
            "n / 2",
            "Max(n, 2)",
            "?",
            "n.a",
            "1.5",
            f"n // {2**20}",
        ):
            with self.subTest(text), self.assertRaises(NotPeriodic):
                named(text)
        with self.assertRaises(NotPeriodic):
            of_size(ir.SymbolicDim(None))
        self.assertTrue(named("n - n").is_same(named("0")))

    def test_larger_ones(self):
        zero, rest = named("0"), named("n % 3 - 1")
        self.assertEqual([0, 0, 1], [at(rest.at_least(zero), size) for size in range(3)])
        with self.assertRaises(NotPeriodic):
            named("n").at_least(zero)

    def test_values(self):
        cases = {
            "two = Constant<value_ints=[2]>() y = Div(n, two)": "n // 2",
            "two = Constant<value_ints=[2]>() y = Mul(n, two)": "n * 2",
            "two = Constant<value_ints=[2]>() r = Mod(n, two) d = Sub(n, r) e = Sub(r, n) q = Div(e, two) y = Add(q, d)": "(n % 2 - n) // 2 + n - n % 2",
            "s = Squeeze(n) y = Identity(s)": "n",
        }
        for nodes, wanted in cases.items():
            with self.subTest(nodes):
                self.assertTrue(computed(self.value(nodes)).is_same(named(wanted)))
        refused = {
            "a negative number that is rounded": "two = Constant<value_ints=[2]>() m = Mul(n, two) d = Sub(n, m) y = Div(d, two)",
            "the rest of C": "two = Constant<value_ints=[2]>() y = Mod<fmod=1>(n, two)",
            "another dtype": "f = Cast<to=1>(n) two = Constant<value_floats=[2.0]>() d = Div(f, two) y = Cast<to=7>(d)",
            "an input": "y = Identity(i)",
            "two sizes": "k = Shape<end=1>(x) y = Add(n, k)",
            "several numbers": "y = Shape(x)",
        }
        for promise, nodes in refused.items():
            with self.subTest(promise), self.assertRaises(NotPeriodic):
                computed(self.value(nodes))

    def test_long_chains(self):
        links = [f"v{i + 1} = Add(v{i}, v{i})" for i in range(60)]
        chain = " ".join(["v0 = Identity(n)", *links, "y = Identity(v60)"])
        self.assertEqual(2**60, at(computed(self.value(chain)), 1))
        with unittest.mock.patch.object(periodic, "MOST_NODES", 50), self.assertRaises(NotPeriodic):
            computed(self.value(chain))

    def value(self, nodes: str) -> ir.Value:
        """The value ``y`` of a graph with the size ``n``."""
        text = f"agraph (float[k,n] x, int64[1] i) => (int64[A] y) {{ n = Shape<start=1>(x) {nodes} }}"
        model = ir.from_proto(parsed(text))
        for node in model.graph:  # as after inference
            for result in node.outputs:
                result.dtype = ir.DataType.FLOAT if result.name == "f" else ir.DataType.INT64
        return model.graph.outputs[0]


if __name__ == "__main__":
    unittest.main()
