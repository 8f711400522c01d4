"""`plot_dot`: a model as an image, by the program ``dot`` of graphviz."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
from typing import Any

import onnx_ir as ir

from experimental_experiment.plotting.dot import Drawable, dot_source
from experimental_experiment.whole import whole

PACKAGE = "the package {name} is not installed: pip install 'experimental_experiment[plot]'"
PROGRAM = (
    "the program dot of graphviz is not installed or not on PATH: "
    "apt-get install graphviz, brew install graphviz, conda install graphviz, or https://graphviz.org/download"
)
FORMATS = ("svg", "png", "pdf", "dot")

RESOLUTION = 200
"""Pixels of an inch of a drawing."""

LARGEST = 60
"""Inches: a larger drawing is scaled down on axes."""


def plot_dot(
    model: Drawable | ir.Model | str | os.PathLike,
    ax: Any = None,
    filename: str | os.PathLike | None = None,
    fold: bool = False,
) -> Any:
    """Draw a model with graphviz.

    Args:
        model: a model, a graph, a function, an `onnx_ir` model, or the path of a model; external data is not read.
        ax: axes of matplotlib to draw on; new ones when neither *ax* nor *filename* is given.
        filename: a file to write, .svg, .png, .pdf, or .dot for the text that graphviz reads, which needs no graphviz.
        fold: draw layers that follow each other with the same structure once: readable for models of hundreds of nodes.

    Returns the axes, None when only a file is written. Raises ImportError when the package graphviz or matplotlib is missing,
    RuntimeError when the program ``dot`` is, ValueError for a file of another format, or one that holds no model.
    """
    source = dot_source(model, fold)
    if filename is not None:
        suffix = os.path.splitext(filename)[1].removeprefix(".").lower()
        if suffix not in FORMATS:
            raise ValueError(f"a drawing is a file of {', '.join(FORMATS)}, not {os.fspath(filename)!r}")
        content = source.encode() if suffix == "dot" else rendered(source, suffix)
        with whole(filename) as written, open(written, "wb") as file:
            file.write(content)
        if ax is None:
            return None
    return on_axes(rendered(source, "png"), ax)


def rendered(source: str, form: str) -> bytes:
    """The image that graphviz makes of its text."""
    graphviz = package("graphviz")
    drawing = graphviz.Source(source)
    if form == "png":
        drawing = graphviz.Source(source.replace("digraph {", f"digraph {{\n  dpi={RESOLUTION}", 1))
    try:
        return drawing.pipe(format=form)
    except graphviz.ExecutableNotFound as error:
        raise RuntimeError(PROGRAM) from error


def on_axes(image: bytes, ax: Any) -> Any:
    """Axes that show an image, new ones of its size when there are none."""
    pyplot = package("matplotlib.pyplot")
    pixels = pyplot.imread(io.BytesIO(image))
    if ax is None:
        height, width = (size / RESOLUTION for size in pixels.shape[:2])
        factor = min(1.0, LARGEST / max(height, width))
        figure = pyplot.figure(figsize=(width * factor, height * factor))
        ax = figure.add_axes((0, 0, 1, 1))
    ax.imshow(pixels)
    ax.axis("off")
    return ax


def package(name: str) -> Any:
    """An optional package, loaded when it is needed."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise ImportError(PACKAGE.format(name=name.partition(".")[0]))
    return importlib.import_module(name)
