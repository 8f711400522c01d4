"""Which rewriting changes the results: `bisect`, and the random inputs of a model whose users are not known."""

from __future__ import annotations

import dataclasses
import numbers
import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from experimental_experiment.comparison import SHORT, elements, run_arrays, session, tensor_of
from experimental_experiment.feeds import refuse_misfits
from experimental_experiment.protos import from_proto, load
from experimental_experiment.reading import read
from experimental_experiment.refusals import UNLOADED
from experimental_experiment.torch_interpreter.dynamic_shapes import size_meant
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.xoptim.optimizer import optimize
from experimental_experiment.xoptim.options import OptimizationOptions
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.validity import check_options


@dataclasses.dataclass(frozen=True)
class Culprit:
    """The first rewriting that changes the results.

    Attributes:
        rule: name of the rule; ``""`` when the results change before any rule is applied: constants that are lifted, expressions
            that are shared, nodes that are removed.
        node: name of the node that it replaced.
        position: the number of rewritings before it; ``stop_after=position`` is right, ``position + 1`` is not.
        difference: the largest difference of an output, see `array_gap`; inf when onnxruntime refuses the optimized model.
    """

    rule: str
    node: str
    position: int
    difference: float


def bisect(
    model: onnx.ModelProto | str | os.PathLike,
    feeds: Mapping[str, np.ndarray],
    tolerance: float = 1e-5,
    options: OptimizationOptions | None = None,
) -> Culprit | None:
    """Find the first rewriting after which onnxruntime gives other results: about log2(rewritings) runs of the model.

    Args:
        model: a model, or its file.
        feeds: an array for each input.
        tolerance: largest difference of a float of an output, absolute or relative to the original's; all else is equal.
        options: what `optimize` is called with.

    Returns None when all rewritings together stay within the tolerance.
    Raises TypeError or ValueError for a model, options and arrays of other types, names and shapes.
    """
    if not isinstance(model, (onnx.ModelProto, str, os.PathLike)):
        raise TypeError(f"a model is an onnx.ModelProto or the path of a file, not {type(model).__name__}")
    check_options(options)
    if not isinstance(tolerance, numbers.Real) or isinstance(tolerance, bool):
        raise TypeError(f"tolerance is a number, not {tolerance!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance is at least 0, not {tolerance}")
    refuse_misfits((model if isinstance(model, onnx.ModelProto) else read(model)).graph, feeds)
    options = options or OptimizationOptions()
    expected = results(model, feeds)
    report = Report()

    def compared(position: int | None, report: Report | None = None) -> tuple[float, bool]:
        stopped = optimized(model, dataclasses.replace(options, stop_after=position), report)
        try:
            return gap(expected, results(stopped, feeds), tolerance)
        except UNLOADED:  # the model that was given ran on these feeds
            return UNLIKE

    after, within = compared(options.stop_after, report)
    if within:
        return None

    first, within = compared(0)
    if not within:
        return Culprit("", "", 0, first)
    right, wrong = 0, len(report.applications)
    while wrong - right > 1:
        middle = (right + wrong) // 2
        found, within = compared(middle)
        if within:
            right = middle
        else:
            wrong, after = middle, found
    rule, node = report.applications[right]
    return Culprit(rule, node, right, after)


def optimized(
    model: onnx.ModelProto | str | os.PathLike, options: OptimizationOptions, report: Report | None = None
) -> ir.Model:
    """The model after `optimize`; the weights of a file are read where it refers to them."""
    target = from_proto(model) if isinstance(model, onnx.ModelProto) else load(model)
    optimize(target, options, report=report)
    return target


def results(
    model: ir.Model | onnx.ModelProto | str | os.PathLike, feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The outputs of a model in onnxruntime."""
    if not isinstance(model, ir.Model):
        return run_arrays(session(model), feeds)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        save(model, path)
        return run_arrays(session(path), feeds)


def gap(expected: Any, got: Any, tolerance: float | None = None) -> tuple[float, bool]:
    """The largest difference of two lists of outputs, see `array_gap`, and whether all of them are within the *tolerance*.

    An output is an array, or of a model's sequences, maps and optionals a list, a dict, None; inf when these are not alike.
    """
    if isinstance(expected, np.ndarray) and isinstance(got, np.ndarray):
        return array_gap(expected, got, tolerance)
    if type(expected) is not type(got):
        return UNLIKE
    if isinstance(expected, dict):
        if list(expected) != list(got):
            return UNLIKE
        expected, got = list(expected.values()), list(got.values())
    if isinstance(expected, list):
        if len(expected) != len(got):
            return UNLIKE
        found = [gap(a, b, tolerance) for a, b in zip(expected, got)]
        return max((difference for difference, _ in found), default=0.0), all(within for _, within in found)
    if expected is None:
        return ALIKE
    if isinstance(expected, float):  # of a map or a sequence: float32 in the model
        expected, got = np.float32(expected), np.float32(got)
    return array_gap(np.asarray(expected), np.asarray(got), tolerance)


ALIKE, UNLIKE = (0.0, True), (float("inf"), False)
"""What `gap` says of results that are the same, and of those that cannot be compared."""


def array_gap(expected: np.ndarray, got: np.ndarray, tolerance: float | None = None) -> tuple[float, bool]:
    """The largest difference of two arrays, absolute or relative to the first, and whether they are within the *tolerance*.

    The difference of an element is the smaller of both, of integers the absolute one; inf when dtypes, shapes, NaN or infinities differ.
    None stands for the tolerance of the dtype, see `comparison.elements`. Integers and booleans are equal, whatever it is.
    """
    if (expected.dtype, expected.shape) != (got.dtype, got.shape):
        return UNLIKE
    if expected.size == 0:
        return ALIKE
    if expected.dtype not in SHORT and expected.dtype.kind not in "fiub":
        return ALIKE if np.array_equal(expected, got) else UNLIKE
    first, second = tensor_of(expected), tensor_of(got)
    found = elements(first, second)
    if not first.is_floating_point():
        return float(found.absolute.max()), bool(found.excess.max() <= 1)
    difference = float(found.absolute.minimum(found.relative).max())
    return difference, bool(found.excess.max() <= 1) if tolerance is None else difference <= tolerance


def random_feeds(
    runner: onnxruntime.InferenceSession,
    seed: int = 0,
    size: int = 3,
    sizes: Mapping[str, int] | None = None,
    but: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Random inputs of a model: normal floats, 0 and 1 for integers and booleans; a dimension without a size has *size* elements.

    *sizes*: that of a dimension by its name; *but*: names of inputs that are left out.
    Raises ValueError for an input that is no tensor of numbers.
    """
    generator = np.random.default_rng(seed)
    known = sizes_by_name([argument.shape for argument in runner.get_inputs()], size, sizes or {})
    feeds = {}
    for argument in runner.get_inputs():
        if argument.name in but:
            continue
        kind = argument.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype(kind) if kind in KINDS else OTHER_KINDS.get(kind)
        if dtype is None:
            raise ValueError(f"the input {argument.name} is a {argument.type}: it has no random values")
        shape = [dim if isinstance(dim, int) else known.get(dim, size) for dim in argument.shape]
        floats = generator.normal(size=shape)
        feeds[argument.name] = np.asarray(floats > 0 if dtype.kind in "biu" else floats, dtype)
    return feeds


def sizes_by_name(shapes: Iterable[list], size: int, given: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the dimensions that have a name: *size* where none is given, and what is meant by ``past + new``, as decoders call it."""
    names = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
    plain = {name: given.get(name, size) for name in names if name.isidentifier() or name in given}
    meant = {name: size_meant(name, plain) for name in names - set(plain)}
    return {name: found for name, found in meant.items() if found is not None and found >= 0} | plain


KINDS = frozenset("float16 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""Types of onnxruntime that numpy calls the same."""

OTHER_KINDS = {
    "bfloat16": ir.DataType.BFLOAT16.numpy(),
    "double": np.dtype("float64"),
    "float": np.dtype("float32"),
}
"""Those that it calls otherwise, or lacks."""
