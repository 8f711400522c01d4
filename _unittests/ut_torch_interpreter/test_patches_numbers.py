"""Functions that take Python's numbers only are called with sizes."""

import math
import unittest

import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn import functional

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

X = torch.randn(4, 6)


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def steps(x):
    rows, columns = torch.linspace(-1, 1, x.shape[0]), torch.linspace(0, 3.0, steps=x.shape[1])
    doubles = torch.linspace(5, -5, x.shape[1], dtype=torch.float64)
    places = torch.linspace(0, x.shape[0] - 1, x.shape[0], dtype=x.dtype)
    return doubles, places, *torch.meshgrid(rows, columns, indexing="ij")


def frequencies(x):
    n = x.shape[1]
    doubles = torch.fft.fftfreq(n, d=0.1, dtype=torch.float64)
    return torch.fft.fftfreq(n), torch.fft.rfftfreq(n, 2.0), doubles


def inverted(x):
    window = torch.hann_window(8)
    spectrum = torch.stft(x, 8, 2, window=window, return_complex=True)
    return torch.istft(spectrum, 8, 2, window=window, length=x.shape[-1])


def classes(x):
    return functional.one_hot(x.argmax(1), x.shape[1])


def pooled(x):
    twice = torch.nn.MaxPool1d(3, 2, 1, return_indices=True)(x)
    return (
        torch.max_pool1d(x[:, None], [2], ceil_mode=True),
        functional.max_pool1d(x, 3, 1, dilation=2),
        *twice,
    )


def scaled(x):
    return x / math.sqrt(x.shape[1])


def logarithms(x):
    rows, width = x.shape
    scales = math.log(width + 1), math.log(width + 1, 3), math.log(2.5, rows + 1), math.exp(-rows / 4)
    waves = math.sin(width / 3) + math.cos(rows)
    return (
        x * scales[0] / scales[1] + scales[2],
        x * scales[3] + waves,
        torch.full((2,), scales[1], dtype=torch.float64),
    )


def angles(x):
    rows = x.shape[0]
    most = rows / (rows + 3)
    turn = math.radians(rows * 30), math.degrees(most), math.tan(most), math.tanh(rows / 9), math.fabs(-most)
    back = math.acos(most), math.asin(most), math.atan(rows), math.sinh(most), math.cosh(most)
    small = math.expm1(most / 100), math.log1p(most / 100)
    return [torch.full((), number, dtype=torch.float64) for number in (*turn, *back, *small)]


def whole_logarithms(x):
    width = x.shape[1]
    found = math.ceil(math.log2(width)), math.floor(math.log10(width)), math.floor(math.log2(width + 1) / 2)
    return [torch.full((2,), number) for number in found]


def rounded(x):
    rows, width = x.shape
    numbers = round(width, -1), round(rows * 5, -1), round(width * 30 - 100, -2), round(rows, 1), round(rows)
    return [torch.full((2,), number) for number in numbers]


def slopes(x):
    doubled = x.double()
    across = torch.gradient(doubled, spacing=0.5, dim=(1,), edge_order=2)
    along_known = torch.gradient(torch.stack([x, x * x, x.exp()], -1), dim=2, edge_order=2)[0]
    down = torch.gradient(x, dim=-2)[0]
    return *torch.gradient(x), *across, *torch.gradient(x, spacing=[2, 3.0]), down, along_known


def pooled_to_one(x):
    images = torch.stack([x, x * 2])[None]
    size = images.shape[-2:]
    volume = images[None]
    return (
        functional.avg_pool2d(images, size),
        functional.avg_pool2d(images, (x.shape[0], x.shape[1]), stride=1),
        functional.max_pool2d(images, kernel_size=size),
        functional.avg_pool1d(x[None], x.shape[1]),
        functional.max_pool1d(x[None], x.shape[1], x.shape[1], 0),
        functional.avg_pool3d(volume, (2, *size)),
        functional.max_pool3d(volume, (2, *size)),
    )


def pooled_along_axes(x):
    images = torch.stack([x, x * 2])
    height, width = images.shape[-2:]
    volume = torch.stack([images, images + 1])[None]
    return (
        functional.max_pool2d(images, (height, 1)),
        functional.avg_pool2d(images[None], (height, 1), 1),
        functional.avg_pool2d(images, kernel_size=(1, width)),
        functional.max_pool2d(images, (height, 3), (1, 2), (0, 1), 1, True),
        functional.max_pool2d(images, (2, width), padding=(1, 0), dilation=(2, 1)),
        functional.avg_pool2d(images, (height, 3), 2, (0, 1), True, False),
        functional.avg_pool2d(images, [3, width], [], [1, 0]),
        torch.nn.MaxPool2d((height, width), stride=1)(images),
        torch.nn.AvgPool2d((height, 1))(images),
        functional.avg_pool3d(volume, (2, height, 1), 1),
        functional.max_pool3d(volume, (2, 1, width), (1, 3, 4)),
    )


def windows(x):
    """Tiles of an image, and what is written through them."""
    rows, columns = x.shape
    written = x.clone()
    written.unfold(1, size=columns // 2, step=columns // 2)[:, 1].add_(1)
    return (
        x.unfold(0, rows // 2, rows // 2).unfold(-2, columns // 3, columns // 3),
        x.unfold(1, columns, columns),
        x.unfold(1, 2, 1),
        written,
    )


def attention(x):
    rows = x[None]
    scaled = functional.scaled_dot_product_attention(rows, rows, rows, scale=x.shape[0] ** -0.5)
    return scaled, functional.scaled_dot_product_attention(rows, rows, rows, None, 0.0, True)


def divergence(x):
    scale = torch.eye(3) + x[:, :1, None] ** 2
    left = MultivariateNormal(x[:, :3], scale, validate_args=False)
    right = MultivariateNormal(x[:, 3:6], scale + torch.eye(3), validate_args=False)
    return kl_divergence(left, right)


def products(x):
    small = torch.arange(6.0).reshape(2, 3)
    return torch.kron(x, small), small.kron(x), torch.kron(x[0], x), torch.kron(x, x[None, :, :2])


class TestNumbersOfSizes(ExporterTestCase):
    CASES = {
        "steps between two numbers": (steps, [(5, 9), (1, 1), (2, 3)]),
        "frequencies": (frequencies, [(5, 9), (1, 10)]),
        "the length of a signal": (inverted, [(3, 25), (1, 32)]),
        "one of as many classes": (classes, [(5, 9), (1, 2)]),
        "the largest of each window": (pooled, [(5, 9), (1, 5), (3, 8)]),
        "a square root": (scaled, [(5, 9)]),
        "logarithms and waves": (logarithms, [(5, 9), (1, 1), (2, 700)]),
        "angles": (angles, [(5, 9), (1, 1), (2, 7)]),
        "logarithms that are whole": (
            whole_logarithms,
            [(1, 2**k + step) for k in (0, 1, 3, 10, 12) for step in (0, 1)]
            + [(1, n) for n in (10, 99, 100, 999, 1000)],
        ),
        "tens and hundreds": (rounded, [(rows, width) for rows in (1, 3, 7, 21) for width in (1, 5, 15, 25)]),
        "slopes": (slopes, [(2, 3), (3, 4), (5, 9)]),
        "all of an image": (pooled_to_one, [(5, 9), (1, 1), (1, 7)]),
        "all of an axis": (pooled_along_axes, [(5, 9), (3, 7), (8, 4)]),
        "tiles": (windows, [(5, 9), (2, 3), (3, 8)]),
        "the scale of an attention": (attention, [(5, 9), (1, 2)]),
        "products of all pairs": (products, [(5, 9), (1, 2)]),
        "the divergence of two distributions": (divergence, [(5, 6), (2, 6)]),
    }

    def shapes(self, function):
        width = {} if function is divergence else {1: "width"}
        return ({0: "rows", **width},)

    def test_any_size(self):
        for promise, (function, sizes) in self.CASES.items():
            with self.subTest(promise):
                example = torch.randn(2, 21) if function is inverted else X
                others = [(torch.randn(*size),) for size in sizes]
                self.export_and_compare(
                    Function(function), (example,), others=others, dynamic_shapes=self.shapes(function)
                )

    def test_a_pool_of_a_batch_that_is_fixed_afterwards(self):
        """Positions that nothing reads have the sizes that are numbers by then."""

        def forward(x):
            return torch.max_pool1d(x, 2), x + torch.arange(3.0).reshape(3, 1, 1)

        shapes = ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},)
        others = [(torch.randn(3, 4, 9),)]
        self.export_and_compare(
            Function(forward), (torch.randn(3, 4, 6),), others=others, dynamic_shapes=shapes
        )

    def test_attention_over_tokens_that_the_data_choose(self):
        layer = torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()

        def forward(x):
            tokens = x[x[:, 0] > 0]
            one, heads = tokens[None, None], tokens.reshape(1, -1, 2, 3).transpose(1, 2)
            return (
                functional.scaled_dot_product_attention(one, one, one, is_causal=True),
                functional.scaled_dot_product_attention(one, x[None, None], x[None, None]),
                functional.scaled_dot_product_attention(heads, heads, heads, scale=0.5),
                functional.scaled_dot_product_attention(one, one, one, one[0] @ one[0].mT > 0),
                layer(tokens[None]),
            )

        examples = [torch.randn(rows, 6) for rows in (5, 9, 3)]
        for example, number in zip(examples, (3, 6, 1)):
            example[:, 0] = torch.where(torch.arange(len(example)) < number, 0.5, -0.5)
        options = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)}
        others = [(example,) for example in examples[1:]]
        self.export_and_compare(Function(forward), (examples[0],), others=others, **options)
        with bypass_export_some_errors():
            program = torch.export.export(Function(forward), (examples[0],), **options)
        targets = [node.target for node in program.graph.nodes]
        self.assertEqual(targets.count(torch.ops.aten.scaled_dot_product_attention.default), 5)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(Function(forward), (examples[0],), export_options=ExportOptions(patches=False), **options)

    def test_gradients_of_pools(self):
        """That of a maximum goes to the first of the elements that have it."""

        def forward(x):
            x = x.clone().requires_grad_()
            height, width = x.shape[-2:]
            kernels = (height, width), (height, 2), (2, width)
            pools = functional.max_pool2d, functional.avg_pool2d
            results = [pool(x, kernel).flatten() for pool in pools for kernel in kernels]
            result = torch.cat([*results, functional.max_pool1d(x[0], width).flatten()])
            return torch.autograd.grad((result * torch.arange(1.0, result.shape[0] + 1)).sum(), x)[0]

        images = [torch.randint(0, 3, (2, *size)).float() for size in ((4, 6), (8, 10), (2, 4))]
        self.export_and_compare(
            Function(forward),
            (images[0],),
            others=[(image,) for image in images[1:]],
            dynamic_shapes=({1: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},),
            export_options=ExportOptions(tracing="make_fx"),
        )

    def test_wrong_without_the_patch(self):
        """torch.export takes the scale of the example, and says so."""
        options = ExportOptions(patches=False)
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            written = to_onnx(
                Function(attention), (X,), dynamic_shapes=({0: "rows"},), export_options=options
            )
        self.assertIn("== 0.5", "".join(logs.output))
        with self.assertRaises(AssertionError):  # torch takes any size for rounded, and says nothing
            written_so = to_onnx(
                Function(rounded), (X,), dynamic_shapes=self.shapes(rounded), export_options=options
            )
            self.assert_matches(written_so, Function(rounded), (X,))
        with self.assertRaises(AssertionError):
            self.assert_matches(written, Function(attention), (torch.randn(7, 6),))

    def test_refused_without_the_patch(self):
        for promise, (function, _) in self.CASES.items():
            if function in (attention, rounded):
                continue
            example = torch.randn(2, 21) if function is inverted else X
            with self.subTest(promise), self.assertRaisesRegex(CaptureError, "specialized|expected int at"):
                to_onnx(
                    Function(function),
                    (example,),
                    dynamic_shapes=self.shapes(function),
                    export_options=ExportOptions(patches=False),
                )


class TestClasses(ExporterTestCase):
    """As many classes as the data have."""

    def test_same_as_eager(self):
        def classes(x):
            several = functional.one_hot(x[:, 0], x.max() + 2)  # a number that is a tensor
            return functional.one_hot(x), torch.nn.functional.one_hot(x[:, 0] + 2, -1) * 2, several

        others = [(torch.zeros(1, 2, dtype=torch.int64),), (torch.randint(0, 9, (5, 2)),)]
        example = (torch.tensor([[0, 3], [2, 1]]),)
        self.export_and_compare(classes, example, others=others, dynamic_shapes=({0: "rows"},))
        with self.assertRaisesRegex(CaptureError, "Could not extract specialized integer"):
            to_onnx(Function(classes), example, export_options=ExportOptions(patches=False))


def greatest_of_windows(x):
    height, width = x.shape[-2:]

    return (
        functional.adaptive_max_pool2d(x, (height // 2, width // 3)),
        functional.adaptive_max_pool2d(x[0], (None, (width + 1) // 2)),
        functional.adaptive_max_pool2d(x, (2 * height, 4)),
        functional.adaptive_max_pool1d(x[0], width // 2),
        functional.adaptive_max_pool3d(x, [1, height - 2, width]),
    )


class TestAdaptiveMaxPool(ExporterTestCase):
    """Sizes of the output that follow those of the input, as those of a pyramid."""

    def test_any_size(self):
        example = torch.randn(2, 3, 8, 9)
        others = [
            (torch.randn(size),) for size in ((1, 3, 3, 3), (2, 3, 11, 7), (3, 3, 16, 25), (1, 3, 4, 6))
        ]
        others.append((torch.full((1, 3, 5, 6), float("nan")),))
        shapes = ({0: "batch", 2: "height", 3: "width"},)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                Function(greatest_of_windows), (example,), others=others, dynamic_shapes=shapes
            )

    def test_fixed_without_the_patch(self):
        example, shapes = (torch.randn(2, 3, 8, 9),), ({2: "height", 3: "width"},)
        options = ExportOptions(patches=False)
        with self.assertRaises((CaptureError, AssertionError)):
            written = to_onnx(
                Function(greatest_of_windows), example, dynamic_shapes=shapes, export_options=options
            )
            self.assert_matches(written, Function(greatest_of_windows), (torch.randn(2, 3, 16, 25),))


def diagonals(x):
    """Diagonals that are read, written and made."""
    rows, columns = x.shape
    written = x.clone()
    written.diagonal(columns // 4).fill_(7)
    torch.diagonal(written, -(columns // 3), 1, 0).mul_(2)
    return (
        x.diagonal(columns - rows),
        x.diagonal(offset=-columns),
        torch.diagonal(x[None], columns // 4, dim1=-1, dim2=1),
        x.diag(columns // 4),
        torch.diag(x[0], -(columns // 4)),
        torch.diag_embed(x, columns // 8),
        (x > 0).diag_embed(rows - columns, 0, 1),
        x.diagonal(1),
        torch.diag_embed(x, -1),
        torch.diag(x),
        written,
    )


def seen_through_windows(x):
    """Windows that overlap, or leave elements out; the tensor is written after they are taken."""
    columns, doubled = x.shape[1], x * 2
    found = doubled.unfold(1, columns // 2, 2)
    doubled.add_(1)
    return (
        found,
        x.unfold(-1, 5, columns // 4),
        x.unfold(1, columns - 3, 1),
        x[0].unfold(0, columns // 3, columns // 5),
        x[:-1].unfold(1, 3, columns // 4)[..., 0],
    )


def averages(x):
    columns = x.shape[-1]
    return (
        functional.adaptive_avg_pool1d(x, columns // 2),
        functional.adaptive_avg_pool1d(x[None], [columns - 1]),
        torch.nn.AdaptiveAvgPool1d(columns + 3)(x),
        torch.adaptive_avg_pool1d(x, (3,)),
    )


def parts(x):
    rows, columns = x.shape
    return (
        *x.hsplit([2, columns // 2]),
        *torch.vsplit(x, (1, rows // 2)),
        *x[None].dsplit([columns // 3]),
        *x[0].hsplit([columns // 3]),
        *torch.hsplit(torch.cat([x, x], 1), 2),
    )


class TestNumbersBesideTensors(ExporterTestCase):
    """A distance from a diagonal, a size of windows, places to split at that are sizes."""

    FUNCTIONS = diagonals, seen_through_windows, averages, parts

    def test_any_size(self):
        others = [(torch.randn(size),) for size in ((5, 23), (23, 12), (3, 9), (18, 17))]
        shapes = ({0: "rows", 1: "columns"},)
        for function in self.FUNCTIONS:
            with self.subTest(function.__name__), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(
                    Function(function), (torch.randn(10, 16),), others=others, dynamic_shapes=shapes
                )

    def test_fixed_without_the_patch(self):
        shapes, options = ({0: "rows", 1: "columns"},), ExportOptions(patches=False)
        for function in self.FUNCTIONS:
            model = Function(function)
            with (
                self.subTest(function.__name__),
                self.assertRaises((CaptureError, AssertionError)),
            ):
                written = to_onnx(
                    model, (torch.randn(10, 16),), dynamic_shapes=shapes, export_options=options
                )
                self.assert_matches(written, model, (torch.randn(5, 23),))


if __name__ == "__main__":
    unittest.main()
