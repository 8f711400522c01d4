"""The error function and its complement, which keeps its digits far out.

Source of semantics: torch.erf, torch.erfc. ``erfc(z) = t * exp(P(2 t - 1) - z * z)`` with ``t = 2 / (2 + z)`` for z >= 0, the form
of Numerical Recipes 6.2.2; the coefficients of P were fitted on Chebyshev points in 60 digits.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.exponential import float_function

aten = torch.ops.aten

COEFFICIENTS = {
    # relative error 5e-7 up to 3, then that of exp
    ir.DataType.FLOAT: (
        *(-0.6717941164970398, 0.6726431250572205, 0.04734388738870621, -0.0468936413526535),
        *(-0.00988001935184002, 0.00880882516503334, 0.0017940662801265717, -0.002288765273988247),
        *(-0.00022791096125729382, 0.0005737663595937192, 8.000738489499781e-06, -8.728381362743676e-05),
    ),
    # relative error 1e-14
    ir.DataType.DOUBLE: (
        *(-0.6717940840566923, 0.6726432239776567, 0.04734330684190443, -0.0468956102311753),
        *(-0.009872689366389959, 0.008824938557060623, 0.001758933557799016, -0.0023458125004828536),
        *(-0.0001462468633780034, 0.0006736787955802351, -9.373503117098144e-05, -0.00017430294720307722),
        *(7.140101412756911e-05, 3.174517974944147e-05, -3.0187884551390628e-05, 1.3772664133334978e-07),
        *(8.56262342011376e-06, -2.9479868769765077e-06, -1.2723119048581565e-06, 1.2500276612279554e-06),
        *(-1.6849800721680346e-07, -2.495832761456532e-07, 1.5334345921541794e-07, 1.4448657891562285e-09),
        *(-3.917182051254326e-08, 1.117235226893998e-08, 4.060882147329199e-09, -1.890230601705095e-09),
    ),
}


def erfc(op, x):
    """The complement, which keeps its digits where ``1 - erf(x)`` has none left."""
    size = op.Abs(x)
    t = op.Div(2.0, op.Add(size, 2.0))
    u = op.Sub(op.Mul(t, 2.0), 1.0)
    highest, *others = reversed(COEFFICIENTS[x.dtype])
    polynomial = op.constant(highest, x.dtype)
    for coefficient in others:
        polynomial = op.Add(op.Mul(polynomial, u), coefficient)
    tail = op.Mul(t, op.Exp(op.Sub(polynomial, op.Mul(size, size))))
    return op.Where(op.Less(x, 0.0), op.Sub(2.0, tail), tail)


float_function("Erf", aten.erf.default)
float_function(erfc, aten.erfc.default)
