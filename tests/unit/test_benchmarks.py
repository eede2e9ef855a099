"""All benchmarks in one run: what they find is collected, told in one table, and kept with nothing private in it."""

import re
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from benchmarks import readme
from benchmarks.__main__ import main
from benchmarks.figures import FILE, Aim, Figure, at_least, at_most, figure, figures_in
from benchmarks.machine import Machine, this_machine
from benchmarks.pipeline import measure
from benchmarks.report import Conditions, headlines, page, rounded, without_places
from benchmarks.suite import ROOT, SUITE, Benchmark, Outcome, run

MACHINE = Machine("AMD EPYC", 2, 24.7, "CPython 3.11.7", "17", "18.4, embedded")
OUTCOME = Outcome("fast", "python -m fast", 0, 12.3, "it went well\n", (Figure("speed", 12_345.6, "events/s"),))

FOUND_WELL = """
import sys
from benchmarks.figures import at_least, at_most, figure
print("begins with", *sys.argv[1:])
figure("rate", 5200, "events/s", at_least(5000))
figure("delay", 0.31, "s", at_most(0.3))
print("ends")
"""
WAITS_TO_BE_SEEN = """
import sys, time
from pathlib import Path
sys.stdout.buffer.write(b"one caf\\xc3")
deadline = time.monotonic() + 60
while not Path(sys.argv[1]).exists():
    assert time.monotonic() < deadline, "nobody has seen it"
    time.sleep(0.01)
sys.stdout.buffer.write(b"\\xa9")
"""
FAILS = """
from benchmarks.figures import figure
figure("half of it", 1, "s")
raise SystemExit("There is no browser in /usr/local/bin here")
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Benchmark]:
    """One that fails, and after it one that does not."""
    (tmp_path / "fails_at_once.py").write_text(FAILS)
    (tmp_path / "found_well.py").write_text(FOUND_WELL)
    (tmp_path / "waits_to_be_seen.py").write_text(WAITS_TO_BE_SEEN)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    return [Benchmark("fails_at_once"), Benchmark("found_well", short=("little",), full=("much",))]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if "---" not in line]


# Figures


def test_a_figure_is_kept_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "figures"
    monkeypatch.setenv(FILE, str(file))

    figure("rate", 5200, "events/s", at_least(5000))
    figure("time", 1.5, "µs")

    assert figures_in(file) == [Figure("rate", 5200, "events/s", at_least(5000)), Figure("time", 1.5, "µs")]


def test_without_that_a_figure_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE, raising=False)
    monkeypatch.chdir(tmp_path)

    figure("rate", 5200, "events/s")

    assert list(tmp_path.iterdir()) == []
    assert figures_in(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("aim", "value", "is_held"),
    [
        (at_most(10), 9.9, True),
        (at_most(10), 10, True),
        (at_most(10), 10.1, False),
        (at_least(3), 3, True),
        (at_least(3), 2.9, False),
    ],
)
def test_an_aim_is_held_up_to_its_bound(aim: Aim, value: float, *, is_held: bool) -> None:
    assert aim.is_held_by(value) == is_held


# The table


def test_the_table_says_what_was_aimed_at_and_whether_it_was_held() -> None:
    found = msgspec.structs.replace(
        OUTCOME,
        figures=(
            Figure("speed", 12_345.6, "events/s", at_least(12_000)),
            Figure("delay", 51.26, "ms", at_most(50)),
            Figure("memory", 4.321, "GB"),
        ),
    )

    assert cells(headlines([found], [Figure("all of it", 14, "min", at_most(15))])) == [
        ["benchmark", "figure", "value", "aim", ""],
        ["fast", "speed", "12,346 events/s", "at least 12,000 events/s", "held"],
        ["fast", "delay", "51.3 ms", "at most 50 ms", "missed"],
        ["fast", "memory", "4.32 GB", "", ""],
        ["all", "all of it", "14.0 min", "at most 15 min", "held"],
    ]


def test_every_line_of_the_table_is_as_long_as_the_others() -> None:
    lines = headlines([OUTCOME, msgspec.structs.replace(OUTCOME, benchmark="with | a bar", status=3)]).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert r"with \| a bar" in lines[-1]


def test_a_benchmark_that_failed_is_told_with_its_last_words_after_what_it_found() -> None:
    failed = msgspec.structs.replace(OUTCOME, status=1, said="begins\nNo disk is left.\n\n")

    assert cells(headlines([failed]))[1:] == [
        ["fast", "speed", "12,346 events/s", "", ""],
        ["fast", "exit status 1: No disk is left.", "", "", "failed"],
    ]


def test_one_that_says_nothing_or_finds_nothing_is_told_too() -> None:
    silent = msgspec.structs.replace(OUTCOME, said="", figures=())

    assert cells(headlines([silent]))[1:] == [["fast", "no figure was told", "", "", ""]]
    killed = msgspec.structs.replace(silent, status=-9)
    assert cells(headlines([killed]))[1:] == [["fast", "exit status -9: it said nothing", "", "", "failed"]]


@pytest.mark.parametrize(
    ("value", "told"), [(0.0312, "0.03"), (9.876, "9.88"), (45.67, "45.7"), (456.7, "457"), (45_678.9, "45,679")]
)
def test_figures_have_three_digits(value: float, told: str) -> None:
    assert rounded(value) == told


# The page


def test_the_page_has_machine_date_commit_table_and_all_that_was_said() -> None:
    conditions = Conditions(
        MACHINE, "make bench", datetime(2026, 5, 4, 10, 30, tzinfo=UTC), timedelta(minutes=14), "abc1234", 0.25
    )

    written = page([OUTCOME], [], conditions)

    for line in (
        "# Figures of AMD EPYC, 2 cores",
        "| memory | 25 GB |",
        "| Python | CPython 3.11.7 |",
        "| Java | 17 |",
        "| PostgreSQL | 18.4, embedded |",
        "| date | 2026-05-04 10:30 UTC |",
        "| commit | abc1234 |",
        "| command | `make bench`, 14.0 minutes |",
        "| load before it began | 0.25 |",
        "## fast",
        "`python -m fast`, 12 s",
        "it went well",
        *headlines([OUTCOME]).splitlines(),
    ):
        assert line in written.splitlines(), line


def test_neither_directories_nor_the_name_of_the_machine_are_kept() -> None:
    said = f'File "/home/me/work/benchmarks/ingest.py" on {socket.gethostname()}: file:///var/data/log is not /tmp/a/b'

    assert without_places(said) == 'File "…/ingest.py" on this-machine: file:…/log is not …/b'


@pytest.mark.parametrize(
    "said",
    ["4,260 events/s", "http://127.0.0.1:9/api/v1/lineage", "stage/merge/sweep", "~/.local/share/x", "a / b / c"],
)
def test_what_only_looks_like_a_directory_is_kept(said: str) -> None:
    assert without_places(said) == said


@pytest.mark.parametrize(
    ("cpu", "cores", "slug"),
    [
        ("AMD EPYC", 2, "amd-epyc-2-cores"),
        ("AMD EPYC 7763 64-Core Processor", 4, "amd-epyc-7763-4-cores"),
        ("Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", 1, "intel-xeon-platinum-8370c-1-core"),
        ("aarch64", 8, "aarch64-8-cores"),
    ],
)
def test_the_page_is_named_after_the_processor(cpu: str, cores: int, slug: str) -> None:
    assert msgspec.structs.replace(MACHINE, cpu=cpu, cores=cores).slug == slug


def test_this_machine_is_described() -> None:
    machine = this_machine()

    assert machine.cores >= 1
    assert machine.memory_gb > 0.5
    assert re.fullmatch(r"[a-z0-9-]+-cores?", machine.slug)
    assert machine.python.endswith(".".join(map(str, sys.version_info[:3])))


# The README


def test_the_readme_has_the_figures_of_its_page_and_the_missed_ones_among_them() -> None:
    written = readme.README.read_text(encoding="utf-8")
    page_quoted = readme.PAGE.read_text(encoding="utf-8")
    block = written.partition(readme.BEGIN)[2].partition(readme.END)[0]
    quoted = [tuple(row[1:]) for row in cells(block[block.index("\n| ") :].strip())[1:]]

    assert {(row.value, row.aim, row.verdict) for row in readme.rows_of(page_quoted)} >= set(quoted)
    assert {"held", "missed"} <= {verdict for *_, verdict in quoted}
    assert readme.with_figures(written, page_quoted) == written, "run: python -m benchmarks.readme"


def test_the_readme_follows_its_page_and_keeps_what_is_around_the_figures(tmp_path: Path) -> None:
    found = msgspec.structs.replace(
        OUTCOME, benchmark="proxy", figures=(Figure("start to ready", 1.25, "s", at_most(1)),)
    )
    conditions = Conditions(
        MACHINE, "make bench", datetime(2026, 5, 4, 10, 30, tzinfo=UTC), timedelta(minutes=14), "abc1234", 0.25
    )
    (tmp_path / "page.md").write_text(page([found], [], conditions), "utf-8")
    (tmp_path / "README.md").write_text(f"before\n{readme.BEGIN}\nof yesterday\n{readme.END}\nafter\n", "utf-8")

    told = readme.refresh(tmp_path / "README.md", tmp_path / "page.md")

    assert (tmp_path / "README.md").read_text(encoding="utf-8").splitlines() == [
        "before",
        readme.BEGIN,
        "AMD EPYC, 2 cores, Python 3.11.7, Java 17, 2026-05-04.",
        "Commit abc1234; of all aims 0 were held and 1 missed.",
        "",
        "| | measured | aimed at | |",
        "|---|---|---|---|",
        "| the proxy, to ready | 1.25 s | at most 1 s | missed |",
        "",
        readme.END,
        "after",
    ]
    assert "it has no figure for proxy: acknowledged on one core" in told


# Running them


def test_what_a_benchmark_says_is_shown_and_what_it_found_is_collected(suite: list[Benchmark]) -> None:
    shown: list[str] = []

    outcome = run(suite[1], ("little",), shown.append)

    assert (outcome.status, outcome.command) == (0, "python -m found_well little")
    assert "".join(shown) == outcome.said == "begins with little\nends\n"
    assert outcome.figures == (
        Figure("rate", 5200, "events/s", at_least(5000)),
        Figure("delay", 0.31, "s", at_most(0.3)),
    )


@pytest.mark.usefixtures("suite")
def test_it_is_shown_while_the_benchmark_runs_and_a_letter_may_come_in_halves(tmp_path: Path) -> None:
    def show(text: str) -> None:
        if text:
            (tmp_path / "seen").touch()

    outcome = run(Benchmark("waits_to_be_seen"), (str(tmp_path / "seen"),), show)

    assert (outcome.status, outcome.said) == (0, "one café")


def test_one_that_fails_does_not_keep_the_others_from_running_and_all_is_kept(
    suite: list[Benchmark], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"

    assert main([], suite, results) == 1

    told = capsys.readouterr().out
    (file,) = results.iterdir()
    assert file.name == f"{this_machine().slug}.md"
    kept = file.read_text(encoding="utf-8")
    (table,) = re.findall(r"\n\n(\| benchmark .+?)\n\n", kept, re.DOTALL)
    assert table in told
    assert [(row[0], row[4]) for row in cells(table)[1:]] == [
        ("fails_at_once", ""),
        ("fails_at_once", "failed"),
        ("found_well", "held"),
        ("found_well", "missed"),
        ("all", "held"),
    ]
    assert "begins with little\nends" in kept
    assert "begins with little\nends" in told
    assert "There is no browser in …/bin here" in kept
    assert str(tmp_path) not in kept


def test_the_full_form_has_arguments_and_a_page_of_its_own(suite: list[Benchmark], tmp_path: Path) -> None:
    assert main(["--full"], suite[1:], tmp_path / "results") == 0

    (file,) = (tmp_path / "results").iterdir()
    assert file.name == f"{this_machine().slug}-full.md"
    assert "begins with much" in file.read_text(encoding="utf-8")


def test_some_can_be_run_alone_and_nothing_is_kept_then(
    suite: list[Benchmark], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--only", "found_well"], suite, tmp_path / "results") == 0

    assert not (tmp_path / "results").exists()
    assert "fails_at_once" not in capsys.readouterr().out


def test_an_unknown_name_is_answered_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "ingets"])

    assert "'ingest'" in capsys.readouterr().err


# The list


def test_every_benchmark_is_in_the_list_and_in_the_manual() -> None:
    programs = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")
    }
    # Parts that others start, and what is done with the figures.
    programs -= {"__main__", "baselines", "load", "proxy_backend", "readme"}

    assert {benchmark.name for benchmark in SUITE} == programs
    manual = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert {name for name in programs if f"\n| `{name}` |" not in manual} == set()


@pytest.mark.parametrize("benchmark", SUITE, ids=lambda benchmark: benchmark.name)
def test_every_benchmark_knows_its_arguments_and_tells_figures(benchmark: Benchmark) -> None:
    source = (ROOT / f"{benchmark.module.replace('.', '/')}.py").read_text(encoding="utf-8")
    options = [word for word in benchmark.short + benchmark.full if word.startswith("--")]

    assert [option for option in options if f'add_argument("{option}"' not in source] == []
    assert re.search(r"^ +figure\(", source, re.MULTILINE)


def test_the_module_itself_runs_from_the_root() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert "--only" in asked.stdout


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell shares of memory")
def test_the_memory_of_work_that_is_over_at_once_is_looked_at_all_the_same() -> None:
    assert measure(lambda: None).peak_mb > 1
