"""torch.vmap, and what of functorch is refused."""

import unittest
import unittest.mock

import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as torch_map

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches import batches

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
LONG, ROWS = torch.cat([X, X * 2, X + 1]), ({0: D},)


def norm_and_softmax(s, x):
    normal = torch.vmap(lambda a: torch.nn.functional.layer_norm(a, (4,)) * torch.softmax(a, -1))(x)
    return normal + torch.vmap(lambda a: a.cumsum(0))(x)


def several_results(s, x):
    def function(a):
        largest, where = a.topk(2)
        variance, mean = torch.var_mean(a, 0)
        first, second, *_ = a.split(2)
        return a.sort()[0], largest, where, a.max(0)[0], variance, mean, first * second, a.unbind(0)[1]

    return torch.vmap(function)(x)


def along_other_axes(c, row):
    def both(a, b):
        return a + b, a * b

    added, scaled = torch.vmap(both, in_dims=(1, None), out_dims=(0, -1))(torch.outer(row, c), c)
    return c + added.sum(0) / 10, scaled


def attended(x):
    distances = torch.vmap(lambda a: torch.vmap(lambda b: (a - b).square().sum())(x))(x)
    return (-distances).softmax(-1) @ x + torch.vmap(lambda a, i: a * i)(x, torch.arange(x.shape[0]))


def one_after_another(row):
    shifted = torch.vmap(lambda a: a * 2 + row.sum())(row)
    rows, _ = torch.vmap(lambda a, b: (a + row, a * b), (0, None))(shifted, row.mean())
    return shifted, torch.vmap(lambda a: a.cumsum(0), 1, 1)(rows)


class TestVmap(ControlFlowTestCase):
    CASES = {
        "a module": (lambda s, x: torch.vmap(lambda r: s.lin(r).sum() + r)(x), (X,), [(-X,)]),
        "any number of samples": (
            lambda s, x: torch.vmap(lambda r: s.lin(r).sum() + r)(x),
            (X,),
            [(torch.ones(7, 4),)],
            ({0: D},),
        ),
        "any number of samples, one in the example": (
            lambda s, x: torch.vmap(lambda r, j: r.softmax(0)[j])(x, x.argsort(1)[:, :2]),
            (X[:1],),
            [(-X,)],
            ({0: D},),
        ),
        "an argument for all": (
            lambda s, x, y: torch.vmap(lambda a, b: a @ b, in_dims=(0, None))(x, y),
            (X, torch.randn(4, 5)),
        ),
        "nested": (
            lambda s, x, y: torch.vmap(lambda a: torch.vmap(lambda b: torch.dot(a, b))(y))(x),
            (X, torch.randn(5, 4)),
        ),
        "the second axis": (
            lambda s, x: torch.vmap(lambda r: r.sin() + r.cumsum(0), in_dims=1)(x),
            (X,),
            [(torch.ones(7, 4),)],
            ({0: D},),
        ),
        "another axis of the result": (
            lambda s, x: torch.vmap(lambda r: (r.sin(), r.sum()), out_dims=(-1, 0))(x),
            (X,),
            [(torch.ones(7, 4),)],
            ({0: D},),
        ),
        "nested, of other axes": (
            lambda s, x, y: torch.vmap(
                torch.vmap(torch.dot, in_dims=(None, 0)), in_dims=(1, None), out_dims=1
            )(x, y),
            (X, torch.randn(5, 3)),
            [(-X, torch.ones(2, 3))],
            ({}, {0: D}),
        ),
        "several results": (lambda s, x: torch.vmap(lambda a: (a.sum(), {"k": a * 2}))(x), (X,)),
        "reductions of a sample": (norm_and_softmax, (X,)),
        "operators of several results": (
            several_results,
            (torch.randn(5, 6),),
            [(torch.arange(30.0).reshape(5, 6),)],
        ),
        "conversions": (lambda s, x: torch.vmap(lambda a: a.double() + a.half())(x), (X,)),
        "in chunks": (lambda s, x: torch.vmap(lambda a: a.sort()[0], chunk_size=2)(x), (X,)),
        "temporaries are written": (lambda s, x: torch.vmap(lambda a: a.new_zeros(4).add_(a))(x), (X,)),
    }

    IN_BODIES = {
        "of a branch": (
            lambda s, x: torch.cond(
                x.sum() > 0, lambda x: torch.vmap(lambda r: r.sin() * x.shape[0])(x), lambda x: x - 1, (x,)
            ),
            (X,),
            [(-X,), (X[:1],), (LONG,)],
            ROWS,
        ),
        "of a scan, other axes, several results": (
            lambda s, x: scan(along_other_axes, torch.ones(4), x),
            (X,),
            [(-X,), (X[:1],), (LONG,)],
            ROWS,
        ),
        "of a loop, nested, of other batches": (
            lambda s, x: while_loop(
                lambda i, x: i < 2, lambda i, x: (i + 1, attended(x)), (torch.tensor(0), x.clone())
            ),
            (X,),
            [(-X,), (X[:1],), (LONG,)],
            ROWS,
        ),
        "of a map, one after another": (
            lambda s, x: torch_map(one_after_another, x),
            (X,),
            [(-X,), (X[:1],), (LONG,)],
            ROWS,
        ),
        "of a map, the outer batch is not read": (
            lambda s, x: torch_map(lambda r: torch.vmap(lambda a: torch.vmap(lambda b: b * 2)(r))(r), x),
            (X,),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_in_bodies(self):
        """torch.export leaves out the nodes that begin and end a region there."""
        self.assert_cases(self.IN_BODIES, compiled=())
        self.assert_strict_cases(self.IN_BODIES, compiled=())

    def test_another_axis_is_refused_without_the_patch(self):
        module = OneInput(lambda s, x: torch.vmap(lambda r: r.sin(), in_dims=1)(x))
        with self.assertRaisesRegex(CaptureError, "We found a fake tensor"):
            to_onnx(module, (X,), export_options=ExportOptions(patches=False))

    def test_gradients_are_refused(self):
        module = OneInput(lambda s, x: torch.func.grad(lambda y: (y**2).sum())(x))
        with self.assertRaisesRegex(
            ExportError, r"gradients in forward makes such, ExportOptions\(tracing='make_fx'\) follows"
        ):
            to_onnx(module, (X,))

    def test_no_batching_rule_for_symbolic_sizes(self):
        """What torch refuses while a region is traced again is told, and leaves no transformation behind."""
        module = OneInput(lambda s, x: torch.vmap(lambda a: torch.split_with_sizes_copy(a, [1, 3], 1)[0])(x))
        x = torch.randn(3, 5, 4)
        with unittest.mock.patch.dict(batches.COMPOSED):
            del batches.COMPOSED[torch.ops.aten.split_with_sizes_copy.default]  # an operator without a rule
            with self.assertRaisesRegex(ExportError, "tracing it again, torch says: Cannot call"):
                to_onnx(module, (x,), dynamic_shapes=({0: D, 1: D},))
        self.assertEqual(torch._C._functorch.get_dynamic_layer_stack_depth(), 0)
        self.export_and_compare(module, (x,))


if __name__ == "__main__":
    unittest.main()
