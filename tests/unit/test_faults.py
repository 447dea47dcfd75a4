"""Faults: triggers fire once, the log has measured intervals, and hooks wait where a slow layer would."""

from __future__ import annotations

import inspect
import json
import os
import re
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bench.pathologies.faults import FileAppears, Recorded, wait_for
from dlobd.bundle.store import Bundle
from dlobd.faults import hooks, injection_log, sigstop, slow_disk
from dlobd.faults.observed_run import Fault, LogLine, LogTail, Moment, ObservedRun, armed
from dlobd.job.training import inputs as training_inputs
from dlobd.job.training import step as training_step

S = 1_000_000_000


def make(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- triggers


def test_a_log_tail_yields_new_complete_lines(tmp_path: Path) -> None:
    old = make(tmp_path / "old", "before\n")
    logs = {"old": (old,)}
    tail = LogTail(lambda: logs)
    assert list(tail.lines()) == []
    with old.open("a") as file:
        file.write("one\ntw")
    assert list(tail.lines()) == [("old", "one")]
    with old.open("a") as file:
        file.write("o\n")
    logs["new"] = (make(tmp_path / "new", "first\n"),)
    assert list(tail.lines()) == [("old", "two"), ("new", ""), ("new", "first")]
    old.unlink()
    assert list(tail.lines()) == []


def observed(tmp_path: Path, cluster_mode: bool = False) -> ObservedRun:
    """Return a run on a cluster with an earlier application and another one beside it."""
    make(tmp_path / "nodemanager-0/userlogs/application_1_0001/container_1_0001_01_000001/stderr", "")
    namenode = make(tmp_path / "namenode.log", "")
    cluster = SimpleNamespace(work_dir=tmp_path, log_files=lambda: {"namenode": namenode})
    run = ObservedRun(cluster, tmp_path, cluster_mode, other="_1_0002")  # type: ignore[arg-type]
    for application, container, node in ((2, 1, 0), (3, 1, 1), (3, 2, 0)):
        name = f"application_1_{application:04}/container_1_{application:04}_01_{container:06}/stderr"
        make(tmp_path / f"nodemanager-{node}/userlogs" / name, "")
    make(tmp_path / "bundle/logs/driver.stderr", "")
    run.began(Bundle(tmp_path / "bundle"))
    return run


def test_the_logs_of_a_run_have_names(tmp_path: Path) -> None:
    for cluster_mode in (False, True):
        run = observed(tmp_path / str(cluster_mode), cluster_mode)
        logs = run.logs()
        assert logs.keys() == {"namenode", "spark-submit", "driver", "container-1", "container-2"}
        assert logs["driver"] == logs["container-1" if cluster_mode else "spark-submit"]
        assert run.container(2) == "container_1_0003_01_000002"
        assert run.container(3) == ""
        assert run.concerns("container_1_0003_01_000001")
        assert not run.concerns("container_1_0002_01_000001")


def test_the_log_of_a_run_by_the_command_line_is_the_new_one(tmp_path: Path) -> None:
    make(tmp_path / "runs/quick/1/logs/driver.stderr", "")
    cluster = SimpleNamespace(work_dir=tmp_path, log_files=dict)
    run = ObservedRun(cluster, tmp_path, bundles=tmp_path / "runs")  # type: ignore[arg-type]
    assert run.logs() == {}
    new = make(tmp_path / "runs/quick/2/logs/driver.stderr", "")
    both = new, new.with_name("driver.log")
    assert run.logs() == {"spark-submit": both, "driver": both}


def test_a_fault_is_injected_once_at_the_first_matching_line(tmp_path: Path) -> None:
    run = observed(tmp_path)
    injected: list[str] = []
    done = threading.Event()

    def inject(run: ObservedRun, moment: Moment) -> None:
        assert moment.match
        injected.append(f"{moment.source} {moment.match[0]}")
        done.set()

    trigger = LogLine("name.*", re.compile(r"container_\w+ starts"))
    with armed(run, [Fault("first", trigger, inject)]), (tmp_path / "namenode.log").open("a") as file:
        file.write("container_1_0002_01_000001 starts\ncontainer_1_0003_01_000001 starts\n")
        file.flush()
        assert done.wait(20)
        file.write("container_1_0003_01_000002 starts\n")
    assert injected == ["namenode container_1_0003_01_000001 starts"]
    assert (run.planned, run.over.is_set()) == (["first"], True)


def test_a_file_and_a_recorded_instant_are_triggers_too(tmp_path: Path) -> None:
    run = observed(tmp_path)
    assert FileAppears(tmp_path / "begun").seen(run) is None
    assert wait_for(run, FileAppears(make(tmp_path / "begun", ""))) == Moment("begun")
    header = json.dumps({"k": "process", "role": "chief", "pid": os.getpid()}, separators=(",", ":"))
    container = tmp_path / "nodemanager-0/userlogs/application_1_0003/container_1_0003_01_000002"
    spans = make(container / "spans-1.jsonl", f"{header}\nfirst\n")
    moment = Recorded("first", "last").seen(run)
    assert moment
    assert moment.process
    assert (moment.source, moment.process.pid) == ("chief", os.getpid())
    assert Recorded("first", chief=False).seen(run) is None
    spans.write_text(f"{header}\nfirst\nlast\n")
    assert Recorded("first", "last").seen(run) is None
    run.over.set()
    assert wait_for(run, Recorded("never")) is None


# ---- the injection log


def test_a_process_that_never_appears_is_not_stopped(tmp_path: Path) -> None:
    sigstop.stop("hdfs/read", list, 0.01, tmp_path, threading.Event(), within_s=0.05)
    over = threading.Event()
    over.set()
    sigstop.stop("hdfs/read", list, 0.01, tmp_path, over, within_s=60)
    assert injection_log.read(tmp_path) == []


def test_the_disk_of_a_directory_is_known_before_the_directory_exists(tmp_path: Path) -> None:
    assert (
        slow_disk.obstacle(tmp_path / "not" / "yet").partition("/")[0] == slow_disk.obstacle(tmp_path).partition("/")[0]
    )


# ---- hooks


def test_a_delay_is_injected_once_by_any_rank(tmp_path: Path) -> None:
    plan = {"tensorflow/decode": [0.01, 0.02]}
    for _rank in range(2):
        inputs = ModuleType("inputs")
        inputs.decode_block = len  # type: ignore[attr-defined]
        inputs.batches = lambda *args: None  # type: ignore[attr-defined]
        hooks._inputs(inputs, tmp_path, plan)
        assert [inputs.decode_block(bytes(n)) for n in range(30)] == list(range(30))
    assert [one.asked_ns for one in injection_log.read(tmp_path)] == [10_000_000, 20_000_000]
    assert all(one.ns >= one.asked_ns for one in injection_log.read(tmp_path))


def test_a_step_computes_for_longer_near_the_end(tmp_path: Path) -> None:
    step = ModuleType("step")
    step._compute_function = lambda tf, job, *args: len  # type: ignore[attr-defined]
    hooks._step(step, tmp_path, {"tensorflow/step": [0.01]})
    compute = step._compute_function(None, SimpleNamespace(steps=hooks.STEP + 3), "workload", "exchange")
    delayed = []
    for k in range(hooks.STEP + 3):
        assert compute(bytes(k)) == k
        delayed += [k] * (len(injection_log.read(tmp_path)) - len(delayed))
    assert delayed == [3]


def test_hooked_functions_exist_and_an_unarmed_delay_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (training_step._compute_function, training_inputs.batches):
        assert list(inspect.signature(function).parameters)[:2] == ["tf", "job"]
    assert callable(training_inputs.decode_block)
    monkeypatch.setattr(hooks, "ARM_S", 0.02)
    began_s = time.monotonic()
    hooks._Delay(tmp_path, {"feed/put": [0.01]}, "feed/put").once(lambda: None)
    assert injection_log.read(tmp_path) == []
    assert time.monotonic() > began_s


def test_a_delay_counts_from_when_it_holds_up(tmp_path: Path) -> None:
    looks = iter([None, None, time.monotonic_ns()])
    hooks._Delay(tmp_path, {"feed/put": [0.01]}, "feed/put").once(lambda: next(looks))
    (injected,) = injection_log.read(tmp_path)
    assert injected.ns >= injected.asked_ns + 2 * round(hooks.LOOK_S * S)


def test_a_pipe_is_waited_for_since_it_was_empty(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    empty = hooks._EmptyPipe(writer)
    found = []
    for _ in range(2):
        os.write(writer, b"x")
        assert empty() is None
        os.read(reader, 1)
        began_ns = time.monotonic_ns()
        while (since_ns := empty()) is None:
            time.sleep(0.001)
        assert began_ns <= since_ns <= time.monotonic_ns() - hooks.DRAINED_NS
        found.append(since_ns)
    assert found[0] < found[1]
    os.close(reader)
    os.close(writer)
