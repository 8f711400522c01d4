"""Functions that take Python's numbers only, called with a symbolic size.

They are written with operators that take sizes. Source of semantics: the kernels of ATen, up to the order of their roundings.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn.attention import SDPBackend, sdpa_kernel

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.symbols import expression_of

TORCH_NAMES = {"degrees": "rad2deg", "fabs": "abs", "radians": "deg2rad"} | {
    name: name for name in "acos asin atan cos cosh exp expm1 log1p sin sinh tan tanh".split()
}
"""Functions of `math`, and torch's names of the same functions."""

NAMES = (*TORCH_NAMES, "log", "log10", "log2", "sqrt")
"""Functions of `math`; numpy asks an object that is no number of Python for a method of that name."""

SYMBOLS = (torch.SymInt, torch.SymFloat)

SPLITS = {"dsplit": (2, 3), "hsplit": (1, 1), "vsplit": (0, 2)}
"""Functions that split one axis, and the least number of axes; ``hsplit`` splits the only one of a vector."""


@patch(
    "torch",
    replaces=(
        "torch.linspace",
        "torch.fft.fftfreq",
        "torch.fft.rfftfreq",
        "torch.istft",
        "torch.max_pool1d",
        "torch.gradient",
        "torch.kron",
        "torch.Tensor.kron",
        "torch.Tensor.unfold",
        *(
            f"{owner}.{name}"
            for name in ("diag", "diagonal", "diag_embed")
            for owner in ("torch", "torch.Tensor")
        ),
        *(f"{owner}.{name}" for name in SPLITS for owner in ("torch", "torch.Tensor")),
        "torch.adaptive_avg_pool1d",
        "torch.nn.functional.adaptive_avg_pool1d",
        *(f"torch.nn.functional.{name}_pool{axes}d" for name in ("avg", "max") for axes in (1, 2, 3)),
        *(f"torch.nn.functional.adaptive_max_pool{axes}d" for axes in (1, 2, 3)),
        "torch.SymInt.__round__",
        "torch.nn.functional.one_hot",
        "torch.nn.functional.scaled_dot_product_attention",
        "torch._C._infer_size",
        *(f"math.{name}" for name in NAMES),
        "the methods of sizes that numpy looks for",
    ),
    default=True,
)
def numbers_of_sizes() -> Iterator[None]:
    """``torch.linspace(0, 1, x.shape[1])`` fixes the size to the example's: some functions take Python's numbers only.

    So do ``torch.fft.fftfreq``, ``torch.istft(length=)``, ``F.max_pool1d``, ``F.adaptive_max_pool2d``, ``F.adaptive_avg_pool1d``,
    ``F.one_hot``, the scale of an attention, pools over all of an axis, ``x.unfold(1, n // 4, 2)``, ``x.diagonal(n // 4)``,
    ``torch.diag_embed``, ``x.hsplit``, ``math.sqrt``, ``math.log``, ``numpy.sqrt`` and others, and the divergences of distributions. An attention asks whether there are tokens at all, which the data may decide.
    """
    functions = (
        (torch, "linspace", linspace),
        (torch.fft, "fftfreq", fftfreq),
        (torch.fft, "rfftfreq", rfftfreq),
        (torch, "istft", istft),
        (torch, "max_pool1d", max_pool1d),
        (torch.SymInt, "__round__", rounded),
        (torch.nn.functional, "one_hot", one_hot),
        (torch.nn.functional, "scaled_dot_product_attention", attention),
        (torch._C, "_infer_size", infer_size),
        (torch, "gradient", gradient),
        (torch, "kron", kron),
        (torch.Tensor, "kron", kron),
        (torch.Tensor, "unfold", unfold),
        (torch, "adaptive_avg_pool1d", adaptive_avg_pool1d),
        (torch.nn.functional, "adaptive_avg_pool1d", adaptive_avg_pool1d),
        *(
            (owner, wrap.__name__, wrap)
            for wrap in (diag, diagonal, diag_embed)
            for owner in (torch, torch.Tensor)
        ),
        *(
            (owner, name, functools.partial(split, axis=axis, least=least))
            for name, (axis, least) in SPLITS.items()
            for owner in (torch, torch.Tensor)
        ),
        *((math, name, wrap) for name, wrap in FLOATS.items()),
        *((cls, name, functools.partial(method, name)) for cls in SYMBOLS for name in NAMES),
        *(
            (torch.nn.functional, f"{name}_pool{axes}d", functools.partial(pool, axes=axes, reduce=reduce))
            for name, reduce in (("avg", torch.mean), ("max", torch.amax))
            for axes in (1, 2, 3)
        ),
        *(
            (
                torch.nn.functional,
                f"adaptive_max_pool{axes}d",
                functools.partial(adaptive_max_pool, axes=axes),
            )
            for axes in (1, 2, 3)
        ),
    )
    with contextlib.ExitStack() as stack:
        for owner, name, wrap in functions:
            stack.enter_context(replaced(owner, name, wrap(getattr(owner, name, None))))
        yield


def rounded(of_numbers: Callable) -> Callable:
    """``round(size, -2)`` to hundreds: torch takes a size for rounded already."""

    def __round__(self: torch.SymInt, ndigits: int | None = None) -> Any:
        if ndigits is None or ndigits >= 0:
            return of_numbers(self, ndigits)
        numbers_of_sizes.used()
        unit = 10**-ndigits
        # half of a unit is even
        is_up = self % unit * 2 + self // unit % 2 > unit
        return (self // unit + torch.sym_ite(is_up, 1, 0)) * unit

    return __round__


def adaptive_max_pool(of_numbers: Callable, axes: int) -> Callable:
    """`F.adaptive_max_pool2d` and those of other ranks with sizes that are symbols: axis after axis, the greatest of each window."""

    def adaptive_max_pool(
        input: torch.Tensor, output_size: Any, return_indices: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        sizes = output_size if isinstance(output_size, (tuple, list)) else [output_size] * axes
        if return_indices or len(sizes) != axes or not numbers_of_sizes.is_used_for(*sizes):
            return of_numbers(input, output_size, return_indices)
        for axis, size in enumerate(sizes, start=-axes):
            if size is not None:
                input = greatest(input, axis, size)
        return input

    return adaptive_max_pool


def greatest(input: torch.Tensor, axis: int, size: Any) -> torch.Tensor:
    """The greatest elements of *size* windows of an axis, which begin at ``i * length // size`` and end before what follows ``(i + 1) * length / size``.

    A window that is shorter than the longest repeats its last element.
    """
    length, windows = input.shape[axis], torch.arange(size, device=input.device)
    begins, ends = windows * length // size, ((windows + 1) * length + size - 1) // size
    within = torch.arange((length + size - 1) // size + 1, device=input.device)
    places = torch.minimum(begins[:, None] + within, ends[:, None] - 1)
    return input[(..., places, *[slice(None)] * (-1 - axis))].amax(axis)


def linspace(of_numbers: Callable) -> Callable:
    """`torch.linspace` of any number of steps, from both ends to the middle as torch computes it; in double, float32 is exact from one."""

    def linspace(
        start: Any, end: Any, steps: Any = None, *, dtype: torch.dtype | None = None, **options: Any
    ):
        numbers = (int, float, torch.SymInt, torch.SymFloat)
        is_plain = all(isinstance(bound, numbers) for bound in (start, end)) and options.get("out") is None
        floating = dtype or torch.get_default_dtype()
        if not (is_plain and floating.is_floating_point and numbers_of_sizes.is_used_for(steps)):
            return of_numbers(start, end, steps, dtype=dtype, **options)
        dtype, device = floating, options.get("device")
        computed = torch.float64 if dtype == torch.float32 else dtype
        index = torch.arange(steps, dtype=computed, device=device)
        last = torch.full((), steps - 1, dtype=computed, device=device)
        step = (end - start) / last.clamp(min=1)
        up = start + step * index
        if computed != dtype:
            return up.to(dtype)
        return torch.where(index < torch.sym_max(steps // 2, 1), up, end - step * (last - index))

    return linspace


def fftfreq(of_numbers: Callable) -> Callable:
    """`torch.fft.fftfreq` of any number of samples."""

    def fftfreq(n: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
        if not numbers_of_sizes.is_used_for(n):
            return of_numbers(n, d, **options)
        index = torch.arange(n)
        return frequencies(torch.where(index < (n + 1) // 2, index, index - n), n, d, **options)

    return fftfreq


def rfftfreq(of_numbers: Callable) -> Callable:
    """`torch.fft.rfftfreq` of any number of samples."""

    def rfftfreq(n: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
        if not numbers_of_sizes.is_used_for(n):
            return of_numbers(n, d, **options)
        return frequencies(torch.arange(n // 2 + 1), n, d, **options)

    return rfftfreq


def frequencies(
    index: torch.Tensor,
    n: torch.SymInt,
    d: float,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """The frequencies at these positions, for *n* samples at a distance *d*."""
    dtype = dtype or torch.get_default_dtype()
    scale = 1 / (torch.full((), n, dtype=torch.float64) * d)
    return (index.to(dtype) * scale.to(dtype)).to(device).requires_grad_(requires_grad)


def istft(of_numbers: Callable) -> Callable:
    """`torch.istft` to any length: all that the frames give, cut afterwards."""

    def istft(input: torch.Tensor, n_fft: int, *args: Any, **options: Any) -> torch.Tensor:
        names = "hop_length", "win_length", "window", "center", "normalized", "onesided", "length"
        given = dict(zip(names, args)) | options
        length = given.get("length")
        if not numbers_of_sizes.is_used_for(length):
            return of_numbers(input, n_fft, *args, **options)
        start = n_fft // 2 if given.get("center", True) else 0
        signal = of_numbers(input, n_fft, **given | {"center": False, "length": None})
        return torch.nn.functional.pad(signal, (0, length)).narrow(-1, start, length)

    return istft


def max_pool1d(of_numbers: Callable) -> Callable:
    """`torch.max_pool1d` of any length: what its twin with indices gives beside them."""

    def max_pool1d(input: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if not numbers_of_sizes.is_used_for(input.shape[-1]):
            return of_numbers(input, *args, **options)
        return torch.max_pool1d_with_indices(input, *args, **options)[0]

    return max_pool1d


def one_hot(of_numbers: Callable) -> Callable:
    """`torch.nn.functional.one_hot` of any number of classes, also of as many as the data have."""

    def one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
        if isinstance(num_classes, FakeTensor):
            num_classes = num_classes.item()
        if (
            not numbers_of_sizes.is_used_for(num_classes)
            and num_classes == -1
            and isinstance(tensor, FakeTensor)
        ):
            num_classes = tensor.max().item() + 1
        if not numbers_of_sizes.is_used_for(num_classes):
            return of_numbers(tensor, num_classes)
        return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).long()

    return one_hot


def kron(of_numbers: Callable) -> Callable:
    """`torch.kron` of tensors of any sizes: every element of the one times the other one."""

    def kron(input: torch.Tensor, other: torch.Tensor, **options: Any) -> torch.Tensor:
        if options or not numbers_of_sizes.is_used_for(*input.shape, *other.shape):
            return of_numbers(input, other, **options)
        rank = max(input.dim(), other.dim())
        left, right = ((1,) * (rank - x.dim()) + tuple(x.shape) for x in (input, other))
        outer = input.reshape([part for size in left for part in (size, 1)])
        inner = other.reshape([part for size in right for part in (1, size)])
        return (outer * inner).reshape([a * b for a, b in zip(left, right)])

    return kron


def attention(of_numbers: Callable) -> Callable:
    """`scaled_dot_product_attention` with a scale that is computed from sizes, or of as many tokens as the data say."""

    def scaled_dot_product_attention(query: torch.Tensor, *args: Any, scale: Any = None, **options: Any):
        if numbers_of_sizes.is_used_for(scale):
            query, scale = query * scale, 1.0
        tensors = [item for item in (query, *args, *options.values()) if isinstance(item, torch.Tensor)]
        if torch.compiler.is_dynamo_compiling() or not any([has_unknown_size(item) for item in tensors]):
            return of_numbers(query, *args, scale=scale, **options)
        numbers_of_sizes.used()
        with sdpa_kernel(SDPBackend.MATH):  # the other ones ask whether there are tokens
            return of_numbers(query, *args, scale=scale, **options)

    return functools.wraps(of_numbers)(scaled_dot_product_attention)


def has_unknown_size(tensor: torch.Tensor) -> bool:
    """Whether the data decide a size of a tensor."""
    return any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in tensor.shape)


def infer_size(of_numbers: Callable) -> Callable:
    """`torch._C._infer_size` of shapes with symbols."""

    def _infer_size(left: torch.Size, right: torch.Size) -> torch.Size:
        if not numbers_of_sizes.is_used_for(*left, *right):
            return of_numbers(left, right)
        return torch.broadcast_shapes(left, right)

    return _infer_size


def pool(of_numbers: Callable, axes: int, reduce: Callable) -> Callable:
    """A pool with a window that is a size: it reduces the axes that are all in one window, and pools the others."""
    names = POOLS[reduce]

    def called(input: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        given = dict(zip(names, args)) | options
        windows = windows_of(given, [name for name in names if name in ELEMENT], axes)
        whole = [axis for axis, window in enumerate(windows) if is_whole(window, input.shape[axis - axes])]
        is_more = given.get("return_indices") or given.get("divisor_override") is not None
        sizes = [windows[axis]["kernel_size"] for axis in whole]
        if is_more or not numbers_of_sizes.is_used_for(*sizes):
            return of_numbers(input, *args, **options)
        others = [axis for axis in range(axes) if axis not in whole and not is_one_element(windows[axis])]
        groups, reduced = [whole, others], reduce
        if reduce is torch.amax and may_have_gradient(
            input
        ):  # it goes to the first of the greatest elements, not to all
            groups, reduced = [[axis] for axis in reversed(sorted(whole + others))], first_maximum
        for group in filter(None, groups):
            if group[0] in whole:
                input = reduced(input, [axis - axes for axis in group], keepdim=True)
                continue
            numbers = {
                name: [
                    window[name] if axis in group else ELEMENT[name] for axis, window in enumerate(windows)
                ]
                for name in windows[0]
            }
            input = of_numbers(input, **given | numbers)
        return input

    return functools.wraps(of_numbers)(called)


POOLS = {
    torch.mean: ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    torch.amax: ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
}
"""The arguments of the pools after their input, by what they do with a window."""

ELEMENT = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
"""What windows of one element are, which change nothing."""


def windows_of(given: Mapping[str, Any], names: Sequence[str], axes: int) -> list[dict[str, Any]]:
    """The numbers of the windows of a pool for each axis, none where it has too many or too few."""
    numbers = {name: given.get(name, ELEMENT[name]) for name in names}
    if given.get("stride") in (None, [], ()):
        numbers["stride"] = given.get("kernel_size")
    columns = [value if isinstance(value, (tuple, list)) else (value,) for value in numbers.values()]
    columns = [tuple(column) * axes if len(column) == 1 else tuple(column) for column in columns]
    if any(len(column) != axes for column in columns):
        return []
    return [dict(zip(names, row)) for row in zip(*columns)]


def is_whole(window: Mapping[str, Any], size: Any) -> bool:
    """Whether a window is all of an axis, and nothing beside it."""
    return all(
        is_same_number(number, size if name == "kernel_size" else ELEMENT[name])
        for name, number in window.items()
        if name != "stride"
    )


def is_one_element(window: Mapping[str, Any]) -> bool:
    """Whether windows change nothing, whatever would stand between their elements."""
    return all(is_same_number(number, ELEMENT[name]) for name, number in window.items() if name != "dilation")


def may_have_gradient(tensor: torch.Tensor) -> bool:
    """Whether a gradient that `tracing` records may pass: torch.export records none."""
    mode = get_proxy_mode()
    return tensor.requires_grad and mode is not None and not mode.pre_dispatch


def first_maximum(input: torch.Tensor, dim: Sequence[int], keepdim: bool) -> torch.Tensor:
    """The greatest elements of one axis, whose gradient goes to the first of those that are equal."""
    return input.max(dim[0], keepdim=keepdim).values


def adaptive_avg_pool1d(of_numbers: Callable) -> Callable:
    """`F.adaptive_avg_pool1d` to a size: that of images of one row, which takes sizes."""

    def adaptive_avg_pool1d(input: torch.Tensor, output_size: Any) -> torch.Tensor:
        sizes = output_size if isinstance(output_size, (tuple, list)) else [output_size]
        if len(sizes) != 1 or not numbers_of_sizes.is_used_for(sizes[0]):
            return of_numbers(input, output_size)
        return torch.nn.functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, sizes[0])).squeeze(-2)

    return functools.wraps(of_numbers)(adaptive_avg_pool1d)


def diag(of_numbers: Callable) -> Callable:
    """`torch.diag` at a distance that is a size."""

    def diag(input: torch.Tensor, diagonal: Any = 0, **options: Any) -> torch.Tensor:
        if options or not numbers_of_sizes.is_used_for(diagonal):
            return of_numbers(input, diagonal, **options)
        return (
            torch.diag_embed(input, diagonal) if input.dim() == 1 else torch.diagonal(input, diagonal).clone()
        )

    return functools.wraps(of_numbers)(diag)


def diagonal(of_numbers: Callable) -> Callable:
    """`torch.diagonal` at a distance that is a size: the diagonal of what is right of so many columns, or below so many rows."""

    def diagonal(
        input: torch.Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1, **options: Any
    ) -> torch.Tensor:
        if options or not numbers_of_sizes.is_used_for(offset):
            return of_numbers(input, offset, dim1, dim2, **options)
        for axis, skipped in ((dim1, torch.sym_max(-offset, 0)), (dim2, torch.sym_max(offset, 0))):
            input = torch.ops.aten.slice.Tensor(input, axis, skipped)
        return of_numbers(input, 0, dim1, dim2)

    return functools.wraps(of_numbers)(diagonal)


def diag_embed(of_numbers: Callable) -> Callable:
    """`torch.diag_embed` at a distance that is a size: in the middle, then columns go round."""

    def diag_embed(input: torch.Tensor, offset: Any = 0, dim1: int = -2, dim2: int = -1) -> torch.Tensor:
        if not numbers_of_sizes.is_used_for(offset):
            return of_numbers(input, offset, dim1, dim2)
        right, below = torch.sym_max(offset, 0), torch.sym_max(-offset, 0)
        middle = of_numbers(torch.nn.functional.pad(input, (below, right)), 0, dim1, dim2)
        return middle.roll(offset, dim2)

    return functools.wraps(of_numbers)(diag_embed)


def split(of_numbers: Callable, axis: int, least: int) -> Callable:
    """`torch.hsplit`, `torch.vsplit`, `torch.dsplit` at places that are sizes."""

    @functools.wraps(of_numbers)
    def called(input: torch.Tensor, *args: Any, **options: Any) -> Any:
        places = args[0] if args and isinstance(args[0], (tuple, list)) else ()
        if input.dim() < least or not numbers_of_sizes.is_used_for(*places):
            return of_numbers(input, *args, **options)
        return torch.tensor_split(input, places, min(axis, input.dim() - 1))

    return called


def unfold(of_numbers: Callable) -> Callable:
    """`torch.Tensor.unfold` into windows, or at steps, that are sizes.

    Windows that do not overlap are the axis, without its rest, split in two. Others are seen in the memory of a contiguous tensor.
    """

    @functools.wraps(of_numbers)
    def called(self: torch.Tensor, dimension: int, size: Any, step: Any) -> torch.Tensor:
        if self.dim() == 0 or not numbers_of_sizes.is_used_for(size, step):
            return of_numbers(self, dimension, size, step)
        axis = dimension % self.dim()
        length, distance = self.shape[axis], self.stride(axis)
        if is_same_number(size, step):
            count = length // size
            return self.narrow(axis, 0, count * size).unflatten(axis, (count, size)).movedim(axis + 1, -1)
        if self.is_complex() or not is_same_number(self.storage_offset(), 0) or not self.is_contiguous():
            return of_numbers(self, dimension, size, step)
        torch._check(size <= length, lambda: f"windows of {size} elements in {length}")
        sizes, strides = list(self.shape), list(self.stride())
        sizes[axis], strides[axis] = (length - size) // step + 1, distance * step
        return self.as_strided([*sizes, size], [*strides, distance], self.storage_offset())

    return called


def is_same_number(number: Any, size: Any) -> bool:
    """Whether a number is a size, whatever that is."""
    return expression_of(number) == expression_of(size)


def gradient(of_numbers: Callable) -> Callable:
    """`torch.gradient` of tensors of any size, between elements at constant distances."""

    def gradient(
        input: torch.Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
    ) -> list[torch.Tensor]:
        dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        steps = spacing if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
        is_plain = len(steps) == len(dims) and not any(isinstance(step, torch.Tensor) for step in steps)
        if not (is_plain and edge_order in (1, 2) and numbers_of_sizes.is_used_for(*input.shape)):
            return of_numbers(input, spacing=spacing, dim=dim, edge_order=edge_order)
        return [slope(input, step, axis, edge_order) for axis, step in zip(dims, steps)]

    return gradient


def slope(x: torch.Tensor, step: Any, axis: int, edge_order: int) -> torch.Tensor:
    """The slope along an axis: between both neighbours, at the edges that of the line or the parabola there."""

    def part(start: int, end: int | None) -> torch.Tensor:
        return x[(slice(None),) * (axis % x.dim()) + (slice(start, end),)]

    def edge(*places: int) -> torch.Tensor:
        near, *others = (part(place, place + 1 or None) for place in places[: edge_order + 1])
        return others[0] - near if edge_order == 1 else 2 * others[0] - 1.5 * near - 0.5 * others[1]

    torch._check(
        x.shape[axis] > edge_order, lambda: f"torch.gradient needs {edge_order + 1} elements or more"
    )
    inside = (part(2, None) - part(0, -2)) / step / 2
    return torch.cat([edge(0, 1, 2) / step, inside, -edge(-1, -2, -3) / step], axis)


# ---- functions of one number


def method(name: str, _: None) -> Callable:
    """The method that ``numpy.sqrt`` and others look for."""
    return lambda self: getattr(math, name)(self)


def sqrt(of_numbers: Callable) -> Callable:
    """`math.sqrt` of a symbol."""

    def sqrt(x: Any, /) -> Any:
        return torch._sym_sqrt(x) if numbers_of_sizes.is_used_for(x) else of_numbers(x)

    return sqrt


def of_double(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    """A function of `math`, also of a symbol, for which torch.export knows none: that of a tensor in float64."""

    def wrap(of_numbers: Callable) -> Callable:
        def called(x: Any, /) -> Any:
            return function(double(x)).item() if numbers_of_sizes.is_used_for(x) else of_numbers(x)

        return functools.wraps(of_numbers)(called)

    return wrap


def double(number: Any) -> torch.Tensor:
    """A number, also a symbol, as a tensor."""
    return torch.full((), number, dtype=torch.float64)


def log(of_numbers: Callable) -> Callable:
    """`math.log`, also in another base: a quotient, as Python computes it."""

    def log(x: Any, /, *base: Any) -> Any:
        if not numbers_of_sizes.is_used_for(x, *base):
            return of_numbers(x, *base)
        found = [torch.log(double(number)) for number in (x, *base)]
        return (found[0] / found[1] if base else found[0]).item()

    return log


def log_of_powers(base: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The logarithm in a base, exact for the powers of it, which ``math.ceil`` of it may ask for."""

    def function(x: torch.Tensor) -> torch.Tensor:
        found = torch.log(x) / math.log(base)
        whole = torch.round(found)
        return torch.where(torch.pow(float(base), whole) == x, whole, found)

    return function


FLOATS = {
    **{name: of_double(getattr(torch, function)) for name, function in TORCH_NAMES.items()},
    "log": log,
    "log10": of_double(log_of_powers(10)),
    "log2": of_double(log_of_powers(2)),
    "sqrt": sqrt,
}
"""What takes the place of the functions of `math`."""
