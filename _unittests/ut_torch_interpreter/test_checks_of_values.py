"""Models that raise for some values: torch.distributions, asserts."""

import functools
import logging
import unittest
import warnings

import torch
from torch import distributions
from torch.distributions import constraints

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

X = torch.rand(2, 3) + 0.1
ROWS = {"dynamic_shapes": ({0: "rows"},)}
logger = logging.getLogger(__name__)


def rank_zero_warn(text):
    """What Lightning and torchmetrics call to warn."""
    raise AssertionError(text)


class Call(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def checked(cls):
    """A distribution that checks its arguments: TorchDynamo, once loaded, turns that off for the whole process."""
    return functools.partial(cls, validate_args=True)


Normal = checked(distributions.Normal)
Categorical = checked(distributions.Categorical)


def inner(x):
    if (x < 0).any():
        raise ValueError(f"{'many' if x.dim() > 1 else 'one'} below zero")
    return x


class TestChecks(ExporterTestCase):
    def assert_exported(self, cases):
        for promise, function in cases.items():
            with self.subTest(promise):
                self.export_and_compare(
                    Call(function), (X,), others=[(torch.rand(5, 3) + 0.1,)], target_opset=20, **ROWS
                )

    def assert_refused(self, cases):
        for promise, function in cases.items():
            with self.subTest(promise), self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(Call(function), (X,), **ROWS)

    def test_a_branch_that_raises(self):
        def asserted(x):
            assert (x > 0).all(), f"not {x.shape}"
            assert x.sum() > 0 and not torch.isnan(x).any()
            assert x.max()  # of floats
            return x * 2

        def raised(x):
            if (x < 0).any() or not torch.isfinite(x).all():
                raise ValueError(f"{'many' if x.dim() > 1 else 'one'} below zero")
            while (x > 1000).any():
                raise ValueError
            return x * 2

        def numbers(x):
            if x.min().item() < 0:
                raise ValueError("below zero")
            found = (x > 0.05).nonzero()
            if found.shape[0] == 0:
                raise ValueError("nothing")
            assert found.numel() > 1
            return x[found[:, 0]]

        def in_a_context(x):
            with torch.no_grad():
                assert (x > 0).all()
            return inner(x) * 2

        def before_a_finally(x):
            try:
                assert (x > 0).all()
            finally:
                scale = 2
            return x * scale

        def raised_again(x):
            try:
                return inner(x)
            except ValueError as error:
                raise RuntimeError("below zero") from error

        def at_the_end(x):
            if (x > 0).all():
                return x * 2
            raise ValueError("below zero")

        self.assert_exported(
            {
                "an assert": asserted,
                "an if, a while": raised,
                "numbers and sizes": numbers,
                "in a with, in another function": in_a_context,
                "before a finally": before_a_finally,
                "another exception": raised_again,
                "after the result": at_the_end,
            }
        )

    def test_a_branch_that_only_warns(self):
        def warned(x):
            if torch.isnan(x).any():
                warnings.warn("not a number", UserWarning, stacklevel=2)
            if not (x > 0).all():
                logger.warning(f"{x.shape} of {len(x)} rows")
                print("below zero")
            return x * 2

        def several(x):
            if (x < 0).any() or (x > 10).any() or x.sum() > 1000:
                rank_zero_warn("out of range")
            if x.dim() > 1 and (x < 0).any() and not (x > 3).any():
                rank_zero_warn("out of range")
            return x * 2

        def in_a_loop(x):
            for turn in range(2):
                x = x + turn
                if (x < 0).any():
                    logger.info("turn %s", turn)
            return x

        self.assert_exported({"one condition": warned, "several": several, "in a loop": in_a_loop})

    def test_a_branch_that_does_more_than_warn(self):
        def changes(x):
            if (x < 0).any():
                logger.warning("below zero")
                x = x + 1
            return x

        def returns(x):
            if (x < 0).any():
                logger.warning("below zero")
                return x + 1
            return x

        def alternative(x):
            if (x < 0).any():
                logger.warning("below zero")
            else:
                x = x * 2
            return x

        def writes_what_it_says(x):
            y = x * 1
            if (x < 0).any():
                logger.warning(str(y.add_(1).shape))
            return y

        def calls(x):
            y = x * 1
            write = y.add_
            if (x < 0).any():
                logger.warning("below zero")
                write(1)
            return y

        def asks_what_writes(x):
            seen = []
            if (x < 0).any() or seen.append(1):
                logger.warning("below zero")
            return x + len(seen)

        def repeats(x):
            while (x < 0).any():
                logger.warning("below zero")
            return x

        self.assert_refused(
            {
                "another value": changes,
                "a result": returns,
                "an alternative": alternative,
                "what it says writes": writes_what_it_says,
                "a call": calls,
                "a condition with an effect": asks_what_writes,
                "a loop": repeats,
            }
        )

    def test_one_of_several_conditions(self):
        def either(x):
            assert (x > 5).all() or (~(x > 5)).all() or x.max() < 100, "{} and {}".format("one", x.shape)

        def nested(x):
            if (x < 0).any():
                if (x < -1).any():
                    raise ValueError
            return x * 2

        def neither(x):
            assert not ((x < 0).any() and (x > 1).any())
            return x * 2

        def both(x):
            if (x < 0).any() and torch.isinf(x).any():
                raise ValueError("below zero, and infinite")
            return x * 2

        def at_its_end(x):
            either(x)
            return x * 2

        self.assert_exported(
            {"nested": nested, "not both": neither, "both": both, "the end of a function": at_its_end}
        )

    def test_a_condition_that_does_something_is_refused(self):
        def remembers(x):
            seen = []
            if (x > 0).any() and seen.append(x * 3):
                raise ValueError
            return x * 2 + len(seen)

        def writes(x):
            y = x + 0
            if (x > 0).any() and y.mul_(2).isnan().any():
                raise ValueError
            return y

        def goes_on(x):
            if (x > 0).any():
                if (x < -1).any():
                    raise ValueError
                x = x * 3
            return x * 2

        def in_place(x):
            y = x + 0
            if (x > 0).any():
                y.clamp_(max=0.5)
            return y

        def chosen(x):
            return x * 2 if (x > 0).any() and (x < 1).all() else x

        self.assert_refused(
            {
                "a list": remembers,
                "in place": writes,
                "another value": goes_on,
                "a statement": in_place,
                "an expression": chosen,
            }
        )

    def test_nothing_is_left_of_a_check(self):
        def asserted(x):
            assert (x > 0).all()
            return x * 2

        model = to_onnx(Call(asserted), (X,))
        self.assertEqual([node.op_type for node in model.graph.node], ["Mul"])

    def test_a_program_still_checks(self):
        with bypass_export_some_errors():
            program = torch.export.export(Call(inner), (X,))
        torch.testing.assert_close(program.module()(X), X)
        with self.assertRaises(RuntimeError):
            program.module()(-X)

    def test_a_branch_that_computes_is_refused(self):
        def other_value(x):
            if (x > 0).all():
                return x
            return -x

        def caught_here(x):
            try:
                assert (x > 0).all()
            except AssertionError:
                x = -x
            return x

        def caught_inside_of_a_context(x):
            try:
                with torch.no_grad():
                    assert (x > 0).all()
            except AssertionError:
                x = -x
            return x

        def caught_by_the_caller(x):
            try:
                return inner(x)
            except ValueError:
                return -x

        def caught_around_a_finally(x):
            try:
                try:
                    assert (x > 0).all()
                finally:
                    x = x * 2
            except AssertionError:
                x = -x
            return x

        def not_always(x):
            if (x > 0).all():
                if (x > 1).all():
                    raise ValueError
                return x
            return -x

        self.assert_refused(
            {
                "another value": other_value,
                "caught": caught_here,
                "caught around a with": caught_inside_of_a_context,
                "caught by the caller": caught_by_the_caller,
                "caught around a finally": caught_around_a_finally,
                "raises for some": not_always,
            }
        )

    def test_a_caller_of_the_export_catches(self):
        """What is around the export is no part of the model."""
        for tracing in ("export", "make_fx"):
            with self.subTest(tracing):
                try:
                    model = to_onnx(Call(inner), (X,), export_options=ExportOptions(tracing=tracing))
                except ValueError:
                    model = None
                self.assertIsNotNone(model)

    def test_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(Call(inner), (X,), export_options=ExportOptions(patches=False))

    def test_constants_are_not_the_patchs_business(self):
        def forward(x):
            if torch.tensor(3.0) > 2:
                return x * 2
            raise ValueError

        program = [
            str(torch.export.export(Call(forward), (X,)).graph),
        ]
        with bypass_export_some_errors():
            program.append(str(torch.export.export(Call(forward), (X,)).graph))
        self.assertEqual(*program)


class TestDistributions(ExporterTestCase):
    def test_same_as_eager(self):
        def several(x):
            mixture = checked(distributions.MixtureSameFamily)(Categorical(logits=x), Normal(x, x.exp()))
            return mixture.log_prob(x[:, 0]), checked(distributions.Independent)(Normal(x, 1.0), 1).log_prob(
                x
            )

        def bounded(x):
            beta = checked(distributions.Beta)(x, x.exp())
            return beta.log_prob(x.sigmoid()), checked(distributions.Uniform)(x, x + 3).log_prob(x + 1)

        def transformed(x):
            squashed = checked(distributions.TransformedDistribution)(
                Normal(x, 1.0), [distributions.SigmoidTransform()]
            )
            return squashed.log_prob(x.sigmoid()), distributions.kl_divergence(Normal(x, 1.0), Normal(0.0, x))

        def matrices(x):
            covariance = x[:1].T @ x[:1] + torch.eye(3)
            return checked(distributions.MultivariateNormal)(x, covariance).log_prob(x * 2)

        cases = {
            "normal": lambda x: (Normal(x, x.exp()).log_prob(x * 2), Normal(x, x).entropy()),
            "categorical": lambda x: Categorical(x.softmax(-1)).log_prob(x.argmax(-1)),
            "bernoulli": lambda x: checked(distributions.Bernoulli)(logits=x).log_prob((x > 1).float()),
            "bounded": bounded,
            "several": several,
            "transformed": transformed,
            "a covariance": matrices,
        }
        for promise, function in cases.items():
            with self.subTest(promise):
                self.export_and_compare(
                    Call(function), (X,), others=[(torch.rand(5, 3) + 0.1,)], target_opset=20, **ROWS
                )

    def test_constraints_in_one_go_are_those_of_torch(self):
        good = torch.eye(3) * 2
        cases = {"definite": good, "negative": -good, "not symmetric": good + torch.eye(3).roll(1, 0)}
        cases["a batch where one is not symmetric"] = torch.stack([*cases.values()])
        for promise, value in cases.items():
            with self.subTest(promise):
                for cls in (constraints._Symmetric, constraints._PositiveDefinite):
                    with bypass_export_some_errors():
                        program = torch.export.export(Call(lambda x, cls=cls: cls().check(x)), (value,))
                    torch.testing.assert_close(program.module()(value), cls().check(value))


if __name__ == "__main__":
    unittest.main()
