"""``lighten model.onnx -o light.onnx``: the model without its weights; ``unlighten light.onnx -o full.onnx``: with weights again.

A light model keeps the name, dtype and shape of each weight, and its mean and deviation, so that random weights resemble it. It is
a few kilobytes to attach to a report; with the file of ``--weights`` beside it onnxruntime runs it as it is.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from experimental_experiment.command_line.errors import CommandError, checked_seed, existing
from experimental_experiment.command_line.model_file import (
    all_graphs,
    refuse_lost_weights,
    sound,
    to_ir,
    writable,
)
from experimental_experiment.torch_interpreter.files import locations, put_in_place, save, workplace

ALIGNMENT = 64
"""Bytes: each weight begins at a multiple of it in its file."""

MEAN, DEVIATION, LOWEST, HIGHEST = "mean", "deviation", "lowest", "highest"
"""Keys of what a light model keeps of the numbers, in the ``metadata_props`` of a tensor."""


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of both commands."""
    command = commands.add_parser("lighten", help="write a model without its weights", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model; its weights are read one at a time")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    command.add_argument(
        "--weights", metavar="FILE", help="write the weights to this file, beside the output"
    )
    command.add_argument(
        "--larger-than",
        type=int,
        default=1024,
        metavar="BYTES",
        help="what is smaller stays in the model; 1024 if not given",
    )
    command.set_defaults(run=lighten)
    command = commands.add_parser("unlighten", help="give a light model weights again", description=__doc__)
    command.add_argument("model", metavar="light.onnx", help="the model, as lighten wrote it")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    command.add_argument(
        "--weights",
        metavar="FILE",
        help="the file that lighten --weights wrote, or an ONNX model that has weights of these names; random numbers if not given",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of random numbers; 0 if not given")
    command.set_defaults(run=unlighten)


def lighten(given: argparse.Namespace) -> int:
    """Write the light model, and the weights when a file is given."""
    model = sound(given.model)
    output = os.path.abspath(writable(given.output))
    folder, name = os.path.split(output)
    location = location_of(given, model, folder, name)
    refuse_lost_weights(given.model, model, output)
    base = os.path.dirname(os.path.abspath(given.model))
    count = total = 0
    with workplace(folder, name) as temporary:
        with open(os.path.join(temporary, location) if given.weights else os.devnull, "wb") as file:
            for tensor in weights(model):
                read = with_numbers(tensor, base, given.model)
                if read.nbytes <= given.larger_than or read.dtype == ir.DataType.STRING:
                    embed(tensor, read)
                else:
                    total += remove(tensor, read, location, total, file)
                    count += 1
        written = os.path.join(temporary, name)
        onnx.save(model, written)
        put_in_place(written, output, location)
    if given.quiet:
        return 0
    size = os.path.getsize(given.output)
    where = f" to {given.weights}" if given.weights else ""
    print(f"{given.output}: {size / 2**10:.1f} kB without {count} weights of {total / 2**20:.1f} MB{where}")
    return 0


def location_of(given: argparse.Namespace, model: onnx.ModelProto, folder: str, name: str) -> str:
    """The name of the file that a light model *name* refers to for its weights, in the folder where it is written.

    Raises CommandError when the weights were lost, or when others were taken for them.
    """
    if given.weights:
        if os.path.dirname(os.path.abspath(writable(given.weights))) != folder:
            raise CommandError(f"the weights have to stand beside the output, in the folder {folder!r}")
        read = {os.path.join(os.path.dirname(given.model), entry.value) for entry in locations(model)}
        if os.path.realpath(given.weights) in map(os.path.realpath, (given.model, given.output, *read)):
            raise CommandError(f"{given.weights!r} is a file of the model: name another one for the weights")
        return os.path.basename(given.weights)
    if os.path.realpath(given.model) == os.path.realpath(given.output):
        raise CommandError(f"{given.model!r} would lose its weights: name another output")
    location = f"{name}.data"
    if os.path.exists(os.path.join(folder, location)):
        raise CommandError(
            f"the light model would take {location!r}, which is there, for its weights: name another output"
        )
    return location


def with_numbers(tensor: onnx.TensorProto, base: str, path: str) -> ir.TensorProtocol:
    """A weight of the model *path*, as it can be read. Raises CommandError otherwise."""
    try:
        read = ir.serde.deserialize_tensor(tensor, base_path=base)
        read.numpy()
        return read
    except (OSError, ValueError) as error:
        raise CommandError(f"the weight {tensor.name!r} of {path!r} cannot be read: {error}") from error


def weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The initializers of all graphs."""
    return [
        tensor
        for _, graph in all_graphs(model)
        if isinstance(graph, onnx.GraphProto)
        for tensor in graph.initializer
    ]


def embed(tensor: onnx.TensorProto, read: ir.TensorProtocol) -> None:
    """A small weight of another file stands in the model."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        data = read.tobytes()
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = data


def remove(
    tensor: onnx.TensorProto, read: ir.TensorProtocol, location: str, offset: int, file: BinaryIO
) -> int:
    """Take the numbers out, into *file* at *offset*; the bytes that they take there."""
    array = read.numpy()
    metadata = statistics(array)
    length = read.nbytes
    filled = -(-length // ALIGNMENT) * ALIGNMENT
    file.write(read.tobytes())
    file.write(bytes(filled - length))
    light = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        doc_string=tensor.doc_string,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        light.external_data.add(key=key, value=str(value))
    for key, value in metadata.items():
        light.metadata_props.add(key=key, value=value)
    tensor.CopyFrom(light)
    return filled


def statistics(array: np.ndarray) -> dict[str, str]:
    """Mean and deviation of floats, the limits of integers."""
    if array.dtype.kind in "iub":
        return {LOWEST: str(int(array.min())), HIGHEST: str(int(array.max()))}
    if array.dtype.kind == "c":
        return {}
    wide = array.astype(np.float64) if array.dtype.itemsize == 8 else array.astype(np.float32)
    finite = wide[np.isfinite(wide)]
    if finite.size == 0:
        return {}
    return {MEAN: repr(float(finite.mean())), DEVIATION: repr(float(finite.std()))}


def unlighten(given: argparse.Namespace) -> int:
    """Write the model with its weights."""
    light = sound(given.model, reads_weights=False)
    writable(given.output)
    checked_seed(given.seed)
    removed = {
        tensor.name: tensor for tensor in weights(light) if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    if not removed:
        raise CommandError(f"{given.model!r} is not light: all its weights are in it")
    model = to_ir(light, given.model)
    found = (
        from_file(given.weights, removed, given.output)
        if given.weights
        else random_weights(removed, given.seed)
    )
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.name in removed:
                value.const_value = found[value.name]  # read or drawn when it is written, never referred to
    save(model, given.output)
    if given.quiet:
        return 0
    origin = f"from {given.weights}" if given.weights else f"of random numbers, seed {given.seed}"
    print(f"{given.output}: {len(removed)} weights {origin}")
    return 0


def from_file(path: str, removed: dict[str, onnx.TensorProto], output: str) -> dict[str, ir.TensorProtocol]:
    """The weights that a file holds: that of ``lighten --weights``, or a model, which keeps them when *output* is written."""
    existing(path)
    if path.endswith(".onnx"):
        model = sound(path)
        refuse_lost_weights(path, model, output)
        return from_model(path, model, removed)
    if os.path.realpath(path) == os.path.realpath(output):
        raise CommandError(f"{path!r} holds the weights that are read: name another output")
    folder, name = os.path.split(os.path.abspath(path))
    found, size = {}, os.path.getsize(path)
    for tensor in removed.values():
        info = {item.key: item.value for item in tensor.external_data}
        offset, length = int(info.get("offset", 0)), int(info.get("length", 0))
        if offset + length > size:
            raise CommandError(
                f"{path!r} has no {length} bytes at {offset} for {tensor.name!r}: it is not its file"
            )
        dtype, shape = ir.DataType(tensor.data_type), ir.Shape(tensor.dims)
        found[tensor.name] = read_later(
            ir.ExternalTensor(name, offset, length, dtype, shape=shape, name=tensor.name, base_dir=folder)
        )
    return found


def from_model(
    path: str, model: onnx.ModelProto, removed: dict[str, onnx.TensorProto]
) -> dict[str, ir.TensorProtocol]:
    """The weights of the model of the file *path*, by their names."""
    base = os.path.dirname(os.path.abspath(path))
    others = {tensor.name: tensor for tensor in weights(model)}
    found = {}
    for name, tensor in removed.items():
        other = others.get(name)
        if other is None:
            raise CommandError(f"{path!r} has no weight {name!r}")
        kinds = [f"{ir.DataType(t.data_type).name.lower()}{list(t.dims)}" for t in (tensor, other)]
        if kinds[0] != kinds[1]:
            raise CommandError(
                f"the weight {name!r} is {kinds[0]} in the light model, {kinds[1]} in {path!r}"
            )
        found[name] = read_later(ir.serde.deserialize_tensor(other, base_path=base))
    return found


def read_later(tensor: ir.TensorProtocol) -> ir.LazyTensor:
    """A tensor of another file, which is read when it is written."""
    return ir.LazyTensor(
        lambda: ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name),
        dtype=tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
    )


def random_weights(removed: dict[str, onnx.TensorProto], seed: int) -> dict[str, ir.TensorProtocol]:
    """Random numbers with the mean and the deviation that the weights had, each made when it is written."""
    return {
        name: ir.LazyTensor(
            functools.partial(random_tensor, tensor, statistics_of(tensor), [seed, number]),
            dtype=ir.DataType(tensor.data_type),
            shape=ir.Shape(tensor.dims),
            name=name,
        )
        for number, (name, tensor) in enumerate(removed.items())
    }


def statistics_of(tensor: onnx.TensorProto) -> dict[str, float]:
    """What a light model keeps of the numbers of a weight. Raises CommandError for what no weight has."""
    known: dict[str, float] = {}
    kinds = {MEAN: float, DEVIATION: float, LOWEST: int, HIGHEST: int}
    for item in tensor.metadata_props:
        if item.key in kinds:
            try:
                known[item.key] = kinds[item.key](item.value)
            except ValueError as error:
                message = (
                    f"the {item.key} of the weight {tensor.name!r} is {item.value!r}, which is no number"
                )
                raise CommandError(message) from error
    lowest, highest = known.get(LOWEST), known.get(HIGHEST)
    if (lowest, highest) != (None, None) and not is_interval(lowest, highest):
        raise CommandError(
            f"the weight {tensor.name!r} has no numbers between its {LOWEST} and its {HIGHEST}"
        )
    return known


def is_interval(lowest: float | None, highest: float | None) -> bool:
    """Whether there are integers of 64 bits between two limits."""
    if lowest is None or highest is None:
        return False
    smallest, largest = (-(2**63), 2**63 - 1) if lowest < 0 else (0, 2**64 - 1)
    return smallest <= lowest <= highest <= largest


def random_tensor(tensor: onnx.TensorProto, known: Mapping[str, float], seed: Sequence[int]) -> ir.Tensor:
    """Random numbers of the dtype, shape, mean and deviation of one weight."""
    generator = np.random.default_rng(seed)
    dtype = ir.DataType(tensor.data_type)
    shape = tuple(tensor.dims)
    if LOWEST in known:
        integers = np.uint64 if known[HIGHEST] >= 2**63 else np.int64
        drawn = generator.integers(known[LOWEST], known[HIGHEST], shape, integers, endpoint=True)
    else:
        wide = np.float64 if dtype == ir.DataType.DOUBLE else np.float32
        drawn = generator.standard_normal(shape, wide)
        drawn = drawn * wide(known.get(DEVIATION, 1)) + wide(known.get(MEAN, 0))
    return ir.Tensor(drawn.astype(dtype.numpy()), dtype=dtype, name=tensor.name)
