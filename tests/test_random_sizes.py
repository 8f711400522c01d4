"""Random dynamic shapes: random networks of reshapes, splits, pads, products, convolutions and indexing over sizes of every kind.

Sizes are said in each form that torch.export takes: names, Dim with a range, Dim.DYNAMIC, Dim.AUTO, negative axes, nothing, a multiple
of another one. A model runs on the example and on sizes 1 and 2, larger ones, and those at the ends of the ranges.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import unittest
from collections.abc import Sequence

import onnx
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
from torch.export import Dim
from torch.nn import functional as F

from experimental_experiment.comparison import run, session, tensor_leaves
from experimental_experiment.torch_interpreter import ExportOptions
from experimental_experiment.torch_interpreter.export_options import CapturedOnce
from tests.properties import RandomPrograms, Written, numbers, told

MOST_ELEMENTS, MOST_AXES = 600, 5
REFUSES = (
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    AssertionError,
    NotImplementedError,
    ArithmeticError,
)
LARGEST = 9
"""The end of the ranges."""


class Drawing:
    """Draws the statements of a program on tensors; `values` are those of the example, by name."""

    def __init__(
        self, random: random.Random, inputs: Sequence[torch.Tensor], buffers: dict[str, torch.Tensor]
    ):
        self.random = random
        self.inputs = list(inputs)
        self.names = [f"x{k}" for k in range(len(inputs))]
        self.values = dict(zip(self.names, inputs))
        self.lines: list[str] = []
        self.namespace = {"torch": torch, "F": F}
        self.buffers = buffers

    def pick(self, *choices):
        """One of these."""
        return self.random.choice(choices)

    def source(self, results: str) -> str:
        """The program."""
        lines = [f"def forward(self, {', '.join(self.names)}):", *self.lines, f"return {results}"]
        return "\n    ".join(lines)

    def step(self) -> None:
        """One more variable, or none when eager refuses what was drawn."""
        name = self.random.choice(list(self.values))
        kind = self.pick(self.reshape, self.reshape, self.cut, self.cut, self.join, self.layer, self.index, self.index,
                         self.reduce, self.size, self.write)  # fmt: skip
        expression = kind(name, self.values[name])
        if expression is None:
            return
        new = f"v{len(self.lines)}"
        program = Written(
            self.source("").replace("return ", f"return {expression}"), self.namespace, self.buffers
        )
        try:
            value = program(*(x.clone() for x in self.inputs))
        except REFUSES:
            return
        if not isinstance(value, torch.Tensor) or value.numel() > MOST_ELEMENTS or value.dim() > MOST_AXES:
            return
        if not value.numel() or (value.is_floating_point() and not value.abs().amax() < 1e4):
            return
        self.lines.append(f"{new} = {expression}")
        self.values[new] = value

    def other(self, x: torch.Tensor) -> str:
        """Another variable, of the same rank when there is one."""
        same = [name for name, value in self.values.items() if value.dim() == x.dim()]
        return self.random.choice(same or list(self.values))

    def count(self, v: str, x: torch.Tensor) -> str:
        """Arithmetic of sizes."""
        a, b = (f"{v}.shape[{self.random.randrange(x.dim())}]" for _ in range(2))
        return self.pick(
            a, a, f"{a} + {b}", f"{a} * 2", f"{a} // 2", f"({a} + 1) // 2", f"{a} * {b}", f"-(-{a} // 3)", f"({a} - 1)",
            f"{a} % 3", f"{v}.numel()", f"torch.sym_max({a}, {b})", f"torch.sym_min({a}, 3)", f"({a} * 3 - {b}) // 2",
            f"int({a} / 2)", f"int({a} * 1.5)", f"(-{a}) % 4", f"len({v})",
        )  # fmt: skip

    # ---- what a variable may be: an expression, None for nothing

    def reshape(self, v: str, x: torch.Tensor) -> str | None:
        """The same elements in another shape."""
        if not x.dim():
            return f"{v}.reshape(1, 1)"
        a, b, rank = *(self.random.randrange(x.dim()) for _ in range(2)), x.dim()
        s = f"{v}.shape"
        order = self.random.sample(range(rank), rank)
        return self.pick(
            f"{v}.reshape({s}[0], -1)", f"{v}.reshape(-1, {s}[-1])", f"{v}.flatten({min(a, b)}, {max(a, b)})",
            f"{v}.reshape({s}[0] * {s}[{min(1, rank - 1)}], *{s}[2:])", f"{v}.unflatten({a}, (2, -1))", f"{v}.unflatten({a}, (-1, {s}[{a}]))",
            f"{v}.reshape(2, -1)", f"{v}.reshape(-1)", f"{v}.permute({order})", f"{v}.transpose({a}, {b})",
            f"{v}.unsqueeze({a})", f"{v}.squeeze({a})", f"{v}.expand(2, *{s})", f"{v}.repeat({', '.join(['2'] + ['1'] * (rank - 1))})",
            f"{v}.unsqueeze(0).expand({self.count(v, x)}, *{s})", f"{v}.reshape({s}[-1], -1)", f"{v}.movedim({a}, {b})",
            f"{v}.repeat_interleave(2, {a})", f"{v}.reshape({s}[{a}], -1).t()", f"{v}.view({s}[0], -1, 1)",
            f"{v}.reshape(-1, {s}[{a}], 2)", f"{v}.contiguous().view(-1, {s}[-1])", f"{v}.tile(({self.pick(1, 2)}, 2))",
        )  # fmt: skip

    def cut(self, v: str, x: torch.Tensor) -> str | None:
        """A part, or more by padding."""
        if not x.dim():
            return None
        a, n = self.random.randrange(x.dim()), self.count(v, x)
        s, first = f"{v}.shape[{a}]", ":, " * a
        at, few = self.pick(0, -1, 1), self.pick(1, 2, 3)
        mode = self.pick("constant", "reflect", "replicate", "circular")
        return self.pick(
            f"{v}.split({s} // 2, {a})[{at}]", f"{v}.split([1, {s} - 1], {a})[{at}]", f"{v}.chunk({few}, {a})[{at}]",
            f"torch.tensor_split({v}, {few}, {a})[{at}]", f"{v}.split({few}, {a})[0]", f"{v}.narrow({a}, 1, {s} - 1)",
            f"{v}[{first}1:]", f"{v}[{first}:-1]", f"{v}[{first}: {s} // 2]", f"{v}[{first}::{few}]", f"{v}[{first}{s} // 3:]",
            f"{v}[{first}-2:]", f"{v}[{first}:{few}]", f"{v}[{first}-({n}):]", f"{v}[{first}:{n}]", f"{v}.select({a}, {at})",
            f"{v}.select({a}, {s} // 2)", f"F.pad({v}, ({few}, {few - 1}))", f"F.pad({v}, (-1, {few}))",
            f"F.pad({v}, (0, (-{v}.shape[-1]) % 4))", f"F.pad({v}, (1, 1), mode='{mode}')", f"F.pad({v}, (0, {n}), value=0.5)",
            f"F.pad({v}, (1, 0, 0, {s}))", f"{v}.unfold({a}, 2, {few})", f"{v}.unbind({a})[0]", f"{v}.diagonal({self.pick(-1, 0, 1)}, 0, -1)",
            f"{v}[..., {at}]", f"{v}.as_strided(({s},), (1,))", f"{v}[{first}{s} - 1]", f"{v}.hsplit(2)[1]",
        )  # fmt: skip

    def join(self, v: str, x: torch.Tensor) -> str | None:
        """Several tensors."""
        w = self.other(x)
        a = self.random.randrange(max(x.dim(), 1))
        return self.pick(
            f"torch.cat([{v}, {w}], {a})", f"torch.cat([{v}, {v}[:1], {w}])", f"torch.stack([{v}, {w}], {a})", f"{v} + {w}", f"{v} * {w}",
            f"torch.maximum({v}, {w})", f"{v} @ {w}.mT", f"torch.matmul({v}, {w}.transpose(-1, -2))", f"torch.matmul({v}.mT, {w})",
            f"torch.einsum('...i,...j->...ij', {v}, {v})", f"torch.einsum('i...,i...->...', {v}, {w})", f"torch.outer({v}.reshape(-1)[:3], {w}.reshape(-1)[:4])",
            f"torch.where({v} > 0, {v}, {w})", f"{v} @ {w}.reshape(-1)[:{v}.shape[-1]]", f"torch.bmm({v}, {v}.mT)", f"F.linear({v}, {w})",
            f"torch.cartesian_prod({v}.reshape(-1)[:3], {w}.reshape(-1)[:2])", f"torch.tensordot({v}, {v}, dims=([{a}], [{a}]))",
            f"torch.block_diag({v}, {w})", f"torch.broadcast_to({v}, ({self.pick(1, 2)}, *{v}.shape))", f"torch.kron({v}, {w})",
        )  # fmt: skip

    def layer(self, v: str, x: torch.Tensor) -> str | None:
        """What networks are made of."""
        if x.dim() < 2 or not x.is_floating_point():
            return None
        s, w = f"{v}.shape", self.other(x)
        mode = self.pick("nearest", "nearest-exact", "linear" if x.dim() == 3 else "bilinear")
        few, flag = self.pick(1, 2), self.pick(True, False)
        common = [
            f"F.layer_norm({v}, {s}[-1:])", f"{v}.softmax({self.pick(0, 1, -1)})", f"F.normalize({v}, dim={self.pick(0, 1)})",
            f"F.scaled_dot_product_attention({v}, {v}, {v}, is_causal={flag})",
            f"F.scaled_dot_product_attention({v}, {w}, {w})",
            f"F.scaled_dot_product_attention({v}, {v}, {v}, attn_mask=torch.ones({s}[-2], {s}[-2], dtype=torch.bool).tril({self.pick(-1, 0, 1)}))",
            f"F.linear({v}, self.k3[:4, :, 0].repeat(1, {s}[-1])[:, :{s}[-1]])", f"F.glu({v}, {self.pick(0, 1)})",
            f"F.embedding({v}.long().abs() % 4, self.k3[..., 0])", f"F.one_hot({v}.long().abs() % 3, 3).to({v}.dtype)",
            f"torch.cdist({v}, {w})", f"F.cosine_similarity({v}, {w}, dim=-1)", f"F.rms_norm({v}, {s}[-1:])",
        ]  # fmt: skip
        if x.dim() == 3:
            common += [
                f"F.conv1d({v}, self.k3, padding={few}, stride={few})", f"F.conv_transpose1d({v}, self.k3, stride={few})",
                f"F.max_pool1d({v}, 2, stride={few}, ceil_mode={flag})", f"F.avg_pool1d({v}, 2, stride={few}, padding=1, ceil_mode={flag})",
                f"F.adaptive_avg_pool1d({v}, {few})", f"F.adaptive_max_pool1d({v}, {few})", f"F.interpolate({v}, scale_factor={self.pick(2, 1.5, 0.5)}, mode='{mode}')",
                f"F.interpolate({v}, size={self.count(v, x)}, mode='{mode}')", f"F.interpolate({v}, size=({s}[-1] * 2,), mode='{mode}')",
                f"F.instance_norm({v})", f"F.lp_pool1d({v}, 2, 2)", f"F.group_norm({v}, 2)", f"F.fold({v}, ({s}[-1], 1), 1)",
            ]  # fmt: skip
        if x.dim() == 4:
            common += [
                f"F.conv2d({v}, self.k4, padding={few}, stride={few})", f"F.conv2d({v}, self.k4, padding='same')", f"F.conv_transpose2d({v}, self.k4, stride={few})",
                f"F.max_pool2d({v}, 2, stride={few}, ceil_mode={flag})", f"F.avg_pool2d({v}, 2, ceil_mode={flag}, count_include_pad={flag})",
                f"F.adaptive_avg_pool2d({v}, ({few}, None))", f"F.interpolate({v}, scale_factor={self.pick(2, 1.5, 0.5)}, mode='{mode}')",
                f"F.interpolate({v}, size={s}[-2:], mode='{mode}')", f"F.interpolate({v}, size=({self.count(v, x)}, 3), mode='{mode}')",
                f"F.pixel_shuffle({v}, 2)", f"F.unfold({v}, 2, stride={few})", f"F.group_norm({v}, 2)", f"F.pixel_unshuffle({v}, 2)",
                f"F.interpolate({v}, scale_factor=2, mode='bicubic', align_corners={flag})", f"F.channel_shuffle({v}, 2)",
            ]  # fmt: skip
        return self.pick(*common)

    def index(self, v: str, x: torch.Tensor) -> str | None:
        """Elements by their positions."""
        if not x.dim():
            return None
        a = self.random.randrange(x.dim())
        s, n = f"{v}.shape[{a}]", self.count(v, x)
        return self.pick(
            f"{v}.index_select({a}, torch.arange({s} - 1, -1, -1))", f"{v}.flip({a})", f"{v}.roll({s} // 2, {a})", f"{v}.roll({n}, {a})",
            f"{v}[torch.arange({v}.shape[0]) % 2 == 0]", f"{v}[torch.arange({v}.shape[0]) // 2]", f"{v}.gather({a}, {v}.argsort({a}))",
            f"{v}.topk({self.pick(1, 2)}, {a}).values", f"{v}.topk({s} // 2, {a}).values", f"{v}.sort({a}, descending=True).values", f"{v}.tril({self.pick(-1, 0, 1)})",
            f"{v}.triu({n})", f"{v}.take_along_dim({v}.argmax({a}, keepdim=True), {a})", f"{v}.masked_fill(torch.arange({v}.shape[-1]) < 2, 0.5)",
            f"torch.where(torch.arange({v}.shape[-1]) >= {n}, {v}, {v} * 2)", f"{v}[..., None, :]", f"{v}[{v}.shape[0] // 2]", f"{v}.cumsum({a})",
            f"{v}[[0, -1]]", f"{v}[:, torch.arange({v}.shape[1])[None], 0]", f"torch.bucketize({v}, torch.arange({s}) * 1.0)", f"{v}.nonzero()",
            f"torch.index_add({v}, {a}, torch.zeros({s}, dtype=torch.int64), {v})", f"torch.scatter({v}, {a}, torch.zeros_like({v}, dtype=torch.int64), 1.5)",
        )  # fmt: skip

    def reduce(self, v: str, x: torch.Tensor) -> str | None:
        """A reduction."""
        if not x.dim():
            return None
        a, keep = self.random.randrange(x.dim()), self.pick(True, False)
        s = f"{v}.shape[{a}]"
        return self.pick(
            f"{v}.sum({a}, keepdim={keep})", f"{v}.mean({a}, keepdim={keep})", f"{v}.amax({a})", f"{v}.var({a}, correction=0)", f"{v}.sum() / {s}",
            f"{v}.mean()", f"{v}.prod({a})", f"{v}.norm(dim={a})", f"{v}.logsumexp({a})", f"{v}.argmax({a})", f"{v}.any({a})", f"{v}.cumsum({a})",
            f"{v}.sum(({a}, -1))", f"{v}.std(unbiased=False)", f"torch.count_nonzero({v}, {a})", f"{v}.median({a}).values", f"{v}.amin()",
        )  # fmt: skip

    def size(self, v: str, x: torch.Tensor) -> str | None:
        """Sizes as numbers, and tensors made of them."""
        if not x.dim():
            return None
        a, n = self.random.randrange(x.dim()), self.count(v, x)
        s = f"{v}.shape[{a}]"
        return self.pick(
            f"torch.arange({n})", f"torch.arange({s}) * 0.5", f"torch.arange(1, {s} * 2, 2)", f"torch.full(({s}, 2), 1.5)", f"torch.ones({v}.shape)",
            f"torch.linspace(0, 1, {s})", f"{v}.new_zeros({v}.shape[1:])", f"torch.eye({s})", f"torch.eye({s}, {v}.shape[0])", f"{v} * ({n})",
            f"{v} / {s}", f"{v} + ({n})", f"{v} * {s} ** 0.5", f"torch.tensor([{s}, 1])", f"torch.full((2,), {s} * 1.0)", f"{v} / ({s} * 0.5)",
            f"torch.zeros({n}, 2)", f"torch.scalar_tensor({n})", f"{v} - ({n}) / 2", f"torch.arange({n}, dtype=torch.float32).reshape(-1, 1)",
            f"torch.meshgrid(torch.arange({s}), torch.arange(2), indexing='ij')[0]", f"torch.randn(1, {s}).shape[1] * {v}",
            f"{v}.new_full(({s},), {s})", f"torch.empty_like({v}).fill_({s})", f"torch.ones({s}, {s}).tril({self.pick(-1, 0, 1)})",
        )  # fmt: skip

    def write(self, v: str, x: torch.Tensor) -> str | None:
        """A copy that is written in place, as an expression."""
        if not x.dim():
            return None
        a = self.random.randrange(x.dim())
        s, first = f"{v}.shape[{a}]", ":, " * a
        where = self.pick(
            f"{first}{s} // 2:",
            f"{first}-1",
            f"{first}::2",
            f"{first}:{s} - 1",
            f"..., :{v}.shape[-1] // 2",
            "0",
        )
        value = self.pick("1", "2", "3")
        self.namespace["written"] = written
        return f"written({v}, lambda y: y[{where}].{self.pick('fill_', 'mul_', 'add_')}({value}))"


class BeyondTheExample(Drawing):
    """Draws slices whose bounds the example does not reach, too."""

    def bounds(self) -> str:
        """A slice of an axis."""
        n = self.pick(4, 5, 6, 7, 8)
        return self.pick(f":{n}", f"-{n}:", f"{n}:", f"1:{n}", f"-{n}:-1", f":-{n}", f":{n}:2")

    def cut(self, v: str, x: torch.Tensor) -> str | None:
        """A part."""
        if not x.dim() or self.random.random() < 0.6:
            return super().cut(v, x)
        return f"{v}[{':, ' * self.random.randrange(x.dim())}{self.bounds()}]"

    def write(self, v: str, x: torch.Tensor) -> str | None:
        """A copy whose part is written in place."""
        if not x.dim() or self.random.random() < 0.6:
            return super().write(v, x)
        self.namespace["written"] = written
        where = ":, " * self.random.randrange(x.dim()) + self.bounds()
        return f"written({v}, lambda y: y[{where}].mul_(2))"


def written(x: torch.Tensor, write) -> torch.Tensor:
    """A copy of a tensor after a write."""
    y = x.clone()
    write(y)
    return y


def drawn(
    random: random.Random, axes: Sequence[tuple], dtypes: Sequence[torch.dtype], sizes: dict[str, int]
) -> tuple[torch.Tensor, ...]:
    """A tensor of each dtype, whose axes are names of *sizes*, sums and multiples of them, or numbers."""
    shapes = [[eval(str(axis), {}, sizes) for axis in of_tensor] for of_tensor in axes]
    return tuple(numbers(random, shape, dtype) for shape, dtype in zip(shapes, dtypes))


def kernels(random: random.Random) -> dict[str, torch.Tensor]:
    """The weights of convolutions, by name."""
    return {
        "k3": numbers(random, (4, 4, 2), torch.float32),
        "k4": numbers(random, (4, 4, 2, 3), torch.float32),
    }


def fits(values: Sequence[onnx.ValueInfoProto], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the sizes of tensors are those that a model declares of its inputs or outputs, where it declares numbers."""
    declared = [value.type.tensor_type.shape.dim for value in values]
    pairs = [pair for dims, x in zip(declared, tensors) for pair in zip(dims, x.shape)]
    return all(dim.dim_value == size for dim, size in pairs if dim.HasField("dim_value"))


def has_ranks(values: Sequence[onnx.ValueInfoProto], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have as many axes as a model declares of its outputs: its squeezes keep those of the example, with a warning."""
    declared = [value.type.tensor_type.shape.dim for value in values]
    return all(len(dims) == x.dim() for dims, x in zip(declared, tensors, strict=True))


def has_fixed_sizes(captured: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a whole number among the results of a program is not eager's: torch has fixed a size, with a warning of ours."""
    numbers = [(a, b) for a, b in zip(captured, tensors) if a.dim() == 0 and not a.is_floating_point()]
    return any(not torch.equal(a, b) for a, b in numbers)


def runs(model: onnx.ModelProto, call: Sequence[torch.Tensor]) -> bool:
    """Whether onnxruntime takes a call."""
    try:
        run(session(model), call)
    except (Fail, InvalidArgument):
        return False
    return True


class TestSizes(RandomPrograms):
    """Exported with sizes of every kind."""

    EXAMPLES = 30
    REFUSED = ("as_strided of a tensor of symbolic sizes that is not contiguous",)
    LONGER = ({"b": 2, "s": 3, "h": 6}, {"b": 2, "s": 8, "h": 6}, {"b": 2, "s": 12, "h": 11})

    def check(self, random: random.Random) -> bool:
        """Draw one, and compare.

        torch takes dynamic sizes for 2 and more where it compares them, and writes no guard: ``x[:3]`` of 4 or more elements has 3.
        A call where this declares a wrong result is refused by the runtime, or the result is right all the same.
        """
        named = {"b": random.choice((2, 3)), "s": random.choice((4, 5, 6)), "h": 6}
        axes = random.choice(
            ((("b", 4, "s"),), (("b", "s"), ("b", "s")), (("b", 4, "s", "h"),), (("b", "s"), ("s", "h")),
             (("s",), ("2*s",)), (("b", "s", 6), ("b", 1, 6)), (("b", "h"), ("2*b", "h")), (("b", "s"), ("b", "s+1")))
        )  # fmt: skip
        dtypes = [random.choice((torch.float32, torch.float32, torch.float32, torch.int64)) for _ in axes]

        made = functools.partial(drawn, random, axes, dtypes)
        buffers, example = kernels(random), made(named)
        drawing = Drawing(random, example, buffers)
        for _ in range(random.randint(2, 9)):
            drawing.step()
        names = list(drawing.values)[len(axes) :]
        if not names:
            return True
        sizes = f"{names[-1]}.shape[0], " if drawing.values[names[-1]].dim() and random.random() < 0.3 else ""
        program = Written(drawing.source(f"{sizes}{', '.join(names)},"), drawing.namespace, buffers)
        for said in (self.said(random, axes, named), self.left_to_torch(axes)):
            captured = CapturedOnce(ExportOptions())
            model = self.assert_as_eager(program, example, dynamic_shapes=said, export_options=captured)
            if model is not None:
                break
        else:
            return False
        guarded, calls = captured.program.module(), []
        for sizes in self.calls(named):
            call = made(sizes)
            if not fits(model.graph.input, call):
                continue
            try:
                given = tensor_leaves(guarded(*copy.deepcopy(call)))
                results = tensor_leaves(program(*copy.deepcopy(call)))
            except REFUSES:
                continue  # a guard of torch.export, or eager itself
            if any(not result.double().isfinite().all() for result in results):
                continue  # the mean of nothing
            if not has_ranks(model.graph.output, results):
                continue
            if has_fixed_sizes(given, results):
                continue
            if fits(model.graph.output, results) or runs(model, call):
                calls.append((call, {}))
        self.assert_calls(model, program, calls)
        return True

    def test_random_sizes(self):
        self.assert_programs(self.check)

    def check_beyond_guards(self, random: random.Random) -> bool:
        """Draw one; where nothing is told, it gives what eager gives for all sizes that eager takes, those that a guard of torch refuses, too."""
        named = {"b": random.choice((2, 3)), "s": random.choice((4, 5, 6)), "h": 6}
        axes = random.choice(
            ((("b", 4, "s"),), (("b", "s"), ("b", "s")), (("b", 4, "s", "h"),), (("b", "s"), ("s", "h")),
             (("b", "s", 6), ("b", 1, 6)), (("b", "s"), ("b", "s+1")))
        )  # fmt: skip

        made = functools.partial(drawn, random, axes, [torch.float32] * len(axes))
        buffers, example = kernels(random), made(named)
        drawing = BeyondTheExample(random, example, buffers)
        for _ in range(random.randint(1, 5)):
            drawing.step()
        names = list(drawing.values)[len(axes) :]
        if not names:
            return True
        program = Written(drawing.source(f"{', '.join(names)},"), drawing.namespace, buffers)
        with told() as messages:
            model = self.assert_as_eager(program, example, dynamic_shapes=self.left_to_torch(axes))
        if model is None or messages:
            return model is not None
        calls = []
        for sizes in [*self.calls(named), *self.LONGER]:
            call = made(sizes)
            if fits(model.graph.input, call):
                with contextlib.suppress(*REFUSES):
                    if all(x.double().isfinite().all() for x in tensor_leaves(program(*copy.deepcopy(call)))):
                        calls.append((call, {}))
        self.assert_calls(model, program, calls)
        return True

    def test_sizes_beyond_guards(self):
        self.assert_programs(self.check_beyond_guards)

    @staticmethod
    def said(random: random.Random, axes: Sequence[tuple], sizes: dict[str, int]) -> tuple:
        """An entry for each tensor: all axes of one name have the same form."""
        forms = {}
        for name in sizes:
            dim = random.choice((Dim(name), Dim(name, min=1, max=LARGEST), Dim(name, max=LARGEST)))
            has_expression = any(
                str(axis) != name and name in str(axis) for of_tensor in axes for axis in of_tensor
            )
            others = () if has_expression else (name, Dim.DYNAMIC, Dim.AUTO, None, Dim.AUTO)
            forms[name] = random.choice((dim, *others))
        entries = []
        for of_tensor in axes:
            entry = {}
            for at, axis in enumerate(of_tensor):
                if isinstance(axis, str):
                    entry[at - random.choice((0, 0, len(of_tensor)))] = eval(axis, {}, forms)
            entries.append(
                {at: form for at, form in entry.items() if form is not None} or random.choice((None, {}))
            )
        return tuple(entries)

    @staticmethod
    def left_to_torch(axes: Sequence[tuple]) -> tuple:
        """Entries that let torch choose, for what a program does not leave as dynamic as it was said."""
        return tuple(
            {at: Dim.AUTO for at, axis in enumerate(of_tensor) if isinstance(axis, str)} for of_tensor in axes
        )

    @staticmethod
    def calls(sizes: dict[str, int]) -> list[dict[str, int]]:
        """Other sizes: one of them changes, or all."""
        found = [{name: size for name in sizes} for size in (1, 2, 7, LARGEST)]
        found += [{name: size + by for by, (name, size) in enumerate(sizes.items(), 1)}]
        return found + [sizes | {name: size} for name in sizes for size in (1, LARGEST)]


if __name__ == "__main__":
    unittest.main()
