"""``optimize model.onnx -o out.onnx``: rewrite any ONNX model by rules, say what was done, compare it when asked."""

from __future__ import annotations

import argparse

import onnx_ir as ir

from experimental_experiment.command_line import feeds
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import refuse_lost_weights, sound, to_ir, writable
from experimental_experiment.comparison import run_arrays, session
from experimental_experiment.progress import Progress, Timed, terminal_progress
from experimental_experiment.protos import MICROSOFT
from experimental_experiment.refusals import REFUSALS
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.xoptim import OptimizationOptions, Report
from experimental_experiment.xoptim import optimize as rewrite
from experimental_experiment.xoptim.bisection import gap
from experimental_experiment.xoptim.quantization import (
    BLOCKS_SINCE,
    NO_BLOCKS,
    QuantizationReport,
    quantize_weights,
)


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("optimize", help="rewrite an ONNX model by rules", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model, of any exporter")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    command.add_argument(
        "--patterns",
        default="default",
        metavar="NAMES",
        help="sets and rules joined by + and -, as in default+onnxruntime-CastCast, '' for none; 'default' if not given",
    )
    command.add_argument(
        "--quantize",
        choices=["int4", "int8"],
        help="then round the weights of products and embeddings to 4 or 8 bits, in blocks of 32",
    )
    command.add_argument(
        "--standard",
        action="store_true",
        help="--quantize writes DequantizeLinear instead of com.microsoft's operators: opset 21 and later",
    )
    command.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="NAME",
        help="a weight or a node that --quantize leaves as it is, or a pattern; may be repeated",
    )
    command.add_argument(
        "--report",
        action="store_true",
        help="print which rule was applied how often, and the error of each quantized weight",
    )
    command.add_argument(
        "--check",
        action="store_true",
        help="then compare both models in onnxruntime, on random inputs or those of --inputs; what --quantize loses is no failure",
    )
    feeds.add_arguments(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Optimize; the exit status."""
    proto = sound(given.model)
    writable(given.output)
    if not given.quantize and (given.standard or given.exclude):
        raise CommandError("--standard and --exclude belong to --quantize")
    if not given.check and (given.inputs or given.size or given.seed):
        raise CommandError("--inputs, --size and --seed belong to --check")
    try:
        options = OptimizationOptions(given.patterns)
    except ValueError as error:
        raise CommandError(str(error)) from error
    refuse_lost_weights(given.model, proto, given.output)
    model = to_ir(proto, given.model)
    opset = model.graph.opset_imports.get("", 1)
    if given.standard and opset < BLOCKS_SINCE:
        raise CommandError(
            f"{NO_BLOCKS.format(opset=opset)}: export it with --opset {BLOCKS_SINCE}, or leave --standard out"
        )
    expected = outputs(given.model, given) if given.check else []  # before the output may replace the model
    report = Report()
    with terminal_progress(given.quiet) as shown, Timed(shown) as progress:
        try:
            rewrite(model, options, report=report, progress=progress)
        except ValueError as error:
            raise CommandError(f"{given.model!r}: {error}") from error
        texts = [str(report)]
        if given.quantize:
            texts.append(str(quantize(model, given, progress)))
        progress("write", 1)
        save(model, given.output)
    for text in () if given.quiet else texts:
        print(f"{given.output}: {text if given.report else text.splitlines()[0]}")
    if not given.check:
        return 0
    difference, within = gap(expected, outputs(given.output, given))
    is_right = within or given.quantize is not None
    verdict = "" if is_right else ", beyond the tolerance of its dtype"
    inputs = "the inputs" if given.inputs else "random inputs"
    print(f"largest difference on {inputs}: {difference:.1e}{verdict}")
    return 0 if is_right else 1


def quantize(model: ir.Model, given: argparse.Namespace, progress: Progress) -> QuantizationReport:
    """Round the weights; what was lost."""
    report = QuantizationReport()
    bits = int(given.quantize.removeprefix("int"))
    domain = "" if given.standard else MICROSOFT
    try:
        quantize_weights(model, bits, exclude=given.exclude, domain=domain, report=report, progress=progress)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return report


def outputs(path: str, given: argparse.Namespace) -> list:
    """What a model gives on the inputs of the command line, or on random ones, the same for the same inputs."""
    try:
        runner = session(path)
        return run_arrays(runner, feeds.feeds_of(given, runner))
    except ValueError as error:
        raise CommandError(str(error)) from error
    except REFUSALS as error:
        raise CommandError(
            f"onnxruntime does not run {path!r} on these inputs, --size and --inputs give it others: {error}",
            status=1,
        ) from error
