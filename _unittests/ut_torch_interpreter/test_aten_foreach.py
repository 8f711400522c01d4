"""Operators over lists: same values, shapes and dtypes as eager; what writes its lists goes entry by entry."""

import unittest

import torch
from torch.testing._internal import common_methods_invocations as database

from experimental_experiment.testing import Call, ExporterTestCase, each
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
torch.manual_seed(0)
X, Y = torch.rand(2, 3) * 0.8 + 0.1, torch.rand(4) * 0.8 + 0.1
A, B = torch.rand(2, 3) + 0.5, torch.rand(4) + 0.5
C, D = torch.rand(2, 3) + 0.5, torch.rand(4) + 0.5
INTS = [torch.randint(1, 9, (2, 3)), torch.randint(1, 9, (4,), dtype=torch.int32)]
Z, W = torch.randn(2, 3, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64)
HALF, TWO = torch.tensor(0.5), torch.tensor(2.0, dtype=torch.float64)

UNARY = each(
    aten._foreach_abs.default,
    aten._foreach_acos.default,
    aten._foreach_asin.default,
    aten._foreach_atan.default,
    aten._foreach_cos.default,
    aten._foreach_cosh.default,
    aten._foreach_exp.default,
    aten._foreach_expm1.default,
    aten._foreach_log.default,
    aten._foreach_log10.default,
    aten._foreach_log1p.default,
    aten._foreach_log2.default,
    aten._foreach_neg.default,
    aten._foreach_norm.Scalar,
    aten._foreach_reciprocal.default,
    aten._foreach_rsqrt.default,
    aten._foreach_sigmoid.default,
    aten._foreach_sin.default,
    aten._foreach_sinh.default,
    aten._foreach_sqrt.default,
    aten._foreach_tan.default,
    aten._foreach_tanh.default,
    aten._foreach_zero.default,
)
OF_REALS = each(
    aten._foreach_ceil.default,
    aten._foreach_erf.default,
    aten._foreach_erfc.default,
    aten._foreach_floor.default,
    aten._foreach_frac.default,
    aten._foreach_lgamma.default,
    aten._foreach_round.default,
    aten._foreach_sign.default,
    aten._foreach_trunc.default,
)
LISTS = each(
    aten._foreach_add.List,
    aten._foreach_copy.default,
    aten._foreach_div.List,
    aten._foreach_mul.List,
    aten._foreach_pow.List,
    aten._foreach_sub.List,
)
LISTS_OF_REALS = each(
    aten._foreach_clamp_max.List,
    aten._foreach_clamp_min.List,
    aten._foreach_maximum.List,
    aten._foreach_minimum.List,
)
NUMBER = each(
    aten._foreach_add.Scalar,
    aten._foreach_div.Scalar,
    aten._foreach_mul.Scalar,
    aten._foreach_pow.Scalar,
    aten._foreach_sub.Scalar,
)
NUMBER_OF_REALS = each(
    aten._foreach_clamp_max.Scalar,
    aten._foreach_clamp_min.Scalar,
    aten._foreach_maximum.Scalar,
    aten._foreach_minimum.Scalar,
)
NUMBERS = each(
    aten._foreach_add.ScalarList,
    aten._foreach_div.ScalarList,
    aten._foreach_mul.ScalarList,
    aten._foreach_pow.ScalarList,
    aten._foreach_sub.ScalarList,
)
NUMBERS_OF_REALS = each(
    aten._foreach_clamp_max.ScalarList,
    aten._foreach_clamp_min.ScalarList,
    aten._foreach_maximum.ScalarList,
    aten._foreach_minimum.ScalarList,
)
TENSOR = each(aten._foreach_add.Tensor, aten._foreach_div.Tensor, aten._foreach_mul.Tensor)
POINTWISE = each(aten._foreach_addcdiv.Scalar, aten._foreach_addcmul.Scalar)
POINTWISE_NUMBERS = each(aten._foreach_addcdiv.ScalarList, aten._foreach_addcmul.ScalarList)


def written(x, y):
    """Copies that several operators write, and what was read of them between."""
    tensors = x.clone(), y.clone()
    row = tensors[0][0]
    aten._foreach_add_.Scalar(tensors, 1)
    before = row + 1
    aten._foreach_addcmul_.ScalarList(tensors, [x, y], tensors, [0.5, 2.0])
    aten._foreach_mul_.Tensor(tensors, x[0, 0])
    aten._foreach_sqrt_.default(tensors)
    return before, row, tensors


def rows_written(x):
    """Two rows of one tensor."""
    x = x.clone()
    aten._foreach_mul_.ScalarList([x[0], x[1]], [2.0, 3.0])
    return x


class TestForeach(ExporterTestCase):
    CASES = {
        "a function": (UNARY, [X, Y]),
        "a function of integers": (aten._foreach_sqrt.default, INTS),
        "a function of reals": (OF_REALS, [X * 3, Y]),
        "two lists": (LISTS, [X, Y], [A, B]),
        "two lists of reals": (LISTS_OF_REALS, [X, Y], [A, B]),
        "entries of two dtypes": (LISTS, [X, Y], INTS),
        "entries that broadcast": (aten._foreach_mul.List, [X, Y], [HALF, B[:1]]),
        "a scaled list": (lambda x, y: aten._foreach_add.List(x, y, alpha=2), [X, Y], [A, B]),
        "a number": (NUMBER, [X, Y], 0.3),
        "a number beside reals": (NUMBER_OF_REALS, [X, Y], 0.5),
        "a number beside integers": (NUMBER, INTS, 0.3),
        "numbers": (NUMBERS, [X, Y], [0.3, 2]),
        "numbers beside reals": (NUMBERS_OF_REALS, [X, Y], [0.3, 0.6]),
        "a tensor for all": (TENSOR, [X, Y], HALF),
        "a wider tensor for all": (TENSOR, [X.half(), Y], TWO),
        "a scaled tensor for all": (lambda x, y: aten._foreach_add.Tensor(x, y, alpha=2), [X, Y], HALF),
        "the power of a number": (lambda x: aten._foreach_pow.ScalarAndTensor(2.5, x), [X, Y]),
        "products": (POINTWISE, [X, Y], [A, B], [C, D]),
        "scaled products": (POINTWISE, [X, Y], [A, B], [C, D], 0.5),
        "products by numbers": (POINTWISE_NUMBERS, [X, Y], [A, B], [C, D], [0.5, 2]),
        "interpolated by lists": (aten._foreach_lerp.List, [X, Y], [A, B], [C, D]),
        "interpolated": (aten._foreach_lerp.Scalar, [X, Y], [A, B], 0.3),
        "interpolated by numbers": (lambda x, y: aten._foreach_lerp.ScalarList(x, y, [0.3, 0.7]), [X, Y], [A, B]),
        "a norm of another order": (lambda x: aten._foreach_norm.Scalar(x, 1, torch.float64), [X, Y]),
        "complex functions": (UNARY, [Z, W]),
        "complex lists": (LISTS, [Z, W], [A, B]),
        "a number beside complex": (NUMBER, [Z, W], 0.3),
        "numbers beside complex": (NUMBERS, [Z, W], [0.3, 2]),
        "a tensor beside complex": (TENSOR, [Z, W], HALF),
        "the complex power of a number": (lambda x: aten._foreach_pow.ScalarAndTensor(2.5, x), [Z, W]),
        "complex products": (POINTWISE, [Z, W], [W[:3], B], [C, W], 0.5),
        "complex products by numbers": (POINTWISE_NUMBERS, [Z, W], [A, B], [C, D], [0.5, 2]),
        "complex, interpolated by lists": (aten._foreach_lerp.List, [Z, W], [Z * 2, W * 2], [Z, W]),
        "complex, interpolated": (aten._foreach_lerp.Scalar, [Z, W], [Z * 2, W * 2], 0.3),
        "complex, interpolated by numbers": (
            lambda x, y: aten._foreach_lerp.ScalarList(x, y, [0.3, 0.7]), [Z, W], [Z * 2, W * 2]),
        "one complex entry": (NUMBER, [X, W], 2),
        "copies that are written": (written, A, B),
        "rows that are written": (rows_written, X),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_maxima(self):
        self.assert_same_as_eager(aten._foreach_max.default, [X, Y], dynamic=False)  # torch takes no others

    @unittest.skipUnless(hasattr(aten, "_foreach_mm"), "torch before 2.13")
    def test_younger_operators(self):
        self.assert_cases(
            {
                "clone": (aten._foreach_clone.default, [X, W]),
                "mm": (aten._foreach_mm.default, [X, A], [X.t(), C.t()]),
                "complex mm": (aten._foreach_mm.default, [Z, Z], [Z.t(), Z.t()]),
                "powsum": (lambda x: aten._foreach_powsum.Scalar(x, 3), [-X, Y]),
                "powsum of a dtype": (lambda x: aten._foreach_powsum.Scalar(x, 1.5, torch.float64), [X, Y]),
                "complex powsum": (aten._foreach_powsum.Scalar, [Z, W]),
            }
        )

    def test_torchs_database(self):
        """One sample of each overload, whose lists have 20 entries, each as the others: the first two."""
        tables = ("unary", "binary", "pointwise", "reduce", "other")
        for info in (info for table in tables for info in getattr(database, f"foreach_{table}_op_db")):
            seen = set()
            for sample in info.sample_inputs("cpu", torch.float32):
                form = tuple(
                    str(torch.utils._pytree.tree_map(type, argument))[:40] for argument in sample.args
                )
                if form in seen or "bool" in str(form) or min(x.numel() for x in sample.input) == 0:
                    continue
                seen.add(form)
                with self.subTest(info.name, form=form):
                    lists = [x[:2] if isinstance(x, list) else x for x in (sample.input, *sample.args)]
                    module = Call(info.op, tuple(lists), {})
                    self.export_and_compare(module, module.tensors())

    def test_what_an_earlier_entry_writes(self):
        def twice(x):
            x = x.clone()
            torch._foreach_add_([x, x], 1)
            return x

        def crossed(x, y):
            x, y = x.clone(), y.clone()
            torch._foreach_add_([x, y], [y, x])
            return x, y

        def shared(x, y):
            x, y = x.clone(), y.clone()
            torch._foreach_mul_([x, y], x[0, 0])
            return x, y

        for function, args in ((twice, (X,)), (crossed, (X, A)), (shared, (X, A))):
            with self.subTest(function.__name__):
                with self.assertRaisesRegex(
                    ExportError,
                    "it writes clone before it reads .*, which shares its memory: clone it before",
                ):
                    to_onnx(function, args)


if __name__ == "__main__":
    unittest.main()
