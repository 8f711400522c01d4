"""Branches that the data decide become a torch.cond, or stay refused."""

import gc
import unittest
import warnings

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X, ZEROS = torch.rand(6, 3), torch.zeros(6, 3)
OTHERS = [(X, ZEROS), (X - 1, X), (-X, -X), (X * 5, X), (X[:2], torch.eye(2, 3))]
SHAPES = ({0: "rows"}, {0: "rows"})
OPTIONS = ExportOptions(patches={"branches_of_data"})

calls = []


class Function(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def as_probabilities(x, other):
    if not torch.all((x >= 0) * (x <= 1)):
        x = x.sigmoid()
    return x + other


def early(x, other):
    if other.sum() == 0:
        return x
    y = x + other
    return y * 2


def by_expression(x, other):
    return x * 2 if other.any() else x + 1


def with_sizes(x, other):
    rows = x.shape[0]
    if (other.sum() > rows and x.shape[1] == 3) or x.sum() < 0:
        x = x + rows
    return x


def of_equals(x, other):
    same = torch.equal(x, other)
    if same:
        return x * 2
    return x * 3


def of_an_element(x, other):
    if x.max().item() > 1:
        x = x / x.max()
    return x + other


def both_sides(x, other):
    if (other > 0.5).any():
        low, high = x.amin(0), x.amax(0)
    else:
        high = other.amax(0)
        low = high - 1
    return low, high


def with_names_of_its_own(x, other):
    for row in range(2):
        if x.dtype == torch.float32 and not (x[row] < 1).all():
            limit, factor = 1, 0.5
            limit = limit * factor
            x = torch.clamp(x, min=-limit, max=limit)
        limit = 2
        x = x * limit
    if other.any():
        limit = x.mean()
        x = x.minimum(limit)
    else:
        factor = 3
        x = x * factor
    factor = 1
    factor += 1
    return x * factor


def of_two_sizes(x, other):
    if other.any():
        return x[:1]
    return x


def row_by_row(x, other):
    total = 0
    for row in range(2):
        if other[row].sum() > 0:
            x = x * 2
        total = total + x
    return total


def with_numbers(x, other):
    factor = 1
    if other.any():
        factor = 2
    return x * factor


def alternatives(x, other):
    if other.sum() == 0 or x.min() < 0:
        return torch.zeros(1)
    elif x.shape[1] > 2:
        return x.sum(0)[:1]
    return x.mean(0)[:1]


def with_a_warning(x, other):
    if x.dim() > 2:
        rate = x
    elif other.sum() <= 0:
        warnings.warn("nothing is marked", stacklevel=2)
        rate = torch.zeros_like(x)
    else:
        rate = x / other.sum()
    if (
        (rate > 1).any()
        or rate.isnan().any()
    ):  # fmt: skip
        warnings.warn("not a rate", stacklevel=2)
    return rate


def noted(x):
    calls.append(1)
    return x * 2


def with_a_call(x, other):
    if other.any():
        x = noted(x)
    return x


def with_a_write(x, other):
    if other.any():
        x += 1
    return x


def with_an_alias(x, other):
    first = x * 1
    second = first
    if other.any():
        second = second * 2
    second += 1
    return first + second


def with_an_alias_that_is_written(x, other):
    given = x * 1
    chosen = x
    if other.any():
        chosen = given
    given.add_(1)
    return chosen + given


def with_a_view_that_is_written(x, other):
    given = x * 1
    chosen = x[0]
    if other.any():
        chosen = given[0]
    given[0] = 7.0
    return chosen + given


def with_another_dtype(x, other):
    if other.any():
        x = x.long()
    return x


def with_text(x, other):
    kind = "a"
    if other.any():
        kind = "b"
    return x if kind == "a" else x * 2


def with_a_list_of_warnings(x, other):
    warned = []
    if other.any():
        warned.append(1)
    return x * len(warned)


def with_a_warning_that_writes(x, other):
    y = x * 1
    if other.any():
        warnings.warn(str(y.add_(1).shape), stacklevel=1)
    return y


def with_a_name_of_an_earlier_turn(x, other):
    for row in range(2):
        if row == 1:
            x = x * factor  # noqa: F821  (bound by the turn before)
        if other.any():
            factor = 2
            x = x + factor
    return x


def with_a_name_that_is_added_to(x, other):
    if other.any():
        factor = 2
        x = x + factor
    factor += 1
    return x * factor


def with_a_name_of_one_side(x, other):
    if other.any():
        factor = 2
        x = x + factor
    else:
        x = x * 2
    if x.shape[1] == 3:
        factor = 4
    return x * factor


def with_a_global_name(x, other):
    global last

    if other.any():
        last = 2
        x = x + last
    return x


class Layers(torch.nn.Module):
    """A branch in a method, with layers, in a class that calls its base."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.count = 0

    def extra_repr(self):
        return "layers"

    def forward(self, x, other):
        scale = len(super().extra_repr()) + 2.0
        if (other > 0.2).any():
            hidden = self.linear(x)
        else:
            hidden = x * scale
        return hidden.relu()


class Counting(Layers):
    """Counts the calls of a branch."""

    def counted(self, x):
        self.count += 1
        return x

    def forward(self, x, other):
        if other.any():
            x = self.counted(x)
        return x


class TestBranches(ExporterTestCase):
    EXPORTED = (
        as_probabilities,
        early,
        by_expression,
        with_sizes,
        of_equals,
        of_an_element,
        both_sides,
        with_names_of_its_own,
        of_two_sizes,
        row_by_row,
        with_numbers,
        alternatives,
        with_a_warning,
    )
    REFUSED = (
        with_a_call,
        with_a_write,
        with_an_alias,
        with_an_alias_that_is_written,
        with_a_view_that_is_written,
        with_another_dtype,
        with_text,
        with_a_list_of_warnings,
        with_a_warning_that_writes,
        with_a_name_of_an_earlier_turn,
        with_a_name_that_is_added_to,
        with_a_name_of_one_side,
        with_a_global_name,
    )

    def test_both_sides_are_in_the_model(self):
        for place, function in enumerate(self.EXPORTED):
            for shapes in (None, SHAPES) if place < 4 else (SHAPES,):
                with self.subTest(function.__name__, shapes=shapes), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    others = [args for args in OTHERS if shapes or args[0].shape == X.shape]
                    self.export_and_compare(
                        Function(function),
                        (X, X),
                        others=others,
                        dynamic_shapes=shapes,
                        export_options=OPTIONS,
                    )

    def test_a_method(self):
        with torch.no_grad():
            self.export_and_compare(
                Layers(), (X, X), others=OTHERS, dynamic_shapes=SHAPES, export_options=OPTIONS
            )

    def test_writes_without_gradients(self):
        def to_a_view(x, other):
            x = x.clone()
            y = x[0]
            if other.sum() > 0:
                y += 1
            return x + y

        with torch.no_grad():
            self.export_and_compare(
                Function(to_a_view), (X, X), others=OTHERS, dynamic_shapes=SHAPES, export_options=OPTIONS
            )

    def test_writes_to_what_another_branch_may_have_given_are_refused(self):
        def to_the_result(x, other):
            given, chosen = x * 1, x * 2
            if other.any():
                chosen = given
            if x.sum() > 0:
                chosen += 1
            return given + chosen

        def to_the_operand(x, other):
            given, chosen = x * 1, x * 2
            if other.any():
                chosen = given
            if x.sum() > 0:
                given += 1
            return chosen

        def to_a_view(x, other):
            given = x * 1
            row = given[0]
            if other.any():
                row += 1
            if x.sum() > 0:
                row += 2
            return given

        def by_batch_norm(x, other):
            mean, chosen = other.mean(0), other.sum(0)
            if other.any():
                chosen = mean
            y = torch.nn.functional.batch_norm(x, mean, torch.ones(3), training=True)
            return y + chosen

        def by_batch_norm_in_a_branch(x, other):
            mean, chosen = other.mean(0), other.sum(0)
            if other.any():
                chosen = mean
            if x.sum() > 0:
                x = torch.nn.functional.batch_norm(x, mean, torch.ones(3), training=True)
            return x + chosen

        functions = (to_the_result, to_the_operand, to_a_view, by_batch_norm, by_batch_norm_in_a_branch)
        for function in functions:
            with self.subTest(function.__name__), torch.no_grad(), self.assertRaises(CaptureError):
                to_onnx(Function(function), (X, X), export_options=OPTIONS)

    def test_batch_norm_in_a_branch(self):
        def normalized(x, other):
            mean = other.mean(0)
            if x.sum() > 0:
                x = torch.nn.functional.batch_norm(x, mean, torch.ones(3), training=True)
            return x + mean

        self.export_and_compare(
            Function(normalized), (X, X), others=OTHERS, dynamic_shapes=SHAPES, export_options=OPTIONS
        )

    def test_a_branch_writes_to_a_copy(self):
        def of_its_own(x, other):
            if other.any():
                x = x.clone()
                x += 1
            if x.sum() > 0:
                x = x.clone()
                x *= 2
            return x

        with torch.no_grad():
            self.export_and_compare(
                Function(of_its_own), (X, X), others=OTHERS, dynamic_shapes=SHAPES, export_options=OPTIONS
            )

    def test_what_follows_an_and_is_not_asked_for_nothing(self):
        def with_an_append(x, other):
            seen = [x]
            y = x * 2 if other.any() and seen.append(x) is None else x
            return y, *seen

        def with_an_operator_in_place(x, other):
            y = x.clone()
            if other.any() and y.mul_(2).any():
                x = x + 1
            return x + y

        for function in (with_an_append, with_an_operator_in_place):
            with self.assertRaises(CaptureError):
                to_onnx(Function(function), (X, X), export_options=OPTIONS)

    def test_variables_that_inner_functions_see_are_refused(self):
        def read_later(x, other):
            def next_one():
                return x + 1

            if other.any():
                return x
            x = x * 2
            return next_one()

        def bound_inside(x, other):
            def double():
                nonlocal x
                x = x * 2
                return x

            if other.any():
                x = double() + 1
            return x

        for function in (read_later, bound_inside):
            with self.assertRaises(CaptureError):
                to_onnx(Function(function), (X, X), export_options=OPTIONS)

    def test_what_a_branch_changes_is_refused(self):
        module = Counting()
        for refused in (*map(Function, self.REFUSED), module):
            with self.subTest(getattr(refused, "function", refused)):
                with self.assertRaises(CaptureError) as caught:
                    to_onnx(refused, (X, X), dynamic_shapes=SHAPES, export_options=OPTIONS)
                self.assertRegex(
                    str(caught.exception), r"test_patches_branches\.py(.|\n)*if other\.any\(\):\n  hint"
                )
        self.assertEqual(([], 0), (calls, module.count))

    def test_refused_without_it(self):
        before = early.__code__
        advice = (
            r"torch\.where; ExportOptions\(patches=\{'branches_of_data'\}\) makes a torch\.cond of the if, unless a side of it writes, "
            "leaves a loop or gives another shape$"
        )
        with self.assertRaisesRegex(CaptureError, advice):
            to_onnx(early, (X, X))
        to_onnx(Function(early), (X, X), export_options=OPTIONS)
        self.assertIs(before, early.__code__)

    def test_functions_that_the_collector_does_not_list(self):
        gc.freeze()
        try:
            self.export_and_compare(Function(early), (X, X), others=OTHERS[:1], export_options=OPTIONS)
        finally:
            gc.unfreeze()

    def test_another_refusal_is_not_hidden(self):
        def both(x):
            if x.any():
                x = x * 2
            return torch.from_numpy(x.numpy())  # the second

        with self.assertRaisesRegex(CaptureError, "# the second"):
            to_onnx(Function(both), (X,), export_options=OPTIONS)


if __name__ == "__main__":
    unittest.main()
