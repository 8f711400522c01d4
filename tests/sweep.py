"""Sweep PyTorch's operator and module databases: ``python -m tests.sweep`` writes ``docs/conformance.md``.

    python -m tests.sweep                          # everything, some hours of one core
    python -m tests.sweep --only add nn.functional # cases whose operator contains one of these words
    python -m tests.sweep --tenth                  # the fixed tenth that CI runs

Each case runs in a worker process: a crash of the runtime loses that case only.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import sys
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

from tests.known_failures import KNOWN_FAILURES

DOCUMENT = os.path.join(os.path.dirname(__file__), "..", "docs", "conformance.md")
TIMEOUT = 180
SAMPLES = 3
"""Samples of each case: the first, the middle and the last; the known failures are those of this number."""
Name = tuple[str, str, str]


def worker(pipe: Connection, samples: int, seed: int) -> None:
    """Answer case names with verdicts until the pipe closes."""
    import torch

    from tests.cases import Verdict, verdict

    torch.set_num_threads(1)
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        try:
            found = verdict(name, samples, seed)
        except Exception as error:  # reported as the verdict of this case
            found = Verdict("error", f"{type(error).__name__}: {error}".splitlines()[0][:300])
        pipe.send((found.status, found.detail, found.dynamic))


def sweep(
    names: list[Name], samples: int, workers: int, seed: int = 0
) -> Iterator[tuple[Name, str, str, int]]:
    """Name, status, detail and number of dynamic samples of every case, in the order they end."""
    context = multiprocessing.get_context("spawn")
    waiting = collections.deque(names)
    busy: dict[Connection, tuple[multiprocessing.Process, Name]] = {}
    idle: list[tuple[multiprocessing.Process, Connection]] = []

    def start() -> tuple[multiprocessing.Process, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs, samples, seed), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    while waiting or busy:
        while waiting and len(busy) < workers:
            process, pipe = idle.pop() if idle else start()
            name = waiting.popleft()
            pipe.send(name)
            busy[pipe] = (process, name)
        ready = wait(list(busy), timeout=TIMEOUT)
        for pipe in ready or list(busy):
            process, name = busy.pop(pipe)
            if not ready:
                process.kill()
                yield (name, "timeout", f"more than {TIMEOUT} s", 0)
                continue
            try:
                yield (name, *pipe.recv())
                idle.append((process, pipe))
            except EOFError:
                process.join()
                yield (name, "crash", f"the process ended with {process.exitcode}", 0)
    for process, pipe in idle:
        pipe.close()
        process.join(timeout=5)


def tenth(names: list[Name]) -> list[Name]:
    """The part that CI runs: chosen by the name of the operator, the same on every machine."""
    return [name for name in names if zlib.crc32("/".join(name).encode()) % 10 == 0]


def unexpected(results: list[tuple[Name, str, str, int]]) -> list[str]:
    """What contradicts the list of known failures: a case that fails outside of it, one of it that passes."""
    lines = []
    for name, status, detail, _ in results:
        known = KNOWN_FAILURES.get("/".join(name))
        fails = status not in ("passed", "no sample", "not exported")
        if fails and known is None:
            lines.append(f"{'/'.join(name)}: {status}: {detail}")
        elif known is not None and not fails:
            lines.append(f"{'/'.join(name)}: passes: remove it from the known failures")
    return lines


def report(results: list[tuple[Name, str, str, int]]) -> str:
    """The figures as Markdown."""
    lines = ["# Conformance", "", "Figures of `python -m tests.sweep`: operators of PyTorch's operator database and modules of its",
             "module database, exported, run in onnxruntime's CPU provider and compared with eager (value, shape, dtype).", ""]  # fmt: skip
    statuses = [
        "passed",
        "wrong",
        "refused",
        "not run",
        "crash",
        "timeout",
        "error",
        "not exported",
        "no sample",
    ]
    lines += [
        "| kind | " + " | ".join(statuses) + " | with other sizes |",
        "|---" * (len(statuses) + 2) + "|",
    ]
    for kind in ("operator", "inplace", "eval", "train"):
        part = [result for result in results if result[0][0] == kind]
        count = collections.Counter(status for _, status, _, _ in part)
        dynamic = sum(1 for *_, number in part if number)
        if part:
            lines.append(f"| {kind} | " + " | ".join(str(count[s]) for s in statuses) + f" | {dynamic} |")
    count = collections.Counter(status for _, status, _, _ in results)
    captured = len(results) - count["not exported"] - count["no sample"]
    lines += [
        "",
        "`not exported`: torch.export refuses every sample. `refused`: this exporter refuses, with an error. `with other sizes`: cases of",
        "which a sample was also exported with all dimensions dynamic and run on other sizes.",
        "",
        f"Of {captured} cases that torch.export captures, {count['passed']} pass: {100 * count['passed'] / max(captured, 1):.1f} %. "
        "`tests/known_failures.py` has the reason of each other one.",
        "",
    ]
    failing = [r for r in results if r[1] not in ("passed", "no sample", "not exported")]
    if failing:
        lines += ["## Cases that do not pass", "", "| case | status | detail |", "|---|---|---|"]
        lines += [f"| {'/'.join(n)} | {s} | {d.replace('|', ' ')} |" for n, s, d, _ in sorted(failing)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the sweep, write the document, and fail on what contradicts the known failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="words that the operator's name holds")
    parser.add_argument("--dtypes", nargs="*", default=[], help="dtypes, for example float32 int64")
    parser.add_argument("--kinds", nargs="*", default=[], help="operator, inplace, eval, train")
    parser.add_argument("--tenth", action="store_true", help="the fixed tenth that CI runs")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each case")
    parser.add_argument("--seed", type=int, default=0, help="seed that the samples are drawn with")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument(
        "--output", help="Markdown file to write (default: docs/conformance.md for a whole sweep)"
    )
    parser.add_argument("--json", help="file for the raw results")
    options = parser.parse_args()
    from tests.cases import module_names, operator_names

    names = operator_names() + module_names()
    whole = not (options.only or options.dtypes or options.kinds or options.tenth)
    if options.only:
        names = [name for name in names if any(word in name[1] for word in options.only)]
    if options.dtypes:
        names = [name for name in names if name[2] in options.dtypes]
    if options.kinds:
        names = [name for name in names if name[0] in options.kinds]
    if options.tenth:
        names = tenth(names)
    iterator = sweep(names, options.samples, options.workers, options.seed)
    if sys.stderr.isatty():
        from tqdm import tqdm

        iterator = tqdm(iterator, total=len(names))
    results = sorted(iterator)
    output = options.output or (DOCUMENT if whole else None)
    if output:
        with open(output, "w") as file:
            file.write(report(results))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=0)
    print(report(results))
    lines = unexpected(results)
    print("\n".join(lines))
    passed = len(results) - len(lines)
    print(f"{passed} passed, {len(lines)} failed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
