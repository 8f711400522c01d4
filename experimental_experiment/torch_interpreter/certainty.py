"""Whether a condition on sizes holds for all of them: a proof over whole numbers, or none.

Products, quotients and remainders become polynomials in sizes that are not negative and in quotients by constants, which one form
makes equal wherever it can. What is not proven may hold all the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanFunction
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.solve import try_solve
from torch.utils._sympy.value_ranges import ValueRanges

STEPS = 2000
"""Terms that a proof may look at: some tenths of a second."""

CASES = 64
"""Remainders of a size that a proof tells apart, at most."""

Bounds = tuple[sympy.Rational | None, sympy.Rational | None]
"""The least and the largest value, None where there is none or none is known."""


class Floor(sympy.Function):
    """The floor of a quotient by a positive number, which nothing simplifies further."""

    is_integer = True


class Unproven(Exception):
    """A term that proofs know nothing of, or one term too many."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known about sizes at a moment of a capture, whatever the example is.

    Attributes:
        ranges: where the sizes are, a range for each symbol.
        given: the equations that hold besides, those of multiples.
    """

    ranges: Mapping[sympy.Symbol, ValueRanges]
    given: tuple[sympy.Basic, ...] = ()

    def learn(self, condition: sympy.Basic) -> Known:
        """What is known once a condition holds: because the model raises where it does not, or because its user is told so."""
        symbols = condition.free_symbols
        if not symbols or not symbols <= set(self.ranges):
            return self
        if isinstance(condition, sympy.Eq):
            is_new = condition not in self.given and condition.has(FloorDiv, Mod, PythonMod)
            return dataclasses.replace(self, given=(*self.given, condition)) if is_new else self
        if len(symbols) == 1 and isinstance(condition, (sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)):
            (symbol,) = symbols
            found = try_solve(condition, symbol)
            if found is not None and found[1].is_Integer:
                within = self.ranges[symbol] & range_of(found[0])
                return dataclasses.replace(self, ranges={**self.ranges, symbol: within})
        return self

    def makes_certain(self, environment: Any, condition: sympy.Basic) -> bool:
        """Whether a condition is known to hold, for *environment*, a ShapeEnv, or because it is proven."""
        symbols = condition.free_symbols
        ranges = {**self.ranges, **divisors(condition, self.ranges)}
        possible = tuple((symbol, ranges[symbol]) for symbol in sorted(symbols, key=str))
        # without the axioms: the guards are among them
        found = environment._maybe_evaluate_static(condition, axioms=(), var_to_range=possible)
        if found is None:
            return is_proven(condition, ranges, self.given)
        return found == sympy.true


def divisors(
    condition: sympy.Basic, ranges: Mapping[sympy.Symbol, ValueRanges]
) -> dict[sympy.Symbol, ValueRanges]:
    """The ranges of the sizes that a condition divides by, without 0: it says nothing of that."""
    found = {quotient.args[1] for quotient in condition.atoms(FloorDiv, Mod, PythonMod)}
    return {
        size: ValueRanges(1, ranges[size].upper)
        for size in found
        if size.is_Symbol and ranges[size].lower == 0 and ranges[size].upper >= 1
    }


def range_of(condition: sympy.Basic) -> ValueRanges:
    """The whole numbers for which a comparison of a symbol, on its left, with a number holds."""
    match condition:
        case sympy.Ge():
            return ValueRanges(condition.rhs, int_oo)
        case sympy.Gt():
            return ValueRanges(condition.rhs + 1, int_oo)
        case sympy.Le():
            return ValueRanges(-int_oo, condition.rhs)
        case sympy.Lt():
            return ValueRanges(-int_oo, condition.rhs - 1)
    return ValueRanges(-int_oo, int_oo)


def is_proven(
    condition: sympy.Basic,
    ranges: Mapping[sympy.Symbol, ValueRanges],
    given: Iterable[sympy.Basic] = (),
) -> bool:
    """Whether *condition* is proven for all whole numbers in *ranges* for which all of *given* is true.

    *ranges* has each symbol. Where a division by zero is possible, nothing is proven.
    """
    symbols = condition.free_symbols
    given = [other for other in given if other.free_symbols & symbols]
    symbols = symbols.union(*(other.free_symbols for other in given))
    ranges = {symbol: ranges[symbol] for symbol in symbols}
    if is_refuted(condition, ranges, given):
        return False
    try:
        proof = Proof.of(ranges)
        for other in given:
            proof = proof.knowing(other)
        return proof.proves(condition)
    except Unproven:
        return False


def is_refuted(condition: sympy.Basic, ranges: Mapping, given: list[sympy.Basic]) -> bool:
    """Whether a condition is false for one of a few sizes: of most, one of the smallest."""
    symbols = sorted(ranges, key=str)
    for step, place in itertools.product((0, 1, 3), range(8)):
        at = {}
        for position, symbol in enumerate(symbols):
            value = max(ranges[symbol].lower, 0) + place + step * position
            at[symbol] = sympy.Integer(min(value, ranges[symbol].upper))
        try:
            if all(other.xreplace(at) == sympy.true for other in given):
                if condition.xreplace(at) == sympy.false:
                    return True
        except (ZeroDivisionError, AssertionError):  # torch 2.9 and its Mod of a number below 0
            continue
    return False


def of_extrema(condition: sympy.Basic) -> tuple[Callable[[Iterable], bool], list[sympy.Basic]] | None:
    """The comparisons with the operands of a Max or a Min, of which any or all have to hold; None of a condition without one at its top."""
    match condition:
        case sympy.Ge() | sympy.Gt():
            greater, smaller = condition.lhs, condition.rhs
        case sympy.Le() | sympy.Lt():
            smaller, greater = condition.lhs, condition.rhs
        case _:
            return None
    compared = sympy.Gt if isinstance(condition, (sympy.Gt, sympy.Lt)) else sympy.Ge
    for part, enough in ((Min, all), (Max, any)):  # all first, which loses nothing
        if isinstance(greater, part):
            return enough, [compared(operand, smaller) for operand in greater.args]
        if isinstance(smaller, {Min: Max, Max: Min}[part]):
            return enough, [compared(greater, operand) for operand in smaller.args]
    return None


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is known about sizes.

    Attributes:
        values: each symbol of a condition as a polynomial in variables that are not negative.
        largest: the largest value of the variables that have one.
        steps: counts the terms that were looked at.
    """

    values: dict[sympy.Symbol, sympy.Expr]
    largest: dict[sympy.Symbol, sympy.Integer]
    steps: Iterator[int]

    @classmethod
    def of(cls, ranges: Mapping[sympy.Symbol, ValueRanges]) -> Proof:
        """What ranges alone tell. Raises Unproven for one without a least whole number."""
        values, largest = {}, {}
        for symbol, range_ in ranges.items():
            if not (symbol.is_integer and range_.lower.is_Integer):
                raise Unproven(symbol)
            variable = sympy.Dummy(symbol.name, integer=True, nonnegative=True)
            values[symbol] = range_.lower + variable
            if range_.upper.is_Integer:
                largest[variable] = range_.upper - range_.lower
        return cls(values, largest, itertools.count())

    # ---- what is proven

    def proves(self, condition: sympy.Basic) -> bool:
        """Whether a condition is proven, by telling apart the remainders of a size where it takes that. Raises Unproven."""
        if isinstance(condition, BooleanFunction):
            if isinstance(condition, sympy.And):
                return all(self.proves(part) for part in condition.args)
            return isinstance(condition, sympy.Or) and any(self.proves(part) for part in condition.args)
        if not isinstance(condition, sympy.core.relational.Relational):
            return condition == sympy.true
        parts = of_extrema(condition)
        if parts is not None:
            enough, comparisons = parts
            return enough(self.proves(comparison) for comparison in comparisons)
        difference = self.normal(condition.lhs - condition.rhs)
        if self.compares(difference, condition):
            return True
        split = self.to_split(difference)
        if split is None:
            return False
        return all(case.proves(condition) for case in self.cases(*split))

    def compares(self, difference: sympy.Expr, condition: sympy.Basic) -> bool:
        """Whether the difference of both sides of a condition is proven to be as it says."""
        match condition:
            case sympy.Eq():
                return difference == 0
            case sympy.Ne():
                return self.is_nonnegative(difference - 1) or self.is_nonnegative(-difference - 1)
            case sympy.Ge():
                return self.is_nonnegative(difference)
            case sympy.Gt():
                return self.is_nonnegative(difference - 1)
            case sympy.Le():
                return self.is_nonnegative(-difference)
            case sympy.Lt():
                return self.is_nonnegative(-difference - 1)
        return False

    def is_nonnegative(self, difference: sympy.Expr) -> bool:
        """Whether a whole number is proven to be at least 0."""
        difference = sympy.expand(difference)
        return any(
            least is not None and least > -1
            for least in (self.bounds(difference)[0], self.linear(difference))
        )

    # ---- what a condition that holds tells

    def knowing(self, given: sympy.Basic) -> Proof:
        """What is known besides where *given* holds: which sizes are multiples, or leave a rest; nothing else is read of it."""
        if not isinstance(given, sympy.Eq):
            return self
        left, right = given.args
        if isinstance(left, (Mod, PythonMod)) and right.is_Integer:
            return self.knowing_rest(*left.args, right)
        found = self
        for factor in self.multiples(*given.args) or self.multiples(right, left):
            found = found.knowing_rest(*factor, sympy.Integer(0))
        return found

    def knowing_rest(self, number: sympy.Expr, divisor: sympy.Expr, rest: sympy.Expr) -> Proof:
        """What is known besides where ``number % divisor == rest``."""
        try:
            difference = self.normal(number - rest)
        except Unproven:
            return self
        symbols = difference.free_symbols
        if len(symbols) != 1 or not divisor.is_Integer or divisor <= 0 or difference.has(Floor):
            return self
        (variable,) = symbols
        if sympy.degree(difference, variable) != 1:
            return self
        factor, constant = difference.coeff(variable, 1), difference.coeff(variable, 0)
        common = sympy.gcd(factor, divisor)
        if constant % common:
            return self
        step = divisor // common
        if step == 1:
            return self
        first = -constant // common * sympy.mod_inverse(factor // common, step) % step
        case = next(self.cases(variable, step, [first]), None)
        if case is None:
            raise Unproven(divisor)  # what is known excludes each other
        return case

    def multiples(self, left: sympy.Expr, right: sympy.Expr) -> list[tuple[sympy.Symbol, sympy.Integer]]:
        """The sizes, and what they are multiples of, where ``6*s0*s1 == 24*(s0//2)*(s1//2)``: no factor may be 0."""
        before, after = left.as_powers_dict(), right.as_powers_dict()
        quotients = {part: part.args for part in after if isinstance(part, FloorDiv) and part not in before}
        if not quotients:
            return []
        product = sympy.Integer(1)
        for part, (symbol, divisor) in quotients.items():
            if not (symbol.is_Symbol and divisor.is_Integer and divisor > 1 and after[part] == 1):
                return []
            product *= symbol / divisor
        rest = left / right * sympy.Mul(*quotients) / product
        factors = {*before, *after} - set(quotients)
        if sympy.cancel(rest) != 1:
            return []
        for factor in factors:
            try:
                if not self.is_nonnegative(self.normal(factor) - 1):
                    return []
            except Unproven:
                return []
        return list(quotients.values())

    # ---- telling cases apart

    def cases(self, variable: sympy.Symbol, divisor: sympy.Integer, rests: Iterable[int]) -> Iterator[Proof]:
        """What is known where a variable has each of these rests, without those that its range excludes."""
        for rest in rests:
            values, largest = self.values, dict(self.largest)
            quotient = sympy.Dummy(variable.name, integer=True, nonnegative=True)
            if variable in largest:
                largest[quotient] = (largest[variable] - rest) // divisor
                if largest[quotient] < 0:
                    continue
            put = {variable: divisor * quotient + rest}
            values = {symbol: value.xreplace(put) for symbol, value in values.items()}
            yield Proof(values, largest, self.steps)

    def to_split(self, difference: sympy.Expr) -> tuple[sympy.Symbol, sympy.Integer, range] | None:
        """The variable whose remainders tell a quotient in *difference*, with the divisor; None when there is none."""
        found = [
            (int(divisor // sympy.gcd(number.coeff(variable, 1), divisor)), variable.name, variable)
            for number, divisor in (atom.args for atom in difference.atoms(Floor))
            if divisor.is_Integer
            for variable in number.free_symbols
            if number.is_polynomial(variable)
        ]
        found = [entry for entry in found if 1 < entry[0] <= CASES]
        if not found:
            return None
        count, _, variable = min(found, key=lambda entry: entry[:2])
        return variable, sympy.Integer(count), range(count)

    # ---- the one form

    def normal(self, expression: sympy.Expr) -> sympy.Expr:
        """A polynomial in variables and in `Floor`. Raises Unproven for other terms, and beyond `STEPS`."""
        if next(self.steps) > STEPS:
            raise Unproven(expression)
        if expression.is_Integer:
            return expression
        if expression in self.values:
            return sympy.expand(self.values[expression])
        parts = [self.normal(part) for part in expression.args]
        match expression:
            case sympy.Add() | sympy.Mul():
                return sympy.expand(expression.func(*parts))
            case sympy.Pow() if parts[1].is_Integer and parts[1] >= 0:
                return sympy.expand(parts[0] ** parts[1])
            case FloorDiv():
                return self.quotient(*parts)
            case Mod() | PythonMod():
                number, divisor = parts
                return sympy.expand(number - divisor * self.quotient(number, divisor))
            case Min() | Max():
                return self.extremum(expression.func, parts)
        raise Unproven(expression)

    def extremum(self, function: type, parts: list[sympy.Expr]) -> sympy.Expr:
        """The one that is proven to be the least or the largest. Raises Unproven when none is."""
        sign = 1 if function is Min else -1
        for part in parts:
            if all(self.is_nonnegative(sign * (other - part)) for other in parts):
                return part
        raise Unproven(function)

    def quotient(self, number: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr:
        """The floor of a quotient. Raises Unproven when the divisor is not proven to be positive."""
        if next(self.steps) > STEPS:
            raise Unproven(number)
        if not self.is_nonnegative(divisor - 1):
            raise Unproven(divisor)
        if not divisor.is_Integer:
            found = self.quotient_of_polynomials(number, divisor)
            return Floor(number, divisor) if found is None else found
        terms = number.as_coefficients_dict()
        constant = terms.pop(sympy.S.One, sympy.S.Zero)
        if not all(factor.is_Integer for factor in (constant, *terms.values())):
            raise Unproven(number)
        common = math.gcd(*map(int, terms.values()), int(divisor))
        divisor, constant = divisor // common, constant // common
        whole, rest = constant // divisor, constant % divisor
        for term, factor in terms.items():
            # the nearest, so that the rest is small
            part = (2 * (factor // common) + divisor - 1) // (2 * divisor)
            whole, rest = whole + part * term, rest + (factor // common - part * divisor) * term
        if rest.is_Integer:
            return whole
        if self.is_nonnegative(rest) and self.is_nonnegative(divisor - 1 - rest):
            return whole
        return whole + self.floor(rest, divisor)

    def floor(self, rest: sympy.Expr, divisor: sympy.Integer) -> sympy.Expr:
        """A floor whose quotient is smaller than 1 in each term: of a nested one the inner number, its first term is positive."""
        terms = rest.as_coefficients_dict()
        constant = terms.pop(sympy.S.One, sympy.S.Zero)
        first = min(terms, key=str)
        if terms[first] < 0:  # the floor of -n / d is minus that of (n + d - 1) / d
            return -self.quotient(sympy.expand(divisor - 1 - rest), divisor)
        if len(terms) == 1 and terms[first] == 1 and isinstance(first, Floor) and first.args[1].is_Integer:
            inner, step = first.args
            return self.quotient(sympy.expand(inner + constant * step), divisor * step)
        return Floor(rest, divisor)

    def quotient_of_polynomials(self, number: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr | None:
        """The polynomial that the floor of a quotient is proven to be, None when none is found."""
        generators = sorted(
            {*number.free_symbols, *divisor.free_symbols, *number.atoms(Floor), *divisor.atoms(Floor)},
            key=str,
        )
        found, _ = sympy.div(number, divisor, *generators, domain="QQ")
        if any(not factor.is_Integer for factor in found.as_coefficients_dict().values()):
            return None
        for shift in (0, -1, 1):
            rest = sympy.expand(number - (found + shift) * divisor)
            if rest == 0 or (self.is_nonnegative(rest) and self.is_nonnegative(divisor - 1 - rest)):
                return found + shift
        return None

    # ---- bounds

    def bounds(self, number: sympy.Expr) -> Bounds:
        """The bounds of a polynomial, each term on its own."""
        least, largest = sympy.S.Zero, sympy.S.Zero
        for term, factor in number.as_coefficients_dict().items():
            low, high = self.bounds_of_term(term)
            if factor < 0:
                low, high = high, low
            least = None if least is None or low is None else least + factor * low
            largest = None if largest is None or high is None else largest + factor * high
        return least, largest

    def bounds_of_term(self, term: sympy.Expr) -> Bounds:
        """The bounds of a product of variables and quotients."""
        if next(self.steps) > STEPS:
            raise Unproven(term)
        if term.is_Integer:
            return term, term
        if term.is_Symbol:
            return sympy.S.Zero, self.largest.get(term)
        if isinstance(term, Floor):
            if not term.args[1].is_Integer:
                return None, None
            low, high = self.bounds(term.args[0])
            divisor = term.args[1]
            return (None if low is None else sympy.floor(low / divisor)), (
                None if high is None else sympy.floor(high / divisor)
            )
        least, largest = sympy.S.One, sympy.S.One
        for part, power in term.as_powers_dict().items():
            low, high = self.bounds_of_term(part)
            if low is None or low < 0:
                return None, None
            least *= low**power
            largest = None if largest is None or high is None else largest * high**power
        return least, largest

    def linear(self, number: sympy.Expr) -> sympy.Rational | None:
        """The least value of a polynomial whose quotients are exact ones less a rest, None when none is known."""
        largest = dict(self.largest)
        while atoms := number.atoms(Floor):
            atom = max(atoms, key=lambda atom: (len(str(atom)), str(atom)))  # the outer one first
            part, divisor = atom.args
            if not divisor.is_Integer:
                return None
            rest = sympy.Dummy(integer=True, nonnegative=True)
            largest[rest] = divisor - 1
            number = sympy.expand(number.xreplace({atom: (part - rest) / divisor}))
        return Proof({}, largest, self.steps).bounds(number)[0]
