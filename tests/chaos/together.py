"""`python -m tests.chaos.together`: all parts at once under load, and every few seconds one of them is killed.

Senders talk to the proxy, the proxy to `correlator up`, and whoever dies is started again: by `up` where that is its
work, else by us, as an operator's supervisor would. In the end everything that was acknowledged has to be in the log
once and in order, the tables have to be those of the plain fold, and `correlator audit` has to be content.
"""

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import click
import psycopg

from correlator.store.database import Database
from tests.chaos.proxy import Acknowledged, Senders, check
from tests.integration.cli.processes import Running
from tests.integration.conftest import reachable_directory
from tests.integration.pipeline.brokers import free_ports
from tests.integration.pipeline.histories import check_facts, positions
from tests.integration.proxy.proxies import Proxy
from tests.integration.server.running import embedded_url, family, kill_postgres, postmaster, signal_all, wait_until

_PAUSE_OF_SENDERS = 0.02


class Together:
    def __init__(self, directory: Path, seed: str) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._data.mkdir(mode=0o711)
        self._random = Random(seed)
        self._port, self._proxy_port = free_ports(2)
        self._starts = 0
        self.harms: dict[str, int] = {}
        self._up = self._start_up()
        self._proxy = self._start_proxy()

    @property
    def database(self) -> Database:
        return Database(embedded_url(self._data))

    def play(self, seconds: float, tell: Callable[[str], None]) -> list[Acknowledged]:
        ways = (
            self._kill_java,
            self._kill_pipeline,
            self._kill_postmaster,
            self._kill_backend,
            self._pause_postgres,
            self._kill_up,
            self._kill_proxy,
        )
        senders = Senders(self._proxy_port, "together", pause=_PAUSE_OF_SENDERS)
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                time.sleep(self._random.uniform(3, 20))
                way = self._random.choice(ways)
                name = way.__name__.strip("_").replace("_", " ")
                way()
                self.harms[name] = self.harms.get(name, 0) + 1
                tell(f"{len(senders.acknowledged):,} events acknowledged; {name}")
        except BaseException:
            senders.abandon()
            raise
        senders.finish()
        assert not senders.findings, "\n".join(senders.findings)
        return senders.acknowledged

    def judge(self, acknowledged: list[Acknowledged]) -> None:
        self._proxy.wait_until_forwarded()
        wait_until(self._is_merged, "the pipeline has read everything")
        with self.database.connect("chaos") as connection:
            log = [bytes(raw) for (raw,) in connection.execute("SELECT raw FROM kept.lineage_events ORDER BY position")]
        check(acknowledged, log)
        check_facts(self.database, log)
        told = subprocess.run(  # noqa: S603 (our own command)
            [sys.executable, "-m", "correlator.cli.main", "audit", "--data-dir", str(self._data)],
            check=False,
            capture_output=True,
            text=True,
        )
        assert told.returncode == 0, f"correlator audit:\n{told.stdout}\n{told.stderr}"

    def close(self) -> None:
        self._proxy.kill()
        signal_all([self._up.process.pid, *self._up.others()], signal.SIGKILL)
        self._up.process.wait()
        kill_postgres(self._data)

    def _is_merged(self) -> bool:
        with suppress(psycopg.OperationalError, FileNotFoundError), self.database.connect("chaos") as connection:
            row = connection.execute("SELECT position FROM kept.log_head").fetchone()
            return row is not None and positions(connection).get("facts", 0) == row[0]
        return False

    # --- who is harmed, and how

    def _kill_java(self) -> None:
        signal_all(self._up.others("org.apache.spark.deploy.SparkSubmit"), signal.SIGKILL)

    def _kill_pipeline(self) -> None:
        signal_all(self._up.others("spawn_main"), signal.SIGKILL)

    def _kill_postmaster(self) -> None:
        if (process := postmaster(self._data)) is not None:
            signal_all([process], signal.SIGKILL)

    def _kill_backend(self) -> None:
        """One that dies takes all others with it, and PostgreSQL recovers."""
        if (process := postmaster(self._data)) is not None:
            signal_all([self._random.choice(family(process)[1:] or [process])], signal.SIGKILL)

    def _pause_postgres(self) -> None:
        if (process := postmaster(self._data)) is not None:
            processes = family(process)
            signal_all(processes, signal.SIGSTOP)
            time.sleep(self._random.uniform(0.5, 5))
            signal_all(processes, signal.SIGCONT)

    def _kill_up(self) -> None:
        self._up.process.kill()
        self._up.process.wait()
        wait_until(lambda: not self._up.others("java") and not self._up.others("python"), "its pipeline has ended")
        self._up = self._start_up()

    def _kill_proxy(self) -> None:
        self._proxy.kill()
        self._proxy = self._start_proxy()

    # --- who is started

    def _start_up(self) -> Running:
        self._starts += 1
        started = Running(
            self._directory / f"up-{self._starts}.log",
            ("up", "--port", str(self._port), "--data-dir", str(self._data), "--spark-master", "local[2]"),
        )
        started.wait_for_words("listening on")
        return started

    def _start_proxy(self) -> Proxy:
        started = Proxy(
            self._directory,
            ("--port", str(self._proxy_port), "--destination", f"http://127.0.0.1:{self._port}"),
        )
        started.wait_for_line()
        return started


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", type=click.FloatRange(0.1), default=10.0, show_default=True)
@click.option("--seed", default=None, help="A word from an earlier run, for the same harm at the same distances.")
def command(minutes: float, seed: str | None) -> None:
    """Kill one part after the other under load, for so long, and see that nothing is lost, doubled or wrong."""
    seed = seed or secrets.token_hex(4)
    click.echo(f"seed {seed}")
    with reachable_directory() as directory:
        together = Together(directory, seed)
        try:
            acknowledged = together.play(minutes * 60, click.echo)
            together.judge(acknowledged)
        except AssertionError as error:
            click.echo(f"\n{error}\n\nAgain: --minutes {minutes} --seed {seed}", err=True)
            sys.exit(1)
        finally:
            together.close()
    harms = ", ".join(f"{name} {count}" for name, count in sorted(together.harms.items()))
    click.echo(
        f"All {len(acknowledged):,} acknowledged events are in the log once and in order, the tables are those of the "
        f"plain fold, and the audit is balanced, after: {harms}."
    )


if __name__ == "__main__":
    command()
