"""scan, map and associative_scan: any axis, both directions, several carries and rows."""

import unittest

import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops.map import map as torch_map

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput, TwoInputs
from experimental_experiment.comparison import run, session
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx
from experimental_experiment.versions import numbers

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
LONG = torch.ones(7, 4)
H = torch.zeros(4)


def recurrent(s, x, h):
    def step(h, x):
        return torch.tanh(s.lin(x) + h), torch.cond(
            h.sum() > 0, lambda h, x: h * x, lambda h, x: h - x, (h, x)
        )

    return scan(step, h, x, dim=0)


def backwards(s, x, h):
    return scan(lambda h, x: (torch.tanh(s.lin(x) + h), (x * 2, (x + h).sum())), h, x, dim=1, reverse=True)


def two_carries(s, x, y):
    def step(carry, row):
        a, b = carry
        return (a + row[0], b * row[1]), {"sum": a + b, "rows": (row[0] > 0, row[1].half())}

    return scan(step, (torch.zeros(4), torch.ones(4)), (x, y))


class TestScan(ControlFlowTestCase):
    CASES = {
        "weights are captured, cond inside": (recurrent, (X, H), [(LONG, H - 1), (X[:1], H)], ({0: D}, None)),
        "another axis, reversed": (backwards, (CUBE, torch.zeros(2, 4)), [(CUBE * 2, torch.ones(2, 4))]),
        "another axis, reversed, of any length": (
            backwards,
            (CUBE, torch.zeros(2, 4)),
            [(torch.ones(2, 7, 4), -torch.ones(2, 4))],
            ({1: D}, None),
        ),
        "several carries and rows, nested structures": (two_carries, (X, X * 2), [(LONG[:3], X)]),
        "a carry that is returned as a row": (
            lambda s, x: torch.ops.higher_order.scan(
                lambda c, y: [c + y, (c + y) * 1], [torch.zeros_like(x[0])], [x], []
            ),
            (X,),
            [(-X,)],
        ),
        "scan inside": (
            lambda s, x: scan(
                lambda c, row: (c + row.sum(), scan(lambda d, e: (d + e, d * e), c, row)[1]),
                torch.zeros(()),
                x,
            ),
            (X,),
            [(-X,)],
        ),
    }

    MAPS = {
        "a tuple of rows, an argument": (
            lambda s, x, y: torch_map(lambda x, y: (s.lin(x[0]) * y, x[1].sum()), (x, x * 2), y),
            (X, H + 1),
            [(LONG, H - 1)],
            ({0: D}, None),
        ),
        "nested": (
            lambda s, x: torch_map(lambda row: torch_map(lambda v: v.sin(), row) + row.sum(), x),
            (X,),
            [(-X,)],
        ),
    }

    ASSOCIATIVE = {
        "the operator itself": (
            lambda s, x: torch.ops.higher_order.associative_scan(lambda a, b: [a * b], [x], ()),
            (X,),
            [(LONG,), (X[:1],)],
            ({0: D},),
        ),
        "products and sums": (
            lambda s, x: associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic"),
            (torch.linspace(-1, 1, 24).reshape(8, 3),),
        ),
        "another axis, reversed": (
            lambda s, x: associative_scan(lambda a, b: a + b, x, 1, reverse=True, combine_mode="generic"),
            (torch.linspace(-1, 1, 21).reshape(3, 7),),
        ),
        "a dict of tensors": (
            lambda s, x, y: associative_scan(
                lambda a, b: {"i": a["i"] + b["i"], "j": a["j"] * b["j"]},
                {"i": x, "j": y},
                0,
                combine_mode="generic",
            ),
            (X, X + 1),
        ),
    }

    def test_a_state_that_is_given_twice(self):
        """torch.export takes both for one, and the body reads the wrong one: it is refused; a copy is exported."""

        def again(copied):
            return lambda s, x, h: scan(
                lambda c, row: (c * 0.5 + row + h, c * 2), h.clone() if copied else h, x
            )

        def pair(copied):
            return lambda s, x, h: scan(
                lambda c, row: ((c[0] * 0.5 + c[1] + row, c[1] + 1), c[0] * 2),
                (h, h.clone() if copied else h),
                x,
            )

        def unread(copied):
            return lambda s, x, h: scan(
                lambda c, row: (row + h, row * h.sum()), h.clone() if copied else h, x
            )

        for function in (again, pair, unread):
            with self.subTest(function.__name__):
                message = "torch.export may have taken a carry for another operand that is the same tensor"
                with self.assertRaisesRegex(ExportError, message) as caught:
                    to_onnx(TwoInputs(function(False)), (X, H))
                self.assertIn("give the scan a copy of its own: init=h.clone()", str(caught.exception))
                self.export_and_compare(TwoInputs(function(True)), (X, H + 1))

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_map_is_the_same_as_eager(self):
        self.assert_cases(self.MAPS)

    def test_associative_scan_is_the_same_as_eager(self):
        self.assert_cases(self.ASSOCIATIVE)

    def test_strict(self):
        cases = {
            "recurrent": self.CASES["weights are captured, cond inside"],
        }
        self.assert_cases(cases, export_options=ExportOptions(strict=True))

    def test_every_opset(self):
        for opset in (18, 23, 26):
            with self.subTest(opset=opset):
                case = self.CASES["another axis, reversed, of any length"]
                self.assert_cases({"backwards": case}, target_opset=opset)

    def test_places_in_the_memory_of_all_rows_are_refused(self):
        """A row is seen through the memory of all rows in eager, and has its own in the model; a clone has its own in both."""

        def placed(row):
            return torch.as_strided_copy(row, (2,), (1,), 1)

        def in_a_branch(row):
            return torch.cond(row.sum() > 0, placed, lambda row: placed(row) * 2, (row,))

        for body in (lambda row: torch.as_strided(row, (2,), (1,), 1) + 0, in_a_branch):
            with self.assertRaisesRegex(
                ExportError, "as_strided of a row, from a place in the memory of all rows"
            ):
                to_onnx(OneInput(lambda s, x, body=body: torch_map(body, x)), (X,))
        case = lambda s, x: torch_map(lambda row: torch.as_strided(row.clone(), (2,), (1,), 1) + 0, x), (X,)
        self.assert_cases({"a clone": case})

    def test_no_row_is_refused_as_by_torch(self):
        """Nothing is chosen while the model runs."""
        for dim in (D, torch.export.Dim("rows"), torch.export.Dim("rows", min=1)):
            with self.subTest(dim):
                case = recurrent, (X, H), [(X[:1], H), (LONG, H + 1)], ({0: dim}, None)
                self.assert_cases({"rows": case})
                model = to_onnx(TwoInputs(recurrent), (X, H), dynamic_shapes=({0: dim}, None))
                self.assertNotIn("If", [node.op_type for node in model.graph.node])
                with self.assertRaisesRegex(Fail, "Scan"):
                    run(session(model), (X[:0], H))
        if numbers(torch.__version__) < numbers("2.14"):  # gives the carries
            with self.assertRaisesRegex(RuntimeError, "scan dimension > 0"):
                TwoInputs(recurrent)(X[:0], H)

    def test_rows_behind_the_first_one_may_be_none(self):
        """torch's own associative_scan of one element, which becomes a scan of the others."""
        function = lambda s, x: associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic")
        self.assert_cases({"one element": (function, (X,), [(X[:1],), (X[:2],)], ({0: D},))})

    def test_no_row_gives_the_carries_and_no_row(self):
        """onnxruntime's Scan would be refused."""
        cases = {
            "map": (
                lambda s, x, y: torch_map(lambda x: (s.lin(x), x > 0), x),
                (X[:0], H),
                [X[:0], X[:0] > 0],
            ),
            "associative_scan": (
                lambda s, x, y: torch.ops.higher_order.associative_scan(lambda a, b: [a * b], [x], ()),
                (X[:0], H),
                [X[:0]],
            ),
        }
        for name, (function, inputs, expected) in cases.items():
            with self.subTest(name):
                model = to_onnx(TwoInputs(function), (X, H), dynamic_shapes=({0: D}, None))
                given = len(model.graph.input)
                torch.testing.assert_close(run(session(model), inputs[:given]), expected)

    def test_bodies_declare_the_types_of_rows_and_carries(self):
        model = to_onnx(TwoInputs(recurrent), (X, H))
        (node,) = [node for node in model.graph.node if node.op_type == "Scan"]
        (body,) = [attribute.g for attribute in node.attribute if attribute.name == "body"]
        for value in [*body.input, *body.output]:
            self.assertEqual([dim.dim_value for dim in value.type.tensor_type.shape.dim], [4], value.name)

    def test_a_growing_carry_is_refused_by_the_capture(self):
        def function(s, x):
            return scan(lambda c, row: (torch.cat([c, row]), row), torch.zeros(0), x)

        with self.assertRaises(CaptureError):
            to_onnx(OneInput(function), (X,))


if __name__ == "__main__":
    unittest.main()
