"""Decompositions: which operators torch replaces by simpler ones before the graph is converted.

None is needed: the exporter translates the operators of ATen as they are. What it does not know, torch may be able to decompose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from experimental_experiment.torch_interpreter import translations  # noqa: F401 (they register)
from experimental_experiment.torch_interpreter.registry import TRANSLATIONS

Table = dict[Any, Callable]


def get_decomposition_table() -> Table:
    """The recommended decompositions: torch's core ones for the operators that the exporter does not translate."""
    return filter_decomposition_table()


def filter_decomposition_table(
    existing: Mapping[Any, Callable] | None = None, keep: Iterable[Any] | Callable[[Any], bool] = ()
) -> Table:
    """A table without the decompositions of operators that have a translation: those give better graphs whole.

    Args:
        existing: ``{overload: decomposition}``, torch's core decompositions by default.
        keep: overloads to decompose all the same, or a function that says whether an overload is one.

    Raises TypeError for a table that is no dict, and for names and packets among *keep*, which no table holds.
    """
    if not (existing is None or isinstance(existing, Mapping)):
        raise TypeError(f"existing is a dict of decompositions, not {existing!r}")
    if not callable(keep):
        kept = tuple(keep) if isinstance(keep, Iterable) else (keep,)
        if not all(isinstance(target, torch._ops.OperatorBase) for target in kept):
            raise TypeError(f"keep is a list of overloads, as torch.ops.aten.gelu.default, not {keep!r}")
        keep = frozenset(kept).__contains__
    existing = dict(core_aten_decompositions()) if existing is None else existing
    return {
        target: function
        for target, function in existing.items()
        if target not in TRANSLATIONS or keep(target)
    }


def table_of(choice: str | Mapping[Any, Callable] | None) -> Table:
    """What ``ExportOptions.decomposition_table`` asks for."""
    if isinstance(choice, str):  # "default"
        return dict(core_aten_decompositions())
    return dict(choice or {})


def decomposed(module: torch.fx.GraphModule, table: Mapping[Any, Callable]) -> torch.fx.GraphModule:
    """An ATen graph whose operators of *table* are decomposed; the graph itself when it has none of them."""
    if not any(node.target in table for node in module.graph.nodes if node.op == "call_function"):
        return module
    fakes = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    mode = next(fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor))
    with mode, preserve_node_meta():
        run = torch.fx.Interpreter(module).run
        return make_fx(run, decomposition_table=table, tracing_mode="real", _allow_non_fake_inputs=True)(
            *fakes
        )
