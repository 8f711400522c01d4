"""What the hints of refused captures propose: each one is given for its line, and a model written as it says is right."""

import functools
import pathlib
import unittest

import numpy as np
import torch
from torch._higher_order_ops import scan

from _unittests.ut_control_flow.holder import uncompiled_outputs
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(2, 3)
STRICT = ExportOptions(strict=True)
SHORTCUTS = ExportOptions(patches={"shortcuts"})


class Named(torch.Tensor):
    """A class of tensors that changes nothing."""


class Layers(torch.nn.Module):
    """One of several layers, which the data choose."""

    def __init__(self, is_stacked: bool):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))
        self.is_stacked = is_stacked

    def forward(self, x, which):
        if self.is_stacked:
            return torch.stack([layer(x) for layer in self.layers])[which]
        return self.layers[int(which)](x)  # line


class Experts(torch.nn.Module):
    """Layers for some of the rows each; those that no row asks for are passed over, or add nothing."""

    def __init__(self, is_masked: bool):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))
        self.is_masked = is_masked

    def forward(self, x, which):
        found = torch.zeros_like(x)
        if self.is_masked:
            for expert, layer in enumerate(self.layers):
                found = found + layer(x) * (which == expert)[:, None]
            return found
        for expert in which.unique():  # line
            found = found + self.layers[expert](x) * (which == expert)[:, None]
        return found


class TestHints(ExporterTestCase):
    def refused(self, function, args, hint, dynamic_shapes=None):
        """Check that a model is refused, and the hint that its marked line gets."""
        with self.assertRaises(CaptureError) as caught:
            to_onnx(function, args, dynamic_shapes=dynamic_shapes)
        self.assertRegex(str(caught.exception), rf"# line\n  hint   {hint}")

    def test_an_element_that_the_data_choose(self):
        args = X, torch.tensor(1)
        self.refused(Layers(False), args, "the data choose from a list of Python, or from a ModuleList")
        self.export_and_compare(Layers(True), args, others=[(X, torch.tensor(2))])
        values = [0.5, 2.0, 3.0]

        def listed(x, which):
            return x * values[which]  # line

        self.refused(listed, args, "the data choose from a list of Python")
        others = [(X, torch.tensor(2))]
        self.export_and_compare(lambda x, which: x * torch.tensor(values)[which], args, others=others)

    def test_a_loop_over_what_the_data_select(self):
        args = X, torch.tensor([2, 0])
        self.refused(
            Experts(False), args, "the data decide how often a loop turns: loop over all that may be"
        )
        self.export_and_compare(Experts(True), args, others=[(X, torch.tensor([1, 1]))])

    def test_something_is_selected(self):
        """A branch that the patch takes is named with it, however it asks; one on a number of the data is not."""

        def negated(x):
            found = x[x > 0]
            if not found.shape[0]:  # line
                return x
            return x + found.sum()

        def counted(x):
            found = x[x > 0]
            if len(found):  # line
                x = x + found.sum()
            return x

        def compared(x):
            found = x[x > 0]
            return x if found.size(0) < 1 else x + found.sum()  # line

        def named(x):
            count = x[x > 0].shape[0]
            if count == 0:  # line
                return x
            return x + x[x > 0].sum()

        for function in (negated, counted, compared, named):
            with self.subTest(function.__name__):
                self.refused(
                    function, (X,), r"the data decide a branch: ExportOptions\(patches=\{'shortcuts'\}"
                )
                with self.assertLogs("experimental_experiment", "WARNING"):
                    written = to_onnx(function, (X,), export_options=SHORTCUTS)
                self.assert_matches(written, function, (X.abs(),))

        def number(x):
            count = (x > 0).sum().item()
            if count == 0:  # line
                return x
            return x * 2

        self.refused(number, (X,), "a branch or a size depends on the data: .*unless a side of it writes")

    def test_what_a_body_reads_from_outside(self):
        def transposed(x, is_method=False):
            k = x.exp()
            step = lambda c, row: (k @ ((k.t() if is_method else k.T) @ c), row * 2)
            return scan(step, torch.ones(2), x)

        def halves(x, is_cloned=False):
            a, b = x.exp().tensor_split(2, 1)
            a = a.clone() if is_cloned else a
            return scan(lambda c, row: (c * a.sum() + b.sum(), row * 2), torch.ones(()), x)

        def counted(x, is_tensor=False):
            n = (x > 0).sum().item()
            n = torch.tensor(n) if is_tensor else n
            return scan(lambda c, row: (c * n, row * n), torch.ones(()), x)  # line

        def placed(x, is_cloned=False):
            n = (x[0] > 0).sum().item()
            torch._check(n >= 0)
            torch._check(n < x.shape[1])
            column = x[:, n]
            column = column.clone() if is_cloned else column
            return scan(lambda c, row: (c * 2, row * column.sum()), torch.ones(()), x)  # line

        views = "a body reads a tensor from outside and a view of it, or two views of one: clone one before"
        number = (
            r"a body reads a number of the data from outside: give it torch\.tensor\(n\), or capture with"
        )
        place = "a body reads a view from outside whose place the data decide, .*: clone it before, or capture with"
        cases = ((transposed, views), (halves, views), (counted, number), (placed, place))
        for function, hint in cases:
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                x = torch.tensor([[1.0, 2.0, -1.0], [0.5, -2.0, 1.5]])
                with self.assertRaisesRegex(CaptureError, rf"\n  hint   {hint}") as caught:
                    to_onnx(function, (x,))
                self.assertNotIn("placeholder", str(caught.exception))
                changed = functools.partial(function, **{function.__code__.co_varnames[1]: True})
                self.export_and_compare(changed, (x,), others=[(-x,)], eager=uncompiled_outputs)

    def test_a_boolean_of_a_tensor(self):
        def positive(x):
            return x * 2, bool((x > 0).any())  # line

        self.refused(positive, (X,), r"bool\(\) needs the value: keep the condition as a tensor")
        self.assertTrue(to_onnx(positive, (X,), export_options=STRICT).graph.output)
        self.export_and_compare(lambda x: (x * 2, (x > 0).any()), (X,), others=[(-X.abs(),)])

    def test_numpy(self):
        def of_the_data(x):
            return torch.from_numpy(np.cumsum(x.numpy(), -1))  # line

        def of_a_size(x):
            return x * torch.from_numpy(np.arange(x.shape[0]).astype(np.float32))[:, None]  # line

        def of_a_window(x):
            return x * torch.from_numpy(np.hanning(x.shape[0]).astype(np.float32))[:, None]  # line

        def of_sizes(x):
            return torch.from_numpy(np.array([x.shape[0], x.shape[1]]))  # line

        self.refused(of_the_data, (X,), "a tensor becomes a numpy array in forward, .*strict=True")
        dims = ({0: "n"},)
        for function in (of_a_size, of_a_window, of_sizes):
            with self.subTest(function.__name__):
                self.refused(function, (X,), r"numpy computes with numbers of Python, .*strict=True", dims)
        for function in (of_the_data, of_a_size):
            with self.subTest(function.__name__):
                written = to_onnx(function, (X,), dynamic_shapes=dims, export_options=STRICT)
                self.assert_matches(written, function, (torch.randn(5, 3),))

    def test_a_text_with_a_percent_sign(self):
        def of_the_data(x):
            text = "%.3f" % x.max().item()  # noqa: UP031 # line
            return x * 2 if text else x

        def of_a_size(x):
            text = "%d rows" % x.shape[0]  # noqa: UP031 # line
            return x * 2 if text else x

        def formatted(x):
            text = f"{x.max().item():.3f} {x.shape[0]:4d} rows"
            return x * 2 if text else x

        dims = ({0: "n"},)
        for function in (of_the_data, of_a_size):
            with self.subTest(function.__name__):
                self.refused(function, (X,), "'%' formats numbers of Python only: write an f-string", dims)
        self.export_and_compare(formatted, (X,), others=[(torch.randn(5, 3),)], dynamic_shapes=dims)

    def test_a_typed_tensor_of_tensors(self):
        def of_tensors(x):
            return torch.FloatTensor([x.min(), x.max()])  # line

        def of_numbers(x):
            return torch.Tensor([x.min().item(), 2])  # line

        for function in (of_tensors, of_numbers):
            with self.subTest(function.__name__):
                self.refused(function, (X,), r"torch\.LongTensor, .* tensors of one element")
        self.export_and_compare(lambda x: torch.tensor([x.min(), x.max()], dtype=torch.float32), (X,))

    def test_memory_that_is_read(self):
        def of_memory(x):
            return torch.asarray([x.min(), x.max()])  # line

        def of_a_pointer(x):
            return x if x.data_ptr() == x.T.data_ptr() else x + 1  # line

        for function in (of_memory, of_a_pointer):
            with self.subTest(function.__name__):
                self.refused(function, (X,), "the memory of a tensor is read, which has none")

    def test_a_class_of_tensors(self):
        def named(x):
            return x.as_subclass(Named) * 2  # line

        self.refused(named, (X,), "a tensor becomes one of a class of its own in forward")
        self.assert_matches(to_onnx(named, (X,), export_options=STRICT), lambda x: x * 2, (X,))

    def test_weights_of_bitsandbytes(self):
        """Its 8 bit layers ask their weight for what is beside it, its 4 bit layers make one of the class again."""

        class Params4bit(torch.Tensor):
            pass

        class Quantized(torch.nn.Parameter):
            CB = None

        class Linear(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = Quantized(X.clone())

            def forward(self, x):
                return x if self.weight.CB is None else x @ self.weight  # line

        def of_four_bits(x):
            return x.as_subclass(Params4bit) * 2  # line

        for model in (Linear(), of_four_bits):
            with self.subTest(model=type(model).__name__):
                self.refused(model, (X,), "bitsandbytes keeps weights in classes of its own")

    def test_tensors_that_onnx_lacks(self):
        def sparse(x):
            return x.to_sparse().to_dense()  # line

        def nested(x):
            return torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0)  # line

        self.refused(sparse, (X,), "ONNX has no sparse tensors", ({0: "n"},))
        self.refused(nested, (X,), "ONNX has no nested tensors")

    def test_constants_among_the_arguments(self):
        def times(x, factor):
            return (x * factor).abs()

        with self.assertRaisesRegex(CaptureError, "hint   no input of a model can be that: bind it"):
            to_onnx(times, (X, 1j))
        self.export_and_compare(functools.partial(times, factor=1j), (X,))
        for constant in (b"", int, len, pathlib.Path("model")):
            with self.subTest(constant=constant), self.assertRaisesRegex(CaptureError, "bind it"):
                to_onnx(lambda x, y: x, (X, constant))

    def test_a_layer_without_weights(self):
        layer = torch.nn.Sequential(torch.nn.LazyLinear(2))
        with self.assertRaisesRegex(
            CaptureError, "hint   a lazy module has no weights before its first call"
        ):
            to_onnx(layer, (X,))
        layer(X)
        self.export_and_compare(layer, (X,))


if __name__ == "__main__":
    unittest.main()
