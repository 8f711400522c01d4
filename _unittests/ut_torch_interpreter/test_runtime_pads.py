"""Rows of Pad, and paddings between transpositions, which onnxruntime moves."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each, without_row
from experimental_experiment.torch_interpreter import to_onnx

pad = torch.nn.functional.pad
SIGNAL, IMAGE = torch.randn(2, 5, 6), torch.randn(2, 3, 5, 6)

ROWS = {
    "Pad.cropped_last": (lambda x: pad(x, [4, -3], mode="reflect"), SIGNAL),
    "Pad.wrapped_nothing": (lambda x: pad(x, [3, 2], mode="circular"), SIGNAL[:0]),
}

OTHER_ROWS = {"Pad.gathered_around": (lambda x: pad(x, [3, 2], mode="circular"), SIGNAL)}
"""Rows without which onnxruntime computes what the operator set does not say."""


def moved(x: torch.Tensor, *amounts: int, mode: str) -> torch.Tensor:
    """A padding of the last axis but one."""
    return pad(x.transpose(1, 2), amounts, mode=mode).transpose(1, 2)


def last(x: torch.Tensor, *amounts: int, mode: str) -> torch.Tensor:
    """A padding of images whose channels come last."""
    return pad(x.permute(0, 3, 1, 2), amounts, mode=mode).permute(0, 2, 3, 1)


class TestCrops(ExporterTestCase):
    def test_what_is_read_is_certainly_left(self):
        """One Pad crops, too, where the sizes are known and the elements it continues with are not among those it takes away."""
        for mode, amounts, expected in (
            ("reflect", (2, -2), ["Pad"]),
            ("reflect", (4, -3), ["Pad", "Slice"]),
            ("replicate", (4, -5), ["Pad"]),
            ("replicate", (-2, 9), ["Pad"]),
        ):
            with self.subTest(mode, amounts=amounts):
                model = self.assert_same_as_eager(
                    lambda x, amounts=amounts, mode=mode: pad(x, amounts, mode=mode), SIGNAL, dynamic=False
                )
                self.assertEqual(expected, [node.op_type for node in model.graph.node])


class TestPads(ExporterTestCase):
    MODES = ("constant", "reflect", "replicate", "circular")

    CASES = {
        **{f"{mode}, one axis": (moved, SIGNAL, 3, 0, {"mode": mode}) for mode in MODES},
        **{f"{mode}, two axes": (last, IMAGE, 1, 0, 2, 1, {"mode": mode}) for mode in MODES},
        **{f"{mode}, cropped": (moved, SIGNAL, 2, -1, {"mode": mode}) for mode in MODES},
        "float16": (moved, SIGNAL.half(), 3, 0, {"mode": "reflect"}),
        "bfloat16": (moved, SIGNAL.bfloat16(), 3, 0, {"mode": "constant"}),
        "integers": (moved, (SIGNAL * 9).int(), 3, 0, {"mode": "replicate"}),
        "scaled before and after": (
            lambda x: (pad((x * 1.5).permute(2, 0, 1) - 1, (1, 2)) * 2).permute(1, 2, 0) + 1,
            SIGNAL,
        ),
        "windows as columns": (
            lambda x: torch.nn.functional.unfold(x.permute(0, 3, 1, 2), 3, padding=1).transpose(1, 2),
            IMAGE,
        ),
        "the same size": (
            lambda x, w: torch.nn.functional.conv1d(x.mT, w, padding="same").mT,
            SIGNAL,
            torch.randn(4, 6, 4),
        ),
        "zeros between the elements": (
            lambda x, w: torch.nn.functional.conv_transpose1d(x.mT, w, stride=2).mT,
            SIGNAL.double(),
            torch.randn(6, 4, 3, dtype=torch.float64),
        ),
        "frames": (
            lambda x: torch.stft(
                x.t(), 4, 2, window=torch.hann_window(4), center=True, return_complex=False
            ).transpose(0, 3),
            torch.randn(16, 2),
        ),
        "more samples than there are": (lambda x: torch.view_as_real(torch.fft.fft(x.mT, n=9).mT), SIGNAL),
        "fewer frequencies than there are": (lambda x: torch.fft.irfft(x.mT, n=14).mT, SIGNAL),
        "modes": (lambda x: x.t().round().mode().values, SIGNAL[0] * 2),
    }

    def test_between_transpositions(self):
        self.assert_cases(self.CASES)

    def test_other_sizes(self):
        """Dynamic sizes before and after transpositions."""
        every = each(*(lambda x, mode=mode: moved(x, 3, 1, mode=mode) for mode in self.MODES))
        self.assert_same_as_eager(every, SIGNAL, others=[(torch.randn(3, 9, 4),)])

    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_a_mode_of_a_later_operator_set(self):
        for name, (function, *args) in OTHER_ROWS.items():
            with self.subTest(name):
                model = self.assert_same_as_eager(function, *args, dynamic=False, target_opset=18)
                self.assertEqual(["Gather"], [node.op_type for node in model.graph.node])
                with without_row(name):
                    model = to_onnx(function, tuple(args), target_opset=18)
                self.assertEqual(["Pad"], [node.op_type for node in model.graph.node])

    def test_symbolic_amounts_before_opset_19(self):
        def around(x, y):
            return pad(x, [0, y.shape[0], y.shape[0] - 1, 1], mode="circular")

        others = [(torch.randn(2, 3, 7, 8), torch.randn(4))]
        self.assert_same_as_eager(around, IMAGE, torch.randn(3), others=others, target_opset=18)

    def test_crops_of_modes_that_read_the_edge(self):
        crops = {"replicate": ([8, -2], [-2, 8], [-1, -1]), "reflect": ([4, -3], [-3, 4], [-1, -1])}
        others = [(torch.randn(1, 2, 9),), (torch.randn(3, 1, 5),)]
        for mode, amounts in crops.items():
            for amount in amounts:
                with self.subTest(mode=mode, amount=amount):
                    model = self.assert_same_as_eager(
                        lambda x, a=amount, m=mode: pad(x, a, mode=m), SIGNAL, others=others
                    )
                    expected = ["Pad", "Slice"] if max(amount) > 0 else ["Slice"]
                    self.assertEqual(expected, [node.op_type for node in model.graph.node])
        self.assert_same_as_eager(
            lambda x: pad(x, [3, -1, -2, 4], mode="replicate"), IMAGE, others=[(IMAGE[:, :, :3, :1],)]
        )
        self.assert_same_as_eager(lambda x: pad(x, [3, -1, -2, 4], mode="reflect"), IMAGE)


if __name__ == "__main__":
    unittest.main()
