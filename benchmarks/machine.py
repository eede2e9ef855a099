"""The machine that figures were measured on: what they depend on, and nothing that tells whose it is."""

import os
import platform
import re
from pathlib import Path

import msgspec

from correlator.pipeline.java import NoJavaError, find_java
from correlator.store.installation import EmbeddedPostgresError, wheel_installations

# What makers add to the name of a CPU: trade marks, its clock, how many cores it has without the walls around us.
_NOISE = re.compile(r"\((?:R|TM)\)|@.*|\bCPU\b|\b\d+-Core\b|\bProcessor\b", re.IGNORECASE)


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    memory_gb: float
    python: str
    java: str
    postgres: str

    @property
    def slug(self) -> str:
        """For the name of a file: `amd-epyc-2-cores`."""
        words = re.findall(r"[a-z0-9]+", f"{_NOISE.sub(' ', self.cpu)} {self.cores_told}".lower())
        return "-".join(words)

    @property
    def cores_told(self) -> str:
        return f"{self.cores} core{'s' if self.cores > 1 else ''}"


def this_machine() -> Machine:
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        java=_java(),
        postgres=_postgres(),
    )


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _java() -> str:
    try:
        java = find_java()
    except NoJavaError:
        return "none"
    return str(java.version)


def _postgres() -> str:
    try:
        newest, *_ = wheel_installations()
    except EmbeddedPostgresError:
        return "none"
    return f"{newest.version}, embedded"
