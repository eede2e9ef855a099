"""All fact tables of a database by a number each, however long they are."""

from correlator.store.database import Database

_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'facts' AND table_type = 'BASE TABLE'"


def fingerprints(database: Database) -> dict[str, tuple[int, int]]:
    """The rows of each table, and a sum of their hashes: they have no order, and nothing that tells when they came."""
    with database.connect("test") as connection:
        names = sorted(name for (name,) in connection.execute(_TABLES).fetchall())
        found = {}
        for name in names:
            query = f"SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM facts.{name} AS t"  # noqa: S608
            found[name] = connection.execute(query.encode()).fetchone()
    return {name: (int(row[0]), int(row[1])) for name, row in found.items() if row is not None}
