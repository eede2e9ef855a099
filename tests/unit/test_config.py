"""Settings: where values come from, how they are written, and what is said of those that cannot be used."""

import dataclasses
import pickle
import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator import config
from correlator.config import (
    GROUPS,
    CommonSettings,
    PipelineSettings,
    ProxySettings,
    ServerSettings,
    UpSettings,
    all_settings,
    settings_of,
)
from correlator.setting_kinds import parse_duration, parse_size, show_duration, show_size, without_password
from correlator.setting_sources import SettingsError, load, unknown_variables

ROOT = Path(__file__).parents[2]
DOCUMENTATION = ROOT / "docs" / "settings.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current directory without a file of settings."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "correlator.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def complaint(**given: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(ServerSettings, environ={}, **given)  # type: ignore[arg-type]  # whatever a test wants to try
    return str(caught.value)


def test_a_flag_goes_before_the_environment_and_that_before_the_file_and_that_before_the_default(
    write: Callable[[str], Path],
) -> None:
    assert load(ServerSettings, environ={}).settings.port == 8080
    write("port = 1001")
    assert load(ServerSettings, environ={}).settings.port == 1001
    environ = {"CORRELATOR_PORT": "1002"}
    assert load(ServerSettings, environ=environ).settings.port == 1002
    assert load(ServerSettings, environ=environ, flags={"port": 1003}).settings.port == 1003


def test_flags_that_were_not_given_count_for_nothing() -> None:
    assert load(ServerSettings, environ={"CORRELATOR_PORT": "1"}, flags={"port": None}).settings.port == 1


def test_settings_can_be_made_without_any_source(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, data_dir=tmp_path)
    assert (settings.port, settings.data_dir, settings.host) == (0, tmp_path, "127.0.0.1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 (our own, for a worker process)


def test_the_defaults_are_what_they_read_as() -> None:
    for group in GROUPS:
        made = group()
        for setting in settings_of(group):
            value = getattr(made, setting.name)
            if value is not None and setting.name != "data_dir":
                assert setting.kind.show(value) == setting.default
                if setting.default != "none":
                    assert setting.kind.read(setting.default) == value


def test_a_setting_at_the_top_of_the_file_is_for_every_command_and_one_in_a_table_goes_before_it(
    write: Callable[[str], Path],
) -> None:
    write('port = 1001\nlog_level = "debug"\n[server]\nport = 1002\nhost = "::"\nlog_level = "error"')
    server = load(ServerSettings, environ={}).settings
    assert (server.port, server.host, server.log_level) == (1002, "::", "error")
    assert load(CommonSettings, environ={}).settings.log_level == "debug"


def test_values_are_read_as_toml_has_them_or_as_text(write: Callable[[str], Path]) -> None:
    write(
        """
        max_event_bytes = 5_000
        max_request_bytes = "1MiB"
        request_timeout = 1.5
        shutdown_grace = "2m"
        insecure = true
        cors_origins = ["https://a.example", "http://localhost:3000"]
        trusted_proxies = "10.0.0.5, fd00::/8"
        rate_limit_per_key = 0
        """
    )
    settings = load(ServerSettings, environ={}).settings
    assert settings.max_event_bytes == 5000
    assert settings.max_request_bytes == 1024 * 1024
    assert settings.request_timeout == 1.5
    assert settings.shutdown_grace == 120
    assert settings.insecure is True
    assert settings.cors_origins == ("https://a.example", "http://localhost:3000")
    assert settings.trusted_proxies == (ip_network("10.0.0.5"), ip_network("fd00::/8"))
    assert settings.rate_limit_per_key == 0


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ('port = "eighty"', "port in correlator.toml is 'eighty'; it must be a whole number from 0 to 65535."),
        ("port = 65536", "port in correlator.toml is 65536; it must be a whole number from 0 to 65535."),
        ("port = true", "port in correlator.toml is true; it must be a whole number from 0 to 65535."),
        ("port = 1.5", "port in correlator.toml is 1.5; it must be a whole number"),
        ('insecure = "perhaps"', "insecure in correlator.toml is 'perhaps'; it must be true or false."),
        ("insecure = 1", "insecure in correlator.toml is 1; it must be true or false."),
        ('max_event_bytes = "32 apples"', "it must be a size such as 32MB, 100MiB or 5000 (bytes)."),
        ("max_event_bytes = 0", "it must be a size"),
        ("max_event_bytes = -1", "it must be a size"),
        ("max_event_bytes = inf", "it must be a size"),
        ('request_timeout = "soon"', "it must be a time such as 30s, 5m, 24h, 7d or 90 (seconds)."),
        ("request_timeout = nan", "it must be a time"),
        ("request_timeout = 0", "it must be a time"),
        ("rate_limit_per_key = -1", "it must be a number of at least 0."),
        ('formats = "ignore"', "formats in correlator.toml is 'ignore'; it must be warn or enforce."),
        ('trusted_proxies = "my-proxy"', "it must be addresses or networks"),
        ("trusted_proxies = [1]", "it must be addresses or networks"),
        ('cors_origins = ["https://a.example/"]', "it must be origins"),
        ('cors_origins = "a.example"', "it must be origins"),
        ('host = ""', "host in correlator.toml is ''; it must be a text."),
        ("data_dir = 7", "data_dir in correlator.toml is 7; it must be a path."),
        ("port = 2026-01-01", "it must be a whole number"),
        ("port = {}", "it must be a whole number"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_with_its_place_and_what_may_stand_there(
    write: Callable[[str], Path], line: str, allowed: str
) -> None:
    write(line)
    assert allowed in complaint()
    write(f"[server]\n{line}")
    assert allowed.replace(" in correlator.toml", " in [server] of correlator.toml") in complaint()


def test_an_unreadable_variable_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^CORRELATOR_PORT is 'x'; it must be a whole number from 0 to 65535\.$"):
        load(ServerSettings, environ={"CORRELATOR_PORT": "x"})


def test_all_that_is_wrong_is_told_at_once(write: Callable[[str], Path]) -> None:
    write('port = "a"\nprot = 1')
    with pytest.raises(SettingsError) as caught:
        load(ServerSettings, environ={"CORRELATOR_HOST": " ", "CORRELATOR_MAX_NESTING": "0"})
    assert len(str(caught.value).splitlines()) == 4


def test_an_unknown_name_is_an_error_that_knows_the_nearest(write: Callable[[str], Path]) -> None:
    write("max-event-byte = 1")
    assert complaint() == "In correlator.toml: max-event-byte is not a setting; did you mean max_event_bytes?"
    write("[server]\nprt = 1")
    assert complaint() == "In [server] of correlator.toml: prt is not a setting; did you mean port?"
    write("[sever]\nport = 1")
    assert complaint() == "In correlator.toml: sever is not a setting; did you mean server?"
    write("zzz = 1")
    assert "there are alert_backoff, alert_backoff_max, alert_give_up, alert_lag, alert_max_age," in complaint()


def test_the_whole_file_is_checked_whichever_command_reads_it(write: Callable[[str], Path]) -> None:
    write('[server]\nport = "x"')
    with pytest.raises(SettingsError, match="port in"):
        load(CommonSettings, environ={})


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    assert "There is no file" in complaint(file=tmp_path / "other.toml")
    with pytest.raises(
        SettingsError, match=r"There is no file nowhere\.toml, which --config or CORRELATOR_CONFIG names"
    ):
        load(ServerSettings, environ={"CORRELATOR_CONFIG": "nowhere.toml"})
    (tmp_path / "other.toml").write_text("port = 7")
    (tmp_path / "third.toml").write_text("port = 8")
    environ = {"CORRELATOR_CONFIG": "third.toml"}
    assert load(ServerSettings, environ=environ).settings.port == 8
    assert load(ServerSettings, environ=environ, file=Path("other.toml")).settings.port == 7


def test_a_file_that_is_no_toml_no_text_or_no_file_is_told(tmp_path: Path, write: Callable[[str], Path]) -> None:
    path = write("port: 8080")
    assert "correlator.toml is not TOML: " in complaint()
    path.write_bytes(b"host = '\xff'")
    assert complaint() == "correlator.toml cannot be read: it is not UTF-8."
    path.write_bytes(b"\xef\xbb\xbfport = 5")
    assert load(ServerSettings, environ={}).settings.port == 5
    (tmp_path / "directory").mkdir()
    assert complaint(file=Path("directory")) == "directory cannot be read: Is a directory."


def test_a_path_counts_from_the_file_that_holds_it_and_else_from_here(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/c.toml").write_text('data_dir = "data"\ntls_certificate = "/abs/cert.pem"')
    settings = load(ServerSettings, environ={}, file=Path("etc/c.toml")).settings
    assert settings.data_dir == tmp_path / "etc/data"
    assert settings.tls_certificate == Path("/abs/cert.pem")
    assert load(ServerSettings, environ={"CORRELATOR_DATA_DIR": "data"}).settings.data_dir == tmp_path / "data"


def test_an_empty_variable_is_no_variable() -> None:
    settings = load(ServerSettings, environ={"CORRELATOR_DATABASE_URL": "", "CORRELATOR_PORT": ""}).settings
    assert (settings.database_url, settings.port) == (None, 8080)


def test_what_kubernetes_says_of_a_service_named_correlator_is_no_port() -> None:
    environ = {"CORRELATOR_PORT": "tcp://10.0.0.1:8080", "CORRELATOR_PORT_8080_TCP": "tcp://10.0.0.1:8080"}
    assert load(ServerSettings, environ=environ).settings.port == 8080
    for service in ("CORRELATOR", "CORRELATOR_SERVER"):
        environ |= {
            f"{service}_SERVICE_HOST": "10.0.0.1",
            f"{service}_SERVICE_PORT": "8080",
            f"{service}_SERVICE_PORT_HTTP": "8080",
            f"{service}_PORT": "tcp://10.0.0.1:8080",
            f"{service}_PORT_8080_TCP": "tcp://10.0.0.1:8080",
            f"{service}_PORT_8080_TCP_PROTO": "tcp",
            f"{service}_PORT_8080_TCP_PORT": "8080",
            f"{service}_PORT_8080_TCP_ADDR": "10.0.0.1",
        }
    assert unknown_variables(environ) == []
    assert unknown_variables({"CORRELATOR_SERVER_PORT": "8080"}) != []


def test_an_unknown_variable_is_an_error_that_knows_the_nearest() -> None:
    with pytest.raises(SettingsError) as caught:
        load(CommonSettings, environ={"CORRELATOR_DATABSE_URL": "geheim", "CORRELATOR_XYZ": "geheim", "CORR": "z"})
    assert str(caught.value).splitlines() == [
        "CORRELATOR_DATABSE_URL in the environment is not a setting; did you mean CORRELATOR_DATABASE_URL?",
        "CORRELATOR_XYZ in the environment is not a setting; unset it, and `correlator config` lists those that are.",
    ]


def test_a_variable_that_another_command_reads_or_that_is_ours_otherwise_is_none_of_these() -> None:
    environ = {"CORRELATOR_SPARK_MASTER": "local", "CORRELATOR_URL": "http://localhost", "CORRELATOR_API_KEY": "k"}
    assert load(CommonSettings, environ=environ).origins == {}


def test_every_variable_that_the_code_names_is_known() -> None:
    environ: dict[str, str] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"\bCORRELATOR_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8")):
            environ[name] = "x"
    assert "CORRELATOR_ALERT_SECRET" in environ
    assert unknown_variables(environ) == []


def test_a_table_holds_for_every_command_that_is_of_its_kind(write: Callable[[str], Path]) -> None:
    write('[server]\nhost = "::1"\nport = 1\n[listen]\nhost = "::2"\nlog_level = "debug"\n[pipeline]\ntrigger = "5s"')
    up = load(UpSettings, environ={})
    assert (up.settings.host, up.settings.port, up.settings.trigger, up.settings.log_level) == ("::1", 1, 5, "debug")
    assert str(up.origins["host"]) == "[server] of correlator.toml"
    assert load(ServerSettings, environ={}).settings.host == "::1"
    assert load(ProxySettings, environ={}).settings.host == "::2"
    assert load(PipelineSettings, environ={}).settings.log_level == "info"


def test_no_secret_is_ever_shown() -> None:
    environ = {
        "CORRELATOR_DATABASE_URL": "postgresql://ann:geheim@db.example/lineage?sslpassword=geheim",
        "CORRELATOR_TLS_KEY_PASSWORD": "geheim",
        "CORRELATOR_TLS_CERTIFICATE": "cert.pem",
    }
    loaded = load(ServerSettings, environ=environ)
    assert loaded.settings.tls_key_password == "geheim"  # noqa: S105
    assert "geheim" not in repr(loaded)
    shown = {value.setting.name: value.shown for value in loaded.values()}
    assert "geheim" not in repr(shown)
    assert shown["database_url"] == "postgresql://ann:***@db.example/lineage?sslpassword=***"
    assert shown["tls_key_password"] == "set"  # noqa: S105


def test_no_secret_is_shown_that_stands_inside_of_a_value() -> None:
    environ = {
        "CORRELATOR_DESTINATION": "prod=https://ann:geheim@x.example;key_file=/run/key;api_key=geheim "
        "kafka:broker:9092/t;sasl.password=geheim;acks=all",
        "CORRELATOR_SENDER_KEYS": "airflow=geheim,dbt=geheim",
        "CORRELATOR_SPARK_CONF": "spark.driver.memory=2g,fs.azure.account.key.host=geheim,a.url=jdbc://u:geheim@h/d",
        "CORRELATOR_KAFKA_OPTIONS": "kafka.sasl.jaas.config=geheim,kafka.ssl.keystore.password=geheim",
        "CORRELATOR_PUBLIC_URL": "https://ann:geheim@x.example",
        "CORRELATOR_ARCHIVE_DIR": "s3a://id:geheim@bucket/path",
    }
    shown = {
        value.setting.name: value.shown
        for settings in (ProxySettings, UpSettings)
        for value in load(settings, environ=environ).values()
    }
    assert "geheim" not in repr(shown)
    assert shown["destination"] == (
        "prod=https://ann:***@x.example;key_file=/run/key;api_key=***, kafka:broker:9092/t;sasl.password=***;acks=all"
    )
    assert shown["sender_keys"] == "airflow=***, dbt=***"
    assert shown["spark_conf"] == "spark.driver.memory=2g, fs.azure.account.key.host=***, a.url=jdbc://u:***@h/d"


def test_a_secret_is_not_quoted_when_it_cannot_be_used(write: Callable[[str], Path]) -> None:
    write('tls_key_password = ["geheim"]\ndatabase_url = ["geheim"]')
    assert "geheim" not in complaint()
    assert "database_url in correlator.toml cannot be used; it must be a PostgreSQL URL" in complaint()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/x", "postgresql://db/x"),
        ("postgresql://ann@db:5/x", "postgresql://ann@db:5/x"),
        ("postgresql://ann:s@cret@db:5/x", "postgresql://ann:***@db:5/x"),
        ("postgresql://ann:se/cret@db/x", "postgresql://***"),
        ("postgresql:///x?host=/run/pg&password=secret", "postgresql:///x?host=/run/pg&password=***"),
        ("host=db password=secret user=ann", "host=db password=*** user=ann"),
        ("host=db password = 'sec ret' user=ann", "host=db password = *** user=ann"),
        (r"password='se\'cret' sslpassword=secret", "password=*** sslpassword=***"),
    ],
)
def test_a_database_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_every_value_tells_where_it_comes_from(write: Callable[[str], Path]) -> None:
    write('log_format = "json"\n[server]\nworkers = 2')
    loaded = load(ServerSettings, environ={"CORRELATOR_HOST": "::1"}, flags={"max_event_bytes": 1024})
    origins = {value.setting.name: (value.shown, str(value.origin)) for value in loaded.values()}
    assert origins["log_format"] == ("json", "correlator.toml")
    assert origins["workers"] == ("2", "[server] of correlator.toml")
    assert origins["host"] == ("::1", "CORRELATOR_HOST")
    assert origins["max_event_bytes"] == ("1KiB", "--max-event-bytes")
    assert origins["port"] == ("8080", "default")
    assert origins["idempotency_window"] == ("24h", "default")


def test_a_proxy_whose_partitions_or_events_do_not_fit_its_buffer_is_refused() -> None:
    for flags, words in (
        ({"retention_bytes": 10_000_000}, "max_event_bytes (32MB) is more than retention_bytes (10MB)"),
        (
            {"partition_bytes": 60_000_000},
            "partition_bytes (from --partition-bytes) is more than half of retention_bytes",
        ),
    ):
        with pytest.raises(SettingsError) as caught:
            load(ProxySettings, environ={}, flags=flags)
        assert words in str(caught.value)


def test_what_may_be_given_several_times_stands_in_the_environment_with_blanks_between(
    write: Callable[[str], Path],
) -> None:
    environ = {"CORRELATOR_DESTINATION": "a=http://one  kafka:b:1,c:2/t\nconsole"}
    assert load(ProxySettings, environ=environ).settings.destination == ("a=http://one", "kafka:b:1,c:2/t", "console")
    write('[proxy]\ndestination = ["file:/with blanks in it", "console"]\nstatsd = "[::1]:8125"')
    settings = load(ProxySettings, environ={}).settings
    assert settings.destination == ("file:/with blanks in it", "console")
    assert settings.statsd == ("::1", 8125)
    with pytest.raises(SettingsError, match="CORRELATOR_STATSD is 'no port'; it must be a host and a port"):
        load(ProxySettings, environ={"CORRELATOR_STATSD": "no port"})


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert complaint(flags={"tls_key": Path("k.pem")}) == "tls_key (from --tls-key) needs tls_certificate beside it."
    assert "max_inflight_bytes (1MB) is less than max_request_bytes (100MB)" in complaint(
        flags={"max_inflight_bytes": 1_000_000}
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("5000", 5000), ("32MB", 32_000_000), ("32 mb", 32_000_000), ("1.5GB", 1_500_000_000), ("100MiB", 104_857_600),
     ("1KiB", 1024), ("1k", 1000), ("1_000B", 1000), ("2TiB", 2 * 1024**4)],
)  # fmt: skip
def test_sizes_are_read_by_their_letters(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-5", "1e6", "5 bytes", "0x10", "1.5.2", "٣MB"])
def test_what_is_no_size_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("30s", 30), ("5m", 300), ("24h", 86400), ("7d", 604800), ("250ms", 0.25), ("1.5H", 5400)],
)
def test_times_are_read_by_their_letters(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 weeks", "1h30m", "inf", "nan"])
def test_what_is_no_time_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=2**60))
def test_a_size_that_is_shown_can_be_read_again(size: int) -> None:
    assert parse_size(show_size(size)) == size


@given(st.integers(min_value=1, max_value=10**9))
def test_a_time_that_is_shown_can_be_read_again(seconds: int) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


def test_the_data_directory_of_root_is_one_that_others_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert config.default_data_dir() == Path("/var/lib/correlator")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert config.default_data_dir() == Path("/home/ann/.local/share/correlator")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert config.default_data_dir() == Path("/data/correlator")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # which the XDG specification says to ignore
    assert config.default_data_dir() == Path("/home/ann/.local/share/correlator")


def test_no_two_settings_of_a_command_share_a_name_or_a_flag() -> None:
    for group in GROUPS:
        flags = [setting.flag for setting in settings_of(group) if setting.flag]
        assert len(flags) == len(set(flags))
    assert "config" not in {setting.name for setting in all_settings()}


def test_the_documentation_names_every_setting_with_its_default_and_what_it_does() -> None:
    documentation = DOCUMENTATION.read_text(encoding="utf-8")
    for setting in all_settings():
        assert f"| `{setting.name}` | {setting.default} | {setting.help} |" in documentation
