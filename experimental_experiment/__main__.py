"""``python -m experimental_experiment``: see `command_line`."""

import sys

from experimental_experiment.command_line import main

sys.exit(main())
