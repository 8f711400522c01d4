"""What the package has to say: one logger, named as the package is."""

from __future__ import annotations

import logging

logger = logging.getLogger("experimental_experiment")
