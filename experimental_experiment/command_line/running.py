"""``run model.onnx``: run a model in onnxruntime on arrays of files or on random ones, say what it gives and how long it takes."""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from tabulate import tabulate

from experimental_experiment.command_line import feeds
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import session, sound, writable
from experimental_experiment.comparison import array_to_ort, run_arrays
from experimental_experiment.logs import logger
from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.reference.statistics import described
from experimental_experiment.refusals import FAILURES
from experimental_experiment.whole import whole


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("run", help="run a model in onnxruntime", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model")
    feeds.add_arguments(command)
    command.add_argument(
        "--repeat", type=int, default=0, metavar="N", help="then run it N times more and print the times"
    )
    command.add_argument(
        "--intermediate",
        action="store_true",
        help="give every result of the main graph, not the outputs alone",
    )
    command.add_argument(
        "--reference",
        action="store_true",
        help="run it in the reference evaluator, which logs each node; slow, for small sizes",
    )
    command.add_argument("--save", metavar="FILE.npz", help="write the inputs and the results")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the model; the exit status."""
    model = sound(given.model)
    if given.save and not writable(given.save).endswith(".npz"):
        raise CommandError(f"--save {given.save}: a .npz file is needed")
    if given.repeat < 0 or (given.repeat and given.reference):
        raise CommandError("--repeat takes a positive number, and onnxruntime's times only")
    if given.intermediate:
        add_outputs(model)
    runner = session(model, given.model)
    arrays = feeds.feeds_of(given, runner)
    results = referenced(given, arrays) if given.reference else executed(runner, arrays)
    rows = [["input", name, described(array)] for name, array in arrays.items()]
    rows += [["result", name, described(value)] for name, value in results.items()]
    print(tabulate(rows, ["", "name", "value"], disable_numparse=True))
    if given.repeat:
        print(timed(runner, arrays, given.repeat))
    if given.save:
        save({**arrays, **results}, given.save)
    return 0


def save(values: Mapping[str, Any], path: str) -> None:
    """Write values to a .npz file, those of a sequence one by one. `numpy.savez` has arguments whose names no value may have.

    Raises CommandError for a value that is no array, which numpy would pickle.
    """
    with whole(path) as written, zipfile.ZipFile(written, "w") as archive:
        for name, value in values.items():
            parts = (
                {f"{name}_{i}": part for i, part in enumerate(value)}
                if isinstance(value, list)
                else {name: value}
            )
            for key, part in parts.items():
                if not isinstance(part, np.ndarray | np.generic):
                    raise CommandError(f"--save {path}: {key} is a {type(part).__name__}, and no array")
                with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, readable(np.asarray(part)), allow_pickle=False)


def readable(array: np.ndarray) -> np.ndarray:
    """An array in a dtype that numpy reads from a file: float32 holds all numbers of the short ones that it lacks."""
    kinds = {"V": np.float32, "O": np.str_}
    return array.astype(kinds[array.dtype.kind]) if array.dtype.kind in kinds else array


def add_outputs(model: onnx.ModelProto) -> None:
    """Every result of the main graph is an output, those that are outputs already after the others."""
    known = {value.name for value in model.graph.output}
    outputs = list(model.graph.output)
    del model.graph.output[:]
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    model.graph.output.extend(outputs)


def executed(runner: onnxruntime.InferenceSession, arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The outputs by their names. Raises CommandError when onnxruntime fails."""
    names = [output.name for output in runner.get_outputs()]
    try:
        return dict(zip(names, run_arrays(runner, arrays)))
    except (*FAILURES, ValueError) as error:
        raise CommandError(
            f"onnxruntime does not run the model on these inputs: {error}", status=1
        ) from error


def referenced(given: argparse.Namespace, arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The same in the reference evaluator, which logs to the terminal. Raises CommandError when it fails."""
    logger.setLevel(logging.INFO)  # `command_line` puts it back
    evaluator = ExtendedReferenceEvaluator(given.model, verbose=1)
    try:
        results = evaluator.run(None, dict(arrays), intermediate=True)
    except (TypeError, ValueError) as error:
        raise CommandError(
            f"the reference evaluator does not run the model on these inputs: {error}"
        ) from error
    nodes = onnx.load(given.model, load_external_data=False).graph.node
    names = (
        [name for node in nodes for name in node.output if name]
        if given.intermediate
        else evaluator.output_names
    )
    return {name: results[name] for name in names}


def timed(runner: onnxruntime.InferenceSession, arrays: Mapping[str, np.ndarray], repeat: int) -> str:
    """The times of several runs in one line."""
    seconds = []
    names = [output.name for output in runner.get_outputs()]
    given = {name: array_to_ort(array) for name, array in arrays.items()}
    for _ in range(repeat):
        start = time.perf_counter()
        runner.run_with_ort_values(names, given)
        seconds.append(time.perf_counter() - start)
    middle, low, high = (1000 * f(seconds) for f in (statistics.median, min, max))
    threads = runner.get_session_options().intra_op_num_threads or os.cpu_count()
    return f"{repeat} runs: median {middle:.3f} ms, from {low:.3f} to {high:.3f} ms, {threads} threads"
