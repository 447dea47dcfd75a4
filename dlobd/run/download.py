"""Downloads a published file over HTTP and resumes an interrupted download.

Received bytes are in NAME.part, where the next attempt continues. It is renamed after its checksum was verified.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import requests
import urllib3

from dlobd.errors import SetupError
from dlobd.hadoop.failures import reason
from dlobd.paths import size_of

ATTEMPTS = 5
"""Maximum number of attempts. An attempt that receives no bytes is the last."""

TIMEOUT_S = (10.0, 30.0)
"""Timeouts for connecting, and between two pieces of the answer."""

READ_BYTES = 1 << 16
PROGRESS_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """File with the size and checksum that its authors published."""

    name: str
    bytes: int
    md5: str

    def mismatch(self, path: Path) -> str:
        """Compare a file with the published size and checksum; return the difference in words, or an empty string."""
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if md5 == self.md5:
            return ""
        size = path.stat().st_size
        difference = f"is truncated: {size} of {self.bytes} bytes" if size < self.bytes else f"has md5 {md5}"
        return f"{difference}, expected md5 {self.md5}"


def download(url: str, file: PublishedFile, path: Path, remedy: str, progress: Callable[[str], None]) -> None:
    """Download `file` to `path`. Raises SetupError, which ends with `remedy`, if the download fails."""
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, ATTEMPTS + 1):
        had = size_of(part)
        try:
            _append(url, file, part, remedy, progress)
            why = f"closed the connection after {size_of(part)} of {file.bytes} bytes"
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            why = reason(error, *TIMEOUT_S)
        except OSError as error:
            raise SetupError(f"{part} cannot be written: {error.strerror}.", "free some space there") from error
        now = size_of(part)
        if now >= file.bytes:
            break
        if now <= had or attempt == ATTEMPTS:
            kept = f"; {now / 1e6:.1f} of {file.bytes / 1e6:.1f} MB are kept" if now else ""
            again = "run the same command again, which continues the download; or " if now else ""
            raise SetupError(f"{url} {why}{kept}.", f"{again}{remedy}")
        progress(f"{path.name}: the server {why}; continuing at {now / 1e6:.1f} MB")
    if difference := file.mismatch(part):
        part.unlink()
        raise SetupError(f"The file from {url} {difference}.", f"run the same command again; or {remedy}")
    os.replace(part, path)


def _append(url: str, file: PublishedFile, part: Path, remedy: str, progress: Callable[[str], None]) -> None:
    had = size_of(part)
    if had == file.bytes:
        return
    headers = {"Accept-Encoding": "identity"}
    if 0 < had < file.bytes:
        headers["Range"] = f"bytes={had}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
        if response.status_code not in (requests.codes.ok, requests.codes.partial_content):
            raise SetupError(f"{url} answered {response.status_code} {response.reason}.", remedy)
        start, total = _range(response)
        if start != (had if response.status_code == requests.codes.partial_content else 0):
            part.unlink()  # removed, so that the next attempt starts over
            raise SetupError(f"{url} answered with bytes from {start}, not from {had}.", remedy)
        if total not in (None, file.bytes):
            raise SetupError(f"{url} has {total} bytes, expected {file.bytes}.", remedy)
        with part.open("ab") as output:
            output.truncate(start)
            _receive(response, output, start, file, progress)


def _range(response: requests.Response) -> tuple[int, int | None]:
    """Return the offset of the first byte of the answer, and the size of the whole file if the server states it."""
    if response.status_code == requests.codes.partial_content:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        first = span.partition("-")[0]
        start = int(first) if first.isdecimal() else -1
    else:
        start, total = 0, response.headers.get("Content-Length", "")
    return start, int(total) if total.isdecimal() else None


def _receive(
    response: requests.Response, output: IO[bytes], start: int, file: PublishedFile, progress: Callable[[str], None]
) -> None:
    arrived, reported = start, -1
    while arrived <= file.bytes:
        if arrived // PROGRESS_BYTES != reported:
            reported = arrived // PROGRESS_BYTES
            progress(f"{file.name}: {arrived // 1_000_000} of {file.bytes / 1e6:.0f} MB")
        # not decoded: some servers declare .gz as a content encoding
        data = response.raw.read(READ_BYTES, decode_content=False)
        if not data:
            return
        # at most one byte too many: this causes a checksum error without filling the disk
        arrived += output.write(data[: file.bytes + 1 - arrived])
