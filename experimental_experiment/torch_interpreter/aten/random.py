"""Random tensors: uniform, normal, integers and other distributions, multinomial, randperm.

Source of semantics: https://pytorch.org/docs/stable/torch.html#random-sampling. The sequences are not torch's, the
distributions are. All come from RandomUniformLike and RandomNormalLike in float32 or float64: optimizers know that two of
them differ, which they forget for Bernoulli.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dtypes import is_complex
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import takes, translates, translates_complex
from experimental_experiment.torch_interpreter.sizes import same_sizes, sizes_of
from experimental_experiment.torch_interpreter.torch_versions import installed

aten = torch.ops.aten
BOOL, DOUBLE, FLOAT, INT64 = ir.DataType.BOOL, ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.INT64
DIGITS = {
    ir.DataType.BFLOAT16: 8,
    ir.DataType.FLOAT16: 11,
    ir.DataType.FLOAT: 24,
    ir.DataType.DOUBLE: 53,
}
"""Binary digits of the numbers that torch draws below 1, and of the integers that it draws as floats."""


ATTEMPTS = 12
"""How many numbers are drawn for one of the gamma distribution."""


def draws(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator, called so, draws random numbers: torch calls every attention and every recurrent layer random."""
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    known = {item.name: item.default_value for item in target._schema.arguments if item.has_default_value()}
    known |= dict(zip([item.name for item in target._schema.arguments], args)) | dict(kwargs)
    is_training = known.get("train", known.get("training", True))
    probability = known.get("dropout_p", known.get("dropout", True))
    return is_training is not False and bool(probability)


@translates(aten.bernoulli.default)
def bernoulli(op, self):
    """1 with the probability that each element gives, 0 otherwise."""
    return op.CastLike(
        op.Less(uniform(op, self, drawn_dtype(self)), op.Cast(self, to=drawn_dtype(self))), self
    )


@translates(aten.bernoulli.p, aten.bernoulli.Tensor)
def bernoulli_of(op, self, p):
    """1 with probability *p*, a number or a tensor that broadcasts to *self*."""
    return op.CastLike(op.Less(uniform(op, self, DOUBLE), op.CastLike(p, op.constant(0.0, DOUBLE))), self)


@translates(aten.cauchy.default)
def cauchy(op, self, median, sigma):
    """The Cauchy distribution: the tangent of a uniform angle."""
    angle = op.Mul(op.Sub(uniform(op, self, drawn_dtype(self)), 0.5), math.pi)
    return op.CastLike(scaled_and_shifted(op, op.Tan(angle), median, sigma), self)


@translates(aten.exponential.default)
def exponential(op, self, lambd):
    """The exponential distribution of rate *lambd*."""
    return op.CastLike(waiting(op, self, drawn_dtype(self), float(lambd)), self)


@translates(aten.geometric.default)
def geometric(op, self, p):
    """The number of trials up to the first success of probability *p*, at least 1."""
    trials = op.Floor(waiting(op, self, DOUBLE, -math.log1p(-p)))
    return op.CastLike(op.Add(trials, 1.0), self)


@translates(aten.log_normal.default)
def log_normal(op, self, mean, std):
    """The exponential of a normal distribution."""
    return op.CastLike(op.Exp(normal(op, self, drawn_dtype(self), mean, std)), self)


@translates(aten.multinomial.default)
def multinomial(op, self, num_samples, replacement):
    """Indices drawn with the weights of each row.

    ONNX Multinomial puts every index back, draws in float32 and takes no empty batch. Elsewhere each index waits for a random time, which
    is the shorter the larger its weight is; those whose time is over first are drawn.
    """
    is_drawn_again = isinstance(num_samples, int) and (replacement or num_samples == 1)
    has_rows = rank(self) == 1 or (isinstance(self.shape[0], int) and self.shape[0] > 0)
    if is_drawn_again and has_rows and self.dtype != DOUBLE:
        logarithms = op.Log(op.Cast(self, to=FLOAT))
        if rank(self) == 2:
            return op.Multinomial(logarithms, sample_size=num_samples, dtype=INT64)
        drawn = op.Multinomial(op.Unsqueeze(logarithms, [0]), sample_size=num_samples, dtype=INT64)
        return op.Squeeze(drawn, [0])
    weights = op.Cast(self, to=DOUBLE)
    if not replacement:
        speed = op.Div(weights, survival(op, self, DOUBLE))
        return op.TopK(speed, op.shape([num_samples]), axis=-1, largest=0, outputs=2)[1]
    rows = [op.size(self, axis) for axis in range(rank(self) - 1)]
    draws = blank(op, [*rows, num_samples, op.size(self, -1)])
    return op.ArgMin(op.Div(op.Unsqueeze(weights, [-2]), survival(op, draws, DOUBLE)), axis=-1, keepdims=0)


@translates(aten.normal.float_float)
def normal_of_numbers(op, mean, std, size, dtype):
    """The normal distribution of one mean and one deviation."""
    dtype = declared(op)
    return op.Cast(normal(op, blank(op, size), drawn_dtype(dtype), mean, std), to=dtype)


@translates(aten.normal.float_Tensor, aten.normal.Tensor_float, aten.normal.Tensor_Tensor)
def normal_of_tensors(op, mean, std):
    """The normal distribution of a mean or a deviation for each element, in the dtype of the first tensor."""
    first = mean if isinstance(mean, ir.Value) else std
    like = first
    if first is mean and isinstance(std, ir.Value):
        sizes = sizes_of(op, std)
        if rank(mean) < len(sizes) or not all(same_sizes(op, mean, [1] * (rank(mean) - len(sizes)) + sizes)):
            like = op.Add(mean, op.CastLike(std, mean))
    return op.CastLike(normal(op, like, drawn_dtype(first), mean, std), first)


@translates(aten.normal_.default, aten.normal_functional.default)
def normal_like(op, self, mean, std):
    """The normal distribution in the shape and dtype of *self*."""
    return op.CastLike(normal(op, self, drawn_dtype(self), mean, std), self)


@translates(aten.poisson.default)
def poisson(op, self):
    """How many events happen in the time *self* when one is expected in the time 1: their probabilities are added up to a uniform number.

    It is drawn before the Loop that adds: onnxruntime seeds random operators by their place in their graph, so that two Loops draw the same.
    """
    time = op.Cast(self, to=DOUBLE)
    drawn = uniform(op, self, DOUBLE)

    def some(inner, total, count, logarithm):
        """Which numbers have not been reached; rounding must not keep a sum below one for ever."""
        goes_on = inner.Or(inner.Less(count, time), inner.Greater(logarithm, -60.0))
        left = inner.And(inner.Less(total, drawn), goes_on)
        return left, inner.Greater(inner.ReduceSum(inner.Cast(left, to=INT64), keepdims=0), 0)

    def step(inner, iteration, go, total, count, logarithm):
        left, _ = some(inner, total, count, logarithm)
        count = inner.Where(left, inner.Add(count, 1.0), count)
        following = inner.Sub(inner.Add(logarithm, inner.Log(time)), inner.Log(count))
        logarithm = inner.Where(left, following, logarithm)
        total = inner.Where(left, inner.Add(total, inner.Exp(logarithm)), total)
        return [some(inner, total, count, logarithm)[1], total, count, logarithm]

    none, never = op.Neg(time), op.Mul(drawn, 0.0)
    state = [op.Exp(none), never, none]
    go = some(op, *state)[1]
    body = op.subgraph(step, [op.constant(0, INT64), go, *state])
    return op.CastLike(op.Loop(None, go, *state, body=body, outputs=3)[1], self)


@translates(aten.rand.default, aten.rand.generator)
def rand(op, size, dtype):
    """Uniform between 0 and 1, 1 excluded."""
    return below_one(op, blank(op, size), declared(op))


@translates(aten.rand_like.default, *installed("rand_like.generator"))
def rand_like(op, self, dtype):
    """Uniform between 0 and 1 in the shape of *self*."""
    return below_one(op, self, declared(op))


@translates_complex(aten.rand.default, aten.rand.generator)
def complex_rand(op, size, dtype):
    """Both parts uniform between 0 and 1, 1 excluded."""
    return below_one(op, blank(op, [*size, 2]), declared(op))


@translates_complex(aten.rand_like.default, *installed("rand_like.generator"))
def complex_rand_like(op, self, dtype):
    """rand in the shape of *self*; one of the two is complex."""
    return (complex_rand if is_complex(op.context.node) else rand)(op, declared_sizes(op, self), dtype)


@translates(aten.randint.default, aten.randint.generator)
def randint(op, high, size, dtype):
    """Uniform integers from 0 to *high*, excluded."""
    return integers(op, blank(op, size), 0, high, declared(op))


@translates(aten.randint.low, aten.randint.low_generator)
def randint_low(op, low, high, size, dtype):
    """Uniform integers from *low* to *high*, excluded."""
    return integers(op, blank(op, size), low, high, declared(op))


@translates(aten.randint_like.default, *installed("randint_like.generator"), aten.randint_like.Tensor)
def randint_like(op, self, high, dtype):
    """Uniform integers from 0 to *high*, excluded, in the shape of *self*."""
    return integers(op, self, 0, high, declared(op))


@translates(aten.randint_like.low_dtype, *installed("randint_like.low_generator_dtype"))
def randint_like_low(op, self, low, high, dtype):
    """Uniform integers from *low* to *high*, excluded, in the shape of *self*."""
    return integers(op, self, low, high, declared(op))


@translates(aten.randn.default, aten.randn.generator)
def randn(op, size, dtype):
    """Normal of mean 0 and deviation 1."""
    dtype = declared(op)
    return op.Cast(normal(op, blank(op, size), drawn_dtype(dtype)), to=dtype)


@translates(aten.randn_like.default, *installed("randn_like.generator"))
def randn_like(op, self, dtype):
    """Normal of mean 0 and deviation 1 in the shape of *self*."""
    dtype = declared(op)
    return op.Cast(normal(op, self, drawn_dtype(dtype)), to=dtype)


@translates_complex(aten.randn.default, aten.randn.generator)
def complex_randn(op, size, dtype):
    """Both parts normal, so that the squared length is 1 on average."""
    dtype = declared(op)
    drawn = normal(op, blank(op, [*size, 2]), drawn_dtype(dtype))
    return op.Cast(op.Mul(drawn, math.sqrt(0.5)), to=dtype)


@translates_complex(aten.randn_like.default, *installed("randn_like.generator"))
def complex_randn_like(op, self, dtype):
    """randn in the shape of *self*; one of the two is complex."""
    return (complex_randn if is_complex(op.context.node) else randn)(op, declared_sizes(op, self), dtype)


@translates(aten.random.default)
def random(op, self):
    """Uniform over all integers of the dtype that are not negative; over those that a float holds exactly."""
    if self.dtype in DIGITS:
        return integers(op, self, 0, 2 ** DIGITS[self.dtype] + 1, self.dtype)
    highest = 1 if self.dtype == BOOL else torch.iinfo(dtypes.torch_dtype(self.dtype)).max
    return integers(op, self, 0, min(highest + 1, INT64_MAX), self.dtype)


@translates(aten.random.to)
def random_to(op, self, to):
    """Uniform integers from 0 to *to*, excluded."""
    return integers(op, self, 0, to, self.dtype)


@translates(aten._standard_gamma.default)
def standard_gamma(op, self):
    """Numbers of the gamma distribution of rate 1, by the method of Marsaglia and Tsang: the first of several that it accepts.

    It refuses less than one of twenty, all of `ATTEMPTS` once in 10 ** 15. They are no Loop: onnxruntime seeds random operators by
    their place in their graph, so that two Loops draw the same. Concentrations below 1 are those of one more, times a power of a
    uniform number. NaN is accepted.
    """
    concentration = op.Cast(self, to=drawn_dtype(self))
    dtype = concentration.dtype
    small = op.Less(concentration, 1.0)
    scale = op.Sub(op.Where(small, op.Add(concentration, 1.0), concentration), 1 / 3)

    attempts = op.Expand(scale, op.Concat([ATTEMPTS], op.Shape(self), axis=0))
    x = normal(op, attempts, dtype)
    base = op.Add(op.Div(x, op.Sqrt(op.Mul(scale, 9.0))), 1.0)
    cube = op.Mul(op.Mul(base, base), base)
    bound = op.Mul(scale, op.Add(op.Sub(1.0, cube), op.Log(op.Max(cube, 0.0))))
    bound = op.Add(bound, op.Mul(op.Mul(x, x), 0.5))
    refused = op.Or(op.LessOrEqual(base, 0.0), op.GreaterOrEqual(survival(op, attempts, dtype), bound))
    first = op.ArgMax(op.Cast(op.Not(refused), to=ir.DataType.INT32), axis=0, keepdims=1)
    drawn = op.Mul(scale, op.Squeeze(op.GatherElements(cube, first, axis=0), [0]))

    power = op.Exp(op.Div(survival(op, self, dtype), concentration))
    drawn = op.CastLike(op.Where(small, op.Mul(drawn, power), drawn), self)
    return op.Max(drawn, op.constant(float(torch.finfo(dtypes.torch_dtype(self.dtype)).tiny), self.dtype))


@translates(aten.randperm.default, aten.randperm.generator)
def randperm(op, n, dtype):
    """The integers below *n* in random order."""
    keys = uniform(op, blank(op, [n]), DOUBLE)
    return op.Cast(op.TopK(keys, op.shape([n]), axis=0, outputs=2)[1], to=declared(op))


def uniform_between(op, **arguments):
    """Uniform between two bounds."""
    self, low, high = arguments["self"], float(arguments["from"]), float(arguments["to"])
    drawn = op.Cast(below_one(op, self, self.dtype), to=drawn_dtype(self))
    return op.CastLike(scaled_and_shifted(op, drawn, low, high - low), self)


# one argument is a keyword of Python, which no parameter can be called
translates(aten.uniform.default)(takes(uniform_between, ["self", "from", "to"]))


# ---- helpers


def below_one(op, like, dtype: ir.DataType) -> ir.Value:
    """Uniform between 0 and 1, excluded even after rounding to half precision."""
    drawn = uniform(op, like, drawn_dtype(dtype))
    if dtype in (FLOAT, DOUBLE):
        return drawn
    steps = 2.0 ** DIGITS[dtype]
    return op.Cast(op.Div(op.Floor(op.Mul(drawn, steps)), steps), to=dtype)


def blank(op, size) -> ir.Value:
    """A tensor of this size, for its shape."""
    return op.ConstantOfShape(op.shape(size))


def declared(op) -> ir.DataType:
    """The dtype that torch gives to the node: the argument, or a default that torch knows."""
    return dtypes.onnx_dtype(op.context.node.meta["val"].dtype)


def declared_sizes(op, like: ir.Value) -> list[int | ir.Value]:
    """The sizes of a tensor, without the pairs of a complex one, whose node has the same shape."""
    return [op.size(like, axis) for axis in range(op.context.node.meta["val"].dim())]


def integers(op, like, low, high, dtype: ir.DataType) -> ir.Value:
    """Uniform integers from *low* to *high*, excluded, in the shape of *like*."""
    low, high = (op.CastLike(bound, op.constant(0, INT64)) for bound in (low, high))
    width = op.Cast(op.Sub(high, low), to=DOUBLE)
    steps = op.Cast(op.Mul(uniform(op, like, DOUBLE), width), to=INT64)  # which rounds to 0
    return op.Cast(op.Add(steps, low), to=dtype)


def normal(op, like, dtype: ir.DataType, mean=0.0, std=1.0) -> ir.Value:
    """Normal numbers in the shape of *like*: of one mean and deviation, or of those of each element."""
    if not any(isinstance(parameter, ir.Value) for parameter in (mean, std)):
        # attributes are float32, in which distributions of C++ have a deviation
        fits = dtype == FLOAT and abs(mean) < 1e38 and 1e-38 < std < 1e38
        if fits or (mean, std) == (0, 1):
            return op.RandomNormalLike(like, dtype=dtype, mean=float(mean), scale=float(std))
    return scaled_and_shifted(op, op.RandomNormalLike(like, dtype=dtype), mean, std)


def scaled_and_shifted(op, noise, shift, factor) -> ir.Value:
    """``noise * factor + shift``; numbers and tensors in the dtype of the noise."""
    factor, shift = (op.CastLike(x if isinstance(x, ir.Value) else float(x), noise) for x in (factor, shift))
    return op.Add(op.Mul(noise, factor), shift)


def uniform(op, like, dtype: ir.DataType) -> ir.Value:
    """Uniform numbers between 0 and 1, excluded, in the shape of *like*."""
    return op.RandomUniformLike(like, dtype=dtype)


def waiting(op, like, dtype: ir.DataType, rate: float = 1.0) -> ir.Value:
    """Exponential numbers of this rate in the shape of *like*."""
    logarithm = survival(op, like, dtype)
    return op.Neg(logarithm) if rate == 1 else op.Div(logarithm, -rate)


def survival(op, like, dtype: ir.DataType) -> ir.Value:
    """The logarithms of uniform numbers in the shape of *like*: exponential numbers of rate 1, below 0."""
    return op.Log(op.Sub(op.constant(1.0, dtype), uniform(op, like, dtype)))


def drawn_dtype(item) -> ir.DataType:
    """The dtype in which numbers are drawn for a value or a dtype: float64 or float32."""
    return DOUBLE if getattr(item, "dtype", item) == DOUBLE else FLOAT
