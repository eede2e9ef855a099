"""The pages themselves."""

import re
from pathlib import Path

import pytest

from tests.producers.pages import DIRECTORY, Page, run

ROOT = DIRECTORY.parents[1]
PAGES = sorted(path.name for path in DIRECTORY.glob("*.md"))


@pytest.mark.parametrize("name", [name for name in PAGES if name != "README.md"])
def test_a_page_names_the_test_that_types_it_and_that_test_reads_it(name: str) -> None:
    (test,) = re.findall(r"`(tests/producers/\w+\.py)`", " ".join(Page(name).text.split()))

    assert f'"{name}"' in (ROOT / test).read_text() or f'"{name.removesuffix(".md")}"' in (ROOT / test).read_text()
    assert Page(name).commands("Run")


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", Page(name).text) if "://" not in link]

    for file, _, anchor in (link.partition("#") for link in links):
        target = (DIRECTORY / file).resolve() if file else DIRECTORY / name
        assert target.exists(), file
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def test_the_list_of_pages_has_all_of_them() -> None:
    assert set(re.findall(r"^\| \[[^\]]+\]\((\S+\.md)\)", Page("README.md").text, re.MULTILINE)) == {*PAGES} - {
        "README.md"
    }


def test_commands_are_run_as_they_are_typed(tmp_path: Path) -> None:
    done = run(["export WORD='two words'", 'echo \\\n  "$WORD" in $(basename $PWD)'], tmp_path)

    assert done.stdout == f"two words in {tmp_path.name}\n"
