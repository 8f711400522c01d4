"""``x[i]`` and ``x[i] = y`` where *i* is a size, a list with one, or a tensor of one number.

Source of semantics: torch/csrc/autograd/python_variable_indexing.cpp.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C._functorch import is_batchedtensor
from torch.fx.node import map_aggregate

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped
from experimental_experiment.torch_interpreter.torch_versions import (
    follows_tensors_that_select,
    given_translator,
)

MASKS = (torch.bool, torch.uint8)
"""The dtypes whose tensors select as masks do, those of one number too."""

HANDLER = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override"
"""What torch.export, and `tracing`, ask what to call in the place of a function. A method of torch.Tensor in Python would make tensors
sequences, which torch.tensor takes apart."""

READ = "torch._dynamo.variables.builtin.BuiltinVariable.call_function"
WRITE = "torch._dynamo.variables.tensor.TensorVariable.method___setitem__"
"""What TorchDynamo calls for an index: the bodies of torch.cond and of loops are traced by it, and all of a model in strict mode."""


@patch("torch", replaces=(HANDLER, READ, WRITE), default=True)
def indices_of_one_axis() -> Iterator[None]:
    """``x[rows, x.shape[1] - 1]`` and ``cache[:, n] = y`` hold the example's index; where it is a 0-d tensor, torch.export refuses them.

    A list of positions with a size in it, ``x[:, [0, n - 1]]``, holds the example's, too; it becomes a tensor, not under TorchDynamo.

    A number is a view, as it is alone: ``x[:, n]``, of which the others are taken, or which is written. What ``torch.vmap`` maps
    are many positions, no number.
    """
    importlib.import_module("torch._export.non_strict_utils")  # it brings TorchDynamo
    with wrapped({HANDLER: with_views, READ: traced_reads, WRITE: traced_writes}):
        yield


def with_views(override: Callable) -> Callable:
    """The handler that reads and writes a view of the axes that symbols select."""

    @functools.wraps(override)
    def _override(self: Any, func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
        name = getattr(func, "__name__", "")
        if name not in ("__getitem__", "__setitem__") or not isinstance(args[0], torch.Tensor):
            return override(self, func, args, kwargs)
        tensor, index, *values = args
        items = index if isinstance(index, tuple) else (index,)
        if any(map(is_list_with_sizes, items)):
            indices_of_one_axis.used()
            index = items = tuple(
                called(*override(self, torch.tensor, (item,), {})) if is_list_with_sizes(item) else item
                for item in items
            )
        if any(map(is_small_mask, items)):
            indices_of_one_axis.used()
            index = items = tuple(item.bool() if is_small_mask(item) else item for item in items)
        if len(items) == 1 and is_mask_of_all(items[0]):
            indices_of_one_axis.used()  # a new axis, of one element or of none
            return override(self, func, (tensor[None], items[0].reshape(1), *values), kwargs)
        is_followed = follows_tensors_that_select() and not is_mapped(tensor)
        is_followed = is_followed or not any(map(has_number_in_tensor, items))
        is_known = not has_symbol(index) or (is_followed and not (values or any(map(is_advanced, items))))
        if is_known and not any(is_mapped(item) and not item.dim() for item in items):
            return override(self, func, (tensor, index, *values), kwargs)  # it follows what is read alone
        indices_of_one_axis.used()
        return write if values else read, (tensor, index, *values), {}

    return _override


def called(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a function gives that the handler puts in the place of another one."""
    return function(*args, **kwargs)


def is_list_with_sizes(item: Any) -> bool:
    """Whether positions are listed, ``[0, n - 1]``, and one of them is a symbol: a tensor of them is asked for no number."""
    is_list = isinstance(item, list) and all(isinstance(position, (int, torch.SymInt)) for position in item)
    return is_list and any(isinstance(position, torch.SymInt) for position in item)


def traced_reads(call_function: Callable) -> Callable:
    """How TorchDynamo calls operators, `read` for ``operator.getitem`` where a symbol selects."""

    @functools.wraps(call_function)
    def traced(self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.fn is operator.getitem and is_tensor(args[0]) and has_symbol(example(args[1])):
            if not is_followed():
                return inlined(tx, read, args)
        return call_function(self, tx, args, kwargs)

    return traced


def traced_writes(method: Callable) -> Callable:
    """How TorchDynamo writes into a tensor, `write` where a symbol selects."""

    @functools.wraps(method)
    def traced(self: Any, *args: Any) -> Any:
        *translator, key, value = args
        if is_tensor(self) and has_symbol(example(key)):
            return inlined(given_translator(translator), write, (self, key, value))
        return method(self, *args)

    return traced


def is_followed() -> bool:
    """Whether torch itself reads with tensors of one number, as it does in the functions of flex_attention."""
    modes = torch.overrides._get_current_function_mode_stack()
    return any(type(mode).__name__ == "TransformGetItemToIndex" for mode in modes)


def inlined(tx: Any, function: Callable, args: Sequence[Any]) -> Any:
    """The variable that TorchDynamo makes of a call of *function* when it traces that."""
    indices_of_one_axis.used()
    return tx.inline_user_function_return(type(args[0].realize()).build(tx, function), list(args), {})


def is_tensor(variable: Any) -> bool:
    """Whether a variable of TorchDynamo is a tensor, rather than an array of numpy, which it makes one too."""
    tensors = importlib.import_module("torch._dynamo.variables.tensor").TensorVariable
    variable = variable.realize()
    return isinstance(variable, tensors) and issubclass(variable.python_type(), torch.Tensor)


def example(variable: Any) -> Any:
    """A variable of TorchDynamo with the fake tensors and the symbols that its proxies stand for."""
    return map_aggregate(
        variable.as_proxy(),
        lambda part: part.node.meta["example_value"] if isinstance(part, torch.fx.Proxy) else part,
    )


def read(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """``tensor[index]``; TorchDynamo traces it, and `write`."""
    view, others = taken(tensor, index, element)
    return view[others] if others else view


def write(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """``tensor[index] = value``"""
    view, others = taken(tensor, index, selected)
    view[others or ...] = value


def selected(tensor: torch.Tensor, axis: int, position: Any) -> torch.Tensor:
    """The elements of an axis at a position, a view."""
    return tensor.select(axis, known(position))


def element(tensor: torch.Tensor, axis: int, position: Any) -> torch.Tensor:
    """The elements of an axis at a position: torch knows no number for the views of what ``torch.vmap`` maps."""
    if is_mapped(tensor) and isinstance(position, torch.Tensor):
        return torch.ops.aten.index.Tensor(tensor, [*[None] * axis, position])
    return selected(tensor, axis, position)


def taken(
    tensor: torch.Tensor, index: Any, select: Callable[[torch.Tensor, int, Any], torch.Tensor]
) -> tuple[torch.Tensor, tuple]:
    """What numbers, by *select*, and slices select, and what the others of *index* select of that.

    Torch applies numbers and slices first, whatever stands between them.
    """
    items = index if isinstance(index, tuple) else (index,)
    axes_of_ellipsis = tensor.dim() - sum([axes_of(item) for item in items])
    axis = 0
    others: list[Any] = []
    for item in items:
        if is_number(item):
            tensor = select(tensor, axis, item)
            continue
        if isinstance(item, slice):
            start, stop, step = known(item.start), known(item.stop), known(item.step)
            tensor = torch.ops.aten.slice(tensor, axis, start, stop, 1 if step is None else step)
            item = slice(None)
        others.append(item)
        axis += axes_of_ellipsis if item is Ellipsis else axes_of(item)
    return tensor, tuple(others)


def known(number: Any) -> Any:
    """A number that stands for a tensor of it; other numbers and None as they are."""
    return number.item() if isinstance(number, torch.Tensor) else number


def has_symbol(index: Any) -> bool:
    """Whether a size or a tensor of one whole number selects, or a tensor bounds a slice."""
    return any(
        (is_number(item) and not isinstance(item, int)) or (isinstance(item, slice) and has_tensor(item))
        for item in (index if isinstance(index, tuple) else (index,))
    )


def is_number(item: Any) -> bool:
    """Whether a part of an index selects one element of an axis: a number, a size or a tensor of one whole number.

    A tensor that ``torch.vmap`` maps has many, as a tensor of more elements.
    """
    if is_mapped(item):
        return False
    if not isinstance(item, torch.Tensor):
        return isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool)
    return not (item.dim() or item.dtype in MASKS or item.is_floating_point() or item.is_complex())


def is_mapped(item: Any) -> bool:
    """Whether a value is a tensor that ``torch.vmap`` maps."""
    return isinstance(item, torch.Tensor) and is_batchedtensor(item)


def has_number_in_tensor(item: Any) -> bool:
    """Whether a tensor is the position or a bound that a part of an index is."""
    return has_tensor(item) if isinstance(item, slice) else isinstance(item, torch.Tensor) and is_number(item)


def is_small_mask(item: Any) -> bool:
    """Whether a part of an index is a mask of one number, which torch.export takes for a position."""
    return isinstance(item, torch.Tensor) and not item.dim() and item.dtype == torch.uint8


def is_mask_of_all(item: Any) -> bool:
    """Whether an index is a mask of one number, whose truth torch.export would ask the data for."""
    is_mask = isinstance(item, torch.Tensor) and not item.dim() and item.dtype == torch.bool
    return is_mask and getattr(item, "constant", None) is None


def has_tensor(item: slice) -> bool:
    """Whether a bound of a slice is a tensor."""
    return any(isinstance(bound, torch.Tensor) for bound in (item.start, item.stop, item.step))


def is_advanced(item: Any) -> bool:
    """Whether a part of an index is no number, slice, ellipsis or new axis."""
    return not (item is None or item is Ellipsis or isinstance(item, slice) or is_number(item))


def axes_of(item: Any) -> int:
    """How many axes of a tensor a part of an index selects in."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor):
        return item.dim() if item.dtype in MASKS else 1
    depth = 0
    while isinstance(item, (list, tuple)):
        depth, item = depth + 1, item[0] if item else 0
    return depth if isinstance(item, bool) else 1
