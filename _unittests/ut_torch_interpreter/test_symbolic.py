"""Arithmetic on sizes and on elements of tensors: Python's results, Python's rounding."""

import builtins
import math
import operator
import random
import unittest
from functools import reduce

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
D = torch.export.Dim.DYNAMIC


ARITHMETIC = {"Add", "Div", "Mod", "Mul", "Sub"}


class OfSizes(torch.nn.Module):
    """Calls a function on the sizes of x."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x.shape[0], x.shape[1]), x + 1


class OfElements(OfSizes):
    """Calls a function on two elements."""

    def forward(self, x):
        a, b = x.tolist()
        return self.function(a, b)


class OfInputs(OfSizes):
    """Calls a function on tensors."""

    def forward(self, x, y):
        return self.function(x, y)


class TestSymbolic(ExporterTestCase):
    SIZES = {
        "sums and products": lambda a, b: (a + b, a - b, b - a, a * b, 3 - a, -a, abs(b - a)),
        "floor division and remainder": lambda a, b: (
            a // 3,
            (a - 9) // 4,
            (a - 9) % 4,
            (3 - a) // b,
            -a % b,
        ),
        "true division is a float": lambda a, b: (a / b, a / 3, 1 / a),
        "rounding": lambda a, b: (
            math.floor(a / b),
            math.ceil(a / b),
            math.trunc(-a / b),
            round(a / 2),
            round(-b / 2),
        ),
        "minimum, maximum, sum, choice": lambda a, b: (
            torch.sym_min(a, b),
            torch.sym_max(a, b),
            torch.sym_max(a, 5),
            torch.sym_min(a * 2, b + 1),
            torch.sym_sum([a, b, 2]),
        ),
        "powers": lambda a, b: (a**2, a**3, a**0, (a / b) ** 2),
        "exponents of two": lambda a, b: (2 ** math.ceil(math.log2(a)), b.bit_length(), 2**a),
        "floats": lambda a, b: (a * 0.5, torch.sym_float(a), a / b - 1, torch.sym_sqrt(a)),
        "chains": lambda a, b: ((a + b) // 2 * 2 + (a % 2), a * b // (a + 1), -(-a // b)),
    }

    ELEMENTS = {
        "sums and products": lambda a, b: (a + b, a - b, a * b, -a, abs(a)),
        "quotients": lambda a, b: (a // b, a % b, a / b),
        "comparisons": lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b),
        "minimum, maximum": lambda a, b: (torch.sym_min(a, b), torch.sym_max(a, b), torch.sym_sum([a, b, 1])),
        "choice": lambda a, b: torch.sym_ite(a < b, a, b + 1),
        "not": lambda a, b: torch.sym_not(a < b),
    }

    def test_sizes(self):
        others = [(torch.ones(2, 9),), (torch.ones(12, 5),), (torch.ones(9, 9),), (torch.ones(30, 4),)]
        for promise, function in self.SIZES.items():
            with self.subTest(promise):
                self.export_and_compare(
                    OfSizes(function), (torch.ones(7, 3),), others=others, dynamic_shapes=({0: D, 1: D},)
                )

    def test_floor_divisions_of_sizes_are_divisions(self):
        """What is divided is not negative, or is not once the quotient is larger by a known number."""
        functions = {
            "(a + 3) // 4": (lambda a: (a + 3) // 4, ["Add", "Div"]),
            "(a - 1) // 8 + 1": (lambda a: (a - 1) // 8 + 1, ["Add", "Div"]),
            "(2 * a - 7) // 3 // 2": (
                lambda a: (2 * a - 7) // 3 // 2,
                ["Mul", "Add", "Div", "Add", "Div", "Sub"],
            ),
            "each of many halves": (
                lambda a: reduce(lambda half, _: (half + 1) // 2, range(6), a),
                ["Add", "Div"] * 6,
            ),
            "(a + -a % 4) // 4": (lambda a: (a + -a % 4) // 4, ["Mod", "Add", "Div"]),
            "a // -3": (lambda a: a // -3, ["Mod", "Sub", "Div"]),
            "(5 - a) // 3": (lambda a: (5 - a) // 3, ["Sub", "Mod", "Sub", "Div"]),
        }
        for promise, (function, expected) in functions.items():
            with self.subTest(promise):
                model = self.export_and_compare(
                    OfSizes(lambda a, b, function=function: (function(a),)),
                    (torch.ones(20, 3),),
                    others=[(torch.ones(size, 3),) for size in (1, 2, 3, 4, 7, 8, 9, 33)],
                    dynamic_shapes=({0: D, 1: D},),
                )
                found = [node.op_type for node in model.graph.node if node.op_type in ARITHMETIC]
                self.assertEqual([*expected, "Add"], found)  # the last one is that of OfSizes

    def test_integer_elements(self):
        pairs = [(-7, 3), (7, -3), (-7, -3), (6, 3), (0, 5), (2**40 + 1, 2**20)]
        others = [(torch.tensor(pair),) for pair in pairs]
        for promise, function in self.ELEMENTS.items():
            with self.subTest(promise):
                self.export_and_compare(OfElements(function), (torch.tensor([7, 3]),), others=others)

    def test_float_elements(self):
        # not 1.0 // 0.1, which is 9 in Python: torch.export captures floor(1.0 / 0.1), which is 10
        pairs = [(-7.5, 2.0), (7.5, -2.0), (0.7, 0.1), (6.0, -3.0), (0.0, 5.0)]
        others = [(torch.tensor(pair, dtype=torch.float64),) for pair in pairs]
        for promise, function in self.ELEMENTS.items():
            with self.subTest(promise):
                example = torch.tensor([7.5, 2.0], dtype=torch.float64)
                self.export_and_compare(OfElements(function), (example,), others=others)

    def test_data_dependent_sizes(self):
        def checked(x, y):
            a = x.item()
            torch._check(a >= 0)
            torch._check(a < y.shape[0])
            return y[a]

        def repeated(x, y):
            a = x.item()
            torch._check(a >= 0)
            return y.unsqueeze(0).repeat(a, 1) + a

        def sliced(x, y):
            a = x.item()
            torch._check(a >= 0)
            torch._check(a <= y.shape[0])
            return y[:a] * 2, y[a:]

        def guarded(x, y):
            a = x.item()
            torch._check(a >= 10)
            torch._check(a <= 60)
            return y + 2 if a // 2 >= 5 else y * 5

        cases = {
            "an element": (checked, 32, 59),
            "repetition": (repeated, 32, 3),
            "slices": (sliced, 32, 10),
            "checks decide": (guarded, 32, 11),
            "nonzero": (lambda x, y: (y > x).nonzero(), 1, -1),
            "a mask": (lambda x, y: y[y > x] * 2, 1, -3),
        }
        y = torch.randn(60, generator=torch.Generator().manual_seed(0))
        for promise, (function, first, other) in cases.items():
            with self.subTest(promise):
                self.export_and_compare(
                    OfInputs(function), (torch.tensor(first), y), others=[(torch.tensor(other), y)]
                )

    def test_numbers_are_outputs(self):
        def listed(x, y):
            return [*y.tolist(), x.item(), x.item() + 1, x.item() > 2]

        self.export_and_compare(
            OfInputs(listed),
            (torch.tensor(1), torch.tensor([2, 3])),
            others=[(torch.tensor(5), torch.tensor([-1, 0]))],
        )

    def test_rounding_to_digits(self):
        """As Python: the nearest decimal of the exact value, half to even; multiplying and dividing is not."""
        module = OfElements(lambda a, b: [round(a, digits) for digits in (0, 1, 2, 3, 16)] + [round(b, 2)])
        halves = [(2.675, 0.125), (1.005, 0.375), (-0.045, 2.5), (0.15, 0.35), (1e10 + 0.005, -0.0)]
        large = [(1e300, 5e-324), (45035996273.70497, 9007199254740993.0), (1e16 + 2, 4503599627370497.5)]
        generator = random.Random(0)
        decimals = [
            (generator.randint(-(10**6), 10**6) / 1000 + 0.0005, generator.uniform(-9, 9)) for _ in range(50)
        ]
        as_tensor = lambda pair: torch.tensor(pair, dtype=torch.float64)
        model = to_onnx(module, (as_tensor((1.5, 2.5)),))
        for pair in [*halves, *large, *decimals]:
            with self.subTest(pair):
                got = [float(value) for value in run(session(model), [as_tensor(pair)])]
                self.assertEqual(got, module(as_tensor(pair)))

    def test_rounding_to_tens_is_refused(self):
        module = OfSizes(lambda a, b: round(a / b, -1))
        with self.assertRaisesRegex(ExportError, "digits"):
            to_onnx(module, (torch.ones(7, 3),), dynamic_shapes=({0: D, 1: D},))

    def test_properties_of_tensors(self):
        """As torch.export names them where it does not use their values."""

        def properties(x):
            sizes = aten.sym_size.int(x, 0), aten.sym_size.int(x, -1), aten.sym_numel.default(x)
            return *sizes, aten.sym_stride.int(x, 0), aten.sym_stride.int(x, -1), x + 1

        self.assert_same_as_eager(properties, torch.ones(3, 4), others=[(torch.ones(5, 2),)])
        for x in (torch.ones(3, 4), torch.ones(3, 4).t()):
            for target, *more in ((aten.sym_stride.int, 0), (aten.sym_storage_offset.default,)):
                with self.subTest(target, contiguous=x.is_contiguous()):
                    module = calling(target, [x], *more)
                    if target is aten.sym_stride.int and x.is_contiguous():
                        self.assert_matches(to_onnx(module), module, (x,))
                    else:
                        with self.assertRaisesRegex(ExportError, "is not part of an ONNX model"):
                            to_onnx(module)

    def test_elements(self):
        for element in (aten.item.default, aten._local_scalar_dense.default):
            for x in (torch.tensor([[-3]], dtype=torch.int8), torch.tensor(2.5).half(), torch.tensor(True)):
                with self.subTest(element, dtype=x.dtype):
                    module = calling(element, [x])
                    self.assert_matches(to_onnx(module), module, (x,))


KINDS = {int: torch.int64, float: torch.float64, bool: torch.bool}
SYMBOLS = {
    torch.int64: ShapeEnv.create_unbacked_symint,
    torch.float64: ShapeEnv.create_unbacked_symfloat,
    torch.bool: ShapeEnv.create_unbacked_symbool,
}
INTEGERS = [(7, 3), (-7, 3), (7, -3), (-7, -3), (0, 5), (2**53 + 1, 2)]
FLOATS = [(7.5, 2.0), (-7.5, 2.0), (0.7, -0.1), (0.0, 3.0), (2.0, 2.0)]
BOOLS = [(True, False), (True, True), (False, False)]


def calling(target, tensors, *more, elements=False, as_list=False):
    """A program of one call, on tensors or on their elements, which are one list or several arguments."""
    graph, shapes = torch.fx.Graph(), ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)
    inputs = [graph.placeholder(f"x{position}") for position in range(len(tensors))]
    for position, (node, tensor) in enumerate(zip(inputs, tensors)):
        node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
        if elements:
            inputs[position] = graph.call_function(aten.item.default, (node,))
            inputs[position].meta["val"] = SYMBOLS[tensor.dtype](shapes)
    graph.output((graph.call_function(target, (inputs,) if as_list else (*inputs, *more)),))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


class TestFunctionsOfPython(ExporterTestCase):
    """Each function that a program may call on numbers: torch.export writes them where its user writes ``a // b``."""

    ARITHMETIC = (
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.mod,
        operator.truediv,
        operator.eq,
        operator.ne,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        torch.sym_max,
        builtins.max,
        torch.sym_min,
        builtins.min,
    )
    LOGIC = (operator.and_, operator.or_, operator.xor)
    SHIFTS = (operator.lshift, operator.rshift)
    SIGNS = (operator.neg, operator.pos, operator.abs, builtins.abs, torch.sym_float, torch.sym_int)
    ROUNDINGS = (math.ceil, math.floor, math.trunc, builtins.round)
    OF_FLOATS = (
        math.sqrt,
        torch._sym_sqrt,
        math.sin,
        torch._sym_sin,
        math.cos,
        torch._sym_cos,
        math.tanh,
        torch._sym_tanh,
        math.tan,
        torch._sym_tan,
        math.sinh,
        torch._sym_sinh,
        math.cosh,
        torch._sym_cosh,
        math.asin,
        torch._sym_asin,
        math.acos,
        torch._sym_acos,
        math.atan,
        torch._sym_atan,
        math.log2,
        torch._sym_log2,
        math.exp,
        math.log,
        math.fabs,
    )

    def assert_python(self, target, calls, **options):
        """The model of the first call is right for all of them."""
        as_tensors = lambda call: [torch.tensor(x, dtype=KINDS[type(x)]) for x in call]
        with self.subTest(target, kinds=[type(x) for x in calls[0]]):
            module = calling(target, as_tensors(calls[0]), elements=True, **options)
            model = to_onnx(module)
            for call in calls:
                self.assert_matches(model, module, tuple(as_tensors(call)))

    def test_arithmetic(self):
        for target in self.ARITHMETIC:
            self.assert_python(target, INTEGERS)
            self.assert_python(target, FLOATS)
            if target not in (builtins.max, builtins.min):  # an int or a float, as the values say
                self.assert_python(target, [(a, int(b) or 1) for a, b in FLOATS])

    def test_powers(self):
        self.assert_python(operator.pow, [(abs(a), b) for a, b in FLOATS[:2] + FLOATS[3:]])
        self.assert_python(math.pow, [(2.5, -3.0), (0.0, 2.0)])

    def test_bits(self):
        for target in self.LOGIC:
            self.assert_python(target, INTEGERS)
            self.assert_python(target, BOOLS)
        for target in self.SHIFTS:
            self.assert_python(target, [(a, abs(b)) for a, b in INTEGERS])
        for target in (operator.invert, operator.inv):
            self.assert_python(target, [(a,) for a, _ in INTEGERS])
        for target in (operator.not_, torch.sym_not):
            self.assert_python(target, [(True,), (False,)])

    def test_signs(self):
        for target in self.SIGNS:
            self.assert_python(target, [(a,) for a, _ in INTEGERS])
            self.assert_python(target, [(a,) for a, _ in FLOATS])

    def test_roundings(self):
        for target in self.ROUNDINGS:
            self.assert_python(target, [(0.5,), (1.5,), (2.5,), (-0.5,), (-2.5,), (-2.6,), (1e15 + 0.5,)])
            self.assert_python(target, [(7,), (-7,)])

    def test_functions_of_floats(self):
        for target in self.OF_FLOATS:
            self.assert_python(target, [(0.3,), (1.0,), (0.875,)])
            self.assert_python(target, [(1,)])

    def test_choices_and_sums(self):
        self.assert_python(torch.sym_ite, [(True, 2, 3), (False, 2, 3)])
        self.assert_python(torch.sym_ite, [(True, 2.5, 0.5), (False, 2.5, 0.5)])
        for as_list in (True, False):
            self.assert_python(torch.sym_sum, [(1, 2, 2**53), (4, 5, 6)], as_list=as_list)


if __name__ == "__main__":
    unittest.main()
