"""What a watcher is told of logs that grow, appear and go."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlobd.bundle.store import Bundle
from dlobd.selftest import freezer, triggers, truth
from dlobd.selftest.log_tail import LogTail, WatchedRun


def make(path: Path, text: str) -> Path:
    """A file, with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_only_what_is_new_is_told_line_by_line(tmp_path: Path) -> None:
    """A line is told once it is whole; a log that appears is told first; one that goes is no error."""
    old = make(tmp_path / "old", "before\n")
    logs = {"old": old}
    tail = LogTail(lambda: logs)
    assert list(tail.lines()) == []
    with old.open("a") as file:
        file.write("one\ntw")
    assert list(tail.lines()) == [("old", "one")]
    with old.open("a") as file:
        file.write("o\n")
    logs["new"] = make(tmp_path / "new", "first\n")
    assert list(tail.lines()) == [("old", "two"), ("new", ""), ("new", "first")]
    old.unlink()
    assert list(tail.lines()) == []


def watched(tmp_path: Path, cluster_mode: bool) -> WatchedRun:
    """A run on a cluster that had an application before."""
    make(tmp_path / "nodemanager-0/userlogs/application_1_0001/container_1_0001_01_000001/stderr", "")
    namenode = make(tmp_path / "namenode.log", "")
    cluster = SimpleNamespace(work_dir=tmp_path, log_files=lambda: {"namenode": namenode})
    run = WatchedRun(cluster, cluster_mode, other="_1_0002")  # type: ignore[arg-type]
    for application, container, node in ((2, 1, 0), (3, 1, 1), (3, 2, 0)):
        name = f"application_1_{application:04}/container_1_{application:04}_01_{container:06}/stderr"
        make(tmp_path / f"nodemanager-{node}/userlogs" / name, "")
    make(tmp_path / "bundle/logs/driver.stderr", "")
    run.began(Bundle(tmp_path / "bundle"))
    return run


def test_a_runs_logs_have_names(tmp_path: Path) -> None:
    """Of its own containers alone; the driver's is spark-submit's, or the ApplicationMaster's."""
    for cluster_mode in (False, True):
        run = watched(tmp_path / str(cluster_mode), cluster_mode)
        logs = run.logs()
        assert logs.keys() == {"namenode", "spark-submit", "driver", "container-1", "container-2"}
        assert logs["driver"] == logs["container-1" if cluster_mode else "spark-submit"]
        assert run.container(2) == "container_1_0003_01_000002"
        assert run.container(3) == ""
        assert run.tells_of_it("container_1_0003_01_000001")
        assert not run.tells_of_it("container_1_0002_01_000001")


def test_a_delay_is_made_at_the_first_line_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the named log, once, and not for another application's container."""
    run = watched(tmp_path, cluster_mode=False)
    log = tmp_path / "namenode.log"
    fired: list[str] = []
    done = threading.Event()

    def note(log: str, match: re.Match[str]) -> None:
        fired.append(f"{log} {match[0]}")
        done.set()

    waiting = [freezer._Waiting("name.*", re.compile(r"container_\w+ starts"), note)]
    stop = threading.Event()
    thread = threading.Thread(target=freezer._watch, args=(run, LogTail(run.logs), waiting, stop))
    thread.start()
    try:
        with log.open("a") as file:
            file.write("container_1_0002_01_000001 starts\ncontainer_1_0003_01_000001 starts\n")
            file.flush()
            assert done.wait(20)
            file.write("container_1_0003_01_000002 starts\n")
    finally:
        stop.set()
        thread.join()
    assert fired == ["namenode container_1_0003_01_000001 starts"]


def test_what_never_comes_to_be_is_no_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line was there, the process was not."""
    trigger = triggers.Trigger("driver", re.compile("x"), lambda run, log, match: [], within_s=0.05)
    monkeypatch.setattr(freezer, "TRIGGERS", {"spark/stop": trigger})
    run = watched(tmp_path, cluster_mode=False)
    match = re.search("x", "x")
    assert match
    freezer._frozen(run, "spark/stop", 0.01, tmp_path, threading.Event(), freezer.Stops())("driver", match)
    assert truth.read(tmp_path) == []
