"""The site: ``python -m sphinx -W --keep-going docs docs/_build``.

The tutorials are the scripts of ``examples``, run while the site is built; the reference is made of docstrings.
"""

import os
import site
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "docs")]

import experimental_experiment  # noqa: E402
import figures  # noqa: E402
from experimental_experiment import command_line  # noqa: E402

project = "experimental_experiment"
release = version = experimental_experiment.__version__
html_title = f"experimental_experiment {version}"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "tutorials/*.py", "tutorials/*.ipynb", "tutorials/sg_execution_times.rst"]
default_role = "py:obj"  # what docstrings write between single quotes is a link where there is such an object
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes of a class in one list, as their docstring has them

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(__init__|llama_decoder)\.py$",  # llama_decoder: the model of another tutorial
    "copyfile_regex": r"index\.rst",
    "reference_url": {"experimental_experiment": None},
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "download_all_examples": False,
    "image_srcset": ["2x"],
}


def without_this_machine(app, docname, source):
    """Paths in what the scripts print: those of the repository are relative, those of packages start at the package."""
    if docname.startswith("tutorials/"):
        for folder in (ROOT, *site.getsitepackages(), os.path.dirname(os.__file__)):
            source[0] = source[0].replace(folder + os.sep, "")


def with_commands(app, docname, source):
    """The page of the command line ends with what ``--help`` prints for each command."""
    if docname == "reference/command_line":
        os.environ["COLUMNS"] = "100"  # the width of argparse's texts
        commands = command_line.parser()._subparsers._group_actions[0].choices
        for name, command in commands.items():
            source[0] += f"\n### {name}\n\n```text\n{command.format_help()}```\n"


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", figures.draw)
    app.connect("source-read", without_this_machine)
    app.connect("source-read", with_commands)
