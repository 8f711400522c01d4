"""Shaping: view, reshape, flatten, squeeze, expand, checked against eager, and the nodes they cost."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


def op_types(model):
    return [node.op_type for node in model.graph.node]


class TestShaping(ExporterTestCase):
    CASES = {
        "view in two axes": (aten.view.default, floats(2, 3, 4), [2, 12]),
        "view with a size to find": (aten.view.default, floats(2, 3, 4), [-1, 4]),
        "view of a 0-d tensor": (aten.view.default, floats(), [1]),
        "view as a 0-d tensor": (aten.view.default, floats(1, 1), []),
        "view of an empty tensor": (aten.view.default, floats(0, 3), [3, 0]),
        "view of an empty tensor with a size to find": (aten.view.default, floats(0, 4), [-1, 2]),
        "view of booleans": (aten.view.default, floats(2, 3) > 2, [6]),
        "view_copy": (aten.view_copy.default, floats(2, 3), [3, 2]),
        "_unsafe_view": (aten._unsafe_view.default, floats(2, 3), [3, 2]),
        "_reshape_copy": (aten._reshape_copy.default, floats(2, 3), [3, -1]),
        "reshape": (aten.reshape.default, floats(2, 3, 8), [2, 3, -1, 4]),
        "_reshape_alias": (aten._reshape_alias.default, floats(2, 3), [3, 2], [2, 1]),
        "reshape_as": (aten.reshape_as.default, floats(2, 3), floats(3, 2)),
        "view_as": (aten.view_as.default, floats(2, 6), floats(3, 4)),
        "flatten all": (aten.flatten.using_ints, floats(2, 3, 4)),
        "flatten behind the batch": (aten.flatten.using_ints, floats(2, 3, 4), 1),
        "flatten the first axes": (aten.flatten.using_ints, floats(2, 3, 4), 0, 1),
        "flatten the middle": (aten.flatten.using_ints, floats(2, 3, 4, 5), -3, 2),
        "flatten one axis": (aten.flatten.using_ints, floats(2, 3), 1, 1),
        "flatten a 0-d tensor": (aten.flatten.using_ints, floats()),
        "flatten an empty tensor": (aten.flatten.using_ints, floats(2, 0, 3), 1),
        "ravel": (aten.ravel.default, floats(2, 3)),
        "unflatten with a size to find": (aten.unflatten.int, floats(2, 6), 1, [2, -1]),
        "unflatten a negative axis": (aten.unflatten.int, floats(6, 2), -2, [3, 2]),
        "squeeze": (aten.squeeze.default, floats(1, 3, 1)),
        "squeeze_copy": (aten.squeeze_copy.default, floats(1, 3, 1)),
        "squeeze an axis": (aten.squeeze.dim, floats(1, 3, 1), -1),
        "squeeze an axis that stays": (aten.squeeze.dim, floats(1, 3, 1), 1),
        "squeeze an axis of a 0-d tensor": (aten.squeeze.dim, floats(), 0),
        "squeeze_copy of an axis": (aten.squeeze_copy.dim, floats(1, 3), 0),
        "squeeze axes": (aten.squeeze.dims, floats(1, 3, 1), [0, -1]),
        "squeeze_copy of axes": (aten.squeeze_copy.dims, floats(1, 3, 1), [0, 1]),
        "unsqueeze the last axis": (aten.unsqueeze.default, floats(3), -1),
        "unsqueeze a 0-d tensor": (aten.unsqueeze.default, floats(), 0),
        "unsqueeze_copy": (aten.unsqueeze_copy.default, floats(3), 0),
        "expand with new axes": (aten.expand.default, floats(1, 3), [2, 4, 3]),
        "expand keeps a size": (aten.expand.default, floats(1, 3), [-1, 3]),
        "expand a 0-d tensor": (aten.expand.default, floats(), [2, 2]),
        "expand to nothing": (aten.expand.default, floats(1, 3), [0, 3]),
        "expand_copy": (aten.expand_copy.default, floats(1, 3), [2, 3]),
        "expand_as": (aten.expand_as.default, floats(1, 3), floats(2, 5, 3)),
        "broadcast_to": (aten.broadcast_to.default, floats(3), [2, 3]),
        "broadcast_tensors": (
            lambda *tensors: aten.broadcast_tensors.default(tensors),
            floats(3, 1),
            floats(4),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_symbolic_sizes_of_other_tensors(self):
        def views(x, y):
            batch, length, width = x.shape
            return (
                x.view(y.shape[0], length, 2, -1),
                x.reshape(batch * length, width),
                x.view(batch, -1),
                x.reshape(-1, batch),
                y[:, None, None].expand(batch, length, width),
                y[:, None].expand(-1, width),
            )

        x, y = floats(2, 3, 4), floats(2)
        others = [(floats(5, 7, 4), floats(5)), (floats(3, 2, 8), floats(3))]
        self.assert_same_as_eager(views, x, y, others=others)

    def test_minus_one_is_another_size_for_each_operator(self):
        """The shape of a Reshape, -1 and a size, is none for an Expand."""

        def shaped(x, y):
            size = y.shape[0]
            column = x[:, :1]
            return x.flatten().reshape(-1, size), column.expand(-1, size), column.repeat(1, size)

        self.assert_same_as_eager(
            shaped, torch.randn(4, 6), torch.randn(6), others=[(torch.randn(7, 5), torch.randn(5))]
        )

    def test_an_empty_batch_is_reshaped(self):
        class Model(torch.nn.Module):
            def forward(self, x):
                batch, length, width = x.shape
                return x.view(batch, length, 2, width // 2), x.flatten(1), x.reshape(length, batch, width)

        sizes = {"dynamic_shapes": ({0: "batch", 1: "length"},)}
        self.export_and_compare(Model(), (floats(2, 3, 4),), others=[(floats(4, 1, 4),)], **sizes)
        for opset in (14, 20):  # before 14 a computed size of 0 is that of the input
            self.export_and_compare(
                Model(), (floats(2, 3, 4),), others=[(floats(0, 3, 4),)], target_opset=opset, **sizes
            )

    def test_heads_need_no_computed_shape(self):
        class Heads(torch.nn.Module):
            def forward(self, x):
                batch, length, width = x.shape
                heads = x.view(batch, length, -1, 8).transpose(1, 2)
                return heads.transpose(1, 2).reshape(batch, length, width)

        model = to_onnx(
            Heads(), (floats(2, 3, 32),), dynamic_shapes=({0: "batch", 1: "length"},), optimize=False
        )
        self.assertLessEqual(set(op_types(model)), {"Reshape", "Transpose", "Identity"})

    def test_a_view_that_changes_nothing_writes_nothing(self):
        def same(x):
            return x.view(x.shape[0], x.shape[1]).expand(x.shape[0], -1).reshape(x.shape).flatten(1) + 1

        model = self.assert_same_as_eager(same, floats(2, 3))
        self.assertEqual(op_types(model), ["Add"])


if __name__ == "__main__":
    unittest.main()
