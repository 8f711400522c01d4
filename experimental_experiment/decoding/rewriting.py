"""A decoder whose cache may stay in one buffer: past and present are the same memory, and a step writes its new tokens only."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from experimental_experiment.decoding.interface import ATTENTION, DecodingError, role_of_integers
from experimental_experiment.inlining import inline_functions
from experimental_experiment.protos import MICROSOFT, from_proto, to_proto
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize
from experimental_experiment.xoptim.pattern import attribute_of
from experimental_experiment.xoptim.patterns_ort.cache import (
    group_query_attention,
    group_query_attention_of_attention,
)
from experimental_experiment.xoptim.patterns_ort.latents import (
    group_query_attention_of_latents,
    group_query_attention_of_latents_of_attention,
)
from experimental_experiment.xoptim.validity import check_model

CAPACITY = "capacity"
"""The name of the third dimension of the buffers."""


def in_place(model: onnx.ModelProto | ir.Model) -> onnx.ModelProto | ir.Model:
    """The same decoder for a cache in place, as `Generator` then runs it: attention becomes onnxruntime's GroupQueryAttention.

    The past may then have room for more tokens than it holds: how many it holds is what the mask has more than there are new tokens, and
    no longer the size of the past. The mask has a column for each token, [batch, past + new]; a first step of several tokens has an
    empty past, as onnxruntime asks when there are several rows. Padding on the left is masked as before; what the padding itself gives,
    which nothing reads, may differ where the mask of the model is the smallest number, as in Gemma 2 and Bloom. Local functions are inlined.

    The cache of latent attention, as of DeepSeek, holds keys and values of all heads then, of one size, where the model's holds the rows
    that they are products of: more memory, and no product of all tokens for each new one. Its inputs and outputs have these sizes.

    Args:
        model: what `to_onnx` writes; a ModelProto is left as it is, an ``onnx_ir.Model`` is changed.

    Raises DecodingError when the model has no mask, or its attention is not rewritten: it is not in float32, or something else reads the
    cache; TypeError for a path.
    """
    check_model(model)
    is_proto = isinstance(model, onnx.ModelProto)
    target = from_proto(model) if is_proto else model
    inline_functions(target)
    target.graph.opset_imports.setdefault(MICROSOFT, 1)
    rules = [
        group_query_attention,
        group_query_attention_of_attention,
        group_query_attention_of_latents,
        group_query_attention_of_latents_of_attention,
    ]
    report = Report()
    optimize(target, OptimizationOptions("default+onnxruntime"), rules=rules, report=report)
    attentions = [
        node
        for node in target.graph
        if (node.domain, node.op_type) == (MICROSOFT, ATTENTION) and node.inputs[3] is not None
    ]
    if not attentions:
        for value in target.graph.inputs:
            is_cache = value.shape is not None and len(value.shape) == 4
            if is_cache and value.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE):
                raise DecodingError(
                    f"only attention in float32 is rewritten, {value.name} is {value.dtype.name}"
                )
        names = {item.name for item in rules}
        reasons = sorted({reason for name, reason in report.declined if name in names})
        why = f"; {ATTENTION} was declined: {'; '.join(reasons)}" if reasons else ""
        raise DecodingError(f"no attention of the model appends keys and values to a cache{why}")
    read_sizes_elsewhere(target.graph, [past for node in attentions for past in node.inputs[3:5]])
    for node in attentions:
        heads, size = heads_of(node)
        for value in (*node.inputs[3:5], *node.outputs[1:3]):
            value.shape = ir.Shape([value.shape[0], heads, CAPACITY, size])
    optimize(target)
    return to_proto(target) if is_proto else target


def heads_of(attention: ir.Node) -> tuple[int, int]:
    """The number of heads of keys and values, and their size, which those of latent attention have in the cache only now."""
    of_queries, heads = attribute_of(attention, "num_heads"), attribute_of(attention, "kv_num_heads")
    is_packed = attention.inputs[1] is None
    return heads, attention.inputs[0].shape[2] // (of_queries + 2 * heads if is_packed else of_queries)


def read_sizes_elsewhere(graph: ir.Graph, pasts: list[ir.Value]) -> None:
    """What reads the sizes of the pasts reads those of mask and tokens instead."""
    mask, tokens = matrix(graph, "mask"), matrix(graph, "tokens")
    for past in pasts:
        for node in [use.node for use in past.uses() if use.node.op_type != ATTENTION]:
            axes = range(4)[attribute_of(node, "start", 0) : attribute_of(node, "end")]
            if node.op_type != "Shape" or axes not in (range(2, 3), range(1)):
                raise DecodingError(f"{past.name} is also read by {node.op_type} {node.name}")
            if axes == range(1):
                sizes = [ir.node("Shape", [tokens], {"start": 0, "end": 1})]
            else:
                sizes = [ir.node("Shape", [value], {"start": 1, "end": 2}) for value in (mask, tokens)]
                sizes.append(ir.node("Sub", [size.outputs[0] for size in sizes]))
            node.graph.insert_before(node, sizes)
            (result,) = sizes[-1].outputs
            result.type, result.shape = node.outputs[0].type, node.outputs[0].shape
            node.outputs[0].replace_all_uses_with(result)
            node.graph.remove(node, safe=True)


def matrix(graph: ir.Graph, kind: str) -> ir.Value:
    """The input that holds the mask, or the tokens, by type and name as `Interface` finds them."""
    for value in graph.inputs:
        is_matrix = value.dtype == ir.DataType.INT64 and value.shape is not None and len(value.shape) == 2
        if is_matrix and role_of_integers(value.name) == kind:
            return value
    raise DecodingError(
        f"mask and tokens tell how many tokens the cache holds: no input int64[batch, *] is the {kind}"
    )
