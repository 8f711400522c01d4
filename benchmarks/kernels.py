"""Which (operator, dtype) pairs of ai.onnx have no kernel in onnxruntime's CPU provider.

Writes ``experimental_experiment/torch_interpreter/runtime/kernels.json``: {operator: {type variable: [dtypes]}} of the pairs
that ONNX allows and onnxruntime refuses at the newest operator set it runs, also with the same dtype for all type variables that take it.
Run it again when onnxruntime changes:

    python benchmarks/kernels.py
"""

from __future__ import annotations

import json
import os

import onnx
import onnx_ir as ir
import onnxruntime

OPSETS = (18, 20, 21, 22, 23, 26)
PREFERRED = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(string)")
STRINGS = {"direction": "forward", "equation": "a,a->a", "to": 1, "mode": "linear"}
FIXED = {
    "RandomNormalLike": {"dtype": 1},
    "RandomUniformLike": {"dtype": 1},
    "Cast": {"to": 1},
    "Einsum": {"equation": "a,a->a"},
    "BitShift": {"direction": "LEFT"},
}

ADDED = {
    "BatchNormalization": {"U": ["BFLOAT16"]},
    "ReduceLogSumExp": {"T": ["FLOAT16"]},
    "Softplus": {"T": ["FLOAT16"]},
}
"""A variable of opset 14; operators that onnxruntime replaces by their ONNX function at opset 18, which overflows in float16."""


LATER = {"GridSample": ("DOUBLE",)}
"""What only older operator sets lack, for which the table of the runtime has a row."""


def attributes(schema: onnx.defs.OpSchema) -> dict:
    """Some value for every required attribute."""
    some = {"INT": 1, "INTS": [1], "FLOAT": 1.0, "FLOATS": [1.0], "STRING": "x"}
    found = {
        name: some.get(attribute.type.name)
        for name, attribute in schema.attributes.items()
        if attribute.required
    }
    return found | FIXED.get(schema.name, {})


def runs(schema: onnx.defs.OpSchema, opset: int, variable: str, dtype: str, all_alike: bool = False) -> bool:
    """Whether onnxruntime finds a kernel when *variable*, or all that take it, is *dtype* and the other variables their usual type."""
    chosen = {variable: dtype}
    for constraint in schema.type_constraints:
        if all_alike and dtype in constraint.allowed_type_strs:
            chosen[constraint.type_param_str] = dtype
        usual = [name for name in PREFERRED if name in constraint.allowed_type_strs]
        chosen.setdefault(constraint.type_param_str, (usual or list(constraint.allowed_type_strs))[0])
    inputs = []
    for position, formal in enumerate(schema.inputs):
        if position >= schema.min_input and formal.type_str != variable:
            break
        kind = chosen.get(formal.type_str, formal.type_str)
        if not kind.startswith("tensor("):
            return True
        proto = onnx.helper.make_tensor_type_proto(DTYPES[kind], None)
        inputs.append(onnx.helper.make_value_info(f"i{position}", proto))
    outputs = [f"o{k}" for k in range(max(schema.min_output, 1))]
    node = onnx.helper.make_node(schema.name, [i.name for i in inputs], outputs, **attributes(schema))
    results = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = onnx.helper.make_graph([node], "g", inputs, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return False
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        return "Failed to find kernel" not in str(error) and "not supported" not in str(error)
    except Exception:  # a shape or a type that this crude model gets wrong says nothing about kernels
        return True
    return True


DTYPES = {
    f"tensor({name})": dtype.value
    for name, dtype in {
        "float": ir.DataType.FLOAT, "double": ir.DataType.DOUBLE, "float16": ir.DataType.FLOAT16,
        "bfloat16": ir.DataType.BFLOAT16, "int8": ir.DataType.INT8, "int16": ir.DataType.INT16,
        "int32": ir.DataType.INT32, "int64": ir.DataType.INT64, "uint8": ir.DataType.UINT8,
        "uint16": ir.DataType.UINT16, "uint32": ir.DataType.UINT32, "uint64": ir.DataType.UINT64,
        "bool": ir.DataType.BOOL, "float8e4m3fn": ir.DataType.FLOAT8E4M3FN,
        "float8e4m3fnuz": ir.DataType.FLOAT8E4M3FNUZ, "float8e5m2": ir.DataType.FLOAT8E5M2,
        "float8e5m2fnuz": ir.DataType.FLOAT8E5M2FNUZ,
    }.items()
}  # fmt: skip


def name_of(dtype: str) -> str:
    """The name of a dtype in the table."""
    return ir.DataType(DTYPES[dtype]).name


def main() -> None:
    """Probe every operator and write the table."""
    table: dict[str, dict[str, list[str]]] = {}
    names = sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""})
    for name in names:
        for opset in OPSETS:
            if not onnx.defs.has(name, opset, ""):
                continue
            schema = onnx.defs.get_schema(name, opset, "")
            if schema.deprecated or any(a.type.name == "GRAPH" for a in schema.attributes.values()):
                continue
            for constraint in schema.type_constraints:
                variable = constraint.type_param_str
                if all(formal.type_str != variable for formal in schema.inputs):
                    continue
                allowed = sorted(set(constraint.allowed_type_strs) & set(DTYPES))
                absent = [
                    dtype
                    for dtype in allowed
                    if not any(runs(schema, opset, variable, dtype, alike) for alike in (False, True))
                ]
                if absent == allowed:
                    continue  # no kernel of this version at all: the table of the runtime says it
                missing = table.setdefault(name, {}).setdefault(variable, []) if absent else []
                missing += [
                    short
                    for short in map(name_of, absent)
                    if short not in missing and short not in LATER.get(name, ())
                ]
    for name, added in ADDED.items():
        for variable, dtypes in added.items():
            table.setdefault(name, {}).setdefault(variable, []).extend(dtypes)
    folder = os.path.join(
        os.path.dirname(__file__), "..", "experimental_experiment", "torch_interpreter", "runtime"
    )
    with open(os.path.join(folder, "kernels.json"), "w") as file:
        json.dump(table, file, indent=0, sort_keys=True)
        file.write("\n")
    print(
        f"onnxruntime {onnxruntime.__version__}: {len(table)} operators of {len(names)} lack a kernel for some dtype"
    )


if __name__ == "__main__":
    main()
