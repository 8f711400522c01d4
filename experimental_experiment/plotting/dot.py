"""`dot_source`: a model in the language of graphviz.

One box a node with its attributes and constants, coloured by what it does; the types of results stand beside the arrows. The body
of an If, a Loop or a Scan is a frame above its node, a local function a frame of its own.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from experimental_experiment.helpers import KNOWN_DTYPES, module_path, subgraphs, value_text
from experimental_experiment.plotting.folding import Folding, Layer, Step, folded
from experimental_experiment.protos import type_of
from experimental_experiment.reading import read

Drawable = onnx.ModelProto | onnx.GraphProto | onnx.FunctionProto

HEADER = """digraph {
  graph [bgcolor="white" fontname="Helvetica,Arial,sans-serif" nodesep=0.3 ranksep=0.38 pad=0.2]
  node [shape=box style="rounded,filled" fontname="Helvetica,Arial,sans-serif" fontsize=11 margin="0.14,0.06" height=0.3 penwidth=1.1]
  edge [color="#9aa0a6" arrowsize=0.55 fontname="Helvetica,Arial,sans-serif" fontsize=8 fontcolor="#80868b"]"""

PLAIN = ("#ffffff", "#5f6368")
"""Colour of the box and of its border, for operators of no other kind."""

KINDS: dict[tuple[str, str], str] = {
    ("#dce9f9", "#3b73b9"): "Attention Conv ConvInteger ConvTranspose DynamicQuantizeMatMul Einsum FusedConv FusedGemm FusedMatMul GRU "
    "Gemm GroupQueryAttention LSTM MatMul MatMulInteger MatMulIntegerToFloat MatMulNBits MultiHeadAttention QGemm QLinearConv "
    "QLinearMatMul RNN",
    ("#fbe3dc", "#cb5b3b"): "BiasGelu Celu Clip Elu FastGelu Gelu HardSigmoid HardSwish LeakyRelu LogSoftmax Mish PRelu QuickGelu Relu "
    "Selu Sigmoid Softmax Softplus Softsign Swish Tanh ThresholdedRelu",
    ("#dff1e0", "#3f8f4b"): "BatchNormalization EmbedLayerNormalization GroupNormalization InstanceNormalization LRN "
    "LayerNormalization LpNormalization MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization",
    ("#efe3f6", "#8450a8"): "ArgMax ArgMin AveragePool CumSum GlobalAveragePool GlobalMaxPool LpPool MaxPool Mean ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Sum TopK",
    ("#eeeef0", "#8a8d93"): "Cast CastLike Compress Concat ConstantOfShape DepthToSpace Expand Flatten Gather GatherBlockQuantized "
    "GatherElements GatherND Identity Pad Range Reshape Resize ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze "
    "Tile Transpose Trilu Unsqueeze",
    ("#fff3cd", "#b8860b"): "If Loop Scan SequenceMap",
}  # fmt: skip
"""Operators by colours: products, activations, norms, reductions, what moves elements, what holds subgraphs."""

COLOURS = {name: colours for colours, names in KINDS.items() for name in names.split()}
FUNCTION = ("#e0f2f1", "#00796b")
ENDS = ("#37474f", "#263238")
"""Colours of calls of local functions, and of inputs and outputs."""

SHOWN = 4
"""Elements: a larger constant shows only its shape."""

LARGE = 150
"""Boxes: a larger drawing has no types beside its arrows and a coarser layout, which would take minutes otherwise."""

LONGEST = 34
"""Characters of a line in a box."""


def dot_source(model: Drawable | ir.Model | str | os.PathLike, fold: bool = False) -> str:
    """The text that the program ``dot`` draws.

    Args:
        model: a model, a graph, a function, an `onnx_ir` model, or the path of a model; external data is not read.
        fold: draw layers that follow each other with the same structure once, with a note how often.

    Raises TypeError when *model* is nothing of this, ValueError for a file that holds no model.
    """
    if isinstance(model, (str, os.PathLike)):
        model = read(model)
    elif isinstance(model, ir.Model):
        model = ir.to_proto(model)
    if not isinstance(model, Drawable):
        raise TypeError(f"a model, a graph, a function or a path can be drawn, not {type(model).__name__}")
    functions = model.functions if isinstance(model, onnx.ModelProto) else ()
    drawing = Drawing({(function.domain, function.name) for function in functions}, fold)
    drawing.graph(model.graph if isinstance(model, onnx.ModelProto) else model)
    for function in functions:
        with_domain = f"{function.domain}.{function.name}" if function.domain else function.name
        drawing.open_frame(f"function {with_domain}", FUNCTION[1])
        drawing.graph(function)
        drawing.close_frame()
    return drawing.text()


class Drawing:
    """The lines that are written, one graph after the other."""

    def __init__(self, functions: set[tuple[str, str]], fold: bool):
        self.lines: list[str] = []
        self.arrows: list[
            str
        ] = []  # after all frames: a box that an arrow names in a frame would stand in it
        self.functions = functions
        self.fold = fold
        self.boxes = 0
        self.frames = 0
        self.indent = "  "

    def write(self, line: str) -> None:
        """A line of the frame that is open."""
        self.lines.append(f"{self.indent}{line}")

    def open_frame(self, title: str, colour: str) -> None:
        """What follows stands in a frame."""
        self.frames += 1
        self.write(f"subgraph cluster_{self.frames} {{")
        self.indent += "  "
        self.write(
            f'label={quoted(title)} labeljust=l fontsize=11 fontcolor="{colour}" color="{colour}" '
            'style="rounded,dashed" penwidth=1.2 margin=12'
        )

    def close_frame(self) -> None:
        """The end of a frame."""
        self.indent = self.indent[:-2]
        self.write("}")

    def box(self, lines: Sequence[str], colours: tuple[str, str], tooltip: str, ink: str = "#202124") -> str:
        """A box with a title and smaller lines under it; its name."""
        self.boxes += 1
        small = "".join(
            f'<BR/><FONT POINT-SIZE="8" COLOR="{"#5f6368" if ink != "white" else "#cfd8dc"}">{escaped(line)}</FONT>'
            for line in lines[1:]
        )
        label = f'<FONT COLOR="{ink}"><B>{escaped(lines[0])}</B></FONT>{small}'
        name = f"n{self.boxes}"
        self.write(
            f'{name} [label=<{label}> fillcolor="{colours[0]}" color="{colours[1]}" tooltip={quoted(tooltip)}]'
        )
        return name

    def arrow(self, source: str, target: str, label: str = "", more: str = "") -> None:
        """An arrow, with the type of what it carries."""
        self.arrows.append((source, target, label, more))

    def text(self) -> str:
        """All lines; the arrows after the frames, since a box that an arrow names in a frame would stand in it."""
        is_large = self.boxes > LARGE
        lines = [HEADER, "  nslimit=2 nslimit1=2 mclimit=0.5" if is_large else "", *self.lines]
        for source, target, label, more in self.arrows:
            is_type = bool(label) and not more
            text = f"label={quoted(f' {label} ')}" if label and not (is_large and is_type) else ""
            lines.append(f"  {source} -> {target} [{' '.join(filter(None, [text, more]))}]")
        return "\n".join(filter(None, [*lines, "}"])) + "\n"

    def graph(self, graph: onnx.GraphProto | onnx.FunctionProto) -> None:
        """The inputs, nodes and outputs of the main graph or of a function."""
        parts = Parts(graph)
        folding = folded([parts.step(node) for node in parts.nodes]) if self.fold else Folding([], {})
        parts.rename(folding.stands_for)
        boxes: dict[str, str] = {}
        for name, group in grouped(parts.inputs, folding.stands_for).items():
            boxes[name] = self.end(group, parts)
        first = {layer.start: layer for layer in folding.layers}
        last = {layer.start + layer.length - 1 for layer in folding.layers}
        drawn: dict[int, str] = {}
        for position, node in enumerate(parts.nodes):
            if position in first:
                self.open_frame(title(first[position]), PLAIN[1])
            if folding.is_drawn(position):
                drawn[position] = self.node(node, parts, boxes)
            if position in last:
                self.close_frame()
        for layer in folding.layers:
            links = dict.fromkeys((boxes[name], drawn[position]) for name, position in sorted(layer.links))
            for number, (source, target) in enumerate(links):
                label = "" if number else "next"
                self.arrow(source, target, label, f'constraint=false style=dashed color="{PLAIN[1]}"')
        for name, group in grouped(parts.outputs, folding.stands_for).items():
            box = self.end(group, parts)
            source = boxes.get(name) or self.box(
                ["Constant", constant_text(parts.constants.get(name))], PLAIN, name
            )
            self.arrow(source, box)

    def end(self, names: Sequence[str], parts: Parts) -> str:
        """The box of an input or output, or of those of a layer that is folded."""
        return self.box([between(names), parts.types.get(names[0], "")], ENDS, " ".join(names), "white")

    def node(self, node: onnx.NodeProto, parts: Parts, boxes: dict[str, str]) -> str:
        """A node, its bodies above it, the arrows to it; its box, which *boxes* has for its results from now on."""
        lines = [node.op_type, *parts.lines(node)]
        is_function = (node.domain, node.op_type) in self.functions
        if node.domain and not is_function:
            lines.insert(1, node.domain)
        operands = [name for name in node.input if name]
        ends: list[str] = []
        for attribute in node.attribute:
            for label, body in subgraphs(attribute):
                operands, given = self.body(node, f"{node.op_type} {label}", body, operands, parts, boxes)
                ends += given
        colours = FUNCTION if is_function else COLOURS.get(node.op_type, PLAIN)
        box = self.box(lines, colours, " ".join(filter(None, [node.name, module_path(node)])))
        for end in ends:
            self.arrow(end, box, "", "style=dashed")
        for name in dict.fromkeys(operands):
            if name in boxes:
                self.arrow(boxes[name], box, "" if name in parts.inputs else parts.types.get(name, ""))
        boxes.update((name, box) for name in node.output if name)
        return box

    def body(
        self,
        node: onnx.NodeProto,
        label: str,
        body: onnx.GraphProto,
        operands: list[str],
        outer: Parts,
        boxes: Mapping[str, str],
    ) -> tuple[list[str], list[str]]:
        """The frame of a body: the operands that the node reads itself, the boxes that give the outputs of the body."""
        self.open_frame(label, COLOURS["If"][1])
        inner = Parts(body, outer)
        names = dict(boxes)
        carried = {"Loop": list(node.input[2:]), "Scan": list(node.input)}.get(node.op_type, [])
        offset = len(body.input) - len(carried)
        used = {name for one in inner.nodes for name in one.input} | set(inner.outputs)
        for position, value in enumerate(body.input):
            if value.name not in used:
                continue
            names[value.name] = self.box([value.name, inner.types.get(value.name, "")], PLAIN, value.name)
            if position >= offset and carried[position - offset] in boxes:
                self.arrow(boxes[carried[position - offset]], names[value.name])
        for one in inner.nodes:
            self.node(one, inner, names)
        self.close_frame()
        ends = dict.fromkeys(names[name] for name in inner.outputs if name in names)
        return [name for name in operands if name not in set(carried)], list(ends)


class Parts:
    """The nodes of a graph without those that make constants, and what is known of its results."""

    def __init__(self, graph: onnx.GraphProto | onnx.FunctionProto, outer: Parts | None = None):
        is_function = isinstance(graph, onnx.FunctionProto)
        self.constants: dict[str, onnx.TensorProto | None] = dict(outer.constants if outer else {})
        values = list(graph.value_info)
        if is_function:
            self.inputs, self.outputs = list(graph.input), list(graph.output)
        else:
            self.constants |= {tensor.name: tensor for tensor in graph.initializer}
            self.constants |= {tensor.values.name: None for tensor in graph.sparse_initializer}
            values += [*graph.input, *graph.output]
            self.inputs = [value.name for value in graph.input if value.name not in self.constants]
            self.outputs = [value.name for value in graph.output]
        self.types = dict(outer.types if outer else {})
        self.types |= {value.name: short_type(type_of(value)) for value in values}
        self.nodes = []
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain and node.output[0] not in self.outputs:
                self.constants[node.output[0]] = constant_of(node)
            else:
                self.nodes.append(node)

    def rename(self, stands_for: Mapping[str, str]) -> None:
        """Nodes read the results that are drawn."""
        renamed = []
        for node in self.nodes:
            if any(name in stands_for for name in node.input):
                copy = onnx.NodeProto()
                copy.CopyFrom(node)
                copy.input[:] = [stands_for.get(name, name) for name in node.input]
                node = copy
            renamed.append(node)
        self.nodes = renamed

    def lines(self, node: onnx.NodeProto) -> list[str]:
        """The attributes of a node, then its constants."""
        lines = [
            f"{attribute.name} = {f'@{attribute.ref_attr_name}' if attribute.ref_attr_name else plain(attribute)}"
            for attribute in node.attribute
            if not is_usual(node, attribute)
        ]
        formal = formal_names(node)
        for position, name in enumerate(node.input):
            if name in self.constants:
                lines.append(f"{formal[position]} {constant_text(self.constants[name])}")
        return [line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…" for line in lines]

    def step(self, node: onnx.NodeProto) -> Step:
        """A node as folding compares it with others."""
        attributes = sorted(
            attribute.SerializeToString(deterministic=True).hex() for attribute in node.attribute
        )
        constants = [
            f"{position}{kind_text(self.constants[name])}"
            if name in self.constants
            else f"{position}{bool(name)}"
            for position, name in enumerate(node.input)
        ]
        results = "".join("01"[bool(name)] for name in node.output)
        signature = "|".join([node.domain, node.op_type, *attributes, *constants, results])
        return Step(signature, tuple(node.input), tuple(node.output), module_path(node))


def grouped(names: Iterable[str], stands_for: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that each name stands for, by that name."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(stands_for.get(name, name), []).append(name)
    return groups


def constant_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant, None when it has another form than a tensor or a number."""
    attribute = node.attribute[0]
    if attribute.name == "value":
        return attribute.t
    if (
        attribute.name in ("value_int", "value_ints", "value_float", "value_floats")
        and not attribute.ref_attr_name
    ):
        dtype = np.int64 if "int" in attribute.name else np.float32
        return onnx.numpy_helper.from_array(np.array(onnx.helper.get_attribute_value(attribute), dtype))
    return None


def constant_text(tensor: onnx.TensorProto | None) -> str:
    """``= 0.5``, ``= [2, -1]`` or ``⟨32×10⟩``."""
    if tensor is None:
        return ""
    if tensor.data_location != onnx.TensorProto.EXTERNAL and np.prod(tensor.dims, dtype=np.int64) <= SHOWN:
        values = onnx.numpy_helper.to_array(tensor).tolist()
        return f"= {short(values)}"
    return f"⟨{'×'.join(map(str, tensor.dims))}⟩"


def kind_text(tensor: onnx.TensorProto | None) -> str:
    """Dtype and shape of a constant, and the values of integers, which say what a node does."""
    if tensor is None:
        return ""
    values = constant_text(tensor) if tensor.data_type == onnx.TensorProto.INT64 else ""
    return f"{tensor.data_type}{list(tensor.dims)}{values}"


def is_usual(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute says nothing new: a subgraph, which is drawn, the default of the operator, no stride and no padding."""
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return True
    if attribute.name in ("strides", "dilations") and set(attribute.ints) == {1}:
        return True
    if attribute.name in ("pads", "output_padding") and set(attribute.ints) == {0}:
        return True
    if node.domain or attribute.ref_attr_name or not onnx.defs.has(node.op_type):
        return False
    known = onnx.defs.get_schema(node.op_type).attributes.get(attribute.name)
    if known is None or not known.default_value.name:
        return False
    return onnx.helper.get_attribute_value(known.default_value) == onnx.helper.get_attribute_value(attribute)


def short(value: object) -> str:
    """A number, or a list of them, with six digits at most."""
    if isinstance(value, list):
        return f"[{', '.join(map(short, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def plain(attribute: onnx.AttributeProto) -> str:
    """The value of an attribute."""
    if attribute.type == onnx.AttributeProto.FLOAT:
        return short(attribute.f)
    return value_text(onnx.helper.get_attribute_value(attribute)).replace(",", ", ")


def formal_names(node: onnx.NodeProto) -> list[str]:
    """What the operator calls its inputs; their positions when it is not one of ONNX."""
    count = len(node.input)
    if not node.domain and onnx.defs.has(node.op_type):
        names = [argument.name for argument in onnx.defs.get_schema(node.op_type).inputs]
        return [*names, *names[-1:] * count][:count]
    return [f"input {position}" for position in range(count)]


def short_type(kind: onnx.TypeProto) -> str:
    """``float32 batch×10``; what is unknown is left out."""
    if kind.WhichOneof("value") != "tensor_type":
        return (kind.WhichOneof("value") or "").removesuffix("_type")
    tensor = kind.tensor_type
    dtype = ir.DataType(tensor.elem_type).name.lower() if tensor.elem_type in KNOWN_DTYPES - {0} else ""
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    sizes = [
        str(size.dim_value) if size.HasField("dim_value") else size.dim_param or "?"
        for size in tensor.shape.dim
    ]
    return f"{dtype} {'×'.join(sizes)}".strip() if tensor.HasField("shape") else dtype


def between(names: Sequence[str]) -> str:
    """``past_0 … past_7`` for several names."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def title(layer: Layer) -> str:
    """``layers.0 … layers.7, 8 times``."""
    modules = [name for name in dict.fromkeys([layer.first, layer.last]) if name]
    return ", ".join(filter(None, [" … ".join(modules), f"{layer.copies} times"]))


def escaped(text: str) -> str:
    """Text in a label of HTML; an empty line keeps no height."""
    return html.escape(text) or " "


def quoted(text: str) -> str:
    """Text between quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
