"""Cases of the sweeps that are known to fail, each with its reason. The list can only shrink."""

KNOWN_FAILURES: dict[str, str] = {}
