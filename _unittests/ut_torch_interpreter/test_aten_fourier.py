"""Fourier transforms: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)

aten = torch.ops.aten
X = torch.randn(2, 3, 12)
Z = torch.randn(2, 3, 12, dtype=torch.complex64)


class TestFourier(ExporterTestCase):
    CASES = {
        "fft of a real signal": (aten.fft_fft.default, X),
        "fft of integers": (aten.fft_fft.default, torch.arange(6)),
        "fft of another axis, cut": (aten.fft_fft.default, Z, 2, 1, "ortho"),
        "fft continued with zeros": (aten.fft_fft.default, Z, 15, -1, "forward"),
        "fft in float64": (aten.fft_fft.default, X.double()),
        "ifft": (aten.fft_ifft.default, Z),
        "ifft of a real signal": (aten.fft_ifft.default, X, 7, 0, "ortho"),
        "ifft without scale": (aten.fft_ifft.default, Z, None, -1, "forward"),
        "rfft": (aten.fft_rfft.default, X),
        "rfft of an odd size": (aten.fft_rfft.default, X, 11, -1, "ortho"),
        "irfft": (aten.fft_irfft.default, Z),
        "irfft of an odd size": (aten.fft_irfft.default, Z, 21, -1, "ortho"),
        "irfft continued with zeros": (aten.fft_irfft.default, Z, 32, -1, "forward"),
        "irfft of a real signal": (aten.fft_irfft.default, X),
        "hfft": (aten.fft_hfft.default, Z),
        "hfft of an odd size": (aten.fft_hfft.default, Z, 9, -1, "ortho"),
        "hfft of a real signal": (aten.fft_hfft.default, X),
        "ihfft": (aten.fft_ihfft.default, X),
        "ihfft of another axis": (aten.fft_ihfft.default, X, 5, 1, "forward"),
        "fft2": (aten.fft_fft2.default, Z),
        "ifft2": (aten.fft_ifft2.default, X, [4, 5]),
        "rfft2": (aten.fft_rfft2.default, X, None, [-1, 0], "ortho"),
        "irfft2": (aten.fft_irfft2.default, Z, [4, 9]),
        "hfft2": (aten.fft_hfft2.default, Z, None, [-2, -1], "ortho"),
        "irfft2 of a real signal": (aten.fft_irfft2.default, X, None, [-2, -1], "ortho"),
        "hfft2 of a real signal": (aten.fft_hfft2.default, X, [2, 9]),
        "ihfft2": (aten.fft_ihfft2.default, X),
        "fftn": (aten.fft_fftn.default, X),
        "fftn of the last axes": (aten.fft_fftn.default, Z, [-1, 5], None, "forward"),
        "fftn of no axis": (aten.fft_fftn.default, X, None, []),
        "fftn of no axis, of integers": (aten.fft_fftn.default, torch.arange(6), [], []),
        "fftn of a number": (aten.fft_fftn.default, torch.tensor(3.0)),
        "ifftn of no axis, complex": (aten.fft_ifftn.default, Z, None, []),
        "ifftn": (aten.fft_ifftn.default, Z, None, [0, 2]),
        "rfftn": (aten.fft_rfftn.default, X),
        "irfftn": (aten.fft_irfftn.default, Z),
        "hfftn": (aten.fft_hfftn.default, Z),
        "irfftn of a real signal": (aten.fft_irfftn.default, X),
        "hfftn of a real signal": (aten.fft_hfftn.default, X, None, None, "forward"),
        "ihfftn": (aten.fft_ihfftn.default, X, [2, 4]),
        "r2c": (aten._fft_r2c.default, X, [2, 1], 1, True),
        "r2c of both halves": (aten._fft_r2c.default, X, [0, 2], 2, False),
        "c2r": (aten._fft_c2r.default, Z, [0, 2], 2, 23),
        "c2r, unscaled, of an even size": (aten._fft_c2r.default, Z, [1], 0, 4),
        "c2c": (aten._fft_c2c.default, Z, [1, 2], 1, True),
        "c2c backwards": (aten._fft_c2c.default, Z, [2], 2, False),
        "fftshift": (aten.fft_fftshift.default, torch.arange(15).reshape(3, 5)),
        "fftshift of a complex axis": (aten.fft_fftshift.default, Z, [-2]),
        "ifftshift": (aten.fft_ifftshift.default, torch.arange(15).reshape(3, 5)),
        "ifftshift of complex axes": (aten.fft_ifftshift.default, Z, [0, 1]),
        "fftfreq": (lambda x: aten.fft_fftfreq.default(5, 0.5) * x, torch.randn(5)),
        "rfftfreq": (lambda x: aten.fft_rfftfreq.default(5, 0.5) * x, torch.randn(3)),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_dynamic_sizes(self):
        for target in (
            aten.fft_fft.default,
            aten.fft_rfft.default,
            aten.fft_irfft.default,
            aten.fft_fftshift.default,
        ):
            with self.subTest(target=target):
                self.assert_same_as_eager(
                    target, X, others=[(torch.randn(2, 3, 25),), (torch.randn(5, 2, 16),)]
                )

    def test_inverses_of_dynamic_sizes(self):
        """One DFT an axis: the inverse one, of half a signal where half of it is given."""

        class Transform(torch.nn.Module):
            def __init__(self, function, options):
                super().__init__()
                self.function, self.options = function, options

            def forward(self, x):
                result = self.function(torch.view_as_complex(x), **self.options).resolve_conj()
                return torch.view_as_real(result) if result.is_complex() else result

        half = ["DFT", "Squeeze"]
        for function, options, kinds in (
            (torch.fft.ifft, {"dim": 1}, ["DFT"]),
            (torch.fft.ifft, {"dim": 1, "norm": "ortho"}, ["DFT", "Shape", "Squeeze", "Pow", "Mul"]),
            (torch.fft.ifft2, {"dim": (0, 1)}, ["DFT", "DFT"]),
            (torch.fft.irfft, {"dim": 1}, half),
            (torch.fft.irfft, {"dim": 1, "norm": "forward"}, None),
            (torch.fft.hfft, {"dim": 1}, None),
            (torch.fft.hfft, {"dim": 1, "norm": "forward"}, ["Split", "Neg", "Concat", *half]),
            (torch.fft.irfft2, {"dim": (0, 1)}, ["DFT", *half]),
        ):
            for dtype in (torch.float32, torch.float64):
                with self.subTest(function, dtype=dtype, **options):
                    model = self.export_and_compare(
                        Transform(function, options),
                        (torch.randn(3, 7, 2, 2, dtype=dtype),),
                        others=[
                            (torch.randn(n, m, 2, 2, dtype=dtype),) for n, m in ((4, 2), (1, 8), (2, 31))
                        ],
                        dynamic_shapes=({0: "first", 1: "second"},),
                    )
                    if dtype == torch.float32 and kinds is not None:
                        written = [node.op_type for node in model.graph.node if node.op_type != "Cast"]
                        self.assertEqual(kinds, written)

    def test_a_spectrum_of_another_dynamic_size(self):
        """It is cut or continued with zeros: the size of the signal is that of another tensor."""

        def signal(spectrum, x):
            return torch.fft.irfft(torch.view_as_complex(spectrum), n=x.shape[0], dim=1)

        self.export_and_compare(
            signal,
            (torch.randn(2, 5, 3, 2), torch.randn(9)),
            others=[(torch.randn(2, m, 3, 2), torch.randn(n)) for m, n in ((5, 4), (3, 12), (6, 3), (5, 1))],
            dynamic_shapes=({1: "frequencies"}, {0: "size"}),
        )

    def test_a_real_spectrum_of_a_dynamic_size(self):
        def forward(x, spectrum):
            size = x.shape[0]
            return [function(spectrum, n=size) for function in (torch.fft.irfft, torch.fft.hfft)]

        spectrum = torch.randn(2, 5)
        others = [(torch.randn(size), spectrum) for size in (5, 9, 10, 13)]
        self.export_and_compare(
            forward, (torch.randn(8), spectrum), others=others, dynamic_shapes=({0: "n"}, None)
        )

    def test_a_spectrum_of_half_the_size_is_neither_cut_nor_continued(self):
        """Nothing is computed with sizes but the size that the user asks for."""

        def same(x):
            return torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])

        def twice(x):
            size = 2 * x.shape[-1]
            return torch.fft.irfft(torch.fft.rfft(x, n=size), n=size)

        def both_axes(x):
            return torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:])

        def hermitian(x):
            return torch.fft.hfft(torch.fft.ihfft(x), n=x.shape[-1])

        def whole(x):
            half = torch.complex(x, -x)
            return torch.fft.irfft(half, n=2 * (x.shape[-1] - 1))

        for function, absent in (
            (same, {"Slice", "Pad", "Div", "Add", "Sub"}),
            (twice, {"Pad", "Div", "Add", "Sub"}),
            (both_axes, {"Slice", "Pad", "Div", "Add", "Sub"}),
            (hermitian, {"Pad", "Add", "Sub"}),
            (whole, {"Slice", "Pad", "Div", "Add", "Sub", "Mul"}),
        ):
            with self.subTest(function.__name__):
                model = self.export_and_compare(
                    function,
                    (torch.randn(2, 6, 12),),
                    others=[(torch.randn(size),) for size in ((1, 5, 9), (3, 8, 3), (1, 2, 2))],
                    dynamic_shapes=({0: "batch", 1: "rows", 2: "size"},),
                )
                self.assertEqual(set(), absent & {node.op_type for node in model.graph.node})

    def test_axes_that_are_known_go_first_and_elements_far_apart_are_brought_together(self):
        class Mixing(torch.nn.Module):
            """The layer of FNet."""

            def forward(self, x):
                return torch.fft.fftn(x, dim=(1, 2)).real

        for width, transpositions in ((64, 2), (8, 0)):
            with self.subTest(width):
                model = self.export_and_compare(
                    Mixing(),
                    (torch.randn(2, 12, width),),
                    others=[(torch.randn(3, length, width),) for length in (1, 7, 16)],
                    dynamic_shapes=({0: "batch", 1: "sequence"},),
                )
                written = [node.op_type for node in model.graph.node]
                self.assertEqual(written.count("Transpose"), transpositions)
                self.assertEqual(written.count("DFT"), 1)
                self.assertNotIn("Slice", written)

    def test_one_slice_cuts_all_axes(self):
        for function in (torch.fft.fft2, torch.fft.rfft2, torch.fft.ifft2):
            with self.subTest(function.__name__):
                model = self.assert_same_as_eager(
                    lambda x, f=function: torch.view_as_real(f(x, (3, 4)).resolve_conj()),
                    torch.randn(2, 5, 6),
                    dynamic=False,
                )
                written = [node.op_type for node in model.graph.node]
                self.assertEqual(("Slice", 8), (written[0], len(written)))
                self.assertEqual(1, written.count("Slice"))

    def test_large_sizes(self):
        for size in (1025, 2048):
            with self.subTest(size):
                signal = torch.randn(2, size)
                self.assert_same_as_eager(aten.fft_rfft.default, signal, scale=10)  # sums of a thousand terms
                self.assert_same_as_eager(aten.fft_ifft.default, signal.to(torch.complex128), dynamic=False)
                self.assert_same_as_eager(aten.fft_irfft.default, signal.to(torch.complex128), dynamic=False)


if __name__ == "__main__":
    unittest.main()
