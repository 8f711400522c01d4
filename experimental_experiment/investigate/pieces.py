"""`piece_by_piece`: export a model, then the submodules of what fails, down to the smallest ones that fail."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnxruntime
import torch

from experimental_experiment.comparison import Difference, compare, session
from experimental_experiment.investigate.discrepancies import discrepancies
from experimental_experiment.investigate.onnx_side import Given
from experimental_experiment.investigate.recording import Call, Recording, inferred_shapes, record, unchanged
from experimental_experiment.investigate.reproduction import Unreproducible, write_script
from experimental_experiment.investigate.tree import Piece, Pieces
from experimental_experiment.investigate.written import written
from experimental_experiment.logs import logger
from experimental_experiment.progress import Progress, silent
from experimental_experiment.refusals import FAILURES
from experimental_experiment.torch_interpreter.arguments import refuse_foreign_arguments, refuse_no_progress
from experimental_experiment.torch_interpreter.dynamic_shapes import taken_as_call
from experimental_experiment.torch_interpreter.errors import CaptureError, ExportError
from experimental_experiment.torch_interpreter.patches.patch import replaced

FAMILIES = (
    (
        "a branch or a size depends on the data",
        r"[Dd]ata-dependent|GuardOnDataDependent|Could not guard|Could not extract",
    ),
    ("an input of an unknown class", r"Unsupported input type|pytree|is not supported as an input"),
    (
        "a dynamic dimension that is not",
        r"Constraints violated|ConstraintViolation|specialized|Specialized|not all values of",
    ),
    ("numpy, or another library", r"\.numpy\(\)|numpy"),
    (
        "an operator without a fake implementation",
        r"UnsupportedOperatorException|no fake impl|DynamicOutputShape|register_fake",
    ),
    ("a higher-order operator", r"HigherOrderOperator|higher order op"),
    ("dtypes that do not fit", r"same dtype|scalar type|dtypes? mismatch"),
)
"""Why torch.export fails, and the pattern of its error; the first row that matches is told."""


FOREIGN = {
    "dynamic_shapes": "sizes are dynamic that differ between the calls, args=[(x,), (longer,)]",
    "filename": "folder= gets a script for each failure",
    "report": "str() of the result is one",
    "verify": "every piece is compared with eager",
}
"""Arguments of `to_onnx` that belong to one model, and what to do instead."""


def piece_by_piece(
    model: torch.nn.Module,
    args: tuple | Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    folder: str | os.PathLike | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Pieces:
    """Run a model, then export it; where that fails export its submodules, down to the smallest ones that fail.

    A piece is exported with the arguments that it had in the first run, with the dimensions dynamic that differ between the runs, and
    compared with eager on those of all runs in onnxruntime.

    Args:
        model: a module.
        args: positional arguments, or a list of several calls: each a tuple of positional arguments, a dict of keyword arguments,
            or a pair of both.
        kwargs: keyword arguments, for a single call.
        folder: where to write a script for each smallest failure, that reproduces it alone; made when it does not exist.
        progress: as for `to_onnx`.
        options: others of `to_onnx`: ``target_opset``, ``translations``, ...

    Raises:
        TypeError: *model* is no module, a call of the list is nothing of this, or an option is one of a single export.
        FileExistsError: *folder* is a file.
        EagerError: PyTorch itself fails on a call.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"piece_by_piece takes an nn.Module apart, not {type(model).__name__}")
    for name, instead in FOREIGN.items():
        if name in options:
            raise TypeError(f"piece_by_piece has no argument {name}: {instead}")
    refuse_foreign_arguments(kwargs, options.get("export_options"))
    refuse_no_progress(progress)
    if folder is not None:
        refuse_no_folder(folder)
    inputs = calls_of(args, kwargs)
    step = progress("run", len(inputs))
    seen = record(model, inputs, step)
    step = progress("export", len(seen))
    with silenced():
        root = Taker(seen, options, step).piece("", model)
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
        for piece in Pieces(root).failures:
            calls = seen[piece.path].calls
            module = model.get_submodule(piece.path)
            try:
                piece.script = write_script(folder, piece, module, calls, inferred_shapes(calls), options)
            except Unreproducible as error:
                piece.note = "\n".join(filter(None, [piece.note, f"no script: {error}"]))
    return Pieces(root)


def calls_of(args: Any, kwargs: Mapping[str, Any] | None) -> list[tuple[tuple, dict[str, Any]]]:
    """The calls that the user means, as pairs of positional and keyword arguments."""
    if isinstance(args, torch.Tensor):
        args = (args,)
    if isinstance(args, tuple):
        return [(args, dict(kwargs or {}))]
    if not isinstance(args, list):
        raise TypeError(f"args is a tuple of arguments or a list of calls, not {type(args).__name__}")
    if kwargs:
        raise TypeError("kwargs belongs to a single call: give pairs (args, kwargs) in the list")
    if not args:
        raise TypeError("the list of calls is empty")
    return [taken_as_call(call) for call in args]


def refuse_no_folder(folder: Any) -> None:
    """Raise TypeError for what is no path of text, FileExistsError for a file that stands where scripts are written."""
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"folder is the path of a folder, not {folder!r}")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise FileExistsError(f"{os.fspath(folder)!r} is a file, and no folder")


class Taker:
    """Takes a model apart. *seen*: the calls of its submodules by qualified name."""

    def __init__(self, seen: Mapping[str, Recording], options: Mapping[str, Any], step: Any):
        self.seen = seen
        self.options = options
        self.step = step
        self.taken: dict[torch.nn.Module, Piece] = {}

    def piece(self, path: str, module: torch.nn.Module) -> Piece:
        """Export one module, and its submodules when it fails."""
        self.step()
        recording = self.seen[path]
        same = self.taken.get(module)
        if same is not None:
            self.pass_over(module)
            return Piece(path, same.kind, same.status, same_as=same.path, count=same.count)
        piece = self.taken[module] = Piece(path, type(module).__name__, count=recording.count)
        if not recording.calls:
            piece.status = "container" if any(self.called(path, module)) else "not called"
        else:
            begin = time.perf_counter()
            self.export(piece, module, recording.calls)
            piece.seconds = time.perf_counter() - begin
        if piece.status == "ok" or piece.status == "not called":
            self.pass_over(module)
            return piece
        for name, child in module._modules.items():
            if child is not None:
                piece.children.append(self.piece(f"{path}.{name}".lstrip("."), child))
        if piece.failed and piece.broken_parts:
            self.without_parts(piece, module, recording.calls[0])
        elif piece.is_dynamic and piece.status in ("torch.export failed", "untranslatable"):
            piece.note = self.with_static_sizes(module, recording.calls[0])
        return piece

    def pass_over(self, module: torch.nn.Module) -> None:
        """The parts of a module need no look of their own: say that they are done."""
        for _ in list(module.named_modules(remove_duplicate=False))[1:]:
            self.step()

    def called(self, path: str, module: torch.nn.Module) -> Iterator[bool]:
        """Whether each module inside was called."""
        prefix = f"{path}." if path else ""
        for name, _ in module.named_modules():
            recording = self.seen.get(f"{prefix}{name}")
            yield bool(name and recording and recording.calls)

    def export(self, piece: Piece, module: torch.nn.Module, calls: Sequence[Call]) -> None:
        """Export, run, compare; the status of the piece."""
        shapes = inferred_shapes(calls)
        piece.is_dynamic = has_dynamic(shapes)
        with contextlib.ExitStack() as stack:
            try:
                graph, model = stack.enter_context(self.exported(module, calls[0], shapes))
            except ExportError as error:
                self.failed(piece, error)
                return
            piece.nodes = len(graph.graph.node) + sum(len(function.node) for function in graph.functions)
            self.run(piece, module, model, calls)

    def run(self, piece: Piece, module: torch.nn.Module, model: Given, calls: Sequence[Call]) -> None:
        """Run and compare what was exported; the status of the piece."""
        shapes = inferred_shapes(calls)
        try:
            runner = session(model)
            found = [(call, item) for call in calls for item in self.differences(module, runner, call)]
        except (*FAILURES, ValueError) as error:
            piece.status, piece.detail = "runtime failed", str(error).splitlines()[0]
            return
        wrong = [(call, item) for call, item in found if not item.within]
        if not wrong:
            piece.status = "ok"
            return
        call, worst = max(wrong, key=lambda pair: pair[1].absolute)
        piece.status, piece.detail = "differs", f"by {worst.absolute:.1e} in {worst.name}"
        if worst.expected != worst.got:
            piece.detail = f"{worst.name} is {worst.got} instead of {worst.expected}"
        if call is calls[0]:
            report = discrepancies(module, call.args, call.kwargs, dynamic_shapes=shapes, **self.options)
        else:  # the model that the first call gave, on another one
            capture = self.options.get("export_options")
            report = discrepancies(
                module, call.args, call.kwargs, model, dynamic_shapes=shapes, export_options=capture
            )
        piece.verdict = report.verdict
        piece.note = report.told()

    def differences(
        self, module: torch.nn.Module, runner: onnxruntime.InferenceSession, call: Call
    ) -> list[Difference]:
        """What one call gives in both, the buffers of the module being those that it was exported with."""
        with unchanged(module):
            return compare(module, runner, call.args, call.kwargs)

    @contextlib.contextmanager
    def exported(
        self, module: torch.nn.Module, call: Call, shapes: Any
    ) -> Iterator[tuple[onnx.ModelProto, Given]]:
        """The graph of a module's ONNX model, and what can be run while this lasts."""
        args, kwargs = copy.deepcopy((call.args, call.kwargs))
        with tempfile.TemporaryDirectory() as folder:
            yield written(module, args, kwargs, folder, dynamic_shapes=shapes, **self.options)

    def failed(self, piece: Piece, error: ExportError) -> None:
        """Note why an export stopped."""
        lines = str(error).splitlines()
        if isinstance(error, CaptureError):
            piece.status, piece.family = "torch.export failed", family(str(error))
        else:
            piece.status = "untranslatable"
        piece.detail = lines[0]
        piece.where = "\n".join(lines[1:])

    def with_static_sizes(self, module: torch.nn.Module, call: Call) -> str:
        """What is different without dynamic dimensions."""
        try:
            with self.exported(module, call, None):
                pass
        except ExportError:
            return ""
        return "it is exported with static sizes: a dynamic dimension makes it fail"

    def without_parts(self, piece: Piece, module: torch.nn.Module, call: Call) -> None:
        """Export with the failing submodules replaced by what they returned: whether the code around them fails too."""
        with contextlib.ExitStack() as stack:
            for part in piece.broken_parts:
                child = module.get_submodule(part.path.removeprefix(piece.path).lstrip("."))
                stack.enter_context(returning(child, self.seen[part.path].calls[0].result))
            try:
                with self.exported(module, call, None):
                    pass
            except ExportError as error:
                self.failed(piece, error)
                piece.is_smallest = True
                piece.note = "the code around its failing parts fails by itself"


class Once(logging.Filter):
    """Lets each message pass once: a module and those inside export the same lines."""

    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is new."""
        text = record.getMessage()
        is_new = text not in self.seen
        self.seen.add(text)
        return is_new


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """While this lasts torch.export prints no half of a graph that fails, as the errors are told, and nothing is logged twice."""
    torch_logger = logging.getLogger(SYMBOLIC_SHAPES)
    level, once = torch_logger.level, Once()
    torch_logger.setLevel(logging.ERROR)
    logger.addFilter(once)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.removeFilter(once)
        torch_logger.setLevel(level)


SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"
"""The logger that warns of each size which depends on the data."""


def returning(module: torch.nn.Module, result: Any) -> contextlib.AbstractContextManager:
    """While this lasts, a module returns a copy of *result*, whatever it is given."""

    def copied(*args: Any, **kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map_only(torch.Tensor, as_data, result)

    return replaced(module, "forward", copied)


def as_data(x: torch.Tensor) -> torch.Tensor:
    """A copy that an export takes for data: a branch on a constant would be decided."""
    return torch.where(torch.rand(()) >= 0, x, x)


def has_dynamic(shapes: Any) -> bool:
    """Whether anything is dynamic."""
    if isinstance(shapes, Mapping):
        return any(has_dynamic(entry) for entry in shapes.values())
    if isinstance(shapes, (list, tuple)):
        return any(has_dynamic(entry) for entry in shapes)
    return shapes is not None


def family(text: str) -> str:
    """The kind of an error of torch.export: a row of `FAMILIES`, or the name of the error."""
    for name, pattern in FAMILIES:
        if re.search(pattern, text):
            return name
    found = re.search(r"failed with (\w+)", text)
    return found[1] if found else "unknown"
