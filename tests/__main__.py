"""Run the tests: ``python -m tests`` all of them, ``python -m tests _unittests.ut_helpers.test_pretty_onnx ...`` some files."""

import sys

from tests.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
