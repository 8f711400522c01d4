"""What is removed from a model after it was written: what nothing uses, what stands twice.

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


def clean(model: ir.Model, optimize: bool) -> None:
    """Remove unused nodes and weights; with *optimize* also common subexpressions and duplicate small constants."""
    passes = [RemoveUnusedNodesPass()]
    if optimize:
        passes += [
            DeduplicateInitializersPass(),
            CommonSubexpressionEliminationPass(),
            RemoveUnusedNodesPass(),
        ]
    PassManager([*passes, RemoveUnusedOpsetsPass()])(model)
