"""cond: both branches, whatever they return."""

import unittest

import torch

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs()
ROWS = ({0: D},)
LONG = torch.ones(7, 4)


def two_results(s, x):
    return torch.cond(x.sum() > 0, lambda x: (s.lin(x) + s.b, x * x.shape[0]), lambda x: (x - 1, x + 3), (x,))


def nested(s, x):
    def inner(x):
        return torch.cond(x.max() > 1, lambda x: s.lin(x), lambda x: x * 2, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: inner(x - 1) + 1, (x,))


def temporaries(s, x):
    def written(x):
        y = x.clone()
        y[0] = 3
        y.mul_(2)
        return y

    return torch.cond(x.sum() > 0, written, lambda x: x.clone().zero_(), (x,))


class TestCond(ControlFlowTestCase):
    CASES = {
        "several results, captured weights": (two_results, (X,), [(-X,)]),
        "sizes are captured": (two_results, (X,), [(-X,), (LONG,), (-LONG,)], ROWS),
        "the predicate is a size": (
            lambda s, x: torch.cond(x.shape[0] > 3, lambda x: x + 1, lambda x: x - 1, (x,)),
            (X,),
            [(LONG,)],
            ROWS,
        ),
        "nested": (nested, (X,), [(-X,), (X * 9,), (9 - X,)]),
        "a branch that copies its input, a constant": (
            lambda s, x: torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: torch.zeros(3, 4), (x,)),
            (X,),
            [(-X,)],
        ),
        "complex constants of the branches": (
            lambda s, x: torch.cond(
                x.sum() > 0,
                lambda z: z + torch.tensor(1j),
                lambda z: z * torch.tensor(2j),
                (torch.complex(x, x),),
            ),
            (X,),
            [(-X,)],
        ),
        "branches write their temporaries": (temporaries, (X,), [(-X,)]),
        "results of every dtype": (
            lambda s, x: torch.cond(
                x.sum() > 0,
                lambda x: (x > 0, x.half(), x.to(torch.int32), x.double(), x.bfloat16()),
                lambda x: (x < 0, x.half() * 2, x.to(torch.int32) + 1, x.double(), x.bfloat16()),
                (x,),
            ),
            (X,),
            [(-X,)],
        ),
        "the predicate has one element": (
            lambda s, x: torch.cond((x.sum() > 0).reshape(1), lambda x: x + 1, lambda x: x - 1, (x,)),
            (X,),
            [(-X,)],
        ),
        "two of them share a predicate": (
            lambda s, x: (
                torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
                torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x / 2, (x,)),
            ),
            (X,),
            [(-X,)],
        ),
        "a view is read in a branch and behind it": (
            lambda s, x: (
                torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x.clone().add_(1)[0],)),
                x[0] + 1,
            ),
            (X,),
            [(-X,)],
        ),
    }

    STRICT = {
        "integers are returned": (
            lambda s, x: torch.cond(x.sum() > 0, lambda x: (x.sin(), 3), lambda x: (x.clone(), 5), (x,)),
            (X,),
            [(-X,)],
        ),
        "several results, captured weights": (two_results, (X,), [(-X,)]),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_same_as_eager_strict(self):
        self.assert_cases(self.STRICT, export_options=ExportOptions(strict=True))

    def test_every_opset(self):
        for opset in (18, 20, 23, 26):
            with self.subTest(opset=opset):
                self.assert_cases({"sizes": self.CASES["sizes are captured"]}, target_opset=opset)

    def test_branches_of_other_sizes(self):
        """torch gives the result a size of its own; both branches are right."""

        def function(s, x):
            return torch.cond(x.sum() > 0, lambda x: x[:2] * 1, lambda x: x[:3] * 2, (x,))

        self.assert_cases({"sizes": (function, (X,), [(-X,)])}, export_options=ExportOptions(strict=True))

    def test_a_known_predicate_leaves_one_branch(self):
        def function(s, x):
            return torch.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x - 1, (x,))

        model = to_onnx(OneInput(function), (X,))
        self.assertNotIn("If", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
