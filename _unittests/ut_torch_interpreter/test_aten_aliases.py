"""Operators that ATen defines by others: same values as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
X = torch.tensor([[0.5, -1.5, 2.0], [0.0, 3.0, 0.25]])
P = torch.tensor([[0.5, 0.25, 0.75], [0.1, 0.9, 0.3]])


class TestAliases(ExporterTestCase):
    CASES = {
        "casts": [
            (aten._cast_Double.default, X),
            (aten._cast_Float.default, X.double()),
            (aten._cast_Half.default, X),
            (aten._cast_Int.default, X),
            (aten._cast_Long.default, X),
            (aten._cast_Byte.default, X.abs()),
            (aten._cast_Char.default, X),
            (aten._cast_Short.default, X),
        ],
        "powers": [
            (aten.vander.default, X[0], 4),
            (aten.vander.default, X[0], 3, True),
            (aten.linalg_vander.default, X),
        ],
        "special functions under another name": [
            (aten.special_erf.default, X),
            (aten.special_erfc.default, X),
            (aten.special_exp2.default, X),
            (aten.special_expit.default, X),
            (aten.special_expm1.default, X),
            (aten.special_log1p.default, P),
            (aten.special_log_softmax.default, X, 1),
            (aten.special_logit.default, P),
            (aten.special_logsumexp.default, X, [1]),
            (aten.special_round.default, X),
            (aten.special_sinc.default, X),
            (aten.special_softmax.default, X, 1),
            (aten.special_xlogy.default, X, P),
            (aten.special_xlogy.other_scalar, X, 2.0),
            (aten.special_xlogy.self_scalar, 2.0, P),
        ],
    }

    def test_same_as_eager(self):
        for promise, calls in self.CASES.items():
            for target, *args in calls:
                with self.subTest(promise, target=target):
                    self.assert_same_as_eager(target, *args)


if __name__ == "__main__":
    unittest.main()
