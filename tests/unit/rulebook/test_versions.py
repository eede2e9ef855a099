from correlator.rulebook.versions import Kin, Read, Write, responsible_write

TEST = Kin(b"test")


def write(run: str, at: int, kind: str = "complete", *, parent: str | None = None, version: str | None = None) -> Write:
    family = None if parent is None else parent.encode()
    return Write(Kin(run.encode(), family, family), at, kind, version)  # type: ignore[arg-type]


def run_of(found: Write | None) -> str | None:
    return None if found is None else found.by.run.decode()


def test_the_last_write_before_the_read_is_what_it_saw() -> None:
    writes = [write("first", 10), write("second", 20), write("later", 40)]

    assert run_of(responsible_write(Read(TEST, 30), writes)) == "second"


def test_a_write_after_the_read_was_not_seen() -> None:
    assert responsible_write(Read(TEST, 30), [write("later", 31)]) is None


def test_a_write_at_the_very_moment_of_the_read_was_seen() -> None:
    assert run_of(responsible_write(Read(TEST, 30), [write("before", 10), write("now", 30)])) == "now"


def test_nobody_is_blamed_when_nobody_wrote() -> None:
    assert responsible_write(Read(TEST, 30), []) is None


def test_the_order_in_which_writes_are_given_changes_nothing() -> None:
    writes = [write("a", 20), write("b", 20), write("c", 10)]

    assert run_of(responsible_write(Read(TEST, 30), writes)) == run_of(responsible_write(Read(TEST, 30), writes[::-1]))


def test_a_failed_run_that_only_names_the_dataset_wrote_nothing_that_was_read() -> None:
    writes = [write("good", 10), write("failed", 20, "attempt")]

    assert run_of(responsible_write(Read(TEST, 30), writes)) == "good"


def test_a_failed_run_that_says_it_wrote_rows_did() -> None:
    writes = [write("good", 10), write("failed", 20, "partial")]

    assert run_of(responsible_write(Read(TEST, 30), writes)) == "failed"


def test_the_version_that_the_read_names_beats_every_clock() -> None:
    writes = [write("old", 10, version="7"), write("new", 20, version="8")]

    assert run_of(responsible_write(Read(TEST, 30, version="7"), writes)) == "old"


def test_a_version_that_nobody_wrote_falls_back_to_the_clock() -> None:
    assert run_of(responsible_write(Read(TEST, 30, version="9"), [write("old", 10, version="7")])) == "old"


def test_a_write_of_ones_own_family_is_preferred_even_if_it_is_stamped_after_the_test() -> None:
    test = Kin(b"test", b"dag", b"dag")
    writes = [write("yesterday", 10), write("sibling", 35, parent="dag")]

    assert run_of(responsible_write(Read(test, 30), writes)) == "sibling"


def test_within_the_family_the_last_before_the_read_comes_first() -> None:
    test = Kin(b"test", b"dag", b"dag")
    writes = [write("sibling", 20, parent="dag"), write("stranger", 25), write("late", 35, parent="dag")]

    assert run_of(responsible_write(Read(test, 30), writes)) == "sibling"


def test_the_family_reaches_to_the_root_and_to_the_parent_itself() -> None:
    test = Kin(b"test", b"task", b"dag")

    assert run_of(responsible_write(Read(test, 30), [write("cousin", 40, parent="dag")])) == "cousin"
    assert run_of(responsible_write(Read(test, 30), [write("task", 40)])) == "task"


def test_runs_without_any_parent_are_no_family() -> None:
    assert not Kin(b"one").is_of_one_family_with(Kin(b"other"))


def test_an_assertion_on_a_runs_own_output_is_about_that_runs_own_write_even_if_it_failed() -> None:
    own = Kin(b"own")
    writes = [write("own", 40, "attempt"), write("before", 20)]

    assert run_of(responsible_write(Read(own, 30, of_own_output=True), writes)) == "own"


def test_a_run_does_not_read_what_it_writes_itself() -> None:
    own = Kin(b"own")

    assert run_of(responsible_write(Read(own, 30), [write("before", 10), write("own", 30)])) == "before"
