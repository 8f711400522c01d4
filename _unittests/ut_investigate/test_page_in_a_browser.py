"""The page of a report in a real browser, headless: what the script draws, searching, folding, no error."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import torch

from _unittests.ut_investigate.holder import Layer
from experimental_experiment.torch_interpreter import to_onnx

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --virtual-time-budget=10000 --window-size=500,900 --dump-dom"
).split()

ERRORS = """<script>
window.failures = [];
window.onerror = message => { window.failures.push(String(message)); };
const told = console.error;
console.error = (...words) => { window.failures.push(words.join(" ")); told(...words); };
</script>"""
"""Before all others: what goes wrong is kept."""

USE = """<script>
(() => {
const found = {};
const count = (selector, root) => (root || document).querySelectorAll(selector).length;
found.title = document.title;
found.drawn = count("#nodes-table tbody tr");
const box = document.getElementById("search");
function type(text) { box.value = text; box.dispatchEvent(new Event("input")); }
type("LAYERS.3.attention softmax");
found.searched = [...document.querySelectorAll("#nodes-table tbody tr")].map(row => row.innerText);
found.count = document.getElementById("count").textContent;
type("nothing of this name");
found.nothing = count("#nodes-table tbody tr");
type("");
const more = document.querySelector("#nodes-table").closest("div").parentElement.querySelector("button");
found.more = more.textContent;
more.click();
found.after_more = count("#nodes-table tbody tr");
found.points = count("svg circle");
found.tree = document.getElementById("tree").clientHeight;
found.links = [...document.querySelectorAll("nav a")].map(link => link.textContent);
found.targets = [...document.querySelectorAll("nav a")].every(link => document.querySelector(link.getAttribute("href")));
const folded = document.querySelector("main details details");
found.fold = folded.querySelector("summary").innerText;
found.inside_before = count("details", folded);
folded.open = true;
setTimeout(() => {
  found.inside_after = count("details", folded);
  found.wide = document.documentElement.scrollWidth <= document.documentElement.clientWidth;
  found.failures = window.failures;
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
}, 100);
})();
</script>"""
"""After all others: use the page as a reader does."""


class Stack(torch.nn.Module):
    """Many equal layers."""

    def __init__(self, layers: int):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(4, False) for _ in range(layers)])
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@unittest.skipUnless(BROWSER, "there is no chromium on this machine")
class TestPage(unittest.TestCase):
    def test_search_folding_and_no_error(self):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.html")
            to_onnx(Stack(60), (torch.randn(2, 4),), report=path)
            with open(path, encoding="utf-8") as file:
                page = file.read()
            page = page.replace("<body>", f"<body>{ERRORS}", 1).replace("</body>", f"{USE}</body>", 1)
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
            command = [BROWSER, *OPTIONS, f"--user-data-dir={folder}/profile", f"file://{path}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
        self.assertIsNotNone(result, done.stderr[-2000:])
        found = json.loads(result[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        self.assertEqual(found["failures"], [])
        self.assertEqual(found["title"], "Stack, exported to ONNX")
        self.assertEqual((found["drawn"], found["more"], found["after_more"]), (200, "41 more", 241))
        self.assertEqual(found["count"], " 1 of 241 nodes")
        (row,) = found["searched"]
        self.assertIn("softmax_3", row)
        self.assertEqual(found["nothing"], 0)
        self.assertEqual(found["points"], 241)
        self.assertIn("Nodes", found["links"])
        self.assertTrue(found["targets"] and found["wide"])  # in a narrow window too
        self.assertLess(found["tree"], 700)
        self.assertIn("60 × Layer layers.0 to layers.59, 4 nodes each", found["fold"])
        self.assertEqual((found["inside_before"], found["inside_after"]), (0, 60))


if __name__ == "__main__":
    unittest.main()
