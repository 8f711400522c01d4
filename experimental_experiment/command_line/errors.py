"""What stops a command with one clear message."""

import os


class CommandError(Exception):
    """The command cannot go on: its message goes to the terminal, without a traceback.

    Attributes:
        status: exit status, 2 for a wrong command, 1 for an export that stopped; see `command_line`.
    """

    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status


def checked_seed(seed: int) -> int:
    """The seed of random numbers. Raises CommandError for a negative one."""
    if seed < 0:
        raise CommandError(f"--seed {seed}: a number that is not negative is needed")
    return seed


def existing(path: str) -> str:
    """The path of a file to read. Raises CommandError when there is none."""
    if not os.path.isfile(path):
        raise CommandError(f"the file {path!r} does not exist")
    return path
