"""The inputs that a command runs a model on: from files, random where a file gives none."""

from __future__ import annotations

import argparse
import re
import zipfile
import zlib
from collections.abc import Collection

import numpy as np
import onnxruntime

from experimental_experiment.command_line.errors import CommandError, checked_seed, existing
from experimental_experiment.xoptim.bisection import KINDS, OTHER_KINDS, random_feeds

UNREADABLE = (ValueError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise for a file that is damaged, encrypted, or of another kind."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments that say what a model is run on."""
    command.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="FILE",
        help="a .npz file with an array for each input, or NAME=FILE.npy for one; may be repeated; random numbers for the others",
    )
    command.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="DIMENSION=SIZE",
        help="size of a dynamic dimension of random inputs, 3 if not given; may be repeated",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of random inputs; 0 if not given")


def feeds_of(given: argparse.Namespace, runner: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """An array for each input of the model; the results among the arrays of ``run --save`` are left out.

    Raises CommandError for a file that is not there or not of arrays, a name that the model lacks, an input without random values.
    """
    names = [argument.name for argument in runner.get_inputs()]
    arrays: dict[str, np.ndarray] = {}
    results = {result.name for result in runner.get_outputs()} - set(names)
    for entry in given.inputs:
        arrays |= from_file(entry, results)
    unknown = [name for name in arrays if name not in names]
    if unknown:
        raise CommandError(f"the model has no input {unknown[0]!r} but {', '.join(names) or 'none'}")
    sizes = sizes_of(given.size, runner)
    try:
        drawn = random_feeds(runner, checked_seed(given.seed), sizes=sizes, but=arrays)
    except ValueError as error:
        raise CommandError(str(error)) from error
    except MemoryError as error:
        raise CommandError(f"random inputs of these sizes do not fit into memory: {error}") from error
    kinds = {argument.name: argument.type for argument in runner.get_inputs()}
    return {name: in_dtype_of(kinds[name], arrays[name]) if name in arrays else drawn[name] for name in names}


def in_dtype_of(kind: str, array: np.ndarray) -> np.ndarray:
    """An array of float32 in the dtype of an input that numpy has no files of."""
    is_short = kind == "tensor(bfloat16)" and array.dtype == np.float32
    return array.astype(OTHER_KINDS["bfloat16"]) if is_short else array


def from_file(entry: str, results: Collection[str]) -> dict[str, np.ndarray]:
    """The arrays of ``FILE.npz`` or ``NAME=FILE.npy``, without those of the *results* of a model, of a sequence one by one."""
    name, separator, path = entry.rpartition("=")
    if path.endswith(".npy") and not separator:
        raise CommandError(f"--inputs {entry}: say which input it is, NAME={entry}")
    if not path.endswith((".npy", ".npz")):
        raise CommandError(f"--inputs {entry}: a .npz or a .npy file is needed")
    existing(path)
    try:
        content = np.load(path)
        is_one = isinstance(content, np.ndarray)
        keys = [] if is_one else [key for key in content.files if not is_result(key, results)]
        arrays = {name: content} if is_one else {key: content[key] for key in keys}
    except UNREADABLE as error:
        raise CommandError(f"{path!r} holds no arrays of numbers: {error}") from error
    if is_one != path.endswith(".npy"):
        kind = "one array, as a .npy file does" if is_one else "several arrays, as a .npz file does"
        raise CommandError(f"{path!r} holds {kind}")
    return {key: numbers(array, path) for key, array in arrays.items()}


def is_result(key: str, results: Collection[str]) -> bool:
    """Whether an array of a file is called as a result, or as an element of one that is a sequence."""
    return key in results or re.sub(r"_\d+$", "", key) in results


def numbers(array: np.ndarray, path: str) -> np.ndarray:
    """An array of a file in the order of bytes of this machine. Raises CommandError when onnxruntime does not take its dtype."""
    if array.dtype.name not in KINDS | {"float32", "float64"}:
        raise CommandError(f"{path!r} holds no arrays of numbers: {array.dtype} is no dtype of an input")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def sizes_of(entries: list[str], runner: onnxruntime.InferenceSession) -> dict[str, int]:
    """``batch=2`` of each entry as a pair."""
    known = {dim: None for argument in runner.get_inputs() for dim in argument.shape if isinstance(dim, str)}
    sizes = {}
    for entry in entries:
        name, _, size = entry.partition("=")
        if not re.fullmatch("[0-9]{1,18}", size):
            raise CommandError(f"--size {entry}: DIMENSION=SIZE is needed")
        if name not in known:
            raise CommandError(f"the model has no dimension {name!r} but {', '.join(known) or 'none'}")
        sizes[name] = int(size)
    return sizes
