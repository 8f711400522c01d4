"""Sweep PyTorch's operator and module databases: ``python -m tests.sweep`` writes ``docs/conformance.md``.

    python -m tests.sweep                          # everything, some hours of one core
    python -m tests.sweep --context around         # the same cases between other nodes, see tests/contexts.py
    python -m tests.sweep --only add nn.functional # cases whose operator contains one of these words
    python -m tests.sweep --fixed                  # the fixed part that CI runs

Each case runs in a worker process: a crash of the runtime loses that case only. Each context has a section in the document.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import multiprocessing
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.known_failures import known_failures

DOCUMENT = os.path.join(os.path.dirname(__file__), "..", "docs", "conformance.md")
TIMEOUT = 180
SAMPLES = 3
"""Samples of each case: the first, the middle and the last; the known failures are those of this number."""
ONE_IN = {
    "plain": 120, "around": 360, "scaled": 360, "decomposed": 360, "reference": 240, "branch": 720, "map": 720, "vmap": 360,
}  # fmt: skip
"""CI runs one case in so many of each context."""
Name = tuple[str, str, str]
Result = tuple[Name, str, str, int]
"""Name, status, detail and number of dynamic samples of a case."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a sweep does with each of its cases.

    Attributes:
        context: a name of `tests.contexts.CONTEXTS`.
        samples: samples of each case.
        seed: seed that the samples are drawn with.
        options: keyword arguments of `to_onnx`, besides those of the context.
    """

    context: str = "plain"
    samples: int = SAMPLES
    seed: int = 0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def worker(pipe: Connection) -> None:
    """Answer cases with verdicts until the pipe closes."""
    import torch

    from tests.cases import Verdict, verdict
    from tests.contexts import CONTEXTS

    torch.set_num_threads(1)
    while True:
        try:
            run, name = pipe.recv()
        except EOFError:
            return
        context = CONTEXTS[run.context]
        context = dataclasses.replace(context, options={**context.options, **run.options})
        try:
            found = verdict(name, run.samples, run.seed, context)
        except Exception as error:  # reported as the verdict of this case
            found = Verdict("error", f"{type(error).__name__}: {error}".splitlines()[0][:300])
        pipe.send((found.status, found.detail, found.dynamic))


def sweep(cases: list[tuple[Run, Name]], workers: int) -> Iterator[tuple[Run, Result]]:
    """The run and the result of every case, in the order they end. Starting a worker costs as much as ten cases."""
    context = multiprocessing.get_context("spawn")
    waiting = collections.deque(cases)
    busy: dict[Connection, tuple[multiprocessing.Process, Run, Name]] = {}
    idle: list[tuple[multiprocessing.Process, Connection]] = []

    def start() -> tuple[multiprocessing.Process, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    while waiting or busy:
        while waiting and len(busy) < workers:
            process, pipe = idle.pop() if idle else start()
            run, name = waiting.popleft()
            pipe.send((run, name))
            busy[pipe] = (process, run, name)
        ready = wait(list(busy), timeout=TIMEOUT)
        for pipe in ready or list(busy):
            process, run, name = busy.pop(pipe)
            if not ready:
                process.kill()
                yield run, (name, "timeout", f"more than {TIMEOUT} s", 0)
                continue
            try:
                yield run, (name, *pipe.recv())
                idle.append((process, pipe))
            except EOFError:
                process.join()
                yield run, (name, "crash", f"the process ended with {process.exitcode}", 0)
    for process, pipe in idle:
        pipe.close()
        process.join(timeout=5)


def fixed_part(names: list[Name], context: str) -> list[Name]:
    """The part that CI runs: chosen by the name of the operator, other ones in each context."""
    salt = () if context == "plain" else (context,)
    return [name for name in names if zlib.crc32("/".join(salt + name).encode()) % ONE_IN[context] == 0]


def unexpected(results: list[Result], run: Run) -> list[str]:
    """What contradicts the list of known failures: a case that fails outside of it, one of it that passes."""
    lines = []
    listed = known_failures(run.context, bool(run.options.get("special_values")))
    for name, status, detail, _ in results:
        known = listed.get("/".join(name))
        fails = status not in ("passed", "no sample", "not exported")
        if fails and known is None:
            lines.append(f"{'/'.join(name)}: {status}: {detail}")
        elif known is not None and not fails:
            lines.append(f"{'/'.join(name)}: passes: remove it from the known failures")
    return lines


INTRODUCTION = """# Conformance

Figures of `python -m tests.sweep --context NAME`, a section for each context: operators of PyTorch's operator database and modules of
its module database, exported, run and compared with eager (value, shape, dtype). `tests/known_failures.py` has the reason of each case
that does not pass.

`not exported`: torch.export refuses every sample. `refused`: this exporter refuses, with an error. `with other sizes`: cases of
which a sample was also exported with all dimensions dynamic and run on other sizes: on larger ones, and in the context `plain` with the
first axis of one element and of none, where results are no NaN and onnxruntime runs it (`docs/runtime.md`). A result in half precision that
differs from eager passes within the tolerance of the float64 result, or as near to it as eager's, which rounds every step.
"""
STATUSES = ("passed", "wrong", "refused", "not run", "crash", "timeout", "error", "not exported", "no sample")


def report(results: list[Result], run: Run, what: str) -> str:
    """The figures of one context as a section of Markdown; *what* names the cases that were run."""
    from tests.contexts import CONTEXTS

    numbers = {1: "One sample", 2: "Two samples", 3: "Three samples"}
    lines = [
        f"## {run.context}",
        "",
        f"{CONTEXTS[run.context].promise[0].upper()}{CONTEXTS[run.context].promise[1:]}. "
        f"{numbers.get(run.samples, f'{run.samples} samples')} of {what}"
        + "".join(f", {name}={value}" for name, value in run.options.items())
        + ".",
        "",
        "| kind | " + " | ".join(STATUSES) + " | with other sizes |",
        "|---" * (len(STATUSES) + 2) + "|",
    ]
    for kind in ("operator", "inplace", "eval", "train"):
        part = [result for result in results if result[0][0] == kind]
        count = collections.Counter(status for _, status, _, _ in part)
        dynamic = sum(1 for *_, number in part if number)
        if part:
            lines.append(f"| {kind} | " + " | ".join(str(count[s]) for s in STATUSES) + f" | {dynamic} |")
    count = collections.Counter(status for _, status, _, _ in results)
    captured = len(results) - count["not exported"] - count["no sample"]
    lines += [
        "",
        f"Of {captured} cases that torch.export captures, {count['passed']} pass: {100 * count['passed'] / max(captured, 1):.1f} %.",
        "",
    ]
    failing = [r for r in results if r[1] not in ("passed", "no sample", "not exported")]
    if failing:
        lines += ["| case that does not pass | status | detail |", "|---|---|---|"]
        lines += [f"| {'/'.join(n)} | {s} | {d.replace('|', ' ')} |" for n, s, d, _ in sorted(failing)]
    return "\n".join(lines).rstrip() + "\n"


def with_section(document: str, section: str) -> str:
    """The document with this section in the place of the one of the same title; the others stay, in the order of ONE_IN."""
    sections = {}
    for part in [*re.split(r"^(?=## )", document, flags=re.M)[1:], section]:
        sections[part.split("\n", 1)[0].removeprefix("## ")] = part.strip() + "\n"
    order = [name for name in ONE_IN if name in sections]
    return "\n".join([INTRODUCTION, *(sections[name] for name in order)])


def write(section: str, path: str) -> None:
    """Put a section into a document, new or not."""
    document = ""
    if os.path.exists(path):
        with open(path) as file:
            document = file.read()
    with open(path, "w") as file:
        file.write(with_section(document, section))


def main() -> int:
    """Run the sweep, write its section of the document, and fail on what contradicts the known failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--context", choices=tuple(ONE_IN), default="plain", help="what stands around each case"
    )
    parser.add_argument("--only", nargs="*", default=[], help="words that the operator's name holds")
    parser.add_argument("--dtypes", nargs="*", default=[], help="dtypes, for example float32 int64")
    parser.add_argument("--kinds", nargs="*", default=[], help="operator, inplace, eval, train")
    parser.add_argument("--fixed", action="store_true", help="the fixed part that CI runs")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each case")
    parser.add_argument("--seed", type=int, default=0, help="seed that the samples are drawn with")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--opset", type=int, help="version of ai.onnx (default: that of to_onnx)")
    parser.add_argument(
        "--special-values",
        action=argparse.BooleanOptionalAction,
        help="to_onnx(special_values=): exact for NaN, the sign of zero and ties as well (default: that of to_onnx)",
    )
    parser.add_argument(
        "--output",
        help="Markdown file to write the section into (default: docs/conformance.md for a whole sweep)",
    )
    parser.add_argument("--json", help="file for the raw results")
    options = parser.parse_args()
    from tests.cases import module_names, operator_names

    of_the_export = {"special_values": options.special_values, "target_opset": options.opset}
    of_the_export = {name: value for name, value in of_the_export.items() if value is not None}
    run = Run(options.context, options.samples, options.seed, of_the_export)
    names = operator_names() + module_names()
    if options.only:
        names = [name for name in names if any(word in name[1] for word in options.only)]
    if options.dtypes:
        names = [name for name in names if name[2] in options.dtypes]
    if options.kinds:
        names = [name for name in names if name[0] in options.kinds]
    if options.fixed:
        names = fixed_part(names, options.context)
    iterator = sweep([(run, name) for name in names], options.workers)
    if sys.stderr.isatty():
        from tqdm import tqdm

        iterator = tqdm(iterator, total=len(names))
    results = sorted(result for _, result in iterator)
    part = options.only or options.fixed
    what = " ".join(["some" if part else "all", "cases", *(options.dtypes and ["of", *options.dtypes])])
    what = ", ".join([what, *options.kinds])
    section = report(results, run, what)
    whole = not (part or options.dtypes or options.kinds)
    output = options.output or (DOCUMENT if whole else None)
    if output:
        write(section, output)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=0)
    print(section)
    lines = unexpected(results, run)
    print("\n".join(lines))
    passed = len(results) - len(lines)
    print(f"{passed} passed, {len(lines)} failed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
