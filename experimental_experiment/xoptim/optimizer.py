"""`optimize`: rules over a model, its control-flow bodies and its local functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass

from experimental_experiment.garbage import paused_collection
from experimental_experiment.progress import Progress, nothing, silent
from experimental_experiment.protos import PRODUCER, from_proto, restore_names, to_proto, write_for
from experimental_experiment.torch_interpreter.dimensions import Dimensions
from experimental_experiment.torch_interpreter.emitter import Context, content_of
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import infer, is_shared
from experimental_experiment.torch_interpreter.marks import SELECTED
from experimental_experiment.torch_interpreter.runtime.table import refuse_misfit_target
from experimental_experiment.xoptim.constants import given_by, lift_constants, lowered_constants
from experimental_experiment.xoptim.doubts import (
    Doubts,
    forget_calls,
    forget_functions,
    is_other,
    tells_shapes,
)
from experimental_experiment.xoptim.engine import Engine
from experimental_experiment.xoptim.graphs import (
    WITH_BODIES,
    annotated_weights,
    bodies_of,
    holders_of,
    nodes_of,
    remove_unused_nodes,
    remove_unused_weights,
    share_expressions,
)
from experimental_experiment.xoptim.hidden import (
    has_negative_axes,
    is_empty,
    keeps_names,
    part_as_onnxruntime,
)
from experimental_experiment.xoptim.inferring import (
    forget_names,
    forget_sizes,
    has_open_sizes,
    infer_shapes,
    name_sizes,
    size_names,
    size_names_of,
)
from experimental_experiment.xoptim.options import OptimizationOptions
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.rules import Rule
from experimental_experiment.xoptim.shapes import joined_shape
from experimental_experiment.xoptim.validity import check_arguments, check_nodes, check_rules, title
from experimental_experiment.xoptim.weights import compute_weights

Nodes = dict[ir.Graph | ir.Function, list[ir.Node]]
"""The nodes of each graph and function, those of bodies included, in order."""


RECURRENT = frozenset(("GRU", "LSTM", "RNN"))
"""Operators behind which torch.onnx.export may write sizes of its example."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What `optimize` is asked to do with a model, see its arguments; *rules* are all of them."""

    rules: list[Rule]
    options: OptimizationOptions
    report: Report
    runtime: str
    special_values: bool


@contextlib.contextmanager
def open_defaults(graph: ir.Graph) -> Iterator[None]:
    """While this lasts, the initializers that are inputs too hold nothing: who runs the model may give another value."""
    defaults = {
        name: (value, value.const_value)
        for name, value in graph.initializers.items()
        if value.is_graph_input() and value.const_value is not None
    }
    for name, (value, _) in defaults.items():
        del graph.initializers[name]
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in defaults.values():
            value.const_value = tensor
            graph.register_initializer(value)


NO_SIZES = frozenset(("", "?", "None", "-1"))
"""What converters write for a size that may be any: two of them are not equal, as those of a name are."""


@contextlib.contextmanager
def declared_interface(model: ir.Model) -> Iterator[None]:
    """After this, the inputs and outputs have the types that they have now: inference makes up names of sizes, users read these.

    While it lasts, a size of -1 or `NO_SIZES` is unknown. So are the sizes of outputs that have names in a file of another exporter: such files
    give an input and an output the same names, also where the model cuts or pads them. A name stays that what reads the output has, too.
    """
    graph = model.graph
    inputs = [(value, value.shape) for value in graph.inputs]
    outputs = [(value.type, value.shape) for value in graph.outputs]
    is_foreign = model.producer_name != PRODUCER
    if is_foreign:
        for value in graph.outputs:
            if value.producer() is not None:
                forget_sizes([value], functools.partial(is_unconfirmed, names_behind(value)))
    declared = [shape for _, shape in (*inputs, *outputs) if shape is not None]
    if is_foreign or any(map(is_no_size, itertools.chain(*declared))):
        nodes = nodes_of(graph)
        carried = [value for node in holders_of(nodes) for body in bodies_of(node) for value in body.inputs]
        results = [value for node in nodes for value in node.outputs]
        forget_sizes((*graph.inputs, *carried, *results), is_no_size)
    yield
    for value, shape in inputs:
        value.shape = shape
    for value, (given, shape) in zip(graph.outputs, outputs):
        if given is not None:
            value.type, value.shape = given, shape


def names_behind(value: ir.Value) -> set[str]:
    """The names of sizes in what is computed of a value, outputs left out: what a file tells of it was inferred."""
    results = (result for use in value.uses() for result in use.node.outputs)
    return size_names_of(result for result in results if not result.is_graph_output())


def is_unconfirmed(names: Container[str], size: int | ir.SymbolicDim) -> bool:
    """Whether a size is neither a number nor one of these names."""
    return not isinstance(size, int) and size.value not in names


def is_no_size(size: int | ir.SymbolicDim) -> bool:
    """Whether a size of a file is none."""
    return size < 0 if isinstance(size, int) else size.value in NO_SIZES


@paused_collection()
def optimize(
    model: ir.Model | onnx.ModelProto,
    options: OptimizationOptions | None = None,
    *,
    rules: Iterable[Rule] = (),
    report: Report | None = None,
    runtime: str = "onnxruntime",
    special_values: bool = False,
    progress: Progress = silent,
) -> ir.Model | onnx.ModelProto:
    """Rewrite a model by rules until none applies.

    Args:
        model: an ``onnx_ir.Model``, changed in place, or a ModelProto, which is left as it is.
        options: see `OptimizationOptions`.
        rules: rules of the caller, tried before those of *options*.
        report: filled with what was done.
        runtime: what the model is written for, as in `to_onnx`.
        special_values: leave out the rules that may change NaN or the sign of zero, as in `to_onnx`.
        progress: as for `to_onnx`, a step a node.

    Returns the optimized model, of the type that was given; its outputs have the types that they had.
    Raises OptimizationError when a rule does not end, changes a type or gives no value, TypeError for other arguments, ValueError for another *runtime*, when
    onnx-ir does not read a part of the model, or when a node contradicts its operator, or what is computed the sizes that a file tells of it.
    """
    check_arguments(model, options, rules, report, progress)
    refuse_misfit_target(runtime, special_values)
    options = options or OptimizationOptions()
    report = Report() if report is None else report
    is_proto = isinstance(model, onnx.ModelProto)
    target = from_proto(model) if is_proto else model
    is_ours = target.producer_name == PRODUCER
    if is_ours and not is_proto:
        restore_names(target)  # of a file that was read by onnx-ir alone
    start = time.perf_counter()
    request = Request([*rules, *options.rules], options, report, runtime, special_values)
    graph = target.graph
    has_annotations = bool(model.graph.quantization_annotation) if is_proto else not is_ours
    with (
        annotated_weights(graph) if has_annotations else contextlib.nullcontext(),
        open_defaults(graph),
        declared_interface(target),
        lowered_constants(target),
    ):
        rewrite_all(target, request, progress)
    write_for(target, runtime)
    report.seconds += time.perf_counter() - start
    return to_proto(target) if is_proto else target


def rewrite_all(target: ir.Model, request: Request, progress: Progress) -> None:
    """Rewrite the graph and the local functions of a model by rules until none applies."""
    options, report = request.options, request.report
    check_rules(request.rules)
    # what nothing reads would still count as a user of what it reads
    nodes = all_nodes(target, options.remove_unused)
    for root, members in nodes.items():
        check_nodes(members, root.opset_imports)
    unranked: list[ir.Value] = []
    made_up: set[str] = set()
    given = name_sizes(target.graph.inputs)  # until `declared_interface` ends
    if request.rules or options.constant_folding:
        nodes[target.graph], unranked = prepare(target, nodes[target.graph], request.runtime, made_up)
    count = sum(map(len, nodes.values()))
    report.nodes_before += count
    learned, is_clean, step = True, True, progress("optimize", count)
    by_rules: set[ir.Node] = set()
    while learned:
        changes = [rewrite(root, members, request, step) for root, members in nodes.items()]
        step = nothing
        by_rules.update(*(written for _, _, written in changes))
        has_changed, may_tell = (any(change[position] for change in changes) for position in (0, 1))
        may_tell = may_tell and has_open_sizes(target.graph, by_rules)
        unknown = bool(made_up) or any(value.shape is None for value in unranked)
        may_tell = may_tell or (has_changed and unknown)
        learned = may_tell and infer_shapes(target, made_up)
        is_clean = is_clean and not has_changed
        if not is_clean:
            nodes, is_clean = all_nodes(target, options.remove_unused and not learned), not learned
        elif options.remove_unused:  # rules may have written constants before they declined
            remove_unused_weights(target.graph)
    if options.remove_unused and target.functions:
        RemoveUnusedFunctionsPass()(target)
    forget_names(nodes[target.graph], made_up | given)
    domains: set[str] = {""}
    for root in (target.graph, *target.functions.values()):
        report.nodes_after += len(nodes[root])
        domains.update([node.domain for node in nodes[root]])
    for domain in set(target.graph.opset_imports) - domains:
        del target.graph.opset_imports[domain]


def all_nodes(model: ir.Model, remove_unused: bool) -> Nodes:
    """The nodes of the graph and of each function; with *remove_unused*, those that nothing reads are removed from both."""
    functions = model.functions.values()
    if not remove_unused:
        return {root: nodes_of(root) for root in (model.graph, *functions)}
    kept = {
        root: remove_unused_nodes(root, root.opset_imports.get("", 1)) for root in (*functions, model.graph)
    }
    return {root: kept[root] for root in (model.graph, *functions)}


def prepare(
    model: ir.Model, nodes: list[ir.Node], runtime: str, made_up: set[str]
) -> tuple[list[ir.Node], list[ir.Value]]:
    """Constants become initializers, and shapes are known: what rules look at.

    Adds the names of sizes that inference makes up. Returns the *nodes* of the main graph that stay, and the values that had no shape.
    """
    operators, opset = {node.op_type for node in nodes}, model.graph.opset_imports.get("", 1)
    if "Constant" in operators:
        lift_constants(nodes)
        nodes = nodes_of(model.graph)
    if "SplitToSequence" in operators and runtime == "onnxruntime":
        part_as_onnxruntime(nodes)
    holders = [] if operators.isdisjoint(WITH_BODIES) else holders_of(nodes)
    bodies = (body for node in holders for body in bodies_of(node))
    for value in (value for graph in (model.graph, *bodies) for value in graph.initializers.values()):
        tensor = value.const_value
        # a file may tell another shape of it, with which inference learns nothing at all
        if tensor is not None and value.shape != tensor.shape:
            value.shape = ir.Shape(tensor.shape)
    is_foreign = model.producer_name != PRODUCER
    doubtful: list[ir.Node] = []
    called: dict[ir.Value, ir.Shape] = {}
    named: set[str] = set()
    if is_foreign:
        named = size_names(nodes)
        forget_names(nodes, named)  # which do not tell all that is equal
        forget_kept_names(nodes, opset)
        doubtful = [node for node in nodes if tells_shapes(node)]
        forget_functions(model)
        called = forget_calls(model, nodes)
    unknown = [value for node in nodes for value in node.outputs if value.shape is None]
    if is_foreign and not RECURRENT.isdisjoint(operators) and size_names_of(model.graph.inputs):
        forget_examples(model, nodes, made_up)
    infers = bool(named) or any(value.producer().graph is model.graph for value in unknown)
    if infers:
        infer_shapes(model, made_up)
    shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
    names = {size.value for shape in shapes for size in shape if not isinstance(size, int)}
    is_wrong = any(is_other(value.shape, shape, names) for value, shape in called.items())
    is_wrong = is_wrong or any(map(Doubts(opset, names).contradict, doubtful))
    for value, shape in called.items():
        value.shape = joined_shape(value.shape, shape)
    if is_wrong:
        forget_shapes(nodes)
        unknown = [value for node in nodes for value in node.outputs]
        infer_shapes(model, made_up)
    correct_ranks(model.graph)
    return nodes, unknown


def forget_kept_names(nodes: Sequence[ir.Node], opset: int) -> None:
    """Where inference may have given a part of an axis the name of all of it, sizes of a file have no names from now on.

    Where it may have taken for empty what is not, or axes for others, there are no sizes either.
    """
    slices = [node for node in nodes if node.op_type == "Slice"]
    parts = [node.outputs[0] for node in slices if keeps_names(node, opset)]
    is_wrong = any(map(is_empty, slices)) or any(has_negative_axes(node, opset) for node in nodes)
    if parts or is_wrong:
        values = [value for node in nodes for value in node.outputs]
        forget_sizes(values, lambda size: is_wrong or not isinstance(size, int))
    for value in parts:
        value.shape = None


def forget_examples(model: ir.Model, nodes: Iterable[ir.Node], made_up: set[str]) -> None:
    """Where a file gives a number for a size, and its nodes give the name of one of an input, it is unknown from now on.

    torch.onnx.export writes the length of the example behind an LSTM whose length is dynamic.
    """
    given = {value: value.shape for node in nodes for value in node.outputs if value.shape is not None}
    given = {value: shape for value, shape in given.items() if any(isinstance(size, int) for size in shape)}
    if not given:
        return
    for value in given:
        value.shape = None
    infer_shapes(model, made_up)
    names = size_names_of(model.graph.inputs)
    for value, shape in given.items():
        found, sizes = value.shape, list(shape)
        if found is not None and len(found) == len(shape):
            for axis, size in enumerate(found):
                if isinstance(sizes[axis], int) and not isinstance(size, int) and size.value in names:
                    sizes[axis] = ir.SymbolicDim(None)
        value.shape = ir.Shape(sizes)


def forget_shapes(nodes: Iterable[ir.Node]) -> None:
    """No result of a node has a shape from now on, and no input of a body a size."""
    for node in nodes:
        for value in node.outputs:
            value.shape = None
        for body in bodies_of(node):
            forget_sizes(body.inputs, lambda _: True)


def correct_ranks(graph: ir.Graph) -> None:
    """Where a file tells another rank of an output than its node gives, which no runtime minds, rules read the node's."""
    opset = graph.opset_imports.get("", 1)
    for value in graph.outputs:
        node = value.producer()
        if value.shape is None or node is None or node.domain or bodies_of(node):
            continue
        declared = [(output, output.type, output.shape) for output in node.outputs]
        rank = len(value.shape)
        try:
            with contextlib.suppress(Untranslatable):  # sizes that contradict its operator stay as they are
                infer(node, opset)
        except onnx.checker.ValidationError as error:
            raise ValueError(f"{title(node)} is invalid: {error}") from error
        if value.shape is None or len(value.shape) == rank:
            for output, kind, shape in declared:
                output.type, output.shape = kind, shape


def rewrite(
    root: ir.Graph | ir.Function, nodes: list[ir.Node], request: Request, step: Callable[[], object]
) -> tuple[bool, bool, set[ir.Node]]:
    """Apply rules to one graph, or one local function, and share its expressions, until neither changes anything.

    Each of its *nodes* is a *step*. Returns whether something has changed, whether this may tell sizes, and the nodes that rules wrote.
    """
    options, report = request.options, request.report
    start, has_changed = len(report.applications), False
    rules, folds = request.rules, options.constant_folding
    if isinstance(root, ir.Function) and any(map(reads_its_caller, nodes)):
        rules, folds = [], False  # which would take what the caller gives for the default
    context = context_of(root, nodes, request)
    engine = Engine(root, context, rules, report, folds=folds)
    if options.common_subexpressions and share_expressions(root):
        nodes, has_changed = nodes_of(root), True
    computes = folds and isinstance(root, ir.Graph)
    if computes and compute_weights(root, context, report, options.stop_after):
        nodes, has_changed = nodes_of(root), True
    waiting: Sequence[ir.Node] = nodes
    before = start  # expressions may be the same that read the weights computed now
    while waiting:
        engine.run(waiting, options.stop_after, step)
        waiting, step = [], nothing
        if len(report.applications) > before:
            before = len(report.applications)
            changed: list[ir.Value] = []
            if options.common_subexpressions:
                changed += [value for node in share_expressions(root) for value in node.outputs]
            if computes:
                changed += compute_weights(root, context, report, options.stop_after)
            waiting = [node for value in changed for node in engine.users_within_reach(value)]
    return has_changed or len(report.applications) > start, engine.may_tell_sizes, engine.written


def reads_its_caller(node: ir.Node) -> bool:
    """Whether an attribute of a function's node is one of who calls the function."""
    return any(attribute.is_ref() for attribute in node.attributes.values())


def context_of(root: ir.Graph | ir.Function, nodes: list[ir.Node], request: Request) -> Context:
    """What the emitters of one graph share: its operator sets, the names that are taken, its small constants, each once."""
    domains = root.opset_imports
    runtime, special_values = request.runtime, request.special_values
    context = Context(
        root,
        domains.get("", 1),
        domains=domains,
        runtime=runtime,
        special_values=special_values,
        dimensions=Dimensions.written(root.meta.get(SELECTED, ())),
    )
    taken = [node.name for node in nodes]
    taken += [value.name for node in nodes for value in node.outputs]
    for graph in (root, *(body for node in holders_of(nodes) for body in bodies_of(node))):
        taken += [value.name for value in graph.inputs]
        taken += graph.initializers if isinstance(graph, ir.Graph) else ()
    # at once: a dict that grows is copied again and again
    context.names.count.update(dict.fromkeys(taken, 0))
    if isinstance(root, ir.Graph):
        share_constants(root, context)
    else:
        declare_constants(nodes)
    return context


def declare_constants(nodes: list[ir.Node]) -> None:
    """The constants of a local function, which has no initializers, know what they hold."""
    for node in nodes:
        if node.op_type == "Constant" and not node.domain:
            (value,) = node.outputs
            tensor = given_by(node)
            if tensor is not None:
                value.const_value = tensor
                value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape)


def share_constants(graph: ir.Graph, context: Context) -> None:
    """One initializer for all that hold the same small tensor; those that a rule writes are compared with it too."""
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if (
            tensor is None
            or not is_shared(tensor.size, tensor.dtype)
            or value.is_graph_input()
            or value.is_graph_output()
            or is_overwritten(value)
        ):
            continue
        same = context.constants.setdefault(content_of(tensor.numpy()), value)
        if same is not value:
            value.replace_all_uses_with(same)
            del graph.initializers[name]


def is_overwritten(value: ir.Value) -> bool:
    """Whether a BatchNormalization in training reads running statistics: onnxruntime 1.31 writes the new ones in their place."""
    return any(
        use.node.op_type == "BatchNormalization" and use.idx in (3, 4) and len(use.node.outputs) > 1
        for use in value.uses()
    )
