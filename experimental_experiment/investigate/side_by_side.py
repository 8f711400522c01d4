"""A program and a model side by side: each result that both name compared with eager, and with torch on ONNX's results before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import torch

from experimental_experiment.investigate.alignment import Pair, align, recorded, writers
from experimental_experiment.investigate.fusions import blame
from experimental_experiment.investigate.gaps import gap
from experimental_experiment.investigate.onnx_side import Given, between, in_reference, loaded, values_of
from experimental_experiment.investigate.replay import (
    Beside,
    Double,
    Eager,
    model_inputs,
    random_nodes,
    results,
)
from experimental_experiment.investigate.results import Discrepancies, Result, Suspects
from experimental_experiment.investigate.ties import Tie, tie
from experimental_experiment.investigate.ways import ways
from experimental_experiment.progress import Progress, silent
from experimental_experiment.protos import to_proto
from experimental_experiment.torch_interpreter.errors import EagerError, module_path, source_line, target_name
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.torch_interpreter.writes import mutated_storages

ROUNDING = 8.0
"""A result that is at most this much further from float64 than eager's differs by rounding."""


class Comparison:
    """A program, a model and one call of both."""

    def __init__(
        self,
        program: Program,
        onnx: Given,
        leaves: Sequence[Any],
        scale: float,
        progress: Progress = silent,
    ):
        self.program = program
        self.onnx = onnx
        self.leaves = leaves
        self.scale = scale
        self.progress = progress
        model = loaded(onnx)
        self.pairs = align(program, model)
        self.input_names = [value.name for value in model.graph.inputs]
        self.inputs = model_inputs(program, leaves, self.input_names)
        self.random = set(random_nodes(program.module.graph))
        self.expected: dict[tuple[torch.fx.Node, int], torch.Tensor] = {}

    def told(self, at_once: int | None) -> Discrepancies:
        """Compare, look for the reasons."""
        self.progress("run", 1)
        pairs = self.pairs if at_once is None else self.narrowed(at_once)
        self.expected = self.eager_values(pairs)  # first: who fails there fails in ONNX for the same reason
        onnx = self.onnx_values(pairs)
        found = self.beside(pairs, onnx)
        self.progress("explain", 1)
        calls = sum(node.op == "call_function" for node in self.program.module.graph.nodes)
        report = Discrepancies(
            found,
            calls,
            blame(self.onnx, self.inputs, self.scale, self.runtime_rounds),
            self.overflow(pairs, found),
        )
        if report.first is not None:
            pair = next(pair for pair in pairs if pair.value == report.first.onnx)
            report.first.suspects = self.suspects(pair)
            report.first.note = self.origin(pair, onnx, report.first.suspects.are_several)
        if report.verdict != "agreement":
            report.ways = ways(self.onnx, self.inputs, self.expected_outputs(), self.scale)
        return report

    def expected_outputs(self) -> dict[str, torch.Tensor]:
        """Eager's outputs by the names of the model's."""
        outputs = [pair for pair in self.pairs if pair.output]
        values = self.eager_values(outputs)
        return {pair.output: values[pair.node, pair.position] for pair in outputs}

    def onnx_values(self, pairs: Sequence[Pair]) -> dict[tuple[torch.fx.Node, int], torch.Tensor]:
        """What the model computes for these pairs."""
        values = values_of(self.onnx, self.inputs, [pair.value for pair in pairs])
        return {(pair.node, pair.position): values[pair.value] for pair in pairs}

    def eager_values(self, pairs: Sequence[Pair]) -> dict[tuple[torch.fx.Node, int], torch.Tensor]:
        """What eager computes for these pairs; outputs as they are in the end, after all writes."""
        found: dict[tuple[torch.fx.Node, int], torch.Tensor] = {}
        wanted = {(pair.node, pair.position) for pair in pairs}

        def seen(node: torch.fx.Node, tensors: Sequence[torch.Tensor | None]) -> None:
            for position, tensor in enumerate(tensors):
                if (node, position) in wanted:
                    found[node, position] = tensor

        runner = Eager(self.program, {node for node, _ in wanted}, seen)
        runner.start(self.leaves)
        for pair in pairs:
            if pair.output and runner.writes:
                found[pair.node, pair.position] = results(runner.env[pair.node])[pair.position].clone()
        return found

    def narrowed(self, at_once: int) -> list[Pair]:
        """At most *at_once* pairs around the first difference from eager: by bisection, as many results at each turn."""
        low, high = 0, len(self.pairs)
        while high - low > at_once:
            step = -(-(high - low) // at_once)
            places = [*range(low + step - 1, high - 1, step), high - 1]
            probes = [self.pairs[place] for place in places]
            expected, onnx = self.eager_values(probes), self.onnx_values(probes)
            differs = [not gap(expected[key], onnx[key], self.scale).within for key in onnx]
            if True not in differs:
                return probes[-at_once:]
            turn = differs.index(True)
            low, high = places[turn - 1] + 1 if turn else low, places[turn] + 1
        return self.pairs[low:high]

    def beside(
        self, pairs: Sequence[Pair], onnx: Mapping[tuple[torch.fx.Node, int], torch.Tensor]
    ) -> list[Result]:
        """Judge each pair; outputs that the program may still write come last. Those after a wrong one that torch fails on are left out."""
        found: list[Result] = []
        step = self.progress("compare", len(pairs))
        writes = bool(mutated_storages(self.program.module.graph))
        early = [pair for pair in pairs if not (pair.output and writes)]
        late = [pair for pair in pairs if pair.output and writes]
        by_node: dict[torch.fx.Node, list[Pair]] = {}
        for pair in early:
            by_node.setdefault(pair.node, []).append(pair)

        def seen(node: torch.fx.Node, tensors: Sequence[torch.Tensor | None]) -> None:
            for pair in by_node.get(node, ()):
                ours = tensors[pair.position]
                found.append(self.judged(pair, runner, ours, onnx[node, pair.position]))
                step()

        runner = Beside(
            self.program, {(pair.node, pair.position): onnx[pair.node, pair.position] for pair in early}, seen
        )
        try:
            runner.start(self.leaves)
        except EagerError:
            if not any(result.status == "error" for result in found):
                raise
            return found
        for pair in late:
            ours = results(runner.env[pair.node])[pair.position]
            found.append(self.judged(pair, runner, ours, onnx[pair.node, pair.position]))
            step()
        return found

    def judged(self, pair: Pair, runner: Beside, ours: torch.Tensor, theirs: torch.Tensor) -> Result:
        """Compare one result with eager and with *ours*, torch's on ONNX's results of the nodes before."""
        node = pair.node
        whole = gap(self.expected[node, pair.position], theirs, self.scale)
        own = gap(ours, theirs, self.scale)
        result = Result(
            pair.name, target_name(node.target) if node.op == "call_function" else node.op, pair.value, pair.operator, pair.output, module_path(node),
            source_line(node), whole, own,
        )  # fmt: skip
        if own.within:
            result.status = "ok" if whole.within else "follows"
        elif node in self.random:
            result.status, result.note = "random", "the two sides draw other numbers"
        elif found := self.tied(pair, runner, ours, theirs):
            result.status, result.note = "tie", str(found)
        elif self.rounds(pair, runner, ours, theirs):
            result.status, result.note = "rounding", "no further from float64 than eager"
            if result.eager_overflows:
                result.note = "eager is not finite here, float64 is: ONNX keeps more digits before"
        else:
            result.status = "error"
        return result

    def tied(self, pair: Pair, runner: Beside, ours: torch.Tensor, theirs: torch.Tensor) -> Tie | None:
        """The tie that makes the difference."""
        given = [runner.env.get(argument, argument) if isinstance(argument, torch.fx.Node) else argument
                 for argument in pair.node.args]  # fmt: skip
        return tie(pair.node, given, ours, theirs)

    def rounds(self, pair: Pair, runner: Beside, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        """Whether ONNX's result is about as near to float64's as torch's is."""
        if not ours.is_floating_point() or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return False
        exact = runner.exact(pair.node)
        if exact is None or exact[pair.position] is None:
            return False
        return is_as_near(theirs, ours, exact[pair.position])

    def runtime_rounds(self, plain: Sequence[torch.Tensor], optimized: Sequence[torch.Tensor]) -> bool:
        """Whether the outputs of the optimized model are about as near to float64's as those of the other one."""
        exact = Double(self.program).outputs(self.leaves)
        if exact is None or len(exact) != len(plain):
            return False
        return all(
            torch.equal(a, b) or (a.is_floating_point() and a.shape == b.shape and is_as_near(b, a, target))
            for a, b, target in zip(plain, optimized, exact)
        )

    def suspects(self, pair: Pair) -> Suspects:
        """What computes a result from others that both sides name, and from inputs, in ONNX, and for which FX nodes that stands."""
        others = [other for other in self.pairs if other.node is not pair.node and other.value != pair.value]
        known = {name: name for name in self.input_names} | {
            other.value: f"%{other.name}" for other in others
        }
        model = loaded(self.onnx, inlined=True)
        onnx, needed = between(to_proto(model).graph, pair.value, known)
        origins = {node.outputs[0].name: recorded(node)[0] for node in model.graph}
        written_for = {origins.get(node.output[0]) for node in onnx}  # writes too, which no argument tells
        ends = {other.node for other in others if other.value in needed}
        fx, pending = {pair.node}, [pair.node]
        while pending:
            for node in pending.pop().all_input_nodes:
                if node.op == "call_function" and node not in ends and node not in fx:
                    fx.add(node)
                    pending.append(node)
        return Suspects(
            pair.name,
            [text for value, text in known.items() if value in needed],
            [f"{node.op_type} {node.output[0]!r}" for node in onnx],
            [
                f"%{node.name}"
                for node in pair.node.graph.nodes
                if (node in fx and node.target is not getitem) or node.name in written_for
            ],
        )

    def origin(
        self, pair: Pair, onnx: Mapping[tuple[torch.fx.Node, int], torch.Tensor], are_several: bool
    ) -> str:
        """Who is wrong: the translation, or a kernel of onnxruntime; as onnx.reference says. *are_several*: of several nodes, see `Suspects`."""
        known = dict(zip(self.input_names, self.inputs))
        known |= {
            other.value: onnx[other.node, other.position]
            for other in self.pairs
            if (other.node, other.position) in onnx
        }
        theirs = onnx[pair.node, pair.position]
        third = in_reference(self.onnx, pair.value, known)
        if third is None:
            return "onnx.reference does not run these nodes: the translation, or a kernel of onnxruntime"
        if not gap(theirs, third, self.scale).within:
            return "onnx.reference does not agree with onnxruntime: one of its kernels is wrong"
        wrong = "what is written there" if are_several else "the translation"
        told = f"onnx.reference agrees with onnxruntime: {wrong} is wrong"
        if isinstance(pair.node.target, torch._ops.HigherOrderOperator):
            return f"{told}, or that of a node in its bodies, whose results are not compared: a tie among them is an error here"
        written = [node for node in writers(pair.node.graph, pair.node.all_input_nodes) if node < pair.node]
        return f"{told}, or how %{written[-1].name} writes what it reads" if written else told

    def overflow(self, pairs: Sequence[Pair], found: Sequence[Result]) -> Result | None:
        """The first result that is not finite in eager."""
        tensors = {pair.value: self.expected[pair.node, pair.position] for pair in pairs}
        for result in found:
            tensor = tensors[result.onnx]
            # float8 has no isfinite
            if tensor.is_floating_point() and not bool(tensor.double().isfinite().all()):
                return result
        return None


def is_as_near(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether *one* is finite and not further from *exact* than `ROUNDING` times *other*."""
    if not bool(one.isfinite().all()):
        return False
    gaps = [float((side.double() - exact).abs().max()) for side in (one, other)]
    floor = torch.finfo(other.dtype).eps * float(exact.abs().max())
    return gaps[0] <= ROUNDING * max(gaps[1], floor)
