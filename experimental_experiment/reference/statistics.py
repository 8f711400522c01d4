"""What a result looks like, in a few words: dtype, shape, smallest and largest value, number of NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def described(value: Any) -> str:
    """``float32[2, 3] min=-1.5 max=2 nan=0``; of a sequence, that of each element; anything else as Python prints it."""
    if isinstance(value, np.ndarray):
        return " ".join([f"{value.dtype.name}{[*value.shape]}", *extremes(value)])
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return ", ".join(map(described, value))
    return str(value)


def extremes(array: np.ndarray) -> list[str]:
    """``min=``, ``max=`` and ``nan=`` of numbers; NaN is left out of the first two, and of them when there is nothing else."""
    if array.dtype.kind in "OSUTmM" or array.size == 0:
        return []
    if array.dtype.kind == "c":
        return [f"nan={np.isnan(array).sum()}"]
    if array.dtype.kind == "V":  # of ml_dtypes: bfloat16, int4, ...
        array = array.astype(np.float32)
    missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    numbers = array[~missing]
    limits = [f"min={numbers.min():g}", f"max={numbers.max():g}"] if numbers.size else []
    return [*limits, f"nan={missing.sum()}"]
