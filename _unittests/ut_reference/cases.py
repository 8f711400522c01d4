"""One node, run by the reference evaluator and by onnxruntime."""

from __future__ import annotations

import unittest
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh

from experimental_experiment.comparison import session
from experimental_experiment.reference import ExtendedReferenceEvaluator

TOLERANCES = {"float64": (1e-7, 1e-7), "float32": (1e-4, 1e-5), "float16": (1e-2, 1e-3)}
"""Relative and absolute; the rest is equal."""


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(dtype)


def node_model(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    outputs: int | Sequence[str],
    domain: str,
    opset: int,
    attributes: Mapping,
) -> onnx.ModelProto:
    """A model of one node."""
    names = ["" if array is None else f"x{position}" for position, array in enumerate(inputs)]
    results = [f"y{position}" for position in range(outputs)] if isinstance(outputs, int) else list(outputs)
    values = [
        oh.make_tensor_value_info(name, oh.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs)
        if name
    ]
    graph = oh.make_graph(
        [oh.make_node(op_type, names, results, domain=domain, **attributes)],
        "one_node",
        values,
        [onnx.ValueInfoProto(name=name) for name in results if name],
    )
    imports = [oh.make_opsetid("", opset), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10)


class OperatorTestCase(unittest.TestCase):
    """Compares both runtimes."""

    OPSET = 20

    def assert_same(
        self,
        op_type: str,
        *inputs: np.ndarray | None,
        outputs: int | Sequence[str] = 1,
        domain: str = "com.microsoft",
        **attributes: Any,
    ) -> None:
        """The outputs of one node are those of onnxruntime: dtype, shape, values."""
        model = node_model(op_type, inputs, outputs, domain, self.OPSET, attributes)
        feeds = {f"x{position}": array for position, array in enumerate(inputs) if array is not None}
        expected = session(model).run(None, feeds)
        got = ExtendedReferenceEvaluator(model).run(None, feeds)
        for position, (right, found) in enumerate(zip(expected, got, strict=True)):
            self.assertEqual((right.dtype, right.shape), (found.dtype, found.shape), f"output {position}")
            relative, absolute = TOLERANCES.get(right.dtype.name, (0, 0))
            np.testing.assert_allclose(found, right, relative, absolute, err_msg=f"output {position}")

    def reference(
        self,
        op_type: str,
        *inputs: np.ndarray | None,
        outputs: int = 1,
        domain: str = "com.microsoft",
        **attributes: Any,
    ) -> list[np.ndarray]:
        """What the reference evaluator gives for one node."""
        model = node_model(op_type, inputs, outputs, domain, self.OPSET, attributes)
        feeds = {f"x{position}": array for position, array in enumerate(inputs) if array is not None}
        return ExtendedReferenceEvaluator(model).run(None, feeds)

    def assert_cases(self, cases: Mapping[str, Sequence[Any]]) -> None:
        """A table {promise: (operator, *inputs)}, with attributes and options of `assert_same` in a last dict."""
        for promise, (op_type, *inputs) in cases.items():
            options = inputs.pop() if inputs and isinstance(inputs[-1], dict) else {}
            with self.subTest(promise):
                self.assert_same(op_type, *inputs, **options)
