"""Draws the tables of README, of ``benchmarks.md`` and of ``conformance.md`` while the site is built."""

import os

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

FOLDER = os.path.dirname(os.path.abspath(__file__))
GREY = "#808080"  # seen on white and on black

plt.rcParams |= {
    name: GREY for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
}
plt.rcParams |= {"savefig.transparent": True, "svg.hashsalt": "figures", "font.size": 9}


def table(page, first, after=""):
    """The rows of the first table of a page, behind the text *after*, whose first column is called so; a dict for each."""
    with open(os.path.join(FOLDER, page)) as file:
        text = file.read()
    lines = text[text.index(after) :].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    start = next((index for index, row in enumerate(cells) if row[0] == first and len(row) > 1), None)
    if start is None:
        raise ValueError(f"{page} has no table whose first column is {first!r}")
    end = next(index for index in range(start, len(lines)) if not lines[index].startswith("|"))
    return [dict(zip(cells[start], row, strict=True)) for row in cells[start + 2 : end]]


def operators(path):
    """Time of torch.onnx.export's graph to ours, by operator."""
    rows = [row for row in table("benchmarks.md", "row") if row["torch.onnx / ours"][:1].isdigit()]
    rows.sort(key=lambda row: float(row["torch.onnx / ours"]))
    ratios = [float(row["torch.onnx / ours"]) for row in rows]
    figure, axes = plt.subplots(figsize=(7, 0.2 * len(rows) + 1))
    axes.barh([row["row"] for row in rows], [ratio - 1 for ratio in ratios], left=1, color="#3b82c4")
    axes.axvspan(0.8, 1.25, color=GREY, alpha=0.2, lw=0)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel("time of torch.onnx.export's graph / time of ours; grey: as much as the machine varies")
    axes.margins(y=0.01)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def conformance(path):
    """Cases that pass, by context."""
    with open(os.path.join(FOLDER, "conformance.md")) as file:
        names = [line.removeprefix("## ").strip() for line in file if line.startswith("## ")]
    kinds = {"passed": "#4a9d5b", "refused": "#d9a441", "wrong": "#c0443c"}
    parts = {}
    for name in names:
        rows = table("conformance.md", "kind", f"\n## {name}\n")
        parts[name] = {kind: sum(int(row[kind]) for row in rows) for kind in kinds}
    figure, axes = plt.subplots(figsize=(7, 0.35 * len(names) + 0.8))
    left = [0.0] * len(names)
    for kind, color in kinds.items():
        shares = [100 * parts[name][kind] / sum(parts[name].values()) for name in names]
        axes.barh(names, shares, left=left, color=color, label=kind)
        left = [a + b for a, b in zip(left, shares)]
    axes.invert_yaxis()
    axes.set_xlim(90, 100)
    axes.set_xlabel("percent of the cases that torch.export captures, from 90 on")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(kinds), frameon=False)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def export_time(path):
    """Seconds that an export takes, by the number of layers of a decoder."""
    rows = table("../README.md", "layers")
    kinds = {"torch.export": GREY, "this exporter": "#3b82c4", "`torch.onnx.export(dynamo=True)`": "#d9a441"}
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(rows) + 1))
    for position, (kind, color) in enumerate(kinds.items()):
        (column,) = (name for name in rows[0] if name.split(",")[0] == kind)
        seconds = [float(row[column].removesuffix(" s")) for row in rows]
        places = [index + 0.27 * (position - 1) for index in range(len(rows))]
        bars = axes.barh(places, seconds, 0.25, color=color, label=column.strip("`"))
        axes.bar_label(bars, fmt="%.1f", padding=3, color=GREY)
    axes.set_yticks(range(len(rows)), [f"{row['layers']} layers" for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set_xlabel("seconds on one core")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(kinds), frameon=False)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def draw(app):
    """Write ``_figures``, before pages are read."""
    folder = os.path.join(FOLDER, "_figures")
    os.makedirs(folder, exist_ok=True)
    for function in (export_time, operators, conformance):
        function(os.path.join(folder, f"{function.__name__}.svg"))
