"""`profile`: where onnxruntime spends the time of a model: by operator, by module, in the products that no rewriting removes.

Source of the times: onnxruntime's own profiler, which writes the time of each kernel.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import importlib
import importlib.util
import json
import os
import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch
from tabulate import tabulate

from experimental_experiment.comparison import array_of, array_to_ort, session_options
from experimental_experiment.feeds import refuse_misfits
from experimental_experiment.helpers import module_path, subgraphs
from experimental_experiment.investigate.onnx_side import WRITTEN_BESIDE
from experimental_experiment.plotting.dot import COLOURS, PLAIN
from experimental_experiment.plotting.drawing import PACKAGE
from experimental_experiment.protos import no_model, to_proto
from experimental_experiment.reading import read
from experimental_experiment.torch_interpreter.arguments import refuse_no_count
from experimental_experiment.xoptim.bisection import random_feeds

PRODUCTS = frozenset(
    "Attention Conv ConvInteger ConvTranspose DynamicQuantizeMatMul Einsum FusedConv FusedGemm FusedMatMul GRU Gemm GroupQueryAttention "
    "LSTM MatMul MatMulInteger MatMulIntegerToFloat MatMulNBits MultiHeadAttention QGemm QLinearConv QLinearMatMul RNN".split()
)
"""Operators whose time is the floor: products, and those that are made of products."""

UNKNOWN = "(no module)"
KERNEL = "_kernel_time"
MOST = 15
"""Rows of a table, bars of a plot."""


@dataclasses.dataclass(frozen=True)
class NodeTime:
    """A kernel that onnxruntime runs.

    Attributes:
        name: what onnxruntime calls the node, which it may have fused out of several.
        op_type: the operator, after onnxruntime's fusions.
        module: path of the module that it comes from, ``""`` when it is not known.
        milliseconds: time of one run of the model, without that of the nodes of its body.
        calls: how often one run of the model calls it.
    """

    name: str
    op_type: str
    module: str
    milliseconds: float
    calls: float


@dataclasses.dataclass(frozen=True)
class Share:
    """The time of several kernels together.

    Attributes:
        name: what they share.
        milliseconds: time of one run of the model.
        part: that time as a part of the time of all kernels.
        calls: number of kernels in one run.
    """

    name: str
    milliseconds: float
    part: float
    calls: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """Times of a model; printed, it is two tables.

    Attributes:
        nodes: the kernels, in the order of their first call.
        milliseconds: time of one run of the model, that between kernels included.
        runs: number of runs that the times are the median of.
    """

    nodes: tuple[NodeTime, ...]
    milliseconds: float
    runs: int

    @property
    def in_kernels(self) -> float:
        """Milliseconds of one run that kernels take."""
        return sum(node.milliseconds for node in self.nodes)

    @property
    def floor(self) -> float:
        """Milliseconds of one run in products (MatMul, Gemm, Conv, attention): what a rewriting of the graph does not save."""
        return sum(node.milliseconds for node in self.nodes if node.op_type in PRODUCTS)

    def by_operator(self) -> list[Share]:
        """The time of each operator, the longest first."""
        return self.shares(lambda node: node.op_type)

    def by_module(self, depth: int | None = None, layers: bool = False) -> list[Share]:
        """The time of each module, the longest first.

        *depth*: names of a path that count, all of them for None. *layers*: keep the layers apart, ``layers.0`` and ``layers.1``,
        which are ``layers.*`` otherwise.
        """

        def key(node: NodeTime) -> str:
            path = node.module if layers else re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", node.module)
            return ".".join(path.split(".")[:depth]) or UNKNOWN

        return self.shares(key)

    def shares(self, key: Callable[[NodeTime], str]) -> list[Share]:
        """The time of the kernels with the same key."""
        groups: dict[str, list[NodeTime]] = collections.defaultdict(list)
        for node in self.nodes:
            groups[key(node)].append(node)
        total = self.in_kernels or 1.0
        found = [
            Share(
                name,
                time := sum(node.milliseconds for node in nodes),
                time / total,
                sum(n.calls for n in nodes),
            )
            for name, nodes in groups.items()
        ]
        return sorted(found, key=lambda share: -share.milliseconds)

    def __str__(self) -> str:
        total = self.in_kernels or 1.0
        lines = [
            f"{self.milliseconds:.3f} ms a run, median of {self.runs}; {self.in_kernels:.3f} ms in kernels, "
            f"{self.floor:.3f} ms ({self.floor / total:.0%}) of them in products"
        ]
        for title, shares in (("operator", self.by_operator()), ("module", self.by_module())):
            if title == "module" and all(share.name == UNKNOWN for share in shares):
                lines.append("the nodes do not say which modules they come from")
                continue
            lines.append(table(title, shares))
        return "\n\n".join(lines)

    def plot(self, axes: Sequence[Any] | None = None) -> Sequence[Any]:
        """Bars of the time of each operator and of each module, on two axes of matplotlib, new ones for None.

        Operators have the colours of `plot_dot`. Returns the axes; raises ImportError when matplotlib is missing.
        """
        if axes is None:
            if importlib.util.find_spec("matplotlib") is None:
                raise ImportError(PACKAGE.format(name="matplotlib"))
            pyplot = importlib.import_module("matplotlib.pyplot")
            rows = max(len(self.by_operator()[:MOST]), len(self.by_module()[:MOST]))
            _, axes = pyplot.subplots(1, 2, figsize=(14, 1.2 + 0.32 * rows), layout="constrained")
        for ax, shares in zip(axes, (self.by_operator(), self.by_module())):
            bars(ax, shares[:MOST])
        axes[0].set_title(
            f"{self.milliseconds:.3g} ms a run, {self.floor:.3g} ms in products", loc="left", fontsize=10
        )
        axes[1].set_title("by module", loc="left", fontsize=10)
        return axes


def table(title: str, shares: Sequence[Share]) -> str:
    """Rows of names, calls, milliseconds, per cent, and per cent of all above."""
    rows, sum_of_parts = [], 0.0
    for share in shares[:MOST]:
        sum_of_parts += share.part
        calls = f"{share.calls:g}"
        rows.append(
            [share.name, calls, f"{share.milliseconds:.3f}", f"{share.part:.1%}", f"{sum_of_parts:.1%}"]
        )
    if len(shares) > MOST:
        others = shares[MOST:]
        time, number = sum(share.milliseconds for share in others), sum(share.calls for share in others)
        rows.append(
            [f"{len(others)} others", f"{number:g}", f"{time:.3f}", f"{1 - sum_of_parts:.1%}", "100.0%"]
        )
    align = ("left", "right", "right", "right", "right")
    return tabulate(rows, [title, "calls", "ms", "share", "sum"], disable_numparse=True, colalign=align)


def bars(ax: Any, shares: Sequence[Share]) -> None:
    """Horizontal bars, the longest above, with their milliseconds."""
    names = [share.name for share in shares]
    colours = [COLOURS.get(name, PLAIN)[1] for name in names]
    drawn = ax.barh(range(len(shares)), [share.milliseconds for share in shares], color=colours, height=0.7)
    ax.bar_label(
        drawn, [f"{share.milliseconds:.3g} ms, {share.part:.0%}" for share in shares], padding=3, fontsize=8
    )
    ax.set_yticks(range(len(shares)), names, fontsize=9)
    ax.invert_yaxis()
    ax.margins(x=0.2)
    ax.set_xlabel("ms", fontsize=9)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def profile(
    onnx_model: onnx.ModelProto | ir.Model | str | os.PathLike,
    feeds: Mapping[str, np.ndarray | torch.Tensor] | None = None,
    runs: int = 20,
    warmup: int = 3,
    threads: int | None = None,
) -> Profile:
    """Run a model in onnxruntime with its profiler; the time of each kernel.

    Args:
        onnx_model: a model, an `onnx_ir` model, or a file; one with external data is given by its file.
        feeds: an array or a tensor for each input, random ones for None.
        runs: runs that the times are the median of.
        warmup: runs before them.
        threads: how many one operator may use; None leaves it to onnxruntime.

    A body's time is that of its own nodes, so that the times of all kernels add up. Raises OSError when the system has no place
    for onnxruntime's own file, TypeError or ValueError for what is no model and for inputs that it does not take.
    """
    refuse_no_count(1, runs=runs)
    refuse_no_count(0, warmup=warmup)
    if threads is not None:
        refuse_no_count(1, threads=threads)
    model, folder = opened(onnx_model)
    arrays = None if feeds is None else arrays_of(model.graph, feeds)
    modules = named_modules(model)
    options = session_options(threads, folder)
    with tempfile.TemporaryDirectory() as temporary:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(temporary, "profile")
        runner = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        values = random_feeds(runner) if arrays is None else arrays
        given = {name: array_to_ort(np.asarray(value)) for name, value in values.items()}
        outputs = [output.name for output in runner.get_outputs()]
        for _ in range(warmup + runs):
            runner.run_with_ort_values(outputs, given)
        with open(runner.end_profiling()) as file:
            try:
                events = json.load(file)
            except json.JSONDecodeError as error:
                folder = os.path.dirname(temporary)
                raise OSError(f"onnxruntime did not write its profile to the end in {folder!r}") from error
    found = summed(events, modules, warmup)
    if any(not node.module for node in found.nodes) and any(modules.values()):
        modules |= modules_after_fusions(model, folder, modules)
        found = summed(events, modules, warmup)
    return found


def arrays_of(
    graph: onnx.GraphProto, feeds: Mapping[str, np.ndarray | torch.Tensor]
) -> Mapping[str, np.ndarray]:
    """Inputs as arrays. Raises TypeError or ValueError for what the graph does not take."""
    if isinstance(feeds, Mapping):
        feeds = {
            name: array_of(value) if isinstance(value, torch.Tensor) else value
            for name, value in feeds.items()
        }
    refuse_misfits(graph, feeds)
    return feeds


def modules_after_fusions(model: onnx.ModelProto, folder: str, modules: Mapping[str, str]) -> dict[str, str]:
    """The modules of the nodes that onnxruntime fused and gave other names, such as BiasGelu: those of their results.

    onnxruntime loads the model once more, to write what it makes of it.
    """
    options = session_options(folder=folder)
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        options.optimized_model_filepath = os.path.join(temporary, "fused.onnx")
        options.add_session_config_entry(WRITTEN_BESIDE, "weights")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        fused = onnx.load(options.optimized_model_filepath, load_external_data=False)
    for node in fused.graph.node:
        if node.name not in modules:
            found[node.name] = next((path for name in node.output if (path := module_of(name, modules))), "")
    return found


def opened(onnx_model: onnx.ModelProto | ir.Model | str | os.PathLike) -> tuple[onnx.ModelProto, str]:
    """A model of its own to change, and the folder of its external data. Raises TypeError for what is no model."""
    if isinstance(onnx_model, (str, os.PathLike)):
        return read(onnx_model), os.path.dirname(os.path.abspath(onnx_model))
    if isinstance(onnx_model, ir.Model):
        return to_proto(onnx_model), ""
    if not isinstance(onnx_model, onnx.ModelProto):
        raise no_model(onnx_model)
    copy = onnx.ModelProto()
    copy.CopyFrom(onnx_model)
    return copy, ""


def named_modules(model: onnx.ModelProto) -> dict[str, str]:
    """The module of each node by the name of the node and of its results; nodes without a name get one."""
    modules: dict[str, str] = {}
    pending = [model.graph, *model.functions]
    while pending:
        for position, node in enumerate(pending.pop().node):
            node.name = node.name or f"{node.op_type}_{position}"
            path = module_path(node)
            modules.update((name, path) for name in (node.name, *node.output) if name)
            pending += [body for attribute in node.attribute for _, body in subgraphs(attribute)]
    return modules


def module_of(name: str, modules: Mapping[str, str]) -> str:
    """The module of a node of onnxruntime's: fusions add to the names of a node or of a result, after ``/`` or ``_``."""
    while name and name not in modules:
        name = re.sub(r"(^|[/_])[^/_]*$", "", name)
    return modules.get(name, "")


def summed(events: Sequence[Mapping[str, Any]], modules: Mapping[str, str], warmup: int) -> Profile:
    """The medians over the runs after the first ones: one run that the machine interrupts changes nothing."""
    whole = sorted(
        (event for event in events if event["name"] == "model_run"), key=lambda event: event["ts"]
    )[warmup:]
    starts = [event["ts"] for event in whole]
    kernels = [
        event
        for event in events
        if event["cat"] == "Node" and event["name"].endswith(KERNEL) and event["ts"] >= starts[0]
    ]
    times: dict[tuple[str, str], list[float]] = collections.defaultdict(lambda: [0.0] * len(whole))
    calls: dict[tuple[str, str], int] = collections.Counter()
    for event, duration in exclusive(kernels):
        key = event["name"].removesuffix(KERNEL), event["args"]["op_name"]
        times[key][bisect.bisect_right(starts, event["ts"]) - 1] += duration
        calls[key] += 1
    nodes = [
        NodeTime(
            name,
            op_type,
            module_of(name, modules),
            statistics.median(each) / 1000,
            calls[name, op_type] / len(whole),
        )
        for (name, op_type), each in times.items()
    ]
    milliseconds = statistics.median(event["dur"] for event in whole) / 1000
    return Profile(tuple(nodes), milliseconds, len(whole))


def exclusive(kernels: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float]]:
    """Each event with its time without that of the events that it contains: those of a body."""
    ordered = sorted(kernels, key=lambda event: (event["ts"], -event["dur"]))
    times = [float(event["dur"]) for event in ordered]
    around: list[int] = []
    for position, event in enumerate(ordered):
        while around and ordered[around[-1]]["ts"] + ordered[around[-1]]["dur"] < event["ts"] + event["dur"]:
            around.pop()
        if around:
            times[around[-1]] -= event["dur"]
        around.append(position)
    return [(event, max(0.0, time)) for event, time in zip(ordered, times)]
