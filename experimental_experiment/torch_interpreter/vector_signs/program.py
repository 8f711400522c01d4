"""Whether a program gives the same for all signs of some vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from experimental_experiment.torch_interpreter.vector_signs import axes, products  # noqa: F401 (they register)
from experimental_experiment.torch_interpreter.vector_signs.factors import Factors, SignsMatter
from experimental_experiment.torch_interpreter.vector_signs.flow import Flow


def depends_on_signs(vectors: Mapping[torch.fx.Node, Factors]) -> torch.fx.Node | None:
    """The first node that gives something else when the *vectors* of a decomposition, results with these factors, have other signs; None without one."""
    flow = Flow()
    for node in next(iter(vectors)).graph.nodes:
        if node in vectors:
            flow.factors[node] = vectors[node]
            continue
        try:
            flow.follow(node)
        except SignsMatter:
            return node
    return None
