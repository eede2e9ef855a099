"""Names that are hidden from questions: the noise of tests and sandboxes.

A pattern is a text in which `*` stands for any number of characters and `?` for one; all else is meant as it is, in
upper or lower case. A namespace is hidden with all its jobs and datasets; a job goes by `namespace/name`, a dataset by
its URN. What is hidden is stored all the same: take the pattern away, and it is there again.
"""

import re
from typing import Any, Final, Literal, TypeAlias

import psycopg
from msgspec import Struct
from psycopg.rows import class_row

from correlator.store.moments import Moment

Kind: TypeAlias = Literal["namespace", "job", "dataset"]

_LOAD: Final = "SELECT kind, pattern FROM kept.ignored_names ORDER BY kind, pattern"


class Ignored(Struct, frozen=True):
    """All patterns, as PostgreSQL's LIKE has them."""

    namespaces: list[str] = []
    jobs: list[str] = []
    datasets: list[str] = []

    @classmethod
    def load(cls, connection: psycopg.Connection[Any]) -> "Ignored":
        found: dict[str, list[str]] = {"namespace": [], "job": [], "dataset": []}
        for kind, pattern in connection.execute(_LOAD):
            found[kind].append(like(pattern))
        return cls(found["namespace"], found["job"], found["dataset"])

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.jobs or self.datasets)

    def hides_job(self, namespace: str, name: str) -> bool:
        return bool(self) and (_fits(namespace, self.namespaces) or _fits(f"{namespace}/{name}", self.jobs))

    def hides_dataset(self, namespace: str, urn: str) -> bool:
        return bool(self) and (_fits(namespace, self.namespaces) or _fits(urn, self.datasets))

    @property
    def parameters(self) -> dict[str, list[str]]:
        """What `sql_of_jobs` and `sql_of_datasets` ask for."""
        return {
            "ignored_namespaces": self.namespaces,
            "ignored_jobs": self.jobs,
            "ignored_datasets": self.datasets,
        }


def sql_of_jobs(namespace: str, name: str) -> str:
    """A condition: whether a job is not hidden."""
    return (
        f"({namespace} ILIKE ANY (%(ignored_namespaces)s::text[])) IS NOT TRUE "
        f"AND ({namespace} || '/' || {name} ILIKE ANY (%(ignored_jobs)s::text[])) IS NOT TRUE"
    )


def sql_of_datasets(namespace: str, urn: str) -> str:
    """A condition: whether a dataset is not hidden."""
    return (
        f"({namespace} ILIKE ANY (%(ignored_namespaces)s::text[])) IS NOT TRUE "
        f"AND ({urn} ILIKE ANY (%(ignored_datasets)s::text[])) IS NOT TRUE"
    )


def like(pattern: str) -> str:
    escaped = re.sub(r"([\\%_])", r"\\\1", pattern)
    return escaped.replace("*", "%").replace("?", "_")


def _fits(text: str, patterns: list[str]) -> bool:
    return any(_expression(pattern).fullmatch(text) is not None for pattern in patterns)


_expressions: Final[dict[str, re.Pattern[str]]] = {}


def _expression(pattern: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression."""
    known = _expressions.get(pattern)
    if known is None:
        parts = re.findall(r"\\(.)|(%)|(_)|(.)", pattern, re.DOTALL)
        text = "".join(
            ".*" if many else "." if one else re.escape(escaped or plain) for escaped, many, one, plain in parts
        )
        known = _expressions[pattern] = re.compile(text, re.DOTALL | re.IGNORECASE)
    return known


class IgnoredName(Struct, frozen=True, kw_only=True):
    id: int
    kind: Kind
    pattern: str
    created_at: Moment
    created_by: str


_COLUMNS: Final = "id, kind, pattern, created_at, created_by"
_LIST: Final = f"SELECT {_COLUMNS} FROM kept.ignored_names ORDER BY kind, pattern, id"  # noqa: S608 (a constant)
# One that is there already is that one.
_ADD: Final = f"""
INSERT INTO kept.ignored_names (kind, pattern, created_by) VALUES (%s, %s, %s)
ON CONFLICT (kind, pattern) DO UPDATE SET pattern = excluded.pattern RETURNING {_COLUMNS}
"""  # noqa: S608


def list_ignored(connection: psycopg.Connection[Any]) -> list[IgnoredName]:
    with connection.cursor(row_factory=class_row(IgnoredName)) as cursor:
        return cursor.execute(_LIST).fetchall()


def ignore(connection: psycopg.Connection[Any], kind: Kind, pattern: str, *, actor: str) -> IgnoredName:
    with connection.cursor(row_factory=class_row(IgnoredName)) as cursor:
        added = cursor.execute(_ADD, [kind, pattern, actor]).fetchone()
    assert added is not None  # noqa: S101 (RETURNING)
    return added


def show_again(connection: psycopg.Connection[Any], number: int) -> bool:
    return connection.execute("DELETE FROM kept.ignored_names WHERE id = %s", [number]).rowcount == 1
