"""Regions that torch.export wraps, operators that functionalization wraps: the values are the body's."""

import unittest

import torch
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch.utils.checkpoint import checkpoint

from _unittests.ut_control_flow.holder import ControlFlowTestCase, OneInput
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("ut_wrappers::add_one", mutates_args={"x"})
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("ut_wrappers::add_one_and_double", mutates_args={"x"})
def add_one_and_double(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


add_one_and_double.register_fake(lambda x, y: torch.empty_like(y))

TRANSLATIONS = {
    add_one: lambda op, x: op.Add(x, 1),
    add_one_and_double: lambda op, x, y: (op.Mul(y, 2), op.Add(x, 1)),
}


def without_gradients(s, x):
    y = x.clone()
    with torch.no_grad():
        y[0] = 2
        y.mul_(2)
        z = s.lin(y)
    return y * z


def writes_views(s, x):
    y = x * 2
    add_one(y[0])
    z = add_one_and_double(y, x)
    add_one(y[:, 1])
    add_one(y.t())
    return y + z


SUBGRAPH = torch.fx.symbolic_trace(lambda x: (x.sin() + 1,))


class TestWrappers(ControlFlowTestCase):
    CASES = {
        "no_grad, the region writes a tensor from outside": (without_gradients, (X,)),
        "hints": (lambda s, x: hints_wrapper(lambda x: x.sin(), (x,), {}, hints={"a": 1}), (X,)),
        "strict_mode": (lambda s, x: strict_mode(lambda x: (x.sin(), x + 1), (x,)), (X,)),
        "checkpoint": (lambda s, x: checkpoint(lambda y: s.lin(y).sin(), x, use_reentrant=False), (X,)),
        "a subgraph called twice": (
            lambda s, x: torch.ops.higher_order.invoke_subgraph(
                SUBGRAPH, "a", torch.ops.higher_order.invoke_subgraph(SUBGRAPH, "a", x)[0]
            ),
            (X,),
        ),
        "wrap": (lambda s, x: torch.ops.higher_order.wrap(SUBGRAPH, x), (X,)),
        "out_dtype": (
            lambda s, x: torch.ops.higher_order.out_dtype(
                torch.ops.aten.mm.default, torch.int32, x.to(torch.int8), x.t().to(torch.int8)
            ),
            (X * 100,),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_hints_strict(self):
        self.assert_cases({"hints": self.CASES["hints"]}, export_options=ExportOptions(strict=True))

    def test_custom_operators_that_write_views(self):
        for table in (None, {}):
            with self.subTest(decomposition_table=table):
                options = ExportOptions(decomposition_table=table)
                cases = {"views": (writes_views, (X,), [(-X,)])}
                self.assert_cases(cases, export_options=options, translations=TRANSLATIONS)

    def test_a_custom_operator_without_translation_is_named(self):
        options = ExportOptions(decomposition_table={})
        with self.assertRaisesRegex(ExportError, r"ut_wrappers\.add_one"):
            to_onnx(OneInput(writes_views), (X,), export_options=options)


if __name__ == "__main__":
    unittest.main()
