"""From what the user gives to a program: the call of torch.export and the kinds of models."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.assumptions.between_calls import (
    warn_of_changes,
    what_one_call_changes,
)
from experimental_experiment.torch_interpreter.assumptions.decisions import Decisions
from experimental_experiment.torch_interpreter.assumptions.held_values import values_that_decide
from experimental_experiment.torch_interpreter.assumptions.judging import judge, judge_operators
from experimental_experiment.torch_interpreter.assumptions.lost_assignments import lost_assignments
from experimental_experiment.torch_interpreter.assumptions.seeds import seeds_of_the_model, warn_of_seeds
from experimental_experiment.torch_interpreter.assumptions.texts_of_sizes import texts_of_sizes, warn_of_texts
from experimental_experiment.torch_interpreter.control_flow.autocast import Autocast
from experimental_experiment.torch_interpreter.dynamic_shapes import DynamicShapes, fitted_shapes
from experimental_experiment.torch_interpreter.errors import CaptureError, located, source_line, target_name
from experimental_experiment.torch_interpreter.export_options import CapturedOnce, ExportOptions
from experimental_experiment.torch_interpreter.handlers import refusals_that_are_caught, warn_of
from experimental_experiment.torch_interpreter.memories import (
    REGISTERED,
    Memory,
    called_module,
    contents_of,
    has_entries,
    memories_in,
    put_into,
)
from experimental_experiment.torch_interpreter.messages import stage
from experimental_experiment.torch_interpreter.patches.inputs import known_results
from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.relaxing import Relaxed
from experimental_experiment.torch_interpreter.signature import (
    Program,
    described,
    in_order_of_placeholders,
    program_of,
    program_of_graph_module,
    recorded_dims,
    symbol_of,
    user_placeholders,
)
from experimental_experiment.torch_interpreter.torch_state import unmarked
from experimental_experiment.torch_interpreter.weights import example, off_the_meta_device
from experimental_experiment.torch_interpreter.writes import (
    mutated_storages,
    share_what_is_returned,
    storage_of,
    written_nodes,
)

PARALLEL = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
"""Wrappers that run a module on several devices: what they wrap is the model."""


HELD = 5
"""So many objects, lists and dicts in one another are left as they were: an EncoderDecoderCache, a cache, its layers, one of them, its states."""


class FunctionModule(torch.nn.Module):
    """A function without a signature as a module: ``torch.sin``."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def capture(
    mod: Any,
    args: Any,
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    options: ExportOptions | CapturedOnce,
) -> Program:
    """The program to translate.

    Raises:
        TypeError: *mod* is nothing that can be exported, *args* is not a tuple, or *options* are no ExportOptions.
        ValueError: *dynamic_shapes* asks of a program what it does not have, or one name for two sizes.
        CaptureError: torch.export refused the model.
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is a tuple of arguments, not {type(args).__name__}")
    if isinstance(mod, torch.export.ExportedProgram):
        program = options.decomposed(mod)
        restore_storages(program)
        found = program_of(program, dims_of_program(program, dynamic_shapes))
        judge_operators(found.inputs, found.module)
        return found
    if isinstance(mod, torch.fx.GraphModule) and carries_values(mod) and not args and not kwargs:
        if dynamic_shapes is not None:
            raise ValueError("dynamic_shapes: the dimensions of a GraphModule are those of its fake values")
        return program_of_graph_module(mod)
    module = module_of(mod)
    args, kwargs = example((tuple(args), kwargs))
    with stage("torch.export.export"):
        shapes = fitted_shapes(module, args, kwargs, dynamic_shapes)
    args, kwargs = distinct(module, args, kwargs)
    decisions = Decisions()
    with (
        keywords_in_signature(module, args, kwargs, shapes),
        restored(owner_of(module)),
        contextlib.nullcontext() if options.strict else known_results(module),
        unmarked((args, kwargs)),
        in_mode_of(module),
        off_the_meta_device(module),
        without_parallel_wrappers(module),
        naming_scripts(module),
        lost_assignments(module, options.strict) as assigned,
        refusals_that_are_caught() as caught,
        values_that_decide() as held,
        what_one_call_changes(module, options.strict) as changed,
        texts_of_sizes() as texts,
        seeds_of_the_model(options.strict) as seeds,
    ):
        try:
            exported = options.capture(module, args, kwargs, shapes.shapes, shapes, decisions)
        except CaptureError as error:
            general = Relaxed.after(error, module, args, kwargs, shapes, options)
            if general is None:
                raise
            exported, decisions = general.exported, general.decisions
    program = described(exported, args, kwargs, shapes.names, shapes.bounds)
    is_traced = isinstance(exported, Program)
    if not is_traced:
        program.autocast = surrounding_autocast(program)
    program.assigned = {
        name: each.kind
        for name, each in assigned.items()
        if not (is_traced and each.is_written) and each.is_lost(program)
    }
    share_what_is_returned(program.module)
    program.decided = held.by_node(program)
    judge(program.inputs, program.module, decisions)
    warn_of(caught)
    warn_of_texts(texts)
    warn_of_seeds(seeds, program.module)
    warn_of_changes(changed, program)
    warn_about_training(program.module)
    return program


def module_of(mod: Any) -> torch.nn.Module:
    """The module to capture: what was given, without torch.compile or a parallel wrapper around it, or one that calls it.

    Raises TypeError for what cannot be called, or is called to make a module.
    """
    while isinstance(getattr(mod, "_orig_mod", None), torch.nn.Module):  # torch.compile(module)
        mod = mod._orig_mod
    while isinstance(mod, PARALLEL):
        mod = mod.module
    while hasattr(mod, "_torchdynamo_orig_callable"):  # torch.compile(function)
        mod = mod._torchdynamo_orig_callable
    if isinstance(getattr(mod, "__self__", None), torch.nn.Module) and mod == mod.__self__.forward:
        mod = mod.__self__
    if isinstance(mod, type) and issubclass(mod, torch.nn.Module):
        name = mod.__name__
        raise TypeError(f"{name} is a class: export an instance of it, to_onnx({name}(...), args)")
    if isinstance(mod, torch.jit.ScriptModule):
        raise TypeError(
            f"{mod.original_name} is TorchScript, which torch.export does not take: export the nn.Module that was "
            "scripted or traced"
        )
    if isinstance(mod, torch.nn.Module):
        return mod
    if callable(mod):
        return function_module(mod)
    raise TypeError(
        f"an nn.Module, a function, an ExportedProgram or a GraphModule can be exported, not {type(mod).__name__}"
    )


def distinct(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments, their tensors none that comes twice, none that the model holds: copies, or other tensors of the same memory.

    torch.export goes by identity. It would take the places of one tensor for one input, and a weight that is among the arguments for that
    input, TorchDynamo also a tensor of a closure or a global.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    seen = {
        id(held) for held in itertools.chain(module.parameters(), module.buffers(), plain_tensors(module))
    }
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and id(leaf) in seen:
            leaves[position] = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        elif type(leaf) in (torch.Tensor, torch.nn.Parameter):
            leaves[position] = leaf.detach().requires_grad_(leaf.requires_grad)
            vars(leaves[position]).update(vars(leaf))  # what torch._dynamo.mark_dynamic says of it
        seen.add(id(leaf))
    return pytree.tree_unflatten(leaves, spec)


@contextlib.contextmanager
def keywords_in_signature(
    module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], shapes: DynamicShapes
) -> Iterator[None]:
    """List the keywords that ``**kwargs`` gathers in the signature of forward, and in *shapes*, for a while.

    torch.export looks for ``dynamic_shapes`` of a forward with ``**kwargs`` in two places that contradict each other.
    """
    forward = module.forward
    signature = inspect.signature(forward)
    gathering = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    if shapes.shapes is None or not gathering or gathering[0].name not in shapes.shapes:
        yield
        return
    keywords = shapes.shapes.pop(gathering[0].name)
    shapes.shapes.update(keywords)
    others = [p for p in signature.parameters.values() if p not in gathering]
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in keywords]

    @functools.wraps(forward)
    def called(*args, **kwargs):
        return forward(*args, **kwargs)

    called.__signature__ = signature.replace(parameters=[*others, *named])
    with replaced(module, "forward", called):
        yield


@contextlib.contextmanager
def restored(module: torch.nn.Module) -> Iterator[None]:
    """Leave the attributes of a module as they were, those that are neither parameters nor buffers, and the plain objects among them.

    A capture writes real tensors among them as the model does, and leaves the fake ones that forward stores there, also as buffers, as
    parameters and in layers that it registers. Torch puts back what there was, not what is new: the sizes that the tables of YOLO's
    RT-DETR are for, a class attribute before; nor the scheduler of diffusers, that counts its steps and lists what they computed.
    """
    registered = [(submodule, registered_in(submodule)) for submodule in module.modules()]
    kept = [(memory, contents_of(memory)) for memory in memories_of(module)]
    values = [
        (leaf, leaf._version, leaf.detach().clone())
        for leaf in plain_tensors(module)
        if not leaf.is_inference()
    ]
    try:
        yield
    finally:
        for submodule, known in registered:
            now = registered_in(submodule)
            for name, part in known.items():
                if isinstance(part, torch.nn.Module) and now.get(name) is not part:
                    submodule._modules[name] = part
            for name, value in registered_in(submodule).items():
                if is_fake(value) and known.get(name) is None:
                    setattr(submodule, name, None) if name in known else delattr(submodule, name)
        for memory, contents in kept:
            if not has_entries(memory, contents):
                put_into(memory, contents)
        for leaf, version, value in values:
            if leaf._version != version:
                with torch.no_grad():
                    leaf.copy_(value)


def registered_in(module: torch.nn.Module) -> dict[str, Any]:
    """The parameters, the buffers and the submodules of a module, by their names in it."""
    return {**module._parameters, **module._buffers, **module._modules}


def is_fake(value: torch.Tensor | torch.nn.Module | None) -> bool:
    """Whether a tensor, or one of a module, is one of a capture."""
    if isinstance(value, torch.nn.Module):
        return any(map(is_fake, itertools.chain(value.parameters(), value.buffers())))
    return isinstance(value, FakeTensor)


def memories_of(module: torch.nn.Module) -> list[Memory]:
    """The attributes of a module and of its submodules, their hooks; plain objects, lists and dicts among them, and in these, `HELD` deep.

    Models of transformers register the hooks that collect hidden states in the first call, and remember that they have.
    """
    attributes = [vars(part) for part in module.modules()]
    values = {
        id(value): value for names in attributes for name, value in names.items() if name not in REGISTERED
    }.values()
    return [*attributes, *memories_in(values, HELD)]


def in_mode_of(module: torch.nn.Module) -> contextlib.AbstractContextManager:
    """``torch.inference_mode`` when weights were made under it: torch records no gradients of them."""
    weights = itertools.chain(module.parameters(), module.buffers())
    is_inference = any(not is_lazy(weight) and weight.is_inference() for weight in weights)
    return torch.inference_mode() if is_inference else contextlib.nullcontext()


@contextlib.contextmanager
def without_parallel_wrappers(module: torch.nn.Module) -> Iterator[None]:
    """Let the parallel wrappers among the submodules call what they wrap, for a while, and nothing else."""
    with contextlib.ExitStack() as stack:
        for wrapper in [part for part in module.modules() if isinstance(part, PARALLEL)]:
            wrapped = functools.partial(torch.nn.Module.__call__, wrapper.module)
            stack.enter_context(replaced(wrapper, "forward", wrapped))
        yield


@contextlib.contextmanager
def naming_scripts(module: torch.nn.Module) -> Iterator[None]:
    """Name the submodules that are TorchScript when a capture fails: it cannot follow most of them."""
    try:
        yield
    except CaptureError as error:
        scripts = [name for name, part in module.named_modules() if isinstance(part, torch.jit.ScriptModule)]
        if not scripts:
            raise
        roots = [name for name in scripts if name.rpartition(".")[0] not in scripts]
        raise CaptureError(
            f"the submodule {', '.join(roots)} is TorchScript, which the capture could not follow",
            hint="put the nn.Module that was scripted or traced in its place",
        ) from error


def plain_tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors in the attributes of a module and of its submodules, parameters and buffers left out."""
    for submodule in module.modules():
        for name in vars(submodule):
            yield from tensors_in(submodule, name)


def tensors_in(module: torch.nn.Module, name: str) -> list[torch.Tensor]:
    """The tensors in an attribute of a module that are no parameters: none where it keeps buffers and submodules."""
    value = None if name in REGISTERED else vars(module)[name]
    leaves = pytree.tree_leaves(value)
    return [x for x in leaves if isinstance(x, torch.Tensor) and not isinstance(x, torch.nn.Parameter)]


def warn_about_training(module: torch.fx.GraphModule) -> None:
    """Log that the model is in training mode, when one of its operators computes something else then."""
    graphs = [part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        if trains(node):
            source = source_line(node)
            logger.warning(
                "the model is exported in training mode, where %s is not what it is after model.eval()%s",
                target_name(node.target),
                f"\n{located(source)}" if source else "",
            )
            return


def trains(node: torch.fx.Node) -> bool:
    """Whether a node is a dropout, a normalization, ... in training mode."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    arguments = registry.schema_names(node.target)
    given = dict(zip(arguments, node.args)) | dict(node.kwargs)
    is_training = any(given.get(name) is True for name in ("train", "training"))
    if given.get("running_mean", 1) is None:
        return False  # it normalizes by its input after model.eval() too
    return is_training and all(given.get(name, 1) != 0 for name in ("p", "dropout", "dropout_p"))


def surrounding_autocast(program: Program) -> Autocast | None:
    """The region of ``torch.autocast`` that is open around the export, for the device that the model is on."""
    for entry in program.inputs:
        value = entry.node.meta.get("val")
        if isinstance(value, torch.Tensor):
            device = value.device.type
            if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                return Autocast(device, torch.get_autocast_dtype(device))
    return None


def dims_of_program(program: torch.export.ExportedProgram, dynamic_shapes: Any) -> list[dict]:
    """Names of the dimensions of a given program: those of *dynamic_shapes*, or those it was exported with.

    Raises ValueError when *dynamic_shapes* does not fit the program: it names dimensions, it cannot make them dynamic.
    """
    if dynamic_shapes is None:
        return recorded_dims(program)
    if program.example_inputs is None:
        raise ValueError("dynamic_shapes cannot be read: the ExportedProgram has no example inputs")
    args, kwargs = program.example_inputs
    said = fitted_shapes(program.module(check_guards=False), args, kwargs, dynamic_shapes)
    dims = in_order_of_placeholders(program, args, kwargs, said.names)
    for node, names in zip(user_placeholders(program), dims):
        for axis, name in names.items():
            if symbol_of(node.meta.get("val"), axis) is None:
                raise ValueError(
                    f"dynamic_shapes names axis {axis} of {node.name} {name!r}, but it is static in the ExportedProgram"
                )
    return dims


def function_module(function: Callable) -> torch.nn.Module:
    """A module whose forward is *function*, with its parameters by name.

    Of a method of a module, or of ``functools.partial`` of one or of the other, it holds what that module holds, by the same names.
    """
    module, owner = FunctionModule(function), called_module(function)
    if has_signature(function):
        module.forward = called_forward(function)
    if owner is not None:
        module._parameters, module._buffers, module._modules = (
            owner._parameters,
            owner._buffers,
            owner._modules,
        )
        module.training = owner.training
        held = {name: value for name, value in vars(owner).items() if isinstance(value, torch.Tensor)}
        vars(module).update({name: value for name, value in held.items() if name not in vars(module)})
    return module


def owner_of(module: torch.nn.Module) -> torch.nn.Module:
    """The module whose attributes a call writes: the one that *module* calls, or itself."""
    owner = called_module(module.function) if isinstance(module, FunctionModule) else None
    return module if owner is None else owner


def has_signature(function: Callable) -> bool:
    """Whether the parameters of a function have names: those of ``torch.sin`` do not."""
    try:
        inspect.signature(function)
    except ValueError:
        return False
    return True


def called_forward(function: Callable) -> Callable:
    """*function* under the name ``forward``: torch.export keeps the lines of no other function, and errors cite them."""
    if isinstance(function, functools.partial):
        return functools.partial(called_forward(function.func), *function.args, **function.keywords)
    if isinstance(function, types.MethodType):
        return types.MethodType(called_forward(function.__func__), function.__self__)
    if isinstance(function, torch.nn.Module):

        @functools.wraps(function.forward)
        def forward(*args, **kwargs):
            return function(*args, **kwargs)

        return forward
    if not isinstance(function, types.FunctionType):
        method = type(function).__call__
        is_written = isinstance(method, types.FunctionType)  # in Python, by a class of the user's
        return types.MethodType(called_forward(method), function) if is_written else function
    code = function.__code__.replace(co_name="forward")
    copied = types.FunctionType(
        code, function.__globals__, "forward", function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copied, function)


def carries_values(module: torch.fx.GraphModule) -> bool:
    """Whether the nodes of a GraphModule know their fake values."""
    return all("val" in node.meta for node in module.graph.find_nodes(op="placeholder"))


def restore_storages(program: torch.export.ExportedProgram) -> None:
    """Run the fake tensors through a program loaded from disk again: its views no longer share their storages.

    Only for a program that writes tensors; the others do not need it.
    """
    module = program.graph_module
    if not mutated_storages(module.graph) or not lost_storages(module.graph):
        return
    values = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    mode = next(
        (value.fake_mode for value in values if isinstance(value, torch._subclasses.FakeTensor)), None
    ) or FakeTensorMode(allow_non_fake_inputs=True)
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*copy.copy(values))


ALWAYS_VIEWS = frozenset(
    {
        torch.ops.aten.expand.default,
        torch.ops.aten.permute.default,
        torch.ops.aten.select.int,
        torch.ops.aten.slice.Tensor,
        torch.ops.aten.t.default,
        torch.ops.aten.transpose.int,
        torch.ops.aten.unsqueeze.default,
        torch.ops.aten.view.default,
    }
)
"""Operators whose result always shares the storage of their first argument."""


def lost_storages(graph: torch.fx.Graph) -> bool:
    """Whether the result of a view or of a write no longer shares the storage of its argument."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        shared = written_nodes(node) if registry.written_arguments(node.target) else []
        if node.target in ALWAYS_VIEWS:
            shared = [node.args[0]]
        if shared and storage_of(value) not in [storage_of(argument.meta.get("val")) for argument in shared]:
            return True
    return False
