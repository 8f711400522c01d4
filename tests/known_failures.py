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

PLAIN: list[Family] = [
    ("operator", ("unique_consecutive",), ALL, "torch.export declares a wrong shape for dim=-1: refused"),
    ("operator", ("matrix_exp",), ("float32",), "eager's float32 is off by 0.2 % for large norms, ours is computed in float64"),
    ("operator", ("as_strided.partial_views",), ALL, "as_strided of a tensor of symbolic sizes that is not contiguous: refused"),
    ("operator", ("to_sparse",), ALL, SPARSE),
    ("operator", ("linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"), SINGLE_AND_DOUBLE, SIGNS),
    ("operator", ("linalg.eig", "linalg.eigvals", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"), SINGLE_AND_DOUBLE, GENERAL),
]  # fmt: skip

SPECIAL_VALUES: list[Family] = [
    (
        "operator",
        ("__rpow__",),
        ("int64",),
        "powers beyond 2 ** 63 wrap in torch, onnxruntime computes them in float64",
    ),
]
"""Cases whose samples hold NaN, a sign of zero, a tie or an integer beyond 2 ** 53: they pass with ``--special-values``."""

PARTIAL: Family = ("operator", ("as_strided.partial_views",), ("float32",), "its tensor is a part of a memory that the model is not given: refused")  # fmt: skip
NORMS: Family = ("operator", ("matrix_exp",), ("float32",), "eager's float32 is off by 0.2 % for large norms, ours is computed in float64")  # fmt: skip
IN_EACH: list[Family] = [
    ("operator", ("unique_consecutive",), ("float32",), "torch.export declares a wrong shape for dim=-1: refused"),
    ("operator", ("linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"), ("float32",), SIGNS),
    ("operator", ("linalg.eig", "linalg.eigvals", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"), ("float32",), GENERAL),
]  # fmt: skip
"""What does not depend on the context."""

AROUND: list[Family] = [
    *IN_EACH,
    NORMS,
    PARTIAL,
    ("operator", ("to_sparse",), ("float32",), SPARSE),
    ("operator", ("unique_consecutive",), ("int64",), "torch.export declares a wrong shape for dim=-1: refused"),
]  # fmt: skip
SCALED: list[Family] = [*IN_EACH, ("operator", ("to_sparse",), ("float32", "bool"), SPARSE)]
DECOMPOSED: list[Family] = [
    *IN_EACH,
    NORMS,
    PARTIAL,
    ("operator", ("to_sparse",), ("float32", "uint8"), SPARSE),
]
REFERENCE: list[Family] = [
    *IN_EACH,
    NORMS,
    PARTIAL,
    ("operator", ("to_sparse",), ("float32",), SPARSE),
]  # fmt: skip

FAMILIES: dict[str, list[Family]] = {
    "plain": PLAIN,
    "around": AROUND,
    "scaled": SCALED,
    "decomposed": DECOMPOSED,
    "reference": REFERENCE,
}
"""By context: of three samples of each case alone, of one in the other contexts, as CI takes them."""


def known_failures(context: str, special_values: bool = False) -> dict[str, str]:
    """``kind/operator/dtype``, as the sweep prints it, and the reason of each case that fails in this context."""
    families = FAMILIES[context]
    if not special_values:
        families = families + SPECIAL_VALUES
    return {
        f"{kind}/{operator}/{dtype}": reason
        for kind, operators, dtypes, reason in families
        for operator in operators
        for dtype in dtypes
    }
