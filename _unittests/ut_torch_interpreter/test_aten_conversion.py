"""Conversion: casts, copies that write nothing, fill, views of bits, checked against eager."""

import itertools
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


EDGES = torch.tensor([0.0, -0.0, 0.4, 1.9, -1.9, 127.6, 255.0, 1e-45, float("inf"), float("nan")])
INTS = torch.tensor([0, 1, -1, 127, 128, -129, 255, 256, 2**31, -(2**31) - 1, 2**53 + 1])
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def written_as_dense(x):
    """As sentence-transformers ends its similarities, and a write into that."""
    y = x.clone()
    y.to_dense().add_(1)
    return y, torch.mm(x[:, None], x[None]).to_dense()


class TestConversion(ExporterTestCase):
    CASES = {
        "to a dtype": (aten.to.dtype, floats(3), torch.int32),
        "to its own dtype": (aten.to.dtype, floats(3), torch.float32),
        "to a device and a dtype": (aten.to.device, floats(3), "cpu", torch.float16),
        "to what a device stands for": (aten.to.prim_Device, floats(3), torch.device("cpu"), torch.float64),
        "to a layout": (aten.to.dtype_layout, floats(3), {"dtype": torch.float64}),
        "to the dtype of another": (aten.to.other, floats(3), INTS),
        "to complex": (aten.to.dtype, floats(3), torch.complex64),
        "_to_copy": (aten._to_copy.default, floats(3), {"dtype": torch.bool}),
        "_to_copy of nothing else": (aten._to_copy.default, floats(3)),
        "to_dense, of what is dense": (aten.to_dense.default, floats(3)),
        "to_dense of another dtype": (aten.to_dense.default, floats(3), torch.float64),
        "to_dense is a view": (written_as_dense, floats(3)),
        "type_as": (aten.type_as.default, INTS, floats(2)),
        "clone": (aten.clone.default, floats(3)),
        "contiguous": (aten.contiguous.default, floats(3)),
        "detach": (aten.detach.default, floats(3)),
        "alias": (aten.alias.default, floats(3)),
        "alias_copy": (aten.alias_copy.default, floats(3)),
        "detach_copy": (aten.detach_copy.default, floats(3)),
        "lift": (aten.lift.default, floats(3)),
        "lift_fresh": (aten.lift_fresh.default, floats(3)),
        "lift_fresh_copy": (aten.lift_fresh_copy.default, floats(3)),
        "resolve_conj": (aten.resolve_conj.default, floats(3)),
        "resolve_neg": (aten.resolve_neg.default, floats(3)),
        "copy casts and broadcasts": (aten.copy.default, floats(2, 3), INTS[:3]),
        "copy of a 0-d tensor": (aten.copy.default, floats(2, 3), torch.tensor(2)),
        "fill truncates": (aten.fill.Scalar, INTS, 2.7),
        "fill wraps": (aten.fill.Scalar, INTS.to(torch.uint8), -1),
        "fill with infinity": (aten.fill.Scalar, floats(2), float("-inf")),
        "fill with a tensor": (aten.fill.Tensor, floats(2, 3), torch.tensor(3)),
        "zero": (aten.zero.default, floats(2, 3)),
        "chalf": (aten.chalf.default, floats(2, 3)),
        "the same bits, signed": (aten.view.dtype, torch.tensor([1, 200], dtype=torch.uint8), torch.int8),
        "the bits of booleans": (aten.view.dtype, floats(3) > 1, torch.uint8),
        "a copy of the same bits": (aten.view_copy.dtype, torch.tensor([1, -2]).int(), torch.uint32),
        "the same dtype": (aten.view.dtype, floats(3), torch.float32),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_there_and_back(self):
        """No Cast when every number comes back; in a loop onnxruntime would miss the value that it does not write."""
        plain = set()
        numbers = torch.cat([EDGES, torch.tensor([70000.0, -1e-30, 16777217.0])])
        for first, second in itertools.product(DTYPES, DTYPES):
            with self.subTest(first=first, second=second):
                x = numbers.to(first) if first.is_floating_point else INTS.to(first)
                if first.is_floating_point and not second.is_floating_point:
                    x = x[:5]
                function = lambda x, first=first, second=second: x.to(second).to(first)
                model = self.assert_same_as_eager(function, x, dynamic=False, optimize=False)
                if {node.op_type for node in model.graph.node} == {"Identity"}:
                    plain.add((first, second))
                    self.assertTrue(torch.equal(*self.held(first, second)))
        wider = {(torch.float16, torch.float32), (torch.float32, torch.float64), (torch.int32, torch.float64)}
        self.assertLessEqual(wider | {(torch.bool, torch.int64), (torch.uint8, torch.int16)}, plain)
        loop = lambda x: aten.special_chebyshev_polynomial_w(x.double().float(), 2.0)
        self.assert_same_as_eager(loop, torch.tensor([0.5, -0.25]), optimize=False)

    @staticmethod
    def held(first, second):
        """Numbers of a dtype at its limits, before and after the other one."""
        if first == torch.bool:
            numbers = torch.tensor([False, True])
        else:
            info = torch.finfo(first) if first.is_floating_point else torch.iinfo(first)
            numbers = torch.tensor([info.min, info.max, 1, 3], dtype=first)
            if first.is_floating_point:
                numbers = torch.cat([numbers, torch.tensor([info.tiny, 1 + info.eps, 0.5], dtype=first)])
        return numbers, numbers.to(second).to(first)

    def test_every_pair_of_dtypes(self):
        for source in DTYPES:
            values = EDGES.to(source) if source.is_floating_point else INTS.to(source)
            if source.is_floating_point:
                values = values.nan_to_num(3.0, 100.0)
            with self.subTest(source):
                self.assert_same_as_eager(lambda x: [x.to(dtype) for dtype in DTYPES], values, dynamic=False)

    def test_bits_need_an_operator_of_opset_26(self):
        with self.assertRaisesRegex(
            Exception, "ONNX BitCast does not exist in opset 20: raise target_opset to 26"
        ):
            self.assert_same_as_eager(aten.view.dtype, floats(3), torch.int32)
        self.assert_same_as_eager(aten.view.dtype, floats(3), torch.int32, target_opset=26)
        self.assert_same_as_eager(aten.view.dtype, torch.tensor([1, 2]).int(), torch.float32, target_opset=26)
        special = torch.tensor([1.5, -0.0, 0.0, -1e300, 5e-324, torch.inf, -torch.inf, torch.nan])
        self.assert_same_as_eager(aten.view.dtype, special.double(), torch.int64)
        with self.assertRaisesRegex(Exception, "another width"):
            self.assert_same_as_eager(aten.view.dtype, floats(4), torch.int16)

    def test_writes_through_bits(self):
        def write(x):
            x = x.clone()
            x.view(torch.int32).bitwise_and_(0x7FFFFFFF)
            return x

        self.assert_same_as_eager(write, floats(3), target_opset=26)

    def test_copies_write_nothing(self):
        def copies(x):
            return x.clone().contiguous().detach().to(torch.float32).to("cpu") + 1

        model = self.assert_same_as_eager(copies, floats(3))
        self.assertEqual([node.op_type for node in model.graph.node], ["Add"])

    def test_float8(self):
        numbers = torch.tensor(
            [
                [1e6, -1e6, 57344, 61440, -65535, 470],
                [float("inf"), float("-inf"), float("nan"), -0.0, 245, 3e-6],
            ]
        )

        def moved(x, dtype):
            y = x.to(dtype)
            rolled = torch.nn.functional.pad(torch.cat([y, y[[1]]]).roll(1), (1, 1))
            return [z.to(torch.float32) for z in (y, rolled, y.t() @ y)]

        for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz):
            for opset in (20, 23):
                with self.subTest(dtype=dtype, opset=opset):
                    self.assert_same_as_eager(moved, numbers, dtype, dynamic=False, target_opset=opset)
                    self.assert_same_as_eager(moved, numbers.half(), dtype, dynamic=False, target_opset=opset)


if __name__ == "__main__":
    unittest.main()
