"""The pages of docs/ lead where they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (ROOT / page).parent / file if file else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_found_from_another() -> None:
    linked = {
        ((ROOT / page).parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))
        if "://" not in link
    }
    lonely = [str(page) for page in PAGES if (ROOT / page).resolve() not in linked and page.name != "README.md"]
    # Decisions are reached through their directory.
    assert [page for page in lonely if not page.startswith("docs/adr/")] == []
