"""The choice of the next token: the best one, or one drawn."""

from __future__ import annotations

import dataclasses
import math
import numbers

import numpy as np

from experimental_experiment.decoding.interface import DecodingError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, in this order.

    Attributes:
        temperature: the logits are divided by it.
        top_k: only so many of the most likely tokens, and those as likely as the last of them; None for all.
        top_p: only the fewest most likely tokens whose probabilities add up to it; 1 for all.
        seed: of the random numbers; None for another one each time.

    Raises DecodingError for a number out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self):
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or isinstance(value, bool):
                raise DecodingError(f"{name} is a number, not {value!r}")
        if not 0 < self.temperature < math.inf:
            raise DecodingError(f"the temperature is positive and finite, not {self.temperature}")
        if self.top_k is not None and whole_number(self.top_k, "top_k") < 1:
            raise DecodingError(f"top_k is at least 1, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise DecodingError(f"top_p is between 0 and 1, not {self.top_p}")
        if self.seed is not None and whole_number(self.seed, "seed") < 0:
            raise DecodingError(f"the seed is at least 0, not {self.seed}")

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """float64[batch, vocabulary] of logits of this shape: what `draw` draws from. Raises DecodingError when a row has no largest one."""
        scores = logits.astype(np.float64)
        largest = scores.max(axis=1, keepdims=True)
        if not np.isfinite(largest).all():
            raise DecodingError(f"the largest logit of a row is {largest[~np.isfinite(largest)][0]}")
        with np.errstate(
            over="ignore"
        ):  # a quotient beyond the smallest float64 is that of a token that is never drawn
            scores = (scores - largest) / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[1]:
            last = np.partition(scores, -self.top_k, axis=1)[:, [-self.top_k]]
            scores = np.where(scores < last, -np.inf, scores)
        found = softmax(scores)
        if self.top_p < 1:
            order = np.argsort(-found, axis=1, kind="stable")
            ranked = np.take_along_axis(found, order, axis=1)
            dropped = np.cumsum(ranked, axis=1) - ranked >= self.top_p  # the tokens before it are enough
            np.put_along_axis(found, order, np.where(dropped, 0.0, ranked), axis=1)
            found /= found.sum(axis=1, keepdims=True)
        return found

    def draw(self, logits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """int64[batch]: a token of each row, from logits [batch, vocabulary]."""
        return np.array([generator.choice(len(row), p=row) for row in self.probabilities(logits)], np.int64)


def most_likely(logits: np.ndarray) -> np.ndarray:
    """int64[batch]: the best token of each row, from logits [batch, vocabulary]. Raises DecodingError when one is NaN."""
    chosen = logits.argmax(axis=1)  # NaN, if there is one
    if np.isnan(np.take_along_axis(logits, chosen[:, None], axis=1)).any():
        raise DecodingError("the largest logit of a row is nan")
    return chosen


def whole_number(value: int, name: str) -> int:
    """The value of this name. Raises DecodingError when it is no whole number."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise DecodingError(f"{name} is a whole number, not {value!r}")
    return int(value)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
