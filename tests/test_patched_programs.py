"""Patches leave alone what needs none: the programs of networks are those of torch.export without a patch."""

import unittest

import torch

from experimental_experiment.torch_interpreter import CaptureError, ExportOptions
from experimental_experiment.torch_interpreter.capture import capture
from tests import networks  # noqa: F401 (registers its builders)
from tests.architectures import build

NETWORKS = (
    "convnext",
    "gru",
    "lstm",
    "mlp",
    "multihead_attention",
    "nn_transformer_encoder",
    "resnet",
    "rnn",
)
"""Those of transformers take minutes; their sliding windows are patched to be right."""


def nodes(name, patches):
    """The nodes of a program, with the types and the memory of their results; None when torch.export refuses the model."""
    found = build(name)
    options = ExportOptions(patches=patches)
    try:
        with options.patched() as modificator:
            program = capture(found.model, (), modificator(found.kwargs), found.dynamic_shapes, options)
    except CaptureError:
        return None
    places = {node: f"%{place}" for place, node in enumerate(program.module.graph.nodes)}
    return [line for node in places for line in described(node, places)]


def described(node, places):
    """A node as text: what it calls, on what, and what torch knows of its results.

    The numbers in the names of nodes depend on what was recorded and removed. Strides are those of the example: torch has several ways to
    write one.
    """
    arguments = torch.fx.node.map_arg((node.args, node.kwargs), places.__getitem__)
    yield f"{places[node]} {node.op} {node.target} {arguments}"
    for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor):
            strides = [step if isinstance(step, int) else step.node.hint for step in value.stride()]
            yield f"  {value.dtype} {list(value.shape)} {strides} {value.storage_offset()}"


class TestPrograms(unittest.TestCase):
    """One test a network."""

    maxDiff = 2000

    def check(self, name):
        without = nodes(name, False)
        if without is None:
            self.skipTest("torch.export refuses the model without patches")
        self.assertEqual(nodes(name, True), without)


def add(name):
    """The test of one architecture."""
    setattr(TestPrograms, f"test_{name}", lambda self: self.check(name))


for _name in NETWORKS:
    add(_name)


if __name__ == "__main__":
    unittest.main()
