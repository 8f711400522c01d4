"""simple_loop_for: eager, captured strict or not, in ONNX; the example of the documents."""

import itertools
import unittest

import torch
from torch._higher_order_ops import scan, while_loop

from _unittests.ut_control_flow.holder import ControlFlowTestCase, D, OneInput, TwoInputs
from experimental_experiment.higher_order_ops import simple_loop_for
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx
from experimental_experiment.versions import numbers

N = torch.tensor
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
LONG = torch.ones(7, 4)
ROWS = ({0: D}, None)
TURNS = [(LONG, N(5)), (LONG, N(0)), (X, N(1))]


def crop_in_python(W, splits, crop_size=4):
    """The example of the documents, a loop over tensors."""
    cropped = []
    for start, end in itertools.pairwise(splits):
        cropped.append(W[:, start:end][:, :crop_size])
    return torch.cat(cropped, dim=1)


def crop(s, W, splits):
    """The same with the operator."""

    def body(i, splits, W):
        split = splits[i.item() : (i + 1).item()][0]
        extract = W[:, split[0].item() : split[1].item()]
        return (extract[:, : torch.sym_min(extract.shape[1], 4)],)

    starts_ends = torch.cat([splits[:-1].unsqueeze(1), splits[1:].unsqueeze(1)], dim=1)
    turns = torch.tensor(starts_ends.shape[0], dtype=torch.int64)
    return simple_loop_for(turns, body, (starts_ends, W), concatenation_dims=[1])


def captured(s, x, n):
    k, y = x.shape[0], x * 2
    return simple_loop_for(
        n, lambda i, x: (s.lin(x) * s.b + i + k, y[:1], i.reshape(1)), (x,), concatenation_dims=[0, -1, 0]
    )


def rows_of_turns(s, x):
    def body(i, x):
        y = x.clone()
        y[i] = s.b
        return y, x[i] * 2, x[:, i:].sum(1), x[..., i], x[i][x[i] > 0]

    return simple_loop_for(3, body, (x,))


def captured_tensors(s, x, n):
    return simple_loop_for(n, lambda i, x: (s.lin(x) * s.b + i, x[:1] * 2), (x,), [0, -1])


def nested(s, x, n):
    def body(i, x):
        return simple_loop_for(i + 1, lambda j, x: s.lin(x)[:1] * i + j, (x,))

    return simple_loop_for(n, body, (x,))


def with_cond(s, x, n):
    def body(i, x):
        return torch.cond(i % 2 == 0, lambda x: s.lin(x), lambda x: x - 1, (x,))

    return simple_loop_for(n, body, (x,))


def in_cond(s, x, n):
    def looped(x, n):
        return simple_loop_for(n, lambda i, x: s.lin(x), (x,))

    return torch.cond(x.sum() > 0, looped, lambda x, n: x - 1, (x, n))


def with_while(s, x, n):
    def body(i, x):
        return while_loop(lambda j, x: j < i, lambda j, x: (j + 1, s.lin(x)), (N(0), x))[1]

    return simple_loop_for(n, body, (x,))


def in_while(s, x, n):
    def body(j, x):
        return j + 1, simple_loop_for(j + 1, lambda i, x: x * i, (x,)).sum(0) + x

    return while_loop(lambda j, x: j < n, body, (N(0), x))


def every_dtype(s, x, n):
    return simple_loop_for(
        n, lambda i, x: (x > 0, x.half(), (x * 3).to(torch.int32), x.double(), x.bfloat16()), (x,)
    )


SPLITS = (torch.rand((2, 22)), N([0, 5, 15, 20, 22]))
OTHER_SPLITS = [(torch.rand(3, 30), N([0, 1, 3, 9, 13, 22])), (torch.rand(3, 30), N([0, 3]))]


class TestSimpleLoopFor(ControlFlowTestCase):
    CASES = {
        "the example of the documents": (crop, SPLITS, OTHER_SPLITS, ({0: D, 1: D}, {0: D})),
        "weights, tensors and sizes are captured, no turn": (captured, (X, N(2)), TURNS, ROWS),
        "static sizes": (captured, (X, N(2)), [(X, N(5)), (X, N(0))]),
        "the number of turns is an int": (lambda s, x: simple_loop_for(5, lambda i, x: x + i, (x,)), (X,)),
        "the number of turns is 0": (lambda s, x: simple_loop_for(0, lambda i, x: x + i, (x,)), (X,)),
        "the number of turns is a size": (
            lambda s, x: simple_loop_for(x.shape[0], lambda i, x: x[i.item() : i.item() + 1] * 2, (x,)),
            (X,),
            [(LONG,)],
            ({0: D},),
        ),
        "the turn is an index": (rows_of_turns, (X,), [(LONG,), (-X,)], ({0: D},)),
        "the number of turns is an int32, has one element": (
            lambda s, x, n: simple_loop_for(n, lambda i, x: x * i, (x,)),
            (X, N([3], dtype=torch.int32)),
            [(X, N([0], dtype=torch.int32))],
        ),
        "nested": (nested, (X, N(3)), TURNS, ROWS),
        "cond inside": (with_cond, (X, N(3)), TURNS, ROWS),
        "inside cond": (in_cond, (X.abs(), N(3)), [(-X.abs(), N(3)), (X.abs(), N(2))]),
        "while_loop inside": (with_while, (X, N(3)), [(X, N(0)), (X, N(6))]),
        "inside while_loop": (in_while, (X, N(3)), [(X, N(0)), (X, N(6))]),
        "a turn gives another size than the one before": (
            lambda s, x, n: simple_loop_for(n, lambda i, x: x[:, : i.item()], (x,), 1),
            (X, N(3)),
            [(LONG, N(4)), (X, N(0))],
            ROWS,
        ),
        "the data give the sizes": (
            lambda s, x, n: simple_loop_for(n, lambda i, x: (x - i).nonzero(), (x,)),
            ((X * 2).round(), N(3)),
            [((LONG * 2).round(), N(4)), (X, N(0))],
            ROWS,
        ),
        "more results than operands, of every dtype": (every_dtype, (X, N(3)), TURNS, ROWS),
        "no operand": (lambda s, x, n: simple_loop_for(n, lambda i: x * i), (X, N(3)), TURNS, ROWS),
        "the operand is returned, twice": (
            lambda s, x, n: simple_loop_for(n, lambda i, x: (x, x), (x,)),
            (X, N(3)),
            [(X, N(0))],
        ),
    }

    STRICT = {
        "the example of the documents": CASES["the example of the documents"],
        "weights are captured": (captured_tensors, (X, N(2)), TURNS, ROWS),
        "nested": CASES["nested"],
        "the turn is an index": CASES["the turn is an index"],
    }

    def test_the_example_in_eager(self):
        module = TwoInputs(crop)
        for args in [SPLITS, *OTHER_SPLITS]:
            torch.testing.assert_close(module(*args), crop_in_python(*args), rtol=0, atol=0)

    @unittest.skipIf(
        numbers(torch.__version__) >= numbers("2.14"),
        "torch runs no scan whose body has sizes that the data tell",
    )
    def test_inside_scan(self):
        def sums(s, x):
            return scan(
                lambda c, r: (c + r, simple_loop_for(3, lambda i, r: r * i, (r,)).sum()), torch.zeros(4), x
            )

        self.assert_cases({"inside scan": (sums, (X,))})

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_same_as_eager_strict(self):
        self.assert_cases(self.STRICT, export_options=ExportOptions(strict=True))

    def test_same_as_eager_decomposed(self):
        options = ExportOptions(decomposition_table="default")
        self.assert_cases({"captured": self.CASES["static sizes"]}, export_options=options)

    def test_every_opset(self):
        for opset in (18, 23, 26):
            with self.subTest(opset=opset):
                self.assert_cases({"captured": self.CASES["static sizes"]}, target_opset=opset)

    def test_one_loop_and_one_concatenation_by_result(self):
        model = to_onnx(TwoInputs(captured), (X, N(2)), dynamic_shapes=ROWS)
        counts = [node.op_type for node in model.graph.node]
        self.assertEqual(counts.count("Loop"), 1)
        self.assertEqual(counts.count("ConcatFromSequence"), 3)
        self.assertNotIn("Concat", [node.op_type for node in model.graph.node if "body" in node.name])

    def test_the_concatenated_size_is_unknown_to_torch(self):
        program = torch.export.export(OneInput(self.CASES["the number of turns is an int"][0]), (X,))
        (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.higher_order.simple_loop_for)
        size = node.meta["val"][0].shape[0]
        self.assertIsInstance(size, torch.SymInt)

    def test_gradients_in_eager(self):
        module = TwoInputs(captured_tensors)
        x = X.clone().requires_grad_()
        module(x, 3)[0].sum().backward()
        looped = x.grad.clone(), module.lin.weight.grad.clone()
        x.grad = module.lin.weight.grad = None
        torch.cat([module.lin(x) * module.b + i for i in range(3)]).sum().backward()
        torch.testing.assert_close(looped, (x.grad, module.lin.weight.grad))

    def test_one_result_is_a_tensor_several_are_a_tuple(self):
        self.assertEqual(simple_loop_for(2, lambda i, x: (x,), (X,)).shape, (6, 4))
        self.assertEqual(
            [t.shape for t in simple_loop_for(2, lambda i, x: (x, i[None]), (X,))], [(6, 4), (2,)]
        )
        self.assertEqual(
            [t.dtype for t in simple_loop_for(0, lambda i: (i[None], X.half()))], [torch.int64, torch.float16]
        )

    def test_the_iteration_number_is_an_int64(self):
        seen = []
        simple_loop_for(N(2, dtype=torch.int32), lambda i: seen.append(i) or i[None])
        self.assertEqual(
            [(i.dtype, i.dim(), i.item()) for i in seen], [(torch.int64, 0, 0), (torch.int64, 0, 1)]
        )

    MISUSES = {
        "body_fn returns a tensor or a tuple": (TypeError, (2, lambda i, x: None, (X,))),
        "body_fn returns a tensor or a tuple of tensors": (TypeError, (2, lambda i, x: (), (X,))),
        "result 1 of body_fn is not a tensor": (TypeError, (2, lambda i, x: (x, 3), (X,))),
        "operands is a tuple of tensors": (TypeError, (2, lambda i, x: x, (X, 3))),
        "operands is a tuple": (TypeError, (2, lambda i, x: x, X)),
        "n_iter is an int": (TypeError, (2.0, lambda i, x: x, (X,))),
        "n_iter is an int or a 0-d integer tensor": (TypeError, (N([1, 2]), lambda i, x: x, (X,))),
        "body_fn is a function": (TypeError, (2, X, (X,))),
        "concatenation_dims has 2 entries": (ValueError, (2, lambda i, x: x, (X,), [0, 1])),
        "concatenation_dims has 1 entries": (ValueError, (2, lambda i, x: (x, x), (X,), 0)),
        "no axis 2 to concatenate": (ValueError, (2, lambda i, x: x, (X,), [2])),
        "no axis 0 to concatenate": (ValueError, (2, lambda i, x: x.sum(), (X,))),
        "writes one of its operands": (RuntimeError, (2, lambda i, x: x.add_(1), (X.clone(),))),
    }

    def test_misuse_is_told(self):
        for message, (error, args) in self.MISUSES.items():
            with self.subTest(message), self.assertRaisesRegex(error, message):
                simple_loop_for(*args)

    def test_misuse_is_told_by_the_capture(self):
        for message, (error, args) in self.MISUSES.items():
            with self.subTest(message), self.assertRaisesRegex(error, message):
                torch.export.export(OneInput(lambda s, x, args=args: simple_loop_for(*args)), (X,))

    def test_another_number_of_results_is_told(self):
        with self.assertRaisesRegex(ValueError, "returns 1 tensors at turn 1, 2 before"):
            simple_loop_for(3, lambda i, x: (x, x) if i == 0 else (x,), (X,))


if __name__ == "__main__":
    unittest.main()
