"""Prims: same values, shapes and dtypes as eager."""

import unittest

import torch
import torch._inductor.inductor_prims  # adds to torch.ops.prims

from experimental_experiment.testing import ExporterTestCase, each, of_each_float
from experimental_experiment.torch_interpreter import ExportOptions

aten, prims = torch.ops.aten, torch.ops.prims
fma = prims.fma.default
torch.manual_seed(0)
X, Y = torch.rand(2, 3) + 0.1, torch.rand(2, 3) + 0.1
SIGNED = torch.randn(2, 3, 4)
INTS, OTHERS = torch.randint(-9, 9, (2, 3)), torch.randint(1, 9, (2, 3))
Z, W = torch.randn(2, 3, dtype=torch.complex64), torch.randn(2, 3, dtype=torch.complex64)
CPU = torch.device("cpu")

BELOW_ONE = each(
    prims.acos.default,
    prims.asin.default,
    prims.atanh.default,
    prims.erf_inv.default,
    prims.ndtri.default,
)
UNARY = each(
    prims.abs.default,
    prims.asinh.default,
    prims.atan.default,
    prims.bessel_i0.default,
    prims.bessel_i0e.default,
    prims.bessel_i1.default,
    prims.bessel_i1e.default,
    prims.bessel_j0.default,
    prims.bessel_j1.default,
    prims.cbrt.default,
    prims.ceil.default,
    prims.clone.default,
    prims.cos.default,
    prims.cosh.default,
    prims.digamma.default,
    prims.erf.default,
    prims.erfc.default,
    prims.erfcx.default,
    prims.exp.default,
    prims.exp2.default,
    prims.expm1.default,
    prims.floor.default,
    prims.isfinite.default,
    prims.lgamma.default,
    prims.neg.default,
    prims.reciprocal.default,
    prims.round.default,
    prims.sign.default,
    prims.sin.default,
    prims.sinh.default,
    prims.spherical_bessel_j0.default,
    prims.tan.default,
    prims.tanh.default,
    prims.trunc.default,
)
POSITIVE = each(
    prims.log.default,
    prims.log10.default,
    prims.log1p.default,
    prims.log2.default,
    prims.rsqrt.default,
    prims.sqrt.default,
)
BINARY = each(
    prims.add.default,
    prims.atan2.default,
    prims.div.default,
    prims.eq.default,
    prims.fmax.default,
    prims.fmin.default,
    prims.fmod.default,
    prims.ge.default,
    prims.gt.default,
    prims.hypot.default,
    prims.igamma.default,
    prims.igammac.default,
    prims.le.default,
    prims.lt.default,
    prims.maximum.default,
    prims.minimum.default,
    prims.mul.default,
    prims.ne.default,
    prims.nextafter.default,
    prims.pow.default,
    prims.remainder.default,
    prims.sub.default,
)
INTEGERS = each(
    prims.add.default,
    prims.bitwise_and.default,
    prims.bitwise_or.default,
    prims.bitwise_xor.default,
    prims.div.default,
    prims.fmod.default,
    prims.gcd.default,
    prims.remainder.default,
    prims.shift_left.default,
    prims.shift_right_arithmetic.default,
)
COMPLEX = each(
    prims.abs.default,
    prims.acos.default,
    prims.acosh.default,
    prims.asin.default,
    prims.asinh.default,
    prims.atan.default,
    prims.atanh.default,
    prims.clone.default,
    prims.conj.default,
    prims.conj_physical.default,
    prims.cos.default,
    prims.cosh.default,
    prims.exp.default,
    prims.exp2.default,
    prims.expm1.default,
    prims.imag.default,
    prims.isfinite.default,
    prims.log.default,
    prims.log10.default,
    prims.log1p.default,
    prims.log2.default,
    prims.neg.default,
    prims.real.default,
    prims.reciprocal.default,
    prims.rsqrt.default,
    prims.sin.default,
    prims.sinh.default,
    prims.sqrt.default,
    prims.tan.default,
    prims.tanh.default,
)
COMPLEX_BINARY = each(
    prims.add.default,
    prims.div.default,
    prims.eq.default,
    prims.mul.default,
    prims.ne.default,
    prims.pow.default,
    prims.sub.default,
)


def reductions(x, dims):
    """What takes several axes."""
    results = [
        reduce(x, dims)
        for reduce in (prims.amax.default, prims.amin.default, prims.prod.default, prims.sum.default)
    ]
    return [*results, prims.var.default(x, dims, 1.0)]


def shapes(x):
    """What only moves elements."""
    return [
        prims.broadcast_in_dim.default(x, [2, 5, 3], [0, 2]),
        prims.cat.default([x, x], 1),
        prims.collapse.default(x, 0, 1),
        prims.collapse_view.default(x, 0, 1),
        prims.copy_strided.default(x, [1, 2]),
        prims.device_put.default(x, CPU),
        prims.fill.default(x, 2),
        prims.full_like.default(x, 7, dtype=x.dtype, device=CPU, requires_grad=False),
        prims.reshape.default(x, [3, 2]),
        prims.rev.default(x, [1]),
        prims.split_dim.default(x, 1, 3),
        prims.squeeze.default(x[:1], [0]),
        prims.transpose.default(x, [1, 0]),
        prims.view_of.default(x),
        prims.where.default(x == x, x, x),
        prims.as_strided_scatter.default(x, x[0], [3], [1], 2),
    ]


def made(x):
    """What takes no tensor."""
    options = {"device": CPU, "requires_grad": False}
    return [
        prims.iota.default(5, start=2, step=3, dtype=torch.int32, **options) * x.int(),
        prims.full.default([2], 1.5, dtype=torch.float64, **options) * x,
        prims.scalar_tensor.default(2, dtype=torch.float16, device=CPU) * x,
    ]


def unspecified(x):
    """Shapes and dtypes: the values are not specified, or drawn."""
    options = {"dtype": torch.float64, "device": CPU, "requires_grad": False}
    results = [
        prims.empty.default([2, 3], **options),
        prims.empty_permuted.default([2, 3], [1, 0], **options),
        prims.empty_strided.default([2, 3], [1, 2], **options),
        prims.normal.default([2, 3], mean=0.0, std=1.0, **options),
        prims.uniform.default([2, 3], low=2.0, high=3.0, dtype=torch.float64, device=CPU, stride=[3, 1]),
    ]
    return [(result > 0).double().clamp(7.0, 7.0) * x for result in results]  # what is there may be NaN


def written(x, y):
    """A copy whose old name is read afterwards."""
    x = x.clone()
    prims.copy_to.default(x, y)
    return x + y


class TestPrims(ExporterTestCase):
    CASES = {
        "one argument": (UNARY, SIGNED),
        "from 0 to 1": (BELOW_ONE, X * 0.9),
        "positive": (POSITIVE, X),
        "at least 1": (prims.acosh.default, X + 1),
        "two arguments": (BINARY, X, Y),
        "zeta": (prims.zeta.default, X + 1.5, Y),
        "frexp": (prims.frexp.default, X * 9),
        "integers": (INTEGERS, INTS, OTHERS),
        "bitwise_not": (prims.bitwise_not.default, INTS),
        "complex": (COMPLEX, Z),
        "two complex arguments": (COMPLEX_BINARY, Z, W),
        "other dtypes": (
            lambda x: [prims.convert_element_type.default(x, dtype) for dtype in (torch.int32, torch.float16)], SIGNED),
        "complex from real": (prims.convert_element_type.default, X, torch.complex64),
        "several axes": (reductions, SIGNED, [0, 2]),
        "all axes": (reductions, SIGNED, [0, 1, 2]),
        "sums of integers": (lambda x: prims.sum.default(x, [1]), INTS),
        "sums of complex numbers": (lambda x: prims.sum.default(x, [1]), Z),
        "fft_c2c": (lambda z: prims.fft_c2c.default(z, dim=[0, 1], forward=False), Z),
        "fft_c2r": (lambda z: prims.fft_c2r.default(z, dim=[0, 1], last_dim_size=5), Z),
        "fft_r2c": (lambda x: prims.fft_r2c.default(x, dim=[1, 2], onesided=True), SIGNED),
        "the values of svd": (lambda x: prims.svd.default(x, full_matrices=False)[1], X),
        "copy_to": (lambda x, y: (prims.copy_to.default(x.clone(), y), y), X, Y.double()),
        "a written copy": (written, X, Y),
    }  # fmt: skip
    FUSED = {
        "a number": (lambda x, y: fma(x, 0.1, y), X, Y),
        "tensors that broadcast": (lambda x, y, z: fma(x, y, z), X, Y[0], SIGNED[:, :1, :1]),
        "a number without axes": (lambda x, y, z: fma(x, y, z), X, torch.tensor(0.1, dtype=torch.float64), Y),
        "integers": (lambda x, y: fma(x, 3, y), INTS, OTHERS),
        "integers times a float": (lambda x, y: fma(x, 0.5, y), INTS, OTHERS),
        "integers times a float beside float16": (lambda x, y: fma(x, 0.1, y), INTS, Y.half()),
        "complex": (lambda x, y: fma(x, 0.1, y), Z, W),
        "complex and real": (lambda x, y, z: fma(x, y, z), X, Z, Y),
        **of_each_float(lambda x, y: fma(x, 0.1, y), X, Y, of="a product of"),
    }
    STATIC = {
        "moved": (shapes, X),
        "moved complex": (shapes, Z),
        "made": (made, torch.tensor(2.0)),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_products_that_are_added(self):
        self.assert_cases(self.FUSED)

    def test_written_by_torchdynamo(self):
        def function(x, y):
            return x.clone().addcmul_(y, y, value=0.1), x.clone().addcdiv_(x, y, value=2)

        model = self.assert_same_as_eager(function, X, Y, export_options=ExportOptions(strict=True))
        self.assertEqual(
            sorted(node.op_type for node in model.graph.node), ["Add", "Add", "Div", "Mul", "Mul", "Mul"]
        )

    def test_the_bits(self):
        self.assert_same_as_eager(prims.view_of_dtype.default, X, torch.int32, target_opset=26)

    def test_static_sizes(self):
        self.assert_cases(self.STATIC, dynamic=False)
        self.assert_same_as_eager(unspecified, torch.tensor(2.0), target_opset=20)


if __name__ == "__main__":
    unittest.main()
