"""Branches on buffers and parameters of the model."""

import itertools
import logging
import unittest

import numpy as np
import torch

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(2, 3)
ROWS = ({0: "rows"},)
REFUSED = r"data-dependent|DataDependentOutputException|\.numpy\(\) is not supported"


class Net(torch.nn.Module):
    """A module with a flag, three numbers and three weights, and a function of it and of its input."""

    def __init__(self, function, flag):
        super().__init__()
        self.function = function
        self.register_buffer("flag", torch.tensor(flag))
        self.register_buffer("numbers", torch.arange(3.0))
        self.weights = torch.nn.Parameter(torch.full((3,), 0.25))

    def forward(self, x):
        return self.function(self, x)


class Counting(torch.nn.Module):
    """A module with two tensors that are plain attributes, and a function of them and of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.step = torch.tensor(0)
        self.row = torch.zeros(3)

    def forward(self, x):
        return self.function(self, x)


def of_a_flag(self, x):
    return x * 2 if self.flag else x + 1


def of_a_condition(self, x):
    if (self.flag > 3) & (self.numbers[1] == 1):
        return x * 2
    return x + 1


def of_a_number(self, x):
    if self.flag.item() == 0:
        return x + 1
    return x * 2


def of_the_number_itself(self, x):
    return x * 2 if self.flag.item() else x + 1


def of_a_computed_number(self, x):
    large = (self.numbers > 1).any().item()
    return x * 2 if large and self.weights.sum().item() / 2 < 0.5 else x + 1


def of_a_number_that_it_writes(self, x):
    first = self.numbers.sum().item()
    if first < 4:
        self.numbers.add_(1.0)
    return x * 2 if first < 4 else x + 1


def of_a_flag_that_it_writes(self, x):
    y = x * 2 if self.flag else x + 1
    self.flag.logical_not_()
    return y


def of_an_item_that_it_writes(self, x):
    y = x * self.flag.item()
    self.flag.logical_not_()
    return y


def of_an_int_that_it_writes(self, x):
    y = x * int(self.flag)
    self.flag.logical_not_()
    return y


def of_a_list_that_it_writes(self, x):
    y = x * self.numbers.tolist()[1]
    self.numbers.add_(1)
    return y


def of_a_number_that_stays_a_number(self, x):
    """And a flag that is not written, which the model holds as the module does."""
    y = x * self.numbers.sum().item() if self.flag else x
    self.numbers.add_(1)
    return y


def of_a_number_of_data(self, x):
    return x * 2 if (self.numbers.sum() + x.sum()).item() > 4 else x + 1


def of_a_number_and_one_of_data(self, x):
    return x * 2 if x.sum().item() > self.numbers.sum().item() else x + 1


def of_a_number_after_a_write(self, x):
    self.numbers.copy_(x[0])
    return x * 2 if self.numbers.sum().item() > 4 else x + 1


def of_weights(self, x):
    if self.weights.abs().max() > 1:
        return x
    return x + self.weights


def of_constants(self, x):
    steps = torch.linspace(0, 1, 4)
    return x * 2 if (steps[1:] > steps[:-1]).all() else x


def initialized(self, x):
    if not self.flag:
        self.numbers.copy_(x.mean(0))
        self.flag.fill_(True)
    return x - self.numbers


def of_a_moved_flag(self, x):
    return x * 2 if self.flag.cpu() else x + 1


def of_an_equal(self, x):
    return x * 2 if torch.equal(self.numbers, torch.arange(3.0)) else x + 1


def of_another(self, x):
    return x * 2 if self.numbers.equal(self.weights) else x + 1


def of_a_close_one(self, x):
    return x * 2 if torch.allclose(self.weights, torch.full((3,), 0.2501), atol=1e-3) else x + 1


def of_an_array(self, x):
    return x * int(self.numbers.detach().cpu().numpy().argmax())


def of_weights_as_an_array(self, x):
    return x + float(np.asarray(self.weights.detach())[1])


def of_an_array_of_data(self, x):
    return x * float((self.numbers + x[0]).numpy()[1])


def equal_to_the_data(self, x):
    return x * 2 if torch.equal(self.numbers, x[0]) else x + 1


def of_an_array_after_a_write(self, x):
    self.numbers.cpu().add_(1)
    return x * float(self.numbers.numpy()[1])


def after_a_write(self, x):
    self.flag.fill_(True)
    return x * 2 if self.flag else x + 1


def after_a_write_to_a_view(self, x):
    self.numbers[0] = 5.0
    return x * 2 if (self.numbers > 4).any() else x + 1


def after_a_batch_norm(self, x):
    y = torch.nn.functional.batch_norm(x, self.numbers, torch.ones(3), training=True)
    return y * 2 if self.numbers[1] == 1 else y


def after_a_region_that_writes(self, x):
    def written(x, flag):
        flag.logical_not_()
        return x + 1

    y = torch.cond(x.sum() > 0, written, lambda x, flag: x * 3, (x, self.flag))
    return y * 2 if self.flag else y


def after_a_region_that_reads(self, x):
    y = torch.cond(x.sum() > 0, lambda x, flag: x + flag, lambda x, flag: x * 3, (x, self.flag))
    return y * 2 if self.flag else y


def of_a_written_condition(self, x):
    large = self.numbers > 4
    large[0] = True
    return x * 2 if large.any() else x + 1


def of_a_condition_with_data(self, x):
    large = self.numbers > 4
    large[1:].copy_(x[0, 1:] > 0)
    return x * 2 if large.any() else x + 1


def of_the_data(self, x):
    return x * 2 if (self.numbers + x.sum() > 4).any() else x + 1


def of_chance(self, x):
    return x * 2 if (torch.rand_like(self.numbers) > 0.5).any() else x + 1


class TestFlags(ExporterTestCase):
    def test_the_branch_of_the_value(self):
        cases = {
            "a bool": (of_a_flag, True),
            "a false one": (of_a_flag, False),
            "a number": (of_a_flag, 1.0),
            "a condition": (of_a_condition, 4),
            "a condition that is not met": (of_a_condition, 3),
            "the number of a flag": (of_a_number, 1),
            "the number of a flag that is 0": (of_a_number, 0),
            "a float as a number": (of_a_number, 0.5),
            "the number itself": (of_the_number_itself, 3),
            "a false one itself": (of_the_number_itself, False),
            "a fraction itself": (of_the_number_itself, 0.5),
            "a number of a condition": (of_a_computed_number, True),
            "weights": (of_weights, True),
            "constants": (of_constants, True),
            "what has been initialized": (initialized, True),
            "a condition that is written to": (of_a_written_condition, True),
            "a flag on a device": (of_a_moved_flag, True),
            "equal tensors": (of_an_equal, True),
            "tensors that are not": (of_another, True),
            "close tensors": (of_a_close_one, True),
            "an array": (of_an_array, True),
            "weights as an array": (of_weights_as_an_array, True),
        }
        for promise, (function, flag) in cases.items():
            with self.subTest(promise):
                model = self.export_and_compare(
                    Net(function, flag), (X,), others=[(torch.randn(5, 3),)], dynamic_shapes=ROWS
                )
                self.assertEqual(len(model.graph.node), 1)
                with self.assertRaisesRegex(CaptureError, REFUSED):
                    to_onnx(Net(function, flag), (X,), export_options=ExportOptions(patches=False))

    def test_parameters_in_a_list(self):
        """torch makes other constants of them than of tensors, and sees what ``to`` gave back as it was: filters of MONAI."""
        cases = {
            "a number": lambda self, x: x * float(self.held[0]),
            "a number on a device": lambda self, x: x * float(self.held[0].to(x.device)),
            "a number of another type": lambda self, x: (
                x * float(torch.as_tensor(self.held[0], dtype=x.dtype))
            ),
            "a condition": lambda self, x: x * 2 if self.held[0] > 1 else x + 1,
            "the parameter itself": lambda self, x: x * 2 if self.held[0] else x + 1,
            "a condition on a device": lambda self, x: x * 2 if self.held[0].to(x.device) > 1 else x + 1,
            "what is computed on a device": lambda self, x: x * (self.held[0].to(x.device) * 2).item(),
        }
        for kind in (torch.nn.Parameter, torch.Tensor.clone):
            for promise, function in cases.items():
                with self.subTest(promise, kind=kind.__name__):
                    net = Net(function, True)
                    net.held = [kind(torch.tensor(1.5))]
                    model = self.export_and_compare(
                        net, (X,), others=[(torch.randn(5, 3),)], dynamic_shapes=ROWS
                    )
                    self.assertEqual(["Mul"], [node.op_type for node in model.graph.node])

    def test_what_is_written_or_no_constant_is_refused(self):
        functions = (
            after_a_write,
            after_a_write_to_a_view,
            after_a_batch_norm,
            of_a_condition_with_data,
            of_the_data,
            of_chance,
            of_an_array_of_data,
            equal_to_the_data,
            of_an_array_after_a_write,
            of_a_number_of_data,
            of_a_number_and_one_of_data,
            of_a_number_after_a_write,
        )
        for function in functions:
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, REFUSED):
                to_onnx(Net(function, False), (X,))

    def test_a_region_that_writes_is_refused(self):
        with torch.no_grad():
            with self.assertRaisesRegex(CaptureError, REFUSED):
                to_onnx(Net(after_a_region_that_writes, False), (X,))
            self.export_and_compare(
                Net(after_a_region_that_reads, True), (X,), others=[(-X,)], dynamic_shapes=ROWS
            )

    def test_a_number_that_is_written_later(self):
        """The branch is that of the number before, as the model has it; the number that is computed with stays the buffer's."""
        model = Net(of_a_number_that_it_writes, True)
        written = to_onnx(model, (X,), mutated_buffers="outputs")
        self.assertEqual(2, len(written.graph.output))
        self.assertEqual(["Add", "Mul"], [node.op_type for node in written.graph.node])

    def test_a_written_buffer_that_is_an_input_and_has_decided(self):
        """The model of the module as it is does what eager does; one that takes the buffer as an input says what it holds of it."""
        words = (
            "{} is an input of the model, which holds the branch or the number of its value in the module\n"
        )
        cases = {of_a_flag_that_it_writes: "flag", of_a_list_that_it_writes: "numbers", initialized: "flag"}
        logging.disable(logging.NOTSET)
        for function, name in cases.items():
            with self.subTest(function.__name__):
                with self.assertLogs("experimental_experiment", "WARNING") as dropped:
                    self.export_and_compare(Net(function, False), (X,))
                self.assertNotIn("is an input of the model", str(dropped.output))
                with self.assertLogs("experimental_experiment", "WARNING") as logged:
                    to_onnx(torch.nn.Sequential(Net(function, False)), (X,), mutated_buffers="outputs")
                self.assertEqual(1, len(logged.output))
                self.assertIn(words.format(f"0.{name}"), logged.output[0])
                self.assertIn(f"in {function.__name__}\n", logged.output[0])

    def test_an_attribute_that_is_an_input_and_has_decided(self):
        logging.disable(logging.NOTSET)
        for function in (of_a_flag_that_it_writes, of_an_item_that_it_writes, of_an_int_that_it_writes):
            net = Net(function, False)
            del net.flag
            net.flag = torch.tensor(False)
            with self.assertLogs("experimental_experiment", "WARNING") as logged:
                to_onnx(net, (X,), mutated_buffers="outputs")
            self.assertEqual(1, len(logged.output))
            self.assertIn("flag is an input of the model, which holds the branch", logged.output[0])
            self.assertIn(f"in {function.__name__}\n", logged.output[0])

    def test_what_is_written_and_decides_nothing_is_no_warning(self):
        logging.disable(logging.NOTSET)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Net(of_a_number_that_stays_a_number, True), (X,), mutated_buffers="outputs")

    def test_a_flag_without_a_value_is_refused(self):
        with torch.device("meta"):
            net = Net(of_a_flag, True)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(net, (X,), weights=Net(of_a_flag, True).state_dict())


CUBE = torch.randn(2, 3, 4)


class Computed(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def written(x):
    axes = torch.arange(3)
    axes[1:].add_(1)
    return x * axes.tolist()[2]


def written_whole(x):
    axes = torch.tensor([1, 2])
    axes.mul_(3)
    return x * axes.tolist()[1]


def of_a_grid(x):
    """As torchdiffeq makes it: steps of one size, but the last."""
    times = torch.linspace(0, 1, 3)
    steps = torch.ceil((times[-1] - times[0]) / 0.3 + 1).item()
    grid = torch.arange(0, steps) * 0.3
    grid[-1] = times[-1]
    found = []
    for start, end in itertools.pairwise(grid):
        x = x + (end - start) * x
        while len(found) < len(times) and end >= times[len(found)]:
            found.append(x)
    return torch.stack(found)


class Times(torch.nn.Module):
    """A module with times, a tensor that is an attribute, and a scale, a buffer."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.times = torch.tensor([9.0, 6.0, 6.0, 0.0])
        self.register_buffer("scale", torch.tensor([0.0, 2.0, 0.0, 3.0])[1])
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, x):
        return self.function(self, x)


@torch.jit.script
def scripted(x):
    return torch.where(x > 0, x, x * 2)


def place(self, x):
    """The second position of a time that stands twice, as ``index_for_timestep`` of diffusers takes it."""
    places = (self.times == self.times[1]).nonzero()
    return x * self.times[places[1 if next(map(len, [places])) > 1 else 0].item()]


SEARCHES = {
    "the place of a time": place,
    "no place": lambda self, x: x * (2 if next(map(len, [torch.nonzero(self.times == 5)])) == 0 else 3),
    "positions of a buffer": lambda self, x: x[..., next(map(len, torch.where(self.mask))) - 1],
    "positions, row after row": lambda self, x: x * sum(torch.argwhere(self.mask).flatten().tolist()),
}


class TestNumbersOfConstants(ExporterTestCase):
    CASES = {
        "axes of an arange": lambda x: x.mean(dim=torch.arange(1, x.dim()).tolist()),
        "axes of a tensor": lambda x: x.mean(dim=torch.tensor([1, 2]).tolist()),
        "an order that operators give": lambda x: x.permute(torch.arange(3).flip(0).tolist()),
        "several axes": lambda x: x.mean(dim=torch.arange(1, 5).view(2, 2).tolist()[0]),
        "numbers written into a view": written,
        "numbers written in place": written_whole,
        "a grid of times": of_a_grid,
        "numbers of the data": lambda x: x * torch.stack([x.sum(), x.max()]).tolist()[0],
        "numbers of sizes": lambda x: x * torch.arange(x.shape[1]).tolist()[2],
    }

    def test_same_as_eager(self):
        for promise, function in self.CASES.items():
            with self.subTest(promise):
                self.export_and_compare(
                    Computed(function),
                    (CUBE,),
                    others=[(torch.randn(batch, 3, 4),) for batch in (1, 5)],
                    dynamic_shapes=({0: "batch"},),
                )

    def test_nothing_is_left_of_the_tensor(self):
        model = to_onnx(Computed(self.CASES["axes of an arange"]), (CUBE,), dynamic_shapes=({0: "batch"},))
        self.assertEqual(["ReduceMean"], [node.op_type for node in model.graph.node])

    def test_refused_without_the_patch(self):
        for promise in ("axes of an arange", "axes of a tensor"):
            with self.subTest(promise), self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(Computed(self.CASES[promise]), (CUBE,), export_options=ExportOptions(patches=False))

    def test_a_list_of_a_buffer(self):
        class Sizes(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("sizes", torch.tensor([1, 2]))

            def forward(self, x):
                return x.mean(dim=self.sizes.tolist())

        rows = ({0: "batch"},)
        self.export_and_compare(Sizes(), (CUBE,), others=[(torch.randn(5, 3, 4),)], dynamic_shapes=rows)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(Sizes(), (CUBE,), export_options=ExportOptions(patches=False))

    def test_the_text_of_an_attribute(self):
        class Logging(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.step = torch.tensor(3)
                self.texts = []

            def forward(self, x):
                self.texts.append(f"step {self.step}")
                return x * 2

        model = self.export_and_compare(Logging(), (CUBE,))
        self.assertEqual(["Mul"], [node.op_type for node in model.graph.node])

    def test_an_attribute_that_is_written_before_it_decides(self):
        """torch writes into it while it traces: what is recorded is not written once more."""

        def counted(self, x):
            self.step += 1
            return x * 2 if self.step % 2 == 0 else x * 3

        def turned(self, x):
            while self.step < 3:
                self.step += 1
                x = x * 2
            return x

        def filled(self, x):
            self.step.fill_(4)
            self.step.mul_(2)
            return x * 2 if self.step > 8 else x * 3

        def parted(self, x):
            first, _, _ = self.row.unbind()
            first += 1
            return x * 2 if first > 1 else x * 3

        for function in (counted, turned, filled, parted):
            with self.subTest(function.__name__):
                model = to_onnx(Counting(function), (CUBE,))
                (got,) = session(model).run(None, {"x": CUBE.numpy()})
                np.testing.assert_array_equal(got, Counting(function)(CUBE).numpy())

    def test_an_element_that_is_written_before_it_decides(self):
        def of_a_row(self, x):
            self.row[1] += 5
            return x * 2 if self.row.sum() > 1 else x * 3

        with self.assertRaisesRegex(CaptureError, REFUSED):
            to_onnx(Counting(of_a_row), (CUBE,))

    def test_positions_of_constants(self):
        """How many positions a mask of constants has is a number, as the schedulers of diffusers ask for the place of a time."""
        for promise, function in SEARCHES.items():
            with self.subTest(promise):
                module, rows = Times(function), ({0: "batch"},)
                self.export_and_compare(module, (CUBE,), others=[(CUBE[:1],)], dynamic_shapes=rows)
                with self.assertRaisesRegex(CaptureError, "data-dependent"):
                    to_onnx(module, (CUBE,), export_options=ExportOptions(patches=False))
        model = to_onnx(Times(place), (CUBE,), dynamic_shapes=({0: "batch"},))
        self.assertEqual(["Mul"], [node.op_type for node in model.graph.node])

    def test_positions_of_the_data(self):
        def counted(self, x):
            return x * self.times[len((x[0, 0] > 0).nonzero()) - 1]

        self.export_and_compare(Times(counted), (CUBE,), others=[(CUBE.abs(),)])

    def test_choices_are_no_searches(self):
        def chosen(self, x):
            return torch.where(condition=x > 0, input=x, other=scripted(x)), torch.where(x > 1, x, 0.0)

        for strict in (False, True):
            with self.subTest(strict=strict):
                options = ExportOptions(strict=strict)
                self.export_and_compare(Times(chosen), (CUBE,), export_options=options)

    def test_numbers_that_numpy_asks_for(self):
        def averaged(self, x):
            return x * float(np.concatenate([np.ones(2), [self.times[1] + 1, self.scale * 2]]).sum())

        self.export_and_compare(Times(averaged), (CUBE,))
        with self.assertRaisesRegex(CaptureError, "data-dependent|numpy"):
            to_onnx(Times(averaged), (CUBE,), export_options=ExportOptions(patches=False))

    def test_a_random_number_is_none(self):
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(Computed(lambda x: x.mean(dim=torch.randint(1, 3, (2,)).tolist()[:1])), (CUBE,))


if __name__ == "__main__":
    unittest.main()
