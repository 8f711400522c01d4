"""The emitter: ``op.Add(x, 1)`` writes a node and returns its value, typed, folded when constant.

Source of semantics: the schemas of ``onnx.defs`` say which dtype a Python number takes beside a tensor.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter import dtypes, sizes
from experimental_experiment.torch_interpreter.dimensions import Dimensions
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import fold, infer, is_shared, schema_of
from experimental_experiment.torch_interpreter.marks import MODULES
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime import kernels, table
from experimental_experiment.torch_interpreter.simplify import SIMPLIFICATIONS
from experimental_experiment.torch_interpreter.sizes import rank as rank

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


class Names:
    """Unique names over one model, the same for the same program."""

    def __init__(self):
        self.count: dict[str, int] = {}

    def reserve(self, name: str) -> str:
        """Keep *name* for its owner; ValueError when it is taken."""
        if name in self.count:
            raise ValueError(f"the name {name!r} is used twice")
        self.count[name] = 0
        return name

    def unique(self, name: str) -> str:
        """*name*, or *name* with the first free number behind it."""
        if name not in self.count:
            self.count[name] = 0
            return name
        while True:
            self.count[name] += 1
            candidate = f"{name}_{self.count[name]}"
            if candidate not in self.count:
                self.count[candidate] = 0
                return candidate


@dataclasses.dataclass(frozen=True)
class Origin:
    """What the nodes written now come from.

    Attributes:
        node: the FX node translated now, None outside of a walk.
        prefix: what their names begin with.
        provenance: their ``metadata_props``.
        modules: the calls of modules that they come from, see `functions`.
    """

    node: torch.fx.Node | None = None
    prefix: str = "c"
    provenance: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modules: tuple[tuple[str, str, str], ...] = ()


@dataclasses.dataclass
class Context:
    """What all emitters of one export share: the model, and what is translated now.

    All but ``origin`` and ``region`` belongs to the model. These two are changed by `at` and `inside`, which restore them.

    Attributes:
        root: the main graph; small constants are its initializers, seen from every subgraph.
        opset: version of ai.onnx.
        domains: the other operator sets in use, name to version.
        names: the names that are taken.
        constants: the small constants, by what they hold.
        shared: the same constants, which every graph of the model may read.
        written: what the optimizer writes once for all nodes that read it, by operator and inputs.
        origin: what the nodes written now come from.
        region: the autocast region translated now, which adapts the translation of each node; None outside.
        functions: local functions of the model, callees first.
        regions: the local function of each region that is translated once, see `control_flow.invoke_subgraph`.
        translations: those of this export alone, see `registry.per_call_table`.
        warned: what was logged once already.
        dimensions: names of the symbolic sizes.
        keeps_modules: whether the calls of modules become functions, each of which reads its sizes itself.
        runtime: what the model is written for, see `runtime.table`.
        special_values: whether NaN, the sign of zero and the like are exact too.
        rows: the rows of the runtime table that this target needs, by operator.
        applying: the rows that are writing now.
        applied: how often each row was applied.
        repaired: how often one that the runtime needs was, whatever the operator set.
        cast_from: values of a dtype without kernels, each with the value that it was cast from, see `runtime.kernels`.
        computing: of some of them, the nodes that read the wider value before it was cast, the Cast too.
        seen_rounded: those of them that an operator has seen as they were rounded, as a comparison does.
    """

    root: ir.Graph
    opset: int
    domains: dict[str, int] = dataclasses.field(default_factory=dict)
    names: Names = dataclasses.field(default_factory=Names)
    constants: dict[tuple, ir.Value] = dataclasses.field(default_factory=dict)
    shared: set[ir.Value] = dataclasses.field(default_factory=set)
    written: dict[tuple, ir.Value] = dataclasses.field(default_factory=dict)
    origin: Origin = Origin()
    region: Any = None
    functions: list[ir.Function] = dataclasses.field(default_factory=list)
    regions: dict[Any, Any] = dataclasses.field(default_factory=dict)
    translations: dict[Any, Any] = dataclasses.field(default_factory=dict)
    warned: set[str] = dataclasses.field(default_factory=set)
    dimensions: Dimensions = dataclasses.field(default_factory=Dimensions)
    keeps_modules: bool = False
    runtime: str = "onnxruntime"
    special_values: bool = False
    applying: list[table.Row] = dataclasses.field(default_factory=list)
    applied: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    repaired: int = 0
    cast_from: dict[ir.Value, ir.Value] = dataclasses.field(default_factory=dict)
    computing: dict[ir.Value, frozenset[ir.Node]] = dataclasses.field(default_factory=dict)
    seen_rounded: set[ir.Value] = dataclasses.field(default_factory=set)

    def __post_init__(self):
        self.rows = table.active(self.opset, self.runtime, self.special_values)

    def share(self, key: tuple, constant: ir.Value) -> None:
        """Let *constant* be the one of its *key* from now on."""
        self.constants[key] = constant
        self.shared.add(constant)

    @contextlib.contextmanager
    def at(self, origin: Origin) -> Iterator[None]:
        """While this lasts, what is written comes from *origin*."""
        outer, self.origin = self.origin, origin
        try:
            yield
        finally:
            self.origin = outer

    @contextlib.contextmanager
    def inside(self, region: Any) -> Iterator[None]:
        """While this lasts, nodes are translated as in *region*; what they enter or leave themselves ends with it."""
        outer, self.region = self.region, region
        try:
            yield
        finally:
            self.region = outer

    @property
    def node(self) -> torch.fx.Node | None:
        """The FX node translated now."""
        return self.origin.node

    @property
    def function(self) -> tuple[tuple[str, str, str], ...]:
        """The calls of modules whose function will hold the nodes written now; empty for the main graph."""
        return self.origin.modules if self.keeps_modules else ()

    def warn_once(self, message: str) -> None:
        """Log a warning the first time it is given."""
        if message not in self.warned:
            self.warned.add(message)
            logger.warning(message)


class Emitter:
    """Writes nodes at the end of one graph. ``op.Name(*inputs, outputs=None, **attributes)`` for any ONNX operator.

    Inputs: values, None for an absent one, or Python numbers, lists and arrays, which become constants of the dtype
    that the operator's schema asks for. A list that holds values becomes a 1-D INT64 tensor. Attributes that are None
    are left out. One value is returned; with ``outputs=n`` always a tuple of n.
    """

    def __init__(self, graph: ir.Graph, context: Context, parent: Emitter | None = None):
        self.graph = graph
        self.context = context
        self.parent = parent
        self.sizes: dict[Any, ir.Value] = {}

    def __getattr__(self, op_type: str) -> Callable:
        if not op_type[0].isupper():
            raise AttributeError(f"the emitter has no {op_type!r}; ONNX operators start with a capital")

        def write(*inputs, outputs=None, domain="", **attributes):
            return self.emit(op_type, inputs, attributes, outputs, domain)

        return write

    @property
    def opset(self) -> int:
        """Version of ai.onnx that the model targets."""
        return self.context.opset

    def has(self, op_type: str) -> bool:
        """Whether the target operator set has this operator, in any of its versions."""
        return schema_of(op_type, self.opset, "") is not None

    # ---- nodes

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Any],
        attributes: dict[str, Any] | None = None,
        outputs: int | None = None,
        domain: str = "",
    ) -> Any:
        """Write one node; see the class. Raises Untranslatable when the inputs do not fit the operator."""
        if attributes:
            attributes = {name: value for name, value in attributes.items() if value is not None}
        else:
            attributes = {}
        context = self.context
        opset = context.opset
        rows = context.rows.get(op_type, ()) if not domain else ()
        kinds = dtypes.constraints(op_type, table.written_as(opset, rows), domain)
        values = self.typed(kinds, inputs)
        simplify = SIMPLIFICATIONS.get(op_type) if not domain and outputs is None else None
        if simplify is not None:
            simpler = simplify(self, *values, **attributes)
            if simpler is not None:
                return simpler
        repaired = table.rewritten(self, rows, values, attributes, outputs) if rows else None
        if repaired is not None:
            return repaired if outputs is None or isinstance(repaired, tuple) else (repaired,)
        restored: dict[str, ir.DataType] = {}
        if kinds is not None and not domain:
            kinds = dtypes.constraints(op_type, opset)
            if len(values) > len(kinds.inputs):
                dtypes.check_inputs(op_type, opset, values)
            if attributes:
                attributes = dtypes.attributes_at(op_type, opset, attributes)
            if context.cast_from:
                kernels.see_rounded(self, op_type, values)
            values, restored = kernels.widened(self, op_type, kinds, values)
        node = self.append(op_type, values, attributes, outputs or 1, domain)
        results = self.folded(node) or list(node.outputs)
        for position, result in enumerate(results if restored else ()):
            kind = kinds.outputs[min(position, len(kinds.outputs) - 1)]
            if kind in restored:
                results[position] = kernels.narrow_value(self, op_type, result, restored[kind])
        return results[0] if outputs is None else tuple(results)

    def append(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any],
        outputs: int,
        domain: str = "",
    ) -> ir.Node:
        """Write one node as it is, with its names, origin, dtypes and shapes."""
        inputs = sizes.all_plain(inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        context = self.context
        origin = context.origin
        unique, prefix = context.names.unique, origin.prefix
        if domain and domain not in context.domains:
            context.domains[domain] = 1
        node = ir.Node(
            domain,
            op_type,
            inputs,
            [attribute(name, value) for name, value in attributes.items()] if attributes else (),
            num_outputs=outputs,
            name=unique(f"node_{prefix}_{op_type}"),
            metadata_props=dict(origin.provenance),
        )
        for value in node.outputs:
            value.name = unique(f"{prefix}_{op_type.lower()}")
        if origin.modules:
            node.meta[MODULES] = origin.modules
        self.insert(node)
        infer(node, context.opset)
        return node

    def insert(self, node: ir.Node) -> None:
        """Put a node where this emitter writes."""
        self.graph.append(node)

    def producer(self, x: ir.Value) -> ir.Node | None:
        """The node of ONNX that gives *x*, None when it is in another graph or in what becomes the function of another call."""
        node, context = producer_of(x), self.context
        if node is None or node.graph is not self.graph:
            return None
        return node if not context.keeps_modules or node.meta.get(MODULES, ()) == context.function else None

    @contextlib.contextmanager
    def before_calls(self, x: ir.Value) -> Iterator[None]:
        """While this lasts, what is written of *x*, an input of the model, is written before the first call of a module.

        The functions of all calls may read it then, and what is written of it for one of them what the main graph wrote of it. It makes
        no difference when calls become no functions, or for another value.
        """
        context = self.context
        if not context.keeps_modules or x.producer() is not None or self.parent is not None:
            yield
            return
        last = self.graph[-1] if len(self.graph) else None
        with context.at(Origin(prefix=x.name or "c")):
            yield
        first = next((node for node in self.graph if MODULES in node.meta), None)
        written = itertools.takewhile(lambda node: node is not last, reversed(self.graph))
        if first is not None:
            for node in reversed(list(written)):
                self.graph.remove(node)
                self.graph.insert_before(first, node)

    def folded(self, node: ir.Node) -> list[ir.Value] | None:
        """Constants instead of the outputs of *node*, which is then removed, or None."""
        arrays = fold(node, self.opset)
        if arrays is None:
            return None
        read = list(node.inputs)
        self.graph.remove(node, safe=True)
        return [self.computed(node.op_type, read, array) for array in arrays]

    def typed(self, kinds: dtypes.Constraints | None, inputs: Sequence[Any]) -> list[ir.Value | None]:
        """The inputs as values: numbers, also those of sizes, take the dtype of the tensors that share their type variable."""
        if {*map(type, inputs)} <= sizes.PLAIN:
            return list(inputs)
        inputs = self.numbers_typed(kinds, inputs)
        known = {} if kinds is None else dtypes_known(kinds, inputs)
        first = next((value.dtype for value in inputs if type(value) is ir.Value), None)
        values = []
        for position, value in enumerate(inputs):
            if value is not None and type(value) is not ir.Value:
                kind = kinds.variable(position) if kinds is not None else ""
                dtype = dtypes.concrete(kind) or known.get(kind)
                if dtype is None and first in dtypes.FLOATS and holds_floats(value):
                    dtype = first
                value = self.constant(value, dtype)
            values.append(value)
        return values

    def numbers_typed(self, kinds: dtypes.Constraints | None, inputs: Sequence[Any]) -> list[Any]:
        """The inputs without symbolic numbers: each is a value, cast where a tensor beside it is a float, or both are integers."""
        plain = sizes.all_plain(inputs)
        symbolic = [position for position, value in enumerate(inputs) if plain[position] is not value]
        if not symbolic or kinds is None or kinds.mixed:
            return plain
        known = dtypes_known(kinds, inputs)
        for position in symbolic:
            number, dtype = plain[position], known.get(kinds.variable(position))
            if dtype in dtypes.FLOATS or (dtype is not None and number.dtype not in dtypes.FLOATS):
                plain[position] = self.Cast(number, to=dtype)
        return plain

    # ---- constants

    def constant(self, value: Any, dtype: ir.DataType | torch.dtype | None = None) -> ir.Value:
        """A constant: a number, a nested list, an array; or a list with values in it, see `shape`.

        Without *dtype*: INT64 for ints, FLOAT for floats, BOOL for bools. The same constant is stored once a model. A symbolic number
        is cast, any other value stays as it is.
        Raises Untranslatable when *dtype* does not hold the value.
        """
        written = spelling(value)
        if written is not None and (written, dtype) in self.context.constants:
            return self.context.constants[written, dtype]
        if isinstance(value, ir.Value):
            if dtype is None or not isinstance(value, sizes.Number):
                return value
            dtype = dtypes.onnx_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
            return value if value.dtype == dtype else self.Cast(value, to=dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(item, ir.Value) for item in value):
            return self.shape(value)
        result = self.stored(value, dtypes.onnx_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype)
        if written is not None:
            self.context.share((written, dtype), result)
        return result

    def stored(self, value: Any, dtype: ir.DataType | None) -> ir.Value:
        """The constant of a number, a list or an array: the one that holds the same, a new one when there is none."""
        array = as_array(value, dtype)
        dtype = dtype if dtype is not None else ir.DataType.from_numpy(array.dtype)
        key = content_of(array) if is_shared(array.size, dtype) else None
        if key is not None and key in self.context.constants:
            return self.context.constants[key]
        name = self.context.names.unique(constant_name(array, dtype))
        tensor = ir.Tensor(array, dtype=dtype, name=name)
        result = self.initializer(name, tensor)
        if key is not None:
            self.context.share(key, result)
        return result

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A tensor of the model under the exact *name*, kept by reference."""
        value = ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor
        )
        self.context.root.register_initializer(value)
        return value

    def computed(
        self, op_type: str, inputs: Sequence[ir.Value], value: Any, dtype: ir.DataType | None = None
    ) -> ir.Value:
        """The constant *value* that an operator makes of constant inputs.

        Nothing shares what is computed from weights while modules become functions: their functions take it as an input,
        as they take weights.
        """
        if self.context.keeps_modules:
            weight = next((read for read in inputs if read not in self.context.shared), None)
            if weight is not None:
                name = self.context.names.unique(f"{weight.name}_{op_type.lower()}")
                return self.initializer(name, ir.Tensor(as_array(value, dtype), dtype=dtype, name=name))
        return self.constant(value, dtype)

    # ---- sizes

    def size(self, x: ir.Value, axis: int) -> int | sizes.Number:
        """The size of one axis: an int when it is static, otherwise a number, see `sizes`."""
        return sizes.size_of(self, x, axis)

    def shape_of(self, x: ir.Value, start: int = 0, end: int | None = None) -> ir.Value:
        """The sizes of a range of axes as a 1-D INT64 value, constant when they are static."""
        return sizes.shape_of(self, x, start, end)

    def shape(self, items: Sequence[int | ir.Value]) -> ir.Value:
        """A list of ints and INT64 values (0-d or 1-D) as one 1-D INT64 value."""
        return sizes.shape(self, items)

    # ---- subgraphs

    def subgraph(self, step: Callable, like: Sequence[ir.Value] = (), name: str = "body") -> ir.Graph:
        """The graph written by ``step(inner, *inputs)``: a body of If, Loop or Scan.

        Its inputs have the types of *like*; everything else is captured from outside. Each output has its own
        Identity: never an outer value, never the same value twice.
        """
        graph = ir.Graph(
            [], [], nodes=[], name=self.context.names.unique(f"{self.context.origin.prefix}_{name}")
        )
        for value in like:
            label = self.context.names.unique(f"{graph.name}_{value.name or 'in'}")
            graph.inputs.append(ir.Value(name=label, type=value.type, shape=value.shape))
        inner = Emitter(graph, self.context, parent=self)
        results = step(inner, *graph.inputs)
        graph.outputs.extend(inner.copy(value) for value in results)
        return graph

    def copy(self, value: ir.Value | float) -> ir.Value:
        """A value of its own, equal to *value*."""
        value = self.constant(value)
        copied = self.append("Identity", [value], {}, 1).outputs[0]
        copied.type, copied.shape = value.type, value.shape
        return copied


def attribute(name: str, value: Any) -> ir.Attr:
    """An attribute of a node: numbers, strings and lists of ints are made here, onnx-ir takes longer to find their type."""
    if type(value) is ir.Attr:
        return value
    if isinstance(value, int):
        return int_attribute(name, int(value))
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, (list, tuple)) and value and all([isinstance(item, int) for item in value]):
        return ints_attribute(name, tuple(value))
    return ir.convenience.convert_attribute(name, value)


@functools.lru_cache(maxsize=1024)
def int_attribute(name: str, value: int) -> ir.Attr:
    """The attribute of a number; nodes share it: nobody changes attributes."""
    return ir.AttrInt64(name, value)


@functools.lru_cache(maxsize=1024)
def ints_attribute(name: str, value: tuple[int, ...]) -> ir.Attr:
    """The attribute of a list of numbers; nodes share it."""
    return ir.AttrInt64s(name, value)


def dtypes_known(kinds: dtypes.Constraints, inputs: Sequence[Any]) -> dict[str, ir.DataType]:
    """The dtype that the first tensor of each type variable gives it."""
    known: dict[str, ir.DataType] = {}
    for position, value in enumerate(inputs):
        if type(value) is ir.Value:
            known.setdefault(kinds.variable(position), value.dtype)
    return known


NUMBERS = frozenset((bool, float, int))
"""Python's numbers."""


def spelling(value: Any) -> str | None:
    """How Python writes a number or a list of numbers, None for anything else: found sooner than the array that it makes."""
    kinds = {*map(type, value)} if type(value) is list else {type(value)}
    return repr(value) if kinds <= NUMBERS else None


def holds_floats(value: Any) -> bool:
    """Whether a Python number, list or array is of floats."""
    return np.issubdtype(np.asarray(value).dtype, np.floating)


def as_array(value: Any, dtype: ir.DataType | None) -> np.ndarray:
    """An array of *dtype* (None: INT64, FLOAT or BOOL as the value says), exactly equal to *value*."""
    if isinstance(value, torch.Tensor):
        value = ir.tensor_adapters.TorchTensor(value.detach().cpu()).numpy()
    array = np.asarray(value)
    if dtype is None:
        if isinstance(value, np.ndarray | np.generic):
            return array
        if array.size == 0:
            return array.astype(np.int64)
        return array.astype(
            {"f": np.float32, "i": np.int64, "u": np.int64}.get(array.dtype.kind, array.dtype)
        )
    with np.errstate(over="ignore"):
        typed = array.astype(dtype.numpy())
    if array.dtype.kind == "f" and typed.dtype.kind in "iu" and not np.array_equal(typed, array):
        raise Untranslatable(f"{value} does not fit {dtype.name}")
    return typed


def content_of(array: np.ndarray) -> tuple:
    """What tells constants apart: dtype, shape and bytes."""
    return array.dtype, array.shape, array.tobytes()


def constant_name(array: np.ndarray, dtype: ir.DataType) -> str:
    """A readable name for a small constant: ``int64_1x2``, ``float_0.5``."""
    if array.ndim == 0:
        return f"{dtype.name.lower()}_{array.item()}"
    if array.size <= 6 and array.dtype.kind in "iub":
        return f"{dtype.name.lower()}s_{'_'.join(str(item) for item in array.reshape(-1).tolist())}"
    return f"{dtype.name.lower()}_{'x'.join(map(str, array.shape))}"
