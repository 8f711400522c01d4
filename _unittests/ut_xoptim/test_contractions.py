"""The rule that writes an Einsum as a product of matrices."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize

SIZES = {"b": "2", "h": "H", "i": "I", "j": "J", "d": "4", "e": "5"}


class TestEinsumOfMatrices(RuleTestCase):
    RULE = "EinsumOfMatrices"

    def graph(self, equation: str, sizes: dict[str, str] = SIZES) -> str:
        """An Einsum whose axes have the sizes of their letters."""
        terms, output = equation.replace(" ", "").split("->")
        shapes = [",".join(sizes[letter] for letter in term) for term in (*terms.split(","), output)]
        a, b, y = (f"float[{shape}] {name}" for shape, name in zip(shapes, "aby"))
        return f'agraph ({a}, {b}) => ({y}) {{ y = Einsum <equation="{equation}"> (a, b) }}'

    def test_products(self):
        cases = {
            "bid,bdj->bij": ["MatMul"],
            "b i d, b j d -> b i j": ["Transpose", "MatMul"],
            "bhid,bhjd->bhij": ["Transpose", "MatMul"],
            "bhij,bhjd->bhid": ["MatMul"],
            "bihd,bjhd->bhij": ["Transpose", "Transpose", "MatMul"],
            "bhij,bjhd->bihd": ["Transpose", "MatMul", "Transpose"],
            "bid,bjd->bji": ["Transpose", "MatMul"],
            "bid,ed->bie": ["Transpose", "MatMul"],
            "bid,de->bie": ["MatMul"],
            "ed,bdi->bei": ["MatMul"],
            "ed,bid->bie": ["Transpose", "MatMul"],
            "ed,bdi->bie": ["MatMul", "Transpose"],
            "ed,bhid->bhei": ["Transpose", "MatMul"],
            "id,dj->ij": ["MatMul"],
            "id,jd->ji": ["Transpose", "MatMul"],
        }
        for equation, expected in cases.items():
            with self.subTest(equation):
                self.assert_becomes(self.graph(equation), expected)

    def test_what_stays(self):
        equations = {
            "a product of elements": "bid,bid->bid",
            "no row": "bd,bde->be",
            "two axes are summed": "bihd,hde->bie",
            "an axis of one operand is summed": "bid,dj->bj",
            "a diagonal": "bii,bij->bij",
            "three Transposes": "dbi,dbj->ibj",
            "rows of two axes in a batch": "bhid,bjd->bhij",
            "channels before two axes": "ed,bdhi->behi",
            "channels that move to the front": "ed,bhid->behi",
        }
        for promise, equation in equations.items():
            with self.subTest(promise):
                self.assert_stays(self.graph(equation))

    def test_axes_that_broadcast(self):
        text = self.graph("bhid,bhjd->bhij").replace("float[2,H,J,4] b", "float[1,H,J,4] b")
        self.assert_stays(text)
        self.assert_becomes(self.graph("bhid,bhjd->bhij", {**SIZES, "b": "1"}), ["Transpose", "MatMul"])

    def test_axes_of_other_names(self):
        """What is summed may be one element in one operand alone; samples that broadcast are those of the product too."""
        text = self.graph("bij,bjd->bid")
        self.assert_stays(text.replace("float[2,J,4] b", "float[2,K,4] b"))
        model = parsed(text.replace("float[2,J,4] b", "float[C,J,4] b"))
        optimized = optimize(model, OptimizationOptions([self.RULE]))
        self.assertEqual(["MatMul"], operators(optimized))
        random = np.random.default_rng(0)
        for samples, middle in ((2, 3), (1, 5)):
            feeds = {"a": random.normal(size=(2, 6, middle)), "b": random.normal(size=(samples, middle, 4))}
            feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
            wanted, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)

    def test_other_forms(self):
        ellipsis = self.graph("bid,bdj->bij").replace("bid,bdj->bij", "...id,...dj->...ij")
        implicit = self.graph("id,dj->ij").replace("id,dj->ij", "id,dj")
        three = 'y = Einsum <equation="ij,jk,kl->il"> (a, b, c)'
        chain = f"agraph (float[2,3] a, float[3,4] b, float[4,2] c) => (float[2,2] y) {{ {three} }}"
        for text in (ellipsis, implicit, chain):
            with self.subTest(text):
                self.assert_stays(text)

    def test_a_summed_axis_that_may_be_empty(self):
        """The product with a Transpose would not set its result then."""
        self.assert_stays(self.graph("bid,bjd->bij", {**SIZES, "d": "D"}))


if __name__ == "__main__":
    unittest.main()
