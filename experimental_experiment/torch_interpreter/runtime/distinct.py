"""Distinct elements among which there are NaN."""

from __future__ import annotations

import math

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.unique import runs
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.ordering import with_ordered_nan
from experimental_experiment.torch_interpreter.runtime.table import repairs


@repairs(
    "Unique",
    when="floats that hold NaN, not slices",
    because="NaN is equal to every element, which are lost",
    nodes=17,
    special_values=True,
)
def runs_of_equals(op, x, *, outputs, axis=None, sorted=1):
    """The elements in order, NaN last, cut into runs of equal ones; a NaN equals nothing."""
    if x.dtype not in dtypes.FLOATS or (axis is not None and rank(x) != 1):
        return None
    x = op.Reshape(x, [-1])
    key = with_ordered_nan(op, x, math.inf)
    _, order = op.TopK(key, op.shape([op.size(x, 0)]), largest=0, outputs=2)
    ascending = op.Gather(x, order)
    where, place, counts = runs(op, ascending, 0)
    inverse = op.ScatterElements(place, order, place)
    results = op.Gather(ascending, where), op.Gather(order, where), inverse, counts
    return results[:outputs] if outputs else results[0]
