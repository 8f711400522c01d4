"""What `piece_by_piece` found: a tree of modules, as text, as a page, as a dict."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Iterator
from typing import Any

from experimental_experiment.whole import whole

COLORS = {
    "ok": 32,
    "torch.export failed": 31,
    "untranslatable": 31,
    "runtime failed": 31,
    "differs": 33,
    "container": 90,
    "not called": 90,
}
"""Of a terminal, by status."""

FAILED = frozenset(("torch.export failed", "untranslatable", "runtime failed", "differs"))


@dataclasses.dataclass
class Piece:
    """One module of a model.

    Attributes:
        path: qualified name, ``""`` for the model.
        kind: name of the class.
        status: ``ok``, ``torch.export failed``, ``untranslatable``, ``runtime failed``, ``differs``; ``container`` for a module that is
            not called itself, ``not called`` when nothing in it is.
        family: why torch.export failed, see `pieces.FAMILIES`.
        detail: the first line of the error, or the difference.
        where: the rest of the error: node, line, hint.
        note: what else is known: the first wrong result, whether it works with static sizes.
        verdict: of `discrepancies`, when it differs.
        seconds: time of export, run and comparison.
        nodes: of the ONNX model.
        count: how often it was called.
        is_dynamic: whether it was exported with dynamic dimensions.
        is_smallest: whether its own code fails, not only that of its parts.
        same_as: path of the module that it is, when that stands in the tree before.
        script: the file that reproduces the failure.
        children: its submodules; none when it is ok: they were exported with it.
    """

    path: str
    kind: str
    status: str = ""
    family: str = ""
    detail: str = ""
    where: str = ""
    note: str = ""
    verdict: str = ""
    seconds: float = 0.0
    nodes: int = 0
    count: int = 0
    is_dynamic: bool = False
    is_smallest: bool = False
    same_as: str = ""
    script: str = ""
    children: list[Piece] = dataclasses.field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether it was tried and failed."""
        return self.status in FAILED

    @property
    def broken_parts(self) -> list[Piece]:
        """The outermost failing modules inside."""
        found = []
        for child in self.children:
            found += [child] if child.failed else child.broken_parts
        return found

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Piece]]:
        """This piece and those inside, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    @property
    def told(self) -> str:
        """Status and reason, on one line."""
        if self.same_as:
            return f"{self.status}, the same as {self.same_as}"
        if not self.failed:
            return self.status
        if self.broken_parts and not self.is_smallest:
            return f"{self.status}, by its parts"
        reason = f" ({self.family})" if self.family else ""
        return f"{self.status}{reason}: {self.detail}"

    def to_dict(self) -> dict[str, Any]:
        """The piece and its children as plain values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class Pieces:
    """What `piece_by_piece` found; ``print`` shows the tree.

    Attributes:
        root: the model.
    """

    root: Piece

    @property
    def failures(self) -> list[Piece]:
        """The smallest pieces that fail: those whose parts do not, or whose own code fails too."""
        return [
            piece
            for _, piece in self.root.walk()
            if piece.failed and not piece.same_as and (piece.is_smallest or not piece.broken_parts)
        ]

    @property
    def summary(self) -> str:
        """How many pieces fail."""
        count = len(self.failures)
        if not count:
            return "everything is exported and agrees with eager"
        return "1 smallest failure" if count == 1 else f"{count} smallest failures"

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain values."""
        return self.root.to_dict()

    def to_text(self, color: bool = False) -> str:
        """The tree, then the smallest failures with their lines; *color*: with the escape codes of a terminal."""
        rows = [
            (f"{'  ' * depth}{piece.path.rpartition('.')[2] or 'model'}", piece)
            for depth, piece in self.root.walk()
        ]
        width = max(len(name) + len(piece.kind) + 3 for name, piece in rows)
        lines = []
        for name, piece in rows:
            measured = f"{piece.seconds:5.1f} s {piece.nodes:5d} nodes" if piece.seconds else " " * 19
            told = f"\x1b[{COLORS[piece.status]}m{piece.told}\x1b[0m" if color else piece.told
            lines.append(f"{f'{name} ({piece.kind})':{width}}  {measured}  {told}")
        failures = self.failures
        lines += ["", self.summary]
        for piece in failures:
            lines += ["", f"{piece.path or 'model'} ({piece.kind}): {piece.told}"]
            lines += [line for text in (piece.where, piece.note) if text for line in text.splitlines()]
            if piece.script:
                lines.append(f"  script {piece.script}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def to_html(self, path: str | os.PathLike | None = None) -> str:
        """The tree as one page that needs nothing else; written to *path* when it is given."""
        page = PAGE.format(title=html.escape(self.root.kind), summary=self.summary, tree=branch(self.root))
        if path is not None:
            with whole(path) as written, open(written, "w", encoding="utf-8") as file:
                file.write(page)
        return page


def branch(piece: Piece) -> str:
    """One piece and those inside, as nested lists that fold."""
    kind = "ok" if piece.status == "ok" else "failed" if piece.failed else "quiet"
    name = piece.path.rpartition(".")[2] or "model"
    measured = f"{piece.seconds:.1f} s, {piece.nodes} nodes" if piece.seconds else ""
    head = (
        f'<span class="name">{html.escape(name)}</span> <span class="kind">{html.escape(piece.kind)}</span> '
        f'<span class="{kind}">{html.escape(piece.told)}</span> <span class="measured">{measured}</span>'
    )
    by_parts = bool(piece.broken_parts) and not piece.is_smallest
    script = f"script: {piece.script}" if piece.script else ""
    texts = [] if by_parts else [text for text in (piece.where, piece.note, script) if text]
    body = "".join(f"<pre>{html.escape(text)}</pre>" for text in texts) + "".join(map(branch, piece.children))
    if not body:
        return f'<div class="leaf">{head}</div>'
    return f"<details{' open' if piece.failed or kind == 'quiet' else ''}><summary>{head}</summary>{body}</details>"


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}, piece by piece</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
details, .leaf {{ margin-left: 1.2rem; }}
.leaf {{ padding-left: 1rem; }}
.name {{ font-weight: 600; }} .kind, .measured, .quiet {{ opacity: .65; }}
.ok {{ color: light-dark(#1a7f37, #4ac26b); }} .failed {{ color: light-dark(#b42318, #ff8a80); }}
pre {{ margin: .3rem 0 .3rem 1.2rem; padding: .5rem .8rem; white-space: pre-wrap; background: #8881; border-radius: 4px; }}
</style></head><body>
<h1>{title}, piece by piece</h1><p>{summary}</p>
{tree}
</body></html>
"""
