"""Random small networks of torch.nn: in sequence, with residuals, branches and gates, tied, in each dtype, in both modes.

Layers are drawn for the tensor that the layers before gave, and kept when eager takes it. A network may write its buffers, and may be
called with other weights by ``torch.func.functional_call``. A result in half precision may be as near to float64's as eager's is.
"""

from __future__ import annotations

import copy
import random
import unittest
from collections.abc import Callable

import torch
from torch import nn

from experimental_experiment.comparison import run, session, tensor_leaves
from experimental_experiment.torch_interpreter import CaptureError, ExportError, to_onnx
from tests.properties import RandomPrograms, is_as_near

DTYPES = (torch.float32, torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64)
MOST_ELEMENTS = 4000
REFUSES = (RuntimeError, ValueError, AssertionError, TypeError, IndexError)

REFUSED = "torch.export does not follow a submodule that gives its buffer another tensor"


class Residual(nn.Module):
    """``x + f(x)``, or ``f(x) + x``."""

    def __init__(self, inner: nn.Module, is_first: bool):
        super().__init__()
        self.inner, self.is_first = inner, is_first

    def forward(self, x):
        return x + self.inner(x) if self.is_first else self.inner(x) + x


class Branches(nn.Module):
    """Two networks of the same tensor, concatenated along the channels."""

    def __init__(self, left: nn.Module, right: nn.Module):
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x):
        return torch.cat([self.left(x), self.right(x)], 1)


class Gated(nn.Module):
    """``f(x) * sigmoid(g(x))``."""

    def __init__(self, inner: nn.Module, gate: nn.Module):
        super().__init__()
        self.inner, self.gate = inner, gate

    def forward(self, x):
        return self.inner(x) * torch.sigmoid(self.gate(x))


class Transposed(nn.Module):
    """A network between two transpositions."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.transpose(1, -1)).transpose(1, -1)


class Twice(nn.Module):
    """A network applied to its own result."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(self.inner(x))


class First(nn.Module):
    """The first result of a recurrent layer or an attention."""

    def __init__(self, inner: nn.Module, count: int):
        super().__init__()
        self.inner, self.count = inner, count

    def forward(self, x):
        return self.inner(*[x] * self.count)[0]


class Mean(nn.Module):
    """The mean over an axis."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.mean(self.dim)


class Remembering(nn.Module):
    """Writes buffers: one in place, one through a view, one by giving it another tensor."""

    def __init__(self, how: int):
        super().__init__()
        self.how = how
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("seen", torch.ones(4))

    def forward(self, x):
        if self.how == 0:
            self.count += 1
            self.seen[1:3].mul_(0.5).add_(x.mean().to(self.seen.dtype))
        elif self.how == 1:
            self.seen = self.seen * 0.5 + x.amax().to(self.seen.dtype)
        else:
            self.seen.copy_(self.seen.flip(0))
            self.count.fill_(7)
        return x * self.seen[1].to(x.dtype) + self.count


class WithOtherWeights(nn.Module):
    """A network called with weights that are computed: half of its own ones and a vector more."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        weights = {name: weight * 0.5 + 0.25 for name, weight in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, weights, (x,))


class Tied(nn.Module):
    """Two layers that share a weight, the second one after a transposition of it."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, 6), nn.Linear(width, 6, bias=False)
        self.down.weight = self.up.weight

    def forward(self, x):
        return torch.tanh(self.up(x) + self.down(x)) @ self.up.weight


ACTIVATIONS = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.ELU, nn.SELU, nn.Softplus, nn.LeakyReLU, nn.Mish, nn.Tanh, nn.ReLU6,
    nn.Softsign, nn.LogSigmoid, nn.CELU, nn.Tanhshrink, nn.PReLU, nn.RReLU, nn.Identity, nn.Sigmoid, nn.Hardtanh,
)  # fmt: skip


class Drawing:
    """Draws a network; `train`: in training mode, where nothing random may stand in it."""

    def __init__(self, random: random.Random, train: bool):
        self.random = random
        self.train = train

    def network(self, x: torch.Tensor, count: int, depth: int = 2, keeps: bool = False) -> nn.Module | None:
        """So many layers for this tensor; None when there is none, or when *keeps* and the shape changes."""
        layers, given = [], x
        for _ in range(count):
            try:
                layer = self.layer(x, depth)
                if layer is None:
                    continue
                layer.train(self.train)
                y = copy.deepcopy(layer)(x)
            except REFUSES:
                continue
            if not y.isfinite().all() or not 0 < y.numel() <= MOST_ELEMENTS or y.abs().amax() > 1e3:
                continue
            layers.append(layer)
            x = y
        if not layers or (keeps and x.shape != given.shape):
            return None
        return nn.Sequential(*layers)

    def layer(self, x: torch.Tensor, depth: int) -> nn.Module | None:
        """A layer for this tensor, or an arrangement of some."""
        simple = {2: self.of_vectors, 3: self.of_sequences, 4: self.of_images}.get(x.dim())
        if simple is None:
            return nn.Flatten(1)
        ways = [simple] * 5 + [self.activation]
        if depth:
            ways += [self.arrangement] * 3
        return self.random.choice(ways)(x, depth)

    def activation(self, x: torch.Tensor, depth: int) -> nn.Module:
        """An activation, in place where there is such a thing."""
        kind = self.random.choice(ACTIVATIONS)
        if kind is nn.RReLU and self.train:
            return nn.ReLU()
        takes = "inplace" in getattr(kind, "__constants__", ())
        return kind(inplace=True) if takes and self.random.random() < 0.3 else kind()

    def arrangement(self, x: torch.Tensor, depth: int) -> nn.Module | None:
        """Layers that are not in sequence."""
        inner = self.network(x, self.random.randint(1, 3), depth - 1)
        same = self.network(x, self.random.randint(1, 3), depth - 1, keeps=True)
        if inner is None:
            return None
        ways: list[Callable[[], nn.Module]] = [
            lambda: Remembering(self.random.randrange(3)),
            lambda: Tied(x.shape[-1]),
        ]
        if not any(isinstance(part, Remembering) for part in inner.modules()):
            ways.append(lambda: WithOtherWeights(inner))
        if same is not None:
            ways += [
                lambda: Residual(same, self.random.random() < 0.5),
                lambda: Branches(same, inner),
                lambda: Gated(same, nn.Identity()),
                lambda: Twice(same),
            ]
        swapped = self.network(x.transpose(1, -1), 2, depth - 1)
        if swapped is not None:
            ways.append(lambda: Transposed(swapped))
        return self.random.choice(ways)()

    def of_vectors(self, x: torch.Tensor, depth: int) -> nn.Module:
        """Layers of (batch, width)."""
        width, pick = x.shape[1], self.random.choice
        return pick(
            (
                lambda: nn.Linear(width, pick((width, 4, 6)), bias=pick((True, False))),
                lambda: nn.LayerNorm(width, elementwise_affine=pick((True, False))),
                lambda: nn.BatchNorm1d(width, affine=pick((True, False)), momentum=pick((0.1, None))),
                lambda: nn.GroupNorm(2, width),
                lambda: nn.RMSNorm(width),
                lambda: nn.Softmax(-1),
                lambda: nn.LogSoftmax(1),
                lambda: nn.GLU(),
                lambda: nn.Unflatten(1, (2, -1)),
                lambda: nn.Dropout(0.0 if self.train else 0.5),
                lambda: nn.utils.parametrizations.weight_norm(nn.Linear(width, 4)),
            )
        )()

    def of_sequences(self, x: torch.Tensor, depth: int) -> nn.Module:
        """Layers of (batch, length, width), which are channels and lengths to convolutions."""
        _, length, width = x.shape
        pick = self.random.choice
        kernel = pick((1, 2, 3))
        return pick(
            (
                lambda: nn.Linear(width, pick((width, 4, 6))),
                lambda: nn.LayerNorm(width),
                lambda: nn.LayerNorm((length, width)),
                lambda: nn.RMSNorm(width),
                lambda: nn.Conv1d(length, pick((length, 4)), kernel, padding=pick((0, 1, "same")), bias=pick((True, False))),
                lambda: nn.ConvTranspose1d(length, 4, kernel, stride=pick((1, 2)), padding=pick((0, 1))),
                lambda: nn.BatchNorm1d(length, track_running_stats=pick((True, True, False))),
                lambda: nn.InstanceNorm1d(length, affine=pick((True, False))),
                lambda: nn.MaxPool1d(2, padding=pick((0, 1)), ceil_mode=pick((True, False))),
                lambda: nn.AvgPool1d(2, stride=pick((1, 2)), count_include_pad=pick((True, False)), padding=pick((0, 1))),
                lambda: nn.AdaptiveAvgPool1d(pick((1, 2, 3))),
                lambda: nn.Upsample(scale_factor=2, mode=pick(("nearest", "linear"))),
                lambda: nn.Softmax(pick((1, 2, -1))),
                lambda: Mean(pick((1, 2, -1))),
                lambda: First(nn.LSTM(width, 4, num_layers=pick((1, 2)), bidirectional=pick((True, False)), batch_first=True), 1),
                lambda: First(nn.GRU(width, 4, bidirectional=pick((True, False)), batch_first=True), 1),
                lambda: First(nn.RNN(width, 4, nonlinearity=pick(("relu", "tanh")), batch_first=True), 1),
                lambda: First(nn.MultiheadAttention(width, 2, dropout=0.0, batch_first=True, bias=pick((True, False))), 3),
                lambda: nn.TransformerEncoderLayer(width, 2, 6, dropout=0.0, batch_first=True, norm_first=pick((True, False))),
                lambda: nn.ReflectionPad1d(1),
                lambda: nn.ConstantPad1d((1, -1), 0.5),
            )
        )()  # fmt: skip

    def of_images(self, x: torch.Tensor, depth: int) -> nn.Module:
        """Layers of (batch, channels, height, width)."""
        channels, pick = x.shape[1], self.random.choice
        kernel = pick((1, 2, 3, (1, 2)))
        groups = pick((1, 1, channels))
        mode = pick(("zeros", "zeros", "reflect", "replicate", "circular"))
        return pick(
            (
                lambda: nn.Conv2d(channels, channels * pick((1, 2)), kernel, stride=pick((1, 2)), padding=pick((0, 1)), dilation=pick((1, 2)), groups=groups, bias=pick((True, False)), padding_mode=mode),
                lambda: nn.Conv2d(channels, 4, kernel, padding="same", padding_mode=mode),
                lambda: nn.ConvTranspose2d(channels, channels, kernel, stride=pick((1, 2)), padding=pick((0, 1)), groups=groups),
                lambda: nn.BatchNorm2d(channels, affine=pick((True, False)), momentum=pick((0.1, None))),
                lambda: nn.GroupNorm(2, channels),
                lambda: nn.InstanceNorm2d(channels, affine=pick((True, False)), track_running_stats=pick((True, False))),
                lambda: nn.MaxPool2d(2, stride=pick((1, 2)), padding=pick((0, 1)), ceil_mode=pick((True, False))),
                lambda: nn.AvgPool2d(2, padding=pick((0, 1)), ceil_mode=pick((True, False)), count_include_pad=pick((True, False))),
                lambda: nn.AdaptiveAvgPool2d(pick((1, 2, (3, None)))),
                lambda: nn.AdaptiveMaxPool2d(pick((1, 2))),
                lambda: nn.LPPool2d(2, 2),
                lambda: nn.Upsample(scale_factor=pick((2, 1.5)), mode=pick(("nearest", "bilinear", "bicubic"))),
                lambda: nn.PixelShuffle(2),
                lambda: nn.PixelUnshuffle(2),
                lambda: nn.ChannelShuffle(2),
                lambda: nn.ReflectionPad2d(1),
                lambda: nn.ZeroPad2d((1, 0, -1, 1)),
                lambda: nn.LocalResponseNorm(2),
                lambda: nn.Softmax2d(),
                lambda: nn.Flatten(pick((1, 2))),
                lambda: nn.Unfold(2, padding=pick((0, 1))),
                lambda: nn.LayerNorm(x.shape[pick((1, 2, 3)) :]),
                lambda: nn.PReLU(channels),
                lambda: nn.Dropout2d(0.0 if self.train else 0.5),
                lambda: Mean(pick((1, 2, -1))),
            )
        )()  # fmt: skip


def with_statistics(model: nn.Module) -> nn.Module:
    """Give the running statistics of normalizations values that are not 0 and 1."""
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return model


class TestModules(RandomPrograms):
    """With a static and with a dynamic batch; buffers that are written are outputs."""

    EXAMPLES = 30

    def check(self, random: random.Random) -> bool:
        """Draw one, and compare."""
        torch.manual_seed(random.randint(0, 10**6))
        shape = random.choice(((3, 6), (2, 4, 6), (2, 4, 6, 5)))
        train = random.random() < 0.3
        x = torch.randn(shape)
        network = Drawing(random, train).network(x, random.randint(1, 5))
        if network is None:
            return True
        dtype = random.choice(DTYPES)
        network = with_statistics(network).to(dtype).train(train)
        is_dynamic = random.random() < 0.6
        options = {"target_opset": random.choice((None, 18, 22, {"": 23, "com.microsoft": 1}))}
        options |= {"dynamic_shapes": ({0: "batch"},)} if is_dynamic else {}
        with torch.no_grad():
            try:
                model = to_onnx(copy.deepcopy(network), (x.to(dtype),), mutated_buffers="outputs", **options)
            except CaptureError:
                return False
            except ExportError as error:
                self.assertRegex(str(error), REFUSED, f"{network}")
                return True
            for batch in (shape[0], 1, 5) if is_dynamic else (shape[0],):
                self.compare(network, model, torch.randn(batch, *shape[1:]).to(dtype))
        return True

    def test_random_networks(self):
        self.assert_programs(self.check)

    def compare(self, network: nn.Module, model, x: torch.Tensor) -> None:
        """The outputs are eager's: the result, then the new values of the buffers that were written."""
        try:
            expected, names = after(network, x)
            exact, _ = after(copy.deepcopy(network).double(), x.double())
        except (RuntimeError, ValueError):
            return  # a batch of one in training mode, or an operator without kernel in this dtype
        runner = session(model)
        buffers = dict(network.named_buffers())
        inputs = [x if value.name not in buffers else buffers[value.name] for value in model.graph.input]
        got = run(runner, inputs)
        found = [value.name for value in model.graph.output]
        self.assertEqual([f"{name}_out" for name in names], found[1:], f"{network}")
        for place, (name, *values) in enumerate(zip(found, expected, got, exact, strict=True)):
            kinds = [f"{value.dtype}{[*value.shape]}" for value in values]
            is_near = is_as_near(name, *values) or is_as_near(name, *values, usual_error(network, x, place))
            self.assertTrue(is_near, f"{name}: {kinds}\n{network}\n{x.dtype}{[*x.shape]}")


def usual_error(network: nn.Module, x: torch.Tensor, place: int) -> float:
    """How far the output at this place is from the exact one, on inputs in half precision that differ from *x* in their last bits.

    A normalization of numbers that are almost equal makes much of which way they were rounded.
    """
    if x.dtype not in (torch.float16, torch.bfloat16):
        return 0.0
    errors = []
    for steps in range(-8, 9):
        near = x * (1 + steps * torch.finfo(x.dtype).eps)
        (found, _), (exact, _) = after(network, near), after(copy.deepcopy(network).double(), near.double())
        errors.append(float((found[place].double() - exact[place]).abs().max()))
    return max(errors)


def after(network: nn.Module, x: torch.Tensor) -> tuple[list[torch.Tensor], list[str]]:
    """The result, the new values of the buffers and of the input that a call writes, and their names."""
    network, x = copy.deepcopy(network), x.clone()
    before = {name: (buffer, buffer._version, buffer.clone()) for name, buffer in network.named_buffers()}
    version = x._version
    result = network(x)
    changed = []
    for name, buffer in network.named_buffers():
        held, count, value = before[name]
        # a normalization writes its statistics and does not count it
        if buffer is not held or buffer._version != count or not torch.equal(buffer, value):
            changed.append((name, buffer))
    if x._version != version:
        changed.append(("input", x))
    return tensor_leaves(result, [value for _, value in changed]), [name for name, _ in changed]


if __name__ == "__main__":
    unittest.main()
