"""Finds an application's event log where Spark wrote it, and reads it: single or rolling, compressed or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.hadoop.spark_codecs import CODECS, decompress

_WRITTEN = re.compile(r"EventLogFiles?Writer\b.*: Logging events to (\S+)")
_BEGUN = ": Running Spark version"
_ROLLING = "eventlog_v2_"
_SEGMENT = re.compile(r"events_(\d+)_[^.]+(?:\.(\w+))??(\.compact)?")


class Directory(Protocol):
    """A directory with event logs, below which paths are relative."""

    def names(self, path: str = "") -> Iterable[str]:
        """Return the names of files and directories."""

    def read(self, path: str) -> bytes:
        """Return the content of a file."""


class LocalDirectory:
    """A `Directory` on this machine."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def names(self, path: str = "") -> list[str]:
        return [entry.name for entry in (self._path / path).iterdir()]

    def read(self, path: str) -> bytes:
        return (self._path / path).read_bytes()


def collect(application_id: str, default: str, in_hdfs: Callable[[str], Directory], bundle: Bundle) -> None:
    """Add the event log to the bundle, as plain JSON lines.

    Args:
        default: directory in HDFS, if the driver's log lacks the path of the event log.
        in_hdfs: function that returns a directory in HDFS.

    Raises:
        ValueError: the application wrote none, or it cannot be read; the message has the reason.
    """
    begun, where = _of_driver(bundle)
    if begun and where is None:
        raise ValueError("the job switched it off; omit spark.eventLog.enabled=false")
    parts = urlsplit(where or "")
    parent, _, _ = parts.path.rpartition("/")
    top, _, name = parent.rpartition("/")
    path = top if name.startswith(_ROLLING) else parent
    if where is None:
        directory, path = in_hdfs(default), default
    elif parts.scheme == "hdfs":
        directory = in_hdfs(path or "/")
    elif parts.scheme in ("", "file"):
        directory = LocalDirectory(path)
    else:
        raise ValueError(f"dlobd reads HDFS and local files, not {where}; omit spark.eventLog.dir")
    try:
        bundle.add_bytes(read(directory, application_id), files.EVENT_LOG)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{where} is on the driver's machine; omit spark.eventLog.dir") from None
    except LookupError:
        raise ValueError(f"{path} has none of {application_id}") from None


def _of_driver(bundle: Bundle) -> tuple[bool, str | None]:
    """Return True if the bundle has the log of a SparkContext, and the path to which its event log was written."""
    masters = sorted((bundle.path / files.CONTAINER_LOGS).glob("*_000001"), reverse=True)  # the last attempt first
    names = [directory / name for directory in masters for name in (files.SPARK_LOG, "stderr")]
    begun = False
    for path in (bundle.path / files.DRIVER_LOG, bundle.path / files.DRIVER_STDERR, *names):
        text = reading.text(path)
        begun = begun or _BEGUN in text
        if match := _WRITTEN.search(text):
            return True, match[1]
    return begun, None


def read(directory: Directory, application_id: str) -> bytes:
    """Return the event log of the application's last attempt.

    Raises:
        LookupError: there is none.
        ValueError: its compression is unknown.
    """
    # in cluster mode the name ends with the attempt, and then .inprogress if the driver was killed
    pattern = rf"({_ROLLING})?{re.escape(application_id)}(?:_(\d+))?(?:\.(\w+?))??(?:\.inprogress)?"
    found = filter(None, map(re.compile(pattern).fullmatch, directory.names()))
    # the complete log if an .inprogress log also exists
    logs = sorted(found, key=lambda match: (-int(match[2] or 0), len(match[0])))
    if not logs:
        raise LookupError(application_id)
    log = logs[0]
    if not log[1]:
        return _plain(directory.read(log[0]), log[3])
    segments = sorted(
        (int(match[1]), match[0], match[2], match[3])
        for match in map(_SEGMENT.fullmatch, directory.names(log[0]))
        if match
    )
    # Spark may have merged the first segments
    compact = max((index for index, _, _, compact in segments if compact), default=0)
    kept = [one for one in segments if one[0] > compact or (one[0] == compact and one[3])]
    return b"".join(_plain(directory.read(f"{log[0]}/{name}"), codec) for _, name, codec, _ in kept)


def _plain(data: bytes, codec: str | None) -> bytes:
    if codec is None:
        return data
    if codec not in CODECS:
        raise ValueError(f"its codec {codec} is unknown; set spark.eventLog.compression.codec={' or '.join(CODECS)}")
    return decompress(data, codec)
