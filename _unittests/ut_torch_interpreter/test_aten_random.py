"""Random tensors: dtype and shape as eager, the mean and the spread of the distribution, other numbers at each run."""

import math
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.torch_versions import installed

torch.manual_seed(0)

aten = torch.ops.aten
SHAPE = (40, 250)
FLOATS = torch.zeros(SHAPE)
HALVES, DOUBLES, INTS = FLOATS.half(), FLOATS.double(), FLOATS.long()
BYTES, BOOLS = FLOATS.to(torch.uint8), FLOATS.bool()
WEIGHTS = torch.tensor([1.0, 2.0, 0.0, 7.0])


def after(second, first):
    """One function of what another one gives."""
    return lambda x: second(first(x))


class TestRandom(ExporterTestCase):
    CREATED = {
        "uniform": (aten.rand.default, SHAPE),
        "uniform, a generator": (aten.rand.generator, SHAPE, {"generator": None}),
        "uniform halves": (aten.rand.default, SHAPE, {"dtype": torch.float16}),
        "uniform bfloat16": (aten.rand.default, SHAPE, {"dtype": torch.bfloat16}),
        "normal": (aten.randn.default, SHAPE),
        "normal, a generator": (aten.randn.generator, SHAPE, {"generator": None, "dtype": torch.float64}),
        "integers": (aten.randint.default, 10, SHAPE),
        "integers, a generator": (aten.randint.generator, 10, SHAPE, {"generator": None}),
        "integers between bounds": (aten.randint.low, -5, 10, SHAPE, {"dtype": torch.int32}),
        "integers between bounds, a generator": (aten.randint.low_generator, 5, 6, SHAPE, {"generator": None}),
        "normal of numbers": (aten.normal.float_float, 2.0, 3.0, SHAPE),
        "a permutation": (aten.randperm.default, 1000),
        "a permutation, a generator": (aten.randperm.generator, 1000, {"generator": None, "dtype": torch.int32}),
    }  # fmt: skip
    LIKE = {
        "uniform like halves": (aten.rand_like.default, HALVES),
        "normal like float64": (aten.randn_like.default, DOUBLES),
        "normal in another dtype": (aten.randn_like.default, INTS, {"dtype": torch.float32}),
        "integers like floats": (aten.randint_like.default, FLOATS, 7),
        "integers below a tensor": (aten.randint_like.Tensor, FLOATS, torch.tensor(7)),
        "integers between bounds like": (aten.randint_like.low_dtype, INTS, 3, 7),
        "a mean each": (aten.normal.Tensor_float, FLOATS + 1, 3.0),
        "a deviation each": (aten.normal.float_Tensor, 1.0, HALVES + 2),
        "both each, broadcast": (aten.normal.Tensor_Tensor, FLOATS[:, :1], FLOATS[0] + 2),
        "normal in place": (lambda x: aten.normal_.default(x.clone(), 1.0, 2.0), HALVES),
        "normal, functional": (aten.normal_functional.default, HALVES, 1.0, 2.0),
        "uniform between bounds": (aten.uniform.default, HALVES, -3.0, 5.0),
        "exponential": (aten.exponential.default, FLOATS, 2.0),
        "geometric": (aten.geometric.default, INTS, 0.3),
        "log-normal": (aten.log_normal.default, DOUBLES, 0.5, 0.3),
        "all integers": (aten.random.default, INTS),
        "all bytes": (aten.random.default, BYTES),
        "all booleans": (aten.random.default, BOOLS),
        "all integers in halves": (aten.random.default, HALVES),
        "integers up to a bound": (aten.random.to, FLOATS, 9),
        "a coin each": (aten.bernoulli.default, FLOATS + 0.3),
        "a coin": (aten.bernoulli.p, INTS, 0.3),
        "a coin from a tensor": (aten.bernoulli.Tensor, HALVES, FLOATS[0] + 0.6),
        "draws with replacement": (aten.multinomial.default, WEIGHTS, 10000, True),
        "draws with replacement, float16": (aten.multinomial.default, WEIGHTS.half(), 10000, True),
        "draws with replacement, float64": (aten.multinomial.default, WEIGHTS.double(), 10000, True),
        "draws with replacement, two rows": (aten.multinomial.default, WEIGHTS.repeat(2, 1), 10000, True),
        "one draw": (aten.multinomial.default, WEIGHTS.repeat(5000, 1), 1),
        "draws without replacement": (aten.multinomial.default, WEIGHTS.repeat(5000, 1), 2),
        "events": (aten.poisson.default, FLOATS + 4),
        "gamma": (aten._standard_gamma.default, FLOATS + 4),
        "gamma, below 1": (aten._standard_gamma.default, FLOATS + 0.8),
        "gamma, float64": (aten._standard_gamma.default, FLOATS.double() + 1.5),
    }
    COMPLEX = {
        "uniform": lambda x: aten.rand.default(SHAPE, dtype=torch.complex64),
        "uniform, a generator": lambda x: aten.rand.generator(SHAPE, generator=None, dtype=torch.complex128),
        "uniform like real": lambda x: aten.rand_like.default(x, dtype=torch.complex64),
        "normal": lambda x: aten.randn.default(SHAPE, dtype=torch.complex64),
        "normal, a generator": lambda x: aten.randn.generator(SHAPE, generator=None, dtype=torch.complex128),
        "normal like real": lambda x: aten.randn_like.default(x, dtype=torch.complex64),
        "real like complex": lambda x: aten.randn_like.default(torch.complex(x, x), dtype=x.dtype) + 0j,
    }
    if installed("rand_like.generator"):  # torch 2.9 lacks them
        LIKE |= {
            "uniform like, a generator": (aten.rand_like.generator, FLOATS, {"generator": None}),
            "normal like, a generator": (aten.randn_like.generator, FLOATS, {"generator": None}),
            "integers like, a generator": (aten.randint_like.generator, INTS, 7, {"generator": None}),
            "integers between bounds like, a generator": (
                aten.randint_like.low_generator_dtype, INTS, 3, 7, {"generator": None}),
        }  # fmt: skip
        COMPLEX |= {
            "uniform like": lambda x: aten.rand_like.generator(torch.complex(x, x), generator=None),
            "normal like": lambda x: aten.randn_like.generator(torch.complex(x, x), generator=None),
        }

    IN_PLACE = {
        "normal_": lambda x: x.clone().normal_(1, 2),
        "uniform_": lambda x: x.clone().uniform_(-3, 5),
        "exponential_": lambda x: x.clone().exponential_(2.0),
        "bernoulli_": lambda x: x.clone().bernoulli_(0.2),
        "bernoulli_ of one half": lambda x: x.clone().bernoulli_(),
        "random_": lambda x: x.clone().random_(10),
    }

    def assert_distributed(self, function, *args, kwargs=None, **options):
        """Two runs differ; dtype and shape are eager's, mean and spread within five standard errors."""
        module = Call(function, args, kwargs or {})
        runner = session(to_onnx(module, module.tensors(), **options))
        got, again = (run(runner, module.tensors())[0] for _ in range(2))
        expected = module(*module.tensors())
        self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape))
        got, expected = got.double(), expected.double()
        spread = float(expected.std())
        if spread:
            self.assertFalse(torch.equal(got, again.double()))
        self.assertLess(
            abs(float(got.mean() - expected.mean())), 5 * 1.5 * spread / got.numel() ** 0.5 + 1e-9
        )
        self.assertLess(abs(float(got.std()) - spread), 0.1 * spread + 1e-9)
        self.assertGreaterEqual(float(got.min()) + 2.5 * spread, float(expected.min()))

    def check(self, cases, **options):
        for promise, (target, *args) in cases.items():
            with self.subTest(promise):
                kwargs = args.pop() if isinstance(args[-1], dict) else {}
                self.assert_distributed(target, *args, kwargs=kwargs, **options)

    def test_created(self):
        self.check(self.CREATED)

    def test_like(self):
        self.check(self.LIKE)

    def test_complex(self):
        for promise, function in self.COMPLEX.items():
            with self.subTest(promise):
                for part in (torch.abs, torch.real):
                    self.assert_distributed(after(part, function), FLOATS)

    def test_in_place(self):
        for promise, function in self.IN_PLACE.items():
            with self.subTest(promise):
                self.assert_distributed(function, FLOATS)

    def test_dynamic_sizes(self):
        axes = (({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},),)
        self.assert_distributed(lambda x: torch.randn(x.shape[1], 3, x.shape[0]), FLOATS, dynamic_shapes=axes)
        self.assert_distributed(aten.rand_like.default, FLOATS, dynamic_shapes=axes)

    def test_cauchy_has_its_median(self):
        module = Call(aten.cauchy.default, (FLOATS, 1.0, 2.0), {})
        model = to_onnx(module, module.tensors())
        self.assertEqual(
            ["RandomUniformLike", "Sub", "Mul", "Tan", "Mul", "Add"],
            [node.op_type for node in model.graph.node],
        )
        got = run(session(model), module.tensors())[0]
        self.assertLess(abs(float(got.median()) - 1.0), 0.2)

    def test_gamma_of_other_sizes_and_edges(self):
        model = to_onnx(
            Call(aten._standard_gamma.default, (FLOATS,), {}),
            (FLOATS,),
            dynamic_shapes=(({0: "n", 1: "m"},),),
        )
        edges = torch.tensor([[0.0, 1e-8, 1e8, math.inf]])
        for concentration in (edges, torch.ones(0, 3), torch.full((1, 1), 0.01)):
            got, expected = (
                run(session(model), [concentration])[0],
                torch._standard_gamma(concentration),
            )
            self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape))
            if concentration is edges:
                torch.testing.assert_close(got, expected, rtol=0.01, atol=0)

    def test_distributions_made_of_gamma(self):
        kinds = torch.distributions
        for promise, function in {
            "Gamma": lambda x: kinds.Gamma(x + 2, x + 3).rsample(),
            "Chi2": lambda x: kinds.Chi2(x + 4).sample(),
            "StudentT": lambda x: kinds.StudentT(x + 9).sample(),
            "FisherSnedecor": lambda x: kinds.FisherSnedecor(x + 30, x + 60).sample(),
            "NegativeBinomial": lambda x: kinds.NegativeBinomial(x + 5, x + 0.5).sample(),
        }.items():
            with self.subTest(promise):
                self.assert_distributed(function, FLOATS)

    def test_two_draws_of_events_are_independent(self):
        """In the first run of a session too, where two Loops that draw would draw the same."""
        for function, deviation in (
            (lambda x: torch.poisson(x + 9) - torch.poisson(x + 9), 18**0.5),
            (lambda x: torch._standard_gamma(x + 4) - torch._standard_gamma(x + 4), 8**0.5),
        ):
            module = Call(function, (FLOATS,), {})
            got = run(session(to_onnx(module, module.tensors())), module.tensors())[0]
            self.assertLess(abs(float(got.std()) / deviation - 1), 0.1)

    def test_events_of_other_times(self):
        model = to_onnx(
            Call(aten.poisson.default, (FLOATS,), {}), (FLOATS,), dynamic_shapes=(({0: "n", 1: "m"},),)
        )
        for time in (torch.zeros(1, 2), torch.ones(0, 3), torch.full((5000, 2), 900.0)):
            got = run(session(model), [time])[0]
            self.assertEqual((got.dtype, got.shape), (time.dtype, time.shape))
            if time.numel():
                self.assertLessEqual(abs(float(got.mean() - time.mean())), 0.05 * float(time.mean()) ** 0.5)

    def test_two_draws_differ(self):
        module = Call(lambda x: torch.bernoulli(x + 0.5) - torch.bernoulli(x + 0.5), (FLOATS,), {})
        got = run(session(to_onnx(module, module.tensors())), module.tensors())[0]
        self.assertGreater(float(got.abs().mean()), 0.4)

    def test_draws_without_replacement_are_distinct(self):
        module = Call(aten.multinomial.default, (torch.ones(50, 6), 6), {})
        got = run(session(to_onnx(module, module.tensors())), module.tensors())[0]
        self.assertTrue(torch.equal(got.sort(-1).values, torch.arange(6).expand(50, 6)))

    def test_one_draw_is_a_multinomial(self):
        operators = lambda model: [node.op_type for node in model.graph.node]
        for weights, expected in (
            (WEIGHTS.repeat(2, 1), ["Log", "Multinomial"]),
            (WEIGHTS, ["Log", "Unsqueeze", "Multinomial", "Squeeze"]),
        ):
            model = to_onnx(Call(aten.multinomial.default, (weights, 1), {}), (weights,))
            self.assertEqual(expected, operators(model))

    def test_draws_never_have_a_weight_of_zero(self):
        weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0], [2.0, 0.0, 0.0, 0.0, 0.1]])
        module = Call(aten.multinomial.default, (weights, 5000, True), {})
        got = run(session(to_onnx(module, (weights,))), (weights,))[0]
        self.assertEqual([{1, 3}, {0, 4}], [set(row.tolist()) for row in got])
        self.assertAlmostEqual(float((got[0] == 3).float().mean()), 0.75, delta=0.04)

    def test_draws_for_a_batch_that_may_be_empty(self):
        given = WEIGHTS.repeat(3, 1)
        module = Call(aten.multinomial.default, (given, 1), {})
        model = to_onnx(module, (given,), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
        for rows in (0, 1, 7):
            weights = WEIGHTS.repeat(rows, 1)
            got = run(session(model), (weights,))[0]
            self.assertEqual((torch.int64, (rows, 1)), (got.dtype, tuple(got.shape)))
            self.assertTrue(bool((weights.gather(1, got) > 0).all()))


if __name__ == "__main__":
    unittest.main()
