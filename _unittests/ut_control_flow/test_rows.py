"""scan, map and associative_scan: carries and rows of all kinds; each case is captured once and takes other numbers of rows."""

import unittest

import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as torch_map

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput
from experimental_experiment.torch_interpreter import ExportError, to_onnx

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs()
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
ROWS = ({0: D},)
OTHERS = [(-X,), (torch.ones(7, 4),), (X[:1] * 3,)]
CUBES = [(CUBE * 2,), (torch.ones(5, 3, 4),), (torch.ones(1, 3, 4),)]


def accumulated(row):
    """The sum of the rows, and what *row* makes of the module, the carry and each row."""
    return lambda s, x: scan(lambda c, r: (c + r, row(s, c, r)), torch.zeros(4), x)


def along(dim, reverse):
    """A scan along an axis."""
    return lambda s, x: scan(
        lambda c, r: (c * 0.5 + r, (c - r, r.sum())),
        torch.zeros_like(x.select(dim, 0)),
        x,
        dim=dim,
        reverse=reverse,
    )


def structures(s, x):
    def step(c, r):
        return {"a": c["a"] + r["u"], "b": [c["b"][0] * 2]}, {"o": (r["v"][0] * c["a"],)}

    return scan(step, {"a": torch.zeros(4), "b": [torch.ones(())]}, {"u": x, "v": [x * 2]})


def every_dtype(s, x):
    def step(c, r):
        carried = (c[0] | r[0], c[1] + r[1], c[2] * r[2], c[3] + r[3], c[4] + r[4])
        return carried, (~r[0], c[1] * 2, r[2] * 2, r[3] * 1, r[4].to(torch.int32))

    dtypes = (torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.uint8)
    xs = (x > 1, (x * 9).to(torch.int64), x.half(), x.bfloat16(), (x.abs() * 20).to(torch.uint8))
    return scan(step, tuple(torch.zeros(4, dtype=dtype) for dtype in dtypes), xs)


def complex_rows(s, x):
    z = torch.complex(x, -x)
    carry, rows = scan(lambda c, r: (c * 0.5 + r, c * r), torch.zeros(4, dtype=z.dtype), z)
    return torch.view_as_real(carry), torch.view_as_real(rows)


def sizes_and_weights(s, x):
    n, m = x.shape[0], x.mean()
    return scan(lambda c, r: (s.lin(c) + r * n, (c - m) * s.b), torch.zeros(4), x)


def three_deep(s, x):
    def innermost(c, v):
        return c + v, c - v

    def inner(c, r):
        total, rows = scan(innermost, c, r)
        return total, rows * 2

    def outer(c, m):
        total, rows = scan(inner, c, m)
        return total, rows.sum()

    return scan(outer, torch.zeros(()), x)


def temporaries(s, c, r):
    y = r.clone()
    y[0] = 3
    y.mul_(2)
    return y


def branch_in_a_scan(s, x):
    def step(c, r):
        return torch.cond(r.sum() > 2, lambda c, r: c + r, lambda c, r: c * 0.5, (c, r)), c.sum()

    return scan(step, torch.zeros(4), x)


def mapped(function):
    """A map of a function of the module and each row."""
    return lambda s, x: torch_map(lambda row: function(s, row), x)


def map_with_structures(s, x):
    def function(t, a):
        return {"p": t["u"] * t["v"][0] + a, "q": (t["u"].sum(),)}

    return torch_map(function, {"u": x, "v": [x * 2]}, x.mean())


class TestRows(ControlFlowTestCase):
    SCANS = {
        f"along {dim}, reverse={reverse}": (along(dim, reverse), (CUBE,), CUBES[:2], ({0: D, 2: D},))
        for dim in (0, 1, 2, -1)
        for reverse in (False, True)
    } | {
        "nested structures": (structures, (X,), OTHERS, ROWS),
        "every dtype": (every_dtype, (X,), OTHERS, ROWS),
        "complex": (complex_rows, (X,), OTHERS, ROWS),
        "rows are numbers": (
            lambda s, x: scan(lambda c, r: (c + r, c * r), torch.zeros(()), x[:, 0]),
            (X,),
            OTHERS,
            ROWS,
        ),
        "sizes, weights, buffers": (sizes_and_weights, (X,), OTHERS, ROWS),
        "three deep": (three_deep, (CUBE,), CUBES, ROWS),
        "cond inside": (branch_in_a_scan, (X,), OTHERS, ROWS),
        "inside cond": (
            lambda s, x: torch.cond(
                x.sum() > 0,
                lambda x: scan(lambda c, r: (c + r, c * r), torch.zeros(4), x)[1],
                lambda x: x * 2,
                (x,),
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "no result but the carry": (accumulated(lambda s, c, r: ()), (X,), OTHERS, ROWS),
        "results are constants": (accumulated(lambda s, c, r: torch.ones(2)), (X,), OTHERS, ROWS),
        "results are the rows": (accumulated(lambda s, c, r: r.clone()), (X,), OTHERS, ROWS),
        "results have other ranks": (
            accumulated(lambda s, c, r: (r[:2] * 1, r.reshape(2, 1, 2) * c[0], r.sum())),
            (X,),
            OTHERS,
            ROWS,
        ),
        "results have a dynamic size": (
            lambda s, x: scan(lambda c, r: (c + r, r.new_ones(x.shape[0]) * c[0]), torch.zeros(4), x),
            (X,),
            OTHERS,
            ROWS,
        ),
        "temporaries are written": (accumulated(temporaries), (X,), OTHERS, ROWS),
    }

    MAPS = {
        "weights": (mapped(lambda s, r: r.sin() + s.lin(r)), (X,), OTHERS, ROWS),
        "nested structures": (map_with_structures, (X,), OTHERS, ROWS),
        "rows of other sizes": (
            lambda s, x: torch_map(
                lambda t, a: (t[0] * t[1].sum() + a, t[1] * 2), (x, x[:, :3].clone()), x.sum()
            ),
            (X,),
            OTHERS,
            ROWS,
        ),
        "three deep": (
            lambda s, x: torch_map(
                lambda m: torch_map(lambda r: torch_map(lambda v: v.exp(), r) + r.sum(), m) * m.max(),
                x,
            ),
            (CUBE,),
            CUBES,
            ROWS,
        ),
        "cond inside": (
            mapped(lambda s, r: torch.cond(r.sum() > 2, lambda r: r * 2, lambda r: r - 1, (r,))),
            (X,),
            OTHERS,
            ROWS,
        ),
        "while_loop inside": (
            mapped(lambda s, r: while_loop(lambda v: v.sum() < 9, lambda v: (v * 1.5 + 1,), (r,))[0]),
            (X,),
            OTHERS,
            ROWS,
        ),
        "scan inside": (
            mapped(lambda s, m: scan(lambda c, r: (c + r, c * r), torch.zeros(4), m)[1]),
            (CUBE,),
            CUBES,
            ROWS,
        ),
        "inside scan": (
            lambda s, x: scan(
                lambda c, m: (c + torch_map(lambda r: r * 2, m).sum(0), c * 1), torch.zeros(4), x
            ),
            (CUBE,),
            CUBES,
            ROWS,
        ),
        "every dtype": (
            mapped(lambda s, r: (r > 1, r.half(), r.to(torch.int64), r.bfloat16())),
            (X,),
            OTHERS,
            ROWS,
        ),
        "complex": (
            lambda s, x: torch.view_as_real(torch_map(lambda r: r * r.conj() + 1, torch.complex(x, x))),
            (X,),
            OTHERS,
            ROWS,
        ),
        "transposed": (mapped(lambda s, r: r.reshape(2, 2).t().contiguous()), (X,), OTHERS, ROWS),
    }

    ASSOCIATIVE = {
        f"along {dim}, reverse={reverse}": (
            lambda s, x, dim=dim, reverse=reverse: associative_scan(
                lambda a, b: a * 0.5 + b, x, dim, reverse=reverse, combine_mode="generic"
            ),
            (X,),
            [(-X,)],
        )
        for dim in (0, -1)
        for reverse in (False, True)
    } | {
        "a linear recurrence": (
            lambda s, x: associative_scan(
                lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), 0, combine_mode="generic"
            ),
            (torch.randn(11, 4),),
        ),
        "matrix products": (
            lambda s, x: associative_scan(lambda a, b: a @ b, x, 0, combine_mode="generic"),
            (torch.randn(5, 3, 3),),
        ),
        "integers": (
            lambda s, x: associative_scan(lambda a, b: a + b, x.long(), 0, combine_mode="generic"),
            (X * 9,),
            [(X * -9,)],
        ),
        "booleans": (
            lambda s, x: associative_scan(lambda a, b: a | b, x > 1, 0, combine_mode="generic"),
            (X,),
            [(-X,)],
        ),
    }

    COMPILED = (
        "nested structures",
        "every dtype",
        "no result but the carry",
        "results have other ranks",
        *(name for name in SCANS if name.startswith("along")),
    )

    def test_scan_is_the_same_as_eager(self):
        self.assert_cases(self.SCANS, self.COMPILED)

    def test_map_is_the_same_as_eager(self):
        self.assert_cases(self.MAPS, compiled=())

    def test_associative_scan_is_the_same_as_eager(self):
        self.assert_cases(self.ASSOCIATIVE, compiled=())

    def test_same_as_eager_strict(self):
        for table in (self.SCANS, self.MAPS, self.ASSOCIATIVE):
            self.assert_strict_cases(table, self.COMPILED, step=4)

    def test_a_tensor_that_the_capture_lost_is_refused(self):
        """The operator itself, called without its function of Python, takes no tensor from outside."""

        def function(s, x):
            return torch.ops.higher_order.associative_scan(lambda a, b: [a + b * s.b], [x], ())

        with self.assertRaisesRegex(
            ExportError, "torch.export kept no values for .*, a tensor that a function reads from outside"
        ):
            to_onnx(OneInput(function), (X,))


if __name__ == "__main__":
    unittest.main()
