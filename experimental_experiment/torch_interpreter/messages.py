"""torch.export's errors in our words: its whole sentence, the line of the model, what to do.

`HINTS` is the table of the families met most; a row is a pattern of the error and the advice.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import re
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from experimental_experiment.torch_interpreter.errors import (
    QUANTIZED,
    SPARSE,
    CaptureError,
    EagerError,
    ExportError,
    Source,
)
from experimental_experiment.torch_interpreter.frames import (
    TEXT,
    TORCH,
    decides_turns,
    is_library,
    is_library_code,
    with_value,
)

if TYPE_CHECKING:
    from experimental_experiment.torch_interpreter.assumptions.decisions import Decision, Decisions

DATA = re.compile(
    r"[Dd]ata-dependent|DataDependentOutput|GuardOnDataDependentSymNode|Could not guard|Could not extract specialized"
)
"""What torch says of what the data decide."""

DECIDED = "a branch or a size depends on the data: use torch.cond, bound the value with torch._check, or compute both sides with torch.where"
"""The advice for it."""

MULTIPLES = "the model takes multiples of {multiple} for this size: declare {multiple} * Dim('{dim}')"
"""The advice for a size that torch found to be a multiple."""

NUMPY = (
    "numpy computes with numbers of Python, not with dynamic sizes: use functions of math or of torch, or capture with "
    "ExportOptions(strict=True), which follows many of numpy's"
)
"""The advice for a size or a number of the data that numpy is given."""

HINTS = (
    (
        r"\.numpy\(\)",
        "a tensor becomes a numpy array in forward, where torch.export cannot follow: use torch's functions instead, or capture with "
        "ExportOptions(strict=True), which follows many of numpy's",
    ),
    (
        r"<class 'set'>|<class 'frozenset'>|\bSetVariable|unhashable type: 'set'",
        "a set has no order: take and return tensors in tuples, lists or dicts",
    ),
    (
        r"Unsupported input type .*DynamicCache",
        "a DynamicCache is unknown to torch: call register_dynamic_cache_export_support() "
        "of transformers.integrations.executorch first",
    ),
    (
        r"Unsupported input type <class '(?:.*\.)?(?P<cache>\w*Cache)'",
        "a {cache} is unknown to torch: call register_pytree_node({cache}) "
        "of transformers.exporters.exporter_dynamo first, or torch.utils._pytree.register_pytree_node",
    ),
    (
        r"devices?,? .*\bmeta\b",
        "a part of the model or the example is on the meta device, without values: to_onnx(weights=...) gives those of "
        "parameters and buffers",
    ),
    (
        r"FakeTensor.* to FakeTensor|FakeTensorMode|fake mode",
        "the model or the example was made under FakeTensorMode, without values: make it outside",
    ),
    (
        r"ScriptModule|ScriptFunction|torch\.jit(?!\.is_)",
        "export the nn.Module that was scripted or traced, not its TorchScript",
    ),
    (
        r"_apply\(\): Couldn't swap",
        "forward converts a module, which then stays converted: do so before the export, or cast the input to the dtype of the module",
    ),
    (
        r"PackedParams|CellParamsBase",
        "the weights of torch.ao.quantization's converted modules are packed, where torch.export cannot follow: export the "
        "float model, then experimental_experiment.xoptim.quantize_weights",
    ),
    (
        r"quantized nyi in meta tensors|UnsupportedOperatorException: aten\.(de)?quantize",
        QUANTIZED,
    ),
    (
        r"\baten\._?(to_)?sparse[_.](?!semi)|Sparse CS[RC] tensors",
        SPARSE,
    ),
    (
        r"should be the same|same dtype|same scalar type|must have the same dtype|expected scalar type|"
        r"one of the following scalar types|dtypes? mismatch",
        "the example has another dtype than the model expects: cast the inputs, or the model, as in model.to(x.dtype)",
    ),
    (
        r"Input-to-input aliasing",
        "a body reads a tensor from outside and a view of it, or two views of one: clone one before, or make the view in the body by a method, "
        "k.t() in the place of k.T",
    ),
    (
        r"aliasing during higher order op",
        "a branch or a body returns one of its inputs, a view of one, or one tensor twice: clone it",
    ),
    (
        r"Attempted to wrap unbacked SymInt",
        "a body reads a number of the data from outside: give it torch.tensor(n), or capture with ExportOptions(strict=True)",
    ),
    (
        r"InternalTorchDynamoError: TypeError: '<' not supported between instances of 'NoneType' and 'int'",
        "a body reads a view from outside whose place the data decide, as x[:, n.item()] is: clone it before, or capture with ExportOptions(strict=True)",
    ),
    (
        r"unsupported branch return type|HOP body output unsupported",
        "branches and bodies return tensors: torch.tensor(n) for a number",
    ),
    (
        r"improper combine_fn",
        "a strict capture takes torch._higher_order_ops.scan, torch.ops.higher_order.scan needs strict=False",
    ),
    (
        r"static_number_of_elements",
        "a strict capture, and a body of a branch or a loop, hold as many halvings of an associative_scan as the example has: call it outside of "
        "the body, leave out strict=True, or make that dimension static",
    ),
    (
        r"to have same metadata but found:\s+pair\[\d+\] differ in 'stride",
        "a carry keeps the layout of its memory from turn to turn: start from init.contiguous(), and return what is contiguous",
    ),
    (
        r"to have same metadata|object of type 'Node' has no len",
        "a carry keeps its shape from turn to turn, in a list for torch.ops.higher_order.scan: collect what grows with experimental_experiment.higher_order_ops.simple_loop_for",
    ),
    (
        r"linalg_lstsq",
        "torch.export does not follow torch.linalg.lstsq, whose ranks depend on the data: torch.linalg.pinv(a) @ b is its solution",
    ),
    (
        r"Cannot call numel\(\) on tensor with symbolic sizes",
        "an operator of torch takes no dynamic sizes in this form: take its result in the place of out=, or leave the dimension static",
    ),
    (
        r"SymIntArrayRef expected to contain only concrete integers",
        "an operator of torch takes no dynamic sizes in this form: leave generator= out, which a runtime does not take either, or leave "
        "the dimension static",
    ),
    (DATA.pattern, DECIDED),
    (
        r"Expected op to be '=='",
        "a branch compares a dynamic size with a number, and torch cannot say which sizes are left: leave the dimension static, "
        "or give Dim(...) a max, or a min, with which all sizes take the same branch",
    ),
    (
        r"cannot be solved using|Failed to reduce inequalities",
        "torch cannot solve what the model asks of a dynamic size: leave that dimension static, or declare it a multiple, "
        "as 32 * Dim('height')",
    ),
    (
        r"unhashable type: non-nested SymInt",
        "a size is a key: of a dict, of a set, of a function's cache; compare sizes with ==, call the function without its "
        "cache, or leave the dimension static",
    ),
    (
        r"(KeyError: ['\"]|ValueError: (invalid literal|could not convert)).*\b[su]\d+\b",
        "a size is written as a text, which has the name of its symbol while the model is captured: compute with the size itself, or leave "
        "the dimension static",
    ),
    (
        r"loop of ufunc does not support argument \d+ of type Sym|np\.ndarray of type numpy\.object_",
        NUMPY,
    ),
    (
        r"Creating a new Tensor subclass (Params4bit|Int8Params)|object has no attribute 'S?CB'",
        "bitsandbytes keeps weights in classes of its own: export the model with ordinary ones, model.dequantize() of transformers",
    ),
    (
        r"Creating a new Tensor subclass",
        "a tensor becomes one of a class of its own in forward: leave it a tensor, or capture with ExportOptions(strict=True)",
    ),
    (
        r"uninitialized parameter in",
        "a lazy module has no weights before its first call: call the model once with the example, and export it then",
    ),
    (
        r"its data is not allocated yet|Cannot access data pointer of Tensor \(",
        "the memory of a tensor is read, which has none while the model is captured: torch.tensor([...]) of tensors of one element is "
        "followed, and torch.stack; a kernel of an extension is to be a custom operator, torch.library.custom_op",
    ),
    (
        r"(?s)Constraints violated(?!.*specialized)(?!.*%).*//.*Suggested fixes:.*\b(?P<dim>\w+) = (?P<multiple>\d+)\*_(?P=dim)\b(?! *[-+])",
        "torch knows what this asks of a size for multiples of {multiple} alone: name the dimension by a string, {{0: '{dim}'}}, for a model of all "
        "sizes for which it holds, or declare {multiple} * Dim('{dim}')",
    ),
    (
        r"(?s)Constraints violated(?!.*specialized).*Suggested fixes:.*\b(?P<dim>\w+) = (?P<multiple>\d+)\*_(?P=dim)\b(?! *[-+])",
        MULTIPLES,
    ),
    (
        r"(?s)Constraints violated(?!.*specialized).*Not all values of (?P<dim>\w+) = [^\n]* guard \(+(\d+\*)?L\[[^-+%\n]*% (?P<multiple>\d+)\) == 0",
        MULTIPLES,
    ),
    (
        r"(?s)Constraints violated(?!.*specialized).*satisfy the generated guard.*Suggested fixes:.*Dim\(.*\b(min|max)=",
        "the branch is taken for some sizes only: give the Dim the bounds that torch names, or name the dimension by a string, "
        "{0: 'batch'}, for a model that is right for those sizes and warns of the others",
    ),
    (
        r"Constraints violated|ConstraintViolation|\b[sS]pecialized\b|not all values of",
        "a dimension declared dynamic is not: remove it from dynamic_shapes, name equal dimensions alike, or use Dim.AUTO",
    ),
    (
        r"size of tensor a \(.*s\d+.*\) must match|size of tensor b \(.*s\d+",
        "two sizes meet here, one of them dynamic: give equal dimensions one name in dynamic_shapes, and none to an axis of one element that is repeated",
    ),
    (
        r"NestedInt|NestedTensor|aten\._nested_tensor",
        "ONNX has no nested tensors: take a padded tensor and a mask, or the lengths",
    ),
    (
        r"in output, which is not a known type|unrecognized type .* at output|argument of type: <class '(?!torch\._dynamo)|one of the outputs with type",
        "a class among the outputs is unknown to torch: return tensors in tuples, lists or dicts, or register it with torch.export.register_dataclass or torch.utils._pytree.register_pytree_node",
    ),
    (
        r"Unsupported input type <class 'numpy\.",
        "a value of numpy is among the arguments: give torch.as_tensor(value), or a constant as float(value)",
    ),
    (
        r"Unsupported input type <class '(torch\.(dtype|device|layout|memory_format)|slice|range|complex|bytes|type|function|"
        r"builtin_function_or_method|method|fractions\.Fraction|decimal\.Decimal|pathlib\.\w+)'>",
        "no input of a model can be that: bind it, to_onnx(functools.partial(model, dtype=torch.float16), ...) for example",
    ),
    (
        r"pytree|Unsupported input type|register_dataclass|register_constant|unregistered|is not supported as an input",
        "a class among the inputs is unknown to torch: register it with torch.export.register_dataclass or torch.utils._pytree.register_pytree_node",
    ),
    (
        r"Unsupported context manager",
        "TorchDynamo enters few context managers: leave this one out of forward, or capture with ExportOptions(strict=False), which runs "
        "Python's",
    ),
    (
        r"leaf Variable that requires grad is being used in an in-place operation",
        "a tensor that the model writes requires grad: fill a cache under torch.no_grad(), give another input as x.detach(), or export "
        "under torch.no_grad()",
    ),
    (
        r"autograd state|set_grad_enabled|requires grad|grad mode",
        "the model changes the gradient mode: export it under torch.no_grad()",
    ),
)
"""Pattern of ``type: text`` followed by the files of the traceback, and the advice; the first row that matches is given."""

GRADIENTS = "gradients in forward, which torch.export refuses: ExportOptions(tracing='make_fx') follows them"
"""The advice for ``torch.autograd.grad``, ``torch.func`` and what they leave in the program."""

GRADIENT_ERRORS = re.compile(
    r"torch/_functorch/eager_transforms|torch/autograd/(?!function\.py)|functorch tensor|Unsupported Tensor\.(requires_grad_|backward)|"
    r"Expected FakeTensor, got <class 'torch\.Tensor'>|fake tensor in the exported program constant|data pointer of Tensor that doesn't have storage"
)
"""What torch.export's errors and tracebacks hold when a model takes a gradient."""

GRADIENT_CALLS = re.compile(
    r"\b(grad|grad_and_value|jvp|vjp|jacrev|jacfwd|jacobian|hessian|hvp|vhp|backward)\("
)
"""A line of a model that takes a gradient."""

LOOP = re.compile(
    r"\bfor\b.*\b(range|enumerate|zip|reversed|unbind|split|chunk)\(|\bfor\b[^:]*\bin\s+\w+\s*:"
)
"""A line of a model that begins a loop."""

NUMBERS = (
    "len() and int() make a number of the size: write x.shape[0], or capture with ExportOptions(strict=True), which "
    "follows them"
)
"""The advice for a size that Python itself asked to be a number."""

EINX = re.compile(r"[\\/]einx[\\/]|\beinx\.")
"""The file or the line of a call of einx."""

EINX_SIZES = "einx makes numbers of Python of all sizes: write the call with einops or with torch's functions, or leave the dimensions static"
"""The advice for a size in such a call; a strict capture makes numbers of them, too."""

LOOPS = (
    "a Python loop over a size has as many turns as for the example: torch._higher_order_ops.scan, or "
    "experimental_experiment.higher_order_ops.simple_loop_for, has those of any size"
)
"""The advice for a size that a ``for`` of the model asked to be a number."""
LISTS = (
    "tolist() makes a list with an entry for each element, whose number is that of the example: leave it static, or compute "
    "with the tensor"
)
"""The advice for a size that became the length of a list."""

TYPED_TENSOR = re.compile(r"\btorch\.(Byte|Char|Short|Int|Long|Half|Float|Double|Bool|)Tensor\(\s*[\[(]")
"""A line of a model that makes a tensor of a list with the constructor of a type."""

TYPED_TENSORS = (
    "torch.LongTensor, torch.FloatTensor and their like take numbers of Python only: torch.tensor([...], dtype=) takes sizes, numbers of "
    "the data and tensors of one element"
)
"""The advice for a size, a number of the data or a tensor in such a list."""

NUMPY_CALL = re.compile(r"\b(np|numpy)\.\w+\(")
"""A line of a model that calls a function of numpy."""

REMEMBERED = re.compile(r"(==|!=|[<>]=?)\s*self\.\w*cache|\bself\.\w*cache\w*\s*(==|!=|[<>])")
"""A line of a model that compares with what it keeps from call to call."""

EARLIER_CALLS = (
    "the model compares the size with one that it keeps from an earlier call: export it before it is called, or empty what it keeps, "
    "as in model.cached_length = None"
)
"""The advice for a size that such a line asked to be the one of the example."""

TYPE = re.compile(r"\btype\(.*\)\s*(is|==|!=|in|not)(?!\w)[^:]*\bTensor\b")
"""A line of a model that compares the type of something with ``torch.Tensor``."""

TYPES = (
    "type(x) is torch.Tensor is false of the tensors of a capture, whose class is derived from it: write isinstance(x, torch.Tensor), or "
    "capture with ExportOptions(strict=True)"
)
"""The advice for what is raised after such a line."""

WHILES = (
    "the data decide how often a while turns: torch._higher_order_ops.while_loop, whose carries keep their shapes, so that a mask says "
    "what is left of a tensor that shrinks"
)
"""The advice for a line that the end of a ``while`` depends on, when the data decide."""

CHOICE = re.compile(r"[\w)\]]\[[^\]:]+\]")
"""A line of a model that takes an element of something."""

CHOICES = (
    "the data choose from a list of Python, or from a ModuleList: make a tensor of the list, torch.tensor(values)[i], stack what all modules "
    "give, torch.stack([m(x) for m in modules])[i], or use torch.cond"
)
"""The advice for such a line, when the data decide."""

TURN = re.compile(r"\bfor\b.*\bin\b")
"""A line of a model that begins a loop, whatever over."""

TURNS = (
    "the data decide how often a loop turns: loop over all that may be and mask what is not there, or use "
    "experimental_experiment.higher_order_ops.simple_loop_for or torch._higher_order_ops.while_loop"
)
"""The advice for such a line, when the data decide."""

SHORTCUT = re.compile(
    r"^(if|elif)\b.*(\.(all|any|allclose|equal)\(|(numel\(\)|len\(.*\)|shape\[\d\]|size\(\d\)) *(==|!=|>) *0\b)"
)
"""A line of a model that asks whether all, any or none are marked or found."""

SHORTCUTS = (
    "the data decide a branch: ExportOptions(patches={'shortcuts'}) takes the one for a mask with holes, or for something found, which "
    "must be right for all data; otherwise use torch.cond or torch.where, or patches={'branches_of_data'}, which makes a torch.cond of the if"
)
"""The advice for such a line."""

NOTHING = re.compile(
    r"expression (Eq\(u\d+, 0\)|Ne\(u\d+, 0\)|u\d+ (<|>=) 1|u\d+ (<=|>) 0) .*Size-like symbols: u"
)
"""What torch says of a branch that asks whether the data select nothing."""

BOOLEANS = "bool() needs the value: keep the condition as a tensor, as (x > 0).any() is, or capture with ExportOptions(strict=True), which returns it"
"""The advice for a boolean that is made of a tensor and is no branch."""

PERCENT = re.compile(r"""["']\s*%\s*[\w(]""")
"""A line of a model that formats a text with ``%``."""

TEXTS = "'%' formats numbers of Python only: write an f-string, or leave the text out"
"""The advice for a size or a number of the data in such a text."""

BATCHES = (
    "an operator under torch.vmap takes the size of the batch for a number: give the function whole batches, or call "
    "torch._higher_order_ops.map(function, x) in the place of torch.vmap(function)(x), or leave the dimension static"
)
"""The advice for a size that functorch asked to be a number."""

BRANCH = re.compile(r"^(if|elif)\b|\bif\b.*\belse\b|\btorch\.equal\(")
"""A line of a model that is a branch, or asks for a boolean of Python."""

BRANCHES = f"{DECIDED}; ExportOptions(patches={{'branches_of_data'}}) makes a torch.cond of the if, unless a side of it writes, leaves a loop or gives another shape"
"""The advice for such a line, when the data decide."""

LAYERS = os.path.join(TORCH, "nn", "modules", "")
"""torch's own layers: the line of a model that is one of them."""

CONTEXT = re.compile(r"Developer debug context: .*?(?=\n\s*\n|\Z)", re.DOTALL)
"""What TorchDynamo shows of its own state, perhaps a whole graph."""

NOISE = re.compile(
    r"For more information|For extended logs|For C\+\+ stack|For more debugging|If you suspect the guard|Caused by: |"
    r"Set TORCHDYNAMO_VERBOSE|Hint: |For more details|consider using data-dependent friendly"
)
"""Lines of torch's errors for those who work on torch."""

END = re.compile(
    r"^frame #\d+: |The following call raised|The error above occurred|from user code:|User stack:|While executing|Original traceback"
)
"""What follows these lines is not the sentence."""


INTERRUPTED = 'with error "KeyboardInterrupt: '
"""What torch's parser of arguments says, as a TypeError, when an interruption meets it while it reads a size."""


@contextlib.contextmanager
def stage(name: str, decisions: Decisions | None = None) -> Iterator[None]:
    """Pass torch's errors on as a CaptureError: the stage, torch's sentence, the line of the model, a hint.

    *decisions*: what was asked of sizes so far; it tells which line made a size constant.
    """
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        if INTERRUPTED in str(error):
            raise KeyboardInterrupt from error
        source, pin = raising_line(error), None
        if source is None and decisions is not None:
            pin = decisions.pin(str(error)) or decisions.last_branch(str(error))
        source = pin.source if pin is not None else source
        message = f"{name} failed with {type(error).__name__}: {sentence(error)}"
        if "The size of tensor a" in message and decisions is not None:
            message += decisions.symbols_in(message)
        if name != "make_fx" and takes_gradient(error, source, pin):
            raise CaptureError(message, hint=GRADIENTS, source=source) from error
        if pin is not None and pin.is_batch and not pin.is_branch:
            raise CaptureError(message, hint=BATCHES, source=source) from error
        raise CaptureError(message, hint=hint(error, source), source=source) from error


@contextlib.contextmanager
def in_eager(source: Source | None = None, where: str = "") -> Iterator[None]:
    """Pass on what a model raises when PyTorch itself runs it as an EagerError: the sentence, the line of the model.

    *source*: that line, where it is known; else the traceback tells it. *where*: what it runs on, other than the example.
    """
    try:
        yield
    except ExportError:  # of a backend of torch.compile
        raise
    except Exception as error:
        if INTERRUPTED in str(error):
            raise KeyboardInterrupt from error
        message = f"eager PyTorch itself fails{where} with {type(error).__name__}: {sentence(error)}"
        source = source or raising_line(error, OWN_FRAMES)
        if source is not None and not source[3]:  # the guard of a program, whose code is in no file
            source = None
        raise EagerError(message, source=source) from error


OWN_FRAMES = 2
"""The first frames of such a traceback: that of `in_eager`, that of the ``with``; the model comes after them."""


def sentence(error: BaseException) -> str:
    """What torch says, on one line, without what it says to its own developers."""
    kept = []
    for line in CONTEXT.sub("", str(error)).splitlines():
        if END.search(line):
            break
        line = re.split(NOISE, line)[0].strip()
        if line:
            kept.append(line)
    return " ".join(kept)


def takes_gradient(error: BaseException, source: Source | None, pin: Decision | None) -> bool:
    """Whether an error of torch.export comes from a gradient in forward: by its words, its traceback, its line or its pin."""
    in_line = source is not None and GRADIENT_CALLS.search(source[3])
    return bool(GRADIENT_ERRORS.search(evidence(error)) or in_line or (pin is not None and pin.is_gradient))


def hint(error: BaseException, source: Source | None = None) -> str:
    """One line of advice for the known families of torch's errors, ``""`` for the others."""
    if source is not None:
        found = advice_for_the_data(error, source) or advice_for_sizes(error, source)
        if found or is_after_type(error, source):
            return found or TYPES
    return advice(evidence(error))


def advice_for_the_data(error: BaseException, source: Source) -> str:
    """The advice for a line of the model where the data decide, ``""`` for the others."""
    text = f"{type(error).__name__}: {error}"
    if not DATA.search(text):
        return ""
    if decides_turns(*source[:2]):
        return WHILES
    is_branch = bool(BRANCH.search(source[3]))
    if "ata-dependent" in text and (
        SHORTCUT.search(with_value(source)) or (is_branch and NOTHING.search(text))
    ):
        return SHORTCUTS
    if is_branch:
        return BRANCHES
    if PERCENT.search(source[3]):
        return TEXTS
    if TYPED_TENSOR.search(source[3]):
        return TYPED_TENSORS
    if NUMPY_CALL.search(source[3]):
        return NUMPY
    if "specialized integer" in text:
        return TURNS if TURN.search(source[3]) else CHOICES if CHOICE.search(source[3]) else ""
    return BOOLEANS if re.search(r"\bbool\(", source[3]) else ""


def advice_for_sizes(error: BaseException, source: Source) -> str:
    """The advice for a line of the model that makes a dynamic size that of the example, ``""`` for the others."""
    if "data is not allocated" in str(error) and TYPED_TENSOR.search(source[3]):
        return TYPED_TENSORS
    if DATA.search(str(error)) or not re.search(r"\bspecialized\b", str(error)):
        return ""
    rows = (
        (EINX, f"{source[0]}:{source[3]}", EINX_SIZES),
        (re.compile(r"\.tolist\(\)"), source[3], LISTS),
        (LOOP, source[3], LOOPS),
        (PERCENT, source[3], TEXTS),
        (NUMPY_CALL, source[3], NUMPY),
        (re.compile(r"\b(len|int)\("), source[3], NUMBERS),
        (TYPED_TENSOR, source[3], TYPED_TENSORS),
        (REMEMBERED, source[3], EARLIER_CALLS),
    )
    found = next((found for pattern, line, found in rows if pattern.search(line)), "")
    return found or (EARLIER_CALLS if is_kept(source) else "")


def is_kept(source: Source) -> bool:
    """Whether a line of the model compares with an attribute that its function writes below: heads of YOLO do, ``if self.shape != shape:``."""
    below = itertools.takewhile(
        lambda line: not re.match(r"\s*(def|class) ", line), linecache.getlines(source[0])[source[1] :]
    )
    written = re.findall(r"^\s*self\.(\w+)(?:\s*,.*)?\s*=[^=]", "".join(below), re.MULTILINE)
    asked = re.findall(r"\bself\.(\w+)", source[3]) if re.search(r"[!=<>]=|[<>]", source[3]) else ()
    return not {*written}.isdisjoint(asked)


def is_after_type(error: BaseException, source: Source) -> bool:
    """Whether a line of the model raised itself, at or after one of its function that compares a type with ``torch.Tensor``."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    if (frame.f_code.co_filename, line) != source[:2]:
        return False
    return any(map(TYPE.search, linecache.getlines(source[0])[frame.f_code.co_firstlineno - 1 : line]))


def evidence(error: BaseException) -> str:
    """The type and the text of an error, and the files of its traceback."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return "\n".join([f"{type(error).__name__}: {error}", *files])


def advice(text: str) -> str:
    """The advice of the first row of `HINTS` whose pattern is in a text."""
    for pattern, sentence_ in HINTS:
        found = re.search(pattern, text)
        if found:
            return sentence_.format(**found.groupdict()) if found.groupdict() else sentence_
    return ""


def raising_line(error: BaseException, entered: int | None = None) -> Source | None:
    """The line of the model that raised: the innermost one outside of torch, in the traceback or in TorchDynamo's text.

    *entered*: how many frames are those of the caller; all before torch's if not given.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    summaries = traceback.extract_tb(error.__traceback__)
    lines = [(entry.filename, entry.lineno, entry.name, entry.line or "") for entry in summaries]
    raised = list(zip(lines, map(is_library_code, codes)))
    # the first frames are those of the caller of to_onnx's capture: the model comes after torch's
    if entered is None:
        entered = next((place for place, line in enumerate(lines) if line[0].startswith(TORCH)), len(lines))
    told = re.split("from user code:|User stack:", str(error))[1:]
    quoted = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n[ \t]*(.*)', "".join(told))
    followed = [
        ((file, int(line), *others), is_library(file) and file != TEXT) for file, line, *others in quoted
    ]
    found = [line for line, is_other in followed or raised[entered:] if not is_other] or [
        line
        for line, _ in followed or raised[entered:]
        if line[0].startswith(LAYERS) and os.path.basename(line[0]) != "module.py"
    ]
    return found[-1] if found else None
