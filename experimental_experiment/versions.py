"""The versions of other packages that this one works with: the one place that knows them.

A package that is too old is refused by one sentence where it is first needed. The oldest versions are those of ``setup.cfg``;
those that everything is tested with are in ``constraints.txt``.
"""

from __future__ import annotations

import importlib
import re

OLDEST = {
    "onnx": (1, 21),
    "onnx_ir": (1, 0),
    "onnxruntime": (1, 29),
    "torch": (2, 9),
    "transformers": (5, 0),
}
"""The first version of each package that is supported."""


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, to compare: ``"2.13.0+cpu"`` is (2, 13, 0)."""
    found = [int(part) for part in re.split(r"[^\d.]", version)[0].split(".") if part]
    return (*found, *[0] * (3 - len(found)))


def require(*packages: str) -> None:
    """Raise ImportError, in one sentence, when one of these packages is older than what is supported."""
    for package in packages:
        found = importlib.import_module(package).__version__
        if numbers(found) < OLDEST[package]:
            oldest = ".".join(map(str, OLDEST[package]))
            raise ImportError(
                f"experimental_experiment needs {package} {oldest} or later, and {found} is installed: "
                f"pip install '{package}>={oldest}'"
            )
