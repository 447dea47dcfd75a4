"""`dlobd data fetch` against a real HTTP server of this machine; archive and table of checksums are made up here."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import signal
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dlobd import cli
from dlobd.errors import SetupError, UsageError
from dlobd.job.datasets import cifar10
from dlobd.run import data_sets
from dlobd.run.data_sets import Published, PublishedFile


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_sets, "TIMEOUT_S", (2.0, 0.3))


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


CONTENT = {f"batch_{n}.bin": random.Random(n).randbytes(100_000 + n) for n in (1, 2)}
MEMBERS = tuple(PublishedFile(name, len(data), md5(data)) for name, data in CONTENT.items())


def packed(*entries: tuple[str, bytes], links: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()


ARCHIVE = packed(*((f"inside/{name}", data) for name, data in CONTENT.items()), ("inside/readme.html", b"about"))


def published(url: str = "http://127.0.0.1:9/made-up.tar.gz", archive: bytes = ARCHIVE) -> Published:
    """A data set of two files, whose archive is this one."""
    return Published("made-up", url, PublishedFile("made-up.tar.gz", len(archive), md5(archive)), "inside", MEMBERS)


@dataclass
class Site:
    """What a server has, and how it misbehaves.

    breaks: after so many bytes of each of the first answers it closes the connection; where it stalls, sends no more.
    statuses: number of a request, from 0, to the status with which it is refused.
    """

    data: bytes = ARCHIVE
    ranges: bool = True
    lengths: bool = True
    breaks: list[int] = field(default_factory=list)
    stalls: bool = False
    statuses: dict[int, int] = field(default_factory=dict)
    asked: list[str | None] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    """Answers GET as its site says."""

    site: Site

    def do_GET(self) -> None:
        """The file, or the range of it that was asked for if it is still the same."""
        site = self.site
        wanted = self.headers.get("Range")
        site.asked.append(wanted)
        if status := site.statuses.get(len(site.asked) - 1):
            self.send_error(status)
            return
        begin = 0
        if wanted and site.ranges:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(site.data) - 1}/{len(site.data)}")
        if site.lengths:
            self.send_header("Content-Length", str(len(site.data) - begin))
        self.end_headers()
        body = site.data[begin:]
        self.wfile.write(body[: site.breaks.pop(0)] if site.breaks else body)
        if site.stalls:
            self.wfile.flush()
            site.over.wait(30)

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"site": site}))
    site.url = f"http://127.0.0.1:{server.server_port}/made-up.tar.gz"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield site
    site.over.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def told() -> list[str]:
    return []


def fetched(site: Site, top: Path, told: list[str], archive: bytes = ARCHIVE) -> Path:
    return data_sets.fetch(published(site.url, archive), None, top, told.append)


def refused(site: Site, top: Path, archive: bytes = ARCHIVE) -> SetupError:
    """Why it could not be fetched, in one line; no file of the data set is there."""
    with pytest.raises(SetupError) as caught:
        fetched(site, top, [], archive)
    assert "\n" not in caught.value.line
    assert caught.value.remedy
    assert not list(top.rglob("*.bin*"))
    return caught.value


def is_whole(folder: Path) -> bool:
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
    return left == CONTENT


def test_a_whole_download(site: Site, tmp_path: Path, told: list[str]) -> None:
    """One request; every file has its content, the archive is gone, and a second fetch asks for nothing."""
    folder = fetched(site, tmp_path, told)
    assert folder == tmp_path / "made-up"
    assert is_whole(folder)
    assert site.asked == [None]
    assert any("made-up.tar.gz: " in line and line.endswith(" of 0 MB") for line in told)
    fetched(site, tmp_path, told)
    assert site.asked == [None]
    assert "already" in told[-1]


def test_a_damaged_file_is_fetched_again(site: Site, tmp_path: Path, told: list[str]) -> None:
    folder = fetched(site, tmp_path, told)
    data = bytearray((folder / "batch_1.bin").read_bytes())
    data[5] ^= 1
    (folder / "batch_1.bin").write_bytes(data)
    assert is_whole(fetched(site, tmp_path, told))
    assert site.asked == [None, None]


@pytest.mark.parametrize("lengths", [True, False])
def test_a_broken_connection_is_continued(site: Site, tmp_path: Path, told: list[str], lengths: bool) -> None:
    """Where it ended, by the same command; whether or not the server says how long its answer is."""
    site.lengths = lengths
    site.breaks = [70_000, 50_000]
    assert is_whole(fetched(site, tmp_path, told))
    assert site.asked[0] is None
    begins = [int(str(asked).removeprefix("bytes=").removesuffix("-")) for asked in site.asked[1:]]
    assert len(begins) == 2
    assert 0 < begins[0] < begins[1] <= 120_000
    assert sum("continuing at 0.1 MB" in line for line in told) == 2


def test_the_next_command_continues(site: Site, tmp_path: Path, told: list[str]) -> None:
    site.breaks = [100_000]
    site.statuses = {1: 503}
    assert refused(site, tmp_path).what == f"{site.url} answered 503 Service Unavailable."
    kept = (tmp_path / "made-up" / "made-up.tar.gz.part").stat().st_size
    assert 0 < kept <= 100_000
    assert is_whole(fetched(site, tmp_path, told))
    assert site.asked == [None, f"bytes={kept}-", f"bytes={kept}-"]


def test_a_server_that_ignores_ranges(site: Site, tmp_path: Path, told: list[str]) -> None:
    site.breaks = [100_000]
    site.statuses = {1: 503}
    refused(site, tmp_path)
    site.ranges = False
    assert is_whole(fetched(site, tmp_path, told))
    assert str(site.asked[2]).startswith("bytes=")


def test_a_part_of_another_version(site: Site, tmp_path: Path, told: list[str]) -> None:
    site.breaks = [100_000]
    site.statuses = {1: 503}
    refused(site, tmp_path)
    part = tmp_path / "made-up" / "made-up.tar.gz.part"
    part.write_bytes(b"x" * part.stat().st_size)
    assert "has md5" in refused(site, tmp_path).what
    assert is_whole(fetched(site, tmp_path, told))
    assert site.asked[-1] is None


@pytest.mark.parametrize("lengths", [True, False])
def test_a_server_that_always_ends_early(site: Site, tmp_path: Path, lengths: bool) -> None:
    site.ranges, site.lengths = False, lengths
    site.breaks = [90_000] * 9
    error = refused(site, tmp_path)
    assert (
        "closed the connection" in error.what
        if lengths
        else f"closed the connection after 90000 of {len(ARCHIVE)}" in error.what
    )
    assert "0.1 of 0.2 MB are kept." in error.what
    assert "run the same command again" in error.remedy
    assert len(site.asked) == 2


def test_wrong_bytes(site: Site, tmp_path: Path, told: list[str]) -> None:
    """Of the right length: both checksums are named, and nothing of it is kept."""
    site.data = ARCHIVE[:-1] + bytes([ARCHIVE[-1] ^ 1])
    error = refused(site, tmp_path)
    assert error.what == f"The file from {site.url} has md5 {md5(site.data)}, expected md5 {md5(ARCHIVE)}."
    assert [path.name for path in (tmp_path / "made-up").iterdir()] == [".lock"]
    site.data = ARCHIVE
    assert is_whole(fetched(site, tmp_path, told))


@pytest.mark.parametrize(("data", "lengths"), [(ARCHIVE + b"x", True), (ARCHIVE[:-1], True), (ARCHIVE * 50, False)])
def test_another_length(site: Site, tmp_path: Path, data: bytes, lengths: bool) -> None:
    """Refused before it is downloaded where the server says it; else after one byte too many."""
    site.data, site.lengths = data, lengths
    error = refused(site, tmp_path)
    if lengths:
        assert error.what == f"{site.url} has {len(data)} bytes, expected {len(ARCHIVE)}."
    else:
        assert f"has md5 {md5(data[: len(ARCHIVE) + 1])}" in error.what


@pytest.mark.parametrize("sent", [0, 90_000])
def test_a_server_that_stalls(site: Site, tmp_path: Path, sent: int) -> None:
    site.breaks, site.stalls, site.ranges = [sent] * 9, True, False
    error = refused(site, tmp_path)
    assert f"{site.url} did not answer within 0.3 s" in error.what
    assert len(site.asked) == (2 if sent else 1)


def test_nobody_listens(tmp_path: Path) -> None:
    """One line with the address, and how to go on without a network."""
    with pytest.raises(SetupError, match=r"http://127\.0\.0\.1:9/made-up\.tar\.gz refused the connection") as caught:
        data_sets.fetch(published(), None, tmp_path, lambda line: None)
    assert "--from" in caught.value.remedy


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    """`.invalid` never has an address (RFC 2606)."""
    what = published("http://nowhere.invalid/made-up.tar.gz")
    with pytest.raises(SetupError, match="has an unknown host name, or there is no network"):
        data_sets.fetch(what, None, tmp_path, lambda line: None)


def test_a_server_that_accepts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_sets, "TIMEOUT_S", (0.3, 0.3))
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        what = published(f"http://127.0.0.1:{full.getsockname()[1]}/made-up.tar.gz")
        with pytest.raises(SetupError, match=r"accepted no connection within 0\.3 s"):
            data_sets.fetch(what, None, tmp_path, lambda line: None)


INSIDE = [(f"inside/{name}", data) for name, data in CONTENT.items()]


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (packed(INSIDE[0]), "it lacks inside/batch_2.bin"),
        (packed(INSIDE[0], ("batch_2.bin", CONTENT["batch_2.bin"])), "it lacks inside/batch_2.bin"),
        (packed(INSIDE[0], ("inside/batch_2.bin", b"short")), "batch_2.bin is truncated: 5 of 100002 bytes"),
        (packed(INSIDE[0], ("inside/batch_2.bin", bytes(100_003))), "batch_2.bin has md5 "),
        (packed(INSIDE[0], ("inside/batch_2.bin", bytes(100_002))), "batch_2.bin has md5 "),
        (packed(INSIDE[0], links={"inside/batch_2.bin": "/etc/passwd"}), "it lacks inside/batch_2.bin"),
        (packed(*INSIDE)[:-50_000], "is damaged"),
        (gzip.compress(b"no archive" * 1000), "is damaged"),
        (b"not even gzip", "is damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value) // 1000}k",
)
def test_an_archive_that_is_not_what_was_published(site: Site, tmp_path: Path, archive: bytes, why: str) -> None:
    """Even if its own checksum were right: what it holds is checked by itself. Nothing wrong gets a file's name."""
    site.data = archive
    with pytest.raises(SetupError) as caught:
        fetched(site, tmp_path, [], archive)
    assert why in caught.value.line
    assert "\n" not in caught.value.line
    assert not (tmp_path / "made-up" / "batch_2.bin").exists()
    assert not list(tmp_path.rglob(".batch*"))


def test_an_archive_cannot_write_elsewhere(site: Site, tmp_path: Path, told: list[str]) -> None:
    outside = tmp_path / "outside"
    tricks = [("../evil", b"1"), (str(outside), b"2"), ("inside/../../evil2", b"3"), ("inside/other", b"4")]
    archive = packed(*tricks, *INSIDE, links={"inside/link": "/tmp"})
    site.data = archive
    assert is_whole(fetched(site, tmp_path / "top", told, archive))
    assert [path.name for path in tmp_path.iterdir()] == ["top"]
    assert [path.name for path in (tmp_path / "top").iterdir()] == ["made-up"]


def test_from_the_archive_or_its_directory(tmp_path: Path, told: list[str]) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / "made-up.tar.gz").write_bytes(ARCHIVE)
    for number, source in enumerate([copies, copies / "made-up.tar.gz"]):
        assert is_whole(data_sets.fetch(published(), str(source), tmp_path / str(number), told.append))
    assert (copies / "made-up.tar.gz").read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("made-up.tar.gz", ARCHIVE[:1000], "is truncated: 1000 of"),
        ("made-up.tar.gz", ARCHIVE[:-1] + b"x", "has md5"),
        ("other", b"", "made-up.tar.gz cannot be read: No such file"),
    ],
)
def test_a_directory_without_the_right_files(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / name).write_bytes(data)
    with pytest.raises(SetupError) as caught:
        data_sets.fetch(published(), str(source), tmp_path / "top", lambda line: None)
    assert why in caught.value.line
    assert (source / name).read_bytes() == data


def test_a_source_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--from ftp://x/y is neither a file or directory nor an http URL"):
        data_sets.fetch(published(), "ftp://x/y", tmp_path, lambda line: None)


def test_a_url_of_a_directory(site: Site, tmp_path: Path, told: list[str]) -> None:
    source = site.url.removesuffix("made-up.tar.gz")
    assert is_whole(data_sets.fetch(published(), source, tmp_path, told.append))


def test_a_full_disk(site: Site, tmp_path: Path) -> None:
    huge = replace(published(site.url), members=(PublishedFile("batch_1.bin", 1 << 60, "0" * 32),))
    with pytest.raises(SetupError, match=r"MB free, and \d+ MB are needed"):
        data_sets.fetch(huge, None, tmp_path, lambda line: None)
    assert site.asked == []


@pytest.fixture
def command(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[pytest.CaptureFixture[str]]:
    """The command line with an empty cache, where the made-up set is what is published of CIFAR-10."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(data_sets.PUBLISHED, "cifar10", replace(published(site.url), folder="cifar-10"))
    before = signal.getsignal(signal.SIGTERM)
    yield capsys
    signal.signal(signal.SIGTERM, before)


def test_the_command_fetches_into_the_cache_and_clean_removes_it(
    command: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["data", "fetch", "cifar10"]) == 0
    captured = command.readouterr()
    assert captured.out == f"cifar10 is in {tmp_path}/cache/data/cifar-10\n"
    assert "made-up.tar.gz: " in captured.err
    assert cli.main(["clean", "--yes"]) == 0
    assert "downloaded data sets" in command.readouterr().out
    assert not (tmp_path / "cache" / "data").exists()


def test_the_command_fetches_into_another_folder(
    command: pytest.CaptureFixture[str], tmp_path: Path, site: Site
) -> None:
    """With the variable by which it is found there; an error is one line and the exit code of set-up errors."""
    assert cli.main(["data", "fetch", "cifar10", "--to", "mine", "--from", site.url]) == 0
    assert command.readouterr().out == (
        f"cifar10 is in {tmp_path}/mine/cifar-10; use it with DLOBD_DATA={tmp_path}/mine\n"
    )
    site.data = b"x" * len(ARCHIVE)
    assert cli.main(["data", "fetch", "cifar10"]) == 3
    last = command.readouterr().err.splitlines()[-1]
    assert last.startswith(f"dlobd: The file from {site.url} has md5 ")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cifar", "Unknown data set to fetch 'cifar'; did you mean 'cifar10'? Next: dlobd data list"),
        ("mnist", "mnist needs no download."),
        ("cifar10-partial", "cifar10-partial is a part of cifar10 in dlobd's repository. Next: dlobd data fetch"),
    ],
)
def test_what_cannot_be_fetched(command: pytest.CaptureFixture[str], name: str, line: str) -> None:
    assert cli.main(["data", "fetch", name]) == 2
    assert command.readouterr().err.startswith(f"dlobd: {line}")


def test_the_list_says_what_is_there(
    command: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states() -> dict[str, list[str]]:
        assert cli.main(["data", "list"]) == 0
        return {line.split()[0]: line.split(maxsplit=4)[1:] for line in command.readouterr().out.splitlines()}

    found = states()
    assert {name: row[0] for name, row in found.items()} == {
        "mnist": "whole",
        "cifar10": "missing",
        "cifar10-partial": "partial",
        "synthetic": "generated",
    }
    assert " ".join(found["cifar10"][1:]).startswith(
        "it has not been fetched; fetch it with `dlobd data fetch cifar10`"
    )
    assert found["synthetic"] == ["generated"], "no size where there is none"
    assert found["cifar10-partial"][1:3] == ["31.1", "MB"]
    folder = tmp_path / "own" / "cifar-10"
    folder.mkdir(parents=True)
    monkeypatch.setenv("DLOBD_DATA", str(folder.parent))
    for batches in cifar10.WHOLE.values():
        for batch in batches:
            with (folder / batch.name).open("wb") as file:
                os.truncate(file.fileno(), batch.bytes)
    assert states()["cifar10"] == ["whole", "184.4", "MB", str(folder)]
    (folder / "test_batch.bin").unlink()
    assert " ".join(states()["cifar10"]) == "missing it lacks the files test_batch.bin; dlobd data fetch cifar10"


def test_the_table_of_cifar10_is_the_published_one() -> None:
    """Checksum and size of the archive, and six files of 10,000 records."""
    what = data_sets.PUBLISHED["cifar10"]
    assert (what.archive.md5, what.archive.bytes) == ("c32a1d4ab5d03f1284b67883e8d87530", 170_052_171)
    assert [member.bytes for member in what.members] == [30_730_000] * 6
    assert [member.name for member in what.members] == [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
