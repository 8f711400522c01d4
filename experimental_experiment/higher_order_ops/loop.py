"""``simple_loop_for``: a loop whose results are concatenated, the cost being linear in the number of turns.

Eager, fake, traced (``torch.export`` non-strict) and functionalized forms of the operator; `dynamo` adds the strict one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

import torch
from torch._C import DispatchKey
from torch._guards import detect_fake_mode
from torch._higher_order_ops.utils import reenter_make_fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._symbolic_trace import _maybe_revert_all_patches
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv, _constrain_range_for_size, free_unbacked_symbols


class SimpleLoopFor(HigherOrderOperator):
    """The operator behind `simple_loop_for`: always a tuple of results, one axis for each."""

    def __init__(self):
        super().__init__("simple_loop_for")

    def __call__(self, n_iter, body_fn, operands, concatenation_dims=None):
        return super().__call__(n_iter, body_fn, operands, concatenation_dims)


simple_loop_for_op = SimpleLoopFor()


def simple_loop_for(
    n_iter: int | torch.SymInt | torch.Tensor,
    body_fn: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]],
    operands: Sequence[torch.Tensor] = (),
    concatenation_dims: int | Sequence[int] | None = None,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Call a function a number of times and concatenate what it returns.

    The results of all turns are kept in a list and concatenated once at the end: the cost is linear in the number of turns,
    where a growing carry is copied every turn. The size of a result along the axis of concatenation may change from one
    turn to the next. With no turn at all, the results have size 0 along that axis.

    Args:
        n_iter: the number of turns, an int or a 0-d integer tensor.
        body_fn: called as ``body_fn(i, *operands)`` where *i* is a 0-d int64 tensor; returns a tensor or a tuple of
            tensors, as many at each turn. It may read tensors, modules and sizes of the enclosing function; it does not
            write any.
        operands: tensors that every turn receives.
        concatenation_dims: the axis of concatenation of each result, negative from the end; an int for a function with one
            result; 0 by default.

    Returns:
        One tensor, or a tuple of them when *body_fn* returns several.

    Raises:
        TypeError: an argument or a result of *body_fn* is not of the type it should be.
        ValueError: *concatenation_dims* does not suit the results, or there are more or fewer results than before.
        RuntimeError: *body_fn* writes one of its operands.
    """
    if not isinstance(operands, (tuple, list)) or not all(isinstance(x, torch.Tensor) for x in operands):
        raise TypeError("operands is a tuple of tensors")
    if not callable(body_fn):
        raise TypeError(f"body_fn is a function, not {type(body_fn).__name__}")
    if isinstance(n_iter, torch.Tensor):
        if n_iter.numel() != 1 or n_iter.is_floating_point() or n_iter.is_complex():
            raise TypeError(f"n_iter is an int or a 0-d integer tensor, not {n_iter.dtype}{[*n_iter.shape]}")
        n_iter = n_iter if n_iter.dim() == 0 else n_iter.reshape(())
    elif isinstance(n_iter, bool) or not isinstance(n_iter, (int, torch.SymInt)):
        raise TypeError(f"n_iter is an int or a 0-d integer tensor, not {type(n_iter).__name__}")
    dims = [concatenation_dims] if isinstance(concatenation_dims, int) else concatenation_dims
    results = simple_loop_for_op(n_iter, body_fn, tuple(operands), None if dims is None else list(dims))
    if isinstance(results, torch.Tensor):  # TorchDynamo gives the results the structure of those of the body
        return results
    return results[0] if len(results) == 1 else results


# ---- one turn


def turn(
    body_fn: Callable, iteration: torch.Tensor, operands: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The results of one turn, checked: tensors, and operands that are not written."""
    versions = [version(operand) for operand in operands]
    results = body_fn(iteration, *operands)
    if isinstance(results, torch.Tensor):
        results = (results,)
    if not isinstance(results, (tuple, list)) or not results:
        raise TypeError(f"body_fn returns a tensor or a tuple of tensors, not {type(results).__name__}")
    for position, result in enumerate(results):
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"result {position} of body_fn is not a tensor but {type(result).__name__}")
    if versions != [version(operand) for operand in operands]:
        raise RuntimeError("body_fn writes one of its operands: clone it before")
    return tuple(results)


def version(operand: torch.Tensor | torch.SymInt) -> int | None:
    """How often a tensor was written, None when torch does not count."""
    counts = isinstance(operand, torch.Tensor) and not operand.is_inference()
    return operand._version if counts else None


def axes(results: Sequence[torch.Tensor], concatenation_dims: Sequence[int] | None) -> list[int]:
    """The axis of concatenation of each result, not negative. ValueError when it has none."""
    dims = [0] * len(results) if concatenation_dims is None else list(concatenation_dims)
    if len(dims) != len(results):
        raise ValueError(
            f"concatenation_dims has {len(dims)} entries, body_fn returns {len(results)} tensors"
        )
    for position, (dim, result) in enumerate(zip(dims, results)):
        if not -result.dim() <= dim < result.dim():
            raise ValueError(
                f"result {position} of body_fn has {result.dim()} dimensions: no axis {dim} to concatenate"
            )
    return [dim % result.dim() for dim, result in zip(dims, results)]


def iteration_number(value: int, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The first argument of the body, beside its operands."""
    device = operands[0].device if operands else torch.device("cpu")
    return torch.full((), value, dtype=torch.int64, device=device)


# ---- eager


@simple_loop_for_op.py_impl(DispatchKey.CompositeExplicitAutograd)
def run(n_iter, body_fn, operands, concatenation_dims):
    """The Python loop; gradients go through the operators that it calls."""
    turns = []
    for i in range(int(n_iter)):
        turns.append(turn(body_fn, iteration_number(i, operands), operands))
        if len(turns[-1]) != len(turns[0]):
            raise ValueError(f"body_fn returns {len(turns[-1])} tensors at turn {i}, {len(turns[0])} before")
    if not turns:
        return without_turns(body_fn, operands, concatenation_dims)
    dims = axes(turns[0], concatenation_dims)
    return tuple(torch.cat(list(results), dim=dim) for results, dim in zip(zip(*turns), dims))


def without_turns(body_fn, operands, concatenation_dims) -> tuple[torch.Tensor, ...]:
    """Empty results, of the dtypes and the other sizes that the body gives to fake tensors."""
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()) as mode:
        fakes = [mode.from_tensor(operand, static_shapes=True) for operand in operands]
        results = turn(body_fn, iteration_number(0, fakes), fakes)
        dims = axes(results, concatenation_dims)
    empty = []
    for position, (result, dim) in enumerate(zip(results, dims)):
        shape = [0 if axis == dim else size for axis, size in enumerate(result.shape)]
        if any(free_unbacked_symbols(size) for size in shape):
            raise ValueError(f"without a turn, the shape {[*result.shape]} of result {position} is unknown")
        empty.append(torch.empty([int(size) for size in shape], dtype=result.dtype, device=result.device))
    return tuple(empty)


for _key in (DispatchKey.AutogradCPU, DispatchKey.AutogradCUDA, DispatchKey.AutogradMeta):
    simple_loop_for_op.fallthrough(_key)


# ---- fake tensors


@simple_loop_for_op.py_impl(FakeTensorMode)
def fake(mode, n_iter, body_fn, operands, concatenation_dims):
    """One turn on fake tensors; the axis of concatenation gets a size of its own, even where a turn's size is static."""
    with mode:
        known = set(mode.shape_env.var_to_range)
        with mode.shape_env.ignore_fresh_unbacked_symbols():
            results = turn(body_fn, iteration_number(0, operands), operands)
        dims = axes(results, concatenation_dims)
        return tuple(
            result.new_empty(
                [
                    fresh_size(mode.shape_env) if axis == dim or free_unbacked_symbols(size) - known else size
                    for axis, size in enumerate(result.shape)
                ]
            )
            for result, dim in zip(results, dims)
        )


def fresh_size(shape_env: ShapeEnv) -> torch.SymInt:
    """A size that only the data tell."""
    size = shape_env.create_unbacked_symint()
    _constrain_range_for_size(size)
    return size


# ---- tracing


@simple_loop_for_op.py_impl(ProxyTorchDispatchMode)
def trace(mode, n_iter, body_fn, operands, concatenation_dims):
    """One node; what the body reads of the enclosing function becomes operands behind the others."""
    with disable_proxy_modes_tracing():
        samples = [sample(operand) for operand in operands]
        fake_mode = detect_fake_mode(operands)
        with fake_mode if fake_mode is not None else torch.utils._python_dispatch._disable_current_modes():
            iteration = sample(iteration_number(0, operands))
        # the tracer around patches the calls of modules: TorchDynamo, which captures the control flow of the body, needs
        # to undo the patches of all tracers and only undoes those of the innermost
        with _maybe_revert_all_patches(), of_export():
            body = reenter_make_fx(lambda *args: turn(body_fn, args[0], args[1:]))(iteration, *samples)
    captured = lift(body)
    operands = (*operands, *captured)
    name = mode.tracer.get_fresh_qualname("body_graph_")
    mode.tracer.root.register_module(name, body)
    args = (n_iter, body, operands, concatenation_dims)
    proxies = torch.utils._pytree.tree_map(mode.tracer.unwrap_proxy, args)
    proxy = mode.tracer.create_proxy("call_function", simple_loop_for_op, proxies, {}, name="simple_loop_for")
    results = simple_loop_for_op(*args)
    return track_tensor_tree(results, proxy, constant=None, tracer=mode.tracer)


def of_export() -> torch.overrides.TorchFunctionMode:
    """What makes ``x[i]`` a row for torch.export, and is put aside while an operator is called. It comes with TorchDynamo."""
    return importlib.import_module("torch._export.non_strict_utils")._NonStrictTorchFunctionHandler()


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor that no tracer takes for a constant."""
    if not isinstance(tensor, torch.Tensor):
        return tensor  # a size that TorchDynamo made an operand
    copied = tensor.clone()
    if getattr(copied, "constant", None) is not None:
        copied.constant = None
    return copied


def lift(body: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Turn the tensors that a body reads from outside into placeholders behind the others, and return them."""
    placeholders = body.graph.find_nodes(op="placeholder")
    captured: list[torch.Tensor] = []
    lifted: dict[int, torch.fx.Node] = {}
    read: set[str] = set()
    for node in body.graph.find_nodes(op="get_attr"):
        tensor = getattr(body, node.target)
        if not isinstance(tensor, torch.Tensor):
            continue
        if id(tensor) not in lifted:
            after = [*placeholders, *lifted.values()][-1]
            with body.graph.inserting_after(after):
                lifted[id(tensor)] = body.graph.placeholder(f"captured_{len(lifted)}")
            lifted[id(tensor)].meta.update(node.meta)
            lifted[id(tensor)].meta.setdefault("val", tensor)
            captured.append(tensor)
        node.replace_all_uses_with(lifted[id(tensor)])
        body.graph.erase_node(node)
        read.add(node.target)
    for name in read:
        delattr(body, name)
    body.recompile()
    return captured


# ---- functionalization


@simple_loop_for_op.py_functionalize_impl
def functionalize(ctx, n_iter, body_fn, operands, concatenation_dims):
    """The same operator on the functional form of the body."""
    with ctx.redispatch_to_next():
        results = simple_loop_for_op(
            ctx.unwrap_tensors(n_iter) if isinstance(n_iter, torch.Tensor) else n_iter,
            ctx.functionalize(body_fn),
            ctx.unwrap_tensors(operands),
            concatenation_dims,
        )
    return ctx.wrap_tensors(results)
