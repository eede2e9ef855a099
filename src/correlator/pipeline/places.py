"""What lies where, for those who only look: on this machine directly, anywhere else through Hadoop."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from correlator.config import PipelineSettings
from correlator.pipeline.hadoop import literally

_AT_A_TIME: Final = 8
"""Files that are opened at the same time."""
_LOCAL: Final = "file:"
_DEFAULT_FILES: Final = "spark.hadoop.fs.defaultFS"


class Listed(NamedTuple):
    """A file as it is now."""

    key: str
    """By which it is known again, whoever listed it: `key_of` its origin."""
    size: int
    modified_ms: int


class Places(Protocol):
    def directories(self, parent: str) -> list[str]:
        """The names of the directories in one; none where it is not there."""

    def files(self, path: str) -> list[Listed]:
        """Every file under a path, which may be a pattern, as Spark would find them."""

    def rows(self, parent: str, directories: Sequence[str]) -> dict[str, int | str]:
        """How many rows the Parquet files of each directory hold, or why that cannot be told."""


def place_of(path: str, settings: PipelineSettings, session: Callable[[], SparkSession]) -> Places:
    return LocalPlaces() if is_local(path, settings) else HadoopPlaces(session())


def is_local(path: str, settings: PipelineSettings) -> bool:
    """Whether a path means this machine, and one need not be Hadoop to understand it."""
    if "{" in path:
        return False
    if ":/" in path.partition("?")[0]:
        return path.startswith(_LOCAL)
    return _DEFAULT_FILES not in dict(settings.spark_conf) and "HADOOP_CONF_DIR" not in os.environ


def key_of(origin: str) -> str:
    """A file's name without what depends on who wrote it down."""
    name = unquote(origin)
    return "/" + name.removeprefix(_LOCAL).lstrip("/") if name.startswith(_LOCAL) else name


def is_hidden(name: str) -> bool:
    """Whether Spark passes it by."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


class LocalPlaces:
    """The files of this machine."""

    def directories(self, parent: str) -> list[str]:
        path = Path(key_of(parent))
        return sorted(child.name for child in path.iterdir() if child.is_dir()) if path.is_dir() else []

    def files(self, path: str) -> list[Listed]:
        found: list[Listed] = []
        for name in glob(os.path.abspath(key_of(path))):  # noqa: PTH100, PTH207 (a pattern is no path yet)
            found += [_listed(Path(name))] if Path(name).is_file() else map(_listed, _below(Path(name)))
        return found

    def rows(self, parent: str, directories: Sequence[str]) -> dict[str, int | str]:
        root = Path(key_of(parent))
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return dict(zip(directories, pool.map(lambda name: _rows(root / name), directories), strict=True))


def _below(directory: Path) -> Iterator[Path]:
    for at, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not is_hidden(name)]
        yield from (Path(at, name) for name in names if not is_hidden(name))


def _listed(path: Path) -> Listed:
    status = path.stat()
    return Listed(str(path), status.st_size, status.st_mtime_ns // 1_000_000)


def _rows(directory: Path) -> int | str:
    rows = 0
    for path in _below(directory):
        try:
            rows += pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError) as error:
            return f"{path} cannot be read: {str(error).partition(chr(10))[0]}"
    return rows


class HadoopPlaces:
    """Whatever Spark's session can reach."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def directories(self, parent: str) -> list[str]:
        path = self._path(parent)
        files = self._files(path)
        if not files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in files.listStatus(path) if status.isDirectory())

    def files(self, path: str) -> list[Listed]:
        pattern = self._path(path)
        files = self._files(pattern)
        found: list[Listed] = []
        for status in files.globStatus(pattern) or ():
            below = files.listFiles(status.getPath(), True)
            root = status.getPath().toString()
            while below.hasNext():
                file = below.next()
                inside = file.getPath().toString().removeprefix(root)
                if not any(is_hidden(part) for part in inside.split("/") if part):
                    key = key_of(file.getPath().toUri().toString())
                    found.append(Listed(key, file.getLen(), file.getModificationTime()))
        return found

    def rows(self, parent: str, directories: Sequence[str]) -> dict[str, int | str]:
        """Spark reads no more than the footers for that."""
        if not directories:
            return {}
        counted = rows_of(self._spark, parent, directories, fn.count(fn.lit(1)).alias("rows"))
        return dict.fromkeys(directories, 0) | {row["directory"]: row["rows"] for row in counted}

    def _path(self, path: str) -> Any:
        jvm: Any = self._spark._jvm  # noqa: SLF001 (there is no other way to Hadoop)
        return jvm.org.apache.hadoop.fs.Path(path)

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration())  # noqa: SLF001


def rows_of(spark: SparkSession, parent: str, directories: Sequence[str], *told: Any) -> list[Any]:
    """Some figures of the Parquet files in each directory, by its name below the parent."""
    paths = [literally(f"{parent}/{directory}") for directory in directories]
    files = spark.read.schema("position BIGINT, raw BINARY").option("recursiveFileLookup", "true").parquet(*paths)
    name = fn.regexp_extract("_metadata.file_path", r"(source=[^/]+/[^/]+)/[^/]+/[^/]+$", 1)
    return files.groupBy(name.alias("directory")).agg(*told).collect()
