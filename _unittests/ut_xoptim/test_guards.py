"""Rules of the guards of masks."""

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize

CONSTANTS = """
zero = Constant <value=float {0.0}> () closed = Constant <value=float {-inf}> ()
first = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () two = Constant <value=int64 {2}> ()
open = Constant <value=bool {1}> () square = Constant <value=int64[2]{3,6}> () less = Constant <value=int64 {-1}> ()
onef = Constant <value=float {1.0}> () half = Constant <value=float {0.5}> ()
last = Constant <value=int64[1]{-1}> () across = Constant <value=int64[1]{1}> () along = Constant <value=int64[1]{0}> ()
"""

POSITIONS = """
rows = Shape <start=0, end=1> (x) before = Shape <start=0, end=1> (past)
S = Squeeze (rows) P = Squeeze (before) T = Add (P, S)
counted = Range (first, S, one) queries = Add (counted, P) keys = Range (first, T, one)
q = Unsqueeze (queries, across) k = Unsqueeze (keys, along)
"""

GUARD = """
bias = Where (mask, zero, closed) sum = Add (x, bias) w = Softmax (sum) r = MatMul (w, v)
largest = ReduceMax <keepdims=1> (bias, last) none = Equal (largest, closed) y = Where (none, zero, r)
"""

BELOW = GUARD.replace("Equal (largest, closed)", "Less (largest, zero)")

BY_THE_SUM = GUARD.replace("ReduceMax", "ReduceLogSumExp")
"""As a model on a GPU has it."""

INPUTS = "float[3,6] x, float[3,1] past, float[6,2] v"


class TestGuards(RuleTestCase):
    RULE = "GuardOfValues"

    MASKS = {
        "keys up to the query": "mask = LessOrEqual (k, q)",
        "the same from the other side": "mask = GreaterOrEqual (q, k)",
        "a window that holds the query": "sub = Sub (q, two) near = Greater (k, sub) le = LessOrEqual (k, q) mask = And (near, le)",
        "the same window, spelled otherwise": "sub = Sub (q, two) near = Less (sub, k) le = LessOrEqual (k, q) mask = And (le, near)",
        "positions that exist": "mask = GreaterOrEqual (k, first)",
        "a lower triangle": "all = Expand (open, square) mask = Trilu <upper=0> (all)",
        "a lower triangle of a number that is computed": "shut = Not (open) true = Not (shut) all = Expand (true, square) mask = Trilu <upper=0> (all)",
        "a lower triangle beyond the diagonal": "all = Expand (open, square) mask = Trilu <upper=0> (all, two)",
        "a lower triangle of numbers": "all = Expand (onef, square) t = Trilu <upper=0> (all) mask = Cast <to=9> (t)",
        "what is not above the diagonal": "all = Expand (open, square) t = Trilu <upper=1> (all, one) mask = Not (t)",
        "a lower triangle that is compared": "all = Expand (onef, square) t = Trilu <upper=0> (all) mask = Equal (t, onef)",
        "a part of a lower triangle": (
            "large = Constant <value=int64[2]{9,9}> () all = Expand (open, large) t = Trilu <upper=0> (all)"
            " both = Constant <value=int64[2]{0,0}> () mask = Slice (t, both, square)"
        ),
        "keys up to the query and positions that exist": "le = LessOrEqual (k, q) ge = GreaterOrEqual (k, first) mask = And (ge, le)",
    }

    OTHER_MASKS = {
        "keys before the query": "mask = Less (k, q)",
        "keys from the query on": "mask = GreaterOrEqual (k, q)",
        "a window of nothing": "sub = Sub (q, first) near = Greater (k, sub) le = LessOrEqual (k, q) mask = And (near, le)",
        "a window before the query": "sub = Sub (q, two) near = Greater (k, sub) le = Less (k, q) mask = And (near, le)",
        "queries that may be negative": "m = Sub (q, two) mask = LessOrEqual (k, m)",
        "keys that start at one": "E = Add (T, one) up = Range (one, E, one) u = Unsqueeze (up, along) mask = LessOrEqual (u, q)",
        "positions along the other axis": "qq = Unsqueeze (queries, along) kk = Unsqueeze (keys, across) t = LessOrEqual (kk, qq) mask = Transpose (t)",
        "a lower triangle that is compared with another number": (
            "all = Expand (onef, square) t = Trilu <upper=0> (all) mask = Equal (t, half)"
        ),
        "the end of a lower triangle": (
            "large = Constant <value=int64[2]{9,9}> () all = Expand (open, large) t = Trilu <upper=0> (all)"
            " from = Constant <value=int64[2]{0,3}> () to = Constant <value=int64[2]{3,9}> () mask = Slice (t, from, to)"
        ),
        "a lower triangle before the diagonal": "all = Expand (open, square) mask = Trilu <upper=0> (all, less)",
        "an upper triangle": "all = Expand (open, square) mask = Trilu <upper=1> (all, one)",
        "what is above the diagonal": "all = Expand (open, square) t = Trilu <upper=1> (all, first) mask = Not (t)",
        "what is below the diagonal": "all = Expand (open, square) t = Trilu <upper=0> (all) mask = Not (t)",
        "a lower triangle of a mask from outside": "all = Greater (x, past) mask = Trilu <upper=0> (all)",
        "a lower triangle of fractions": (
            "all = Expand (half, square) t = Trilu <upper=0> (all) i = Cast <to=7> (t) mask = Cast <to=9> (i)"
        ),
        "a mask from outside": "mask = Greater (x, past)",
        "a window around keys that end before the query": (
            "few = Range (first, S, one) f = Unsqueeze (few, along) sub = Sub (q, one) near = Greater (f, sub)"
            " le = LessOrEqual (f, q) m = And (near, le) mask = Concat <axis=1> (m, m)"
        ),
    }

    def test_a_guard_that_never_acts(self):
        for promise, mask in self.MASKS.items():
            with self.subTest(promise):
                self.assert_guard(mask, fires=True)

    def test_a_guard_that_may_act(self):
        for promise, mask in self.OTHER_MASKS.items():
            with self.subTest(promise):
                self.assert_guard(mask, fires=False)

    def test_a_triangle_for_all_batches(self):
        self.assert_guard(
            "all = Expand (open, square) t = Trilu <upper=0> (all) mask = Unsqueeze (t, along)", fires=True
        )

    def test_a_triangle_that_is_added(self):
        for k, fires in (("one", True), ("two", True), ("first", False)):
            with self.subTest(k):
                bias = f"all = Expand (closed, square) bias = Trilu <upper=1> (all, {k})"
                guard = GUARD.replace("bias = Where (mask, zero, closed)", bias)
                model = parsed(f"agraph ({INPUTS}) => (float[3,2] y) {{ {CONSTANTS} {guard} }}")
                optimized = optimize(model, OptimizationOptions([self.RULE], constant_folding=False))
                self.assertEqual(not fires, "ReduceMax" in operators(optimized))

    def test_a_triangle_that_closes(self):
        for triangle, fires in (("upper=1> (all, one)", True), ("upper=0> (all)", False)):
            with self.subTest(triangle):
                guard = GUARD.replace("Where (mask, zero, closed)", "Where (mask, closed, zero)")
                mask = f"all = Expand (open, square) mask = Trilu <{triangle}"
                model = parsed(f"agraph ({INPUTS}) => (float[3,2] y) {{ {CONSTANTS} {mask} {guard} }}")
                optimized = optimize(model, OptimizationOptions([self.RULE], constant_folding=False))
                self.assertEqual(not fires, "ReduceMax" in operators(optimized))

    def test_a_mask_of_numbers_below_zero(self):
        """Less than 0 says nothing of minus infinity there."""
        for opened, fires in (("zero", True), ("less_f", False)):
            with self.subTest(opened):
                less = "less_f = Constant <value=float {-1}> ()"
                guard = BELOW.replace("zero, closed", f"{opened}, closed")
                mask = f"{less} all = Expand (open, square) mask = Trilu <upper=0> (all)"
                self.assert_rule(f"{POSITIONS} {mask} {guard}", fires)

    def assert_guard(self, mask: str, fires: bool):
        """The guard is removed or not, and the results stay; in each of its forms."""
        for guard in (GUARD, BELOW, BY_THE_SUM):
            self.assert_rule(f"{POSITIONS} {mask} {guard}", fires)

    def assert_rule(self, nodes: str, fires: bool):
        """The guard at the end of nodes is removed or not, and the results stay."""
        model = parsed(f"agraph ({INPUTS}) => (float[3,2] y) {{ {CONSTANTS} {nodes} }}")
        optimized = optimize(model, OptimizationOptions([self.RULE], constant_folding=False))
        self.assertEqual(not fires, any(name.startswith("Reduce") for name in operators(optimized)))
        wanted, got = (session(item).run(None, drawn(model)) for item in (model, optimized))
        np.testing.assert_array_equal(wanted[0], got[0])

    def test_a_mask_of_finite_numbers(self):
        low = "low = Constant <value=float {-3.4e38}> () table = Constant <value=float[2,6]{1,2,3,4,5,6,7,8,9,10,11,12}> ()"
        bias = "at = ArgMax <axis=0,keepdims=0> (x) sized = Gather (table, at) bias = Where (m, sized, low)"
        guard = GUARD.replace("bias = Where (mask, zero, closed)", bias)
        text = f"agraph (bool[6,6] m, float[1,6] x, float[6,2] v) => (float[6,2] y) {{ {CONSTANTS} {low} {guard} }}"
        optimized = optimize(parsed(text), OptimizationOptions([self.RULE]))
        self.assertNotIn("ReduceMax", operators(optimized))

    def test_looked_up_positions(self):
        """A table of finite numbers, as relative positions have."""
        for last, fires in ((6, True), ("-inf", False)):
            with self.subTest(last=last):
                table = f"table = Constant <value=float[2,6]{{1,2,3,4,5,6,7,8,9,10,11,{last}}}> ()"
                bias = "at = ArgMax <axis=0,keepdims=0> (x) sized = Gather (table, at) bias = Unsqueeze (sized, one)"
                guard = GUARD.replace("bias = Where (mask, zero, closed)", bias)
                text = f"agraph (float[1,6] x, float[6,2] v) => (float[6,1,2] y) {{ {CONSTANTS} {table} {guard} }}"
                optimized = optimize(parsed(text), OptimizationOptions([self.RULE]))
                self.assertEqual(not fires, "ReduceMax" in operators(optimized))

    def test_looked_up_positions_before_opset_13(self):
        """Axes are attributes there."""
        table = "table = Constant <value=float[2,6]{1,2,3,4,5,6,7,8,9,10,11,-inf}> ()"
        bias = "at = ArgMax <axis=0,keepdims=0> (x) sized = Gather (table, at) bias = Unsqueeze <axes=[1]> (sized)"
        guard = GUARD.replace("bias = Where (mask, zero, closed)", bias)
        guard = guard.replace("<keepdims=1> (bias, last)", "<keepdims=1, axes=[-1]> (bias)")
        text = f"agraph (float[1,6] x, float[6,2] v) => (float[6,1,2] y) {{ {CONSTANTS} {table} {guard} }}"
        model = parsed(text, 12)
        optimized = optimize(model)
        self.assertIn("ReduceMax", operators(optimized))
        feeds = drawn(model)
        np.testing.assert_allclose(
            *(session(item).run(None, feeds)[0] for item in (model, optimized)), rtol=1e-5
        )

    def test_constant_masks(self):
        for rows, fires in (("0,0,1,0", False), ("1,1,0,0", False), ("1,0,0,1", True)):
            with self.subTest(rows):
                mask = f"mask = Constant <value=bool[2,2]{{{rows}}}> ()"
                text = (
                    f"agraph (float[2,2] x, float[2,2] v) => (float[2,2] y) {{ {CONSTANTS} {mask} {GUARD} }}"
                )
                optimized = optimize(parsed(text), OptimizationOptions([self.RULE], constant_folding=False))
                self.assertEqual(not fires, "ReduceMax" in operators(optimized))

    def test_masks_of_constant_positions(self):
        """What numpy computes of them, as of texts of a known length."""
        for rows, fires in (("0,1,2", True), ("2,5,0", True), ("-1,0,1", False)):
            with self.subTest(rows):
                mask = (
                    "kk = Constant <value=int64[1,6]{0,1,2,3,4,5}> ()"
                    f" qq = Constant <value=int64[3,1]{{{rows}}}> ()"
                    " above = Greater (kk, qq) le = Not (above) all = GreaterOrEqual (kk, first) mask = And (le, all)"
                )
                text = f"agraph ({INPUTS}) => (float[3,2] y) {{ {CONSTANTS} {mask} {GUARD} }}"
                optimized = optimize(parsed(text), OptimizationOptions([self.RULE], constant_folding=False))
                self.assertEqual(not fires, "ReduceMax" in operators(optimized))


LOWEST = """lowest = Constant <value=float {-3.4e38}> ()
rows = Constant <value=float[2,3]{-3.4e38,-3.4e38,-3.4e38,0,0,0}> ()"""


class TestGuardsOfWeights(RuleTestCase):
    RULE = "GuardOfWeights"
    TEXT = """agraph (float[2,4] q, float[4,3] k, float[2,3] x, float[3,2] v, bool[2,3] m, float[3,3] square) => (float[2,2] y)
    { zero = Constant <value=float {0.0}> () closed = Constant <value=float {-inf}> () number = Constant <value=float {0.5}> ()
      mask = Constant <value=bool[2,3]{1,0,0,1,1,0}> () bias = Where (mask, zero, closed)
      positions = Constant <value=float[2,3]{1,2,3,4,-5,6}> () columns = Constant <value=float[4,3]{1,1,1,1,1,1,1,1,1,1,1,1}> ()
      p = MatMul (q, k) sum = Add (p, bias) w = Softmax <axis=-1> (sum) n = IsNaN (w) g = Where (n, zero, w) y = MatMul (g, v) }"""
    SUM = "sum = Add (p, bias)"
    END = ["Softmax", "MatMul"]

    SCORES = {
        "products": (SUM, ["Where", "MatMul", "Add"]),
        "the mask first": ("sum = Add (bias, p)", ["Where", "MatMul", "Add"]),
        "scaled products": ("s = Mul (p, number) sum = Add (s, bias)", ["Where", "MatMul", "Mul", "Add"]),
        "capped products": (
            "d = Div (p, number) t = Tanh (d) s = Mul (t, number) sum = Add (s, bias)",
            ["Where", "MatMul", "Div", "Tanh", "Mul", "Add"],
        ),
        "products and positions, then the mask": (
            "s = Add (p, positions) sum = Add (s, bias)",
            ["Where", "MatMul", "Add", "Add"],
        ),
        "products and the mask, then positions": (
            "s = Add (p, bias) sum = Add (s, positions)",
            ["Where", "MatMul", "Add", "Add"],
        ),
        "products of two kinds": (
            't = Einsum <equation="qc,ck->qk"> (q, k) s = Add (p, t) sum = Add (s, bias)',
            ["Where", "MatMul", "Einsum", "Add", "Add"],
        ),
        "no mask": ("sum = Add (p, positions)", ["MatMul", "Add"]),
    }

    OTHERS = {
        "an input, which may be a mask": "sum = Add (x, bias)",
        "a mask that is added before": "s = Add (p, x) sum = Add (s, bias)",
        "a mask that is added after": "s = Add (p, bias) sum = Add (s, x)",
        "scores that are masked, then positions": "s = Where (m, closed, p) sum = Add (s, positions)",
        "two masks": "s = Add (p, bias) sum = Add (s, bias)",
        "a mask that is repeated": "s = MatMul (x, v) t = MatMul (s, x) u = Neg (t) sum = Add (u, bias)",
        "a mask times ones": "s = MatMul (q, columns) sum = Add (s, bias)",
        "an outer product": 'r = Constant <value=float[2]{1,-1}> () s = Einsum <equation="q,qk->qk"> (r, x) sum = Add (s, bias)',
        "a mask that is divided": "s = Div (positions, x) sum = Add (s, bias)",
        "two masks of the lowest number": f"{LOWEST} s = Add (p, rows) t = Where (m, lowest, zero) sum = Add (s, t)",
        "two masks of the lowest number, added first": f"{LOWEST} t = Where (m, lowest, zero) s = Add (rows, t) sum = Add (p, s)",
        "products of the lowest number": f"{LOWEST} s = Mul (p, rows) sum = Add (s, bias)",
        "products that are divided by zero": "s = Div (p, zero) sum = Add (s, bias)",
        "products that are clipped at minus infinity": "s = Clip (p, closed, closed) sum = Add (s, bias)",
        "products of what is masked": "o = Where (m, closed, x) s = MatMul (o, square) sum = Add (s, positions)",
    }

    def test_masks_that_open_each_row(self):
        for promise, (scores, first) in self.SCORES.items():
            with self.subTest(promise):
                text = self.TEXT.replace(self.SUM, scores)
                text = text if "bias" in scores else text.replace("bias = Where (mask, zero, closed)", "")
                self.assert_becomes(text, [*first, *self.END])

    def test_what_another_mask_may_close(self):
        """A row that is closed by both together has no NaN where the guard stays."""
        for promise, scores in self.OTHERS.items():
            with self.subTest(promise):
                model = parsed(self.TEXT.replace(self.SUM, scores))
                optimized = optimize(model, OptimizationOptions([self.RULE], constant_folding=False))
                self.assertIn("IsNaN", operators(optimized))
                feeds = drawn(model)
                feeds["x"][0, 0], feeds["m"][0] = -np.inf, True
                wanted, got = (session(item).run(None, feeds) for item in (model, optimized))
                np.testing.assert_array_equal(wanted[0], got[0])

    def test_an_empty_row(self):
        self.assert_stays(self.TEXT.replace("{1,0,0,1,1,0}", "{0,0,0,1,1,0}"))

    def test_another_axis(self):
        self.assert_stays(self.TEXT.replace("Softmax <axis=-1>", "Softmax <axis=0>"))

    def test_weights_of_another_softmax(self):
        self.assert_stays(
            self.TEXT.replace("g = Where (n, zero, w)", "o = Softmax <axis=-1> (x) g = Where (n, zero, o)")
        )


class TestGuardsOfProducts(RuleTestCase):
    RULE = "GuardOfProducts"

    GUARD = """last = Constant <value=int64[1]{-1}> () zero = Constant <value=float {0.0}> () closed = Constant <value=float {-inf}> ()
      largest = ReduceMax <keepdims=1> (bias, last) none = Equal (largest, closed) r = Abs (x) y = Where (none, zero, r)"""
    TABLE = "t = Constant <value=float[2,4]{1,-2,3,0.5,2,1,-1,0}> ()"

    def guarded(self, bias: str) -> str:
        """A model that guards x by a bias computed from q."""
        return f"agraph (float[N,4] x, float[N,2] q) => (float[N,4] y) {{ {self.TABLE} {bias} {self.GUARD} }}"

    FIRES = {
        "a matrix product": "bias = MatMul (q, t)",
        "an Einsum": 'bias = Einsum <equation="nc,ck->nk"> (q, t)',
        "an Einsum of a table in front": 'bias = Einsum <equation="ck,nc->nk"> (t, q)',
        "a sum of some": 'a = MatMul (q, t) b = Einsum <equation="nc,ck->nk"> (q, t) bias = Add (a, b)',
        "moved": "a = MatMul (q, t) front = Constant <value=int64[1]{0}> () u = Unsqueeze (a, front) bias = Squeeze (u, front)",
        "rows that are looked up": (
            "rows = Constant <value=int64[2]{1,0}> () looked = Gather <axis=0> (t, rows) bias = MatMul (q, looked)"
        ),
    }

    STAYS = {
        "no table": "v = Abs (q) w = Transpose (v) p = MatMul (q, w) bias = MatMul (p, x)",
        "numbers of one sign": "p = Abs (t) bias = MatMul (q, p)",
        "averages": "p = Constant <value=float[2,4]{0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5}> () bias = MatMul (q, p)",
        "an infinity": "p = Constant <value=float[2,4]{-inf,1,1,1,1,1,1,-1}> () bias = MatMul (q, p)",
        "what repeats": (
            "row = Constant <value=float[1,4]{1,-1,1,-1}> () to = Constant <value=int64[1]{1}> () zeros = Constant <value=int64[1]{0}> ()"
            " c = Slice (q, zeros, to, to) bias = MatMul (c, row)"
        ),
        "an Einsum that sums nothing of it": (
            'row = Constant <value=float[4]{1,-1,1,-1}> () bias = Einsum <equation="nc,k->nk"> (q, row)'
        ),
        "one of two summands": "a = MatMul (q, t) bias = Add (a, x)",
        "an operator without one of its inputs": "most = Constant <value=float {9}> () bias = Clip (x, , most)",
        "an Einsum without a result": 'bias = Einsum <equation="kc,cn"> (q, t)',
    }

    def assert_guard(self, text: str, fires: bool):
        """The guard is removed or not, and the results stay."""
        model = parsed(text)
        optimized = optimize(model, OptimizationOptions([self.RULE], constant_folding=False))
        self.assertEqual(not fires, any(name.startswith("Reduce") for name in operators(optimized)))
        wanted, got = (session(item).run(None, drawn(model)) for item in (model, optimized))
        np.testing.assert_array_equal(wanted[0], got[0])

    def test_products_with_tables(self):
        for promise, bias in self.FIRES.items():
            with self.subTest(promise):
                self.assert_guard(self.guarded(bias), fires=True)

    def test_other_biases(self):
        for promise, bias in self.STAYS.items():
            with self.subTest(promise):
                self.assert_guard(self.guarded(bias), fires=False)


class TestMasksOfCounts(RuleTestCase):
    """The mask and the guard of torch.onnx.export: the lowest number where the mask is false, rows that count less than one True."""

    COUNTED = "f = Cast <to=1> (mask) count = ReduceSum <keepdims=1> (f, last) none = Less (count, least) r = Abs (x) y = Where (none, zero, r)"
    LEAST = "least = Constant <value=float {1.0}> ()"

    def guarded(self, mask: str, inputs: str = "float[3,6] x", more: str = LEAST) -> str:
        """A model that guards x."""
        return f"agraph ({inputs}, float[3,1] past) => (float[3,6] y) {{ {CONSTANTS} {more} {POSITIONS} {mask} {self.COUNTED} }}"

    def test_a_guard_that_never_acts(self):
        for promise, mask in TestGuards.MASKS.items():
            with self.subTest(promise):
                self.assert_guard(self.guarded(mask), fires=True)

    def test_a_guard_that_may_act(self):
        for promise, mask in TestGuards.OTHER_MASKS.items():
            if promise != "a window around keys that end before the query":
                with self.subTest(promise):
                    self.assert_guard(self.guarded(mask), fires=False)
        causal = "mask = LessOrEqual (k, q)"
        others = {
            "rows of two": self.guarded(causal, more=self.LEAST.replace("1.0", "2.0")),
            "the sum of numbers": self.guarded(causal.replace("mask", "m") + " mask = Cast <to=6> (m)"),
            "columns": self.guarded(causal).replace("(f, last)", "(f, along)"),
        }
        for promise, text in others.items():
            with self.subTest(promise):
                self.assert_guard(text, fires=False)

    def assert_guard(self, text: str, fires: bool):
        """The guard is removed or not, and the results stay."""
        model = parsed(text)
        optimized = optimize(model, OptimizationOptions(["GuardOfCounts"], constant_folding=False))
        self.assertEqual(not fires, "ReduceSum" in operators(optimized))
        wanted, got = (session(item).run(None, drawn(model)) for item in (model, optimized))
        np.testing.assert_array_equal(wanted[0], got[0])

    def test_a_mask_that_is_true_everywhere(self):
        """Nothing is left of it: a model that is given no mask, as torch.onnx.export writes it."""
        text = f"""agraph (float[N,4,6] x) => (float[N,4,6] y) {{ {CONSTANTS} {self.LEAST} low = Constant <value=float {{-3.4e38}}> ()
        true = Constant <value=bool[1,1]{{1}}> () size = Shape (x) mask = Expand (true, size) n = Not (mask) g = Cast <to=1> (n)
        bias = Mul (g, low) sum = Add (x, bias) {self.COUNTED.replace("Abs (x)", "Softmax (sum)")} }}"""
        self.assertEqual(["Softmax"], operators(optimize(parsed(text))))
