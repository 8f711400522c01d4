"""Functions that ask for sizes or values which their result does not need.

They are written with operators that do not ask. Source of semantics: the kernels of ATen and torch/functional.py.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table

from experimental_experiment.torch_interpreter.patches.patch import entry, patch, replaced

LOGSUMEXP = torch.ops.aten.logsumexp.default


@patch(
    "torch",
    replaces=(
        "torch.unravel_index",
        "torch.Tensor.fill_diagonal_",
        *(
            f"torch.{owner}{name}"
            for name in ("take_along_dim", "cov", "corrcoef")
            for owner in ("", "Tensor.")
        ),
        "torch.linalg.matrix_norm",
        "torch.linalg.norm",
        "torch.linalg.multi_dot",
        "torch.chain_matmul",
        "torch.batch_norm",
        "torch.instance_norm",
        "the decomposition of logsumexp",
    ),
    default=True,
)
def functions_of_any_size() -> Iterator[None]:
    """``torch.take_along_dim(x, i, 1)`` and ``torch.unravel_index`` fix sizes to the example's; ``torch.cov`` is refused for any size.

    So do ``fill_diagonal_`` and ``torch.corrcoef``; ``torch.linalg.norm(x, 1)``, ``torch.linalg.norm(x, 2)`` and ``torch.linalg.multi_dot`` fix sizes, too.
    ``similarity[mask].view(n, -1).logsumexp(1)``, and a batch or instance norm of ``points[mask]``, are refused, because they ask whether
    the data select anything.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch, "unravel_index", unravel_index(torch.unravel_index)))
        wrapped = fill_diagonal_(torch.Tensor.fill_diagonal_)
        stack.enter_context(replaced(torch.Tensor, "fill_diagonal_", wrapped))
        for wrap in (take_along_dim, cov, corrcoef):
            for owner in (torch, torch.Tensor):
                name = wrap.__name__
                stack.enter_context(replaced(owner, name, wrap(getattr(owner, name))))
        for owner, name, wrap in (
            (torch.linalg, "matrix_norm", matrix_norm),
            (torch.linalg, "norm", matrix_norm),
            (torch.linalg, "multi_dot", products),
            (torch, "chain_matmul", products),
            (torch, "batch_norm", batch_norm),
            (torch, "instance_norm", instance_norm),
        ):
            stack.enter_context(replaced(owner, name, wrap(getattr(owner, name))))
        entry(stack, decomposition_table, LOGSUMEXP, logsumexp(decomposition_table[LOGSUMEXP]))
        yield


def logsumexp(of_numbers: Callable) -> Callable:
    """The decomposition of `torch.logsumexp`, by which torch finds shapes: some elements are taken for granted where the data decide it."""

    @functools.wraps(of_numbers)
    def called(self: torch.Tensor, dim: Any, keepdim: bool = False) -> torch.Tensor:
        if not is_selected(self):
            return of_numbers(self, dim, keepdim)
        functions_of_any_size.used()
        largest = torch.amax(torch.real(self), dim, keepdim=True)
        largest = largest.masked_fill(largest.abs() == math.inf, 0)
        total = (self - largest).exp().sum(dim, keepdim).log()
        return total + (largest if keepdim else largest.squeeze(dim))

    return called


def is_selected(x: torch.Tensor) -> bool:
    """Whether the data decide how many elements a tensor has."""
    count = x.numel()
    return isinstance(count, torch.SymInt) and not count.node.has_hint()


def batch_norm(of_numbers: Callable) -> Callable:
    """`torch.batch_norm`: with the statistics of the training, the operator that does not ask for elements."""

    @functools.wraps(of_numbers)
    def called(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
        statistics = running_mean, running_var
        if training or None in statistics or not is_selected(input):
            return of_numbers(input, weight, bias, *statistics, training, momentum, eps, cudnn_enabled)
        functions_of_any_size.used()
        normalized = torch.ops.aten._native_batch_norm_legit_no_training
        return normalized(input, weight, bias, *statistics, momentum, eps)[0]

    return called


def instance_norm(of_numbers: Callable) -> Callable:
    """`torch.instance_norm` without statistics of the training: groups of one channel."""

    @functools.wraps(of_numbers)
    def called(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled):
        statistics = running_mean, running_var
        if not use_input_stats or statistics != (None, None) or not is_selected(input):
            return of_numbers(input, weight, bias, *statistics, use_input_stats, momentum, eps, cudnn_enabled)
        functions_of_any_size.used()
        return torch.group_norm(input, input.shape[1], weight, bias, eps)

    return called


def take_along_dim(of_numbers: Callable) -> Callable:
    """`torch.take_along_dim`: a gather of what is broadcast along the other axes."""

    @functools.wraps(of_numbers)
    def called(input: torch.Tensor, indices: torch.Tensor, dim: int | None = None, **options: Any):
        is_plain = dim is not None and not options and input.dim() == indices.dim() > 0
        if not is_plain or not functions_of_any_size.is_used_for(*input.shape, *indices.shape):
            return of_numbers(input, indices, dim, **options)
        others = [
            torch.Size([1 if axis == dim % input.dim() else size for axis, size in enumerate(x.shape)])
            for x in (input, indices)
        ]
        if others[0] != others[1]:
            common = torch.broadcast_shapes(*others)
            input, indices = (along(x, dim % x.dim(), common) for x in (input, indices))
        return torch.gather(input, dim, indices)

    return called


def along(x: torch.Tensor, dim: int, sizes: Sequence[Any]) -> torch.Tensor:
    """*x* expanded to these sizes, along all axes but *dim*."""
    return x.expand([*sizes[:dim], x.shape[dim], *sizes[dim + 1 :]])


def unravel_index(of_numbers: Callable) -> Callable:
    """`torch.unravel_index` in a shape with symbols: one division an axis."""

    def unravel_index(indices: torch.Tensor, shape: Any) -> tuple[torch.Tensor, ...]:
        sizes = shape if isinstance(shape, (tuple, list)) else [shape]
        if not functions_of_any_size.is_used_for(*sizes):
            return of_numbers(indices, shape)
        found: list[torch.Tensor] = []
        rest = indices.to(torch.promote_types(indices.dtype, torch.int64))
        for size in reversed(sizes):
            found.insert(0, rest % size)
            rest = rest // size
        return tuple(found)

    return unravel_index


def fill_diagonal_(of_numbers: Callable) -> Callable:
    """`torch.Tensor.fill_diagonal_` of a matrix, whose diagonal is a view."""

    @functools.wraps(of_numbers)
    def called(self: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
        if self.dim() != 2 or wrap or not functions_of_any_size.is_used_for(*self.shape):
            return of_numbers(self, fill_value, wrap)
        self.diagonal().fill_(fill_value)
        return self

    return called


def cov(of_values: Callable) -> Callable:
    """`torch.cov` without weights, which asks whether the number of observations is 0."""

    @functools.wraps(of_values)
    def called(
        input: torch.Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
    ) -> torch.Tensor:
        if not is_followed(input) or fweights is not None or aweights is not None:
            return of_values(input, correction=correction, fweights=fweights, aweights=aweights)
        return covariance(input, correction)

    return called


def corrcoef(of_values: Callable) -> Callable:
    """`torch.corrcoef`, covariances divided by both standard deviations."""

    @functools.wraps(of_values)
    def called(input: torch.Tensor) -> torch.Tensor:
        if not is_followed(input):
            return of_values(input)
        found = covariance(input, 1)
        if not found.dim():
            return found / found
        deviation = found.diagonal().sqrt()
        return (found / deviation[:, None] / deviation).clamp(-1, 1)

    return called


def is_followed(input: torch.Tensor) -> bool:
    """Whether a tensor is one whose covariances are written here; says that the patch is used when it is."""
    found = input.is_floating_point() and input.dim() in (1, 2)
    if found:
        functions_of_any_size.used()
    return found


def covariance(input: torch.Tensor, correction: int) -> torch.Tensor:
    """The covariances of rows, of one row a number."""
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    rows = rows - rows.mean(1, keepdim=True)
    # a tensor: torch takes for granted that a dynamic size is not 0, of whose rows these are NaN
    freedom = torch.scalar_tensor(rows.shape[1] - correction, dtype=torch.int64).clamp(min=0)
    return (rows @ rows.T / freedom).squeeze()


def matrix_norm(of_numbers: Callable) -> Callable:
    """`torch.linalg.matrix_norm`, and `torch.linalg.norm` of matrices, where `largest_values` knows them."""
    is_for_batches = of_numbers is torch.linalg.matrix_norm

    @functools.wraps(of_numbers)
    def called(*args: Any, **options: Any) -> torch.Tensor:
        is_matrix = bool(args) and args[0].dim() >= 2 and (is_for_batches or args[0].dim() == 2)
        is_symbolic = bool(args) and functions_of_any_size.is_used_for(*args[0].shape)
        norm = largest_values(is_matrix, *args, **options) if is_symbolic else None
        return of_numbers(*args, **options) if norm is None else norm

    return called


def largest_values(
    is_matrix: bool,
    x: torch.Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """A norm of matrices that is the largest, or the smallest, sum of a column or of a row, or singular value; None for any other.

    *is_matrix*: whether the last axes are those of the matrices when *dim* says nothing.
    """
    axes = (-2, -1) if dim is None and is_matrix else dim
    is_known = isinstance(ord, (int, float)) and abs(ord) in (1, 2, math.inf) and x.dtype.is_floating_point
    if not is_known or out is not None or not isinstance(axes, (tuple, list)) or len(axes) != 2:
        return None
    places = [range(x.dim())[axis] for axis in axes if -x.dim() <= axis < x.dim()]
    if len({*places}) != 2:
        return None  # torch says so
    choose = torch.amax if ord > 0 else torch.amin
    if abs(ord) == 2:
        matrices = (x if dtype is None else x.to(dtype)).movedim(places, (-2, -1))
        values = choose(torch.linalg.svdvals(matrices), -1)
        return values.unsqueeze(min(places)).unsqueeze(max(places)) if keepdim else values
    summed, other = places if abs(ord) == 1 else reversed(places)
    sums = torch.linalg.vector_norm(x, 1, summed, keepdim, dtype=dtype)
    left = other if keepdim or other < summed else other - 1
    return choose(sums, left, keepdim)


def products(of_numbers: Callable) -> Callable:
    """`torch.linalg.multi_dot` and `torch.chain_matmul`, which order the products by sizes: from left to right."""
    is_list = of_numbers is torch.linalg.multi_dot

    @functools.wraps(of_numbers)
    def called(*args: Any, **options: Any) -> torch.Tensor:
        tensors = args[0] if is_list and args else args
        ranks = [x.dim() for x in tensors]
        if is_list and ranks:  # the first and the last one may be vectors
            ranks[0], ranks[-1] = (2 if rank == 1 else rank for rank in (ranks[0], ranks[-1]))
        are_matrices = len(ranks) > 1 and set(ranks) == {2}
        sizes = [size for x in tensors for size in x.shape] if are_matrices else []
        if options or not functions_of_any_size.is_used_for(*sizes):
            return of_numbers(*args, **options)
        return functools.reduce(torch.matmul, tensors)

    return called
