"""RNN, GRU and LSTM: in onnx all sequences of a batch have the same length, and an RNN knows Tanh and Affine alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.ops import load_op

from experimental_experiment.reference.operators.activations import sigmoid
from experimental_experiment.reference.registry import OPERATORS


class WithLengths:
    """Before the class of onnx: sequences of different lengths run one by one, what stands after their ends is 0."""

    op_domain = ""

    def _run(
        self, x, w, r, b=None, sequence_lens=None, *states: np.ndarray | None, **attributes: Any
    ) -> tuple:
        if sequence_lens is None or (sequence_lens == len(x)).all():
            return super()._run(x, w, r, b, None, *states, **attributes)
        if attributes.get("layout"):
            raise NotImplementedError("sequence_lens with layout=1 is not handled")
        steps, batch, _ = x.shape
        shape = (w.shape[0], batch, r.shape[-1])
        results = [np.zeros((steps, *shape), x.dtype), *(np.zeros(shape, x.dtype) for _ in range(2))]
        for sample, length in enumerate(sequence_lens):
            if length == 0:
                continue
            own = [s[:, sample : sample + 1] if s is not None and s.ndim == 3 else s for s in states]
            given = super()._run(x[:length, sample : sample + 1], w, r, b, None, *own, **attributes)
            results[0][:length, :, sample] = given[0][:, :, 0]
            for state, last in zip(results[1:], given[1:]):
                state[:, sample] = last[:, 0]
        return tuple(results[: max(1, len(self.onnx_node.output))])


class GRU(WithLengths, load_op("", "GRU")):
    """GRU of sequences of any lengths."""


class LSTM(WithLengths, load_op("", "LSTM")):
    """LSTM of sequences of any lengths."""


class RNN(WithLengths, load_op("", "RNN")):
    """RNN of sequences of any lengths, with the activations that onnxruntime has."""

    def choose_act(self, name: str, alpha: float | None, beta: float | None) -> Any:
        """The function of an activation by its name."""
        functions = {"Relu": lambda x: np.maximum(x, 0), "Sigmoid": sigmoid}
        return functions.get(name) or super().choose_act(name, alpha, beta)


OPERATORS += [GRU, LSTM, RNN]
