"""`ge-correlator`: what is installed. The action itself is set up in a checkpoint."""

from importlib.metadata import PackageNotFoundError, version

import click

from correlator import __version__


def _versions() -> str:
    try:
        tool = f"great_expectations {version('great_expectations')}"
    except PackageNotFoundError:
        tool = "great_expectations is not installed: pip install 'openlineage-correlator[great-expectations]'"
    return f"ge-correlator {__version__} ({tool})"


@click.command("ge-correlator", context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, message=_versions())
def main() -> None:
    """Great Expectations tells Correlator what it has found.

    There is nothing to run here. Give a checkpoint the action:

    \b
      from correlator.integrations.great_expectations import CorrelatorValidationAction
      CorrelatorValidationAction(name="correlator", correlator_endpoint="http://localhost:8080")
    """  # noqa: D301 (click's mark for a paragraph that is not wrapped)


if __name__ == "__main__":
    main()
