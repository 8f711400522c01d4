"""``ExportOptions(tracing="make_fx")``: what reaches the dispatcher, with symbolic sizes, gradients among it.

torch.export writes down what a model calls, before autograd: it refuses a model that takes a gradient. make_fx writes down what
runs below autograd and functorch, where a gradient is operators as any other. How inputs get symbolic sizes, and how the guards
on them are judged, is torch.export's own: the same functions are called.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._export import non_strict_utils
from torch._export.utils import _compiling_state_context
from torch._functorch._aot_autograd.frontend_utils import _detect_attribute_assignment
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from experimental_experiment.torch_interpreter.patches.patch import replaced
from experimental_experiment.torch_interpreter.signature import (
    Input,
    Program,
    leaf_names,
    output_names,
    user_input,
)

aten = torch.ops.aten


def plain_zeros(self: torch.Tensor, other: torch.Tensor, self_num_batch_dims: int = 0) -> torch.Tensor:
    """Zeros of the shape of *other*, and in front of it the first axes of *self*, which vmap runs over."""
    return other.new_zeros([*self.shape[:self_num_batch_dims], *other.shape])


PLAIN_ZEROS = {
    aten._efficientzerotensor.default: lambda size, **options: torch.zeros(size, **options),
    aten._new_zeros_with_same_feature_meta.default: plain_zeros,
}
"""The zeros of forward-mode gradients as an ordinary tensor: torch adds its own kinds only where sizes are numbers."""


def traced(
    module: torch.nn.Module,
    args: tuple,
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    decompositions: Mapping[Any, Any],
    prefer_deferred_runtime_asserts_over_guards: bool,
) -> Program:
    """The program of a module that runs on fake tensors, its gradients included.

    Raises what torch raises: for a branch on data, for a size called dynamic that the model makes constant.
    """
    mode, fake_args, fake_kwargs, equalities, signature, shapes = non_strict_utils.make_fake_inputs(
        module, args, kwargs, dynamic_shapes, prefer_deferred_runtime_asserts_over_guards
    )
    held = weights_of(module)
    weights = {part: tensor for name, weight in held.items() for part, tensor in parts_of(name, weight)}
    fakes = {part: mode.from_tensor(tensor, static_shapes=True) for part, tensor in weights.items()}
    fake_weights = {name: whole(name, weight, fakes) for name, weight in held.items()}
    leaves, in_spec = pytree.tree_flatten((fake_args, fake_kwargs))
    out_spec = None

    def called(*flat):
        nonlocal out_spec
        args, kwargs = pytree.tree_unflatten(flat[len(fakes) :], in_spec)
        results, out_spec = pytree.tree_flatten(module(*args, **kwargs))
        write_assigned(module, fake_weights)
        return results

    called._orig_mod = module  # where make_fx finds the paths of submodules
    with running(module, fake_weights, mode):
        result = make_fx(
            called,
            decomposition_table={**PLAIN_ZEROS, **decompositions},
            record_module_stack=True,
            _allow_non_fake_inputs=True,
        )(*fakes.values(), *leaves)
    non_strict_utils.produce_guards_and_solve_constraints(mode, result, shapes, equalities, signature)
    arguments = {**signature.bind_partial(*args).arguments, **kwargs}
    result.meta["inline_constraints"] = {}  # ranges of numbers that the data decide: no one reads them
    non_strict_utils.make_constraints(mode, result, arguments, shapes, len(weights))
    placeholders = result.graph.find_nodes(op="placeholder")
    buffers = {part for name, buffer in module.named_buffers() for part, _ in parts_of(name, buffer)}
    inputs = [Input(node, name, weights[name], name in buffers) for node, name in zip(placeholders, weights)]
    inputs += map(user_input, placeholders[len(weights) :], leaf_names(arguments), leaves)
    inputs += lifted_constants(result, module, mode)
    for entry in inputs:
        entry.node._rename(entry.name)
        entry.node.target = entry.node.name
    return Program(result, inputs, output_names(out_spec))


def weights_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module by their first names."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def parts_of(name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a weight is made of, with their names: itself, or those that a wrapper of tensors holds."""
    if not is_traceable_wrapper_subclass(weight):
        yield name, weight
        return
    for attribute in weight.__tensor_flatten__()[0]:
        yield from parts_of(f"{name}.{attribute}", getattr(weight, attribute))


def whole(name: str, weight: torch.Tensor, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What stands for a weight when others stand for the tensors that it is made of, the inverse of `parts_of`."""
    if not is_traceable_wrapper_subclass(weight):
        return parts[name]
    attributes, context = weight.__tensor_flatten__()
    inner = {each: whole(f"{name}.{each}", getattr(weight, each), parts) for each in attributes}
    return type(weight).__tensor_unflatten__(inner, context, weight.size(), weight.stride())


@contextlib.contextmanager
def running(module: torch.nn.Module, fakes: dict[str, torch.Tensor], mode: FakeTensorMode) -> Iterator[None]:
    """What torch.export runs a model in: fake weights, builtins that take symbolic sizes, attributes restored at the end."""
    contexts = (
        mode,
        torch._guards.tracing(torch._guards.TracingContext(mode)),
        non_strict_utils._NonStrictTorchFunctionHandler(),
        non_strict_utils._override_builtin_ops(),
        torch.nn.utils.stateless._reparametrize_module(module, fakes, tie_weights=True, stack_weights=True),
        ignored_warning(r"The tensor attributes? self\.[\w.]*_flat_weights"),
        _detect_attribute_assignment(module),
        _compiling_state_context(),
        enable_python_dispatcher(),
        replaced(SymNode, "guard_bool", of_gradients(SymNode.guard_bool)),
        sdpa_kernel(SDPBackend.MATH),  # the gradient of the fused one is another fused operator
        torch.backends.mkldnn.flags(enabled=False, allow_tf32=None),  # its recurrent layers have no gradient
    )
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def of_gradients(guard_bool: Callable) -> Callable:
    """`SymNode.guard_bool` that takes a size that the data decide for another than 1 where a formula of a gradient asks.

    Those of matrix products ask for strides, to choose a layout: their values are the same for both answers.
    """

    def guard(self: SymNode, file: str, line: int) -> bool:
        asked_by = sys._getframe(1).f_code
        if asked_by is not _engine_run_backward.__code__ or not free_unbacked_symbols(self.expr):
            return guard_bool(self, file, line)
        return self.guard_size_oblivious(file, line)

    return guard


@contextlib.contextmanager
def ignored_warning(message: str) -> Iterator[None]:
    """Show no warning that starts with *message*, a regular expression: recurrent layers keep a list of their own weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=message)
        yield


def write_assigned(module: torch.nn.Module, fakes: dict[str, torch.Tensor]) -> None:
    """Write into a buffer what forward put in its place, as ``self.n = self.n + 1`` does.

    Raises ValueError when that has another shape or dtype: the buffer would be another one in the next call.
    """
    for name, new in module.named_buffers():
        old = fakes.get(name)
        if old is None or new is old:
            continue
        if new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"the buffer {name} becomes {new.dtype}{[*new.shape]}, it was {old.dtype}{[*old.shape]}"
            )
        with torch.no_grad():
            old.copy_(new)


def lifted_constants(
    result: torch.fx.GraphModule, module: torch.nn.Module, mode: FakeTensorMode
) -> list[Input]:
    """Make an input of each tensor that the graph reads from outside: all its readers see what one of them writes."""
    names = {
        id(value): f"{path}.{name}" if path else name
        for path, submodule in module.named_modules()
        for name, value in vars(submodule).items()
        if isinstance(value, torch.Tensor)
    }
    found: dict[int, Input] = {}
    end = result.graph.find_nodes(op="placeholder")[-1:]
    for node in result.graph.find_nodes(op="get_attr"):
        tensor = getattr(result, node.target)
        if not isinstance(tensor, torch.Tensor):
            continue
        if id(tensor) not in found:
            with result.graph.inserting_after(*end) if end else result.graph.inserting_before():
                placeholder = result.graph.placeholder(node.target)
            placeholder.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
            found[id(tensor)] = Input(placeholder, names.get(id(tensor), node.target), tensor)
            end = [placeholder]
        node.replace_all_uses_with(found[id(tensor)].node)
        result.graph.erase_node(node)
    return list(found.values())
