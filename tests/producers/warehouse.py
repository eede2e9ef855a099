"""A PostgreSQL for the tools to work on, reached as any other: by host and port."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

from correlator.store.installation import Account, wheel_installations
from tests.integration.conftest import reachable_directory
from tests.integration.pipeline.brokers import free_ports
from tests.integration.server.running import wait_until


class Warehouse(NamedTuple):
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://shop@localhost:{self.port}/shop"

    @property
    def namespace(self) -> str:
        """As OpenLineage calls it."""
        return f"postgres://localhost:{self.port}"

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@contextmanager
def warehouse() -> Iterator[Warehouse]:
    """With a database `shop` of a user `shop`, who needs no password."""
    with reachable_directory() as directory:
        account = Account.for_directory(directory)
        (newest, *_) = wheel_installations()
        programs = newest if newest.usable_by(account) else newest.copied_to(directory / "programs")
        data = directory / "data"
        data.mkdir()
        if not account.is_me:
            shutil.chown(data, account.uid, account.gid)
        (port,) = free_ports(1)
        made = account.run([programs.program("initdb"), "-D", data, "-U", "shop", "-A", "trust", "-N"])
        assert made.returncode == 0, made.stderr
        options = f"-h localhost -p {port} -k '' -c fsync=off"
        control: list[str | Path] = [programs.program("pg_ctl"), "-D", data, "-w"]
        started = account.run([*control, "-l", data / "log", "-o", options, "start"])
        assert started.returncode == 0, (data / "log").read_text()
        try:
            url = f"postgresql://shop@localhost:{port}/postgres"
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE shop")
            yield Warehouse(port)
        finally:
            account.run([*control, "-m", "immediate", "stop"])
            wait_until(lambda: not (data / "postmaster.pid").exists(), "the warehouse is closed")
