"""What translations refuse, each in its own words."""

import unittest
import warnings

import torch
import torch.ao.quantization.fx._decomposed
from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx
from torch.export import Dim

from experimental_experiment.comparison import compare, session
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx
from experimental_experiment.torch_interpreter.composite import decomposed
from experimental_experiment.xoptim.rules import chosen

aten = torch.ops.aten
F = torch.nn.functional
DYNAMIC = Dim.DYNAMIC
X = torch.randn(4, 6)
INTS = torch.arange(6)
SIGNAL, WEIGHT = torch.randn(1, 2, 9), torch.randn(2, 2, 3)
INDICES, VALUES = torch.tensor([[0, 1], [2, 0]]), torch.rand(2)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls this layout a beta
    CSR = torch.eye(4).to_sparse_csr()
GENERATOR = torch.Generator()
COMPLEX = torch.randn(3, 3, dtype=torch.complex64)


@torch.library.custom_op("refusals_lib::without_decomposition", mutates_args=())
def without_decomposition(x: torch.Tensor) -> torch.Tensor:
    """An operator that torch cannot decompose."""
    return x.clone()


without_decomposition.register_fake(torch.empty_like)


def of_entries(indices, values, x):
    """The product of a sparse matrix with *x*."""
    return torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (4, 4)), x)


class RowsOfFour(torch.nn.Module):
    """Looks whether the number of elements is a multiple of 4."""

    def forward(self, x):
        return x.view(-1, 4) if x.numel() % 4 == 0 else x


class TestRefusals(ExporterTestCase):
    CASES = {  # message: function, its arguments, options of to_onnx in a last dict
        "integers to the negative power -2": (lambda x: aten.pow.Tensor_Scalar(x, -2), INTS),
        "a complex number is given for an argument that is expected to be real": (
            lambda x: torch.add(x, x, alpha=2j), COMPLEX),
        "aten.tensordot.default cannot be translated: more axes than Einsum has letters": (
            lambda x: torch.tensordot(x, x, dims=0), torch.zeros([1] * 27)),
        "aten.einsum.default cannot be translated: more axes than Einsum has letters": (
            lambda x: torch.einsum("...a->...", x), torch.zeros([1] * 53)),
        "a view of FLOAT as INT16, which has another width": (lambda x: x.view(torch.int16), X),
        "an input without an axis of channels": (
            lambda x: aten.native_batch_norm.default(x, None, None, None, None, True, 0.1, 1e-5)[0], X[0]),
        "an odd number of amounts: [1]": (lambda x: aten._pad_circular.default(x, [1]), X),
        "the quantization of INT64": (lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(), INTS),
        "a range that is not a constant": (
            lambda x, low: torch.ops.quantized_decomposed.quantize_per_tensor.tensor2(
                x, torch.tensor(0.1), torch.tensor(0), low, low + 200, torch.uint8), X, torch.tensor(0)),
        "nansum along no axis: torch adds all elements, but declares the shape of its input": (
            lambda x: torch.nansum(x, []), X),
        "interpolation of INT64": (
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), INTS.reshape(1, 1, 2, 3)),
        "the mean of booleans": (
            lambda x: x.scatter_reduce(0, torch.tensor([0, 1]), x[:2], "mean"), INTS > 2),
        "a stride, a padding, a dilation or a kernel size that is not a constant": (
            lambda x, w, n: F.conv1d(x, w, stride=n), SIGNAL, WEIGHT, 2, {"dynamic_shapes": (None, None, DYNAMIC)}),
        "a complex window": (
            lambda x, w: torch.stft(x, 4, window=w, return_complex=True, center=False), SIGNAL[0],
            torch.randn(4, dtype=torch.complex64)),
        "pad_mode=replicate": (
            lambda x: aten.stft.center(x, 4, return_complex=True, pad_mode="replicate"), SIGNAL[0]),
        "resize_ of a tensor whose memory has gaps or shows an element twice": (lambda x: x.clone()[:, 1:].resize_(2), X),
        "resize_ with symbolic sizes": (
            lambda x: x.clone().resize_(x.shape[0] - 1), X, {"dynamic_shapes": ({0: DYNAMIC},)}),
        "resize_ to more elements, which are not initialized": (lambda x: x.clone().resize_(30), X),
        "torch has no decomposition for it": (
            without_decomposition, X, {"translations": {
                without_decomposition: decomposed(torch.ops.refusals_lib.without_decomposition.default)}}),
        "in torch's decomposition of it, refusals_lib.without_decomposition.default has no translation": (
            lambda x: x.neg(), X, {"translations": {aten.neg.default: decomposed(aten.neg.default, without_decomposition)}}),
        "a composite operator without tensors": (
            lambda x: x + torch.hann_window(6), X,
            {"translations": {aten.hann_window.periodic: decomposed(aten.hann_window.periodic)}}),
        "the tangents of torch.func.jvp and jacfwd are not part of ONNX": (
            lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1], X),
        "round to 30 digits: between 0 and 22, the power of ten is exact": (
            lambda x, n: x * round(n / 3, 30), X, 7, {"dynamic_shapes": (None, DYNAMIC)}),
        "an integer to the power of a size: a float if that is negative": (
            lambda x, n: x * 3**n, X, 7, {"dynamic_shapes": (None, DYNAMIC)}),
        "take its result in the place of out=, or leave the dimension static": (
            lambda x, i: torch.gather(x, 1, i, out=torch.empty(i.shape)), X, INTS.reshape(2, 3) % 4,
            {"dynamic_shapes": (None, {0: DYNAMIC})}),
        "torch.linalg.pinv(a) @ b is its solution": (lambda x: torch.linalg.lstsq(x, x).solution, X),
        "a region under torch.vmap writes a tensor from outside": (
            lambda x, y: (torch.vmap(lambda row: torch.ones(3).add_(y.add_(1).sum()))(x), y)[1], X, X[0]),
    }  # fmt: skip

    def test_translations(self):
        self.assert_refused(self.CASES)

    def assert_refused(self, cases):
        for message, (function, *args) in cases.items():
            options = args.pop() if isinstance(args[-1], dict) else {}
            with self.subTest(message):
                with self.assertRaises(ExportError) as caught:
                    to_onnx(function, tuple(args), **options)
                self.assertIn(message, str(caught.exception))

    HINTS = {  # the same for what is advised
        "tensors of torch.quint8 and the like, which torch.export does not follow": (
            lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(), X, {"dynamic_shapes": ({0: DYNAMIC},)}),
        "compute with dense ones; zeros.index_add(0, rows, values[:, None] * x[columns]) is the product": (
            of_entries, INDICES, VALUES, X),
        "ONNX has no sparse tensors": (of_entries, INDICES, VALUES, X, {"dynamic_shapes": (None, None, {1: DYNAMIC})}),
        "ExportOptions(tracing='make_fx') follows them, as it does gradients in forward": (
            lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1], X),
        "no sparse tensors: compute with dense ones": (lambda x: CSR @ x, X),
        "leave generator= out: a runtime draws with its own": (lambda x: x + torch.rand(x.shape, generator=GENERATOR), X),
        "leave generator= out, which a runtime does not take either, or leave the dimension static": (
            lambda x: x + torch.rand(x.shape, generator=GENERATOR), X, {"dynamic_shapes": ({0: DYNAMIC},)}),
    }  # fmt: skip

    def test_hints(self):
        self.assert_refused(self.HINTS)

    def test_hints_for_models_that_torch_quantized(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layers = torch.nn.Sequential(torch.nn.Linear(6, 3)).eval()
            prepared = quantize_fx.prepare_fx(layers, get_default_qconfig_mapping("x86"), (X,))
            prepared(X)
            cases = {
                "converted modules are packed, where torch.export cannot follow: export the float model": (
                    torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.LSTM(6, 5))), X),
                "quantize with PT2E, or export the float model, then": (quantize_fx.convert_to_reference_fx(prepared), X),
            }  # fmt: skip
        self.assert_refused(cases)

    def test_a_dimension_that_is_a_multiple(self):
        batch = Dim("b")
        for columns, multiple in ((3, 4), (5, 4), (6, 2)):  # torch proposes none for 3
            with self.subTest(columns=columns):
                x, other = torch.randn(8, columns), torch.randn(12, columns)
                advice = rf"multiples of {multiple} for this size: declare {multiple} \* Dim\('b'\)"
                with self.assertRaisesRegex(ExportError, advice):
                    to_onnx(RowsOfFour(), (x,), dynamic_shapes=({0: batch},))
                shapes = ({0: multiple * batch},)
                self.export_and_compare(RowsOfFour(), (x,), others=[(other,)], dynamic_shapes=shapes)

    def test_a_part_of_a_dimension(self):
        """torch proposes multiples where it does not solve a quotient, and there is a branch besides."""
        n, x, other = Dim("n", min=1), torch.randn(4, 3), torch.randn(7, 3)
        middle = lambda x: x[x.shape[0] // 2] if x.shape[0] > 3 else x[0]
        advice = (
            r"multiples of 2 alone: name the dimension by a string, \{0: 'n'\},.* or declare 2 \* Dim\('n'\)"
        )
        with self.assertRaisesRegex(ExportError, advice):
            to_onnx(middle, (x,), dynamic_shapes=({0: n},))
        self.export_and_compare(middle, (x,), others=[(other,)], dynamic_shapes=({0: "n"},))

    ARGUMENTS = {
        "modules_as_functions is True or a set of classes of modules, not 'Linear'": {"modules_as_functions": "Linear"},
        "modules_as_functions holds <class 'int'>, which is not a class of modules": {"modules_as_functions": {int}},
    }  # fmt: skip

    def test_arguments(self):
        for message, options in self.ARGUMENTS.items():
            with self.subTest(message):
                with self.assertRaises((TypeError, ValueError)) as caught:
                    to_onnx(lambda x: x + 1, (X,), **options)
                self.assertIn(message, str(caught.exception))

    def test_another_number_of_outputs(self):
        runner = session(to_onnx(lambda x: (x, x + 1), (X,)))
        with self.assertRaisesRegex(ValueError, "eager gives 1 outputs, the ONNX model 2"):
            compare(Call(torch.sin, (X,), {}), runner, (X,))

    def test_what_is_printed(self):
        with self.assertRaisesRegex(TypeError, "a model, a part of one or a path can be printed, not int"):
            pretty_onnx(3)

    def test_names_of_rules(self):
        with self.assertRaisesRegex(ValueError, "there is no set of rules and no rule 'defautl'"):
            chosen("defautl")


if __name__ == "__main__":
    unittest.main()
