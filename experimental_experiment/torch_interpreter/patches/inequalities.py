"""Conditions on sizes that sympy cannot solve, alone or beside an equation that it can.

Source of semantics: ``DimConstraints.solve`` of torch, which asks for the solution of all conditions on a size.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

SOLVER = "torch.fx.experimental.symbolic_shapes.DimConstraints.solve"


@patch("torch", replaces=(SOLVER,), default=True)
def unsolved_inequalities() -> Iterator[None]:
    """A pool with ``ceil_mode`` before strided convolutions, as in SENets: sympy cannot solve what torch.export asks of a dynamic size.

    Nor the equation of two ways to an eighth of a size, as YOLOv9's, which asks for a multiple of 32 in its words. What is left out is
    known to hold for the example, and stays among the guards.
    """
    importlib.import_module(SOLVER.rpartition(".DimConstraints")[0])
    with wrapped({SOLVER: with_equations_alone}):
        yield


def with_equations_alone(solve: Callable) -> Callable:
    """*solve* that leaves out the inequalities of a size that has an equation, where sympy cannot solve them together.

    Where it can solve no equation of a size, it leaves these out, and the inequalities too where it cannot solve them either.
    """

    @functools.wraps(solve)
    def called(self: Any) -> None:
        for symbol in list(self._symbols_with_equalities):
            conditions = self._univariate_inequalities[symbol]
            if not is_solved(conditions, symbol):
                unsolved_inequalities.used()
                equations = {condition for condition in conditions if condition.is_Equality}
                solved = {equation for equation in equations if is_solved([equation], symbol)}
                if not solved:
                    self._symbols_with_equalities.remove(symbol)
                kept = solved or set(conditions) - equations
                self._univariate_inequalities[symbol] = type(conditions)(
                    kept if is_solved(kept, symbol) else ()
                )
        solve(self)

    return called


def is_solved(conditions: Any, symbol: Any) -> bool:
    """Whether sympy can solve the conditions on a symbol."""
    try:
        sys.modules["sympy"].solvers.inequalities.reduce_inequalities(conditions, symbol)
    except NotImplementedError:
        return False
    return True
