"""
Strict or not
=============

``torch.export`` captures a model in two ways. ``strict=False``, the default, runs the model on tensors without data and notes the operators
that it calls. ``strict=True`` reads the bytecode of ``forward`` with TorchDynamo. ``ExportOptions(strict=...)`` chooses. Most models give the
same graph; this page shows where they do not.
"""

import torch

from experimental_experiment.comparison import compare, run, session
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

STRICT, NOT_STRICT = ExportOptions(strict=True), ExportOptions(strict=False)

# %%
# A write by index
# ----------------
#
# ``x[..., index] = y`` is exported both ways; the written copy is the result.


class Update(torch.nn.Module):
    """Replaces some columns of a cache."""

    def forward(self, x, update, kv_index):
        """A copy of x with other columns."""
        x = x.clone()
        x[..., kv_index] = update
        return x


update = (torch.arange(2) + 10).to(torch.float32).reshape(1, 1, 2)
args = (torch.ones(4, 4, 10), update, torch.tensor([1, 2], dtype=torch.int32))
for options in (STRICT, NOT_STRICT):
    onx = to_onnx(Update(), args, export_options=options)
    (difference,) = compare(Update(), session(onx), args)
    print(f"strict={options.strict}: {[node.op_type for node in onx.graph.node]}, {difference.absolute}")

# %%
# A scan whose carry is also a result
# -----------------------------------
#
# The function below returns the same tensor twice. Without strict, torch takes it; with strict it must be a copy.


class Sums(torch.nn.Module):
    """The sum of the rows."""

    def forward(self, x):
        """One row."""

        def add(carry, y):
            total = carry + y
            return [total, total]

        carry, _ = torch.ops.higher_order.scan(add, [torch.zeros_like(x[0])], [x], ())
        return carry


x = torch.arange(1.0, 10.0).reshape(3, 3)
for options in (STRICT, NOT_STRICT):
    try:
        onx = to_onnx(Sums(), (x,), export_options=options)
    except CaptureError as error:
        print(f"strict={options.strict}: {error}")
    else:
        (got,) = run(session(onx), [x])
        print(f"strict={options.strict}: {got}, eager {Sums()(x)}")

# %%
# What is not a tensor
# --------------------
#
# Without strict, Python runs as it always does: a value that is no tensor is whatever it is at that moment, and becomes a constant. The
# address of an object is another one in each run, so this model is wrong, and nobody can see it. TorchDynamo sees it.


class AddsItsAddress(torch.nn.Module):
    """Adds a number that means nothing."""

    def forward(self, x):
        """x and the address of a tensor."""
        x = x + 1
        return x + id(x)


for options in (STRICT, NOT_STRICT):
    try:
        onx = to_onnx(AddsItsAddress(), (x,), export_options=options)
    except CaptureError as error:
        print(f"strict={options.strict}: {str(error).splitlines()[0]}")
    else:
        print(f"strict={options.strict}: a model with a constant in it")

# %%
# Python around the tensors
# -------------------------
#
# The other way round, what TorchDynamo cannot read stops a strict capture, although Python runs it.


class Formats(torch.nn.Module):
    """Reads a setting from text, as a configuration would be."""

    def forward(self, x):
        """x scaled."""
        scale = eval("2 ** 3")
        return x * scale


for options in (STRICT, NOT_STRICT):
    try:
        onx = to_onnx(Formats(), (x,), export_options=options)
    except CaptureError as error:
        print(f"strict={options.strict}: {str(error).splitlines()[0]}")
    else:
        (difference,) = compare(Formats(), session(onx), (x,))
        print(f"strict={options.strict}: exported, difference {difference.absolute}")

# %%
# The graph itself
# ----------------
#
# ``to_onnx`` also takes the ``ExportedProgram`` that ``torch.export.export`` gives: look at it, change it or save it first.

program = torch.export.export(Sums(), (x,), strict=False)
print(program.graph)
print([node.op_type for node in to_onnx(program).graph.node])

# %%
# Which one? Start without strict. Take strict to be told about Python that leaks into the model, and for regions of
# ``torch.compiler.nested_compile_region``, which only TorchDynamo keeps.
