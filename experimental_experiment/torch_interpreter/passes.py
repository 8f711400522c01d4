"""What is changed in a model after it was written: what nothing uses and what stands twice is removed.

onnx-ir's identity elimination is not among these passes: it renames a value that two outputs copy, and joins the output of
a subgraph with a value of the outer graph. The emitter writes an Identity only where one is needed.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import PassManager
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
    RemoveUnusedOpsetsPass,
)

PASSES = {
    "unused nodes and weights": RemoveUnusedNodesPass,
    "small constants that stand twice": DeduplicateInitializersPass,
    "expressions that stand twice": CommonSubexpressionEliminationPass,
    "what is unused since": RemoveUnusedNodesPass,
    "unused operator sets": RemoveUnusedOpsetsPass,
}
"""What each pass removes, in the order in which they run."""

ALWAYS = ("unused nodes and weights", "unused operator sets")
"""The passes of a model that is not optimized."""


def remove_redundant(model: ir.Model, optimize: bool) -> None:
    """Run the passes over a model, all of them with *optimize*."""
    names = PASSES if optimize else ALWAYS
    PassManager([PASSES[name]() for name in names])(model)
