"""Whose line it is: the frames of a capture, from an operator of torch up to the line of the model."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType

import torch

from experimental_experiment.torch_interpreter.errors import Source

TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

PYTHON = sysconfig.get_path("stdlib") + os.sep
PACKAGES = tuple(os.path.join(PYTHON, name) for name in ("site-packages", "dist-packages"))
"""What is installed stands inside Python's own folder when there is no virtual environment."""

SYMPY = os.path.join(os.sep + "site-packages", "sympy", "")
"""What torch computes sizes with."""

ASKING = (
    TORCH + "__init__.py",
    TORCH + os.path.join("_export", "non_strict_utils.py"),  # which max and min are while it captures
    TORCH + os.path.join("fx", "experimental", "recording.py"),
    TORCH + os.path.join("fx", "experimental", "sym_node.py"),
    TORCH + os.path.join("fx", "experimental", "symbolic_shapes.py"),
    HERE + os.path.join("patches", "branches.py"),
    HERE + os.path.join("patches", "checks.py"),
    HERE + os.path.join("patches", "comparisons.py"),
    HERE + os.path.join("patches", "conditions.py"),
    HERE + os.path.join("patches", "flags.py"),
    HERE + os.path.join("patches", "maxima.py"),
    HERE + os.path.join("patches", "optional_paddings.py"),
    HERE + os.path.join("patches", "optional_resizes.py"),
    HERE + os.path.join("patches", "shortcuts.py"),
    HERE + os.path.join("patches", "whole_numbers.py"),
    HERE + os.path.join("assumptions", "emptiness.py"),
    HERE + "tracing.py",
)
"""Files of the symbolic numbers themselves, between a branch and the ShapeEnv that decides it."""

SYM_NODE = TORCH + os.path.join("fx", "experimental", "sym_node.py")
"""What operators in C++ call, where Python asks a number of torch itself."""

DECOMPOSITIONS = tuple(os.path.join(TORCH, name, "") for name in ("_decomp", "_refs"))
"""Operators that torch writes in Python with others."""

FAKE_RESULTS = TORCH + os.path.join("_subclasses", "fake_tensor.py")
"""What computes the fake result of an operator, by its decomposition too."""

BODIES = (
    os.path.join(TORCH, "_higher_order_ops", ""),
    os.path.join(TORCH, "_dynamo", "variables", "higher_order_ops.py"),
)
"""Where torch captures the bodies of cond, while_loop and others: what they ask may concern some data only."""

SIGNAL = os.path.join(TORCH, "signal", "")
"""Windows: functions in Python as a model writes them, whose branches on sizes choose formulas."""

TRACER = TORCH + "_dynamo" + os.sep
"""TorchDynamo runs the model's byte code: the line that asks is the one that it reads."""

VARIABLES = os.path.join(TRACER, "variables", "")
"""What stands for the values of the model."""

POLYFILLS = os.path.join(TRACER, "polyfills", "")
"""Python's own functions, ``all`` for example, as it follows them."""

TEXT = "<string>"
"""The file of what is compiled from a text, by ``python -c``, ``exec`` and ``eval``."""

METHODS = frozenset(
    ("__init__", "__repr__", "__hash__", "__setattr__", "__delattr__")
    + ("__eq__", "__lt__", "__le__", "__gt__", "__ge__")
)
"""What Python writes for dataclasses."""


def asking_frame(frame: FrameType) -> FrameType:
    """The frame that asked a symbolic number for its value."""
    while frame.f_code.co_filename in ASKING and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_asked_by_check(frame: FrameType) -> bool:
    """Whether the question that a frame of a symbolic number asks is that of a ``torch._check``, in no body that data choose."""
    is_check = False
    while frame.f_code.co_filename in ASKING and frame.f_back is not None:
        is_check = is_check or frame.f_code is torch._check_with.__code__
        frame = frame.f_back
    while is_check and frame is not None:
        is_check = not frame.f_code.co_filename.startswith(BODIES)
        frame = frame.f_back
    return is_check


def is_called_by(frame: FrameType | None, file: str) -> bool:
    """Whether a frame, or one around it, is in a file."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame is not None


def is_decomposition(frame: FrameType) -> bool:
    """Whether the question of a frame of a symbolic number is that of a decomposition of torch's, which is being followed.

    Not what its operators in C++ ask, of the memory for example, and not where it computes a fake result.
    """
    is_cpp = False
    while frame.f_code.co_filename in ASKING and frame.f_back is not None:
        is_cpp = frame.f_code.co_filename == SYM_NODE
        frame = frame.f_back
    is_here = frame.f_code.co_filename.startswith(DECOMPOSITIONS)
    return is_here and not is_cpp and not is_called_by(frame, FAKE_RESULTS)


def computes_numbers(frame: FrameType) -> bool:
    """Whether TorchDynamo computes an operator of Python there, ``(size > 3) + 1``, which asks for the number of a condition."""
    node = frame.f_locals.get("node") if frame.f_code.co_name == "run_node" else None
    target = getattr(node, "target", None)
    module = getattr(target, "__module__", None)
    is_int_or_float = module == "torch" and target.__name__.startswith("sym_")
    return is_int_or_float or module in ("_operator", "builtins", "math")


def line_around(frame: FrameType) -> tuple[Source | None, bool]:
    """The innermost line of the model around a frame, and whether that frame, or the one that calls Python's own function there, is it, or one of `SIGNAL`."""
    if frame.f_code.co_filename.startswith(TRACER):
        stack = torch._guards.TracingContext.extract_stack()
        stack = [entry for entry in stack if not is_followed(entry)]
        lines = [entry for entry in stack if entry.filename == TEXT or not is_library(entry.filename)]
        if not lines:
            return None, False
        line = lines[-1]
        asked_by_code = frame.f_code.co_filename.startswith(VARIABLES) or computes_numbers(frame)
        return (line.filename, line.lineno, line.name, line.line or ""), asked_by_code and line is stack[-1]
    while is_python_code(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    is_branch = not is_library_code(frame.f_code) or frame.f_code.co_filename.startswith(SIGNAL)
    while frame is not None and is_library_code(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None, False
    return source_at(frame.f_code, frame.f_lineno), is_branch


def source_at(code: CodeType, line: int) -> Source:
    """A line of a function."""
    return code.co_filename, line, code.co_name, linecache.getline(code.co_filename, line).strip()


def decides_turns(file: str, line: int) -> bool:
    """Whether a line decides how often a ``while`` turns: it is in the condition of one, or in one that has none, ``while True``."""
    return any(line in lines for lines in deciding_lines("".join(linecache.getlines(file))))


@functools.lru_cache(maxsize=64)
def deciding_lines(source: str) -> list[range]:
    """The lines of a file that decide how often its ``while`` turn."""
    loops = [node for node in nodes_of(source) if isinstance(node, ast.While)]
    deciding = [loop if isinstance(loop.test, ast.Constant) else loop.test for loop in loops]
    return [range(node.lineno, node.end_lineno + 1) for node in deciding]


def with_value(source: Source) -> str:
    """The line of an ``if`` that asks for a name, with what its function gives the name above in its place; other lines as they are."""
    file, line, _, text = source
    asked = re.match(r"(?:if|elif) (?:not )?(\w+):", text)
    for above in reversed(linecache.getlines(file)[: line - 1]) if asked else ():
        given = re.match(rf"\s*{asked[1]} = (.*\S)", above)
        if given:
            return f"{text[: asked.start(1)]}{given[1]}{text[asked.end(1) :]}"
        if re.match(r"\s*(def|class) ", above):
            break
    return text


def nodes_of(source: str) -> Iterator[ast.AST]:
    """The nodes of a file's tree; none where a line of it was compiled, and what stands there now cannot be."""
    try:
        yield from ast.walk(ast.parse(source))
    except SyntaxError:
        return


def is_followed(entry: traceback.FrameSummary) -> bool:
    """Whether TorchDynamo follows a function of Python's for a line of the model there."""
    return entry.filename.startswith(POLYFILLS) or (entry.filename == TEXT and entry.name in METHODS)


def is_library(file: str) -> bool:
    """Whether a file is torch's, Python's or this package's own, not the model's: of a text it is not known."""
    return (
        file.startswith((TORCH, HERE, "<eval_with_key", "<frozen", TEXT)) or is_python(file) or SYMPY in file
    )


def is_library_code(code: CodeType) -> bool:
    """Whether code is torch's, Python's or this package's own, not the model's."""
    return is_generated(code) if code.co_filename == TEXT else is_library(code.co_filename)


def is_python(file: str) -> bool:
    """Whether a file is one of Python's own."""
    return file.startswith(PYTHON) and not file.startswith(PACKAGES)


def is_python_code(code: CodeType) -> bool:
    """Whether code is Python's own, or a text that stands for a line of the function around it."""
    return is_generated(code) if code.co_filename == TEXT else is_python(code.co_filename)


def is_generated(code: CodeType) -> bool:
    """Whether code that is compiled from a text is no function of the user's: a method of a dataclass, what ``eval`` computes,
    ``lambda x: fn(x)`` of make_fx, the guard that TorchDynamo checks.
    """
    is_guard = code.co_name == "guard" and code.co_varnames[: code.co_argcount] == ("L",)
    return code.co_name in METHODS or code.co_name == "<module>" or code.co_names == ("fn",) or is_guard


def words(code: CodeType) -> set[str]:
    """The names in the code of a function and of the functions in it."""
    inner = [words(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names, *code.co_varnames, *code.co_cellvars}.union(*inner)


@functools.cache
def tree_of(code: CodeType) -> ast.Module | None:
    """The source of a function, each node where it stands in the file; None where it is not known. Whoever changes it copies it first."""
    try:
        source, first = inspect.getsourcelines(code)
        text = textwrap.dedent("".join(source))
        tree = ast.parse(text)
    except (OSError, SyntaxError, TypeError):  # a lambda in the middle of a statement is none by itself
        return None
    margin = len(source[0]) - len(text.splitlines(keepends=True)[0])
    ast.increment_lineno(tree, first - 1)
    for node in ast.walk(tree):
        if hasattr(node, "col_offset") and hasattr(node, "end_col_offset"):
            node.col_offset += margin
            node.end_col_offset += margin
    return tree
