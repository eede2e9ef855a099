"""The database of a command: external if the settings name one, else the embedded one of the data directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from correlator.cli.options import CouldNotTellError
from correlator.config import CommonSettings
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres, EmbeddedPostgresError
from correlator.store.migrations import MigrationError, migrate

_DEFAULT_PORT: Final = "5432"


def embedded_directory(settings: CommonSettings) -> Path:
    return settings.data_dir / "postgres"


@contextmanager
def open_database(settings: CommonSettings) -> Iterator[Database]:
    """The database as it is. Whatever it does not answer inside ends the command with a sentence and exit code 2."""
    try:
        if settings.database_url is not None:
            with _told(settings.database_url):
                yield Database(settings.database_url)
        else:
            with EmbeddedPostgres.open(embedded_directory(settings)) as server, _told(server.url):
                yield Database(server.url, lambda: server.restarts)
    except (EmbeddedPostgresError, MigrationError) as error:
        raise CouldNotTellError(str(error)) from error


@contextmanager
def open_migrated_database(settings: CommonSettings) -> Iterator[Database]:
    """The database with every migration, so that keys can be made before the server has ever run."""
    with open_database(settings) as database:
        migrate(database)
        yield database


def place_of(url: str) -> str:
    """Where a database is, in words without a secret."""
    values = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    host = values.get("host") or values.get("hostaddr")
    name = values.get("dbname")
    where = f"{host}, port {values.get('port', _DEFAULT_PORT)}" if host else "the place that PGHOST or a service names"
    return f"{name!r} at {where}" if name else f"at {where}"


@contextmanager
def _told(url: str) -> Iterator[None]:
    try:
        place, secret = place_of(url), conninfo_to_dict(url).get("password")
    except psycopg.ProgrammingError:
        # Its words would quote a part of the URL, which may be the password.
        raise CouldNotTellError(
            "The database URL cannot be read. It looks like postgresql://user:password@host:5432/name, with "
            "%40 for an @ inside the password and the like."
        ) from None
    try:
        yield
    except psycopg.Error as error:
        words = " ".join(str(error).split()) or type(error).__name__
        if isinstance(secret, str) and secret:
            words = words.replace(secret, "***")
        what = "does not answer" if isinstance(error, psycopg.OperationalError) else "refused"
        raise CouldNotTellError(f"The database {place} {what}: {words}") from error
