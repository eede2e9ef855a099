"""The process that Spark forks its Python workers from: what they need is imported here once, not in each of them.

python -m correlator.pipeline.worker_daemon WORKER     as Spark itself calls it
"""

from importlib import import_module
from typing import Final

MODULE: Final = "correlator.pipeline.worker_daemon"

# No PyArrow: it starts threads, and a process that has some is not to be forked.
_NEEDED: Final = (
    "pyspark.worker",
    "correlator.pipeline.connections",
    "correlator.rulebook.fold",
    "correlator.rulebook.judging",
    "correlator.store.staging",
)


def prepare() -> None:
    """Import what a task will: of a worker's first two seconds, nearly all went into that."""
    for name in _NEEDED:
        import_module(name)


if __name__ == "__main__":
    prepare()
    import_module("pyspark.daemon").manager()
