"""Reading a model: `pretty_onnx` prints it as text.

The form: opsets, inputs, initializers, nodes, outputs; a node that reads the line above it stands one level deeper.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import onnx_ir as ir

from experimental_experiment.reading import read

DEEPEST = 12
"""Levels of indentation: a longer chain stays at the last one."""

KNOWN_DTYPES = frozenset(onnx.TensorProto.DataType.values())
"""The numbers that ONNX gives dtypes, and 0 for an unknown one."""

SHOWN = 10
"""Elements: a larger constant shows only its dtype and shape."""

Printable = (
    onnx.ModelProto
    | onnx.FunctionProto
    | onnx.GraphProto
    | onnx.NodeProto
    | onnx.ValueInfoProto
    | onnx.AttributeProto
    | onnx.TensorProto
)


def pretty_onnx(
    onx: Printable | ir.Model | str | os.PathLike,
    with_attributes: bool = True,
    highlight: Iterable[str] = (),
) -> str:
    """A model, or a part of one, as text.

    Args:
        onx: a model, a function, a graph, a node, an input or output, an attribute, a tensor, or the path of a model;
            external data is not read.
        with_attributes: also print the attributes of the nodes, and with them the subgraphs.
        highlight: names of results to put between ``**``.

    Raises TypeError when *onx* is nothing of this or another argument is wrong, ValueError for a file that holds no model.
    """
    if not isinstance(with_attributes, bool):
        raise TypeError(f"with_attributes is True or False, not {with_attributes!r}")
    if isinstance(highlight, str) or not isinstance(highlight, Iterable):
        raise TypeError(f"highlight is a list of names, not {highlight!r}")
    if isinstance(onx, (str, os.PathLike)):
        onx = read(onx)
    elif isinstance(onx, ir.Model):
        onx = ir.to_proto(onx)
    printer = Printer(with_attributes, frozenset(highlight))
    writers = {
        onnx.ModelProto: printer.model,
        onnx.FunctionProto: printer.function,
        onnx.GraphProto: printer.graph,
        onnx.NodeProto: lambda node: printer.nodes([node]),
        onnx.ValueInfoProto: lambda value: [described(value)],
        onnx.AttributeProto: printer.lone_attribute,
        onnx.TensorProto: lambda tensor: [f"name={tensor.name!r} {constant(tensor)}"],
    }
    writer = writers.get(type(onx))
    if writer is None:
        raise TypeError(f"a model, a part of one or a path can be printed, not {type(onx).__name__}")
    return "\n".join(writer(onx))


class Printer:
    """Turns protos into lines."""

    def __init__(self, with_attributes: bool, highlight: frozenset[str]):
        self.with_attributes = with_attributes
        self.highlight = highlight

    def model(self, model: onnx.ModelProto) -> Iterator[str]:
        """Opsets, the graph, the local functions."""
        yield from opsets(model.opset_import)
        if model.doc_string:
            yield f"doc_string: {shortened(model.doc_string)}"
        yield from self.graph(model.graph)
        for function in model.functions:
            yield from self.function(function)

    def function(self, function: onnx.FunctionProto) -> Iterator[str]:
        """A local function, after a line that names it."""
        yield f"----- function name={function.name} domain={function.domain}"
        if function.doc_string:
            yield f"----- doc_string: {shortened(function.doc_string)}"
        yield from opsets(function.opset_import)
        yield from (f"input: {name!r}" for name in function.input)
        yield from (f"attribute: {name!r}" for name in function.attribute)
        yield from (f"attribute: {attribute_text(item)}" for item in function.attribute_proto)
        yield from self.nodes(function.node)
        yield from (f"output: {name!r}" for name in function.output)

    def graph(self, graph: onnx.GraphProto) -> Iterator[str]:
        """Inputs, initializers, nodes, outputs."""
        yield from (f"input: {described(value)}" for value in graph.input)
        yield from (f"init: name={tensor.name!r} {constant(tensor)}" for tensor in graph.initializer)
        for sparse in graph.sparse_initializer:
            yield f"init: name={sparse.values.name!r} {constant(sparse.values)} sparse shape={(*sparse.dims,)}"
        yield from self.nodes(graph.node)
        yield from (f"output: {described(value)}" for value in graph.output)

    def nodes(self, nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
        """One line a node, its subgraphs under it."""
        depth, above = 0, frozenset[str]()
        for node in nodes:
            depth = min(depth + 1, DEEPEST) if above.intersection(node.input) else 0
            above = frozenset(name for name in node.output if name)
            indent = "  " * depth
            yield indent + self.call(node)
            for attribute in node.attribute if self.with_attributes else ():
                for label, graph in subgraphs(attribute):
                    yield f"{indent}----- subgraph ---- {node.op_type} - {node.name} - att.{label}"
                    yield from (f"{indent}    {line}" for line in self.graph(graph))
                    yield f"{indent}----- end subgraph ---- {node.op_type} - att.{label}"

    def call(self, node: onnx.NodeProto) -> str:
        """``Gemm(x, w, transB=1) -> y``."""
        given = [self.name(name) for name in node.input]
        if self.with_attributes:
            given += [attribute_text(item) for item in node.attribute]
        domain = f"[{node.domain}]" if node.domain else ""
        results = ", ".join(self.name(name) for name in node.output)
        return f"{node.op_type}{domain}({', '.join(given)}) -> {results}"

    def name(self, name: str) -> str:
        """The name of a result; an absent input is two quotes."""
        if not name:
            return "''"
        return f"**{name}**" if name in self.highlight else name

    def lone_attribute(self, attribute: onnx.AttributeProto) -> Iterator[str]:
        """An attribute that is printed by itself."""
        yield attribute_text(attribute)
        for _, graph in subgraphs(attribute):
            yield from (f"    {line}" for line in self.graph(graph))


def module_path(node: onnx.NodeProto) -> str:
    """Path of the module that a node comes from, as ``layers.0.attention``; ``""`` when its exporter did not record it.

    Read from ``pkg.torch.onnx.name_scopes``: the paths of the modules around it, then its own name.
    """
    for item in node.metadata_props:
        if item.key == "pkg.torch.onnx.name_scopes":
            scopes = ast.literal_eval(item.value)
            return scopes[-2] if len(scopes) > 1 else ""
    return ""


def opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> Iterator[str]:
    """The versions of the operator sets."""
    return (f"opset: domain={item.domain!r} version={item.version}" for item in imports)


def shortened(text: str, width: int = 58) -> str:
    """The beginning of the first line of a text."""
    lines = text.splitlines() or [""]
    line = lines[0]
    return line if len(line) <= width and len(lines) == 1 else f"{line[: width - 3]}..."


def dtype_text(element: int) -> str:
    """``dtype('float32')``, from the number that ONNX gives a dtype."""
    if element not in KNOWN_DTYPES:
        return f"dtype({element})"
    dtype = ir.DataType(element)
    if dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return f"dtype({dtype.name.lower()!r})"
    return f"dtype({dtype.numpy().name!r})"


def described(value: onnx.ValueInfoProto) -> str:
    """Name, type and shape of an input or output."""
    return f"name={value.name!r} type={type_text(value.type)}"


def type_text(kind: onnx.TypeProto) -> str:
    """``dtype('float32') shape=['batch', 10]``, the shape being None when unknown; sequences, optionals and maps too."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        sparse = "sparse " if which == "sparse_tensor_type" else ""
        return f"{sparse}{dtype_text(tensor.elem_type)} shape={shape_text(tensor)}"
    if which in ("sequence_type", "optional_type"):
        return f"{which.removesuffix('_type')}({type_text(getattr(kind, which).elem_type)})"
    if which == "map_type":
        return f"map({dtype_text(kind.map_type.key_type)}, {type_text(kind.map_type.value_type)})"
    return "None"


def shape_text(tensor: onnx.TypeProto.Tensor) -> str:
    """The sizes as a list: numbers, names, None for what has neither."""
    if not tensor.HasField("shape"):
        return "None"
    sizes = [
        size.dim_value if size.HasField("dim_value") else size.dim_param or None for size in tensor.shape.dim
    ]
    return str(sizes)


def constant(tensor: onnx.TensorProto) -> str:
    """Dtype and shape of a tensor, and its elements when they are few and in the model."""
    shape = tuple(tensor.dims)
    text = f"type={dtype_text(tensor.data_type)} shape={shape}"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        where = {item.key: item.value for item in tensor.external_data}
        return f"{text} -- in {where.get('location', '')!r}"
    if np.prod(shape, dtype=np.int64) <= SHOWN:
        text += f" -- {one_line(onnx.numpy_helper.to_array(tensor))}"
    return text


def one_line(array: np.ndarray) -> str:
    """``array([0, 1])`` without line breaks."""
    return " ".join(repr(array).split())


def subgraphs(attribute: onnx.AttributeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs that an attribute holds, each with a label."""
    if attribute.type == onnx.AttributeProto.GRAPH:
        yield attribute.name, attribute.g
    for position, graph in enumerate(attribute.graphs):
        yield f"{attribute.name}[{position}]", graph


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """``perm=[1,0]``; ``transB=@name`` for an attribute that a function passes on."""
    if attribute.ref_attr_name:
        return f"{attribute.name}=@{attribute.ref_attr_name}"
    if attribute.name == "value_float":  # of a Constant: every digit
        return f"{attribute.name}={np.float32(attribute.f)!s}"
    return f"{attribute.name}={value_text(onnx.helper.get_attribute_value(attribute))}"


def value_text(value: object) -> str:
    """The value of an attribute in one line: a tensor by its elements when they are few, a graph by its name."""
    if isinstance(value, float):
        return f"{value:.2f}" if value == round(value, 2) else f"{value:g}"
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", errors="replace"))
    if isinstance(value, onnx.TensorProto):
        few = np.prod(value.dims, dtype=np.int64) <= SHOWN
        in_model = value.data_location != onnx.TensorProto.EXTERNAL
        return one_line(onnx.numpy_helper.to_array(value)) if few and in_model else f"({constant(value)})"
    if isinstance(value, onnx.GraphProto):
        return f"graph {value.name}"
    if isinstance(value, onnx.TypeProto):
        return type_text(value)
    if isinstance(value, Iterable):
        return f"[{','.join(value_text(item) for item in value)}]"
    return " ".join(str(value).split())
