"""What older versions of torch lack or spell otherwise."""

import types
import unittest

import torch
from torch._dynamo.source import LocalSource
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.torch_versions import installed, keywords_in, source_name


class TestTorchVersions(unittest.TestCase):
    def test_operators_that_are_not_there_are_left_out(self):
        names = "add.Tensor", "add.of_tomorrow", "of_tomorrow.default"
        self.assertEqual(installed(*names), [torch.ops.aten.add.Tensor])

    def test_the_name_of_a_source(self):
        self.assertEqual(source_name(LocalSource("x")), "L['x']")
        for name in ("L['x']", lambda: "L['x']"):
            self.assertEqual(source_name(types.SimpleNamespace(name=name)), "L['x']")

    def test_the_keywords_of_a_spec(self):
        _, spec = pytree.tree_flatten(((1, 2), {"b": 3, "a": 4}))
        children = spec.children() if hasattr(spec, "children") else spec.children_specs
        older = types.SimpleNamespace(children_specs=children)
        for each in (spec, older):
            self.assertEqual(keywords_in(each), ["b", "a"])


if __name__ == "__main__":
    unittest.main()
