"""A report as one page that needs nothing else: the template ``page.html`` with the content as JSON."""

from __future__ import annotations

import html
import importlib.resources
import json
from typing import Any


def page(content: dict[str, Any]) -> str:
    """The page of a report, see `report.gathered`."""
    template = (importlib.resources.files(__package__) / "page.html").read_text(encoding="utf-8")
    data = json.dumps(content, allow_nan=False).replace("<", "\\u003c")  # no text may end the script
    return template.replace("@TITLE@", html.escape(content["title"])).replace("@CONTENT@", data)
