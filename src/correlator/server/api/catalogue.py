"""All that can be asked. Of two paths that fit a request the first counts."""

from typing import Final

from correlator.server.api import (
    alert_routes,
    alerts,
    datasets,
    health,
    ignored,
    incidents,
    jobs,
    keys,
    lineage,
    patterns,
    rejects,
    runs,
    search,
)
from correlator.server.api.operations import Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *incidents.OPERATIONS,
    *lineage.OPERATIONS,
    *jobs.OPERATIONS,
    *runs.OPERATIONS,
    *datasets.OPERATIONS,
    *search.OPERATIONS,
    *health.OPERATIONS,
    *patterns.OPERATIONS,
    *ignored.OPERATIONS,
    *keys.OPERATIONS,
    *rejects.OPERATIONS,
    *alert_routes.OPERATIONS,
    *alerts.OPERATIONS,
)

TAGS: Final = {
    "incidents": "What is wrong, why, and who is hurt. Scope `read`; to act on them, `act`.",
    "lineage": "Where data comes from and where it goes. Scope `read`.",
    "catalogue": "Jobs, runs, datasets, and how to find them. Scope `read`.",
    "health": "How well things are: what came in, who sends, what does not fit. Scope `read`.",
    "administration": "What people set up. Scope `admin`.",
}
