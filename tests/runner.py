"""The runner of the tests: two processes that take one file after the other.

All of ``_unittests`` and the fixed part of the sweeps, those that take longest first. Prints what unittest prints of files with a
failure and one line for the others, then one line "N passed, N failed, N skipped". Status 1 when one failed.
"""

from __future__ import annotations

import collections
import gc
import glob
import io
import multiprocessing
import os
import time
import unittest
from multiprocessing.connection import Connection, wait

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LONGEST = tuple(f"tests.test_{name}" for name in ("databases", "architectures", "pieces", "tutorials"))
PROCESSES = 2


def files() -> list[str]:
    """The names of all test files, the longest first."""
    paths = sorted(glob.glob(os.path.join(ROOT, "_unittests", "**", "test_*.py"), recursive=True))
    paths += sorted(glob.glob(os.path.join(ROOT, "tests", "test_*.py")))
    names = [os.path.relpath(path, ROOT).removesuffix(".py").replace(os.sep, ".") for path in paths]
    return [*LONGEST, *(name for name in names if name not in LONGEST)]


def worker(pipe: Connection) -> None:
    """Run the files that are asked for: what unittest printed, seconds of CPU, how many tests ran, failed, were skipped."""
    import torch  # by the workers alone

    gc.set_threshold(50_000, 20, 100)
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        stream, before = io.StringIO(), os.times()
        torch.manual_seed(0)  # what a file draws when it is imported does not depend on the files before it
        suite = unittest.defaultTestLoader.loadTestsFromName(name)
        gc.collect()
        gc.freeze()  # what is imported stays: to visit it again and again took an eighth of the time
        result = unittest.TextTestRunner(stream=stream).run(suite)
        failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
        # user and system time, of this process and of those that the tests started and waited for
        seconds = sum(os.times()[:4]) - sum(before[:4])
        pipe.send((stream.getvalue(), seconds, result.testsRun, failed, len(result.skipped)))


def main(names: list[str]) -> int:
    """Run the files side by side and add them up."""
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    context = multiprocessing.get_context("spawn")
    waiting = collections.deque(names or files())
    busy: dict[Connection, tuple[multiprocessing.Process, str, float]] = {}
    idle: list[tuple[Connection, multiprocessing.Process]] = []
    total = [0, 0, 0]
    while waiting or busy:
        while waiting and len(busy) < PROCESSES:
            if not idle:
                ours, theirs = context.Pipe()
                process = context.Process(target=worker, args=(theirs,))
                process.start()
                theirs.close()
                idle.append((ours, process))
            pipe, process = idle.pop()
            name = waiting.popleft()
            pipe.send(name)
            busy[pipe] = process, name, time.monotonic()
        for pipe in wait(list(busy)):
            process, name, start = busy.pop(pipe)
            try:
                text, seconds, *counts = pipe.recv()
                idle.append((pipe, process))
            except EOFError:
                # the runtime ended the process: one failure, and a new process for the next file
                process.join()
                text, seconds, counts = f"{name}: the process ended with {process.exitcode}\n", 0.0, [1, 1, 0]
            total = [a + b for a, b in zip(total, counts)]
            print(
                text if counts[1] else f"{name}: {counts[0]} tests",
                f"({time.monotonic() - start:.0f} s, {seconds:.0f} of CPU)",
                flush=True,
            )
    for pipe, process in idle:
        pipe.close()
        process.join()
    ran, failed, skipped = total
    print(f"{max(ran - failed - skipped, 0)} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
