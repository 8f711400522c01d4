"""What is changed in a model after it was written: what nothing uses and what stands twice is removed, float64 keeps its digits.

onnx-ir's identity elimination is not among these passes: it renames a value that two outputs copy, and joins the output of
a subgraph with a value of the outer graph. The emitter writes an Identity only where one is needed.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import PassManager
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
    RemoveUnusedOpsetsPass,
)

from experimental_experiment.torch_interpreter.inference import infer


def clean(model: ir.Model, optimize: bool) -> None:
    """Remove unused nodes and weights; with *optimize* also common subexpressions and duplicate small constants."""
    keep_digits(model.graph, model.graph)
    passes = [RemoveUnusedNodesPass()]
    if optimize:
        passes += [
            DeduplicateInitializersPass(),
            CommonSubexpressionEliminationPass(),
            RemoveUnusedNodesPass(),
        ]
    PassManager([*passes, RemoveUnusedOpsetsPass()])(model)


def keep_digits(graph: ir.Graph, root: ir.Graph) -> None:
    """Repeat the float64 factors beside matrix products along an axis, where there is one of several elements.

    *root*: the graph of the model, which holds the repeated factors.

    onnxruntime folds one element that multiplies or divides an operand or the result of MatMul into a float32 attribute.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    if not any(node.op_type == "MatMul" and node.outputs[0].dtype == ir.DataType.DOUBLE for node in nodes):
        return
    for node in nodes:
        if node.op_type not in ("Mul", "Div") or node.outputs[0].dtype != ir.DataType.DOUBLE:
            continue
        for position, factor in enumerate(node.inputs):
            if loses_digits(factor) and len(factor.shape) <= len(node.inputs[1 - position].shape or ()):
                node.replace_input_with(position, repeated(root, node, factor, node.inputs[1 - position]))


def repeated(root: ir.Graph, node: ir.Node, factor: ir.Value, other: ir.Value) -> ir.Value:
    """*factor*, which *node* multiplies by *other*, along the last axis of *other* that has several elements, or may have."""
    for axis, size in reversed(list(enumerate(other.shape))):
        if size == 1:
            continue
        after = len(other.shape) - axis - 1
        if isinstance(size, int):
            name = f"{factor.name}_of_{size}{'x1' * after}"
            if name not in root.initializers:
                array = np.full((size, *[1] * after), factor.const_value.numpy().item())
                root.register_initializer(ir.Value(name=name, const_value=ir.tensor(array, name=name)))
            return root.initializers[name]
        opset = root.opset_imports[""]
        shape = ir.node("Shape", [other], {"start": axis} if opset >= 15 else {})
        expand = ir.node("Expand", [factor, shape.outputs[0]])
        for new in (shape, expand):
            new.name = f"{node.name}_{new.op_type}"
            new.outputs[0].name = f"{node.outputs[0].name}_{new.op_type.lower()}"
            new.metadata_props.update(node.metadata_props)
            new.meta.update(node.meta)
            infer(new, opset)
        node.graph.insert_before(node, [shape, expand])
        return expand.outputs[0]
    return factor


def loses_digits(value: ir.Value) -> bool:
    """Whether a value is one constant element that float32 does not hold."""
    constant = value.const_value
    if constant is None or constant.size != 1:
        return False
    number = constant.numpy().item()
    return float(np.float32(number)) != number
