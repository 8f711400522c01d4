"""Regions that torch.export wraps, operators that functionalization wraps: the values are the body's."""

import functools
import unittest

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from _unittests.ut_control_flow.holder import ControlFlowTestCase, OneInput
from experimental_experiment.comparison import run, session
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.control_flow import functionalized
from experimental_experiment.torch_interpreter.errors import Untranslatable

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("ut_wrappers::add_one", mutates_args={"x"})
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("ut_wrappers::add_one_and_double", mutates_args={"x"})
def add_one_and_double(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


add_one_and_double.register_fake(lambda x, y: torch.empty_like(y))


@torch.library.custom_op("ut_wrappers::logged", mutates_args=())
def logged(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("ut_wrappers::logged_list", mutates_args=())
def logged_list(x: torch.Tensor) -> list[torch.Tensor]:
    return [x * 2, x + 1]


@torch.library.custom_op("ut_wrappers::logged_pair", mutates_args=())
def logged_pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x + 1


logged.register_fake(lambda x: torch.empty_like(x))
logged_list.register_fake(lambda x: [torch.empty_like(x), torch.empty_like(x)])
logged_pair.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))
for _operator in (logged, logged_list, logged_pair):
    _register_effectful_op(_operator._opoverload, _EffectType.ORDERED)

TRANSLATIONS = {
    logged: lambda op, x: op.Mul(x, 2),
    logged_list: lambda op, x: [op.Mul(x, 2), op.Add(x, 1)],
    logged_pair: lambda op, x: (op.Mul(x, 2), op.Add(x, 1)),
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


def with_effects(s, x):
    a = logged(x)
    b, c = logged_pair(a)
    d, e = logged_list(b)
    torch.ops.aten._print("done")
    return a + c, d - e


BODY = make_fx(lambda x, y: (x.sin() + y, x * y), tracing_mode="fake")(X, X)
HIGHER_ORDER = torch.ops.higher_order

SUBGRAPH = torch.fx.symbolic_trace(lambda x: (x.sin() + 1,))


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.sin() * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient * x.cos() * weight, gradient * x.sin()


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

    GRAPHS = {  # what torch.export leaves in no program: graphs of other tools
        "a graph of constants": lambda x, y: HIGHER_ORDER.run_const_graph(BODY, (x, y)),
        "checkpoint": lambda x, y: HIGHER_ORDER.tag_activation_checkpoint(BODY, x, y, use_reentrant=False),
        "a write, functionalized": lambda x, y: HIGHER_ORDER.auto_functionalized(
            torch.ops.ut_wrappers.add_one_and_double.default, x=x, y=y
        ),
        "a write without result, functionalized": lambda x, y: HIGHER_ORDER.auto_functionalized(
            torch.ops.ut_wrappers.add_one.default, x=x * y
        ),
    }

    def test_graphs_of_other_tools(self):
        inputs = (X, X + 1)
        for promise, function in self.GRAPHS.items():
            with self.subTest(promise):
                model = to_onnx(make_fx(function, tracing_mode="fake")(*inputs), translations=TRANSLATIONS)
                expected = [item for item in function(*inputs) if item is not None]
                torch.testing.assert_close(run(session(model), inputs), expected)

    def test_what_other_tools_hide_is_refused(self):
        cases = {
            "cond was functionalized: export without decompositions": lambda: functionalized.call(
                None, HIGHER_ORDER.cond, {}
            ),
            "cond has effects outside of the model": lambda: functionalized.with_effects(
                None, None, HIGHER_ORDER.cond
            ),
        }
        for message, function in cases.items():
            with self.subTest(message), self.assertRaisesRegex(Untranslatable, message):
                function()

    def test_effects(self):
        for table in (None, {}):
            options = ExportOptions(decomposition_table=table)
            with self.subTest(decomposition_table=table):
                cases = {"effects": (with_effects, (X,), [(-X,)])}
                self.assert_cases(cases, export_options=options, translations=TRANSLATIONS)

    def test_strict(self):
        policy = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
        cases = {
            "hints": self.CASES["hints"],
            "checkpoint": (
                lambda s, x: checkpoint(lambda y: s.lin(y).sin(), x, use_reentrant=False, context_fn=policy),
                (X,),
                [(-X,)],
            ),
            "foreach": (lambda s, x: foreach_map(torch.add, [x, x * 2], [x + 1, x - 1]), (X,), [(-X,)]),
            "a function with its own gradient": (lambda s, x: Sine.apply(x, s.b), (X,), [(-X,)]),
        }
        self.assert_cases(cases, export_options=ExportOptions(strict=True))

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
