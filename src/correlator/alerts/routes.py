"""Which routes an alert takes: all that are for it, else the default ones."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from correlator.store.alert_routes import AlertRoute


class Subject(Struct, frozen=True):
    """What routes choose by."""

    owner: str | None = None
    namespaces: Sequence[str] = ()
    """Of the dataset that failed, and of the job."""
    severity: str = "error"


def routes_for(subject: Subject, routes: Sequence[AlertRoute]) -> list[AlertRoute]:
    fitting = [route for route in routes if _fits(route, subject)]
    return [route for route in fitting if not route.is_default] or fitting


def _fits(route: AlertRoute, subject: Subject) -> bool:
    """All that a route names has to fit; what it does not name fits everything."""
    owners = [] if subject.owner is None else [subject.owner]
    return all(
        not patterns or _any_fits(patterns, said)
        for patterns, said in (
            (route.owners, owners),
            (route.namespaces, subject.namespaces),
            (route.severities, [subject.severity]),
        )
    )


def _any_fits(patterns: Iterable[str], said: Iterable[str]) -> bool:
    expressions = [_expression(pattern) for pattern in patterns]
    return any(expression.fullmatch(text) for text in said for expression in expressions)


def _expression(pattern: str) -> re.Pattern[str]:
    """`*` for any characters and `?` for one, in upper or lower case: as for names that are ignored."""
    written = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(written, re.IGNORECASE | re.DOTALL)
