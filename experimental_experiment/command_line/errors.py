"""What stops a command with one clear message."""


class CommandError(Exception):
    """The command cannot go on: its message goes to the terminal, without a traceback.

    Attributes:
        status: exit status, 2 for a wrong command, 1 for an export that stopped; see `command_line`.
    """

    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status
