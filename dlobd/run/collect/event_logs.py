"""Finds an application's event log where Spark wrote it, and reads it: single or rolling, compressed or not."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.hadoop.spark_codecs import CODECS, decompress

_WRITTEN = re.compile(r"EventLogFiles?Writer\b.*: Logging events to (\S+)")
_BEGUN = ": Running Spark version"
_SCHEDULES = (": SchedulerBackend is ready for scheduling", ": Got job ", ": Got map stage job ")
"""Lines of a SparkContext that has created its event log, unless that is switched off."""

_ROLLING = "eventlog_v2_"
_SEGMENT = re.compile(r"events_(\d+)_[^.]+(?:\.(\w+))??(\.compact)?")


@dataclass(frozen=True, slots=True)
class Files:
    """Access to files by absolute paths: the names in a directory, and the content of a file."""

    names: Callable[[str], Iterable[str]]
    read: Callable[[str], bytes]


LOCAL = Files(os.listdir, lambda path: Path(path).read_bytes())


def collect(application_id: str, default: str, hdfs: Files, bundle: Bundle, name: str = files.EVENT_LOG) -> None:
    """Add the event log to the bundle as `name`, as plain JSON lines. `default`: its directory in HDFS, if the driver's
    log lacks its path. Raises ValueError with the reason if the application wrote none, or it cannot be read."""
    paths: list[str] = []
    begun = schedules = False
    for text in _logs(bundle):  # one after another: they may be large
        paths += _WRITTEN.findall(text)
        begun = begun or _BEGUN in text
        schedules = schedules or any(line in text for line in _SCHEDULES)
    where = next((path for path in paths if application_id in path), next(iter(paths), None))
    if where is None and begun:
        switched_off = "the job switched it off; omit spark.eventLog.enabled=false"
        raise ValueError(switched_off if schedules else "the driver's log names none")
    parts = urlsplit(where or f"hdfs://{default}/{application_id}")
    top, _, _ = parts.path.rpartition("/")[0].partition(f"/{_ROLLING}")
    files_of = {"hdfs": hdfs, "file": LOCAL, "": LOCAL}
    if parts.scheme not in files_of:
        raise ValueError(f"dlobd reads HDFS and local files, not {where}; omit spark.eventLog.dir")
    try:
        bundle.add_bytes(read(files_of[parts.scheme], top, application_id), name)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{where} is on the driver's machine; omit spark.eventLog.dir") from None


def has_context(bundle: Bundle) -> bool:
    """Return True if the bundle has the log of a SparkContext."""
    return any(_BEGUN in text for text in _logs(bundle))


def _logs(bundle: Bundle) -> Iterator[str]:
    """Yield the logs that may be those of the driver's JVM."""
    masters = sorted((bundle.path / files.CONTAINER_LOGS).glob("*_000001"), reverse=True)  # the last attempt first
    names = [directory / name for directory in masters for name in (files.SPARK_LOG, "stderr")]
    yield from map(reading.text, (bundle.path / files.DRIVER_LOG, bundle.path / files.DRIVER_STDERR, *names))


def read(files: Files, top: str, application_id: str) -> bytes:
    """Return the event log of the application's last attempt below `top`. Raises ValueError if there is none, or its
    compression is unknown."""
    # in cluster mode the name ends with the attempt, and then .inprogress if the driver was killed
    pattern = rf"({_ROLLING})?{re.escape(application_id)}(?:_(\d+))?(?:\.(\w+?))??(?:\.inprogress)?"
    found = filter(None, map(re.compile(pattern).fullmatch, files.names(top or "/")))
    # the complete log if an .inprogress log also exists
    logs = sorted(found, key=lambda match: (-int(match[2] or 0), len(match[0])))
    if not logs:
        raise ValueError(f"{top} has none of {application_id}")
    path = f"{top}/{logs[0][0]}"
    if not logs[0][1]:
        return _plain(files.read(path), logs[0][3])
    matches = filter(None, map(_SEGMENT.fullmatch, files.names(path)))
    segments = sorted((int(match[1]), bool(match[3]), match[0], match[2]) for match in matches)
    # Spark may have merged the first segments
    first = max((at for at, (_, merged, _, _) in enumerate(segments) if merged), default=0)
    return b"".join(_plain(files.read(f"{path}/{name}"), codec) for _, _, name, codec in segments[first:])


def _plain(data: bytes, codec: str | None) -> bytes:
    if codec is None:
        return data
    if codec not in CODECS:
        raise ValueError(f"its codec {codec} is unknown; set spark.eventLog.compression.codec={' or '.join(CODECS)}")
    return decompress(data, codec)
