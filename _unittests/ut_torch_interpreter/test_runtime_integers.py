"""Rows of int64: the order of numbers whose lower halves differ in the first bit, sums of hashes."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

# milliseconds of some weeks, and numbers on both sides of 2 ** 31 and of 2 ** 32
MOMENTS = 1_698_000_000_000 + torch.arange(48).reshape(6, 8) % 7 * 300_000_000
NUMBERS = torch.tensor(
    [0, 1, 3_000_000_000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 5, -1, -(2**31) - 1, -(2**32)]
)
POINTS = torch.tensor([[2**31 - 1, -(2**31), 12345], [-(2**31), 2**31 - 7, -99999], [5, 6, 2**30 + 1]])
PRIMES = torch.tensor([73856093, 19349663, 83492791])
LARGEST, LEAST = torch.iinfo(torch.int64).max, torch.iinfo(torch.int64).min
DYNAMIC = {"dynamic_shapes": (({0: "rows", 1: "columns"},),), "others": [(MOMENTS[:1],), (MOMENTS[:, :3],)]}

ROWS = {
    "Max.by_comparison": (torch.maximum, NUMBERS[:, None], NUMBERS),
    "Min.by_comparison": (torch.minimum, NUMBERS[:, None], NUMBERS),
    "Clip.by_comparisons": (lambda x: x.clamp(min=0), NUMBERS),
    "Sign.of_float64": (torch.sign, NUMBERS),
    "Pow.of_fewer_bits": (
        torch.pow,
        torch.tensor([3, 0, -7]).to(torch.int8),
        torch.tensor([41, -1, 127]).to(torch.int8),
    ),
    "Div.of_one": (
        lambda a, b: torch.div(1, a, rounding_mode="trunc") * b,
        torch.tensor([3, -1, 1, 5], dtype=torch.int32),
        torch.tensor([7, 8, -9, 4], dtype=torch.int32),
    ),
    "ReduceSum.of_hashes": (lambda x: (x * PRIMES).sum(1) % 1024, POINTS),
    "Einsum.of_axes_apart": (
        lambda x, y: (torch.einsum("iij->j", x), torch.einsum("iij,k->kj", x, y)),
        2**55 + torch.arange(18).reshape(3, 3, 2),
        torch.arange(1, 5),
    ),
    "ReduceMax.first_in_order": (lambda x: x.amax(1), MOMENTS, DYNAMIC),
    "ReduceMin.first_in_order": (lambda x: x.amin(), MOMENTS, DYNAMIC),
}


class TestIntegers(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_bounds(self):
        for low, high in (
            (0, 9),
            (None, 9),
            (-(2**33), None),
            (-3, 2**33),
            (7, 3),
            (LEAST, 5),
            (-5, LARGEST),
        ):
            with self.subTest(low=low, high=high):
                extremes = torch.cat([NUMBERS, torch.tensor([LEAST, LARGEST, 2**53 + 1])])
                self.export_and_compare(lambda x, low=low, high=high: x.clamp(low, high), (extremes,))

    def test_axes(self):
        x = MOMENTS.reshape(2, 3, 8)
        for dim, keepdim in (([0, 2], True), ([0, 2], False), ([0, 1, 2], True), ([1], False), ([-1], True)):
            with self.subTest(dim=dim, keepdim=keepdim):
                self.export_and_compare(
                    lambda x, dim=dim, keepdim=keepdim: (x.amax(dim, keepdim), x.amin(dim, keepdim)),
                    (x,),
                    others=[(x[:, :2],), (x[:, :0],)] if 1 not in dim else [(x[:, :2],)],
                    dynamic_shapes=({1: "rows"},),
                )

    def test_with_positions(self):
        self.export_and_compare(lambda x: (*x.max(1), *x.min(0), x.max(), x.min()), (MOMENTS,))
        self.export_and_compare(lambda x: (x.max(), x.amin(0)), (torch.tensor(3_000_000_000),))

    def test_what_is_small_is_left_alone(self):
        def positions(x):
            n = x.shape[1]
            near = (torch.arange(n)[:, None] - torch.arange(n)).clamp(-4, 4)
            lengths = (x > 0).long().amax(0)
            counts = ((x > 0).long().cumsum(1) - 1).clamp(0, 2) + (x > 0).sum(1, keepdim=True).clamp(max=n)
            return x[:, : max(n - 2, 1)], near, lengths, counts, x.argmax(1).clamp(min=2), near.amax(1)

        x = torch.randn(3, 5)
        model = self.export_and_compare(
            positions, (x,), others=[(torch.randn(2, 9),)], dynamic_shapes=({0: "rows", 1: "columns"},)
        )
        written = {node.op_type for node in model.graph.node}
        self.assertTrue({"Max", "Clip"} & written)
        self.assertFalse({"TopK", "Less"} & written)

    def test_logarithms_are_left_alone(self):
        """Those of 0, infinite and negative numbers too, which are the least int64."""

        def buckets(x):
            scaled = (torch.log(x.abs() / 16) / 2.0794 * 16).long() + 16
            signed = (torch.log(x) * 8).ceil().to(torch.int64) * 3 - 5
            return (
                torch.minimum(scaled, torch.full_like(scaled, 31)),
                torch.maximum(-scaled, signed),
                torch.minimum(scaled, signed),
                signed.clamp(-7, 5),
                scaled.clamp(min=3),
            )

        x = torch.tensor(
            [[1.0, 3.0, 1e38], [0.0, 200.0, torch.inf], [1e-45, 17.0, torch.nan], [-2.0, -0.0, 16.0]]
        )
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                model = self.export_and_compare(
                    buckets, (x.to(dtype),), others=[(x[:1].to(dtype),)], dynamic_shapes=({0: "rows"},)
                )
                written = {node.op_type for node in model.graph.node}
                self.assertTrue({"Max", "Min", "Clip"} <= written)
                self.assertFalse({"Greater", "Less"} & written)

    def test_logarithms_that_may_be_large(self):
        def ordered(x):
            scaled = (torch.log(x) * 2.0**31).long()
            divided = torch.log(x).long() // 2**31
            again = (torch.log(x).long() / 3.0).long()
            return [torch.maximum(y[:, None], y) for y in (scaled, divided, again)]

        # the last digit of a float32 logarithm is that of the machine, and decides what is scaled
        x = torch.tensor([1.0, 1.5, 2.0, 4.0, 0.25, 0.75, 1000.0, 0.0], dtype=torch.float64)
        model = self.export_and_compare(ordered, (x,), others=[(x[:3],)], dynamic_shapes=({0: "n"},))
        for written_model in (model, to_onnx(ordered, (x.float(),), dynamic_shapes=({0: "n"},))):
            written = [node.op_type for node in written_model.graph.node]
            self.assertEqual((0, 3), (written.count("Max"), written.count("Less")))

    def test_bounds_add_and_multiply(self):
        def ordered(x):
            wide, short = x.long(), x.to(torch.int16).long()
            n = torch.arange(x.shape[0])
            sums = (wide + wide.flip(0)).amin(0), (wide * 5).clamp(min=7), (wide - 1).amax()
            opposites = (
                torch.maximum(-wide, wide),
                torch.minimum(wide.abs(), wide),
                torch.maximum(wide // -1, wide),
            )
            products = torch.maximum(short * short * 4, wide), torch.maximum(wide * 5, wide.flip(0) * 5)
            strides = torch.maximum(n * 65536 * 65536, n.flip(0) * 65536 * 32768)
            return *sums, *opposites, *products, strides, torch.where(x > 0, 2**32, wide * 3).sign()

        extremes = torch.tensor([-(2**31), 2**31 - 1, 0, -1, 1, 2**30, -32768, 32767, 12345678])
        given = extremes.to(torch.int32)
        self.export_and_compare(ordered, (given,), others=[(given.roll(3)[1:],)], dynamic_shapes=({0: "n"},))

    def test_small_bounds_are_left_alone(self):
        def ordered(x):
            rows, columns = (torch.arange(x.shape[axis]) for axis in (0, 1))
            wide, short = x.long(), x.to(torch.int16).long()
            numbers = (
                wide.amax(1),
                wide.clamp(min=3),
                torch.maximum(short * short, wide),
                (wide * 65537 % 9).amin(),
            )
            places = (rows * x.shape[1])[:, None] * x.shape[0] * x.shape[1] + columns * 256
            return (
                *numbers,
                places.amax(1),
                (columns * 65536 + columns).amax(),
                torch.where(x > 0, columns, 2**31 - 1).amin(1),
            )

        x = torch.tensor([[-(2**31), 2**31 - 1, 0], [5, -7, 2**30]], dtype=torch.int32)
        model = self.export_and_compare(
            ordered, (x,), others=[(x.T.contiguous(),)], dynamic_shapes=({0: "rows", 1: "columns"},)
        )
        self.assertFalse({"TopK", "Less"} & {node.op_type for node in model.graph.node})

    def test_hashes(self):
        def hashed(x):
            of_rows = x * PRIMES + 1
            of_pairs = x.unfold(1, 2, 1) * PRIMES[:2]
            of_columns = torch.stack([x[:, 0] * PRIMES[0], x[:, 1] * PRIMES[1]]).sum(0)
            along_rows = of_rows.sum(-1, keepdim=True), of_pairs.sum(-1) % 97, of_rows[None].sum(2)
            return *along_rows, of_rows.sum(0), of_rows.sum(), of_columns, (x[:, :1] * PRIMES[0]).sum(-1)

        others = [(POINTS[:0],), (POINTS * 2**31,), (POINTS[:1],)]
        options = {"others": others, "dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)}
        self.export_and_compare(hashed, (POINTS,), **options)
        self.export_and_compare(hashed, (POINTS,), special_values=True, **options)
        self.export_and_compare(lambda x: (x.repeat(1, 2000) * PRIMES[0]).sum(1), (POINTS,))

    def test_hashes_of_bytes(self):
        """As Blt computes them, of the groups that end at each byte."""

        def hashed(ids):
            padded = [torch.nn.functional.pad(ids, (size - 1, 0)).unfold(1, size, 1) for size in (2, 3, 8)]
            return [(x * torch.tensor(1000000007) ** torch.arange(x.shape[-1])).sum(-1) % 500 for x in padded]

        others = [(torch.randint(0, 260, (3, 40)),)]
        self.export_and_compare(
            hashed,
            (torch.randint(0, 260, (2, 9)),),
            others=others,
            dynamic_shapes=({0: "batch", 1: "length"},),
        )

    def test_usual_sums_are_left_alone(self):
        def added(x):
            bits = ((x > 0).long() * PRIMES).sum(1), (torch.arange(x.shape[0]) * 70000).sum()
            return *bits, (x % 1000 * 31).sum(1), (x * 31).sum(0), x.sum(), (x % 1000 * PRIMES % 97).sum(1)

        model = self.export_and_compare(
            added, (POINTS,), others=[(POINTS[1:],)], dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
        )
        written = [node.op_type for node in model.graph.node]
        self.assertNotIn("MatMul", written)
        self.assertNotIn("Div", written)

    def test_in_place_and_in_branches(self):
        def ordered(x):
            y = x.clone().clamp_(min=0)
            return torch.cond(x[0] > 0, lambda x: x.amin(0), lambda x: x.amax(0) + 1, (x,)), y

        self.export_and_compare(ordered, (NUMBERS,), others=[(NUMBERS.flip(0),)])

    def test_cumulative(self):
        self.export_and_compare(lambda x: (*x.cummax(0), *x.cummin(1)), (MOMENTS,))

    def test_bounds_of_positions_are_left_alone(self):
        def counted(x):
            return torch.bincount(x, minlength=3)

        model = self.export_and_compare(
            counted, (torch.tensor([1, 1, 4]),), others=[(torch.tensor([2]),)], dynamic_shapes=({0: "n"},)
        )
        self.assertNotIn("TopK", [node.op_type for node in model.graph.node])

    def test_the_largest_as_a_size(self):
        def padded(durations):
            longest = durations.sum(1).max().item()
            return torch.zeros(durations.shape[0], 2, longest, 1)

        given = [torch.tensor(rows) for rows in ([[1, 2], [3, 4], [0, 0]], [[2, 5]], [[4, 0], [0, 1]])]
        self.export_and_compare(
            padded, given[:1], others=[(rows,) for rows in given[1:]], dynamic_shapes=({0: "texts"},)
        )

    def test_onnx_itself_needs_none(self):
        model = to_onnx(lambda x: x.amax(1), (MOMENTS,), runtime="onnx")
        self.assertEqual(["ReduceMax"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
