"""What is built for others: the package in the wheel and in the source archive, and nothing else."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = "experimental_experiment"
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.cfg")
"""What a build reads besides the package."""

BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist'); build_meta.build_sdist('dist')"


class TestDistribution(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name in FILES:
            shutil.copy(ROOT / name, cls.folder / name)
        for name in ("tests", "_unittests"):
            os.mkdir(cls.folder / name)
            (cls.folder / name / "test_nothing.py").write_text("")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / PACKAGE, cls.folder / PACKAGE, ignore=ignored)
        done = subprocess.run([sys.executable, "-c", BUILD], cwd=cls.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        cls.sources = {
            path.relative_to(cls.folder).as_posix()
            for path in (cls.folder / PACKAGE).rglob("*")
            if path.is_file()
        }

    def test_the_wheel_holds_the_package(self):
        (path,) = (self.folder / "dist").glob("*.whl")
        names = set(zipfile.ZipFile(path).namelist())
        self.assertEqual({name for name in names if ".dist-info/" not in name}, self.sources)
        self.assertIn(f"{PACKAGE}/py.typed", names)

    def test_the_source_archive_holds_the_package(self):
        (path,) = (self.folder / "dist").glob("*.tar.gz")
        with tarfile.open(path) as archive:
            names = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
        files = {name for name in names if name.startswith(f"{PACKAGE}/") and os.path.splitext(name)[1]}
        self.assertEqual(files, self.sources)
        others = {name.partition("/")[0] for name in names} - {PACKAGE, f"{PACKAGE}.egg-info"}
        self.assertEqual(others, {*FILES, "PKG-INFO"})

    def test_the_wheel_is_installed_and_imported_alone(self):
        """In a folder of its own, before all others: nothing of this checkout is needed."""
        (path,) = (self.folder / "dist").glob("*.whl")
        target = self.folder / "installed"
        zipfile.ZipFile(path).extractall(target)
        code = f"import sys; sys.path.insert(0, {str(target)!r}); from {PACKAGE}.torch_interpreter import catalog; print(catalog.__file__, len(catalog.markdown()) > 1000)"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder / "dist", capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith(str(target)), done.stdout)
        self.assertTrue(done.stdout.endswith("True\n"))


if __name__ == "__main__":
    unittest.main()
