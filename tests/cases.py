"""The cases of the sweeps: PyTorch's operator and module databases, and the verdict on one case.

A case is named by strings, so that it can be run alone in another process: ``("operator", "add", "float32")``.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from experimental_experiment.comparison import compare, run, session, tensor_leaves
from experimental_experiment.testing import Call
from experimental_experiment.torch_interpreter import CaptureError, ExportError, to_onnx

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)

RANDOM = frozenset(
    """bernoulli cauchy exponential geometric log_normal multinomial normal normal.in_place normal.number_mean
    nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.feature_alpha_dropout.with_train nn.functional.rrelu nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d rand_like randint randint_like randn randn_like uniform
    nn.functional.multi_head_attention_forward nn.functional.scaled_dot_product_attention svd_lowrank pca_lowrank
    torch.ops.aten._efficient_attention_forward torch.ops.aten._flash_attention_forward""".split()
)
"""Operators whose values are drawn: shape, dtype and simple statistics are compared unless eager is reproducible."""

UNSPECIFIED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
"""Operators whose values are not specified: shape and dtype are compared."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one case.

    Attributes:
        status: ``passed``, ``wrong``, ``refused`` (by us), ``not exported`` (by torch.export), ``not run`` (by
            onnxruntime), ``no sample``, ``crash`` or ``timeout``.
        detail: one line that explains it.
        dynamic: how many samples were also run with dynamic dimensions on other sizes.
    """

    status: str
    detail: str = ""
    dynamic: int = 0


Name = tuple[str, str, str]


def operator_names() -> list[Name]:
    """Every operator, with its in-place variant, times the dtypes it supports on the CPU."""
    names = []
    for info in op_db:
        label = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        for dtype in DTYPES:
            if dtype in info.supported_dtypes("cpu"):
                names.append(("operator", label, short(dtype)))
                if info.get_inplace() is not None:
                    names.append(("inplace", label, short(dtype)))
    return names


def module_names() -> list[Name]:
    """Every module in evaluation and in training mode, times the dtypes it supports."""
    return [
        (mode, info.name, short(dtype))
        for info in module_db
        for dtype in DTYPES
        if dtype in info.dtypes
        for mode in ("eval", "train")
    ]


def short(dtype: torch.dtype) -> str:
    """``float32``."""
    return str(dtype).removeprefix("torch.")


def calls(name: Name, samples: int) -> Iterator[tuple[torch.nn.Module, tuple]]:
    """Modules and tensor arguments of a case: the first samples, the last and some spread between."""
    kind, label, dtype_name = name
    dtype = getattr(torch, dtype_name)
    if kind in ("eval", "train"):
        yield from module_calls(kind, label, dtype, samples)
        return
    info = next(
        i for i in op_db if label == (f"{i.name}.{i.variant_test_name}" if i.variant_test_name else i.name)
    )
    torch.manual_seed(0)
    found = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), 400))
    if kind == "inplace":
        found = [sample for sample in found if not sample.broadcasts_input]
    function: Callable = info.op if kind == "operator" else cloned(info.get_inplace())
    for sample in spread(found, samples):
        call = Call(function, (sample.input, *sample.args), sample.kwargs)
        yield call, call.tensors()


def cloned(function: Callable) -> Callable:
    """An in-place function on a copy of its input."""

    def call(self, *args, **kwargs):
        return function(self.clone(), *args, **kwargs)

    return call


def module_calls(
    mode: str, label: str, dtype: torch.dtype, samples: int
) -> Iterator[tuple[torch.nn.Module, tuple]]:
    """Modules of module_db with random weights."""
    info = next(i for i in module_db if i.name == label)
    torch.manual_seed(0)
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=False, training=mode == "train"
    )
    for item in spread([i for i in inputs if i.forward_input is not None], samples):
        module = info.module_cls(*item.constructor_input.args, **item.constructor_input.kwargs)
        module = module.to(dtype) if dtype.is_floating_point else module
        module.train(mode == "train")
        call = Call(module, item.forward_input.args, item.forward_input.kwargs)
        yield call, call.tensors()


def spread(items: list[Any], count: int) -> list[Any]:
    """The first item, the last one and others evenly between."""
    if len(items) <= count:
        return items
    return [items[round(k * (len(items) - 1) / (count - 1))] for k in range(count)]


def verdict(name: Name, samples: int = 4) -> Verdict:
    """Export, run and compare the samples of one case; the first that does not pass decides."""
    warnings.simplefilter("ignore")
    dynamic = 0
    seen = 0
    previous: list[tuple[torch.nn.Module, tuple]] = []
    refused: Verdict | None = None
    for call, tensors in calls(name, samples):
        try:
            expected = eager(call, tensors)
        except (AssertionError, RuntimeError, ValueError, IndexError, TypeError):
            continue  # a sample that eager itself refuses
        seen += 1
        found = static(name, call, tensors, expected)
        if found.status == "not exported":
            refused = refused or found
            continue
        if found.status != "passed":
            return found
        dynamic_verdict = with_dynamic_sizes(name, call, tensors, previous)
        if dynamic_verdict is not None:
            if dynamic_verdict.status != "passed":
                return dynamic_verdict
            dynamic += 1
        previous.append((call, tensors))
    if not seen:
        return Verdict("no sample")
    if refused is not None and len(previous) == 0:
        return refused
    return Verdict("passed", dynamic=dynamic)


def eager(call: torch.nn.Module, tensors: tuple) -> list[torch.Tensor]:
    """What eager gives."""
    torch.manual_seed(0)
    with torch.no_grad():
        return tensor_leaves(copy.deepcopy(call)(*(tensor.clone() for tensor in tensors)))


def static(name: Name, call: torch.nn.Module, tensors: tuple, expected: list[torch.Tensor]) -> Verdict:
    """One sample with static dimensions."""
    return judged(name, lambda: to_onnx(copy.deepcopy(call), tensors), call, tensors, expected)


def with_dynamic_sizes(name: Name, call: torch.nn.Module, tensors: tuple, previous: list) -> Verdict | None:
    """The sample exported with all dimensions dynamic, run on an earlier sample of the same form and other sizes.

    None when there is no such sample, or when torch.export made a dimension static that differs.
    """
    others = [
        other
        for other_call, other in previous
        if same_form(call, other_call) and [t.shape for t in other] != [t.shape for t in tensors]
    ]
    if not others or not tensors:
        return None
    axes = (tuple({axis: torch.export.Dim.AUTO for axis in range(t.dim())} for t in tensors),)
    try:
        program = torch.export.export(copy.deepcopy(call), tensors, dynamic_shapes=axes)
        program.module()(*(tensor.clone() for tensor in others[0]))
    except Exception:  # a guard of torch.export: this sample does not say anything about dynamic sizes
        return None
    expected = eager(call, others[0])
    found = judged(name, lambda: to_onnx(program), call, others[0], expected)
    return dataclasses.replace(found, detail=f"dynamic: {found.detail}")


def same_form(a: Call, b: Call) -> bool:
    """Whether two calls differ only by the sizes and values of their tensors."""
    if a.spec != b.spec:
        return False
    for left, right in zip(a.leaves, b.leaves):
        if isinstance(left, torch.Tensor) != isinstance(right, torch.Tensor):
            return False
        if isinstance(left, torch.Tensor):
            if left.dim() != right.dim() or left.dtype != right.dtype:
                return False
        elif left != right:
            return False
    return True


def judged(
    name: Name,
    export: Callable[[], onnx.ModelProto],
    call: torch.nn.Module,
    tensors: tuple,
    expected: list[torch.Tensor],
) -> Verdict:
    """Export, run, compare."""
    try:
        model = export()
    except CaptureError as error:
        return Verdict("not exported", first_line(error))
    except ExportError as error:
        return Verdict("refused", first_line(error))
    try:
        runner = session(model)
        if name[1] in RANDOM | UNSPECIFIED:
            return statistics(name, run(runner, tensor_leaves(tensors)), expected)
        differences = compare(copy.deepcopy(call), runner, tuple(tensor.clone() for tensor in tensors))
    except Exception as error:
        if isinstance(error, (RuntimeError, ValueError)) or type(error).__module__.startswith("onnxruntime"):
            return Verdict("not run", first_line(error))
        raise
    wrong = [found for found in differences if not found.within]
    return Verdict("wrong", str(wrong[0])) if wrong else Verdict("passed")


def statistics(name: Name, got: list[torch.Tensor], expected: list[torch.Tensor]) -> Verdict:
    """Shape and dtype, and for large drawn tensors mean and spread."""
    for a, b in zip(expected, got):
        if a.shape != b.shape or a.dtype != b.dtype:
            return Verdict("wrong", f"{b.dtype}{[*b.shape]} instead of {a.dtype}{[*a.shape]}")
        if name[1] in UNSPECIFIED or a.numel() < 400:
            continue
        a, b = a.double(), b.double()
        limit = 6 * (a.std() + b.std()) / a.numel() ** 0.5 + 1e-3
        if abs(a.mean() - b.mean()) > limit:
            return Verdict("wrong", f"mean {float(b.mean())} instead of {float(a.mean())}")
    return Verdict("passed")


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
