"""The bench of pathologies: its table, faults that undo themselves, and the page with the results."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.narrow_loopback import narrow_loopback
from bench.pathologies import __main__ as bench
from bench.pathologies import faults, results, stage, table
from bench.pathologies.faults import FileAppears
from bench.pathologies.results import Result
from bench.pathologies.stage import Ended, Stage
from bench.pathologies.table import Pathology
from bench.publish import PAGE, markers
from dlobd import spans as kinds
from dlobd.errors import Busy, SetupError
from dlobd.experiment import files, own_job
from dlobd.experiment.spark_submit_line import parse
from dlobd.faults import injection_log, queue_filler, slow_disk
from dlobd.faults.observed_run import LogLine, ObservedRun
from dlobd.findings import rules
from dlobd.micro.hosts import HERE, Host
from dlobd.process_id import ProcessId, identify
from dlobd.record.run import Finding
from dlobd.run import page_cache
from tests.records import run_record
from tests.waiting import until

S = 10**9
TOP = Path(__file__).parents[2]
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


# ---- the table


@pytest.mark.parametrize("pathology", bench.EVERY, ids=lambda one: one.name)
def test_a_pathology_starts_a_valid_run(pathology: Pathology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(directory: Path, words: list[str], *others: Any, **named: Any) -> Ended:
        asked.append(words)
        return Ended(0, None)

    @contextmanager
    def nowhere(rate: str) -> Iterator[Host]:
        yield HERE

    monkeypatch.setattr(table, "narrow_loopback", nowhere)
    monkeypatch.setattr("bench.pathologies.own_jobs.BYTES", 1 << 20)
    monkeypatch.setattr("bench.pathologies.own_jobs.SMALL_FILES", 10)
    stand_in: Any = SimpleNamespace(run=run)
    pathology.make(stand_in, tmp_path)
    ((command, *words),) = asked
    assert words[words.index("--out") + 1] == str(tmp_path)
    if command == "run":
        sets = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
        files.load(words[0], sets)
        options = words[words.index("--conf") : words.index("--out")] if "--conf" in words else []
    else:
        assert command == "submit"
        place = words.index("--")
        sets = [words[at + 1] for at, word in enumerate(words[:place]) if word == "--set"]
        options = list(own_job.from_line(words[place + 1 :], sets).options)
    assert list(tmp_path.iterdir()) == []
    lacks = [jvm for jvm in ("driver", "executor", "yarn.am") if rules.QUICK_START not in java_options(options, jvm)]
    assert bool(lacks) is ("launcher=native" in sets)


def java_options(options: Sequence[str], jvm: str) -> str:
    """Returns the Java options of a JVM by options of spark-submit."""
    return parse(("spark-submit", *options, "script")).settings.get(f"spark.{jvm}.extraJavaOptions", "")


# ---- faults


@contextmanager
def child(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], ProcessId]]:
    process = subprocess.Popen([*(words or SLEEPS)])
    try:
        known = identify(process.pid)
        assert known
        yield process, known
    finally:
        process.kill()
        process.wait()


def state(process: subprocess.Popen[bytes]) -> str:
    """Returns the state of a process; T means stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def observed(tmp_path: Path, **members: Any) -> ObservedRun:
    """A run on a cluster that consists of a directory."""
    cluster: Any = SimpleNamespace(work_dir=tmp_path / "cluster", log_files=dict, daemons_now=list, **members)
    (tmp_path / "runs").mkdir(exist_ok=True)
    return ObservedRun(cluster, tmp_path / "runs", bundles=tmp_path / "runs")


def injected(run: ObservedRun) -> list[str]:
    return [injection.point for injection in injection_log.read(run.directory)]


def spans(of: ObservedRun, role: str, pid: int, *marks: str) -> Path:
    """Writes the span file of a process in a container of the run."""
    path = of.cluster.work_dir / f"nodemanager-0/userlogs/application_1/container_1_01_000002/spans-{pid}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"k": "process", "role": role, "pid": pid}, separators=(",", ":")), *marks]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_stopped_daemon_continues_at_the_end_of_the_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("begins\n")
    with child() as (process, _):
        one = observed(tmp_path, daemon_pids=lambda: {"namenode": process.pid})
        one.cluster.log_files = lambda: {"namenode": log}  # type: ignore[method-assign]
        fault = faults.daemon_stopped("namenode", 60, LogLine("name.*", re.compile("begins")))

        def interrupted() -> None:
            with fault(one):
                time.sleep(0.1)
                assert injected(one) == []
                with log.open("a") as file:
                    file.write("begins again\n")
                until(lambda: state(process) == "T")
                raise KeyboardInterrupt

        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        until(lambda: state(process) != "T")
        assert time.monotonic() - began < 30
        assert one.planned == injected(one) == ["namenode stopped"]


def test_a_fault_without_its_trigger_is_planned_and_missing(tmp_path: Path) -> None:
    one = observed(tmp_path)
    with faults.daemon_stopped("datanode", 60, faults.IMPORTED)(one):
        pass
    assert (one.planned, injected(one)) == (["datanode stopped"], [])


def test_a_trainer_is_stopped_while_it_imports(tmp_path: Path) -> None:
    with child() as (chief, _), child() as (late, _):
        one = observed(tmp_path)
        with faults.trainer_stopped(60)(one):
            spans(one, "chief", chief.pid)
            spans(one, "trainer", late.pid)
            until(lambda: state(late) == "T")
            assert state(chief) != "T"
        until(lambda: state(late) != "T")


def test_a_hampered_trainer_is_stopped_until_its_last_step(tmp_path: Path) -> None:
    with child() as (process, _):
        one = observed(tmp_path)
        with faults.trainer_hampered(0.05, 0.05)(one):
            spans(one, "worker", process.pid, kinds.FIRST_STEP_DONE)
            for _ in range(3):
                until(lambda: state(process) == "T")
                until(lambda: state(process) != "T")
            spans(one, "worker", process.pid, kinds.FIRST_STEP_DONE, kinds.LAST_STEP_DONE)
            time.sleep(0.3)
            assert state(process) != "T"
        assert set(injected(one)) == {"trainer hampered"}


def test_a_container_is_killed_once_its_job_has_begun(tmp_path: Path) -> None:
    begun, java = tmp_path / "begun", tmp_path / "java"
    java.symlink_to("/bin/sleep")
    container = f"container_{os.getpid()}_01_000002"
    one = observed(tmp_path)
    mine = subprocess.Popen([str(java), "60"], env={"CONTAINER_ID": container})
    shell = subprocess.Popen(["/bin/sleep", "60"], env={"CONTAINER_ID": container})
    try:
        (one.cluster.work_dir / f"nodemanager-1/userlogs/application_2/{container}").mkdir(parents=True)
        with faults.container_killed(2, begun, 0.05)(one):
            begun.touch()
            assert mine.wait(20) == -signal.SIGKILL
        assert shell.poll() is None
        assert injected(one) == ["container killed"]
    finally:
        for process in (mine, shell):
            process.kill()
            process.wait()


def test_busy_processes_end_with_the_run(tmp_path: Path) -> None:
    kept: list[subprocess.Popen[bytes]] = []

    def interrupted() -> None:
        with faults.hogs(2) as found:
            kept.extend(found)
            assert all(process.poll() is None for process in found)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [process.poll() for process in kept] == [-signal.SIGKILL] * 2


def test_a_busy_process_ends_with_its_parent() -> None:
    words = f"[sys.executable, '-c', {faults.BUSY!r}, str(os.getpid())]"
    parent = f"import os, subprocess, sys; print(subprocess.Popen({words}, stdout=subprocess.DEVNULL).pid)"
    told = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True, timeout=30)
    until(lambda: identify(int(told.stdout)) is None)


def test_processes_are_busy_in_training_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    @contextmanager
    def counted(count: int) -> Iterator[None]:
        counts.append(count)
        yield
        counts.append(0)

    monkeypatch.setattr(faults, "hogs", counted)
    one = observed(tmp_path)
    with child() as (process, _), faults.busy_in_training(8)(one):
        time.sleep(0.2)
        assert counts == []
        spans(one, "chief", process.pid, kinds.FIRST_STEP_DONE)
        until(lambda: counts == [8])
        spans(one, "chief", process.pid, kinds.FIRST_STEP_DONE, kinds.LAST_STEP_DONE)
        until(lambda: counts == [8, 0])


def test_a_filled_queue_is_released_after_the_trigger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[float] = []

    @contextmanager
    def held(cluster: Any, memory_mb: int = 0) -> Iterator[queue_filler.Filler]:
        yield queue_filler.Filler("application_1", lambda: released.append(time.monotonic()))
        released.append(memory_mb)

    monkeypatch.setattr(queue_filler, "filled", held)
    begun = tmp_path / "begun"
    one = observed(tmp_path)
    with faults.queue_filled(0.2, FileAppears(begun), 4096)(one):
        came = time.monotonic()
        begun.touch()
        until(lambda: released)
        assert released[0] >= came + 0.2
    assert released[1:] == [4096]
    assert injected(one) == ["queue filled"]


def test_files_are_dropped_from_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 16))
    faults.drop([tmp_path / "gone", path])
    assert any("libtensorflow" in one.name for one in faults.environment(tmp_path))


def test_the_environment_is_read_from_a_slow_disk_during_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := slow_disk.obstacle(tmp_path):
        pytest.skip(reason)
    file = tmp_path / "library"
    file.write_bytes(os.urandom(1 << 20))
    monkeypatch.setattr(faults, "environment", lambda java_home: [file])

    def group(pid: int) -> str:
        return next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if ":blkio:" in line)

    with child() as (process, _):
        one = observed(
            tmp_path, java=SimpleNamespace(home=tmp_path), daemon_pids=lambda: {"nodemanager-0": process.pid}
        )
        before = group(process.pid)
        with faults.environment_dropped(1 << 20)(one):
            assert page_cache.residency([file]).resident_bytes == 0
            assert group(process.pid) != before
            limit = slow_disk.BLKIO / group(process.pid).rpartition("/")[2] / slow_disk.LIMIT
            assert limit.read_text().split()[-1] == str(1 << 20)
        assert group(process.pid) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_a_slow_network_is_a_namespace_of_its_own_and_is_removed() -> None:
    def there() -> set[str]:
        return set(
            subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True, timeout=20).stdout.split()
        )

    before = there()
    try:
        with narrow_loopback("100mbit") as host:
            assert host.namespace in there()
            shown = [*host.command, "tc", "qdisc", "show", "dev", "lo"]
            assert (
                "rate 100Mbit" in subprocess.run(shown, capture_output=True, text=True, check=True, timeout=20).stdout
            )
    except SetupError as error:
        pytest.skip(str(error))
    finally:
        assert not {name for name in there() - before if name.startswith(f"dlobd-{os.getpid()}")}


def test_without_root_there_is_no_slow_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="need root"), narrow_loopback("100mbit"):
        pass


# ---- runs


def test_a_run_that_is_interrupted_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Stage(tmp_path, lambda line: None)
    one._cluster = observed(tmp_path).cluster
    monkeypatch.setattr(stage.sys, "executable", "/bin/sleep")
    monkeypatch.setattr(stage.subprocess, "Popen", begun := _Kept())

    def interrupt(process: Any, longest_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "_wait", interrupt)
    undone: list[str] = []

    @contextmanager
    def fault(run: ObservedRun) -> Iterator[None]:
        try:
            yield
        finally:
            undone.append("undone")

    with pytest.raises(KeyboardInterrupt):
        one.run(tmp_path / "run", ["60"], [fault])
    assert undone == ["undone"]
    assert [process.poll() for process in begun.made] == [-signal.SIGTERM]


class _Kept:
    """Starts `sleep 60` instead of any command."""

    def __init__(self) -> None:
        self.made: list[subprocess.Popen[bytes]] = []
        self._popen = subprocess.Popen

    def __call__(self, command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        self.made.append(self._popen([*SLEEPS], **settings))
        return self.made[-1]


def test_a_cluster_that_lost_a_daemon_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every later run would be refused. A healthy cluster is used again."""
    calls: list[str] = []

    class Cluster:
        def __init__(self, settings: Any) -> None:
            assert settings.own == {"dfs.replication": "2"}
            self.alive = True

        def daemons_now(self) -> list[dict[str, Any]]:
            return [{"alive": True}, {"alive": self.alive}]

        def start(self, progress: Any) -> None:
            calls.append("start")

        def release(self) -> None:
            calls.append("release")

        def stop(self, progress: Any) -> None:
            calls.append("stop")

    monkeypatch.setattr(stage, "EmbeddedCluster", Cluster)
    one = Stage(tmp_path, lambda line: None, ["dfs.replication=2"])
    first: Any = one.cluster
    assert one.cluster is first
    first.alive = False
    assert one.cluster is not first
    one.close()
    one.close()
    assert calls == ["start", "release", "stop", "start", "release", "stop"]


def test_the_bundle_is_the_one_that_the_last_line_names() -> None:
    assert stage.bundle_named("what\nbundle: /a/b\n") == Path("/a/b")
    assert stage.bundle_named("what\n") is None
    assert stage.bundle_named("") is None


# ---- results


ONE = Pathology("one", "by hand", "queue", lambda stage, directory: Ended(0, None))


def finding(name: str, saves_s: float, loud: bool) -> dict[str, Any]:
    ns = round(saves_s * S)
    return asdict(Finding(name, "yarn", "it does.", ns, ns, ns, loud, ("a line",), "less of it", "it does not"))


def result(expected: str, *found: dict[str, Any], why_not: str = "", **changes: Any) -> Result:
    """Returns the result of a run of 40 s with these findings."""
    record = {"status": "ok", "reason": None, "wall_ns": 40 * S, "findings": list(found), **changes}
    pathology = Pathology("one", "by hand", expected, ONE.make)
    return results.of_record(pathology, record, "bundle", why_not, 1.0)


def test_the_first_finding_above_noise_counts() -> None:
    quiet, loud, other = finding("feed", 1, False), finding("queue", 15, True), finding("polls", 9, True)
    assert result("queue", loud, other, quiet).right
    assert not result("polls", loud, other, quiet).right
    assert not result("feed", quiet).right
    assert result("queue", loud, status="invalid").right
    assert not result("queue", loud, status="failed").right
    assert not result("queue", loud, why_not="the trigger did not occur").right
    assert result("", quiet).right
    assert not result("", loud).right


def test_the_page_says_what_was_found(tmp_path: Path) -> None:
    """A row per run, and the totals. A run that could not start has its reason, and is not right."""
    made = [
        result("queue", finding("queue", 15, True)),
        result("feed", finding("queue", 15, True), status="failed", reason="it | broke"),
        results.not_run(ONE, "it needs root", 1.0),
        result("queue", finding("queue", 15, True), why_not="the trigger did not occur: queue filled"),
    ]
    healthy = [result("", finding("feed", 1, False)), result("", finding("feed", 9, True))]
    (tmp_path / PAGE).write_text("before\n\n" + "\n".join(markers("pathologies")) + "\n\nafter\n")
    page = results.write(tmp_path, made, healthy).read_text()
    assert page.startswith("before\n\n<!-- pathologies: begin, made by make pathologies -->")
    assert page.endswith("<!-- pathologies: end -->\n\nafter\n")
    assert "| one | by hand | queue | queue | 15.0 s | 40.0 s | yes |" in page
    assert "| one | by hand | feed | queue; run failed: it / broke | 15.0 s | 40.0 s | no |" in page
    assert "| one | by hand | queue | not run: it needs root | - | - | no |" in page
    assert "| one | by hand | queue | queue; no fault: the trigger did not occur: queue filled |" in page
    assert "| one | by hand | feed | 9.0 s | 40.0 s | no |" in page
    assert "**Right in 1 of 4; findings above noise in 1 of 2 healthy runs.**" in page


def test_a_result_is_stored_until_the_table_changes(tmp_path: Path) -> None:
    kept = results.not_run(ONE, "it needs root", 1.0)
    results.store(tmp_path, ONE, kept)
    assert results.stored(tmp_path, ONE) == kept
    assert results.stored(tmp_path, Pathology("one", "otherwise", "queue", ONE.make)) is None
    (results.directory(tmp_path, ONE) / results.FILE).write_text("{")
    assert results.stored(tmp_path, ONE) is None


def test_a_run_without_a_bundle_has_its_failure_line(tmp_path: Path) -> None:
    assert results.of_run(ONE, Ended(3, None, "no Java"), 1.0).why_not == "no Java"
    assert results.of_run(ONE, Ended(1, None), 1.0).why_not == "exit code 1, and no bundle"
    assert results.of_run(ONE, Ended(0, tmp_path / "gone"), 1.0).why_not
    record = run_record(findings=[finding("queue", 15, True)])
    (tmp_path / "run.json").write_text(json.dumps(record))
    found = results.of_run(ONE, Ended(0, tmp_path, missing=("queue filled",)), 1.0)
    assert (found.first, found.status, found.right) == ("queue", "ok", False)
    assert found.why_not == "the trigger did not occur: queue filled"


def test_the_command_continues_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only runs without a result, or that could not start, run again. The page needs all results."""
    ran: list[str] = []

    def pathology(name: str, expected: str) -> Pathology:
        def make(stage: Stage, directory: Path) -> Ended:
            ran.append(name)
            if name == "needs root" and len(ran) < 5:
                raise SetupError("It needs root.")
            if name == "interrupts" and len(ran) < 5:
                raise KeyboardInterrupt
            directory.mkdir(parents=True, exist_ok=True)
            loud = [finding(expected, 15, True)] if expected else []
            (directory / "run.json").write_text(json.dumps(run_record(findings=loud)))
            return Ended(0, directory)

        return Pathology(name, "by hand", expected, make)

    sick = (pathology("queue", "queue"), pathology("needs root", "exchange"), pathology("interrupts", "feed"))
    healthy = (pathology("healthy", ""),)
    for name, value in {"PATHOLOGIES": sick, "HEALTHY": healthy, "EVERY": (*healthy, *sick)}.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(bench, "WARM_UP", Pathology("warm up", "", "", lambda stage, directory: Ended(0, None)))
    monkeypatch.setattr(bench.series_runner, "settled_busy_percent", lambda: 1.0)
    told: list[str] = []

    class Told(list[str]):
        __call__ = keep = told.append

    asked = argparse.Namespace(out=tmp_path / "out", docs=tmp_path / "docs", only=[], loaded=True)
    with pytest.raises(KeyboardInterrupt):
        bench._measure(asked, Told())  # type: ignore[arg-type]
    assert ran == ["healthy", "queue", "needs root", "interrupts"]
    assert "needs root: could not run: It needs root." in told
    assert not (tmp_path / "docs").exists()
    ran[:] = ["-"] * 5
    (written,) = bench._measure(asked, Told())  # type: ignore[arg-type]
    assert ran[5:] == ["needs root", "interrupts"]
    assert "findings above noise in 0 of 1 healthy runs" in written.read_text()
    ran.clear()
    bench._measure(asked, Told())  # type: ignore[arg-type]
    assert ran == []


def test_another_command_on_the_cluster_ends_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(stage: Stage, directory: Path) -> Ended:
        raise Busy("Another dlobd command is using the cluster.")

    monkeypatch.setattr(bench.series_runner, "settled_busy_percent", lambda: 1.0)
    with pytest.raises(Busy):
        bench.run(Stage(tmp_path, lambda line: None), Pathology("one", "by hand", "queue", make))
