"""`python -m tests.chaos`: kill everything at random moments under load, and see that nothing acknowledged is lost."""

import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

import click

from tests.chaos.harm import HARMS
from tests.chaos.rounds import Rounds


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


if __name__ == "__main__":
    command()
