"""Operators of ONNX that onnx 1.23 computes wrongly, or refuses, in cases that models have.

Each replaces that of onnx for all versions from 13 on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from experimental_experiment.reference.operators.convolution import evaluated
from experimental_experiment.reference.operators.normalization import normalized
from experimental_experiment.reference.registry import OPERATORS, computes


@computes("AffineGrid", domain="")
def affine_grid(theta, size, *, align_corners=0):
    """In onnx a grid of float64 is float32."""
    sizes = size[2:].tolist()
    axes = [
        np.linspace(-1, 1, count) if align_corners else (2 * np.arange(count) + 1) / count - 1
        for count in sizes
    ]
    places = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(sizes)], axis=-1)
    grid = places.reshape(-1, len(sizes) + 1) @ theta.swapaxes(1, 2)
    return grid.reshape(len(theta), *sizes, len(sizes)).astype(theta.dtype)


@computes("BatchNormalization", domain="")
def batch_normalization(x, scale, bias, mean, variance, **attributes):
    """In onnx that of opset 13 updates the statistics, for its momentum has a default."""
    return evaluated("BatchNormalization", x, scale, bias, mean, variance, **attributes)


@computes("ConvTranspose", domain="")
def conv_transpose(x, w, bias=None, *, group=1, **attributes):
    """In onnx groups have one channel each."""
    images = [
        evaluated("ConvTranspose", part, kernel, group=1, **attributes)
        for part, kernel in zip(np.split(x, group, axis=1), np.split(w, group))
    ]
    image = np.concatenate(images, axis=1)
    return image if bias is None else image + bias.reshape(1, -1, *[1] * (x.ndim - 2))


@computes("Flatten", domain="")
def flatten(x, *, axis=1):
    """In onnx a tensor without elements has no matrix."""
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@computes("GatherElements", domain="")
def gather_elements(data, indices, *, axis=0):
    """In onnx 32 elements at most, and as many indices as elements along the other axes."""
    kept = [slice(size) for size in indices.shape]
    kept[axis] = slice(None)
    return np.take_along_axis(data[tuple(kept)], indices.astype(np.int64), axis)


@computes("LayerNormalization", domain="")
def layer_normalization(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """In onnx the mean and the deviation are computed in half precision, where squares overflow."""
    result, mean, inverse = normalized(x, epsilon, axis)
    result = result.astype(x.dtype) * scale
    return result if bias is None else result + bias, mean, inverse


@computes("LogSoftmax", domain="")
def log_softmax(x, *, axis=-1):
    """In onnx the logarithm of a weight that underflows is -inf."""
    if x.size == 0:
        return x
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    below = wide - wide.max(axis=axis, keepdims=True)
    return (below - np.log(np.exp(below).sum(axis=axis, keepdims=True))).astype(x.dtype)


@computes("Pad", domain="")
def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    """In onnx no amount is negative: such a one removes elements, before others are added."""
    axes = range(data.ndim) if axes is None else axes
    amounts = np.zeros((data.ndim, 2), np.int64)
    amounts[list(axes)] = pads.reshape(2, -1).T
    kept = tuple(
        slice(max(0, -begin), size - max(0, -end)) for size, (begin, end) in zip(data.shape, amounts)
    )
    options = {}
    if mode == "constant":
        options["constant_values"] = 0 if constant_value is None else constant_value.reshape(())
    return np.pad(data[kept], np.maximum(amounts, 0), mode=mode, **options)


@computes("Pow", domain="")
def power(a, b):
    """In onnx no exponent of integers is negative."""
    if a.dtype.kind not in "iu" or b.dtype.kind != "i":
        return np.power(a, b).astype(a.dtype)
    positive = np.power(a, np.maximum(b, 0).astype(a.dtype))
    reciprocal = np.where(np.abs(a) == 1, np.power(a, np.abs(b % 2).astype(a.dtype)), 0)
    return np.where(b < 0, reciprocal, positive).astype(a.dtype)


@computes("RMSNormalization", domain="")
def rms_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """In onnx the mean square is computed in half precision, where it overflows."""
    result, _, _ = normalized(x, epsilon, axis, centred=False)
    return result.astype(x.dtype).astype(scale.dtype) * scale


@computes("ReduceMean", domain="")
def reduce_mean(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    """In onnx the sum of half precision overflows."""
    if axes is None or len(axes) == 0:
        if noop_with_empty_axes:
            return data
        axes = range(data.ndim)
    wide = data if data.dtype.itemsize > 2 else data.astype(np.float32)
    return np.asarray(wide.mean(axis=tuple(map(int, axes)), keepdims=bool(keepdims)).astype(data.dtype))


class Loop(OpRun):
    """In onnx the results of the steps stand one behind the other along their first axis instead of along a new one."""

    op_domain = ""

    def need_context(self) -> bool:
        """The body reads results from outside."""
        return True

    def _run(
        self, trips=None, condition=None, *carried: Any, context=None, attributes=None, body=None, **_: Any
    ) -> tuple:
        values, goes_on = list(carried), True if condition is None else bool(condition)
        steps: list[list[np.ndarray]] = []
        while goes_on and (trips is None or len(steps) < int(trips)):
            now = [np.array(len(steps), np.int64), np.array(True), *values]
            results = body.run(
                None, {**(context or {}), **dict(zip(body.input_names, now))}, attributes=attributes
            )
            goes_on, values = bool(results[0]), results[1 : 1 + len(carried)]
            steps.append(results[1 + len(carried) :])
        return *values, *stacked_steps(steps, body.output_types[1 + len(carried) :])


class Scan(OpRun):
    """In onnx the axes are the first ones, the directions forward, and there is one step at least."""

    op_domain = ""

    def need_context(self) -> bool:
        """The body reads results from outside."""
        return True

    def _run(self, *inputs: Any, context: dict | None = None, attributes: Any = None, **given: Any) -> tuple:
        body: onnx.reference.ReferenceEvaluator = given["body"]
        carried = len(inputs) - given["num_scan_inputs"]
        states, sequences = list(inputs[:carried]), inputs[carried:]
        axes, directions = (
            given[f"scan_input_{name}"] or [0] * len(sequences) for name in ("axes", "directions")
        )
        sequences = [turned(np.moveaxis(x, axis, 0), to) for x, axis, to in zip(sequences, axes, directions)]
        names = body.input_names
        steps: list[list[np.ndarray]] = []
        for position in range(len(sequences[0])):
            now = [*states, *(sequence[position] for sequence in sequences)]
            results = body.run(None, {**(context or {}), **dict(zip(names, now))}, attributes=attributes)
            states, produced = results[:carried], results[carried:]
            steps.append(produced)
        stacked = stacked_steps(steps, body.output_types[carried:])
        axes, directions = (
            given[f"scan_output_{name}"] or [0] * len(stacked) for name in ("axes", "directions")
        )
        return *states, *(
            np.moveaxis(turned(x, to), 0, axis) for x, axis, to in zip(stacked, axes, directions)
        )


OPERATORS += [Loop, Scan]


def turned(sequence: np.ndarray, direction: int) -> np.ndarray:
    """A sequence from its end when *direction* is 1."""
    return sequence[::-1] if direction else sequence


def stacked_steps(steps: Sequence[Sequence[np.ndarray]], types: Sequence[onnx.TypeProto]) -> list[np.ndarray]:
    """The results of all steps along a new first axis, for each output of these types."""
    return [np.stack(each) for each in zip(*steps)] if steps else [no_step(kind) for kind in types]


def no_step(kind: onnx.TypeProto) -> np.ndarray:
    """What is stacked of no step: sizes that the body does not name are 0."""
    sizes = [size.dim_value for size in kind.tensor_type.shape.dim]
    return np.zeros((0, *sizes), onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
