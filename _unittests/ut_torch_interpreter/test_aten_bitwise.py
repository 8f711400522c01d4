"""Bitwise operators and shifts: signs, widths, booleans, as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
INTS = torch.tensor([7, -7, 0, 2**62, -(2**63), 100])
OTHERS = torch.tensor([2, 3, -1, 1, 63, 64])
BYTES = torch.tensor([200, 100, 255], dtype=torch.uint8)
BOOLS = torch.tensor([True, False, True])
OF_TENSORS = each(
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_xor.Tensor,
    aten.__and__.Tensor,
    aten.__or__.Tensor,
    aten.__xor__.Tensor,
)
OF_NUMBERS = each(
    aten.bitwise_and.Scalar,
    aten.bitwise_or.Scalar,
    aten.bitwise_xor.Scalar,
    aten.__and__.Scalar,
    aten.__or__.Scalar,
    aten.__xor__.Scalar,
)
FROM_NUMBERS = each(
    aten.bitwise_and.Scalar_Tensor, aten.bitwise_or.Scalar_Tensor, aten.bitwise_xor.Scalar_Tensor
)
SHIFTS = each(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_right_shift.Tensor,
    aten.__lshift__.Tensor,
    aten.__rshift__.Tensor,
)

HASHES = each(
    aten.hash_tensor.default,
    lambda x: aten.hash_tensor.default(x, [0]),
    lambda x: aten.hash_tensor.default(x, [-1], keepdim=True),
)
FLOATS = torch.tensor(
    [[1.5, -1.5, math.inf, -math.inf], [math.nan, -0.0, 1e-42, 3e38], [7, 0.1, 1e-5, -1e10]]
)
IN_PLACE = (
    aten.__iand__.Tensor,
    aten.__ior__.Tensor,
    aten.__ixor__.Tensor,
    aten.__ilshift__.Tensor,
    aten.__irshift__.Tensor,
)
IN_PLACE_OF_NUMBERS = (
    aten.__iand__.Scalar,
    aten.__ior__.Scalar,
    aten.__ixor__.Scalar,
    aten.__ilshift__.Scalar,
    aten.__irshift__.Scalar,
)


def shifts_by_numbers(x):
    """Shifts by several numbers, in and out of range."""
    return [
        shift(x, count)
        for count in (0, 3, 7, 64, -1)
        for shift in (
            aten.bitwise_left_shift.Tensor_Scalar,
            aten.bitwise_right_shift.Tensor_Scalar,
            aten.__lshift__.Scalar,
            aten.__rshift__.Scalar,
        )
    ]


def unpacked(x):
    """What weights of 4 bits in larger integers are read with, and numbers of places out of range."""
    places = torch.tensor([0, 4, 28, -1, 32, 64, 7], dtype=x.dtype)
    both = [x[:, None] >> places, x[:, None] << places, (x << 4) >> 4, x >> 0, x >> 4]
    return [*both, (x[:, None] >> torch.arange(0, 8, 4)) & 15]


def in_place(a, b):
    """&= to >>= of tensors and numbers, on a copy and on a view of it."""
    a = a.clone()
    row = a[0]
    for write in IN_PLACE:
        write(row, b[0])
    for write in IN_PLACE_OF_NUMBERS:
        write(a, 3)
    a &= b
    return a, row


class TestBitwise(ExporterTestCase):
    CASES = {
        "integers": (OF_TENSORS, INTS, OTHERS),
        "booleans": (OF_TENSORS, BOOLS, ~BOOLS),
        "bytes and integers promote": (OF_TENSORS, BYTES, torch.tensor([3, -300, 5])),
        "numbers": (OF_NUMBERS, INTS, 5),
        "a boolean and a number": (OF_NUMBERS, BOOLS, True),
        "of a number": (FROM_NUMBERS, 5, INTS),
        "flipped bits": (aten.bitwise_not.default, INTS),
        "flipped bytes": (aten.bitwise_not.default, BYTES),
        "flipped booleans": (aten.bitwise_not.default, BOOLS),
        "shifts": (SHIFTS, INTS, OTHERS),
        "shifts of int8": (
            SHIFTS,
            torch.tensor([100, -100, -1], dtype=torch.int8),
            torch.tensor([1, 7, 8], dtype=torch.int8),
        ),
        "shifts of bytes": (SHIFTS, BYTES, torch.tensor([1, 7, 8], dtype=torch.uint8)),
        "shifts of narrow integers by wide ones": (
            lambda a, b, by: [SHIFTS(a, by), SHIFTS(b, by)],
            torch.tensor([100, -100, -1, -128], dtype=torch.int8),
            torch.tensor([200, 100, 255, 1], dtype=torch.uint8),
            torch.tensor([1, 7, 40, -1]),
        ),
        "codes out of 32 bits": (unpacked, torch.tensor([-(2**31), 2**31 - 1, -1, 0x12345678]).int()),
        "codes out of 64 bits": (unpacked, INTS),
        "codes out of bytes": (unpacked, BYTES),
        "codes out of int8": (unpacked, torch.tensor([-128, 127, -1, 0x5A], dtype=torch.int8)),
        "shifts by numbers": (shifts_by_numbers, INTS.int()),
        **{
            f"shifts of {dtype} by numbers": (
                shifts_by_numbers,
                torch.tensor([low, low + 1, -1 if low else 5, 100]).to(dtype),
            )
            for dtype, low in ((torch.int64, -(2**63)), (torch.int8, -128), (torch.uint8, 0))
        },
        "shifts of a number": (
            each(aten.bitwise_left_shift.Scalar_Tensor, aten.bitwise_right_shift.Scalar_Tensor),
            -300,
            OTHERS,
        ),
        "in place, through a view": (in_place, INTS.reshape(2, 3), OTHERS.reshape(2, 3)),
        "hash of integers": (HASHES, INTS.reshape(2, 3)),
        "hash of bytes, of booleans": (lambda a, b: [HASHES(a[None]), HASHES(b[None])], BYTES, BOOLS),
        "hash of floats": (HASHES, FLOATS),
        "hash of float64": (HASHES, FLOATS.double() * 1e-310),
        "hash of float16": (HASHES, FLOATS.half()),
        "hash of a long row": (aten.hash_tensor.default, torch.randn(1000)),
        "hash of all axes": (
            lambda x: aten.hash_tensor.default(x, [0, -1], keepdim=True),
            INTS.int().reshape(2, 3),
        ),
        "hash of one number": (aten.hash_tensor.default, torch.tensor(-2.5)),
        "hash of an empty row": (lambda x: aten.hash_tensor.default(x, [0]), torch.ones(3, 0)),
        "empty": (OF_TENSORS, INTS[:0], OTHERS[:0]),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_known_places_take_few_nodes(self):
        """Weights of 4 bits in larger integers: no guard of the places, no flips of the sign, all of it computed of a small weight."""
        places = torch.arange(0, 32, 4, dtype=torch.int32)
        words, codes = INTS.int()[:, None], torch.tensor([[1, 2]], dtype=torch.uint8)
        for function, given, written in (
            (lambda x: (x >> places) & 15, words, ["Cast", "BitShift", "Cast", "BitwiseAnd"]),
            (lambda x: x >> 4, words, ["Cast", "BitShift", "Cast"]),
            (lambda x: x << places, words, ["Cast", "BitShift", "Cast"]),
            (lambda x: (x >> 4) ^ (x & 15), codes, ["BitShift", "BitwiseAnd", "BitwiseXor"]),
            (lambda x: x >> torch.tensor([0, 4], dtype=torch.uint8), codes, ["BitShift"]),
            (lambda x: x + (words >> places), words, ["Add"]),
        ):
            with self.subTest(written):
                self.assertEqual(written, [node.op_type for node in to_onnx(function, (given,)).graph.node])


if __name__ == "__main__":
    unittest.main()
