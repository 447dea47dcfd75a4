"""What a machine lacks is said part by part, with a next step; nothing is started or fetched."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dlobd import doctor
from dlobd.doctor import Finding


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, so that what a person has does not count; its path is short, as sockets below it need."""
    cache = tmp_path_factory.mktemp("c")
    monkeypatch.setenv("DLOBD_CACHE", str(cache))
    for name in ("DLOBD_JARS", "DLOBD_PORT_BASE", "DLOBD_JAVA", "DLOBD_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    return cache


def found(part: str) -> Finding:
    """The finding of one part."""
    (one,) = [finding for finding in doctor.examine() if finding.part == part]
    return one


def test_every_part_is_examined() -> None:
    """Each once, with a verdict; what is not ok has a next step."""
    findings = doctor.examine()
    assert [finding.part for finding in findings] == [part for part, _ in doctor.PARTS]
    assert found("Python").verdict == found("kernel").verdict == found("clocks").verdict == "ok"
    assert all(finding.remedy for finding in findings if finding.verdict != "ok")


def test_what_a_run_brings_itself_is_absent_not_broken() -> None:
    """Jars that the first run fetches; a cluster that it starts."""
    assert (found("Hadoop jars").verdict, found("cluster").verdict) == ("absent", "absent")
    assert "4 of 4" in found("Hadoop jars").what


def test_own_jars_that_are_not_there_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would fetch them."""
    monkeypatch.setenv("DLOBD_JARS", str(tmp_path))
    assert found("Hadoop jars").verdict == "broken"
    assert "unset DLOBD_JARS" in found("Hadoop jars").remedy


def test_jars_with_a_wrong_checksum_are_broken(empty_cache: Path) -> None:
    """Each is named."""
    (empty_cache / "jars").mkdir(parents=True)
    for jar in doctor.JARS:
        (empty_cache / "jars" / jar.file_name).write_bytes(b"no jar")
    assert found("Hadoop jars").verdict == "broken"
    assert all(jar.file_name in found("Hadoop jars").what for jar in doctor.JARS)


def test_a_taken_port_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port and the next step are those that a run would print."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("DLOBD_PORT_BASE", str(min(port, 65000)))
        one = found("ports")
    assert one.verdict == "broken" or port > 65000
    assert "DLOBD_PORT_BASE" in one.remedy or port > 65000


def test_settings_that_make_no_sense_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the errors that a run would end with."""
    monkeypatch.setenv("DLOBD_PORT_BASE", "many")
    monkeypatch.setenv("DLOBD_JAVA", str(tmp_path / "nowhere"))
    assert "is not a port number" in found("ports").what
    assert found("Java").verdict == "broken"


def test_what_others_can_connect_to_is_told() -> None:
    """Every third party that listens, with its address and what protects it."""
    programs = " ".join(listener.program for listener in doctor.LISTENERS)
    for name in ("HDFS", "YARN", "Spark", "reservation server", "queue manager", "gRPC"):
        assert name in programs
    assert all(listener.address and listener.protected for listener in doctor.LISTENERS)
