"""Flags: branches on, and numbers of, buffers, parameters and constants, whose values the model holds."""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.symbols import SYMBOLS
from experimental_experiment.torch_interpreter.writes import written_nodes

COMPARISONS = ("allclose", "equal")
"""Functions of two tensors whose result is a boolean of Python."""


class Found(NamedTuple):
    """The value of what is computed of weights and constants alone, and these tensors."""

    value: torch.Tensor
    weights: tuple[torch.Tensor, ...] = ()


READINGS = ("item", "tolist", "__int__", "__float__", "__index__")
"""Methods of tensors whose result is a number of Python, for which torch answers where a tensor is an attribute."""

CONVERSIONS = ("__int__", "__float__", "__index__")
"""Those of `READINGS` that functions in C call, of numpy and scipy for example: there is no other number for them than the value."""

ASKED = 100
"""What functions in C ask for more often in one capture is refused: an integral of scipy asks thousands of times, each later than the last."""

SEARCHES = ("argwhere", "nonzero", "where")
"""Functions whose results have as many rows as a tensor has elements that are not 0."""

Numbers = MutableMapping[Any, dict[Any, Found]]
"""What the symbols of ``item()`` stand for, by the environment of the symbols."""

CONSTANTS = ("_tensor_constant", "_param_constant")
"""What torch calls the attributes that a trace meets as they are: tensors, and parameters that a list holds."""

STEPS = 50
"""A condition that more operators compute is not computed."""


@patch(
    "torch",
    replaces=(
        "torch.export._trace._fakify_params_buffers",
        "torch._export.passes.lift_constants_pass._unused_constant",
        "torch.Tensor.__bool__",
        "torch._subclasses.fake_tensor.FakeTensor.tolist",
        "torch._subclasses.fake_tensor.FakeTensor.item",
        "numpy of FakeTensor",
        *(f"torch.{kind.__name__}.__bool__" for kind in SYMBOLS),
        *(f"torch.{name}" for name in COMPARISONS),
        *(f"torch.Tensor.{name}" for name in (*COMPARISONS, *READINGS)),
        *(f"torch.{name}" for name in SEARCHES),
        *(f"torch.Tensor.{name}" for name in SEARCHES),
    ),
    default=True,
)
def flags_of_modules() -> Iterator[None]:
    """``if self.initialized:`` of a buffer is refused as a branch on the data: layers of flows and of vector quantization do so.

    The model holds the buffer, and the ONNX model will: the branch is that of its value, unless the model has written to it before. So are
    the numbers of ``self.sizes.tolist()`` and, in ConvTasNet, of ``torch.arange(1, x.dim()).tolist()``, ``item()`` of such constants, the
    array of ``self.anchors.numpy()``, ``torch.equal`` of two such tensors, the branches of ``self.initialized.item() == 0``, and how many
    positions ``(self.timesteps == t).nonzero()`` has, as the schedulers of diffusers ask.
    """
    known = WeakTensorKeyDictionary()
    numbers: Numbers = weakref.WeakKeyDictionary()
    # it brings TorchDynamo, which imports of this package do not need
    trace = importlib.import_module("torch.export._trace")
    with contextlib.ExitStack() as stack:
        fakify = remembers(trace._fakify_params_buffers, known)
        stack.enter_context(replaced(trace, "_fakify_params_buffers", fakify))
        lifting = importlib.import_module("torch._export.passes.lift_constants_pass")
        stack.enter_context(replaced(lifting, "_unused_constant", or_unread(lifting._unused_constant)))
        stack.enter_context(replaced(torch.Tensor, "__bool__", of_weights(torch.Tensor.__bool__, known)))
        stack.enter_context(replaced(FakeTensor, "tolist", list_of_weights(FakeTensor.tolist, known)))
        stack.enter_context(replaced(FakeTensor, "item", number_of_weights(known, numbers)))
        for name in READINGS:
            stack.enter_context(replaced(torch.Tensor, name, heard(getattr(torch.Tensor, name), known)))
        for kind in SYMBOLS:
            stack.enter_context(replaced(kind, "__bool__", of_numbers(kind.__bool__, numbers)))
        stack.enter_context(replaced(FakeTensor, "numpy", array_of_weights(FakeTensor.numpy, known)))
        searching = functools.partial(search_of_weights, known=known)
        for name in SEARCHES:
            stack.enter_context(replaced(torch, name, searching(getattr(torch, name))))
            stack.enter_context(replaced(torch.Tensor, name, searching(getattr(torch.Tensor, name))))
        for owner in (torch, torch.Tensor):
            for name in COMPARISONS:
                compared = comparison_of_weights(getattr(owner, name), known)
                stack.enter_context(replaced(owner, name, compared))
        yield


def remembers(fakify: Callable, known: Any) -> Callable:
    """torch.export's first step, that makes parameters and buffers fake: what they stand for is remembered."""

    def _fakify_params_buffers(mode: Any, mod: torch.nn.Module) -> Any:
        fakes = fakify(mode, mod)
        for tensors in (mod.named_parameters, mod.named_buffers):
            for name, tensor in tensors(remove_duplicate=False):
                if tensor.device.type != "meta" and type(tensor) in (torch.Tensor, torch.nn.Parameter):
                    known[fakes[name]] = tensor
        return fakes

    return _fakify_params_buffers


def or_unread(unused: Callable) -> Callable:
    """*unused*, the nodes to remove with a constant that nothing uses, also where none is left: torch asks for the first reader.

    What read ``f"step {self.step}"`` of an attribute has gone by then, the constant stays.
    """

    @functools.wraps(unused)
    def _unused_constant(node: torch.fx.Node) -> list[torch.fx.Node] | None:
        return unused(node) if node.users else [node]

    return _unused_constant


def of_weights(bool_: Callable, known: Any) -> Callable:
    """``Tensor.__bool__`` that answers for what is computed of parameters and buffers alone."""

    def __bool__(self: torch.Tensor) -> bool:
        if is_real(self):
            return answer(Found(self, (self,)), bool_)
        found = value_of(self, known)
        return bool_(self) if found is None else answer(found, bool)

    return __bool__


def list_of_weights(tolist: Callable, known: Any) -> Callable:
    """``FakeTensor.tolist`` that gives the numbers of what is computed of parameters, buffers and constants alone."""

    def called(self: FakeTensor) -> Any:
        found = value_of(self, known)
        return tolist(self) if found is None else answer(found, torch.Tensor.tolist)

    return called


def array_of_weights(numpy: Callable, known: Any) -> Callable:
    """``FakeTensor.numpy`` that gives the array of what is computed of parameters, buffers and constants alone."""

    def called(self: FakeTensor, *, force: bool = False) -> Any:
        found = value_of(self, known)
        return (
            numpy(self, force=force) if found is None else answer(found, lambda x: x.detach().clone().numpy())
        )

    return called


def comparison_of_weights(compare: Callable, known: Any) -> Callable:
    """One of `COMPARISONS` that answers for two tensors which are computed of parameters, buffers and constants alone."""

    @functools.wraps(compare)
    def called(input: torch.Tensor, other: torch.Tensor, *args: Any, **options: Any) -> bool:
        found = [value_of(x, known) if isinstance(x, FakeTensor) else Found(x) for x in (input, other)]
        if not any(isinstance(x, FakeTensor) for x in (input, other)) or any(x is None for x in found):
            return compare(input, other, *args, **options)
        other = answer(found[1], torch.Tensor.detach)
        return answer(found[0], lambda x: compare(x, other, *args, **options))

    return called


def search_of_weights(search: Callable, known: Any) -> Callable:
    """One of `SEARCHES` whose results have as many rows as are found in what parameters, buffers and constants compute."""

    @functools.wraps(search)
    def called(*args: Any, **options: Any) -> Any:
        results = search(*args, **options)
        rows = results if isinstance(results, (tuple, list)) else (results,)
        if len(args) != 1 or not any(isinstance(row, FakeTensor) and row.dim() for row in rows):
            return results
        found = value_of(args[0], known)
        if found is None or not any(isinstance(row.shape[0], torch.SymInt) for row in rows):
            return results
        count = int(answer(found, torch.count_nonzero))
        # a check of the size would leave the symbol, which len() asks for
        counted = [row.reshape(count, *row.shape[1:]) for row in rows]
        return counted[0] if rows[0] is results else tuple(counted)

    return called


def number_of_weights(known: Any, numbers: Numbers) -> Callable:
    """``FakeTensor.item`` that gives the number of what is computed of constants alone; one of a weight stays its weight's.

    What that is now is noted in *numbers*, for the branches that ask for it.
    """

    def item(self: FakeTensor) -> Any:
        found = value_of(self, {})
        if found is not None:
            return answer(found, torch.Tensor.item)
        number = torch.Tensor.item(self)
        found = value_of(self, known) if isinstance(number, SYMBOLS) else None
        if found is not None:
            symbols = number.node.expr.free_symbols
            numbers.setdefault(number.node.shape_env, {}).update(dict.fromkeys(symbols, found))
        return number

    return item


def heard(reading: Callable, known: Any) -> Callable:
    """One of `READINGS`: an attribute that is no buffer, or a parameter in a list, is the tensor itself in a capture.

    torch gives its number, but for what ``to`` gave back as it was: the trace has seen that, and refuses it as a result. Those of `CONVERSIONS`
    give that of what is computed of weights and constants alone, too, `ASKED` times.
    """
    times: MutableMapping[Any, int] = weakref.WeakKeyDictionary()

    @functools.wraps(reading)
    def called(self: torch.Tensor) -> Any:
        if is_real(self):
            return answer(Found(self, (self,)), reading)
        environment = self.fake_mode.shape_env if isinstance(self, FakeTensor) else None
        if reading.__name__ not in CONVERSIONS or environment is None:
            return reading(self)
        times[environment] = times.get(environment, 0) + 1
        found = value_of(self, known) if times[environment] <= ASKED else None
        return reading(self) if found is None else answer(found, reading)

    return called


def is_real(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers: it is neither of the capture, nor of a transformation like vmap around one."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type != "meta"
    return plain and not is_functorch_wrapped_tensor(tensor)


def of_numbers(bool_: Callable, numbers: Numbers) -> Callable:
    """``__bool__`` of a symbol that answers for what is made of these numbers alone."""

    def __bool__(self: torch.SymBool | torch.SymInt | torch.SymFloat) -> bool:
        environment = getattr(self.node, "shape_env", None)  # a nested tensor's sizes have none
        now = numbers.get(environment) if environment is not None else None
        symbols = self.node.expr.free_symbols if now else set()
        if not symbols or not symbols <= now.keys():
            return bool_(self)
        flags_of_modules.used()
        return bool(self.node.expr.subs({symbol: answer(now[symbol], number_of) for symbol in symbols}))

    return __bool__


def number_of(value: torch.Tensor) -> int | float:
    """What a symbol of ``item()`` stands for: it is 0 or 1 for a boolean."""
    return (value.int() if value.dtype is torch.bool else value).item()


def answer(found: Found, read: Callable[[torch.Tensor], Any]) -> Any:
    """What *read* gives of a value for a branch, or a number of the model; `values_that_decide` hears of the weights."""
    tell(found.weights)
    with _disable_current_modes(), torch.no_grad():  # torch would record a constant that is the weight itself
        return read(found.value)


def tell(weights: tuple[torch.Tensor, ...]) -> None:
    """Tell those who listen that the values of these weights are read."""
    for hear in LISTENERS:
        hear(weights)


LISTENERS: list[Callable[[tuple[torch.Tensor, ...]], None]] = []
"""What is told of the weights of each answer."""


def value_of(tensor: torch.Tensor, known: Mapping[FakeTensor, torch.Tensor]) -> Found | None:
    """The value of a tensor that the operators recorded so far compute of these weights and of constants, None of any other."""
    mode = get_proxy_mode() if isinstance(tensor, FakeTensor) and tensor.constant is None else None
    recorded = mode and get_proxy_slot(tensor, mode.tracer, None)
    if recorded is None:
        return None
    slots = [(get_proxy_slot(fake, mode.tracer, None), real) for fake, real in known.items()]
    weights = {origin(slot.proxy.node): real for slot, real in slots if slot is not None}
    steps = steps_to(recorded.proxy.node, weights, mode.tracer.root)
    writes = None if steps is None else writes_of_constants(steps, weights, mode.tracer.root)
    if steps is None or writes is None:
        return None
    flags_of_modules.used()
    constants = {node: getattr(mode.tracer.root, node.target) for node in steps if node.op == "get_attr"}
    read = {recorded.proxy.node, *(node for step in steps for node in step.all_input_nodes)}
    held = tuple(x for node, x in (weights | constants).items() if node in read)
    with _disable_current_modes(), torch.no_grad():
        for node in steps:
            if node.op == "get_attr":
                weights[node] = constants[node].clone()
            elif node in writes:
                weights[node] = weights[node.args[0]]
            else:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), weights.__getitem__)
                weights[node] = node.target(*args, **kwargs)
    return Found(weights[recorded.proxy.node], held)


def origin(node: torch.fx.Node) -> torch.fx.Node:
    """The weight itself, where its tensor went through operators that gave it back as it was: ``weight.cpu()``."""
    while node.op == "call_function":
        has_schema = getattr(node.target, "_schema", None) is not None
        if not has_schema or written_nodes(node) or not isinstance(node.args[0], torch.fx.Node):
            break
        node = node.args[0]
    return node


def steps_to(
    result: torch.fx.Node, weights: Mapping[torch.fx.Node, torch.Tensor], root: torch.nn.Module
) -> list[torch.fx.Node] | None:
    """The nodes that compute a node of weights and constants alone, in their order; None when something else takes part.

    Writes into constants are among them; a weight that the model has written to is something else. *root* has the bodies of regions.
    """
    found: set[torch.fx.Node] = set()
    open_nodes = [result]
    while open_nodes:
        node = open_nodes.pop()
        if node in found:
            continue
        if node in weights and node.op != "call_function":  # that would have written to the weight
            if any(writers(node, root)):
                return None
            continue
        if not is_certain(node) or len(found) > STEPS:
            return None
        found.add(node)
        open_nodes += [*node.all_input_nodes, *writers(node, root)]
    return sorted(found)


def writes_of_constants(
    steps: list[torch.fx.Node], weights: Mapping[torch.fx.Node, torch.Tensor], root: torch.nn.Module
) -> set[torch.fx.Node] | None:
    """Those of the steps that write into constants themselves, which hold what was written by now.

    While it traces, torch writes into a tensor that is an attribute as eager does: ``self.step += 1``. What is made in ``forward`` is copied
    first. None where a value was read before such a write, or what is written is no constant.
    """
    constants = (node for node in steps if node.op == "get_attr")
    written = [n for node in constants for n in node.graph.find_nodes(op="get_attr", target=node.target)]
    writes: set[torch.fx.Node] = set()
    while written:  # what a write gives may be written again
        found = set(writers(written.pop(), root)) - writes
        writes |= found
        written += found
    for node in steps if writes else ():
        if node in writes:
            is_known = written_nodes(node) == [*node.args[:1]] and weights.keys().isdisjoint(
                node.all_input_nodes
            )
        else:
            is_known = node.op == "get_attr" or is_view(node) or node > max(writes)
        if not is_known:
            return None
    return writes if writes <= set(steps) else None


def is_certain(node: torch.fx.Node) -> bool:
    """Whether a node is a constant, or an operator that gives the same for the same inputs."""
    target = node.target
    if node.op == "get_attr":
        return target.startswith(CONSTANTS)
    if node.op != "call_function":
        return False
    return target is operator.getitem or (  # one of the results of unbind, or split
        isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded not in target.tags
    )


def is_view(node: torch.fx.Node) -> bool:
    """Whether a node gives what shares memory with its argument, or one of several such results."""
    schema = getattr(node.target, "_schema", None)
    return node.target is operator.getitem or (
        schema is not None and any(result.alias_info for result in schema.returns)
    )


def writers(node: torch.fx.Node, root: torch.nn.Module) -> Iterator[torch.fx.Node]:
    """The operators and the regions that write to a node, or to a view of it; *root* has the bodies of regions."""
    for user in node.users:
        if node in written_nodes(user, root):
            yield user
        elif is_view(user):
            yield from writers(user, root)
