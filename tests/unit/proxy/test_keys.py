"""Keys of senders, where there is no database."""

from pathlib import Path

import pytest

from correlator.http.callers import ANYBODY, Caller, Refusal
from correlator.key_scopes import hash_of
from correlator.proxy import keys as module
from correlator.proxy.keys import KeyFileError, SenderKeys


def line(name: str, key: str) -> str:
    return f"{name} {hash_of(key.encode()).hex()}\n"


def test_without_keys_anybody_may_send() -> None:
    assert SenderKeys().is_open
    assert SenderKeys().authenticate(None, None) is ANYBODY


def test_a_key_is_known_by_its_hash_in_either_header(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# senders\n\n" + line("airflow", "first") + line("dbt", "second"))
    keys = SenderKeys([("spark", hash_of(b"third").hex())], file)
    assert not keys.is_open
    for header, name in ((b"Bearer first", "airflow"), (b"bearer second", "dbt"), (b"Bearer third", "spark")):
        caller = keys.authenticate(header, None)
        assert isinstance(caller, Caller)
        assert caller.name == name
        assert "ingest" in caller.scopes
    assert isinstance(keys.authenticate(None, b"first"), Caller)
    for authorization, reason in (
        (None, "missing_key"),
        (b"Bearer fourth", "unknown_key"),
        (b"Basic eA==", "malformed_key"),
    ):
        refusal = keys.authenticate(authorization, None)
        assert isinstance(refusal, Refusal)
        assert (refusal.status, refusal.reason) == (401, reason)


def test_a_file_without_keys_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    keys = SenderKeys(file=tmp_path / "keys")
    assert not keys.is_open
    assert isinstance(keys.authenticate(b"Bearer any", None), Refusal)


def test_a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    file = tmp_path / "keys"
    file.write_text(line("airflow", "first"))
    keys = SenderKeys(file=file)
    file.write_text(line("airflow", "second") + line("dbt", "third"))
    assert isinstance(keys.authenticate(b"Bearer first", None), Refusal)
    assert isinstance(keys.authenticate(b"Bearer third", None), Caller)
    file.write_text("airflow and nonsense that is no hash\n")
    assert isinstance(keys.authenticate(b"Bearer third", None), Caller)
    assert "the last ones stand" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"), [("airflow\n", "line 1: a line is a name and a hash"), ("a 12ab\n", "64 hexadecimal digits")]
)
def test_a_file_that_cannot_be_understood_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(KeyFileError, match=words):
        SenderKeys(file=tmp_path / "keys")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        SenderKeys(file=tmp_path / "keys")
