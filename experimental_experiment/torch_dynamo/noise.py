"""Random operators: torch draws the numbers, the model takes them as inputs ``noise_0``, ``noise_1``, ...

So a compiled model follows eager from the same seed, and dropout in training is eager's: onnxruntime cannot follow torch's generator. On
a GPU bernoulli of tensors and dropout inside attention have eager's distribution, not its numbers, which its kernels draw in their own order.
Where tensors decide the distribution, `finished` makes the result of drawn numbers; what cannot be made so, such as a multinomial that
draws several indices of a row with replacement, is drawn by onnxruntime with seeds from ``torch.initial_seed()``: reproducible, with the
right distribution, but not eager's numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_dynamo.checkpointing import STATE, from_state, state_of_generator
from experimental_experiment.torch_dynamo.interface import Entry
from experimental_experiment.torch_dynamo.symbols import evaluation
from experimental_experiment.torch_interpreter.aten import dropout
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.registry import Translation

aten = torch.ops.aten

DROPOUT = aten.native_dropout.default
MULTINOMIAL = aten.multinomial.default

FILLED = {
    MULTINOMIAL: torch.Tensor.exponential_,
    aten.bernoulli.default: torch.Tensor.uniform_,
    aten.normal.float_Tensor: torch.Tensor.normal_,
    aten.normal.Tensor_float: torch.Tensor.normal_,
    aten.normal.Tensor_Tensor: torch.Tensor.normal_,
}
"""Random operators whose tensors decide the distribution, and the numbers that they are made of."""

DRAWN = frozenset(
    {
        *FILLED,
        DROPOUT,
        aten.bernoulli.p,
        aten.cauchy.default,
        aten.exponential.default,
        aten.geometric.default,
        aten.log_normal.default,
        aten.normal.float_float,
        aten.normal_functional.default,
        aten.rand.default,
        aten.rand_like.default,
        aten.randint.default,
        aten.randint.low,
        aten.randint_like.default,
        aten.randint_like.low_dtype,
        aten.randn.default,
        aten.randn_like.default,
        aten.random.default,
        aten.random.to,
        aten.randperm.default,
        aten.uniform.default,
    }
)
"""Random operators whose numbers are drawn from sizes and dtypes alone."""

SEEDED = (
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)

RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


@dataclasses.dataclass(frozen=True)
class Noise:
    """What torch draws at each call.

    Attributes:
        name: the input of the model.
        fake: what is drawn.
        draw: gives it, called with the inputs of the graph.
        node: the node of the graph, which is what is drawn, or made of it: see `finished`.
    """

    name: str
    fake: torch.Tensor
    draw: Callable[[Sequence[Any]], torch.Tensor]
    node: torch.fx.Node

    @property
    def is_part(self) -> bool:
        """Whether the result of the node is made of what is drawn, instead of being it."""
        return self.node.target is DROPOUT or self.node.target in FILLED


def noises(
    module: torch.fx.GraphModule, inputs: Sequence[Entry], translations: Mapping[Any, Any]
) -> list[Noise]:
    """What torch draws for a graph, in order; the operators of *translations* are left to them.

    Raises ExportError when the inputs do not decide a size.
    """
    found: list[Noise] = []
    for node in module.graph.nodes:  # those without users too: eager draws them
        name = f"noise_{len(found)}"
        if node.target is state_of_generator:
            found.append(Noise(name, node.meta["val"], lambda args: torch.get_rng_state(), node))
        elif is_drawn(node.target, node.args) and node.target not in translations and is_random(node):
            fake = drawn_fake(node)
            draw = drawing(node, fake, inputs)
            if STATE in node.meta:
                draw = from_state(draw, [entry.node for entry in inputs].index(node.meta[STATE]))
            found.append(Noise(name, fake, draw, node))
    return found


def is_drawn(target: Any, args: Sequence[Any]) -> bool:
    """Whether torch draws the numbers of an operator with these arguments; of a multinomial, one index of a row or different ones."""
    if target is not MULTINOMIAL:
        return target in DRAWN
    count, is_put_back = args[1], args[2:] and args[2]
    return not is_put_back or (isinstance(count, int) and count == 1)


def drawn_fake(node: torch.fx.Node) -> torch.Tensor:
    """What is drawn for a node, as a fake tensor."""
    if node.target is MULTINOMIAL:  # a number for each weight
        return torch.empty_like(node.args[0].meta["val"])
    return node.meta["val"][1] if node.target is DROPOUT else node.meta["val"]


def refuse_forgotten_dropout(module: torch.fx.GraphModule) -> None:
    """Raise ExportError when a graph of TorchDynamo's has a recurrent layer whose dropout torch forgets to draw.

    Its decomposition, ``torch._decomp.decompositions._rnn_helper``, compares the layers the wrong way around (torch 2.13).
    """
    for graph in (part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)):
        for node in graph.nodes:
            if node.target not in RECURRENT:
                continue
            first = next(place for place, item in enumerate(node.args) if isinstance(item, bool))
            layers, dropout, is_training = node.args[first + 1 : first + 4]
            if is_training and dropout and layers > 1:
                raise ExportError(
                    f"torch forgets dropout={dropout} between the layers of a recurrent module that it decomposes",
                    node,
                    "write one module a layer, with torch.nn.Dropout between them",
                )


def is_random(node: torch.fx.Node) -> bool:
    """Whether a dropout drops some elements and keeps others; True for any other operator."""
    return node.target is not DROPOUT or (node.args[2] is not False and 0 < node.args[1] < 1)


def drawing(node: torch.fx.Node, fake: torch.Tensor, inputs: Sequence[Entry]) -> Callable:
    """A function of the inputs of the graph that draws what a node does."""
    if node.target is DROPOUT:
        p = node.args[1]
        if fake.device.type != "cpu":  # a kernel of its own, whose numbers depend on the dtype
            given = laid_out_as(node, fake, node.meta["val"][0].dtype, inputs)
            return lambda args: torch.native_dropout(given(args), p, True)[1]
        given = laid_out_as(node, fake, torch.bool, inputs)
        return lambda args: given(args).bernoulli_(1 - p)
    if node.target in FILLED:
        given, fill = laid_out_as(node, fake, fake.dtype, inputs), FILLED[node.target]
        return lambda args: fill(given(args))

    def resolved(item: Any) -> Callable:
        if isinstance(item, torch.fx.Node):
            value = item.meta["val"]
            if isinstance(value, torch.Tensor):
                return laid_out_as(node, value, value.dtype, inputs)
            return evaluation(node, [value], inputs, "{0}")
        if isinstance(item, (list, tuple)):
            parts = [resolved(part) for part in item]
            return lambda args: [part(args) for part in parts]
        return lambda args: item

    positional = [resolved(item) for item in node.args]
    named = {name: resolved(item) for name, item in node.kwargs.items()}

    def draw(args: Sequence[Any]) -> torch.Tensor:
        return node.target(
            *(item(args) for item in positional), **{name: item(args) for name, item in named.items()}
        )

    return draw


def laid_out_as(
    node: torch.fx.Node, like: torch.Tensor, dtype: torch.dtype, inputs: Sequence[Entry]
) -> Callable:
    """A function that makes an empty tensor with the sizes and the strides of a fake one: eager fills it in the order of memory."""
    count = like.dim()
    sizes = evaluation(node, [*like.shape, *like.stride()], inputs, "[{0}]")

    def empty(args: Sequence[Any]) -> torch.Tensor:
        found = sizes(args)
        return torch.empty_strided(found[:count], found[count:], dtype=dtype, device=like.device)

    return empty


def finished(drawn: Mapping[torch.fx.Node, ir.Value]) -> dict[Any, Translation]:
    """Translations of the operators that are made of what is drawn for their nodes."""

    def native_dropout(op, input, p, train):
        mask = drawn.get(op.context.node)
        if mask is None:
            return dropout.native_dropout(op, input, p, train)
        return dropout.masked(op, input, mask, p), mask

    def bernoulli(op, self):
        return op.Cast(op.Less(drawn[op.context.node], self), to=self.dtype)

    def normal(op, mean, std):
        return op.Add(op.Mul(drawn[op.context.node], std), mean)

    def multinomial(op, self, num_samples, replacement):
        # torch's own race of all weights, with what it calls when it draws different indices or only one
        speed = op.Div(self, drawn[op.context.node])
        if isinstance(num_samples, int) and num_samples == 1:
            return op.ArgMax(speed, axis=-1, keepdims=1)
        return op.TopK(speed, op.shape([num_samples]), axis=-1, outputs=2)[1]

    functions = {target: normal for target in FILLED} | {
        MULTINOMIAL: multinomial,
        DROPOUT: native_dropout,
        aten.bernoulli.default: bernoulli,
    }
    targets = {node.target for node in drawn}
    return {target: Translation(target, functions[target]) for target in targets}


def seed(graph: ir.Graph) -> None:
    """Seed what onnxruntime draws, each node with another number, from torch's seed."""
    count = torch.initial_seed()
    for node in graph.all_nodes():
        if node.op_type in SEEDED and not node.domain and "seed" not in node.attributes:
            count += 1
            number = count % 2**24
            is_whole = node.op_type == "Dropout"
            node.attributes["seed"] = (
                ir.AttrInt64("seed", number) if is_whole else ir.AttrFloat32("seed", float(number))
            )
