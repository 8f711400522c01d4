"""Gradients of embedding_bag: torch.export takes them apart, aot_autograd leaves them whole."""

import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment.comparison import run, session
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten

TABLE = torch.arange(24.0).reshape(6, 4) / 7
INDICES, OFFSETS = torch.tensor([1, 5, 1, 0, 2]), torch.tensor([0, 2, 2, 4])
GRADIENT = torch.arange(16.0).reshape(4, 4) / 5 - 1
WEIGHTS = torch.tensor([0.5, -1.0, 2.0, 0.25, 3.0])
SUM, MEAN, MAX = range(3)


def arguments(mode, weights=None, padding=-1, scaled=False, offsets=OFFSETS):
    """What aot_autograd calls the gradient with, after a forward of this mode."""
    bags = aten._embedding_bag.default(TABLE, INDICES, offsets, scaled, mode, False, weights, False, padding)
    return GRADIENT, INDICES, offsets, *bags[1:], 6, scaled, mode, False, weights, padding


def program(target, args):
    """A graph of one node; its inputs are the tensors among the arguments."""
    graph, mode = torch.fx.Graph(), FakeTensorMode()
    nodes = []
    for position, item in enumerate(args):
        if isinstance(item, torch.Tensor):
            node = graph.placeholder(f"x{position}")
            node.meta["val"] = mode.from_tensor(item)
            item = node
        nodes.append(item)
    result = graph.call_function(target, tuple(nodes))
    result.meta["val"] = mode.from_tensor(target(*args))
    graph.output((result,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


class TestGradientsOfBags(unittest.TestCase):
    def check(self, target, args):
        """The model gives what torch does."""
        tensors = [item for item in args if isinstance(item, torch.Tensor)]
        model = to_onnx(program(target, args))
        kept = {value.name for value in model.graph.input}
        self.assertEqual(len(kept), len(tensors))
        (got,) = run(session(model), tensors)
        torch.testing.assert_close(got, target(*args))

    def test_gradients_of_the_table(self):
        cases = {
            "sum": (SUM,),
            "mean": (MEAN,),
            "weights of samples": (SUM, WEIGHTS),
            "padding": (SUM, None, 1),
            "padding of a mean": (MEAN, None, 1),
            "maximum": (MAX,),
            "padding of a maximum": (MAX, None, 1),
        }
        for promise, case in cases.items():
            with self.subTest(promise):
                self.check(aten._embedding_bag_backward.default, arguments(*case))

    def test_gradients_of_the_weights_of_samples(self):
        for padding in (-1, 1):
            with self.subTest(padding=padding):
                _, _, offsets, offset2bag, *_ = arguments(SUM, WEIGHTS, padding)
                args = GRADIENT, TABLE, INDICES, offsets, offset2bag, SUM, padding
                self.check(aten._embedding_bag_per_sample_weights_backward.default, args)

    def test_refused(self):
        with self.assertRaisesRegex(ExportError, "only dense gradients without scale_grad_by_freq"):
            to_onnx(program(aten._embedding_bag_backward.default, arguments(SUM, None, -1, True)))


if __name__ == "__main__":
    unittest.main()
