"""
Submodules as functions
=======================

A model of forty equal layers is long to read. ``modules_as_functions`` keeps submodules as local functions of ONNX: a function for each
class, which layers share when they do the same; their weights are its inputs.
"""

import torch

from experimental_experiment.comparison import compare, session
from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_interpreter import to_onnx


class Block(torch.nn.Module):
    """A normalization, a layer, and what came in."""

    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        """As wide as x."""
        return x + torch.relu(self.linear(self.norm(x)))


class Model(torch.nn.Module):
    """Three blocks and a head."""

    def __init__(self, width=8):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(3))
        self.head = torch.nn.Linear(width, 2)

    def forward(self, x):
        """Two numbers a row."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model, args, shapes = Model(), (torch.randn(5, 8),), ({0: "batch"},)

# %%
# All submodules: the layers inside the blocks are functions too.

onx = to_onnx(model, args, dynamic_shapes=shapes, modules_as_functions=True)
print([function.name for function in onx.functions])
print([node.op_type for node in onx.graph.node])

# %%
# A set of classes chooses. The three blocks call one function, each with its own weights.

onx = to_onnx(model, args, dynamic_shapes=shapes, modules_as_functions={Block})
print(pretty_onnx(onx))

# %%
# The result is the same.

for rows in (5, 1, 12):
    (difference,) = compare(model, session(onx), (torch.randn(rows, 8),))
    print(f"{rows} rows: {difference.absolute:.1e}")

# %%
# Functions stay as long as the file; onnxruntime inlines them when it loads the model. ``inline=True`` leaves none, for the optimizer's
# sake: it looks for patterns inside a function, not across its border.

inlined = to_onnx(model, args, dynamic_shapes=shapes, modules_as_functions={Block}, inline=True)
print(len(inlined.functions), [node.op_type for node in inlined.graph.node])

# %%
# The submodule of a node
# -----------------------
#
# Without functions each node still knows where it comes from, under the keys that Netron and Model Explorer read.

plain = to_onnx(model, args, dynamic_shapes=shapes)
for node in plain.graph.node[:3]:
    print(node.op_type, {prop.key: prop.value for prop in node.metadata_props}["namespace"])
