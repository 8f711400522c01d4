"""Run the tests, in two processes: all of ``_unittests``, and the fixed part of the sweeps. ``python -m tests``.

Prints what unittest prints, then one line "N passed, N failed, N skipped". Status 1 when one failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from typing import IO

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = (
    ("discover", "-s", "_unittests", "-t", "."),
    tuple(f"tests.test_{name}" for name in ("architectures", "databases", "documents", "exportdb")),
)
"""Arguments of unittest, one process each."""


def started(arguments: tuple[str, ...], output: IO[str]) -> subprocess.Popen:
    """A process of unittest that writes to *output*: one thread, and bytecode on the disk for the many workers."""
    command = [sys.executable, "-m", "unittest", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)


def counted(text: str) -> tuple[int, int, int]:
    """How many tests ran, failed and were skipped, from what unittest printed; a run that broke is one failure."""
    ran = re.findall(r"^Ran (\d+) tests? in", text, re.M)
    if len(ran) != 1:
        return 0, 1, 0
    last = text.splitlines()[-1]
    failed = sum(map(int, re.findall(r"\b(?:failures|errors|unexpected successes)=(\d+)", last)))
    return int(ran[0]), failed, sum(map(int, re.findall(r"\bskipped=(\d+)", last)))


def main() -> int:
    """Run the parts side by side and add them up."""
    with tempfile.TemporaryDirectory() as folder:
        files = [open(os.path.join(folder, str(k)), "w+") for k in range(len(PARTS))]
        processes = [started(arguments, file) for arguments, file in zip(PARTS, files)]
        texts = []
        for process, file in zip(processes, files):
            process.wait()
            file.seek(0)
            texts.append(file.read())
            file.close()
            print(texts[-1], end="")
    ran, failed, skipped = map(sum, zip(*map(counted, texts)))
    print(f"{max(ran - failed - skipped, 0)} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or any(process.returncode for process in processes) else 0


if __name__ == "__main__":
    sys.exit(main())
