"""Whether onnxruntime's own graph optimization changes the results of a model, and which of its optimizers does."""

from __future__ import annotations

import collections
import dataclasses
import os
import tempfile
from collections.abc import Callable, Sequence

import onnx
import torch

from experimental_experiment.comparison import run
from experimental_experiment.investigate.gaps import gap
from experimental_experiment.investigate.onnx_side import FULL, PLAIN, Given, session_at
from experimental_experiment.refusals import FAILURES

RULES = (
    "CastChainElimination CastElimination ClipQuantRewrite ConvAddFusion ConvBNFusion ConvMulFusion DivMulFusion EliminateDropout "
    "EliminateIdentity EliminateSlice ExpandElimination FuseReluClip GemmSumFusion GemmTransposeFusion LabelEncoderFusion "
    "MatMulBNFusion NoopElimination NotWhereFusion Pad_Fusion PreShapeNodeElimination ReluQuantRewrite UnsqueezeElimination"
).split()
"""The rules inside of ``Level1_RuleBasedTransformer`` and ``Level2_RuleBasedTransformer``."""

TRANSFORMERS = (
    "AttentionFusion BiasDropoutFusion BiasGeluFusion BiasSkipLayerNormFusion BiasSoftmaxFusion CastFloat16Transformer "
    "CommonSubexpressionElimination ConstantFolding ConstantSharing ConvActivationFusion ConvAddActivationFusion "
    "DoubleQDQPairsRemover DynamicQuantizeMatMulFusion EmbedLayerNormFusion EnsureUniqueDQForNodeUnit FastGeluFusion "
    "FreeDimensionOverrideTransformer FuseFp16InitializerToFp32NodeTransformer GatherSliceToSplitFusion GatherToSliceFusion "
    "GeluFusionL1 GeluFusionL2 GemmActivationFusion GroupQueryAttentionFusion GroupQueryAttentionPreNormFusion LayerNormFusionL1 "
    "LayerNormFusionL2 Level1_RuleBasedTransformer Level2_RuleBasedTransformer MatMulActivationFusion MatMulAddFusion "
    "MatMulIntegerToFloatFusion MatMulNBitsFusion MatMulScaleFusion MatmulTransposeFusion MemcpyTransformer NchwcTransformer "
    "NhwcTransformer QDQFinalCleanupTransformer QDQPropagationTransformer QDQS8ToU8Transformer QDQSelectorActionTransformer "
    "QuickGeluFusion RemoveDuplicateCastTransformer ReshapeFusion SimplifiedLayerNormFusion SkipLayerNormFusion "
    "SliceConcatToSpaceToDepthFusion SwiGluFusion TransposeOptimizer TransposeOptimizer_CPUExecutionProvider "
    "WeightBiasQuantization WhereDummyDq"
).split()
"""What onnxruntime 1.31 and 1.32 apply on the CPU, as its log names it."""

MOST = 3
"""Nodes that are named of those that some optimizers write."""


@dataclasses.dataclass(frozen=True)
class Blame:
    """What onnxruntime's optimization does to a model.

    Attributes:
        optimizers: those without which the results are those of the graph as it is written; empty when they are not known.
        difference: the difference of the outputs, or the error with which the optimized model stops.
        nodes: what the optimizer wrote, ``Operator name``, the first ones.
        rounds: whether the optimized model is only rounded otherwise, as near to float64 as the other one: nobody is to blame.
    """

    optimizers: tuple[str, ...]
    difference: str
    nodes: tuple[str, ...] = ()
    rounds: bool = False

    def __str__(self) -> str:
        if self.rounds:
            return f"onnxruntime's optimization rounds otherwise ({self.difference})"
        if not self.optimizers:
            return f"onnxruntime's optimization changes the results ({self.difference}), by an optimizer that is not known"
        verb = "changes" if len(self.optimizers) == 1 else "change"
        written = f"; nodes: {', '.join(self.nodes)}" if self.nodes else ""
        return (
            f"onnxruntime's {' and '.join(self.optimizers)} {verb} the results ({self.difference}){written}; "
            f"without it: InferenceSession(..., disabled_optimizers={list(self.optimizers)})"
        )


Outputs = Sequence[torch.Tensor]


def blame(
    model: Given,
    inputs: Sequence[torch.Tensor],
    scale: float = 1.0,
    rounds: Callable[[Outputs, Outputs], bool] | None = None,
) -> Blame | None:
    """What onnxruntime's optimization changes in the outputs of a model, None when it changes nothing.

    The model is run as it is written and fully optimized; when they differ, without halves, quarters, ... of the
    optimizers: about twenty sessions for one culprit. *rounds* tells whether the outputs of both differ by rounding. Raises what onnxruntime raises when the model as it is written cannot be run.
    """
    plain = run(session_at(model, PLAIN), inputs)
    got: list[torch.Tensor] = []

    def changes(disabled: Sequence[str]) -> str:
        try:
            got[:] = run(session_at(model, FULL, disabled), inputs)
        except FAILURES as error:
            got.clear()
            return str(error).splitlines()[0]
        gaps = [gap(expected, result, scale) for expected, result in zip(plain, got)]
        worst = max(gaps, key=lambda item: item.excess)
        return "" if worst.within else str(worst)

    difference = changes(())
    if not difference:
        return None
    if got and rounds is not None and rounds(plain, got):
        return Blame((), difference, rounds=True)
    names = [*TRANSFORMERS, *RULES]
    if changes(names):
        return Blame((), difference)
    optimizers = smallest(names, lambda disabled: not changes(disabled))
    return Blame(optimizers, difference, written_by(model, optimizers))


def smallest(names: Sequence[str], repairs: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """The names that are left when all without which the others still repair are taken out, the first ones first."""
    kept, size = list(names), len(names) // 2
    while size:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if repairs(rest):
                kept = rest
            else:
                start += size
        size //= 2
    return tuple(kept)


def written_by(model: Given, optimizers: Sequence[str]) -> tuple[str, ...]:
    """At most `MOST` nodes of the optimized model that are not there without some optimizers, as ``Operator name``."""
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        for disabled in ((), optimizers):
            path = os.path.join(folder, f"without_{len(disabled)}.onnx")
            session_at(model, FULL, disabled, written_to=path)
            optimized = onnx.load(path, load_external_data=False)
            counts.append(
                collections.Counter(f"{node.op_type} {node.name}".strip() for node in optimized.graph.node)
            )
    return tuple(counts[0] - counts[1])[:MOST]
