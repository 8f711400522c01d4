"""The cases of the sweeps: PyTorch's operator and module databases, and the verdict on one case.

A case is named by strings, so that it can be run alone in another process: ``("operator", "add", "float32")``.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from experimental_experiment.comparison import difference, tensor_leaves
from experimental_experiment.testing import Call
from experimental_experiment.torch_interpreter import CaptureError, ExportError, to_onnx
from tests.contexts import CONTEXTS, Context, InContext
from tests.ties import pick_the_same

HALVES = (torch.float16, torch.bfloat16)
"""Compared with eager and, where they differ, with the result in float64: eager rounds every step of it."""

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


STRUCTURED = frozenset(
    {"bucketize", "linalg.cholesky_ex", "linalg.tensorinv", "nn.functional.embedding_bag", "searchsorted"}
)
"""Operators whose inputs lose what they promise (an order, an inverse, a factor) when their elements are repeated."""


WITHOUT_EMPTY_BATCH = frozenset(
    """nn.functional.multi_head_attention_forward nn.MultiheadAttention nn.Transformer nn.TransformerDecoderLayer
    nn.TransformerEncoder nn.TransformerEncoderLayer nn.functional.multi_margin_loss nn.MultiMarginLoss
    nn.functional.multilabel_margin_loss nn.MultiLabelMarginLoss""".split()
)
"""What onnxruntime ends the process of, see docs/runtime.md, and what eager computes from memory that holds nothing."""

UNCHECKED = frozenset(
    """native_batch_norm _native_batch_norm_legit _batch_norm_with_update _segment_reduce.lengths
    _segment_reduce.offsets""".split()
)
"""Operators that read beyond the end of a vector that is too small: they are not given smaller ones."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one case.

    Attributes:
        status: ``passed``, ``wrong``, ``refused`` (by us), ``not exported`` (by torch.export), ``not run`` (by
            onnxruntime), ``no sample``, ``crash`` or ``timeout``.
        detail: one line that explains it.
        dynamic: whether (1) or not (0) a sample was also exported with dynamic dimensions and run on other sizes.
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


def calls(name: Name, samples: int, seed: int = 0) -> Iterator[tuple[Call, tuple]]:
    """Modules and tensor arguments of a case: the first sample, the last and some spread between."""
    kind, label, dtype_name = name
    dtype = getattr(torch, dtype_name)
    if kind in ("eval", "train"):
        yield from module_calls(kind, label, dtype, samples, seed)
        return
    info = next(
        i for i in op_db if label == (f"{i.name}.{i.variant_test_name}" if i.variant_test_name else i.name)
    )
    torch.manual_seed(seed)
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
    mode: str, label: str, dtype: torch.dtype, samples: int, seed: int
) -> Iterator[tuple[Call, tuple]]:
    """Modules of module_db with random weights."""
    info = next(i for i in module_db if i.name == label)
    torch.manual_seed(seed)
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
    """The first item, the last one and others evenly between; the one in the middle alone."""
    if len(items) <= count:
        return items
    if count == 1:
        return [items[len(items) // 2]]
    return [items[round(k * (len(items) - 1) / (count - 1))] for k in range(count)]


def verdict(name: Name, samples: int = 4, seed: int = 0, context: Context = CONTEXTS["plain"]) -> Verdict:
    """Export, run and compare the samples of one case; the first that does not pass decides."""
    warnings.simplefilter("ignore")
    dynamic = passed = seen = 0
    refused: Verdict | None = None
    for call, tensors in calls(name, samples, seed):
        model = context.module(call)
        try:
            inputs = model.inputs(tensors)
            expected = eager(model, inputs)
        except (AssertionError, RuntimeError, ValueError, IndexError, TypeError):
            continue  # a sample that eager itself refuses
        if not expected:
            continue  # an empty torch.Size: a model without outputs, which onnxruntime does not run
        seen += 1
        found = judged(name, context, (copy.deepcopy(model), inputs), model, inputs, expected)
        if found.status == "not exported":
            refused = refused or found
            continue
        if found.status != "passed":
            return found
        passed += 1
        if (
            dynamic
            or name[1] in STRUCTURED
            or not any(size > 1 for tensor in tensors for size in tensor.shape)
        ):
            continue
        found = with_dynamic_sizes(name, context, model, tensors)
        if found is not None:
            if found.status != "passed":
                return found
            dynamic += 1
    if not seen:
        return Verdict("no sample")
    if refused is not None and not passed:
        return refused
    return Verdict("passed", dynamic=dynamic)


def eager(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What eager gives."""
    torch.manual_seed(0)
    with torch.no_grad():
        return tensor_leaves(copy.deepcopy(model)(*(tensor.clone() for tensor in inputs)))


def with_dynamic_sizes(name: Name, context: Context, model: InContext, tensors: tuple) -> Verdict | None:
    """The sample exported with all dimensions dynamic, run on other sizes: larger ones, and where the context says so smaller ones.

    None when eager does not take other sizes with these arguments, or when torch.export made one of them static.
    """
    inputs = model.inputs(tensors)
    axes = (tuple({axis: torch.export.Dim.AUTO for axis in range(t.dim())} for t in inputs),)
    program = proto = found = None
    for change in (*LARGER, *(SMALLER if context.smaller_sizes else ())):
        if change in LARGER and found is not None:
            continue  # one larger size is enough
        if (change in SMALLER and name[1] in UNCHECKED) or (
            change is empty_batch and name[1] in WITHOUT_EMPTY_BATCH
        ):
            continue
        other = model.longer(model.inputs(resized(tensors, change)))
        try:
            expected = eager(model, other)
        except (AssertionError, RuntimeError, ValueError, IndexError, TypeError):
            continue  # the arguments that are not tensors only fit the sizes of the sample
        try:
            with torch.no_grad():
                program = program or torch.export.export(copy.deepcopy(model), inputs, dynamic_shapes=axes)
                captured = tensor_leaves(program.module()(*(tensor.clone() for tensor in other)))
        except Exception:  # a guard of torch.export: this sample does not say anything about these sizes
            continue
        if name[1] not in RANDOM | UNSPECIFIED and not agree(expected, captured):
            continue  # torch.export has fixed a number that depends on the sizes
        if change in SMALLER and not as_declared(program, expected):
            continue  # a rank or a dtype that depends on a size: a squeeze, a sum over one element
        if change is empty_batch and any(y.is_floating_point() and y.isnan().any() for y in expected):
            continue  # the mean of no element, a special value
        if proto is None:
            proto = converted(context, (program,))
        judgement = (
            proto if isinstance(proto, Verdict) else compared(name, context, proto, model, other, expected)
        )
        if change is empty_batch and judgement.status == "not run":
            continue  # onnxruntime says so
        found = judgement
        if found.status != "passed":
            return dataclasses.replace(found, detail=f"dynamic, {change.__name__}: {found.detail}")
    return found


def as_declared(program: torch.export.ExportedProgram, results: Sequence[torch.Tensor]) -> bool:
    """Whether results have the ranks and the dtypes that the program says."""
    (output,) = program.graph.find_nodes(op="output")
    values = [node.meta["val"] for node in pytree.tree_leaves(output.args) if isinstance(node, torch.fx.Node)]
    declared = [value for value in values if isinstance(value, torch.Tensor)]
    return len(declared) != len(results) or all(
        value.dim() == result.dim() and value.dtype == result.dtype
        for value, result in zip(declared, results)
    )


def agree(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> bool:
    """Whether two lists of results are the same within the tolerances."""
    return len(expected) == len(got) and all(difference("", a, b).within for a, b in zip(expected, got))


def one_more(axis: int, size: int) -> int:
    """Every axis grows by one."""
    return size + 1


def twice(axis: int, size: int) -> int:
    """Every axis doubles: groups and blocks stay whole."""
    return 2 * size


def longer_batch(axis: int, size: int) -> int:
    """The first axis grows by one."""
    return size if axis else size + 1


def batch_of_one(axis: int, size: int) -> int:
    """The first axis has one element."""
    return size if axis else 1


def empty_batch(axis: int, size: int) -> int:
    """The first axis has no element."""
    return size if axis else 0


LARGER = one_more, twice, longer_batch
"""The first one that the arguments of a sample fit is taken."""

SMALLER = batch_of_one, empty_batch


def resized(tensors: Sequence[torch.Tensor], change: Callable[[int, int], int]) -> tuple[torch.Tensor, ...]:
    """The tensors with the sizes above 1 that *change* gives for (axis, size), by repeating their elements.

    Floating-point elements are then multiplied by factors drawn between 0.5 and 1, which keeps their domain.
    """
    generator = torch.Generator().manual_seed(0)
    results = []
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape):
            if size > 1:
                tensor = tensor.index_select(axis, torch.arange(change(axis, size)) % size)
        if tensor.dtype.is_floating_point:
            factors = 1 - torch.rand(tensor.shape, generator=generator) / 2
            tensor = (tensor * factors).to(tensor.dtype)
        results.append(tensor)
    return tuple(results)


def judged(
    name: Name,
    context: Context,
    exported: tuple,
    model: InContext,
    inputs: Sequence[torch.Tensor],
    expected: list[torch.Tensor],
) -> Verdict:
    """Give *exported* to `to_onnx`, run what it gives on *inputs*, compare with *expected*."""
    proto = converted(context, exported)
    return proto if isinstance(proto, Verdict) else compared(name, context, proto, model, inputs, expected)


def converted(context: Context, exported: tuple) -> onnx.ModelProto | Verdict:
    """What `to_onnx` makes of *exported*."""
    try:
        return to_onnx(*exported, **context.options)
    except CaptureError as error:
        return Verdict("not exported", first_line(error))
    except ExportError as error:
        return Verdict("refused", first_line(error))


def compared(
    name: Name,
    context: Context,
    proto: onnx.ModelProto,
    model: InContext,
    inputs: Sequence[torch.Tensor],
    expected: list[torch.Tensor],
) -> Verdict:
    """Run *proto* on *inputs*, compare with *expected*; then on the other inputs that the context has of these sizes."""
    found = compared_once(name, context, proto, model, inputs, expected)
    for other in model.others(inputs):
        if found.status == "passed":
            found = compared_once(name, context, proto, model, other, eager(model, other))
    return found


def compared_once(
    name: Name,
    context: Context,
    proto: onnx.ModelProto,
    model: InContext,
    inputs: Sequence[torch.Tensor],
    expected: list[torch.Tensor],
) -> Verdict:
    """Run *proto* on *inputs*, compare with *expected*."""
    try:
        got = context.run(proto, tensor_leaves([tensor.clone() for tensor in inputs]))
    except Exception as error:
        # whatever the runtime raises: the reference evaluator has no class of its own for it
        return Verdict("not run", f"{type(error).__name__}: {first_line(error)}")
    if len(got) != len(expected):
        return Verdict("wrong", f"{len(got)} outputs instead of {len(expected)}")
    if name[1] in RANDOM | UNSPECIFIED:
        return statistics(name, got, expected)
    names = [f"output_{k}" for k in range(len(got))]
    found = list(map(difference, names, expected, got))
    wrong = [k for k, one in enumerate(found) if not one.within]
    if wrong and all(expected[k].dtype in HALVES for k in wrong):
        exact = in_float64(model, inputs)
        wrong = [k for k in wrong if not exact or not as_near(got[k], expected[k], exact[k])]
    if wrong:
        same = [pick_the_same(name[1], *call, *both) for call, *both in model.calls(inputs, expected, got)]
        if not same or not all(same):
            return Verdict("wrong", str(found[wrong[0]]))
    return Verdict("passed")


def in_float64(model: InContext, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What eager gives when the call is computed in float64, whatever its halves; nothing when it cannot be."""
    model = copy.deepcopy(model).double()
    model.call.leaves = [leaf.double() if is_half(leaf) else leaf for leaf in model.call.leaves]
    with torch.no_grad():
        operands = [x.double() if is_half(x) else x for x in model.operands([x.clone() for x in inputs])]
        try:
            return tensor_leaves(model.results(model.applied(operands)))
        except (RuntimeError, ValueError, TypeError):
            return []  # a dtype among the arguments that must be that of the tensors


def is_half(leaf: Any) -> bool:
    """Whether a leaf is a tensor in half precision."""
    return isinstance(leaf, torch.Tensor) and leaf.dtype in HALVES


def as_near(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a result in half precision is within the tolerance of the exact one, or as near to it as eager's."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if difference("", exact.to(got.dtype), got).within:
        return True
    ours, eagers = ((x.double() - exact.double()).abs().max() for x in (got, expected))
    return bool(ours <= eagers < float("inf"))


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
