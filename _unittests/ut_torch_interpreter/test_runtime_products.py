"""Rows of matrix products: those of vectors and of nothing, what ends the process where nothing is selected, the digits of float64 factors beside a product."""

import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import torch

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

SQUARE, VECTOR = torch.randn(5, 5), torch.randn(5)
LEFT, RIGHT, SQUARE64 = (torch.randn(*shape, dtype=torch.float64) for shape in ((2, 5, 7), (2, 7, 6), (5, 5)))
COUNTS = torch.arange(16, dtype=torch.float64).reshape(4, 4)
TO_ROUNDING = 1e-5
"""1e-12 instead of the 1e-7 of float64."""

MORE = 1 + 2.0**-30
"""One in float32; the products of integers by it and their difference to the integers are exact."""

ROWS = {
    "MatMul.of_a_vector": (lambda a, v: a.t() @ v, SQUARE, VECTOR),
    "MatMul.of_scaled_operands": (
        lambda a, exact: ((a * MORE).mT @ a - exact) * 2.0**30,
        COUNTS,
        COUNTS.mT @ COUNTS,
    ),
    "Mul.of_a_product": (lambda a, exact: ((a @ a) * MORE - exact) * 2.0**30, COUNTS, COUNTS @ COUNTS),
    "Div.of_a_product": (lambda a, exact: ((a @ a) / 3.0 - exact) * 2.0**30, COUNTS, COUNTS @ COUNTS / 3.0),
    "Gemm.with_a_factor_over_nothing": (
        lambda a, b, c: torch.addmm(c, a, b, beta=0.5), torch.randn(2, 0), torch.randn(0, 3), torch.randn(2, 3),
    ),
}  # fmt: skip

UNSET = {"MatMul.over_nothing": (lambda a, b: a @ b.mT, torch.randn(2, 3, 0), torch.randn(2, 4, 0))}
"""Rows without which a result is whatever the memory held."""

FATAL = {
    "MatMul.cast_before_the_transposition": (
        lambda x, w: x.transpose(0, 1).float() @ w.float(),
        torch.randn(3, 4, 5).half(),
        torch.randn(5, 6).half(),
    )
}
"""Rows without which onnxruntime ends the process."""

LSTM, GRU = (build(3, 3, batch_first=True, bidirectional=True) for build in (torch.nn.LSTM, torch.nn.GRU))

FATAL_WITHOUT_ROWS = {
    "LSTM.beside_one_more_sample": {
        "from zeros": lambda x: LSTM(x)[0],
        "from given states": lambda x: LSTM(x, (x.transpose(0, 1), x.flip(1).transpose(0, 1))),
        "last states": lambda x: LSTM(x)[1],
    },
    "GRU.beside_one_more_sample": {
        "from zeros": lambda x: GRU(x)[0],
        "from given states": lambda x: GRU(x, x.transpose(0, 1)),
    },
    "MatMul.of_rows_that_are_selected": {
        "left": lambda x: x.transpose(0, 1) @ x.permute(1, 2, 0),
        "right": lambda x: torch.ones(2, 1, 3) @ x.permute(1, 2, 0),
        "scaled": lambda x: (x.transpose(0, 1) * 0.5) @ torch.ones(2, 3, 4),
    },
    "Einsum.of_what_is_selected": {
        "heads": lambda x: torch.einsum("nhd,mhd->hnm", x, x),
        "two summed axes": lambda x: torch.einsum("nhd,mhd->nm", torch.ones(4, 2, 3), x),
        "a batch": lambda x: torch.einsum("nd,nmd->nm", x[:, 0], x),
    },
}
"""Rows without which onnxruntime ends the process where the data select nothing."""

UNSET_WITH_OTHER_SIZES = {
    "MatMul.that_may_be_over_nothing": {
        "right": lambda a, b: a @ b.mT,
        "left": lambda a, b: a.mT.contiguous().mT @ b.mT,
        "scaled": lambda a, b: a @ (b.mT * 0.5),
        "cast": lambda a, b: (a.double() @ b.mT.double()).float(),
        "of heads": lambda a, b: (a[:, None] @ b[:, None].mT).squeeze(1),
    }
}
"""Rows without which a result is whatever the memory held when the model is given other sizes than the example's."""

SLOW = {
    "MatMulInteger.of_unsigned_integers": (
        lambda a, b: torch.ops.aten._int_mm(a, b),
        *(torch.randint(-128, 128, size, dtype=torch.int8) for size in ((40, 64), (64, 24))),
    )
}
"""Rows that concern the time alone."""

OTHER_ROWS = UNSET | UNSET_WITH_OTHER_SIZES | FATAL | FATAL_WITHOUT_ROWS | SLOW

LOADED = (
    "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
)
"""A program that loads a model."""

RUN_ON_NOTHING = LOADED + ".run(None, {'x': [[[-1.0] * 3] * 2]})"
"""A program that also runs one whose rows are selected where they are positive."""


class TestProducts(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_results_that_are_not_set(self):
        for name, (function, *args) in UNSET.items():
            with self.subTest(name):
                self.assertEqual(0, float(self.over_sevens(to_onnx(function, tuple(args)), args).abs().max()))
                with without_row(name):
                    model = to_onnx(function, tuple(args))
                self.assertEqual(7, float(self.over_sevens(model, args).abs().max()))

    def test_results_that_are_not_set_with_other_sizes(self):
        sizes = {0: "batch", 1: "rows", 2: "summed"}, {0: "batch", 1: "columns", 2: "summed"}
        args = torch.randn(3, 2, 5), torch.randn(3, 6, 5)
        for name, functions in UNSET_WITH_OTHER_SIZES.items():
            for promise, function in functions.items():
                with self.subTest(name, promise=promise):
                    model = to_onnx(function, args, dynamic_shapes=sizes)
                    empty = torch.randn(2, 3, 0), torch.randn(2, 4, 0)
                    self.assertEqual(0, float(self.over_sevens(model, empty).abs().max()))
                    others = [(torch.randn(n, 2, 5), torch.randn(n, 1, 5)) for n in (0, 1)]
                    self.export_and_compare(function, args, dynamic_shapes=sizes, others=others)
                    with without_row(name):
                        model = to_onnx(function, args, dynamic_shapes=sizes)
                    if model.graph.node[-1].op_type == "MatMul":  # what follows reads other memory
                        self.assertEqual(7, float(self.over_sevens(model, empty).abs().max()))

    def test_models_that_end_the_process(self):
        for name, (function, *args) in FATAL.items():
            with self.subTest(name):
                self.assertEqual(0, self.loads(to_onnx(function, tuple(args))))
                with without_row(name):  # a rule of the optimizer repairs one of them, too
                    model = to_onnx(function, tuple(args), optimize=False)
                self.assertLess(self.loads(model), 0)

    def test_models_that_end_the_process_where_nothing_is_selected(self):
        for name, functions in FATAL_WITHOUT_ROWS.items():
            for promise, function in functions.items():
                with self.subTest(name, promise=promise):
                    self.check_selection(name, lambda x, function=function: function(x[x[:, 0, 0] > 0]))

    def check_selection(self, name: str, function):
        """Export with and without a row, and select nothing."""
        x, sizes = torch.ones(4, 2, 3), ({0: "rows"},)
        model = to_onnx(function, (x,), dynamic_shapes=sizes)
        self.assertEqual(0, self.loads(model, RUN_ON_NOTHING))
        for optimize in (True, False):
            others = [
                (-x,),
                (torch.randn(7, 2, 3),),
                (torch.tensor([1.0, -1])[:, None, None].expand(2, 2, 3),),
            ]
            self.export_and_compare(function, (x,), others=others, dynamic_shapes=sizes, optimize=optimize)
        with without_row(name):
            model = to_onnx(function, (x,), dynamic_shapes=sizes)
        self.assertLess(self.loads(model, RUN_ON_NOTHING), 0)

    def test_a_pre_norm_encoder_of_halves(self):
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, norm_first=True, batch_first=True).half().eval()
        x = torch.randn(2, 5, 16).half()
        sizes = ({0: "batch", 1: "sequence"},)
        self.assertEqual(0, self.loads(to_onnx(layer, (x,), dynamic_shapes=sizes)))
        self.export_and_compare(layer, (x,), others=[(torch.randn(3, 4, 16).half(),)], dynamic_shapes=sizes)

    def test_a_vector_and_a_matrix_that_is_not_computed(self):
        """No Transpose can be fused into their product, which is one MatMul."""
        weight, batch, vector = torch.randn(5, 5), torch.randn(3, 4, 5), torch.randn(5)
        columns = [(torch.randn(5, size), vector) for size in (0, 1, 3)]
        for name, function, args, sizes, others in (
            ("a weight and a vector", lambda v: weight @ v, (vector,), None, []),
            ("a vector and a weight", lambda v: v @ weight, (vector,), None, []),
            ("a matrix and a vector", lambda a, v: a @ v, (weight, vector), None, []),
            ("a vector and columns", lambda a, v: v @ a, (weight, vector), ({1: "columns"}, None), columns),
            ("a batch and a vector", lambda a, v: a @ v, (batch, vector), None, []),
        ):
            with self.subTest(name):
                model = self.export_and_compare(function, args, dynamic_shapes=sizes, others=others)
                self.assertEqual(["MatMul"], [node.op_type for node in model.graph.node])

    def test_a_product_of_what_a_loop_gives(self):
        """Its node has inputs that are not given."""

        def looped(x):
            return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1]

        for function in (
            lambda x: looped(x) @ SQUARE64,
            lambda x: looped(x) * 0.3,
            lambda x: looped(x) / 0.3,
        ):
            self.export_and_compare(function, (SQUARE64 + 1,))

    def test_no_rows_and_a_vector(self):
        vector = torch.randn(5)
        for shape in ((4, 5), (3, 4, 5)):
            self.export_and_compare(
                torch.matmul,
                (torch.randn(shape), vector),
                dynamic_shapes=({axis: f"size_{axis}" for axis in range(len(shape) - 1)}, None),
                others=[(torch.randn(0, *shape[1:]), vector), (torch.randn(*shape[:-2], 0, 5), vector)],
            )

    def test_a_factor_over_nothing_is_multiplied_before(self):
        model = self.export_and_compare(
            lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0),
            (torch.randn(3), torch.randn(2, 4), torch.randn(4, 3)),
            dynamic_shapes=(None, {0: "rows", 1: "summed"}, {0: "summed"}),
            others=[
                (torch.randn(3), torch.randn(n, m), torch.randn(m, 3)) for n, m in ((1, 1), (4, 0), (1, 0))
            ],
        )
        self.assertEqual(["Mul", "Gemm"], [node.op_type for node in model.graph.node])

    def loads(self, model, program: str = LOADED) -> int:
        """The exit code of another process that loads the model: negative when a signal ends it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path)
            return subprocess.run(
                [sys.executable, "-c", program, path], capture_output=True, check=False
            ).returncode

    def over_sevens(self, model, args) -> torch.Tensor:
        """The output of a model, in memory that held the number seven."""
        runner = session(model)
        binding, held = runner.io_binding(), np.full((2, 3, 4), 7, np.float32)
        for argument, tensor in zip(runner.get_inputs(), args):
            binding.bind_cpu_input(argument.name, tensor.numpy())
        binding.bind_output("output", "cpu", 0, np.float32, held.shape, held.ctypes.data)
        runner.run_with_iobinding(binding)
        return torch.from_numpy(held)

    CASES = {
        "a transposed matrix and a vector": (lambda a, v: a.t() @ v, SQUARE, VECTOR),
        "a vector and a transposed matrix": (lambda a, v: v @ a.t(), SQUARE, VECTOR),
        "mv": (lambda a, v: a.t().mv(v), SQUARE, VECTOR),
        "addmv": (lambda a, v: torch.addmv(v, a.t(), v, beta=0.5, alpha=2.0), SQUARE, VECTOR),
        "a batch of transposed matrices": (lambda a, v: a.mT @ v, torch.randn(2, 5, 4), VECTOR),
        "two vectors": (lambda a, v: a.t()[0] @ v, SQUARE, VECTOR),
        "scaled, then transposed": (lambda a, v: (a * 0.5).t() @ v, SQUARE, VECTOR),
        "a transposed batch of halves and a matrix": (
            lambda x, w: x.transpose(0, 1) @ w,
            torch.randn(3, 4, 5).half(),
            torch.randn(5, 6).half(),
        ),
        "a matrix and a rotated batch of bfloat16": (
            lambda w, x: w @ x.permute(1, 2, 0),
            torch.randn(6, 5).bfloat16(),
            torch.randn(4, 3, 5).bfloat16(),
        ),
        "a transposed batch of integers": (
            lambda x, w: x.transpose(0, 1).float() @ w,
            torch.arange(24).reshape(2, 3, 4),
            torch.randn(4, 5),
        ),
        "a batch in float64 and a number": (
            lambda a, b: (0.1 * (a @ b), a @ b * 3.0),
            torch.randn(2, 4, 5).double(),
            SQUARE.double(),
        ),
        "a factor of what is added": (lambda a, v: torch.addmm(v, a, a, beta=0.3, alpha=2.0), SQUARE, VECTOR),
        "a permuted batch": (
            lambda a, v: a.permute(2, 1, 0) @ v,
            torch.randn(3, 5, 4)[:, :, :3].repeat(1, 1, 2)[:5],
            torch.randn(3),
        ),
    }

    def test_signed_integers(self):
        ((name, (function, a, b)),) = SLOW.items()
        a[0], b[:, 0], b[:, 1] = -128, -128, 127
        with without_row(name):
            plain = self.export_and_compare(function, (a, b))
        shapes = {"dynamic_shapes": ({0: "rows"}, {})}
        shifted = self.export_and_compare(function, (a, b), others=[(a[:20], b)], **shapes)
        names = [[node.op_type for node in model.graph.node] for model in (plain, shifted)]
        self.assertEqual(["MatMulInteger"], names[0])
        self.assertEqual(["Cast", "Add", "Cast"] * 2 + ["MatMulInteger"], names[1])

    def test_between_transpositions(self):
        self.assert_cases(self.CASES)


class TestDigits(ExporterTestCase):
    CASES = {
        "a product that is scaled": (lambda a, b: (a @ b) * 0.3, LEFT, RIGHT),
        "a product that is divided": (lambda a, b: (a @ b) / 7**0.5, LEFT, RIGHT),
        "a product that is divided by three": (lambda a, b: (a @ b) / 3.0, LEFT, RIGHT),
        "an operand that is divided by three": (lambda a, b: (a / 3.0) @ b, LEFT, RIGHT),
        "an operand that is scaled": (lambda a, b: (a * 0.3) @ b, LEFT, RIGHT),
        "an operand that is scaled, then transposed": (lambda a, b: (a * 0.3).mT @ b, RIGHT, RIGHT),
        "a matrix and a vector": (lambda a, b: 0.3 * (a @ b[0, :, 0]), LEFT, RIGHT),
        "a column": (lambda a, b: (a @ b[..., :1]) * 0.3, LEFT, RIGHT),
        "the mean square of a vector": (lambda a: (a @ a) / 5, SQUARE64[0]),
        "a row and a column": (lambda a, b: (a[:1, :1] @ b[:1, ..., :1]) * 0.3, LEFT, RIGHT),
        "an operand of one element": (lambda a, b: (a[0, :1, :1] * 0.3) @ b[0, :1], LEFT, RIGHT),
        "addmm": (torch.addmm, SQUARE64, SQUARE64 + 1, SQUARE64 + 2, {"alpha": 0.3, "beta": 0.7}),
        "baddbmm": (torch.baddbmm, LEFT, LEFT[:, :, :5], LEFT, {"alpha": 0.3, "beta": 0.7}),
        "attention": (torch.nn.functional.scaled_dot_product_attention, LEFT, LEFT, LEFT, {"scale": 0.3}),
    }

    def test_factors_beside_a_matrix_product(self):
        self.assert_cases(self.CASES, scale=TO_ROUNDING)

    def test_in_a_branch(self):
        def branches(a, b):
            return torch.cond(
                a.sum() > 0, lambda a, b: (a @ b) * 0.3, lambda a, b: (a @ b) * 0.7, [a.clone(), b.clone()]
            )

        self.assert_same_as_eager(branches, LEFT, RIGHT, scale=TO_ROUNDING)

    def test_numbers_that_float32_holds_stay_scalars(self):
        model = to_onnx(lambda a, b: (a @ b) * 0.5 + 0.3, (LEFT, RIGHT))
        self.assertEqual([list(tensor.dims) for tensor in model.graph.initializer], [[], []])


if __name__ == "__main__":
    unittest.main()
