"""Cases of the sweeps that are known to fail, each with its reason. The list can only shrink."""

from __future__ import annotations

ROUNDED = "eager rounds every step to the half precision, onnxruntime the result only"
SPARSE = "ONNX has no sparse tensors"
SIGNS = "nothing fixes the signs of the vectors: refused, the values alone are translated"
GENERAL = "eigenvalues of a matrix that is not symmetric, LDL factors: refused"

ALL = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
FLOATS = ALL[:4]
HALVES = ("float16", "bfloat16")
SINGLE_AND_DOUBLE = ("float32", "float64")

Family = tuple[str, tuple[str, ...], tuple[str, ...], str]
"""Kind, operators, dtypes and reason."""

PLAIN: list[Family] = [
    ("operator", ("nn.functional.adaptive_avg_pool3d",), ("bfloat16",), ROUNDED),
    ("operator", ("unique_consecutive",), ALL, "torch.export declares a wrong shape for dim=-1: refused"),
    ("operator", ("gradient",), ("float16",), ROUNDED),
    ("operator", ("_unsafe_masked_index_put_accumulate",), ("bfloat16",), ROUNDED),
    ("operator", ("matrix_exp",), ("float32", *HALVES), "eager's float32 is off by 0.2 % for large norms, ours is computed in float64"),
    ("operator", ("as_strided.partial_views",), ALL, "as_strided of a tensor of symbolic sizes that is not contiguous: refused"),
    ("operator", ("to_sparse",), ALL, SPARSE),
    ("operator", ("linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"), SINGLE_AND_DOUBLE, SIGNS),
    ("operator", ("linalg.eig", "linalg.eigvals", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"), SINGLE_AND_DOUBLE, GENERAL),
]  # fmt: skip

FAMILIES: dict[str, list[Family]] = {
    "plain": PLAIN,
    "around": [],
    "scaled": [],
    "decomposed": [],
    "reference": [],
}
"""By context; with the number of samples that docs/conformance.md tells."""

KNOWN_FAILURES: dict[str, dict[str, str]] = {
    context: {
        f"{kind}/{operator}/{dtype}": reason
        for kind, operators, dtypes, reason in families
        for operator in operators
        for dtype in dtypes
    }
    for context, families in FAMILIES.items()
}
"""By context, ``kind/operator/dtype``, as the sweep prints it, and the reason."""
