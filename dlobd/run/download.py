"""Downloads a file over HTTP. What has arrived is kept, and has the file's name only once its checksum is right.

A download that broke off goes on where it ended, if the server says that its file is still the same one (If-Range);
else it starts over.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import urllib3

from dlobd.errors import SetupError

ATTEMPTS = 5
"""Of one command, as long as each brings bytes."""

READ_BYTES = 1 << 16
TOLD_BYTES = 10_000_000
"""How often progress is told."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A published file. `url` is where it is fetched from; `bytes` and `md5` are its authors'."""

    url: str
    bytes: int
    md5: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server may take to accept a connection, and between two pieces of its answer."""

    connect_s: float = 10.0
    read_s: float = 30.0


class _Unlike(Exception):
    """The server has another file than the published one, or it is confused; the message says so."""


class _Broken(Exception):
    """The connection broke, or there was none; the message says how. What has arrived can be used."""


def download(
    remote: Remote, path: Path, remedy: str, progress: Callable[[str], None], patience: Patience | None = None
) -> None:
    """Downloads to `path`, by way of `path`.part.

    Args:
        remedy: what else can be done where the server does not deliver the right file.

    Raises:
        SetupError: it could not be fetched, or is not the published file.
    """
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, ATTEMPTS + 1):
        had = _size(part)
        try:
            _go_on(remote, part, remedy, progress, patience or Patience())
            break
        except _Broken as error:
            now = _size(part)
            kept = f"; {now / 1e6:.1f} of {remote.bytes / 1e6:.1f} MB are kept" if now else ""
            if now <= had or attempt == ATTEMPTS:
                again = "run the same command again, which continues the download; or " if now else ""
                raise SetupError(f"{remote.url} {error}{kept}.", f"{again}{remedy}") from error.__cause__
            progress(f"{path.name}: the server {error}; continuing at {now / 1e6:.1f} MB")
        except OSError as error:
            raise SetupError(f"{part} cannot be written: {error.strerror}.", "free some space there") from error
    check(part, remote, f"the file from {remote.url}", remedy, discard=True)
    os.replace(part, path)
    _note(part).unlink(missing_ok=True)


def check(path: Path, remote: Remote, what: str, remedy: str, discard: bool = False) -> None:
    """Refuses a file that is not the published one.

    Args:
        what: it is, for the user.
        discard: remove it then.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    size = path.stat().st_size
    if found == remote.md5:
        return
    if discard:
        path.unlink()
        _note(path).unlink(missing_ok=True)
    wrong = f"is truncated: {size} of {remote.bytes} bytes" if size < remote.bytes else f"has md5 {found}"
    raise SetupError(f"{what[0].upper()}{what[1:]} {wrong}, expected md5 {remote.md5}.", remedy)


def _go_on(remote: Remote, part: Path, remedy: str, progress: Callable[[str], None], patience: Patience) -> None:
    """Adds to the part what it lacks, by one request."""
    had = _size(part)
    if had == remote.bytes:
        return
    headers = {"Accept-Encoding": "identity"}
    validator = _validator_of(part, remote.url)
    if had and validator and had < remote.bytes:
        headers |= {"Range": f"bytes={had}-", "If-Range": validator}
    try:
        with requests.get(
            remote.url, headers=headers, stream=True, timeout=(patience.connect_s, patience.read_s)
        ) as response:
            if response.status_code not in (requests.codes.ok, requests.codes.partial_content):
                raise SetupError(f"{remote.url} answered {response.status_code} {response.reason}.", remedy)
            begin = _begin(response, had if "Range" in headers else 0, remote)
            if begin == 0:
                _keep_validator(part, remote.url, response)
            with part.open("ab") as file:
                file.truncate(begin)
                _receive(response, file, begin, remote, part.name.removesuffix(".part"), progress)
    except _Unlike as error:
        _note(part).unlink(missing_ok=True)  # so that the next one starts over
        raise SetupError(f"{remote.url} {error}.", remedy) from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _Broken(_how(error, patience)) from error
    if (now := _size(part)) < remote.bytes:
        raise _Broken(f"ended after {now} of {remote.bytes} bytes")


def _begin(response: requests.Response, asked: int, remote: Remote) -> int:
    """At which byte of the file the answer begins."""
    total: str | None
    if response.status_code == requests.codes.partial_content:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if span.partition("-")[0] != str(asked):
            raise _Unlike(f"answered with bytes {span or '?'}, and those from {asked} on were asked for")
    else:
        asked, total = 0, response.headers.get("Content-Length")
    if total and total.isdecimal() and int(total) != remote.bytes:
        raise _Unlike(f"has {total} bytes, expected {remote.bytes}")
    return asked


def _receive(
    response: requests.Response, file: Any, begin: int, remote: Remote, name: str, progress: Callable[[str], None]
) -> None:
    arrived, told = begin, -1
    while arrived <= remote.bytes:
        if arrived // TOLD_BYTES != told:
            told = arrived // TOLD_BYTES
            progress(f"{name}: {arrived // 1_000_000} of {remote.bytes / 1e6:.0f} MB")
        # not decoded: a server may call a .gz an encoding
        data = response.raw.read(READ_BYTES, decode_content=False)
        if not data:
            return
        # no more than one byte too many: the checksum will be wrong, and the disk is not filled
        arrived += file.write(data[: remote.bytes + 1 - arrived])


def _how(error: Exception, patience: Patience) -> str:
    """A readable description of a failed exchange."""
    text = str(error)
    if isinstance(error, requests.ConnectTimeout):
        return f"accepted no connection within {patience.connect_s:g} s"
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)) or "timed out" in text:
        return f"sent nothing for {patience.read_s:g} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "has no certificate that this machine trusts"
    if isinstance(error, requests.exceptions.ProxyError):
        return "cannot be reached through the proxy"
    if "NameResolutionError" in text or "getaddrinfo" in text or "resolve" in text:
        return "cannot be reached: its host name is unknown here, or there is no network"
    if "unreachable" in text:
        return "cannot be reached: the network is unreachable"
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.MissingSchema)):
        return "is not a valid URL"
    return "refused the connection" if "refused" in text else "broke off the connection"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _note(part: Path) -> Path:
    """Where it stands which version of the file a part is of."""
    return part.with_name(f"{part.name}.json")


def _keep_validator(part: Path, url: str, response: requests.Response) -> None:
    etag = response.headers.get("ETag", "")
    # a weak one does not promise equal bytes
    validator = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
    _note(part).write_text(json.dumps({"url": url, "validator": validator}))


def _validator_of(part: Path, url: str) -> str:
    """By what the server can tell that its file is still the one of the part; empty if by nothing."""
    try:
        noted = json.loads(_note(part).read_text())
        return str(noted["validator"]) if noted["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
