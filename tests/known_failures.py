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

SPECIAL_IN: dict[str, list[Family]] = {
    "vmap": [("operator", ("masked.norm",), FLOATS, "the largest of rows that hold NaN")]
}
"""More of them in one context."""

OF_REFERENCE: list[Family] = [
    ("operator", ("nn.functional.adaptive_max_pool2d",), FLOATS, "onnx.reference counts the positions of windows that overlap, without padding, wrong"),
    ("operator", ("nn.functional.grid_sample",), FLOATS, "onnx.reference clamps the position, not each neighbour, of a cubic with borders"),
    *((kind, ("nn.functional.rrelu",), ("float32", "float64", "bfloat16"), "onnx.reference draws no random number for a 0-d tensor")
      for kind in ("operator", "inplace")),
]  # fmt: skip
"""Defects of onnx.reference: onnxruntime gives what eager gives."""

WRITTEN = "running statistics, or rows shortened to a norm, are written where they are read: refused"
PLACE = "a place in the memory of all rows"

OF_MAP: list[Family] = [
    ("operator", ("as_strided", "as_strided_copy", "as_strided_scatter"), ALL, f"{PLACE}: refused"),
    ("operator", ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"), FLOATS, WRITTEN),
]  # fmt: skip

OF_VMAP: list[Family] = [
    ("operator", ("native_batch_norm", "_native_batch_norm_legit", "nn.functional.instance_norm", "nn.functional.embedding"), FLOATS, WRITTEN),
    ("operator", ("split_with_sizes_copy",), ALL, "torch refuses its batching rule on dynamic sizes: refused"),
    ("operator", ("unbind_copy",), ALL, "torch takes the size of the example's batch for good: refused"),
    ("operator", ("linalg.pinv.singular",), SINGLE_AND_DOUBLE, "torch refuses linalg.pinv of a product of dynamic sizes under vmap: refused"),
]  # fmt: skip


def without(families: list[Family], *operators: str) -> list[Family]:
    """The families without the operators that torch refuses in a context."""
    return [(kind, tuple(o for o in named if o not in operators), *rest) for kind, named, *rest in families]


FAMILIES: dict[str, list[Family]] = {
    "plain": [*REFUSED, NORMS, partial(ALL, SYMBOLIC)],
    "around": [*REFUSED, NORMS, partial(ALL, PART)],
    # floats arrive as what the scale makes of them, in a memory of its own
    "scaled": [*REFUSED, partial(("int64", "int32", "uint8", "bool"), PART)],
    "decomposed": [*REFUSED, NORMS, partial(ALL, PART)],
    "reference": [*REFUSED, NORMS, partial(ALL, PART), *OF_REFERENCE],
    # torch refuses sparse tensors in bodies, and sizes that the data decide in a branch
    "branch": [*without(REFUSED, "unique_consecutive", "to_sparse"), NORMS, partial(ALL, PART)],
    "map": [*without(REFUSED, "to_sparse"), NORMS, partial(ALL, PLACE), *OF_MAP],
    "vmap": [
        *without(REFUSED, "unique_consecutive", "to_sparse", "svd_lowrank", "pca_lowrank"),
        NORMS,
        *OF_VMAP,
    ],
}
"""By context: of three samples of each case alone, of one in the other contexts, as CI takes them."""


def known_failures(context: str, special_values: bool = False) -> dict[str, str]:
    """``kind/operator/dtype``, as the sweep prints it, and the reason of each case that fails in this context."""
    families = FAMILIES[context]
    if not special_values and context != "reference":
        families = families + SPECIAL_VALUES + SPECIAL_IN.get(context, [])
    return {
        f"{kind}/{operator}/{dtype}": reason
        for kind, operators, dtypes, reason in families
        for operator in operators
        for dtype in dtypes
    }
