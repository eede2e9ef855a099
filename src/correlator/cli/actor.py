"""Who does what a command does: the user of this machine."""

import getpass
import os


def actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return f"uid {os.getuid()}"
