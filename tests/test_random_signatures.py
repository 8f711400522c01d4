"""Random signatures: what a forward takes and gives, in nested containers, is what the model takes and gives, in the same order.

Arguments are given by position, by keyword or not at all, and hold tensors, numbers, strings, None, caches, one tensor twice. Results
are made of them: an argument as it is, a part of it, one result twice, a size, a number, None.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import types
import unittest
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from torch.utils import _pytree as pytree
from transformers.cache_utils import DynamicCache

from experimental_experiment.comparison import leaves_of
from tests.properties import RandomPrograms, numbers

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Batch:
    """A container of two fields."""

    tokens: Any
    weights: Any


def setUpModule():
    torch.export.register_dataclass(Batch, serialized_type_name=f"{__name__}.Batch")


DTYPES = (torch.float32, torch.float32, torch.int64, torch.bool, torch.float64, torch.float16)
KEYS = ("a", "b", "a b", "0", "a.b", "left", "a_0", "_")
ROWS = {"n": (3, 5, 2), "m": (2, 4, 1)}
"""Names of dynamic sizes: the size in the example and in the other calls."""

Tree = tuple
"""A container or a leaf, to be made several times: (what, children or details)."""


class Drawing:
    """Draws the arguments of a forward, and what it returns."""

    def __init__(self, random: random.Random):
        self.random = random

    def tree(self, depth: int, leaf: Callable[[], Tree]) -> Tree:
        """A leaf or a container."""
        inner = [lambda: self.tree(depth - 1, leaf) for _ in range(self.random.randint(1, 3))]
        ways = [leaf, leaf]
        if depth:
            two = [lambda: self.tree(depth - 1, leaf)] * 2
            ways += [
                lambda: ("list", [make() for make in inner]),
                lambda: ("tuple", [make() for make in inner]),
                lambda: ("dict", dict(zip(self.random.sample(KEYS, len(inner)), [make() for make in inner]))),
                lambda: ("pair", [make() for make in two]),
                lambda: ("batch", [make() for make in two]),
            ]
        return self.random.choice(ways)()

    def argument(self) -> Tree:
        """A leaf of the arguments: a tensor most of the time."""
        kind = self.random.choice(
            ("tensor",) * 6 + ("again", "none", "int", "float", "bool", "text", "cache")
        )
        if kind == "tensor":
            rows, rank = self.random.choice((*ROWS, None)), self.random.randint(0, 2)
            return kind, (self.random.choice(DTYPES), rows, rank)
        if kind == "cache":
            return kind, (self.random.randint(1, 2), self.random.choice((*ROWS, None)))
        if kind == "again":
            return kind, self.random.randrange(100)
        return kind, self.random.choice({"int": (0, 3, -2), "float": (0.5, 2.0), "bool": (True, False), "text": ("mean", "")}.get(kind, (None,)))  # fmt: skip

    def result(self, tensors: int) -> Callable[[], Tree]:
        """What draws a leaf of the results, of so many tensors: an argument, arithmetic of it, a size, a number, None."""

        def leaf() -> Tree:
            kind = self.random.choice(
                ("itself", "changed", "changed", "size", "none", "number", "argument", "view")
            )
            if kind == "number":
                return kind, self.random.choice((3, 0.5, True))
            return kind, self.random.randrange(tensors)

        return leaf


class Maker:
    """Makes the arguments of one call: sizes are those of the call, the values are other ones in each."""

    def __init__(self, random: random.Random, call: int, is_dynamic: bool):
        self.random = random
        self.sizes = {name: sizes[call if is_dynamic else 0] for name, sizes in ROWS.items()}
        self.made: list[torch.Tensor] = []

    def tensor(self, dtype: torch.dtype, rows: str | None, *sizes: int) -> torch.Tensor:
        """A new tensor."""
        self.made.append(numbers(self.random, (self.sizes.get(rows, 2), *sizes), dtype))
        return self.made[-1]

    def make(self, tree: Tree) -> Any:
        """An argument."""
        kind, details = tree
        if kind == "tensor":
            dtype, rows, rank = details
            return self.tensor(dtype, rows, *(3, 2)[:rank])
        if kind == "again":
            return self.made[details % len(self.made)] if self.made else None
        if kind == "cache":
            cache = DynamicCache()
            for layer in range(details[0]):
                kinds = (torch.float32, details[1], 1, 4, 2)
                cache.update(self.tensor(*kinds), self.tensor(*kinds), layer)
            return cache
        return container(kind, details, self.make)


class Said:
    """What is said about the sizes of the arguments: a name for the rows of tensors."""

    def __init__(self, random: random.Random):
        self.random = random
        self.made: list[Any] = []

    def tensor(self, rows: str | None) -> Any:
        """The entry of a tensor."""
        self.made.append({0: rows} if rows else self.random.choice((None, {})))
        return self.made[-1]

    def make(self, tree: Tree) -> Any:
        """The entry of an argument."""
        kind, details = tree
        if kind == "tensor":
            return self.tensor(details[1])
        if kind == "again":
            return self.made[details % len(self.made)] if self.made else None
        if kind == "cache":
            return [self.tensor(details[1]) for _ in range(2 * details[0])]
        if kind == "batch":
            fields = dict(zip(("tokens", "weights"), map(self.make, details)))
            return self.random.choice((fields, list(fields.values())))
        return container(kind, details, self.make) if isinstance(details, (list, dict)) else None


def container(kind: str, details: Any, make: Callable[[Tree], Any]) -> Any:
    """A container of what *make* gives for its children; a leaf as it is."""
    if kind == "dict":
        return {key: make(child) for key, child in details.items()}
    if kind in ("list", "tuple", "pair", "batch"):
        children = [make(child) for child in details]
        return {"list": list, "tuple": tuple, "pair": Pair._make, "batch": lambda two: Batch(*two)}[kind](
            children
        )
    return details


def results_of(tree: Tree, arguments: Sequence[Any]) -> Any:
    """What forward returns."""
    tensors = [leaf for leaf in leaves_of(arguments) if isinstance(leaf, torch.Tensor)]
    factors = [leaf for leaf in leaves_of(arguments) if isinstance(leaf, (int, float))] or [2]
    changed: dict[int, torch.Tensor] = {}

    def make(tree: Tree) -> Any:
        kind, details = tree
        if kind == "itself":
            return tensors[details]
        if kind == "changed":  # the same tensor for the same argument: an output that is returned twice
            if details not in changed:
                changed[details] = tensors[details] * factors[details % len(factors)]
            return changed[details]
        if kind == "view":
            return tensors[details][..., None]
        if kind == "size":
            return tensors[details].shape[0]
        if kind == "argument":
            return arguments[details % len(arguments)]
        return container(kind, details, make)

    return make(tree)


def without_strings(tree: Any) -> Any:
    """A result without the strings of the arguments, which no model gives."""
    return pytree.tree_map_only(str, lambda text: None, tree)


class Model(torch.nn.Module):
    """A forward with these parameters, as Python writes them."""

    def __init__(self, parameters: str, passed: str, results: Tree):
        super().__init__()
        self.text = f"def forward(self, {parameters}):\n    return results(({passed},))\n{results}"
        defined = {"results": lambda arguments: without_strings(results_of(results, arguments))}
        exec(self.text.rpartition("\n")[0], defined)
        self.forward = types.MethodType(defined["forward"], self)

    def __repr__(self) -> str:
        return self.text


def is_given(random: random.Random) -> bool:
    """Whether an argument that has a default is given."""
    return random.random() < 0.7


class TestSignatures(RandomPrograms):
    """Exported with static and with dynamic sizes."""

    EXAMPLES = 40

    def check(self, random: random.Random) -> bool:
        """Draw one, and compare."""
        drawing = Drawing(random)
        tree = lambda: drawing.tree(2, drawing.argument)  # noqa: E731
        positional = {f"p{k}": tree() for k in range(random.randint(1, 3))}
        default = random.choice((None, 2, 0.5))
        optional = {"q": tree()} if is_given(random) else {}
        rest = [tree() for _ in range(random.randint(0, 2))] if optional else []
        keywords = {"k": tree()} | ({"d": tree()} if is_given(random) else {})
        more = {name: tree() for name in random.sample(("e", "a_0", "p0_a", "output"), random.randint(0, 2))}
        # the last positional ones by keyword
        by_name = random.choice((0, 0, 1)) if not (optional or rest) else 0
        names = list(positional)
        moved = {name: positional.pop(name) for name in names[len(names) - by_name :]}
        keywords |= moved | more
        keywords = dict(random.sample(list(keywords.items()), len(keywords)))
        args = [*positional.values(), *optional.values(), *rest]
        parameters = f"{', '.join(names)}, q={default!r}, *rest, k, d={default!r}, **more"
        is_dynamic = random.random() < 0.5
        calls = []
        for call in range(3):
            maker = Maker(random, call, is_dynamic)
            calls.append(
                (tuple(map(maker.make, args)), {name: maker.make(item) for name, item in keywords.items()})
            )
        count = sum(isinstance(leaf, torch.Tensor) for leaf in leaves_of(calls[0]))
        if not count:
            return True
        results = "list", [("changed", random.randrange(count)), drawing.tree(2, drawing.result(count))]
        program = Model(parameters, f"{', '.join(names)}, q, rest, k, d, more", results)
        said = Said(random)
        shapes = dict(zip(positional, map(said.make, positional.values())))
        shapes |= {name: said.make(item) for name, item in optional.items()}
        if rest:
            shapes["rest"] = [said.make(item) for item in rest]
        shapes |= {name: said.make(item) for name, item in keywords.items()}
        others, options = calls[1:], {"dynamic_shapes": shapes} if is_dynamic else {}
        model = self.assert_as_eager(program, *calls[0], others=others, **options)
        if model is None:
            return False
        owners = [*positional, *optional, *("rest" for _ in rest), *keywords]
        self.assert_names(model, program, [*calls[0][0], *calls[0][1].values()], owners)
        return True

    def test_random_signatures(self):
        self.assert_programs(self.check)

    def assert_names(
        self, model: onnx.ModelProto, program: Model, arguments: list, owners: list[str]
    ) -> None:
        """The names of inputs begin with that of their argument; no name comes twice."""
        wanted = [owner for owner, item in zip(owners, arguments) for x in leaves_of(item) if isinstance(x, torch.Tensor)]  # fmt: skip
        inputs = [value.name for value in model.graph.input]
        everything = inputs + [value.name for value in model.graph.output]
        self.assertEqual(len(everything), len(set(everything)), f"{everything}\n{program}")
        for name, owner in zip(inputs, wanted, strict=True):
            self.assertTrue(name.startswith(owner), f"{inputs} of {wanted}\n{program}")


if __name__ == "__main__":
    unittest.main()
