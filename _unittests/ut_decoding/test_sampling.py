"""The probabilities that tokens are drawn with are those of transformers."""

from __future__ import annotations

import unittest

import numpy as np
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from experimental_experiment.decoding import DecodingError, Sampling
from experimental_experiment.decoding.sampling import most_likely


class TestSampling(unittest.TestCase):
    def test_probabilities_are_those_of_transformers(self):
        logits = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32) * 3
        logits[0, :4] = logits[0].max() + 1  # equal ones
        for temperature in (1.0, 0.3, 2.5):
            for top_k in (None, 1, 3, 40, 100):
                for top_p in (1.0, 0.9, 0.4, 0.01):
                    with self.subTest(temperature=temperature, top_k=top_k, top_p=top_p):
                        scores = TemperatureLogitsWarper(temperature)(None, torch.from_numpy(logits))
                        if top_k is not None:
                            scores = TopKLogitsWarper(top_k)(None, scores)
                        if top_p < 1:
                            scores = TopPLogitsWarper(top_p)(None, scores)
                        expected = torch.softmax(scores.double(), dim=-1).numpy()
                        got = Sampling(temperature, top_k, top_p).probabilities(logits)
                        # which of equal tokens goes is not said: their sorted probabilities are compared
                        np.testing.assert_allclose(np.sort(got[:1]), np.sort(expected[:1]), atol=1e-5)
                        np.testing.assert_allclose(got[1:], expected[1:], atol=1e-5)

    def test_tokens_are_drawn_with_their_probabilities(self):
        logits = np.log(np.array([[0.1, 0.2, 0.7]], np.float32)).repeat(20000, axis=0)
        drawn = Sampling().draw(logits, np.random.default_rng(0))
        np.testing.assert_allclose(np.bincount(drawn) / len(drawn), [0.1, 0.2, 0.7], atol=0.01)
        self.assertEqual(drawn.dtype, np.int64)

    def test_numbers_out_of_range_are_refused(self):
        for message, arguments in (
            ("the temperature is positive and finite, not 0", {"temperature": 0}),
            ("the temperature is positive and finite, not inf", {"temperature": float("inf")}),
            ("top_k is at least 1, not 0", {"top_k": 0}),
            ("top_p is between 0 and 1, not 0.0", {"top_p": 0.0}),
            ("top_p is between 0 and 1, not 1.5", {"top_p": 1.5}),
            ("top_p is between 0 and 1, not nan", {"top_p": float("nan")}),
            ("temperature is a number, not 'a'", {"temperature": "a"}),
            ("top_p is a number, not 'a'", {"top_p": "a"}),
            ("top_k is a whole number, not 2.5", {"top_k": 2.5}),
            ("seed is a whole number, not 'a'", {"seed": "a"}),
            ("the seed is at least 0, not -1", {"seed": -1}),
        ):
            with self.subTest(message), self.assertRaises(DecodingError) as caught:
                Sampling(**arguments)
            self.assertEqual(str(caught.exception), message)

    def test_a_temperature_near_zero_draws_the_best_token(self):
        logits = np.array([[1.0, 3.0, 2.0], [0.0, -np.inf, 5.0], [4.0, 4.0, 0.0]], np.float32)
        with np.errstate(all="raise", under="ignore"):
            got = Sampling(temperature=1e-310).probabilities(logits)
        np.testing.assert_array_equal(got, [[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]])

    def test_logits_without_a_largest_one(self):
        logits = np.zeros((2, 3), np.float32)
        for value in (np.nan, np.inf):
            logits[1, 2] = value
            with self.subTest(value), self.assertRaises(DecodingError) as caught:
                Sampling().probabilities(logits)
            self.assertEqual(str(caught.exception), f"the largest logit of a row is {value}")
        with self.assertRaisesRegex(DecodingError, "the largest logit of a row is -inf"):
            Sampling().probabilities(np.full((2, 3), -np.inf))
        np.testing.assert_array_equal(most_likely(logits), [0, 2])
        logits[0, 1] = np.nan
        with self.assertRaisesRegex(DecodingError, "the largest logit of a row is nan"):
            most_likely(logits)


if __name__ == "__main__":
    unittest.main()
