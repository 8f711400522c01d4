"""Writing a model: one file, or two when the weights are large; nothing half written."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from experimental_experiment.helpers import subgraphs
from experimental_experiment.protos import as_written, complete
from experimental_experiment.reading import read
from experimental_experiment.whole import refuse_devices

EXTERNAL_THRESHOLD = 16 * 2**20
"""Weights of more bytes in all go to a file of their own: they are never copied into a protobuf."""

SMALL = 256
"""Weights of as many bytes stay in the model's file whatever the others do: shapes and numbers are read there."""

WRITING = ".writing"
"""How the name ends of what is there while a model is written."""

TRIAL = ".onnx"
"""How the name goes on of a model that is tried before it takes its place."""

PROTOBUF_LIMIT = 2**31 - 2**20
"""A protobuf holds less than 2 GB."""


def weight_bytes(model: ir.Model) -> int:
    """Size of the initializers of the model in bytes."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )


def save(model: ir.Model, filename: str | os.PathLike) -> onnx.ModelProto:
    """Write *model* to *filename*, its weights to ``filename + ".data"`` when they take more than 16 MB.

    Both files are written in a temporary folder beside the target, then renamed so that at any moment the graph in the folder
    stands beside its own weights: a failure, or the end of the process, leaves the old model or the new one. The data file of
    a model that is replaced by a small one is removed, as is what a process left that was killed while it wrote this model.
    Returns the model that was written; it refers to the data file by its name. Raises OSError on a folder or a device.
    """
    with saving(model, filename) as (proto, _):
        return proto


@contextlib.contextmanager
def saving(
    model: ir.Model, filename: str | os.PathLike, is_tried: bool = False
) -> Iterator[tuple[onnx.ModelProto, str]]:
    """While this lasts, the files of `save` are written and not yet in their places, which they take when it ends without an error.

    Gives the model, and the name of the file; when it *is_tried*, that of another one, beside it, to run the model from meanwhile.
    """
    refuse_devices(filename)
    path = os.path.abspath(filename)
    folder, name = os.path.split(path)
    data = f"{name}.data"
    is_large = weight_bytes(model) > EXTERNAL_THRESHOLD
    with workplace(folder, name) as temporary:
        written = os.path.join(temporary, name)
        with placed(model, folder, temporary, data if is_large else None), as_written(model):
            ir.save(model, written)
        proto = onnx.load(written, load_external_data=False)
        if complete(proto, model):
            onnx.save(proto, written)
        with trial(written, data) if is_tried else contextlib.nullcontext(path) as readable:
            yield proto, readable
        put_in_place(written, path, data)


@contextlib.contextmanager
def trial(written: str, data: str) -> Iterator[str]:
    """A model that was written in a `workplace` as a file beside that, which reads the weights *data* there, others where they are."""
    temporary = os.path.dirname(written)
    proto = onnx.load(written, load_external_data=False)
    for entry in locations(proto):
        if entry.value == data:
            entry.value = f"{os.path.basename(temporary)}/{data}"
    path = f"{temporary}{TRIAL}"
    onnx.save(proto, path)
    try:
        yield path
    finally:
        os.remove(path)


@contextlib.contextmanager
def workplace(folder: str, name: str) -> Iterator[str]:
    """A temporary folder to write the model *name* in, locked while it is used: systems unlock what a killed process held."""
    with contextlib.ExitStack() as stack:
        with alone_in(folder) as alone:
            if alone:
                remove_left(folder, name)
            temporary = stack.enter_context(
                tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.", suffix=WRITING)
            )
            stack.enter_context(alone_in(temporary))
        yield temporary


def put_in_place(written: str, path: str, data: str) -> None:
    """Rename a model that was written in a `workplace` to *path*, and the weights beside it, if there are any, to the name *data*."""
    temporary, folder = os.path.dirname(written), os.path.dirname(path)
    weights, target = os.path.join(temporary, data), os.path.join(folder, data)
    between = os.path.join(folder, f"{os.path.basename(temporary)[1:]}.data")
    with alone_in(folder), without_stale_data(path, between):
        if not os.path.exists(weights):
            os.replace(written, path)
        elif os.path.exists(target):
            replace_pair(written, path, weights, target, between)
        else:
            os.replace(weights, target)
            os.replace(written, path)


def remove_left(folder: str, name: str) -> None:
    """Remove what processes left that were killed while they wrote the model *name*: nobody locks it, no graph refers to it.

    What cannot be removed, because it is another user's, stays.
    """
    path = os.path.join(folder, name)
    left = re.compile(rf"\.?{re.escape(name)}\.\w+{re.escape(WRITING)}(\.data)?")
    for found in {os.path.join(folder, entry) for entry in os.listdir(folder) if left.fullmatch(entry)}:
        if os.path.isdir(found):
            with contextlib.suppress(OSError), alone_in(found, waits=False) as unused:
                if unused:
                    shutil.rmtree(found, ignore_errors=True)
                    os.remove(f"{found}{TRIAL}")
        elif found not in data_files(path):
            with contextlib.suppress(OSError):
                os.remove(found)


@contextlib.contextmanager
def alone_in(folder: str, waits: bool = True) -> Iterator[bool]:
    """While this lasts, no other thread and no other process is here with *folder*; whether that is so: not all systems lock folders.

    The files of a model are renamed so. Without *waits*, it is not so while another one is here.
    """
    if os.name != "posix":
        yield False
        return
    fcntl = importlib.import_module("fcntl")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        alone = False
        with contextlib.suppress(OSError):  # taken, or some network file system that knows no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            alone = True
        yield alone
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def without_stale_data(path: str, between: str) -> Iterator[None]:
    """However this ends, the files of weights that the model had, or has *between*, and no longer refers to are removed."""
    before = {*data_files(path), between}
    try:
        yield
    finally:
        for stale in before - data_files(path):
            with contextlib.suppress(FileNotFoundError):
                os.remove(stale)


def replace_pair(written: str, path: str, weights: str, target: str, between: str) -> None:
    """Put a graph and its weights in the place of another pair: for a while the graph reads its weights under the name *between*.

    They are copied then: a file with two names is refused as external data by onnx and onnx-ir.
    """
    proto = onnx.load(written, load_external_data=False)
    for entry in locations(proto):
        if entry.value == os.path.basename(target):
            entry.value = os.path.basename(between)
    intermediate = f"{written}.between"
    onnx.save(proto, intermediate)
    os.replace(weights, between)
    os.replace(intermediate, path)
    try:
        shutil.copyfile(between, weights)
    except OSError:  # the disk holds no third copy
        os.link(between, weights)
    os.replace(weights, target)
    os.replace(written, path)


def data_files(path: str) -> set[str]:
    """The files of weights that `save` wrote beside a model and that it refers to; none when the file is no model."""
    if not os.path.isfile(path):
        return set()
    try:
        proto = read(path)
    except ValueError:
        return set()
    ours = re.compile(re.escape(os.path.basename(path)) + rf"(\.\w+{re.escape(WRITING)})?\.data")
    names = {entry.value for entry in locations(proto) if ours.fullmatch(entry.value)}
    files = (os.path.join(os.path.dirname(path), name) for name in names)
    return {file for file in files if os.path.isfile(file)}


def lost_weights(source: str, proto: onnx.ModelProto, path: str) -> str | None:
    """A file that *proto*, the model of the file *source*, reads its weights from and that `save` replaces or removes at *path*.

    None where there is none, and where *path* is *source* itself.
    """
    if os.path.exists(path) and os.path.samefile(source, path):
        return None
    folder = os.path.dirname(os.path.abspath(source))
    read_from = {os.path.realpath(os.path.join(folder, entry.value)) for entry in locations(proto)}
    written = {*data_files(os.path.abspath(path)), f"{os.path.abspath(path)}.data"}
    return next((file for file in sorted(written) if os.path.realpath(file) in read_from), None)


def locations(proto: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """The entries of a model, main graph and bodies, that name files of weights."""
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        for tensor in graph.initializer:
            yield from (entry for entry in tensor.external_data if entry.key == "location")
        for node in graph.node:
            graphs += [body for attribute in node.attribute for _, body in subgraphs(attribute)]


@contextlib.contextmanager
def placed(model: ir.Model, folder: str, temporary: str, data: str | None) -> Iterator[None]:
    """Let the weights of a model be, for a while, what its file in *folder* says of them.

    They are in the file when there is no *data*. Otherwise the large ones are written to *data* in the folder *temporary*, but those
    of a safetensors file in *folder*, which stay where they are.
    """
    values = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    ]
    before = [value.const_value for value in values]
    large = [value for value in values if data is not None and value.const_value.nbytes > SMALL]
    outside = {id(value) for value in large}
    try:
        moved = []
        for value in values:
            if id(value) not in outside and isinstance(value.const_value, ir.ExternalTensor):
                (value.const_value,) = ir.external_data.convert_tensors_from_external([value.const_value])
        for value in large:
            tensor = left_in_place(value.const_value, folder)
            if tensor is None:
                moved.append(value)
            else:
                value.const_value = tensor
        if moved:
            tensors = [value.const_value for value in moved]
            written = ir.external_data.convert_tensors_to_external(tensors, temporary, data)
            for value, tensor in zip(moved, written):
                value.const_value = tensor
        yield
    finally:
        for value, tensor in zip(values, before):
            value.const_value = tensor


def left_in_place(tensor: ir.TensorProtocol, folder: str) -> ir.ExternalTensor | None:
    """A tensor of a safetensors file in *folder*, or below it, as a model in *folder* refers to it; None for any other."""
    if not isinstance(tensor, ir.ExternalTensor) or not os.fspath(tensor.path).endswith(".safetensors"):
        return None
    location = os.path.relpath(tensor.path, folder)
    if location.startswith(os.pardir):
        return None
    return ir.ExternalTensor(
        location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        base_dir=folder,
    )
