"""Batches of any size under ``torch.vmap``: what functorch's batching rules in C++ take a number of Python for.

Source of semantics: aten/src/ATen/functorch/BatchRules*.cpp.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._decomp import global_decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

aten = torch.ops.aten

VMAP = "torch._functorch.vmap._flat_vmap"

KEY = "FuncTorchBatched"
"""The dispatch key of batching rules."""

RANDOM = "FuncTorchVmapMode"
"""That of operators that may draw, dropout among them."""

BATCHED = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.FuncTorchVmapMode
)

FIRST = "FuncTorchDynamicLayerFrontMode"
"""The dispatch key of what functorch computes by others, whether there is a batch or not."""

RULES: dict[torch._ops.OpOverload, Callable] = {}
"""The rules of operators: called with the operator, the size of the batch and the arguments, tensors being `Operand`."""

COMPOSED: dict[torch._ops.OpOverload, Callable] = {}
"""What computes an operator by others, which have rules: functorch would call it on each sample, or asks for sizes."""


@patch("torch", replaces=(VMAP,), default=True)
def batches_of_any_size() -> Iterator[None]:
    """``torch.vmap`` of a linear layer, a norm, a convolution, a pool or attention fixes the size of the batch to the example's, or is refused.

    So do upsampling, ``cat``, ``gather``, ``scatter``, ``index_select``, ``index_add``, also in place, what is made of them (``torch.quantile``,
    ``F.cross_entropy``), other losses, copies of views and ``torch.linalg.solve``: functorch's rules for them are written for numbers. Batches of static sizes stay with those.
    """
    importlib.import_module("torch._functorch.vmap")
    with wrapped({VMAP: of_any_size}):
        yield


def of_any_size(vmap: Callable) -> Callable:
    """`_flat_vmap`, which calls the function on a batch, with the rules below where the size of the batch is a symbol."""

    def _flat_vmap(function: Callable, batch_size: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(batch_size, torch.SymInt):
            return vmap(function, batch_size, *args, **kwargs)
        batches_of_any_size.used()
        with symbolic_rules():
            return vmap(function, batch_size, *args, **kwargs)

    return _flat_vmap


class Symbolic:
    """The rules below, while they stand in the place of functorch's: how many want them, and the library that has them."""

    lock = threading.RLock()
    users = 0
    library: Any = None


@contextlib.contextmanager
def symbolic_rules() -> Iterator[None]:
    """The rules below in the place of functorch's, for a while."""
    with Symbolic.lock:
        if Symbolic.users == 0:
            Symbolic.library = torch.library.Library("aten", "IMPL")
            attention = aten.scaled_dot_product_attention.default
            with warnings.catch_warnings():  # torch says once that there are other kernels
                warnings.simplefilter("ignore")
                for operator, rule in RULES.items():
                    Symbolic.library.impl(operator, kernel(operator, rule), KEY)
                for operator, function in COMPOSED.items():
                    Symbolic.library.impl(operator, function, KEY)
                Symbolic.library.impl(attention, kernel(attention, scaled_dot_product_attention), RANDOM)
                Symbolic.library.impl(aten.linear.default, linear, FIRST)
        Symbolic.users += 1
    try:
        yield
    finally:
        with Symbolic.lock:
            Symbolic.users -= 1
            if Symbolic.users == 0:
                Symbolic.library._destroy()
                Symbolic.library = None


class Operand:
    """A tensor as an operator under ``torch.vmap`` is given it.

    Attributes:
        value: the tensor, with the axis of the batch in front if it has one.
        is_batched: whether it has one.
        rank: that of one sample.
    """

    def __init__(self, tensor: torch.Tensor, level: int):
        axis = functorch.maybe_get_bdim(tensor)
        self.is_batched = axis >= 0 and functorch.maybe_get_level(tensor) == level
        self.value = functorch.get_unwrapped(tensor).movedim(axis, 0) if self.is_batched else tensor
        self.rank = self.value.dim() - self.is_batched

    def expanded(self, size: Any) -> torch.Tensor:
        """The tensor of each sample, one after the other, also where they share one."""
        return self.value if self.is_batched else self.value.expand(size, *self.value.shape)


def kernel(operator: torch._ops.OpOverload, rule: Callable) -> Callable:
    """What the dispatcher calls for an operator on batches."""

    def called(*args: Any, **kwargs: Any) -> Any:
        level = functorch.current_level()
        leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        with torch._C._ExcludeDispatchKeyGuard(
            BATCHED
        ):  # as functorch's rules do: what is called is of the vmap around
            given = [Operand(leaf, level) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            sizes = [x.value.shape[0] for x in given if isinstance(x, Operand) and x.is_batched]
            if not sizes:
                return operator(*args, **kwargs)
            args, kwargs = torch.utils._pytree.tree_unflatten(given, spec)
            results = rule(operator, sizes[0], *args, **kwargs)
        many = isinstance(results, tuple)
        batched = [functorch._add_batch_dim(result, 0, level) for result in (results if many else (results,))]
        return tuple(batched) if many else batched[0]

    return called


def batches(*operators: torch._ops.OpOverload) -> Callable:
    """Register the rule of operators."""

    def register(rule: Callable) -> Callable:
        RULES.update(dict.fromkeys(operators, rule))
        return rule

    return register


def refuse_batched(operator: torch._ops.OpOverload, *operands: Any) -> None:
    """Refuse operands with a batch of their own."""
    if any(isinstance(operand, Operand) and operand.is_batched for operand in operands):
        raise NotImplementedError(
            f"{operator} under torch.vmap has weights of each sample, for which the batch must have a static size"
        )


def refuse_numbers(operator: torch._ops.OpOverload, *operands: Operand) -> None:
    """Refuse samples without axes."""
    if any(operand.rank == 0 for operand in operands):
        raise NotImplementedError(
            f"{operator} under torch.vmap has numbers: give each an axis of one element"
        )


def plain(values: Any) -> Any:
    """The tensors of operands that have no batch, in lists too."""
    return torch.utils._pytree.tree_map(
        lambda value: value.value if isinstance(value, Operand) else value, values
    )


# ---- operators made of others


def copied(view: torch._ops.OpOverload) -> Callable:
    """A copy of what a view shows."""

    def copy(*args: Any, **kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map(torch.clone, view(*args, **kwargs))

    return copy


def in_place(functional: torch._ops.OpOverload) -> Callable:
    """What an operator returns, written to its first argument; *copy_* refuses one that all samples share."""

    def write(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.copy_(functional(self, *args, **kwargs))

    return write


def vander(x: torch.Tensor, N: int | None = None, increasing: bool = False) -> torch.Tensor:
    """The matrix of powers, in the order of falling ones unless *increasing*."""
    powers = torch.linalg.vander(x, N=N)
    return powers if increasing else powers.flip(-1)


COMPOSED.update(
    {
        getattr(getattr(aten, f"{view}_copy"), overload): copied(getattr(getattr(aten, view), overload))
        for view, overload in (
            *(("detach", "default"), ("permute", "default"), ("select", "int"), ("slice", "Tensor")),
            *(
                ("split_with_sizes", "default"),
                ("squeeze", "default"),
                ("squeeze", "dim"),
                ("squeeze", "dims"),
            ),
            *(("t", "default"), ("transpose", "int"), ("unbind", "int"), ("unsqueeze", "default")),
            ("view", "default"),
        )
    }
)
COMPOSED.update(
    {
        getattr(getattr(aten, f"{name}_"), overload): in_place(getattr(getattr(aten, name), overload))
        for name, overload in (
            *(("index_add", "default"), ("index_copy", "default"), ("renorm", "default")),
            *(("scatter", "reduce"), ("scatter", "src"), ("scatter", "value"), ("scatter", "value_reduce")),
            *(("scatter_add", "default"), ("scatter_reduce", "two")),
        )
    }
)
COMPOSED.update(
    {
        operator: operator.decompose
        for operator in (
            *(getattr(aten.gradient, overload) for overload in aten.gradient.overloads()),
            *(aten.kl_div.default, aten.linalg_tensorsolve.default, aten.margin_ranking_loss.default),
            aten.triplet_margin_loss.default,
        )
    }
)
COMPOSED.update(
    {
        operator: global_decomposition_table["post_autograd"][operator]
        for operator in (
            *(aten.isin.Tensor_Scalar, aten.isin.Tensor_Tensor, aten.multi_margin_loss.default),
            *(aten.renorm.default, aten.soft_margin_loss.default, aten.take.default),
        )
    }
)
COMPOSED[aten.vander.default] = vander


# ---- axes


@batches(aten.cat.default)
def cat(operator, size, tensors, dim=0):
    """Those of each sample, one after the other; an empty vector may stand beside tensors of more axes."""
    rank = max(tensor.rank for tensor in tensors)
    dtype = functools.reduce(torch.promote_types, [tensor.value.dtype for tensor in tensors])
    joined = [tensor.expanded(size) for tensor in tensors if tensor.rank == rank]
    return operator(joined, dim % rank + 1).to(dtype)


@batches(aten.searchsorted.Tensor)
def searchsorted(operator, size, sorted_sequence, self, *, sorter=None, **options):
    """Positions in the sequence of each sample, or in the one that they share."""
    values = self.expanded(size)
    sequence = sorted_sequence.expanded(size)
    order = sorter if sorter is None else sorter.expanded(size)
    if sorted_sequence.rank > 1:
        return operator(sequence, values, sorter=order, **options)
    found = operator(sequence, values.reshape(values.shape[0], -1), sorter=order, **options)
    return found.reshape(values.shape)


@batches(
    aten.gather.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.scatter.reduce,
    aten.scatter.value_reduce,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
)
def along_axis(operator, size, self, dim, index, *others, **options):
    """An operator with an index for each element: all operands have the axis of the batch."""
    refuse_numbers(operator, self, index)
    others = [other.expanded(size) if isinstance(other, Operand) else other for other in others]
    return operator(self.expanded(size), dim % self.rank + 1, index.expanded(size), *others, **options)


@batches(aten.index_select.default)
def index_select(operator, size, self, dim, index):
    """The same rows of each sample, or those of its own."""
    refuse_numbers(operator, self, index)
    axis = dim % self.rank + 1
    if not index.is_batched:
        return operator(self.value, axis, index.value)
    values = self.expanded(size)
    return aten.gather.default(values, axis, along(index.value, axis, values.shape))


@batches(aten.index_add.default)
def index_add(operator, size, self, dim, index, source, *, alpha=1):
    """Add to the same rows of each sample, or to those of its own."""
    refuse_numbers(operator, self, index)
    axis = dim % self.rank + 1
    values, added = self.expanded(size), source.expanded(size)
    if not index.is_batched:
        return operator(values, axis, index.value, added, alpha=alpha)
    return aten.scatter_add.default(values, axis, along(index.value, axis, added.shape), added * alpha)


def along(index: torch.Tensor, axis: int, shape: Sequence[Any]) -> torch.Tensor:
    """Positions [batch, n] along an axis, for each element of the others."""
    inner = [1] * (len(shape) - axis - 1)
    placed = index.reshape(index.shape[0], *[1] * (axis - 1), index.shape[1], *inner)
    return placed.expand(*shape[:axis], index.shape[1], *shape[axis + 1 :])


# ---- samples of several images: one batch of all


def folded(axes: int) -> Callable:
    """A rule for operators on images of so many axes: those of all samples are one batch."""

    def rule(operator, size, self, *args, **options):
        refuse_batched(operator, *args)
        args = plain(args)
        if self.rank == axes + 1:
            return operator(self.value, *args, **options)
        results = operator(self.value.flatten(0, 1), *args, **options)
        return unfolded(results, self.value.shape[:2])

    return rule


def unfolded(results: Any, shape: Sequence[Any]) -> Any:
    """The images of each sample of results that have those of all."""
    if isinstance(results, tuple):
        return tuple(unfolded(result, shape) for result in results)
    return results.reshape(*shape, *results.shape[1:])


IMAGES = {
    1: (
        *(aten.upsample_nearest1d, aten.upsample_linear1d, aten._upsample_nearest_exact1d),
        *(aten.reflection_pad1d, aten.replication_pad1d),
    ),
    2: (
        *(aten.avg_pool2d, aten.max_pool2d_with_indices, aten._adaptive_avg_pool2d, aten.adaptive_max_pool2d),
        *(aten.upsample_nearest2d, aten.upsample_bilinear2d, aten.upsample_bicubic2d),
        *(aten._upsample_nearest_exact2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa),
        *(aten.reflection_pad2d, aten.replication_pad2d, aten.im2col, aten.channel_shuffle),
    ),
    3: (
        *(aten.avg_pool3d, aten.max_pool3d_with_indices, aten._adaptive_avg_pool3d, aten.adaptive_max_pool3d),
        *(aten.upsample_nearest3d, aten.upsample_trilinear3d, aten._upsample_nearest_exact3d),
        *(aten.reflection_pad3d, aten.replication_pad3d),
    ),
}
"""Operators on images, by the number of their axes."""

for axes, operators in IMAGES.items():
    for packet in operators:
        batches(packet.default)(folded(axes))


@batches(
    *(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec),
    *(aten._upsample_nearest_exact1d.vec, aten._upsample_nearest_exact2d.vec),
    aten._upsample_nearest_exact3d.vec,
)
def upsample_by_factors(operator, size, input, output_size, scale_factors):
    """By the operator that is given sizes: this one asks for those of all images."""
    images = input.value.flatten(0, 1)
    sizes = upsample_compute_output_size(images.shape, output_size, scale_factors)
    scales = [None] * len(sizes) if scale_factors is None else scale_factors
    return unfolded(operator.overloadpacket.default(images, sizes, *scales), input.value.shape[:2])


@batches(aten.convolution.default)
def convolution(operator, size, input, weight, bias, *args):
    """The images of all samples are one batch, the weights those of all."""
    refuse_batched(operator, weight, bias)
    results = operator(input.value.flatten(0, 1), weight.value, plain(bias), *args)
    return unfolded(results, input.value.shape[:2])


@batches(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(operator, size, input, grid, *args):
    """The images of all samples are one batch, with a grid for each."""
    images, grids = input.expanded(size), grid.expanded(size)
    return unfolded(operator(images.flatten(0, 1), grids.flatten(0, 1), *args), images.shape[:2])


@batches(aten.affine_grid_generator.default)
def affine_grid_generator(operator, number, theta, size, align_corners):
    """The grids of all samples are those of one batch."""
    grids = theta.value.flatten(0, 1)
    return unfolded(operator(grids, [grids.shape[0], *size[1:]], align_corners), theta.value.shape[:2])


# ---- norms


@batches(aten.native_layer_norm.default)
def native_layer_norm(operator, size, input, normalized_shape, weight, bias, eps):
    """The axes are the last ones; what each sample has of weights is applied afterwards."""
    if not any(isinstance(x, Operand) and x.is_batched for x in (weight, bias)):
        return operator(input.value, normalized_shape, plain(weight), plain(bias), eps)
    found, *moments = operator(input.expanded(size), normalized_shape, None, None, eps)

    def aligned(operand):
        values = operand.expanded(size)
        return values.reshape(values.shape[0], *[1] * (found.dim() - values.dim()), *values.shape[1:])

    found = found if weight is None else found * aligned(weight)
    found = found if bias is None else found + aligned(bias)
    return found, *moments


@batches(aten.native_group_norm.default)
def native_group_norm(operator, size, input, weight, bias, N, C, HxW, group, eps):
    """The images of all samples are one batch."""
    refuse_batched(operator, weight, bias)
    images = input.value.flatten(0, 1).contiguous()
    found = operator(images, plain(weight), plain(bias), images.shape[0], C, HxW, group, eps)
    return unfolded(found, input.value.shape[:2])


@batches(aten.native_batch_norm.default)
def native_batch_norm(operator, size, input, weight, bias, running_mean, running_var, training, *args):
    """In inference, the images of all samples are one batch; otherwise the channels of each are its own."""
    refuse_batched(operator, running_mean, running_var)
    images = input.expanded(size)
    if training:
        if running_mean is not None:
            raise NotImplementedError(f"{operator} that counts under torch.vmap, with a batch of any size")
        images = images.movedim(0, 1)
        found, *moments = operator(images.flatten(1, 2), None, None, None, None, training, *args)
        found = found.reshape(images.shape).movedim(1, 0)
        moments = [moment.reshape(images.shape[1:3]) for moment in moments]
    else:
        is_one = not any(isinstance(x, Operand) and x.is_batched for x in (weight, bias))
        affine = plain((weight, bias)) if is_one else (None, None)
        weight, bias = (None, None) if is_one else (weight, bias)
        statistics = plain((running_mean, running_var))
        found, *moments = operator(images.flatten(0, 1), *affine, *statistics, training, *args)
        # these are empty
        found, moments = found.reshape(images.shape), [moment.expand(size, 0) for moment in moments]

    def aligned(operand):
        values = operand.expanded(size)
        return values.reshape(values.shape[0], 1, values.shape[1], *[1] * (found.dim() - 3))

    found = found if weight is None else found * aligned(weight)
    return found if bias is None else found + aligned(bias), *moments


def linear(input, weight, bias=None):
    """A product and a sum; functorch asks for the sizes of the input."""
    found = torch.matmul(input, weight.t())
    return found if bias is None else found + bias


def scaled_dot_product_attention(
    operator, size, query, key, value, attn_mask=None, dropout_p=0.0, *args, **options
):
    """The heads of all samples are one batch."""
    if dropout_p:
        raise NotImplementedError(f"{operator} with dropout under torch.vmap, of a batch of any size")
    tensors = [operand.expanded(size) for operand in (query, key, value)]
    heads = tensors[0].shape[:-2]
    if attn_mask is not None:
        mask = attn_mask.expanded(size)
        mask = mask.reshape(mask.shape[0], *[1] * (tensors[0].dim() - mask.dim()), *mask.shape[1:])
        if mask.dim() > 4:
            mask = mask.expand(*heads[:-1], *mask.shape[-3:]).flatten(0, -4)
        attn_mask = mask
    flat = [tensor.flatten(0, -4) if tensor.dim() > 4 else tensor for tensor in tensors]
    found = operator(*flat, attn_mask, dropout_p, *args, **options)
    return found.reshape(*heads, *found.shape[-2:])


# ---- others


@batches(aten.pixel_shuffle.default, aten.pixel_unshuffle.default)
def pixel_shuffle(operator, size, self, *args):
    """The images may have any axes in front."""
    return operator(self.value, *args)


@batches(aten.quantile.scalar, aten.nanquantile.scalar)
def quantile(operator, size, self, q, dim=None, keepdim=False, **options):
    """Those along one axis of a sample, or of all of it."""
    if dim is None and keepdim:
        raise NotImplementedError(f"{operator} of all axes that are kept, under torch.vmap")
    if self.rank == 0:
        return operator(self.value[:, None], q, 1, **options)
    values = self.value.flatten(1) if dim is None else self.value
    return operator(values, q, 1 if dim is None else dim % self.rank + 1, keepdim, **options)


@batches(aten.linalg_cross.default)
def linalg_cross(operator, size, self, other, *, dim=-1):
    """Both have the axis of the batch."""
    return operator(self.expanded(size), other.expanded(size), dim=dim % self.rank + 1)


@batches(aten._linalg_solve_ex.default)
def linalg_solve_ex(operator, size, A, B, **options):
    """The systems of all samples, of which a vector is a matrix of one column."""
    matrices, values = A.expanded(size), B.expanded(size)
    if B.rank != 1 and not (B.rank == A.rank - 1 and B.value.shape[-1] == matrices.shape[-1]):
        return operator(matrices, values, **options)
    found, *others = operator(matrices, values.unsqueeze(-1), **options)
    return found.squeeze(-1), *others
