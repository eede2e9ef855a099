"""The README's figures, which are those of one page of results and of nothing else.

python -m benchmarks.readme     writes them anew; `make bench` does it too when it has written that page
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.suite import ROOT

README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "benchmarks" / "results" / "amd-epyc-2-cores.md"

BEGIN: Final = "<!-- figures: written by python -m benchmarks.readme -->"
END: Final = "<!-- end of figures -->"

# A handful for who asks how fast it is, missed ones among them: the benchmark, how its figure begins, and our words.
CHOSEN: Final = (
    ("validation", "an event judged, the next day's runs", "judging an event of 2.9 KB, every standard facet typed"),
    ("validation", "the same: orjson + jsonschema-rs takes", "… `orjson` + `jsonschema-rs`, a yes or no only, takes"),
    ("validation", "the same: json + jsonschema takes", "… `json` + `jsonschema` takes"),
    ("validation", "every facet new: orjson", "… if no facet was ever seen before, `orjson` + `jsonschema-rs` takes"),
    ("ingest", "single events, 32 connections", "events on disk, one in each request"),
    ("ingest", "the same, beside one INSERT", "… beside one INSERT for each event"),
    ("ingest", "the same, p99", "… 99 of 100 answers within"),
    ("ingest", "batches of 100, 32 connections", "events on disk, 100 in each request"),
    ("freshness", "answered to merged, 200 events/s, p95", "from its 200 to its fact, 95 of 100 events within"),
    ("freshness", "server and pipeline with nothing to do", "server and pipeline with nothing to do"),
    ("pipeline", "200,000 events, the same into PostgreSQL", "bulk load from files into PostgreSQL, through Spark"),
    ("incidents", "1,000,000 runs, p95", "an incident with cause and impact among a million runs, 95 of 100 within"),
    ("pages", "an incident's page, to its cause", "its page in a browser, to the cause"),
    ("start", "another with the same data", "`correlator up` with data, to ready"),
    ("proxy", "start to ready", "the proxy, to ready"),
    ("proxy", "acknowledged on one core", "… events on its disk, on one core"),
)


class Row(msgspec.Struct, frozen=True):
    """Of the table of headlines, as it is written there."""

    benchmark: str
    figure: str
    value: str
    aim: str
    verdict: str


def rows_of(page: str) -> list[Row]:
    table = page.partition("\n| benchmark ")[2].partition("\n\n")[0]
    lines = table.splitlines()[2:]
    return [Row(*(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])) for line in lines]


def described(page: str) -> dict[str, str]:
    """What the page says of machine and day."""
    return dict(re.findall(r"^\| ([A-Za-z ]+) \| (.+) \|$", page.partition("\n| benchmark ")[0], re.MULTILINE))


def quotation(page: str) -> str:
    """The figures that were chosen, as far as the page has them."""
    about, rows = described(page), rows_of(page)
    held, missed = (sum(row.verdict == verdict for row in rows) for verdict in ("held", "missed"))
    lines = [
        f"{about['CPU']}, Python {about['Python'].rpartition(' ')[2]}, Java {about['Java']}, {about['date'][:10]}.",
        f"Commit {about['commit']}; of all aims {held} were held and {missed} missed.",
        "",
        "| | measured | aimed at | |",
        "|---|---|---|---|",
        *(f"| {words} | {row.value} | {row.aim} | {row.verdict} |" for words, row in _chosen(rows)),
    ]
    return "\n".join(lines)


def _chosen(rows: list[Row]) -> Iterator[tuple[str, Row]]:
    for benchmark, beginning, words in CHOSEN:
        found = next((row for row in rows if row.benchmark == benchmark and row.figure.startswith(beginning)), None)
        if found is not None:
            yield words, found


def not_found(page: str) -> list[str]:
    """Of a benchmark that has failed, or that the page does not know yet."""
    told = {words for words, _ in _chosen(rows_of(page))}
    return [f"{benchmark}: {beginning}" for benchmark, beginning, words in CHOSEN if words not in told]


def with_figures(readme: str, page: str) -> str:
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"The README has no place for figures: {BEGIN} … {END}")
    return f"{before}{begin}\n{quotation(page)}\n\n{end}{after}"


def refresh(readme: Path = README, page: Path = PAGE) -> str:
    """Write them, and say what was done."""
    figures = page.read_text(encoding="utf-8")
    readme.write_text(with_figures(readme.read_text(encoding="utf-8"), figures), "utf-8")
    missing = "".join(f"\nit has no figure for {each}" for each in not_found(figures))
    return f"{readme.name} quotes {page.name}{missing}"


if __name__ == "__main__":
    print(refresh())
