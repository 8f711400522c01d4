"""Views and writes of one graph: what the walk does with an operator that shows or changes memory that is written somewhere.

Everything else is plain values, and never comes here. What a view and a lens are stands in `storage`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.dtypes import is_complex
from experimental_experiment.torch_interpreter.emitter import Emitter, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable, refused
from experimental_experiment.torch_interpreter.marks import STAMPED
from experimental_experiment.torch_interpreter.memory import are_disjoint, has_repeats, view_repeats
from experimental_experiment.torch_interpreter.storage import Lens, View, Viewed, lens_of
from experimental_experiment.torch_interpreter.writes import (
    FILLS,
    HIDDEN_WRITES,
    SAME_TENSOR,
    mutated_storages,
    returned_argument,
    storage_of,
)

if TYPE_CHECKING:
    from experimental_experiment.torch_interpreter.interpreter import Walk

aten = torch.ops.aten

METADATA_TWINS = {
    aten.as_strided_.default: aten.as_strided.default,
    aten.resize_.default: aten.resize.default,
    aten.resize_as_.default: aten.resize_as.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.swapaxes_.default: aten.swapaxes.default,
    aten.swapdims_.default: aten.swapdims.default,
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.unsqueeze_.default: aten.unsqueeze.default,
}
"""In-place operators that change how a tensor is seen, not what it holds: every earlier name sees the change."""


class Mutation:
    """The views and the writes of one walk.

    Attributes:
        walk: reads arguments, finds translations, checks results.
        storages: those that a node of the graph writes.
        inputs: the inputs of the graph that show one of them, by storage.
    """

    def __init__(self, walk: Walk):
        self.walk = walk
        self.storages = mutated_storages(walk.module.graph)
        self.inputs: dict[int | None, list[torch.fx.Node]] = {}

    def add_input(self, node: torch.fx.Node) -> None:
        """Remember an input of the graph that shows a storage which is written."""
        storage = storage_of(node.meta.get("val"))
        if node.users and storage in self.storages:
            self.inputs.setdefault(storage, []).append(node)

    def viewed(self, node: torch.fx.Node) -> list[torch.fx.Node | None]:
        """For each result of *node*, the argument whose mutated storage it shares, None when it shares none."""
        fake = node.meta.get("val")
        returned = returned_argument(node)
        if returned is not None and storage_of(returned.meta["val"]) in self.storages:
            return [returned]
        found: list[torch.fx.Node | None] = []
        for position, item in enumerate(fake if isinstance(fake, (list, tuple)) else [fake]):
            storage = storage_of(item)
            sharing = [x for x in node.all_input_nodes if storage_of(x.meta.get("val")) == storage]
            # operators over a list give one result for each tensor of it, in order
            lists = [argument for argument in node.args if isinstance(argument, (list, tuple))]
            paired = [each[position] for each in lists if position < len(each) and each[position] in sharing]
            found.append((paired or sharing or [None])[0] if storage in self.storages else None)
        return found

    def view(
        self, node: torch.fx.Node, viewed: list[torch.fx.Node | None], translation: registry.Translation
    ) -> Any:
        """The results of a view operator over storages that are written somewhere: the same cells, one lens more.

        What shares the memory of no such storage is a plain result.
        """
        args, kwargs = self.walk.arguments(node)
        fake = node.meta["val"]
        if not isinstance(fake, (list, tuple)):
            return self.walk.env[viewed[0]].through(
                self.lens(node, viewed[0], node.target, args, kwargs, fake)
            )
        results: list[Any] = [None] * len(fake)
        if not all(viewed):
            plain = registry.invoke(translation, self.walk.op, node.target, args, kwargs)
            results = self.walk.results(node, plain, fake)
        for position, (argument, item) in enumerate(zip(viewed, fake)):
            if argument is not None:
                lens = self.lens(node, argument, node.target, args, kwargs, item, position)
                results[position] = self.walk.env[argument].through(lens)
        return results

    def lens(
        self,
        node: torch.fx.Node,
        viewed: torch.fx.Node,
        target: Any,
        args: list,
        kwargs: dict,
        fake: torch.Tensor,
        position: int | None = None,
    ) -> Lens:
        """The lens of one result of a view operator, *viewed* being the argument that it views.

        The operator may be *target* where *node* is its in-place version.
        """
        translation = self.walk.translation(node, target)
        arguments = registry.bind(target, translation, args, kwargs)
        given = registry.bind(target, translation, list(node.args), node.kwargs)
        name = node.name if position is None else f"{node.name}_{position}"

        def stamp(value: ir.Value) -> ir.Value:
            return self.walk.stamp(node, value, fake, name)

        lens = lens_of(
            translation, node, target, arguments, viewed_in(given, viewed, position), stamp, position
        )
        repeats = view_repeats(target, given, fake, self.walk.env[viewed].repeats)

        def get(op: Emitter, base: ir.Value) -> ir.Value:
            try:
                return lens.get(op, base)
            except Untranslatable as error:
                raise refused(node, error) from error

        return dataclasses.replace(lens, get=get, repeats=repeats)

    def write(self, node: torch.fx.Node, written: list[torch.fx.Node]) -> Any:
        """An operator that mutates arguments: compute the new values, write them through the views."""
        target = node.target
        views = [self.walk.env[argument] for argument in written]
        if target in SAME_TENSOR:
            return views[0]
        for argument in written:
            self.refuse_shared_input(storage_of(argument.meta["val"]))
        if "self" in registry.written_arguments(target) and isinstance(node.args[0], (list, tuple)):
            refuse_shared_entries(node)
        if target in METADATA_TWINS:
            return self.change_metadata(node, views[0])
        twin = None if self.has_own(target) else registry.twin(target)
        translation = self.walk.translation(node, twin or target)
        args, kwargs = self.walk.arguments(node)
        if twin is not None:
            names = set(registry.schema_names(twin))
            omitted = dict(registry.defaults(target)[len(args) :])  # its twin may have no default
            kwargs = {name: value for name, value in {**omitted, **kwargs}.items() if name in names}
            if "dtype" in names and "dtype" not in registry.schema_names(target):
                kwargs["dtype"] = written[0].meta["val"].dtype
        results = registry.invoke(translation, self.walk.op, twin or target, args, kwargs)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        returned = [] if twin is not None else results[: len(results) - len(views)]
        for argument, view, value in zip(written, views, results[len(returned) :]):
            new = self.fitted(node, argument, view, value)
            if len(views) == 1 and new.shape == view.read(self.walk.op).shape:
                self.name_result(node, new)
            view.write(self.walk.op, new, is_uniform(node))
        if not target._schema.returns:
            return None
        if target in HIDDEN_WRITES or (twin is None and returned):
            return self.walk.results(
                node, returned[0] if len(returned) == 1 else returned, node.meta.get("val")
            )
        return views[0] if len(target._schema.returns) == 1 else views

    def refuse_shared_input(self, storage: int | None) -> None:
        """Raise Untranslatable when inputs show an element of a written storage twice: those of an ONNX model never do."""
        inputs = self.inputs.get(storage, [])
        for position, node in enumerate(inputs):
            view, fake = self.walk.env[node], node.meta["val"]
            if not view.path and has_repeats(fake):
                raise Untranslatable(
                    f"it writes {node.name}, an input with one element in two places: clone it before"
                )
            for other in inputs[:position]:
                if self.walk.env[other].cell is not view.cell and not are_disjoint(fake, other.meta["val"]):
                    raise Untranslatable(
                        f"it writes the memory that the inputs {other.name} and {node.name} share: clone one before"
                    )

    def has_own(self, target: Any) -> bool:
        """Whether the mutating overload itself is translated, rather than through its functional twin."""
        tables = (self.walk.op.context.translations, registry.TRANSLATIONS)
        return any(key in table for table in tables for key in registry.keys(target))

    def fitted(self, node: torch.fx.Node, argument: torch.fx.Node, view: View, value: Any) -> ir.Value:
        """A new value with the dtype of the storage it is written to, broadcast to its shape; ``out=torch.empty(0)`` gets that of the value."""
        old = view.read(self.walk.op)
        is_condition = isinstance(value, ir.Value) and value.dtype == ir.DataType.BOOL
        value = self.walk.op.Cast(self.walk.op.constant(value, old.dtype), to=old.dtype)
        if is_condition and is_complex(argument):
            real = self.walk.op.Unsqueeze(value, [-1])
            value = self.walk.op.Concat(real, self.walk.op.Mul(real, 0), axis=-1)
        if value.shape is None:
            # what writes into a tensor has its shape, or is broadcast to it by its translation
            value.shape = old.shape
        if gives_results(node.target) and has_other_shape(value, old):
            refuse_other_views(node, argument, view)
            return value
        if rank(value) != rank(old):
            value = self.walk.op.Expand(value, self.walk.op.shape_of(old))
        return value

    def name_result(self, node: torch.fx.Node, value: ir.Value) -> None:
        """Call what is written as the node that writes it, unless it has a name already: it is the result of that node."""
        if value.producer() is not None and STAMPED not in value.meta and not value.is_graph_output():
            value.name = self.walk.op.context.names.unique(node.name)

    def change_metadata(self, node: torch.fx.Node, view: View) -> View:
        """``t_``, ``squeeze_``, ...: the tensor is seen through one more lens under all its names."""
        twin = METADATA_TWINS[node.target]
        args, kwargs = self.walk.arguments(node)
        view.reshape_in_place(self.lens(node, node.args[0], twin, args, kwargs, node.meta["val"]))
        return view


def viewed_in(given: dict[str, Any], viewed: torch.fx.Node, position: int | None) -> Viewed:
    """Where the node *viewed* is among the arguments *given* of a view operator; twice in a list: for the result *position*."""
    name, argument = next(
        (name, item) for name, item in given.items() if item is viewed or is_list_with(item, viewed)
    )
    if argument is viewed:
        return Viewed(viewed, name)
    is_paired = position is not None and position < len(argument) and argument[position] is viewed
    return Viewed(viewed, name, position if is_paired else list(argument).index(viewed))


def refuse_shared_entries(node: torch.fx.Node) -> None:
    """Raise Untranslatable when an entry of an operator over lists is what an earlier one writes: eager takes one after the other."""
    written, *others = node.args
    places: dict[int | None, list[tuple[int, torch.fx.Node]]] = {}
    for position, entry in enumerate(written):
        places.setdefault(storage_of(entry.meta["val"]), []).append((position, entry))
    lists = [written, *(other for other in others if isinstance(other, (list, tuple)))]
    read = [item for each in lists for item in enumerate(each)]
    read += [(len(written), other) for other in others if isinstance(other, torch.fx.Node)]
    for position, entry in read:
        fake = entry.meta.get("val") if isinstance(entry, torch.fx.Node) else None
        if not isinstance(fake, torch.Tensor):
            continue
        for earlier, other in places.get(storage_of(fake), []):
            if earlier < position and not are_disjoint(fake, other.meta["val"]):
                raise Untranslatable(
                    f"it writes {other.name} before it reads {entry.name}, which shares its memory: clone it before"
                )


def gives_results(target: Any) -> bool:
    """Whether an operator writes its results into its arguments ``out=``, which torch gives the shape of the results."""
    return any(argument.is_out for argument in target._schema.arguments)


def has_other_shape(x: ir.Value, other: ir.Value) -> bool:
    """Whether two values are known to differ in shape."""
    return rank(x) != rank(other) or any(
        isinstance(size, int) and isinstance(own, int) and size != own
        for size, own in zip(x.shape, other.shape)
    )


def refuse_other_views(node: torch.fx.Node, resized: torch.fx.Node, view: View) -> None:
    """Raise Untranslatable when the memory of a tensor that *node* resizes is seen in another way: that view keeps its shape."""
    storage = storage_of(resized.meta["val"])
    shown = [
        user
        for user in resized.users
        if storage_of(user.meta.get("val")) == storage and not registry.written_arguments(user.target)
    ]
    if view.path or any(user < node for user in shown):
        raise Untranslatable(
            f"it resizes {resized.name}, whose memory another tensor shows: make it of the shape of the result"
        )


def is_list_with(argument: Any, viewed: torch.fx.Node) -> bool:
    """Whether an argument is a list with this node."""
    return isinstance(argument, (list, tuple)) and viewed in argument


def is_uniform(node: torch.fx.Node) -> bool:
    """Whether an in-place operator writes one number everywhere."""
    if node.target is aten.copy_.default:
        source = node.args[1]
        return isinstance(source, torch.fx.Node) and source.meta["val"].dim() == 0
    return node.target in FILLS
