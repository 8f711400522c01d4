"""Every architecture of transformers that can be built small: ``python -m tests.models`` writes ``docs/models.md``.

    python -m tests.models                        # those that the table lacks, some hours of one core in all
    python -m tests.models --limit 50             # 50 of them
    python -m tests.models --only Llama Pixtral   # those whose names contain one of these words, again
    python -m tests.models --again refused crash  # those with one of these statuses, again

The document is rewritten after each model: what was interrupted goes on where it stopped. Each model has a process of its own, with a
limit of CPU time. The order is that of a hash of the names, so that a part of the table is a sample of the whole.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import functools
import inspect
import logging
import multiprocessing
import os
import re
import resource
import sys
import time
import warnings
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
import transformers
from onnxruntime import InferenceSession
from torch.utils._pytree import tree_map_only
from transformers.models.auto import modeling_auto

from experimental_experiment.comparison import (
    compare,
    difference,
    leaves_of,
    run,
    session,
    tensor_leaves,
)
from experimental_experiment.torch_interpreter import CaptureError, ExportError, guess_dynamic_shapes, to_onnx
from experimental_experiment.torch_interpreter.patches.caches import known_caches
from tests.small_models import FORMS, WORDS, inputs_of, small_model

DOCUMENT = os.path.join(os.path.dirname(__file__), "..", "docs", "models.md")
MAPPINGS = ("MODEL", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT")
"""Those of the automatic classes of transformers: base models, decoders, translation, transcription, images and text."""
WITH_CACHE = " with a cache"
SECONDS = 120
"""Of CPU time, for one model."""
PARAMETERS = 40_000_000
"""A model that is larger in its smallest configuration is not judged."""
EXAMPLE = (2, 9)
"""Batch and length of the example."""
OTHERS = {
    "dynamic": ((3, 12, 24), (3, 12, None), (3, 9, None)),
    "one size": ((3, 12, None),),
    "one batch": ((2, 12, 24), (2, 12, None)),
}
"""Batch, length and more pixels of the second call, by the status that it shows: the first that eager takes."""
STATUSES = {
    "dynamic": "agrees with eager, also on a batch, lengths and sizes that are not those of the example",
    "one size": "the same for images of the sizes of the example only",
    "one batch": "the same for the batch of the example only",
    "static": "agrees with eager on the sizes of the example only",
    "not captured": "torch.export refuses the model",
    "refused": "this exporter refuses the program",
    "not run": "onnxruntime refuses the model",
    "differs": "differs from eager",
    "too long": f"more than {SECONDS} CPU seconds",
    "crash": "the process ended",
    "not judged": "is not built small, or takes none of the inputs of this sweep in eager",
}


USUAL = (
    "LlamaModel",
    "Qwen3VLModel",
    "RTDetrModel",
    "Wav2Vec2Model",
    "MambaModel",
    "EncodecModel",
    "SwinModel",
)
"""Models whose modules most others import."""


class NotJudged(Exception):
    """A model that cannot be judged."""


class NotTaken(Exception):
    """Inputs that eager refuses."""


@dataclasses.dataclass
class Row:
    """A line of the table."""

    name: str
    status: str
    nodes: str = ""
    seconds: str = ""
    reason: str = ""


# ---- one model


def build(name: str) -> tuple[torch.nn.Module, str]:
    """A small model, and the form of what it takes."""
    said = ""
    for sizes in (True, False):
        try:
            with torch.device("meta"):
                count = sum(parameter.numel() for parameter in small_model(name, sizes).parameters())
            if count > PARAMETERS:
                raise NotJudged(f"{count // 1_000_000} million parameters")
            model = small_model(name, sizes)
        except Exception as error:  # whatever a configuration or a model says
            said = said or (
                str(error) if isinstance(error, NotJudged) else f"{type(error).__name__}: {error}"
            )
            continue
        for form in FORMS:
            with contextlib.suppress(NotTaken):
                call(model, form, *EXAMPLE)
                return model, form
    raise NotJudged(said or "takes none of the inputs of this sweep")


def call(
    model: torch.nn.Module, form: str, batch: int, length: int, size: int | None = None
) -> dict[str, Any]:
    """A call of a model; NotTaken when eager refuses it, NotJudged when its result is not the same every time."""
    torch.manual_seed(batch)
    try:
        inputs = inputs_of(model, batch, length, size, form)
        if "use_cache" in inspect.signature(model.forward).parameters:
            inputs["use_cache"] = False
        once, again = (tensor_leaves(model(**inputs)) for _ in range(2))
    except Exception as error:  # whatever the model says
        raise NotTaken from error
    if not all(torch.equal(a, b) for a, b in zip(once, again)):
        raise NotJudged("eager gives other numbers every time")
    return inputs


def with_cache(model: torch.nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The call of one more token, after those of *inputs*."""
    if "input_ids" not in inputs or "use_cache" not in inputs:
        raise NotJudged("no cache")
    try:
        result = model(**inputs | {"use_cache": True})
    except Exception as error:  # whatever the model says
        raise NotJudged(f"no cache: {type(error).__name__}: {error}") from error
    accepted = inspect.signature(model.forward).parameters
    names = ("cache", "past_key_values", "cache_params")  # the first one since transformers 5.24
    name = next((name for name in names if result.get(name) is not None), None)
    if name not in accepted:
        raise NotJudged("no cache")
    mask = torch.nn.functional.pad(inputs["attention_mask"], (0, 1), value=1)
    # several rows a sample where there are codebooks
    ids = torch.randint(3, WORDS, (len(inputs["input_ids"]), 1))
    if model.config.model_type == "cpmant":  # it wants the tokens of the cache too
        ids = torch.cat([inputs["input_ids"], ids], 1)
    step = {"input_ids": ids, "attention_mask": mask, name: result[name]}
    return {key: value for key, value in step.items() if key in accepted}


def judged(name: str) -> Row:
    """What becomes of one model: of the most that can be asked of it."""
    try:
        model, form = build(name.removesuffix(WITH_CACHE))
        step = functools.partial(with_cache, model) if name.endswith(WITH_CACHE) else lambda inputs: inputs
        example, said = step(call(model, form, *EXAMPLE)), []
        for status, sizes in OTHERS.items():
            for size in sizes:
                with contextlib.suppress(NotTaken):
                    calls = [example, step(call(model, form, *size))]
                    break
            else:
                continue
            with known_caches():
                shapes = guess_dynamic_shapes(calls)
            row = exported(Row(name, status), model, calls, shapes)
            if row.status in (status, "differs"):
                row.reason = "; ".join([row.reason or form, *said])
                return row
            said.append(f"{row.status}: {row.reason}")
    except NotJudged as error:
        return Row(name, "not judged", reason=brief(str(error)))
    row = exported(Row(name, "static"), model, [example], None)
    if row.status == "static":
        row.reason = "; ".join([form, *said[:1]])
    return row


def exported(row: Row, model: torch.nn.Module, calls: list[dict[str, Any]], shapes: Any) -> Row:
    """*row* when the exported model agrees with eager on all calls, otherwise what went wrong."""
    begin = time.process_time()
    try:
        written = to_onnx(model, (), calls[0], dynamic_shapes=shapes)
    except CaptureError as error:
        return Row(row.name, "not captured", reason=reason(error))
    except ExportError as error:
        return Row(row.name, "refused", reason=reason(error))
    seconds = f"{time.process_time() - begin:.1f}"
    nodes = str(len(written.graph.node) + sum(len(function.node) for function in written.functions))
    try:
        runner = session(written, 1)
        found = [
            item
            for inputs in calls
            for item in compare(model, runner, (), inputs)
            if not item.within and not is_rounding(model, runner, inputs)
        ]
    except Exception as error:
        # what onnxruntime raises, and a number of inputs or outputs that is another one
        return Row(row.name, "not run", nodes, seconds, brief(str(error)))
    worst = max(found, key=lambda item: item.absolute, default=None)
    if worst is not None:
        gap = f"{worst.name}: {worst.expected}, {worst.got}, {worst.absolute:.1e}, relative {worst.relative:.1e}"
        return Row(row.name, "differs", nodes, seconds, gap)
    return Row(row.name, row.status, nodes, seconds)


def is_rounding(model: torch.nn.Module, runner: InferenceSession, inputs: dict[str, Any]) -> bool:
    """Whether the ONNX model is as near to the model in float64 as eager is, within a factor of 2.

    Where float64 does not run, the model with weights that are off by a rounding takes its place.
    """
    with known_caches():
        doubled = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, inputs)
    try:
        exact = tensor_leaves(copy.deepcopy(model).double()(**doubled))
    except (RuntimeError, TypeError):  # a kernel for other dtypes only, or a tensor that stays float32
        exact = tensor_leaves(with_rounded_weights(model)(**copy.deepcopy(inputs)))
    eager = tensor_leaves(model(**copy.deepcopy(inputs)))
    got = run(runner, [leaf for leaf in leaves_of(inputs) if isinstance(leaf, torch.Tensor)])
    return all(
        difference("", a, b).within or (a.shape == b.shape and (b - c).abs().max() <= 2 * (a - c).abs().max())
        for a, b, c in zip(eager, got, exact)
    )


def with_rounded_weights(model: torch.nn.Module) -> torch.nn.Module:
    """A copy whose weights are off by up to a unit in the last place."""
    found, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)
    for weight in found.parameters():
        noise = torch.rand(weight.shape, generator=generator) - 0.5
        weight.data *= 1 + torch.finfo(weight.dtype).eps * noise.to(weight.dtype)
    return found


def reason(error: ExportError) -> str:
    """The sentence of an error, and the line of the model."""
    text = str(error)
    place = re.search(r'File "[^"]*?([\w.]+)", line (\d+)', text)
    return brief(text) + (f" ({place[1]}:{place[2]})" if place else "")


def brief(text: str) -> str:
    """The first line of a text, at most 140 characters of it."""
    line = next(iter(text.strip().splitlines()), "").replace("|", "/").replace("<", "&lt;")
    return line if len(line) <= 140 else line[:137] + "..."


# ---- all models


def names() -> list[str]:
    """The classes of transformers, decoders also with a cache, in an order that says nothing."""
    found: dict[str, None] = {}
    for kind in MAPPINGS:
        table = getattr(
            modeling_auto, "MODEL_MAPPING_NAMES" if kind == "MODEL" else f"MODEL_FOR_{kind}_MAPPING_NAMES"
        )
        for classes in table.values():
            for name in (classes,) if isinstance(classes, str) else classes:
                found[name] = None
                if kind == "CAUSAL_LM":
                    found[name + WITH_CACHE] = None
    return sorted(found, key=lambda name: zlib.crc32(name.encode()))


def work(name: str, pipe: Connection) -> None:
    """Judge one model in a process of its own."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with torch.no_grad():
        pipe.send(judged(name))


def import_first() -> None:
    """Import what most exports import, once instead of in each process: these are copies of this one."""
    for name in USUAL:
        getattr(transformers, name)
    torch.set_num_threads(1)
    with torch.no_grad():
        to_onnx(
            small_model("LlamaModel"),
            (),
            {"input_ids": torch.ones(2, 3, dtype=torch.int64), "use_cache": False},
        )


def in_a_process(name: str) -> Row:
    """The row of one model, whatever happens to the process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(name, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        process.join()
        ended = "too long" if process.exitcode in (-24, -9) else "crash"
        return Row(name, ended, reason=f"the process ended with {process.exitcode}")
    finally:
        process.join()


def table(rows: dict[str, Row], total: int) -> str:
    """The document."""
    counts = collections.Counter(row.status for row in rows.values())
    judged_rows = len(rows) - counts["not judged"]
    share = {status: f"{counts[status] / max(judged_rows, 1):.1%}" for status in STATUSES}
    agrees = sum(counts[status] for status in (*OTHERS, "static")) / max(judged_rows, 1)
    lines = [
        "# Models of transformers",
        "",
        f"Written by `python -m tests.models`, with transformers {transformers.__version__} and torch {torch.__version__.partition('+')[0]}:",
        "base models, decoders without and with a cache, translation, transcription, images and text. Small random models, two calls of",
        "other sizes, left-padded masks, compared with eager in onnxruntime. Nodes and CPU seconds are those of the export.",
        "",
        f"{len(rows)} of {total} tried, {judged_rows} of them judged: {agrees:.1%} of these agree with eager, {share['dynamic']} with all sizes dynamic.",
        "",
        "| status | models | of those judged | what it means |",
        "|---|---|---|---|",
        *(
            f"| {status} | {counts[status]} | {share[status] if status != 'not judged' else ''} | {meaning} |"
            for status, meaning in STATUSES.items()
        ),
        "",
        "| class | status | nodes | seconds | inputs, or what is said |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(dataclasses.astuple(rows[name]))} |" for name in sorted(rows)),
    ]
    return "\n".join(lines) + "\n"


def read() -> dict[str, Row]:
    """The rows of the document as it is."""
    with contextlib.suppress(FileNotFoundError), open(DOCUMENT) as file:
        cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file]
        return {row[0]: Row(*row) for row in cells if len(row) == 5 and row[1] in STATUSES}
    return {}


def main(arguments: list[str]) -> int:
    """Judge what is asked for, writing the document after each model."""
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", help="names, or parts of names, to judge again")
    parser.add_argument("--again", nargs="*", choices=STATUSES, help="statuses to judge again")
    parser.add_argument("--limit", type=int, help="how many")
    asked = parser.parse_args(arguments)
    rows, everything = read(), names()
    rows = {name: row for name, row in rows.items() if name in everything}

    def wanted() -> Iterator[str]:
        for name in everything:
            if asked.only is not None or asked.again is not None:
                if any(word in name for word in asked.only or ()) or (
                    name in rows and rows[name].status in (asked.again or ())
                ):
                    yield name
            elif name not in rows:
                yield name

    import_first()
    for name in list(wanted())[: asked.limit]:
        rows[name] = in_a_process(name)
        print(*dataclasses.astuple(rows[name]), sep="\t", flush=True)
        with open(DOCUMENT + ".part", "w") as file:
            file.write(table(rows, len(everything)))
        os.replace(DOCUMENT + ".part", DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
