"""One place for settings: what there is to set, and what it means.

A setting is declared once, as a field of the class of the command that reads it; flags, variables, documentation and
messages follow from it. `setting_sources` reads their values.
"""

import os
from dataclasses import MISSING, dataclass, field, fields
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args, get_type_hints

from correlator.setting_kinds import (
    BYTES,
    DATABASE_URL,
    DESTINATIONS,
    ENDPOINT,
    FLAG,
    HASHES,
    HOURS,
    NETWORKS,
    ORIGINS,
    PAIRS,
    PATH,
    RATE,
    REPEATED,
    SECRET,
    TEXT,
    TEXTS,
    TIME,
    URL,
    Bytes,
    Kind,
    Network,
    Seconds,
    one_of,
    whole,
)

PREFIX: Final = "CORRELATOR_"

LogFormat: TypeAlias = Literal["console", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Formats: TypeAlias = Literal["warn", "enforce"]
PolicyName: TypeAlias = Literal["spec", "correlator"]
OnRefusal: TypeAlias = Literal["park", "block"]


@dataclass(frozen=True, slots=True)
class About:
    """What a field says of its setting."""

    kind: Kind[Any]
    help: str
    default: str | None = None
    """In words, where the value itself does not say enough."""


def default_data_dir() -> Path:
    # PostgreSQL does not run as root, and the user that runs it then could not enter root's home.
    if os.geteuid() == 0:
        return Path("/var/lib/correlator")
    home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local/share") / "correlator"


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """What every command needs that keeps or reads anything."""

    group: ClassVar[str] = "common"

    data_dir: Annotated[
        Path,
        About(
            PATH,
            "Where Correlator keeps what it keeps in files: the embedded database, archive, checkpoints, logs.",
            "$XDG_DATA_HOME/correlator or ~/.local/share/correlator; as root /var/lib/correlator",
        ),
    ] = field(default_factory=default_data_dir)
    database_url: Annotated[
        str | None,
        About(
            DATABASE_URL,
            "A PostgreSQL server to use instead of the embedded one.",
            "none: the embedded one in the data directory",
        ),
    ] = field(default=None, repr=False)
    log_format: Annotated[
        LogFormat, About(one_of(get_args(LogFormat)), "Log lines for people, or one JSON object each.")
    ] = "console"
    log_level: Annotated[LogLevel, About(one_of(get_args(LogLevel)), "The least important lines to log.")] = "info"


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(CommonSettings):
    """What everything needs that judges events."""

    group: ClassVar[str] = "judge"

    max_event_bytes: Annotated[Bytes, About(BYTES, "The largest event, after unpacking.")] = 32_000_000
    max_nesting: Annotated[int, About(whole(1), "How deep objects and arrays may stand inside each other.")] = 200
    formats: Annotated[
        Formats,
        About(one_of(get_args(Formats)), "Whether a broken uuid, uri or date-time is a warning or an error."),
    ] = "warn"


@dataclass(frozen=True, kw_only=True)
class ExplainSettings(CommonSettings):
    """How far an answer looks. Where it stopped for one of these, it says so."""

    group: ClassVar[str] = "explain"

    cause_depth: Annotated[int, About(whole(1), "How many jobs up the cause of an incident is looked for.")] = 20
    cause_runs: Annotated[int, About(whole(1), "Through how many runs at most.")] = 500
    impact_depth: Annotated[int, About(whole(1), "How many jobs down an incident's impact is followed.")] = 20
    impact_runs: Annotated[int, About(whole(1), "Through how many runs at most, and how many datasets at risk.")] = (
        1_000
    )


@dataclass(frozen=True, kw_only=True)
class AlertSettings(CommonSettings):
    """What everything needs that sends alerts."""

    group: ClassVar[str] = "alerts"

    send_alerts: Annotated[bool, About(FLAG, "Tell the routes of alerts what fails, from this server.")] = True
    public_url: Annotated[
        str | None,
        About(URL, "Where people reach this server: what links in alerts begin with.", "none: alerts have no links"),
    ] = None
    group_wait: Annotated[
        Seconds, About(TIME, "How long an incident waits for its root to arrive before anybody is told.")
    ] = 30.0
    alert_max_age: Annotated[
        Seconds, About(TIME, "Nobody is told of what began to fail longer ago than this, by the time of its events.")
    ] = 86_400.0
    alert_lag: Annotated[Seconds, About(TIME, "How far the pipeline may be behind; beyond it somebody is told.")] = (
        300.0
    )
    alert_timeout: Annotated[Seconds, About(TIME, "How long a receiver may take for one alert.")] = 10.0
    alert_backoff: Annotated[
        Seconds, About(TIME, "How long to wait after the first attempt that failed; twice as long after each further,")
    ] = 5.0
    alert_backoff_max: Annotated[Seconds, About(TIME, "but no longer than this.")] = 600.0
    alert_give_up: Annotated[Seconds, About(TIME, "How old an alert gets that nobody takes before it is given up.")] = (
        86_400.0
    )
    alert_retention: Annotated[Seconds, About(TIME, "How long the list of alerts keeps those that are done with.")] = (
        2_592_000.0
    )
    alerts_allow_private: Annotated[
        bool, About(FLAG, "Let alerts go to private addresses and to this machine; never to link-local ones.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ListenSettings(JudgeSettings):
    """What everything needs that takes requests."""

    group: ClassVar[str] = "listen"

    host: Annotated[str, About(TEXT, "The address to listen on; 0.0.0.0 or :: for all.")] = "127.0.0.1"
    insecure: Annotated[
        bool, About(FLAG, "Listen beyond this machine although there are no keys: anybody may send and read.")
    ] = False
    tls_certificate: Annotated[
        Path | None, About(PATH, "A certificate (PEM, with its chain); the server then speaks HTTPS.")
    ] = None
    tls_key: Annotated[
        Path | None, About(PATH, "The certificate's private key (PEM).", "none: in the certificate's file")
    ] = None
    tls_key_password: Annotated[str | None, About(SECRET, "What the private key is encrypted with.")] = field(
        default=None, repr=False
    )

    max_request_bytes: Annotated[Bytes, About(BYTES, "The largest body of a request, after unpacking.")] = 100_000_000
    max_inflight_bytes: Annotated[
        Bytes, About(BYTES, "The bodies of all requests at one time; beyond it the answer is 503.")
    ] = 512_000_000
    max_head_bytes: Annotated[
        Bytes, About(BYTES, "The largest head of a request, its headers included; beyond it the answer is 431.")
    ] = 64_000
    max_batch_events: Annotated[int, About(whole(1), "The most events in one request.")] = 10_000
    request_timeout: Annotated[
        Seconds, About(TIME, "How long the head or the body of a request may take to arrive.")
    ] = 60.0
    shutdown_grace: Annotated[
        Seconds, About(TIME, "How long requests may go on after the server was told to stop.")
    ] = 30.0

    # Above what one process stores: they stop a sender that has gone wild, and no backfill.
    rate_limit_per_key: Annotated[
        float, About(RATE, "Events per second from one key; beyond it the answer is 429. 0 is no limit.")
    ] = 50_000.0
    rate_limit_per_address: Annotated[
        float, About(RATE, "Events per second from one address; beyond it the answer is 429. 0 is no limit.")
    ] = 50_000.0
    rate_limit_burst: Annotated[
        Seconds, About(TIME, "How long a sender that is quiet saves up what it may send at once.")
    ] = 10.0
    trusted_proxies: Annotated[
        tuple[Network, ...], About(NETWORKS, "Reverse proxies whose X-Forwarded-For is believed.")
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...], About(ORIGINS, "Origins whose pages may call the API from a browser; * for all.")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ServerSettings(AlertSettings, ListenSettings, ExplainSettings):
    """What `correlator serve` needs."""

    group: ClassVar[str] = "server"

    port: Annotated[int, About(whole(0, 65535), "The port to listen on; 0 takes a free one.")] = 8080
    workers: Annotated[
        int, About(whole(0), "Processes that take requests; 0 is one for each core, but no more than 4.")
    ] = 1

    max_waiting_events: Annotated[
        int, About(whole(1), "The most events that wait for their commit; beyond it the answer is 503.")
    ] = 100_000
    commit_patience: Annotated[
        Seconds, About(TIME, "How long requests wait for a database that went away; then the answer is 503.")
    ] = 3.0
    commit_timeout: Annotated[
        Seconds, About(TIME, "How long a commit may take; then the database is taken to hang, and the answer is 503.")
    ] = 20.0
    session_lifetime: Annotated[
        Seconds, About(TIME, "How long a browser stays signed in, if its key lasts that long.")
    ] = 604_800.0

    query_connections: Annotated[
        int, About(whole(1), "Connections to the database for questions, in each worker; so many are answered at once.")
    ] = 4
    query_timeout: Annotated[
        Seconds, About(TIME, "How long the database may take for one step of a question; then the answer is 503.")
    ] = 10.0
    query_patience: Annotated[
        Seconds, About(TIME, "How long a question waits for its turn when all connections are busy; then it is 503.")
    ] = 5.0
    verdict_max_lag: Annotated[
        Seconds,
        About(TIME, "How far the pipeline may be behind when a dataset is called safe; beyond it is unknown."),
    ] = 300.0
    max_graph_nodes: Annotated[int, About(whole(1), "The most nodes of a lineage graph in one answer.")] = 20_000
    redact: Annotated[
        tuple[str, ...],
        About(
            TEXTS,
            "What is hidden in facets when they are shown: paths of keys with a point between them, * for any part of "
            "a key, ** for any keys.",
        ),
    ] = (
        "**.*password*",
        "**.*passwd*",
        "**.*secret*",
        "**.*token*",
        "**.*credential*",
        "**.*api_key*",
        "**.*apikey*",
        "**.*access_key*",
        "**.*accesskey*",
        "**.*private_key*",
        "**.environmentVariables.*.value",
    )

    idempotency_window: Annotated[
        Seconds, About(TIME, "How long an event that comes again is known as a duplicate.")
    ] = 86_400.0
    log_retention: Annotated[
        Seconds, About(TIME, "How long the event log keeps events that every reader has passed.")
    ] = 604_800.0
    rejects_retention: Annotated[Seconds, About(TIME, "How long rejected events are kept.")] = 2_592_000.0
    rejects_max_bytes: Annotated[
        Bytes, About(BYTES, "What rejected events may take in all; beyond it the oldest go.")
    ] = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class ProxySettings(ListenSettings):
    """What `correlator proxy` needs."""

    group: ClassVar[str] = "proxy"

    port: Annotated[int, About(whole(0, 65535), "The port to listen on; 0 takes a free one.")] = 8090
    max_inflight_bytes: Annotated[
        Bytes, About(BYTES, "The bodies of all requests at one time; beyond it the answer is 503.")
    ] = 128_000_000
    policy: Annotated[
        PolicyName,
        About(
            one_of(get_args(PolicyName)),
            "What an event has to comply with: the specification, or what Correlator's own server asks for.",
        ),
    ] = "spec"
    sender_keys: Annotated[
        tuple[tuple[str, str], ...],
        About(HASHES, "Names of senders with the SHA-256 of their keys, as `correlator proxy key` prints them."),
    ] = field(default=(), repr=False)
    sender_keys_file: Annotated[Path | None, About(PATH, "A file of the same, a name and a hash on each line.")] = None

    destination: Annotated[
        tuple[str, ...],
        About(
            DESTINATIONS,
            "Where events go, [NAME=]TARGET[;OPTION=VALUE]…: https://HOST, kafka:HOST:PORT/TOPIC, file:PATH, console.",
        ),
    ] = field(default=(), repr=False)
    on_refusal: Annotated[
        OnRefusal,
        About(
            one_of(get_args(OnRefusal)),
            "An event that a destination refuses for good is handed to the handlers, or blocks what is behind it.",
        ),
    ] = "park"
    failed_event_handler: Annotated[
        tuple[str, ...],
        About(REPEATED, "Who gets events that fail: log, file[:PATH], sqlite, or a class of yours as module:Class."),
    ] = ("sqlite",)
    failed_events_retention: Annotated[Seconds, About(TIME, "How long the handler sqlite keeps events.")] = 2_592_000.0
    failed_events_max_bytes: Annotated[Bytes, About(BYTES, "What they may take in all; beyond it the oldest go.")] = (
        1_000_000_000
    )

    retention_hours: Annotated[
        float, About(HOURS, "Hours for which events are buffered at most; then the oldest partition goes.")
    ] = 24.0
    retention_bytes: Annotated[
        Bytes, About(BYTES, "Bytes of messages that are buffered at most; then the oldest partition goes.")
    ] = 100 * 1024 * 1024
    partition_hours: Annotated[float, About(HOURS, "Hours after which a new partition is begun.")] = 1.0
    partition_bytes: Annotated[
        Bytes | None,
        About(BYTES, "Bytes after which a new partition is begun.", "none: a sixteenth of retention_bytes"),
    ] = None
    disk_reserve: Annotated[
        Bytes, About(BYTES, "What is left free on the disk: removing events needs room. Below it the answer is 503.")
    ] = 32 * 1024 * 1024

    destination_timeout: Annotated[
        Seconds, About(TIME, "How long a destination may take for an answer; then it is asked again.")
    ] = 30.0
    destination_batch_events: Annotated[
        int, About(whole(1), "The most events that are sent to a destination at once.")
    ] = 500
    destination_batch_bytes: Annotated[Bytes, About(BYTES, "The most bytes of events that are sent at once.")] = (
        4 * 1024 * 1024
    )
    retry_first: Annotated[
        Seconds, About(TIME, "The pause after a first failure to send; each further one is twice as long,")
    ] = 0.2
    retry_longest: Annotated[Seconds, About(TIME, "but no longer than this.")] = 30.0

    metrics: Annotated[bool, About(FLAG, "Whether there is a page /metrics.")] = True
    statsd: Annotated[tuple[str, int] | None, About(ENDPOINT, "Where metrics are sent by statsd (UDP).")] = None
    statsd_prefix: Annotated[str, About(TEXT, "What the names of all metrics begin with there.")] = "openlineage.proxy."
    statsd_tags: Annotated[
        bool, About(FLAG, "Whether destinations are told as tags (dogstatsd) and not as parts of names.")
    ] = False
    statsd_interval: Annotated[Seconds, About(TIME, "How often metrics are sent.")] = 10.0


@dataclass(frozen=True, kw_only=True)
class PipelineSettings(JudgeSettings):
    """What `correlator pipeline` needs."""

    group: ClassVar[str] = "pipeline"

    spark_master: Annotated[
        str | None,
        About(
            TEXT,
            "Where Spark runs: local[*], spark://host:7077, yarn, k8s://…",
            "none: all cores of this machine, or what spark-submit says",
        ),
    ] = None
    spark_conf: Annotated[
        tuple[tuple[str, str], ...], About(PAIRS, "Settings of Spark, such as spark.driver.memory=4g.")
    ] = field(default=(), repr=False)
    checkpoint_dir: Annotated[
        str | None,
        About(
            TEXT,
            "Where the queries keep how far they are: any path of Hadoop.",
            "none: checkpoints in the data directory",
        ),
    ] = None
    trigger: Annotated[Seconds, About(TIME, "How often the pipeline looks for new events.")] = 0.2
    pipeline_batch_events: Annotated[int, About(whole(1), "The most events of one batch, from the log and Kafka.")] = (
        200_000
    )
    pipeline_batch_bytes: Annotated[
        Bytes, About(BYTES, "The most bytes of one batch, from files; a larger file is a batch of its own.")
    ] = 2_000_000_000
    small_batch_events: Annotated[
        int, About(whole(0), "Up to so many events a batch is one task, which is quick; beyond it all cores share it.")
    ] = 5_000
    shuffle_partitions: Annotated[
        int, About(whole(0), "Into how many parts a large batch is sorted; 0 is four for each core of the cluster.")
    ] = 0

    regrouped_incidents: Annotated[
        int, About(whole(1), "How many incidents one batch looks at again to find the root of each.")
    ] = 1_000

    log_source: Annotated[bool, About(FLAG, "Read the events that came over HTTP.")] = True
    files: Annotated[
        tuple[str, ...],
        About(TEXTS, "Files and directories of events: JSON lines (also .gz) and Parquet, on any path of Hadoop."),
    ] = ()
    files_column: Annotated[str, About(TEXT, "The column of Parquet files that holds the event.")] = "raw"
    kafka_servers: Annotated[str | None, About(TEXT, "The brokers to read from: host:9092,host:9092.")] = None
    kafka_topics: Annotated[tuple[str, ...], About(TEXTS, "The topics to read.")] = ("openlineage.events",)
    kafka_options: Annotated[
        tuple[tuple[str, str], ...],
        About(PAIRS, "More options of Spark's connector, such as kafka.security.protocol=SASL_SSL."),
    ] = field(default=(), repr=False)
    kafka_packages: Annotated[
        tuple[str, ...] | None,
        About(TEXTS, "Maven coordinates of the connector.", "none: those of the running Spark's own version"),
    ] = None
    kafka_jars: Annotated[
        tuple[str, ...], About(TEXTS, "Jars of the connector on this machine; then nothing is fetched.")
    ] = ()

    archive: Annotated[bool, About(FLAG, "Keep every accepted event in Parquet files too.")] = True
    archive_dir: Annotated[
        str | None, About(TEXT, "Where the archive is: any path of Hadoop.", "none: archive in the data directory")
    ] = None
    archive_min_events: Annotated[
        int, About(whole(1), "The archive waits for so many events, so that its files get a sensible size,")
    ] = 100_000
    archive_delay: Annotated[Seconds, About(TIME, "but no longer than this.")] = 600.0
    turn_patience: Annotated[
        Seconds,
        About(TIME, "How long `pipeline batch` waits for another process that reads a source; then that reads it."),
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class UpSettings(PipelineSettings, ServerSettings):
    """What `correlator up` needs: all of both, and where its log goes while its terminal shows how things are."""

    group: ClassVar[str] = "up"

    log_dir: Annotated[
        Path | None,
        About(PATH, "Where the log is while a terminal shows the status.", "none: logs in the data directory"),
    ] = None
    log_file_bytes: Annotated[Bytes, About(BYTES, "How large a file of it gets before the next one is begun.")] = (
        10_000_000
    )
    log_files: Annotated[int, About(whole(1), "How many files of it are kept; beyond it the oldest goes.")] = 5


@dataclass(frozen=True, kw_only=True)
class RedriveSettings(JudgeSettings):
    """Those settings of the server by which it judges, so that an event meets the same judge as before."""

    group: ClassVar[str] = ServerSettings.group

    idempotency_window: Annotated[
        Seconds, About(TIME, "How long an event that comes again is known as a duplicate.")
    ] = ServerSettings.idempotency_window


GROUPS: Final[tuple[type[CommonSettings], ...]] = (
    CommonSettings,
    JudgeSettings,
    ExplainSettings,
    AlertSettings,
    ListenSettings,
    ServerSettings,
    ProxySettings,
    PipelineSettings,
    UpSettings,
)
"""Every class of settings. A command's own is a table of `correlator.toml`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a setting before anyone has set it."""

    name: str
    group: str
    """`common`, or the command that reads it."""
    kind: Kind[Any]
    help: str
    default: str
    """In words."""
    is_secret: bool
    """Whether it is never quoted."""

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str | None:
        """A password has none: every user of the machine can read a process's arguments."""
        return None if self.kind is SECRET else "--" + self.name.replace("_", "-")


def settings_of(settings: type[CommonSettings]) -> tuple[Setting, ...]:
    """What a command reads, the common ones first."""
    hints = get_type_hints(settings, include_extras=True)
    found = []
    for each in fields(settings):
        about: About = hints[each.name].__metadata__[0]
        owner = next(base for base in settings.__mro__ if each.name in get_annotations(base))
        default = about.default
        if default is None and each.default is not MISSING:
            default = "none" if each.default is None else about.kind.show(each.default)
        found.append(
            Setting(each.name, owner.__dict__["group"], about.kind, about.help, default or "", is_secret=not each.repr)
        )
    return tuple(found)


def all_settings() -> tuple[Setting, ...]:
    return tuple(setting for group in GROUPS for setting in settings_of(group) if setting.group == group.group)
