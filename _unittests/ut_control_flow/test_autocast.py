"""Autocast: the casts are eager's, operator by operator."""

import unittest

import torch
import torch.nn.functional as F

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.control_flow.autocast import DISPATCH_KEY, LOWER, PROMOTE

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
Y = X.clone()
IMAGE = torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(0))
HEADS = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))


def nested(s, x, y):
    z = s.lin(x)
    with torch.autocast("cpu", enabled=False):
        z = s.lin(z.float())
    return z @ z.t(), (x.double() @ x.t().double())


class TestAutocast(ControlFlowTestCase):
    CASES = {
        "products take the lower dtype": (lambda s, x, y: s.lin(x) @ s.lin.weight, (X, Y), [(X * 2, Y)]),
        "a composition is looked into": (lambda s, x, y: torch.einsum("ij,kj->ik", x, y), (X, Y)),
        "so are tensordot, inner": (
            lambda s, x, y: (torch.tensordot(x, y, dims=([1], [1])), torch.inner(x, y)),
            (X, Y),
        ),
        "the others keep what they get": (lambda s, x, y: torch.softmax(s.lin(x) @ y.t(), -1), (X, Y)),
        "normalizations": (
            lambda s, x, y: (F.layer_norm(s.lin(x), (4,), s.b, s.b), F.group_norm(s.lin(x), 2, s.b, s.b)),
            (X, Y),
        ),
        "concatenations promote": (
            lambda s, x, y: (torch.cat([s.lin(x), s.lin(y)]), torch.stack([s.lin(x), s.lin(y)])),
            (X, Y),
        ),
        "convolutions, heads": (lambda s, x, y: F.conv2d(x, y), (IMAGE, IMAGE[:, :, :3, :3])),
        "attention": (lambda s, x, y: F.scaled_dot_product_attention(x, x, y), (HEADS, HEADS + 0)),
        "a disabled region inside, float64 is left alone": (nested, (X, Y)),
        "integers are left alone": (
            lambda s, x, y: (torch.matmul(y, y), s.lin(x) * y.sum()),
            (X, torch.ones(2, 2, dtype=torch.int64)),
        ),
        "complex numbers are left alone": (
            lambda s, x, y: (x @ y.mT, F.conv1d(x[None], y.mT[..., None]), torch.cat([x, y.real], 1)),
            (torch.complex(X, X * 2), torch.complex(Y, Y * 3)),
        ),
        "control flow in the region": (
            lambda s, x: torch.cond(x.sum() > 0, lambda x: s.lin(x), lambda x: s.lin(x + 1), (x,)),
            (X,),
            [(-X,)],
        ),
    }

    FLOAT32 = {
        "some operators ask for float32": (
            lambda s, x, y: (
                F.mse_loss(s.lin(x), y),
                s.lin(x).prod(),
                torch.cat([s.lin(x), y]),
            ),
            (X, Y),
        ),
    }

    @staticmethod
    def under(dtype, cases):
        """The same cases under autocast."""

        def wrapped(function):
            def call(s, *args):
                with torch.autocast("cpu", dtype=dtype):
                    return function(s, *args)

            return call

        return {promise: (wrapped(function), *rest) for promise, (function, *rest) in cases.items()}

    def test_same_as_eager(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                self.assert_cases(self.under(dtype, self.CASES))

    def test_float32_results_of_lower_products_are_the_same(self):
        """The float32 results come from rounded products: they agree as those do, 5e-2 for bfloat16."""
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                self.assert_cases(self.under(dtype, self.FLOAT32), scale=500)

    def test_a_region_of_another_device_casts_nothing(self):
        def function(s, x):
            with torch.autocast("cuda", dtype=torch.float16):
                return s.lin(x)

        self.assert_cases({"cuda": (function, (X,))})

    def test_casts_that_the_program_does_not_show_are_refused(self):
        def function(s, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return F.bilinear(x, x, torch.ones(2, 4, 4))

        with self.assertRaisesRegex(
            ExportError, "bilinear.*autocast casts inside of it, where the program does not show it"
        ):
            to_onnx(OneInput(function), (X,))

    def test_what_torch_dynamo_captures_is_refused(self):
        """torch gives float32 to the fake values of a region captured by TorchDynamo, whose results are bfloat16."""

        def function(s, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return s.lin(x)

        def in_a_branch(s, x):
            return torch.cond(x.sum() > 0, lambda x: function(s, x).float(), lambda x: x + 1, (x,))

        message = "under autocast it is float32 for TorchDynamo, which captures bodies and strict exports, and it is not: capture with strict=False, and enter autocast outside"
        for refused, strict in ((function, True), (in_a_branch, False)):
            with self.subTest(strict=strict), self.assertRaisesRegex(ExportError, message):
                to_onnx(OneInput(refused), (X,), export_options=ExportOptions(strict=strict))

    def test_images_of_any_size(self):
        """What torch calls an interpolation inside takes no dynamic size."""

        def function(s, x):
            height, width = x.shape[2:]
            y = F.interpolate(x @ x.mT, size=(2 * height, width + 1), mode="bilinear")
            return (
                y,
                F.interpolate(y[0], scale_factor=1.5, mode="linear"),
                F.interpolate(y, size=(height, width)),
            )

        case = function, (IMAGE,), [(torch.randn(1, 2, 3, 7),)], ({2: D, 3: D},)
        self.assert_cases(self.under(torch.bfloat16, {"interpolations": case}))

    def test_recurrent_layers_of_any_length_are_refused(self):
        """torch computes step after step there, as many as the example has: the model took no other length."""
        layers = {
            "keeps dynamic sizes at 3, those of the example": torch.nn.GRU(4, 5),
            "keeps dynamic sizes at .*3, those of the example": torch.nn.RNN(4, 5),
            "says: Cannot call": torch.nn.LSTM(4, 5),
        }
        for message, layer in layers.items():
            function, x = lambda s, x, layer=layer: layer(x)[0], X.unsqueeze(1)
            (case,) = self.under(torch.bfloat16, {"layer": (function, (x,))}).values()
            with (
                self.subTest(layer),
                self.assertRaisesRegex(ExportError, f"tracing it again, torch {message}"),
            ):
                to_onnx(OneInput(case[0]), (x,), dynamic_shapes=({0: "steps"},))

    def test_recurrent_cells(self):
        """Their operators go on in float32, where eager rounds each result: they agree as bfloat16 does, 5e-2."""
        gru, cell = torch.nn.GRU(4, 5), torch.nn.LSTMCell(4, 5)
        cases = {
            "a layer": (lambda s, x: gru(x.unsqueeze(0))[0], (X,)),
            "a cell": (lambda s, x: cell(x)[0], (X,)),
        }
        self.assert_cases(self.under(torch.bfloat16, cases), scale=500)

    def test_the_tables_name_operators_of_torch(self):
        """Each name of the tables has an autocast kernel; every other operator that has one is computed in float32."""
        having = {
            name.split("::")[1].split(".")[0]
            for name in torch._C._dispatch_get_all_op_names()
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, DISPATCH_KEY)
        }
        self.assertLessEqual(LOWER | PROMOTE, having)


if __name__ == "__main__":
    unittest.main()
