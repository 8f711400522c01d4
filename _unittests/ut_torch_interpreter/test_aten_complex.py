"""Complex numbers: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each, of_each_float
from experimental_experiment.torch_interpreter import ExportError

aten = torch.ops.aten
Z = torch.tensor([[1 + 2j, -3 + 0.5j, 0.25 - 1j], [-1 - 1j, 2j, -0.5]])
W = torch.tensor([0.5 - 1j, 3 + 1j, -2j])
EDGES = torch.tensor([0, complex(math.nan, 1), complex(math.inf, 1), complex(1, -math.inf), -1, -1j, 1, 1j])


def randn(*shape, dtype=torch.float32):
    """A tensor of random numbers."""
    return torch.randn(*shape).to(dtype)


def written_to_booleans(z):
    """Booleans, some of which are assigned from a complex tensor."""
    result = z != z
    result[1:6] = z[1:6]
    return result


class TestComplex(ExporterTestCase):
    CASES = {
        "complex broadcasts": (aten.complex.default, randn(2, 1), randn(3)),
        "polar": (aten.polar.default, randn(2, 3).abs(), randn(2, 3)),
        "polar in float64": (aten.polar.default, randn(3).abs().double(), randn(3).double()),
        "view_as_complex": (aten.view_as_complex.default, randn(3, 2)),
        "view_as_real": (aten.view_as_real.default, Z),
        "real": (aten.real.default, Z),
        "real of a real tensor": (lambda x: aten.real.default(x) + 1, randn(3)),
        "imag": (aten.imag.default, Z),
        "conj": (lambda z: aten.conj.default(z) + 1, Z),
        "_conj": (lambda z: aten._conj.default(z) + 1, Z),
        "conj of no axes": (aten.conj_physical.default, Z[0, 0]),
        "parts of a product": (lambda z, w: torch.stack([(z * w).real, (z * w).imag, (z.conj() * w).imag]), Z, W),
        "a product of a real tensor of more axes": (aten.mul.Tensor, Z[0, 0], randn(2, 1, 3)),
        "a product without axes": (aten.mul.Tensor, Z[0, 0], torch.tensor(3)),
        "a quotient of a real tensor of more axes": (aten.div.Tensor, Z[0, 0], randn(2, 1, 3)),
        "a quotient by a complex number without an imaginary part": (lambda x: x / complex(2, 0), randn(2, 3)),
        "a product with a complex number without one": (lambda x: x * complex(2, 0), randn(2, 3)),
        "a quotient of integers": (aten.div.Tensor, Z[0, 0], torch.tensor([3, -2, 7])),
        "a quotient of zeros": (aten.div.Tensor, Z[0, 0], torch.tensor([0.0, -2, 0])),
        "conj of a real tensor": (lambda x: aten.conj.default(x) + 1, randn(3)),
        "conj_physical": (aten.conj_physical.default, Z),
        "conj_physical of a real tensor": (lambda x: aten.conj_physical.default(x) + 1, randn(3)),
        "_conj_physical": (aten._conj_physical.default, Z),
        "resolve_conj": (lambda z: aten.resolve_conj.default(z.conj()) + 1, Z),
        "resolve_neg": (lambda z: aten.resolve_neg.default(z) + 1, Z),
        "clone": (aten.clone.default, Z),
        "contiguous": (lambda z: aten.contiguous.default(z) + 1, Z),
        "detach": (lambda z: aten.detach.default(z) + 1, Z),
        "positive": (lambda z: aten.positive.default(z) + 1, Z),
        "alias": (lambda z: aten.alias.default(z) + 1, Z),
        "a constant": (lambda z: z + torch.tensor([1j, 2.0, 3 - 1j]), Z),
        "to complex128": (aten.to.dtype, Z, torch.complex128),
        "_to_copy": (aten._to_copy.default, Z, {"dtype": torch.complex128}),
        "chalf": (aten.chalf.default, Z),
        "lift_fresh": (lambda z: aten.lift_fresh.default(z) + 1, Z),
        "lift_fresh_copy": (aten.lift_fresh_copy.default, Z),
        "a real tensor to complex64": (aten.to.dtype, torch.arange(3), torch.complex64),
        "a real number to complex64": (aten.to.dtype, torch.tensor(3.0), torch.complex64),
        "an infinity to complex64": (aten.to.dtype, torch.tensor([math.inf, math.nan, -0.0]), torch.complex64),
        "a complex tensor to float32": (aten.to.dtype, Z, torch.float32),
        "a complex tensor to booleans": (aten.to.dtype, EDGES, torch.bool),
        "booleans that are filled with a complex tensor": (lambda z: (z == z).clone().copy_(z), EDGES),
        "booleans, some of them from a complex tensor": (written_to_booleans, EDGES),
        "booleans full of a complex number": (lambda z: torch.full_like(z == z, 1j), Z),
        "a real tensor of a complex type": (lambda x, z: (aten.type_as.default(x, z), aten.to.other(x, z)), randn(3), Z),
        "a complex tensor of a real type": (lambda z, x: (z.type_as(x), z.type_as(x > 0)), Z, randn(3)),
        "to_dense": (aten.to_dense.default, Z),
        "to_dense of another dtype": (aten.to_dense.default, Z, torch.complex128),
        "abs": (aten.abs.default, EDGES),
        "angle": (aten.angle.default, Z),
        "angle of axes": (aten.angle.default, EDGES[4:]),
        "angle of infinities": (aten.angle.default, EDGES[:4]),
        **of_each_float(
            aten.angle.default,
            torch.tensor([-1.0, 0.0, -0.0, 2.0, math.nan, math.inf, -math.inf]),
            of="angle of real numbers in",
        ),
        "angle of integers": (aten.angle.default, torch.tensor([-1, 0, 2])),
        "sgn": (aten.sgn.default, EDGES[4:]),
        "sgn of zero": (aten.sgn.default, torch.zeros(2, dtype=torch.complex64)),
        "linalg_vector_norm": (aten.linalg_vector_norm.default, Z, 2, [-1]),
        "linalg_vector_norm of order 1": (aten.linalg_vector_norm.default, Z, 1, [0], True),
        "linalg_vector_norm in its dtype": (lambda z: aten.linalg_vector_norm(z, 2, [0], dtype=z.dtype), Z),
        "linalg_vector_norm in double": (lambda z: aten.linalg_vector_norm(z, 2, [0], dtype=torch.complex128), Z),
        "mul broadcasts": (aten.mul.Tensor, Z, W),
        "a real tensor times a complex one": (aten.mul.Tensor, randn(3), Z),
        "a complex tensor times a real one": (aten.mul.Tensor, W, torch.arange(6).reshape(2, 3)),
        "a real tensor times a complex number": (aten.mul.Tensor, randn(3), 2 - 1j),
        "a complex tensor times a number": (aten.mul.Scalar, Z, 2),
        "float64 times complex64": (aten.mul.Tensor, randn(2, 3).double(), Z),
        "div": (aten.div.Tensor, Z, W),
        "a real tensor divided by a complex one": (aten.div.Tensor, randn(2, 3), Z),
        "a complex tensor divided by a number": (aten.div.Tensor, Z, 3),
        "div.Scalar": (aten.div.Scalar, Z, 1 + 1j),
        "large numbers divide": (aten.div.Tensor, W * 1e25, W.flip(0) * 1e25),
        "add with alpha": (aten.add.Tensor, Z, W, {"alpha": 3}),
        "add a complex number to a real tensor": (aten.add.Tensor, randn(3), 2 - 1j),
        "add a real tensor": (aten.add.Tensor, W, randn(2, 3)),
        "sub": (aten.sub.Tensor, Z, W),
        "subtract from a number": (aten.rsub.Scalar, Z, 2),
        "rsub": (aten.rsub.Tensor, Z, W),
        "neg": (aten.neg.default, Z),
        "reciprocal": (aten.reciprocal.default, W),
        "square": (aten.square.default, Z),
        "the third power": (aten.pow.Tensor_Scalar, Z, 3),
        "a square root as a power": (aten.pow.Tensor_Scalar, Z, 0.5),
        "another power": (aten.pow.Tensor_Scalar, W, -1.5),
        "a power of zero": (aten.pow.Tensor_Scalar, torch.zeros(2, dtype=torch.complex64), 2.5),
        "powers of complex numbers that are real": (lambda z: [z ** complex(n) for n in (2, 3, 0.5, 0, -1)], Z),
        "float_power": (lambda z: torch.float_power(z, 2), Z),
        "a complex power": (aten.pow.Tensor_Tensor, Z, W),
        "a power of a number": (aten.pow.Scalar, 2, Z),
        "cos": (aten.cos.default, Z),
        "cosh": (aten.cosh.default, Z),
        "exp": (aten.exp.default, Z),
        "exp in complex128": (aten.exp.default, Z.to(torch.complex128)),
        "log": (aten.log.default, Z),
        "sigmoid": (aten.sigmoid.default, Z),
        "sigmoid_backward": (aten.sigmoid_backward.default, Z, Z.flip(0)),
        "silu": (aten.silu.default, Z),
        "sin": (aten.sin.default, Z),
        "sin in complex128": (aten.sin.default, Z.to(torch.complex128)),
        "log in complex128": (aten.log.default, Z.to(torch.complex128)),
        "sinh": (aten.sinh.default, Z),
        "sqrt": (aten.sqrt.default, Z),
        "sqrt of axes": (aten.sqrt.default, torch.tensor([0, -1, 4, -2j, 2j])),
        "tanh": (aten.tanh.default, Z),
        "tanh_backward": (aten.tanh_backward.default, Z, Z.flip(0)),
        "abs of large numbers": (aten.abs.default, Z * 1e30),
        "logical_not": (aten.logical_not.default, EDGES),
        "eq": (aten.eq.Tensor, Z, Z.roll(1, 0)),
        "eq a real tensor": (aten.eq.Tensor, EDGES, torch.ones(8)),
        "eq a number": (aten.eq.Scalar, EDGES, 1j),
        "ne": (aten.ne.Tensor, Z, W),
        "ne a number": (aten.ne.Scalar, EDGES, -1),
        "isnan": (aten.isnan.default, EDGES),
        "isinf": (aten.isinf.default, EDGES),
        "isfinite": (aten.isfinite.default, EDGES),
        "isreal": (aten.isreal.default, EDGES),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_conversions(self):
        for target, args in ((aten.to.device, ("cpu", torch.complex128)), (aten.to.dtype_layout, ())):
            with self.subTest(target):
                self.assert_same_as_eager(
                    target, Z, *args, kwargs={} if args else {"dtype": torch.complex128}
                )

    def test_dynamic_sizes(self):
        self.assert_same_as_eager(lambda z, w: (z * w).abs(), Z, Z * 2, others=[(Z.t(), Z.t())])
        self.assert_same_as_eager(
            lambda x, z: x.to(torch.complex64) / z,
            randn(2, 3),
            W,
            others=[(randn(3, 1), W[:1]), (randn(0, 2), W[1:])],
        )

    def test_a_real_operand(self):
        """It leaves the imaginary part in a sum, and scales both parts in a product."""

        def angle(x):
            return torch.view_as_real(torch.cos(x) + 1j * torch.sin(x))

        def polar(x):
            return torch.view_as_real(x * (torch.cos(x) + 1j * torch.sin(x)))

        def bounded(x):
            z = torch.complex(torch.tanh(x), x.sigmoid() - 2) * torch.softmax(x, 0)
            return torch.view_as_real(0.5 * z - x)

        for function, kinds in (
            (angle, ["Cos", "Sin", "Unsqueeze", "Unsqueeze", "Concat"]),
            (polar, ["Cos", "Sin", "Mul", "Mul", "Unsqueeze", "Unsqueeze", "Concat"]),
            (
                bounded,
                [
                    "Tanh",
                    "Sigmoid",
                    "Sub",
                    "Softmax",
                    "Mul",
                    "Mul",
                    "Mul",
                    "Mul",
                    "Sub",
                    "Unsqueeze",
                    "Unsqueeze",
                    "Concat",
                ],
            ),
        ):
            with self.subTest(function.__name__):
                model = self.export_and_compare(
                    function,
                    (torch.randn(3, 5),),
                    others=[(torch.randn(2, 4),), (torch.randn(6, 2),)],
                    dynamic_shapes=({0: "rows", 1: "columns"},),
                )
                written = [node.op_type for node in model.graph.node]
                self.assertEqual(sorted(kinds), sorted(written))

    def test_a_real_operand_of_another_shape_or_dtype(self):
        shapes = ((3, 1), (4,)), ((4,), (3, 1)), ((1, 4), (3, 1)), ((), (3,)), ((3,), ()), ((2, 3, 4), (4,))
        for left, right in shapes:
            x, z = torch.randn(left), torch.randn(*right, 2)
            for dtype in (torch.float32, torch.float64, torch.int64):
                for name, function in (
                    ("sum", lambda x, z: x + torch.view_as_complex(z)),
                    ("difference", lambda x, z: x - torch.view_as_complex(z)),
                    ("part of", lambda x, z: torch.sub(torch.view_as_complex(z), x, alpha=3)),
                    ("rsub", lambda x, z: torch.rsub(x, torch.view_as_complex(z), alpha=2)),
                    ("number", lambda x, z: 2 - (x + 1j) + torch.view_as_complex(z)),
                    ("product", lambda x, z: x * torch.view_as_complex(z.sign())),
                ):
                    with self.subTest(name, left=left, right=right, dtype=dtype):
                        self.assert_same_as_eager(
                            lambda x, z, f=function: torch.view_as_real(f(x, z)),
                            (5 * x).to(dtype),
                            z,
                            dynamic=False,
                        )

    def test_the_sine_of_infinity_times_0(self):
        """NaN, which a sum of real numbers keeps; the real part of a complex one keeps it with special_values only."""
        x, y = torch.randn(3), torch.tensor([1.0, math.inf, -math.inf])
        self.assert_same_as_eager(lambda x, y: x + 0.0 * y.sin(), x, y)

        def turned(x, y):
            return torch.view_as_real(x + 1j * y.sin())

        self.assert_same_as_eager(turned, x, y, special_values=True)
        model = self.assert_same_as_eager(turned, x, x, others=[(x.flip(0), x / 2)])
        self.assertEqual({"Sin", "Unsqueeze", "Concat"}, {node.op_type for node in model.graph.node})

    def test_a_pair_times_a_real_operand(self):
        """Both parts are scaled together; with special_values the imaginary part 0 of the operand makes NaN of infinities, as in eager."""
        cases = {
            "product": (lambda x, z: x * z, ["Unsqueeze", "Mul"]),
            "product with a number": (lambda x, z: z * 2.0, ["Mul"]),
            "product with a wider number": (
                lambda x, z: z * x.double(),
                ["Cast", "Unsqueeze", "Cast", "Mul"],
            ),
            "quotient": (lambda x, z: z / x, ["Unsqueeze", "Div"]),
            "quotient by a number": (lambda x, z: z / 3, ["Div"]),
            "quotient by integers": (lambda x, z: z / x.int(), ["Cast", "Cast", "Unsqueeze", "Div"]),
        }
        z, x = torch.randn(4, 3, 2), torch.tensor([2.0, -1, 3])
        infinite = torch.tensor([[math.inf, 1.0], [1.0, -math.inf], [math.inf, math.inf]])
        for promise, (function, kinds) in cases.items():
            with self.subTest(promise):

                def whole(x, z, f=function):
                    return torch.view_as_real(f(x, torch.view_as_complex(z)))

                model = self.assert_same_as_eager(whole, x, z, others=[(-x, z[:1])])
                self.assertEqual(kinds, [node.op_type for node in model.graph.node])
                self.assert_same_as_eager(whole, x, infinite, special_values=True)

    def test_the_side_of_a_branch_cut(self):
        """``1 - z`` of a number without imaginary part has none, +0: a root below 0 is i times a positive number, as a wave that decays."""

        def cut(z, x):
            return torch.sqrt(1 - z * z), torch.log(x - 2 * z), torch.angle(1 - 2 * z), (x - z) ** 1.5

        z = torch.linspace(1.5, 4, 24) + 0j
        self.assert_same_as_eager(cut, z, torch.ones(24), others=[(z[:5], torch.ones(5))])

    def test_rotary_embedding(self):
        """What Llama's first implementation does with complex numbers, on any batch and length."""

        def rotate(x, freqs):
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            table = torch.polar(torch.ones_like(freqs), freqs)
            return torch.view_as_real(pairs * table[:, None, :]).flatten(3).type_as(x)

        x, freqs = randn(2, 5, 3, 8), randn(5, 4)
        model = self.assert_same_as_eager(rotate, x, freqs, others=[(randn(3, 7, 3, 8), randn(7, 4))])
        self.assertLess(len(model.graph.node), 40)

    def test_writes_through_parts(self):
        def write(z):
            z = z.clone()
            torch.view_as_real(z)[..., 1].mul_(2)
            z.real.add_(1)
            z.imag.sub_(1)
            z[:, -1].mul_(1j)
            return z

        self.assert_same_as_eager(write, Z, others=[(Z[:, :2],)])

    def test_numbers_seen_as_their_parts(self):
        """`view` of another dtype: what a file of samples, or a buffer that is no complex tensor, is read with."""
        views = each(aten.view.dtype, aten.view_copy.dtype)
        self.assert_same_as_eager(views, Z, torch.float32, others=[(Z[:0],), (Z[:, :2],)])
        x = torch.randn(3, 4, dtype=torch.float64)
        self.assert_same_as_eager(lambda x: x.view(torch.complex128) * 1j, x, others=[(x[:1, :2],)])

        def write(z, x):
            z, x = z.clone(), x.clone()
            z.view(torch.float32)[:, 1::2].add_(1)
            x.view(torch.complex128)[:, 0].mul_(1j)
            return z, x

        self.assert_same_as_eager(write, Z, x, others=[(Z[:1], x[:, :2])])
        with self.assertRaisesRegex(
            ExportError, "a view of torch.complex64 as torch.float64, which has parts of another dtype"
        ):
            self.assert_same_as_eager(lambda z: z.view(torch.float64), Z)


if __name__ == "__main__":
    unittest.main()
