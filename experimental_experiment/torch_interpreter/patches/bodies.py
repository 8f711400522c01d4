"""Branches and loops of torch, which TorchDynamo compiles while a model is captured.

Source of semantics: torch/_higher_order_ops/utils.py.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from experimental_experiment.torch_interpreter.patches.patch import entry, patch, wrapped
from experimental_experiment.torch_interpreter.patches.reshapes import strides_in_order
from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.torch_versions import compilers_of_bodies

MERGE = "torch._higher_order_ops.cond._merge_output"

TRACED = "torch._dynamo.variables.higher_order_ops.speculate_subgraph"

LIFTED = "torch._dynamo.output_graph.SubgraphTracer.lift_tracked_freevar_to_input"

OVER_ROWS = ("map_impl", "scan")
"""The loops whose fake results are those of one turn."""

KNOWN_SIZES = {"automatic_dynamic_shapes": False, "assume_static_by_default": True}
"""What TorchDynamo makes of sizes that are numbers; those that are symbols stay dynamic."""


FLEX = "torch.nn.attention.flex_attention"
"""The module of flex_attention, which compiles a function that it holds."""


@patch("torch", replaces=compilers_of_bodies(), default=True)
def bodies_of_earlier_captures() -> Iterator[None]:
    """A scan or a map that was captured with fixed sizes keeps them in the captures that follow in the same process.

    TorchDynamo keeps what it compiled with the code of torch's own scan, whatever the model, and asks whether it fits: the answer is
    yes for the example, and fixes its sizes. It also takes known sizes for dynamic: a scan has no gradient then, and `torch.cond` refuses
    branches that end with a convolution. A scan with weights that have gradients is refused where a product of dynamic sizes is used.
    flex_attention keeps what it compiled, too.
    """
    attention = sys.modules.get(FLEX)
    for code in attention.flex_attention.__code__.co_consts if attention is not None else ():
        if isinstance(code, types.CodeType):
            torch._C._dynamo.eval_frame.reset_code(code)
    with wrapped(dict.fromkeys(compilers_of_bodies(), with_new_code)):
        yield


def with_new_code(compile_and_call: Callable) -> Callable:
    """What compiles and calls a function: a copy of it, with code that was never compiled."""

    @functools.wraps(compile_and_call)
    def called(fn: Callable, *given: Any, **named: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # torch 2.9 comes here, and calls the function as it is
            return compile_and_call(fn, *given, **named)
        if isinstance(fn, types.FunctionType):
            bodies_of_earlier_captures.used()
            copied = types.FunctionType(
                fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
            )
            copied.__kwdefaults__ = fn.__kwdefaults__
            fn = copied
        with torch._dynamo.config.patch(KNOWN_SIZES), gradients_of(fn):
            return compile_and_call(fn, *given, **named)

    return called


def gradients_of(fn: Callable) -> contextlib.AbstractContextManager:
    """Nothing is kept for gradients while torch.export, which writes none, captures a scan: it may not hold dynamic sizes."""
    mode = get_proxy_mode()
    is_exported = mode is not None and mode.pre_dispatch
    is_scan = getattr(fn, "__name__", "") == "run_flattened_scan"
    return torch._C._AutoDispatchBelowAutograd() if is_exported and is_scan else contextlib.nullcontext()


@patch("torch", replaces=(MERGE,), default=True)
def outputs_of_computed_sizes() -> Iterator[None]:
    """Branches of ``torch.cond`` that end with a convolution, or another computed size, are refused when that is dynamic.

    The strides of a tensor are products of ``Max(1, size)``, where torch before 2.14 looks for products of sizes. So are outputs of one
    sample or channel, as of an einsum, whose strides of that axis are others.
    """
    module = importlib.import_module("torch._higher_order_ops.cond")
    with wrapped({MERGE: of_plain_strides} if hasattr(module, "_merge_output") else {}):
        yield


def of_plain_strides(merge: Callable) -> Callable:
    """What gives the output of two branches, on tensors whose strides are products of sizes where they can be."""

    @functools.wraps(merge)
    def merged(a: Any, b: Any, mode: Any) -> Any:
        plain = [with_plain_strides(output, mode) for output in (a, b)]
        if any(output is not given for output, given in zip(plain, (a, b))):
            outputs_of_computed_sizes.used()
        return merge(*plain, mode)

    return merged


def with_plain_strides(output: Any, mode: Any) -> Any:
    """A tensor like a contiguous one, whose strides are the products of sizes that torch expects; others as they are."""
    if not isinstance(output, torch.Tensor) or output.storage_offset() != 0:
        return output
    sizes, given = output.shape, output.stride()
    if is_known(given):
        # what an axis of one element says does not matter
        if not is_known(sizes) or not output.is_contiguous() or given == make_contiguous_strides_for(sizes):
            return output
        with mode:
            return output.new_empty(sizes)
    # from the last axis on, as torch multiplies: formulas are compared as they are written
    strides = strides_in_order(sizes)
    contiguous = make_contiguous_strides_for(sizes)
    if any(expression_of(one) != expression_of(other) for one, other in zip(given, contiguous)):
        return output
    with mode:
        return output.new_empty_strided(sizes, strides)


@patch("torch", replaces=(TRACED,), until="2.13", default=True)
def bodies_that_write() -> Iterator[None]:
    """Bodies of ``torch.cond`` and ``while_loop`` that write a tensor from outside are refused, without gradients too."""
    importlib.import_module(TRACED.rpartition(".")[0])  # it brings TorchDynamo
    with wrapped({TRACED: that_may_write}):
        yield


def that_may_write(traced: Callable) -> Callable:
    """What traces a body: one of a branch or of a loop without a trip count may write where there are no gradients."""
    branch, loop = torch.ops.higher_order.cond, torch.ops.higher_order.while_loop

    @functools.wraps(traced)
    def called(*args: Any, **kwargs: Any) -> Any:
        caller = kwargs.get("source_target")
        if caller in (branch, loop) and not torch.is_grad_enabled():
            kwargs["supports_input_mutation"] = True
            if caller is branch:
                kwargs["supports_aliasing"] = True
        return traced(*args, **kwargs)

    return called


@patch(
    "torch",
    replaces=tuple(f"torch.ops.higher_order.{name}" for name in OVER_ROWS),
    until="2.13",
    default=True,
)
def numbers_of_one_turn() -> Iterator[None]:
    """A body of a scan or a map that reads the number of a tensor, ``x[i]``, is refused: the results do not show that number."""
    for name in OVER_ROWS:
        importlib.import_module(f"torch._higher_order_ops.{name.removesuffix('_impl')}")
    with contextlib.ExitStack() as stack:
        for name in OVER_ROWS:
            kernels = getattr(torch.ops.higher_order, name).python_key_table
            entry(stack, kernels, FakeTensorMode, of_inner_numbers(kernels[FakeTensorMode]))
        yield


def of_inner_numbers(kernel: Callable) -> Callable:
    """What gives the fake results of a loop: the numbers that one turn reads stay inside."""

    @functools.wraps(kernel)
    def called(mode: FakeTensorMode, *args: Any, **kwargs: Any) -> Any:
        if mode.shape_env is None:
            return kernel(mode, *args, **kwargs)
        with mode.shape_env.ignore_fresh_unbacked_symbols():
            return kernel(mode, *args, **kwargs)

    return called


@patch("torch", replaces=(LIFTED,), default=True)
def sizes_from_outside() -> Iterator[None]:
    """A body of a loop or a branch that reads a dynamic size from outside, ``b = x.shape[0]``, is refused at the second time.

    What the first time gives has the size, too: TorchDynamo takes that of it then, which it has not read yet.
    """
    with wrapped({LIFTED: that_is_read}):
        yield


def that_is_read(lifted: Callable) -> Callable:
    """What gives a value from outside to a body: a size of a tensor of the body is read there, once."""
    unread = importlib.import_module(LIFTED.rsplit(".", 2)[0]).LazyProxy

    @functools.wraps(lifted)
    def called(self: Any, proxy: torch.fx.Proxy) -> torch.fx.Proxy:
        found = lifted(self, proxy)
        if isinstance(found, unread):
            sizes_from_outside.used()
            found = found()
            self.bound_symbols[proxy.node.meta["example_value"].node.expr] = found
        return found

    return called


def is_known(sizes: Sequence[int | torch.SymInt]) -> bool:
    """Whether all sizes are numbers."""
    return not any(isinstance(size, torch.SymInt) for size in sizes)
