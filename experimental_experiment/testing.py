"""The test case of this project: eager PyTorch is the truth."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
import unittest
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import torch

from experimental_experiment.comparison import compare, eager_outputs, run, session
from experimental_experiment.helpers import subgraphs
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.conversion import DEFAULT_OPSET
from experimental_experiment.torch_interpreter.conversion import OPSETS as SUPPORTED
from experimental_experiment.torch_interpreter.dynamic_shapes import taken_as_call
from experimental_experiment.torch_interpreter.export_options import CapturedOnce
from experimental_experiment.torch_interpreter.inference import schema_of
from experimental_experiment.torch_interpreter.runtime import table

OPSETS = tuple(opset for middle in (18, 23, 15, 17) for opset in (SUPPORTED[0], SUPPORTED[-1], middle))
"""Every export is translated for the default version of ai.onnx and for one of these in turn, the first and the last most often.

``OPSETS=all python -m tests`` takes them all. A model is run unless it computes what that of another version does.
"""

IN_ALL_OPSETS = os.environ.get("OPSETS") == "all"

COMPLETE_OPSET = 18
"""The first version that has all a translation needs: the versions before may be refused by name."""


class Call(torch.nn.Module):
    """A module that calls one function: the tensors among its arguments are inputs, the rest constants."""

    def __init__(self, function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]):
        super().__init__()
        self.function = function
        self.leaves, self.spec = torch.utils._pytree.tree_flatten((tuple(args), dict(kwargs)))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The inputs."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor))

    def forward(self, *tensors):
        """Call the function with these tensors in the place of the first ones."""
        args, kwargs = self.arguments(tensors)
        return self.function(*args, **kwargs)

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple, dict]:
        """The arguments of the function with these tensors in the place of the first ones."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        return torch.utils._pytree.tree_unflatten(leaves, self.spec)


def each(*functions: Callable) -> Callable:
    """A function that gives the results of several ones on the same arguments: one export for a family."""

    def results(*args, **kwargs):
        return [function(*args, **kwargs) for function in functions]

    return results


def of_each_float(function: Callable, *tensors: torch.Tensor, of: str = "") -> dict[str, tuple]:
    """Rows of a table of cases: a function of the same tensors in each dtype of floats. *of*: what to call them."""
    dtypes = torch.float32, torch.float64, torch.float16, torch.bfloat16
    return {f"{of} {dtype}".strip(): (function, *(x.to(dtype) for x in tensors)) for dtype in dtypes}


def versions(model: onnx.ModelProto) -> dict[str, int]:
    """The operator sets that a model imports."""
    return {entry.domain: entry.version for entry in model.opset_import}


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs in them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for _, inner in subgraphs(attribute):
                yield from nodes_of(inner)


def computation(model: onnx.ModelProto) -> tuple:
    """What a model computes: two versions of ai.onnx give the same when no operator changed between them."""
    imported = versions(model)
    operators = {(node.op_type, node.domain) for node in nodes_of(model.graph)}
    schemas = set()
    for name, domain in operators:
        schema = schema_of(name, imported[domain], domain)
        schemas.add((domain, name, schema and schema.since_version))
    functions = [function.SerializeToString(deterministic=True) for function in model.functions]
    return model.graph.SerializeToString(deterministic=True), tuple(functions), frozenset(schemas)


@contextlib.contextmanager
def without_row(name: str):
    """While this lasts, the runtime table lacks the row ``Operator.function``; KeyError when it has none of that name."""
    row = next((row for row in table.ROWS if row.name == name), None)
    if row is None:
        raise KeyError(f"the runtime table has no row {name}")
    position = table.ROWS.index(row)
    table.ROWS.remove(row)
    table.active.cache_clear()
    try:
        yield
    finally:
        table.ROWS.insert(position, row)
        table.active.cache_clear()


class ExporterTestCase(unittest.TestCase):
    """Exports, checks with onnx, runs in onnxruntime, compares with eager."""

    def setUp(self):
        torch.manual_seed(0)
        start = zlib.crc32(self.id().encode()) % len(OPSETS)  # else each test would begin with the same one
        self.turns = itertools.islice(itertools.cycle(OPSETS), start, None)

    def opsets(self) -> tuple[int, ...]:
        """The versions of ai.onnx that the next export is translated for."""
        return DEFAULT_OPSET, *(sorted(set(OPSETS)) if IN_ALL_OPSETS else [next(self.turns)])

    def assert_same_as_eager(
        self,
        function: Callable,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        others: Sequence[Sequence[Any]] = (),
        dynamic: bool = True,
        target_opset: int | None = None,
        scale: float = 1.0,
        **options: Any,
    ) -> onnx.ModelProto:
        """One function (an operator, a lambda) on these arguments, with static and with dynamic dimensions.

        *others*: other arguments to run the dynamic model on, of other sizes. *scale* multiplies the tolerances of
        the dtype, with a comment that says why. Other keyword arguments go to `to_onnx`. See `export_and_compare`.
        """
        module = Call(function, args, kwargs or {})
        tensors = module.tensors()
        model = self.export_and_compare(module, tensors, target_opset=target_opset, scale=scale, **options)
        if dynamic and any(tensor.dim() for tensor in tensors):
            axes = [{axis: torch.export.Dim.AUTO for axis in range(tensor.dim())} for tensor in tensors]
            model = self.export_and_compare(
                module,
                tensors,
                others=[tuple(leaf for leaf in other if isinstance(leaf, torch.Tensor)) for other in others],
                dynamic_shapes=(tuple(axes),),
                target_opset=target_opset,
                scale=scale,
                **options,
            )
        return model

    def assert_cases(self, cases: Mapping[str, Sequence[Any]], **options: Any) -> None:
        """A table {promise: (function, *arguments)}, keyword arguments in a last dict: each is the same as eager."""
        for promise, (function, *args) in cases.items():
            with self.subTest(promise):
                kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
                self.assert_same_as_eager(function, *args, kwargs=kwargs, **options)

    def assert_as_near_as_eager(self, function: Callable, *args: Any, **options: Any) -> None:
        """The result on tensors of a half precision is no further from that on float64 tensors than eager's."""
        module = Call(function, args, {})
        given = module.tensors()
        exact_inputs = [x.double() if x.is_floating_point() else x for x in given]
        (got,) = run(session(to_onnx(module, given, **options)), given)
        exact = module(*exact_inputs)
        ours, eager = (float((found - exact).abs().max()) for found in (got, module(*given)))
        self.assertLessEqual(ours, eager)

    def assert_rows_needed(self, cases: Mapping[str, Sequence[Any]]) -> None:
        """A table {row of the runtime table: (function, *arguments)}: right with the row, wrong or refused without it.

        Options of `to_onnx` stand in a last dict; ``others``: other arguments to run on, of other sizes.
        """
        for name, (function, *args) in cases.items():
            with self.subTest(name):
                options = dict(args.pop()) if args and isinstance(args[-1], dict) else {}
                others = options.pop("others", ())
                row = next(row for row in table.ROWS if row.name == name)
                options = {"special_values": row.special_values, **options}
                if row.before is not None:
                    options.setdefault("target_opset", row.before - 1)
                module = Call(function, args, {})
                calls = [module.tensors(), *others]
                options["export_options"] = CapturedOnce(ExportOptions())
                model = to_onnx(module, module.tensors(), **options)
                onnx.checker.check_model(model, full_check=True)
                for call in calls:
                    self.assert_matches(model, module, call)
                with without_row(name):
                    self.assertFalse(self.runs_as_eager(module, calls, options), "right without the row")

    def runs_as_eager(self, module: Call, calls: Sequence[tuple], options: Mapping[str, Any]) -> bool:
        """Whether a model is exported, accepted by onnx and by onnxruntime, and right."""
        try:
            model = to_onnx(module, module.tensors(), **options)
            onnx.checker.check_model(model, full_check=True)
            runner = session(model)
            return all(found.within for call in calls for found in compare(module, runner, call))
        except ExportError:
            return False
        except Exception as error:
            if isinstance(error, onnx.checker.ValidationError) or "onnx" in type(error).__module__:
                return False
            raise

    def export_and_compare(
        self,
        module: torch.nn.Module,
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
        others: Sequence[Any] = (),
        scale: float = 1.0,
        target_opset: int | Mapping[str, int] | None = None,
        export_options: ExportOptions | None = None,
        eager: Callable[..., list[torch.Tensor]] = eager_outputs,
        **options: Any,
    ) -> onnx.ModelProto:
        """Export a module, then compare on the example and on *others*: tuples of arguments, or (args, kwargs) pairs.

        It is captured once, and run once in eager by *eager*, then translated for each of `opsets`, or for *target_opset* alone.
        Returns the first model.
        """
        options["export_options"] = CapturedOnce(export_options or ExportOptions())
        calls = [(args, kwargs), *map(taken_as_call, others)]

        @functools.cache  # once for all versions: eager compiles control flow
        def expected() -> list[list[torch.Tensor]]:
            return [eager(copy.deepcopy(module), *call) for call in calls]

        models: dict[tuple, onnx.ModelProto] = {}
        for opset in self.opsets() if target_opset is None else (target_opset,):
            try:
                model = to_onnx(
                    module, copy.deepcopy(args), copy.deepcopy(kwargs), target_opset=opset, **options
                )
            except ExportError as error:
                if target_opset is None and opset < COMPLETE_OPSET and "raise target_opset to" in str(error):
                    continue
                raise
            found = computation(model)
            if found in models:
                continue
            models[found] = model
            onnx.checker.check_model(model, full_check=True)
            self.assert_calls_match(model, module, calls, expected, scale)
        return next(iter(models.values()))

    def assert_matches(
        self,
        model: Any,
        module: torch.nn.Module,
        args: tuple,
        kwargs: Mapping[str, Any] | None = None,
        scale: float = 1.0,
    ) -> None:
        """Every output of the ONNX model is eager's: dtype, shape, values."""
        calls = [(args, kwargs)]
        self.assert_calls_match(
            model, module, calls, lambda: [eager_outputs(copy.deepcopy(module), *calls[0])], scale
        )

    def assert_calls_match(
        self,
        model: Any,
        module: torch.nn.Module,
        calls: Sequence[tuple[tuple, Mapping[str, Any] | None]],
        expected: Callable[[], list[list[torch.Tensor]]],
        scale: float,
    ) -> None:
        """Every output of the ONNX model is what eager gives for these calls, *expected()*."""
        runner = session(model, threads=1)
        for call, outputs in zip(calls, expected(), strict=True):
            for found in compare(module, runner, *call, scale, outputs):
                opsets = versions(model) if isinstance(model, onnx.ModelProto) else model
                self.assertTrue(found.within, f"{found} with {opsets}")
