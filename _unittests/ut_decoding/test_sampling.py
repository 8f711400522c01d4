"""The probabilities that tokens are drawn with are those of transformers."""

from __future__ import annotations

import unittest

import numpy as np
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from experimental_experiment.decoding import DecodingError, Sampling


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
            ("the temperature is positive, not 0", {"temperature": 0}),
            ("top_k is at least 1, not 0", {"top_k": 0}),
            ("top_p is between 0 and 1, not 0.0", {"top_p": 0.0}),
            ("top_p is between 0 and 1, not 1.5", {"top_p": 1.5}),
        ):
            with self.subTest(message), self.assertRaises(DecodingError) as caught:
                Sampling(**arguments)
            self.assertEqual(str(caught.exception), message)


if __name__ == "__main__":
    unittest.main()
