"""The walk over FX nodes: read the arguments, dispatch to the registry, write the results.

One walker serves the program's graph and every control-flow body. The program is taken as it is.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter import dtypes, registry, sizes
from experimental_experiment.torch_interpreter.dimensions import Dimensions, axis_of_data
from experimental_experiment.torch_interpreter.dtypes import is_complex
from experimental_experiment.torch_interpreter.emitter import Emitter, Origin
from experimental_experiment.torch_interpreter.errors import (
    ExportError,
    ShapeContradiction,
    Untranslatable,
    brief,
    refused,
    target_name,
    untranslated,
)
from experimental_experiment.torch_interpreter.known_results import known_results
from experimental_experiment.torch_interpreter.marks import COLUMNS, PARTS, STAMPED
from experimental_experiment.torch_interpreter.mutation import Mutation
from experimental_experiment.torch_interpreter.provenance import module_calls, provenance
from experimental_experiment.torch_interpreter.regions import Region, vmap_regions
from experimental_experiment.torch_interpreter.storage import Cell, View
from experimental_experiment.torch_interpreter.weights import Weight, in_parts
from experimental_experiment.torch_interpreter.writes import written_nodes

aten = torch.ops.aten

OUR_BUG = "this is a bug of the exporter: please report it"

ONE_DTYPE = frozenset(
    "addbmm addmm addmv baddbmm bilinear bmm dot einsum inner linear matmul mm mv tensordot vdot".split()
)
"""Operators whose tensors have one dtype in eager, which fake tensors do not check."""

NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)

WITHOUT_EFFECT = frozenset(
    {
        "_assert_async",
        "_assert_scalar",
        "_assert_tensor_metadata",
        "_functional_assert_scalar",
        "_print",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    }
)
"""ATen operators that check or print: they never change a value."""

REGION_ENDS = frozenset({torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast})
"""Functions that change what the nodes after them mean."""


@dataclasses.dataclass
class Body:
    """A submodule that a higher-order operator calls."""

    module: torch.fx.GraphModule
    dimensions: Dimensions

    @property
    def outputs(self) -> int:
        """Number of results."""
        result = self.results
        return len(result) if isinstance(result, (list, tuple)) else 1

    @property
    def results(self) -> Any:
        """What the body's output node returns: a node, a list or a tuple of nodes."""
        return self.module.graph.output_node().args[0]

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        """The nodes that the operands bind to, by position."""
        return list(self.module.graph.find_nodes(op="placeholder"))

    def inline(self, op: Emitter, *operands: Any) -> list[ir.Value]:
        """Write the body where *op* is; operands are values, numbers or views. Gives the values of its results."""
        return [value_of(op, result) for result in self.inline_views(op, *operands)]

    def inline_views(self, op: Emitter, *operands: Any) -> list[Any]:
        """Like `inline`, the results being views of the operands where the body aliases them."""
        return Walk(self.module, op, self.dimensions).run(operands)


def value_of(op: Emitter, item: Any) -> Any:
    """The value of a view, and anything else as it is."""
    return item.read(op) if isinstance(item, View) else item


class Walk:
    """One pass over the nodes of a graph.

    *module* owns the graph, *op* writes, *dimensions* names symbolic sizes, *progress* is called once a node. *origin*: the
    node of the user's program that all nodes of this graph come from, when they are the decomposition of one.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        op: Emitter,
        dimensions: Dimensions,
        progress: Callable[[], None] | None = None,
        origin: torch.fx.Node | None = None,
    ):
        self.origin = origin
        self.module = module
        self.op = op
        self.dimensions = dimensions
        self.progress = progress
        self.env: dict[torch.fx.Node, Any] = {}
        self.mutation = Mutation(self)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Translate every node that matters and return what the output node returns, flattened, as views or numbers."""
        graph = self.module.graph
        live = live_nodes(graph)
        regions = vmap_regions(graph, live)
        given = iter(operands)
        context = self.op.context
        results: list[Any] | None = None
        assigned = assignments(graph)
        sources: dict[torch.fx.Node, Any] = {}
        for node in graph.nodes:
            if self.progress is not None:
                self.progress()
            if node in assigned and results is None:
                results = [value_of(self.op, item) for item in flat(self.env_of(graph.output_node().args[0]))]
                sources = {copied: as_view(self.read(copied.args[1])) for copied in assigned}
            if node.op == "placeholder":
                self.env[node] = as_view(next(given))
                self.mutation.add_input(node)
            elif node.op == "output":
                results = flat(self.env_of(node.args[0])) if results is None else results
            elif node not in live or node in self.env:
                continue
            elif node.op == "get_attr":
                self.env[node] = self.attribute(node)
            elif node.op == "call_function":
                with context.at(self.origin_of(node)):
                    if node in regions:
                        self.vmapped(node, regions[node])
                    elif node in sources:
                        self.assign(node, sources[node])
                    else:
                        self.env[node] = self.translated(node)
            else:
                raise ExportError(f"a node {node.op!r} is not part of an exported program", node)
        return results or []

    def origin_of(self, node: torch.fx.Node) -> Origin:
        """What is written for a node comes from it, or from the node of the user's program that it is a part of."""
        written = self.origin or node
        return Origin(node, node.name, provenance(written), module_calls(written))

    def attribute(self, node: torch.fx.Node) -> Any:
        """A body, or a tensor that the module holds."""
        held = self.module
        for part in node.target.split("."):
            held = getattr(held, part)
        if isinstance(held, torch.fx.GraphModule):
            return Body(held, self.dimensions)
        if isinstance(held, FakeTensor):
            raise ExportError(
                f"torch.export kept no values for {node.target}, a tensor that a function reads from outside",
                node,
                "give it to the function as an operand",
            )
        if isinstance(held, torch.Tensor):
            name = self.op.context.names.unique(node.target)
            return View(Cell(self.op.initializer(name, Weight(in_parts(held), name))))
        return held

    def assign(self, node: torch.fx.Node, source: Any) -> None:
        """A copy that torch.export adds at the end: *source* is what was given to the buffer, as it was before all these copies."""
        buffer, given = node.args
        if changes_shape(node):
            self.env[buffer].cell.version += 1  # it is written, by what has no place in it
            return
        kept = self.env[given]
        self.env[given] = source
        self.env[node] = self.translated(node)
        self.env[given] = kept

    # ---- reading

    def env_of(self, argument: Any) -> Any:
        """An argument with nodes replaced by their views, values, numbers or bodies."""
        if isinstance(argument, torch.fx.Node):
            return self.env[argument]
        if isinstance(argument, (list, tuple)):
            return [self.env_of(item) for item in argument]
        if isinstance(argument, dict):
            return {name: self.env_of(item) for name, item in argument.items()}
        return argument

    def read(self, argument: Any) -> Any:
        """An argument with nodes replaced by their values now."""
        if isinstance(argument, torch.fx.Node):
            found = self.env[argument]
            if isinstance(found, View):
                return found.read(self.op)
            if isinstance(found, (list, tuple)):
                return [value_of(self.op, item) for item in found]
            return found
        if isinstance(argument, (list, tuple)):
            return [self.read(item) for item in argument]
        return argument

    def arguments(self, node: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a node by position and by name, read now."""
        return self.read(list(node.args)), {name: self.read(item) for name, item in node.kwargs.items()}

    def vmapped(self, node: torch.fx.Node, region: Region) -> None:
        """Translate the whole region under ``torch.vmap`` that *node* is the first live node of."""
        try:
            body = Body(region.traced(self.op.context.region), self.dimensions)
            with self.op.context.inside(None):
                results = body.inline(self.op, *(self.read(item) for item in region.inputs()))
        except Untranslatable as error:
            raise refused(node, error) from error
        self.env.update(dict.fromkeys(region.nodes))
        for output, value in zip(region.outputs(), results):
            self.env[output] = self.result(output, value, output.meta["val"], output.name)

    # ---- dispatch

    def translated(self, node: torch.fx.Node) -> Any:
        """The result of one node; ExportError with the node and the user's line when it cannot be translated."""
        try:
            return self.call(node)
        except ExportError:
            raise
        except Untranslatable as error:
            raise refused(node, error, self.of_user(node)) from error
        except Exception as error:
            dtypes_given = given_dtypes(node)
            if len(dtypes_given) > 1 and not self.of_user(node):
                raise mixed(node, dtypes_given) from error
            computed = symbolic_parameters(node)
            if computed:
                raise refused(
                    node, Untranslatable(f"{' and '.join(computed)} computed from sizes")
                ) from error
            message = (
                f"the translation of {target_name(node.target)} failed with {type(error).__name__}: {error}"
            )
            raise ExportError(message, node, self.of_user(node) or OUR_BUG) from error

    def of_user(self, node: torch.fx.Node) -> str:
        """The hint where the translation of a node is one that the user gave; ``""`` where it is ours."""
        given = registry.given_by_user(node.target, self.op.context.translations)
        return f"this translation is yours: {given}" if given else ""

    def call(self, node: torch.fx.Node) -> Any:
        """Choose what a node is: an element, a known number, a view of a mutated storage, a write, or plain values."""
        target = node.target
        if target is operator.getitem and isinstance(self.env_of(node.args[0]), (list, tuple)):
            return self.env[node.args[0]][node.args[1]]
        fake = node.meta.get("val")
        if isinstance(fake, NUMBERS):
            known = sizes.known(self.op, fake, node.name)
            if known is not None:
                return known
        written = written_nodes(node) if is_call_of_overload(target) else []
        if written:
            return self.mutation.write(node, written)
        translation = self.translation(node, target)
        if self.mutation.storages and not isinstance(fake, NUMBERS) and not translation.views:
            viewed = self.mutation.viewed(node)
            if any(viewed):
                return self.mutation.view(node, viewed, translation)
        if translation.views:
            args, kwargs = self.env_of(list(node.args)), self.env_of(dict(node.kwargs))
        else:
            args, kwargs = self.arguments(node)
        results = known_results(self, node, translation)
        if results is None:
            results = registry.invoke(translation, self.op, target, args, kwargs)
        return self.results(node, results, fake)

    def translation(self, node: torch.fx.Node, target: Any) -> registry.Translation:
        """The translation of a target: this export's own first, then the registry's.

        A complex argument asks for the complex table; a complex result of real arguments looks there first. The bodies
        of a higher-order operator say themselves what is complex.
        """
        tables = [self.op.context.translations]
        arguments = [*node.all_input_nodes, *node.args, *node.kwargs.values()]
        if isinstance(target, torch._ops.HigherOrderOperator):
            tables.append(registry.TRANSLATIONS)
        elif any(is_complex(argument) for argument in arguments):
            tables.append(registry.COMPLEX)
        elif is_complex(node):
            tables += [registry.COMPLEX, registry.TRANSLATIONS]
        else:
            tables.append(registry.TRANSLATIONS)
        for table in tables:
            for key in registry.keys(target):
                if key in table:
                    region = self.op.context.region
                    return table[key] if region is None else region.adapt(table[key], node)
        raise untranslated(node, target, " of complex tensors" if tables[-1] is registry.COMPLEX else "")

    # ---- writing results

    def results(self, node: torch.fx.Node, results: Any, fake: Any) -> Any:
        """What a translation returned, checked against torch and wrapped for the environment."""
        if isinstance(fake, (list, tuple)):
            if not isinstance(results, (list, tuple)):
                results = [results]
            if len(results) != len(fake):
                raise Untranslatable(f"it gives {len(results)} results, torch {len(fake)}")
            return [
                self.result(node, value, item, f"{node.name}_{k}")
                for k, (value, item) in enumerate(zip(results, fake))
            ]
        return self.result(node, results, fake, node.name)

    def result(self, node: torch.fx.Node, value: Any, fake: Any, name: str) -> Any:
        """One result: a view for a tensor, a number for a symbolic one."""
        if isinstance(fake, (list, tuple)):
            return [self.result(node, v, f, f"{name}_{k}") for k, (v, f) in enumerate(zip(value, fake))]
        if isinstance(fake, torch.Tensor):
            if isinstance(value, View):
                return value
            if value is None:
                raise Untranslatable("it gives None")
            if isinstance(value, (list, tuple)) and any(isinstance(item, ir.Value) for item in value):
                raise Untranslatable(f"it gives {len(value)} results, torch one")
            if not isinstance(value, ir.Value):
                value = self.op.constant(value, fake.dtype)
            value = sizes.plain(value)
            return View(Cell(self.stamp(node, value, fake, name)))
        if isinstance(value, ir.Value) and isinstance(fake, NUMBERS):
            return self.number(value, fake, name)
        return value

    def number(self, value: ir.Value, fake: Any, name: str) -> sizes.Number:
        """A symbolic result: a size that has a name is known by it from now on."""
        if not isinstance(value, sizes.Number):
            value = sizes.Number(value, self.dimensions.label(fake, name))
        if self.op.context.keeps_modules:
            value.read()  # now: the function of another module must not hold it
        sizes.remember(self.op, value)
        return value

    def stamp(self, node: torch.fx.Node, value: ir.Value, fake: torch.Tensor, name: str) -> ir.Value:
        """Check that a value has torch's dtype, rank and sizes, and give it its symbolic sizes and its name.

        Raises ShapeContradiction when both sides know and disagree.
        """
        if value.meta.get(STAMPED) is fake:
            return value
        expected = dtypes.onnx_dtype(fake.dtype)
        expected_sizes = self.dimensions.shape(fake, name)
        axis = axis_of_data(node)
        if axis is not None and isinstance(expected_sizes[axis], int):
            expected_sizes[axis] = self.dimensions.undecided(f"{name}_dim_{axis}")
        if value.type is None:
            value.type = ir.TensorType(expected)
        known = value.shape
        agrees = value.dtype == expected and (
            known is None
            or (
                len(known) == len(expected_sizes)
                and all(
                    a == b for a, b in zip(known, expected_sizes) if isinstance(a, int) and isinstance(b, int)
                )
            )
        )
        if not agrees:
            if not self.of_user(node):
                refuse_another_default(node, value, fake)
            raise ShapeContradiction(
                f"{target_name(node.target)} was translated to {value.dtype.name}{known}, torch says {brief(fake)}",
                node,
                self.of_user(node) or OUR_BUG,
            )
        if value.producer() is not None and STAMPED not in value.meta:
            value.shape = ir.Shape(expected_sizes)
            value.meta[STAMPED] = fake
            tell_parts(value)
            if not self.op.context.keeps_modules:
                sizes.show(self.op, value)
            if not value.is_graph_output():
                value.name = self.op.context.names.unique(name)
        return value


def tell_parts(value: ir.Value) -> None:
    """Give the parts of a complex value, which other translations go on with, the sizes that torch knows of it."""
    for parts, last in ((value.meta.get(PARTS, ()), []), (value.meta.get(COLUMNS, ()), [1])):
        for part in parts:
            if part.producer() is not None and STAMPED not in part.meta:
                part.shape = ir.Shape([*value.shape[:-1], *last])


def refuse_another_default(node: torch.fx.Node, value: ir.Value, fake: torch.Tensor) -> None:
    """Raise ExportError when a result has torch's default dtype of the capture, which is another one now, and nothing else gives it one."""
    default = torch.get_default_dtype()
    is_default = value.dtype == dtypes.onnx_dtype(default) and fake.dtype.is_floating_point
    is_told = bool(given_dtypes(node)) or node.kwargs.get("dtype") is not None
    if is_default and fake.dtype != default and not is_told:
        raise ExportError(
            f"{target_name(node.target)} gives {fake.dtype}, torch's default dtype when it was captured: it is {default} now",
            node,
            f"give it dtype={fake.dtype}, or x.to({fake.dtype}), in the place of torch.set_default_dtype in forward",
        )


def given_dtypes(node: torch.fx.Node) -> list[str]:
    """The dtypes of the tensors among the arguments of a node that should have one, in order: of floats, of all for `ONE_DTYPE`."""
    values = [argument.meta.get("val") for argument in node.all_input_nodes]
    name = node.target._schema.name if is_call_of_overload(node.target) else ""
    takes_one = name.removeprefix("aten::") in ONE_DTYPE
    found = [
        v.dtype for v in values if isinstance(v, torch.Tensor) and (takes_one or v.dtype.is_floating_point)
    ]
    return list(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in found))


def symbolic_parameters(node: torch.fx.Node) -> list[str]:
    """The names of the parameters of an operator that are given symbolic numbers."""
    if not is_call_of_overload(node.target):
        return []
    given = {**dict(zip(registry.schema_names(node.target), node.args)), **node.kwargs}
    fakes = {name: value.meta.get("val") for name, value in given.items() if isinstance(value, torch.fx.Node)}
    return [name for name, fake in fakes.items() if isinstance(fake, NUMBERS)]


def mixed(node: torch.fx.Node, found: list[str]) -> ExportError:
    """The error of an operator whose translation fails on arguments of several dtypes."""
    hint = "give the example the dtype of the weights"
    if getattr(torch, found[0]).is_floating_point:
        hint += f", or the model that of the example: model.to(torch.{found[0]})"
    else:
        hint += f": x.to(torch.{found[1]})"
    return ExportError(f"{target_name(node.target)} takes one dtype, not {' and '.join(found)}", node, hint)


def as_view(operand: Any) -> Any:
    """What a placeholder holds: a view for a tensor; numbers, views and absent arguments as they are."""
    if isinstance(operand, ir.Value) and not isinstance(operand, sizes.Number):
        return View(Cell(operand))
    return operand


def flat(results: Any) -> list[Any]:
    """The leaves of what an output node returns."""
    if isinstance(results, (list, tuple)):
        return [leaf for item in results for leaf in flat(item)]
    return [results]


def is_call_of_overload(target: Any) -> bool:
    """Whether a target is an operator with a schema."""
    return isinstance(target, torch._ops.OpOverload)


def without_effect(target: Any) -> bool:
    """Whether an operator only checks or prints."""
    return is_call_of_overload(target) and target._schema.name.split("::")[-1] in WITHOUT_EFFECT


def assignments(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The copies that torch.export adds at the end for buffers that the model gives another tensor, the last one first.

    In eager the tensor that was a buffer before keeps its elements: what is returned, and what is copied, is read before these copies.
    """
    found = []
    for node in list(reversed(graph.nodes))[1:]:
        is_added = node.target is torch.ops.aten.copy_.default and node.name.startswith("copy__default")
        if not is_added or node.users:
            break
        found.append(node)
    return found


def changes_shape(node: torch.fx.Node) -> bool:
    """Whether an assignment gives a buffer a tensor of another shape, in the example; of sizes that the data decide it is not known."""
    buffer, given = (argument.meta["val"].shape for argument in node.args)
    return len(buffer) != len(given) or any(
        size != (new.node.hint if isinstance(new, torch.SymInt) else new)
        for size, new in zip(buffer, given)
        if not isinstance(new, torch.SymInt) or new.node.has_hint()
    )


def live_nodes(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that the outputs need, and those that write: a mutating node without users is not dead code."""
    live: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if without_effect(node.target):
            continue
        has_effect = node.op == "call_function" and (node.target in REGION_ENDS or written_nodes(node))
        if node.op == "output" or node in live or has_effect:
            live.add(node)
            live.update(node.all_input_nodes)
    return live
