"""Repeated layers of a graph: runs of nodes that stand several times one after the other, each reading what the one before gives.

They are found by their structure, so that models of any exporter can be folded; the modules that the nodes come from, where they
are recorded, say where a layer begins and what it is called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

SHORTEST = 3
"""Nodes of the shortest layer that is folded."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A node as folding sees it.

    Attributes:
        signature: what two nodes share that do the same: operator, attributes, kinds of constants.
        inputs: names of the results that it reads.
        outputs: names of its results.
        module: path of the module it comes from, as ``layers.0.attention``; ``""`` when it is not known.
    """

    signature: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str = ""


@dataclasses.dataclass
class Layer:
    """A layer that is drawn once.

    Attributes:
        start: position of its first node.
        length: number of its nodes.
        copies: how often it stands one after the other.
        first: module that all its nodes come from, ``""`` when there is none.
        last: that of its last copy.
        links: (name of a result, position of a node): what the node of the next copy reads.
    """

    start: int
    length: int
    copies: int
    first: str = ""
    last: str = ""
    links: set[tuple[str, int]] = dataclasses.field(default_factory=set)

    @property
    def end(self) -> int:
        """Position after its last copy."""
        return self.start + self.length * self.copies

    @property
    def hidden(self) -> int:
        """Number of nodes that are not drawn."""
        return self.length * (self.copies - 1)

    def quality(self) -> tuple[int, ...]:
        """What makes one layer better than another: it hides more, is cut where fewer results cross, is a deeper module, begins first."""
        crossing = {name for name, _ in self.links}
        return self.hidden, -len(crossing), len(self.first.split(".")) if self.first else 0, -self.start


@dataclasses.dataclass
class Folding:
    """Which nodes of a graph are drawn.

    Attributes:
        layers: the layers, in the order of the nodes.
        stands_for: the name that is drawn for each result of a copy that is not.
    """

    layers: list[Layer]
    stands_for: dict[str, str]

    def is_drawn(self, position: int) -> bool:
        """Whether a node is drawn: it is in no copy but the first."""
        return not any(layer.start + layer.length <= position < layer.end for layer in self.layers)


def folded(steps: Sequence[Step]) -> Folding:
    """The layers of a graph, the largest one first, then those before and after it."""
    origins = {
        name: (position, slot)
        for position, step in enumerate(steps)
        for slot, name in enumerate(step.outputs)
        if name
    }
    layers: list[Layer] = []
    stands_for: dict[str, str] = {}
    pending = [(0, len(steps))]
    while pending:
        begin, end = pending.pop()
        found = longest_repetition(steps, begin, end, origins)
        if found is not None:
            layer, names = found
            layers.append(layer)
            stands_for.update(names)
            pending += [(begin, layer.start), (layer.end, end)]
    return Folding(sorted(layers, key=lambda layer: layer.start), stands_for)


def longest_repetition(
    steps: Sequence[Step], begin: int, end: int, origins: Mapping[str, tuple[int, int]]
) -> tuple[Layer, dict[str, str]] | None:
    """The layer of ``steps[begin:end]`` that hides most nodes, and what its first copy stands for; None when there is none.

    Cost: a comparison of numbers for each pair of nodes.
    """
    kinds = {signature: number for number, signature in enumerate({step.signature for step in steps})}
    numbers = np.array([kinds[step.signature] for step in steps[begin:end]])
    candidates = []
    for length in range(SHORTEST, len(numbers) // 2 + 1):
        for start, size in runs(numbers[:-length] == numbers[length:]):
            if size >= length:
                candidates.append(
                    (size // length * length, -length, begin + start, begin + start + size + length)
                )
    best = None
    for hidden, negative, start, stop in sorted(candidates, reverse=True)[:MOST_CANDIDATES]:
        if best is not None and hidden < best[0].hidden:
            break
        for first in range(start, start - 2 * negative):
            copies = (stop - first) // -negative
            found = consistent(steps, origins, Layer(first, -negative, copies)) if copies > 1 else None
            if found is not None and (best is None or found[0].quality() > best[0].quality()):
                best = found
    return best


MOST_CANDIDATES = 50
"""Repetitions that are looked at closely, those that hide most nodes first."""


def runs(equal: np.ndarray) -> list[tuple[int, int]]:
    """(start, size) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    return [(int(start), int(stop - start)) for start, stop in zip(edges[::2], edges[1::2])]


def consistent(
    steps: Sequence[Step], origins: Mapping[str, tuple[int, int]], layer: Layer
) -> tuple[Layer, dict[str, str]] | None:
    """The layer, with as many copies as read what the others read, and what its first copy stands for; None when it is no layer.

    A node reads results of its own copy, of the copy before, or from outside: the same for all, or an input or constant of each.
    Two copies are a layer when they come from two modules, three or more in any case.
    """
    stands_for: dict[str, str] = {}
    links: dict[tuple[int, int], str] = {}
    for copy in range(1, layer.copies):
        found = same_as_first(steps, origins, layer, copy, links)
        if found is None:
            layer.copies = copy
            break
        stands_for |= found
    layer.links = {(name, position) for (position, _), name in links.items()}
    layer.first, layer.last = (
        common_module(steps[start : start + layer.length])
        for start in (layer.start, layer.end - layer.length)
    )
    is_layer = layer.copies > 2 or (layer.copies == 2 and layer.first != layer.last)
    return (layer, stands_for) if is_layer else None


def same_as_first(
    steps: Sequence[Step],
    origins: Mapping[str, tuple[int, int]],
    layer: Layer,
    copy: int,
    links: dict[tuple[int, int], str],
) -> dict[str, str] | None:
    """What the results and inputs of the first copy stand for in another one, None when that reads something else.

    *links*: by position and slot of a node, the result of the copy before that it reads; those of the second copy are added.
    """
    stands_for: dict[str, str] = {}
    shift = copy * layer.length
    begin = layer.start + shift
    for position in range(layer.start, layer.start + layer.length):
        first, other = steps[position], steps[position + shift]
        stands_for.update((theirs, ours) for ours, theirs in zip(first.outputs, other.outputs) if theirs)
        for slot, (ours, theirs) in enumerate(zip(first.inputs, other.inputs)):
            source, origin = origins.get(ours), origins.get(theirs)
            link = None
            if origin is not None and origin[0] >= begin:
                if source != (origin[0] - shift, origin[1]):
                    return None
            elif origin is not None and origin[0] >= begin - layer.length:
                if source is not None and source[0] >= layer.start:
                    return None
                link = steps[origin[0] - shift + layer.length].outputs[origin[1]]
            elif ours != theirs:
                if source is not None or origin is not None:
                    return None
                stands_for[theirs] = ours
            if copy == 1 and link is not None:
                links[position, slot] = link
            elif links.get((position, slot)) != link:
                return None
    return stands_for


def common_module(steps: Sequence[Step]) -> str:
    """The deepest module that all nodes come from."""
    paths = [step.module.split(".") for step in steps]
    shared = []
    for names in zip(*paths):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)
