"""A machine on which some programs are not installed, for who looks for them on the PATH."""

import os
from pathlib import Path


def path_without(directory: Path, *names: str) -> str:
    """A PATH of all programs but these."""
    programs = directory / "programs"
    programs.mkdir(parents=True)
    for place in os.get_exec_path():
        for program in sorted(Path(place).iterdir()) if Path(place).is_dir() else ():
            link = programs / program.name
            if program.name not in names and not link.is_symlink():
                link.symlink_to(program)
    return str(programs)
