"""Cases of the sweeps that are known to fail, each with its reason. The list can only shrink."""

from __future__ import annotations

SPARSE = "ONNX has no sparse tensors"
SIGNS = "nothing fixes the signs of the vectors: refused, the values alone are translated"
GENERAL = "eigenvalues of a matrix that is not symmetric, LDL factors: refused"

ALL = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
FLOATS = ALL[:4]
SINGLE_AND_DOUBLE = ("float32", "float64")

Family = tuple[str, tuple[str, ...], tuple[str, ...], str]
"""Kind, operators, dtypes and reason."""

REFUSED: list[Family] = [
    ("operator", ("unique_consecutive",), ALL, "torch.export declares a wrong shape for dim=-1: refused"),
    ("operator", ("to_sparse",), ALL, SPARSE),
    ("operator", ("linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"), SINGLE_AND_DOUBLE, SIGNS),
    ("operator", ("linalg.eig", "linalg.eigvals", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"), SINGLE_AND_DOUBLE, GENERAL),
]  # fmt: skip
"""What no context changes."""

NORMS: Family = ("operator", ("matrix_exp",), ("float32",), "eager's float32 is off by 0.2 % for large norms, ours is computed in float64")  # fmt: skip


def partial(dtypes: tuple[str, ...], reason: str) -> Family:
    """The tensors of as_strided that show a part of a larger memory."""
    return ("operator", ("as_strided.partial_views",), dtypes, f"{reason}: refused")


SYMBOLIC = "as_strided of a tensor of symbolic sizes that is not contiguous"
PART = "its tensor is a part of a memory that the model is not given"

SPECIAL_VALUES: list[Family] = [
    (
        "operator",
        ("__rpow__",),
        ("int64",),
        "powers beyond 2 ** 63 wrap in torch, onnxruntime computes them in float64",
    ),
]
"""Cases whose samples hold NaN, a sign of zero, a tie or an integer beyond 2 ** 53: they pass with ``--special-values``.

The reference evaluator has them right: NumPy wraps as torch does.
"""

OF_REFERENCE: list[Family] = [
    ("operator", ("nn.functional.grid_sample",), FLOATS, "onnx.reference clamps the position, not each neighbour, of a cubic with borders"),
    *((kind, ("nn.functional.rrelu",), ("float32", "float64", "bfloat16"), "onnx.reference draws no random number for a 0-d tensor")
      for kind in ("operator", "inplace")),
]  # fmt: skip
"""Defects of onnx.reference: onnxruntime gives what eager gives."""

FAMILIES: dict[str, list[Family]] = {
    "plain": [*REFUSED, NORMS, partial(ALL, SYMBOLIC)],
    "around": [*REFUSED, NORMS, partial(ALL, PART)],
    # floats arrive as what the scale makes of them, in a memory of its own
    "scaled": [*REFUSED, partial(("int64", "int32", "uint8", "bool"), PART)],
    "decomposed": [*REFUSED, NORMS, partial(ALL, PART)],
    "reference": [*REFUSED, NORMS, partial(ALL, PART), *OF_REFERENCE],
}
"""By context: of three samples of each case alone, of one in the other contexts, as CI takes them."""


def known_failures(context: str, special_values: bool = False) -> dict[str, str]:
    """``kind/operator/dtype``, as the sweep prints it, and the reason of each case that fails in this context."""
    families = FAMILIES[context]
    if not special_values and context != "reference":
        families = families + SPECIAL_VALUES
    return {
        f"{kind}/{operator}/{dtype}": reason
        for kind, operators, dtypes, reason in families
        for operator in operators
        for dtype in dtypes
    }
