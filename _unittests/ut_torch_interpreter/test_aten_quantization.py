"""Quantization: same values, masks, shapes and dtypes as eager."""

import importlib.util
import unittest

import torch
import torch.ao.quantization.fx._decomposed

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


decomposed = torch.ops.quantized_decomposed
X = normal(3, 4, 5) * 3
SCALE, ZERO = torch.tensor(0.037), torch.tensor(3, dtype=torch.int32)
SCALES = torch.rand(4, generator=GENERATOR) * 0.1 + 0.01
ZEROS = torch.tensor([0, 1, -3, 7], dtype=torch.int32)
LOW, HIGH = torch.tensor(-128), torch.tensor(127)
STEPS = torch.randint(-128, 128, (3, 4), generator=GENERATOR).to(torch.int8)
EPS = torch.finfo(torch.float32).eps


def as_declared(x, dtype):
    """The scales of tokens: torch declares float64 and gives float32."""
    return [value.to(torch.float32) for value in decomposed.choose_qparams_per_token(x, dtype)]


def by_token(x, scales, zeros):
    """The steps, and what they stand for."""
    limits = -128, 127, torch.int8
    steps = decomposed.quantize_per_token(x, scales, zeros, *limits)
    return steps, decomposed.dequantize_per_token(steps, scales, zeros, *limits, torch.float32)


class TestQuantization(ExporterTestCase):
    CASES = {
        "uint8": (aten.fake_quantize_per_tensor_affine.default, X, 0.037, 3, 0, 255),
        "a narrow range of int8": (aten.fake_quantize_per_tensor_affine.default, X, 0.037, 3, -127, 127),
        "four bits": (aten.fake_quantize_per_tensor_affine.default, X, 0.37, 3, 0, 15),
        "sixteen bits": (aten.fake_quantize_per_tensor_affine.default, X, 0.00037, 3, -32768, 32767),
        "float16": (aten.fake_quantize_per_tensor_affine.default, X.half(), 0.037, 3, 0, 255),
        "ties go to the even step": (
            aten.fake_quantize_per_tensor_affine.default, torch.arange(-6.0, 7.0) / 4, 0.5, 0, -128, 127),
        "a scale that is a tensor": (
            aten.fake_quantize_per_tensor_affine.tensor_qparams, X, SCALE, ZERO, -128, 127),
        "the mask": (aten.fake_quantize_per_tensor_affine_cachemask.default, X, 0.037, 3, -20, 27),
        "enabled": (
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, X, SCALE, ZERO,
            torch.tensor([1]), -20, 27),
        "disabled": (
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, X, SCALE, ZERO,
            torch.tensor([0]), -20, 27),
        "by channel": (aten.fake_quantize_per_channel_affine.default, X, SCALES, ZEROS, 1, -128, 127),
        "by channel, a float zero point": (
            aten.fake_quantize_per_channel_affine.default, X, SCALES, ZEROS + 0.3, 1, -128, 127),
        "by channel, the mask": (
            aten.fake_quantize_per_channel_affine_cachemask.default, X, SCALES, ZEROS, 1, -20, 27),
        "learnable": (
            aten._fake_quantize_learnable_per_tensor_affine.default, X, torch.tensor([0.05]),
            torch.tensor([2.5]), -128, 127),
        "learnable by channel": (
            aten._fake_quantize_learnable_per_channel_affine.default, X, SCALES, ZEROS + 0.5, 1, 0, 255),
        "PT2E, int8": (decomposed.quantize_per_tensor.default, X, 0.05, 3, -128, 127, torch.int8),
        "PT2E, a narrow range": (decomposed.quantize_per_tensor.default, X, 0.05, 3, -127, 127, torch.int8),
        "PT2E, uint16": (decomposed.quantize_per_tensor.default, X, 0.05, 3, 0, 65535, torch.uint16),
        "PT2E, a tensor": (decomposed.quantize_per_tensor.tensor, X, SCALE, ZERO, -128, 127, torch.int8),
        "PT2E, everything a tensor": (
            lambda x, s, z: decomposed.quantize_per_tensor.tensor2(x, s, z, LOW, HIGH, torch.int8), X, SCALE,
            ZERO),
        "PT2E, back, everything a tensor": (
            lambda x, s, z: decomposed.dequantize_per_tensor.tensor2(x, s, z, LOW, HIGH, torch.int8), STEPS,
            SCALE, ZERO),
        "PT2E, back": (decomposed.dequantize_per_tensor.default, STEPS, 0.05, 3, -128, 127, torch.int8),
        "PT2E, back from int32": (
            decomposed.dequantize_per_tensor.default, STEPS.int(), 0.05, 3, -(2**31), 2**31 - 1, torch.int32),
        "PT2E, back, a tensor": (
            decomposed.dequantize_per_tensor.tensor, STEPS, SCALE, ZERO, -128, 127, torch.int8),
        "PT2E by channel": (
            decomposed.quantize_per_channel.default, X, SCALES, ZEROS, -2, -128, 127, torch.int8),
        "PT2E by channel, back": (
            decomposed.dequantize_per_channel.default, STEPS, SCALES, ZEROS, 1, -128, 127, torch.int8),
        "PT2E by channel, no zero points": (
            decomposed.dequantize_per_channel.default, STEPS, SCALES, None, 1, -128, 127, torch.int8),
        "a tensor of the model": (lambda x: aten.fake_quantize_per_tensor_affine.tensor_qparams(
            x, SCALE, ZERO, -128, 127), X),
        "PT2E, a tensor of the model, there and back": (
            lambda x: decomposed.dequantize_per_tensor.tensor(
                decomposed.quantize_per_tensor.tensor(x, SCALE, ZERO, -128, 127, torch.int8),
                SCALE, ZERO, -128, 127, torch.int8), X),
        "PT2E by channel, of the model, there and back": (
            lambda x: decomposed.dequantize_per_channel.default(
                decomposed.quantize_per_channel.default(x, SCALES, ZEROS, -2, -128, 127, torch.int8),
                SCALES, ZEROS, -2, -128, 127, torch.int8), X),
        "PT2E by channel, back, zero points of int8 wrap": (
            decomposed.dequantize_per_channel.default, STEPS, SCALES, (ZEROS * 17).to(torch.int8), 1, -128, 127,
            torch.int8),
        "PT2E by channel, float zero points lose what follows the point": (
            decomposed.quantize_per_channel.default, X, SCALES, ZEROS + 0.6, -2, -128, 127, torch.int8),
    }  # fmt: skip

    BEYOND = {
        "PT2E": (decomposed.quantize_per_tensor.default, X - 10, 0.1, 200, -128, 127, torch.int8),
        "PT2E, back": (decomposed.dequantize_per_tensor.default, STEPS, 0.1, 200, -128, 127, torch.int8),
        "PT2E, back, below uint8": (
            lambda x: decomposed.dequantize_per_tensor.default(x.to(torch.uint8), 0.1, -5, 0, 255, torch.uint8),
            STEPS),
        "PT2E, a tensor": (
            decomposed.quantize_per_tensor.tensor, X - 10, SCALE, ZERO + 197, -128, 127, torch.int8),
        "PT2E, back, a tensor": (
            decomposed.dequantize_per_tensor.tensor, STEPS, SCALE, ZERO + 197, -128, 127, torch.int8),
        "PT2E, back, what was clipped and cast to uint8": (
            lambda x, zero: decomposed.dequantize_per_tensor.tensor(
                x, SCALE, zero.clamp(-9, 99).to(torch.uint8).int(), -128, 127, torch.int8), STEPS, ZERO - 10),
        "PT2E by channel": (
            decomposed.quantize_per_channel.default, X, SCALES, ZEROS + 197, -2, -128, 127, torch.int8),
        "PT2E by channel, back": (
            decomposed.dequantize_per_channel.default, STEPS, SCALES, ZEROS + 197, 1, -128, 127, torch.int8),
        "above uint8": (
            aten.fake_quantize_per_tensor_affine.tensor_qparams, X, SCALE, ZERO + 297, 0, 255),
        "below uint8": (aten.fake_quantize_per_tensor_affine.tensor_qparams, X, SCALE, ZERO - 8, 0, 255),
    }  # fmt: skip
    """Zero points that 8 bits do not hold."""

    def test_zero_points_beyond_8_bits(self):
        self.assert_cases(self.BEYOND, dynamic=False)

    CHOSEN = {
        f"{name}, {promise}": (operator, x, *arguments)
        for promise, x in {
            "both signs": X,
            "positive": X.abs() + 1,
            "negative": -X.abs() - 1,
            "nothing but 0": X * 0,
            "one row": X[0, 0],
        }.items()
        for name, (operator, *arguments) in {
            "int8": (decomposed.choose_qparams.tensor, -128, 127, EPS, torch.int8),
            "uint8": (decomposed.choose_qparams.tensor, 0, 255, EPS, torch.uint8),
            "symmetric": (decomposed.choose_qparams_symmetric.tensor, -127, 127, EPS, torch.int8),
            "symmetric, uint8": (decomposed.choose_qparams_symmetric.tensor, 0, 255, EPS, torch.uint8),
            "by token": (decomposed.choose_qparams_per_token_asymmetric.default, torch.int8),
            "by token, symmetric": (lambda x, dtype: as_declared(x, dtype), torch.int8),
        }.items()
    }
    """Parameters that are computed from the tensor."""

    def test_chosen_parameters(self):
        self.assert_cases(self.CHOSEN)

    def test_chosen_parameters_of_halves(self):
        """They are those of the same numbers in float32: eager rounds every step."""
        x = X.half()
        for name, (operator, _, *arguments) in self.CHOSEN.items():
            if not name.endswith("both signs"):
                continue
            with self.subTest(name):
                model = to_onnx(lambda x, f=operator, a=tuple(arguments): f(x, *a), (x,))
                found = run(session(model), (x,))
                expected = operator(x.float(), *arguments)
                torch.testing.assert_close(found, list(expected), check_dtype=False)

    def test_tokens_of_another_dtype_are_refused(self):
        function = lambda x: decomposed.choose_qparams_per_token(x, torch.uint8)[0]
        with self.assertRaisesRegex(ExportError, "scales of tokens in torch.uint8: torch has those of int8"):
            to_onnx(function, (X,))

    TOKENS = {
        "float32": (X[0], SCALES[:, None], ZEROS[:, None]),
        "float16": (X[0].half(), SCALES[:, None], ZEROS[:, None]),
        "parameters of float64 and int64": (X[0], SCALES[:, None].double(), ZEROS[:, None].long()),
        "zero points of float32": (X[0], SCALES[:, None], ZEROS[:, None].float()),
    }

    def test_tokens(self):
        """There and back."""
        for promise, given in self.TOKENS.items():
            with self.subTest(promise):
                self.assert_same_as_eager(by_token, *given, dynamic=False)

    def test_groups(self):
        """There and back, in groups of columns, and in one for each row."""
        x = normal(3, 8)
        scales, zeros = torch.rand(3, 2, generator=GENERATOR) + 0.1, torch.tensor([[0, 3], [-5, 1], [2, 0]])
        for promise, size, given in (
            ("groups", 4, (scales, zeros)),
            ("floats", 4, (scales, zeros.float())),
            ("one column", 32, (scales[:, :1], zeros[:, :1])),
        ):
            limits = -8, 7, torch.int8, size
            quantize, back = decomposed.quantize_per_channel_group, decomposed.dequantize_per_channel_group
            with self.subTest(promise):
                self.assert_same_as_eager(quantize.default, x, *given, *limits, dynamic=False)
                steps = quantize(x, *given, *limits)
                self.assert_same_as_eager(back.default, steps, *given, *limits, torch.float32, dynamic=False)
        self.assert_same_as_eager(
            back.default, steps, scales[:, :1], None, *limits, torch.float16, dynamic=False
        )

    def test_by_channel_and_converted(self):
        given = X, SCALES.double(), ZEROS.long(), 1, -20, 27
        self.assert_same_as_eager(decomposed.fake_quant_per_channel.default, *given, dynamic=False)
        self.assert_same_as_eager(decomposed.convert_element_type.no_fuse, X, torch.float16)

    def test_linear_quantized_while_it_runs(self):
        """As PT2E writes it: the activation is quantized by what it holds."""
        steps = torch.randint(-127, 128, (6, 5), generator=GENERATOR).to(torch.int8)

        def linear(x, steps):
            scale, zero = decomposed.choose_qparams.tensor(x, -128, 127, EPS, torch.int8)
            x = decomposed.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
            x = decomposed.dequantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
            weight = decomposed.dequantize_per_channel(
                steps, SCALES.repeat(2)[:6], None, 0, -127, 127, torch.int8
            )
            return torch.nn.functional.linear(x, weight)

        self.assert_same_as_eager(linear, X[0], steps, dynamic=False)
        model = to_onnx(linear, (X[0], steps))
        written = [node.op_type for node in model.graph.node]
        self.assertEqual([written.count(f"{what}Linear") for what in ("Quantize", "Dequantize")], [1, 2])

    def test_same_as_eager(self):
        # torch.export cannot make the sizes of several of these dynamic
        self.assert_cases(self.CASES, dynamic=False)

    def test_quantized_tensor(self):
        there_and_back = lambda x: aten.dequantize.self(
            aten.quantize_per_tensor.default(x, 0.1, 3, torch.quint8)
        )
        self.assert_same_as_eager(there_and_back, X, dynamic=False)


def in_full(parameter, block_size):
    """The parameters of blocks, for every element."""
    for axis, count in enumerate(block_size):
        parameter = parameter.repeat_interleave(count, axis)
    return parameter


def quantize_affine(input, block_size, scale, zero_point, output_dtype, quant_min, quant_max):
    """What torchao computes."""
    steps = torch.round(input * in_full(1.0 / scale, block_size)) + in_full(zero_point, block_size)
    return steps.clamp(quant_min, quant_max).to(output_dtype)


def dequantize_affine(input, block_size, scale, zero_point, input_dtype, quant_min, quant_max, output_dtype):
    """What torchao computes."""
    return ((input - in_full(zero_point, block_size)) * in_full(scale, block_size)).to(output_dtype)


def choose_qparams_affine(
    input, mapping_type, block_size, target_dtype, quant_min=None, quant_max=None, eps=None, scale_dtype=None,
    zero_point_dtype=torch.int32, keepdim=False,
):  # fmt: skip
    """What torchao computes, for blocks along the last axis of a matrix."""
    low, high = (-128, 127) if quant_min is None else (quant_min, quant_max)
    blocks = input.reshape(len(input), -1, block_size[-1])
    smallest, largest = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    eps = torch.finfo(input.dtype).smallest_normal if eps is None else eps
    if mapping_type == "ASYMMETRIC":
        scale = ((largest - smallest) / float(high - low)).clamp(min=eps)
        zero_point = (low - torch.round(smallest / scale)).clamp(low, high)
    else:
        both = torch.maximum(-smallest, largest) / (float(high - low) / 2)
        scale = (
            torch.maximum(smallest / float(low), largest / float(high)) if "NO_CL" in mapping_type else both
        )
        scale, zero_point = scale.clamp(min=eps), torch.full_like(scale, int((high + low + 1) / 2))
    if not keepdim and block_size[-1] == input.shape[-1]:
        scale, zero_point = scale[:, 0], zero_point[:, 0]
    return scale.to(scale_dtype or input.dtype), zero_point.to(zero_point_dtype)


class TestNarrowRanges(ExporterTestCase):
    def test_floats_are_kept_in_range(self):
        """Before they are steps, which onnxruntime fuses, when the numbers are known; the steps themselves otherwise."""
        x = torch.linspace(-3, 3, 40).reshape(4, 10)
        known = lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 5, -127, 100)
        computed = lambda x, scale: torch.fake_quantize_per_tensor_affine(x, scale, zero, -127, 100)
        zero = torch.tensor(5, dtype=torch.int32)
        for function, args, expected in (
            (known, (x,), ["Clip", "QuantizeLinear", "DequantizeLinear"]),
            (computed, (x, torch.tensor(0.02)), ["QuantizeLinear", "Clip", "DequantizeLinear"]),
        ):
            with self.subTest(expected):
                model = self.export_and_compare(function, args)
                self.assertEqual(expected, [node.op_type for node in model.graph.node])


class TestTorchao(ExporterTestCase):
    """torchao's operators, under their two names, defined here by their schemas when it is not installed."""

    BLOCKS = "Tensor input, int[] block_size, Tensor scale, Tensor zero_point, ScalarType"
    RANGE = "Scalar? quant_min, Scalar? quant_max"

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("torchao") is not None:
            raise unittest.SkipTest("torchao defines its operators itself")
        cls.libraries = [torch.library.Library(name, "FRAGMENT") for name in ("torchao", "quant")]
        for library in cls.libraries:
            library.define(f"quantize_affine({cls.BLOCKS} output_dtype, {cls.RANGE}) -> Tensor")
            library.define(
                f"dequantize_affine({cls.BLOCKS} input_dtype, {cls.RANGE}, ScalarType output_dtype) -> Tensor"
            )
            for function in (quantize_affine, dequantize_affine):
                library.impl(function.__name__, function, "CompositeExplicitAutograd")
        ao = cls.libraries[0]
        ao.define(
            "choose_qparams_affine(Tensor input, str mapping_type, int[] block_size, ScalarType target_dtype, Scalar? quant_min=None, "
            "Scalar? quant_max=None, float? eps=None, ScalarType? scale_dtype=None, ScalarType? zero_point_dtype=3, bool keepdim=False) -> (Tensor, Tensor)"
        )
        ao.impl("choose_qparams_affine", choose_qparams_affine, "CompositeExplicitAutograd")

    def test_blocks(self):
        scales, zeros = (
            torch.rand(3, 2, generator=GENERATOR) * 0.1 + 0.01,
            torch.tensor([[0, 3], [-5, 1], [2, 0]]),
        )
        blocks, limits = [1, 4], (-100, 127)
        for quantize in (torch.ops.torchao.quantize_affine.default, torch.ops.quant.quantize_affine.default):
            with self.subTest(quantize):
                args = (X[:, 0, :4].repeat(1, 2), blocks, scales, zeros, torch.int8, *limits)
                self.assert_same_as_eager(quantize, *args, dynamic=False)
        quantize = torch.ops.torchao.quantize_affine.default
        function = lambda x: quantize(x, [1, 4], x[:, ::4].abs() + 0.1, x[:, 1::4], torch.int8, *limits)
        x, DYNAMIC = X[:, 0, :4].repeat(1, 2), torch.export.Dim.DYNAMIC
        self.export_and_compare(function, (x,), others=[(x.repeat(2, 1),)], dynamic_shapes=({0: DYNAMIC},))
        with self.assertRaisesRegex(ExportError, "blocks of a symbolic size"):
            to_onnx(function, (x,), dynamic_shapes=({1: 4 * torch.export.Dim("blocks")},))
        choose = torch.ops.torchao.choose_qparams_affine.default
        x[0] = 0
        for mapping in ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
            for block, more in (([1, 8], {}), ([1, 4], {}), ([1, 8], {"keepdim": True, "scale_dtype": torch.float64}),
                                ([1, 4], {"quant_min": -8, "quant_max": 7, "eps": 1e-3, "keepdim": True, "zero_point_dtype": torch.int8})):  # fmt: skip
                with self.subTest(mapping, block=block, more=more):
                    function = lambda x: choose(x, mapping, block, torch.int8, **more)  # noqa: B023
                    self.export_and_compare(
                        function, (x,), others=[(x.repeat(2, 1) * 3,)], dynamic_shapes=({0: DYNAMIC},)
                    )
        for mapping, dtype, message in (
            ("CENTERED", torch.int8, "mapping_type=CENTERED is not handled"),
            ("SYMMETRIC", torch.float8_e4m3fn, "steps that are FLOAT8E4M3FN"),
        ):
            with self.assertRaisesRegex(ExportError, message):
                to_onnx(lambda x: choose(x, mapping, [1, 8], dtype), (x,))  # noqa: B023
        for back in (torch.ops.torchao.dequantize_affine.default, torch.ops.quant.dequantize_affine.default):
            with self.subTest(back):
                args = (STEPS.repeat(1, 2), blocks, scales, zeros, torch.int8, *limits, torch.float16)
                self.assert_same_as_eager(back, *args, dynamic=False)


if __name__ == "__main__":
    unittest.main()
