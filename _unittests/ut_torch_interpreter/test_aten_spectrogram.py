"""Short-time Fourier transforms: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)

aten = torch.ops.aten
X = torch.randn(2, 40)
HANN = torch.hann_window(16) + 0.1
WHOLE = torch.arange(16) // 3 + 1
"""A window of integers: half precision holds the sums of the squares of their quarters."""
EXACT = torch.complex(torch.randint(-9, 9, (2, 3, 8)).float(), torch.zeros(2, 3, 8))
"""Spectra whose signals float32 holds."""
LONG = torch.hann_window(32) + 0.1
SPECTRUM = torch.stft(X, 16, 4, window=HANN, return_complex=True)


BOTH = torch.randn(2, 16, 9, dtype=torch.complex64)
EVEN = torch.randn(2, 4, 9, dtype=torch.complex128)
IN_PARTS = (True, False, False, None, True)
"""centered, not scaled, both sides, as long as the frames, complex"""


class TestSpectrogram(ExporterTestCase):
    STFT = {
        "frames that overlap": (aten.stft.default, X, 16, {"return_complex": True}),
        "a hop and a window": (aten.stft.default, X, 16, 5, None, HANN, {"return_complex": True}),
        "a short window lies in the middle": (aten.stft.default, X, 16, 5, 9, HANN[:9], {"return_complex": True}),
        "a short window of ones": (aten.stft.default, X, 16, 5, 9, {"return_complex": True}),
        "one signal, both sides, scaled": (aten.stft.default, X[0], 16, 4, None, HANN, True, False, True),
        "a complex signal": (aten.stft.default, torch.complex(X, X.flip(0)), 16, 4, None, HANN, {"return_complex": True}),
        "float64": (aten.stft.default, X.double(), 16, 4, None, HANN.double(), {"return_complex": True}),
        "float64 and a window of float32": (aten.stft.default, X.double(), 16, 4, None, HANN, {"return_complex": True}),
        "a window of float64": (aten.stft.center, X, 16, 4, None, HANN.double(), {"return_complex": True}),
        "float16 and a window of float32": (aten.stft.center, X.half(), 16, 4, None, HANN, {"return_complex": True}),
        "float16 and a window of float64": (aten.stft.default, X.half(), 16, 4, None, HANN.double(), {"return_complex": True}),
        "bfloat16 and a window of float32": (aten.stft.default, X.bfloat16(), 16, 4, None, HANN, {"return_complex": True}),
        "bfloat16 and a window of float16": (aten.stft.default, X.bfloat16(), 16, 4, None, HANN.half(), {"return_complex": True}),
        "a short window of float16": (aten.stft.default, X, 16, 5, 9, HANN[:9].half(), {"return_complex": True}),
        "a window of integers": (aten.stft.default, X, 16, 4, None, WHOLE, {"return_complex": True}),
        "a window of booleans": (aten.stft.default, X, 16, 4, None, WHOLE > 1, {"return_complex": True}),
        "a complex signal and a window of float64": (
            aten.stft.default, torch.complex(X, X.flip(0)), 16, 4, None, HANN.double(), {"return_complex": True}),
        "complex128 and a window of float32": (
            aten.stft.default, torch.complex(X, X.flip(0)).cdouble(), 16, 4, None, HANN, {"return_complex": True}),
        "centered frames": (aten.stft.center, X, 16, 4, None, HANN, True, "reflect", {"return_complex": True}),
        "frames that are not centered": (aten.stft.center, X, 16, 4, None, HANN, False, {"return_complex": True}),
        "a real result": (aten.stft.default, X, 16, 4, None, HANN, {"return_complex": False}),
        "a real result of centered frames": (aten.stft.center, X, 16, 4, None, HANN, {"return_complex": False}),
    }  # fmt: skip
    ISTFT = {
        "the signal again": (aten.istft.default, SPECTRUM, 16, 4, None, HANN),
        "a length": (aten.istft.default, SPECTRUM, 16, 4, None, HANN, True, False, None, 33),
        "a length beyond the end": (aten.istft.default, SPECTRUM, 16, 4, None, HANN, True, False, None, 60),
        "one signal, not centered, scaled": (aten.istft.default, SPECTRUM[0], 16, 4, 16, HANN, False, True),
        "no window": (aten.istft.default, SPECTRUM, 16, 4),
        "complex128": (aten.istft.default, SPECTRUM.cdouble(), 16, 4, None, HANN.double()),
        "complex128 and no window": (aten.istft.default, SPECTRUM.cdouble(), 16, 4, 12),
        "complex128 and a window of float32": (aten.istft.default, SPECTRUM.cdouble(), 16, 4, None, HANN),
        "complex128 and a short window of float16": (
            aten.istft.default, SPECTRUM.cdouble(), 16, 4, 12, WHOLE[2:14].half() / 4),
        "a window of float64": (aten.istft.default, EXACT, 4, 1, None, HANN[:4].double(), True, False, None, 12),
        "a window of float16": (aten.istft.default, SPECTRUM, 16, 4, None, WHOLE.half() / 4),
        "a window of bfloat16": (aten.istft.default, SPECTRUM, 16, 4, None, WHOLE.bfloat16() / 4),
        "a window of integers": (aten.istft.default, SPECTRUM, 16, 4, None, WHOLE),
        "a window of booleans": (aten.istft.default, SPECTRUM, 16, 4, None, WHOLE > 1),
        "a hop that does not divide the frames": (
            aten.istft.default, torch.stft(X, 16, 6, window=HANN, return_complex=True), 16, 6, None, HANN),
        "a hop of one element": (
            aten.istft.default, torch.stft(X, 32, 1, window=LONG, return_complex=True), 32, 1, None, LONG),
        "both sides": (
            aten.istft.default, torch.stft(X, 16, 4, onesided=False, return_complex=True), 16, 4, None, None, True, False, False),
        "a complex signal": (aten.istft.default, BOTH, 16, 4, None, HANN, *IN_PARTS),
        "a complex signal of a length": (aten.istft.default, BOTH, 16, 4, None, HANN, *IN_PARTS[:3], 33, True),
        "a complex signal of a length beyond the end": (aten.istft.default, BOTH, 16, 4, None, HANN, *IN_PARTS[:3], 60, True),
        "one complex signal, not centered, scaled": (
            aten.istft.default, BOTH[0], 16, 4, 16, HANN, False, True, False, None, True),
        "a complex signal and no window": (aten.istft.default, BOTH, 16, 4, None, None, *IN_PARTS),
        "a complex signal, no window and shorter frames": (aten.istft.default, BOTH, 16, 4, 12, None, *IN_PARTS),
        "a complex signal, sides by default": (
            aten.istft.default, BOTH, 16, 4, None, HANN, True, False, None, None, True),
        "a complex signal of complex128": (aten.istft.default, BOTH.cdouble(), 16, 4, None, HANN, *IN_PARTS),
        "a complex signal and a window of float64": (aten.istft.default, EVEN, 4, 1, None, HANN[:4].double(), *IN_PARTS),
        "a complex signal and a window of integers": (aten.istft.default, BOTH, 16, 4, None, WHOLE, *IN_PARTS),
        "a complex signal and a hop that does not divide the frames": (
            aten.istft.default, BOTH, 16, 6, None, HANN, *IN_PARTS),
        "a complex signal and frames of 5": (aten.istft.default, BOTH[:, :5], 5, 2, None, None, *IN_PARTS),
    }  # fmt: skip

    def test_stft(self):
        self.assert_cases(self.STFT, dynamic=False)

    def test_istft(self):
        self.assert_cases(self.ISTFT, dynamic=False)

    def test_windows(self):
        windows = {
            aten.bartlett_window.default: (9,),
            aten.bartlett_window.periodic: (9, False),
            aten.blackman_window.default: (9,),
            aten.blackman_window.periodic: (9, False),
            aten.hamming_window.default: (9,),
            aten.hamming_window.periodic: (9, False),
            aten.hamming_window.periodic_alpha: (9, False, 0.6),
            aten.hamming_window.periodic_alpha_beta: (9, False, 0.6, 0.4),
            aten.hann_window.default: (9,),
            aten.hann_window.periodic: (9, False),
            aten.kaiser_window.beta: (9, False, 10.0),
            aten.kaiser_window.default: (9,),
            aten.kaiser_window.periodic: (9, False),
        }
        for target, args in windows.items():
            with self.subTest(target=target):
                self.assert_same_as_eager(lambda x, f=target, a=args: f(*a) * x, torch.ones(9), dynamic=False)
        double = {"dtype": torch.float64}
        self.assert_same_as_eager(lambda x: aten.hann_window.default(9, **double) * x, torch.ones(9))

    def test_dynamic_sizes(self):
        def spectrogram(x):
            return torch.stft(x, 16, 4, window=HANN, return_complex=True).abs()

        self.assert_same_as_eager(spectrogram, X, others=[(torch.randn(3, 57),)])

        def again(x):
            return torch.istft(torch.stft(x, 16, 4, window=HANN, return_complex=True), 16, 4, window=HANN)

        self.assert_same_as_eager(again, X, others=[(torch.randn(3, 57),)])

    def test_transposed_spectra_of_dynamic_signals(self):
        """The transposition is undone: what reads the spectra reads ONNX STFT, of which inference knows no rank."""
        window = torch.hann_window(1024)

        def spectra(x):
            return torch.stft(x, 1024, 256, window=window, return_complex=True)

        x, others = torch.randn(2, 2304), [(torch.randn(3, 2900),)]
        self.assert_same_as_eager(lambda x: spectra(x).transpose(1, 2).abs(), x, others=others)
        self.assert_same_as_eager(
            lambda x: torch.istft(spectra(x), 1024, 256, window=window), x, others=others
        )

    def test_frames_are_added_part_by_part(self):
        """Where they are some hops long; the envelope of the windows is a constant where the number of frames is."""

        def signal(hop, **options):
            return lambda z: torch.istft(torch.view_as_complex(z), 16, hop, window=HANN, **options)

        x = torch.randn(2, 9, 7, 2)
        others = [(torch.randn(1, 9, 30, 2),), (torch.randn(3, 9, 2, 2),)]
        for name, function, scatters, pads in (
            ("a quarter", signal(4), 0, 4),
            ("a half", signal(8), 0, 2),
            ("no overlap", signal(16, center=False), 0, 0),
            ("one element", signal(1), 0, 16),
            ("no whole part", signal(5), 1, 0),
            ("a length", signal(4, length=25), 0, 5),
        ):
            with self.subTest(name):
                model = self.export_and_compare(function, (x,))
                self.assertNotIn("ConvTranspose", [node.op_type for node in model.graph.node])
                model = self.export_and_compare(
                    function, (x,), others=others, dynamic_shapes=({0: "batch", 2: "frames"},)
                )
                written = [node.op_type for node in model.graph.node]
                counts = [written.count(kind) for kind in ("ScatterElements", "Pad", "ConvTranspose")]
                self.assertEqual([scatters, pads, 1], counts)

    def test_digits_of_float64_and_a_length_of_another_tensor(self):
        def signal(z, x):
            window = HANN.to(x.dtype)
            return torch.istft(torch.view_as_complex(z), 16, 4, window=window, length=x.shape[0])

        self.export_and_compare(
            signal,
            (torch.randn(2, 9, 7, 2, dtype=torch.float64), torch.randn(20, dtype=torch.float64)),
            others=[
                (torch.randn(1, 9, n, 2, dtype=torch.float64), torch.randn(m, dtype=torch.float64))
                for n, m in ((3, 30), (12, 9))
            ],
            dynamic_shapes=({0: "batch", 2: "frames"}, {0: "length"}),
        )

    def test_complex_signals_of_other_sizes(self):
        def signal(hop, **options):
            options |= {"window": HANN, "onesided": False, "return_complex": True}
            return lambda z: torch.istft(torch.view_as_complex(z), 16, hop, **options)

        others = [(torch.randn(1, 16, 30, 2),), (torch.randn(3, 16, 2, 2),)]
        for hop, options in ((4, {}), (5, {}), (4, {"length": 25}), (16, {"center": False})):
            with self.subTest(hop=hop, **options):
                self.export_and_compare(
                    signal(hop, **options),
                    (torch.randn(2, 16, 7, 2),),
                    others=others,
                    dynamic_shapes=({0: "batch", 2: "frames"},),
                )

    def test_size_of_whisper(self):
        def spectrogram(x):
            return torch.stft(x, 400, 160, window=torch.hann_window(400), return_complex=True).abs() ** 2

        self.assert_same_as_eager(spectrogram, torch.randn(1, 3200))

    def test_dtypes_of_dynamic_sizes(self):
        """A signal of float64 and a window of float32, there and back."""

        def again(x):
            spectra = torch.stft(x, 16, 4, window=HANN, return_complex=True)
            return spectra.abs(), torch.istft(spectra, 16, 4, window=HANN)

        self.assert_same_as_eager(again, X.double(), others=[(torch.randn(3, 57, dtype=torch.float64),)])

    def test_large_powers_of_two(self):
        """One STFT from 1024 on, for real signals; another size is a product with a matrix."""
        hann = torch.hann_window(1024)
        cases = {
            "a window": (lambda x: torch.stft(x, 1024, 256, window=hann, normalized=True, return_complex=True), 1),
            "no window": (lambda x: torch.stft(x, 1024, normalized=True, center=False, return_complex=True), 1),
            "a short window": (lambda x: torch.stft(x, 1024, 300, 800, hann[:800], normalized=True, return_complex=True), 1),
            "both sides": (
                lambda x: torch.stft(x, 1024, window=hann, normalized=True, onesided=False, return_complex=True), 1),
            "a window of float16": (lambda x: torch.stft(x, 1024, 256, window=hann.half(), normalized=True, return_complex=True), 1),
            "another size": (lambda x: torch.stft(x, 1000, normalized=True, return_complex=True), 0),
        }  # fmt: skip
        for name, (transform, count) in cases.items():
            with self.subTest(case=name):
                function = lambda x, f=transform: torch.view_as_real(f(x))
                others = [(torch.randn(1, 1024),), (torch.randn(3, 2500),)]
                model = self.assert_same_as_eager(function, torch.randn(2, 2000), others=others)
                self.assertEqual(count, [node.op_type for node in model.graph.node].count("STFT"))

    def test_one_large_signal_of_float64(self):
        def transform(x):
            return torch.view_as_real(torch.stft(x, 1024, return_complex=True))

        self.assert_same_as_eager(transform, torch.randn(3000, dtype=torch.float64))


if __name__ == "__main__":
    unittest.main()
