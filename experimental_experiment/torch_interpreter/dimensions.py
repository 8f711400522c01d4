"""The names of dimensions, and what torch says of symbolic sizes: the text of each stands for it in the model.

Source of semantics: the expressions of torch's ShapeEnv, which are equal when the sizes are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorToInt, RoundToInt, ToFloat, TruncToInt
from torch.utils._sympy.symbol import SymT, symbol_is_type

from experimental_experiment.torch_interpreter.symbols import expression_of


class Dimensions:
    """Names of symbolic sizes: the user's where there are, stable readable ones for the others."""

    def __init__(self):
        self.names: dict[sympy.Symbol, sympy.Symbol] = {}
        self.texts: dict[Any, int | str] = {}
        self.expressions: dict[int | str | None, sympy.Expr] = {}  # by their texts, in the named dimensions
        self.taken: set[str] = set()
        self.shared: set[str] = set()
        self.of_selections: set[str] = set()  # what the data decide, and may decide to be 0

    @classmethod
    def written(cls, of_selections: Iterable[str]) -> Dimensions:
        """What is known of the sizes of a model that was written: where nothing may be selected."""
        dimensions = cls()
        dimensions.of_selections.update(of_selections)
        return dimensions

    def name(self, symbol: sympy.Symbol, name: str) -> None:
        """Call *symbol* *name* from now on; the first name stays."""
        if symbol not in self.names:
            self.names[symbol] = sympy.Symbol(name, integer=True)
            self.taken.add(name)

    def fresh(self, wish: str) -> str:
        """*wish*, or *wish* with a number when it names another dimension."""
        name, count = wish, 1
        while name in self.taken:
            count += 1
            name = f"{wish}_{count}"
        return name

    def undecided(self, wish: str) -> int | str:
        """The name of a size that the data decide, whatever torch takes it for."""
        return self.text(sympy.Symbol(f"u_{self.fresh(wish)}"), wish)

    def shape(self, fake: torch.Tensor, owner: str) -> list[int | str]:
        """The sizes of a fake tensor, ints or expressions in named dimensions; complex ones end with 2.

        A symbol without a name gets one from *owner*, the name of the value that shows it first.
        """
        sizes: list[int | str] = []
        for axis, size in enumerate(fake.shape):
            sizes.append(size if isinstance(size, int) else self.text(decided(size), f"{owner}_dim_{axis}"))
        return [*sizes, 2] if fake.dtype.is_complex else sizes

    def text(self, expression: sympy.Expr, wish: str) -> int | str:
        """One size: an int, or its expression in named dimensions, ``wish`` for a symbol met first here."""
        if expression not in self.texts:
            for symbol in sorted(expression.free_symbols, key=str):
                if symbol not in self.names:
                    self.name(symbol, self.fresh(wish))
            written = with_whole_products(expression.xreplace(self.names))
            text = self.texts[expression] = int(written) if written.is_Integer else str(written)
            self.expressions[text] = written
            if isinstance(text, str) and is_backed(expression):
                self.shared.add(text)
            elif not written.as_coeff_Add()[0].is_positive:  # u0 + 1 is one at least
                self.of_selections.add(text)
        return self.texts[expression]

    def label(self, number: Any, wish: str) -> str | None:
        """The expression of a symbolic int that the sizes of the inputs decide, None for any other number."""
        if not isinstance(number, torch.SymInt) or not is_backed(decided(number)):
            return None
        text = self.text(number.node.expr, wish)
        return text if isinstance(text, str) else None


ROUNDINGS = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
"""What torch calls the integers of floats."""


def with_whole_products(expression: sympy.Expr) -> sympy.Expr:
    """An expression whose roundings of whole products are those products: ``int(0.5 * (2 * rows))`` is ``rows``.

    The float of the product is exact, as of any whole number below 2 ** 53.
    """
    if not expression.has(*ROUNDINGS):
        return expression
    return expression.replace(lambda part: isinstance(part, ROUNDINGS), whole_product)


def whole_product(rounding: sympy.Expr) -> sympy.Expr:
    """The product of a factor and a size that is rounded, when it is whole for all sizes; the rounding otherwise."""
    factor, size = rounding.args[0].as_coeff_Mul()
    if not isinstance(size, ToFloat):
        return rounding
    terms = sympy.expand(sympy.Rational(factor) * size.args[0]).as_coefficients_dict()
    is_whole = all(count.is_Integer for count in terms.values())
    return sum(count * term for term, count in terms.items()) if is_whole else rounding


def is_backed(expression: sympy.Expr) -> bool:
    """Whether all symbols are sizes of inputs: data-dependent ones may change from one turn of a loop to the next."""
    return all(symbol_is_type(symbol, SymT.SIZE) for symbol in expression.free_symbols)


def decided(number: Any) -> sympy.Expr:
    """The expression of a symbolic number, as it was first where the data decide it.

    torch takes a number of elements that are selected for the size of what they are added to, where eager also repeats a single one.
    """
    first, now = number.node._expr, number.node.expr
    return now if is_backed(first) or not is_backed(now) else first


def axis_of_data(node: torch.fx.Node) -> int | None:
    """The axis of a slice whose bounds differ by the data: what is added to its result makes torch take its size for another one."""
    if node.target is not torch.ops.aten.slice.Tensor:
        return None
    x, dim, start, end, *_ = [*node.args, *(None, 0, None, None)[len(node.args) :]]
    if not any(isinstance(bound, torch.fx.Node) for bound in (start, end)):
        return None
    bounds = (0 if start is None else start, x.meta["val"].shape[dim] if end is None else end)
    first, last = (bound.meta["val"] if isinstance(bound, torch.fx.Node) else bound for bound in bounds)
    size = sympy.sympify(expression_of(last)) - sympy.sympify(expression_of(first))
    return None if is_backed(size) else dim
