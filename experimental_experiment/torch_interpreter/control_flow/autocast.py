"""Autocast: the casts that a region under ``torch.autocast`` makes around each operator.

The body of the region shows no cast: only the dtypes of its fake values do. Source of semantics: the kernels registered under
torch's autocast dispatch keys and ``aten/src/ATen/autocast_mode.h``; which operators have one is asked of torch's dispatcher.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.composite import placed, traced_call, write
from experimental_experiment.torch_interpreter.dtypes import FLOATS, is_complex, onnx_dtype
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import Translation, takes
from experimental_experiment.torch_interpreter.sizes import Number

aten = torch.ops.aten

DISPATCH_KEY = "AutocastCPU"

LOWER = frozenset(
    "_addmm_activation _convolution _native_multi_head_attention addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d linalg_vecdot linear matmul mkldnn_rnn_layer mm prelu "
    "scaled_dot_product_attention".split()
)
"""Operators computed in the dtype of the region; the others that have an autocast kernel are computed in float32."""

HIDDEN = frozenset({aten._trilinear.default, aten.mkldnn_rnn_layer.default})
"""Operators whose kernels cast without a trace of it in the program: bilinear; an LSTM, whose results torch.export calls
float32 when they are not."""

PROMOTE = frozenset({"cat", "index_copy", "stack"})
"""Operators computed in float32 when one argument is float32, in the dtype of the region otherwise."""


@dataclasses.dataclass(frozen=True)
class Autocast:
    """A region under ``torch.autocast(device_type, dtype)``."""

    device_type: str
    dtype: torch.dtype

    def tracing(self) -> torch.autocast:
        """The same region, to trace the decomposition of an operator in it."""
        return torch.autocast(self.device_type, self.dtype)

    def adapt(self, translation: Translation, node: torch.fx.Node) -> Translation:
        """The translation of *node* with the casts of its inputs, or of its decomposition if that has some."""
        if has_kernel(node.target, DISPATCH_KEY):
            if base_name(node.target) in LOWER and getattr(node.meta["val"], "dtype", None) == torch.float32:
                raise Untranslatable(
                    "under autocast it is float32 for TorchDynamo, which captures bodies and strict exports, and it is not: capture "
                    "with strict=False, and enter autocast outside of the branch or the loop"
                )
            return dataclasses.replace(translation, function=self.casting(translation.function, node))
        if self.may_decompose(node):
            given, fakes, _ = placed(nodes_by_name(node), nodes_by_name(node))
            traced = traced_call(node.target, node.target, given, fakes, self, pre_dispatch=False)
            called = {call.target for call in traced.graph.nodes}
            if called & HIDDEN:
                raise Untranslatable("autocast casts inside of it, where the program does not show it")
            if makes_casts(traced):
                return dataclasses.replace(translation, function=tracing(node, traced))
        return translation

    def casting(self, function: Any, node: torch.fx.Node) -> Any:
        """*function* on the arguments of *node* cast as autocast does; what it calls itself is outside of the region."""
        fakes = torch.fx.map_arg(nodes_by_name(node), lambda argument: argument.meta.get("val"))

        @functools.wraps(function)
        def adapted(op, **kwargs):
            dtype = self.dtype_for(node.target, [*kwargs.values()])
            kwargs = {name: cast(op, item, dtype, fakes.get(name)) for name, item in kwargs.items()}
            with op.context.inside(None):  # autocast does not see what an operator does inside
                return function(op, **kwargs)

        return adapted

    def dtype_for(self, target: torch._ops.OpOverload, arguments: list[Any]) -> ir.DataType:
        """The dtype that an operator with an autocast kernel is computed in."""
        name = base_name(target)
        if name in LOWER:
            return onnx_dtype(self.dtype)
        if name in PROMOTE and not any(item.dtype == ir.DataType.FLOAT for item in values(arguments)):
            return onnx_dtype(self.dtype)
        return ir.DataType.FLOAT

    def may_decompose(self, node: torch.fx.Node) -> bool:
        """Whether the operator is a composition of others, of which autocast may cast the inputs."""
        return (
            has_kernel(node.target, "CompositeImplicitAutograd")
            and base_name(node.target) not in PLAIN
            and any(is_float(argument.meta.get("val")) for argument in node.all_input_nodes)
        )


def nodes_by_name(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a node by the names of its schema."""
    names = [argument.name for argument in node.target._schema.arguments]
    return dict(zip(names, node.args)) | dict(node.kwargs)


def tracing(node: torch.fx.Node, traced: torch.fx.GraphModule) -> Any:
    """The translation of a node that was traced in the region, casts included."""

    def translation(op, **arguments):
        nodes = nodes_by_name(node)
        _, _, operands = placed(nodes, {name: arguments[name] for name in nodes})
        with op.context.inside(None):  # autocast does not see what an operator does inside
            return write(op, node.target, traced, operands)

    return takes(translation, node.target)


def makes_casts(traced: torch.fx.GraphModule) -> bool:
    """Whether a traced composition casts a float tensor to another float dtype."""
    return any(
        node.target is torch.ops.aten._to_copy.default
        and is_float(node.meta["val"])
        and is_float(node.args[0].meta["val"])
        and node.meta["val"].dtype != node.args[0].meta["val"].dtype
        for node in traced.graph.nodes
    )


PLAIN = frozenset(
    "_assert_tensor_metadata chunk contiguous dropout expand_as flatten matrix_H mT movedim narrow reshape reshape_as softmax "
    "split_with_sizes squeeze to type_as unflatten "
    "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_trilinear3d".split()
)
"""Compositions that never call an operator which autocast casts: common, and not worth tracing, or not traced with dynamic sizes."""


def has_kernel(target: Any, key: str) -> bool:
    """Whether torch's dispatcher has a kernel of an operator for a dispatch key."""
    return isinstance(target, torch._ops.OpOverload) and torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(), key
    )


def base_name(target: torch._ops.OpOverload) -> str:
    """The name of an operator without namespace and overload."""
    return target._schema.name.split("::")[1]


def is_float(fake: Any) -> bool:
    """Whether a fake value is a float tensor, or a list with one."""
    if isinstance(fake, (list, tuple)):
        return any(is_float(item) for item in fake)
    return isinstance(fake, torch.Tensor) and fake.dtype.is_floating_point


def values(arguments: list[Any]) -> list[ir.Value]:
    """The tensors among the arguments of a translation."""
    flat = [item for entry in arguments for item in (entry if isinstance(entry, list) else [entry])]
    return [item for item in flat if isinstance(item, ir.Value) and not isinstance(item, Number)]


def cast(op, item: Any, dtype: ir.DataType, fake: Any) -> Any:
    """A float tensor cast to *dtype*; float64, complex numbers, of which *fake* tells, integers and everything else as they are."""
    if isinstance(item, list):
        return [cast(op, entry, dtype, own) for entry, own in itertools.zip_longest(item, fake or ())]
    if not isinstance(item, ir.Value) or isinstance(item, Number) or is_complex(fake):
        return item
    if item.dtype not in FLOATS or item.dtype == ir.DataType.DOUBLE:
        return item
    return op.Cast(item, to=dtype)
