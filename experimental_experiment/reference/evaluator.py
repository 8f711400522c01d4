"""`ExtendedReferenceEvaluator`: onnx's evaluator with more operators and a log of every result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from experimental_experiment.feeds import refuse_misfits
from experimental_experiment.logs import logger
from experimental_experiment.protos import to_proto
from experimental_experiment.reading import read
from experimental_experiment.reference import operators  # noqa: F401 (they register)
from experimental_experiment.reference.registry import OPERATORS
from experimental_experiment.reference.statistics import described

RESULTS = 2
"""Level that onnx's evaluator gives to the lines of results; the beginning and the end of each operator come above it."""

Runnable = onnx.ModelProto | onnx.GraphProto | onnx.FunctionProto | onnx.NodeProto


class ExtendedReferenceEvaluator(ReferenceEvaluator):
    """``onnx.reference.ReferenceEvaluator`` with the operators of com.microsoft that onnxruntime fuses nodes into.

    Operators that onnx lacks or computes wrongly are replaced, see `experimental_experiment.reference.operators`.

    Args:
        proto: a model, a graph, a function, a node, an `onnx_ir` model, the bytes of a model or its file; external data of a
            file is read.
        opsets: versions of the operator sets, of a graph only.
        functions: the local functions that a graph or a function calls.
        verbose: 1 logs every node and every result (dtype, shape, smallest and largest value, number of NaN) at level INFO of
            the logger ``experimental_experiment``; 3 those inside If, Loop and Scan as well.
        new_ops: classes of operators, which come before those of this class.
        options: other arguments of onnx's evaluator, such as ``check_shape_annotations``.
    """

    def __init__(
        self,
        proto: Runnable | ir.Model | bytes | str | os.PathLike,
        opsets: Mapping[str, int] | None = None,
        functions: Sequence[ReferenceEvaluator | onnx.FunctionProto] | None = None,
        verbose: int = 0,
        new_ops: Sequence[type[OpRun]] | None = None,
        **options: Any,
    ):
        if isinstance(proto, (str, os.PathLike)):
            proto = read(proto, with_weights=True)
        elif isinstance(proto, ir.Model):
            proto = to_proto(proto)
        every = [*(new_ops or ()), *OPERATORS]
        super().__init__(proto, opsets=opsets, functions=functions, verbose=verbose, new_ops=every, **options)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool = False,
        **options: Any,
    ) -> list[Any] | dict[str, Any]:
        """The outputs of these names, all of them for None; with *intermediate* every result by its name, in the order of the nodes.

        Initializers and inputs come first in the dictionary. Results inside subgraphs and functions are not in it.
        Raises ValueError or TypeError for inputs that a model does not take, as onnxruntime refuses them.
        """
        if isinstance(self.proto_, onnx.ModelProto):  # a body is fed with what is around it
            refuse_misfits(self.proto_.graph, feed_inputs, "feed_inputs")
        results = super().run(output_names, feed_inputs, attributes, intermediate, **options)
        if intermediate:
            del results[""]  # an input that is left out
        return results

    def _log(self, level: int, pattern: str, *args: Any) -> None:
        of_the_caller = pattern.startswith(" +I") and isinstance(self.proto_, onnx.GraphProto)  # all it knows
        if self.verbose and level <= RESULTS and not of_the_caller:
            logger.info(pattern, *(described(argument) for argument in args))
