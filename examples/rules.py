"""
The optimizer, and a rule of one's own
======================================

``to_onnx`` ends with rules that replace a few nodes by fewer. ``optimize`` applies the same rules to any ONNX model. A rule is a pattern and
one function; this page writes one, tests it, and finds the one that is wrong.
"""

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import torch

from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import (
    OptimizationOptions,
    P,
    Report,
    bisect,
    const,
    no,
    optimize,
    rule,
    var,
)


class Model(torch.nn.Module):
    """An attention written by hand, with more than it needs."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(16, 48)

    def forward(self, x):
        """As wide as x."""
        query, key, value = self.project(x).split(16, dim=-1)
        scores = query @ key.transpose(1, 2) * 0.25
        weights = scores.softmax(dim=-1).to(torch.float32)
        y = (weights @ value).reshape(-1, 16).reshape(x.shape)
        return y.neg().neg() * torch.sigmoid(1.702 * y)


torch.manual_seed(0)
model, args = Model(), (torch.randn(2, 5, 16),)
shapes = ({0: "batch", 1: "sequence"},)
plain = to_onnx(model, args, dynamic_shapes=shapes, optimize=False)
print(pretty_onnx(plain))

# %%
# What the rules do
# -----------------
#
# A `Report` tells which rules were applied, and why others declined where their pattern was found.

report = Report()
optimized = optimize(plain, report=report)
print(f"{report.nodes_before} nodes, {report.nodes_after} afterwards")
for name, node in report.applications:
    print(f"{name} at {node}")
print(pretty_onnx(optimized))

# %%
# ``OptimizationOptions`` chooses rules and sets by name, ``"default+onnxruntime"`` also what only onnxruntime has.

only = optimize(plain, OptimizationOptions("default-NegNeg"))
print(len(plain.graph.node), len(optimized.graph.node), len(only.graph.node))

# %%
# A rule of one's own
# -------------------
#
# The pattern is the expression that is replaced: ``x = var("x")`` is any value, ``const`` one that is known. The function lists the names it
# needs, writes with ``op``, and returns what replaces the root; ``no(reason)`` leaves it. Here, ``x * sigmoid(1.702 * x)`` becomes the
# operator QuickGelu of onnxruntime.

x, factor = var("x"), const("factor")


@rule(P.Mul(x, P.Sigmoid(P.Mul(x, factor))))
def quick_gelu(op, x, factor):
    """x * sigmoid(alpha * x) is QuickGelu."""
    values = factor.const_value.numpy()
    if values.size != 1:
        return no("the factor is not one number")
    return op.QuickGelu(x, alpha=float(values.item()), domain="com.microsoft")


report = Report()
mine = optimize(plain, rules=[quick_gelu], report=report)
print([name for name, _ in report.applications])
print([node.op_type for node in mine.graph.node])

# %%
# A rule is right when the results stay. Other sizes belong to the test.


def outputs(onx, array):
    """The results in onnxruntime."""
    return onnxruntime.InferenceSession(onx.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": array}
    )


for size in ((2, 5, 16), (1, 1, 16), (3, 9, 16)):
    array = np.random.default_rng(0).normal(size=size).astype(np.float32)
    (a,), (b,) = outputs(plain, array), outputs(mine, array)
    print(size, f"{np.abs(a - b).max():.1e}")

# %%
# ``to_onnx(..., optimize=OptimizationOptions(patterns=["default", quick_gelu]), target_opset={"": 20, "com.microsoft": 1})`` applies it during
# an export.

onx = to_onnx(
    model,
    args,
    dynamic_shapes=shapes,
    target_opset={"": 20, "com.microsoft": 1},
    optimize=OptimizationOptions(patterns=[quick_gelu, "default"]),
)
print([node.op_type for node in onx.graph.node])

# %%
# Which rule is wrong?
# --------------------
#
# This one forgets the factor. ``bisect`` runs the model after half of the rewritings, then a quarter, until one is left.


@rule(P.Mul(x, P.Sigmoid(P.Mul(x, factor))))
def forgets_the_factor(op, x):
    """Wrong."""
    return op.Mul(x, op.Sigmoid(x))


feeds = {"x": args[0].numpy()}
print(bisect(plain, feeds, options=OptimizationOptions(patterns=["default", forgets_the_factor])))
print(bisect(plain, feeds, options=OptimizationOptions(patterns=["default", quick_gelu])))

# %%
# How much is gained
# ------------------

counts = {"no rule": plain, "without NegNeg": only, "default": optimized, "with QuickGelu": mine}
plt.bar(list(counts), [len(onx.graph.node) for onx in counts.values()])
plt.ylabel("nodes")
plt.show()

# %%
# All rules are in :doc:`/patterns`. The engine looks at a node when something around it changes, so its time grows with the number of nodes,
# not with its square.
