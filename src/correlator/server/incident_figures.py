"""What the server tells of incidents, as the database has them."""

from collections.abc import Callable, Sequence

from correlator.correlation.incident_list import Unresolved
from correlator.http.metrics import Readings


def incident_figures(look: Callable[[], Sequence[Unresolved]]) -> tuple[Readings, ...]:
    """Every worker sees the same database: together they have what the last one saw."""
    return (
        Readings(
            "correlator_incidents",
            "Incidents that nothing has ended yet, by status, kind, and whether they are a root or a consequence.",
            ("status", "kind", "place"),
            lambda: [
                ((each.status, each.kind, "root" if each.is_root else "consequence"), each.incidents) for each in look()
            ],
        ),
    )
