"""One table, one name: the URN under which the facts about a dataset are stored.

Producers spell the same server in several ways. The rules here are pure, so that facts never have to be re-keyed; what
needs knowledge of a particular site (symlinks, configured patterns) is applied later, when questions are asked.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from heapq import nsmallest
from typing import Final

_ALIASES: Final = {
    "abfs": "abfss",
    "gcs": "gs",
    "postgresql": "postgres",
    "s3a": "s3",
    "s3n": "s3",
    "wasb": "wasbs",
}

# Only schemes whose OpenLineage naming rule demands a port. `unitycatalog` and `fabric-warehouse` have an optional one,
# `spanner` has an instance where others have a port, and for `box`, `filenet` and `mssharepoint` there is no number
# that everybody means.
_DEFAULT_PORTS: Final = {
    "cassandra": "9042",
    "crate": "5432",  # CrateDB's PostgreSQL protocol, which OpenLineage's JDBC naming uses too; 4200 is its HTTP port
    "db2": "50000",
    "hdfs": "8020",
    "hive": "10000",
    "kafka": "9092",
    "milvus": "19530",
    "mssql": "1433",
    "mysql": "3306",
    "oceanbase": "2881",
    "oracle": "1521",
    "postgres": "5432",
    "redshift": "5439",
    "sqlserver": "1433",
    "teradata": "1025",
    "trino": "8080",
}

# `jdbc:` says how to connect, not to what; it goes only before a URL (`jdbc:oracle:thin:@h` is none and stays).
_URL: Final = re.compile(r"(?:[Jj][Dd][Bb][Cc]:)*([A-Za-z][A-Za-z0-9+._-]*)://(.*)", re.DOTALL)

# `;` begins the properties of a JDBC URL (`sqlserver://h;user=u;password=p`), which are a query by another sign.
_QUERY: Final = re.compile(r"[?#;]")

# User and password of a URL, wherever the URL stands. The second alternative is for passwords that were not escaped
# (`u:p/w@h`, `u:p#w@h`): what follows the colon is no port, so the authority does not end at the slash. Its bound keeps
# the search linear in names made to make it slow. Before Azure's `@` stands a container, which is part of the name.
_CREDENTIALS: Final = re.compile(
    r"""(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)://
        (?: [^/?#;]*@ | [^/?#;:@\[]+ : (?!\d*(?:[/?#;,]|\Z)) [^@]{1,256}@ )+""",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

_PART_BORDERS: Final = re.compile(r"[./:]+")
_FILE_ENDINGS: Final = re.compile(
    r"(?:\.(?:avro|bz2|csv|gz|json|jsonl|ndjson|orc|parquet|snappy|tsv|txt|xml|zst)){1,3}\Z"
)

# Namespaces are few and short. The length is bounded too, lest a producer's megabyte stays in memory for ever.
_REMEMBERED: Final = 16_384
_REMEMBERED_LENGTH: Final = 512


def _remembered(rule: Callable[[str], str]) -> Callable[[str], str]:
    recall = lru_cache(maxsize=_REMEMBERED)(rule)

    @wraps(rule)
    def call(text: str) -> str:
        return recall(text) if len(text) <= _REMEMBERED_LENGTH else rule(text)

    return call


def storable(text: str) -> str:
    """PostgreSQL's text can hold neither NUL nor lone surrogates, and JSON can carry both."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


@_remembered
def normalize_namespace(namespace: str) -> str:
    """The one spelling of a namespace; what is no URL comes back as it is."""
    text = _clean(namespace)
    url = _URL.fullmatch(text)
    if url is None:
        return text
    scheme = url[1].lower()
    scheme = _ALIASES.get(scheme, scheme)
    location = _QUERY.split(url[2], maxsplit=1)[0]
    authority, slash, path = location.partition("/")
    container, at, hosts = authority.rpartition("@")
    port = _DEFAULT_PORTS.get(scheme)
    hosts = ",".join(_with_port(host.strip().lower(), port) for host in hosts.split(","))
    return f"{scheme}://{container}{at}{hosts}{slash}{path}"


def dataset_urn(namespace: str, name: str) -> str:
    """`{namespace}/{name}` with exactly one slash between.

    The `//` of a scheme is not that slash: `inmemory://` and `t` are `inmemory:///t`. Were it `inmemory://t`, then
    `file://` with `h/t` and `file://h` with `t` would be one dataset.
    """
    return f"{_urn_prefix(namespace)}{_clean(name).lstrip('/')}"


@_remembered
def _urn_prefix(namespace: str) -> str:
    scheme, colon, rest = normalize_namespace(namespace).rpartition("://")
    return f"{scheme}{colon}{rest.rstrip('/')}/"


def _clean(text: str) -> str:
    return storable(_CREDENTIALS.sub("://", text) if "@" in text else text)


def _with_port(host: str, port: str | None) -> str:
    bare = host.removesuffix(":")
    # Colons inside the brackets are IPv6; one outside is a port, or nothing that a port could be added to.
    if port is None or not bare or ":" in bare.rpartition("]")[2]:
        return host
    return f"{bare}:{port}"


def same_names(aliases: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Each URN that a pair names, with all URNs that mean the same dataset (itself among them)."""
    parent: dict[str, str] = {}

    def root(urn: str) -> str:
        parent.setdefault(urn, urn)
        while parent[urn] != urn:
            # Halving the path keeps long chains of aliases near linear.
            parent[urn] = parent[parent[urn]]
            urn = parent[urn]
        return urn

    for one, other in aliases:
        parent[root(one)] = root(other)
    members: dict[str, set[str]] = {}
    for urn in parent:
        members.setdefault(root(urn), set()).add(urn)
    classes = {representative: frozenset(urns) for representative, urns in members.items()}
    return {urn: classes[root(urn)] for urn in parent}


def class_name(
    members: Iterable[str], *, pattern_targets: Iterable[str] = (), table_symlinks: Iterable[str] = ()
) -> str:
    """What a class of names is called: its pattern's target, else its TABLE symlink, else its least URN.

    Least of several at each step, by code point (in SQL: `COLLATE "C"`), so that the order of events changes nothing.
    """
    for candidates in (pattern_targets, table_symlinks, members):
        least = min(candidates, default=None)
        if least is not None:
            return least
    raise ValueError("a class of names has no members; pass at least the URN itself")


def look_alikes(urn: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """Names that probably mean the same table: those that end in the same parts, the longest such end first."""
    parts = _parts(urn)
    if not parts:
        return []

    def common(candidate: str) -> int:
        # Nearly all candidates of a large catalog go here, at a tenth of the cost of taking them apart.
        return same_end(urn, candidate) if parts[0] in candidate.lower() else 0

    alike = ((-length, other) for other in set(candidates) if other != urn and (length := common(other)))
    return [other for _, other in nsmallest(limit, alike)]


def same_end(one: str, other: str) -> int:
    """How many parts at the end of two names are equal, as people compare them: from the table's name backwards."""
    length = 0
    for mine, theirs in zip(_parts(one), _parts(other), strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def _parts(urn: str) -> list[str]:
    """Last part first. File endings do not count: two files are not alike because both are CSV."""
    stem = _FILE_ENDINGS.sub("", urn.lower())
    return [part for part in reversed(_PART_BORDERS.split(stem)) if part]
