"""`python -m tests.chaos`: kill everything at random moments under load, and see that nothing acknowledged is lost."""

import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

import click

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate
from tests.chaos.harm import HARMS
from tests.chaos.proxy import ProxyRounds, facts_of, send_directly
from tests.chaos.rounds import Rounds
from tests.integration.conftest import database_url, new_database, reachable_directory


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True)
@click.option("--seed", default=None, help="A word from an earlier run, for the same requests and the same harm.")
def command(rounds: int, seed: str | None) -> None:
    """Start a server, load it, harm it, look: so many times on one data directory."""
    seed = seed or secrets.token_hex(4)
    click.echo(f"seed {seed}")
    directory = Path(tempfile.mkdtemp(prefix="correlator-chaos-"))
    if os.geteuid() == 0:
        directory.chmod(0o711)
    # Every harm as often as every other, in an order that the seed decides.
    random = Random(seed)
    harms = [harm for _ in range(0, rounds, len(HARMS)) for harm in random.sample(HARMS, len(HARMS))][:rounds]
    try:
        Rounds(directory, seed, click.echo).play(harms)
    except BaseException as error:
        click.echo(
            f"\n{error}\n\nIt is left as it was in {directory}. Again: --rounds {rounds} --seed {seed}", err=True
        )
        if isinstance(error, AssertionError):
            sys.exit(1)
        raise
    shutil.rmtree(directory)
    click.echo("Everything that was acknowledged is there, once.")
    _play_proxy(rounds, seed)


def _play_proxy(rounds: int, seed: str) -> None:
    """The same for the proxy: killed again and again, with a backend that comes and goes."""
    with (
        reachable_directory() as directory,
        EmbeddedPostgres.open(directory / "postgres") as postgres,
        new_database(postgres) as name,
        new_database(postgres) as other,
    ):
        database = Database(database_url(postgres, name))
        migrate(database)
        played = ProxyRounds(directory, database, f"proxy {seed}", click.echo)
        try:
            played.play_kills(rounds)
        except AssertionError as error:
            click.echo(f"\n{error}\n\nAgain: --rounds {rounds} --seed {seed}", err=True)
            sys.exit(1)
        finally:
            played.close()
        undisturbed = Database(database_url(postgres, other))
        migrate(undisturbed)
        send_directly(directory, undisturbed, played.acknowledged)
        facts = [facts_of(directory / str(number), each) for number, each in enumerate((database, undisturbed))]
    if facts[0] != facts[1]:
        click.echo(f"The tables differ from those of an undisturbed run: {facts[0]} and {facts[1]}.", err=True)
        sys.exit(1)
    click.echo(
        f"The proxy was killed {played.kills} times. All {len(played.acknowledged):,} acknowledged events arrived, in "
        "order, and the backend's tables are those of an undisturbed run."
    )


if __name__ == "__main__":
    command()
