"""Random small programs of views, overlapping views, writes in place, mixed dtypes, reductions and indexing: the same as eager.

A step is drawn on the tensors that the steps before gave in eager, and kept when eager takes it. All tensors are outputs:
what a write did to a base, to a view of it or to a copy is seen there.
"""

import copy
import os
import unittest
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from experimental_experiment.comparison import compare, session
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.export_options import CapturedOnce

EXAMPLES = int(os.environ.get("PROGRAMS", "60"))
"""Programs of a run; the fixed part of CI runs 60, always the same ones."""

MOST_ELEMENTS, MOST_AXES = 300, 5
DTYPES = (torch.float32, torch.float32, torch.int64, torch.bool, torch.float64, torch.int32, torch.float16)
NUMBERS = (2, -1, 0, 0.5, -1.5, 3.0, True)
REFUSED = (
    "writes a view that shows an element of the memory twice",
    "as_strided of a tensor of symbolic sizes that is not contiguous",
    "as_strided reads elements of the memory that the tensor does not have",
)
"""What the exporter may answer instead of a model, see `tests.known_failures`."""

Step = tuple[str, tuple[int, ...], Callable]


class Program(torch.nn.Module):
    """Runs steps: each takes tensors by their positions and gives a new one, or writes into the first and gives None."""

    def __init__(self, copies: bool):
        super().__init__()
        self.copies = copies
        self.steps: list[Step] = []

    def forward(self, *inputs):
        """All tensors at the end."""
        values = [x.clone() for x in inputs] if self.copies else list(inputs)
        for _, places, function in self.steps:
            result = function(*(values[place] for place in places))
            if result is not None:
                values.append(result)
        return values

    def __repr__(self) -> str:
        lines = [f"{'v' + ', v'.join(map(str, places))}: {text}" for text, places, _ in self.steps]
        return "\n".join([f"copies of the inputs: {self.copies}", *lines])


class Drawing:
    """Draws the steps of a program; `values` are the tensors that it has in eager so far."""

    def __init__(self, draw: Callable, inputs: Sequence[torch.Tensor]):
        self.draw = draw
        self.program = Program(self.pick(True, True, False))
        self.inputs = [x.clone() for x in inputs]

    def pick(self, *choices: Any) -> Any:
        """One of these."""
        return self.draw(st.sampled_from(choices))

    def values(self) -> list[torch.Tensor]:
        """The tensors after the steps."""
        return self.program(*(x.clone() for x in self.inputs))

    def step(self) -> None:
        """One more step, or none when eager refuses what was drawn."""
        values = self.values()
        place = self.draw(st.integers(0, len(values) - 1))
        x = values[place]
        kind = self.pick(self.view, self.view, self.write, self.write, self.pair, self.reduce, self.index)
        drawn = kind(x, values)
        if drawn is None:
            return
        text, others, function = drawn
        self.program.steps.append((text, (place, *others), function))
        try:
            result = self.values()[-1]
        except (RuntimeError, IndexError, ValueError, TypeError):
            self.program.steps.pop()
            return
        if result.numel() > MOST_ELEMENTS or result.dim() > MOST_AXES:
            self.program.steps.pop()

    def axis(self, x: torch.Tensor) -> int:
        """An axis, from either end."""
        return self.draw(st.integers(-x.dim(), x.dim() - 1))

    # ---- what a step may be: its text, the places of other tensors, the function

    def view(self, x: torch.Tensor, values: list) -> tuple | None:
        """A view, or a copy where memory does not allow one."""
        if not x.dim():
            return self.pick(
                ("unsqueeze(0)", (), lambda v: v.unsqueeze(0)), ("expand(2, 3)", (), lambda v: v.expand(2, 3))
            )
        a, b, n = self.axis(x), self.axis(x), x.shape[self.axis(x)]
        size, step = self.pick(1, 2, 3), self.pick(1, 2)
        first, last = self.pick(0, 1, -2, None), self.pick(None, 2, -1, 9)
        at = self.pick(0, -1, 1)
        order = self.draw(st.permutations(range(x.dim())))
        return self.pick(
            (f"transpose({a}, {b})", (), lambda v: v.transpose(a, b)),
            (f"permute({order})", (), lambda v: v.permute(order)),
            (f"select({a}, {at})", (), lambda v: v.select(a, at)),
            (f"[{first}:{last}:{step}]", (), lambda v: v[first:last:step]),
            (f"[..., {first}:{last}:{step}]", (), lambda v: v[..., first:last:step]),
            (f"unsqueeze({a})", (), lambda v: v.unsqueeze(a)),
            (f"squeeze({a})", (), lambda v: v.squeeze(a)),
            ("reshape(-1)", (), lambda v: v.reshape(-1)),
            (f"flatten({a})", (), lambda v: v.flatten(a)),
            (f"unflatten({a}, (-1, {size}))", (), lambda v: v.unflatten(a, (-1, size))),
            (f"expand({size}, ...)", (), lambda v: v.expand(size, *v.shape)),
            (f"diagonal({at}, {a}, {b})", (), lambda v: v.diagonal(at, a, b)),
            (f"unfold({a}, {size}, {step})", (), lambda v: v.unfold(a, size, step)),
            (f"split({size}, {a})[{at}]", (), lambda v: v.split(size, a)[at]),
            (f"chunk({size}, {a})[{at}]", (), lambda v: v.chunk(size, a)[at]),
            (f"movedim({a}, {b})", (), lambda v: v.movedim(a, b)),
            (f"narrow({a}, 0, {size})", (), lambda v: v.narrow(a, 0, size)),
            ("as_strided((2, 2), (1, 2))", (), lambda v: v.as_strided((2, 2), (1, 2))),
            ("contiguous()", (), lambda v: v.contiguous()),
            ("detach()", (), lambda v: v.detach()),
            (f"unbind({a})[{at}]", (), lambda v: v.unbind(a)[at]),
            (f"swapaxes, flip({a})", (), lambda v: v.flip(a)),
            (f"roll({n}, {a})", (), lambda v: v.roll(n, a)),
        )

    def write(self, x: torch.Tensor, values: list) -> tuple | None:
        """A write in place, which gives nothing."""
        number = self.pick(*NUMBERS)
        other = self.draw(st.integers(0, len(values) - 1))
        at, step = self.pick(0, -1, 1), self.pick(1, 2)

        def written(write: Callable) -> Callable:
            def function(v, *others):
                write(v, *others)

            return function

        def item(v, index, value):
            v[index] = value

        return self.pick(
            (f"add_({number})", (), written(lambda v: v.add_(number))),
            (f"mul_({number})", (), written(lambda v: v.mul_(number))),
            (f"fill_({number})", (), written(lambda v: v.fill_(number))),
            ("neg_()", (), written(lambda v: v.neg_())),
            ("abs_()", (), written(lambda v: v.abs_())),
            ("relu_()", (), written(lambda v: torch.relu_(v))),
            (f"clamp_({number}, 3)", (), written(lambda v: v.clamp_(number, 3))),
            (f"add_(v{other})", (other,), written(lambda v, w: v.add_(w))),
            (f"sub_(v{other}, alpha=2)", (other,), written(lambda v, w: v.sub_(w, alpha=2))),
            (f"mul_(v{other})", (other,), written(lambda v, w: v.mul_(w))),
            (f"copy_(v{other})", (other,), written(lambda v, w: v.copy_(w))),
            (
                f"masked_fill_(v > 0, {number})",
                (),
                written(lambda v: v.masked_fill_(v > 0, number)),
            ),
            (
                f"masked_fill_(v{other} > 0, {number})",
                (other,),
                written(lambda v, w: v.masked_fill_(w > 0, number)),
            ),
            (f"[{at}] = {number}", (), written(lambda v: item(v, at, number))),
            (f"[..., {at}] = v{other}", (other,), written(lambda v, w: item(v, (..., at), w))),
            (f"[::{step}] = v{other}", (other,), written(lambda v, w: item(v, slice(None, None, step), w))),
            (f"[v < 1] = {number}", (), written(lambda v: item(v, v < 1, number))),
            (
                f"[tensor([0, {at}])] = {number}",
                (),
                written(lambda v: item(v, torch.tensor([0, at]), number)),
            ),
            (
                f"index_add_(0, [0, 0], v[:2] of v{other})",
                (other,),
                written(lambda v, w: v.index_add_(0, torch.tensor([0, 0]), w[:2])),
            ),
            ("squeeze_()", (), written(lambda v: v.squeeze_())),
            ("cumsum_(0)", (), written(lambda v: v.cumsum_(0))),
            ("zero_() of a view", (), written(lambda v: v.view(-1)[::2].zero_())),
        )

    def pair(self, x: torch.Tensor, values: list) -> tuple | None:
        """Arithmetic of two tensors, or of one and a number."""
        number, other = self.pick(*NUMBERS), self.draw(st.integers(0, len(values) - 1))
        dtype = self.pick(*DTYPES)
        return self.pick(
            (f"+ v{other}", (other,), lambda v, w: v + w),
            (f"- v{other}", (other,), lambda v, w: v - w),
            (f"* v{other}", (other,), lambda v, w: v * w),
            (f"maximum(v{other})", (other,), torch.maximum),
            (f"where(v > w, v, w) of v{other}", (other,), lambda v, w: torch.where(v > w, v, w)),
            (f"== v{other}", (other,), lambda v, w: v == w),
            (f"lerp with v{other}", (other,), lambda v, w: torch.lerp(v, w, 0.5)),
            (f"* {number}", (), lambda v: v * number),
            (f"{number} - v", (), lambda v: number - v),
            (f"v // 2 + {number}", (), lambda v: v // 2 + number),
            (f"v % 3 - {number}", (), lambda v: v % 3 - number),
            (f"/ {number or 2}", (), lambda v: v / (number or 2)),
            (f"to({dtype})", (), lambda v: v.to(dtype)),
            ("clone()", (), lambda v: v.clone()),
            (f"cat with v{other}", (other,), lambda v, w: torch.cat([v, w], 0)),
            (f"stack with v{other}", (other,), lambda v, w: torch.stack([v, w], -1)),
            (f"@ v{other}", (other,), lambda v, w: v @ w),
            (f"@ v{other}.T", (other,), lambda v, w: v @ w.transpose(-1, -2)),
        )

    def reduce(self, x: torch.Tensor, values: list) -> tuple | None:
        """A reduction, or a scan."""
        if not x.dim():
            return None
        a, keep = self.axis(x), self.draw(st.booleans())
        return self.pick(
            (f"sum({a}, {keep})", (), lambda v: v.sum(a, keep)),
            (f"mean({a}, {keep})", (), lambda v: v.mean(a, keep)),
            (f"amax({a}, {keep})", (), lambda v: v.amax(a, keep)),
            (f"amin({a}, {keep})", (), lambda v: v.amin(a, keep)),
            (f"any({a})", (), lambda v: v.any(a)),
            (f"all({a})", (), lambda v: v.all(a)),
            (f"cumsum({a})", (), lambda v: v.cumsum(a)),
            (f"argmax({a}) of the positions", (), lambda v: v.argmax(a, keep)),
            (f"softmax({a})", (), lambda v: v.softmax(a)),
            (f"prod({a})", (), lambda v: v.prod(a)),
            (f"sort({a})", (), lambda v: v.sort(a).values),
            ("sum()", (), lambda v: v.sum()),
        )

    def index(self, x: torch.Tensor, values: list) -> tuple | None:
        """Elements by their positions."""
        if not x.dim():
            return None
        a, at = self.axis(x), self.pick(0, -1, 1)
        places = torch.tensor([1, 0, 1])
        return self.pick(
            (f"index_select({a}, [1, 0, 1])", (), lambda v: v.index_select(a, places)),
            ("[[1, 0, 1]]", (), lambda v: v[places]),
            ("[..., [1, 0, 1]]", (), lambda v: v[..., places]),
            (f"[[1, 0, 1], {at}]", (), lambda v: v[places, at]),
            ("[[[1], [0]], [1, 0, 1]]", (), lambda v: v[places[:2, None], places]),
            (f"[None, {at}, ..., None]", (), lambda v: v[None, at, ..., None]),
            (
                f"take_along_dim(argsort({a}), {a})",
                (),
                lambda v: v.take_along_dim(v.argsort(a, stable=True), a),
            ),
            (f"gather({a}, ...)", (), lambda v: v.gather(a, (v > 0).long() * 0)),
            ("tril()", (), lambda v: v.tril()),
            (f"repeat_interleave(2, {a})", (), lambda v: v.repeat_interleave(2, a)),
        )


def numbers(draw: Callable, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of small numbers: halves, whole numbers, booleans."""
    seed = draw(st.integers(0, 1000))
    drawn = torch.randint(-6, 7, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return drawn > 0 if dtype == torch.bool else (drawn / 2 if dtype.is_floating_point else drawn).to(dtype)


class TestPrograms(unittest.TestCase):
    """Exported with static and with dynamic sizes."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize="PROGRAMS" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def test_random_programs(self, data):
        draw = data.draw
        shapes = draw(st.sampled_from([((4, 3), (3,)), ((2, 3, 4), (3, 4)), ((6,), (1, 6)), ((2, 2, 3), ())]))
        dtypes = [draw(st.sampled_from(DTYPES)) for _ in shapes]
        inputs = tuple(numbers(draw, shape, dtype) for shape, dtype in zip(shapes, dtypes))
        drawing = Drawing(draw, inputs)
        for _ in range(draw(st.integers(1, 9))):
            drawing.step()
        program = drawing.program
        assume(program.steps)
        is_dynamic = draw(st.booleans())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assert_as_eager(program, inputs, is_dynamic)

    def assert_as_eager(self, program: Program, inputs: tuple, is_dynamic: bool) -> None:
        """The model gives what eager gives, on the example and, where its sizes are dynamic, on a longer one."""
        axes = None
        if is_dynamic:
            axes = (tuple({axis: torch.export.Dim.AUTO for axis in range(x.dim())} for x in inputs),)
        captured = CapturedOnce(ExportOptions())
        try:
            model = to_onnx(
                copy.deepcopy(program), copy.deepcopy(inputs), dynamic_shapes=axes, export_options=captured
            )
        except CaptureError:
            return
        except ExportError as error:
            if any(words in str(error) for words in REFUSED):
                return
            raise AssertionError(f"{error}\n{program}\n{[x.dtype for x in inputs]}") from error
        runner = session(model)
        calls = [inputs]
        if is_dynamic:
            calls.append(longer(model, inputs))
        for call in calls:
            try:
                captured.program.module()(*copy.deepcopy(call))
            except (RuntimeError, IndexError, AssertionError):
                continue  # eager refuses the longer tensors, or a guard of torch.export does
            for found in compare(copy.deepcopy(program), runner, copy.deepcopy(call)):
                self.assertTrue(found.within, f"{found}\n{program}\n{[(x.dtype, x.shape) for x in call]}")


def longer(model, inputs: tuple) -> tuple:
    """Tensors that are longer by one along the axes that are dynamic in the model: equal sizes stay equal."""
    declared = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    changed = []
    for x, dims in zip(inputs, declared.values()):
        for axis, dim in enumerate(dims):
            if dim.dim_param:
                x = torch.cat([x, x.narrow(axis, 0, 1)], axis)
        changed.append(x)
    return tuple(changed)


if __name__ == "__main__":
    unittest.main()
