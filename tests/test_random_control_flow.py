"""Random nestings of cond, while_loop, scan and map: the same as Python's own branches and loops.

The body of one holds others, captures tensors, sizes and a buffer from outside, carries several dtypes and writes into copies.
All numbers are halves of small numbers, so that every sum, product and comparison is exact.
"""

from __future__ import annotations

import random
import unittest
from collections.abc import Sequence

import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as torch_map

from tests.properties import RandomPrograms, Written, numbers

Kind = tuple[str, tuple]
"""Dtype and axes of a tensor: an axis is ``n``, which may be dynamic, or 4."""

AXES = ((), (4,), ("n",), ("n", 4), (4, "n"))
DTYPES = ("float32", "float32", "int64", "bool", "float64", "int32")
DEEPEST, MOST_REGIONS = 3, 4


def tidy(x: torch.Tensor) -> torch.Tensor:
    """Small halves again, whatever a region made: a tensor of its own, as the results of regions must be."""
    if x.is_floating_point():
        return torch.floor(x * 2).clamp(-16, 16) / 2
    return ~x if x.dtype == torch.bool else x % 7


def plain_cond(pred, true_fn, false_fn, operands):
    """torch.cond as Python says it."""
    return (true_fn if pred else false_fn)(*operands)


def plain_while_loop(cond_fn, body_fn, carried):
    """while_loop as Python says it."""
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def plain_scan(combine_fn, init, xs, dim=0, reverse=False):
    """scan as Python says it: results are stacked along *dim* where they have it, along their first axis otherwise."""
    rows = list(zip(*(x.unbind(dim) for x in xs)))
    stacked = []
    for row in reversed(rows) if reverse else rows:
        init, results = combine_fn(init, row)
        stacked.append(results)
    stacked = [torch.stack(column) for column in zip(*(reversed(stacked) if reverse else stacked))]
    return init, [y.movedim(0, dim) if dim < y.dim() else y for y in stacked]


def plain_map(f, xs, *args):
    """map as Python says it."""
    columns = zip(*(f(row, *args) for row in zip(*(x.unbind(0) for x in xs))))
    return [torch.stack(column) for column in columns]


OF_TORCH = {"cond": torch.cond, "while_loop": while_loop, "scan": scan, "map": torch_map}
OF_PYTHON = {"cond": plain_cond, "while_loop": plain_while_loop, "scan": plain_scan, "map": plain_map}


class Drawing:
    """Writes a program: every variable has a kind, which the names of the functions of torch do not change by surprise."""

    def __init__(self, random: random.Random):
        self.random = random
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0
        self.regions = 0

    def write(self, line: str) -> None:
        """A line at the depth of the current function."""
        self.lines.append("    " * self.depth + line)

    def fresh(self, letter: str) -> str:
        """A new name."""
        self.count += 1
        return f"{letter}{self.count}"

    def kind(self, axes: Sequence[tuple] = AXES) -> Kind:
        """Any kind, with one of these axes."""
        return self.random.choice(DTYPES), self.random.choice(axes)

    def program(self, kinds: Sequence[Kind]) -> str:
        """The source of a forward of tensors of these kinds, the first one with an axis ``n``."""
        names = [self.fresh("x") for _ in kinds]
        self.write(f"def forward(self, {', '.join(names)}):")
        self.depth += 1
        self.write(f"n = {names[0]}.shape[{kinds[0][1].index('n')}]")
        self.write("m = self.m")
        variables = dict(zip(names, kinds))
        self.statements(variables, self.random.randint(2, 5), self.region)
        results = [name for name in variables if name not in names]
        self.write(f"return {', '.join(f'tidy({name})' for name in results)},")
        return "\n".join(self.lines)

    def statements(self, variables: dict[str, Kind], count: int, *always) -> None:
        """Write statements, which add variables."""
        kinds = [self.step, self.step, self.written]
        if self.depth <= DEEPEST:
            kinds += [self.region, self.region]
        for statement in [*(self.random.choice(kinds) for _ in range(count)), *always]:
            statement(variables)

    # ---- expressions

    def expression(self, variables: dict[str, Kind], kind: Kind) -> str:
        """An expression of this kind: a variable, converted, or two."""
        first = self.operand(variables, kind)
        if self.random.random() < 0.5:
            return first
        return self.combined(kind, first, self.operand(variables, kind))

    def operand(self, variables: dict[str, Kind], kind: Kind) -> str:
        """A variable as a tensor of this kind."""
        near = [name for name in variables if variables[name][1] == kind[1]]
        name = self.random.choice(near if near and self.random.random() < 0.6 else list(variables))
        dtype, axes = variables[name]
        text = name
        if dtype != kind[0]:
            text += f".to(torch.{kind[0]})"
        for axis in axes:
            if axis not in kind[1]:
                text, axes = self.without(text, kind[0], axes, axis)
        for axis in kind[1]:
            if axis not in axes:
                sizes = ", ".join(map(str, (axis, *axes)))
                text, axes = f"{text}.expand({sizes})", (axis, *axes)
        return text if axes == kind[1] else self.random.choice((f"{text}.t()", f"{text}.transpose(0, 1)"))

    def without(self, text: str, dtype: str, axes: tuple, axis) -> tuple[str, tuple]:
        """The expression without an axis."""
        at = axes.index(axis)
        ways = [f"select({at}, {self.random.choice((0, -1))})", f"amax({at})"]
        if dtype != "bool":
            ways += [f"sum({at}).to(torch.{dtype})", f"amin({at})"]
        return f"{text}.{self.random.choice(ways)}", axes[:at] + axes[at + 1 :]

    def combined(self, kind: Kind, a: str, b: str) -> str:
        """Arithmetic of two expressions of this kind, or of one."""
        dtype, axes = kind
        ways = [f"torch.where({a} > {b}, {a}, {b})", f"torch.maximum({a}, {b})"]
        if dtype == "bool":
            ways += [f"({a} & {b})", f"({a} | {b})", f"({a} ^ {b})", f"(~{a})", f"({a} == {b})"]
        else:
            number = self.random.choice((-1, 2, 3))
            ways += [f"({a} + {b})", f"({a} - {b})", f"({a} * {number})", f"({number} - {a})", f"{a}.abs()"]
            ways += [f"{a}.clamp(-2, 3)", f"torch.where({a} > 1, {a}, -1).to(torch.{dtype})"]
        if "int" in dtype:
            ways += [f"({a} // 2)", f"({a} % 3)"]
        if axes:
            at = self.random.randrange(len(axes))
            ways += [f"{a}.flip({at})", f"{a}.roll(1, {at})", f"{a}.reshape(-1).view({a}.shape)"]
            ways += [f"torch.cat([{a}.narrow({at}, 0, 1), {b}], {at}).narrow({at}, 1, {axes[at]})"]
            if dtype != "bool":
                ways += [f"{a}.cumsum({at}).to(torch.{dtype})", f"{a}.sort({at}).values"]
        if axes == ("n", 4) and dtype == "float32":
            ways += [f"({a} @ m)"]
        return self.random.choice(ways)

    # ---- statements

    def step(self, variables: dict[str, Kind]) -> None:
        """A new variable."""
        kind, name = self.kind(), self.fresh("v")
        self.write(f"{name} = tidy({self.expression(variables, kind)})")
        variables[name] = kind

    def written(self, variables: dict[str, Kind]) -> None:
        """A copy that is written in place, through a view or not."""
        kind, name = self.kind(), self.fresh("w")
        self.write(f"{name} = {self.expression(variables, kind)}.clone()")
        value = self.random.choice(("True",) if kind[0] == "bool" else ("1", "2", "-3"))
        ways = [f"{name}.fill_({value})", f"{name}.copy_({self.expression(variables, kind)})"]
        ways += [f"{name}.masked_fill_({self.expression(variables, ('bool', kind[1]))}, {value})"]
        if kind[0] != "bool":
            ways += [f"{name}.add_({self.expression(variables, kind)})", f"{name}.mul_({value})"]
        if kind[1]:
            at = self.random.randrange(len(kind[1]))
            axes = kind[1][:at] + kind[1][at + 1 :]
            row = self.expression(variables, (kind[0], axes))
            ways += [f"{name}.select({at}, -1).copy_({row})", f"{name}.narrow({at}, 0, 1).fill_({value})"]
            ways += [f"{name}[..., 0] = {value}", f"{name}[::2] = {value}"]
        self.write(self.random.choice(ways))
        variables[name] = kind

    def region(self, variables: dict[str, Kind]) -> None:
        """One control flow operator."""
        if self.regions < MOST_REGIONS:
            self.regions += 1
            self.random.choice((self.cond, self.while_loop, self.scan, self.map))(variables)

    def body(self, letter: str, parameters: Sequence[str], seen: dict[str, Kind]) -> str:
        """Write a function that sees these variables, all but its return."""
        name = self.fresh(letter)
        self.write(f"def {name}({', '.join(parameters)}):")
        self.depth += 1
        self.statements(seen, self.random.randint(0, 2))
        return name

    def results(self, seen: dict[str, Kind], kinds: Sequence[Kind]) -> str:
        """Expressions of these kinds, each a tensor of its own."""
        return "".join(f"tidy({self.expression(seen, kind)}), " for kind in kinds)

    def some(self, variables: dict[str, Kind], most: int) -> list[str]:
        """Some of the variables."""
        return self.random.sample(list(variables), min(self.random.randint(0, most), len(variables)))

    def cond(self, variables: dict[str, Kind]) -> None:
        """Two functions of some variables; the predicate is a tensor, or a question about a size."""
        operands = self.some(variables, 2)
        kinds = [self.kind() for _ in range(self.random.randint(1, 2))]
        functions = []
        for letter in ("true", "false"):
            names = [self.fresh("a") for _ in operands]
            seen = variables | dict(zip(names, (variables[name] for name in operands)))
            functions.append(self.body(letter, names, seen))
            self.write(f"return {self.results(seen, kinds)}")
            self.depth -= 1
        pred = self.expression(variables, ("bool", ()))
        pred = self.random.choice((pred, pred, "n > 3", f"{self.expression(variables, ('int32', ()))} > 0"))
        given = "".join(f"{name}, " for name in operands)
        self.assigned(variables, kinds, f"cond({pred}, {', '.join(functions)}, ({given}))")

    def while_loop(self, variables: dict[str, Kind]) -> None:
        """A counter and other carries; the number of turns is known or comes from the data."""
        kinds = [self.kind() for _ in range(self.random.randint(1, 2))]
        start = self.results(variables, kinds)
        names = [self.fresh("c") for _ in kinds]
        limit, counter = self.fresh("limit"), self.fresh("i")
        turns = f"({self.expression(variables, ('int64', ()))}).abs() % 4"
        self.write(f"{limit} = {self.random.choice(('0', '1', '3', turns, turns))}")
        seen = variables | dict(zip(names, kinds))
        is_number = self.random.random() < 0.3
        if not is_number:
            seen[counter] = ("int64", ())
        parameters = [counter, *names]
        test = self.fresh("test")
        self.write(f"def {test}({', '.join(parameters)}):")
        more = "" if is_number else f" & {self.expression(seen, ('bool', ()))}.logical_not()"
        self.write(f"    return ({counter} < {limit}){self.random.choice(('', more))}")
        body = self.body("body", parameters, seen)
        self.write(f"return {counter} + 1, {self.results(seen, kinds)}")
        self.depth -= 1
        zero = "0" if is_number else "torch.tensor(0)"
        call = f"while_loop({test}, {body}, ({zero}, {start}))"
        self.assigned(variables, kinds, f"{call}[1:]")

    def scan(self, variables: dict[str, Kind]) -> None:
        """Carries and rows of one or two tensors, along any axis, forwards or backwards."""
        scanned = self.rows(variables, with_last=True)
        if not scanned:
            return
        axis, dim, xs, rows = scanned
        carries = [self.kind() for _ in range(self.random.randint(1, 2))]
        start = self.results(variables, carries)
        columns = [self.kind(self.beside(axis)) for _ in range(self.random.randint(1, 2))]
        names, letters = [self.fresh("c") for _ in carries], [self.fresh("r") for _ in rows]
        carry, row = self.fresh("carry"), self.fresh("row")
        seen = variables | dict(zip(names, carries)) | dict(zip(letters, rows))
        function = self.fresh("step")
        self.write(f"def {function}({carry}, {row}):")
        self.depth += 1
        self.write(f"{', '.join(names)}, = {carry}")
        self.write(f"{', '.join(letters)}, = {row}")
        self.statements(seen, self.random.randint(0, 2))
        self.write(f"return ({self.results(seen, carries)}), ({self.results(seen, columns)})")
        self.depth -= 1
        reverse = self.random.random() < 0.3
        last, stacked = self.fresh("last"), self.fresh("stacked")
        given = "".join(f"{x}, " for x in xs)
        call = f"scan({function}, ({start}), ({given}), dim={dim}, reverse={reverse})"
        self.write(f"{last}, {stacked} = {call}")
        self.assigned(variables, carries, last)
        kinds = [(dtype, self.stacked(axis, axes, dim)) for dtype, axes in columns]
        self.assigned(variables, kinds, stacked)

    def map(self, variables: dict[str, Kind]) -> None:
        """A function of the rows of one or two tensors, and of some variables."""
        scanned = self.rows(variables, with_last=False)
        if not scanned:
            return
        axis, _, xs, rows = scanned
        operands = self.some(variables, 1)
        columns = [self.kind(self.beside(axis)) for _ in range(self.random.randint(1, 2))]
        letters, names = [self.fresh("r") for _ in rows], [self.fresh("a") for _ in operands]
        seen = variables | dict(zip(letters, rows)) | dict(zip(names, (variables[name] for name in operands)))
        row = self.fresh("row")
        function = self.fresh("each")
        self.write(f"def {function}({', '.join([row, *names])}):")
        self.depth += 1
        self.write(f"{', '.join(letters)}, = {row}")
        self.statements(seen, self.random.randint(0, 2))
        self.write(f"return {self.results(seen, columns)}")
        self.depth -= 1
        # torch refuses rows of a tensor that the function sees as well
        given = "".join(f"{x}.clone(), " for x in xs)
        call = f"map({', '.join([function, f'({given})', *operands])})"
        self.assigned(variables, [(dtype, (axis, *axes)) for dtype, axes in columns], call)

    def rows(self, variables: dict[str, Kind], with_last: bool) -> tuple | None:
        """An axis, its position, one or two variables that have it there, and the kinds of their rows."""
        name = self.random.choice([name for name in variables if variables[name][1]] or [None])
        if name is None:
            return None
        dim = self.random.randrange(len(variables[name][1])) if with_last else 0
        axis = variables[name][1][dim]
        fitting = [other for other in variables if variables[other][1][dim : dim + 1] == (axis,)]
        xs = [name, *self.random.sample(fitting, self.random.randint(0, 1))]
        rows = [(dtype, axes[:dim] + axes[dim + 1 :]) for dtype, axes in map(variables.get, xs)]
        return axis, dim, xs, rows

    @staticmethod
    def beside(axis) -> list[tuple]:
        """The axes that a row may have beside this one."""
        return [axes for axes in AXES if len(axes) < 2 and axis not in axes]

    @staticmethod
    def stacked(axis, axes: tuple, dim: int) -> tuple:
        """The axes of stacked rows."""
        return (*axes[:dim], axis, *axes[dim:])

    def assigned(self, variables: dict[str, Kind], kinds: Sequence[Kind], call: str) -> None:
        """Variables for the results of a call."""
        names = [self.fresh("v") for _ in kinds]
        self.write(f"{', '.join(names)}, = {call}")
        variables |= dict(zip(names, kinds))


class TestControlFlow(RandomPrograms):
    """Exported with static and with dynamic sizes, run on other sizes, branches and numbers of turns."""

    EXAMPLES = 12

    def check(self, random: random.Random) -> bool:
        """Draw one, and compare."""
        kinds = [(random.choice(DTYPES), random.choice((("n",), ("n", 4), (4, "n"))))]
        kinds += [(random.choice(DTYPES), random.choice(AXES)) for _ in range(random.randint(0, 2))]
        source = Drawing(random).program(kinds)
        buffers = {"m": numbers(random, (4, 4), torch.float32)}
        program, eager = (
            Written(source, {"torch": torch, "tidy": tidy, **functions}, buffers)
            for functions in (OF_TORCH, OF_PYTHON)
        )
        is_dynamic = random.random() < 0.6
        calls = [
            tuple(numbers(random, [n if axis == "n" else 4 for axis in axes], getattr(torch, dtype)) for dtype, axes in kinds)
            for n in ((3, 5, 2, 1) if is_dynamic else (3, 3))
        ]  # fmt: skip
        shapes = tuple({at: "n" for at, axis in enumerate(axes) if axis == "n"} for _, axes in kinds)
        torch._dynamo.reset()  # what torch learnt of the sizes of one program is kept for the next one
        model = self.assert_as_eager(
            program,
            calls[0],
            others=[(call, {}) for call in calls[1:]],
            eager=eager,
            dynamic_shapes=shapes if is_dynamic else None,
        )
        return model is not None

    def test_random_nestings(self):
        self.assert_programs(self.check)


if __name__ == "__main__":
    unittest.main()
