"""Incidents that somebody may have to be told of: entered by whoever finds them, looked at by `alerts`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import psycopg

from correlator.store.ledger import facts_as_of

# One probe for each; of those that are known already nothing is written.
_SEE: Final = """
INSERT INTO kept.alert_watch (failure_id)
SELECT id FROM facts.incidents WHERE id = ANY (%s::uuid[]) AND resolved_at IS NULL
ON CONFLICT (failure_id) DO NOTHING
"""

# An event's own time lies before its arrival: by so much, for what is on its way.
_ON_ITS_WAY: Final = timedelta(minutes=5)

# In the index of what is open, from that moment on.
_SEE_IN: Final = """
INSERT INTO kept.alert_watch (failure_id)
SELECT incident.id FROM {schema}.incidents AS incident
WHERE incident.resolved_at IS NULL AND incident.opened_at >= %s
  AND NOT EXISTS (
      SELECT FROM {schema}.failures AS failure JOIN facts.failures AS known ON known.id = failure.id
      WHERE failure.incident_id = incident.id
  )
ON CONFLICT (failure_id) DO NOTHING
"""


def see(connection: psycopg.Connection[Any], incidents: Sequence[UUID]) -> None:
    """Within the transaction that found or changed them."""
    if incidents:
        connection.execute(_SEE, [list(incidents)])


def see_what_came_meanwhile(connection: psycopg.Connection[Any], schema: str) -> None:
    """Of the tables that take the place of `facts` now: what no merge will find, because it is in them already.

    A replay finds nothing new, but it reads on to the end of the log. What the pipeline had not merged by then is news.
    """
    since = facts_as_of(connection) - _ON_ITS_WAY
    connection.execute(_SEE_IN.format(schema=schema).encode(), [since])
