"""Random mixtures of the operators of PyTorch's database, between transpositions, casts, scales and activations.

Two or three operators that take each other's results are chained. The model without optimizer and the one with onnxruntime's rules and
another operator set give what eager gives. Programs whose result in float64, or on almost the same inputs, is another one are left out.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
import unittest
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from experimental_experiment.comparison import difference, run, session
from experimental_experiment.torch_interpreter import CaptureError, ExportError, to_onnx
from tests.cases import RANDOM, UNSPECIFIED
from tests.known_failures import known_failures
from tests.properties import RandomPrograms

LEFT_OUT = RANDOM | UNSPECIFIED | {name.split("/")[1] for name in known_failures("plain")}
OPERATORS = [info for info in op_db if torch.float32 in info.supported_dtypes("cpu") and not info.variant_test_name and info.name not in LEFT_OUT]  # fmt: skip
UNCHECKED = ("_batch_norm_with_update", "_native_batch_norm_legit", "native_batch_norm", "lu_unpack")
"""What writes past statistics that are too short for the channels of another input, in torch 2.14, or past the pivots of another batch."""

TRIES, MOST_ELEMENTS = 30, 3000
REFUSES = (
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    AssertionError,
    NotImplementedError,
    AttributeError,
)
OPTIMIZED = tuple({"": opset, "com.microsoft": 1} for opset in (18, 20, 21, 22, 23, 24, 26))


@functools.cache
def samples(position: int) -> list:
    """Some calls in float32 of the operator at this position among `OPERATORS`."""
    info = OPERATORS[position]
    torch.manual_seed(0)
    try:
        found = list(itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=False), 30))
    except REFUSES:
        return []
    given = [sample for sample in found if isinstance(sample.input, torch.Tensor) and sample.input.numel()]
    # special_values orders nan, and ONNX has no sparse tensors
    return [
        sample for sample in given if sample.input.layout == torch.strided and not sample.input.isnan().any()
    ]


def swish(x: torch.Tensor) -> torch.Tensor:
    """A product that onnxruntime fuses."""
    return x * torch.sigmoid(x)


BETWEEN = {
    "x.transpose(0, -1)": lambda x: x.transpose(0, -1),
    "x.movedim(1, -1).contiguous()": lambda x: x.movedim(1, -1).contiguous(),
    "x.permute(reversed)": lambda x: x.permute(*reversed(range(x.dim()))),
    "x * 1.5 - 0.25": lambda x: x * 1.5 - 0.25,
    "relu(x + 1)": lambda x: torch.relu(x + 1),
    "x * sigmoid(x)": lambda x: swish(
        x.clamp(min=-15)
    ),  # onnxruntime's Sigmoid is 0 below -18: what counts zeros differs
    "x.double().float()": lambda x: x.double().float(),
    "x.unsqueeze(0)": lambda x: x.unsqueeze(0),
    "x.flatten(0, 1)": lambda x: x.flatten(0, 1),
    "x.reshape(-1)": lambda x: x.reshape(-1),
    "cat([x, -x])": lambda x: torch.cat([x, -x]),
    "x[..., 1:]": lambda x: x[..., 1:],
    "x + x.mean(-1, True)": lambda x: x + x.mean(-1, keepdim=True),
    "(x > 0) * x": lambda x: (x > 0) * x,
    "x[None].expand(2, ...)": lambda x: x[None].expand(2, *x.shape),
    "x.softmax(-1)": lambda x: x.softmax(-1),
    "x.mT @ x": lambda x: x.mT @ x,
    "y = x.clone(); y[0] = 1": lambda x: written(x),
    "x": lambda x: x,
}
"""What may stand before, between and after the operators."""


def written(x: torch.Tensor) -> torch.Tensor:
    """A copy whose first element or row is 1."""
    y = x.clone()
    y[0] = 1
    return y


class Chain(torch.nn.Module):
    """Applies functions of one tensor; the other tensors that an operator takes are buffers."""

    def __init__(self):
        super().__init__()
        self.steps: list[tuple[str, Any]] = []

    def extended(self, text: str, function: Any) -> Chain:
        """The chain with one more step."""
        longer = copy.copy(self)
        longer.steps = [*self.steps, (text, function)]
        return longer

    def forward(self, x):
        for _, step in self.steps:
            x = step(x)
        return x

    def __repr__(self) -> str:
        return "\n".join(text for text, _ in self.steps)


class Call:
    """An operator of one tensor: the other arguments are constants, those that are floats in the dtype of the tensor."""

    def __init__(self, info: Any, sample: Any):
        self.function, self.args, self.kwargs = info.op, sample.args, sample.kwargs

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        def fitted(leaf):
            return leaf.to(x.dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

        args, kwargs = pytree.tree_map(fitted, (self.args, self.kwargs))
        results = pytree.tree_leaves(self.function(x, *args, **kwargs))
        floats = [leaf for leaf in results if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
        whole = [leaf for leaf in results if isinstance(leaf, torch.Tensor) and not leaf.is_complex()]
        return floats[0] if floats else whole[0].to(x.dtype)


class TestMixtures(RandomPrograms):
    """Compared without optimizer, and optimized with the rules for onnxruntime."""

    EXAMPLES = 25
    REFUSED = (
        "as_strided of a tensor of symbolic sizes that is not contiguous",
        "as_strided reads elements of the memory that the tensor does not have",
    )

    def drawn(self, random: random.Random) -> tuple[Chain, torch.Tensor] | None:
        """A chain and its input, None when no operators fit each other."""
        first = random.randrange(len(OPERATORS))
        found = samples(first)
        if not found:
            return None
        sample = random.choice(found)
        chain, x = Chain(), sample.input
        text, step = random.choice(list(BETWEEN.items()))
        if random.random() < 0.5 and self.takes(chain.extended(text, step), x):
            chain, x = chain.extended(text, step), x
        count, wanted = 0, random.randint(2, 3)
        for attempt in range(TRIES):
            position = random.randrange(len(OPERATORS)) if attempt else first
            if not samples(position) or (attempt and OPERATORS[position].name in UNCHECKED):
                continue
            call = random.choice(samples(position)) if attempt else sample
            given = f"{[tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in pytree.tree_leaves((call.args, call.kwargs))]}"
            longer = chain.extended(f"{OPERATORS[position].name} {given}", Call(OPERATORS[position], call))
            if not self.takes(longer, x):
                continue
            chain, count = longer, count + 1
            text, step = random.choice(list(BETWEEN.items()))
            if self.takes(chain.extended(text, step), x):
                chain = chain.extended(text, step)
            if count == wanted:
                break
        return (chain, x) if count > 1 else None

    @staticmethod
    def takes(chain: Chain, x: torch.Tensor) -> bool:
        """Whether eager takes the chain, and gives numbers that mean something."""
        try:
            with torch.no_grad():
                y = chain(x.clone())
        except REFUSES:
            return False
        fits = isinstance(y, torch.Tensor) and y.layout == torch.strided and y.is_floating_point()
        return (
            fits
            and 0 < y.numel() <= MOST_ELEMENTS
            and bool(y.isfinite().all())
            and bool(y.abs().amax() < 1e4)
        )

    @staticmethod
    def is_steady(chain: Chain, x: torch.Tensor) -> bool:
        """Whether the result says something: it is that of float64, and of inputs that differ in the last bits."""
        with torch.no_grad():
            y = chain(x.clone()).double()
            try:
                near = [chain(x.double()), chain(x * (1 + 1e-6)).double(), chain(x * (1 - 1e-6)).double()]
            except REFUSES:
                return False
        return all(
            difference("", y.float(), other.float()).within for other in near if other.shape == y.shape
        )

    def check(self, random: random.Random) -> bool:
        """Draw one, and compare."""
        drawn = self.drawn(random)
        if drawn is None or not self.is_steady(*drawn):
            return True
        chain, x = drawn
        with torch.no_grad():
            expected = chain(x.clone())
            exact = chain(x.double()).to(expected.dtype)
        is_dynamic = random.random() < 0.4 and x.dim()
        axes = ({axis: torch.export.Dim.AUTO for axis in range(x.dim())},) if is_dynamic else None
        for options in ({"optimize": False}, {"target_opset": random.choice(OPTIMIZED)}):
            try:
                with torch.no_grad():
                    model = to_onnx(copy.deepcopy(chain), (x.clone(),), dynamic_shapes=axes, **options)
            except CaptureError:
                return False
            except ExportError as error:
                if any(words in str(error) for words in self.REFUSED):
                    return False
                raise AssertionError(f"{error}\n{chain}") from error
            (got,) = run(session(model), [x])
            found = difference("output", expected, got)
            is_near = found.within or difference("output", exact, got).within
            self.assertTrue(is_near, f"{found} with {options}\n{chain}\n{x.dtype}{[*x.shape]}")
        return True

    def test_random_mixtures(self):
        self.assert_programs(self.check)


if __name__ == "__main__":
    unittest.main()
