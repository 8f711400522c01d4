"""How a model is captured: how ``torch.export.export`` is called, or make_fx in its place."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.arguments import refuse_no_switches
from experimental_experiment.torch_interpreter.errors import CaptureError
from experimental_experiment.torch_interpreter.fake_results import made_once
from experimental_experiment.torch_interpreter.frames import is_library
from experimental_experiment.torch_interpreter.layouts import asked_once
from experimental_experiment.torch_interpreter.messages import stage
from experimental_experiment.torch_interpreter.patches.bounds import taken_within
from experimental_experiment.torch_interpreter.patches.packed import layers_over_symbols
from experimental_experiment.torch_interpreter.patches.patch import Convert, applied, replaced, selected
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.torch_interpreter.torch_state import forget_marks, without_remarks

if TYPE_CHECKING:
    from experimental_experiment.torch_interpreter.assumptions.decisions import Decisions
    from experimental_experiment.torch_interpreter.dynamic_shapes import DynamicShapes

TRACINGS = ("export", "make_fx")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of the capture; the defaults are those of ``torch.export.export``, without any decomposition.

    Attributes:
        tracing: ``"export"`` is torch.export; ``"make_fx"`` runs the model on fake tensors below autograd, so that gradients
            taken in forward (``torch.autograd.grad``, ``torch.func``) become operators. Composite operators come in their
            parts then, and the graph is larger.
        strict: capture with TorchDynamo instead of running the model on fake tensors.
        decomposition_table: None takes the program as it is; ``"default"`` decomposes it with torch's default
            table; a dict {overload: function} decomposes those overloads.
        preserve_module_call_signature: qualified names of submodules whose calling convention is kept.
        prefer_deferred_runtime_asserts_over_guards: turn guards on sizes into runtime checks.
        backed_size_oblivious: treat dynamic dimensions as if they could be 0 or 1. None: only when the example
            size of a dimension called dynamic is 0 or 1, which torch would otherwise refuse, or a size inside of the model is
            1, which the program would otherwise hold.
        patches: which patches of torch and transformers are applied while the model is captured, see ``docs/patches.md``.
            None: those of its column default; names: these too; True: all but those that assume something of the model,
            which are named; False: none.
    """

    tracing: str = "export"
    strict: bool = False
    decomposition_table: str | Mapping[Any, Callable] | None = None
    preserve_module_call_signature: tuple[str, ...] = ()
    prefer_deferred_runtime_asserts_over_guards: bool = False
    backed_size_oblivious: bool | None = None
    patches: bool | Collection[str] | None = None

    def __post_init__(self):
        if self.tracing not in TRACINGS:
            raise ValueError(f"tracing is 'export' or 'make_fx', not {self.tracing!r}")
        deferred = self.prefer_deferred_runtime_asserts_over_guards
        refuse_no_switches(strict=self.strict, prefer_deferred_runtime_asserts_over_guards=deferred)
        refuse_no_switches(may_be_none=True, backed_size_oblivious=self.backed_size_oblivious)
        if isinstance(self.preserve_module_call_signature, str):
            raise TypeError(
                f"preserve_module_call_signature is a tuple of names, not {self.preserve_module_call_signature!r}"
            )
        if self.tracing == "make_fx" and (self.strict or self.preserve_module_call_signature):
            option = "strict=True" if self.strict else "preserve_module_call_signature"
            raise ValueError(f"{option} is an option of torch.export, which tracing='make_fx' does not call")
        table = self.decomposition_table
        if not (table is None or table == "default" or isinstance(table, Mapping)):
            raise ValueError(
                f"decomposition_table is None, 'default' or a dict of decompositions, not {table!r}"
            )
        refuse_no_decompositions(table if isinstance(table, Mapping) else {})
        selected(self.patches)

    def patched(self) -> contextlib.AbstractContextManager[Convert]:
        """Apply the patches for a while; what is yielded converts inputs."""
        return applied(selected(self.patches))

    def capture(
        self,
        module: torch.nn.Module,
        args: tuple,
        kwargs: dict[str, Any],
        dynamic_shapes: Any,
        said: DynamicShapes,
        decisions: Decisions,
    ) -> torch.export.ExportedProgram | Program:
        """Call ``torch.export.export``, then decompose if asked; or trace with make_fx, which decomposes on the way.

        *said*: what the user says of the sizes of the example. *decisions* receives what the example decided about sizes. When it
        decided that a size inside of the model is 1, as that of an image of 24 pixels after five strides of 2, or of ``x[1:]`` of
        two rows, the model is captured again, without that; when it made a dimension called dynamic 1, with an example that has
        another size there. Raises CaptureError, with torch's own error as its cause.
        """
        asked = (module, args, kwargs, dynamic_shapes)
        if self.backed_size_oblivious is not None:
            return self.within_constraints(asked, self.backed_size_oblivious, decisions)
        program = refusal = None
        try:
            program = self.within_constraints(asked, said.has_small_sizes, decisions)
        except CaptureError as error:
            if "Constraints violated" not in str(error):
                raise
            refusal = error
        number = None
        if said.has_small_sizes:
            larger = (
                said.larger(args, kwargs) if refusal is not None or decisions.pins_sizes_of_one() else None
            )
            if larger is None:
                return found_or_raised(program, refusal)
            asked, number = (module, *larger[:2], dynamic_shapes), larger[2]
        elif not decisions.pins_inner_sizes():
            return found_or_raised(program, refusal)
        forget_marks((args, kwargs))
        others = type(decisions)()  # importing it would bring sympy
        try:
            general = self.within_constraints(asked, number is None, others)
            others.refuse_contradictions(general, number)
        except CaptureError as error:
            logger.debug("a capture that takes no size for 1 is refused: %s", error)
            decisions.obstacle = error.source
            return found_or_raised(program, refusal)
        if refusal is not None or number is not None:
            closed = others.closed_sizes()
            if closed and (refusal is not None or not closed < decisions.closed_sizes()):
                return found_or_raised(program, refusal)
        logger.info(
            "the model was captured twice: the first time a size was 1, as it is for the example only"
        )
        decisions.found, decisions.layouts = others.found, others.layouts
        decisions.takes_within = others.takes_within
        return general

    def within_constraints(
        self, asked: tuple[torch.nn.Module, tuple, dict[str, Any], Any], oblivious: bool, decisions: Decisions
    ) -> torch.export.ExportedProgram | Program:
        """What `captured` gives of a module, its arguments and ``dynamic_shapes``.

        Where torch does not go on with the smaller one of two sizes, the example says which that is: of Dims, torch proves it; of others,
        *decisions* says it.
        """
        try:
            return self.captured(*asked, oblivious, decisions)
        except CaptureError:
            if not decisions.choose_sizes():
                raise
        _, args, kwargs, dynamic_shapes = asked
        forget_marks((args, kwargs))
        decisions.found, decisions.layouts = {}, {}
        with taken_within():
            program = self.captured(*asked, oblivious, decisions)
        hint = type(torch.export.Dim.DYNAMIC)
        decisions.takes_within = any(isinstance(leaf, hint) for leaf in pytree.tree_leaves(dynamic_shapes))
        return program

    def captured(
        self,
        module: torch.nn.Module,
        args: tuple,
        kwargs: dict[str, Any],
        dynamic_shapes: Any,
        oblivious: bool,
        decisions: Decisions,
    ) -> torch.export.ExportedProgram | Program:
        """What one capture gives, which takes dynamic sizes for larger than 1 if *oblivious*, also those that are 1 in the example."""

        def config() -> contextlib.AbstractContextManager:
            patch = torch.fx.experimental._config.patch
            return patch(backed_size_oblivious=True) if oblivious else contextlib.nullcontext()

        if self.tracing == "make_fx":
            from experimental_experiment.torch_interpreter.tracing import traced  # brings TorchDynamo: 1 s

            with observed("make_fx", decisions), config():
                return traced(
                    module,
                    args,
                    kwargs,
                    dynamic_shapes,
                    self.decompositions(),
                    self.prefer_deferred_runtime_asserts_over_guards,
                )
        with observed("torch.export.export", decisions), config():
            program = torch.export.export(
                module,
                args,
                kwargs or None,
                dynamic_shapes=dynamic_shapes,
                strict=self.strict,
                preserve_module_call_signature=self.preserve_module_call_signature,
                prefer_deferred_runtime_asserts_over_guards=self.prefer_deferred_runtime_asserts_over_guards,
            )
        with config():
            return self.decomposed(program)

    def decompositions(self) -> dict[Any, Callable]:
        """The decompositions asked for."""
        if isinstance(self.decomposition_table, str):
            return dict(torch.export.default_decompositions())
        return dict(self.decomposition_table or {})

    def decomposed(self, program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        """The program after the decompositions asked for, the program itself when there is none."""
        if self.decomposition_table is None:
            return program
        kept = layers_over_symbols(program)  # what they decompose into has the length of the example
        if isinstance(self.decomposition_table, str):
            table = torch.export.default_decompositions()
            for layer in kept:
                table.pop(layer, None)
        else:
            table = dict(self.decomposition_table)
            for layer in kept & table.keys():
                raise CaptureError(
                    f"{layer} over a dynamic length decomposes into the steps of the example",
                    hint=f"leave {layer} out of decomposition_table",
                )
        with stage("ExportedProgram.run_decompositions"):
            return program.run_decompositions(table)


def refuse_no_decompositions(table: Mapping[Any, Any]) -> None:
    """Raise TypeError for a key that torch never meets, a packet or a name, and for a decomposition that is no function."""
    for target, function in table.items():
        if not isinstance(target, torch._ops.OperatorBase):
            raise TypeError(
                f"decomposition_table holds {target!r}, which is no overload, as torch.ops.aten.gelu.default is"
            )
        if not callable(function):
            raise TypeError(f"the decomposition of {target} is not a function but {type(function).__name__}")


def found_or_raised(program: Any, refusal: CaptureError | None) -> Any:
    """What a capture gave; raises what it was refused with."""
    if refusal is not None:
        raise refusal from refusal.__cause__
    return program


@contextlib.contextmanager
def observed(name: str, decisions: Decisions) -> Iterator[None]:
    """A capture, of torch's function *name*: what it decides is recorded, what refuses it said in our words, what it need not do twice left out."""
    with (
        stage(name, decisions),
        decisions.recorded(follows=name == "make_fx"),
        without_remarks(),
        lines_of_helpers(),
        made_once(),
        asked_once(),
    ):
        yield


@contextlib.contextmanager
def lines_of_helpers() -> Iterator[None]:
    """Let torch keep the lines of the functions that ``forward`` calls with each node, where it keeps those of ``forward``."""
    tracer = torch.fx.proxy.TracerBase
    original = getattr(tracer, "_filter_traceback_frames", None)
    if original is None:  # torch 2.9 keeps all
        yield
        return

    def lines(self: torch.fx.proxy.TracerBase, stack: traceback.StackSummary) -> traceback.StackSummary:
        frames = list(stack)
        first = next((place for place, frame in enumerate(frames) if frame.name == "forward"), len(frames))
        kept = {id(frame) for frame in original(self, stack)}
        return traceback.StackSummary.from_list(
            frame for frame in frames[first:] if id(frame) in kept or not is_library(frame.filename)
        )

    with replaced(tracer, "_filter_traceback_frames", lines):
        yield


class CapturedOnce:
    """ExportOptions that call torch.export once for several uses of a model: it is most of their time.

    Attributes:
        program: what torch.export gave, None before.
    """

    def __init__(self, options: ExportOptions):
        self.options = options
        self.program: torch.export.ExportedProgram | None = None

    @property
    def strict(self) -> bool:
        """See ExportOptions."""
        return self.options.strict

    def capture(self, *arguments: Any) -> torch.export.ExportedProgram:
        """The program of the first call, whatever the arguments."""
        if self.program is None:
            self.program = self.options.capture(*arguments)
        return self.program

    def decomposed(self, program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        """See ExportOptions."""
        return self.options.decomposed(program)

    def patched(self) -> contextlib.AbstractContextManager[Callable]:
        """See ExportOptions."""
        return self.options.patched()
