"""Every control flow in every other one, captured once and run on other branches, turns and numbers of rows."""

import unittest

import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as torch_map

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D
from experimental_experiment.higher_order_ops import simple_loop_for

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs()
OTHERS = [(-X,), (torch.ones(7, 4),)]


def in_cond(s, f, x):
    return torch.cond(x.sum() > 3, lambda x: f(x) + 1, lambda x: f(x - 1) * 0.5, (x,))


def in_while_loop(s, f, x):
    def body(i, x):
        return i + 1, f(x) * 0.5 + s.b

    return while_loop(lambda i, x: (i < 3) & (x.abs().sum() < 100), body, (torch.tensor(0), x))[1]


def in_scan(s, f, x):
    return scan(lambda c, r: (f(c.unsqueeze(0))[0] * 0.5 + r, c * r + s.b), x[0] * 0, x)[1]


def in_map(s, f, x):
    return torch_map(lambda r: f(r.unsqueeze(0))[0] + s.b, x * 1)


def in_simple_loop_for(s, f, x):
    return simple_loop_for(2, lambda i, x: f(x) * 0.5 + i, (x,))


EACH = (in_cond, in_while_loop, in_scan, in_map, in_simple_loop_for)
REFUSED = {(in_while_loop, in_simple_loop_for), (in_scan, in_simple_loop_for), (in_scan, in_while_loop)}
"""Carries whose size torch no longer knows: torch.export captures none."""


def both(outer, inner):
    """A function of the module and x."""
    return lambda s, x: outer(s, lambda y: inner(s, lambda z: s.lin(z).tanh(), y), x)


class TestEachInEach(ControlFlowTestCase):
    CASES = {
        f"{inner.__name__.removeprefix('in_')} {outer.__name__}": (
            both(outer, inner),
            (X,),
            OTHERS,
            ({0: D},),
        )
        for outer in EACH
        for inner in EACH
        if (outer, inner) not in REFUSED
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, compiled=())


if __name__ == "__main__":
    unittest.main()
